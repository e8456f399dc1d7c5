"""Training files of other tools where a config is given: what trains, the job beside it, and what contradicts it."""

from __future__ import annotations

import json

import pytest

CONFIG = {
    "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "bf16": {"enabled": "auto"},
    "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": True},
}  # fmt: skip
TRL = "model_name_or_path: llama-3.2-1b\nuse_peft: true\nlora_r: 8\nmax_length: 512\ndeepspeed: ds.json\n"
LLAMA = (
    "model_name_or_path: llama-3.2-1b\nstage: sft\nfinetuning_type: lora\nlora_rank: 8\nlora_target: q_proj,v_proj\n"
    "cutoff_len: 512\nper_device_train_batch_size: 2\nbf16: true\nlearning_rate: 1e-4\ndeepspeed: ds.json\n"
)
AXOLOTL = (
    "base_model: llama-3.2-1b\nsequence_len: 512\nmicro_batch_size: 2\nadapter: lora\nlora_r: 8\nlora_alpha: 16\n"
    "lora_target_modules: [q_proj, v_proj]\nlora_dropout: 0.05\nlearning_rate: 2e-4\ndeepspeed: ds.json\ndatasets: [{path: d, type: alpaca}]\n"
)
FILES = {"TRL": TRL, "LLaMA-Factory": LLAMA, "axolotl": AXOLOTL}
Q_V = 2 * 16 * 8 * 2048 + 16 * 8 * (2048 + 512)
"""Elements: 16 layers, rank 8, from 2,048 inputs to the 2,048 of q_proj and the 512 of v_proj."""


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def written(name, text):
        (tmp_path / name).write_text(text if isinstance(text, str) else json.dumps(text), encoding="utf-8")
        return name

    written("ds.json", CONFIG)
    return written


@pytest.mark.parametrize("tool", FILES)
def test_adapters_train_and_not_the_model(zeroplan, write, tool):
    ran = zeroplan("estimate", "--config", write("train.yaml", FILES[tool]), "--gpus", "8", "--json")
    assert ran.code == 0, ran.err
    assert f"{Q_V:,} beside 1.24B frozen" in ran.json["scope"]["trains"]
    assert ran.json["scope"]["tokens_per_sequence"] == 512
    assert any(said.startswith(f"from train.yaml, a training file of {tool}:") for said in ran.json["assumed"])


def test_a_file_and_options_come_to_the_same(zeroplan, write):
    """LLaMA-Factory checkpoints reentrantly; a JSON says the same as a YAML."""
    told = ("--model", "llama-3.2-1b", "--lora", "8", "--lora-targets", "q_proj,v_proj", "--seq", "512", "--micro-batch",
            "2", "--grad-accum", "1", "--precision", "bf16", "--checkpointing", "full-reentrant", "--adapter-dtype",
            "fp32")  # fmt: skip
    typed = zeroplan("estimate", *told, "--config", "ds.json", "--gpus", "8", "--json")
    read = zeroplan("estimate", "--config", write("train.yaml", LLAMA), "--gpus", "8", "--json")
    content = {
        "model_name_or_path": "llama-3.2-1b", "finetuning_type": "lora", "lora_rank": 8, "lora_target": "q_proj,v_proj",
        "cutoff_len": 512, "per_device_train_batch_size": 2, "bf16": True, "deepspeed": "ds.json",
    }  # fmt: skip
    as_json = zeroplan("estimate", "--config", write("train.json", content), "--gpus", "8", "--json")
    assert typed.json["memory"] == read.json["memory"] == as_json.json["memory"]
    assert typed.json["strategy"] == read.json["strategy"]


QUANTIZED = {
    "LLaMA-Factory": (LLAMA + "quantization_bit: 4\n", ("--double-quant", "yes", "--checkpointing", "full-reentrant")),
    "axolotl": (AXOLOTL.replace("adapter: lora", "adapter: qlora") + "load_in_4bit: true\n", ("--double-quant", "yes")),
}


@pytest.mark.parametrize(("text", "typed"), QUANTIZED.values(), ids=QUANTIZED)
def test_quantized_weights(zeroplan, write, text, typed):
    """Both tools quantize scales too, and store packed weights in bf16 (quantization.py; loaders/model.py)."""
    told = ("--model", "llama-3.2-1b", "--seq", "512", "--micro-batch", "2", "--grad-accum", "1", "--precision", "bf16",
            "--quantize", "nf4", *typed)  # fmt: skip
    write("train.yaml", text)
    adapter = write("adapter_config.json", {
        "peft_type": "LORA", "r": 8, "lora_alpha": 16, "target_modules": ["q_proj", "v_proj"], "task_type": "CAUSAL_LM",
        "lora_dropout": 0.05 if "lora_dropout" in text else 0,
    })  # fmt: skip
    stated = zeroplan("estimate", *told, "--adapter", adapter, "--config", "ds.json", "--gpus", "8", "--json")
    read = zeroplan("estimate", "--config", "train.yaml", "--gpus", "8", "--json")
    assert (stated.code, read.code) == (0, 0), stated.err + read.err
    assert stated.json["memory"] == read.json["memory"]
    single = zeroplan("estimate", "--config", "train.yaml", "--gpus", "8", "--json", "--double-quant", "no")
    assert single.json["memory"] != read.json["memory"]


def test_trl_stores_bytes(zeroplan, write):
    """model_config.py: bnb_4bit_quant_storage is uint8 where nothing says; an option wins."""
    name = write("train.yaml", TRL + "load_in_4bit: true\ndtype: bfloat16\n")
    read, typed = (
        zeroplan("estimate", "--config", name, "--gpus", "8", "--json", *more) for more in ((), ("--quant-storage", "bf16"))
    )
    dtypes = ({each["dtype"] for each in _frozen(ran)} for ran in (read, typed))
    assert tuple(dtypes) == ({"uint8", "bfloat16"}, {"bfloat16"})


def _frozen(ran):
    """Partitions of what does not train."""
    return [each for each in ran.json["memory"]["gpu"]["lines"] if each["name"] == "frozen parameters"]


@pytest.mark.parametrize(("tool", "text", "wide"), [
    ("LLaMA-Factory", LLAMA, True),  # model/adapter.py: "remaining trainable params in float32"
    ("axolotl", AXOLOTL, True), ("axolotl", AXOLOTL + "peft_autocast_adapter_dtype: false\n", False),
    ("TRL", TRL, False),  # sft_trainer.py: autocast_adapter_dtype=False at ZeRO-3
])  # fmt: skip
def test_dtype_of_adapters_at_stage_3(zeroplan, write, tool, text, wide):
    write("ds.json", {**CONFIG, "zero_optimization": {"stage": 3}})
    ran = zeroplan("estimate", "--config", write("train.yaml", text), "--gpus", "8", "--json")
    trained = [each for each in ran.json["memory"]["gpu"]["lines"] if each["name"] == "parameters"]
    assert [each["dtype"] for each in trained] == ["float32" if wide else "bfloat16"], tool


@pytest.mark.parametrize(("stage", "kind"), [(3, "full-reentrant"), (2, "full")])
def test_trl_checkpoints_reentrantly_at_stage_3(zeroplan, write, stage, kind):
    """trl/trainer/sft_trainer.py: use_reentrant is forced to True for peft under ZeRO-3."""
    write("ds.json", {**CONFIG, "zero_optimization": {"stage": stage}})
    ran = zeroplan("estimate", "--config", write("train.yaml", TRL), "--gpus", "8", "--json")
    assert ran.json["strategy"]["checkpointing"] == kind


def test_options_win(zeroplan, write):
    file = ("--config", write("train.yaml", LLAMA), "--gpus", "8", "--json")
    assert "r 16, q_proj, v_proj: 1.7M" in zeroplan("estimate", *file, "--lora", "16").json["scope"]["trains"]
    ran = zeroplan("estimate", *file, "--seq", "1024", "--micro-batch", "4", "--checkpointing", "none")
    assert ran.json["scope"]["tokens_per_sequence"] == 1024
    assert ran.json["strategy"]["micro_batch"] == 4
    assert ran.json["strategy"]["checkpointing"] == "none"
    assert zeroplan("estimate", *file, "--model", "gpt2").code == 2  # it has no q_proj


@pytest.mark.parametrize(
    ("text", "typed", "said"),
    [
        (LLAMA, ("--freeze", "*norm*"), "--freeze and finetuning_type lora of train.yaml both say what trains"),
        (LLAMA + "adapter_name_or_path: out\n", (), "train.yaml: adapter_name_or_path: found 'out'"),
        (LLAMA + "lora_rank: 16\n", (), "train.yaml:11:1: found the key 'lora_rank' twice"),
        (LLAMA.replace("lora_rank: 8", "lora_rank: $R"), (), "lora_rank: found the placeholder '$R'"),
        (AXOLOTL.replace("adapter: lora", "adapter: llama-adapter"), (), "train.yaml: adapter: found 'llama-adapter'"),
        (TRL.replace("ds.json", "gone.json"), (), "found 'gone.json' for the ds_config"),
        (TRL + f"gradient_accumulation_steps: {10**20}\n", (), "train.yaml: gradient_accumulation_steps: found '1000"),
        (TRL + "optim: galore_adamw\n", (), "train.yaml: optim: found 'galore_adamw'"),
        ("model: a\nmodel_class: llm\n", (), "a training file of LLaMA-Factory v1, which is not read"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_one_line(zeroplan, write, text, typed, said):
    ran = zeroplan("estimate", "--config", write("train.yaml", text), "--gpus", "8", *typed)
    assert ran.code == 2
    assert said in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize(("tool", "key"), [("axolotl", "optimizer"), ("TRL", "optim"), ("LLaMA-Factory", "optim")])
@pytest.mark.parametrize(("paged", "twin", "states"), [
    ("paged_adamw_32bit", "adamw_torch_fused", 8), ("paged_lion_32bit", "lion_32bit", 4), ("paged_adamw_8bit", "adamw_8bit", 2),
])  # fmt: skip
def test_a_paged_optimizer_has_the_states_of_the_one_that_is_not(zeroplan, write, tool, key, paged, twin, states):
    """bitsandbytes' get_state_buffer: as many bytes, in unified memory. DeepSpeed hands it one flat tensor a group."""
    ran = zeroplan("estimate", "--config", write("train.yaml", f"{FILES[tool]}{key}: {paged}\n"), "--gpus", "8", "--json")
    plain = zeroplan("estimate", "--config", write("plain.yaml", f"{FILES[tool]}{key}: {twin}\n"), "--gpus", "8", "--json")
    assert ran.json["memory"] == plain.json["memory"]
    held = sum(line["bytes"] for line in ran.json["memory"]["gpu"]["lines"] if line["name"] == "optimizer states")
    assert held == pytest.approx(states * Q_V / 8, rel=0.05)
    assert any(note.startswith(f"train.yaml: {paged} is not planned: its states are counted as those of {twin},")
               for note in ran.json["assumed"])  # fmt: skip


def test_a_config_that_says_another_batch(zeroplan, write):
    """The Trainer stops: integrations/deepspeed.py, fill_match."""
    write("ds.json", {**CONFIG, "train_micro_batch_size_per_gpu": 4})
    ran = zeroplan("estimate", "--config", write("train.yaml", LLAMA), "--gpus", "8")
    assert ran.code == 2
    assert "train.yaml: per_device_train_batch_size 2 contradicts ds.json, which says 4" in ran.err


def test_a_file_without_a_config_leaves_the_strategy_open(zeroplan, write):
    name = write("train.yaml", LLAMA.replace("deepspeed: ds.json\n", ""))
    ran = zeroplan("recommend", "--config", name, "--gpus", "8xh100-80gb", "--json")
    assert ran.code == 0, ran.err
    assert f"{Q_V:,}" in ran.json["scope"]["trains"]
    assert any("names no DeepSpeed config" in said for said in ran.json["assumed"])
    for command in (("check", name), ("diff", name, "ds.json")):
        refused = zeroplan(*command)
        assert refused.code == 2
        assert "a training file of LLaMA-Factory that names no DeepSpeed config" in refused.err


def test_numbers_that_yaml_leaves_as_texts(zeroplan, write):
    """LLaMA-Factory's OmegaConf, TRL's argparse and axolotl's pydantic make a number of 1e-4; the Trainer stops."""
    for name, text in FILES.items():
        assert "ZP112" not in zeroplan("check", write("train.yaml", text)).out, name
    own = "output_dir: o\nnum_train_epochs: 1\nbf16: true\nlearning_rate: 1e-4\ndeepspeed: ds.json\n"
    assert "ZP112" in zeroplan("check", write("train.yaml", own)).out


@pytest.mark.parametrize("tool", FILES)
def test_check_plans_what_trains(zeroplan, write, tool):
    asked = ("--model", "llama-3.2-1b", "--gpus", "8xh100-80gb", "--format", "json")
    name = write("train.yaml", FILES[tool])
    for typed in (("check", name), ("check", "ds.json", "--trainer-args", name)):
        ran = zeroplan(*typed, *asked)
        assert "LoRA adapters (r 8" in ran.json["scope"]["trains"]
        assert ran.json["scope"]["tokens_per_sequence"] == 512


@pytest.mark.parametrize("tool", FILES)
def test_check_takes_the_model_that_the_file_names(zeroplan, write, tool):
    """As with --model: a 16-bit model of 1,235,814,400 parameters is 2.30 GiB, too much for a card of 2 GB."""
    name = write("train.yaml", FILES[tool])
    for card in ((), ("--gpus", "8", "--gpu-mem", "2GB")):
        told = zeroplan("check", name, "--model", "llama-3.2-1b", *card, "--format", "json")
        for typed in (("check", name), ("check", "ds.json", "--trainer-args", name)):
            ran = zeroplan(*typed, *card, "--format", "json")
            assert ran.json["findings"] == told.json["findings"]
            assert ran.json["scope"] == told.json["scope"]
            assert ran.code == told.code == int(bool(card))
    assert "ZP901" in {one["rule"] for one in told.json["findings"]}


@pytest.mark.parametrize(("words", "why"), [
    (("base_model: llama-3.2-1b", "base_model: my-org/own"), "--model own/config.json once that file is downloaded"),
    (("adapter: lora", "rl: dpo"), "train.yaml: rl: found 'dpo'"),
])  # fmt: skip
def test_check_says_why_it_knows_no_model(zeroplan, write, words, why):
    """Where a card is named, so that it is asked whether the job fits; else nothing depends on it."""
    name = write("train.yaml", AXOLOTL.replace(*words))
    ran = zeroplan("check", name, "--gpus", "8xh100-80gb", "--format", "json")
    (finding,) = (one for one in ran.json["findings"] if one["rule"] == "ZP904")
    assert why in finding["message"]
    assert ran.code == 1
    assert zeroplan("check", name).code == 0


def test_check_compares_axolotls_batch(zeroplan, write):
    write("ds.json", {**CONFIG, "train_micro_batch_size_per_gpu": 2})
    assert "ZP205" not in zeroplan("check", write("train.yaml", AXOLOTL)).out
    ran = zeroplan("check", write("train.yaml", AXOLOTL.replace("micro_batch_size: 2", "micro_batch_size: 4")))
    assert "micro_batch_size says 4 (train.yaml:3)" in ran.out


def test_check_of_a_json_changes_nothing(zeroplan, write, tmp_path):
    name = write("train.json", {"model_name_or_path": "a", "cutoff_len": 5, "bf16": True, "deepspeed": "ds.json"})
    before = (tmp_path / name).read_text(encoding="utf-8")
    assert zeroplan("check", name, "--fix").code == 0
    assert (tmp_path / name).read_text(encoding="utf-8") == before


def test_diff_counts_the_job_of_the_file(zeroplan, write):
    write("other.json", {**CONFIG, "zero_optimization": {"stage": 2}})
    ran = zeroplan("diff", write("train.yaml", LLAMA), "other.json", "--gpus", "8", "--json")
    assert ran.code == 0, ran.err
    assert f"{Q_V:,}" in ran.json["scope"]["trains"]
    ran = zeroplan("diff", "train.yaml", write("second.yaml", AXOLOTL))
    assert ran.code == 2
    assert "say different jobs" in ran.err
