"""Where two ds_config.json differ in meaning: key by key, by the table's names, defaults filled in."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from zeroplan.deepspeed.facts import Facts
from zeroplan.deepspeed.keys import KEYS
from zeroplan.deepspeed.keys.key import Key
from zeroplan.deepspeed.keys.optimizer import DEEPSPEED_OPTIMIZERS
from zeroplan.deepspeed.names import COMMENTS
from zeroplan.deepspeed.values import DTYPES, checked
from zeroplan.errors import SpecError

BATCH = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
OVERLAP = "zero_optimization.overlap_comm"
DTYPE_SECTIONS = ("data_types", "torch_autocast")
ON_BY_BEING_THERE = ("zero_optimization.zenflow", "weight_quantization", "scheduler.params")
"""Sections that do something even if they are {}: they are on, or DeepSpeed refuses the section around them without."""


class Difference(NamedTuple):
    """A key that means something else in both; its values as DeepSpeed reads them."""

    path: str
    """By the table's names."""
    a: Any
    b: Any
    stated: tuple[bool, bool]
    """Whether each file has it written; where it is not, the value is the default."""

    @property
    def known(self) -> Key | None:
        """What the table knows of it; None for a key that DeepSpeed passes over."""
        return KEYS.get(self.path)


def differences(a: dict[str, Any], b: dict[str, Any]) -> list[Difference]:
    """Differences of two configs by canonical names (`zeroplan.deepspeed.names`): keys in `a`'s order, then `b`'s.

    A key that is written with its default differs in nothing, nor does a value in another spelling ("fp16" and
    "torch.float16", 5e8 and 500000000), nor what a file says in remarks of its own.
    """
    result = []
    left, right = dict(_leaves(a, "")), dict(_leaves(b, ""))
    written = set(left), set(right)
    _decide_overlap((a, b), (left, right))
    for path in _alone({**left, **right}, left, right):
        values = _meant(path, left), _meant(path, right)
        if isinstance(values[0], dict) and isinstance(values[1], dict) and path in KEYS:
            continue  # key by key
        if values[0] != values[1] or isinstance(values[0], bool) is not isinstance(values[1], bool):
            result.append(Difference(path, *values, (path in written[0], path in written[1])))
    return result


def _decide_overlap(configs: Sequence[dict[str, Any]], leaves: Sequence[dict[str, Any]]) -> None:
    """What DeepSpeed decides where overlap_comm is not written; at different stages that is no value of its own."""
    facts = [Facts(config, "") for config in configs]
    if facts[0].stage != facts[1].stage:
        return
    if sum(OVERLAP in values for values in leaves) == 1:
        for fact, values in zip(facts, leaves, strict=True):
            values.setdefault(OVERLAP, fact.overlaps)


def _alone(paths: Iterable[str], left: dict[str, Any], right: dict[str, Any]) -> list[str]:
    """Without what stands in a section that is on in one of both alone, and differs as a whole."""
    both = {**left, **right}
    whole = {path for path in paths if isinstance(both[path], dict) and (path in left) != (path in right)}
    return [path for path in paths if whole.isdisjoint(_around(path))] if whole else list(paths)


def _around(path: str) -> Iterator[str]:
    """The paths of the sections that it is in."""
    end = path.find(".")
    while end >= 0:
        yield path[:end]
        end = path.find(".", end + 1)


def changed(a: dict[str, Any], b: dict[str, Any], paths: Iterable[str]) -> dict[str, Any]:
    """`a`, with the keys at these paths as `b` has them: written there, or not there at all."""
    made = copy.deepcopy(a)
    for path in paths:
        _set(made, b, path.split("."))
    return made


def _set(made: dict[str, Any], other: dict[str, Any], parts: list[str]) -> None:
    first, *rest = parts
    section = made.get(first) if other.get(first) is None else other[first]
    if rest and isinstance(section, dict):
        inside = made[first] = made.get(first) or {}  # either may be null
        _set(inside, other.get(first) or {}, rest)
        if not inside and first not in other:
            del made[first]
    elif first in other:
        made[first] = copy.deepcopy(other[first])
    else:
        made.pop(first, None)


def _leaves(section: dict[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    """Every value by its path, and sections that are on by being there."""
    for name, value in section.items():
        full = f"{path}.{name}" if path else name
        known = KEYS.get(full)
        if known is None and name.startswith(COMMENTS):
            continue
        if isinstance(value, dict) and known is not None and "object" in known.kind.split("|"):
            if full in ON_BY_BEING_THERE:
                yield full, value
            yield from _leaves(value, full)
        elif value is not None or known is None:
            yield full, value


def _meant(path: str, leaves: dict[str, Any]) -> Any:
    """The value as DeepSpeed reads it, or its default."""
    known = KEYS.get(path)
    value = leaves.get(path, known.default if known else None)
    if known is None or isinstance(value, dict):
        return value
    if isinstance(value, str):
        value = _word(known, value)
    try:
        return checked({known.name: value}, known.section, known.name, "", known.default)
    except SpecError:
        return value


def _word(known: Key, value: str) -> str:
    if known.section in DTYPE_SECTIONS and known.name.endswith("dtype"):
        return DTYPES.get(value, value)
    if known.path == "optimizer.type" and value.lower() in DEEPSPEED_OPTIMIZERS:
        return value.lower()
    return value
