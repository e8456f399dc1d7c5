"""Drawn inputs, and the smallest of those that once broke what must hold of any: `benchmarks/fuzz_check.py` found them."""

from __future__ import annotations

import json

import pytest

from tests.check.fuzzing.cases import CONFIG, Case, draw
from tests.check.fuzzing.properties import FORMS, examine
from zeroplan.check.check import MOST, check_text
from zeroplan.check.setting import Setting

FIRST, COUNT = 7_000_000, 500
LONG, NINES = "a" * 5000, "9" * 400
BESIDE = b'{"train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}'
LEDGER = {"model": "gpt2", "gpus": "2", "gpu_mem": "24"}


def config(text, **options):
    return Case(CONFIG, text.encode(), options)


def compared(text):
    """Of a length that has its keys compared with those of the mended text."""
    return config(text + " " * (-len(text) % 4))


def launch(text):
    return Case("accelerate.yaml", text.encode(), {}, beside=BESIDE)


def training(text, **options):
    return Case("train.yml", text.encode(), options, beside=BESIDE)


FOUND = {
    "a key of several lines": config('{"zero\\n_optimization": {"a\\u2028b": 1}}'),
    "a key that a terminal obeys": config('{"zero_optimization": {"\\u001b[31m": 1}, "\\u0085": 1}'),
    "a key of thousands of letters": config(f'{{"{LONG}": 1, "bf16": {{"{LONG}": 1}}}}'),
    "a parameter of thousands of letters": config(f'{{"optimizer": {{"type": "Adam", "params": {{"{LONG}": 1}}}}}}'),
    "a schedule's parameter of thousands of letters":
        config(f'{{"scheduler": {{"type": "WarmupLR", "params": {{"{LONG}": 1}}}}}}'),
    "a key of thousands of letters twice": config(f'{{"{LONG}": "${{X}}", "{LONG}": 1}}'),
    "a deprecated key with a value of thousands of letters":
        config(f'{{"zero_optimization": {{"stage3_gather_fp16_weights_on_model_save": "{LONG}"}}}}'),
    "a key of several lines in YAML": launch("distributed_type: DEEPSPEED\n? |\n  two\n  lines\n: 1\n"),
    "a key of thousands of letters in YAML": launch(f"distributed_type: DEEPSPEED\n? {LONG}\n: 1\n"),
    "a path with another line end": training('deepspeed: "t\\Lr\\eq"'),
    "a path of thousands of letters": training(f"deepspeed: {LONG}"),
    "a word under the tag of a switch": training("!!bool"),
    "nothing under the tag of a number": launch("distributed_type: !!int ''"),
    "sizes beyond all floats": config(f'{{"train_batch_size": 8, "gradient_accumulation_steps": {NINES}}}'),
    "more digits than Python reads": launch(f"deepspeed_config: {{gradient_accumulation_steps: '{'1' * 5000}'}}"),
    "a digit that is no number": launch("deepspeed_config: {gradient_accumulation_steps: ²}"),
    "an argument beyond all floats": training(f"deepspeed: ds_config.json\nper_device_train_batch_size: {NINES}", gpus="3"),
    "groups of more ranks than anyone has": config('{"sequence_parallel_size": 9223372036854775808}', **LEDGER),
    "a group of less than no ranks": config('{"train_micro_batch_size_per_gpu": 4, "sequence_parallel_size": -1}'),
    "an optimizer of thousands of letters":
        training(f"deepspeed: {{zero_optimization: {{stage: 2, offload_optimizer: {{device: cpu}}}}}}\noptim: {LONG}"),
    "a text of thousands of digits": training(f"deepspeed: ds_config.json\n{LONG}: {NINES * 9}e1"),
    "edits of JSON in YAML": launch("deepspeed_config: {zero_stage: 2, offload_optimizer_device: CPU}"),
    "a config inside YAML, with edits": training("deepspeed: {zero_optimization: {stage: 2, overlap_com: true}}"),
    "edits of JSON in YAML that names itself":
        launch("deepspeed_config:\n  s: \n  gradient_clipping: 0'\n  deepspeed_config_file: accelerate.yaml\ne: o"),
    "edits of JSON in YAML that arguments name": training("deepspeed: train.yml\ngradient_clipping: 0'\n"),
    "a comma that a text without quotes takes in":
        compared('{"zero_optimization": {"stage": 2, "gradient_clipping": 0.5},\n "steps_per_print": nu#ll\n}'),
    "a comma that a placeholder takes in":
        compared('{"fp16": {"enabled": true, "log_trace_cache_warnings": 0},\n "zero_optimization": {"stage": ZERO_STAGE\n}}'),
    "a text without quotes that begins like a key": compared('{"_note":\n aio: {\n"bf16": {"enabled": true,},\n}'),
    "the only key of a config, which is removed": compared('{ "nebula": {}\n}'),
    "infinitely many steps": training("deepspeed: ds_config.json\nwarmup_steps: 1e999\nmax_steps: .inf"),
}  # fmt: skip


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("part", range(4))
def test_drawn(part):
    outcomes = [examine(draw(seed), FORMS[seed % len(FORMS)] if seed % 4 == 0 else "")
                for seed in range(FIRST + part * COUNT, FIRST + (part + 1) * COUNT)]  # fmt: skip
    assert {*outcomes} == {"clean", "found", "mended", "refused"}


@pytest.mark.parametrize("case", FOUND.values(), ids=FOUND)
@pytest.mark.parametrize("form", dict.fromkeys(FORMS))
def test_what_was_found(case, form):
    examine(case, form)


def test_what_is_left_is_judged_by_the_mended_text():
    """A ledger that could not be made of a misspelt key can be made then."""
    text = '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2, "overlap_com": true}}'
    assert examine(config(text, **LEDGER)) == "mended"


def test_who_reads_it_is_guessed_of_the_mended_text():
    """An "auto" that the Trainer fills comes to light with the key: DeepSpeed itself would refuse it."""
    assert examine(config('{"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gp": "auto"}')) == "mended"


def test_what_is_too_long_to_mend_at_once_stays_whole():
    """Of each pair one can be mended, and both together cannot: a second run would go on where the first one stopped."""
    pairs = '"gradient_cliping": 1, "gradient_clippin": 1, "zero_optimization": {"overlap_com": true, "overlap_coms": true}'
    text = '{"train_batch_size": 8, "bf16": {"enabled": true}, %s, "_note": "%s"}'
    assert examine(config(text % (pairs, ""))) == "mended"
    assert examine(config(text % (pairs, "x" * 300_000))) == "found"


def test_sizes_are_said_in_full():
    """1,234,567 · 1: six digits of it would be another size."""
    text = '{"train_batch_size": 8, "train_micro_batch_size_per_gpu": 1234567, "gradient_accumulation_steps": 1}'
    one = next(one for one in check_text("x", text, Setting(gpus=1)) if one.rule == "ZP201")
    assert "train_batch_size 8 is not 1234567 · 1 · 1 GPUs = 1234567: " in one.message
    assert one.write == '"train_batch_size": 1234567'


def test_no_check_finds_more_than_anyone_reads():
    names = {f"k{at}": "auto" for at in range(5000)}
    found = check_text("x", json.dumps({"zero_optimization": names, **names}), Setting())
    assert {sum(one.rule == rule for one in found) for rule in ("ZP804", "ZP105")} == {MOST}
