"""`zeroplan trace`."""

from __future__ import annotations

import importlib.util

import click

from zeroplan.cli.progress import tell, watched
from zeroplan.deepspeed.files import check_output, write_whole
from zeroplan.errors import SpecError
from zeroplan.request.options import Options
from zeroplan.request.request import read_input_sizes

NEEDED = ("torch", "transformers")
ENDING = ".trace.json"


def run(
    model: str, options: Options, output: str | None, *, force: bool, trusts: bool = False, verbose: bool = False
) -> int:  # fmt: skip
    """Record the model that a config.json, a folder, a preset or org/name means."""
    from zeroplan.catalog.models import stated_config

    check_installed()
    sizes = read_input_sizes(options)
    stated = stated_config(model)
    path = output or stated.name.rpartition("/")[2] + ENDING
    if path != "-":
        check_output(path, force=force, usual=f"model{ENDING}")
    with watched("trace"):
        from zeroplan.catalog.recording import written
        from zeroplan.verify.recording.model import recording

        recorded = recording(
            stated.content, name=stated.name, place=stated.place, sizes=sizes, attention=options.attention,
            precision=options.precision, trusted=stated.folder if trusts else None, watch=_said if verbose else tell,
        )  # fmt: skip
    text = written(recorded)
    write_whole(path, text, force=force)
    if path != "-":
        attentions = ", ".join(dict.fromkeys(each.attention for each in recorded.variants))
        size = f"{len(text) / 1000:,.0f} kB"
        click.echo(f"Recorded {recorded.architecture} of {stated.place} with {attentions}: {path}, {size}")
        click.echo(f"Next: zeroplan estimate --model {path}")
    return 0


def _said(what: str) -> None:
    click.echo(what, err=True)


def check_installed() -> None:
    """Raises `SpecError` where torch or transformers is missing."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise SpecError(
            "trace", f"no {' and no '.join(missing)}", "both, to run the model's own modules",
            "pip install 'zeroplan[verify]'",
        )  # fmt: skip
