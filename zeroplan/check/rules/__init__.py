"""All rules: one table, by room."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from zeroplan.check.finding import Hit
from zeroplan.check.rule import Rule
from zeroplan.check.rules import (
    accelerate,
    batch,
    calls,
    combinations,
    communication,
    contradictions,
    file,
    fit,
    hosts,
    integration,
    llama_factory,
    machine,
    model,
    names,
    offload,
    older,
    optimizer,
    overridden,
    pipeline,
    precision,
    processes,
    refused_files,
    scheduler,
    shell_text,
    trainer,
    trainer_calls,
    trainer_release,
    upgrade,
    values,
    wrong_steps,
    zero,
)
from zeroplan.check.subject import Subject

ROOMS = (file, names, values, batch, precision, zero, offload, combinations, optimizer, scheduler, communication,
         integration, machine, model, trainer, overridden, llama_factory, accelerate, processes, hosts, shell_text,
         refused_files, contradictions, trainer_release, trainer_calls, calls, older, wrong_steps, pipeline, upgrade,
         fit)

RULES: dict[str, Rule] = {rule.id: rule for _, rule in sorted((rule.id, rule) for room in ROOMS for rule in room.RULES)}
"""Every rule by its id, in order."""

CHECKS: tuple[Callable[[Subject], Iterator[Hit]], ...] = tuple(check for room in ROOMS for check in room.CHECKS)

COUNTED: tuple[Callable[[Subject], Iterator[Hit]], ...] = (*fit.COUNTED, *machine.COUNTED, *model.COUNTED)
"""Those that ask the ledger: not of a config that DeepSpeed refuses."""
