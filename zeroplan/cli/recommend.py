"""`zeroplan recommend`."""

from __future__ import annotations

from zeroplan.cli.options import Options
from zeroplan.cli.output import show
from zeroplan.cli.request import read_request
from zeroplan.costs.ledger import ledger
from zeroplan.deepspeed.write import TARGETS
from zeroplan.errors import ContradictionError, QuantityError, shown
from zeroplan.ledger import Detail
from zeroplan.plan import plan, usual_batch
from zeroplan.results.recommend import Recommendation

RESERVE = 0.05
"""Share of each card kept free: PyTorch reserves 1.00 to 1.25 times what it allocates."""


def run(options: Options, *, json: bool, quiet: bool, output: str | None, target: str, force: bool) -> int:
    """0 with a plan, 1 when nothing fits."""
    if json and output == "-":
        raise ContradictionError("--json and -o - both want standard output; keep one")
    if target not in TARGETS:
        raise QuantityError(f"--for: found {shown(target)}, expected {' or '.join(TARGETS)}; write --for hf")
    answer = asked(options, lines=json)
    answer.target = target
    if output is not None and answer.fits:
        answer.write(output, force=force)
        answer.written = output
    if json or output != "-" or not answer.fits:  # with -o - standard output holds the config and nothing else
        return show(answer, json=json, quiet=quiet, errors=output == "-")
    return 0


def asked(options: Options, *, lines: bool = True) -> Recommendation:
    """What these options ask for; the plan counted line by line, with each line's equation unless `lines` is False."""
    request = read_request(options, default_params="7B", default_gpus=8)
    if request.cluster.capacity is None:
        raise ContradictionError("no card: write --gpu-mem 80, --gpu h100-80gb or --cluster dgx-h100")
    job = request.job()
    assumed = [*request.assumed, f"{RESERVE:.0%} of each card kept free"]
    if "checkpointing" not in request.settled:
        assumed = [text for text in assumed if "--checkpointing" not in text]
    if job.workload.global_batch is None and "micro_batch" not in request.settled:
        assumed.append(f"{usual_batch(job)} sequences a step (--global-batch)")
    found = plan(job, request.settled, reserve=RESERVE)
    if found.chosen:
        detail = Detail.EQUATIONS if lines else Detail.KINDS
        found = found._replace(chosen=found.chosen._replace(ledger=ledger(found.chosen.job, detail=detail)))
    return Recommendation(job, found, tuple(assumed), request.given)
