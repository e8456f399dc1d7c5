"""What a shell script does with its variables, command by command: assignments, conditions, loops, functions, the files
that it sources.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from zeroplan.check.shell_conditions import Branches, holds
from zeroplan.check.shell_functions import functions, handed_on
from zeroplan.check.shell_variables import LONGEST, SEPARATOR, UNKNOWN, Variables, Word, word_of
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
MOST_WORDS = 50_000
"""Words of a script that are looked at."""
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
        self._room = MOST_WORDS

    def commands(self) -> Iterator[Command]:
        """Each command that is no assignment, those of a function where it is called."""
        yield from self._part(0, len(self._text), self._depth)

    def _part(self, start: int, end: int, depth: int) -> Iterator[Command]:
        called, branches = set[str](), Branches()
        within = [one for one in self._functions.values() if start <= one.start < end]
        for raws in raw_commands(self._text, start, end):
            if any(one.start <= raws[0].start < one.end for one in within):
                continue
            branches.follow(self._text[raws[0].start : raws[0].end], lambda raws=raws: holds(self._texts(raws[1:])))  # type: ignore[misc]
            command = self._left_out(raws) if branches.is_left_out else self._command(raws)
            if self._room < 0:
                return
            if command is None:
                continue
            yield command
            function = self._functions.get(command.words[0].text or "")
            if function is not None and depth < DEEPEST:
                called.add(function.name)
                every = self._text[raws[0].end : raws[-1].end]
                with handed_on(self._variables, command.words[1:], every):
                    yield from self._part(function.body, function.end, depth + 1)
        for function in within:
            if function.name not in called:
                yield from self._part(function.body, function.end, DEEPEST)

    def _left_out(self, raws: list[RawWord]) -> Command | None:
        """A command that never runs, and sets nothing."""
        before = dict(self._variables.values)
        command = self._command(raws)
        self._variables.values = before
        return None if command is None else command._replace(is_left_out=True)

    def _texts(self, raws: Sequence[RawWord]) -> list[str | None]:
        """Words of a condition, None for each that follows from more than the script's own lines."""
        variables, text = self._variables, self._text
        return [None if variables.is_open(text, raw.start, raw.end) else variables.word(text, raw.start, raw.end).text
                for raw in raws]  # fmt: skip

    def _command(self, raws: list[RawWord]) -> Command | None:
        """What these words do; None where they only set variables."""
        variables = self._variables
        here = next((self._here(raw) for raw in raws if raw.is_here), None)
        own = [raw for raw in raws if not raw.redirected]
        words, before, exports = self._words(own, is_conditional=self._is_conditional(raws[0].start))
        self._room -= len(words)
        command = None
        if words and self._room >= 0:
            self._follow(words, here)
            exported = variables.exports(before) if any(map(_is_of_a_shell, words)) else {}
            command = Command(
                words, variables.environment(self._watched, before), variables.folder, exported, here,
                self._redirected(raws, READS), self._redirected(raws, WRITES),
                any(raw.redirected in APPENDS for raw in raws),
            )  # fmt: skip
        if exports:
            names = [*before, *(word.text for word in words if word.text)]
            variables.exported |= dict.fromkeys(names)
        return command

    def _is_conditional(self, start: int) -> bool:
        """Whether a place is in a condition or a loop."""
        at = bisect_right(self._spans, (start, len(self._text))) - 1  # they follow one another
        return at >= 0 and start < self._spans[at][1]

    def _follow(self, words: Sequence[Word], here: Word | None) -> None:
        """What a command changes of the variables and the folder."""
        variables, name = self._variables, words[0].text or ""
        if name in SETTING:
            _set(variables, words, here)
        elif COUNTED.match(name):
            variables.forget(words[:1])
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
    """The same of lists: the words that both begin with, and that the others are there or not."""
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
