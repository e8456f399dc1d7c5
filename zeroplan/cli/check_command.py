"""The options of `zeroplan check`."""

# As in options.py: annotations stay objects, not strings.
from typing import Annotated

import typer


def check(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="ds_config.json; - is standard input.",
                                               show_default=False)],
    *,
    reader: Annotated[
        str | None,
        typer.Option("--for", metavar="deepspeed|hf|accelerate|lightning", show_default=False,
                     help='Who reads it: what "auto" means, what is filled in (guessed from the file).'),
    ] = None,
    gpus: Annotated[
        int | None, typer.Option("--gpus", metavar="N", help="GPUs that share the batch.", show_default=False)
    ] = None,
    accelerator: Annotated[str, typer.Option("--accelerator", metavar="cuda|cpu", help="What it runs on.")] = "cuda",
    deepspeed: Annotated[
        str | None,
        typer.Option("--deepspeed", metavar="0.19.8", help="Of which version (the newest known).", show_default=False),
    ] = None,
    form: Annotated[
        str, typer.Option("--format", metavar="full|concise|json", help="How findings are written.")
    ] = "full",
    select: Annotated[
        list[str] | None, typer.Option("--select", metavar="ZP4,ZP101", help="Only these rules.", show_default=False)
    ] = None,
    ignore: Annotated[
        list[str] | None, typer.Option("--ignore", metavar="ZP206", help="Not these rules.", show_default=False)
    ] = None,
    fail_on: Annotated[
        str, typer.Option("--fail-on", metavar="error|warning|advice", help="From which severity the exit code is 1.")
    ] = "warning",
    exit_zero: Annotated[bool, typer.Option("--exit-zero", help="Exit code 0 whatever is found.")] = False,
) -> None:
    """What DeepSpeed refuses in a ds_config.json, ignores or does otherwise, and the line that mends it.

    Exit code 0: nothing found; 1: findings; 2: bad use.
    """
    from zeroplan.cli.check import Asked, run

    raise typer.Exit(run(Asked(
        files, reader, gpus, accelerator, deepspeed, form, select or [], ignore or [], fail_on, exit_zero
    )))  # fmt: skip
