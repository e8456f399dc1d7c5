"""The options of `zeroplan check`."""

# As in options.py: annotations stay objects, not strings.
from functools import partial
from typing import Annotated

import typer

from zeroplan.cli.options import with_options
from zeroplan.request.options import Options, Words

STATED = ("config", "stage", "offload_optimizer", "offload_param", "rank", "backend")
"""What the files say themselves, and what has another name here."""


@partial(with_options, without=STATED)
def check(
    options: Words,
    *,
    files: Annotated[list[str], typer.Argument(metavar="FILE...", show_default=False)],
    reader: Annotated[
        str | None,
        typer.Option("--for", metavar="deepspeed|hf|accelerate|lightning", show_default=False,
                     help='Who reads it (guessed from the file). So what "auto" means, and what is filled in.'),
    ] = None,
    trainer_args: Annotated[
        str | None,
        typer.Option("--trainer-args", metavar="FILE", show_default=False,
                     help="TrainingArguments as JSON or YAML. Where they and the config say different things."),
    ] = None,
    client_optimizer: Annotated[
        str | None,
        typer.Option("--client-optimizer", metavar="yes|no", show_default=False,
                     help="Whether the training script builds an optimizer."),
    ] = None,
    accelerator: Annotated[str, typer.Option("--accelerator", metavar="cuda|cpu", help="What it runs on.")] = "cuda",
    deepspeed: Annotated[
        str | None,
        typer.Option("--deepspeed", metavar="0.19.8", help="Of which version (the newest known).", show_default=False),
    ] = None,
    form: Annotated[
        str,
        typer.Option("--format", metavar="full|concise|json|github|sarif|markdown|junit",
                     help="How findings are written."),
    ] = "full",
    select: Annotated[
        list[str] | None, typer.Option("--select", metavar="ZP4,ZP101", help="Only these rules.", show_default=False)
    ] = None,
    ignore: Annotated[
        list[str] | None, typer.Option("--ignore", metavar="ZP206", help="Not these rules.", show_default=False)
    ] = None,
    fail_on: Annotated[
        str | None,
        typer.Option("--fail-on", metavar="error|warning|advice", show_default="warning",
                     help="From which severity the exit code is 1."),
    ] = None,
    exit_zero: Annotated[bool, typer.Option("--exit-zero", help="Exit code 0 whatever is found.")] = False,
    fix: Annotated[
        bool, typer.Option("--fix", help="Mend what has one right answer. The rest of the file stays as it is.")
    ] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Show what --fix would change, and write nothing.")] = False,
) -> None:
    """What DeepSpeed refuses in a ds_config.json, ignores or does otherwise, and the line that mends it.

    With --model, --gpus and a card also whether it fits. Options left out are taken from tool.zeroplan in the
    nearest pyproject.toml: select, ignore, fail-on, for, deepspeed, gpus. Exit code 0: no warning
    and no error (--fail-on); 1: some; 2: bad use.
    """
    from zeroplan.cli.check import CheckCommand, run
    from zeroplan.cli.check_project import table
    from zeroplan.request.check_setting import refuse_several

    project = table()
    if "gpus" in project:
        options = {"gpus": project["gpus"], **options}
    refuse_several(options)
    raise typer.Exit(run(CheckCommand(
        files, Options(**options), reader or project.get("for"), trainer_args, client_optimizer, accelerator,
        deepspeed or project.get("deepspeed"), form, select or project.get("select", []),
        ignore or project.get("ignore", []), fail_on or project.get("fail-on", "warning"), exit_zero, fix, diff,
    )))  # fmt: skip
