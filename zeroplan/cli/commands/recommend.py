"""The options of `zeroplan recommend`."""

# As in options.py: annotations stay objects, not strings.
from functools import partial
from typing import Annotated, Any

import typer

from zeroplan.cli.options import OUTPUT, Json, Quiet, Verbose, with_options
from zeroplan.request.goal import GOALS
from zeroplan.request.options import GOAL, Words


@partial(with_options, positional=True)
def recommend(
    options: Words,
    *,
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", metavar="FILE", rich_help_panel=OUTPUT, show_default=False,
                     help="Write ds_config.json. - is standard output."),
    ] = None,
    folder: Annotated[
        str | None,
        typer.Option("--dir", metavar="FOLDER", rich_help_panel=OUTPUT, show_default=False,
                     help="Write all that starts the plan. Config, launchers, README.md."),
    ] = None,
    target: Annotated[
        str,
        typer.Option("--for", metavar="hf|deepspeed|accelerate|lightning", rich_help_panel=OUTPUT,
                     help='Who reads it. hf leaves "auto" where the Trainer fills in the plan, the others get every '
                     "value."),
    ] = "hf",
    allow: Annotated[
        str | None,
        typer.Option("--allow", metavar="code", show_default=False, rich_help_panel=GOAL,
                     help="Plan with changes of the training script too. What takes lines of code in it, such as "
                     "selective checkpointing; --dir writes them."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace existing files.", rich_help_panel=OUTPUT)] = False,
    max_params: Annotated[
        bool,
        typer.Option("--max-params", rich_help_panel=GOAL,
                     help="The largest model that can be trained, with and without offload."),
    ] = False,
    goal: Annotated[dict[str, Any], GOALS],
    why: Annotated[
        list[str] | None,
        typer.Option("--why", metavar="WHAT", show_default=False, rich_help_panel=GOAL,
                     help="Why not zero-2, offload or another. What it lacks, or how much slower it is, line by line. "
                     "Also no-offload, optimizer-cpu, param-nvme, micro-batch-4, checkpointing-full, no-overlap, "
                     "buckets-5e8 and the like. Repeatable."),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """The fastest strategy that fits (or the leanest: --objective), why the others lost, its ds_config.json, and all
    that starts it; of several cards (--gpu a,b), the fewest GPUs (--gpus auto), or the largest model (--max-params).
    """
    from zeroplan.cli.output import PlanOutput
    from zeroplan.cli.recommend import run
    from zeroplan.cli.screen import View

    code = run(
        options, PlanOutput(output, folder, target, force), view=View(json, quiet, verbose), max_params=max_params,
        alternatives=why or (), goal=goal, allow=allow,
    )  # fmt: skip
    raise typer.Exit(code)
