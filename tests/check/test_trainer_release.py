"""What transformers' Trainer of a release knows and refuses of its arguments: the fields of 81 releases, and runs of 5.24."""

from __future__ import annotations

import json

import pytest

from tests.references.make_training_arguments import by_release
from zeroplan.catalog.trainers.argument_history import ARGUMENTS, OPTIMIZERS, SCHEDULES

CONFIG = "{bf16: {enabled: auto}, zero_optimization: {stage: 2}, train_micro_batch_size_per_gpu: auto}"
FILE = f"output_dir: o\nper_device_train_batch_size: 1\nbf16: true\ndeepspeed: {CONFIG}\n"
CALL = (
    "from transformers import TrainingArguments\n"
    "args = TrainingArguments('o', per_device_train_batch_size=1, bf16=True, {}, deepspeed={{'bf16': {{'enabled': 'auto'}},\n"
    "    'zero_optimization': {{'stage': 2}}, 'train_micro_batch_size_per_gpu': 'auto'}})\n"
)
BEST = {"load_best_model_at_end": True, "eval_strategy": "steps"}
REFUSED = [
    {"optim": "adamw_hf"}, {"optim": "adamw_tourch"}, {"lr_scheduler_type": "cosin"}, {"warmup_ratio": 0.1},
    {"evaluation_strategy": "no"}, {**BEST, "save_steps": 300, "eval_steps": 200}, {**BEST, "logging_steps": 3},
    {**BEST, "save_steps": 0.25, "eval_steps": 0.1}, {**BEST, "save_steps": 0.25, "eval_steps": 10},
    {**BEST, "save_steps": 100, "eval_steps": 0.1}, {"logging_steps": 0}, {"lr_scheduler_type": "greedy"},
]  # fmt: skip
TAKEN = [
    {**BEST, "save_steps": 200, "eval_steps": 100}, BEST, {**BEST, "logging_steps": 10},
    {**BEST, "save_steps": 0.2, "eval_steps": 0.1}, {**BEST, "save_steps": 500, "eval_steps": 0.5},
    {**BEST, "save_steps": 1000, "eval_steps": 0}, {"logging_steps": 0, "logging_strategy": "no"},
    {"lr_scheduler_type": "reduce_lr_on_plateau", "eval_strategy": "epoch"}, {"warmup_steps": 0.1},
]  # fmt: skip


def test_every_release_has_what_the_table_says():
    newest = by_release()["5.24.0"]["fields"]
    for release, has in by_release().items():
        always = {name for name in newest if name not in ARGUMENTS}
        assert has["fields"] == always | {name for name, span in ARGUMENTS.items() if span.is_in(release)}, release
        assert has["optimizers"] == {name for name, span in OPTIMIZERS.items() if span.is_in(release)}, release
        assert has["schedules"] == {name for name, span in SCHEDULES.items() if span.is_in(release)}, release


def written(arguments):
    return FILE + "".join(f"{name}: {json.dumps(value)}\n" for name, value in arguments.items())


@pytest.mark.parametrize("arguments", REFUSED, ids=json.dumps)
def test_refused(check_files, arguments):
    ran = check_files({"train.yaml": written(arguments)})
    assert any(rule in ran.out for rule in ("ZP822", "ZP833", "ZP834"))


@pytest.mark.parametrize("arguments", TAKEN, ids=json.dumps)
def test_taken(check_files, arguments):
    ran = check_files({"train.yaml": written(arguments)})
    assert not any(rule in ran.out for rule in ("ZP822", "ZP833", "ZP834"))


def test_as_transformers_has_them(tmp_path):
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    parser = transformers.HfArgumentParser(transformers.TrainingArguments)
    for arguments in TAKEN:
        parser.parse_dict({"output_dir": str(tmp_path), "use_cpu": True, **arguments})
    for arguments in REFUSED:
        with pytest.raises(ValueError, match=r"\w"):
            parser.parse_dict({"output_dir": str(tmp_path), "use_cpu": True, **arguments})


@pytest.mark.parametrize(
    ("stated", "release", "severity"),
    [
        ("evaluation_strategy='no'", "4.50.3", ""), ("evaluation_strategy='no'", "4.51.0", "error"),
        ("evaluation_strategy='no'", "", "warning"), ("eval_strategy='no'", "4.40.2", "error"),
        ("eval_strategy='no'", "4.41.0", ""), ("optim='adamw_hf'", "4.49.0", ""), ("optim='adamw_hf'", "4.50.0", "error"),
        ("optim='stable_adamw'", "4.53.3", "error"), ("lr_scheduler_type='greedy', eval_strategy='epoch'", "5.3.0", "error"),
    ],
)  # fmt: skip
def test_calls_of_a_release(check_files, stated, release, severity):
    options = ("--transformers", release) if release else ()
    ran = check_files({"train.py": CALL.format(stated)}, *options, "--format", "concise")
    hits = [line for line in ran.out.splitlines() if "ZP833" in line or "ZP834" in line]
    assert len(hits) == bool(severity)
    assert all(f" {severity} ZP83" in hit for hit in hits)


def test_a_script_may_have_its_own(check_files):
    line = "deepspeed train.py --output_dir o --bf16 true --per_device_train_batch_size 1 --lr_scheduler_type own --deepspeed ds.json"
    files = {"run.sh": f"{line}\n", "ds.json": json.dumps({"bf16": {"enabled": "auto"}, "train_micro_batch_size_per_gpu": "auto"})}
    assert "warning ZP834" in check_files(files).out


def test_llama_factory_has_one_of_its_own(check_files):
    """Its hparams/training_args.py; it takes transformers 4.55 to 5.6."""
    text = f"model_name_or_path: x/y\nfinetuning_type: full\noutput_dir: o\noverwrite_output_dir: true\nwarmup_ratio: 0.1\nbf16: true\ndeepspeed: {CONFIG}\n"
    assert "ZP833" not in check_files({"train.yaml": text}).out
    assert "ZP833" in check_files({"train.yaml": f"evaluation_strategy: 'no'\n{text}"}).out


def test_a_call_that_names_a_file_of_the_folder(zeroplan, tmp_path):
    call = 'args = TrainingArguments("o", evaluation_strategy="no", bf16=True, fp16=True, deepspeed="ds.json")\n'
    (tmp_path / "train.py").write_text(call)
    (tmp_path / "ds.json").write_text('{"bf16": {"enabled": "auto"}, "train_micro_batch_size_per_gpu": "auto"}')
    ran = zeroplan("check", str(tmp_path), "--format", "concise")
    assert 'warning ZP833: evaluation_strategy is gone since transformers 4.51, which stops at it; write: eval_strategy="no"' in ran.out
    assert "write: fp16=False" in ran.out


OF_TRL = f"model_name_or_path: x/y\ndataset_name: d\noutput_dir: o\nbf16: true\ndeepspeed: {CONFIG}\n"


@pytest.mark.parametrize(
    ("line", "release", "severity"),
    [
        ("torch_dtype: bfloat16", "1.16.0", "error"), ("torch_dtype: bfloat16", "0.26.2", ""), ("torch_dtype: bfloat16", "", "warning"),
        ("max_seq_length: 512", "0.19.1", ""), ("max_seq_length: 512", "0.20.0", "error"), ("dtype: bfloat16", "", ""),
        ("system_prompt: x", "1.16.0", ""),
    ],
)  # fmt: skip
def test_arguments_of_trl(check_files, line, release, severity):
    """trl's trainers/*_config.py of each release; run with 1.16: Unknown arguments from config file. A project's own are its own."""
    files = {"train.yaml": f"{OF_TRL}{line}\n", "requirements.txt": f"trl=={release}\n" if release else ""}
    hits = [one for one in check_files(files, "--format", "concise").out.splitlines() if "ZP833" in one]
    assert len(hits) == bool(severity)
    assert all(f" {severity} ZP833" in one for one in hits)


def test_a_config_of_trl_in_python(check_files):
    call = CALL.format("max_seq_length=512").replace("TrainingArguments", "SFTConfig").replace("transformers", "trl")
    assert "write: max_length=512" in check_files({"train.py": call}, "--format", "concise").out


@pytest.mark.parametrize(("pin", "severity"), [("llamafactory==0.9.1", ""), ("llamafactory>=0.9", "error"), ("torch", "warning")])
def test_the_llama_factory_that_a_project_asks_for(check_files, pin, severity):
    """train_mm_proj_only is an argument of 0.8.0 to 0.9.1 (hparams of each release)."""
    text = f"model_name_or_path: x/y\nfinetuning_type: full\noutput_dir: o\ntrain_mm_proj_only: true\nbf16: true\ndeepspeed: {CONFIG}\n"
    ran = check_files({"train.yaml": text, "requirements.txt": f"{pin}\n"}, "--format", "concise")
    assert (f" {severity} ZP833" in ran.out, "ZP833" in ran.out) == (bool(severity), bool(severity))


def test_a_path_of_another_machine_is_said(check_files, tmp_path):
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "ds.json").write_text('{"bf16": {"enabled": "auto"}, "train_micro_batch_size_per_gpu": "auto"}')
    text = "output_dir: o\nper_device_train_batch_size: 1\nbf16: true\ndeepspeed: /home/me/clone/configs/ds.json\n"
    assert "train.yaml: its deepspeed is configs/ds.json" in check_files({"train.yaml": text}).out


LINE = "deepspeed train.py --output_dir o --bf16 --per_device_train_batch_size 1 --evaluation_strategy no --deepspeed ds.json\n"
PARSER = "parser = HfArgumentParser((ModelArguments, TrainingArguments))\n"


@pytest.mark.parametrize(
    ("code", "release", "severity"),
    [
        (PARSER, "4.51.0", "error"), (PARSER, "4.50.3", ""), (PARSER, "", "warning"), ("", "4.51.0", "warning"),
        ("parser = argparse.ArgumentParser()\n", "4.51.0", "warning"),
        (PARSER + "class TrainingArguments:\n    evaluation_strategy: str = 'no'\n", "4.51.0", ""),
        (PARSER + "parser.parse_args_into_dataclasses(return_remaining_strings=True)\n", "4.51.0", "warning"),
    ],
)  # fmt: skip
def test_options_of_a_release(check_files, code, release, severity):
    """HfArgumentParser stops at an option that no dataclass has, unless it is to return what remains (run with 5.24)."""
    ds = json.dumps({"bf16": {"enabled": "auto"}, "train_micro_batch_size_per_gpu": "auto"})
    files = {"run.sh": LINE, "ds.json": ds, "train.py": code, "requirements.txt": f"transformers=={release}\n" if release else ""}
    ran = check_files(files, "--format", "concise")
    hits = [one for one in ran.out.splitlines() if "ZP833" in one]
    assert len(hits) == bool(severity)
    assert all(f" {severity} ZP833" in one and "write: --eval_strategy no" in one for one in hits)
