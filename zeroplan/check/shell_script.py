"""What a shell script does with its variables, command by command: assignments, conditions, loops, functions, the files
that it sources.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property, partial
from types import MappingProxyType
from typing import NamedTuple

from zeroplan.check.shell_conditions import Branches, holds
from zeroplan.check.shell_functions import Function, functions, handed_on
from zeroplan.check.shell_output import is_number
from zeroplan.check.shell_variables import LONGEST, NAME, SEPARATOR, UNKNOWN, State, Variables, Word, word_of
from zeroplan.check.shell_words import RawWord, raw_commands, raw_words

ASSIGNED = re.compile(r"(\w+)(\+?)=")
COUNTED = re.compile(r"(\w+)(?:[-+*/%]=|\+\+|--)")
"""What stands in ((N/=2))."""
SETTING = ("read", "unset", "mapfile", "readarray", "let", "for", "select")
"""Commands after which a variable that they name is not known, but for what a loop goes through."""
OPENS, CLOSES = re.compile(r"(?:^|[;&|]\s*)(?:if|case|for|while|until)\b"), re.compile(r"(?:^|[;\s])(?:fi|esac|done)\b")
MAYBE = re.compile(r"&&|\|\|")
SCRIPTS = (".sh", ".bash", ".slurm", ".sbatch", ".sub", ".job", ".pbs")
"""How scripts of a shell are called."""
SHELLS = ("bash", "sh", "zsh")
DEEPEST = 3
"""Files that read one another, and functions that call one another."""
MOST_VALUES = 12
"""Values of one variable that are told apart."""
MOST_WORDS, MOST_CALLS = 50_000, 300
"""Words of a script that are looked at, and calls of its functions."""
ASSIGNS = re.compile(r"(?<![\w$])([A-Za-z_]\w*)(?:(?:\+|:)?=|\+\+|--)")
AT_BEGINNING = re.compile(r"^(?:export[ \t]+|readonly[ \t]+)?([A-Za-z_]\w*)=", re.MULTILINE)
TAKES = re.compile(r"\b(?:read|for|select|unset|printf|mapfile|readarray|getopts|let)\b[^\n;]*")
"""Commands that set variables which they name."""
OPAQUE = re.compile(r"\beval\b|(?:^|[;&|])[ \t]*(?:source|\.)[ \t]+", re.MULTILINE)
"""What may set any."""
MOVES, POSITIONAL = re.compile(r"\bshift\b|\bset[ \t]+--"), {*map(str, range(1, 100)), "#", "@", "*"}
CONDITIONS = ("if", "elif")
DECLARES = ("export", "local", "declare", "typeset", "readonly")
PREFIXES = (*DECLARES, "exec", "time", "nohup", "then", "do", "else", "if", "elif", "!", "{")
"""Words in front of a command."""
READS, APPENDS = ("<", "0<"), (">>", "1>>", "&>>")
WRITES = (">", "1>", "&>", *APPENDS)
"""Marks of the files that a command reads and writes; 2> has its errors."""
IS_LIST = re.compile(r'"\$(?:@|\{@|\{\w+\[)')
"""How each word of a list is put in as one."""
PATTERN = frozenset("*?[{")
"""Letters of a word that stands for several."""


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
    is_conditional: bool = False
    """Whether it is in a condition or a loop."""
    is_left_out: bool = False
    """Whether it is in a branch that the script's own variables do not take."""


class ShellScript:
    """A script with what it has set so far."""

    def __init__(
        self, variables: Variables, text: str, watched: Collection[str] = (),
        read: Callable[[str], str | None] = lambda _name: None, depth: int = 0,
    ) -> None:  # fmt: skip
        self._variables, self._text, self._watched, self._read, self._depth = variables, text, watched, read, depth
        self._spans = _conditional(text)
        self._functions = functions(text)
        self._named = {one.name: one for one in self._functions}
        self._handed = frozenset(variables.values)
        """Names that are set before its first line."""
        self._is_maybe = False
        """Whether the function that runs may not be called."""
        self._room, self._calls = MOST_WORDS, MOST_CALLS

    def commands(self) -> Iterator[Command]:
        """Each command that is no assignment, those of a function where it is called."""
        yield from self._part(0, len(self._text), self._depth)

    def _part(self, start: int, end: int, depth: int) -> Iterator[Command]:
        called, branches, before = set[str](), Branches(), None
        within = [one for one in self._functions if start <= one.start < end]
        starts = [one.start for one in within]
        for raws in raw_commands(self._text, start, end):
            at = bisect_right(starts, raws[0].start) - 1
            if at >= 0 and raws[0].start < within[at].end:
                continue
            keyword, is_left_out = self._text[raws[0].start : raws[0].end], branches.is_left_out
            branches.follow(keyword, partial(self._holds, raws))
            if keyword not in CONDITIONS:
                is_left_out = branches.is_left_out
            before = self._entered(before, is_left_out=is_left_out)
            command = self._command(raws)
            if self._room < 0:
                return
            if command is not None:
                yield command._replace(is_left_out=is_left_out)
                function = self._named.get(command.words[0].text or "")
                if function is not None:
                    called.add(function.name)
                    yield from () if is_left_out else self._called(function, command, raws, depth)
        self._entered(before, is_left_out=False)
        for function in within if self._depth == 0 else ():
            self._calls -= function.name not in called
            if function.name not in called and self._calls >= 0:
                state = self._variables.state()
                yield from self._part(function.body, function.end, DEEPEST)
                self._variables.restore(state)

    def _entered(self, before: State | None, *, is_left_out: bool) -> State | None:
        """The variables as they were before a branch that is left out, and set to that behind it."""
        if is_left_out:
            return self._variables.state() if before is None else before
        if before is not None:
            self._variables.restore(before)
        return None

    def _called(self, function: Function, command: Command, raws: list[RawWord], depth: int) -> Iterator[Command]:
        """The commands of a function, with what a call hands on to it."""
        self._calls -= 1
        if depth >= DEEPEST or self._calls < 0:
            return
        is_maybe, self._is_maybe = self._is_maybe, command.is_conditional
        with handed_on(self._variables, command.words[1:], self._text[raws[0].end : raws[-1].end]):
            yield from self._part(function.body, function.end, depth + 1)
        self._is_maybe = is_maybe

    def _holds(self, raws: Sequence[RawWord]) -> bool | None:
        """Whether a condition does, by what the script's own lines alone decide: variables that one line sets, at its
        beginning, and arguments that nothing moves.
        """
        variables, text, words = self._variables, self._text, raws[1:]
        names = {match[1] or (match[2] or "") for raw in words for match in NAME.finditer(text, raw.start, raw.end)}
        if not names <= self._decided or any(variables.is_open(text, raw.start, raw.end) for raw in words):
            return None
        return holds([variables.word(text, raw.start, raw.end).text for raw in words])

    @cached_property
    def _decided(self) -> set[str]:
        """Names of variables whose values no condition, loop, function or other file changes."""
        text = self._text
        if OPAQUE.search(text):
            return set()
        counted = Counter(match[1] for match in ASSIGNS.finditer(text))
        taken = {name for match in TAKES.finditer(text) for name in re.findall(r"\w+", match[0])}
        lines = {name for name in AT_BEGINNING.findall(text) if counted[name] == 1}
        handed = {name for name in self._handed if not counted[name]}
        return (lines | handed) - taken - (POSITIONAL if MOVES.search(text) else set())

    def _command(self, raws: list[RawWord]) -> Command | None:
        """What these words do; None where they only set variables."""
        variables = self._variables
        here = next((self._here(raw) for raw in raws if raw.is_here), None)
        own = [raw for raw in raws if not raw.redirected]
        is_conditional = self._is_maybe or self._is_conditional(raws[0].start)
        words, before, exports = self._words(own, is_conditional=is_conditional)
        self._room -= len(raws)
        command = None
        if words and self._room >= 0:
            self._follow(words, here, is_conditional=is_conditional)
            exported = variables.exports(before) if any(map(_is_of_a_shell, words)) else {}
            command = Command(
                words, variables.environment(self._watched, before), variables.folder, exported, here,
                self._redirected(raws, READS), self._redirected(raws, WRITES),
                any(raw.redirected in APPENDS for raw in raws), is_conditional,
            )  # fmt: skip
        if exports:
            names = [*before, *(word.text for word in words if word.text)]
            variables.exported |= dict.fromkeys(names)
        return command

    def _is_conditional(self, start: int) -> bool:
        """Whether a place is in a condition or a loop."""
        at = bisect_right(self._spans, (start, len(self._text))) - 1  # they follow one another
        return at >= 0 and start < self._spans[at][1]

    def _follow(self, words: Sequence[Word], here: Word | None, *, is_conditional: bool) -> None:
        """What a command changes of the variables and the folder."""
        variables, name = self._variables, words[0].text or ""
        if name in SETTING:
            _set(variables, words, here)
        elif COUNTED.match(name):
            variables.forget(words[:1])
        elif name == "shift":
            count = (words[1].text if words[1:] else "1") or ""
            variables.shift(int(count) if is_number(count) and not is_conditional else None)
        elif name == "set" and [word.text for word in words[1:2]] == ["--"]:
            variables.shift(None)
        elif name in ("cd", "pushd"):
            variables.enter(words[1:])
        elif words[1:] and name in ("source", ".") and words[1].text and self._depth < DEEPEST:
            text = self._read(words[1].text) or ""
            for _command in ShellScript(variables, text, (), self._read, self._depth + 1).commands():
                pass  # its variables stay

    def _words(self, raws: list[RawWord], *, is_conditional: bool) -> tuple[list[Word], list[str], bool]:
        """A command's words until there are more than is room for, the variables that are assigned in front of them,
        and whether it exports.
        """
        variables, text, words, before, first = self._variables, self._text, list[Word](), list[str](), ""
        for start, end, is_quoted, is_here, _mark in raws:
            if len(words) > self._room:
                break
            if is_here:
                continue
            whole = text[start:end]
            assigned = ASSIGNED.match(whole)
            if assigned and not words:
                self._assign(assigned, start, end, is_conditional=is_conditional)
                before.append(assigned[1])
            elif not is_quoted and (several := variables.split(whole)) is not None:
                words += [each._replace(start=start, end=end) for each in _apart(several)]
            elif IS_LIST.match(whole) and (several := variables.split(whole[1:-1])) is not None:
                words += [each._replace(start=start, end=end) for each in several]
            elif not words and whole in PREFIXES:
                first = first or whole
            elif words or first not in DECLARES or not whole.startswith("-"):
                words.append(variables.word(text, start, end))
        return words, before, first == "export"

    def _redirected(self, raws: list[RawWord], marks: Collection[str]) -> Word | None:
        """The file behind the last of these marks."""
        named = [raw for raw in raws if raw.redirected in marks]
        return self._variables.word(self._text, named[-1].start, named[-1].end) if named else None

    def _here(self, raw: RawWord) -> Word:
        """A here-document, as in double quotes where its mark has none."""
        content = self._text[raw.start : raw.end]
        if raw.is_quoted:
            return Word(content, raw.start, raw.end)
        return self._variables.quoted(content, raw.start, raw.end)

    def _assign(self, assigned: re.Match[str], start: int, end: int, *, is_conditional: bool) -> None:
        """A value, or a list in brackets, which is set as words; behind += more of either. In a condition another value
        than before is one of two.
        """
        variables, text, name, start = self._variables, self._text, assigned[1], start + assigned.end()
        before = variables.values.get(name)
        is_list = text[start : start + 1] == "("
        if is_list:
            value = [*(before or () if assigned[2] else ()), *self._list(start + 1, end - 1)][:LONGEST]
        else:
            value = [variables.word(text, start, end)]
            if assigned[2] and before:
                value = [*before[:-1], word_of(before[-1].pieces + value[0].pieces, start, end)]
        if is_conditional and before is not None and [word.text for word in before] != [word.text for word in value]:
            value = _either_list(before, value) if is_list else _either(before, value)
        is_open = is_conditional or variables.is_open(text, start, end)
        variables.values[name] = value
        (variables.open.add if is_open else variables.open.discard)(name)

    def _list(self, start: int, end: int) -> list[Word]:
        """The words of a list in brackets."""
        raws = [raw for raw in raw_words(self._text[:end], start, in_list=True) if raw is not None]
        words, _before, _exports = self._words([RawWord(start, start, is_quoted=False), *raws], is_conditional=False)
        return words[1:]


def _is_of_a_shell(word: Word) -> bool:
    return word.text in SHELLS or word.pieces.endswith(SCRIPTS)


def _set(variables: Variables, words: Sequence[Word], here: Word | None) -> None:
    """What a command that sets variables leaves known: of `read -r -d '' NAME <<EOF` the here-document, of a loop each
    word that it goes through.
    """
    name = words[0].text
    if name == "read" and here is not None and any(word.text == "-d" for word in words):
        variables.forget(words[1:])
        if words[-1].text:
            variables.values[words[-1].text] = [here]
        return
    variables.forget(words[1:] if name in ("read", "unset", "mapfile", "readarray") else words[1:2])
    texts = [word.text for word in words[3:]]
    if name in ("for", "select") and len(words) > 3 and words[2].text == "in" and words[1].text:
        values = tuple([text for text in texts if text is not None and not PATTERN.intersection(text)])
        if len(values) == len(texts) <= MOST_VALUES:
            variables.values[words[1].text] = [Word(None, 0, 0, either=values) if len(values) > 1 else words[3]]


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


def _either(before: list[Word], after: list[Word]) -> list[Word]:
    """What a variable is known to be where a condition decides between two values: what both begin with, or that it is
    one of them.
    """
    old, new = (" ".join(word.pieces for word in several) for several in (before, after))
    values = _values(before, after)
    if not old or not new.startswith(old):
        return [Word(None, 0, 0, either=values)]
    return [word_of(old + (" " if new[len(old)].isspace() else "") + UNKNOWN, 0, 0)._replace(either=values)]


def _either_list(before: list[Word], after: list[Word]) -> list[Word]:
    """What a list is known to be where a condition decides between two: the words that both begin with, and then the
    rest of one or the other.
    """
    begins = before == after[: len(before)]
    old, new = ("", _joined(after[len(before) :])) if begins else (_joined(before), _joined(after))
    other = Word(None, 0, 0, either=() if old is None or new is None else (old, new))
    return [*before, other] if begins else [other]


def _joined(words: Sequence[Word]) -> str | None:
    """The words of a list as one text; None where one is not known."""
    texts = [word.text for word in words]
    return None if None in texts else "".join(f"{text}{SEPARATOR}" for text in texts)


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
