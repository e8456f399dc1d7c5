"""What 119 further public files had, each as small as it fails, beside what their own readers do with it."""

from __future__ import annotations

import json

import pytest

BATCH = '"train_batch_size": 8, "train_micro_batch_size_per_gpu": 8'
LAUNCH = "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 2}\nnum_processes: 2\n"


@pytest.fixture
def check(check_files):
    def run(name, text, *options):
        return check_files({name: text}, *options)

    return run


def test_no_zero_optimization_where_only_the_trainer_can_fill_the_batch(check):
    """Run: TrainingArguments is a ValueError, DeepSpeedConfig an error for "auto"."""
    ran = check("ds.json", '{"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": "auto"}}')
    assert "error ZP801" in ran.out


def test_accelerate_without_a_kind_starts_one_process(check):
    """Run with accelerate 1.15: python t.py, no DeepSpeed."""
    ran = check("a.yaml", "compute_environment: LOCAL_MACHINE\ndistributed_type:\nnum_processes: 1\n")
    assert (ran.code, ran.out) == (2, "")
    assert "found distributed_type: null, an Accelerate config that starts no DeepSpeed" in ran.err


def test_a_block_beside_sections_of_the_program(check):
    """Its own optimizer and wandb are none of DeepSpeed's."""
    text = "deepspeed:\n  zero_optimization: {stage: 3}\n  train_batch_size: 8\noptimizer:\n  type: cpu_adam\nwandb:\n  enable: false\n"
    ran = check("run.yml", text)
    assert "ZP602" not in ran.out
    assert "error" not in ran.out.partition(" in 1 file")[0]
    assert "run.yml: a ds_config under deepspeed:" in ran.out


def test_a_block_whose_batch_the_program_puts_in(check):
    ran = check("run.yml", "micro_batch_size: 1\ndeepspeed:\n  zero_optimization: {stage: 3}\n")
    assert "warning ZP203" in ran.out
    assert "DeepSpeed refuses that, if the program puts nothing in" in ran.out


@pytest.mark.parametrize(
    "content",
    [
        {"gradient_accumulation_steps": 1, "vocab": 1, "layers": 2, "heads": 3},
        {"method": "x", "elapsed_seconds": 694.9, "gradient_clipping": 1.0, "samples_per_second": 11.5},
        {"method": "x", "elapsed_seconds": 694.9, "optimizer": "AdamW", "last_loss": 5.1},
    ],
)
def test_a_key_that_every_trainer_has(check, content):
    ran = check("x.json", json.dumps(content))
    assert (ran.code, ran.out) == (2, "")
    assert "keys of something else" in ran.err


def test_an_output_dir_alone_is_no_training_file(check):
    assert "found keys of something else" in check("x.yaml", "output_dir: o\nfoo: 1\n").err


@pytest.mark.parametrize(
    ("text", "severity"),
    [
        (f'{{\n{BATCH},\n"fp16": {{\n"enabled": True,\n"loss_scale": 0\n}}\n}}\n', "error"),
        (f'{{{BATCH}, "bf16": {{"enabled": True}}}}\n', "error"),
        (f"{{{BATCH}, 'bf16': {{'enabled': True}}, 'optimizer': None}}\n".replace('"', "'"), "error"),
        (f'{{\n{BATCH},\n"bf16": {{\n"enabled": True\n}}\n}}\n', "warning"),
    ],
)
def test_words_of_python(check, tmp_path, text, severity):
    """DeepSpeed's reader (hjson): the first three are errors, the last is a text that pydantic takes for true."""
    ran = check("ds.json", text)
    assert f"{severity} ZP102: True is Python's" in ran.out
    assert "write: true" in ran.out
    assert "write: \"enabled\": false" not in ran.out
    check("ds.json", text, "--fix")
    assert '"enabled": true' in (tmp_path / "ds.json").read_text().replace("'", '"')


def test_a_word_of_python_in_a_text_or_comment_is_none(check):
    ran = check("ds.json", f'{{{BATCH}, "bf16": {{"enabled": true}}, "wandb": {{"group": "a: True,"}} /* b: None, */}}')
    assert "Python's" not in ran.out


def test_a_name_that_is_there_already_is_not_proposed(check):
    ran = check("ds.json", f'{{{BATCH}, "train_micro_batch_size_per_cpu": 1, "bf16": {{"enabled": true}}}}')
    (line,) = [one for one in ran.out.splitlines() if "write:" in one]
    assert line.strip() == "write: delete it"


@pytest.mark.parametrize("name", ["ipex_config: {ipex: false}", "use_deepspeed: false"])
def test_a_key_that_accelerate_does_not_know(check, name):
    ran = check("a.yaml", LAUNCH + name + "\n")
    assert "error ZP811" in ran.out
    assert "write: delete it" in ran.out


def test_what_is_there_is_not_called_missing(check):
    text = '{"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}, "fp16": {"enabled": "auto"}}'
    assert "advice ZP309: no bf16: the Trainer adds it where TrainingArguments do" in check("ds.json", text).out


def test_messages_name_the_fields_of_the_file(check):
    text = LAUNCH.replace("zero_stage: 2", "zero_stage: 1, zero3_save_16bit_model: true")
    ran = check("a.yaml", text)
    assert "zero3_save_16bit_model does nothing at stage 1" in ran.out
    assert "stage3_gather" not in ran.out


def test_a_section_that_accelerate_drops(check):
    ran = check("a.yaml", LAUNCH + "fp16: {initial_scale_power: 32}\n")
    assert "warning ZP812: fp16 here is no section of a ds_config: accelerate launch drops it" in ran.out


def test_a_long_path_keeps_its_end(check):
    path = f"/home/{'a' * 60}/configs/ds_config.json"
    ran = check("a.yaml", LAUNCH.replace("zero_stage: 2", f"deepspeed_config_file: {path}"))
    assert '/configs/ds_config.json" is not there: Accelerate stops' in ran.out


@pytest.mark.parametrize("line", ["h1 slots=1,12 # NVIDIA", "  h1 slots=8", "h1:22 slots=8", "h1 slots=8,"])
def test_a_hostfile_as_deepspeed_reads_it(check, tmp_path, line):
    """launcher/runner.py:_parse_hostfile takes the digits and passes over the rest."""
    (tmp_path / "hosts").write_text(line + "\n")
    (tmp_path / "run.sh").write_text("deepspeed --hostfile hosts t.py --deepspeed ds.json\n")
    ran = check("ds.json", f'{{{BATCH}, "bf16": {{"enabled": true}}, "zero_optimization": {{"stage": 1}}}}', "run.sh")
    assert "ZP827" not in ran.out


NESTED = "trainer:\n  name: x\n  strategy:\n    %s\n"
BLOCK = "config: {zero_optimization: {stage: 5}, train_micro_batch_size_per_gpu: 1, bf16: {enabled: true}}"


def test_a_config_in_a_section_of_another_program(check):
    ran = check("run.yaml", NESTED % BLOCK)
    assert "run.yaml:4:34: error ZP401" in ran.out
    assert "run.yaml: a ds_config under trainer.strategy.config:" in ran.out


def test_training_arguments_in_a_section(check, tmp_path):
    """HfArgumentParser.parse_dict of that section: the batch differs, and the Trainer stops."""
    (tmp_path / "ds.json").write_text('{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 2}}')
    ran = check("run.yaml", "data: {path: x}\ntraining_args:\n  output_dir: o\n  bf16: true\n  per_device_train_batch_size: 8\n  deepspeed: ds.json\n")
    assert "error ZP205" in ran.out
    assert "run.yaml: TrainingArguments under training_args:" in ran.out


@pytest.mark.parametrize("block", ["config: {zero_optimization: true, stage: 2}", "config: {type: deepspeed, zero_optimization: {stage: 3}}"])
def test_options_of_a_strategy_are_no_config(check, block):
    """Lightning's DeepSpeedStrategy and Ludwig's have them."""
    ran = check("run.yaml", NESTED % block)
    assert (ran.code, ran.out) == (2, "")


@pytest.mark.parametrize(
    ("evaluates", "saves", "stops"),
    [("no", "steps", True), ("epoch", "steps", True), ("steps", "steps", False), ("epoch", "epoch", False), ("no", "best", False)],
)
def test_the_best_model_is_looked_for_where_both_are(check, tmp_path, evaluates, saves, stops):
    """Run with transformers 5.24: --load_best_model_at_end requires the save and eval strategy to match."""
    (tmp_path / "ds.json").write_text('{"train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 1}}')
    ran = check("a.yaml", f"output_dir: o\nbf16: true\neval_strategy: '{evaluates}'\nsave_strategy: {saves}\n"
                          "load_best_model_at_end: true\ndeepspeed: ds.json\n")  # fmt: skip
    assert ("error ZP822" in ran.out) == stops
