"""What the shell itself stops at in the text of a script, or takes otherwise than it was meant."""

from __future__ import annotations

import re
from collections.abc import Iterator

from zeroplan.check.finding import ERROR, WARNING, Hit, named
from zeroplan.check.rule import Example, Rule
from zeroplan.check.shell_words import raw_commands

PLACEHOLDER = re.compile(
    r"^[ \t]*(?:(?:export[ \t]+)?\w+=<(?P<set>[A-Za-z][\w .-]*)>\S*"
    r"|[^#'\"\n]*--[\w-]+(?:=|[ \t]+)<(?P<given>[A-Za-z][\w ./-]*)>)[ \t]*(?:\\|#[^\n]*)?$",
    re.MULTILINE,
)
"""Behind a variable, or behind an option at the end of a line."""
LINE = 200
"""Letters before a command in which a bracket that it stands in may open."""
VARIABLE = re.compile(r"[A-Za-z_]\w*")
CLOSES = {"if": "fi", "case": "esac", "for": "done", "while": "done", "until": "done", "select": "done"}
"""Words that open a compound command, and what closes it."""
BEFORE = ("then", "else", "elif", "do", "!", "{", "time")
"""Words in front of another that opens or closes one."""

RULES: tuple[Rule, ...] = (
    Rule(
        "ZP841", ERROR, "A placeholder in angle brackets", "run in bash 5: syntax error, No such file or directory",
        Example("deepspeed --num_gpus 8 train.py --deepspeed ds.json --model <path to a model>\n", file="run.sh"),
        Example("deepspeed --num_gpus 8 train.py --deepspeed ds.json --model models/llama\n", file="run.sh"),
        "https://www.gnu.org/software/bash/manual/html_node/Redirections.html",
    ),
    Rule(
        "ZP842", ERROR, "Line ends of Windows in a script", "run in bash 5: command not found",
        Example("deepspeed train.py --deepspeed ds.json \\\r\n  --lr 1e-5\r\n", file="run.sh"),
        Example("deepspeed train.py --deepspeed ds.json \\\n  --lr 1e-5\n", file="run.sh"),
        "https://www.gnu.org/software/bash/manual/html_node/Shell-Syntax.html",
    ),
    Rule(
        "ZP849", ERROR, "Blanks around the sign that sets a variable", "run in bash 5: command not found",
        Example('MORE = "--bf16"\ndeepspeed train.py --deepspeed ds.json $MORE\n', file="run.sh"),
        Example('MORE="--bf16"\ndeepspeed train.py --deepspeed ds.json $MORE\n', file="run.sh"),
        "https://www.gnu.org/software/bash/manual/html_node/Shell-Parameters.html",
    ),
    Rule(
        "ZP853", ERROR, "A word that closes what is not open", "run in bash 5: syntax error near unexpected token",
        Example("if [ -d out ]; then\n  deepspeed train.py --deepspeed ds.json\ndone\n", file="run.sh"),
        Example("if [ -d out ]; then\n  deepspeed train.py --deepspeed ds.json\nfi\n", file="run.sh"),
        "https://www.gnu.org/software/bash/manual/html_node/Compound-Commands.html",
    ),
)  # fmt: skip


def line_ends(text: str) -> Iterator[Hit]:
    """The carriage return is a part of the last word of each line, and behind a backslash ends the command."""
    at = text.find("\r\n")
    if at >= 0:
        what = "line ends of Windows: the shell takes the carriage return for a part of the word before it"
        yield Hit("ZP842", (), what, "line ends of Unix (dos2unix, or sed -i 's/\\r$//')", offset=max(0, at - 1))


def apart(text: str) -> Iterator[Hit]:
    """`NAME = value` runs a command NAME: nothing is set."""
    for raws in raw_commands(text) if " = " in text else ():
        several = [text[raw.start : raw.end] for raw in raws[:3]]
        before = text[max(0, raws[0].start - LINE) : raws[0].start]
        is_sum = any(before.rfind(opens) > before.rfind(closes) for opens, closes in (("((", "))"), ("[[", "]]")))
        if len(several) > 2 and VARIABLE.fullmatch(several[0]) and several[1] == "=" and not is_sum:
            name = named(several[0])
            is_used = re.search(rf"\$\{{?{several[0]}\b", text) is not None
            yield Hit("ZP849", (), f"{name} = ... with blanks around = runs a command {name}, and sets nothing",
                      f"{name}=...", ERROR if is_used else WARNING, raws[0].start)  # fmt: skip


def placeholders(text: str) -> Iterator[Hit]:
    """What a writer left for others to fill in: the shell reads from a file of that name, and writes to the next."""
    matches = list(PLACEHOLDER.finditer(text))
    raws = [raw for several in raw_commands(text) for raw in several] if matches else []
    texts = [(raw.start, raw.end) for raw in raws if raw.is_here or "\n" in text[raw.start : raw.end]]
    for match in matches:
        group = match.lastgroup or ""
        if any(start <= match.start(group) < end for start, end in texts):
            continue  # in a here-document, or a text of several lines
        what = f"<{named(match[group])}> is to be replaced: the shell takes it for a file to read from, and stops"
        yield Hit("ZP841", (), what, "what it stands for", offset=match.start(group) - 1)


def closed_otherwise(text: str) -> Iterator[Hit]:
    """The first `done`, `fi` or `esac` that closes nothing: a compound command that it stands in never begins."""
    open_ones: list[str] = []
    for raws in raw_commands(text):
        for raw in raws:
            word = text[raw.start : raw.end]
            if word in CLOSES:
                open_ones.append(CLOSES[word])
            elif word in CLOSES.values() and word in open_ones[-1:]:
                open_ones.pop()
            elif word in CLOSES.values():
                what = f"{word} closes nothing here{f', {open_ones[-1]} is due' if open_ones else ''}: the shell stops"
                severity = "" if open_ones else WARNING
                yield Hit("ZP853", (), what, "delete it, or write what it closes", severity, raw.start)
                return
            if word not in BEFORE:
                break


TEXT_CHECKS = (line_ends, placeholders, apart, closed_otherwise)
CHECKS = ()
"""None that asks a ds_config."""
