"""DeepSpeed's hostfile: `hostname slots=8` a line (launcher/runner.py:_parse_hostfile, 0.19.8)."""

from __future__ import annotations

import re

from zeroplan.catalog.files import read_text
from zeroplan.errors import SpecError, shown


def read_hostfile(path: str) -> dict[str, int]:
    """Slots by host. Raises `SpecError` for a bad line, a host named twice, or no host at all."""
    return slots_by_host(path, read_text(path, "a DeepSpeed hostfile"))


def slots_by_host(path: str, content: str) -> dict[str, int]:
    """The same, of a file's content."""
    hosts: dict[str, int] = {}
    for number, raw in enumerate(content.splitlines(), start=1):
        text = raw.strip()
        if not text or text.startswith("#"):
            continue
        match = re.match(r"(\S+)\s+slots=([0-9]{1,6})(?=[\s,;#]|$)", text)  # DeepSpeed too passes over the rest
        place = f"{path}:{number}"
        if match is None or int(match[2]) == 0 or not match[1].isprintable():
            raise SpecError(place, shown(text), "a host and its GPUs", "worker-1 slots=8")
        if match[1] in hosts:
            raise SpecError(place, f"host {shown(match[1])} a second time", "each host once")
        hosts[match[1]] = int(match[2])
    if not hosts:
        raise SpecError(path, "no host", "a DeepSpeed hostfile", "worker-1 slots=8")
    return hosts
