"""The options of `zeroplan calibrate`."""

from __future__ import annotations

from zeroplan.cli.command import command
from zeroplan.cli.options import JSON, PanelOption


@command(
    PanelOption(["-o", "--output"], metavar="FILE.yaml", help="Write a node's file, which --cluster then reads."),
    PanelOption(["--disk"], default=".", metavar="DIR", help="A folder on the disk to measure."),
    PanelOption(["--quick"], is_flag=True, help="Shorter and smaller, and less exact."),
    PanelOption(["--force"], is_flag=True, help="Replace an existing file."),
    JSON,
)
def calibrate(output: str | None, disk: str, *, quick: bool, force: bool, json: bool) -> int:
    """Measure this machine: host and disk, and its GPUs where torch sees any (collectives were run on none yet)."""
    from zeroplan.cli.calibrate import run

    return run(output=output, disk=disk, quick=quick, force=force, json=json)
