"""What public files showed that `check` had not known, each as small as it failed; how it is with the real readers stands beside each."""

from __future__ import annotations

import json

import pytest

from zeroplan.catalog.trainers.tools import TRAINER, TRL, tool_of

CONCISE = ("--format", "concise", "--fail-on", "error")
GOOD = '{"train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 2}}'


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.err", "0: Using the latest cached version\n0: [rank0]: Traceback (most recent call last):\n0: [rank0]:   File\n"),
        ("nohup.out", "usage: train.py [-h] [--model MODEL]\n                [--lr LR]\ntrain.py: error: argument --fp16: a\n"),
        ("train.log", "loading\n"), ("run", "0: [2026-01-19 14:22:06,123] [INFO] [launch.py:351:main] Process 1 exits successfully.\n"),
    ],
)  # fmt: skip
def test_logs(check_files, name, text):
    ran = check_files({name: text})
    assert (ran.code, ran.out) == (2, "")
    assert "found a log" in ran.err


@pytest.mark.parametrize(("text", "code", "word"), [("index,ip\n1,10.0.0.1\n", 2, "found"), ("worker-1\nworker-2\n", 1, "ZP846"), ("10.0.0.1:22\n", 1, "ZP846")])
def test_a_table_that_is_no_hostfile(check_files, text, code, word):
    """DeepSpeed's parser refuses all three; the first no launcher was given."""
    ran = check_files({"hostfile": text}, *CONCISE)
    assert (ran.code, word in ran.out + ran.err) == (code, True)


@pytest.mark.parametrize(
    ("code", "warns"),
    [
        ("from lightning.pytorch.strategies import DeepSpeedStrategy\ns = DeepSpeedStrategy(config=path)\n", True),
        ("from pytorch_lightning.plugins import DeepSpeedPlugin\np = DeepSpeedPlugin(config=path)\n", True),
        ("from accelerate import DeepSpeedPlugin\np = DeepSpeedPlugin(hf_ds_config=path)\n", False), ("import lightning\n", False),
    ],
)  # fmt: skip
def test_a_batch_that_lightning_puts_in(check_files, code, warns):
    """Run with lightning 2.6: strategies/deepspeed.py puts train_micro_batch_size_per_gpu in where it is missing."""
    files = {"ds.json": '{"bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}', "util.py": code}
    ran = check_files(files, *CONCISE)
    assert ran.code == int(not warns)
    assert ("warning ZP203" in ran.out and "unless Lightning reads it, as in util.py" in ran.out) == warns
    assert check_files(files, *CONCISE, "--for", "deepspeed").code == 1


SCHEDULED = json.dumps({
    **json.loads(GOOD), "optimizer": {"type": "AdamW", "params": {"lr": "auto"}},
    "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_max_lr": "auto", "total_num_steps": "auto", "warmup_num_steps": "auto"}},
})  # fmt: skip
DPO = "from trl import DPOConfig, DPOTrainer\nargs = DPOConfig('o', bf16=True, deepspeed='ds.json')\nDPOTrainer(model, ref, args=args%s)\n"


@pytest.mark.parametrize(("release", "more", "stops"), [("0.11.0", "", True), ("0.11.0", ", peft_config=c", False), ("1.10.0", "", False)])
def test_a_schedule_of_a_reference_model(check_files, release, more, stops):
    """trl 0.11: _prepare_deepspeed hands on what trainer_config_process has filled; deepspeed.initialize of 0.19.8, run: ValueError:
    warmup_num_steps must be a positive integer, got auto.
    """
    files = {"t.py": DPO % more, "ds.json": SCHEDULED, "requirements.txt": f"trl=={release}\n"}
    assert ("error ZP850" in check_files(files, *CONCISE).out) == stops
    of_script = {"run.sh": "deepspeed t.py --output_dir o --bf16 --deepspeed ds.json\n", **files, "t.py": f"DPOTrainer(model, ref{more})"}
    assert ("error ZP850" in check_files(of_script, *CONCISE).out) == stops


def test_a_script_of_an_older_openrlhf(check_files):
    """256 is no multiple of 2 * 7."""
    ran = check_files({"run.sh": "deepspeed --num_gpus 7 ../train_sft.py --train_batch_size 256 --micro_train_batch_size 2 --bf16\n"}, *CONCISE)
    assert (ran.code, "error ZP202" in ran.out) == (1, True)


@pytest.mark.parametrize(
    ("named", "code"),
    [
        ("/lustre/me/LLaMA-Factory/examples/deepspeed/ds_z3_config.json", 0), ("../llama_factory/examples/deepspeed/ds_z3_config.json", 0),
        ("/lustre/me/LLaMA-Factory/examples/deepspeed/ds_z5_config.json", 2), ("/data/axolotl/examples/deepspeed/ds_z3_config.json", 2),
        ("/data/llamafactory/ds_own.json", 0), ("/data/llamafactory/own.json", 2),
    ],
)  # fmt: skip
def test_a_path_of_another_machine(check_files, named, code):
    file = f"model_name_or_path: x\nstage: sft\nfinetuning_type: full\ndataset: d\ntemplate: llama3\noutput_dir: o\nbf16: true\ndeepspeed: {named}\n"
    ran = check_files({"a.yaml": file, "ds_own.json": GOOD, "own.json": GOOD}, *CONCISE)
    assert ran.code == code, ran.out + ran.err


@pytest.mark.parametrize(
    ("release", "words"), [("", ""), ("accelerate==0.34.2\n", "builds the whole model"), ("accelerate==1.0.0\n", 'leaves an "auto"'), ("accelerate==1.0.1\n", "")]
)
def test_zero3_init_flag_by_release(check_files, release, words):
    """set_deepspeed_weakref of the wheels: 0.34.2 has no dschf without the flag, 1.0.0 one with "auto", 1.0.1 one without; run with 1.15:
    every parameter of from_pretrained has a ds_tensor.
    """
    file = "distributed_type: DEEPSPEED\nmixed_precision: bf16\ndeepspeed_config:\n  zero_stage: 3\n  zero3_init_flag: false\n"
    out = check_files({"a.yaml": file, "requirements.txt": release or "numpy\n"}, *CONCISE).out
    assert ("ZP806" in out) == bool(words)
    assert words in out


def test_a_text_that_stands_for_itself(check_files):
    """What DeepSpeed printed of a config, in a text that nothing takes."""
    text = "from accelerate.utils import DeepSpeedPlugin\nDeepSpeedPlugin(zero_stage=3)\n'''\n{%s}\n'''\n"
    printed = '"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}, "steps_per_print": inf,\n"wall_clock_breakdown": false'
    assert check_files({"t.py": text % printed}, *CONCISE).code == 0
    assert check_files({"t.py": (text % printed).replace("'''\n{", "config = '''\n{", 1)}, *CONCISE).code == 1


def test_files_of_the_alignment_handbook():
    usual = ["model_name_or_path", "output_dir", "preprocessing_num_workers", "per_device_train_batch_size"]
    assert (tool_of([*usual, "dataset_mixer"]), tool_of([*usual, "dataset_name"])) == (TRL, TRAINER)


def test_why_a_started_script_has_none(check_files):
    ran = check_files({"a.sh": "bash b.sh\n", "b.sh": "accelerate launch --config_file z.yaml t.py\n"})
    assert (ran.code, "b.sh:1: found \"z.yaml\", which is not there" in ran.err) == (2, True)


PARSES = "import argparse, deepspeed\np = argparse.ArgumentParser(%s)\np.add_argument('%s', default='ds.json')\ndeepspeed.add_config_arguments(p)\nds_config = {'train_batch_size': 8, 'bf16': {'enabled': True}}\n"


@pytest.mark.parametrize(
    ("given", "option", "stops"),
    [("", "--deepspeed_config", True), ("", "--deepspeed", True), ("", "--ds", False), ("conflict_handler='resolve'", "--deepspeed", False)],
)
def test_an_option_that_deepspeed_adds_too(check_files, given, option, stops):
    """Run with 0.19.8: ArgumentError, conflicting option string: --deepspeed_config."""
    ran = check_files({"t.py": PARSES % (given, option)}, *CONCISE)
    assert (ran.code, "t.py:3:16: error ZP855" in ran.out) == (int(stops), stops)


def test_an_option_of_one_branch_alone(check_files):
    """DALLE-pytorch's backends add --deepspeed where DeepSpeed does not."""
    code = (
        "import deepspeed\nds_config = {'train_batch_size': 8, 'bf16': {'enabled': True}}\ndef wrap(p, there):\n    if there:\n"
        "        deepspeed.add_config_arguments(p)\n    else:\n        p.add_argument('--deepspeed', type=bool)\n"
    )
    assert check_files({"t.py": code}, *CONCISE).code == 0


@pytest.mark.parametrize(
    ("pin", "code", "word"),
    [("==0.4.3", 0, "checked as 0.14.0, and no error is certain"), ("==99.0.0", 1, "checked as 0.19.8"), ("<0.5", 0, "no error is certain"), ("==0.17.5", 1, "checked as DeepSpeed 0.17.5")],
)
def test_a_release_before_all_that_are_known(check_files, pin, code, word):
    """0.4.3 takes fp16.opt_level, 0.17.5 and 0.19.8 refuse it; text that is no JSON every release refuses."""
    files = {"ds.json": '{"train_batch_size": 8, "fp16": {"enabled": true, "opt_level": "O2"}}', "requirements.txt": f"deepspeed{pin}\n"}
    ran = check_files(files, "--fail-on", "error")
    assert (ran.code, word in ran.out) == (code, True)
    assert check_files({**files, "ds.json": '{"train_batch_size" 8}'}, *CONCISE).code == 1


def test_the_default_of_an_option_that_is_added_elsewhere(check_files):
    text = "from pytorch_lightning.plugins import DeepSpeedPlugin\nDEFAULT_DEEPSPEED_CONFIG_PATH = 'ds.json'\np = DeepSpeedPlugin(config=args.path, num_nodes=1)\n"
    ran = check_files({"util.py": text, "ds.json": '{"zero_optimization": {"stage": 5}, "bf16": {"enabled": true}}'}, *CONCISE)
    assert (ran.code, "ZP401" in ran.out, "ZP203" in ran.out) == (1, True, False)


CALLS = {
    "from transformers import Trainer\nTrainer(m, a, tokenizer=t)\n": ("tokenizer of Trainer is gone since transformers 5.0", "processing_class=..."),
    "import transformers as tf\ntf.Seq2SeqTrainer(m, a, tokenizer=t)\n": ("tokenizer of Seq2SeqTrainer is gone", "processing_class=..."),
    "from transformers import TrainingArguments\nTrainingArguments('o', overwrite_output_dir=True)\n": ("overwrite_output_dir is gone since transformers 5.0", "delete it"),
    "from trl import GRPOConfig\nGRPOConfig('o', max_prompt_length=512)\n": ("max_prompt_length is gone since trl", "max_length"),
    "from own import Trainer\nTrainer(m, a, tokenizer=t)\n": None, "from transformers import Trainer\nTrainer(m, a, processing_class=t)\n": None,
    "class GRPOConfig:\n    pass\nGRPOConfig('o', max_prompt_length=n)\n": None,
}  # fmt: skip


@pytest.mark.parametrize("pinned", [False, True])
@pytest.mark.parametrize("code", CALLS)
def test_calls_that_a_release_does_not_take(check_files, code, pinned):
    """Run: TypeError of transformers 5.24 for each of the first three; fields of trl 1.16's GRPOConfig."""
    pins = "transformers==5.24.0\ntrl==1.16.0\n" if pinned else "numpy\n"
    files = {"run.sh": "torchrun t.py --deepspeed ds.json\n", "t.py": code, "ds.json": GOOD, "requirements.txt": pins}
    ran = check_files(files, *CONCISE)
    line = next((line for line in ran.out.splitlines() if "ZP833" in line), "")
    assert (ran.code, bool(line)) == (int(pinned and CALLS[code] is not None), CALLS[code] is not None)
    assert all(word in line for word in ("t.py:", " ZP833", *(CALLS[code] or ())) if line), line


@pytest.mark.parametrize(
    ("argument", "release", "message"),
    [("tokenizer", "4.57.0", ""), ("processing_class", "4.44.2", "processing_class of Trainer came with transformers 4.46"), ("processing_class", "4.46.0", "")],
)
def test_calls_that_an_older_release_takes(check_files, argument, release, message):
    """trainer.py of 4.57.0 and 5.0.0: deprecate_kwarg("tokenizer", ..., version="5.0.0")."""
    code = f"from transformers import Trainer\nTrainer(m, a, {argument}=t)\n"
    files = {"run.sh": "torchrun t.py --deepspeed ds.json\n", "t.py": code, "ds.json": GOOD, "requirements.txt": f"transformers=={release}\n"}
    out = check_files(files, *CONCISE).out
    assert ("ZP833" in out, message in out) == (bool(message), True)


@pytest.mark.parametrize(
    ("release", "field", "code", "warns"),
    [
        ("1.3.0", "fp8", "Accelerator()", True), ("1.3.0", "'no'", "Accelerator(mixed_precision='fp8')", True), ("1.10.0", "fp8", "Accelerator()", True),
        ("1.3.0", "'no'", "p.add_argument('--half', default='fp8')\nAccelerator(mixed_precision=args.half)", True),
        ("1.10.0", "fp8", "Accelerator(mixed_precision='fp8')", False), ("1.11.0", "fp8", "Accelerator()", False), ("1.3.0", "bf16", "Accelerator()", False),
        ("", "fp8", "Accelerator()", False),
    ],
)  # fmt: skip
def test_fp8_under_deepspeed(check_files, release, field, code, warns):
    """state.py:mixed_precision of the wheels never says fp8 under DeepSpeed before 1.11; accelerator.py looks at its own argument since
    1.4; run with 1.15, its backend stubbed: fp8_enabled.
    """
    files = {"run.sh": "accelerate launch --config_file a.yaml t.py\n", "t.py": f"from accelerate import Accelerator\n{code}\n"}
    files["a.yaml"] = f"distributed_type: DEEPSPEED\nmixed_precision: {field}\ndeepspeed_config:\n  zero_stage: 2\n"
    ran = check_files({**files, "requirements.txt": f"accelerate=={release}\n" if release else "numpy\n"}, *CONCISE)
    assert ("warning ZP857" in ran.out) == warns


def test_the_precision_of_a_script_beside_another(check_files):
    """Run with accelerate 1.15: ValueError, --mixed_precision arg cannot be set to bf16 when fp16 is set in the DeepSpeed config file."""
    files = {"run.sh": "accelerate launch --config_file a.yaml t.py\n", "t.py": "from accelerate import Accelerator\na = Accelerator(mixed_precision='bf16')\n"}
    files["a.yaml"] = "distributed_type: DEEPSPEED\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n"
    config = '{"train_micro_batch_size_per_gpu": "auto", "%s": {"enabled": true}, "zero_optimization": {"stage": 2}}'
    assert "error ZP803" in check_files({**files, "ds.json": config % "fp16"}, *CONCISE).out
    assert check_files({**files, "ds.json": config % "bf16"}, *CONCISE).code == 0


WARMS = ', "scheduler": {"type": "WarmupLR"}'


@pytest.mark.parametrize(
    ("transformers", "release", "more", "stops"),
    [
        ("4.29.2", "0.21.0", "", False), ("4.30.0", "0.23.0", "", True), ("4.31.0", "0.20.3", "", True), ("4.31.0", "0.21.0", WARMS, False),
        ("4.33.3", "0.22.0", "", True), ("4.34.0", "0.20.3", "", True), ("4.34.0", "0.21.0", WARMS, False), ("4.33.3", "0.23.0", "", False),
        ("4.35.2", "0.22.0", "", True), ("4.35.2", "0.23.0", "", False),
    ],
)  # fmt: skip
def test_an_optimizer_without_a_scheduler(check_files, transformers, release, more, stops):
    """Run: Trainer.train() of each at stage 2: 4.30 to 4.33.2 stop by themselves, later ones in an Accelerate before 0.23."""
    config = f'{GOOD[:-1]}, "optimizer": {{"type": "AdamW", "params": {{"lr": "auto"}}}}{more}}}'
    files = {"run.sh": "torchrun t.py --deepspeed ds.json --output_dir o --bf16\n", "ds.json": config}
    files["requirements.txt"] = f"accelerate=={release}\ntransformers=={transformers}\n"
    assert ("error ZP858" in check_files(files, *CONCISE).out) == stops


@pytest.mark.parametrize(("pins", "word"), [("llamafactory==0.8.1\n", "warning ZP833"), ("llamafactory==0.8.1\ntransformers==4.41.2\n", ""), ("llamafactory==0.9.5\n", "")])
def test_an_argument_that_llama_factory_and_transformers_have(check_files, pins, word):
    """overwrite_output_dir is transformers' own before 5.0, and LLaMA-Factory's since 0.9.4."""
    file = "model_name_or_path: x\nstage: sft\nfinetuning_type: full\ndataset: d\ntemplate: llama3\noutput_dir: o\nbf16: true\noverwrite_output_dir: true\ndeepspeed: ds.json\n"
    ran = check_files({"a.yaml": file, "ds.json": GOOD, "requirements.txt": pins}, *CONCISE)
    assert (ran.code, "ZP833" in ran.out, word in ran.out) == (0, bool(word), True)


def test_a_block_beside_keys_that_trainers_have_too(check_files):
    """Genie-Envisioner's runner hands its block to DeepSpeedPlugin(hf_ds_config=...), with a batch of its own."""
    usual = "output_dir: o\nreport_to: none\ngradient_checkpointing: true\nmax_grad_norm: 1.0\ngradient_accumulation_steps: 1\n"
    own = "lr: 3e-5\nbatch_size: 8\ntrain_steps: 10\nlr_warmup_steps: 1\nlr_power: 1.0\nmodel_name: x\nlogs: y\nflow: z\n"
    block = "deepspeed:\n  bf16: {enabled: true}\n  zero_optimization: {stage: 2}\n"
    ran = check_files({"a.yaml": usual + own + block})
    assert "a.yaml: a ds_config under deepspeed:" in ran.out
    assert " error " not in ran.out
    of_trainer = check_files({"a.yaml": usual + block}, *CONCISE)
    assert "error ZP620: true for enabled, bf16 says false" in of_trainer.out


@pytest.mark.parametrize("words", ["+model=x training.deepspeed=ds.json", "model=x train.ds_config=./ds.json", "++deepspeed=ds.json"])
def test_a_config_that_an_override_of_hydra_names(check_files, words):
    files = {"run.sh": f"deepspeed --num_gpus 4 --no_local_rank --module src.train {words}\n", "ds.json": '{"zero_optimization": {"stage": 5}}'}
    assert "error ZP401: 5 here" in check_files(files, *CONCISE).out


@pytest.mark.parametrize("value", ["'ds.json'", "'ds.json' if args.deepspeed else None"])
def test_a_config_that_an_argument_names(check_files, value):
    code = f"import deepspeed\ntrain(model, deepspeed_config={value})\n"
    assert "error ZP401: 5 here" in check_files({"t.py": code, "ds.json": '{"zero_optimization": {"stage": 5}}'}, *CONCISE).out


def test_a_program_that_is_not_there(check_files):
    files = {"run.sh": "torchrun train.py --deepspeed ds.json\n", "ds.json": GOOD}
    assert "run.sh:1: train.py, which it starts, is not there" in check_files(files).out
    assert "is not there" not in check_files({**files, "train.py": ""}).out


EVALUATES = "from transformers import Trainer, TrainingArguments\na = TrainingArguments('o', bf16=True, eval_strategy='{}', deepspeed='ds.json')\nTrainer(m, a{})\n"


@pytest.mark.parametrize(
    ("code", "stops"),
    [
        (EVALUATES.format("epoch", ""), True), (EVALUATES.format("steps", ", train_dataset=d"), True), (EVALUATES.format("epoch", ", eval_dataset=d"), False),
        (EVALUATES.format("epoch", ", c, d, e"), False), (EVALUATES.format("epoch", ", **more"), False), (EVALUATES.format("no", ""), False),
        (EVALUATES.format("epoch", "") + "Trainer(m, a)\n", False),
    ],
)  # fmt: skip
def test_an_evaluation_without_data(check_files, code, stops):
    """Run with transformers 5.24: ValueError, you have set `args.eval_strategy` to epoch but you didn't pass an `eval_dataset`."""
    ran = check_files({"t.py": code, "ds.json": GOOD}, *CONCISE)
    assert (ran.code, "error ZP859" in ran.out) == (int(stops), stops)


@pytest.mark.parametrize(
    ("code", "word"),
    [
        ("from transformers import TrainingArguments\nTrainingArguments('o', bf16=True, distributed_state=s, deepspeed='ds.json')\n", "error ZP833"),
        ("from own import TrainingArguments\nTrainingArguments('o', bf16=True, distributed_state=s, deepspeed='ds.json')\n", ""),
        ("from transformers import TrainingArguments\nTrainingArguments('o', bf16=True, learning_rat=1e-5, deepspeed='ds.json')\n", "write: learning_rate=..."),
        ("from accelerate import Accelerator, DeepSpeedPlugin\nAccelerator(fp16=True, deepspeed_plugin=DeepSpeedPlugin(hf_ds_config='ds.json'))\n", "warning ZP833: fp16 of Accelerator"),
        ("from accelerate import Accelerator, DeepSpeedPlugin\nAccelerator(even_batches=True, deepspeed_plugin=DeepSpeedPlugin(hf_ds_config='ds.json'))\n", "gone since accelerate 1.0"),
    ],
)  # fmt: skip
def test_arguments_of_calls_that_no_release_takes(check_files, code, word):
    """TypeError, unexpected keyword argument: run with transformers 5.24 and accelerate 1.15."""
    ran = check_files({"t.py": code, "ds.json": GOOD}, *CONCISE)
    assert word in ran.out, ran.out
    assert ("ZP833" in ran.out) == bool(word)


@pytest.mark.parametrize(
    ("code", "stops"),
    [
        ("from lightning.pytorch.strategies import DeepSpeedStrategy\ns = DeepSpeedStrategy(config='ds.json')\n", True),
        ("from lightning.fabric.strategies import DeepSpeedStrategy\ns = DeepSpeedStrategy(config='ds.json')\n", False),
        ("# s = DeepSpeedStrategy(config=ds_config)\nds_config = {'train_micro_batch_size_per_gpu': 1, 'gradient_accumulation_steps': 2}\n", False),
    ],
)  # fmt: skip
def test_whose_strategy_it_is(check_files, code, stops):
    """lightning 2.6.6: pytorch/strategies/deepspeed.py stops at gradient_accumulation_steps, fabric/strategies/deepspeed.py does not."""
    config = '{"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 2, "bf16": {"enabled": true}}'
    assert ("error ZP619" in check_files({"t.py": code, "ds.json": config}, *CONCISE).out) == stops


@pytest.mark.parametrize(("cell", "code"), [("!pip install deepspeed==0.17.5", 0), ("!pip install -q deepspeed", 1), ("# deepspeed==0.17.5", 1)])
def test_what_a_notebook_installs(check_files, cell, code):
    """mics_shard_size is refused since 0.19.7 (runtime/zero/config.py), with ZP504 before."""
    config = "ds_config = {'train_batch_size': 8, 'zero_optimization': {'stage': 3, 'mics_shard_size': 2}}\n"
    cells = [{"cell_type": "code", "source": [cell, "\n"]}, {"cell_type": "code", "source": [config]}]
    ran = check_files({"a.ipynb": json.dumps({"cells": cells}, indent=1)}, *CONCISE)
    assert ran.code == code, ran.out


def test_the_trainer_s_own_rules_beside_an_older_deepspeed(check_files):
    """transformers 4.30.2 compares lr with learning_rate whatever DeepSpeed is there: ValueError, run with 5.24."""
    code = "from transformers import TrainingArguments\nTrainingArguments('o', bf16=True, per_device_train_batch_size=1, deepspeed='ds.json')\n"
    config = GOOD[:-1] + ', "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}}'
    ran = check_files({"t.py": code, "ds.json": config, "requirements.txt": "deepspeed==0.9.3\n"}, *CONCISE)
    assert (ran.code, "error ZP620" in ran.out) == (1, True)


@pytest.mark.parametrize(
    ("more", "value", "stops"),
    [("type=str, ", "group_norm", True), ("", "group_norm", True), ("", "grpo", False), ("type=own, ", "group_norm", False), ("", "$X", False)],
)
def test_a_value_that_is_none_of_its_choices(check_files, more, value, stops):
    """Run with argparse: invalid choice: 'group_norm' (choose from gae, grpo)."""
    code = f"import argparse, deepspeed\nparser = argparse.ArgumentParser()\nparser.add_argument('--kind', {more}choices=['gae', 'grpo'])\n"
    code += "parser.add_argument('--ds_config')\nargs = parser.parse_args()\ndeepspeed.initialize(config=args.ds_config)\n"
    files = {"run.sh": f"torchrun t.py --kind {value} --ds_config ds.json\n", "t.py": code}
    files["ds.json"] = '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}'
    ran = check_files(files, *CONCISE)
    assert (ran.code, "error ZP847: --kind" in ran.out) == (int(stops), stops)


def test_a_path_that_begins_with_the_clone(zeroplan, tmp_path, monkeypatch):
    """`git clone .../clone` and then `deepspeed ... --deepspeed_config clone/src/ds.json` in a notebook of the clone itself."""
    for folder in (".git", "src", "examples"):
        (tmp_path / "clone" / folder).mkdir(parents=True)
    (tmp_path / "clone" / "src" / "ds.json").write_text('{"zero_optimization": {"stage": 5}}')
    (tmp_path / "clone" / "examples" / "run.sh").write_text("deepspeed t.py --deepspeed_config clone/src/ds.json\n")
    monkeypatch.chdir(tmp_path / "clone")
    assert "error ZP401: 5 here" in zeroplan("check", "examples/run.sh", *CONCISE).out


BESIDE_IT = "ds_config = {'train_batch_size': 8, 'bf16': {'enabled': True}}\n"
RUNS = {
    "a Trainer that is given a list": EVALUATES.format("epoch", ", *rest"), "an evaluation that is turned off": EVALUATES.format("epoch", "") + "a.eval_strategy = 'no'\n",
    "data behind the call": EVALUATES.format("epoch", "") + "t.eval_dataset = d\n", "another trainer": EVALUATES.format("epoch", "") + "SFTTrainer(m, eval_dataset=e)\n",
    "arguments of TensorFlow": "from transformers import TFTrainingArguments\nTFTrainingArguments('o', tpu_name='x', deepspeed='ds.json')\n",
    "either of two imports": "try:\n    from own import TrainingArguments\nexcept ImportError:\n    from transformers import TrainingArguments\na = TrainingArguments('o', own=1)\n" + BESIDE_IT,
    "a branch by release": "from transformers import Trainer\nif version >= '5':\n    Trainer(m, processing_class=t)\nelse:\n    Trainer(m, tokenizer=t)\n" + BESIDE_IT,
    "a call that is tried": "from transformers import Trainer\ntry:\n    Trainer(m, processing_class=t)\nexcept TypeError:\n    Trainer(m, tokenizer=t)\n" + BESIDE_IT,
    "parsers of two functions": "import deepspeed\ndef a():\n    p.add_argument('--deepspeed')\ndef b():\n    deepspeed.add_config_arguments(p)\n" + BESIDE_IT,
    "a function of that name": "def add_config_arguments(p):\n    pass\np.add_argument('--deepspeed')\nadd_config_arguments(p)\n" + BESIDE_IT,
    "a file that is written": "import deepspeed\nsave(deepspeed_config='bad.json')\ndeepspeed.initialize(args=args)\n" + BESIDE_IT,
    "a file that another call takes": "import deepspeed\np.add_argument('--config', default='ds.json')\nbuild(config='bad.json')\ndeepspeed.initialize(config=args.config)\n",
}  # fmt: skip


@pytest.mark.parametrize("name", RUNS)
def test_what_is_no_error(check_files, name):
    config = '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}}' if "args.config" in RUNS[name] else GOOD
    files = {"t.py": RUNS[name], "ds.json": config, "bad.json": '{"zero_optimization": {"stage": 5}}'}
    ran = check_files(files, *CONCISE)
    assert " error " not in ran.out, ran.out


@pytest.mark.parametrize(
    "runs",
    [
        "python - <<EOF\nds_config = {'train_batch_size': 8, 'zero_optimization': {'stage': 2, 'offload_optimizer': {'device': '$DEV'}}}\nEOF\n",
        "python - <<EOF\nds_config = {'train_batch_size': 1${A}2, 'zero_optimization': {'stage': '$S'}}\nEOF\n",
        "python conv.py <<EOF\nds_config = {'zero_optimization': {'stage': 5}}\nEOF\n",
        "cat > d.json <<EOF\n{\"zero_optimization\": {\"$K\": 3}}\nEOF\n",
    ],
)  # fmt: skip
def test_parts_of_a_script_that_are_not_known(check_files, runs):
    ran = check_files({"run.sh": f"{runs}deepspeed t.py --deepspeed_config d.json\n"}, *CONCISE)
    assert " error " not in ran.out, ran.out


@pytest.mark.parametrize(
    "cell",
    [
        "p = argparse.ArgumentParser()\np.add_argument('-f')\nargs = p.parse_args()\n", "from sys import argv\nargv[1:] = []\np = argparse.ArgumentParser()\np.parse_args()\n",
        "p = argparse.ArgumentParser()\np = Own()\np.parse_args()\n", "def main():\n    p = argparse.ArgumentParser()\n    p.parse_args()\nx.main()\n",
    ],
)  # fmt: skip
def test_parsers_that_take_a_kernel_s_arguments(check_files, cell):
    text = "import argparse\n" + BESIDE_IT + cell
    cells = [{"cell_type": "code", "source": text.splitlines(keepends=True)}]
    assert check_files({"a.ipynb": json.dumps({"cells": cells}, indent=1)}, *CONCISE).code == 0


@pytest.mark.parametrize(
    "code",
    ["Accelerator(mixed_precision='fp16' if args.fp16 else 'bf16')\n", "if args.b:\n    Accelerator(mixed_precision='bf16')\nelse:\n    Accelerator(mixed_precision='fp16')\n",
     "text = '''Accelerator(mixed_precision='fp16')'''\n"],
)  # fmt: skip
def test_a_precision_that_code_decides(check_files, code):
    files = {"run.sh": "accelerate launch --config_file a.yaml t.py\n", "t.py": f"from accelerate import Accelerator\n{code}"}
    files["a.yaml"] = "distributed_type: DEEPSPEED\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n"
    files["ds.json"] = '{"train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}'
    assert check_files(files, *CONCISE).code == 0


def test_a_chain_of_calls_that_is_too_deep(check_files):
    ran = check_files({"t.py": f"{BESIDE_IT}p{'.add_argument(1)' * 900}\n"}, *CONCISE)
    assert ran.code in (0, 2)
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(("more", "code"), [(" --use_habana --gaudi_config_name x --overwrite_output_dir", 0), ("", 1)])
def test_arguments_of_gaudis_trainer(check_files, more, code):
    """optimum-habana 1.16 and 1.20, read: GaudiTrainerDeepSpeedConfig compares no bf16, and transformers before 5 is required."""
    script = f"deepspeed t.py --deepspeed ds.json --output_dir o --per_device_train_batch_size 1{more}\n"
    ran = check_files({"run.sh": script, "ds.json": GOOD.replace('{"enabled": "auto"}', '{"enabled": true}')}, "run.sh", *CONCISE)
    assert (ran.code, "ZP620" in ran.out, "ZP833" in ran.out) == (code, bool(code), False)


def test_a_key_twice_in_yaml(check_files):
    """PyYAML takes the last (run); a program has to read such a file, which DeepSpeed does not."""
    ran = check_files({"ds.yaml": '{"train_batch_size": 8, "bf16": {"enabled": true},\n "bf16": {"enabled": true}}\n'}, *CONCISE)
    assert (ran.code, "warning ZP103: bf16 is there twice: yaml.safe_load keeps the last one" in ran.out) == (0, True)


@pytest.mark.parametrize(("release", "stops"), [("4.28.1", False), ("4.29.2", True)])
def test_a_trainer_without_accelerates_plugin(check_files, release, stops):
    """transformers 4.28.1 and 4.29.2, read: training_args.py makes a DeepSpeedPlugin since."""
    files = {"ds.json": '{"train_micro_batch_size_per_gpu": "auto", "fp16": {"enabled": true}}', "requirements.txt": f"transformers=={release}\n"}
    ran = check_files(files, *CONCISE, "--for", "hf")
    assert (ran.code, "ZP801" in ran.out) == (int(stops), stops)


@pytest.mark.parametrize(
    ("code", "stops"),
    [
        ("args.deepspeed = args.deepspeed_config\nTrainer(args=args)\n", False),
        ("TrainingArguments('o', deepspeed=args.deepspeed_config)\n", False),
        ("deepspeed.initialize(args=args)\n", True),
    ],
)
def test_deepspeeds_option_handed_to_the_trainer(check_files, code, stops):
    """Who fills "auto" is decided by the argument that the value goes to."""
    ran = check_files({"run.sh": "deepspeed t.py --deepspeed_config ds.json\n", "t.py": code, "ds.json": GOOD}, *CONCISE)
    assert (ran.code, "ZP207" in ran.out) == (int(stops), stops)


PARSER = "import argparse, deepspeed\np = argparse.ArgumentParser()\np.add_argument('--local_rank')\n"
OWN = '{"train_batch_size": 8, "bf16": {"enabled": true}}'


@pytest.mark.parametrize(
    ("added", "line", "said"),
    [
        ("p.add_argument('--bnb', required=True)\n", "", "no --bnb, which the parser of t.py requires"),
        ("p.add_argument('--bnb', required=True)\n", " --bnb 1", ""),
        ("p.add_argument('--bnb', required=True)\n", " --bn=1", ""),
        ("p.add_argument('--bnb', required=True)\n", " $ARGS", ""),
        ("p.add_argument('--bnb', '-b', required=True)\n", " -b 1", ""),
    ],
)
def test_an_option_that_a_parser_requires(check_files, added, line, said):
    """Run: argparse, the following arguments are required; the beginning of a name will do."""
    code = f"{PARSER}p = deepspeed.add_config_arguments(p)\n{added}args = p.parse_args()\ndeepspeed.initialize(args=args)\n"
    ran = check_files({"run.sh": f"deepspeed t.py --deepspeed_config ds.json{line}\n", "t.py": code, "ds.json": OWN}, *CONCISE)
    assert (ran.code, "ZP847" in ran.out, said in ran.out) == (int(bool(said)), bool(said), True)


TWO_PARSERS = (
    "import argparse, deepspeed\ndef add_argument():\n    p = argparse.ArgumentParser()\n    p.add_argument('--local_rank')\n"
    "    return deepspeed.add_config_arguments(p).parse_args()\ndef main():\n    q = argparse.ArgumentParser()\n"
    "    q.add_argument('--data')\n    args = q.%s()\n    deepspeed.initialize(args=add_argument())\n%s\n"
)


@pytest.mark.parametrize(
    ("parses", "calls", "stops"),
    [
        ("parse_args", "main()", True), ("parse_args", "if __name__ == '__main__':\n    main()", True), ("parse_args", "", False),
        ("parse_args", "if x:\n    main()", False), ("parse_args", "main() if x else None", False), ("parse_known_args", "main()", False),
    ],
)  # fmt: skip
def test_the_second_parser_of_a_script(check_files, parses, calls, stops):
    """Each parser of a run reads the whole line (run: argparse)."""
    files = {"run.sh": "deepspeed t.py --deepspeed_config ds.json\n", "t.py": TWO_PARSERS % (parses, calls), "ds.json": OWN}
    ran = check_files(files, *CONCISE)
    assert (ran.code, "ZP847" in ran.out) == (int(stops), stops)


@pytest.mark.parametrize(("release", "severity"), [("0.12.2", "error"), ("0.13.0", "warning"), ("0.18.0", "warning"), ("0.19.0", "error")])
def test_arguments_that_trls_parser_leaves_out(check_files, release, severity):
    """Run with trl 0.18.0: TrlParser leaves out what it does not know of a file; 0.12.2 and from 0.19.0 on, read: ValueError."""
    recipe = "model_name_or_path: x\ndataset_name: d\noutput_dir: o\nbf16: true\nper_device_train_batch_size: 1\ndtype: float32\ndeepspeed: ds.json\n"
    ran = check_files({"sft.yaml": recipe, "ds.json": GOOD, "requirements.txt": f"trl=={release}\ntransformers==4.52.3\n"}, *CONCISE)
    assert f"{severity} ZP833: dtype came with trl 0.23" in ran.out


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("_target_: pytorch_lightning.plugins.DeepSpeedPlugin\nstage: 3\ncpu_offload: true\n", "ZP843"),
        ("_target_: pytorch_lightning.plugins.DeepSpeedPlugin\nstage: 3\n", ""),
        ("strategy:\n  target: pytorch_lightning.strategies.DeepSpeedStrategy\n  params: {stage: 3, cpu_offload: true}\n", "ZP843"),
        ("strategy:\n  target: pytorch_lightning.strategies.DeepSpeedStrategy\n  params: {stage: 3}\n", ""),
    ],
)
def test_lightnings_class_by_other_keys(check_files, text, rule):
    """lightning 1.6 to 2.6: strategies/deepspeed.py has no cpu_offload (read: TypeError)."""
    ran = check_files({"conf.yaml": text}, *CONCISE)
    assert (ran.code, rule in ran.out) == (int(bool(rule)), True)


def test_arguments_of_a_trainer_in_a_group_of_its_own(zeroplan, tmp_path, monkeypatch):
    """Hydra merges configs/trainer/default.yaml, whose _target_ is the Trainer, under it."""
    monkeypatch.chdir(tmp_path)
    for folder in ("trainer", "other"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "ds.yaml").write_text("defaults: [default.yaml]\ngpus: 2\nstrategy: deepspeed_stage_1\n", encoding="utf-8")
    assert "ZP843" in zeroplan("check", "trainer/ds.yaml").out
    assert "ZP843" not in zeroplan("check", "other/ds.yaml").out


ELSEWHERE = "distributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config: {deepspeed_config_file: /home/me/clone/ds_a.json}\n"


@pytest.mark.parametrize(("folder", "known"), [("clone", True), ("other", False)])
def test_a_clone_on_another_machine(zeroplan, tmp_path, monkeypatch, folder, known):
    """What is no error here may be there on the machine that trains."""
    (tmp_path / folder / "conf" / ".git").mkdir(parents=True)
    (tmp_path / folder / "conf" / ".git").rename(tmp_path / folder / ".git")
    (tmp_path / folder / "conf" / "acc.yaml").write_text(ELSEWHERE, encoding="utf-8")
    (tmp_path / folder / "ds_a.json").write_text(GOOD, encoding="utf-8")
    monkeypatch.chdir(tmp_path / folder)
    ran = zeroplan("check", "conf/acc.yaml", *CONCISE)
    assert ran.code == 0
    assert ("warning ZP811" in ran.out) == (not known)


@pytest.mark.parametrize("code", ["import deepspeed\np = deepspeed.add_config_arguments(p)\n", "TrainingArguments('o', deepspeed=args.deepspeed)\n"])
def test_a_script_that_is_given_its_config(check_files, code):
    ran = check_files({"t.py": code})
    assert (ran.code, "is given its DeepSpeed config by what starts it" in ran.err) == (2, True)


@pytest.mark.parametrize(
    ("release", "option", "severity"),
    [("", "--zero_stage", "warning"), ("", "--ds.zero_stage", ""), ("0.11.0", "--zero_stage", "error"), ("0.10.2", "--zero_stage", "error"),
     ("0.9.1", "--zero_stage", ""), ("0.9.1", "--ds.zero_stage", "error")],
)  # fmt: skip
def test_options_of_openrlhf_by_another_releases_names(check_files, release, option, severity):
    """Run: the parsers of 0.10.2, 0.10.4 and 0.11.0 exit with unrecognized arguments at names without a section; 0.10.1 has no others."""
    line = f"deepspeed --module openrlhf.cli.train_sft {option} 3\n"
    out = check_files({"run.sh": line, "requirements.txt": f"openrlhf=={release}\n" if release else "numpy\n"}, *CONCISE).out
    assert (f"{severity} ZP861" in out) if severity else ("ZP861" not in out)


@pytest.mark.parametrize(("half", "warns"), [("--bf16", True), ("", False)])
def test_fp8_of_the_launcher_beside_the_trainers_own_half(check_files, half, warns):
    """Run with transformers 5.24 and accelerate 1.15, TransformerEngine stubbed: with bf16 fp8_enabled is False."""
    files = {"run.sh": f"accelerate launch --config_file a.yaml t.py --output_dir o --per_device_train_batch_size 1 {half}\n"}
    files["a.yaml"] = "distributed_type: DEEPSPEED\nnum_processes: 8\nmixed_precision: fp8\ndeepspeed_config: {zero_stage: 2}\n"
    assert ("warning ZP857" in check_files(files, *CONCISE).out) == warns


@pytest.mark.parametrize(
    ("code", "stops"),
    [
        ("from dataclasses import dataclass\n@dataclass\nclass A:\n    torch_dtype: str = 'auto'\n", False),
        ("from dataclasses import dataclass\n# torch_dtype: gone\n", True), ("class A:\n    def f(self):\n        return self.torch_dtype\n", True),
    ],
)  # fmt: skip
def test_arguments_of_the_projects_own(check_files, code, stops):
    """trl 0.27 lost torch_dtype; alignment-handbook has one in a class of its own."""
    recipe = "model_name_or_path: x\ndataset_name: d\noutput_dir: o\nbf16: true\nper_device_train_batch_size: 1\ntorch_dtype: bfloat16\ndeepspeed: ds.json\n"
    ran = check_files({"sft.yaml": recipe, "ds.json": GOOD, "requirements.txt": "trl==0.28.0\ntransformers==4.57.0\n", "configs.py": code}, *CONCISE)
    assert ("ZP833: torch_dtype is gone" in ran.out) == stops


@pytest.mark.parametrize(
    ("code", "line", "release", "severity"),
    [
        ("TrlParser((SFTConfig,))\n", "--bf16", "1.16.0", "error"), ("TrlParser((SFTConfig,))\n", "--bf16", "0.24.0", "error"),
        ("TrlParser((SFTConfig,))\n", "--bf16", "", "warning"), ("TrlParser((SFTConfig,))\n", "--bf16 true", "1.16.0", ""),
        ("TrlParser((SFTConfig,))\n", "--bf16", "0.18.0", ""), ("TrlParser((PPOConfig,))\n", "--bf16", "0.24.0", ""),
        ("HfArgumentParser(TrainingArguments)\n", "--bf16", "1.16.0", ""),
    ],
)  # fmt: skip
def test_trls_bf16_is_no_switch(check_files, code, line, release, severity):
    """Run: SFTConfig of trl 0.24 and 1.16, argument --bf16: expected one argument; 0.18.0 takes it alone."""
    files = {"run.sh": f"torchrun t.py --output_dir o {line} --deepspeed ds.json\n", "t.py": code, "ds.json": GOOD}
    out = check_files({**files, "requirements.txt": f"trl=={release}\n" if release else "numpy\n"}, *CONCISE).out
    assert (f"{severity} ZP822: --bf16 has no value" in out) if severity else ("--bf16 has no value" not in out)


@pytest.mark.parametrize(
    ("name", "line"),
    [("requirement.txt", "deepspeed==0.16.4"), ("requirement.txt", "deepspeed=0.16.4"), ("requirements.txt", "deepspeed=0.16.4=py_0"), ("env.txt", "")],
)
def test_a_release_in_a_list_of_condas(check_files, name, line):
    ran = check_files({"ds.json": OWN, name: line})
    assert ("checked as DeepSpeed 0.16.4" in ran.out + ran.err) == bool(line)


def test_warnings_of_a_file_beside_accelerate(check_files):
    """A recipe that names no config is started by accelerate launch; what its trainer's newest release lost is said all the same."""
    recipe = "model_name_or_path: x\ndataset_name: d\noutput_dir: o\nbf16: true\nper_device_train_batch_size: 1\nmax_seq_length: 512\n"
    ran = check_files({"sft.yaml": recipe}, *CONCISE)
    assert (ran.code, "warning ZP833: max_seq_length" in ran.out) == (0, True)
    assert check_files({"sft.yaml": recipe.replace("max_seq_length", "max_length")}, *CONCISE).code == 2


NO_STEPS = f'{OWN[:-1]}, "optimizer": {{"type": "Adam"}}, "scheduler": {{"type": "WarmupLR", "params": {{"warmup_num_steps": 0}}}}}}'


@pytest.mark.parametrize("name", ["Dockerfile", "dockerfile", "requirements.txt"])
def test_a_commit_of_deepspeed(check_files, name):
    """What a commit of an unknown time refuses is not known: 0 steps of warm-up are 2 in 0.4 (read)."""
    line = "git+https://github.com/microsoft/DeepSpeed.git@6ba96289702afc56948aa9f6cff55d7df678ccc0"
    files = {"ds.json": NO_STEPS, name: line if name.endswith("txt") else f"RUN pip install {line}\n"}
    ran = check_files(files, "--fail-on", "error")
    assert (ran.code, "warning ZP612" in ran.out, "deepspeed@6ba9628970, of which nothing is known" in ran.out + ran.err) == (0, True, True)


def test_no_commit_of_deepspeed(check_files):
    assert "error ZP612" in check_files({"ds.json": NO_STEPS, "requirements.txt": "numpy\n"}).out


@pytest.mark.parametrize(("code", "stops"), [("config['train_batch_size'] = 8\n", False), ("if c['train_batch_size'] == 8: pass\n", True)])
def test_a_batch_that_a_program_puts_in(check_files, code, stops):
    files = {"ds.json": '{"bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}', "train.py": code}
    ran = check_files(files, *CONCISE)
    assert (ran.code, "unless train.py puts it in" in ran.out) == (int(stops), not stops)


@pytest.mark.parametrize(
    ("line", "stops"),
    [
        ("NPROC_PER_NODE=8 swift sft --model m --dataset a b --system You are helpful --deepspeed ds.json", True),
        ("NPROC_PER_NODE=8 swift sft --model m --dataset a b --system 'You are helpful' --deepspeed ds.json", False),
        ("torchrun t.py --output_dir o --bf16 true --run_name a b --deepspeed ds.json", True),
        ("torchrun t.py --output_dir o --bf16 true --run_name $NAME b --deepspeed ds.json", False),
        ("torchrun own.py --output_dir o --bf16 true --run_name a b --deepspeed ds.json", False),
    ],
)
def test_a_value_without_quotes(check_files, line, stops):
    """Run: HfArgumentParser of transformers 5.24, unrecognized; ms-swift 4.6 pipelines/base.py, read: remaining_argv."""
    files = {"run.sh": f"{line}\n", "t.py": "HfArgumentParser((TrainingArguments,))\n", "own.py": "TrainingArguments()\n", "ds.json": GOOD}
    ran = check_files(files, *CONCISE)
    assert (ran.code, "stands behind the one value of" in ran.out) == (int(stops), stops)


@pytest.mark.parametrize(
    ("name", "text", "severity"),
    [
        ("src/llmtuner/__init__.py", '__version__ = "0.7.1.dev0"\n', "warning"),
        ("src/llamafactory/extras/env.py", 'VERSION = "0.9.2.dev0"\n', "error"), ("src/other/__init__.py", '__version__ = "0.7.1"\n', "error"),
    ],
)
def test_the_release_of_a_tools_own_source(zeroplan, tmp_path, monkeypatch, name, text, severity):
    """A fork of LLaMA-Factory has the release of its source; releases before 0.9 refuse less (read: 11 of 21 messages in 0.8.0)."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / "predict.yaml").write_text(
        "model_name_or_path: x\nstage: sft\ndo_predict: true\nfinetuning_type: full\ndataset: d\npredict_with_generate: true\noutput_dir: o\n",
        encoding="utf-8",
    )
    assert f"{severity} ZP860" in zeroplan("check", "examples/predict.yaml", "--format", "concise").out
