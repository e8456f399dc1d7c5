"""Commands of a shell script, each word with its place: enough of bash for scripts that start a training run.

Variables that the script itself sets are put in; what else a shell would put in (an argument, the output of most
commands, the environment) leaves a word unknown, and so does a variable to which a condition or a loop gives another
value. Nothing runs, and of loops and conditions each command is seen once.
"""

from __future__ import annotations

import posixpath
import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from zeroplan.check.shell_variables import LONGEST, UNKNOWN, Variables, Word, word_of
from zeroplan.check.shell_words import RawWord, raw_commands, raw_words

ASSIGNED = re.compile(r"(\w+)(\+?)=")
COUNTED = re.compile(r"(\w+)(?:[-+*/%]=|\+\+|--)")
"""What stands in ((N/=2))."""
SETTING = ("read", "unset", "mapfile", "readarray", "let", "for", "select")
"""Commands after which a variable that they name is not known."""
OPENS, CLOSES = re.compile(r"(?:^|[;&|]\s*)(?:if|case|for|while|until)\b"), re.compile(r"(?:^|[;\s])(?:fi|esac|done)\b")
MAYBE = re.compile(r"&&|\|\|")
SCRIPTS = (".sh", ".bash", ".slurm", ".sbatch", ".sub", ".job", ".pbs")
"""How scripts of a shell are called."""
SHELLS, OF_A_TEXT = ("bash", "sh", "zsh"), re.compile("-[a-z]*c")
"""Shells, and the options behind which they are given a text to run."""
OF_TEXTS = ("ssh", "tmux", "screen", "pdsh", "eval")
"""Commands that run a text which is one of their words."""
CUT = re.compile(
    r"[ \t]*(?:\\(?:[ \t]+\r?\n|\r?\n(?=[ \t]*(?:#|\r?\n)))(?:[ \t]*(?:#[^\n]*)?\r?\n)*[ \t]*(--?[A-Za-z]\S*|\S+\.py)"
    r"|(?:#[^\n]*)?\r?\n[ \t]*(--[A-Za-z]\S*))"
)
"""How what was meant for a command goes on behind its end."""
DEEPEST = 3
"""Files that read one another."""
MOST_VALUES = 12
"""Values of one variable that are told apart."""
MOST_WORDS = 50_000
"""Words of a script that are looked at."""
READS, APPENDS = ("<", "0<"), (">>", "1>>", "&>>")
WRITES = (">", "1>", "&>", *APPENDS)
"""Marks of the files that a command reads and writes; 2> has its errors."""
PREFIXES = ("export", "local", "exec", "time", "nohup", "then", "do", "else", "if", "!")
"""Words in front of a command."""


class Command(NamedTuple):
    """One command of a script."""

    words: list[Word]
    environment: Mapping[str, str | None]
    """Variables that it is started with, of those that are asked for: None where the value is not known."""
    folder: str = ""
    """Where it is started, seen from where the script is."""
    exported: Mapping[str, str] = MappingProxyType({})
    """Variables that a shell which it starts has, where they are known."""
    here: Word | None = None
    """What it reads of a here-document."""
    reads: Word | None = None
    """The file that it reads behind <."""
    writes: Word | None = None
    """The file that it writes behind > or >>."""
    appends: bool = False


def commands(
    text: str, stated: Mapping[str, str] | None = None, watched: Collection[str] = (),
    read: Callable[[str], str | None] = lambda _name: None, handed: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Command]:  # fmt: skip
    """Each command that is no assignment. `stated`: variables that are set before; `watched`: those whose values a
    command is to be given with; `read`: the text of a file whose variables `source` sets; `handed`: what the script
    that starts this one hands on.
    """
    variables = Variables({**(stated or {}), **handed})
    variables.exported |= dict.fromkeys(handed)
    yield from _commands(variables, text, watched, read, 0)


def _commands(
    variables: Variables, text: str, watched: Collection[str], read: Callable[[str], str | None], depth: int
) -> Iterator[Command]:  # fmt: skip
    room, maybe = MOST_WORDS, _conditional(text)
    for raws in raw_commands(text):
        at = bisect_right(maybe, (raws[0][0], len(text))) - 1  # spans follow one another
        is_conditional = at >= 0 and raws[0][0] < maybe[at][1]
        here = next((_here(variables, text, raw) for raw in raws if raw.is_here), None)
        own = [raw for raw in raws if not raw.redirected]
        words, before, exports = _read(variables, text, own, room, is_conditional)
        room -= len(words)
        if room < 0:
            return
        if words and words[0].text in SETTING:
            _set(variables, words, here)
        elif words and COUNTED.match(words[0].text or ""):
            variables.forget(words[:1])
        elif words and words[0].text in ("cd", "pushd"):
            variables.enter(words[1:])
        elif words[1:] and words[0].text in ("source", ".") and words[1].text and depth < DEEPEST:
            for _command in _commands(variables, read(words[1].text) or "", (), read, depth + 1):
                pass  # its variables stay
        if words:
            exported = variables.exports(before) if any(map(_is_of_a_shell, words)) else {}
            yield Command(
                words, variables.environment(watched, before), variables.folder, exported, here,
                _redirected(variables, text, raws, READS), _redirected(variables, text, raws, WRITES),
                any(raw.redirected in APPENDS for raw in raws),
            )  # fmt: skip
        if exports:
            names = [*before, *(word.text for word in words if word.text)]
            variables.exported |= dict.fromkeys(names)


def _is_of_a_shell(word: Word) -> bool:
    return word.text in SHELLS or word.pieces.endswith(SCRIPTS)


def _set(variables: Variables, words: Sequence[Word], here: Word | None) -> None:
    """What a command that sets variables leaves known: of `read -r -d '' NAME <<EOF` the here-document."""
    name = words[0].text
    if name == "read" and here is not None and any(word.text == "-d" for word in words):
        variables.forget(words[1:])
        if words[-1].text:
            variables.values[words[-1].text] = [here]
        return
    variables.forget(words[1:] if name in ("read", "unset", "mapfile", "readarray") else words[1:2])


def inner_commands(command: Command, watched: Collection[str]) -> Iterator[Command]:
    """The commands of a text that another shell is given: srun bash -c "torchrun ...", each at its place."""
    here = [command.here] if command.here is not None and _reads_commands(command.words) else []
    for word in (*here, *_texts(command.words)):
        for one in commands(word.pieces, command.exported, watched):
            placed = [each._replace(start=word.start, end=word.end) for each in one.words]
            folder = posixpath.join(command.folder, one.folder)
            yield Command(placed, {**command.environment, **one.environment}, folder)


def _reads_commands(words: Sequence[Word]) -> bool:
    """Whether it runs what it reads."""
    named = [(word.text or "").rpartition("/")[2] for word in words]
    return any(name in (*SHELLS, "ssh", "sbatch") for name in named[:2])


def _texts(words: Sequence[Word]) -> Iterator[Word]:
    """What follows `bash -c`, and of `ssh`, `tmux` and the like each word that has several in it."""
    named = [(word.text or "").rpartition("/")[2] for word in words]
    if any(name in OF_TEXTS for name in named[:2]):
        yield from (word for word in words if " " in word.pieces)
        return
    for name, option, word in zip(named, words[1:], words[2:], strict=False):
        if name in SHELLS and OF_A_TEXT.fullmatch(option.text or "") and word.pieces:
            yield word


def cut_off(text: str, command: Command) -> str:
    """The option that was meant for a command, and stands behind a blank, a comment or an empty line that ends it; ""
    where none does.
    """
    last = command.words[-1]
    match = CUT.match(text, last.start if (last.text or "").isspace() else last.end)
    return match[1] or match[2] if match else ""


def _conditional(text: str) -> list[tuple[int, int]]:
    """Lines in conditions and loops, and those behind && and ||."""
    spans, depth, at = list[tuple[int, int]](), 0, 0
    for line in text.splitlines(keepends=True):
        plain = line.strip()
        opened = len(OPENS.findall(plain))
        first = MAYBE.search(line)
        if depth or opened:
            spans.append((at, at + len(line)))
        elif first is not None:
            spans.append((at + first.start(), at + len(line)))
        depth = max(0, depth + opened - len(CLOSES.findall(plain)))
        at += len(line)
    return spans


def _read(
    variables: Variables, text: str, raws: list[RawWord], most: int, is_conditional: bool
) -> tuple[list[Word], list[str], bool]:  # fmt: skip
    """A command's words until there are more than `most`, the variables that are assigned in front of them, and whether
    it exports.
    """
    words, before, exports = list[Word](), list[str](), False
    for start, end, is_quoted, is_here, _redirected in raws:
        if len(words) > most:
            break
        if is_here:
            continue
        whole = text[start:end]
        assigned = ASSIGNED.match(whole)
        if assigned and not words:
            _assign(variables, assigned, text, start, end, is_conditional)
            before.append(assigned[1])
        elif not is_quoted and (several := variables.split(whole)) is not None:
            words += [each._replace(start=start, end=end) for each in _apart(several)]
        elif whole.startswith('"') and (several := variables.split(whole[1:-1])) is not None and "[" in whole:
            words += [each._replace(start=start, end=end) for each in several]
        elif not words and whole in PREFIXES:
            exports = exports or whole == "export"
        else:
            words.append(variables.word(text, start, end))
    return words, before, exports


def _redirected(variables: Variables, text: str, raws: list[RawWord], marks: Collection[str]) -> Word | None:
    """The file behind the last of these marks."""
    named = [raw for raw in raws if raw.redirected in marks]
    return variables.word(text, named[-1].start, named[-1].end) if named else None


def _here(variables: Variables, text: str, raw: RawWord) -> Word:
    """A here-document, as in double quotes where its mark has none."""
    content = text[raw.start : raw.end]
    if raw.is_quoted:
        return Word(content, raw.start, raw.end)
    return variables.quoted(content, raw.start, raw.end)


def _assign(
    variables: Variables, assigned: re.Match[str], text: str, start: int, end: int, is_conditional: bool
) -> None:  # fmt: skip
    """A value, or a list in brackets, which is set as words; behind += more of either. In a condition another value
    than before is not known.
    """
    name, start = assigned[1], start + assigned.end()
    before = variables.values.get(name)
    if text[start : start + 1] == "(":
        inner = list(raw_words(text[start + 1 : end - 1], in_list=True))
        several = [variables.word(text, start + 1 + raw.start, start + 1 + raw.end) for raw in inner if raw]
        value = [*(before or ()), *several][:LONGEST] if assigned[2] else several[:LONGEST]
    else:
        value = [variables.word(text, start, end)]
        if assigned[2] and before:
            value = [*before[:-1], word_of(before[-1].pieces + value[0].pieces, start, end)]
    if is_conditional and before is not None and [word.text for word in before] != [word.text for word in value]:
        value = _either(before, value)
    variables.values[name] = value


def _either(before: list[Word], after: list[Word]) -> list[Word]:
    """What a variable is known to be where a condition decides between two values: what both begin with, or that it is
    one of them.
    """
    old, new = (" ".join(word.pieces for word in several) for several in (before, after))
    if not old or not new.startswith(old):
        return [Word(None, 0, 0, either=_values(before, after))]
    if len(after) > 1:
        return [*before, Word(None, 0, 0)]
    return [word_of(old + (" " if new[len(old)].isspace() else "") + UNKNOWN, 0, 0)]


def _values(before: list[Word], after: list[Word]) -> tuple[str, ...]:
    """All that a variable may be by the lines so far, where each value is one word."""
    if len(before) != 1 or len(after) != 1:
        return ()
    old, new = (one.either or (() if one.text is None else (one.text,)) for one in (*before, *after))
    several = dict.fromkeys((*old, *new))
    return tuple(several) if old and new and len(several) <= MOST_VALUES else ()


def _apart(words: list[Word]) -> Iterator[Word]:
    """As the shell splits what is in no quotes."""
    for word in words:
        if word.either:
            yield word
            continue
        yield from (word_of(part, word.start, word.end) for part in word.pieces.split())
