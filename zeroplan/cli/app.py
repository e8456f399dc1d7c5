"""The commands. Each reads a request, calls one function, shows the result and sets the exit code."""

# As in options.py: annotations stay objects, not strings.
from copy import copy
from typing import Annotated

import typer

from zeroplan import __version__
from zeroplan.cli.check_command import check
from zeroplan.cli.options import OUTPUT, Json, Options, Quiet, with_options
from zeroplan.cli.recommend_command import recommend

FITS, DOES_NOT_FIT, BAD_INPUT = 0, 1, 2

app = typer.Typer(
    name="zeroplan",
    help="Plan a DeepSpeed training run before it starts: what fits, how long a step takes, which ds_config.json.",
    no_args_is_help=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def only(name: str) -> typer.Typer:
    """The app with no command but this one, where there is one: building the options of all takes 10 ms."""
    found = [entry for entry in app.registered_commands if entry.callback and entry.callback.__name__ == name]
    if not found:
        return app
    alone = copy(app)
    alone.registered_commands = found
    return alone


Accounting = Annotated[
    str,
    typer.Option(
        "--accounting", metavar="deepspeed|paper", rich_help_panel=OUTPUT,
        help="Whose bytes --json holds (tables show both).",
    ),
]  # fmt: skip


@app.callback(invoke_without_command=True)
def top(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.", is_eager=True)] = False,
) -> None:
    if version:
        typer.echo(f"zeroplan {__version__}")
        raise typer.Exit(FITS)
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
@with_options
def estimate(
    options: Options,
    *,
    timeline: Annotated[
        bool, typer.Option("--timeline", help="Draw allocated bytes over a step.", rich_help_panel=OUTPUT)
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
    accounting: Accounting = "deepspeed",
) -> None:
    """Memory per GPU and traffic of a strategy, or of ZeRO 0-3 side by side."""
    from zeroplan.cli.estimate import run

    raise typer.Exit(run(options, json=json, quiet=quiet, accounting=accounting, timeline=timeline))


app.command()(recommend)


@app.command()
@with_options
def compare(options: Options, *, json: Json = False, quiet: Quiet = False) -> None:
    """Strategies or GPU counts side by side: give several values, as in --gpus 8,64,512 or --stage 1,2,3."""
    from zeroplan.cli.compare import run

    raise typer.Exit(run(options, json=json, quiet=quiet))


@app.command()
@with_options
def diff(
    options: Options,
    *,
    first: Annotated[str, typer.Argument(metavar="A.json", help="A ds_config.json.", show_default=False)],
    second: Annotated[str, typer.Argument(metavar="B.json", help="Another; - is standard input.", show_default=False)],
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Which differences between two ds_config.json (one may be -, standard input) matter for a --model on --gpus: what
    each changes in bytes, calls and seconds by itself, and what all do together. Without a model: the keys that differ
    in meaning, defaults filled in.
    """
    from zeroplan.cli.diff import run

    raise typer.Exit(run(first, second, options, json=json, quiet=quiet))


@app.command()
@with_options
def matrix(
    options: Options,
    *,
    form: Annotated[
        str, typer.Option("--format", metavar="text|markdown|csv", help="How it is written.", rich_help_panel=OUTPUT)
    ] = "text",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Models by strategies, with what each GPU needs: --params 1.3B,7B,13B,70B or --model a,b."""
    from zeroplan.cli.matrix import run

    raise typer.Exit(run(options, form=form, json=json, quiet=quiet))


@app.command()
@with_options
def explain(
    options: Options,
    *,
    term: Annotated[
        str, typer.Argument(
            help="A line, formula, ds_config key or rule of check; MFU, needed, ...; activations.", show_default=False
        )
    ],
    json: Json = False,
) -> None:
    """Formula, symbols with their values, source and assumptions of any number; or a ds_config key."""
    if term.upper().startswith("ZP"):
        from zeroplan.cli.check import explain as told

        code = told(term, json=json)
        if code is not None:
            raise typer.Exit(code)
    from zeroplan.cli.explain import run

    raise typer.Exit(run(options, term, json=json))


app.command()(check)


@app.command()
def rules(*, json: Json = False) -> None:
    """List the rules of `zeroplan check`."""
    from zeroplan.cli.check import rules as listed

    raise typer.Exit(listed(json=json))


@app.command()
def schema(
    *,
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", metavar="FILE", help="Write it ('-': standard output).", show_default=False),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """A JSON Schema of ds_config.json for editors: keys, values, defaults, what was removed or is passed over."""
    from zeroplan.cli.schema import run

    raise typer.Exit(run(output, force=force))


@app.command()
@with_options
def verify(
    options: Options,
    *,
    real: Annotated[
        bool, typer.Option("--real", help="Compute with real tensors on the CPU (models that fit into memory).")
    ] = False,
    cuda: Annotated[
        bool, typer.Option("--cuda", help="Compute with real tensors on this machine's GPU (models that fit into it).")
    ] = False,
    save: Annotated[
        str | None, typer.Option("--save", metavar="FILE", help="Keep the measurement as JSON, with versions and date.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run DeepSpeed itself as one rank of N, without a GPU, and compare it with the prediction."""
    from zeroplan.cli.verify import run

    raise typer.Exit(run(options, real=real, cuda=cuda, save=save, force=force, json=json, quiet=quiet))


@app.command()
@with_options
def observe(
    options: Options,
    *,
    log: Annotated[str, typer.Argument(metavar="LOG", help="What the run has printed.", show_default=False)],
    steps: Annotated[
        str | None,
        typer.Option("--steps", metavar="N", help="Optimizer steps that the log covers, where it does not say."),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """What DeepSpeed's own log lines say of a run, beside what was predicted for it."""
    from zeroplan.cli.observe import run

    raise typer.Exit(run(options, log, steps=steps, json=json, quiet=quiet))


@app.command()
def calibrate(
    *,
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", metavar="FILE.yaml", help="Write a node's file, which --cluster then reads."),
    ] = None,
    disk: Annotated[str, typer.Option("--disk", metavar="DIR", help="A folder on the disk to measure.")] = ".",
    quick: Annotated[bool, typer.Option("--quick", help="Shorter and smaller, and less exact.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    json: Json = False,
) -> None:
    """Measure this machine: host and disk, and its GPUs where torch sees any (that part was run on no GPU yet)."""
    from zeroplan.cli.calibrate import run

    raise typer.Exit(run(output=output, disk=disk, quick=quick, force=force, json=json))


@app.command()
def models(
    name: Annotated[str | None, typer.Argument(help="Show every tensor of this model.", show_default=False)] = None,
    *,
    json: Json = False,
) -> None:
    """List the model presets, or the tensors of one model."""
    from zeroplan.cli import lists

    raise typer.Exit(lists.models(name, json=json))


@app.command()
def gpus(*, json: Json = False) -> None:
    """List the GPU presets."""
    from zeroplan.cli import lists

    raise typer.Exit(lists.gpus(json=json))


@app.command()
def clusters(*, json: Json = False) -> None:
    """List the node presets."""
    from zeroplan.cli import lists

    raise typer.Exit(lists.clusters(json=json))
