"""The line on standard error while a command lasts: for a terminal alone, after a second, and erased."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from io import StringIO
from tempfile import TemporaryFile

import pytest

from zeroplan.cli import progress

LONG = ("recommend", "--params", "350M", "--gpu", "l4,a100-40gb,h100-80gb", "--gpus", "auto", "--seq", "512")
PATIENCE = "import zeroplan.cli.progress as p; p.DELAY = {delay}; import sys; sys.argv = ['zeroplan', *{words!r}]; from zeroplan.__main__ import main; main()"


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def terminal(monkeypatch):
    """In place of standard error, from within the test: pytest puts its own there between a fixture and the test."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    return stream


def until(condition):
    for _attempt in range(200):
        if condition():
            return True
        time.sleep(0.02)
    return False


def test_a_command_that_lasts_says_what_it_is_at(monkeypatch):
    shown = terminal(monkeypatch)
    monkeypatch.setattr(progress, "DELAY", 0.01)
    with progress.watched("recommend"):
        progress.part("h100-80gb", 2, 3)
        progress.tell("trying 64 GPUs")
        assert until(lambda: "recommend, h100-80gb (2 of 3), trying 64 GPUs" in shown.getvalue())
        progress.tell("trying 128 GPUs")
        assert until(lambda: "trying 128 GPUs" in shown.getvalue())
    assert shown.getvalue().endswith("\x1b[2K")  # the line is erased
    written = shown.getvalue()
    time.sleep(0.3)
    assert shown.getvalue() == written


def test_a_quick_command_shows_nothing(monkeypatch):
    shown = terminal(monkeypatch)
    with progress.watched("estimate"):
        progress.tell("something")
    time.sleep(0.1)
    assert shown.getvalue() == ""


def test_an_error_ends_it(monkeypatch):
    shown = terminal(monkeypatch)
    monkeypatch.setattr(progress, "DELAY", 0.01)
    def fail():
        with progress.watched("recommend"):
            assert until(shown.getvalue)
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    assert shown.getvalue().endswith("\x1b[2K")
    progress.tell("nobody watches")


def on_a_terminal(words, delay):
    """Standard error is a terminal's, standard output a file."""
    leader, follower = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    command = [sys.executable, "-c", PATIENCE.format(delay=delay, words=list(words))]
    with TemporaryFile() as out, subprocess.Popen(command, stdout=out, stderr=follower, env=environment) as ran:
        os.close(follower)
        shown = b""
        while True:
            try:
                piece = os.read(leader, 4096)
            except OSError:
                break
            if not piece:
                break
            shown += piece
        os.close(leader)
        ran.wait(60)
        out.seek(0)
        return out.read().decode(), shown.decode()


def test_in_a_real_process_output_is_the_same_with_and_without():
    out, shown = on_a_terminal((*LONG, "--json"), 0.05)
    assert "recommend, " in shown
    assert "of 3)" in shown
    piped = subprocess.run([sys.executable, "-m", "zeroplan", *LONG, "--json"], capture_output=True, text=True, check=True)
    assert piped.stderr == ""
    assert piped.stdout == out


@pytest.mark.parametrize(
    "words",
    [
        ("matrix", "--params", "1.3B,7B,13B", "--gpus", "8"),
        ("compare", "--params", "1.3B", "--gpu-mem", "80", "--gpus", "1,2,4,8"),
        ("recommend", "--max-params", "--gpus", "2", "--gpu-mem", "24", "--stage", "1", "--micro-batch", "1"),
        ("recommend", "--params", "350M", "--gpu-mem", "24", "--gpus", "auto", "--why", "offload"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_each_long_command_has_one(words):
    _out, shown = on_a_terminal(words, 0.0)
    assert words[0] in shown


def test_nothing_is_imported_before_a_second_has_passed():
    code = (
        "import sys; sys.stderr.isatty = lambda: True; sys.argv = ['zeroplan', 'estimate', '--params', '7B', '--json']\n"
        "from zeroplan.__main__ import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "assert not {'rich.progress', 'zeroplan.report.progress'} & set(sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert ran.stderr == ""
