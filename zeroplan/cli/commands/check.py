"""The options of `zeroplan check`."""

from __future__ import annotations

import click

from zeroplan.cli.command import command
from zeroplan.cli.options import PanelOption, file_names, shared_options
from zeroplan.request.options import Options, Words

STATED = ("config", "stage", "offload_optimizer", "offload_param", "rank", "backend")
"""What the files say themselves, and what has another name here."""


@command(
    *shared_options(without=STATED),
    click.Argument(["files"], nargs=-1, required=True, metavar="FILE...", shell_complete=file_names),
    PanelOption(
        ["reader", "--for"], metavar="deepspeed|hf|accelerate|lightning",
        help='Who reads it (guessed from the file). So what "auto" means, and what is filled in.',
    ),
    PanelOption(
        ["--trainer-args"], metavar="FILE",
        help="TrainingArguments as JSON or YAML. Where they and the config say different things.",
    ),
    PanelOption(
        ["--client-optimizer"], metavar="yes|no", help="Whether the training script builds an optimizer."
    ),
    PanelOption(["--accelerator"], default="cuda", metavar="cuda|cpu", help="What it runs on."),
    PanelOption(["--deepspeed"], metavar="0.19.8", help="Of which version (the newest known)."),
    PanelOption(["--transformers"], metavar="5.24.0", help="Of which version the Trainer is (the newest known)."),
    PanelOption(["--accelerate"], metavar="1.15.0", help="Of which version Accelerate is (the newest known)."),
    PanelOption(["--upgrade"], metavar="0.16.9:0.19.8", help="What changes for the file between two versions."),
    PanelOption(
        ["form", "--format"], default="full", metavar="full|concise|json|github|sarif|markdown|junit",
        help="How findings are written.",
    ),
    PanelOption(["--select"], multiple=True, metavar="ZP4,ZP101", help="Only these rules."),
    PanelOption(["--ignore"], multiple=True, metavar="ZP206", help="Not these rules."),
    PanelOption(
        ["--fail-on"], metavar="error|warning|advice", help="From which severity the exit code is 1."
    ),
    PanelOption(["--baseline"], metavar="FILE", help="Findings that stand in it are accepted."),
    PanelOption(["--write-baseline"], metavar="FILE", help="Write what is found now to such a file."),
    PanelOption(["explains", "--explain"], is_flag=True, help="Why, beside each finding."),
    PanelOption(["--exit-zero"], is_flag=True, help="Exit code 0 whatever is found."),
    PanelOption(
        ["--fix"], is_flag=True, help="Mend what has one right answer. The rest of the file stays as it is."
    ),
    PanelOption(["--diff"], is_flag=True, help="Show what --fix would change, and write nothing."),
)  # fmt: skip
def check(
    options: Words, files: tuple[str, ...], reader: str | None, trainer_args: str | None, client_optimizer: str | None,
    accelerator: str, deepspeed: str | None, transformers: str | None, accelerate: str | None,
    upgrade: str | None, form: str,
    select: tuple[str, ...], ignore: tuple[str, ...], fail_on: str | None, baseline: str | None,
    write_baseline: str | None, *, explains: bool,
    exit_zero: bool, fix: bool, diff: bool,
) -> int:  # fmt: skip
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
    return run(CheckCommand(
        files, Options(**options), reader or project.get("for"), trainer_args, client_optimizer, accelerator,
        deepspeed or (None if upgrade else project.get("deepspeed")), form, select or project.get("select", ()),
        ignore or project.get("ignore", ()), fail_on or project.get("fail-on", "warning"), exit_zero, fix, diff,
        upgrade, baseline, write_baseline, explains, transformers, accelerate,
    ))  # fmt: skip
