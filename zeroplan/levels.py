"""One job's memory as three instruments show it: allocated, reserved by PyTorch, and in use on the card.

The first is counted. The others have no formula: factors read in published rows, each with a range and its evidence.
"""

from typing import NamedTuple

from zeroplan.costs.outside import outside
from zeroplan.costs.passes import timeline_of
from zeroplan.formulas.outside import left_by_flattening
from zeroplan.ledger import Ledger, total
from zeroplan.specs.job import Job
from zeroplan.units import GiB, gib

RESERVED, USED, USED_ON_OTHERS = "reserved by PyTorch", "nvidia-smi", "used on the card"
"""What tables call the levels beyond the counted one; the last on cards that are not NVIDIA's."""


class Range(NamedTuple):
    """What a number is likely to be, and the least and most that was seen."""

    likely: float
    low: float
    high: float
    evidence: str
    """published: read in others' rows. assumed: nobody measured it here."""
    reason: str


OVER_ALLOCATED = Range(
    1.06, 1.00, 1.25, "published",
    "the peak × 1.00 to 1.25, likely 1.06: torch 2 keeps freed blocks; reserved over allocated in published runs of "
    "torchtitan, ml-engineering and FlagPerf. Two runs of 2021 reached 1.31",
)  # fmt: skip
BESIDE_RESERVED = Range(
    4.0 * GiB, 1.0 * GiB, 6.6 * GiB, "published",
    "context, NCCL, libraries and blocks that nothing uses, on 8 × A100 or A800 (FlagPerf, ms-swift)",
)  # fmt: skip
MEASURED_ON = "a100"
"""Presets of the cards that this was read on; there is none of the A800."""
LARGEST_CONTEXT = int(1.1 * GiB)
"""On a V100: the largest that was read on one card."""


class Level(NamedTuple):
    """Bytes of one GPU at its fullest, by one instrument."""

    name: str
    bytes: int
    low: int
    high: int
    evidence: str
    """measured: compared with runs to within 1 %; else as of `Range`."""
    reason: str


def levels(job: Job, ledger: Ledger) -> tuple[Level, Level, Level]:
    """torch.cuda.max_memory_allocated, max_memory_reserved, and what nvidia-smi shows."""
    peak = total(ledger.gpu.peak.lines)
    factor, beside = OVER_ALLOCATED, beside_reserved(job)
    counted, left = _counted(job, ledger), left_by_initialize(job, peak)
    with_cached = peak + left
    reason = factor.reason + f". Flattening the model as built leaves {gib(left)} cached beside it" * (left > 0)
    reserved, low = max(int(peak * factor.likely), with_cached), int(peak * factor.low)
    high = int(max(peak * factor.high, with_cached * factor.likely))
    return (
        Level("allocated", peak, peak, peak, counted, "every tensor, each rounded up to 512 B on the card"),
        Level("reserved", reserved, low, high, factor.evidence, reason),
        Level(
            "nvidia-smi", reserved + int(beside.likely), low + int(beside.low), high + int(beside.high),
            beside.evidence, beside.reason,
        ),
    )  # fmt: skip


def shown_by(job: Job, ledger: Ledger) -> tuple[Level, ...]:
    """The levels of a card; none on the CPU backend, which has no card."""
    return () if job.strategy.backend == "cpu" else levels(job, ledger)


def left_by_initialize(job: Job, peak: int) -> int:
    """Blocks of the model as built, which stages 1 and 2 flatten on the card: they stay reserved where there is room.

    DeepSpeed 0.19.8 runtime/zero/stage_1_and_2.py (flatten_on_accelerator) empties no cache after it; BF16_Optimizer
    takes another way. Of a model that was built on the card in fp32, blocks of that size stay. Published:
    ml-engineering's stage-2 runs reserve as much more.
    """
    fp32 = job.strategy.built_on == "gpu" and job.strategy.built_dtype == "float32"
    left = left_by_flattening(job.model.trainable_parameters, 4 if fp32 else job.strategy.element_bytes)
    capacity = job.cluster.capacity
    has_room = capacity is None or peak + left + total(outside(job)) <= capacity
    return left if job.strategy.stage in (1, 2) and has_room and not job.strategy.runs_bf16_optimizer else 0


def beside_reserved(job: Job) -> Range:
    """What is used of a card beside the blocks that PyTorch has reserved."""
    here = total(outside(job))
    if job.ranks == 1:
        most = max(here, LARGEST_CONTEXT)
        return Range(here, here, most, "assumed", "CUDA context and libraries, 0.5 to 1.1 GiB where they were read")
    card = job.cluster.gpu
    known = card is not None and not card.stands_for_class and card.name.startswith(MEASURED_ON)
    result = BESIDE_RESERVED._replace(likely=max(BESIDE_RESERVED.likely, here), low=max(BESIDE_RESERVED.low, here))
    return result if known else result._replace(evidence="assumed", reason=f"{result.reason}; other cards are unknown")


def _counted(job: Job, ledger: Ledger) -> str:
    """The whole peak was compared with runs where the model's own timeline is in it, and nothing is left out."""
    left_out = set(job.strategy.not_counted) - set(job.strategy.untimed)
    runs = ledger.accounting == "deepspeed" and timeline_of(job) is not None
    return "measured" if runs and not left_out else "assumed"
