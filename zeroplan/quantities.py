"""What tables sum up of a job, each with its formula: peak, needed bytes, tokens per second, utilisation, interval."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from zeroplan.clock import HFU, MFU, MFU_CAUSAL, Speed, weakest
from zeroplan.costs.timing import is_timed
from zeroplan.costs.timing.computing import backward_share
from zeroplan.costs.timing.rates import multiplied_in
from zeroplan.costs.timing.speed import active_parameters, speed
from zeroplan.fit import DOES_NOT_FIT, FITS, TIGHT, fit, most_outside, reserved_percent
from zeroplan.formulas.outside import at_most
from zeroplan.ledger import Ledger, Provenance, is_activation, provenance, total, worked_out
from zeroplan.levels import levels
from zeroplan.specs.cluster import SourcedValue
from zeroplan.specs.job import Job

Rule = Callable[..., float]
PEAK, NEEDED, FREE = "peak", "needed", "free"
TOKENS = "tokens/s per GPU"
FROM, TO = "interval, from", "interval, to"
AT_MOST = "taken at most"
MEMORY = {PEAK: (), NEEDED: ("gpu memory",), FREE: ("headroom",), AT_MOST: ("verdict", "fits", "tight")}
CLOCK = {
    TOKENS: ("tokens/s", "tokens per second"), MFU: ("utilisation",), MFU_CAUSAL: ("mfu", "utilisation"),
    HFU: ("utilisation",), FROM: ("interval", "from"), TO: ("interval", "to"),
}  # fmt: skip
"""Names, and other words for them; those of the clock need a card."""
LORA, QLORA = "LoRA", "QLoRA"
TRAINED = {
    LORA: ("lora adapters", "adapters", "adapter", "peft"),
    QLORA: ("quantize", "quantized weights", "quantization", "nf4", "fp4", "int8", "4 bit", "8 bit", "bitsandbytes"),
}
"""Names, and other words for them, of what adapters and quantized weights are."""
STATES = "quantization states"
ADAPTERS = {"down": (".lora_A.", ".lora_embedding_A."), "up": (".lora_B.", ".lora_embedding_B.")}
"""In names of parameters, as peft calls them."""


def named(wanted: str) -> tuple[str, ...]:
    """The quantities that a word, in lower case, stands for."""
    return tuple(name for name, others in {**MEMORY, **CLOCK, **TRAINED}.items() if wanted in (name.lower(), *others))


class Quantity(NamedTuple):
    name: str
    unit: str
    """bytes, elements, tokens/s, s, or empty for a share."""
    rule: Rule
    symbols: Mapping[str, float]
    evidence: str
    figures: tuple[SourcedValue, ...] = ()
    said: str = ""
    """Where it is, or what it rests on."""

    @property
    def value(self) -> float:
        return self.rule(**self.symbols)

    @property
    def origin(self) -> Provenance:
        return provenance(self.rule)

    @property
    def worked(self) -> str:
        return worked_out(self.origin.equation, self.symbols)


def peak(held: int, beside: int, kept: int) -> int:
    """Mh + Mb + Ma -- the most that PyTorch has allocated at a moment of a step or of initialize [DeepSpeed replayed].

    All that is alive at each moment is added up, in the order of DeepSpeed's events and of the model's operators.
    """
    return held + beside + kept


def needed(most: int, context: int, communicator: int) -> int:
    """Mp + Mc + Mn -- what a GPU must have for the peak and for what lies outside PyTorch's allocator [zeroplan].

    Blocks that PyTorch reserves and does not use are not in it: it gives them back before it runs out.
    """
    return most + context + communicator


def free(capacity: int, need: int) -> int:
    """Mt - Mr -- what is left of the memory that PyTorch sees of the card [zeroplan]."""
    return capacity - need


def tokens_per_gpu(t: int, accum: int, step: float) -> float:
    """T·α / Δ -- tokens that one GPU trains on in a second, times the GPUs in all [zeroplan]."""
    return t * accum / step


def mfu(psi: int, layers: int, q: int, s: int, t: int, accum: int, flop_rate: float, step: float) -> float:
    """(6·Ψ + 12·L·q·s)·T·α / (Π·Δ) -- model FLOPs utilisation, attention over all pairs of tokens [PaLM appendix B].

    Of a mixture of experts Ψ are the parameters that one token meets. What checkpointing runs again does not count.
    """
    return (6 * psi + 12 * layers * q * s) * t * accum / (flop_rate * step)


def mfu_causal(psi: int, layers: int, q: int, s: int, t: int, accum: int, flop_rate: float, step: float) -> float:
    """(6·Ψ + 6·L·q·s)·T·α / (Π·Δ) -- MFU with attention over a token and those before it [PaLM appendix B].

    The paper counts all pairs; fused causal kernels leave out those ahead.
    """
    return (6 * psi + 6 * layers * q * s) * t * accum / (flop_rate * step)


def mfu_frozen(
    psi: int, runs: float, layers: int, descends: float, q: int, s: int, t: int, accum: int, flop_rate: float,
    step: float,
) -> float:  # fmt: skip
    """(2·(1 + Wb)·Ψ + 4·(1 + 2·Lb)·L·q·s)·T·α / (Π·Δ) -- MFU with frozen weights: of backward's, what runs [zeroplan].

    Where all train Wb is 2 and Lb 1, and it is PaLM's.
    """
    return (2 * (1 + runs) * psi + 4 * (1 + 2 * descends) * layers * q * s) * t * accum / (flop_rate * step)


def mfu_causal_frozen(
    psi: int, runs: float, layers: int, descends: float, q: int, s: int, t: int, accum: int, flop_rate: float,
    step: float,
) -> float:  # fmt: skip
    """(2·(1 + Wb)·Ψ + 2·(1 + 2·Lb)·L·q·s)·T·α / (Π·Δ) -- the same over a token and those before it [zeroplan]."""
    return (2 * (1 + runs) * psi + 2 * (1 + 2 * descends) * layers * q * s) * t * accum / (flop_rate * step)


def hfu(flops: float, accum: int, flop_rate: float, step: float) -> float:
    """Φ·α / (Π·Δ) -- hardware FLOPs utilisation: products and causal attention as they run [PaLM appendix B].

    Φ of one micro-step on one GPU, with what checkpointing runs again and without parameters that no product takes,
    such as an embedding: it may be under the MFU.
    """
    return flops * accum / (flop_rate * step)


def earliest(step: float, below: float) -> float:
    """Δ - π -- the least seconds that nine in ten published steps of dense models took [throughput].

    Terms of one name are off together, others independently: π is the root of the sum of their squares.
    """
    return step - below


def latest(step: float, above: float) -> float:
    """Δ + υ -- the most seconds that nine in ten published steps of dense models took [throughput].

    Terms of one name are off together, others independently: υ is the root of the sum of their squares.
    """
    return step + above


def lora(down: int, up: int) -> int:
    """Al + Bl -- elements of adapters: for a weight [out, in] train A [r, in], B [out, r] [peft tuners/lora/layer.py].

    The weight itself is frozen: no gradient, no optimizer state, and at stages 0 to 2 it lies whole on each GPU.
    """
    return down + up


def qlora(packed: int, scales: int) -> int:
    """Wq + Sq -- bytes of frozen weights in 4 or 8 bit, beside which adapters train [bitsandbytes functional.py].

    In 4 bit half a byte a weight and 4 bytes for 64 of them; with double quantization 1 byte for 64, and 4 for 16,384.
    In 8 bit a byte a weight and 4 bytes a row. Stage 3 divides what is packed, and no stage the scales.
    """
    return packed + scales


def quantities(job: Job, ledger: Ledger) -> list[Quantity]:
    """The quantities of one strategy; those of the clock where a card is named."""
    of_memory = [*_trained(job, ledger), *_memory(job, ledger)]
    return of_memory + list(_clock(job, speed(job, ledger))) if is_timed(job) else of_memory


def _trained(job: Job, ledger: Ledger) -> Iterator[Quantity]:
    """Adapters, and quantized weights beside them, of the whole model."""
    model = job.model
    if model.adapter:
        parts: dict[str, float] = {
            name: sum(each.elements for each in model.tensors if any(part in each.name for part in parts))
            for name, parts in ADAPTERS.items()
        }
        yield Quantity(LORA, "elements", lora, parts, "code")
    if model.quantization:
        each = model.quantization.storage_bytes
        packed = each * sum(tensor.elements for tensor in model.tensors if tensor.packed)
        scales = sum(entry.bytes for entry in ledger.gpu.resident if entry.name == STATES)
        yield Quantity(QLORA, "bytes", qlora, {"packed": packed, "scales": scales}, "code")


def _memory(job: Job, ledger: Ledger) -> Iterator[Quantity]:
    moment, verdict = ledger.gpu.peak, fit(job, ledger)
    beside, most = ledger.gpu.beside(moment), total(moment.lines)
    held = most - total(beside)
    kept = total(entry for entry in beside if is_activation(entry))
    outside = [entry.bytes for entry in verdict.outside]
    evidence = levels(job, ledger)[0].evidence
    where = f"in {moment.phase.replace('_', ' ')}, {moment.place}"
    yield Quantity(
        PEAK, "bytes", peak, {"held": held, "beside": most - held - kept, "kept": kept}, evidence, said=where
    )
    context, communicator = (*outside, 0, 0)[:2]
    parts = {"most": most, "context": context, "communicator": communicator}
    evidence = weakest([evidence, *(entry.evidence for entry in verdict.outside)])
    yield Quantity(NEEDED, "bytes", needed, parts, evidence)
    if verdict.outside:
        size, percent = most_outside(job), reserved_percent(job)
        symbols = {"most": most, "percent": percent, "size": size}
        yield Quantity(AT_MOST, "bytes", at_most, symbols, "published", said=_line(verdict.gpu.verdict))
    if verdict.gpu.capacity is not None:
        left = {"capacity": verdict.gpu.capacity, "need": verdict.gpu.needed}
        card = job.cluster.gpu
        yield Quantity(FREE, "bytes", free, left, evidence, (card.memory,) if card else ())


def _line(verdict: str | None) -> str:
    return f"a card with less is tight{f': this one {WORDS[verdict]}' if verdict else ''}"


WORDS = {FITS: "fits", TIGHT: "is tight", DOES_NOT_FIT: "does not fit"}


def _clock(job: Job, step_speed: Speed) -> Iterator[Quantity]:
    seconds, accum, tokens = step_speed.step.total, job.strategy.micro_steps, job.tokens
    evidence = weakest(entry.evidence for entry in step_speed.step.terms)
    batch: dict[str, float] = {"t": tokens, "accum": accum}
    yield Quantity(TOKENS, "tokens/s", tokens_per_gpu, {**batch, "step": seconds}, evidence)
    top = job.cluster.gpu and job.cluster.gpu.peak_in(multiplied_in(job))
    if top:
        shape = job.model.shape
        sizes: dict[str, float] = {"psi": active_parameters(job), "layers": shape.layers, "q": shape.queries}
        sizes["s"] = job.workload.seq
        card = {"flop_rate": top.value, "step": seconds}
        as_run = next(used.value for used in step_speed.utilisation if used.name == HFU) * top.value * seconds / accum
        rules: tuple[Rule, Rule] = (mfu, mfu_causal)
        if job.model.frozen:
            share = backward_share(job)
            sizes |= {"runs": share.products, "descends": share.layers}
            rules = (mfu_frozen, mfu_causal_frozen)
        for name, rule in zip((MFU, MFU_CAUSAL), rules, strict=True):
            yield Quantity(name, "", rule, {**sizes, **batch, **card}, evidence, (top,))
        yield Quantity(HFU, "", hfu, {"flops": as_run, "accum": accum, **card}, evidence, (top,))
    low, high, reason = step_speed.interval
    said = f"its width: {reason}"
    yield Quantity(FROM, "s", earliest, {"step": seconds, "below": seconds - low}, evidence, said=said)
    yield Quantity(TO, "s", latest, {"step": seconds, "above": high - seconds}, evidence, said=said)
