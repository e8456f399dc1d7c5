"""The short screen of `zeroplan recommend`: the plan in five lines, and what its nearest alternatives cost."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from zeroplan.costs.ledger import ledger
from zeroplan.costs.timing.speed import speed
from zeroplan.emit.trainer import training_arguments
from zeroplan.fit import PLACES, TIGHT
from zeroplan.plan import OFFLOADS, Plan, Rejected, Suggestion, slower, slowest_part
from zeroplan.report import training, why
from zeroplan.report.brief.assumed import assumed
from zeroplan.report.brief.card import card
from zeroplan.report.brief.marks import legend, marks, of_time
from zeroplan.report.brief.next_command import changed, line
from zeroplan.report.console import table
from zeroplan.report.recommend import who_turns_on
from zeroplan.report.settings import attention_of
from zeroplan.report.speed import in_one_line
from zeroplan.report.subject import gpus, not_counted, on_host
from zeroplan.search import Candidate
from zeroplan.search.neighbours import words
from zeroplan.specs.objective import LEAST_MEMORY
from zeroplan.specs.strategy import STAGES, Strategy
from zeroplan.units import between, count, gb, gib, seconds

if TYPE_CHECKING:
    from zeroplan.emit.folder import WrittenFiles
    from zeroplan.sizing import Fewest
    from zeroplan.training import TrainingRun
    from zeroplan.why import Why

ALTERNATIVES, WAYS = 3, 3
LONG = r"\d{1,3}(?:,\d{3}){2,}"
"""A number of millions or more, which stands as 500M."""
OPTION = r"\((--[a-z-]+) ([^ ,()]+)[,)]"
"""An option with its value, as a suggestion names it."""
AS_FAST, WHOLE = 5e-4, 0.095
"""Shares of a step: below the first two are as fast, from the second on they are shown in whole per cent."""
BATCH = "--global-batch"
MORE, GAIN = 4, 0.1
"""Times as many sequences a step are tried where their number was assumed, and the share from which that is said."""


def details(
    plan: Plan, said: Sequence[str], typed: Sequence[str], *, target: str, given: dict[str, Any] | None,
    written: WrittenFiles | None, run: TrainingRun | None, outside: Sequence[Rejected], in_time: Fewest | None,
    other_stage: Why | None = None, ways: Sequence[Suggestion] = (),
) -> tuple[list[RenderableType], list[RenderableType]]:  # fmt: skip
    """What stands below the answer and the scope: the plan, and what goes on from it.

    `outside`: what another package or lines of code would gain; `other_stage`: why the plan is not at another stage;
    `ways`: what would fit, for a screen without a plan.
    """
    if plan.chosen is None:
        return _nothing(plan, ways, said, typed)
    chosen = plan.chosen
    known = marks(chosen.job)
    used = {*known.of_card, of_time(chosen.job, chosen.speed)} | ({known.host} if _shows_host(chosen) else set())
    body = [
        "", *card(chosen.job, chosen.ledger, chosen.fit), _settings(chosen, run), *not_counted(chosen.job), "",
        *([why.in_one_line(other_stage)] if other_stage else []), *_others(plan, outside, run, said),
    ]  # fmt: skip
    tail = [*_arguments(chosen, target, given, written), *_next(plan, typed, written, run, in_time)]
    tail += assumed(said, chosen.ledger)
    return body, [*tail, legend(chosen.job, used, more=True)]


def _settings(chosen: Candidate, run: TrainingRun | None) -> Table:
    """The plan in five lines, and the whole run where it was asked for."""
    strategy, job, known = chosen.strategy, chosen.job, marks(chosen.job)
    grid = table(["", ""])
    grid.columns[1].justify, grid.columns[1].no_wrap = "left", False
    within = strategy.hpz_partition_size
    stage = f"{strategy.stage}{f' with hpZ of {within} GPUs' if within > 1 else ''}"
    offloaded = ((name, getattr(strategy, name)) for name in OFFLOADS)
    offload = ", ".join(words(name, part) for name, part in offloaded if part) or "none"
    sequences = strategy.micro_batch * strategy.micro_steps * job.ranks
    rows = [
        ("ZeRO", f"stage {stage}; offload: {offload}; checkpointing: {strategy.checkpointing}; "
         f"attention: {attention_of(chosen)}"),
        ("batch", f"micro-batch {strategy.micro_batch} × accumulation {strategy.micro_steps} × {gpus(job)} = "
         f"{sequences} sequences of {job.workload.seq:,} tokens a step"),
        *([] if run else [("buckets", _buckets(strategy))]),
    ]  # fmt: skip
    if timed := chosen.speed:
        rows.append(("step", in_one_line(timed, of_time(job, timed))))
    places = {}
    if sent := chosen.ledger.sent(strategy.micro_steps):
        places["sent"] = f"{known.held}{gb(sent)} by each GPU a step"
    if _shows_host(chosen):
        places["host"] = f"{known.host}{between(chosen.fit.host.needed, chosen.fit.host.most)} of a node's memory"
    if chosen.fit.nvme.needed:
        places["NVMe"] = f"{known.held}{gib(chosen.fit.nvme.needed)} of a node's"
    if places:
        rows.append((", ".join(places), "; ".join(places.values())))
    for name, value in [*rows, *(training.rows(run) if run else [])]:
        grid.add_row(name, value)
    return grid


def _shows_host(chosen: Candidate) -> bool:
    """Whether a line says what the host needs: not where the summary says it."""
    return bool(chosen.fit.host.needed) and not on_host(chosen.job, chosen.fit)


def _buckets(strategy: Strategy) -> str:
    """In elements; thresholds of stage 3 where they are not DeepSpeed's own."""
    if strategy.stage == 0:
        return "none at stage 0"
    sizes = {"reduce": strategy.reduce_bucket_size}
    if strategy.stage == STAGES[-1]:
        usual, sizes["prefetch"] = Strategy(stage=strategy.stage), strategy.prefetch_bucket_size
        for name, field in (("live", "max_live_parameters"), ("reuse", "max_reuse_distance"),
                            ("sub-groups", "sub_group_size")):  # fmt: skip
            if (size := getattr(strategy, field)) != getattr(usual, field):
                sizes[name] = size
    said = ", ".join(f"{name} {count(size)}" for name, size in sizes.items())
    apart = "" if strategy.contiguous else ", gradients not copied into it"
    return f"{said} elements{', while backward goes on' if strategy.overlaps else ''}{apart}"


def _others(
    plan: Plan, outside: Sequence[Rejected], run: TrainingRun | None, said: Sequence[str]
) -> list[RenderableType]:
    """That nothing is better, what would be, and what came next with what it costs."""
    chosen, rows = plan.chosen, ALTERNATIVES - bool(run)
    assert chosen is not None
    grid = table(["", ""])
    grid.columns[1].justify, grid.columns[1].no_wrap = "left", False
    if larger := _larger_batch(chosen, said):
        grid.add_row(*larger)
        rows -= 1
    for one in outside[:rows]:
        grid.add_row(f"with {one.change}", f"{_cost(one.candidate, chosen)}: {one.reason.rpartition(': ')[2]}")
    for lost in plan.closest(max(0, rows - len(outside))):
        grid.add_row(re.sub(LONG, _shortened, lost.change), _cost(lost.candidate, chosen))
    return [Text(f"{_proof(plan)} The next best:"), grid] if grid.rows else [Text(_proof(plan))]


def _larger_batch(chosen: Candidate, said: Sequence[str]) -> tuple[str, str] | None:
    """What the plan would gain by more sequences a step, where nobody stated their number and it gains."""
    strategy, before = chosen.strategy, chosen.speed
    if not any(BATCH in text for text in said) or before is None:
        return None
    job = chosen.job.at(grad_accum=MORE * strategy.micro_steps)
    faster = speed(job, ledger(job)).tokens_per_gpu / before.tokens_per_gpu - 1
    if faster < GAIN:
        return None
    size = MORE * strategy.micro_batch * strategy.micro_steps * job.ranks
    gains = f"{faster:.0%} more tokens/s, if the training takes them"
    return f"{size:,} sequences a step", f"{gains}: --global-batch {size}"


def _shortened(size: re.Match[str]) -> str:
    return count(int(size[0].replace(",", "")))


def _cost(candidate: Candidate, chosen: Candidate) -> str:
    """Seconds more and why, and bytes; or what is missing."""
    fit = candidate.fit
    if not fit.accepted:
        missing = ", ".join(f"{gib(size)} too few of {PLACES[key]}" for key, size in fit.lacking.items())
        return f"does not fit: {missing}" if fit.missing else f"tight: {gib(fit.gpu.needed)}, up to {gib(fit.gpu.most)}"
    lost, needs = slower(candidate, chosen), f"needs {gib(fit.gpu.needed)}"
    share = abs(lost) / chosen.time.total
    if share < AS_FAST:
        return f"as fast, {needs}"
    sign = "+" if lost > 0 else "-"
    why = f": {slowest_part(candidate, chosen)}" if lost > 0 else ""
    return f"{sign}{seconds(abs(lost))} a step ({sign}{share:.{0 if share >= WHOLE else 1}%}{why}), {needs}"


def _proof(plan: Plan) -> str:
    """What is known of all that was not chosen."""
    better = "fits" if plan.chosen is None else "needs less" if plan.objective == LEAST_MEMORY else "is faster"
    return f"Of {plan.searched.configurations:,} configurations none {better}."


def _arguments(
    chosen: Candidate, target: str, given: dict[str, Any] | None, written: WrittenFiles | None
) -> list[RenderableType]:
    """What must be said beside a config that was written alone: by TrainingArguments, or of checkpointing."""
    if written is None or written.folder:  # whose files say it
        return []
    if target != "hf":
        kind = chosen.strategy.checkpointing
        return [Text(who_turns_on(kind))] if kind != "none" else []
    named = ", ".join(f"{key}={value}" for key, value in training_arguments(chosen.job, given).items())
    return [Text(f'TrainingArguments({named}, deepspeed="{written.files[0]}")')]


def _next(
    plan: Plan, typed: Sequence[str], written: WrittenFiles | None, run: TrainingRun | None, in_time: Fewest | None
) -> list[RenderableType]:
    """What was written and starts it, or the command that writes it."""
    tight = plan.chosen is not None and plan.chosen.fit.verdict == TIGHT and "--accept" not in typed
    if written:
        scripts = [f"{written.folder}/{name}" for name in written.files if name.endswith(".sh")]
        after = line(f"bash {shlex.quote(scripts[0])}", "README.md has the others") if scripts else []
        return [Text(f"Written: {written}."), *after]
    if typed and in_time and in_time.gpus:
        return line(changed(typed, "recommend", "--gpus", str(in_time.gpus)), "ends in time")
    if not typed or (run and not run.in_time):
        return []
    not_written = "Nothing was written: the plan is tight."
    said = [Text(not_written)] if tight and {"-o", "--output", "--dir"} & {*typed} else []
    accepted = ("--accept", "tight") if tight else ()
    return [*said, *line(changed(typed, "recommend", *accepted, "--dir", "plan"), "config, train.py, scripts")]


def _nothing(
    plan: Plan, ways: Sequence[Suggestion], said: Sequence[str], typed: Sequence[str]
) -> tuple[list[RenderableType], list[RenderableType]]:
    """What comes nearest, and what would fit."""
    nearest = plan.nearest[0].candidate
    grid = table(["else nearest", "why not"])
    grid.columns[1].justify, grid.columns[1].no_wrap = "left", False
    for lost in plan.nearest[1:ALTERNATIVES]:  # the answer has the first
        grid.add_row(lost.change, lost.reason)
    first = sorted(ways, key=lambda way: bool(re.search(r"\(--gpus? ", way.change)))[:WAYS]  # own cards before others
    shown = table(["", ""])
    shown.columns[1].justify, shown.columns[1].no_wrap = "left", False
    for way in first:
        what, _, plan_of = way.change.partition("): ")
        shown.add_row(f"would fit: {what})", plan_of)
    filled = card(nearest.job, nearest.ledger, nearest.fit)
    others = [shown] if first else []
    body = ["", *filled, Text(_proof(plan)), *others, *([grid] if grid.rows else [])]
    option = re.search(OPTION, first[0].change) if first else None
    after = line(changed(typed, "recommend", *option.groups()), "the first") if typed and option else []
    shown_signs = marks(nearest.job).of_card
    return body, [*after, *assumed(said, nearest.ledger), legend(nearest.job, shown_signs, more=True)]
