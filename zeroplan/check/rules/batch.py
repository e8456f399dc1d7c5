"""2xx: the three batch sizes, computed as runtime/config.py:_set_batch_related_parameters does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from zeroplan.check.finding import ADVICE, ERROR, WARNING, Hit, number, said
from zeroplan.check.rule import ISSUE, Rule, example
from zeroplan.check.rules import answers
from zeroplan.check.setting import LIGHTNING, TRAINER
from zeroplan.check.subject import Subject
from zeroplan.deepspeed.keys import KEYS
from zeroplan.deepspeed.parallelism import DATA, SEQUENCE, Indivisible, data_parallel_sizes, indivisible, makes_mesh
from zeroplan.deepspeed.read import LARGEST_BATCH
from zeroplan.deepspeed.values import AUTO
from zeroplan.deepspeed.values import example as instead

TOTAL, MICRO, STEPS = BATCH = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
NO_BATCH = "ZP203"
"""Of a config without a batch size, which OpenRLHF, Lightning and code may put in."""
SOURCE = "runtime/config.py:_batch_assertion"

RULES: tuple[Rule, ...] = (
    Rule(
        "ZP201", ERROR, "Three batch sizes that contradict each other", SOURCE,
        example('{"train_batch_size": 8, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 3, '
                '"bf16": {"enabled": true}}'),
        example('{"train_batch_size": 24, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 3, '
                '"bf16": {"enabled": true}}', gpus="4"), ISSUE + "6914",
    ),
    Rule(
        "ZP202", ERROR, "A train_batch_size that the other size does not divide", SOURCE,
        example('{"train_batch_size": 7, "train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": true}}'),
        example('{"train_batch_size": 8, "train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": true}}'),
    ),
    Rule(
        NO_BATCH, ERROR, "Neither train_batch_size nor train_micro_batch_size_per_gpu",
        "runtime/config.py:_set_batch_related_parameters",
        example('{"gradient_accumulation_steps": 4, "bf16": {"enabled": true}}'),
        example('{"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 4, "bf16": {"enabled": true}}'),
    ),
    Rule(
        "ZP204", ERROR, "A batch size that is not over 0, or no number", SOURCE,
        example('{"train_micro_batch_size_per_gpu": "4", "bf16": {"enabled": true}}'),
        example('{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": true}}'),
    ),
    Rule(
        "ZP206", ADVICE, "train_batch_size alone", "runtime/config.py:_set_batch_related_parameters",
        example('{"train_batch_size": 64, "bf16": {"enabled": true}}'),
        example('{"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": true}}'),
    ),
    Rule(
        "ZP207", ERROR, '"auto" where nothing fills it', "run: TypeError; 127 public files under DeepSpeed itself",
        example('{"train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": true}}', reader="deepspeed"),
        example('{"train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": true}, '
                '"zero_optimization": {"stage": 2}}', reader="hf"),
    ),
    Rule(
        "ZP208", WARNING, "sequence_parallel_size without data_parallel_size",
        "__init__.py:initialize, runtime/config.py",
        example('{"train_micro_batch_size_per_gpu": 4, "sequence_parallel_size": 1, "bf16": {"enabled": true}}'),
        example('{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": true}}'), since="0.17.0",
    ),
    Rule(
        "ZP210", ERROR, "Sequence groups that the GPUs are not made of",
        "__init__.py:initialize_mesh_device, runtime/config.py:DeepSpeedConfig",
        example('{"train_micro_batch_size_per_gpu": 4, "data_parallel_size": 4, "sequence_parallel_size": 4, '
                '"bf16": {"enabled": true}}', gpus="8"),
        example('{"train_micro_batch_size_per_gpu": 4, "data_parallel_size": 2, "sequence_parallel_size": 4, '
                '"bf16": {"enabled": true}}', gpus="8"), since="0.15.0",
    ),
)  # fmt: skip


def refused_sizes(subject: Subject) -> Iterator[Hit]:
    """The first thing that stops DeepSpeed at these sizes."""
    sizes = {name: subject.config.get(name) for name in BATCH}
    filled = [name for name in BATCH if sizes[name] == AUTO and subject.setting.fills]
    autos = [name for name in BATCH if sizes[name] == AUTO and not subject.setting.fills]
    wrong = [name for name in BATCH if name not in (*autos, *filled) and not _is_size(sizes[name])]
    for name in autos:
        yield Hit("ZP207", (name,), f'"auto" in {name}: DeepSpeed stops, only the Trainer and Accelerate fill it',
                  _in_place_of_auto(subject, name, sizes))  # fmt: skip
    for name in wrong:
        word = sizes[name]
        if isinstance(word, str) and word.isalpha() and word.isupper():
            yield Hit("ZP104", (name,), f"{said(word)} was to be replaced before the run: DeepSpeed stops",
                      f'"{name}": the value', ERROR)  # fmt: skip
            continue
        yield Hit("ZP204", (name,), f"{said(sizes[name])} for {name}: DeepSpeed stops, it takes a whole number over 0",
                  f'"{name}": {_instead(subject, name, sizes)}',
                  edits=answers.value(subject, (name,), KEYS[name], sizes[name]))  # fmt: skip
    for name in BATCH:
        size = sizes[name]
        if name not in wrong and isinstance(size, int | float) and size > LARGEST_BATCH:
            yield Hit("ZP204", (name,), f"{said(size)} for {name}: no batch is as large, and zeroplan estimate "
                      f"takes at most {LARGEST_BATCH:,}", f'"{name}": 8', WARNING)  # fmt: skip
    if filled and not (autos or wrong):
        yield from _beside_filled(sizes)
    if not (filled or autos or wrong):
        yield from _arithmetic(subject, sizes)


def _in_place_of_auto(subject: Subject, name: str, sizes: dict[str, Any]) -> str:
    """The lines go together where all three are "auto": the total follows from the other two."""
    if name == TOTAL and AUTO in (sizes[MICRO], sizes[STEPS]):
        return "delete it"
    value = "1" if name == STEPS and not _is_size(sizes[TOTAL]) else _instead(subject, name, sizes)
    return f'"{name}": {value}'


def _instead(subject: Subject, name: str, sizes: dict[str, Any]) -> str:
    """A size that suits the other two, where those are numbers."""
    total, micro, steps = (size if _is_size(size) else None for size in sizes.values())
    ranks = subject.setting.gpus or 1
    if name == TOTAL and _is_size(sizes[MICRO]) and _is_size(sizes[STEPS]):
        with suppress(TypeError, ZeroDivisionError):
            return number((micro or 1) * (steps or 1) * data_parallel_sizes(subject.config, ranks)[0])
    other = steps if name == MICRO else micro
    if name != TOTAL and total is not None:
        return number(max(1, total // ((other or 1) * ranks)))
    return instead(KEYS[name], sizes[name]) if sizes[name] != AUTO else "8"


def _beside_filled(sizes: dict[str, Any]) -> Iterator[Hit]:
    """A total that no number in place of "auto" can match."""
    total = sizes[TOTAL]
    for name in (MICRO, STEPS):
        part = sizes[name]
        if AUTO not in (total, part) and total is not None and part is not None and total % part:
            yield Hit("ZP202", (TOTAL,), f"train_batch_size {number(total)} is no multiple of {number(part)} {name}: "
                      "DeepSpeed refuses that, whatever is filled in", f'"{TOTAL}": "auto"')  # fmt: skip


def _is_size(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and value > 0)


def _arithmetic(subject: Subject, sizes: dict[str, Any]) -> Iterator[Hit]:
    total, micro, steps = (sizes[name] for name in BATCH)
    if total is None and micro is None and subject.setting.reader == LIGHTNING:
        return  # which writes the batch size of the data loader
    if total is None and micro is None:
        yield Hit(NO_BATCH, (STEPS,) if steps is not None else (), "neither train_batch_size nor "
                  "train_micro_batch_size_per_gpu: DeepSpeed refuses that", f'"{MICRO}": 1')  # fmt: skip
        return
    try:
        worlds = _worlds(subject, total, micro, steps)
        fits = any(world > 0 and _fits(total, micro, steps, world) for world in worlds)
    except (TypeError, ZeroDivisionError):
        return  # the sizes of groups have a rule of their own
    if fits or _wrong_groups(subject):
        return
    world = worlds[0]
    if total is None and world <= 0:
        return  # it has ZP204
    ranks = f"{number(world)} {_ranks(subject)}"
    if None not in (total, micro, steps):
        most = micro * steps * world
        product = " · ".join([number(micro), number(steps), ranks])
        yield Hit("ZP201", (TOTAL,), f"train_batch_size {number(total)} is not {product} = {number(most)}: "
                  "DeepSpeed refuses that",
                  f'"{SEQUENCE}": 1' if most % 1 else f'"{TOTAL}": {number(most)}')  # fmt: skip
        return
    parts = [f"{number(value)} {name}" for name, value in ((MICRO, micro), (STEPS, steps)) if value is not None]
    by = " · ".join([*parts, ranks])
    yield Hit("ZP202", (TOTAL,), f"train_batch_size {number(total)} is no multiple of {by}: DeepSpeed refuses that",
              f'"{TOTAL}": {_nearest(total, (micro or 1) * (steps or 1) * world)}')  # fmt: skip


def _ranks(subject: Subject) -> str:
    """What the GPUs are called that share a batch."""
    return "data-parallel ranks" if SEQUENCE in subject.config else "GPUs"


def _nearest(total: Any, unit: Any) -> str:
    """The multiple of it that is nearest; in words where there is none."""
    try:
        return str(number(max(1, round(total / unit)) * unit))
    except (OverflowError, ValueError, ZeroDivisionError):  # no number, or beyond all floats
        return "a batch that can be trained"


def _worlds(subject: Subject, total: Any, micro: Any, steps: Any) -> tuple[Any, ...]:
    """Ranks that share the batch; where GPUs are unknown, those that suit the sizes best."""
    setting, config = subject.setting, subject.config
    if setting.gpus is not None or makes_mesh(config):
        return data_parallel_sizes(config, setting.gpus or 1)
    split = config.get(SEQUENCE, 1)
    if None not in (total, micro, steps):
        return (max(1, total // (micro * steps)),)
    return (1 if split == 1 else max(1, split) / split,)


def _fits(total: Any, micro: Any, steps: Any, world: Any) -> bool:
    """DeepSpeed's own arithmetic, and its assertions."""
    if total is not None and micro is not None:
        steps = total // micro // world if steps is None else steps
    elif total is not None:
        steps = 1 if steps is None else steps
        micro = total // world // steps
    else:
        steps = 1 if steps is None else steps
        total = micro * steps * world
    return bool(total > 0 and micro > 0 and steps > 0 and total == micro * steps * world)


def split_sequences(subject: Subject) -> Iterator[Hit]:
    config, gpus = subject.config, subject.setting.gpus
    if SEQUENCE not in config:
        return
    if subject.table.before("0.19.3") and not (isinstance(config[SEQUENCE], int | float) and config[SEQUENCE]):
        return  # DeepSpeed goes on with one rank
    for name in (SEQUENCE, *([DATA] if DATA in config else [])):
        value = config[name]
        if not isinstance(value, int | float) or not value > 0 or (DATA in config and not isinstance(value, int)):
            yield Hit("ZP204", (name,), f"{said(value)} for {name}: DeepSpeed stops, it divides the GPUs by it",
                      f'"{name}": 1')  # fmt: skip
            return
    if wrong := _wrong_groups(subject):
        yield _indivisible(subject, wrong)
    elif DATA in config:
        return
    elif config[SEQUENCE] > 1 and subject.setting.reader == TRAINER and config.get(TOTAL) == AUTO:
        yield Hit("ZP208", (TOTAL,), "the Trainer fills in a total of all GPUs, and DeepSpeed divides them by "
                  f"{SEQUENCE} {number(config[SEQUENCE])}: it stops", f'delete "{TOTAL}"', ERROR)  # fmt: skip
    else:
        data = "GPUs / sequence_parallel_size" if gpus is None else number(gpus / config[SEQUENCE])
        yield Hit("ZP208", (SEQUENCE,),
                  f"{SEQUENCE} without data_parallel_size makes no sequence groups, those are an mpu's of the script; "
                  "it only divides the GPUs that share the batch", f'"{DATA}": {data}')  # fmt: skip


def _wrong_groups(subject: Subject) -> Indivisible | None:
    """The size of groups that leaves GPUs over; None where GPUs are unknown."""
    gpus = subject.setting.gpus
    groups = indivisible(subject.config, gpus) if gpus else ()
    return next((one for one in groups if one.path in (SEQUENCE, DATA)), None)


def _indivisible(subject: Subject, wrong: Indivisible) -> Hit:
    """DeepSpeed stops at a mesh, and goes on with a fraction of a GPU where the batch sizes suit that."""
    gpus = subject.setting.gpus or 1
    stops = makes_mesh(subject.config) or not _suits(subject, gpus / wrong.size)
    sizes = sorted((size for size in range(1, gpus + 1) if gpus % size == 0), key=lambda size: abs(size - wrong.size))
    suiting = (size for size in sizes if not makes_mesh(subject.config) and _suits(subject, gpus // size))
    rest = "DeepSpeed stops" if stops else "DeepSpeed counts a fraction of a GPU"
    return Hit("ZP210", (wrong.path,), f"{wrong.path} {wrong.size} on {gpus} GPUs, not {wrong.expected}: {rest}",
               f'"{wrong.path}": {next(suiting, wrong.instead)}', severity="" if stops else WARNING)  # fmt: skip


def _suits(subject: Subject, ranks: float) -> bool:
    """Whether the three batch sizes, where they are numbers, go together on so many ranks."""
    total, micro, steps = (subject.config.get(name) for name in BATCH)
    if not all(size is None or isinstance(size, int | float) for size in (total, micro, steps)) or not (total or micro):
        return True
    return _fits(total, micro, steps, ranks)


def total_alone(subject: Subject) -> Iterator[Hit]:
    config = subject.config
    if [name for name in BATCH if config.get(name) is not None] == [TOTAL] and config[TOTAL] != AUTO:
        total, ranks = config[TOTAL], subject.setting.gpus or 1
        share = total // ranks if isinstance(total, int) and total > 0 and total % ranks == 0 else 4
        micro = share if subject.setting.gpus else max(size for size in (1, 2, 4) if share % size == 0)
        yield Hit("ZP206", (TOTAL,), "train_batch_size alone: each GPU takes its share in one micro-batch, so memory "
                  "grows when GPUs become fewer", f'"{MICRO}": {micro}')  # fmt: skip


CHECKS = (refused_sizes, split_sequences, total_alone)
