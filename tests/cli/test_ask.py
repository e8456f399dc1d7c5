"""`zeroplan ask`: five questions, the command that they make, and its answer."""

from __future__ import annotations

import io
import os
import pty
import re
import select
import subprocess
import sys
import time

import pytest

ALL_USUAL = "\n" * 5


@pytest.fixture
def asked(zeroplan, monkeypatch):
    def run(text: str):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf-8"))
        return zeroplan("ask")

    return run


def command(out: str) -> str:
    first = out.splitlines()[0]
    assert first.startswith("$ zeroplan ")
    return first.removeprefix("$ zeroplan ")


@pytest.mark.parametrize(
    ("answers", "made"),
    [
        (ALL_USUAL, "recommend 7B --gpu a100-80gb --gpus 8 --seq 2048"),
        ("llama-3.2-1b\nh100\n2\nfull\n4096\n", "recommend llama-3.2-1b --gpu h100 --gpus 2 --seq 4096"),
        ("gpt2\n24\n2\n\n\n", "recommend gpt2 --gpu-mem 24 --gpus 2 --seq 1024"),  # GPT-2 has 1,024 positions
        ("gpt2\n4090\nauto\nFULL\n512\n", "recommend gpt2 --gpu 4090 --gpus auto --seq 512"),
        ("qwen2.5 0.5b\nRTX 4090\n1x2\n\n\n", "recommend 'qwen2.5 0.5b' --gpu 'RTX 4090' --gpus 1x2 --seq 2048"),
    ],
)
def test_the_answers_make_a_command(asked, answers, made):
    ran = asked(answers)
    assert ran.code == 0, ran.err
    assert command(ran.out) == made


def test_its_answer_is_that_of_the_command(asked, zeroplan):
    ran = asked("gpt2\nt4\n2\n\n512\n")
    assert ran.out.partition("\n\n")[2] == zeroplan(*command(ran.out).split()).out


def test_five_questions_each_with_its_usual_answer(asked):
    err = asked(ALL_USUAL).err
    assert re.findall(r"\[([^]]+)\]: ", err) == ["7B", "a100-80gb", "8", "full", "2048"]


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ("nope\n", "unknown model 'nope'"), ("7Gb\n", "'7Gb'"), ("\nrtx-9090\n", "'rtx-9090'"), ("\n81\n", "81"),
        ("\n\n0\n", "'0'"), ("\n\n12\n", "--gpus 2x6"), ("\n\n\ndora\n", "'dora'"), ("\n\nauto\ncompare\n", "write full, lora or qlora"),
        ("\n\n\nhalf\n", "'half'"), ("\n\n\n\n2k\n", "'2k'"), ("", "its end at the question 'Model"), ("\n\n", "its end at the question 'How many GPUs'"),
        ("\x1b[31m\n", "unknown model"),
    ],
)  # fmt: skip
def test_from_a_pipe_a_bad_answer_ends_it(asked, answers, said):
    ran = asked(answers)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.splitlines()[-1].startswith("zeroplan: ")
    assert said in ran.err
    assert "\x1b" not in ran.err


def test_bytes_that_are_no_text_and_no_input_at_all(zeroplan, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff\n"), encoding="utf-8"))
    assert "not UTF-8" in zeroplan("ask").err
    monkeypatch.setattr(sys, "stdin", None)
    assert zeroplan("ask").code == 2


ON_A_TERMINAL = """
import fcntl, runpy, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
sys.argv = ["zeroplan", "ask"]
runpy.run_module("zeroplan", run_name="__main__", alter_sys=True)
"""


def conversation(*lines: bytes) -> tuple[int, str]:
    """On a terminal: each line is typed at the next prompt."""
    mine, theirs = pty.openpty()
    command = [sys.executable, "-c", ON_A_TERMINAL]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
    os.close(theirs)
    seen, left, deadline = b"", list(lines), time.monotonic() + 30
    while time.monotonic() < deadline:
        if not select.select([mine], [], [], 0.2)[0]:
            if process.poll() is not None:
                break
            continue
        try:
            new = os.read(mine, 4096)
        except OSError:  # the other end is closed
            break
        if not new:
            break
        seen += new
        if seen.endswith(b"]: ") and left:
            os.write(mine, left.pop(0))
    code = process.wait(30)  # a terminal that goes away first hangs up
    os.close(mine)
    return code, seen.decode()


def test_on_a_terminal_a_bad_answer_is_asked_again():
    code, seen = conversation(b"nope\n", b"gpt2\n", b"t4\n", b"2\n", b"dora\n", b"\n", b"512\n")
    assert code == 0
    assert seen.count("Model, or its size") == 2
    assert "unknown model 'nope'" in seen
    assert "found 'dora', expected full, lora, qlora, compare" in seen
    assert "$ zeroplan recommend gpt2 --gpu t4 --gpus 2 --seq 512" in seen


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("lora", "--lora 16"), ("QLoRA", "--lora 16 --quantize nf4 --double-quant yes"), ("compare", "--method full,lora,qlora"),
    ],
)  # fmt: skip
def test_what_trains_is_written_as_options(asked, answer, words):
    ran = asked(f"gpt2\nrtx-4090\n1\n{answer}\n512\n")
    assert ran.code == 0
    assert f"$ zeroplan recommend gpt2 --gpu rtx-4090 --gpus 1 {words} --seq 512" in ran.out


@pytest.mark.parametrize(("typed", "code", "said"), [(b"\x03", 130, "zeroplan: interrupted"), (b"\x04", 2, "its end at the question")])
def test_ctrl_c_and_the_end_of_input(typed, code, said):
    ended, seen = conversation(b"gpt2\n", typed)
    assert ended == code
    assert seen.count("zeroplan: ") == 1
    assert said in seen
    assert "Traceback" not in seen
