"""Commands of a shell script, each word with its place: enough of bash for scripts that start a training run.

Variables that the script itself sets are put in; what else a shell would put in (an argument, a command's output, the
environment) leaves a word unknown, and so does a variable to which a condition or a loop gives another value. Nothing
runs, and of loops and conditions each command is seen once.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

ENDS = frozenset("\n;&|()")
"""Letters that end a command."""
SEVERAL = re.compile(r"\$\{?(\w+)(\[[@*]\])?\}?")
NAME = re.compile(r"\$(?:(\w+|[#?@*$!-])|\{([^{}]*)\})")
USUAL = re.compile(r"(\w+):?-(.*)", re.DOTALL)
ARITHMETIC = re.compile(r"\$\(\(([^()]{1,200})\)\)")
OPERANDS = re.compile(r"\s*(?:(\d{1,12})|\$?\{?([A-Za-z_]\w*)\}?|([*/%+-]))\s*")
"""A number, a name or an operator of what bash works out."""
ASSIGNED = re.compile(r"(\w+)(\+?)=")
COUNTED = re.compile(r"(\w+)(?:[-+*/%]=|\+\+|--)")
"""What stands in ((N/=2))."""
SETTING = ("read", "unset", "mapfile", "readarray", "let", "for", "select")
"""Commands after which a variable that they name is not known."""
OPENS, CLOSES = re.compile(r"(?:^|[;&|]\s*)(?:if|case|for|while|until)\b"), re.compile(r"(?:^|[;\s])(?:fi|esac|done)\b")
MAYBE = re.compile(r"&&|\|\|")
HEREDOC = re.compile(r"<<-?\s*(['\"]?)(\w+)\1")
MOST_WORDS, LONGEST = 50_000, 4_096
"""Words of a script that are looked at, and letters of a variable's value: a longer one is not known."""


class Word(NamedTuple):
    """One word of a command, as the shell hands it on."""

    text: str | None
    """None where it is not known."""
    start: int
    end: int


class Command(NamedTuple):
    """One command of a script."""

    words: list[Word]
    environment: Mapping[str, str | None]
    """Variables that it is started with, of those that are asked for: None where the value is not known."""


class Variables:
    """What the script has set so far."""

    def __init__(self, stated: dict[str, str]) -> None:
        self.values: dict[str, list[Word]] = {name: [Word(value, 0, 0)] for name, value in stated.items()}
        self.exported: set[str] = set()
        """Names that every later command is started with."""

    def forget(self, words: Collection[Word]) -> None:
        """Count the variables that a command such as `read` names as not known."""
        for name in (match[0] for word in words if (match := re.match(r"\w+", word.text or ""))):
            self.values[name] = [Word(None, 0, 0)]

    def environment(self, names: Collection[str], before: Collection[str]) -> dict[str, str | None]:
        """Of these names those that a command sees; `before`: which are assigned on its own line, in front of it."""
        return {name: self._value(name) for name in names if name in before or name in self.exported}

    def put_in(self, text: str) -> str | None:
        """A text with its variables; None where one of them is not known."""
        for match in [*ARITHMETIC.finditer(text)][::-1]:
            if (number := self._worked_out(match[1])) is None:
                return None
            text = f"{text[: match.start()]}{number}{text[match.end() :]}"
        parts: list[str] = []
        at = 0
        for match in NAME.finditer(text):
            value = self._value(match[1] or match[2] or "")
            if value is None:
                return None
            parts += [text[at : match.start()], value]
            at = match.end()
        whole = "".join([*parts, text[at:]])
        return None if "$(" in text or "`" in text or len(whole) > LONGEST else whole

    def _worked_out(self, text: str) -> int | None:
        """Whole numbers and names of such, with * / % before + and -; None for anything else."""
        words: list[int | str] = []
        at = 0
        while at < len(text):
            match = OPERANDS.match(text, at)
            value = match and (match[1] or match[3] or self._value(match[2]))
            if not match or not value or not (match[3] or is_number(value)) or bool(match[3]) != len(words) % 2:
                return None
            words.append(value if match[3] else int(value))
            at = match.end()
        return _sum(words) if len(words) % 2 else None

    def _value(self, name: str) -> str | None:
        usual = USUAL.fullmatch(name)
        known = self.values.get(usual[1] if usual else name)
        if known is not None and all(word.text is not None for word in known):
            return " ".join(word.text or "" for word in known)
        return self.put_in(usual[2]) if usual and known is None else None

    def split(self, word: str) -> list[Word] | None:
        """The words of a variable that is a word of its own; None where it is none, or is not known."""
        match = SEVERAL.fullmatch(word)
        return self.values.get(match[1]) if match else None


def _sum(words: list[int | str]) -> int | None:
    """Numbers with an operator between each two; None where one is divided by nothing."""
    total, term, sign = 0, int(words[0]), 1
    for operator, word in zip(words[1::2], words[2::2], strict=True):
        number = int(word)
        if operator in ("/", "%") and not number:
            return None
        if operator == "*":
            term *= number
        elif operator == "/":
            term //= number
        elif operator == "%":
            term %= number
        else:
            total, term, sign = total + sign * term, number, 1 if operator == "+" else -1
    return total + sign * term


def is_number(text: str) -> bool:
    """Whether it is a whole number of a size that a script means."""
    return re.fullmatch("[0-9]{1,12}", text) is not None


def commands(
    text: str, stated: dict[str, str] | None = None, watched: Collection[str] = ()
) -> Iterator[Command]:  # fmt: skip
    """Each command that is no assignment. `stated`: variables that are set before; `watched`: those whose values a
    command is to be given with.
    """
    variables = Variables(stated or {})
    room, maybe = MOST_WORDS, _conditional(text)
    for raws in _raw_commands(text):
        at = bisect_right(maybe, (raws[0][0], len(text))) - 1  # spans follow one another
        is_conditional = at >= 0 and raws[0][0] < maybe[at][1]
        words, before, exports = _read(variables, text, raws, room, is_conditional)
        room -= len(words)
        if room < 0:
            return
        if words and words[0].text in SETTING:
            variables.forget(words[1:] if words[0].text in ("read", "unset", "mapfile", "readarray") else words[1:2])
        elif words and COUNTED.match(words[0].text or ""):
            variables.forget(words[:1])
        if words:
            yield Command(words, variables.environment(watched, before))
        if exports:
            variables.exported.update(before, (word.text for word in words if word.text))


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


def _raw_commands(text: str) -> Iterator[list[tuple[int, int, bool]]]:
    raws: list[tuple[int, int, bool]] = []
    for raw in _raw_words(text):
        if raw is not None:
            raws.append(raw)
        elif raws:
            yield raws
            raws = []


def _read(
    variables: Variables, text: str, raws: list[tuple[int, int, bool]], most: int, is_conditional: bool
) -> tuple[list[Word], list[str], bool]:  # fmt: skip
    """A command's words until there are more than `most`, the variables that are assigned in front of them, and whether
    it exports.
    """
    words, before, exports = list[Word](), list[str](), False
    for start, end, quoted in raws:
        if len(words) > most:
            break
        whole = text[start:end]
        assigned = ASSIGNED.match(whole)
        if assigned and not words:
            _assign(variables, assigned, text, start, end, is_conditional)
            before.append(assigned[1])
        elif not quoted and (several := variables.split(whole)) is not None:
            words += [each._replace(start=start, end=end) for each in _apart(several)]
        elif whole.startswith('"') and (several := variables.split(whole[1:-1])) is not None and "[" in whole:
            words += [each._replace(start=start, end=end) for each in several]
        elif not words and whole in ("export", "local", "exec", "time", "nohup", "then", "do", "else", "if", "!"):
            exports = exports or whole == "export"
        else:
            words.append(_word(variables, text, start, end))
    return words, before, exports


def _assign(
    variables: Variables, assigned: re.Match[str], text: str, start: int, end: int, is_conditional: bool
) -> None:  # fmt: skip
    """A value, or a list in brackets, which is set as words; behind += more of either. In a condition another value
    than before is not known.
    """
    name, start = assigned[1], start + assigned.end()
    before = variables.values.get(name)
    if text[start : start + 1] == "(":
        inner = list(_raw_words(text[start + 1 : end - 1], in_list=True))
        several = [_word(variables, text, start + 1 + raw[0], start + 1 + raw[1]) for raw in inner if raw]
        value = [*(before or ()), *several][:LONGEST] if assigned[2] else several[:LONGEST]
    else:
        value = [_word(variables, text, start, end)]
        if assigned[2] and before:
            parts = [before[-1].text, value[0].text]
            value = [*before[:-1], Word(None if None in parts else "".join(map(str, parts)), start, end)]
    texts = [word.text for word in value]
    if is_conditional and before is not None and [word.text for word in before] != texts:
        value = [Word(None, start, end)]
    variables.values[name] = value


def _apart(words: list[Word]) -> Iterator[Word]:
    """As the shell splits what is in no quotes."""
    for word in words:
        if word.text is None:
            yield word
        else:
            yield from (word._replace(text=part) for part in word.text.split())


def _word(variables: Variables, text: str, start: int, end: int) -> Word:
    """Without quotes, and with variables put in but for single quotes."""
    known: list[str] = []
    at = start
    while at < end:
        letter = text[at]
        if letter == "'":
            close = text.find("'", at + 1, end)
            close = end if close < 0 else close
            known.append(text[at + 1 : close])
            at = close + 1
        elif letter == '"':
            close = _closing(text, at, end)
            put = variables.put_in(text[at + 1 : close].replace('\\"', '"').replace("\\\n", ""))
            if put is None:
                return Word(None, start, end)
            known.append(put)
            at = close + 1
        elif letter == "\\":
            known.append(text[at + 1 : at + 2])
            at += 2
        else:
            stop = min([end, *(found for mark in "'\"\\" if (found := text.find(mark, at, end)) >= 0)])
            put = variables.put_in(text[at:stop])
            if put is None:
                return Word(None, start, end)
            known.append(put)
            at = stop
    return Word("".join(known), start, end)


def _closing(text: str, at: int, end: int) -> int:
    """Where a double quote ends."""
    close = at + 1
    while close < end and text[close] != '"':
        close += 2 if text[close] == "\\" else 1
    return min(close, end)


def _raw_words(text: str, *, in_list: bool = False) -> Iterator[tuple[int, int, bool] | None]:
    """Places of words, and whether a quote is in them; None where a command ends."""
    at, length = 0, len(text)
    while at < length:
        letter = text[at]
        if text.startswith("\\\n", at) or text.startswith("\\\r\n", at):
            at = text.index("\n", at) + 1
        elif letter in " \t\r" or (in_list and letter == "\n"):
            at += 1
        elif letter == "#":
            end = text.find("\n", at)
            at = length if end < 0 else end
        elif (heredoc := HEREDOC.match(text, at)) is not None:
            at = _behind_heredoc(text, heredoc)
            yield None
        elif letter in "<>":
            at += 1
        elif letter in ENDS:
            at += 1
            yield None
        else:
            start = at
            end, quoted = _end_of_word(text, start)
            at = max(end, start + 1)
            yield start, at, quoted
    yield None


def _behind_heredoc(text: str, heredoc: re.Match[str]) -> int:
    line = text.find("\n", heredoc.end())
    close = re.compile(rf"^\s*{heredoc[2]}\s*$", re.MULTILINE).search(text, line + 1) if line >= 0 else None
    return close.end() if close else len(text)


def _end_of_word(text: str, at: int) -> tuple[int, bool]:
    length, quoted = len(text), False
    start = at
    while at < length:
        letter = text[at]
        if letter == "'":
            close = text.find("'", at + 1)
            at, quoted = (length if close < 0 else close + 1), True
        elif letter == '"':
            at, quoted = min(length, _closing(text, at, length) + 1), True
        elif text.startswith("\\\n", at) or letter in " \t\r<>":
            break
        elif letter == "\\":
            at += 2
        elif text.startswith("${", at) or letter == "`":
            close = text.find("}" if letter == "$" else "`", at + 1)
            at = length if close < 0 else close + 1
        elif text.startswith("$(", at) or (letter == "(" and text[start:at].endswith("=")):
            at = _behind_brackets(text, text.index("(", at))
        elif letter in ENDS:
            break
        else:
            at += 1
    return min(at, length), quoted


def _behind_brackets(text: str, at: int) -> int:
    depth = 0
    for place in range(at, len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if depth == 0:
            return place + 1
    return len(text)
