"""`zeroplan diff`: which differences between two ds_config.json matter, for a model on a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zeroplan.check.config_file import ConfigFile, read_config_file
from zeroplan.cli.options import Options, flag
from zeroplan.cli.progress import tell, watched
from zeroplan.cli.request import Request, read_request
from zeroplan.cli.screen import View, show
from zeroplan.costs.ledger import ledger
from zeroplan.costs.timing.rates import is_timed
from zeroplan.costs.timing.speed import speed
from zeroplan.deepspeed.difference import Difference, changed, differences
from zeroplan.deepspeed.effect import Comparison, ConfigChange, Counted, changes
from zeroplan.deepspeed.names import canonical
from zeroplan.deepspeed.read import read_config
from zeroplan.errors import ContradictionError
from zeroplan.fit import fit
from zeroplan.ledger import Detail
from zeroplan.results.diff import Diff

MODELS = ("model", "params")
MOST = 200
"""Keys that differ, each of which is counted twice with a model."""


def run(first: str, second: str, options: Options, *, view: View) -> int:
    """0, whatever differs."""
    with watched("diff"):
        found = asked(first, second, options)
    show(found, view)
    return 0


def asked(first: str, second: str, options: Options) -> Diff:
    """What differs between the files, in numbers where a model is named."""
    if options.config is not None:
        raise ContradictionError("diff takes both files as arguments; leave out --config")
    if first == second == "-":
        raise ContradictionError("standard input is named twice; write - once")
    files = read_config_file(first), read_config_file(second)
    for file in files:
        read_config(file.content, file.place, planned=False)
    a, b = (canonical(file.content, file.place) for file in files)
    found, names = differences(a, b), (files[0].place, files[1].place)
    if any(getattr(options, name) for name in MODELS):
        return _counted(options, files, (a, b), found)
    typed = next((name for name in Options.__annotations__ if getattr(options, name) is not None), None)
    if typed:
        raise ContradictionError(f"{flag(typed)} says nothing without a model; write --model llama-3.1-8b as well")
    return Diff(Comparison(names, tuple(ConfigChange((one,)) for one in found)))


def _counted(
    options: Options, files: tuple[ConfigFile, ConfigFile], configs: tuple[dict[str, Any], dict[str, Any]],
    found: list[Difference],
) -> Diff:  # fmt: skip
    if len(found) > MOST:
        what = f"{files[0].place} and {files[1].place}: found {len(found):,} keys that differ"
        raise ContradictionError(f"{what}, expected at most {MOST} to count one by one; leave out the model")
    requests = [_asked_of(file, options) for file in files]
    ends = _count(requests[0]), _count(requests[1])

    def count(made: Sequence[Difference]) -> Counted:
        tell(made[0].path if made else "nothing")
        config = changed(*configs, [one.path for one in made])
        return _count(read_request(options, default_gpus=8, config=ConfigFile(config, "alone")))

    assumed = [request.assumed_for([end.job]) for request, end in zip(requests, ends, strict=True)]
    names = files[0].place, files[1].place
    comparison = Comparison(names, tuple(changes(found, ends, count)), ends)
    return Diff(comparison, _said(assumed, names), requests[0].headroom)


def _asked_of(file: ConfigFile, options: Options) -> Request:
    """Errors say which of both files they are about."""
    try:
        return read_request(options, default_gpus=8, config=file)
    except ContradictionError as error:
        if file.place in str(error):
            raise
        raise ContradictionError(f"{file.place}: {error}") from error


def _count(request: Request) -> Counted:
    """As `compare` counts it: a config names its stage, so there is one job."""
    job = request.jobs()[0]
    counted = ledger(job, detail=Detail.WHOLE)
    verdict = fit(job, counted, reserve=request.reserve)
    return Counted(job, counted, verdict, speed(job, counted) if is_timed(job) else None)


def _said(assumed: Sequence[tuple[str, ...]], names: tuple[str, str]) -> tuple[str, ...]:
    """What both assume, then what one does."""
    common = tuple(said for said in assumed[0] if said in assumed[1])
    own = (f"for {name}: {said}" for name, each in zip(names, assumed, strict=True) for said in each
           if said not in common)  # fmt: skip
    return (*common, *own)
