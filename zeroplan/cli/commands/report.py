"""The options of `zeroplan report`."""

from __future__ import annotations

from zeroplan.cli.command import command
from zeroplan.cli.options import MODEL_WORD, OUTPUT, QUIET, PanelOption, shared_options
from zeroplan.request.options import Words


@command(
    MODEL_WORD, *shared_options(),
    PanelOption(
        ["-o", "--output"], metavar="FILE", panel=OUTPUT, help="Where to write it (plan.html). - is standard output."
    ),
    PanelOption(
        ["form", "--format"], metavar="html|markdown|svg|png", panel=OUTPUT,
        help="What to write. As the file's ending says where left out; svg and png are of one chart.",
    ),
    PanelOption(
        ["--chart"], default="memory", metavar="NAME", panel=OUTPUT,
        help="Of svg and png: memory, step, time, points, scaling or traffic.",
    ),
    PanelOption(
        ["--grid"], default="near", metavar="near|wide", panel=OUTPUT,
        help="How many settings the page has figures for. wide: any stage, offload, checkpointing and micro-batch "
        "with another sequence, number of GPUs or way to train.",
    ),
    PanelOption(
        ["target", "--for"], default="hf", metavar="hf|deepspeed|accelerate|lightning", panel=OUTPUT,
        help="Who reads the files that the page shows.",
    ),
    PanelOption(["--force"], is_flag=True, panel=OUTPUT, help="Replace an existing file."),
    QUIET,
)  # fmt: skip
def report(
    options: Words, output: str | None, form: str | None, chart: str, grid: str, target: str, *, force: bool,
    quiet: bool,
) -> int:  # fmt: skip
    """A page of the plan to pass around, which opens offline: memory, time and traffic drawn, why others lost, files
    that start it, each number's formula, and other settings to try. Or its tables as Markdown, or one chart.
    """
    from zeroplan.cli.report import PageOutput, run
    from zeroplan.cli.screen import View

    return run(options, PageOutput(output, form, chart, force), view=View(quiet=quiet), target=target, grid=grid)
