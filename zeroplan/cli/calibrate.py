"""`zeroplan calibrate`."""

from __future__ import annotations

import click

from zeroplan.calibrate import node
from zeroplan.calibrate.host import machine
from zeroplan.calibrate.measure import measure, rank
from zeroplan.catalog.node_file import is_yaml
from zeroplan.errors import SpecError, shown

USUAL = "node.yaml"


def run(*, output: str | None, disk: str, quick: bool, force: bool, json: bool) -> int:
    """0 when what is here has been measured."""
    if output is not None:
        _check(output, force=force)
    findings = measure(disk, quick=quick)
    if rank() > 0:  # one of several that torchrun started; the first one speaks
        return 0
    if output is not None:
        from zeroplan.deepspeed.files import write_whole

        write_whole(output, node.text(findings), force=force)
    if json:
        from zeroplan.report import json_objects
        from zeroplan.schema.measurements import Calibrate

        document = Calibrate(
            date=node.today(), machine=machine(), gpu=findings.gpu, gpus_per_node=findings.gpus_per_node,
            figures=findings.figures, observations=findings.observations, left_out=findings.left_out, written=output,
        )  # fmt: skip
        click.echo(json_objects.dumps(document))
    else:
        from zeroplan.report import calibrate as report
        from zeroplan.report import console

        console.show(report.summary(findings, output), report.details(findings))
    return 0


def _check(output: str, *, force: bool) -> None:
    """Before minutes are spent."""
    from zeroplan.deepspeed.files import check_output

    if not is_yaml(output):
        expected = "a YAML file, which --cluster will read"
        raise SpecError(f"-o {shown(output)}", "another ending", expected, f"-o {USUAL}")
    check_output(output, force=force, usual=USUAL)
