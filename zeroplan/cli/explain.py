"""`zeroplan explain`: any line, formula or ds_config key."""

from __future__ import annotations

from typing import Any

import click

from zeroplan import quantities, sums
from zeroplan.cli.screen import View
from zeroplan.clock import Term
from zeroplan.costs.activations import activations
from zeroplan.costs.closed_forms import counted
from zeroplan.costs.ledger import ACCOUNTINGS, ledger
from zeroplan.costs.outside import outside
from zeroplan.costs.timing import is_timed
from zeroplan.costs.timing.step import step_time
from zeroplan.deepspeed.key_cost import costs
from zeroplan.deepspeed.keys import KEYS, key
from zeroplan.deepspeed.keys.key import Key
from zeroplan.errors import ContradictionError, UnknownNameError
from zeroplan.fit import PLACES
from zeroplan.ledger import Detail, Line, Transfer, rule_name
from zeroplan.levels import RESERVED, USED, USED_ON_OTHERS, Level, shown_by
from zeroplan.request.cluster import refuse_headroom
from zeroplan.request.options import TRAINED, Options
from zeroplan.request.request import Request, read_request
from zeroplan.specs.job import Job

ACTIVATIONS = "activations"
"""The term that is explained beside two papers' forms."""
STEPS = (sums.STEP, *sums.OTHERS[sums.STEP])
"""All terms of the clock; each has a name of its own too."""
SMALL: dict[str, Any] = {"model": "gpt2", "gpus": "2", "gpu": "a100-80gb"}
EXAMPLES: tuple[dict[str, Any], ...] = ({}, {"lora": 16}, {"lora": 16, "quantize": "nf4"})
"""A job that is counted in no time, and what it has to have for lines that not every job has."""
NO_CARD = "no card: memory to fill and the seconds of a step are a card's; write --gpu h100-80gb or --gpu-mem 80"
LEVELS = {RESERVED: ("reserved",), USED: (USED_ON_OTHERS,)}
"""Beyond what is allocated, as `levels` counts them; and other words for them."""


def run(options: Options, term: str, view: View, assumed: tuple[str, ...] = ()) -> int:
    """Explain a line of the ledger, a transfer, a formula or a key. 0 when it is known. `assumed`: of the options."""
    refuse_headroom(options, "explain")
    request = read_request(options, default_params="7B", default_gpus=8)
    request = request._replace(assumed=(*assumed, *request.assumed))
    wanted, keys = _plain(term), find_keys(term)
    entries = [(job, line) for job in request.jobs() for line in named(job)]
    lines = [(job, entry) for job, entry in entries if wanted in _names(entry)]
    highest = request.jobs()[-1]
    if wanted == ACTIVATIONS and counted(highest) is not None:
        lines = []  # the closed form of families that are not written out: another number for what is counted here
    costed = {known.path: costs(highest, known) for known in keys}
    step = step_time(highest, ledger(highest)).terms if is_timed(highest) else ()
    terms = [entry for entry in step if wanted in (*STEPS, *_parts(entry))]
    summed, added, seen = _summed(request, wanted), _added(request, wanted), _levels(request, wanted)
    of_card = wanted in STEPS or any(name not in quantities.TRAINED for name in quantities.named(wanted))
    if not summed and not step and of_card:
        raise ContradictionError(NO_CARD)
    if not any((lines, keys, terms, summed, added, seen, wanted == ACTIVATIONS)):
        if example := _example(options, wanted):
            said = " ".join(f"--{name} {value}" for name, value in example.items())
            return run(options.replace(**example), term, view, (f"adapters train, for only so it is there ({said})",))
        if nothing := _nothing_there(wanted):
            raise nothing
        known = {name for _job, entry in entries for name in _names(entry)} | {k.name for k in KEYS.values()}
        known |= {*(n for e in step for n in _parts(e)), *quantities.MEMORY, *quantities.CLOCK, *sums.OTHERS, *LEVELS}
        raise UnknownNameError("line, formula or key", term, known)
    if view.json:
        from zeroplan.report import json_explain, json_objects
        from zeroplan.schema.explain import ExplainedTerm

        document = ExplainedTerm(
            term=term,
            scope=json_objects.scope_object(request.scope),
            entries=json_explain.entries(lines),
            keys=[json_explain.key(known, costed[known.path]) for known in keys],
            quantities=[json_explain.quantity(*each) for each in summed],
            sums=[json_explain.sum_of(*each) for each in added],
            levels=[json_explain.stage_level(*each) for each in seen],
            terms=[json_objects.term_object(entry) for entry in terms],
            activations=json_explain.activations(highest) if wanted == ACTIVATIONS else None,
        )
        click.echo(json_objects.dumps(document))
        return 0
    from zeroplan.report import explain_quantities, explain_step, explain_sums
    from zeroplan.report.explain import screen

    parts = [
        *explain_quantities.screen(summed), *explain_sums.screen(added),
        *explain_sums.levels_screen(_level_named(wanted), seen), *screen(lines, keys, costed, highest),
    ]  # fmt: skip
    if wanted == ACTIVATIONS:
        from zeroplan.report.activations import screen as activations_screen

        parts = [*activations_screen(highest), *parts]
    of_job = any((wanted == ACTIVATIONS, lines, terms, summed, added, seen, *costed.values()))
    _show([*parts, *explain_step.screen(highest, terms)], request, view, of_job=of_job)
    return 0


def _example(options: Options, wanted: str) -> dict[str, Any]:
    """What a job needs to be stated to have what is to be explained, where nobody says what trains; empty where no
    example has it. Raises `ContradictionError` where a user is to state it.
    """
    for example in EXAMPLES:
        jobs = read_request(Options(**SMALL, **example)).jobs()[2:]
        of_step = any(wanted in _parts(entry) for job in jobs for entry in step_time(job, ledger(job)).terms)
        counted = {one.name for job in jobs for one in quantities.quantities(job, ledger(job))}
        of_memory = not counted.isdisjoint(quantities.named(wanted)) or any(
            wanted in _names(entry) for job in jobs for entry in named(job)
        )
        missing = {name: value for name, value in example.items() if getattr(options, name) is None}
        words = "".join(f" --{name} {value}" for name, value in missing.items())
        if of_step and options.gpu is None:
            raise ContradictionError(f"{NO_CARD}{f', and{words}' if words else ''}")
        if missing and (of_step or of_memory):
            if of_memory and missing == example and not any(getattr(options, name) for name in TRAINED):
                return example
            raise ContradictionError(f"this job has none of it; write{words}")
    return {}


def _show(parts: list[Any], request: Request, view: View, *, of_job: bool) -> None:
    """What was explained, and of which job where it is of one."""
    from zeroplan.report import console
    from zeroplan.report.brief.assumed import assumed
    from zeroplan.report.brief.lines import within
    from zeroplan.report.depth import BRIEF
    from zeroplan.report.subject import scope_lines

    first, *rest = parts
    scope, said = (scope_lines(request.scope), request.assumed) if of_job else ([], ())
    if view.level > BRIEF:
        console.show(first, [*rest, *scope, *console.assumptions(said)])
    else:
        console.show(first, within(first, [], rest, [*scope, *assumed(said)]))


def _summed(request: Request, wanted: str) -> list[tuple[Job, quantities.Quantity]]:
    """What tables sum up under that word, of each job."""
    names = quantities.named(wanted)
    jobs = request.jobs() if names else []
    return [(job, one) for job in jobs for one in quantities.quantities(job, ledger(job)) if one.name in names]


def _added(request: Request, wanted: str) -> list[tuple[Job, sums.Sum]]:
    """The sum of that name, of each job."""
    name = sums.named(wanted)
    jobs = request.jobs() if name else []
    return [(job, one) for job in jobs for one in _sums(job) if one.name == name]


def _sums(job: Job) -> list[sums.Sum]:
    counted, paper = (ledger(job, accounting) for accounting in ACCOUNTINGS)
    return list(sums.sums(job, counted, paper, step_time(job, counted) if is_timed(job) else None))


def _level_named(wanted: str) -> str:
    return next((name for name, others in LEVELS.items() if wanted in (_plain(name), *others)), "")


def _levels(request: Request, wanted: str) -> list[tuple[Job, Level]]:
    """What that instrument shows, of each job; none on the CPU backend."""
    name = _level_named(wanted)
    jobs = request.jobs() if name else []
    by_name = ((job, dict(zip(LEVELS, shown_by(job, ledger(job))[1:], strict=False))) for job in jobs)
    return [(job, shown[name]) for job, shown in by_name if shown]


def _nothing_there(wanted: str) -> ContradictionError | None:
    """The error for a row that this job's tables do not have."""
    if sums.named(wanted) == PLACES["nvme"]:
        return ContradictionError("nothing of this job is on NVMe; write --offload-optimizer nvme")
    if _level_named(wanted):
        return ContradictionError("the CPU backend has no card; leave out --backend cpu")
    return ContradictionError("this job has none of it") if sums.named(wanted) else None


def named(job: Job) -> list[Line | Transfer]:
    """Every entry of both ledgers of a job, of the closed forms that stand in for a model's own activations, and what
    lies outside PyTorch's allocator.
    """
    forms = activations(job)
    entries: list[Line | Transfer] = [*forms.forward, *forms.loss_backward, *forms.layer_backward]
    for accounting in reversed(ACCOUNTINGS):  # the paper first
        counted = ledger(job, accounting, detail=Detail.EQUATIONS)
        for tier in (counted.gpu, counted.host, counted.nvme):
            entries += [entry for entry, _phases in tier.lines()]
        entries += [*counted.traffic, *(entry.line for entry in counted.copies)]
    return [*entries, *outside(job)]


def find_keys(term: str) -> list[Key]:
    """The key at a dotted path, or every key whose path ends so, or whose alias is that word."""
    exact = key(term)
    if exact:
        return [exact]
    wanted = term.strip().lower().replace("-", "_").replace(" ", "_")
    return [k for k in KEYS.values() if f".{k.path}".endswith(f".{wanted}") or wanted in k.aliases]


def _parts(entry: Term) -> tuple[str, ...]:
    """A term's names: in full, without its phase, and its group's."""
    return _plain(entry.name), _plain(entry.name.partition(",")[0]), entry.group


def _plain(text: str) -> str:
    """As rows of tables are named, in lower case; a + before them only says that they are added."""
    return " ".join(text.lower().removeprefix("+").replace("_", " ").replace("-", " ").split())


def _names(entry: Line | Transfer) -> tuple[str, ...]:
    of_call = [_plain(entry.title)] if isinstance(entry, Transfer) else []
    return _plain(entry.name), _plain(rule_name(entry.rule)), *of_call
