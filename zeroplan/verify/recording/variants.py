"""A model's programs: one pass for each batch that sizes follow from, in each way in which the model can run."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager, nullcontext
from itertools import pairwise
from typing import Any, NamedTuple

import torch

from zeroplan.architectures.recorded.program import Program
from zeroplan.architectures.recorded.recording import Variant
from zeroplan.arithmetic import round_up
from zeroplan.errors import SpecError
from zeroplan.verify.inputs import Inputs
from zeroplan.verify.kernels import as_on_cuda
from zeroplan.verify.recording.calls import Like
from zeroplan.verify.recording.experiments import Experiments
from zeroplan.verify.recording.fast_kernels import fast_kernels
from zeroplan.verify.recording.flash_package import VERSIONS as FLASH_VERSIONS
from zeroplan.verify.recording.growth import NotOneProgramError, Point, at_point, grown
from zeroplan.verify.recording.layers import identical_layers
from zeroplan.verify.recording.recorder import Given, record

MANY = ((2, 4), (3, 4), (2, 6), (3, 6), (4, 8), (2, 10), (5, 6))
"""Batches of two and more, and sequences in quarters of the shortest: six decide an extent, the last has to agree."""
ONE = ((1, 4), (1, 6), (1, 8), (1, 10))
BATCHES = (1, 2, 3, 4, 6, 8)
"""Of images that run one after the other."""
MOST_WORDS, FEWEST = 8192, 2
"""Words of images in a batch of more than so many sequences that is recorded: each image takes its time."""
QUARTERS = 10
"""Of the shortest in the longest."""
SHORTEST = 128
UNIT = 32
"""Recorded sequences are of so many tokens, or multiples: kernels round theirs up to this."""
MULTIPLES = (1, 8, UNIT)
"""What a sequence may have to be a multiple of, the least first."""
CUDA, CPU = "cuda", "cpu"
HALF = frozenset({"bf16", "fp16"})
FLASH_LIKE = {FLASH_VERSIONS[1]: FLASH_VERSIONS[0]}


class Recordable(NamedTuple):
    """A model that can be built in any dtype and with any attention of its own."""

    build: Callable[[str, str], torch.nn.Module]
    """In a precision, with an attention; on the meta device, in training."""
    inputs: Callable[[int, int, str], Inputs]
    """Of a batch, a sequence and a precision."""
    windows: tuple[int, ...] = ()
    """Tokens from which on another mask is made; beyond which the flash-attention package is given a window."""
    chunk: int = 1
    """Tokens that layers take together."""
    images: bool = False
    least: int = 1
    """Tokens of the shortest sequence: images have words in it."""
    has_target: bool = False
    """Its labels are a sequence of another length."""
    stood_in: set[str] = set()  # noqa: RUF012 (one for each model: `Recordable` is made with its own)
    """Names of kernels for which stand-ins ran."""


class Way(NamedTuple):
    """How a model runs."""

    attention: str
    dtype: str
    backend: str = CUDA


def ranges(windows: Sequence[int], shortest: int = 1) -> Iterator[tuple[int, int]]:
    """Sequences between which another program may begin: at least and at most so many tokens; 0: no most."""
    borders = [shortest, *sorted({each for each in windows if each > shortest}), 0]
    for least, following in pairwise(borders):
        yield least, following - 1 if following else 0


def shortest_of(tokens: tuple[int, int], chunk: int) -> int | None:
    """The shortest sequence to record for a range; None where it has no room for several."""
    least, most = tokens
    shortest = round_up(max(least, SHORTEST), 4 * max(UNIT, chunk))  # so that quarters are whole units
    unit = UNIT if chunk == 1 else 4 * max(UNIT, chunk)
    if most and shortest * QUARTERS // 4 > most:
        shortest = most * 4 // QUARTERS // unit * unit
    return shortest if shortest >= max(least, unit) else None


class Ran(NamedTuple):
    """A program, and what it was recorded for."""

    variant: Variant
    program: Program

    def of_checkpointed(self, *, checkpoints: bool) -> Ran:
        return self._replace(variant=self.variant._replace(checkpoints=checkpoints))


def recorded(of: Recordable, ways: Sequence[Way], watch: Callable[[str], None]) -> Iterator[Ran]:
    """All of them. Raises `NotOneProgramError`."""
    done: list[Ran] = []
    experiments = {way.backend: Experiments() for way in ways}
    for number, way in enumerate(ways, 1):
        watch(f"{way.attention} in {way.dtype} ({number} of {len(ways)})")
        try:
            found = list(_in_one_way(of, way, done, experiments[way.backend]))
        except Exception as error:  # of flash attention, which not every class that says so runs with
            if way.attention not in FLASH_VERSIONS or not done:
                raise
            watch(f"{way.attention} in {way.dtype} is left out: {' '.join(str(error).split())}")
            continue
        done += found
        yield from found


def _in_one_way(of: Recordable, way: Way, done: Sequence[Ran], experiments: Experiments) -> Iterator[Ran]:
    model = Passes(of, way.dtype, of.build(way.dtype, way.attention), experiments)
    beyond = int(way.attention in FLASH_VERSIONS)  # which is given a window where a sequence is longer
    for tokens in ranges([each + beyond for each in of.windows], of.least):
        shortest = shortest_of(tokens, of.chunk)
        if shortest is None:
            continue
        with running(way, of):
            model.begin()
            found = in_its_like(model, way, tokens[1], shortest, done) or fresh(model, way, tokens, shortest)
            if runs_otherwise_checkpointed(model, found[0], shortest):
                told = model.as_checkpointed()
                more = in_its_like(told, way, tokens[1], shortest, done) or fresh(told, way, tokens, shortest)
                found = [each.of_checkpointed(checkpoints=False) for each in found]
                found += [each.of_checkpointed(checkpoints=True) for each in more]
        yield from found


def fresh(model: Passes, way: Way, tokens: tuple[int, int], shortest: int) -> list[Ran]:
    """What runs of these sequences. Raises `NotOneProgramError`."""
    return [_ran(way, tokens, batches, shortest, each, model.of.chunk) for batches, each in programs(model, shortest)]


def runs_otherwise_checkpointed(model: Passes, ran: Ran, shortest: int) -> bool:
    """Whether the model's own code asks if its layers are checkpointed: T5's has biases ask for gradients then."""
    point = ran.variant.batches[0], shortest
    return bool(model.told_at(point) != at_point(ran.program, point))


def in_its_like(
    model: Passes, way: Way, most: int, shortest: int, done: Sequence[Ran]
) -> list[Ran]:  # fmt: skip
    """Those of the other precision of 16 bit, or of the other version of flash attention, where one pass of each runs
    its program; empty where one does not.
    """
    known: list[Ran] = []
    for attention in (way.attention, FLASH_LIKE.get(way.attention, "")):
        known = known or [
            each for each in done
            if (each.variant.attention, each.variant.backend, each.variant.tokens[1]) == (attention, way.backend, most)
            and HALF.issuperset((each.variant.dtypes[0], way.dtype))
            and bool(each.variant.checkpoints) == model.checkpoints
        ]  # fmt: skip
    if not known:
        return []
    points = [(each.variant.batches[0], shortest) for each in known]
    same = all(model.at(point) == at_point(each.program, point) for point, each in zip(points, known, strict=True))
    if not same:
        return []
    return [
        each._replace(variant=each.variant._replace(attention=way.attention, dtypes=(way.dtype,))) for each in known
    ]


def _ran(
    way: Way, tokens: tuple[int, int], batches: tuple[int, int], shortest: int, grown_over: Grown, chunk: int
) -> Ran:  # fmt: skip
    fits = grown_over.fits(round_up(max(tokens[0], 1), max(UNIT, chunk)))
    least = tokens[0] if fits else shortest
    variant = Variant(
        way.attention, (way.dtype,), way.backend, batches, (least, tokens[1]), grown_over.multiple, program=0
    )
    return Ran(variant, grown_over.program)


@contextmanager
def running(way: Way, of: Recordable) -> Iterator[None]:
    """Kernels as they are on the device, and in the place of those that are not there what stands for them."""
    with as_on_cuda() if way.backend == CUDA else nullcontext(), fast_kernels() as ran:
        yield
    of.stood_in.update(ran)


class Passes:
    """Passes of a model in one precision and attention."""

    def __init__(
        self, of: Recordable, dtype: str, model: torch.nn.Module, experiments: Experiments, *, checkpoints: bool = False
    ) -> None:  # fmt: skip
        """`checkpoints`: its code is told that layers are checkpointed; none is."""
        self.of, self.dtype, self.model, self.checkpoints = of, dtype, model, checkpoints
        self.experiments = experiments
        self.alike: dict[str, Like] | None = None
        self.known: dict[Point, Program] = {}
        self.multiple = 1
        """What sequences of one of its batches have to be a multiple of."""
        gc.freeze()  # the libraries' own objects need no collecting after each pass

    def as_checkpointed(self) -> Passes:
        """The same model's, whose code is told that layers are checkpointed."""
        told = Passes(self.of, self.dtype, self.model, self.experiments, checkpoints=True)
        told.multiple = self.multiple
        return told

    def begin(self) -> None:
        """Another range of sequences: beyond a window layers differ that are the same below it."""
        self.alike, self.multiple = None, 1

    def at(self, point: Point) -> Program:
        """What runs of a batch and a sequence."""
        if point not in self.known:
            self.known[point] = self.told_at(point) if self.checkpoints else self.plainly_at(point)
        return self.known[point]

    def plainly_at(self, point: Point) -> Program:
        return record(self.model, self.of.inputs(*point, self.dtype), self.experiments, self.alike_at(point[1]))

    def told_at(self, point: Point) -> Program:
        """As after activation_checkpointing_enable, but that layers run as they are."""
        layers = [module for module in self.model.modules() if hasattr(module, "gradient_checkpointing")]
        plainly = Plainly()
        for module in layers:
            vars(module).update(gradient_checkpointing=True, _gradient_checkpointing_func=plainly)
        try:
            alike = self.alike_at(point[1])
            plainly.given.clear()
            inputs = self.of.inputs(*point, self.dtype)
            return record(self.model, inputs, self.experiments, alike, plainly.given)
        finally:
            for module in layers:
                vars(module).update(gradient_checkpointing=False)

    def alike_at(self, seq: int) -> dict[str, Like]:
        if self.alike is None:
            self.alike = identical_layers(self.model, self.of.inputs(2, seq, self.dtype), self.experiments)
        return self.alike


class Plainly:
    """Calls what torch.utils.checkpoint would, and has mappings that layers are given, which a checkpoint keeps: they
    put keys and values into one.
    """

    def __init__(self) -> None:
        self.given: list[Given] = []

    def __call__(self, function: Any, *args: Any, **named: Any) -> Any:
        layer, words = function.args[0], {**function.keywords, **named}  # as GradientCheckpointingLayer calls it
        mappings = (each for each in (*args, *words.values()) if isinstance(each, MutableMapping))
        self.given += [(layer, each) for each in mappings]
        return function(*args, **named)


class Grown(NamedTuple):
    """A program of any sequence from some on."""

    program: Program
    multiple: int
    fits: Callable[[int], bool]
    """Whether a sequence of so many tokens runs it."""


def grown_over(model: Passes, points: Sequence[Point], least: int = 1) -> Grown:
    """`least`: what sequences are a multiple of in any case. Raises `NotOneProgramError`."""
    chunk = model.of.chunk
    program = grown([model.at(point) for point in points], points, chunk)
    batch, shortest = points[0]

    def fits(seq: int) -> bool:
        try:
            return bool(model.at((batch, seq)) == at_point(program, (batch, seq)))
        except SpecError:  # shorter than its images
            return False

    *less, most = [each for each in multiples(chunk) if each >= least]
    return Grown(program, next((each for each in less if fits(shortest + each)), most), fits)


def programs(model: Passes, shortest: int) -> Iterator[tuple[tuple[int, int], Grown]]:
    """Of two sequences or more, and of one. Of images that run one after the other each batch has its own."""

    def points(pattern: Sequence[Point]) -> list[Point]:
        return [(batch, quarters * shortest // 4) for batch, quarters in pattern]

    try:
        if model.of.images:
            two = points(MANY[:2])
            grown([model.at(point) for point in two], two)
        yield (2, 0), grown_over(model, points(MANY))
    except NotOneProgramError:
        if not model.of.images:
            raise
        few = [batch for batch in BATCHES if batch <= FEWEST or batch * model.of.least <= MOST_WORDS]
        for batch in few:
            each = grown_over(model, points([(batch, quarters) for _one, quarters in ONE]), model.multiple)
            model.multiple = each.multiple  # of one batch, and so of larger ones
            yield (batch, batch), each
    else:
        yield (1, 1), grown_over(model, points(ONE))


def multiples(chunk: int) -> list[int]:
    """What a sequence may have to be a multiple of, the least first."""
    return sorted({*MULTIPLES, *([chunk] if chunk > 1 else [])})


def joined(every: Sequence[Ran]) -> tuple[tuple[Variant, ...], tuple[Program, ...]]:
    """Variants of one program, of precisions or of neighbouring ranges, as one; and the programs."""
    programs: list[Program] = []
    result: list[Variant] = []
    for variant, program in every:
        if program not in programs:
            programs.append(program)
        each = variant._replace(program=programs.index(program))
        like = next((other for other in result if _same(other, each)), None)
        if like is None:
            result.append(each)
        elif like.dtypes == each.dtypes:
            result[result.index(like)] = like._replace(tokens=(like.tokens[0], each.tokens[1]))
        elif like.tokens == each.tokens:
            result[result.index(like)] = like._replace(dtypes=(*like.dtypes, *each.dtypes))
        else:
            result.append(each)
    return tuple(result), tuple(programs)


def _same(one: Variant, other: Variant) -> bool:
    keys = ((each.attention, each.backend, each.checkpoints, each.batches, each.program) for each in (one, other))
    return next(keys) == next(keys)
