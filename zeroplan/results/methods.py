"""What `recommend --method` comes to: full training, LoRA and QLoRA side by side, each with its plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from zeroplan.errors import ContradictionError, QuantityError, shown
from zeroplan.fit import DOES_NOT_FIT
from zeroplan.outcome import Outcome
from zeroplan.plan import leanest
from zeroplan.progress import part
from zeroplan.report.depth import BRIEF, QUIET
from zeroplan.request.goal import Goal
from zeroplan.request.options import TRAINED, Options
from zeroplan.request.several import cards_named
from zeroplan.request.values import AUTO, flag, names
from zeroplan.results.planning import planned, read_plan
from zeroplan.results.recommend import Recommendation
from zeroplan.sizing import Lack, lack
from zeroplan.specs.objective import FASTEST, LEAST_MEMORY
from zeroplan.specs.quantization import INT8
from zeroplan.specs.scope import Scope
from zeroplan.specs.target import Script

if TYPE_CHECKING:
    from zeroplan.report.rendered import Screen
    from zeroplan.schema import recommend as schema

FULL, LORA, QLORA = METHODS = ("full", "lora", "qlora")
RANK = 16
"""Of adapters, where nobody says."""
ADAPTERS, BITS = ("lora", "lora_targets", "adapter"), ("quantize", "double_quant", "quant_storage")
"""Options of adapters, and of quantized weights."""
WHOLE = f"under {FULL} every weight trains, in no less than 16 bit and with no adapters"


class Method(NamedTuple):
    name: str
    recommendation: Recommendation
    lack: Lack | None
    """What is missing where nothing fits."""
    other: Recommendation | None
    """The plan at stage 3 where adapters train at a lower stage, or at stage 2 where they train at 3."""


class Methods(Recommendation):
    """The plan of the first method that fits, and those of all in `methods`."""

    def __init__(self, rows: Sequence[Method]) -> None:
        first = next((row for row in rows if row.recommendation.fits), rows[0]).recommendation
        super().__init__(first.job, first.search_result, first.assumed, first.given, headroom=first.headroom)
        self._rows = rows
        self.methods: Mapping[str, Outcome | None] = MappingProxyType(
            {row.name: row.recommendation.plan for row in rows}
        )
        """Each method's plan, None where nothing fits."""

    @property
    def verdict(self) -> str | None:
        """That of the best of them: a method that does not fit is an answer too."""
        return super().verdict if any(self.methods.values()) else DOES_NOT_FIT

    @property
    def scope(self) -> Scope:
        """What trains by one method or the other."""
        trains = {row.name: row.recommendation.scope.trains for row in self._rows}
        if [name for name in trains if name != FULL] == [LORA, QLORA]:
            trains[QLORA] = f"the same beside weights in {trains[QLORA].partition(' frozen in ')[2].rstrip(')')}"
        return super().scope._replace(trains=" or ".join(trains.values()))

    def screen(self, level: int = BRIEF) -> Screen:
        from zeroplan.report import methods as report
        from zeroplan.report import rendered
        from zeroplan.report.cards import common
        from zeroplan.report.subject import scope_lines

        rows = [
            report.MethodRow(
                each.name, one.job, one.search_result.chosen, each.lack,
                each.other.search_result.chosen if each.other else None, one.run,
            )
            for each in self._rows
            for one in [each.recommendation]
        ]  # fmt: skip
        head = scope_lines(self.scope, quiet=level == QUIET)
        assumed = common([each.recommendation.assumed for each in self._rows])
        after = report.next_command(rows, self.typed)
        return rendered.screen(report.summary(rows), head, report.details(rows), assumed, level, after)

    def content(self) -> schema.MethodsDocument:
        from zeroplan.report import json_objects, json_plan
        from zeroplan.schema import recommend as schema

        methods = [
            schema.MethodObject(
                method=cast("Any", row.name),
                trains=row.recommendation.scope.trains,
                plan=json_plan.entry(chosen) if (chosen := row.recommendation.search_result.chosen) else None,
                lack=json_plan.lack(row.lack),
                other_stage=json_plan.entry(row.other.search_result.chosen)
                if row.other and row.other.search_result.chosen else None,
                assumed=row.recommendation.assumed,
            )
            for row in self._rows
        ]  # fmt: skip
        return schema.MethodsDocument(scope=json_objects.scope_object(self.scope), methods=methods)


def read_methods(value: Any) -> tuple[str, ...]:
    """The methods named, in their order. Raises `QuantityError`."""
    named = tuple(dict.fromkeys(name.lower() for name in names("method", value, ",".join(METHODS))))
    for name in named:
        if name not in METHODS:
            raise QuantityError(
                f"--method: found {shown(name)}, expected {', '.join(METHODS)}; write --method {','.join(METHODS)}"
            )
    return named


def check_taken(methods: Sequence[str], stated: Mapping[str, Any]) -> None:
    """Raises `ContradictionError` for what is stated of adapters or bits where no method that is named has them."""
    for name in ("freeze", "train"):
        if stated.get(name) is not None:
            raise ContradictionError(f"--method and {flag(name)} both say what trains; keep one")
    bits = next((name for name in BITS if stated.get(name) not in (None, "none")), None)
    if bits and QLORA not in methods:
        other = f"{LORA}'s weights lie in 16 bit, and {QLORA} is LoRA with quantized ones" if LORA in methods else WHOLE
        raise ContradictionError(f"{flag(bits)} and --method {','.join(methods)}: {other}; write --method {QLORA}")
    adapters = next((name for name in ADAPTERS if stated.get(name) is not None), None)
    if adapters and set(methods) == {FULL}:
        raise ContradictionError(f"{flag(adapters)} and --method {FULL}: {WHOLE}; write --method {LORA}")


def check_stated(stated: Mapping[str, Any], script: Script) -> None:
    """Raises `ContradictionError` where a training file says what trains: --method would say it too."""
    options = Options(script, config=stated.get("config"))
    if options.config is None:
        return
    from zeroplan.check.config_file import read_config_file

    file = read_config_file(options.config).file
    if file is not None and file.stated.trains:
        raise ContradictionError(
            f"--method and {file.stated.trains} of {file.place} both say what trains; leave --method out, or that key"
        )


def with_base(stated: Mapping[str, Any]) -> dict[str, Any]:
    """The options with the model that an adapter's file names: of it the methods without that file are planned too."""
    if stated.get("adapter") is None or any(stated.get(name) is not None for name in ("model", "params")):
        return dict(stated)
    from zeroplan.catalog.adapters import base_of

    base = base_of(str(stated["adapter"]))
    return {**stated, **({"model": base} if base else {})}


def stated_for(method: str, stated: Mapping[str, Any]) -> dict[str, Any]:
    """The options of one method: what they say of adapters and bits holds where it trains them."""
    others = {name: value for name, value in stated.items() if name not in TRAINED}
    if method == FULL:
        return others
    adapters = {name: stated[name] for name in ADAPTERS if stated.get(name) is not None}
    if "adapter" not in adapters:
        adapters.setdefault("lora", RANK)
    if method == LORA:
        return others | adapters
    bits = {name: stated[name] for name in BITS if stated.get(name) is not None}
    usual = {} if bits.get("quantize") == INT8 else {"quantize": "nf4", "double_quant": True}
    return others | adapters | usual | bits


def side_by_side(stated: Mapping[str, Any], methods: Sequence[str], goal: Goal, script: Script) -> Methods:
    """A plan for each method on the same GPUs."""
    if cards_named(stated) or stated.get("gpus") == AUTO:
        raise ContradictionError("--method compares on one cluster; write one card and --gpus 8 or --gpus 4x8")
    if goal.objective not in (FASTEST, LEAST_MEMORY):
        raise ContradictionError(
            f"--method compares one plan of each; leave out --objective {goal.objective}, or name one method"
        )
    each = {method: Options(script, **stated_for(method, stated)) for method in methods}
    for options in each.values():  # what one of them cannot be is said before any is planned
        read_plan(options)
    rows: list[Method] = []
    for number, (method, options) in enumerate(each.items(), 1):
        part(method, number, len(each))
        rows.append(_method(method, options, goal))
    return Methods(rows)


def _method(name: str, options: Options, goal: Goal) -> Method:
    best = planned(options, equations=False, rescue=False, goal=goal)
    if best.search_result.chosen is None:
        request = read_plan(options)
        return Method(name, best, lack(leanest(request.job(), request.fixed, request.reserve)), None)
    return Method(name, best, None, _at_other_stage(name, options, best, goal))


def _at_other_stage(name: str, options: Options, best: Recommendation, goal: Goal) -> Recommendation | None:
    chosen = best.search_result.chosen
    if name == FULL or options.stage is not None or best.job.ranks == 1 or chosen is None:
        return None
    other = 2 if chosen.job.strategy.stage == 3 else 3
    return planned(options.replace(stage=other), equations=False, rescue=False, goal=goal)
