"""execution_reference.json: configs, leaf settings, and the `Execution` that transformers was seen to run for each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from zeroplan.specs.execution import Execution, ModuleHook
from zeroplan.specs.model import LeafModules

REFERENCE = Path(__file__).with_name("execution_reference.json")
STEPS = ("forward", "backward", "recomputing")
LEFT_OUT = ("layers", "parametrized", "computing")
"""Empty in what is seen of transformers' models."""


class Row(NamedTuple):
    config: dict[str, Any]
    leaves: LeafModules
    execution: Execution


def read() -> list[Row]:
    return [unpacked(**row) for row in json.loads(REFERENCE.read_text())]


def write(rows: list[Row]) -> None:
    lines = [json.dumps(packed(row), sort_keys=True, separators=(",", ":")) for row in rows]
    REFERENCE.write_text("[\n" + ",\n".join(lines) + "\n]\n")


def packed(row: Row) -> dict[str, Any]:
    """A visit is twice the module's index, and one more under backward; the complement of that where it exits."""
    found = row.execution
    tensors = {hook.module: hook.tensors for hook in found.forward}
    fields = found._asdict() | {
        "leaves": sorted(found.leaves),
        "tensors": [tensors[module] for module in range(len(found.modules))],
    }
    for name in LEFT_OUT:
        assert not fields.pop(name)
    for name in STEPS:
        numbers = [(2 * hook.module + hook.backward, hook.enters) for hook in fields[name]]
        fields[name] = [number if enters else ~number for number, enters in numbers]
    return {"config": row.config, "leaves": row.leaves._asdict(), "execution": fields}


def unpacked(config: dict[str, Any], leaves: dict[str, Any], execution: dict[str, Any]) -> Row:
    tensors = [tuple(indices) for indices in execution.pop("tensors")]
    for name in STEPS:
        numbers = [(number if number >= 0 else ~number, number >= 0) for number in execution[name]]
        execution[name] = [
            ModuleHook(enters, number // 2, tensors[number // 2], bool(number % 2)) for number, enters in numbers
        ]
    fields = {name: tuple(value) for name, value in execution.items()}
    fields |= {"leaves": frozenset(fields["leaves"]), "subtrees": tuple(map(tuple, fields["subtrees"]))}
    settings = {name: tuple(value) if isinstance(value, list) else value for name, value in leaves.items()}
    return Row(config, LeafModules(**settings), Execution(**fields))
