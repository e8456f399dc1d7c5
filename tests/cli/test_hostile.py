"""Files and moments that nobody should have: endless, huge, infinite, interrupted, and names that a terminal obeys."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import ROOT

LLAMA = {
    "model_type": "llama", "vocab_size": 32000, "hidden_size": 512, "num_hidden_layers": 2,
    "num_attention_heads": 8, "intermediate_size": 1376,
}  # fmt: skip
OBEYED = "a\x1b[31m\x9b1m\u202e\u2028b\n::error::c"
JOB = ("--params", "1B", "--gpus", "2", "--stage", "2")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def model(**fields):
    Path("config.json").write_text(json.dumps({**LLAMA, **fields}), encoding="utf-8")
    return ("estimate", "--model", "config.json", "--gpus", "2", "--stage", "2", "--quiet")


def assert_one_line(ran, *fragments):
    assert (ran.code, ran.out) == (2, "")
    assert len(ran.err.splitlines()) == 1
    for fragment in fragments:
        assert fragment in ran.err


# transformers 5.24 builds these and stops in training: KeyError of the mask, ValueError without a window.
@pytest.mark.parametrize("family", ["qwen2", "qwen3", "gemma2", "gemma3_text", "gpt_oss", "qwen2_moe"])
@pytest.mark.parametrize("kind", ["chunked_attention", "linear_attention", "conv"])
def test_a_layer_type_of_another_family(zeroplan, family, kind):
    head = {"head_dim": 64} if family in ("gemma2", "gemma3_text", "qwen3", "gpt_oss") else {}
    ran = zeroplan(*model(model_type=family, num_key_value_heads=8, layer_types=[kind, "full_attention"], **head))
    assert_one_line(ran, "layer type", kind)


def test_a_window_without_a_width(zeroplan):
    ran = zeroplan(*model(model_type="qwen2", num_key_value_heads=8, layer_types=["sliding_attention"] * 2))
    assert_one_line(ran, "sliding_window", "use_sliding_window: true")


# Python's json, which transformers 4 writes with, and the tag of transformers 5 (_encode_special_floats).
@pytest.mark.parametrize("value", [float("inf"), float("nan"), {"__float__": "-Infinity"}])
def test_infinity_where_it_is_not_read(zeroplan, value):
    assert zeroplan(*model(time_step_limit=[0.0, value])).code == 0


@pytest.mark.parametrize("field", ["hidden_size", "rope_theta", "attention_dropout"])
@pytest.mark.parametrize("value", [float("inf"), {"__float__": "NaN"}], ids=["inf", "tagged"])
def test_infinity_where_a_number_is_read(zeroplan, field, value):
    assert_one_line(zeroplan(*model(**{field: value})), field)


def test_a_key_that_is_there_twice_among_forty_thousand(zeroplan):
    keys = ",".join(f'"k{number}":1' for number in range(40_000))
    Path("ds.json").write_text('{"zero_optimization":{},' + keys + ',"k7":2}', encoding="utf-8")
    start = time.process_time()
    assert_one_line(zeroplan("estimate", *JOB, "--config", "ds.json"), "'k7' twice")
    assert time.process_time() - start < 5


@pytest.mark.parametrize("text", [
    "a = " + "9" * 5000, "a = " + "[" * 5000, ".".join("a" * 90_000) + " = 1", "#" * 600_000,
], ids=["digits", "nested", "dots", "large"])  # fmt: skip
def test_a_pyproject(zeroplan, text):
    Path("pyproject.toml").write_text(text, encoding="utf-8")
    Path("ds.json").write_text("{}", encoding="utf-8")
    assert_one_line(zeroplan("check", "ds.json"), "pyproject.toml")


def test_observe_reads_a_line_in_as_long_as_it_is(zeroplan):
    table = "Comm. Op            Message Size        Count               Total Latency(ms)\n"
    Path("run.log").write_text(table + ("a:" * 30_000 + "!\n") + json.dumps({f"k{n}": 1 for n in range(26)}))
    start = time.process_time()
    assert_one_line(zeroplan("observe", "run.log", *JOB), "no known line, 3 read")
    assert time.process_time() - start < 5


@pytest.mark.parametrize("path", ["pipe", "/dev/zero", "."])
def test_observe_what_is_no_file(zeroplan, path):
    os.mkfifo("pipe")
    assert_one_line(zeroplan("observe", path, *JOB), "expected a log")


@pytest.mark.parametrize("rank", ["1" * 5000, "٣", "１", "²"])
def test_a_rank_is_of_ascii_digits(zeroplan, rank):
    assert_one_line(zeroplan("estimate", *JOB, "--rank", rank), "--rank", "0 to 1")


@pytest.mark.parametrize("variables", [{"COLUMNS": "²"}, {"LINES": "²"}, {"PYTHONWARNINGS": "error"}, {"PYTHONOPTIMIZE": "2"}])
def test_an_environment(tmp_path, variables):
    ran = started("estimate", "--params", "1B", "--quiet", **variables).communicate(timeout=60)
    assert ran[0].startswith(b"1B on 1 GPU:")
    assert ran[1] == b""


def test_without_docstrings_no_formula(tmp_path):
    run = started("explain", "parameters", PYTHONOPTIMIZE="2")
    out, err = run.communicate(timeout=60)
    assert (run.returncode, out) == (2, b"")
    assert err.startswith(b"zeroplan: found Python without docstrings")
    assert err.count(b"\n") == 1


def started(*arguments, **variables):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    command = [sys.executable, "-m", "zeroplan", *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_ctrl_c(tmp_path):
    """Before the first line of zeroplan's it is the interpreter's own affair."""
    ended = 0
    for tenths in range(10):
        run = started("recommend", "--params", "7B", "--gpus", "64x8", "--gpu-mem", "80")
        time.sleep(0.04 * tenths)
        run.send_signal(signal.SIGINT)
        _out, err = run.communicate(timeout=60)
        assert b"zeroplan/" not in err or b"runpy" in err.splitlines()[1], err
        ended += (run.returncode, err) == (130, b"zeroplan: interrupted\n")
    assert ended


DROPS = """
import os, signal, time
from zeroplan.__main__ import interrupt
class Dropped:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        self.seen = True
signal.signal(signal.SIGINT, interrupt)
Dropped()
time.sleep(60)
"""


def test_ctrl_c_while_python_drops_an_object(tmp_path):
    """Python ignores what is raised in a __del__, and says so on standard error."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run([sys.executable, "-c", DROPS], env=environment, capture_output=True, timeout=30, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, b"", b"")


def test_names_and_keys_are_escaped(zeroplan):
    folder = Path(OBEYED.replace("/", ""))
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    Path("a.json").write_text(json.dumps({"train_batch_size": 8, OBEYED: OBEYED}), encoding="utf-8")
    Path("b.json").write_text(json.dumps({"train_batch_size": 8}), encoding="utf-8")
    named = str(folder)
    (folder / "ds.json").write_text('{"train_batch_size": "8"}', encoding="utf-8")
    for arguments in (
        ("estimate", "--model", named, "--gpus", "2"), ("estimate", "--model", named, "--gpus", "2", "--json"),
        ("matrix", "--model", named, "--format", "markdown"), ("matrix", "--model", named, "--format", "csv"),
        ("models", named), ("diff", "a.json", "b.json"), ("diff", "a.json", "b.json", "--json"),
        ("estimate", *JOB, "--config", f"{named}/none.json"), ("check", "a.json"),
        *(("check", f"{named}/ds.json", "--format", form)
          for form in ("full", "concise", "github", "junit", "markdown", "sarif", "json")),
        ("check", f"{named}/ds.json", "--diff"),
    ):  # fmt: skip
        ran = zeroplan(*arguments)
        shown = ran.out + ran.err
        assert shown, arguments
        assert not any(line.startswith("::error::c") for line in shown.splitlines()), arguments
        assert all(letter.isprintable() or letter == "\n" for letter in shown), arguments


def test_a_file_that_a_yaml_names_is_not_quoted(zeroplan):
    Path("secret").write_text("root: hunter2\n", encoding="utf-8")
    Path("a.yaml").write_text("distributed_type: DEEPSPEED\ndeepspeed_config:\n  deepspeed_config_file: secret\n")
    Path("t.yaml").write_text("deepspeed: secret\n")
    for name in ("a.yaml", "t.yaml"):
        for form in ("full", "json", "github", "sarif"):
            ran = zeroplan("check", name, "--format", form)
            assert ran.code == 1
            assert "hunter2" not in ran.out + ran.err
            assert "not JSON, line 1 column 1" in ran.out


# torchrun of torch 2.14, which Accelerate calls: AssertionError for -4 and 0, ValueError for 2.0 and nan.
@pytest.mark.parametrize("value", ["-4", "0", "2.0", ".nan", ".inf"])
def test_numbers_of_processes(zeroplan, value):
    Path("a.yaml").write_text(f"distributed_type: DEEPSPEED\nnum_processes: {value}\ndeepspeed_config:\n  zero_stage: 2\n")
    found = zeroplan("check", "a.yaml", "--format", "json").json["findings"]
    assert [(one["rule"], one["severity"], one["line"]) for one in found if one["path"] == "num_processes"] == [
        ("ZP811", "error", 2)
    ]


def test_check_and_estimate_bound_a_batch_alike(zeroplan):
    Path("ds.json").write_text('{"train_batch_size": 1000000000000, "bf16": {"enabled": true}}', encoding="utf-8")
    assert_one_line(zeroplan("estimate", *JOB[:4], "--config", "ds.json"), "1,000,000,000")
    found = zeroplan("check", "ds.json", "--format", "json").json["findings"]
    assert any(one["rule"] == "ZP204" and "1,000,000,000" in one["message"] for one in found)


def test_a_plan_with_nvme_reads_back_alike(zeroplan):
    machine = ("--params", "1.3B", "--gpus", "2", "--gpu-mem", "80", "--host-mem", "64GiB", "--nvme", "3.8TB")
    plan = zeroplan("recommend", *machine, "--offload-optimizer", "nvme", "-o", "ds.json", "--json").json["plan"]
    read = zeroplan("estimate", *machine, "--config", "ds.json", "--json").json
    read = read["strategies"][0] if "strategies" in read else read
    assert read["strategy"]["offload_optimizer"] == plan["strategy"]["offload_optimizer"]
    assert plan["strategy"]["offload_optimizer"]["buffer_count"] == 4  # DeepSpeed's offload_config.py
