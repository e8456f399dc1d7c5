"""execution_reference.json: configs, and the `Execution` that transformers was seen to run for each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from zeroplan.architectures.execution import Execution

REFERENCE = Path(__file__).with_name("execution_reference.json")
STEPS = ("forward", "backward", "recomputing")


def read() -> list[tuple[dict[str, Any], Execution]]:
    return [(row["config"], unpacked(row["execution"])) for row in json.loads(REFERENCE.read_text())]


def write(rows: list[tuple[dict[str, Any], Execution]]) -> None:
    lines = [json.dumps({"config": config, "execution": packed(found)}, sort_keys=True) for config, found in rows]
    REFERENCE.write_text("[\n" + ",\n".join(lines) + "\n]\n")


def packed(found: Execution) -> dict[str, Any]:
    """A step is the module's index, or its complement where the module exits."""
    fields = found._asdict()
    return fields | {name: [m if enters else ~m for enters, m in fields[name]] for name in STEPS}


def unpacked(fields: dict[str, Any]) -> Execution:
    steps = {name: [(m >= 0, m if m >= 0 else ~m) for m in fields[name]] for name in STEPS}
    owned = [tuple(indices) for indices in fields["owned"]]
    return Execution(**{name: tuple(value) for name, value in (fields | steps | {"owned": owned}).items()})
