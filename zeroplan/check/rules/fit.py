"""9xx: whether it fits, by the ledger of `zeroplan estimate --config`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from zeroplan.check.finding import ERROR, WARNING, Hit
from zeroplan.check.rule import Rule, example
from zeroplan.check.rules.names import STAGE_2, STAGE_3
from zeroplan.check.subject import Subject
from zeroplan.errors import ZeroplanError
from zeroplan.units import gib

if TYPE_CHECKING:
    from zeroplan.check.planned import Planned

GUIDE = "https://github.com/deepspeedai/DeepSpeed/blob/master/docs/_pages/training.md"
RULES_BY_TIER = {"gpu": "ZP901", "host": "ZP902", "nvme": "ZP903"}
CPU = ', "offload_optimizer": {"device": "cpu"}'
NVME = ', "offload_optimizer": {"device": "nvme", "nvme_path": "/local_nvme"}'
EIGHT_BILLION = {"model": "llama-3.1-8b", "gpus": "8", "gpu_mem": "80", "checkpointing": "full"}
LEDGER = "the ledger of zeroplan estimate --config"
NO_SINGLE_CHANGE = "no single change is enough; zeroplan recommend finds several"
UNSAID = "; no checkpointing was assumed (--checkpointing, --trainer-args)"
LINES = 4
"""How many lines of a peak a message names."""

RULES: tuple[Rule, ...] = (
    Rule(
        "ZP901", ERROR, "It does not fit into the GPUs", LEDGER,
        example(STAGE_2 % "", model="llama-3.1-70b", gpus="8", gpu_mem="80"), example(STAGE_3 % "", **EIGHT_BILLION),
        GUIDE,
    ),
    Rule(
        "ZP902", ERROR, "It does not fit into host memory", LEDGER,
        example(STAGE_3 % CPU, **EIGHT_BILLION, host_mem="64GiB"),
        example(STAGE_3 % CPU, **EIGHT_BILLION, host_mem="512GiB"), GUIDE,
    ),
    Rule(
        "ZP903", ERROR, "It does not fit onto the disks", LEDGER,
        example(STAGE_3 % NVME, **EIGHT_BILLION, nvme="50GB"), example(STAGE_3 % NVME, **EIGHT_BILLION, nvme="1TB"),
        GUIDE,
    ),
    Rule(
        "ZP904", WARNING, "Whether it fits is not known", "no ledger can be made of what was asked",
        example(STAGE_2 % "", model="llama-3.1-8b", gpus="8", gpu_mem="80", micro_batch="2"),
        example(STAGE_3 % "", **EIGHT_BILLION), GUIDE,
    ),
    Rule(
        "ZP905", ERROR, "It is tight: such runs took more than is there", LEDGER,
        example(STAGE_2 % "", model="llama-3.1-8b", gpus="4", gpu_mem="60GiB", checkpointing="full"),
        example(STAGE_3 % "", **EIGHT_BILLION), GUIDE,
    ),
)  # fmt: skip


def fits(subject: Subject) -> Iterator[Hit]:
    """Only of a config that DeepSpeed takes: `check` leaves these out beside errors."""
    from zeroplan.check.mending import mended
    from zeroplan.fit import PLACES

    planned = subject.setting.planned
    if planned is None or (planned.model is None and not planned.hindrance):
        return
    path = subject.spelled("zero_optimization.stage")
    try:
        candidate = planned.candidate if planned.job else None
    except ZeroplanError as error:
        yield Hit("ZP904", path, f"no ledger: {_clause(error)}", "what it asks for")
        return
    if candidate is None and planned.cluster.capacity is None:
        return  # nobody asked whether it fits
    if candidate is None:
        yield Hit("ZP904", path, f"no ledger: {_clause(planned.hindrance)}", "what it asks for")
        return
    short = candidate.fit.missing
    write = mended(planned, subject.setting) if candidate.fit.fits is False else ""
    for key in short:
        unsaid = UNSAID if key == "gpu" and planned.assumes_no_checkpointing else ""
        yield Hit(RULES_BY_TIER[key], path, _shortage(planned, key) + unsaid, write or NO_SINGLE_CHANGE)
    if short or planned.accepts_tight:
        return
    for key in candidate.fit.tight:
        tier = candidate.fit.tiers[key]
        room = f"{gib(tier.room or 0)} of {PLACES[key]}"
        message = f"is tight: needs {gib(tier.needed)} of {room}, and such runs took up to {gib(tier.most)}"
        message += UNSAID if key == "gpu" and planned.assumes_no_checkpointing else ""
        yield Hit("ZP905", path, message, write or f"{NO_SINGLE_CHANGE}, or --accept tight")


def _clause(error: object) -> str:
    return " ".join(str(error).split())


def _shortage(planned: Planned, key: str) -> str:
    """Needed, room, and by which lines."""
    from zeroplan.fit import PLACES

    candidate = planned.candidate
    tier, moment = getattr(candidate.fit, key), getattr(candidate.ledger, key).peak
    lines = [*moment.lines, *(candidate.fit.outside if key == "gpu" else ())]
    largest = sorted(lines, key=lambda entry: -entry.bytes)[:LINES]
    by = ", ".join(f"{entry.name} {gib(entry.bytes)}" for entry in largest if entry.bytes)
    gpus = candidate.job.ranks
    assumed = " (assumed: --gpus says how many)" if planned.assumes_one_gpu else ""
    cards = f"on {'each of ' * (gpus > 1)}{gpus} GPU{'s' * (gpus > 1)}{assumed}"
    where = cards if key == "gpu" else f"of {PLACES[key]}"
    return (f"needs {gib(tier.needed)} {where}, {gib(tier.capacity)} are there, {gib(-tier.headroom)} too few: in "
            f"{moment.phase} {by}")  # fmt: skip


CHECKS = ()
COUNTED = (fits,)
