"""What `diff` comes to: the keys that differ, and what each changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from zeroplan.check.config_file import ConfigFile, read_config_file
from zeroplan.costs.ledger import ledger
from zeroplan.costs.timing import is_timed
from zeroplan.costs.timing.speed import speed
from zeroplan.deepspeed.difference import Difference, changed, differences
from zeroplan.deepspeed.effect import Comparison, ConfigChange, Counted, changes
from zeroplan.deepspeed.names import canonical
from zeroplan.deepspeed.read import read_config
from zeroplan.errors import ContradictionError, SpecError, shown
from zeroplan.fit import fit
from zeroplan.ledger import Detail
from zeroplan.outcome import Outcome, outcome
from zeroplan.progress import tell
from zeroplan.report.depth import BRIEF, QUIET
from zeroplan.request.options import OPTIONS, Options
from zeroplan.request.request import Request, read_request
from zeroplan.request.values import flag
from zeroplan.results.result import Result, worst
from zeroplan.specs.headroom import Headroom
from zeroplan.specs.scope import Scope, scope

if TYPE_CHECKING:
    from zeroplan.report.rendered import Screen
    from zeroplan.schema import comparisons as schema


MODELS = ("model", "params")
MOST = 200
"""Keys that differ, each of which is counted twice with a model."""


class Diff(Result):
    """Two ds_config.json: what differs in meaning, and in numbers where a model was named."""

    def __init__(
        self, comparison: Comparison, assumed: tuple[str, ...] = (), headroom: Headroom | None = None
    ) -> None:  # fmt: skip
        self.changes = comparison.changes
        """Each with its keys, and what it does alone and beside all others."""
        self.together = comparison.together
        """What all do at once; None without a model."""
        self.a = _numbers(comparison.ends[0]) if comparison.ends else None
        """The first config in numbers; None without a model."""
        self.b = _numbers(comparison.ends[1]) if comparison.ends else None
        self.assumed = assumed
        self._comparison, self._headroom = comparison, headroom

    @property
    def verdict(self) -> str | None:
        """The worse of both configs'."""
        return worst(end.verdict for end in (self.a, self.b) if end)

    @property
    def scope(self) -> Scope | None:
        """The job that the numbers are of; None without a model."""
        ends = self._comparison.ends
        return scope([ends[0].job.model], ends[0].job.workload.seq) if ends else None

    def screen(self, level: int = BRIEF) -> Screen:
        from zeroplan.report import diff as report
        from zeroplan.report import rendered
        from zeroplan.report.subject import scope_lines

        comparison = self._comparison
        head = scope_lines(self.scope, quiet=level == QUIET) if self.scope else []
        body = report.details(comparison, brief=level == BRIEF)
        return rendered.screen(report.summary(comparison), head, body, self.assumed if comparison.ends else (), level)

    def content(self) -> schema.DiffDocument:
        from zeroplan.report import json_compare, json_objects
        from zeroplan.schema import comparisons as schema

        compared = self._comparison
        if not (compared.ends and self.together and self.scope):
            changes = [schema.DiffKeys(keys=json_compare.diff_keys(change)) for change in compared.changes]
            return schema.KeysDiff(files=compared.files, changes=changes, assumed=self.assumed)
        job = compared.ends[0].job
        a, b = map(json_compare.counted_config, compared.ends)
        return schema.CountedDiff(
            files=compared.files,
            scope=json_objects.scope_object(self.scope),
            model=json_objects.model_object(job.model),
            a=a,
            b=b,
            together=self.together,
            sum=compared.added_up,
            kept_free=json_objects.kept_free(self._headroom, job.cluster.capacity),
            changes=[json_compare.diff_change(change) for change in compared.changes],
            assumed=self.assumed,
        )


def _numbers(end: Counted) -> Outcome:
    return outcome(end.job, end.ledger, end.fit, end.speed)


def diff(first: str, second: str, options: Options) -> Diff:
    """What differs between the files, in numbers where a model is named."""
    if options.config is not None:
        raise ContradictionError("diff takes both files as arguments; leave out --config")
    if first == second == "-":
        raise ContradictionError("standard input is named twice; write - once")
    files = _beside_one_job(read_config_file(first), read_config_file(second))
    for file in files:
        read_config(file.content, file.place, planned=False)
    a, b = (canonical(file.content, file.place) for file in files)
    differing, names = differences(a, b), (files[0].place, files[1].place)
    stated = next((name for name in OPTIONS if getattr(options, name) is not None), None)
    named = files[0].file is not None and "model" in files[0].file.stated.settings
    if any(getattr(options, name) for name in MODELS) or (stated and named):
        return _counted(options, files, (a, b), differing)
    if stated:
        raise ContradictionError(f"{flag(stated)} says nothing without a model; write --model llama-3.1-8b as well")
    return Diff(Comparison(names, tuple(ConfigChange((one,)) for one in differing)))


def _counted(
    options: Options, files: tuple[ConfigFile, ConfigFile], configs: tuple[dict[str, Any], dict[str, Any]],
    differing: list[Difference],
) -> Diff:  # fmt: skip
    if len(differing) > MOST:
        what = f"{files[0].place} and {files[1].place}: found {len(differing):,} keys that differ"
        raise ContradictionError(f"{what}, expected at most {MOST} to count one by one; leave out the model")
    requests = [_request_of(file, options) for file in files]
    ends = _count(requests[0]), _count(requests[1])

    def count(made: Sequence[Difference]) -> Counted:
        tell(made[0].path if made else "nothing")
        config = changed(*configs, [one.path for one in made])
        return _count(read_request(options, default_gpus=8, config=ConfigFile(config, "alone", file=files[0].file)))

    assumed = [request.assumed_for([end.job]) for request, end in zip(requests, ends, strict=True)]
    names = files[0].place, files[1].place
    comparison = Comparison(names, tuple(changes(differing, ends, count)), ends)
    return Diff(comparison, _said(assumed, names), requests[0].headroom)


def _beside_one_job(first: ConfigFile, second: ConfigFile) -> tuple[ConfigFile, ConfigFile]:
    """Both, with the training file that names one of them. Raises `ZeroplanError` where two say different jobs."""
    for each in (first, second):
        if not each.is_stated:
            tool = each.file.tool if each.file else ""
            raise SpecError(each.place, f"a training file of {tool} that names no DeepSpeed config", "a ds_config.json")
    if first.file and second.file and first.file.words != second.file.words:
        words = first.file.words, second.file.words
        key = next(key for key in (*words[0], *words[1]) if words[0].get(key) != words[1].get(key))
        raise ContradictionError(
            f"{first.file.place} and {second.file.place} say different jobs ({shown(key)[1:-1]}), and diff compares "
            "DeepSpeed configs; give those that they name"
        )
    file = first.file or second.file
    return first._replace(file=file), second._replace(file=file)


def _request_of(file: ConfigFile, options: Options) -> Request:
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
