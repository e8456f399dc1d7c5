"""What of a config takes the place of TrainingArguments, which are not compared with it: transformers 5.23
integrations/deepspeed.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from zeroplan.check.finding import WARNING, Hit, named, said
from zeroplan.check.rule import Rule, arguing
from zeroplan.check.rules.trainer import AUTOS, LINK, LR, PAIRS, WARMUP
from zeroplan.check.subject import Subject

OPTIMIZERS_OWN = {"optimizer.params.lr": 1e-3, "optimizer.params.eps": 1e-8}
"""What DeepSpeed's Adam takes where a config says nothing (ops/adam/cpu_adam.py, fused_adam.py)."""
SCHEDULES = {
    "WarmupLR": ("constant_with_warmup",), "WarmupDecayLR": ("linear",),
    "WarmupCosineLR": ("cosine", "cosine_with_min_lr"),
}  # fmt: skip
"""DeepSpeed's schedules, and what lr_scheduler_type calls them."""
NOT_ADAM = ("sgd", "lion", "adagrad", "muon", "adafactor", "galore", "apollo", "8bit", "paged", "rmsprop", "lomo",
            "schedule_free")  # fmt: skip
"""Parts of the names of optimizers that the Trainer's optim has beside Adam."""

RULES: tuple[Rule, ...] = (
    Rule(
        "ZP815", WARNING, "A schedule of the Trainer's that the config's takes the place of",
        "transformers: integrations/deepspeed.py:deepspeed_optim_sched, run",
        arguing(AUTOS % ('"auto"', "", WARMUP), '{"lr_scheduler_type": "cosine", "bf16": true}'),
        arguing(AUTOS % ('"auto"', "", WARMUP), '{"lr_scheduler_type": "constant_with_warmup", "bf16": true}'), LINK,
    ),
    Rule(
        "ZP816", WARNING, "An optimizer of the Trainer's that the config's takes the place of",
        "transformers: integrations/deepspeed.py:deepspeed_optim_sched, run",
        arguing(AUTOS % ('"auto"', "", LR % '"auto"'), '{"optim": "sgd", "bf16": true}'),
        arguing(AUTOS % ('"auto"', "", LR % '"auto"'), '{"optim": "adamw_torch", "bf16": true}'), LINK,
    ),
    Rule(
        "ZP818", WARNING, "An argument that does not reach DeepSpeed",
        "transformers: integrations/deepspeed.py:trainer_config_process, run",
        arguing(AUTOS % ('"auto"', "", ""), '{"max_grad_norm": 0.3, "bf16": true}'),
        arguing(AUTOS % ('"auto"', "", ', "gradient_clipping": "auto"'), '{"max_grad_norm": 0.3, "bf16": true}'), LINK,
    ),
)  # fmt: skip


def other_schedule(subject: Subject) -> Iterator[Hit]:
    """A section of the config is what trains; the argument is not compared with it."""
    arguments, section = subject.setting.trainer_arguments, subject.config.get("scheduler")
    if arguments is None or not isinstance(section, dict):
        return
    argument, kind = "lr_scheduler_type", section.get("type")
    name = arguments.stated(argument)
    if isinstance(name, str) and isinstance(kind, str) and name not in SCHEDULES.get(kind, (name,)):
        yield Hit("ZP815", ("scheduler", "type"), f"{kind} here and {arguments.spelled(argument)} {named(name)} "
                  f"({arguments.place(argument)}): {kind} is what runs", "delete scheduler")  # fmt: skip


def other_optimizer(subject: Subject) -> Iterator[Hit]:
    """A section of the config is what trains; of the argument the Trainer says nothing."""
    arguments, section = subject.setting.trainer_arguments, subject.config.get("optimizer")
    if arguments is None or not isinstance(section, dict):
        return
    name, kind = arguments.stated("optim"), section.get("type")
    if not isinstance(name, str) or not isinstance(kind, str) or not any(part in name for part in NOT_ADAM):
        return
    if not name.startswith(kind.lower()) or kind.lower().startswith("adam"):
        yield Hit("ZP816", ("optimizer", "type"), f"{kind} here and {arguments.spelled('optim')} {named(name)} "
                  f"({arguments.place('optim')}): {kind} is what steps", "delete optimizer")  # fmt: skip


def without_their_keys(subject: Subject) -> Iterator[Hit]:
    """Arguments whose key is absent: they fill "auto" alone, and DeepSpeed takes defaults of its own."""
    arguments = subject.setting.trainer_arguments
    if arguments is None:
        return
    optimizer, clips = subject.config.get("optimizer"), subject.table.key("gradient_clipping")
    own: dict[str, Any] = {"gradient_clipping": clips.default} if clips else {}
    if isinstance(optimizer, dict) and str(optimizer.get("type")).lower() in ("adam", "adamw"):
        own |= OPTIMIZERS_OWN
    for key, default in own.items():
        name = PAIRS[key]
        value, (*section, last) = arguments.stated(name), key.split(".")
        if value is None or subject.written(key) is not None or arguments(name) == default:
            continue
        yield Hit("ZP818", tuple(section[:1]), f"no {last}: {name} {said(value)} ({arguments.place(name)}) does not "
                  f"reach DeepSpeed, which takes {said(default)}", f'"{last}": "auto"')  # fmt: skip


CHECKS = (other_schedule, other_optimizer, without_their_keys)
