"""Which modules get an adapter, of which rank, as the documentation of peft.LoraConfig says."""

from __future__ import annotations

import json

import pytest

from zeroplan.architectures.adapters import with_adapter
from zeroplan.architectures.model import model_of
from zeroplan.architectures.read import read_config
from zeroplan.catalog.adapters import read_adapter
from zeroplan.catalog.models import from_file
from zeroplan.errors import ContradictionError

WIDTH, LAYERS = 16, 12
BASE = {
    "vocab_size": 32, "hidden_size": WIDTH, "num_attention_heads": 4, "num_hidden_layers": LAYERS, "pad_token_id": 0,
}  # fmt: skip
MODELS = {
    "llama": {**BASE, "intermediate_size": 24, "tie_word_embeddings": False},
    "gpt2": {"vocab_size": 32, "n_embd": WIDTH, "n_layer": LAYERS, "n_head": 4, "n_positions": 32},
    "bert": {**BASE, "intermediate_size": 24},
    "gpt_neox": {**BASE, "intermediate_size": 24},
}
ATTENTION, INNER = ("q_proj", "k_proj", "v_proj", "o_proj"), ("gate_proj", "up_proj", "down_proj")


def model(family, **adapter):
    found = model_of(*read_config({"model_type": family, **MODELS[family]}, "case"), name=family, source="case")
    return with_adapter(found, read_adapter(adapter, "case"))


def ranks(family, **adapter):
    """Modules with an adapter, and its rank: the rows of lora_A."""
    return {
        tensor.name.removeprefix("base_model.model.").partition(".lora_A.")[0]: tensor.shape[0]
        for tensor in model(family, **adapter).tensors
        if ".lora_A." in tensor.name
    }


def llama(*layers, names=("q_proj", "v_proj")):
    parts = [f"self_attn.{name}" if name in ATTENTION else f"mlp.{name}" for name in names]
    return {f"model.layers.{layer}.{part}" for layer in layers or range(LAYERS) for part in parts}


def each(path, *parts):
    return {path.format(layer, part) for layer in range(LAYERS) for part in parts}


NAMES = {"target_modules": ["q_proj", "v_proj"]}
BERT = ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense", "intermediate.dense", "output.dense")
TARGETS = [
    # every linear layer and Conv1D but the output's
    ("llama", {"target_modules": "all-linear"}, llama(names=ATTENTION + INNER)),
    ("llama", {"target_modules": "ALL-LINEAR"}, llama(names=ATTENTION + INNER)),
    ("gpt2", {"target_modules": "all-linear"}, each("transformer.h.{}.{}", "attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")),
    ("gpt_neox", {"target_modules": "all-linear"}, each(
        "gpt_neox.layers.{}.{}", "attention.query_key_value", "attention.dense", "mlp.dense_h_to_4h", "mlp.dense_4h_to_h",
    )),
    ("bert", {"target_modules": "all-linear"}, each("bert.encoder.layer.{}.{}", *BERT) | {"cls.predictions.transform.dense"}),
    # a list: names whole, or the ends of names from a dot on
    ("llama", NAMES, llama()),
    ("llama", {"target_modules": ["self_attn.q_proj"]}, llama(names=("q_proj",))),
    ("llama", {"target_modules": ["model.layers.3.mlp.up_proj", "lm_head"]}, {"model.layers.3.mlp.up_proj", "lm_head"}),
    ("llama", {"target_modules": ["layers.1.mlp.up_proj", "proj", "q_pro"]}, llama(1, names=("up_proj",))),  # not layers.11
    ("gpt2", {"target_modules": ["c_proj"]}, each("transformer.h.{}.{}", "attn.c_proj", "mlp.c_proj")),
    ("bert", {"target_modules": ["output.dense"]}, each("bert.encoder.layer.{}.{}", "attention.output.dense", "output.dense")),
    # a string: a regular expression for whole names
    ("llama", {"target_modules": r".*\.[02]\.self_attn\.(q|v)_proj"}, llama(0, 2)),
    ("llama", {"target_modules": r"model\.layers\.\d\.mlp.*_proj"}, llama(*range(10), names=INNER)),
    # left out again, by the same rules
    ("llama", {**NAMES, "exclude_modules": ["v_proj"]}, llama(names=("q_proj",))),
    ("llama", {**NAMES, "exclude_modules": ["layers.1.self_attn.q_proj"]}, llama() - llama(1, names=("q_proj",))),
    ("llama", {**NAMES, "exclude_modules": [".*"]}, llama()),  # a list has names, and no expressions
    ("llama", {**NAMES, "exclude_modules": r".*layers\.(?!5\.).*"}, llama(5)),
    ("llama", {"target_modules": "all-linear", "exclude_modules": ["down_proj"]}, llama(names=(*ATTENTION, "gate_proj", "up_proj"))),
    # layers by their numbers, of the lists that layers_pattern names
    ("llama", {**NAMES, "layers_to_transform": [1, 11]}, llama(1, 11)),
    ("llama", {**NAMES, "layers_to_transform": 1}, llama(1)),
    ("llama", {**NAMES, "layers_to_transform": [1], "layers_pattern": "layers"}, llama(1)),
    ("gpt2", {"target_modules": ["c_attn"], "layers_to_transform": [0], "layers_pattern": ["h"]}, {"transformer.h.0.attn.c_attn"}),
    ("bert", {"target_modules": ["query"], "layers_to_transform": [0], "layers_pattern": ["layer"]},
     {"bert.encoder.layer.0.attention.self.query"}),
]  # fmt: skip


@pytest.mark.parametrize(("family", "adapter", "expected"), TARGETS, ids=lambda each: "modules" if isinstance(each, set) else str(each)[:60])
def test_targets_are_those_that_peft_documents(family, adapter, expected):
    assert ranks(family, r=4, **adapter) == dict.fromkeys(expected, 4)


RANKS = [
    ({"v_proj": 8}, {"q_proj": 4, "v_proj": 8}),
    ({"proj": 8}, {"q_proj": 4, "v_proj": 4}),  # the end of a name from a dot on, as names are
    ({".*_proj": 8}, {"q_proj": 8, "v_proj": 8}),
    ({"q_proj": 2, ".*_proj": 8}, {"q_proj": 2, "v_proj": 8}),  # the first that matches counts
    ({".*_proj": 8, "q_proj": 2}, {"q_proj": 8, "v_proj": 8}),
    ({r"^model\.layers\.\d+\.self_attn\.q_proj": 16}, {"q_proj": 16, "v_proj": 4}),
    ({"self_attn": 8}, {"q_proj": 4, "v_proj": 4}),
]


@pytest.mark.parametrize(("pattern", "expected"), RANKS, ids=str)
def test_ranks_are_those_of_the_first_pattern(pattern, expected):
    found = ranks("llama", r=4, **NAMES, rank_pattern=pattern)
    assert found == {path: expected[path.rpartition(".")[2]] for path in llama()}


def test_a_layers_own_rank():
    found = ranks("llama", r=4, **NAMES, rank_pattern={r"layers\.1\.self_attn\.q_proj": 9})
    assert {path for path, rank in found.items() if rank == 9} == llama(1, names=("q_proj",))


def test_of_a_classifier_the_head_trains_whole(tmp_path):
    """peft adds `classifier` and `score` to modules_to_save of SEQ_CLS, and `all-linear` passes over them."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps({
        "model_type": "llama", "architectures": ["LlamaForSequenceClassification"], "num_labels": 3, **MODELS["llama"],
    }))  # fmt: skip
    adapter = read_adapter({"r": 4, "target_modules": "all-linear", "task_type": "SEQ_CLS"}, "case")
    found = with_adapter(from_file(path), adapter)
    trained = {tensor.name.removeprefix("base_model.model."): tensor.shape for tensor in found.tensors if tensor.trainable}
    assert {name for name in trained if "score" in name} == {"score.modules_to_save.default.weight"}
    assert trained["score.modules_to_save.default.weight"] == (3, WIDTH)
    assert sum(".lora_A." in name for name in trained) == 7 * LAYERS


def test_nothing_but_adapters_trains():
    for tensor in model("llama", r=4, target_modules="all-linear").tensors:
        assert tensor.trainable == (".lora_" in tensor.name)


@pytest.mark.parametrize(("adapter", "said"), [
    ({"target_modules": ["nosuch"]}, "named like 'nosuch'; expected names such as down_proj, .*v_proj, or all-linear"),
    ({"target_modules": "q_proj"}, "named like 'q_proj'"),
    ({**NAMES, "layers_to_transform": [12]}, "no module is named like"),
    ({"target_modules": ["input_layernorm"]}, "input_layernorm, a RMSNorm, expected linear layers"),
    ({"target_modules": "all-linear", "layers_to_transform": [1]}, "peft takes it with a list of names only"),
    ({**NAMES, "layers_pattern": ["layers"]}, "layers_pattern without layers_to_transform"),
    ({**NAMES, "use_dora": True, "lora_bias": True}, "use_dora with lora_bias"),
], ids=str)  # fmt: skip
def test_what_peft_makes_nothing_of_is_one_line(adapter, said):
    with pytest.raises(ContradictionError, match=said) as error:
        model("llama", r=4, **adapter)
    assert "\n" not in str(error.value)
