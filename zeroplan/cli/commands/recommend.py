"""The options of `zeroplan recommend`."""

from __future__ import annotations

from typing import Any

from zeroplan.cli.command import command
from zeroplan.cli.options import (
    JSON,
    MODEL_WORD,
    OUTPUT,
    QUIET,
    VERBOSE,
    PanelOption,
    grouped_options,
    shared_options,
)  # fmt: skip
from zeroplan.request.goal import GOALS
from zeroplan.request.options import GOAL, Words


@command(
    MODEL_WORD, *shared_options(),
    PanelOption(
        ["-o", "--output"], metavar="FILE", panel=OUTPUT, help="Write ds_config.json. - is standard output."
    ),
    PanelOption(
        ["folder", "--dir"], metavar="FOLDER", panel=OUTPUT,
        help="Write all that starts the plan. Config, launchers, README.md.",
    ),
    PanelOption(
        ["target", "--for"], default="hf", metavar="hf|deepspeed|accelerate|lightning", panel=OUTPUT,
        help='Who reads it. hf leaves "auto" where the Trainer fills in the plan, the others get every value.',
    ),
    PanelOption(
        ["--allow"], metavar="code", panel=GOAL,
        help="Plan with changes of the training script too. What takes lines of code in it, such as selective "
        "checkpointing; --dir writes them.",
    ),
    PanelOption(["--force"], is_flag=True, panel=OUTPUT, help="Replace existing files."),
    PanelOption(
        ["--max-params"], is_flag=True, panel=GOAL,
        help="The largest model that can be trained, with and without offload.",
    ),
    *grouped_options("goal", GOALS),
    PanelOption(
        ["--method"], metavar="full,lora,qlora", panel=GOAL,
        help="Ways to train, side by side. What each needs and how long it takes; adapters of --lora or rank 16.",
    ),
    PanelOption(
        ["--why"], multiple=True, metavar="WHAT", panel=GOAL,
        help="Why not zero-2, offload or another. What it lacks, or how much slower it is, line by line. Also "
        "no-offload, optimizer-cpu, param-nvme, micro-batch-4, checkpointing-full, no-overlap, buckets-5e8 and the "
        "like. Repeatable.",
    ),
    JSON, QUIET, VERBOSE,
)  # fmt: skip
def recommend(
    options: Words, output: str | None, folder: str | None, target: str, allow: str | None, goal: dict[str, Any],
    method: str | None, why: tuple[str, ...], *, force: bool, max_params: bool, json: bool, quiet: bool, verbose: int,
) -> int:  # fmt: skip
    """The fastest strategy that fits (or the leanest: --objective), why the others lost, its ds_config.json, and all
    that starts it; of several cards (--gpu a,b), the fewest GPUs (--gpus auto), or the largest model (--max-params).
    """
    from zeroplan.cli.output import PlanOutput
    from zeroplan.cli.recommend import run
    from zeroplan.cli.screen import View

    return run(
        options, PlanOutput(output, folder, target, force), view=View(json, quiet, verbose), max_params=max_params,
        alternatives=why, goal=goal, allow=allow, method=method,
    )  # fmt: skip
