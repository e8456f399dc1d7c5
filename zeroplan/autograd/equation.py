"""A polynomial as a formula writes it: T = b·s tokens, q = n·d and k = ν·d wide, bytes of the dtype before them."""

from __future__ import annotations

from fractions import Fraction

from zeroplan.autograd.polynomial import Powers, Terms, terms

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
    groups: dict[tuple[tuple[str, int], ...], dict[int, Fraction]] = {}
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


def _term(letters: tuple[tuple[str, int], ...], factors: dict[int, Fraction]) -> str:
    """`(4 + 2·w)·T·h`"""
    over = [letter if exponent == 1 else f"{letter}^{exponent}" for letter, exponent in letters if exponent > 0]
    under = [letter if exponent == -1 else f"{letter}^{-exponent}" for letter, exponent in letters if exponent < 0]
    parts = [_factor(factor, exponent) for exponent, factor in sorted(factors.items())]
    first = f"({' + '.join(parts)})" if len(parts) > 1 else parts[0]
    shown = [*([first] if first != "1" or not over else []), *over]
    return "/".join(["·".join(shown), *under])


def _factor(factor: Fraction, exponent: int) -> str:
    power = WIDTH if exponent == 1 else f"{WIDTH}^{exponent}"
    number = str(factor) if factor.denominator == 1 else f"({factor})"
    if not exponent:
        return number
    return power if factor == 1 else f"{number}·{power}"
