"""What a report is about, in words: the model, the GPUs, and how far its numbers hold."""

from __future__ import annotations

from rich.console import RenderableType
from rich.text import Text

from zeroplan.fit import Fit
from zeroplan.sources import DEEPSPEED, FLASH_ATTN, LIGER, TRANSFORMERS, transformers_of
from zeroplan.specs.job import Job
from zeroplan.specs.model import Model
from zeroplan.specs.scope import Scope
from zeroplan.units import between, count, gib

COMPARED = (
    f"Equal to recorded runs of DeepSpeed {DEEPSPEED} and transformers {TRANSFORMERS}{{}}: what a GPU and the host "
    "hold between steps, traffic, and activations; peaks within 1 %. Runs on an H100 had these peaks too, and 64 to "
    "163 MiB beside them; what PyTorch reserves and nvidia-smi shows are ranges of others' runs."
)
COMPARED_IN_PART = (
    f"Equal to recorded runs of DeepSpeed {DEEPSPEED}: what a GPU and the host hold between steps, and traffic; peaks "
    "less activations within 1 %. Compared with no run yet: activations and logits, which are closed forms."
)
"""For a family whose forward is not written out."""
COMPARED_BUT_FLASH = (
    f"Equal to recorded runs of DeepSpeed {DEEPSPEED}, transformers {TRANSFORMERS} and flash-attn {FLASH_ATTN}'s "
    "Python: what a GPU and the host hold between steps, traffic, and activations; peaks within 1 %. flash-attn's "
    "kernels ran in none, for they need a GPU: what they make for themselves is as its source says, and the "
    "allocator's fragments are not in it."
)
APPROXIMATED = (
    "An approximation: its family is not described, and its sizes are planned in layers like Llama's. Described "
    "families planned so need as much memory as planned themselves, within {:.0%}; no run of this family was compared."
)

RECORDED = (
    f"Its operators are those that {{}} ran on the meta device when it was recorded; what DeepSpeed {DEEPSPEED} holds "
    "and moves for them is as in recorded runs of other models. 106 families recorded so ran under DeepSpeed, 478 runs "
    "equal (docs/recordings.md); this one was compared with none: zeroplan verify does."
)
RECORDED_FLASH = (
    f" What flash-attn's function holds is as {FLASH_ATTN}'s source says: its kernels ran in none."
)


def title(model: Model) -> str:
    """The model as a sentence names it."""
    if model.inferred:
        return model.name
    about = f", its memory within {model.approximate:.0%}" if model.approximate else ""
    return f"{model.name} ({'about ' * bool(about)}{count(model.weights)} parameters{about})"


def gpus(job: Job) -> str:
    """How many, as a sentence says it."""
    return f"{job.ranks} GPU{'s' if job.ranks > 1 else ''}"


def on_host(job: Job, *verdicts: Fit) -> list[str]:
    """The memory that a node needs where a job offloads, over all of its stages: a part of the answer, no footnote."""
    if not (job.strategy.offload_optimizer or job.strategy.offload_param):
        return []
    needed, most = min(one.host.needed for one in verdicts), max(one.host.most for one in verdicts)
    capacity = verdicts[0].host.capacity
    size = f"of {gib(capacity)}" if capacity is not None else "its size is not given (--host-mem)"
    return [f"each node needs {between(needed, most)} of host memory, {size}"]


def scope_lines(scope: Scope, *, quiet: bool = False) -> list[RenderableType]:
    """The job that the numbers are of, and what of the user's own is not planned, which nothing leaves out."""
    planned = [] if quiet else [Text(scope.line, style="dim")]
    return [*planned, *(Text(said, style="yellow") for said in scope.not_planned)]


def trust(job: Job, *, whole: bool = True) -> list[RenderableType]:
    """How far the numbers hold: what runs have confirmed, and what of the config is not in them."""
    return [Text(_compared(job) if whole else COMPARED_IN_PART, style="dim"), *not_counted(job)]


def not_counted(job: Job) -> list[RenderableType]:
    """What of the config is in no number."""
    if not (left_out := job.strategy.not_counted):
        return []
    text = f"Not counted, and DeepSpeed then holds or moves other amounts: {', '.join(left_out)}."
    return [Text(text, style="yellow")]


def _compared(job: Job) -> str:
    """Naming the transformers that the model's family is described as."""
    return _compared_with(job).replace(TRANSFORMERS, transformers_of(job.model.family))


def _compared_with(job: Job) -> str:
    if job.model.approximate:
        return APPROXIMATED.format(job.model.approximate)
    if job.model.recorded_with:
        return RECORDED.format(job.model.recorded_with) + RECORDED_FLASH * bool(job.strategy.flash)
    if job.strategy.flash:
        return COMPARED_BUT_FLASH
    by_liger = f" with liger-kernel {LIGER}" if job.strategy.kernels != "transformers" else ""
    return COMPARED.format(by_liger or " under torch_autocast" * bool(job.strategy.autocast))
