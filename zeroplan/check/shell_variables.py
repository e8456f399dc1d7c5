"""What a shell script has set so far, and what its words become with it."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from zeroplan.check.shell_output import SimpleCommand, output, worked_out
from zeroplan.check.shell_words import behind_brackets, closing, raw_commands

EVERY = ("@", "*")
"""Names of all arguments."""
SEVERAL = re.compile(r"\$\{?(\w+|[@*])(\[[@*]\])?\}?")
NAME = re.compile(r"\$(?:(\w+|[#?@*$!-])|\{((?:[^{}]|\$\{[^{}]*\})*)\})")
USUAL = re.compile(r"(\w+):?(-|=)(.*)", re.DOTALL)
COUNT = re.compile(r"#(\w+)\[[@*]\]")
ARITHMETIC = "$(("
UNKNOWN, SEPARATOR = "\0", "\x1f"
"""Stand for what no line of the script sets, and for the end of a word in a list."""
ESCAPES = {"$": "\x01", "`": "\x02", "\\": "\x03", '"': '"', "\n": ""}
"""What a letter behind a backslash is within double quotes; of $, ` and the backslash itself until all is put in."""
ESCAPED, WRITTEN = re.compile(r'\\([$`"\\\n])'), str.maketrans({"\x01": "$", "\x02": "`", "\x03": "\\"})
MARKS = ("'", '"', "\\", "$(", "${")
"""Where another piece of a word begins."""
CONTINUED = ("\n", "\r\n")
OPENED = re.compile(r"\$\(|`")
"""What the output of a command is put in for."""
LONGEST, DEEPEST, MOST_EXPORTED = 4_096, 4, 100
"""Letters of a variable's value, commands within one another whose output is worked out, and variables that another
shell is given: what is longer, deeper or more is not known.
"""


class Word(NamedTuple):
    """One word of a command, as the shell hands it on."""

    text: str | None
    """None where it is not known."""
    start: int
    end: int
    partly: str = ""
    """The text with `UNKNOWN` for each part that is not known; empty where all of it is known, or nothing."""
    either: tuple[str, ...] = ()
    """The texts between which a condition of the script decides, where that is all that is not known; of a list with
    `SEPARATOR` between its words.
    """

    @property
    def pieces(self) -> str:
        """The text as far as it is known."""
        return self.partly or UNKNOWN if self.text is None else self.text


def word_of(text: str, start: int, end: int) -> Word:
    """A word of a text in which `UNKNOWN` may stand."""
    return Word(None, start, end, text) if UNKNOWN in text else Word(text, start, end)


State = tuple[dict[str, list[Word]], set[str], dict[str, None], str]
"""Values, names that are open, names that are exported, and the folder."""


class Variables:
    """What the script has set so far."""

    def __init__(self, stated: Mapping[str, str]) -> None:
        self.values: dict[str, list[Word]] = {
            name: [word_of(part, 0, 0) for part in value.split(SEPARATOR)] if name in EVERY else [word_of(value, 0, 0)]
            for name, value in stated.items()
        }
        self.open: set[str] = set()
        """Names whose values a condition, or the environment, may decide."""
        self.exported: dict[str, None] = {}
        """Names that every later command is started with."""
        self.folder = ""
        """Where commands are started, seen from where the script is."""
        self._depth = 0

    def state(self) -> State:
        """What `restore` sets again."""
        return dict(self.values), set(self.open), dict(self.exported), self.folder

    def restore(self, state: State) -> None:
        """Set all as it was."""
        self.values, self.open, self.exported, self.folder = state

    def take_arguments(self) -> dict[str, list[Word]]:
        """The arguments, by the names that they have; none are left."""
        names = [name for name in self.values if (name.isdigit() and name != "0") or name in (*EVERY, "#")]
        return {name: self.values.pop(name) for name in names}

    def set_arguments(self, words: Sequence[Word]) -> None:
        """Set $1, $2 and so on, and all of them."""
        self.values |= {str(number): [word] for number, word in enumerate(words, 1)}
        self.values |= {"@": list(words), "*": list(words), "#": [Word(str(len(words)), 0, 0)]}

    def shift(self, count: int | None) -> None:
        """Move the arguments by so many; None: by how many is not known."""
        before = self.take_arguments()
        if count is None:
            self.values |= {name: [Word(None, 0, 0)] for name in before}
        elif "@" in before:
            self.set_arguments(before["@"][count:])

    def forget(self, words: Collection[Word]) -> None:
        """Count the variables that a command such as `read` names as not known."""
        for name in (match[0] for word in words if (match := re.match(r"\w+", word.text or ""))):
            self.values[name] = [Word(None, 0, 0)]

    def enter(self, words: Collection[Word]) -> None:
        """Go to the folder that `cd` is given, where that is known."""
        names = [word.text for word in words if not (word.text or "").startswith("-")]
        if names and names[0]:
            self.folder = posixpath.join(self.folder, names[0])

    def is_open(self, text: str, start: int, end: int) -> bool:
        """Whether a variable in a word is one of `open`, or has its usual value because nothing sets it."""
        for match in NAME.finditer(text, start, end):
            usual = USUAL.fullmatch(match[2] or "")
            name = usual[1] if usual else match[1] or match[2]
            if name in self.open or (usual and name not in self.values):
                return True
        return False

    def environment(self, names: Collection[str], before: Collection[str]) -> dict[str, str | None]:
        """Those of `names` that a command is started with, by their values; `before`: names that are assigned in front
        of it on its line.
        """
        return {name: self.value(name) for name in names if name in before or name in self.exported}

    def exports(self, before: Collection[str]) -> dict[str, str]:
        """What a shell below has of them, `UNKNOWN` for what no line sets; `before`: names that are assigned in front
        of it on its line.
        """
        names = (*before, *islice(reversed(self.exported), MOST_EXPORTED))
        return {name: self._pieces(name) for name in names if not name.isdigit()}

    def split(self, word: str) -> list[Word] | None:
        """The words of a variable that is a word of its own; None where it is none, or is not known."""
        match = SEVERAL.fullmatch(word)
        return self.values.get(match[1]) if match else None

    def word(self, text: str, start: int, end: int) -> Word:
        """Without quotes, and with variables put in but for single quotes."""
        word = self._word(text, start, end)
        return word if word.text is not None else word._replace(either=self._either(text, start, end))

    def _either(self, text: str, start: int, end: int) -> tuple[str, ...]:
        """What a word may be by the one variable in it of which several values are known."""
        names = {match[1] or match[2] for match in NAME.finditer(text, start, end)}
        open_names = [name for name in names if any(word.text is None for word in self.values.get(name or "", ()))]
        if len(open_names) != 1 or len(before := self.values[open_names[0]]) != 1:
            return ()
        name, texts = open_names[0], list[str | None]()
        for each in before[0].either:
            self.values[name] = [Word(each, 0, 0)]
            texts.append(self._word(text, start, end).text)
        self.values[name] = before
        return () if None in texts else tuple(each for each in texts if each is not None)

    def _word(self, text: str, start: int, end: int) -> Word:
        known: list[str] = []
        for part in _parts(text, start, end):
            put = part[1:] if part[:1] == "'" else self.put_in(part[1:])
            known.append(put if part[:1] != '"' else put.translate(WRITTEN))
        return word_of("".join(known), start, end)

    def quoted(self, text: str, start: int, end: int) -> Word:
        """What stands in double quotes, or in a here-document."""
        plain = ESCAPED.sub(lambda match: ESCAPES[match[1]] if match[1] != '"' else match[0], text)
        return word_of(self.put_in(plain).translate(WRITTEN), start, end)

    def put_in(self, text: str) -> str:
        """A text with its variables, and what commands in it write; `UNKNOWN` for each that is not known."""
        text = self._with_sums(text)
        parts: list[str] = []
        at = 0
        while opened := OPENED.search(text, at):
            end = behind_brackets(text, opened.start() + 1) if opened[0] == "$(" else text.find("`", opened.end()) + 1
            inner = self._output(text[opened.end() : end - 1]) if end else None
            parts += [self._put_in(text[at : opened.start()]), UNKNOWN if inner is None else inner]
            at = end or len(text)
        whole = "".join([*parts, self._put_in(text[at:])])
        return UNKNOWN if len(whole) > LONGEST + len(text) else whole

    def _with_sums(self, text: str) -> str:
        """A text with the number of each $((...))."""
        parts, at = list[str](), 0
        while (start := text.find(ARITHMETIC, at)) >= 0:
            end = behind_brackets(text, start + 1)
            inner = text[start + len(ARITHMETIC) : end - 2] if text[:end].endswith("))") else ""
            number = worked_out(inner, self.value)
            parts += [text[at:start], UNKNOWN if number is None else str(number)]
            at = end
        return "".join([*parts, text[at:]])

    def _put_in(self, text: str) -> str:
        return NAME.sub(lambda match: self._pieces(match[1] or match[2] or ""), text)

    def _output(self, text: str) -> str | None:
        """What a command writes, or several of which each reads what the one before writes."""
        if self._depth >= DEEPEST or len(text) > LONGEST:
            return None
        self._depth += 1
        several, at = list[SimpleCommand](), 0
        for raws in raw_commands(text):
            words = [self.word(text, raw.start, raw.end).text for raw in raws if not raw.redirected]
            several.append(SimpleCommand(text[at : raws[0].start].strip(" \t\r\n"), words))
            at = raws[-1].end
        self._depth -= 1
        written = output(several, self.folder or ".")
        return None if written is None or UNKNOWN in written else written

    def value(self, name: str) -> str | None:
        """What ${name} stands for; None where that is not known."""
        pieces = self._pieces(name)
        return None if UNKNOWN in pieces else pieces

    def _pieces(self, name: str) -> str:
        if name == "PWD":
            return self.folder or "."
        if counted := COUNT.fullmatch(name):
            several = self.values.get(counted[1])
            return UNKNOWN if several is None or any(one.text is None for one in several) else str(len(several))
        usual = USUAL.fullmatch(name)
        known = self.values.get(usual[1] if usual else name)
        if known is not None:
            return " ".join(word.pieces for word in known)
        put = self.word(usual[3], 0, len(usual[3])).pieces if usual else UNKNOWN
        if usual and usual[2] == "=":
            self.values[usual[1]] = [word_of(put, 0, 0)]
        return put


def _parts(text: str, start: int, end: int) -> Iterator[str]:
    """The pieces of a word, each behind a quote where nothing is put into it, else behind another letter."""
    at = start
    while at < end:
        letter = text[at]
        if letter == "'":
            close = text.find("'", at + 1, end)
            close = end if close < 0 else close
            yield text[at:close]
            at = close + 1
        elif letter == '"':
            close = closing(text, at, end)
            yield ESCAPED.sub(lambda match: ESCAPES[match[1]], text[at:close])
            at = close + 1
        elif letter == "\\":
            if text.startswith(CONTINUED, at + 1):
                at = text.index("\n", at) + 1
                continue
            yield f"'{text[at + 1 : at + 2]}"
            at += 2
        elif text.startswith(("$(", "${"), at):
            close = min(behind_brackets(text, at + 1), end)
            yield f" {text[at:close]}"
            at = close
        else:
            stop = min([end, *(place for mark in MARKS if (place := text.find(mark, at, end)) >= 0)])
            yield f" {text[at:stop]}"
            at = stop
