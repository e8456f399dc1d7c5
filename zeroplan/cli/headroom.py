"""`--headroom`: what of each card is kept free."""

from __future__ import annotations

import re

from zeroplan.cli.options import Options
from zeroplan.errors import ContradictionError, QuantityError, shown
from zeroplan.specs.cluster import Cluster
from zeroplan.specs.headroom import Headroom
from zeroplan.units import gib, read_bytes

EXAMPLE = "10% or 4GiB"


def read_headroom(text: str | None, cluster: Cluster) -> Headroom | None:
    """None where nothing was typed. Raises `ZeroplanError` for all of a card or more, and for no card."""
    if text is None:
        return None
    found = _typed(text)
    if cluster.capacity is None:
        raise ContradictionError("--headroom keeps a part of each card free, and no card is named; write --gpu-mem 80")
    if found.bytes is not None and found.bytes >= cluster.capacity:
        raise QuantityError(
            f"--headroom: found {shown(text)}, expected less than the {gib(cluster.capacity)} of a card; "
            f"write --headroom {EXAMPLE}"
        )
    return found


def _typed(text: str) -> Headroom:
    """`10%`, a share such as `0.1`, or bytes with their unit."""
    if re.match(r"\.?[0-9].*[A-Za-z]$", text):
        return Headroom(bytes=read_bytes(text, "--headroom", EXAMPLE))
    match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{0,9})?|\.[0-9]{1,9})( ?%)?", text)
    share = float(match[1]) / (100 if match[2] else 1) if match else 1.0
    if share >= 1:
        expected = "a share from 0 up to less than 100%, or bytes with their unit"
        raise QuantityError(f"--headroom: found {shown(text)}, expected {expected}; write --headroom {EXAMPLE}")
    return Headroom(share=share)


def kept_free(headroom: Headroom) -> str:
    """As the list of what was assumed has it."""
    return f"{headroom} of each card kept free (--headroom)"


def refuse_headroom(options: Options, command: str) -> None:
    """For a command that asks nothing about what fits."""
    if options.headroom is not None:
        raise ContradictionError(f"{command} asks of nothing that fits; leave out --headroom, or write estimate")
