"""What findings propose is tried: no edit and no line is shown after which the config would be refused there."""

from __future__ import annotations

import json

import pytest

from tests.check.deepspeed_draws import draw
from tests.corpus import each_file, needs_corpus
from zeroplan.check.check import check_text
from zeroplan.check.edit import applied, valued
from zeroplan.check.finding import ERROR
from zeroplan.check.json_reader import NotReadableError, read_json
from zeroplan.check.named_config import check_json
from zeroplan.check.proposed import LINE
from zeroplan.check.setting import Setting
from zeroplan.deepspeed.keys import KEYS
from zeroplan.deepspeed.values import checked, example
from zeroplan.errors import SpecError

DRAWS = 150
ODD = (0.05, -1, 0, 1e30, "5e8", "abc", "", True, False, None, [], {}, [1], 2.5, -0.5, 10**40, "true", "AUTO", "1.5")


def shown(text, setting):
    return check_json("ds_config.json", text, setting, lambda _document, stated, _launch: stated)


def errors(text, setting):
    return {(one.rule, one.path) for one in check_text("ds_config.json", text, setting) if one.severity == ERROR}


def holds(text, setting):
    """Each edit, and each line that is a value of its own key: what it was to mend is gone, and no error is new at it."""
    before = errors(text, setting)
    for one in shown(text, setting):
        for edits in (one.edits, _line(text, one)):
            if not edits:
                continue
            after = errors(applied(text, edits), setting)
            assert (one.rule, one.path) not in after - (before - {(one.rule, one.path)}), (one, text)
            at_it = {path for _rule, path in after - before if path == one.path or not path}
            assert not at_it, (one, at_it, text)
            if one.severity != ERROR and not before:
                assert not after, (one, after, text)


def _line(text, one):
    found, path = LINE.fullmatch(one.write), tuple(one.path.split("."))
    document = read_json("ds_config.json", text)
    if found is None or path not in document.members or path[-1] != found.group(1):
        return ()
    try:
        json.loads(found.group(2))
    except ValueError:
        return ()
    return valued(document, path, found.group(2))


@pytest.mark.parametrize("seed", range(DRAWS))
def test_of_drawn_configs(seed):
    holds(json.dumps(draw(seed)), Setting(gpus=1, client_optimizer=True))


@needs_corpus
@each_file
@pytest.mark.parametrize("reader", ["deepspeed", "hf", "accelerate"])
def test_of_public_files(path, reader):
    text = path.read_text(encoding="utf-8")
    try:
        read_json(path.name, text)
    except NotReadableError:
        pytest.skip("a template")
    holds(text, Setting(reader=reader, gpus=8))


NOT = {
    "a deprecated key whose value the new name does not take": (
        '{"train_batch_size": 8, "bf16": {"enabled": true}, "zero_optimization": {"stage": 3, '
        '"stage3_gather_fp16_weights_on_model_save": 7}}', "stage3_gather_fp16_weights_on_model_save"),
    "stage 0 for an accumulation that needs ZeRO": (
        '{"train_batch_size": 8, "bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp32"}, '
        '"zero_optimization": {"stage": 1}}', "stage"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "name"), NOT.values(), ids=NOT)
def test_what_would_be_refused_is_not_proposed(text, name):
    for one in shown(text, Setting(gpus=1)):
        if one.path.endswith(name) and one.severity != ERROR:
            assert not one.edits
            assert not _line(text, one)


@pytest.mark.parametrize("path", [path for path, known in KEYS.items() if known.settable and known.kind != "any"])
def test_an_example_is_a_value_that_the_key_takes(path):
    """Whatever was there, except where a text is left for the author to fill in."""
    known = KEYS[path]
    if "object" in known.kind.split("|") or known.kind.startswith("array"):
        pytest.skip("no single value")
    for value in ODD:
        text = example(known, value)
        if text in ('"..."', "null"):
            continue
        written = json.loads(text)
        try:
            checked({known.name: written}, known.section, known.name, "ds_config.json")
        except SpecError as error:
            pytest.fail(f"{value!r}: {text} {error}")


def test_a_fraction_under_one_was_no_wish_for_nothing():
    """DeepSpeed refuses a floor of 0 for a dynamic loss scale."""
    assert example(KEYS["fp16.min_loss_scale"], 0.05) == "1"
    assert example(KEYS["zero_optimization.reduce_bucket_size"], 15099494.4) == "15099494"
    assert example(KEYS["zero_optimization.offload_param.device"], False) == '"none"'


def test_a_text_that_is_too_long_is_shown_without_edits():
    text = ('{"train_batch_size": 8, "bf16": {"enabled": true, "loss_scale": 0}, "fp16": {"opt_level": "O2"}, '
            f'"_note": "{300_000 * "x"}"}}')  # fmt: skip
    found = shown(text, Setting(gpus=1))
    assert {"ZP302", "ZP303"} <= {one.rule for one in found}
    assert not any(one.edits for one in found)
    assert any(one.edits for one in shown(text.replace("xx", ""), Setting(gpus=1)))
