"""6xx: scheduler.type and its parameters."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from zeroplan.check.edit import deleted
from zeroplan.check.finding import ERROR, WARNING, Hit, named, said
from zeroplan.check.rule import ISSUE, Rule, example
from zeroplan.check.rules import answers
from zeroplan.check.rules.values import BF16
from zeroplan.check.subject import Subject
from zeroplan.deepspeed.keys import KEYS
from zeroplan.deepspeed.keys.scheduler import REQUIRED_SCHEDULER_PARAMS, SCHEDULER_PARAMS
from zeroplan.deepspeed.keys.torch_schedules import TORCH_REQUIRED, TORCH_SCHEDULES
from zeroplan.deepspeed.refusals_optimizer import TORCH_SCHEDULERS
from zeroplan.deepspeed.values import AUTO, as_number, meant
from zeroplan.errors import nearest

TYPE, PARAMS = ("scheduler", "type"), ("scheduler", "params")
WHOLE = ("warmup_num_steps", "lr_range_test_step_size")
ALL_PARAMS: dict[str, tuple[str, ...]] = {**TORCH_SCHEDULES, **SCHEDULER_PARAMS}
HALVES = {"cycle_first_step_size": 0.0, "cycle_second_step_size": -5e-324}
"""Halves of a cycle, read as float() does, and what they must be over."""
OWN_RATE = 0.001
SOURCE = "runtime/lr_schedules.py"


def _schedule(kind: str, params: str = "") -> str:
    return BF16 % f', "scheduler": {{"type": "{kind}", "params": {{{params}}}}}'


def _with_rate(params: str) -> str:
    return _schedule("WarmupDecayLR", params)[:-1] + ', "optimizer": {"type": "AdamW", "params": {"lr": 0.00002}}}'


RULES: tuple[Rule, ...] = (
    Rule(
        "ZP610", ERROR, "A scheduler type that DeepSpeed does not know", "runtime/engine.py:_scheduler_from_config",
        example(_schedule("cosine")), example(_schedule("WarmupCosineLR", '"total_num_steps": 10000')),
    ),
    Rule(
        "ZP611", ERROR, "A parameter that the schedule needs", SOURCE,
        example(_schedule("WarmupDecayLR")), example(_schedule("WarmupDecayLR", '"total_num_steps": 10000')),
    ),
    Rule(
        "ZP612", ERROR, "Steps of a schedule that are no whole number over 0", f"{SOURCE}:WarmupLR.__init__",
        example(_schedule("WarmupLR", '"warmup_num_steps": 0')),
        example(_schedule("WarmupLR", '"warmup_num_steps": 100')),
    ),
    Rule(
        "ZP613", WARNING, "A schedule that ends before its warm-up", f"{SOURCE}:WarmupDecayLR.__init__",
        example(_schedule("WarmupDecayLR", '"total_num_steps": 100, "warmup_num_steps": 200')),
        example(_schedule("WarmupDecayLR", '"total_num_steps": 10000, "warmup_num_steps": 200')),
    ),
    Rule(
        "ZP614", WARNING, "A warmup_type that DeepSpeed does not know", f"{SOURCE}:WarmupLR.__init__",
        example(_schedule("WarmupLR", '"warmup_type": "lin"')),
        example(_schedule("WarmupLR", '"warmup_type": "linear"')),
    ),
    Rule(
        "ZP615", ERROR, "A parameter that the schedule does not take", SOURCE,
        example(_schedule("WarmupCosineLR", '"total_num_steps": 10000, "warmup_max_lr": 0.0001')),
        example(_schedule("WarmupCosineLR", '"total_num_steps": 10000, "warmup_min_ratio": 0.1')),
    ),
    Rule(
        "ZP630", WARNING, "A schedule that rises to a rate of its own", f"{SOURCE}:WarmupDecayLR.__init__, run",
        example(_with_rate('"total_num_steps": 10000')),
        example(_with_rate('"total_num_steps": 10000, "warmup_max_lr": 0.00002')), ISSUE + "7303",
    ),
)  # fmt: skip

RATES = ("warmup_min_lr", "warmup_max_lr")


def _section(subject: Subject) -> tuple[Any, dict[str, Any]]:
    section = subject.config.get("scheduler")
    section = section if isinstance(section, dict) else {}
    params = section.get("params")
    return section.get("type"), params if isinstance(params, dict) else {}


def unknown_type(subject: Subject) -> Iterator[Hit]:
    kind, _params = _section(subject)
    if kind is None or (isinstance(kind, str) and (kind in SCHEDULER_PARAMS or kind in TORCH_SCHEDULERS)):
        return
    near = nearest(str(kind), SCHEDULER_PARAMS)
    yield Hit("ZP610", TYPE, f"{said(kind)} is no schedule of DeepSpeed's: DeepSpeed refuses it", f'"type": "{near}"',
              edits=answers.word(subject, TYPE, kind, SCHEDULER_PARAMS))


def params(subject: Subject) -> Iterator[Hit]:
    kind, given = _section(subject)
    known = ALL_PARAMS.get(kind) if isinstance(kind, str) else None
    if known is None:
        return
    for name in (REQUIRED_SCHEDULER_PARAMS | TORCH_REQUIRED).get(kind, ()):
        if name not in given and isinstance(subject.config["scheduler"].get("params"), dict):
            yield Hit("ZP611", PARAMS, f"{kind} without {name}: DeepSpeed stops, it has no default", f'"{name}": 1000')
    for name, value in given.items():
        if kind == "WarmupCosineLR" and name in RATES:
            yield _rate_for_ratio(subject, name, value)
        elif name not in known:
            near = nearest(name, known)
            yield Hit("ZP615", (*PARAMS, name), f"{named(name)} is no parameter of {kind}: DeepSpeed refuses it",
                      f'"{near}": ...', edits=answers.parameter(subject, (*PARAMS, name), known))
        elif kind in SCHEDULER_PARAMS and not (value == AUTO and _is_filled(subject, name)):
            if not (wants := _wrong(subject, name, value)):
                continue
            rule = "ZP207" if value == AUTO else "ZP612"
            yield Hit(rule, (*PARAMS, name), f"{said(value)} for {name}: DeepSpeed stops, it takes {wants}",
                      f'"{name}": {_instead(name, value)}',
                      edits=answers.value(subject, (*PARAMS, name), KEYS[f"scheduler.params.{name}"], value))


def _rate_for_ratio(subject: Subject, name: str, value: Any) -> Hit:
    """WarmupCosineLR has ratios of the optimizer's own rate, to which it rises (runtime/lr_schedules.py)."""
    path, rate = (*PARAMS, name), subject.stated("optimizer.params.lr")
    known = isinstance(rate, int | float) and isinstance(value, int | float) and rate
    write = "delete it; the optimizer's lr is what it rises to"
    if name == RATES[0]:
        write = f'"warmup_min_ratio": {value / rate:g}' if known else f'"warmup_min_ratio": {name} / lr'
    return Hit("ZP615", path, f"{name} is no parameter of WarmupCosineLR: DeepSpeed refuses it", write,
               edits=deleted(subject.document, path) if name == RATES[1] else ())  # fmt: skip


def _instead(name: str, value: Any) -> Any:
    """The number that a text or 1e3 stands for, else a usual one."""
    known = KEYS[f"scheduler.params.{name}"]
    return meant(known, value) or known.default or 1000


def _is_filled(subject: Subject, name: str) -> bool:
    return subject.setting.fills and bool(KEYS[f"scheduler.params.{name}"].auto)


def _wrong(subject: Subject, name: str, value: Any) -> str:
    checked_since = "0.19.3" if name == "warmup_num_steps" else "0.19.4"
    if name in (*WHOLE, *HALVES) and subject.table.before(checked_since):
        computes = name in ("warmup_num_steps", "cycle_second_step_size") or value != 0
        return "" if isinstance(value, int | float) and computes else "a number" if computes else "a number over 0"
    if name in WHOLE and not (isinstance(value, int) and value > 0):
        return "a whole number over 0"
    if name in HALVES and value is not None and (size := as_number(value)) is not None and not HALVES[name] < size:
        return "a number over 0" if HALVES[name] == 0 else "a number from 0"
    fine = isinstance(value, list) and value and all(isinstance(item, int | float) for item in value)
    if name != "last_batch_iteration" and isinstance(value, list) and not fine:
        return "a number for each group of parameters"
    return ""


def silent(subject: Subject) -> Iterator[Hit]:
    kind, given = _section(subject)
    total, warmup = given.get("total_num_steps"), given.get("warmup_num_steps", 1000)
    numbers = isinstance(total, int) and isinstance(warmup, int)
    if kind in ("WarmupDecayLR", "WarmupCosineLR") and numbers and total < warmup:
        yield Hit("ZP613", (*PARAMS, "total_num_steps"),
                  f"{total} steps end before {warmup} of warm-up: the rate never "
                  "comes down as planned", f'"total_num_steps": {10 * warmup}')  # fmt: skip
    named = given.get("warmup_type")
    if isinstance(named, str) and named not in ("log", "linear"):
        yield Hit("ZP614", (*PARAMS, "warmup_type"), f"{said(named)} for warmup_type: DeepSpeed takes log instead",
                  f'"warmup_type": "{nearest(named, ("log", "linear"))}"')  # fmt: skip


def own_rate(subject: Subject) -> Iterator[Hit]:
    """WarmupDecayLR rises to 0.001 where nothing is said, WarmupLR did until 0.17.2."""
    kind, given = _section(subject)
    rises = kind == "WarmupDecayLR" or (kind == "WarmupLR" and subject.table.before("0.17.2"))
    rate = subject.stated("optimizer.params.lr")
    if not rises or given.get("warmup_max_lr") is not None or rate is None or rate == OWN_RATE:
        return
    write = AUTO if _is_filled(subject, "warmup_max_lr") else rate
    if write == AUTO or isinstance(rate, int | float):
        yield Hit("ZP630", TYPE, f"{kind} without warmup_max_lr rises to {OWN_RATE}, whatever the optimizer's lr says",
                  f'"warmup_max_lr": {json.dumps(write)}')  # fmt: skip


CHECKS = (unknown_type, params, silent, own_rate)
