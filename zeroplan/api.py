"""The commands as functions: keyword arguments have the names of the options, values are Python's own or as typed.

The command line calls these too, with what was typed; `zeroplan.request.options` declares how each value is read.

    >>> import zeroplan
    >>> result = zeroplan.estimate(params="7B", gpus=8, stage=3)
    >>> result.strategy.needed  # bytes: the peak, the CUDA context and NCCL's buffers
    31727150613

What a user can mend raises `zeroplan.ZeroplanError` with the line that the command prints.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, overload

from zeroplan.errors import ContradictionError, QuantityError, shown
from zeroplan.request.options import Number, Options, Path, Words, stated
from zeroplan.request.values import switch
from zeroplan.specs.target import HF, Script, read_script

if TYPE_CHECKING:  # a call imports its own
    from zeroplan.results.diff import Diff
    from zeroplan.results.estimate import Estimate
    from zeroplan.results.front import Plans
    from zeroplan.results.largest import LargestModels
    from zeroplan.results.matrix import Matrix
    from zeroplan.results.methods import Methods
    from zeroplan.results.recommend import Recommendation

Command = TypeVar("Command", bound=Callable[..., Any])


SHARED = [
    inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
    for name, annotation in Words.__annotations__.items()
]


def _named(function: Command) -> Command:
    """Show the options by name where a signature is asked for: in help and in notebooks."""
    own = [p for p in inspect.signature(function).parameters.values() if p.kind is not p.VAR_KEYWORD]
    first = [p for p in own if p.kind is p.POSITIONAL_OR_KEYWORD]
    rest = [p for p in own if p.kind is p.KEYWORD_ONLY]
    function.__signature__ = inspect.Signature([*first, *SHARED, *rest])  # type: ignore[attr-defined]
    return function


@_named
def estimate(
    *, accounting: str = "deepspeed", timeline: bool = False, partial: bool = False, **options: Unpack[Words]
) -> Estimate:
    """Memory per GPU and traffic of a strategy, or of ZeRO 0-3 side by side; seconds where a card is named.

    >>> result = estimate(params="7B", gpus=8, gpu_mem=80)
    >>> [stage for stage, numbers in result.stages.items() if numbers.fits]
    [1, 2, 3]
    >>> result.stages[0].verdict, result.stages[0].headroom < 0  # bytes that are missing on each GPU
    ('does_not_fit', True)

    Raises `ZeroplanError` for what cannot be meant.
    """
    from zeroplan.results import estimate

    return estimate.estimate(
        Options(**stated(options)), accounting=accounting, timeline=switch("timeline", timeline),
        partial=switch("partial", partial),
    )  # fmt: skip


@overload
def recommend(
    *, max_params: Literal[True], method: str | Sequence[str] = (), target: str = HF, allow: str | None = None,
    **options: Unpack[Words],
) -> LargestModels: ...  # fmt: skip
@overload
def recommend(
    *, objective: Literal["pareto"], max_params: Literal[False] = False, apart: Number | None = None,
    target: str = HF, allow: str | None = None, **options: Unpack[Words],
) -> Plans | Recommendation: ...  # fmt: skip
@overload
def recommend(
    *, max_params: Literal[False] = False, why: str | Sequence[str] = (), tokens: Number | None = None,
    deadline: str | None = None, price: Number | Mapping[str, Number] | None = None, objective: str = "fastest",
    method: str | Sequence[str] = (), target: str = HF, allow: str | None = None, **options: Unpack[Words],
) -> Methods | Recommendation: ...  # fmt: skip
@_named
def recommend(
    *, max_params: bool = False, why: str | Sequence[str] = (), tokens: Number | None = None,
    deadline: str | None = None, price: Number | Mapping[str, Number] | None = None, objective: str = "fastest",
    apart: Number | None = None, method: str | Sequence[str] = (), target: str = HF, allow: str | None = None,
    **options: Unpack[Words],
) -> Recommendation | LargestModels:  # fmt: skip
    """The fastest strategy that fits, why the others lost, and its ds_config.json.

    >>> result = recommend(params="1.3B", gpus=2, gpu_mem=24, stage=3, micro_batch=1)
    >>> result.plan.fits, result.plan.stage
    (True, 3)
    >>> result.ds_config()["zero_optimization"]["stage"]
    3

    With `gpus="auto"` on the fewest GPUs; with several cards, as in `gpu_mem=[24, 80]`, the plan of each is in `cards`;
    with `max_params=True` the largest model in place of a plan. `why`: alternatives to set beside the plan, by the
    names that --why takes; what became of each is in `.why`. `tokens`, `deadline` and `price` (of a GPU-hour, or a
    dictionary by card) as the options have them: `.run` is the whole training run.

    `objective="least-memory"`: the plan that needs fewest bytes of a GPU. `objective="pareto"`: all plans of which none
    is both faster and leaner, each by `apart` (1%) of its bytes leaner than the one before, in `.front`, as
    `Outcome`s; `.row(2).write("ds_config.json")` writes the third.

    >>> result = recommend(params="1.3B", gpus=2, gpu_mem=40, stage=3, objective="pareto", apart="20%")
    >>> [plan.offload_optimizer for plan in (result.front[0], result.front[-1])]
    [None, 'cpu']

    `method=["full", "lora", "qlora"]`: each way to train with its plan, in `.methods`; one alone is what `lora` and
    `quantize` say.

    >>> result = recommend(model="llama-3.2-1b", gpus=1, gpu_mem=16, seq=512, method=["full", "lora"])
    >>> [name for name, plan in result.methods.items() if plan]
    ['full', 'lora']

    `target` and `allow` as --for and --allow have them: the plan uses what the target is told by its own files and
    arguments, or with `allow="code"` what needs lines of the training script.

    Raises `ZeroplanError` for what cannot be meant; that nothing fits is a result, whose `plan` is None.
    """
    from zeroplan.request.goal import NOTHING, Goal

    goal = Goal(**_given(tokens=tokens, deadline=deadline, price=price, objective=objective, apart=apart))
    of_job, script = stated(options), read_script(target, allow)
    if method or isinstance(method, str):
        of_job, methods = _methods(of_job, method, script, largest=switch("max_params", max_params))
        if len(methods) > 1:
            from zeroplan.results.methods import side_by_side

            if why or switch("max_params", max_params):
                raise ContradictionError("method compares plans; leave out why and max_params, or name one method")
            return side_by_side(of_job, methods, goal, script)
    if switch("max_params", max_params):
        from zeroplan.results.largest import largest_models

        if why or goal != NOTHING:
            raise ContradictionError("max_params makes no plan; leave out why, tokens, deadline, price and objective")
        return largest_models(of_job, script)
    from zeroplan.results.objectives import recommendation

    result = recommendation(of_job, script=script, alternatives=_names(why), goal=goal)
    result.target = target
    result.stated = None if result.cards else of_job
    return result


def _methods(
    of_job: dict[str, Any], method: Any, script: Script, *, largest: bool
) -> tuple[dict[str, Any], tuple[str, ...]]:  # fmt: skip
    """The options, and the ways to train; of one alone its own options."""
    from zeroplan.results.methods import check_stated, check_taken, read_methods, stated_for, with_base

    methods = read_methods(method)
    check_taken(methods, of_job)
    check_stated(of_job, script)
    of_job = of_job if largest else with_base(of_job)
    return (stated_for(methods[0], of_job) if len(methods) == 1 else of_job), methods


def _names(why: Any) -> Sequence[str]:
    names = [why] if isinstance(why, str) else why
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise QuantityError(f"--why: found {shown(why)}, expected a name or a list of names; write --why zero-2")
    return names


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


@_named
def matrix(**options: Unpack[Words]) -> Matrix:
    """Models by strategies: several `params`, or several `model`.

    >>> result = matrix(params=["1.3B", "7B"], gpus=8, gpu_mem=24)
    >>> result.rows["7B"]["ZeRO-3 + CPU"].fits, result.rows["7B"]["ZeRO-3"].headroom
    (True, -6271080777)
    >>> result.markdown().splitlines()[2]
    '| 1.3B | 30.22 ✗ | 10.71 | 10.64 | 11.30 | 8.95 | 8.88 |'
    """
    from zeroplan.results import matrix

    return matrix.matrix(stated(options))


@_named
def diff(first: Path, second: Path, **options: Unpack[Words]) -> Diff:
    """What differs in meaning between two ds_config.json, and in bytes, calls and seconds where a model is named.

    >>> result = diff("zero2.json", "zero3.json", model="llama-3.1-8b", gpus=8)  # doctest: +SKIP
    >>> result.together.needed, result.changes[0].alone.needed  # bytes of a GPU that the second needs more
    ... # doctest: +SKIP

    Raises `ZeroplanError` for what cannot be meant, and for a config that DeepSpeed refuses.
    """
    from zeroplan.results import diff

    return diff.diff(_path(first), _path(second), Options(**stated(options)))


def _path(value: Any) -> str:
    if not isinstance(value, str | os.PathLike):
        raise QuantityError(f"diff: found {shown(value)}, expected the path of a ds_config.json")
    return os.fsdecode(value)
