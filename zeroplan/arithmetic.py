"""Integer arithmetic that formulas share."""

from __future__ import annotations


def ceil_div(dividend: int, divisor: int) -> int:
    """⌈dividend / divisor⌉, exact for integers of any size."""
    return -(-dividend // divisor)


def round_up(value: int, multiple: int) -> int:
    """The smallest multiple of `multiple` that is at least `value`."""
    return ceil_div(value, multiple) * multiple
