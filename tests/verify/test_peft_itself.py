"""Adapters and packed weights beside peft and bitsandbytes themselves: names, shapes, what trains, bytes that lie."""

from __future__ import annotations

import json
import warnings

import pytest

import zeroplan
from zeroplan.architectures.adapters import with_adapter
from zeroplan.architectures.model import model_of
from zeroplan.architectures.quantized import with_quantization
from zeroplan.architectures.read import read_config
from zeroplan.catalog.adapters import read_adapter
from zeroplan.errors import ZeroplanError
from zeroplan.specs.quantization import Quantization

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft")
transformers.logging.set_verbosity_error()

BASE = {
    "vocab_size": 64, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "pad_token_id": 0, "tie_word_embeddings": False,
}  # fmt: skip
PLAIN = {"vocab_size": 64, "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4, "pad_token_id": 0}
MODELS = {
    "llama": BASE,
    "qwen2": {**BASE, "tie_word_embeddings": True},
    "gemma3_text": {**BASE, "head_dim": 8, "tie_word_embeddings": True},
    "mixtral": {**BASE, "num_local_experts": 3},
    "gpt2": {"vocab_size": 64, "n_embd": 16, "n_layer": 3, "n_head": 4, "n_positions": 32},
    "opt": {**PLAIN, "ffn_dim": 24, "word_embed_proj_dim": 16, "max_position_embeddings": 32},
    "bert": {**PLAIN, "intermediate_size": 24, "max_position_embeddings": 32},
}
EVERY = {"r": 4, "target_modules": "all-linear"}
NAMED = {"r": 4, "target_modules": ["q_proj", "v_proj"]}
CASES = [
    *((family, EVERY) for family in MODELS),
    ("llama", {**NAMED, "modules_to_save": ["embed_tokens", "lm_head"]}),
    ("llama", {**NAMED, "layers_to_transform": [0, 2], "layers_pattern": "layers"}),
    ("llama", {**NAMED, "layers_to_transform": 1}),
    ("llama", {**EVERY, "rank_pattern": {r"layers\.1\..*q_proj": 2, "q_proj": 3, "mlp.up_proj": 5}}),
    ("llama", {**EVERY, "exclude_modules": ["down_proj", "layers.1.self_attn.k_proj"]}),
    ("llama", {**EVERY, "exclude_modules": r".*\.mlp\..*"}),
    ("llama", {"r": 4, "target_modules": r".*layers\.[12]\..*(q|k)_proj", "use_dora": True}),
    ("llama", {"r": 4, "target_modules": ["embed_tokens", "lm_head", "self_attn.o_proj"]}),
    ("llama", {"r": 4, "target_modules": ["lm_head", "q_proj"], "layers_to_transform": [1]}),
    ("qwen2", {**NAMED, "bias": "lora_only", "modules_to_save": ["norm"]}),
    ("qwen2", {**NAMED, "modules_to_save": ["embed_tokens"]}),
    ("qwen2", {**NAMED, "lora_bias": True, "use_rslora": True, "lora_dropout": 0.1}),
    ("gpt2", {"r": 4, "target_modules": ["c_attn"], "bias": "all"}),
    ("gpt2", {"r": 4, "target_modules": ["c_proj", "wte"], "layers_to_transform": [1], "layers_pattern": ["h"]}),
    ("opt", {**NAMED, "bias": "all", "use_dora": True}),
    ("opt", {"r": 4, "target_modules": ["fc1", "fc2"], "bias": "lora_only", "exclude_modules": ["layers.0.fc2"]}),
    ("mixtral", {"r": 4, "target_modules": ["q_proj", "w1", "w2", "w3"]}),
    ("bert", {"r": 4, "target_modules": ["query", "value", "dense"], "exclude_modules": [r"pooler.dense", "output.dense"]}),
]  # fmt: skip


def ours(family, **more):
    return model_of(*read_config({"model_type": family, **MODELS[family], **more}, "case"), name=family, source="case")


def theirs(family, device="meta"):
    config = transformers.AutoConfig.for_model(family, **MODELS[family])
    kind = transformers.AutoModelForMaskedLM if family == "bert" else transformers.AutoModelForCausalLM
    with torch.device(device):
        return kind.from_config(config, dtype=torch.bfloat16)


def wrapped(family, adapter):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.device("meta"):
            return peft.get_peft_model(theirs(family), peft.LoraConfig(**adapter))


@pytest.mark.parametrize(("family", "adapter"), CASES, ids=lambda each: str(each)[:70])
def test_parameters_are_those_of_get_peft_model_in_order(family, adapter):
    found = with_adapter(ours(family), read_adapter(adapter, "case"))
    expected = [(n, tuple(p.shape), p.requires_grad) for n, p in wrapped(family, adapter).named_parameters()]
    assert [(each.name, each.shape, each.trainable) for each in found.tensors] == expected


@pytest.mark.parametrize(("family", "adapter"), [
    ("llama", {"r": 4, "target_modules": ["nosuch"]}),
    ("llama", {"r": 4, "target_modules": "q_proj"}),  # a string is an expression for whole names
    ("llama", {"r": 4, "target_modules": ["norm"]}),
    ("llama", {"r": 4, "target_modules": ["self_attn"]}),
    ("llama", {"r": 0, "target_modules": ["q_proj"]}),
    ("llama", {**EVERY, "layers_to_transform": [1]}),
    ("llama", {"r": 4, "target_modules": r".*q_proj", "layers_to_transform": [1]}),
    ("llama", {**NAMED, "layers_pattern": ["layers"]}),
    ("llama", {**NAMED, "layers_to_transform": [7]}),
    ("llama", {**EVERY, "exclude_modules": r".*_proj"}),
    ("llama", {**NAMED, "use_dora": True, "lora_bias": True}),
    ("mixtral", {"r": 4, "target_modules": ["w1"]}),
], ids=lambda each: str(each)[:70])  # fmt: skip
def test_what_peft_refuses_is_refused(family, adapter):
    with pytest.raises((ValueError, TypeError)):
        wrapped(family, adapter)
    with pytest.raises(ZeroplanError) as error:
        with_adapter(ours(family), read_adapter(adapter, "case"))
    assert "\n" not in str(error.value)


def bytes_of(tensors):
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def state_of(module):
    """What lies beside a packed weight: each tensor that bitsandbytes' quantization has made."""
    if (scales := getattr(module.weight, "SCB", None)) is not None:
        return [scales]
    state = module.weight.quant_state
    outer = [state.offset, state.state2.absmax, state.state2.code] if state.nested else []
    return [state.absmax, state.code, *outer]


@pytest.mark.parametrize("sizes", [(16, 16), (3, 5), (24, 16), (500, 300), (1, 7)], ids=str)
@pytest.mark.parametrize("double", [False, True])
def test_a_weight_in_4_bit_lies_in_the_bytes_that_bitsandbytes_makes(sizes, double):
    bnb = pytest.importorskip("bitsandbytes")
    outputs, inputs = sizes
    options = {"quant_type": "nf4", "compress_statistics": double, "quant_storage": torch.uint8}
    layer = bnb.nn.Linear4bit(inputs, outputs, bias=False, **options)
    layer.weight = bnb.nn.Params4bit(torch.randn(outputs, inputs), requires_grad=False, **options).to("cpu")
    assert list(layer.weight.shape) == list(packed_weight(*sizes).shape)
    assert bytes_of([layer.weight]) == packed_weight(*sizes).elements
    assert bytes_of(state_of(layer)) == beside(1, outputs * inputs, double=double)


def packed_weight(outputs, inputs):
    from zeroplan.architectures.quantized import PackedWeight

    return PackedWeight(outputs, inputs, Quantization(storage="uint8"))


def beside(tensors, elements, *, double):
    from zeroplan.formulas import states

    blocks = -(-elements // 64)
    if not double:
        return states.block_scales(blocks, tensors)
    return states.quantized_scales(blocks) + states.scales_of_scales(-(-blocks // 256), tensors)


STORED = [
    ("llama", {}), ("llama", {"double": True}), ("llama", {"kind": "fp4", "storage": "uint8"}), ("llama", {"kind": "int8"}),
    ("gpt2", {}), ("gpt2", {"double": True, "storage": "uint8"}), ("opt", {"double": True}), ("opt", {"kind": "int8"}),
    ("bert", {"double": True}), ("mixtral", {}),
]  # fmt: skip


@pytest.mark.parametrize(("family", "bits"), STORED, ids=str)
def test_a_model_lies_in_the_bytes_of_transformers_and_bitsandbytes(family, bits, tmp_path):
    """Which layers transformers puts bitsandbytes' in place of, and every stored byte of the whole model on the CPU."""
    bnb = pytest.importorskip("bitsandbytes")
    from zeroplan.verify.quantized import quantize

    quantization = Quantization(**bits)
    real = quantize(theirs(family, "cpu"), quantization, torch.bfloat16)
    expected = [(n, tuple(p.shape), p.numel() * p.element_size()) for n, p in real.named_parameters()]
    found = with_quantization(ours(family), quantization)
    widths = {"uint8": 1, "int8": 1, "float32": 4}
    assert [(t.name, t.shape, widths.get(t.dtype, 2) * t.elements) for t in found.tensors] == expected
    layers = [m for m in real.modules() if isinstance(m, bnb.nn.Linear4bit | bnb.nn.Linear8bitLt)]
    held = zeroplan.estimate(**typed(family, bits, tmp_path), gpus=2, stage=2, lora=4, seq=8)._ledgers[0]
    lines = [line.bytes for line in held.gpu.worst("resident").lines if line.name == "quantization states"]
    assert sum(lines) == sum(bytes_of(state_of(layer)) for layer in layers)


def typed(family, bits, folder):
    path = folder / "config.json"
    path.write_text(json.dumps({"model_type": family, **MODELS[family]}))
    words = {"quantize": bits.get("kind", "nf4"), "double_quant": bits.get("double"), "quant_storage": bits.get("storage")}
    return {"model": path, **{name: value for name, value in words.items() if value is not None}}
