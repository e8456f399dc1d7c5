"""`zeroplan check`: what it prints, its exit codes, and what it makes of files that are no configs."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys

import pytest

from tests.conftest import ROOT
from zeroplan.check.rules import RULES

CLEAN = '{"train_batch_size": 8, "train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}}'
BAD = """{
  "train_batch_size": 8,
  "train_micro_batch_size_per_gpu": 1,
  "bf16": {"enabled": true},
  "zero_optimization": {
    "stage": 2,
\t"overlap_com": true,
    "stage3_max_live_parameters": 1e9
  }
}
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(text, name="ds_config.json"):
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        return name

    return write


def test_a_clean_file(zeroplan, file):
    ran = zeroplan("check", file(CLEAN))
    assert ran == (0, "nothing found in 1 file\n", "")


def test_findings_with_their_lines(zeroplan, file):
    ran = zeroplan("check", file(BAD))
    assert ran.code == 1
    assert ran.err == ""
    assert ran.out == """\
ds_config.json:7:2: error ZP108: overlap_com is no key of zero_optimization: DeepSpeed refuses it
  7 |  "overlap_com": true,
    |  ^^^^^^^^^^^^^
  write: "overlap_comm": true
  see https://www.deepspeed.ai/docs/config-json/
ds_config.json:8:5: warning ZP402: stage3_max_live_parameters does nothing at stage 2, only at stage 3
  8 |     "stage3_max_live_parameters": 1e9
    |     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  write: delete it
  see https://www.deepspeed.ai/docs/config-json/
1 error, 1 warning in 1 file
"""


def test_one_line_each(zeroplan, file):
    ran = zeroplan("check", file(BAD), "--format", "concise", "--select", "ZP4,ZP1", "--ignore", "ZP108")
    assert ran.out == (
        "ds_config.json:8:5: warning ZP402: stage3_max_live_parameters does nothing at stage 2, only at stage 3; "
        "write: delete it\n1 warning in 1 file\n"
    )


def test_json(zeroplan, file):
    ran = zeroplan("check", file(BAD), file(CLEAN, "other.json"), "--format", "json")
    assert ran.code == 1
    assert ran.json["command"] == "check"
    assert ran.json["files"] == ["ds_config.json", "other.json"]
    first = ran.json["findings"][0]
    assert (first["rule"], first["severity"], first["path"]) == ("ZP108", "error", "zero_optimization.overlap_com")
    assert (first["line"], first["column"], first["end_column"]) == (7, 2, 15)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ((), 1),
        (("--exit-zero",), 0),
        (("--ignore", "ZP108"), 1),
        (("--ignore", "ZP108", "--fail-on", "error"), 0),
        (("--select", "ZP5"), 0),
        (("--select", "ZP1"), 1),
        (("--ignore", "ZP4", "--ignore", "ZP1"), 0),
        (("--ignore", "ZP", "--select", "ZP108"), 1),
    ],
)
def test_exit_codes(zeroplan, file, options, code):
    assert zeroplan("check", file(BAD), *options).code == code


def test_standard_input(zeroplan, monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(BAD.encode()))
    monkeypatch.setattr(sys, "stdin", stream)
    ran = zeroplan("check", "-", "--format", "concise")
    assert ran.out.startswith("standard input:7:2: error ZP108")


def test_who_reads_it_is_guessed(zeroplan, file):
    name = file('{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {}, "bf16": {"enabled": true}}')
    assert zeroplan("check", name).code == 0
    assert "ZP207" in zeroplan("check", name, "--for", "deepspeed").out


def test_an_older_version_knows_fewer_rules(zeroplan, file):
    name = file(CLEAN[:-1] + ', "elasticity": {"enabled": false}}')
    assert "ZP414" in zeroplan("check", name).out
    assert "ZP414" not in zeroplan("check", name, "--deepspeed", "0.19.6").out


def test_a_file_that_is_no_json_is_a_finding(zeroplan, file):
    ran = zeroplan("check", file('{"a": 1,\n "b" 2}'), "--format", "concise")
    assert ran.code == 1
    assert ran.out.startswith("ds_config.json:2:6: error ZP101: found '2', expected ':' after a key")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--for", "jax"),
        ("--format", "xml"),
        ("--gpus", "0"),
        ("--select", "ZP999"),
        ("--fail-on", "never"),
        ("--accelerator", "tpu"),
        ("--deepspeed", "newest"),
        ("missing.json",),
        ("empty",),
    ],
    ids=" ".join,
)
def test_bad_use_is_one_line(zeroplan, file, arguments):
    name = file(CLEAN)
    os.mkdir("empty")
    ran = zeroplan("check", name, *arguments)
    assert ran.code == 2
    assert ran.out == ""
    assert ran.err.startswith("zeroplan: ")
    assert ran.err.count("\n") == 1


HOSTILE = [
    b'{"a":' * 10_000, b'{"a":' + b"[" * 10_000, b'{"a": "\0"}', b"\xff\xfe{}", b"{" + b" " * 5_000_000 + b"}", b"[" * 600_000,
]  # fmt: skip


@pytest.mark.parametrize("content", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.parametrize("options", [(), ("--fix",), ("--format", "sarif")], ids=str)
def test_hostile_files_are_one_line(zeroplan, file, content, options):
    name = file(content)
    ran = zeroplan("check", name, *options)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    with open(name, "rb") as stream:
        assert stream.read() == content


def test_fifty_megabytes_are_not_read(zeroplan, file):
    name = file(b"{}")
    os.truncate(name, 50_000_000)
    assert "found 50,000,000 bytes" in zeroplan("check", name).err


def test_an_unreadable_file_is_one_line(zeroplan, file, monkeypatch):
    """As another user's: the test may run as root, whom no permission stops."""
    name = file(CLEAN)

    def refuses(*_path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("zeroplan.catalog.files.open", refuses, raising=False)
    assert zeroplan("check", name).err == f"zeroplan: {name}: found permission denied, expected a ds_config.json\n"


SLOWEST = {
    "entries without commas": '{"train_batch_size": 8, "a":[' + "1\n" * 30_000 + "1]}",
    "a key again and again": '{"train_batch_size": 8,' + ",".join(['"a":1'] * 25_000) + "}",
}


@pytest.mark.parametrize("text", SLOWEST.values(), ids=SLOWEST)
def test_large_files_take_little(file, text):
    """Under 200 MB and 5 s of its own time, mending included; a third of the largest, which takes two."""
    code = ("import resource, sys\nfrom zeroplan.__main__ import main\nsys.argv[0] = 'zeroplan'\ntry: main()\n"
            "except SystemExit as ended:\n used = resource.getrusage(resource.RUSAGE_SELF)\n"
            " peak = open('/proc/self/status').read().split('VmHWM:')[1].split()[0]\n"  # ru_maxrss has the parent's too
                " print(ended.code, peak, used.ru_utime + used.ru_stime)")  # fmt: skip
    ran = subprocess.run([sys.executable, "-c", code, "check", file(text), "--diff"], capture_output=True, text=True,
                         env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=60, check=True)  # fmt: skip
    exit_code, kilobytes, seconds = ran.stdout.split()[-3:]
    assert exit_code == "1"
    assert int(kilobytes) * 1024 < 200e6
    assert float(seconds) < 5


def test_what_is_no_file_is_one_line(zeroplan, tmp_path):
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "loop.json").symlink_to("loop.json")
    for name in ("pipe.json", "loop.json"):
        ran = zeroplan("check", str(tmp_path / name))
        assert ran.code == 2
        assert ran.err.count("\n") == 1


def test_thousands_of_unknown_keys_take_no_time(zeroplan, file):
    text = "{" + ",\n".join(f'"k{number}": 1' for number in range(30_000)) + ', "train_batch_size": 1}'
    ran = zeroplan("check", file(text), "--format", "concise")
    assert ran.code == 1
    assert ran.out.count("ZP105") == 100


def test_rules_are_listed(zeroplan):
    lines = zeroplan("rules").out.splitlines()
    assert [line.split()[0] for line in lines] == list(RULES)
    found = zeroplan("rules", "--json").json["rules"]
    assert [rule["id"] for rule in found] == list(RULES)
    assert all(json.dumps(rule["bad"]) for rule in found)


def test_one_rule_is_explained(zeroplan):
    out = zeroplan("explain", "zp402").out
    assert out.startswith("ZP402  A key of stage 3 below stage 3\nseverity: warning\n")
    assert "stage3_max_live_parameters" in out
    assert zeroplan("explain", "ZP402", "--json").json["rule"]["id"] == "ZP402"
    assert zeroplan("explain", "ZP000").code == 2


def test_a_total_that_is_no_multiple_gets_the_nearest_that_is(zeroplan, tmp_path):
    """2 sequences on each of 512 GPUs: 1,024 a micro-step, of which 1,000 is none."""
    path = tmp_path / "ds_config.json"
    path.write_text('{"train_batch_size": 1000, "train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": true}}')
    ran = zeroplan("check", str(path), "--gpus", "64x8")
    assert ran.code == 1
    assert 'write: "train_batch_size": 1024\n' in ran.out
    path.write_text('{"train_batch_size": 1e400, "bf16": {"enabled": true}}')
    assert "a batch that can be trained" in zeroplan("check", str(path), "--gpus", "8").out


@pytest.mark.parametrize("more", [(), ("--fix",), ("--format", "json")])
def test_a_models_config_is_none_of_deepspeeds(zeroplan, tmp_path, more):
    """Its keys are not to be moved or deleted."""
    path = tmp_path / "config.json"
    path.write_text('{"model_type": "llama", "hidden_size": 4096, "vocab_size": 32000}')
    before = path.read_text()
    ran = zeroplan("check", str(path), *more)
    assert (ran.code, ran.out) == (2, "")
    assert "found a model's config.json, expected a ds_config.json" in ran.err
    assert path.read_text() == before


@pytest.mark.parametrize(
    ("kind", "write"),
    [("cpu_adam", "AdamW"), ("deepspeed_cpu_adam", "AdamW"), ("fused_adam", "AdamW"), ("cpu_adamw", "AdamW"),
     ("paged_adamw_8bit", "AdamW"), ("lion_32bit", "Lion"), ("Adamm", "Adam"), ("nothing", "AdamW")],
)  # fmt: skip
def test_a_type_that_deepspeed_does_not_know_is_answered_with_one_that_it_does(zeroplan, file, kind, write):
    """runtime/engine.py of 0.19.8: _configure_basic_optimizer looks for a name of its own, then in torch.optim; AdamW
    becomes DeepSpeedCPUAdam where the optimizer is offloaded.
    """
    offload = {"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": True}}
    config = {"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": True}, "zero_optimization": offload}
    ran = zeroplan("check", file(json.dumps({**config, "optimizer": {"type": kind, "params": {"lr": 0.1}}})), "--format", "json")
    (one,) = [one for one in ran.json["findings"] if one["rule"] == "ZP602"]
    assert one["write"] == f'"type": "{write}"'
    changed = {**config, "optimizer": {"type": write, "params": {"lr": 0.1}}}
    assert zeroplan("check", file(json.dumps(changed)), "--fail-on", "error").code == 0
