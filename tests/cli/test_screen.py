"""The screen at several widths, piped, without colour; help and version."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import shlex
import subprocess
import sys

import pytest

from zeroplan import __version__

COMMANDS = [
    ["estimate", "--params", "7B", "--gpus", "8"],
    ["estimate", "--model", "llama-3.1-405b", "--gpus", "64x8", "--gpu-mem", "80", "--stage", "3"],
    ["recommend", "--gpu-mem", "80"],
    ["explain", "optimizer states"],
    ["models"], ["models", "gpt2"], ["gpus"], ["clusters"],
]  # fmt: skip


@pytest.mark.parametrize("columns", [80, 140])
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_nothing_is_cut_or_too_wide(zeroplan, monkeypatch, words, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = zeroplan(*words).out.splitlines()
    assert all(len(line) <= columns for line in lines[1:] if not line.startswith("next: ")), max(lines[1:], key=len)
    assert "…" not in "\n".join(lines)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_pipe_gets_no_colour(zeroplan, words):
    assert "\x1b" not in zeroplan(*words).out


def test_no_color_and_a_pipe_in_a_real_process():
    environment = {**os.environ, "NO_COLOR": "1"}
    command = [sys.executable, "-m", "zeroplan", *COMMANDS[0]]
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert "\x1b" not in ran.stdout
    assert "38.5 GB" in ran.stdout


def on_a_terminal(words, **more):
    """What a terminal of 80 columns gets."""
    mine, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": "80", "TERM": "xterm-256color", **more}
    with subprocess.Popen([sys.executable, "-m", "zeroplan", *words], stdout=theirs, env=environment) as process:
        os.close(theirs)
        read = b""
        with contextlib.suppress(OSError):  # which is how Linux says that nobody writes any more
            while piece := os.read(mine, 65536):
                read += piece
    os.close(mine)
    assert process.returncode == 0
    return read.decode().replace("\r\n", "\n")


LONG = ("recommend", "--model", "gpt2", "--gpus", "2", "--gpu", "rtx-4090", "--seq", "512", "--lora", "8",
        "--lora-targets", "c_attn, c_proj")  # fmt: skip


def test_a_terminal_gets_words_as_a_whole_and_a_command_to_paste():
    """NO_COLOR is of colours (no-color.org); a terminal that is dumb shows no bold either."""
    shown = on_a_terminal(LONG, NO_COLOR="1")
    assert not re.search(r"\x1b\[(\d+;)*(3[0-8]|9[0-7]|4[0-8])[;m]", shown)
    dumb = on_a_terminal(LONG, TERM="dumb")
    assert "\x1b" not in dumb
    assert re.sub(r"\x1b\[[\d;]*m", "", shown) == dumb
    assert max(map(len, dumb.splitlines())) <= 80
    answer = dumb.partition("Scope: ")[0]
    assert answer.count("\n") > 1
    assert " ".join(answer.split()) == zeroplan_piped(LONG).splitlines()[0]
    command = re.search(r"^next: ((?:.*\\\n)*.*)$", dumb, re.MULTILINE)[1]
    assert "\\\n" in command
    assert shlex.split(command.replace("\\\n", "")) == ["zeroplan", *LONG, "--dir", "plan"]


def zeroplan_piped(words):
    return subprocess.run([sys.executable, "-m", "zeroplan", *words], capture_output=True, text=True, check=True).stdout


def test_a_closed_pipe_is_no_error():
    command = f"{sys.executable} -m zeroplan models | head -1"
    ran = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert ran.stderr == ""


@pytest.mark.parametrize("words", [[], ["-h"], ["--help"]])
def test_help(zeroplan, words):
    ran = zeroplan(*words)
    assert ran.code == 0
    for command in ("estimate", "recommend", "explain", "models", "gpus", "clusters"):
        assert command in ran.out


@pytest.mark.parametrize("command", ["estimate", "recommend", "explain", "models"])
def test_help_of_a_command(zeroplan, command):
    ran = zeroplan(command, "-h")
    assert ran.code == 0
    assert "--json" in ran.out


def test_version(zeroplan):
    assert zeroplan("--version").out.strip() == f"zeroplan {__version__}"


def test_bare_estimate_needs_no_heavy_library():
    code = (
        "import sys; sys.argv = ['zeroplan', 'estimate', '--params', '7B', '--gpus', '8']\n"
        "from zeroplan.__main__ import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'numpy', 'pydantic', 'yaml', 'torch', 'transformers', 'plotly'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


@pytest.mark.parametrize(("memory", "code"), [("80", 0), ("16", 1)])
def test_a_reader_that_leaves_keeps_the_verdict(memory, code):
    """`zeroplan estimate ... | head -1` in a shell with pipefail still gates on 0 fits, 1 does not."""
    shown = f"{sys.executable} -m zeroplan estimate --params 7B --gpus 8 --gpu-mem {memory} | head -1"
    ran = subprocess.run(["bash", "-o", "pipefail", "-c", shown], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (code, "")


@pytest.mark.parametrize("columns", ["60", "80", "140"])
def test_a_timeline_keeps_to_the_terminal(zeroplan, monkeypatch, columns):
    """Its fullest column reaches the top row, above the mark that names the peak."""
    monkeypatch.setenv("COLUMNS", columns)
    _code, out, _err = zeroplan("estimate", "--model", "gpt2", "--gpus", "8", "--stage", "2", "--timeline", "-q")
    lines = out.splitlines()
    assert all(len(line) <= int(columns) for line in lines[1:])
    rows = [line for line in lines if set(line) & set("░▒█")][:14]
    mark = next(line for line in lines if "▲" in line).index("▲")
    assert rows[0][mark] not in (" ", "")


def test_a_timeline_says_what_it_does_not_draw(zeroplan):
    """The first step of DeepSeek-V3 needs more than a later one."""
    typed = "estimate", "--gpus", "64x8", "--stage", "3", "--timeline", "-q", "--model"
    out = {name: " ".join(zeroplan(*typed, name).out.split()) for name in ("deepseek-v3", "gpt2")}
    selective = zeroplan(*typed, "gpt2", "--checkpointing", "selective").out
    assert "closed forms here" not in selective + out["gpt2"]
    assert [name for name, text in out.items() if "first step, which is not drawn" in text] == ["deepseek-v3"]


def test_a_narrow_terminal_gets_two_stages_at_a_time(zeroplan, monkeypatch):
    """Four side by side would fold the names of rows, and folded names are hard to tell apart."""
    monkeypatch.setenv("COLUMNS", "60")
    lines = zeroplan("estimate", "--params", "7B", "--gpus", "8", "--gpu-mem", "80", "-v").out.splitlines()[1:]
    assert all(len(line) <= 60 for line in lines)
    assert [line.split() for line in lines if line.strip().startswith("ZeRO-")] == [["ZeRO-0", "ZeRO-1"], ["ZeRO-2", "ZeRO-3"]] * 3
    for row in ("held between steps", "+ gradients and buffers", "reserved by PyTorch"):
        assert sum(line.startswith(row) for line in lines) == 2


def test_no_drawing_of_another_accounting(zeroplan):
    found = zeroplan("estimate", "--model", "gpt2", "--gpus", "1", "--stage", "2", "--timeline", "--accounting", "paper")
    assert found.code == 2
    assert found.err.count("\n") == 1
    assert "leave out --accounting" in found.err


def test_letters_of_equations_stand_beside_the_lines(zeroplan):
    """GPT-2: h = 768, f = 3,072, 12 heads, a vocabulary of 50,257; T = 2 x 100 tokens."""
    typed = "estimate", "--model", "gpt2", "--gpus", "1", "--stage", "2", "--micro-batch", "2", "--seq", "100", "--json"
    found = zeroplan(*typed).json["memory"]["gpu"]
    values = {letter: known["value"] for letter, known in found["letters"].items()}
    assert values == {"w": 2, "b": 2, "s": 100, "T": 200, "h": 768, "f": 3072, "n": 12, "D": 50257}
    assert all(known["meaning"] for known in found["letters"].values())


def test_a_paper_is_named_for_every_line_of_the_papers_accounting(zeroplan):
    """Korthikanti's s·b·h·(34 + 5·n·s/h) for each of 12 layers, and nothing of our own forms."""
    typed = "estimate", "--model", "gpt2", "--gpus", "1", "--stage", "2", "--seq", "100", "--json", "--accounting", "paper"
    lines = zeroplan(*typed).json["memory"]["gpu"]["lines"]
    assert {line["evidence"] for line in lines} == {"paper"}
    kept = {line["name"]: line for line in lines}["all layers' activations"]
    assert kept["bytes"] == 12 * (34 * 100 * 768 + 5 * 12 * 100 * 100)
    assert "Korthikanti" in kept["source"]
