"""A polynomial as a formula writes it: T = b·s tokens, q = n·d and k = ν·d wide, bytes of the dtype before them.

Sizes that remember how they came about: integers that carry a polynomial in named sizes.

A model run with such sizes does what it does with plain ones, for a comparison sees the number alone; and every byte
count that comes out is an equation too. A quotient with a remainder is a number without a name.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from math import prod

Powers = tuple[tuple[str, int], ...]
"""Exponents by name, in the order of names; none is 0, some may be negative."""
Terms = dict[Powers, Fraction | int]
"""Factors by powers: integers where they are whole, for most are, and a run multiplies and adds thousands of them."""
MOST_STEPS = 64
"""Most steps of a division by a sum."""


class Polynomial(int):
    """An integer, and the polynomial whose value it is."""

    terms: Terms

    def __new__(cls, value: int, terms: Terms) -> Polynomial:
        out = super().__new__(cls, value)
        out.terms = terms
        return out

    def __deepcopy__(self, memo: dict[int, object]) -> Polynomial:
        """Itself, as of any integer: a module of which a copy trains has its sizes."""
        return self

    def __add__(self, other: int) -> Polynomial:
        return Polynomial(int(self) + int(other), _sum(self.terms, terms(other)))

    __radd__ = __add__

    def __neg__(self) -> Polynomial:
        return Polynomial(-int(self), {powers: -factor for powers, factor in self.terms.items()})

    def __sub__(self, other: int) -> Polynomial:
        return self + -other

    def __rsub__(self, other: int) -> Polynomial:
        return -self + other

    def __mul__(self, other: int) -> Polynomial:
        if not isinstance(other, int):
            return NotImplemented  # by a share of it: a number
        return Polynomial(int(self) * int(other), _product(self.terms, terms(other)))

    __rmul__ = __mul__

    def __floordiv__(self, other: int) -> int:
        return _quotient(self, other)

    def __rfloordiv__(self, other: int) -> int:
        return _quotient(other, self)


def named(letter: str, value: int) -> Polynomial:
    """A size under a name of its own."""
    return Polynomial(value, {((letter, 1),): 1})


def terms(size: int) -> Terms:
    """The polynomial of a size; a plain number is a constant."""
    if isinstance(size, Polynomial):
        return size.terms
    return {(): int(size)} if size else {}


def value(of: Terms, sizes: Mapping[str, int | Fraction]) -> Fraction:
    """The polynomial at these sizes."""
    total = Fraction(0)
    for powers, factor in of.items():
        total += factor * prod(Fraction(sizes[letter]) ** exponent for letter, exponent in powers)
    return total


def _sum(one: Terms, other: Terms) -> Terms:
    result = dict(one)
    for powers, factor in other.items():
        result[powers] = result.get(powers, 0) + factor
    return {powers: factor for powers, factor in result.items() if factor}


def _product(one: Terms, other: Terms) -> Terms:
    result: Terms = {}
    for powers, factor in one.items():
        for more, times in other.items():
            joint = _joint(powers, more)
            result[joint] = result.get(joint, 0) + factor * times
    return {powers: factor for powers, factor in result.items() if factor}


@lru_cache(maxsize=4096)
def _joint(one: Powers, other: Powers, sign: int = 1) -> Powers:
    """Exponents added, or with sign -1 subtracted."""
    result = dict(one)
    for letter, exponent in other:
        result[letter] = result.get(letter, 0) + sign * exponent
    return tuple(sorted((letter, exponent) for letter, exponent in result.items() if exponent))


def _quotient(dividend: int, divisor: int) -> int:
    """The polynomial quotient where numbers and polynomials both divide without a remainder, else the number."""
    number, remainder = divmod(int(dividend), int(divisor))
    by = terms(divisor)
    if remainder or not by:
        return number
    letters = sorted({letter for of in (by, terms(dividend)) for powers in of for letter, _exponent in powers})

    def leading(of: Terms) -> Powers:
        return max(of, key=lambda powers: [dict(powers).get(letter, 0) for letter in letters])

    first, rest, result = leading(by), terms(dividend), Terms()
    for _step in range(MOST_STEPS):
        if not rest:
            return Polynomial(number, result)
        highest = leading(rest)
        part: Terms = {_joint(highest, first, -1): _ratio(rest[highest], by[first])}
        result = _sum(result, part)
        rest = _sum(rest, {powers: -factor for powers, factor in _product(part, by).items()})
    return number


def _ratio(one: Fraction | int, other: Fraction | int) -> Fraction | int:
    result = Fraction(one) / other
    return result.numerator if result.denominator == 1 else result


JOINT: tuple[tuple[str, dict[str, int]], ...] = (
    ("T", {"b": 1, "s": 1}),
    ("q", {"n": 1, "d": 1}),
    ("k", {"ν": 1, "d": 1}),
    ("k", {"ν": 1, "h": 1, "n": -1}),
)
"""A letter for a product of others."""
WIDTH = "w"
ORDER = ["κ", "ν", "n", "E", "b", "T", "s", "q", "k", "h", "f", "e", "es", "d", "dn", "dr", "dv", "rq", "rk", "D"]


def equation(size: int) -> str:
    """The sum with the largest powers of the sequence first; a plain number is itself, and 0 is empty."""
    groups: dict[tuple[tuple[str, int], ...], dict[int, Fraction | int]] = {}
    for powers, factor in terms(size).items():
        joined = _joined(powers)
        groups.setdefault(tuple(sorted(joined.items(), key=_place)), {})[dict(powers).get(WIDTH, 0)] = factor
    ordered = sorted(groups.items(), key=lambda group: _rank(dict(group[0])))
    text = " + ".join(_term(letters, factors) for letters, factors in ordered)
    return text.replace("+ -", "- ")


def letters_of(of: Terms) -> set[str]:
    """The letters in which `equation` writes it."""
    return {letter for powers in of for letter in (*_joined(powers), *(WIDTH for name, _e in powers if name == WIDTH))}


def _joined(powers: Powers) -> dict[str, int]:
    """Exponents without the dtype's, products replaced by their letters."""
    result = {letter: exponent for letter, exponent in powers if letter != WIDTH}
    for letter, product in JOINT:
        while all(result.get(name, 0) * sign >= 1 for name, sign in product.items()):
            for name, sign in product.items():
                result[name] -= sign
            result[letter] = result.get(letter, 0) + 1
    return {letter: exponent for letter, exponent in result.items() if exponent}


def _rank(powers: dict[str, int]) -> tuple[int, int, list[int]]:
    """The more of the sequence the sooner, then the more letters."""
    tokens = powers.get("T", 0) + powers.get("s", 0)
    return -tokens, -sum(powers.values()), [_place(power) for power in powers.items()]


def _place(power: tuple[str, int]) -> int:
    return ORDER.index(power[0]) if power[0] in ORDER else len(ORDER)


def _term(letters: tuple[tuple[str, int], ...], factors: dict[int, Fraction | int]) -> str:
    """`(4 + 2·w)·T·h`"""
    over = [letter if exponent == 1 else f"{letter}^{exponent}" for letter, exponent in letters if exponent > 0]
    under = [letter if exponent == -1 else f"{letter}^{-exponent}" for letter, exponent in letters if exponent < 0]
    parts = [_factor(factor, exponent) for exponent, factor in sorted(factors.items())]
    first = f"({' + '.join(parts)})" if len(parts) > 1 else parts[0]
    shown = [*([first] if first != "1" or not over else []), *over]
    return "/".join(["·".join(shown), *under])


def _factor(factor: Fraction | int, exponent: int) -> str:
    power = WIDTH if exponent == 1 else f"{WIDTH}^{exponent}"
    number = str(factor) if factor.denominator == 1 else f"({factor})"
    if not exponent:
        return number
    return power if factor == 1 else f"{number}·{power}"
