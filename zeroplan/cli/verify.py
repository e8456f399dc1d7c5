"""`zeroplan verify`."""

from __future__ import annotations

import importlib.util
import json as writer
import os
from typing import Any

import click

from zeroplan.cli.progress import part, watched
from zeroplan.cli.screen import View
from zeroplan.costs.ledger import ledger
from zeroplan.deepspeed.files import write_all
from zeroplan.errors import ContradictionError, SpecError, shown
from zeroplan.request.cluster import refuse_headroom
from zeroplan.request.options import Options
from zeroplan.request.request import read_request
from zeroplan.specs.job import Job

NEEDED = ("deepspeed", "torch", "transformers")


def run(options: Options, *, real: bool, cuda: bool, save: str | None, force: bool, view: View) -> int:
    """0 when every number is as predicted, 1 when one is not."""
    from zeroplan.verify.compare import compare

    _check_installed()
    if save and os.path.exists(save) and not force:
        raise ContradictionError(f"{save} exists; write --force to replace it, or another name")
    refuse_headroom(options, "verify")
    request = read_request(options)
    if real and cuda:
        raise ContradictionError("--real computes on the CPU, --cuda on a card; write one of them")
    mode = "real" if real else "cuda" if cuda else "meta"
    results = []
    jobs = request.jobs()
    with watched("verify"):
        for number, requested in enumerate(jobs, 1):
            part(f"running DeepSpeed at stage {requested.strategy.stage}", number, len(jobs))
            job, measured = _measured(requested, request.given, mode=mode)
            results.append((job, measured, compare(job, ledger(job), measured)))
    if save:
        _save(save, [measured for _job, measured, _rows in results])
    if view.json:
        from zeroplan.report import json_objects
        from zeroplan.schema.measurements import Verify, VerifyRow, VerifyRun

        runs = [
            VerifyRun(
                stage=job.strategy.stage, rank=job.rank, versions=measured["versions"], date=measured["date"],
                rows=[VerifyRow(checked=row, difference=row.difference, holds=row.holds) for row in rows],
            )
            for job, measured, rows in results
        ]  # fmt: skip
        scope = json_objects.scope_object(request.scope)
        click.echo(json_objects.dumps(Verify(scope=scope, runs=runs, assumed=request.assumed)))
    else:
        from zeroplan.report import console, rendered
        from zeroplan.report import verify as report
        from zeroplan.report.depth import BRIEF
        from zeroplan.report.subject import scope_lines

        for job, measured, rows in results:
            below = report.details(rows, measured, brief=view.level == BRIEF)
            head = scope_lines(request.scope, quiet=view.quiet)
            console.show(*rendered.screen(report.summary(job, rows, measured), head, below, (), view.level))
    return 0 if all(row.holds for _job, _measured, rows in results for row in rows) else 1


def _check_installed() -> None:
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise SpecError(
            "verify", f"no {' and no '.join(missing)}", "DeepSpeed itself", "pip install 'zeroplan[verify]'"
        )


def _measured(job: Job, given: dict[str, Any] | None, *, mode: str) -> tuple[Job, dict[str, Any]]:
    from zeroplan.verify.case import as_measured, case_of
    from zeroplan.verify.measure import measure

    job = as_measured(job, real=mode == "real")
    measured = measure(case_of(job, given, mode=mode, activations=mode != "cuda"))
    for reason, stopped in (("refused", "DeepSpeed refused this run"), ("failed", "the run failed")):
        if reason in measured:
            line = " ".join(str(measured[reason]).split())
            raise ContradictionError(f"{stopped}: {line[:300]}")
    return job, measured


def _save(path: str, runs: list[dict[str, Any]]) -> None:
    """Written whole or not at all."""
    text = writer.dumps(runs if len(runs) > 1 else runs[0], indent=1) + "\n"
    write_all({path: text}, force=True, named=lambda path: f"--save {shown(path)}")
