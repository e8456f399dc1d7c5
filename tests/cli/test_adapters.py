"""LoRA and QLoRA as typed: bytes by arithmetic from config.json, peft's adapter_config.json, refusals, and methods side
by side.

Llama-3.1-8B: 32 layers of 4,096, keys and values of 1,024, a feed-forward of 14,336, a vocabulary of 128,256.
"""

from __future__ import annotations

import json
import re

import jsonschema
import pytest

PARAMETERS = 8_030_261_248
LAYERS, HIDDEN, KEYS, INNER, VOCABULARY = 32, 4096, 1024, 14336, 128256
SIZES = {
    "q_proj": (HIDDEN, HIDDEN), "k_proj": (HIDDEN, KEYS), "v_proj": (HIDDEN, KEYS), "o_proj": (HIDDEN, HIDDEN),
    "gate_proj": (HIDDEN, INNER), "up_proj": (HIDDEN, INNER), "down_proj": (INNER, HIDDEN),
}  # fmt: skip
LINEAR = LAYERS * sum(inputs * outputs for inputs, outputs in SIZES.values())
REST = PARAMETERS - LINEAR
"""Embedding, head and norms."""
LLAMA = ("--model", "llama-3.1-8b", "--gpus", "8")
STAGE_2 = ("estimate", *LLAMA, "--stage", "2")


def adapters(rank, *names, layers=LAYERS):
    """Of a weight [out, in] peft trains [r, in] and [out, r]."""
    return layers * rank * sum(sum(SIZES[name]) for name in names or SIZES)


def lines(ran, phase="resident"):
    """Bytes of each name, one dtype or several."""
    assert ran.code == 0, ran.err
    found: dict[str, int] = {}
    for line in ran.json["memory"]["gpu"]["lines"]:
        if phase in line["phases"]:
            found[line["name"]] = found.get(line["name"], 0) + line["bytes"]
    return found


def test_adapters_train_and_the_weights_are_whole_at_stage_2(zeroplan):
    ran = zeroplan(*STAGE_2, "--lora", "16", "--json")
    held, trained = lines(ran), 41_943_040
    assert adapters(16) == trained == 32 * 16 * (2 * (4096 + 4096) + 2 * (4096 + 1024) + 3 * (4096 + 14336))
    assert held["parameters"] == 2 * trained
    assert held["frozen parameters"] == 2 * PARAMETERS
    assert held["fp32 master copy"] == 4 * trained // 8
    assert held["optimizer states"] == 8 * trained // 8
    step = lines(ran, "step")
    assert step["flattened gradients"] == 2 * trained // 8
    assert step["fp32 gradients"] == 4 * trained // 8
    scope = ran.json["scope"]
    assert scope["trains"] == "LoRA adapters (r 16, all linear layers: 41.9M beside 8.03B frozen)"
    assert scope["line"].startswith(f"Scope: training of {scope['trains']} of llama-3.1-8b")


@pytest.mark.parametrize("typed", ["q_proj, v_proj", "self_attn.q_proj,self_attn.v_proj"])
def test_the_layers_named_get_adapters(zeroplan, typed):
    """r 8 on q_proj and v_proj: peft prints `trainable params: 3,407,872` for models of this shape."""
    ran = zeroplan(*STAGE_2, "--lora", "8", "--lora-targets", typed, "--json")
    assert adapters(8, "q_proj", "v_proj") == 3_407_872
    assert lines(ran)["parameters"] == 2 * 3_407_872
    assert "all linear layers" not in ran.json["scope"]["trains"]


def test_an_inferred_model_takes_adapters(zeroplan):
    """7B: 32 layers of 4,096, keys as wide, a vocabulary of 32,000 and a feed-forward of what is left (LLaMA-7B's shape)."""
    inner = (7 * 10**9 - 2 * 32000 * 4096 - 32 * (4 * 4096**2 + 2 * 4096) - 4096) // (3 * 4096 * 32)
    held = lines(zeroplan("estimate", "--params", "7B", "--gpus", "8", "--stage", "2", "--lora", "16", "--json"))
    assert held["parameters"] == pytest.approx(2 * 32 * 16 * (4 * 2 * 4096 + 3 * (4096 + inner)), abs=64)
    assert held["frozen parameters"] == pytest.approx(14e9, rel=1e-3)


def test_an_inferred_model_keeps_all_of_its_weights_beside_adapters(zeroplan):
    """What the shape of 7B does not reach is frozen too: 14 GB in bf16, to the byte, at stage 2 and in eighths at 3."""
    for stage, size in (("2", 14 * 10**9), ("3", 14 * 10**9 // 8)):
        ran = zeroplan("estimate", "--params", "7B", "--gpus", "8", "--stage", stage, "--lora", "16", "--json")
        assert lines(ran)["frozen parameters"] == size


def test_parameters_of_a_model_are_its_weights_and_not_what_holds_them(zeroplan):
    """41,943,040 of adapters of rank 16 beside 8,030,261,248; two bytes hold four of the weights in 4 bit."""
    plain = zeroplan(*STAGE_2, "--lora", "16", "--json").json["model"]
    packed = zeroplan(*STAGE_2, "--lora", "16", "--quantize", "nf4", "--json").json["model"]
    assert plain["parameters"] == packed["parameters"] == PARAMETERS + adapters(16)
    assert plain["packed_elements"] is None
    assert packed["packed_elements"] == LINEAR // 4


@pytest.mark.parametrize(("rank", "said"), [("1024", ""), ("1025", "rank 1,025 is above the smaller width of k_proj, v_proj")])
def test_a_rank_above_a_width_is_noted(zeroplan, rank, said):
    ran = zeroplan("estimate", "--model", "llama-3.1-8b", "--gpus", "8", "--stage", "2", "--lora", rank, "--json")
    assert any(note.startswith("rank ") for note in ran.json["assumed"]) == bool(said)
    assert said in " ".join(ran.json["assumed"])


def test_two_dtypes_of_one_name_are_told_apart(zeroplan):
    """uint8 holds what is quantized, and bf16 the embedding, the head and norms."""
    ran = zeroplan(*STAGE_2, "--lora", "16", "--quantize", "nf4", "--quant-storage", "uint8", "--checkpointing", "full")
    assert "most of it frozen parameters (uint8) 3.25 GiB, frozen parameters (bfloat16) 1.96 GiB" in " ".join(ran.out.split())


@pytest.mark.parametrize(("typed", "packed", "states"), [
    # half a byte a weight; a scale of 4 bytes for 64 weights and a table of 16 such values for each of 7·32 weights
    (("nf4",), LINEAR // 2, 436_207_616 + 64 * 224),
    (("fp4", "--quant-storage", "uint8"), 3_489_660_928, 436_221_952),
    # a byte for 64 weights, 4 bytes for 256 of these; tables of 16 and 256 values, and an offset
    (("nf4", "--double-quant", "yes"), LINEAR // 2, LINEAR // 64 + 4 * LINEAR // (64 * 256) + 224 * 4 * (16 + 256 + 1)),
    # a byte a weight, and 4 for each row
    (("int8",), LINEAR, 4 * LAYERS * sum(outputs for _inputs, outputs in SIZES.values())),
], ids=str)  # fmt: skip
def test_linear_layers_are_packed_and_head_and_embedding_are_not(zeroplan, typed, packed, states):
    """Scales take 0.5 bits of a weight, 0.127 where they are quantized again (QLoRA, arXiv:2305.14314, section 3)."""
    ran = zeroplan(*STAGE_2, "--lora", "16", "--quantize", *typed, "--json")
    held = lines(ran)
    assert LINEAR == 6_979_321_856
    assert held["frozen parameters"] == packed + 2 * REST
    assert held["quantization states"] == states
    assert held["parameters"] == 2 * adapters(16)
    assert re.search("4 bit|8 bit|nf4|fp4|int8", ran.json["scope"]["trains"])


def test_states_of_packed_weights_stay_whole_at_stage_3(zeroplan):
    """They are no parameters, and DeepSpeed partitions these alone."""
    held = lines(zeroplan("estimate", *LLAMA, "--stage", "3", "--lora", "16", "--quantize", "nf4", "--json"))
    assert held["quantization states"] == 4 * LINEAR // 64 + 64 * 224


@pytest.mark.parametrize("words", [("--config", "fp16.json"), ("--gpu", "V100-SXM2-32GB", "--stage", "2")], ids=str)
def test_packed_weights_lie_in_the_training_precision_whoever_says_it(zeroplan, tmp_path, monkeypatch, words):
    """Two bytes an element, a quarter of the weights' number: a config's fp16, and that of a card without bf16."""
    monkeypatch.chdir(tmp_path)
    config = {"train_micro_batch_size_per_gpu": 1, "fp16": {"enabled": True}, "zero_optimization": {"stage": 2}}
    (tmp_path / "fp16.json").write_text(json.dumps(config), encoding="utf-8")
    job = ("estimate", *LLAMA, "--lora", "16", "--quantize", "nf4", *words, "--json")
    ran = zeroplan(*job)
    assert ran.json["strategy"]["precision"] == "fp16"
    assert lines(ran)["frozen parameters"] == LINEAR // 2 + 2 * REST
    refuses(zeroplan(*job, "--quant-storage", "bf16"), "write --quant-storage fp16, or uint8")


@pytest.fixture
def adapter(tmp_path):
    """A folder as save_pretrained writes it."""

    def write(**fields):
        content = {"peft_type": "LORA", "r": 8, "target_modules": ["q_proj", "v_proj"], "task_type": "CAUSAL_LM", **fields}
        (tmp_path / "adapter_config.json").write_text(json.dumps(content))
        return str(tmp_path)

    return write


SMALL = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "num_hidden_layers": 12,
    "num_attention_heads": 4, "num_key_value_heads": 1, "intermediate_size": 176, "vocab_size": 512,
    "max_position_embeddings": 128, "tie_word_embeddings": False,
}  # fmt: skip
Q, V = 64 + 64, 64 + 16
"""Of rank 1 on one layer of it."""
OTHERS = (64 + 16) + (64 + 64) + 3 * (64 + 176)
"""Keys, output and the feed-forward's three."""
WEIGHTS = 12 * (2 * 64 * 64 + 2 * 64 * 16 + 3 * 64 * 176 + 2 * 64) + 64 + 2 * 512 * 64
COUNTS = [
    ({"r": 64}, 12 * 64 * (Q + V)),
    ({"target_modules": "all-linear"}, 12 * 8 * (Q + V + OTHERS)),
    ({"target_modules": r".*layers\.(0|11)\..*\.(q|v)_proj"}, 2 * 8 * (Q + V)),
    ({"modules_to_save": ["lm_head"]}, 12 * 8 * (Q + V) + 512 * 64),
    ({"modules_to_save": ["norm"]}, 12 * 8 * (Q + V) + 25 * 64),  # every name that ends so: two of each layer, the last
    ({"rank_pattern": {"q_proj": 16}}, 12 * (16 * Q + 8 * V)),
    ({"rank_pattern": {r"layers\.0\.self_attn\.q_proj": 32}}, 12 * 8 * (Q + V) + (32 - 8) * Q),
    ({"layers_to_transform": [0, 11]}, 2 * 8 * (Q + V)),
    ({"layers_to_transform": 5}, 8 * (Q + V)),
    ({"exclude_modules": ["v_proj"]}, 12 * 8 * Q),
    ({"exclude_modules": r".*layers\.[1-9].*"}, 8 * (Q + V)),
    ({"use_dora": True}, 12 * (8 * (Q + V) + 64 + 16)),  # a magnitude for each row
    ({"lora_bias": True}, 12 * (8 * (Q + V) + 64 + 16)),
    ({"lora_dropout": 0.1, "use_rslora": True, "lora_alpha": 32, "bias": "all"}, 12 * 8 * (Q + V)),  # it has no bias
]  # fmt: skip


@pytest.mark.parametrize(("fields", "trained"), COUNTS, ids=str)
def test_an_adapter_file_says_what_trains(zeroplan, adapter, tmp_path, fields, trained):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(SMALL))
    words = ("--gpus", "2", "--stage", "2", "--adapter", adapter(**fields), "--json")
    held = lines(zeroplan("estimate", "--model", str(path), *words))
    assert held["parameters"] == 2 * trained
    assert held["frozen parameters"] == 2 * WEIGHTS


def test_the_model_is_that_of_the_adapter_file(zeroplan, adapter):
    path = adapter(base_model_name_or_path="meta-llama/Llama-3.1-8B")
    ran = zeroplan("estimate", "--adapter", path, "--gpus", "8", "--stage", "2", "--json")
    assert lines(ran)["frozen parameters"] == 2 * PARAMETERS
    file = zeroplan("estimate", "--adapter", f"{path}/adapter_config.json", "--gpus", "8", "--stage", "2", "--json")
    assert file.json == ran.json


REFUSED = [
    (("--lora", "0"), r"--lora: found '0', expected a whole number from 1"),
    (("--lora", "-1"), r"--lora: found '-1'"),
    (("--lora", "1.5"), r"--lora: found '1.5'"),
    (("--lora", "99999999999"), r"--lora: found '99999999999', expected a whole number from 1 to 1,000,000"),
    (("--lora", "0"), r"--lora: found '0', expected a whole number from 1 to 1,000,000; write --lora 16"),
    (("--lora", "9" * 400), r"--lora: found"),
    (("--lora", "16", "--lora-targets", "nosuch"), r"named like 'nosuch'; expected names such as down_proj, .*q_proj"),
    (("--lora", "16", "--lora-targets", "q_proj,nosuch"), r"--lora-targets: found 'nosuch', which no module"),
    (("--lora", "16", "--lora-targets", "norm"), r"target_modules: found model.norm, "),
    (("--lora", "16", "--lora-targets", ""), r"--lora-targets: "),
    (("--lora-targets", "q_proj"), r"--lora-targets .*--lora 16"),
    (("--lora", "16", "--quantize", "int4"), r"--quantize: found 'int4', expected nf4, fp4, int8; write --quantize nf4"),
    (("--lora", "16", "--quantize", "4bit"), r"write --quantize nf4"),
    (("--lora", "16", "--quantize", "8-bit"), r"write --quantize int8"),
    (("--lora", "16", "--quant-storage", "bf16"), r"--quant-storage is of quantized weights; write --quantize nf4 too"),
    (("--lora", "16", "--double-quant", "yes"), r"--double-quant is of quantized weights"),
    (("--lora", "16", "--quantize", "int8", "--double-quant", "yes"), r"--double-quant .* leave them out with int8"),
    (("--lora", "16", "--quantize", "nf4", "--quant-storage", "int8"), r"--quant-storage: found 'int8', expected bf16"),
    # DeepSpeed casts packed floats of another dtype as numbers
    (("--lora", "16", "--quantize", "nf4", "--quant-storage", "fp16"), r"the weights are lost; write --quant-storage bf16"),
    (("--lora", "16", "--quantize", "nf4", "--precision", "fp32"), r"--precision fp32 is not planned"),
    (("--quantize", "nf4"), r"--quantize without adapters: .* write --lora 16"),
    (("--lora", "16", "--freeze", "*norm*"), r"--lora and --freeze both say what trains"),
    (("--lora", "16", "--train", "*norm*"), r"--lora and --train both say what trains"),
    (("--lora", "16", "--quantize", "int8", "--stage", "3", "--offload-param", "nvme"), r"offload_param nvme with parameters of several dtypes"),
    (("--lora", "16", "--adapter-dtype", "fp8"), r"--adapter-dtype: found 'fp8', expected training"),
    (("--adapter-dtype", "fp32"), r"--adapter-dtype is of adapters; write --lora 16 too"),
    (("--lora", "16", "--quantize", "nf4", "--stage", "3", "--zero-init", "yes"), r"--zero-init yes: .* leave it out"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "said"), REFUSED, ids=lambda each: " ".join(each)[:50])
def test_options_that_say_nothing_sensible_are_refused_in_one_line(zeroplan, words, said):
    refuses(zeroplan("estimate", *LLAMA, *words), said)


def refuses(ran, said):
    assert (ran.code, ran.out) == (2, "")
    assert re.search(said, ran.err)
    assert ran.err.count("\n") == 1


WRITTEN = [
    ("", r"found an empty file, expected peft's adapter_config.json"),
    ("r: 16\n", r"json:1:1: found text that is not JSON"),
    ("[1]", r"found a JSON list"),
    ("null", r"expected peft's adapter_config.json"),
    ('{"r": 16}', r"found no peft_type"),
    ('{"peft_type": "IA3"}', r"peft_type: found 'IA3', expected LORA"),
    ('{"peft_type": "LORA", "r": 0}', r"r: found 0, expected a whole number from 1"),
    ('{"peft_type": "LORA", "r": true}', r"r: found (?i:true)"),
    ('{"peft_type": "LORA", "r": 8, "target_modules": 5}', r"target_modules: found 5, expected a list of names"),
    ('{"peft_type": "LORA", "r": 8, "target_modules": ["q_proj", "("]}', r"target_modules: found '\(', expected a name or"),
    ('{"peft_type": "LORA", "r": 8, "target_modules": ["q_proj"], "lora_dropout": 1.5}', r"lora_dropout: found 1.5"),
    ('{"peft_type": "LORA", "r": 8, "target_modules": ["q_proj"], "bias": "some"}', r"bias: found 'some', expected none"),
    ('{"peft_type": "LORA", "r": 8, "target_modules": ["q_proj"], "lora_rank": 8}', r"lora_rank: .*no field of peft"),
    ('{"peft_type": "LORA", "r": 8, "target_modules": "all-linear", "layers_to_transform": [0]}', r"list of names only"),
    ('{"peft_type": "LORA", "r": 8, "target_modules": ["q_proj"], "layers_pattern": ["layers"]}', r"layers_to_transform"),
    ('{"peft_type": "LORA", "r": 8, "target_modules": ["q_proj"], "layers_to_transform": [99]}', r"no module is named"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "said"), WRITTEN, ids=lambda each: each[-40:])
def test_an_adapter_file_that_is_none_is_refused_in_one_line(zeroplan, tmp_path, text, said):
    path = tmp_path / "adapter_config.json"
    path.write_text(text)
    refuses(zeroplan(*STAGE_2, "--adapter", str(path)), said)


def test_adapters_named_twice_or_nowhere_are_refused(zeroplan, adapter, tmp_path):
    refuses(zeroplan(*STAGE_2, "--adapter", str(tmp_path)), r"adapter_config.json: found no such file")
    refuses(zeroplan(*STAGE_2, "--adapter", str(tmp_path / "nosuch")), r"nosuch: found no such file")
    path = adapter()
    refuses(zeroplan(*STAGE_2, "--adapter", path, "--lora", "8"), r"--adapter and --lora both say which adapters")
    refuses(zeroplan(*STAGE_2, "--adapter", path, "--freeze", "*"), r"--adapter and --freeze both say what trains")
    refuses(zeroplan("estimate", "--adapter", path, "--gpus", "8"), r"no model: write")


CARD = ("--gpu", "rtx-4090", "--gpus", "1", "--stage", "0", "--checkpointing", "full", "--attention", "sdpa",
        "--micro-batch", "1", "--global-batch", "8")  # fmt: skip
METHODS = ("recommend", "--model", "llama-3.1-8b", *CARD, "--method", "full,lora,qlora")


def test_methods_side_by_side(zeroplan, monkeypatch):
    """Full training of 8.03B weights holds 16 bytes of each, 128 GB, and LoRA 16 GB: 24 GiB have room for one of them."""
    ran = zeroplan(*METHODS, "--json")
    assert ran.code == 0
    schema = zeroplan("schema", "--of", "recommend").json
    jsonschema.Draft202012Validator(schema).validate(ran.json)
    rows = ran.json["methods"]
    assert [row["method"] for row in rows] == ["full", "lora", "qlora"]
    assert rows[0]["plan"] is None
    assert rows[0]["lack"]["bytes"] > 16 * PARAMETERS - 24 * 2**30
    assert all(row["plan"] and row["lack"] is None for row in rows[1:])
    assert rows[0]["trains"] == "every weight"
    assert all("r 16" in row["trains"] for row in rows[1:])
    monkeypatch.setenv("COLUMNS", "80")
    screen = zeroplan(*METHODS).out
    assert all(len(line) <= 80 for line in screen.splitlines()[1:] if not line.startswith("next: "))
    assert "LoRA and QLoRA fit; full training does not" in " ".join(screen.split())


@pytest.mark.parametrize(("words", "said"), [
    (("--method", "dora"), r"--method: found 'dora', expected full, lora, qlora"),
    (("--method", ""), r"--method: found '', expected names with commas between them; write --method full,lora,qlora"),
    (("--method", "full", "--lora", "16"), r"--lora and --method full: under full every weight trains"),
    (("--method", "lora", "--quantize", "nf4"), r"and qlora is LoRA with quantized ones; write --method qlora"),
    (("--method", "full,lora", "--double-quant", "yes"), r"--double-quant and --method full,lora: .* --method qlora"),
    (("--method", "full", "--quantize", "nf4"), r"--quantize and --method full: .*; write --method qlora"),
    (("--method", "lora", "--freeze", "*norm*"), r"--method and --freeze both say what trains"),
    (("--method", "full,lora", "--freeze", "*norm*"), r"--method and --freeze both say what trains"),
    (("--method", "qlora", "--quantize", "int8", "--double-quant", "yes"), r"leave them out with int8"),
    (("--lora", "8", "--why", "QLoRA"), r"--why QLoRA: .*; write --method full,lora,qlora"),
    (("--lora", "8", "--why", "nf4"), r"--why nf4: .*; write --method full,lora,qlora"),
    (("--why", "lora"), r"what trains is not a plan's to choose; write --method full,lora,qlora"),
    (("--method", "full,lora", "--why", "zero-3"), r"--method compares plans; leave --why out"),
    (("--method", "full,lora", "--max-params"), r"--method compares plans; leave --max-params out"),
    (("--method", "full,lora", "--objective", "pareto"), r"leave out --objective pareto, or name one method"),
])  # fmt: skip
def test_methods_that_cannot_be_are_refused(zeroplan, words, said):
    refuses(zeroplan("recommend", "--model", "llama-3.1-8b", *CARD, *words), said)


def test_ranks_and_bits_side_by_side(zeroplan):
    """Each row is as estimate counts it alone."""
    job = (*LLAMA, "--stage", "2", "--gpu", "a100-80gb", "--checkpointing", "full")
    ran = zeroplan("compare", *job, "--lora", "8,16", "--json")
    assert [row["changed"]["lora"] for row in ran.json["rows"]] == ["8", "16"]
    assert "r 8," in ran.json["scope"]["trains"]
    assert "r 16," in ran.json["scope"]["trains"]
    bits = ("none", "int8", "nf4")
    rows = zeroplan("compare", *job, "--lora", "16", "--quantize", ",".join(bits), "--json").json["rows"]
    alone = [zeroplan("estimate", *job, "--lora", "16", "--quantize", kind, "--json").json["fit"]["needed"] for kind in bits]
    assert [row["fit"]["needed"] for row in rows] == alone
    assert ran.json["rows"][1]["fit"]["needed"] == alone[0] > alone[1] > alone[2]


def test_lengths_side_by_side_are_all_named(zeroplan):
    ran = zeroplan("compare", "gpt2", "--gpus", "1", "--gpu", "rtx-4090", "--stage", "0", "--lora", "8", "--seq", "256,512,1024")
    assert "every sequence 256, 512 or 1,024 tokens;" in " ".join(ran.out.split())
    assert "every sequence 512 tokens;" in " ".join(zeroplan("compare", "gpt2", "--gpus", "1,2", "--gpu", "rtx-4090", "--stage",
                                                             "0", "--lora", "8", "--seq", "512").out.split())  # fmt: skip


def test_bits_are_a_way_out_where_frozen_weights_do_not_fit(zeroplan):
    """16 GB of weights are more than 14 GiB; a quarter of the linear layers' and the rest are 5.2 GiB."""
    words = ("recommend", "--model", "llama-3.1-8b", "--gpus", "1", "--gpu-mem", "14GiB", "--stage", "2", "--lora", "8", "--seq",
             "512", "--checkpointing", "full", "--micro-batch", "1", "--global-batch", "8", "--attention", "sdpa")  # fmt: skip
    ran = zeroplan(*words)
    assert ran.code == 1
    ways = [way["change"] for way in zeroplan(*words, "--json").json["ways_out"]]
    assert ways[0].startswith("frozen weights in 4 bit (--quantize nf4): ZeRO-2, micro-batch 1, full checkpointing")
    line = next(line for line in ran.out.splitlines() if line.startswith("next: "))
    typed = line.removeprefix("next: zeroplan ").partition("  #")[0].split()
    assert typed == [*words, "--quantize", "nf4"]
    assert zeroplan(*typed).code == 0


def test_a_matrix_of_tight_cells_says_so(zeroplan):
    """16 GB of weights pass through the host's memory while they are built, and processes take some."""
    words = ("--gpus", "1", "--gpu-mem", "20GiB", "--host-mem", "20GiB", "--lora", "8", "--checkpointing", "full")
    ran = zeroplan("matrix", "llama-3.1-8b", *words)
    cells = next(line for line in ran.out.splitlines() if line.startswith("llama-3.1-8b "))
    assert cells.count("!") == 5  # and ZeRO-3 does not fit
    assert ran.out.splitlines()[0].endswith(": llama-3.1-8b is tight, with ZeRO-0 first.")
    assert ran.code == 1
    ran = zeroplan("matrix", "llama-3.1-8b,gpt2,llama-3.1-70b", *words)
    assert ran.out.splitlines()[0].endswith(
        ": the first that fits is ZeRO-0 for gpt2; llama-3.1-8b is tight, with ZeRO-0 first; nothing fits for llama-3.1-70b.")
    assert ran.code == 0


def test_methods_of_a_training_run(zeroplan):
    """10M tokens in steps of 8 sequences of 2,048 are 611 steps, as many for each; a GPU-hour costs half a dollar."""
    words = ("--tokens", "10M", "--price", "0.5")
    rows = {row["method"]: row["plan"] for row in zeroplan(*METHODS, "--json").json["methods"] if row["plan"]}
    lines = zeroplan(*METHODS, *words).out.splitlines()
    head = next(line for line in lines if line.startswith("method"))
    assert head.endswith("takes    cost")
    for name, called in (("lora", "LoRA"), ("qlora", "QLoRA")):
        hours = 611 * rows[name]["time"]["step"] / 3600
        (line,) = (line for line in lines if line.startswith(called))
        takes, unit, cost = line.split()[-3:]
        assert float(takes) == pytest.approx(hours * {"minutes": 60, "hours": 1}[unit], rel=0.01)
        assert float(cost.removeprefix("$")) == pytest.approx(hours / 2, rel=0.01)


def test_the_next_command_writes_the_plan_of_the_method_that_fits(zeroplan, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ran = zeroplan(*METHODS, "--quantize", "fp4")
    (line,) = (line for line in ran.out.splitlines() if line.startswith("next: "))
    typed = line.removeprefix("next: ").partition("  #")[0].split()
    assert typed[-4:] == ["--method", "lora", "--dir", "plan"]
    assert zeroplan(*typed[1:]).code == 0
    assert (tmp_path / "plan" / "adapter_config.json").exists()


def test_a_plan_for_adapters_says_why_it_is_not_at_the_other_stage(zeroplan):
    """What --why knows, where several GPUs divide frozen weights or hold them whole and nobody said which."""
    words = ("recommend", "--model", "llama-3.2-1b", "--gpu", "rtx-4090", "--checkpointing", "full", "--attention", "sdpa",
             "--micro-batch", "1", "--global-batch", "8", "--seq", "512", "--lora", "8")  # fmt: skip
    ran = zeroplan(*words, "--gpus", "2")
    said = re.search(r"Why not (zero-[23]): (.*) \(--why \1\)\.", " ".join(ran.out.split()))
    assert said[1] == ("zero-2" if "ZeRO-3, micro-batch" in ran.out else "zero-3")
    why = zeroplan(*words, "--gpus", "2", "--why", said[1])
    assert f"Why not {said[1]}: {said[2]}. Its best:" in " ".join(why.out.split())
    for more in (("--gpus", "1"), ("--gpus", "2", "--stage", "2")):
        assert "Why not" not in zeroplan(*words, *more).out


def test_where_the_time_of_stage_3_goes_with_adapters(zeroplan):
    """On PCIe each of 2 GPUs gathers half of 16 GB two or three times. At stage 2 it sends half of 2 bytes of a gradient
    of 41,943,040 elements twice over, then half of as many weights: 0.126 GB.
    """
    words = ("estimate", "--model", "llama-3.1-8b", "--gpus", "2", "--lora", "16", "--checkpointing", "full")
    said = r"gathers +([\d.]+) GB of weights a step, nearly all of them frozen: [\d.]+ s; stage 2 sends 0\.13 GB and needs"
    found = re.search(said, " ".join(zeroplan(*words, "--gpu", "rtx-4090", "--stage", "3").out.split()))
    assert 2 * PARAMETERS < float(found[1]) * 1e9 < 3 * PARAMETERS
    for more in (("--gpu", "rtx-4090", "--stage", "2"), ("--gpu", "h100-80gb", "--stage", "3")):
        assert "gathers " not in zeroplan(*words, *more).out


@pytest.mark.parametrize("columns", [60, 80, 100])
def test_where_the_time_goes_has_room_for_names_and_numbers(zeroplan, monkeypatch, columns):
    """Each row has its seconds and its share; where there is room the longest name takes one line."""
    monkeypatch.setenv("COLUMNS", str(columns))
    out = zeroplan("estimate", "--model", "gpt2", *CARD, "--lora", "8", "--quantize", "nf4", "-v").out
    goes = out.partition("Where the time goes\n")[2].partition("\n\n")[0].splitlines()
    numbers = [line for line in goes if re.search(r"  [\d.]+ m?s +\d+%  █+$", line)]
    assert len(numbers) > 10
    assert (len(numbers) == len(goes)) == (columns >= 80)
    assert all(len(line) <= columns for line in goes)


def test_a_method_in_8_bit(zeroplan):
    """Scales are quantized again where nobody says, but those of weights in 4 bit alone."""
    ran = zeroplan("recommend", "--model", "gpt2", *CARD, "--method", "qlora", "--quantize", "int8")
    assert ran.code == 0, ran.err
    assert "frozen in int8" in " ".join(ran.out.split())


def test_all_methods_are_of_the_model_that_the_adapter_file_names(zeroplan, adapter):
    path = adapter(base_model_name_or_path="meta-llama/Llama-3.2-1B")
    ran = zeroplan("recommend", "--adapter", path, *CARD, "--method", "full,lora", "--json")
    assert ran.json["scope"]["model"].startswith("llama-3.2-1b")
    # 1,235,814,400 weights: 16 bytes of each are 18.4 GiB, and DeepSpeed's fp32 gradients at stage 0 4.6 GiB more
    assert ran.json["methods"][0]["lack"]["bytes"] < 16e9


@pytest.mark.parametrize("method", ["full", "lora", "full,lora"])
def test_a_training_file_that_says_what_trains_leaves_no_method(zeroplan, tmp_path, method):
    path = tmp_path / "train.yaml"
    path.write_text("model_name_or_path: llama-3.2-1b\nstage: sft\nfinetuning_type: lora\nlora_rank: 8\nbf16: true\n")
    ran = zeroplan("recommend", "--config", str(path), "--gpu", "rtx-4090", "--gpus", "1", "--method", method)
    refuses(ran, r"--method and finetuning_type lora of .*train.yaml both say what trains")


def test_the_largest_model_of_a_method(zeroplan):
    """16 bytes of each weight train, 2 lie frozen: adapters take a model several times as large."""
    words = ("recommend", "--max-params", "--gpus", "1", "--gpu-mem", "24", "--stage", "0", "--checkpointing", "full",
             "--micro-batch", "1", "--seq", "512", "--json")  # fmt: skip
    whole, part = (zeroplan(*words, "--method", method).json for method in ("full", "lora"))
    found = part["largest"]["without offload"]["parameters"]
    assert found > 4 * whole["largest"]["without offload"]["parameters"]
    beside = re.search(r"beside ([\d.]+)B frozen", part["scope"]["trains"])
    assert float(beside[1]) == pytest.approx(found / 1e9, rel=0.01)
