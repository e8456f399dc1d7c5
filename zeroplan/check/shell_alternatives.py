"""The commands between which conditions and loops of a script decide: each config, and each launcher, that a variable
may stand for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from zeroplan.check.kind import is_data
from zeroplan.check.shell_variables import SEPARATOR, UNKNOWN, Word, word_of

MOST = 12
"""Commands that one is told apart into."""
OPTION = "--deepspeed"
STARTS = ("deepspeed", "torchrun", "accelerate", "swift", "llamafactory-cli", "axolotl", "trl")


def alternatives(words: Sequence[Word]) -> Iterator[list[Word]]:
    """The words of each command that one of a script may be."""
    several = {at: word.either for at, word in enumerate(words) if is_followed(word.either)}
    for chosen in islice(_choices(several), MOST):
        yield _apart(words, chosen)


def _choices(several: Mapping[int, Sequence[str]]) -> Iterator[dict[int, str]]:
    """A value of each: those with as many values change together, as the branches of one condition set them, and of two
    that add the same option one is there alone.
    """
    values = {at: [text for text in texts if _parts(text)] or [""] for at, texts in several.items()}
    options = {at: _parts(own[0])[:1] for at, own in values.items()}
    rivals = [at for at in several if options[at] in [options[other] for other in several if other < at]]
    first = {at: own[0] for at, own in values.items() if at not in rivals} | dict.fromkeys(rivals, "")
    steps = sorted({len(values[at]) for at in first if at not in rivals})
    yield first
    for count in steps:
        for number in range(1, count):
            yield first | {at: own[number] for at, own in values.items() if len(own) == count and at not in rivals}
    for at in rivals:
        dropped = {other: "" for other in several if options[other] == options[at]}
        yield from (first | dropped | {at: text} for text in values[at])


def is_followed(several: Sequence[str]) -> bool:
    """Whether one of these names a file of JSON or YAML, or a config, or starts a run."""
    return any(is_data(part) or part in STARTS or part.startswith(OPTION) for text in several for part in _parts(text))


def _parts(text: str) -> list[str]:
    """The words of a text: of a list each that it had, else as the shell splits it."""
    return [part for part in text.split(SEPARATOR) if part] if SEPARATOR in text else text.split()


def _apart(words: Sequence[Word], chosen: Mapping[int, str]) -> list[Word]:
    """The words with these values; what is not chosen of is not known."""
    result: list[Word] = []
    for at, word in enumerate(words):
        text = chosen.get(at)
        if text is None:
            result += _unknown(word)
            continue
        parts = _parts(text)
        is_one = SEPARATOR not in text and not any(part in STARTS or part.startswith("-") for part in parts)
        result += [Word(part, word.start, word.end) for part in ([text] if is_one and text else parts)]
    return result


def _unknown(word: Word) -> list[Word]:
    """A word as far as it is known: the words before that which is not."""
    if not word.either or not word.partly:
        return [word]
    parts = [word_of(part, word.start, word.end) for part in word.partly.split()]
    return [part._replace(either=word.either) if UNKNOWN in part.pieces else part for part in parts]
