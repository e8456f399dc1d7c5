"""What `check --deepspeed V` says beside what DeepSpeedConfig of V says (tests/references/make_key_history.py)."""

from __future__ import annotations

import json
from functools import cache
from itertools import pairwise

import pytest

from tests.check.versions import one_key, pairs
from tests.conftest import REFERENCES
from zeroplan.check.check import check_text
from zeroplan.check.finding import ERROR
from zeroplan.check.setting import Setting
from zeroplan.deepspeed.keys import KEYS
from zeroplan.deepspeed.versions import key_table, read_elsewhere, versions
from zeroplan.errors import ContradictionError
from zeroplan.releases import number

COMPARED = ("0.14.0", "0.14.4", "0.15.0", "0.15.4", "0.16.4", "0.16.9", "0.17.0", "0.17.5", "0.18.3", "0.18.8", "0.19.3", "0.19.6",
            "0.19.7")  # fmt: skip
IN_THE_ENGINE = {"ZP120", "ZP606"}
"""Rules of which some rows of older versions are the engine's, which the reader of the config knows nothing of."""


@cache
def answers():
    return json.loads((REFERENCES / "check" / "versions.json").read_text(encoding="utf-8"))


def errors(config, version):
    found = check_text("ds.json", json.dumps(config), Setting(version=version, accelerator="cpu"))
    return {one.rule for one in found if one.severity == ERROR}


@cache
def later(kind, index):
    """Whether the newest version refuses a config that its reader takes: what stops the engine stops older ones too."""
    newest = versions()[-1]
    if kind == "pairs":
        return index not in answers()["pairs"][newest] and bool(errors(drawn()[index], newest))
    path, at = index
    return at not in answers()["refused"][path][-1][1] and bool(errors(one_key(path, answers()["values"][at]), newest))


@cache
def drawn():
    return pairs(answers()["drawn"])


def disagrees(config, version, refused, kind, index):
    found = errors(config, version)
    return bool(found) != refused and not (found and (found <= IN_THE_ENGINE or later(kind, index)))


def test_the_reference_is_of_the_table_s_versions():
    assert tuple(answers()["versions"]) == versions()
    assert sorted(versions(), key=number) == list(versions())


@pytest.mark.parametrize("version", COMPARED)
def test_an_error_where_that_version_refuses_one_key(version):
    """Of each key the values whose verdict changes anywhere, and one more."""
    order, values = versions(), answers()["values"]
    wrong = []
    for path, spans in answers()["refused"].items():
        refused = next(several for first, several in reversed(spans) if order.index(first) <= order.index(version))
        changes = {at for (_, one), (_, other) in pairwise(spans) for at in {*one} ^ {*other}}
        some = sorted(changes)[:: max(1, len(changes) // 6)] if spans[1:] else []
        tried = {*some, number_of(path) % len(values)}
        wrong += [(path, values[at]) for at in tried
                  if disagrees(one_key(path, values[at]), version, at in refused, "keys", (path, at))]  # fmt: skip
    assert wrong == []


def number_of(path):
    return sum(map(ord, path))


@pytest.mark.parametrize("version", COMPARED)
def test_an_error_where_that_version_refuses_several_keys(version):
    refused = set(answers()["pairs"][version])
    wrong = [one for at, one in enumerate(drawn()[:300]) if disagrees(one, version, at in refused, "pairs", at)]
    assert wrong == []


def test_defaults_of_before():
    """As the sources have them: runtime/constants.py, zero/offload_config.py, precision_config.py."""
    clipping, pinned = "gradient_clipping", "zero_optimization.offload_param.pin_memory"
    assert [key_table(v).keys[clipping].default for v in ("0.19.2", "0.19.3")] == [0.0, 1.0]
    assert [key_table(v).keys[pinned].default for v in ("0.19.4", "0.19.5")] == [False, True]
    assert [key_table(v).keys["steps_per_print"].default for v in ("0.15.1", "0.15.2")] == [10, None]
    overflow = "bf16.check_grad_overflow"
    assert [key_table(v).keys[overflow].default for v in ("0.17.1", "0.19.3")] == [False, True]
    assert overflow not in key_table("0.17.0").keys


def test_the_newest_is_the_table_itself():
    assert dict(key_table().keys) == dict(KEYS)
    assert key_table("0.19.8") is key_table()


@pytest.mark.parametrize("version", ["0.9.5", "0.20.0", "0.14", "x", "", "0.19.8.1"])
def test_a_version_that_nobody_looked_at(version):
    with pytest.raises(ContradictionError, match=r"is not known: known are the releases from 0\.14\.0 to 0\.19\.8"):
        key_table(version)


def test_where_a_key_is_read():
    assert read_elsewhere("zero_optimization", "zenflow", "0.16.9") == ("0.17.5", "")
    assert read_elsewhere("", "seq_parallel_comm_data_type", "0.19.8") == ("", "0.16.4")
    assert read_elsewhere("", "nobody", "0.16.9") is None


UPGRADED = """{"train_batch_size": 8, "bf16": {"enabled": true}, "torch_autocast": {"enabled": false, "dtype": "bf16"},
 "zero_optimization": {"stage": 2, "reduce_bucket_size": 0, "cpu_offload": true}}"""


def test_what_an_upgrade_changes(zeroplan, tmp_path):
    """reduce_bucket_size 0 is refused since 0.19.6, torch_autocast read since 0.17.2, pin_memory true since 0.19.5;
    what both say of the batch (ZP206), the bucket, cpu_offload (ZP408) and pinning is no change.
    """
    (tmp_path / "ds.json").write_text(UPGRADED, encoding="utf-8")
    ran = zeroplan("check", str(tmp_path / "ds.json"), "--upgrade", "0.16.9:0.19.8", "--format", "concise", "--ignore", "ZP514")
    rules = sorted(line.split()[2].rstrip(":") for line in ran.out.splitlines()[:-1])
    assert rules == ["ZP122", "ZP122", "ZP122", "ZP123", "ZP404"]
    assert "pin_memory is true where nothing says it, and was false in 0.16.9" in ran.out
    assert "gradient_clipping is 1.0 where nothing says it, and was 0.0 in 0.16.9" in ran.out
    assert "immediate_grad_update is false where nothing says it, and was true in 0.16.9" in ran.out
    assert ran.code == 1
    small = zeroplan("check", str(tmp_path / "ds.json"), "--upgrade", "0.19.6:0.19.8")
    assert "findings of both 4, of the older alone 0" in small.out
    assert small.code == 0


def test_an_upgrade_s_bytes(zeroplan, tmp_path):
    """Blocks of page-locked memory are powers of two: by the ledger, locked less not locked."""
    (tmp_path / "ds.json").write_text(UPGRADED.replace('"reduce_bucket_size": 0, ', ""), encoding="utf-8")
    options = ("--model", "llama-3.1-8b", "--gpus", "8", "--gpu-mem", "80", "--format", "concise", "--select", "ZP122")
    ran = zeroplan("check", str(tmp_path / "ds.json"), "--upgrade", "0.19.4:0.19.8", *options)
    more = ran.out.partition("was false in 0.19.4: ")[2].partition(" more of a host")[0]
    assert more.endswith("GiB")
    assert float(more.removesuffix(" GiB")) > 1


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (("--upgrade", "0.19.8:0.16.9"), "0.19.8 is not before 0.16.9; write --upgrade 0.16.9:0.19.8"),
        (("--upgrade", "0.16.9"), "expected two versions"),
        (("--upgrade", "0.9.5:0.19.8"), "0.9.5 is not known"),
        (("--upgrade", "0.16.9:0.19.8", "--deepspeed", "0.19.7"), "leave --deepspeed out"),
        (("--upgrade", "0.16.9:0.19.8", "--fix"), "mends nothing"),
        (("--deepspeed", "0.20.0"), "known are the releases from 0.14.0 to 0.19.8"),
    ],
)  # fmt: skip
def test_versions_that_cannot_be_meant(zeroplan, tmp_path, options, word):
    (tmp_path / "ds.json").write_text(UPGRADED, encoding="utf-8")
    ran = zeroplan("check", str(tmp_path / "ds.json"), *options)
    assert (ran.code, ran.out) == (2, "")
    assert word in ran.err


AUTOS = {"fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 2},
         "train_micro_batch_size_per_gpu": "auto",
         "scheduler": {"type": "WarmupCosineLR", "params": {"total_num_steps": "auto", "warmup_num_steps": "auto"}}}  # fmt: skip


@pytest.mark.parametrize("version", COMPARED)
def test_what_the_trainer_fills_is_no_error_of_old(version):
    """"auto" of both precisions is one of them by the time that DeepSpeed reads it."""
    found = check_text("ds.json", json.dumps(AUTOS), Setting(reader="hf", version=version))
    assert [one for one in found if one.severity == ERROR] == []


def test_an_auto_is_any_text_where_sections_are_read_by_hand():
    """runtime/config.py:get_fp16_enabled before 0.17.1; DeepSpeedConfig of 0.16.9, run: fp16 and bf16 both enabled."""
    assert "ZP301" in errors({**AUTOS, "train_micro_batch_size_per_gpu": 1, "scheduler": {}}, "0.16.9")
