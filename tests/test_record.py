"""Records are what typing.NamedTuple makes of the same class."""

from __future__ import annotations

import pickle
import typing

import pytest

from zeroplan import record
from zeroplan.specs.strategy import Strategy

BODY = '''
class Offer(NamedTuple):
    """Words about it."""

    name: str
    sizes: tuple[int, ...] = ()
    """Words about a field."""
    share: float = 1.0

    LARGEST = 7

    def times(self, count: int) -> Offer:
        return self._replace(sizes=tuple(count * size for size in self.sizes))

    @property
    def number(self) -> int:
        return len(self.sizes)

    @classmethod
    def of(cls, name: str) -> Offer:
        return cls(name)

    def __hash__(self) -> int:
        return 7
'''


def made(base: object) -> typing.Any:
    space = {"NamedTuple": base, "__name__": __name__}
    exec(f"from __future__ import annotations\n{BODY}", space)
    return space["Offer"]


OURS, TYPINGS = made(record.NamedTuple), made(typing.NamedTuple)
Offer = OURS  # where pickle looks for it


@pytest.mark.parametrize("said", [
    "found._fields", "found._field_defaults", "found.__doc__", "found.__name__", "found.__qualname__",
    "found.__module__", "found.__mro__[-2:]", "list(found.__annotations__)", "found.LARGEST", "repr(found('a', (1, 2)))",
    "tuple(found('a', share=0.5))", "found('a', (1, 2)).times(3).sizes", "found('a', (1, 2)).number",
    "found.of('b').name", "hash(found('a'))", "found('a') == ('a', (), 1.0)", "found('a')._asdict()",
    "found('a').__match_args__",
])  # fmt: skip
def test_the_same_as_typing_makes(said):
    assert eval(said, {"found": OURS}) == eval(said, {"found": TYPINGS})


@pytest.mark.parametrize("wrong", ["found()", "found('a', other=1)", "setattr(found('a'), 'name', 'b')"])
def test_what_typing_refuses(wrong):
    for found in (OURS, TYPINGS):
        with pytest.raises((TypeError, AttributeError)):
            eval(wrong, {"found": found})


@pytest.mark.parametrize("wrong", [
    "class A(NamedTuple):\n    x: int = 0\n    y: int", "class A(NamedTuple, dict):\n    x: int",
])  # fmt: skip
def test_classes_that_typing_refuses(wrong):
    for base in (record.NamedTuple, typing.NamedTuple):
        with pytest.raises(TypeError):
            exec(wrong, {"NamedTuple": base, "__name__": __name__})


def test_annotations_that_are_not_text_are_missed_aloud():
    """Python 3.14 keeps them elsewhere, unless a module has them as text."""
    with pytest.raises(TypeError, match="no fields"):
        exec("class A(NamedTuple):\n    pass", {"NamedTuple": record.NamedTuple, "__name__": __name__})


def test_copies_and_subclasses():
    assert pickle.loads(pickle.dumps(OURS("a", (1,)))) == OURS("a", (1,))

    class Narrow(OURS):
        pass

    assert Narrow("a")._replace(share=2.0) == ("a", (), 2.0)
    assert Strategy(stage=1)._replace(stage=2).stage == 2
