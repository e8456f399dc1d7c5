"""The model and the sequences that a launch script gives its training script: taken for what fits, and said."""

from __future__ import annotations

import json

import pytest

from zeroplan.check.launcher import launches

CONFIG = {"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "bf16": {"enabled": "auto"},
          "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": True}}  # fmt: skip
LAUNCH = "torchrun --nproc_per_node 8 t.py --deepspeed ds.json --output_dir o --bf16 True --per_device_train_batch_size 4"
MODEL = "--model_name_or_path meta-llama/Llama-3.1-8B"
CARD = ("--gpu-mem", "80")


@pytest.fixture
def check(zeroplan, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ds.json").write_text(json.dumps(CONFIG), encoding="utf-8")

    def run(line, *options):
        (tmp_path / "run.sh").write_text(f"{line}\n", encoding="utf-8")
        return zeroplan("check", "run.sh", *options)

    return run


def needs(ran):
    """GiB on each GPU, of the error that it does not fit."""
    return ran.out.partition("error ZP901: needs ")[2].partition(" GiB")[0]


@pytest.mark.parametrize("option", ["cutoff_len", "max_seq_length", "max_length", "model_max_length"])
def test_what_fits_is_that_of_the_same_job_stated_by_options(check, option):
    script = check(f"{LAUNCH} {MODEL} \\\n  --{option} 8192", *CARD)
    typed = check(LAUNCH, *CARD, "--model", "llama-3.1-8b", "--seq", "8192")
    assert needs(script) == needs(typed) != ""
    assert "no checkpointing was assumed" in script.out
    assert "run.sh:1: --model_name_or_path: the model is llama-3.1-8b\n" in script.out
    assert f"run.sh:2: --{option}: sequences of 8,192 tokens\n" in script.out
    assert "every sequence 8,192 tokens" in script.out


def test_targets_of_an_encoder_decoder(check, monkeypatch):
    """As run_summarization.py of transformers has them; a model that is named is planned as it is, and that is said."""
    monkeypatch.setattr("zeroplan.catalog.kept_recordings.installed", lambda: None)
    launch = f"{LAUNCH} --model_name_or_path t5-base --max_source_length 64"
    same = check(f"{launch} --max_target_length 64", *CARD)
    assert "run.sh:1: --max_target_length: targets as long as their sources\n" in same.out
    assert "every sequence 64 tokens with targets as long as their sources" in same.out
    other = check(f"{launch} --max_target_length 16", *CARD)
    assert "run.sh:1: t5-base: found a model with targets of 16 tokens that is not recorded" in other.out
    assert "Scope" not in other.out
    named = check(f"{launch} --max_target_length 16", *CARD, "--model", "t5-base")
    assert "targets of 16 tokens, and planned is a model with targets as long as their sources (--target-seq)\n" in named.out
    typed = check(f"{launch} --max_target_length 16", *CARD, "--target-seq", "8")
    assert "t5-base: found a model with targets of 8 tokens that is not recorded" in typed.out
    as_long = check(f"{LAUNCH} --model_name_or_path t5-base --max_target_length 128", *CARD, "--seq", "128")
    assert "every sequence 128 tokens with targets as long as their sources" in as_long.out


def test_a_decoder_alone_has_source_and_target_in_one_sequence(check):
    ran = check(f"{LAUNCH} {MODEL} --max_source_length 512 --max_target_length 128", *CARD)
    assert "the model is llama-3.1-8b" in ran.out
    assert "512" not in ran.out


def test_an_option_wins(check):
    ran = check(f"{LAUNCH} {MODEL} --cutoff_len 8192", *CARD, "--model", "llama-3.2-1b", "--seq", "1024")
    assert "full training of llama-3.2-1b" in ran.out
    assert "every sequence 1,024 tokens" in ran.out
    assert "the model is" not in ran.out


def test_checkpointing_is_that_of_the_arguments(check):
    assert check(f"{LAUNCH} {MODEL} --gradient_checkpointing --max_length 4096", *CARD).code == 0


def test_without_a_card_nothing_is_taken(check):
    ran = check(f"{LAUNCH} {MODEL} --cutoff_len 8192")
    assert (ran.code, "Scope" in ran.out) == (0, False)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ("--lora_r 8", "--lora_r says what trains"),
        ("--use_peft", "--use_peft says what trains"),
        ("--load_in_4bit True", "--load_in_4bit says what trains"),
        ("--finetuning_type lora", "--finetuning_type says what trains"),
        ("--stage sft --template qwen", "no --finetuning_type full: adapters train"),
        ("--freeze_vision_tower True", "--freeze_vision_tower says what trains"),
        ("--bits $1", "--bits says what trains"),
    ],
)
def test_a_model_of_which_a_part_trains_is_not_judged(check, arguments, why):
    """LLaMA-Factory's finetuning_type is lora where nothing says it (hparams/finetuning_args.py)."""
    ran = check(f"{LAUNCH} {MODEL} {arguments}", *CARD)
    assert (ran.code, "ZP9" in ran.out) == (0, False)
    assert f"run.sh:1: {why}: whether it fits is not judged (--model says of which)\n" in ran.out


@pytest.mark.parametrize("arguments", ["--use_lora False", "--bits 16", "--finetuning_type full --stage sft"])
def test_what_leaves_all_weights_hinders_nothing(check, arguments):
    ran = check(f"{LAUNCH} {MODEL} {arguments} --max_length 8192", *CARD)
    assert "run.sh:1: --model_name_or_path: the model is llama-3.1-8b\n" in ran.out
    assert "is not judged" not in ran.out


@pytest.mark.parametrize("name", ["/data/llama", "./llama", "some/model-of-nobody"])
def test_a_model_that_is_not_here_is_said(check, name):
    ran = check(f"{LAUNCH} --model_name_or_path {name}", *CARD)
    assert ran.code == 0
    assert f"--model_name_or_path '{name}' is no preset, folder or config.json: whether it fits is not judged" in ran.out


def test_a_folder_with_a_config_json_is_a_model(check, tmp_path):
    (tmp_path / "m").mkdir()
    sizes = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 99,
             "intermediate_size": 128, "architectures": ["LlamaForCausalLM"]}  # fmt: skip
    (tmp_path / "m" / "config.json").write_text(json.dumps(sizes), encoding="utf-8")
    assert "run.sh:1: --model_name_or_path: the model is m\n" in check(f"{LAUNCH} --model_name_or_path ./m", *CARD).out


@pytest.mark.parametrize(
    ("line", "seq"),
    [
        (f"{LAUNCH} --max_length 512 --model_max_length 512", "512"),
        (f"{LAUNCH} --max_length 512 --model_max_length 4096", None),
        (f"{LAUNCH} --max_length $1", None),
        (f"{LAUNCH} --max_length=-1", None),
        (LAUNCH, None),
        ("trl sft --deepspeed ds.json --output_dir o", "1024"),
        ("trl sft --deepspeed ds.json --max_length 300", "300"),
    ],
)
def test_the_length_is_taken_where_one_is_meant(line, seq):
    """TRL 1.16 SFTConfig.max_length is 1024."""
    (one,) = launches("run.sh", line)
    assert (one.arguments.job.seq and one.arguments.job.seq.value) == seq


def test_a_command_has_its_own_checkpointing(check):
    """TRL 1.16 SFTConfig.gradient_checkpointing is true: what a plain script has to say."""
    assert check(f"trl sft --deepspeed ds.json {MODEL} --max_length 2048", *CARD, "--gpus", "8").code == 0
    assert check(f"trl sft --deepspeed ds.json {MODEL} --max_length 2048 --gradient_checkpointing false", *CARD,
                 "--gpus", "8").code == 1  # fmt: skip
