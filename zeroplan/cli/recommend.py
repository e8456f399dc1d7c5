"""`zeroplan recommend`."""

from __future__ import annotations

from collections.abc import Sequence

from zeroplan.cli.headroom import kept_free
from zeroplan.cli.options import Options
from zeroplan.cli.output import Output
from zeroplan.cli.request import Request, check_offload, read_request
from zeroplan.cli.screen import show
from zeroplan.costs.ledger import ledger
from zeroplan.errors import ContradictionError
from zeroplan.ledger import Detail
from zeroplan.plan import Rejected, label, plan, usual_batch
from zeroplan.results.recommend import Recommendation
from zeroplan.search import Candidate
from zeroplan.sizing import Fewest
from zeroplan.specs.headroom import USUAL
from zeroplan.specs.job import Job
from zeroplan.why import Why, Wish, why


def run(
    options: Options, output: Output, *, json: bool, quiet: bool, max_params: bool, alternatives: Sequence[str] = ()
) -> int:
    """0 with a plan, 1 when nothing fits."""
    if max_params:
        from zeroplan.cli.largest import asked as largest

        if alternatives:
            raise ContradictionError("--why asks about a plan and --max-params makes none; write --params SIZE")
        if output.file is not None or output.folder is not None:
            none = "-o and --dir write a plan and --max-params makes none"
            raise ContradictionError(f"{none}; write --params SIZE in its place")
        return show(largest(options), json=json, quiet=quiet)
    output.check(json=json)
    if alternatives and output.file == "-":
        raise ContradictionError("--why and -o - both want standard output; write -o ds_config.json")
    answer = asked(options, lines=json, alternatives=alternatives)
    answer.target, answer.written = output.target, output.write(answer, options)
    if json or output.file != "-" or not answer.fits:  # with -o - standard output holds the config and nothing else
        return show(answer, json=json, quiet=quiet, errors=output.file == "-")
    return 0


def asked(options: Options, *, lines: bool = True, alternatives: Sequence[str] = ()) -> Recommendation:
    """What these options ask for: one plan, or one for each card. `alternatives`: names as behind --why."""
    from zeroplan.cli import cards, fewest
    from zeroplan.cli.why import wishes

    found_wishes = wishes(alternatives)
    several, counts = cards.named(options), options.gpus == fewest.AUTO
    if options.config == "-" and (several or counts):
        raise ContradictionError("--config - can be read once, and each card or number of GPUs reads it; name a file")
    if several and alternatives:
        raise ContradictionError("--why asks about one plan; write one card in place of several")
    if several:
        return cards.asked(options, several)
    found = fewest.fewest_gpus(options) if counts else None
    if found is None:
        return planned(options, lines=lines, wishes=found_wishes)
    return planned(
        fewest.counted(options, found), lines=lines, rescue=found.gpus is not None, fewest=found, wishes=found_wishes
    )


def read(options: Options) -> Request:
    """What is asked, with a card of which something is kept free. Raises `ContradictionError`."""
    request = read_request(options, default_params="7B", default_gpus=8)
    if request.cluster.capacity is None:
        raise ContradictionError("no card: write --gpu-mem 80, --gpu h100-80gb or --cluster dgx-h100")
    if request.headroom is not None:
        return request
    return request._replace(headroom=USUAL, assumed=(*request.assumed, kept_free(USUAL)))


def planned(
    options: Options, *, lines: bool = True, rescue: bool = True, fewest: Fewest | None = None,
    wishes: Sequence[Wish] = (),
) -> Recommendation:  # fmt: skip
    """One plan, counted line by line, with each line's equation unless `lines` is False.

    `rescue`: with its neighbours, or ways out when nothing fits. `wishes`: alternatives to set beside it.
    """
    request = read(options)
    job = request.job()
    assumed = list(request.assumed)
    if "checkpointing" not in request.settled:
        assumed = [text for text in assumed if "--checkpointing" not in text]
    if job.workload.global_batch is None and "micro_batch" not in request.settled:
        assumed.append(f"{usual_batch(job)} sequences a step (--global-batch)")
    found = plan(job, request.settled, reserve=request.reserve, rescue=rescue)
    if fewest and fewest.lack and not found.chosen:
        nearest = fewest.lack.candidate
        found = found._replace(rejected=(Rejected(nearest, nearest.fit.shortage, label(nearest)),))
    alternatives = tuple(_why(request, job, wish, found.chosen) for wish in wishes)
    if found.chosen:
        detail = Detail.EQUATIONS if lines else Detail.KINDS
        found = found._replace(chosen=found.chosen._replace(ledger=ledger(found.chosen.job, detail=detail)))
    return Recommendation(
        job, found, tuple(assumed), request.given, fewest, why=alternatives, headroom=request.headroom
    )


def _why(request: Request, job: Job, wish: Wish, chosen: Candidate | None) -> Why:
    try:
        check_offload(wish.settled(request.settled))
    except ContradictionError as error:
        return Why(wish.name, cannot=str(error))
    return why(job, request.settled, wish, chosen, reserve=request.reserve)
