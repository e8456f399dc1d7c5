"""6xx: optimizer.type and its parameters."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any

from zeroplan.check.edit import valued
from zeroplan.check.finding import ADVICE, ERROR, WARNING, Hit, named, said
from zeroplan.check.rule import Rule, example
from zeroplan.check.rules import answers
from zeroplan.check.rules.values import BF16
from zeroplan.check.subject import Subject
from zeroplan.deepspeed.keys.optimizer import OPTIMIZER_PARAMS
from zeroplan.deepspeed.keys.optimizer_classes import ADAM_TAKEN_OUT, CLASS_PARAMS
from zeroplan.deepspeed.keys.removed import NOT_OPTIMIZERS, REMOVED_OPTIMIZERS
from zeroplan.deepspeed.refusals_older import ONE_BIT
from zeroplan.deepspeed.values import AUTO
from zeroplan.errors import nearest

ENGINE = "runtime/engine.py:_do_sanity_check"
TYPE, PARAMS = ("optimizer", "type"), ("optimizer", "params")
FUSED = ("FusedAdam", "FusedLamb", "FusedLion", "DeepSpeedCPUAdam", "DeepSpeedCPULion", "DeepSpeedCPUAdagrad")
"""Classes that DeepSpeed itself makes of the type that stands instead: the same steps."""
FAMILIES = {"adam": "AdamW", "lamb": "Lamb", "lion": "Lion", "adagrad": "Adagrad", "muon": "Muon"}
"""Parts of the names that other libraries give to kinds of an optimizer, and DeepSpeed's type."""
LIKELY = 0.8
"""How near a name is to one that may have been meant."""
TYPES = ("AdamW", "Adam", "Adagrad", "Lamb", "Lion", "Muon", "MuAdam", "MuAdamW", "MuSGD", "SGD")


def _optimizer(kind: str, params: str = "") -> str:
    return BF16 % f', "optimizer": {{"type": "{kind}", "params": {{"lr": 0.0001{params}}}}}'


RULES: tuple[Rule, ...] = (
    Rule(
        "ZP601", ERROR, "A 1-bit optimizer, removed from DeepSpeed", ENGINE,
        example(_optimizer("OneBitAdam")), example(_optimizer("AdamW")),
        "https://github.com/deepspeedai/DeepSpeed/pull/8490",
    ),
    Rule(
        "ZP602", ERROR, "An optimizer type that DeepSpeed does not know", ENGINE,
        example(_optimizer("AdamW8bit")), example(_optimizer("AdamW")),
    ),
    Rule(
        "ZP606", ERROR, "A parameter that the optimizer does not take", "runtime/engine.py:_configure_basic_optimizer",
        example(_optimizer("AdamW", ', "momentum": 0.9')), example(_optimizer("AdamW", ', "betas": [0.9, 0.95]')),
    ),
    Rule(
        "ZP609", ADVICE, "Adam, which is AdamW", "runtime/engine.py:_configure_basic_optimizer, effective_adam_w_mode",
        example(_optimizer("Adam", ', "weight_decay": 0.1')),
        example(_optimizer("Adam", ', "weight_decay": 0.1, "adam_w_mode": false')),
    ),
    Rule(
        "ZP629", ERROR, "Values that the optimizer cannot compute with", "the constructors below ops/ and torch.optim",
        example(_optimizer("AdamW", ', "betas": 0.9')), example(_optimizer("AdamW", ', "betas": [0.9, 0.95]')),
    ),
)  # fmt: skip


def _params(subject: Subject) -> dict[str, Any]:
    section = subject.config.get("optimizer")
    params = section.get("params") if isinstance(section, dict) else None
    return params if isinstance(params, dict) else {}


def _type(subject: Subject) -> Any:
    section = subject.config.get("optimizer")
    return section.get("type") if isinstance(section, dict) else None


def unknown_type(subject: Subject) -> Iterator[Hit]:
    kind = _type(subject)
    if kind is None or _class(subject):
        return
    if not isinstance(kind, str):
        yield Hit("ZP602", TYPE, f"{said(kind)} for optimizer.type: DeepSpeed stops, it takes a name",
                  '"type": "AdamW"')
        return
    if kind.lower() in ONE_BIT and subject.table.before("0.19.7"):
        return
    for table, rule, why in ((REMOVED_OPTIMIZERS, "ZP601", "was removed from DeepSpeed"),
                             (NOT_OPTIMIZERS, "ZP602", "never was a type of DeepSpeed's")):  # fmt: skip
        for gone, instead in table.items():
            if gone.lower() == kind.lower().replace("_", ""):
                same = gone in FUSED
                yield Hit(rule, TYPE, f"{kind} {why}, which refuses it", f'"type": "{instead}"',
                          edits=valued(subject.document, TYPE, f'"{instead}"') if same else ())
                return
    near = {name.lower(): name for name in (*TYPES, *(name.removeprefix("torch.") for name in CLASS_PARAMS))}
    if near.get(kind.lower()) != kind:
        close = difflib.get_close_matches(kind.lower(), near, n=1, cutoff=LIKELY)
        family = next((instead for part, instead in FAMILIES.items() if part in kind.lower()), "AdamW")
        write = near[close[0]] if close else family
        yield Hit("ZP602", TYPE,
                  f"{said(kind)} is no type of DeepSpeed's and no class of torch.optim: DeepSpeed refuses it",
                  f'"type": "{write}"', edits=answers.word(subject, TYPE, kind, near.values()))  # fmt: skip


def _class(subject: Subject) -> str:
    return subject.facts.optimizer_class


def unknown_params(subject: Subject) -> Iterator[Hit]:
    kind = _type(subject)
    made = _class(subject)
    if made == "muon" or made not in CLASS_PARAMS:
        return
    known = {*CLASS_PARAMS[made], *(ADAM_TAKEN_OUT if kind.lower() in ("adam", "adamw") else ())}
    if subject.table.before("0.19.6") and not made.startswith("DeepSpeedCPU"):
        known.discard("fp32_optimizer_states")
    if made in ("torch.AdamW", "torch.Adam"):
        known -= {"bias_correction", "set_grad_none"}
    for name in _params(subject):
        if name in known or name == "max_grad_norm":
            continue
        write = f'"{nearest(name, sorted(known))}": ...' if name not in OPTIMIZER_PARAMS.get(kind.lower(),
                                                                                             ()) else "delete it"
        yield Hit("ZP606", (*PARAMS, name), f"{named(name)} is no parameter of {made}, which {kind} becomes here: "
                  "DeepSpeed refuses it", write, edits=answers.parameter(subject, (*PARAMS, name), known))  # fmt: skip


def wrong_values(subject: Subject) -> Iterator[Hit]:
    params, fills = _params(subject), subject.setting.fills
    betas = params.get("betas", AUTO if fills else [0, 0])
    fine = isinstance(betas, list) and len(betas) == 2 and all(isinstance(beta, int | float) for beta in betas)
    if _type(subject) is not None and not (fine or (fills and betas == AUTO)):
        rule = "ZP207" if betas == AUTO else "ZP629"
        yield Hit(rule, (*PARAMS, "betas"),
                  f"{said(betas)} for betas: DeepSpeed stops, it takes a list of two numbers",
                  '"betas": [0.9, 0.999]')  # fmt: skip


def adam_is_adamw(subject: Subject) -> Iterator[Hit]:
    kind, params = _type(subject), _params(subject)
    decay = params.get("weight_decay")
    if isinstance(kind, str) and kind.lower() == "adam" and "adam_w_mode" not in params and decay not in (None, 0,
                                                                                                          AUTO):
        yield Hit("ZP609", TYPE, "Adam is AdamW here: DeepSpeed decays weights apart from the gradient",
                  '"type": "AdamW"', WARNING if params.get("torch_adam") else "")  # fmt: skip


CHECKS = (unknown_type, unknown_params, wrong_values, adam_is_adamw)
