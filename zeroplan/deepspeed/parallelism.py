"""How the ranks of a world share a batch, as DeepSpeed 0.19.8 reads it out of a ds_config.json.

`runtime/config.py:DeepSpeedConfig.__init__` counts the ranks that the batch sizes are checked with: those of the
mesh's data dimension where sequence_parallel_size and data_parallel_size are both there (`__init__.py:initialize`),
the world over sequence_parallel_size where that stands alone, and otherwise the whole world, tensor-parallel ranks
included. A pipeline's ranks are counted by its PipelineModule, which is told how many stages there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from zeroplan.errors import ContradictionError

SEQUENCE, DATA = "sequence_parallel_size", "data_parallel_size"
TENSOR, EXPERTS, STAGES = "tensor_parallel.autotp_size", "expert_parallel.autoep_size", "pipeline.stages"


class Indivisible(NamedTuple):
    """A parallel size that does not go into the world beside the others."""

    path: str
    size: int
    expected: str
    """In words: a divisor of 8."""
    instead: int


def makes_mesh(config: dict[str, Any]) -> bool:
    """Whether `initialize` builds a mesh of data and sequence groups."""
    return SEQUENCE in config and DATA in config


def data_parallel_sizes(config: dict[str, Any], world: int) -> tuple[Any, ...]:
    """Ranks that share a batch: as DeepSpeedConfig counts them, then as a PipelineModule does, where stages are named.

    Where a sequence_parallel_size does not divide the world there is a fraction, with which DeepSpeed goes on.
    Raises `TypeError` and `ZeroDivisionError` as DeepSpeed does.
    """
    if makes_mesh(config):
        return (config[DATA],)
    size = config.get(SEQUENCE, 1)
    shared: Any = world if size == 1 and not isinstance(size, bool) else world / size
    stages = _degree(config, STAGES)
    return (shared, world // stages) if stages > 1 and world % stages == 0 else (shared,)


def data_parallel_size(config: dict[str, Any], world: int, place: str) -> int:
    """Ranks that share a batch, as DeepSpeedConfig counts them. Raises `ContradictionError` where sizes do not fit."""
    wrong = next(indivisible(config, world), None)
    if wrong is not None:
        raise ContradictionError(
            f"{place}: {wrong.path} {wrong.size} on {world} GPU{'s' * (world > 1)}, expected {wrong.expected}; "
            f'write "{wrong.path.rpartition(".")[2]}": {wrong.instead}'
        )
    for name in (SEQUENCE, DATA):
        if name in config and _size(config[name]) == 0:
            raise ContradictionError(f'{place}: {name} is no whole number over 0; write "{name}": 1')
    return int(data_parallel_sizes(config, world)[0])


def grouped_ranks(config: dict[str, Any]) -> int:
    """The fewest ranks that the sequence groups of the file take."""
    return (_size(config.get(SEQUENCE)) or 1) * (_size(config.get(DATA)) if makes_mesh(config) else 1)


def indivisible(config: dict[str, Any], world: int) -> Iterator[Indivisible]:
    """Each parallel size that is a number and leaves ranks of the world over."""
    sequence, data = _size(config.get(SEQUENCE)), _size(config.get(DATA))
    if sequence and world % sequence:
        yield _dividing(SEQUENCE, sequence, world)
    elif makes_mesh(config) and sequence and data and sequence * data != world:
        yield Indivisible(DATA, data, f"{world // sequence}, the GPUs over {SEQUENCE}", world // sequence)
    tensor, experts = _degree(config, TENSOR), _degree(config, EXPERTS)
    if tensor and world % tensor:
        yield _dividing(TENSOR, tensor, world)
    if experts and world % experts and config["expert_parallel"].get("enabled"):
        yield _dividing(EXPERTS, experts, world)


def _dividing(path: str, size: int, world: int) -> Indivisible:
    """The largest size below it that divides the world."""
    below = next(less for less in range(min(size, world), 0, -1) if world % less == 0)
    return Indivisible(path, size, f"a divisor of {world}", below)


def _degree(config: dict[str, Any], path: str) -> int:
    section = config.get(path.partition(".")[0])
    return _size(section.get(path.partition(".")[2])) if isinstance(section, dict) else 0


def _size(value: Any) -> int:
    """A whole number over 0; 0 for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
