"""`zeroplan ask`: five questions, and the command that their answers make."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import click

from zeroplan.cli.positional import with_model
from zeroplan.errors import QuantityError, SpecError, UnknownNameError, ZeroplanError, printable, shown
from zeroplan.request.cluster import read_cluster
from zeroplan.request.options import Options
from zeroplan.request.request import read_model, usual_seq
from zeroplan.request.values import AUTO

LONGEST = 1000
"""Letters of an answer."""
TRAINS: dict[str, list[str]] = {
    "full": [], "lora": ["--lora", "16"], "qlora": ["--lora", "16", "--quantize", "nf4", "--double-quant", "yes"],
    "compare": ["--method", "full,lora,qlora"],
}  # fmt: skip
"""What an answer adds to the command."""
Answer = TypeVar("Answer")


def run() -> int:
    """Ask, print the command, run it; its exit code."""
    words = command()
    click.echo(f"$ {shlex.join(['zeroplan', *words])}\n")
    from zeroplan.cli.app import app

    return int(app.main(words, "zeroplan", standalone_mode=False) or 0)


def command() -> list[str]:
    """The words of the command that was asked for. Raises `ZeroplanError` for an answer from a pipe that is none."""
    model, seq = prompt("Model, or its size (llama-3.1-8b, org/name, config.json, 7B)", "7B", _model)
    card = prompt("Card, or its memory in GB (h100, 4090, 24)", "a100-80gb", _card)
    gpus = prompt("How many GPUs (8, 2x8 for nodes x GPUs, auto for the fewest)", "8", lambda text: _gpus(text, card))
    ways = "What trains (full, lora, qlora, or compare for all three)"
    trains = prompt(ways, "full", lambda text: _trains(text, gpus))
    tokens = prompt("Tokens of a sequence", str(seq), _tokens)
    return ["recommend", model, *card, "--gpus", gpus, *trains, "--seq", tokens]


def prompt(question: str, usual: str, read: Callable[[str], Answer]) -> Answer:
    """What was answered, as `read` has it. On a terminal a bad answer is asked for again."""
    terminal = sys.stdin is not None and sys.stdin.isatty()
    while True:
        sys.stderr.write(f"{question} [{usual}]: ")
        sys.stderr.flush()
        line = _line(question)
        if not terminal:
            sys.stderr.write(f"{printable(line.strip()) or usual}\n")
        try:
            return read(line.strip() or usual)
        except ZeroplanError as error:
            if not terminal:
                raise
            sys.stderr.write(f"{error}\n")


def _line(question: str) -> str:
    try:
        line = sys.stdin.readline(LONGEST) if sys.stdin is not None else ""
    except UnicodeDecodeError as error:
        raise SpecError("standard input", "bytes that are not UTF-8", "an answer") from error
    if not line:
        sys.stderr.write("\n")
        expected = "five lines, of which an empty one is the usual answer"
        raise SpecError("standard input", f"its end at the question {shown(question.partition(' (')[0])}", expected)
    return line


def _model(text: str) -> tuple[str, int]:
    """The word that names the model, and its usual sequence."""
    model, _assumed = read_model(Options(**with_model({}, text)), None)
    return text, usual_seq(model)


def _card(text: str) -> list[str]:
    """The option that names a card, with its value: of a number that is no card, its memory."""
    card, memory = ["--gpu", text], ["--gpu-mem", text]
    if text[0].isdigit():
        with suppress(UnknownNameError):
            read_cluster(Options(gpu=text), 1)
            return card
        read_cluster(Options(gpu_mem=text), 1)
        return memory
    read_cluster(Options(gpu=text), 1)
    return card


def _gpus(text: str, card: list[str]) -> str:
    if text != AUTO:
        option, value = card
        stated: dict[str, Any] = {"gpus": text, option[2:].replace("-", "_"): value}
        read_cluster(Options(**stated), 1)
    return text


def _trains(text: str, gpus: str) -> list[str]:
    answer = text.lower()
    if answer not in TRAINS:
        raise QuantityError(f"found {shown(text)}, expected {', '.join(TRAINS)}; write full")
    if answer == "compare" and gpus == AUTO:
        raise QuantityError("found compare with a number of GPUs that is looked for; write full, lora or qlora")
    return TRAINS[answer]


def _tokens(text: str) -> str:
    Options(seq=text)
    return text
