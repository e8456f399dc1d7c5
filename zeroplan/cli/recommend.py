"""`zeroplan recommend`."""

from __future__ import annotations

from typing import Any

import typer

from zeroplan.cli.options import Options
from zeroplan.cli.output import Output
from zeroplan.cli.request import read_request
from zeroplan.costs.ledger import ledger
from zeroplan.costs.timing.rates import is_timed
from zeroplan.costs.timing.speed import speed_of
from zeroplan.errors import ContradictionError
from zeroplan.ledger import Detail
from zeroplan.plan import Plan, label, plan, usual_batch
from zeroplan.search import Candidate

RESERVE = 0.05
"""Share of each card kept free: PyTorch reserves 1.00 to 1.25 times what it allocates."""


def run(options: Options, output: Output, *, json: bool, quiet: bool) -> int:
    """0 with a plan, 1 when nothing fits."""
    output.check(json=json)
    request = read_request(options, default_params="7B", default_gpus=8)
    if request.cluster.capacity is None:
        raise ContradictionError("no card: write --gpu-mem 80, --gpu h100-80gb or --cluster dgx-h100")
    job = request.job()
    assumed = [*request.assumed, f"{RESERVE:.0%} of each card kept free"]
    if "checkpointing" not in request.settled:
        assumed = [text for text in assumed if "--checkpointing" not in text]
    if job.workload.global_batch is None and "micro_batch" not in request.settled:
        assumed.append(f"{usual_batch(job)} sequences a step (--global-batch)")
    found = plan(job, request.settled, reserve=RESERVE)
    if found.chosen:
        detail = Detail.EQUATIONS if json else Detail.KINDS  # line by line
        found = found._replace(chosen=found.chosen._replace(ledger=ledger(found.chosen.job, detail=detail)))
    written = output.write(found.chosen, request, options, assumed) if found.chosen else None
    if json:
        typer.echo(machine_form(found, assumed))
    elif output.file != "-" or found.chosen is None:  # with -o - standard output holds the config and nothing else
        from zeroplan.report import console
        from zeroplan.report import recommend as report

        below = [] if quiet else report.details(found, tuple(assumed), output.target, request.given, written)
        console.show(report.answer(job, found), *below, errors=output.file == "-")
    return 0 if found.chosen else 1


def machine_form(found: Plan, assumed: list[str]) -> str:
    """`plan` (or null), `rejected` with what each changes and why it lost, `searched`, `ways_out`."""
    from zeroplan.report import machine

    def entry(candidate: Candidate) -> dict[str, Any]:
        speed = speed_of(candidate.job, candidate.time) if is_timed(candidate.job) else None
        whole = machine.strategy_object(candidate.job, candidate.ledger, candidate.fit, speed)
        return {**whole, "name": label(candidate), "step_seconds": candidate.time.total}

    return machine.dumps({
        "command": "recommend",
        "plan": entry(found.chosen) if found.chosen else None,
        "rejected": [{**entry(r.candidate), "change": r.change, "reason": r.reason} for r in found.rejected],
        "searched": {name: getattr(found.searched, name) for name in ("stood_for", "timed", "counted")},
        "ways_out": [{"change": way.change, **entry(way.candidate)} for way in found.ways_out],
        "assumed": assumed,
    })  # fmt: skip
