"""Quantities as text outside, plain numbers inside: bytes (int), counts (int), rates per second (float).

G is 10^9 and Gi is 2^30, b is bits (rates only) and B is bytes. Case matters, because Gb and GB differ by eight.
"""

from __future__ import annotations

import re
from fractions import Fraction
from math import ceil, floor

from zeroplan.errors import QuantityError, shown

DECIMAL = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}
COUNTS = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}
GiB = 2**30
GB = 10**9
LARGEST_COUNT = 10**15
HOURS = {"h": 1, "d": 24, "w": 7 * 24}
LONGEST_DURATION = 100 * 365 * 86400
LONGEST = 40
"""Characters of a quantity that are looked at; no real one is longer."""

_NUMBER = r"([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,2})?|\.[0-9]+)"
_QUANTITY = _NUMBER + r" ?([A-Za-zµ]*(?:/s)?)"


def read_count(text: str, what: str = "--params", example: str = "7B, 350M or 6.74e9") -> int:
    """A count such as '7B', '350M', '6.74e9' or '6738415616' as an exact integer.

    Raises `QuantityError` for anything else: zero, negative, not a whole number, unknown suffix, over 10^15.
    """
    match = re.fullmatch(_NUMBER + r"([A-Za-z]?)", text[:LONGEST])
    factor = COUNTS.get(match[2].upper()) if match else None
    if match is None or factor is None:
        raise QuantityError(f"{what}: found {shown(text)}, expected a count; write {what} {example}")
    value = _exact(match[1]) * factor
    if value != int(value) or not 1 <= value <= LARGEST_COUNT:
        raise QuantityError(f"{what}: found {shown(text)}, expected a whole number from 1 to 1000T; write {example}")
    return int(value)


def read_integer(text: str, what: str, example: str) -> int:
    """A plain whole number from 1 to 10^15. Raises `QuantityError`."""
    if not re.fullmatch(r"[0-9]{1,16}", text) or not 1 <= int(text) <= LARGEST_COUNT:
        raise QuantityError(
            f"{what}: found {shown(text)}, expected a whole number from 1 to 10^15; write {what} {example}"
        )
    return int(text)


def read_bytes(text: str, what: str = "--gpu-mem", example: str = "80GB or 79.2GiB") -> int:
    """A size such as '80GB', '79.2 GiB' or '81559MiB' in bytes. A bare number is refused here."""
    match = re.fullmatch(_QUANTITY, text[:LONGEST])
    unit = match[2] if match else ""
    factor = _byte_factor(unit)
    number = _exact(match[1]) if match else None
    if number is None or (factor is None and number):  # zero needs no unit to be wrong
        hint = " (case matters: Gb is bits, GB and GiB are bytes)" if unit.lower().endswith("b") else ""
        raise QuantityError(
            f"{what}: found {shown(text)}{hint}, expected a size with its unit, GB or GiB; write {what} {example}"
        )
    value = int(number * (factor or 0))
    if not 0 < value < 2**63:
        raise QuantityError(
            f"{what}: found {shown(text)}, expected more than zero and under 8 EiB; write {what} {example}"
        )
    return value


def read_rate(text: str, what: str, unit: str) -> float:
    """A rate such as '450 GB/s', '400 Gb/s' or '989 TFLOP/s' in base units (`unit`: 'B/s' or 'FLOP/s')."""
    match = re.fullmatch(_NUMBER + r" ([kMGTP]?)(B/s|b/s|FLOP/s)", text)
    if match is None or (match[3] == "FLOP/s") != (unit == "FLOP/s"):
        example = "989 TFLOP/s" if unit == "FLOP/s" else "450 GB/s or 400 Gb/s"
        raise QuantityError(f"{what}: found {shown(text)}, expected a rate; write {example}")
    value = _exact(match[1]) * DECIMAL[match[2]]
    return float(value / 8 if match[3] == "b/s" else value)


def gib(size: float) -> str:
    """A size for people, in GiB with two decimals (more for small ones)."""
    return _trimmed(size / GiB, "GiB", size)


def between(low: float, high: float) -> str:
    """A range of sizes, for people, rounded outwards: 27-35 GiB, 3.7-4.8 GiB."""
    steps = 1 if high >= 20 * GiB else 10
    first, last = floor(low * steps / GiB), ceil(high * steps / GiB)
    return f"{first:,}-{last:,} GiB" if steps == 1 else f"{first / 10}-{last / 10} GiB"


def gb(size: float) -> str:
    """A size for people, in GB = 10^9 bytes: 38.5 GB, 0.44 GB."""
    return _trimmed(size / GB, "GB", size)


def seconds(value: float) -> str:
    """A duration for people: 1.53 s, 21.4 ms."""
    if value >= 100:
        return f"{value:.0f} s"
    if value >= 0.1:
        return f"{value:.2f} s"
    return f"{value * 1e3:.2g} ms"


def read_duration(text: str, what: str, example: str = "30d, 12h or 2w") -> float:
    """Hours, days or weeks, such as '12h', '30d' or '2w', in seconds. Raises `QuantityError`."""
    match = re.fullmatch(_NUMBER + r" ?([hdw])", text[:LONGEST])
    value = float(_exact(match[1]) * HOURS[match[2]] * 3600) if match else 0.0
    if not 0 < value <= LONGEST_DURATION:
        raise QuantityError(
            f"{what}: found {shown(text)}, expected hours, days or weeks, up to 100 years; write {what} {example}"
        )
    return value


def duration(value: float) -> str:
    """The duration of a run, for people: 61.3 days, 14.2 hours, 12 minutes."""
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if value >= 2 * size:
            return f"{value / size:,.{0 if value >= 100 * size else 1}f}".removesuffix(".0") + f" {unit}"
    return seconds(value)


def money(value: float, currency: str) -> str:
    """An amount for people: $75,400, 0.0854 EUR."""
    digits = 0 if value >= 1000 else 2
    text = f"{value:,.{digits}f}" if value >= 1 else f"{value:.3g}"
    return f"{text} {currency}" if currency.isalpha() else f"{currency}{text}"


def rate(value: float) -> str:
    """Bytes/s for people: 363 GB/s, 3.1 GB/s."""
    return f"{value / GB:.3g} GB/s"


def count(value: int) -> str:
    """A count for people: 6.74 B, 350 M, 1,234."""
    for factor, letter in ((10**12, "T"), (10**9, "B"), (10**6, "M")):
        if value >= 0.9995 * factor:  # as three digits show it, 999.9M is 1B
            return f"{value / factor:.3g}{letter}" if value < 999.5 * factor else f"{value / factor:.0f}{letter}"
    return f"{value:,}"


def _trimmed(value: float, unit: str, size: float) -> str:
    if size == 0:
        return f"0 {unit}"
    if abs(value) < 0.005:
        return _small(size, 1024 if unit == "GiB" else 1000, "i" if unit == "GiB" else "")
    digits = 2 if abs(value) < 1000 else 0
    text = f"{value:,.{digits}f}"
    if unit == "GB" and "." in text:
        text = text.rstrip("0").rstrip(".")
    return f"{text} {unit}"


def _small(size: float, step: int, infix: str) -> str:
    """Below 0.005 of the large unit: in MiB, KiB or bytes, whichever shows it."""
    if abs(size) >= 0.005 * step**2:
        return f"{size / step**2:.2f} M{infix}B"
    if abs(size) >= step:
        return f"{size / step:.2f} {'K' if infix else 'k'}{infix}B"
    return f"{size:.0f} B"


def _byte_factor(unit: str) -> int | None:
    if not unit.endswith("B"):
        return None
    prefix = unit[:-1]
    return BINARY.get(prefix) or DECIMAL.get(prefix)


def _exact(text: str) -> Fraction:
    """The number as written, without a float's rounding."""
    return Fraction(text)
