"""The commands as functions: keyword arguments have the names of the options, values are as typed or Python's own.

    >>> import zeroplan
    >>> found = zeroplan.estimate(params="7B", gpus=8, stage=3)
    >>> found.strategy.needed  # bytes: the peak, the CUDA context and NCCL's buffers
    31727150613

What a user can mend raises `zeroplan.ZeroplanError` with the line that the command prints.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, Literal, TypedDict, TypeVar, Unpack, overload

from zeroplan.cli.options import Options, flag
from zeroplan.errors import ContradictionError, QuantityError, UnknownNameError, shown
from zeroplan.results.diff import Diff
from zeroplan.results.estimate import Estimate
from zeroplan.results.front import Plans
from zeroplan.results.largest import LargestModels
from zeroplan.results.matrix import Matrix
from zeroplan.results.recommend import Recommendation
from zeroplan.specs.target import HF, read_script
from zeroplan.units import count, read_count

Path = str | os.PathLike[str]
Number = str | float
"""Text as it is typed, or a number."""
Numbers = Number | Sequence[Number]
"""Or several, where the command takes them."""
Paths = Path | Sequence[Path]


class Words(TypedDict, total=False):
    """The options that every command takes, as `zeroplan estimate --help` explains them."""

    params: Numbers | None
    model: Paths | None
    config: Paths | None
    seq: Numbers | None
    micro_batch: Numbers | None
    grad_accum: Numbers | None
    global_batch: Numbers | None
    precision: str | Sequence[str] | None
    optimizer: str | Sequence[str] | None
    optim: str | Sequence[str] | None
    checkpointing: str | Sequence[str] | None
    attention: str | Sequence[str] | None
    kernels: str | Sequence[str] | None
    stage: Numbers | None
    offload_optimizer: str | Sequence[str] | None
    offload_param: str | Sequence[str] | None
    zero_init: str | bool | None
    built_in: str | Sequence[str] | None
    built_on: str | None
    backend: str | None
    rank: Number | None
    gpus: Numbers | None
    gpu: str | Sequence[str] | None
    gpu_mem: Numbers | None
    headroom: Number | None
    host_mem: Number | None
    nvme: Number | None
    cluster: Paths | None
    accept: str | None
    hostfile: Path | None


Command = TypeVar("Command", bound=Callable[..., Any])


def _named(function: Command) -> Command:
    """Show the options by name where a signature is asked for: in help and in notebooks."""
    own = [p for p in inspect.signature(function).parameters.values() if p.kind is not p.VAR_KEYWORD]
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in Words.__annotations__.items()
    ]
    first = [p for p in own if p.kind is p.POSITIONAL_OR_KEYWORD]
    rest = [p for p in own if p not in first]
    function.__signature__ = inspect.Signature([*first, *shared, *rest])  # type: ignore[attr-defined]
    return function


@_named
def estimate(
    *, accounting: str = "deepspeed", timeline: bool = False, partial: bool = False, **options: Unpack[Words]
) -> Estimate:
    """Memory per GPU and traffic of a strategy, or of ZeRO 0-3 side by side; seconds where a card is named.

    >>> found = estimate(params="7B", gpus=8, gpu_mem=80)
    >>> [stage for stage, numbers in found.stages.items() if numbers.fits]
    [1, 2, 3]
    >>> found.stages[0].verdict, found.stages[0].headroom < 0  # bytes that are missing on each GPU
    ('does_not_fit', True)

    Raises `ZeroplanError` for what cannot be meant.
    """
    from zeroplan.cli.estimate import asked

    return asked(_options(options), accounting=accounting, timeline=timeline, partial=partial)


@overload
def recommend(*, max_params: Literal[True], **options: Unpack[Words]) -> LargestModels: ...
@overload
def recommend(
    *, objective: Literal["pareto"], max_params: Literal[False] = False, apart: Number | None = None,
    target: str = HF, allow: str | None = None, **options: Unpack[Words],
) -> Plans | Recommendation: ...  # fmt: skip
@overload
def recommend(
    *, max_params: Literal[False] = False, why: str | Sequence[str] = (), tokens: Number | None = None,
    deadline: str | None = None, price: Number | Mapping[str, Number] | None = None, objective: str = "fastest",
    target: str = HF, allow: str | None = None, **options: Unpack[Words],
) -> Recommendation: ...  # fmt: skip
@_named
def recommend(
    *, max_params: bool = False, why: str | Sequence[str] = (), tokens: Number | None = None,
    deadline: str | None = None, price: Number | Mapping[str, Number] | None = None, objective: str = "fastest",
    apart: Number | None = None, target: str = HF, allow: str | None = None, **options: Unpack[Words],
) -> Recommendation | LargestModels:  # fmt: skip
    """The fastest strategy that fits, why the others lost, and its ds_config.json.

    >>> found = recommend(params="1.3B", gpus=2, gpu_mem=24, stage=3, micro_batch=1)
    >>> found.plan.fits, found.plan.stage
    (True, 3)
    >>> found.ds_config()["zero_optimization"]["stage"]
    3

    With `gpus="auto"` on the fewest GPUs; with several cards, as in `gpu_mem=[24, 80]`, the plan of each is in `cards`;
    with `max_params=True` the largest model in place of a plan. `why`: alternatives to set beside the plan, by the
    names that --why takes; what became of each is in `.why`. `tokens`, `deadline` and `price` (of a GPU-hour, or a
    dictionary by card) as the options have them: `.run` is the whole training run.

    `objective="least-memory"`: the plan that needs fewest bytes of a GPU. `objective="pareto"`: all plans of which none
    is both faster and leaner, each by `apart` (1%) of its bytes leaner than the one before, in `.front`, as
    `Outcome`s; `.row(2).write("ds_config.json")` writes the third.

    >>> found = recommend(params="1.3B", gpus=2, gpu_mem=40, stage=3, objective="pareto", apart="20%")
    >>> [plan.offload_optimizer for plan in (found.front[0], found.front[-1])]
    [None, 'cpu']

    `target` and `allow` as --for and --allow have them: the plan uses what the target is told by its own files and
    arguments, or with `allow="code"` what needs lines of the training script.

    Raises `ZeroplanError` for what cannot be meant; that nothing fits is a result, whose `plan` is None.
    """
    from zeroplan.cli.goal import NOTHING, read_goal

    goal = read_goal(_typed("tokens", tokens), deadline, _prices(price), objective, _typed("apart", apart))
    typed = _options(options)
    typed.script = read_script(target, allow)
    if max_params:
        from zeroplan.cli.largest import asked as largest

        if why or goal != NOTHING:
            raise ContradictionError("max_params makes no plan; leave out why, tokens, deadline, price and objective")
        return largest(typed)
    from zeroplan.cli.recommend import asked

    answer = asked(typed, alternatives=[why] if isinstance(why, str) else why, goal=goal)
    answer.target = target
    return answer


@_named
def matrix(**options: Unpack[Words]) -> Matrix:
    """Models by strategies: several `params`, or several `model`.

    >>> found = matrix(params=["1.3B", "7B"], gpus=8, gpu_mem=24)
    >>> found.rows["7B"]["ZeRO-3 + CPU"].fits, found.rows["7B"]["ZeRO-3"].headroom
    (True, -6271080777)
    >>> found.markdown().splitlines()[2]
    '| 1.3B | 30.22 ✗ | 10.71 | 10.64 | 11.30 | 8.95 | 8.88 |'
    """
    from zeroplan.cli.matrix import asked

    return asked(_options(options))


@_named
def diff(first: Path, second: Path, **options: Unpack[Words]) -> Diff:
    """What differs in meaning between two ds_config.json, and in bytes, calls and seconds where a model is named.

    >>> found = diff("zero2.json", "zero3.json", model="llama-3.1-8b", gpus=8)  # doctest: +SKIP
    >>> found.together.needed, found.changes[0].alone.needed  # bytes of a GPU that the second needs more
    ... # doctest: +SKIP

    Raises `ZeroplanError` for what cannot be meant, and for a config that DeepSpeed refuses.
    """
    from zeroplan.cli.diff import asked

    return asked(os.fsdecode(first), os.fsdecode(second), _options(options))


def _prices(value: Number | Mapping[str, Number] | None) -> str | None:
    if not isinstance(value, Mapping):
        return _typed("price", value)
    return ",".join(f"{card}={_typed('price', each)}" for card, each in value.items())


def _options(values: Any) -> Options:
    known = Options.__annotations__
    for name in values:
        if name not in known:
            raise UnknownNameError("option", name, known)
    return Options(**{name: _typed(name, value) for name, value in values.items()})


def _typed(name: str, value: Any) -> str | None:
    """A value as a user types it; None where it is left out."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    if isinstance(value, Integral):
        return _whole(name, int(value))
    if isinstance(value, Real):
        number = float(value)
        return _whole(name, int(number)) if number.is_integer() else str(number)
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
        return ",".join(_typed(name, each) or "" for each in value)
    raise QuantityError(
        f"{flag(name)}: found {shown(value)}, expected text, a number, True or False, a path or a list of these; "
        f"write {name} as a user types {flag(name)}"
    )


def _whole(name: str, value: int) -> str:
    """7_000_000_000 parameters are 7B, where that is all of them."""
    short = count(value) if name == "params" and value >= 10**6 else ""
    return short if short and read_count(short) == value else str(value)
