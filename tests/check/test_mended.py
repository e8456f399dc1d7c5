"""What `--fix` writes: expected texts by hand, and DeepSpeed's own word on what it was given then (references/check)."""

from __future__ import annotations

import json
import random
import re
from functools import cache

import pytest

from tests.check.hjson_writing import MARKS, written
from tests.check.mending import digest, mended_by, mended_file, only_mended_keys_differ, settings
from tests.conftest import REFERENCES
from tests.corpus import CORPUS, each_file, needs_corpus
from zeroplan.check.finding import ERROR, WARNING, Edit, Finding
from zeroplan.check.json_reader import read_json
from zeroplan.check.mended import mended
from zeroplan.check.setting import Setting

CASES = {
    "a misspelt key that is refused": ('"zero_optimization": {"stage": 2, "overlap_com": true}',
                                       '"zero_optimization": {"stage": 2, "overlap_comm": true}'),
    "a slip that is ignored": ('"gradient_cliping": 1.0', '"gradient_clipping": 1.0'),
    "letters of another size": ('"zero_optimization": {"STAGE": 2}', '"zero_optimization": {"stage": 2}'),
    "a key that belongs to the top level": ('"zero_optimization": {"stage": 2, "gradient_clipping": 0.5}',
                                            '"zero_optimization": {"stage": 2}, "gradient_clipping": 0.5'),
    "a key that belongs into a section that is there": ('"overlap_comm": true, "zero_optimization": {"stage": 1}',
                                                        '"zero_optimization": {"stage": 1, "overlap_comm": true}'),
    "a key that is in its place already": ('"overlap_comm": true, "zero_optimization": {"overlap_comm": true}',
                                           '"zero_optimization": {"overlap_comm": true}'),
    "an argument that became a key": ('"optimizer": {"type": "AdamW", "params": {"max_grad_norm": 0.5, "lr": 1e-4}}',
                                      '"optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "gradient_clipping": 0.5'),
    "a text that is a number": ('"steps_per_print": 10, "train_micro_batch_size_per_gpu": "4"',
                                '"steps_per_print": 10, "train_micro_batch_size_per_gpu": 4'),
    "a text in powers": ('"zero_optimization": {"reduce_bucket_size": "5e8"}',
                         '"zero_optimization": {"reduce_bucket_size": 500000000}'),
    "a computed fraction": ('"zero_optimization": {"stage": 2, "reduce_bucket_size": 15099494.4}',
                            '"zero_optimization": {"stage": 2, "reduce_bucket_size": 15099494}'),
    "a float where steps are counted": ('"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 1e2}}',
                                        '"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 100}}'),
    "a switch in quotes": ('"fp16": {"enabled": "false"}', '"fp16": {"enabled": false}'),
    "a word in capitals": ('"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "CPU"}}',
                           '"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}'),
    "a key of fp16": ('"fp16": {"enabled": false, "opt_level": "O2"}', '"fp16": {"enabled": false}'),
    "a section that was removed": ('"steps_per_print": 10, "compression_training": {"a": [1, {"b": 2}]}',
                                   '"steps_per_print": 10'),
    "a removed switch that was off": ('"elasticity": {"enabled": false}, "steps_per_print": 10', '"steps_per_print": 10'),
    "a removed section whose switches are all off": (
        '"compression_training": {"weight_quantization": {"shared_parameters": {"enabled": false, "bits": 8}}}, "steps_per_print": 10',
        '"steps_per_print": 10'),
    "a removed section that nothing turns on": ('"progressive_layer_drop": {"theta": 0.5}, "steps_per_print": 10',
                                                '"steps_per_print": 10'),
    "a removed size that stands for none": ('"zero_optimization": {"stage": 3, "mics_shard_size": -1}',
                                            '"zero_optimization": {"stage": 3}'),
    "a deprecated switch": ('"zero_optimization": {"stage": 2, "cpu_offload": true}',
                            '"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}'),
    "a deprecated switch that is off": ('"zero_optimization": {"cpu_offload": false, "stage": 2}',
                                        '"zero_optimization": {"stage": 2}'),
    "a deprecated key beside its equal": (
        '"zero_optimization": {"stage": 2, "cpu_offload": true, "offload_optimizer": {"device": "cpu"}}',
        '"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}'),
    "a key twice": ('"steps_per_print": 10, "steps_per_print": 10', '"steps_per_print": 10'),
    "a class that is made of the type": ('"optimizer": {"type": "FusedAdam"}', '"optimizer": {"type": "AdamW"}'),
    "a type in small letters": ('"scheduler": {"type": "warmuplr", "params": {}}',
                                '"scheduler": {"type": "WarmupLR", "params": {}}'),
    "an old form": ('"zero_optimization": true', '"zero_optimization": {"stage": 1}'),
    "one mend after the other": ('"scheduler": {"type": "WarmupLR", "params": {"warmup_num_step": "10"}}',
                                 '"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 10}}'),
}  # fmt: skip
LEFT = {
    "two keys are as near": '"bp16": {"enabled": true}',
    "no key is near": '"zero_optimization": {"stage": 2, "magic": true}',
    "a slip with a value that the key does not take": '"gradient_cliping": [1]',
    "a slip beside the key itself": '"gradient_cliping": 2.0, "gradient_clipping": 1.0',
    "a section that is not there": '"overlap_comm": true',
    "two values for one key": '"steps_per_print": 10, "steps_per_print": 20',
    "another optimizer": '"optimizer": {"type": "OneBitAdam", "params": {"lr": 1e-4}}',
    "a fraction that is no computed size": '"steps_per_print": 10, "zero_optimization": {"sub_group_size": 1.5}',
    "a stage that there is not": '"zero_optimization": {"stage": 4}',
    "auto where nothing fills it": '"gradient_accumulation_steps": "auto"',
    "a switch that contradicts its successor":
        '"zero_optimization": {"stage": 2, "cpu_offload": false, "offload_optimizer": {"device": "cpu"}}',
    "a removed section that did something else": '"curriculum_learning": {"enabled": true, "curriculum_type": "seqlen"}',
    "a removed section that was on": '"progressive_layer_drop": {"enabled": true, "theta": 0.5}',
    "a removed section that was on in a part of it":
        '"compression_training": {"weight_quantization": {"shared_parameters": {"enabled": true}}}',
    "a removed section that was on by being there": '"sparse_attention": {"mode": "fixed"}',
    "a removed section of ZeRO that was on": '"zero_optimization": {"stage": 3, "zeropp_loco_param": {"err_beta": 0.8}}',
    "a removed switch that was on": '"sparse_gradients": true',
    "idle at this stage": '"zero_optimization": {"stage": 2, "stage3_max_live_parameters": 1e9}',
    "a slip that would be refused":
        '"zero_optimization": {"stage": 0, "overlap_comm": true}, "managed_gradient_acumulation": false',
    "a placeholder": '"steps_per_print": "${LOG_INTERVAL}"',
    "a key whose place lies behind a text without quotes":
        '"zero_optimization": {"gradient_clipping": 0.5}, "_note": LOGS\n',
    "commas behind a text without quotes that begins like a key": '"_note":\n aio: {\n "aio": {"queue_depth": 8,},\n',
    "a comment that would be lost": '"compression_training": { // mine\n}, "steps_per_print": 10',
}  # fmt: skip
BASE = '{"train_micro_batch_size_per_gpu": 8, "bf16": {"enabled": true}, %s}'


def fixed(text, **options):
    return mended_by(Setting(**options), text).text


@pytest.mark.parametrize(("before", "after"), CASES.values(), ids=CASES)
def test_one_right_answer(before, after):
    base = BASE.replace('"train_micro_batch_size_per_gpu": 8, ', "") if "train_micro" in before else BASE
    assert fixed(base % before) == base % after


@pytest.mark.parametrize("text", LEFT.values(), ids=LEFT)
def test_what_only_the_author_knows_stays(text):
    assert fixed(BASE % text) == BASE % text


def test_comments_order_indentation_and_line_ends_stay():
    before = """{
\t"train_batch_size": "8",   # per step
\t"bf16": {
\t\t"enabled": true, // on
\t\t"loss_scale": 0 // from fp16
\t},
\t"overlap_comm": true,
\t/* all of
\t   ZeRO */
\t"zero_optimization": {
\t\t"stage": 2,  // two
\t\t"reduce_bucket_size" : "5e8" // large
\t},

\t"compression_training": {},
\t"steps_per_print": 10
}
"""
    after = """{
\t"train_batch_size": 8,   # per step
\t"bf16": {
\t\t"enabled": true // on
\t\t // from fp16
\t},
\t/* all of
\t   ZeRO */
\t"zero_optimization": {
\t\t"stage": 2,  // two
\t\t"reduce_bucket_size" : 500000000, // large
\t\t"overlap_comm": true
\t},

\t"steps_per_print": 10
}
"""
    assert fixed(before) == after
    assert fixed(before.replace("\n", "\r\n")) == after.replace("\n", "\r\n")


def test_a_section_that_moves_is_indented_anew():
    before = '{\n  "train_batch_size": 8,\n  "zero_optimization": {\n    "stage": 3,\n    "aio": {\n      "queue_depth": 8\n    }\n  }\n}\n'
    after = '{\n  "train_batch_size": 8,\n  "zero_optimization": {\n    "stage": 3\n  },\n  "aio": {\n    "queue_depth": 8\n  }\n}\n'
    assert fixed(before) == after


def test_punctuation_becomes_json_and_comments_stay():
    before = "{'train_batch_size': 8, // all\n bf16: {'enabled': true,}\n 'wandb': {'project': 'it\"s'}}"
    after = '{"train_batch_size": 8, // all\n "bf16": {"enabled": true},\n "wandb": {"project": "it\\"s"}}'
    assert fixed(before, reader="hf") == after


def test_a_template_stays():
    text = '{"train_batch_size": GBSIZE,\n "bf16": {"enabled": true},\n "zero_optimization": {"stage": ZERO_STAGE,\n}}'
    assert fixed(text) == text


def test_only_what_was_chosen_is_mended():
    text = BASE % '"gradient_cliping": 1.0, "zero_optimization": {"stage": 2, "overlap_com": true}'
    chosen = mended_by(Setting(), text, lambda found: [one for one in found if one.rule == "ZP105"])
    assert chosen.text == text.replace("cliping", "clipping")


@cache
def recorded():
    return json.loads((REFERENCES / "check" / "mended.json").read_text(encoding="utf-8"))


@cache
def draws():
    rows = json.loads((REFERENCES / "check" / "draws.json").read_text(encoding="utf-8"))["draws"]
    return {str(seed): (json.dumps(config), said) for seed, config, said in rows}


def test_deepspeed_takes_what_it_refused():
    """Drawn configs whose errors are all mended: the text is that which DeepSpeed was asked about, and it said nothing."""
    for seed, (text_digest, said) in recorded()["draws"].items():
        text, refused = draws()[seed]
        found = mended_by(Setting(gpus=1, client_optimizer=True), text)
        assert refused, seed
        assert (digest(found.text), said) == (text_digest, ""), (seed, found.text)
        only_mended_keys_differ(text, found)


def test_enough_was_mended():
    """Public files that are refused ask for features that were removed, most of them: those stay as they are."""
    assert len(recorded()["draws"]) >= 150
    assert len(recorded()["files"]) >= 4


ASKED_FOR = re.compile(r'"(?:compression_training|progressive_layer_drop|curriculum_learning|quantize_training|eigenvalue)"')


@needs_corpus
@each_file
def test_what_was_asked_for_is_not_thrown_away(path):
    """A feature that was removed and is on: without its section DeepSpeed would train another model, and say nothing."""
    before = json.loads(json.dumps(read_json(path.name, path.read_text(encoding="utf-8")).config))
    for _reader, setting in settings(CORPUS, path):
        after = read_json(path.name, mended_by(setting, path.read_text(encoding="utf-8")).text).config
        for name, section in before.items():
            if ASKED_FOR.fullmatch(f'"{name}"') and '"enabled": true' in json.dumps(section):
                assert after[name] == section


@pytest.mark.parametrize("first", range(4))
def test_mending_again_changes_nothing(first):
    for text, _said in list(draws().values())[first::32]:
        for reader in ("deepspeed", "hf"):
            once = fixed(text, reader=reader, gpus=1)
            assert fixed(once, reader=reader, gpus=1) == once


@needs_corpus
@each_file
def test_public_files(path):
    """The parsed config differs at the mended keys only, mending again changes nothing, and DeepSpeed takes it."""
    text = path.read_text(encoding="utf-8")
    for _reader, setting in settings(CORPUS, path):
        found = mended_by(setting, text)
        assert mended_by(setting, found.text).text == found.text
        only_mended_keys_differ(text, found)
    verdicts = {reader: [digest(new), ""] for reader, _world, new in mended_file(CORPUS, path)}
    assert verdicts == recorded()["files"].get(path.name, {})


def test_an_error_of_a_rule_itself_is_not_silent(monkeypatch):
    from zeroplan.check import check

    def broken(subject):
        yield subject.config["train_batch_size"] + ""

    monkeypatch.setattr(check, "CHECKS", (broken,))
    with pytest.raises(TypeError):
        check.check_text("x", '{"train_batch_size": 1}', Setting())


def test_errors_are_mended_whatever_order_they_come_in():
    text = BASE % '"zero_optimization": {"stage": 2, "overlap_com": true, "overlap_coms": true}'
    found = mended_by(Setting(), text)
    assert [one.rule for one in found.left if one.severity == ERROR] == ["ZP108"]
    assert found.text.count('"overlap_comm"') == 1


WRONG = {
    "overlap_com": True, "train_batch_size": "8", "gradient_cliping": 1.0, "compression_training": {"a": [1, {"b": 2}]},
    "overlap_comm": True, "bfloat16": {"enabled": True}, "amp": {},
}  # fmt: skip
WRONG_IN_ZERO = {
    "overlap_com": True, "cpu_offload": True, "gradient_clipping": 1.0, "aio": {"queue_depth": 8},
    "reduce_bucket_size": "5e8", "stage3_gather_fp16_weights_on_model_save": True,
}  # fmt: skip


@pytest.mark.parametrize("seed", range(0, 2000, 17))
def test_configs_written_by_hand(seed):
    """Every comment stays, what can be read can be read, punctuation changes no value, and twice is once."""
    rng = random.Random(seed)
    config = json.loads(draws()[str(seed)][0])
    for section, wrong in ((config, WRONG), (config.get("zero_optimization"), WRONG_IN_ZERO)):
        for name in wrong if isinstance(section, dict) else ():
            section.update({name: wrong[name]} if rng.random() < 0.3 else {})
    text = written(rng, dict(rng.sample(list(config.items()), len(config))))
    setting = Setting(reader=rng.choice(("deepspeed", "hf")))
    found = mended_by(setting, text)
    assert mended_by(setting, found.text).text == found.text
    before, after = (read_json("x", part).config for part in (text, found.text))
    assert all(text.count(mark) == found.text.count(mark) for mark in MARKS)
    if {one.rule for one in found.done} <= {"ZP102", "ZP103"}:
        assert before == after


def test_what_is_said_to_be_mended_is_gone():
    """Two findings of one rule at one key, one of which stays whatever is written: that other is not counted as done."""

    def check(text):
        places = [at for at in (text.find("a"), text.find("b")) if at >= 0]
        edits = [Edit(at, at + 1, "" if text[at] == "a" else "bb") for at in places]
        return [Finding("ZP102", WARNING, "x", 1, one.start + 1, one.end + 1, "", "", "", "", (one,)) for one in edits]

    found = mended("ab", check, list)
    assert (found.text, [one.column for one in found.done], len(found.left)) == ("b", [1], 1)
