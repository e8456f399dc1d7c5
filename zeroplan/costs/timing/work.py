"""What one micro-batch makes a GPU do in a forward pass, from the model's tensors. FLOP and bytes are floats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from functools import lru_cache
from math import prod
from typing import NamedTuple

from zeroplan.costs.cache import cached_by
from zeroplan.costs.passes import timeline_request
from zeroplan.errors import SpecError
from zeroplan.ledger import DTYPE_BYTES
from zeroplan.specs.checkpointing import PLAIN
from zeroplan.specs.job import Job
from zeroplan.specs.model import Model, ParameterSpec

NORM_BYTES, MLP_BYTES, GATE_BYTES = 30, 6, 6
"""Read and written per token and layer, in 16 bits, by element-wise operators fused by hand: of hidden, of the MLP's
width, and of that once more where it is gated."""
SCORE_BYTES = 16
"""Read and written per score by eager attention: the product, its mask, softmax in fp32, dropout."""
ADAPTER_PASSES = 5
"""Times that an adapter's result is read or written by operators of its own: a product with a number, and a sum."""
ADAPTER_KERNELS = 2
UNPACKED_BYTES = 2.5
"""Of a weight: half a byte read, and two written in 16 bit."""
KERNELS = 14
"""Kernels of a layer's forward beside those of its products and attention."""


class WeightMatrix(NamedTuple):
    """A weight that tokens are multiplied with."""

    rows: int
    columns: int
    experts: int
    """How many of it a token is routed among; 0: all tokens meet it."""


class Products(NamedTuple):
    """Matrix products of one pass."""

    flops: float
    touched: float
    """Bytes of operands and results."""
    number: int


class ForwardWork(NamedTuple):
    """The work of a forward pass over one micro-batch on one GPU."""

    layers: Products
    head: Products
    attention: float
    """FLOP of scores and values over the pairs of tokens that the kernel computes."""
    scores: float
    """Bytes that eager attention reads and writes for its scores."""
    elements: float
    """Bytes of element-wise operators fused by hand."""
    logits: int
    kernels: int
    adapters: float
    """Bytes that adapters' own element-wise operators read and write: scaling, and adding to the layer's result."""
    unpacked: float
    """Bytes read and written as weights are made of their packed bits."""


class Matrices(NamedTuple):
    """How often each matrix is there, in the layers and in the head."""

    layers: tuple[tuple[WeightMatrix, int], ...]
    head: tuple[tuple[WeightMatrix, int], ...]


@lru_cache(maxsize=8)
def matrices(model: Model) -> Matrices:
    """All weights but look-up tables; a table that is also the head counts as the head's."""
    layers: Counter[WeightMatrix] = Counter()
    head: Counter[WeightMatrix] = Counter()
    for tensor in model.tensors:
        if _is_multiplied(tensor):
            (layers if _in_a_layer(tensor) else head)[_matrix(tensor, model)] += 1
    return Matrices(tuple(layers.items()), tuple(head.items()))


@lru_cache(maxsize=8)
def multiplied_with(model: Model) -> tuple[list[float], frozenset[int]]:
    """Elements of each tensor that a token is multiplied with, on average; and which tensors are the head's."""
    shape = model.shape
    routed = shape.experts_per_token / shape.experts if shape.experts else 1.0
    elements = [
        prod(tensor.matrix) * (routed if _matrix(tensor, model).experts else 1.0) if _is_multiplied(tensor) else 0.0
        for tensor in model.tensors
    ]
    heads = (index for index, size in enumerate(elements) if size and not _in_a_layer(model.tensors[index]))
    return elements, frozenset(heads)


def _is_multiplied(tensor: ParameterSpec) -> bool:
    if tensor.name.endswith("bias") or ".original_module." in tensor.name:
        return False
    return len(tensor.shape) > 1 and (tensor.linear or _in_a_layer(tensor))


def _in_a_layer(tensor: ParameterSpec) -> bool:
    return any(part.isdecimal() for part in tensor.name.split("."))


def _matrix(tensor: ParameterSpec, model: Model) -> WeightMatrix:
    *experts, rows, columns = tensor.matrix
    routed = ".experts." in tensor.name and bool(model.shape.experts)
    return WeightMatrix(rows, columns, (experts[0] if experts else model.shape.experts) if routed else 0)


def multiplied(weights: tuple[tuple[WeightMatrix, int], ...], tokens: int, top: int, width: int) -> Products:
    """Tokens times each matrix; of experts each sees its share of the tokens, and all are read."""
    flops = touched = number = 0
    for matrix, times in weights:
        rows, size = tokens * (top if matrix.experts else 1), matrix.rows * matrix.columns
        flops += times * 2 * rows * size
        touched += times * width * (rows * (matrix.rows + matrix.columns) + (matrix.experts or 1) * size)
        number += times
    return Products(float(flops), float(touched), number)


def work(job: Job) -> ForwardWork:
    """The work of the job's micro-batch: products from its tensors, the rest from the widths of its layers; of a
    recorded model products and attention as its operators say.
    """
    shape, tokens, width = job.model.shape, job.tokens, job.strategy.element_bytes
    labelled = job.strategy.micro_batch * job.label_seq
    multiplied_width = 2 if job.strategy.autocast else width
    result, top = matrices(job.model), max(1, shape.experts_per_token)
    layers = multiplied(result.layers, tokens, top, multiplied_width)
    head = multiplied(result.head, labelled, top, multiplied_width)
    seen = pairs(job)
    attention, elements = 2.0 * seen * shape.heads * (shape.head_width + shape.value_width), 1.0
    if recorded := recorded_flops(job):
        elements = (recorded.products - head.flops) / layers.flops
        layers = Products(elements * layers.flops, elements * layers.touched, layers.number)
        attention = recorded.attention
    ffn = shape.ffn * top + shape.shared_ffn if shape.experts else shape.ffn
    beside = beside_weights(job.model)
    element = NORM_BYTES * shape.hidden + (MLP_BYTES + GATE_BYTES * shape.gated) * ffn
    return ForwardWork(
        layers=layers,
        head=head,
        attention=attention,
        scores=float(SCORE_BYTES * seen * shape.heads) if job.strategy.attention == "eager" else 0.0,
        elements=elements * tokens * shape.layers * element * width / 2,
        logits=labelled * shape.vocab,
        kernels=layers.number + KERNELS * shape.layers + ADAPTER_KERNELS * beside.adapters + beside.packed,
        adapters=float(ADAPTER_PASSES * DTYPE_BYTES[job.adapter_dtype] * tokens * beside.rows),
        unpacked=beside.unpacked * width / 2 * UNPACKED_BYTES,
    )


class RecordedFlops(NamedTuple):
    """Forward of a recorded model's micro-batch."""

    products: float
    """With attention that looks both ways, which runs as products do."""
    attention: float
    """Causal: of a token and those before it."""


def recorded_flops(job: Job) -> RecordedFlops | None:
    """What a recorded model's operators multiply: images, sound and an encoder's tokens are other tokens than those of
    `--seq`, and layers with a state have no attention. None for described models.
    """
    return _recorded_flops(job) if job.model.is_recorded else None


def _what_forward_multiplies(job: Job) -> tuple[Hashable, ...]:
    """Neither what runs again in backward nor stage 3's linear function changes forward's products."""
    return job.model, timeline_request(job)._replace(recomputing=PLAIN, zero_linear=False)


@cached_by(_what_forward_multiplies, max_size=64)
def _recorded_flops(job: Job) -> RecordedFlops | None:
    """None too where the trace has no count."""
    request = timeline_request(job)._replace(kernels="transformers")
    for attention in ("sdpa", "eager") if job.strategy.flash else (request.attention,):
        try:
            request = request._replace(attention=attention)
            both_ways, causal = (job.model.profile.flops(request, causal=each) for each in (False, True))
        except SpecError:  # not recorded: flash-attention may be alone
            continue
        if both_ways and causal:
            left_out, seq = both_ways.forward - causal.forward, job.label_seq
            of_all_pairs = left_out * 2 * seq / (seq - 1) if seq > 1 else 0.0
            return RecordedFlops(both_ways.forward - of_all_pairs, of_all_pairs - left_out)
    return None


class BesideWeights(NamedTuple):
    """What runs beside products where weights are frozen."""

    adapters: int
    rows: int
    """Results of all adapters' second matrices, of one token."""
    packed: int
    unpacked: int
    """Elements of packed weights."""


@lru_cache(maxsize=8)
def beside_weights(model: Model) -> BesideWeights:
    """Of the layers; an adapter of all weights of a layer's experts counts as one."""
    added = [tensor for tensor in model.tensors if ".lora_B." in tensor.name and _in_a_layer(tensor)]
    unpacked = sum(prod(tensor.matrix) for tensor in model.packed)
    return BesideWeights(len(added), sum(tensor.shape[0] for tensor in added), len(model.packed), unpacked)


def pairs(job: Job) -> float:
    """Pairs of tokens whose score is computed, over all layers.

    Eager attention computes those ahead too, and so does torch's where it is given a mask: of a window narrower than
    the sequence, or in any case.
    """
    shape, seq, batch = job.model.shape, job.workload.seq, job.strategy.micro_batch
    everything, causal = float(seq * seq), seq * (seq + 1) / 2
    given = shape.masked and not job.strategy.flash
    if job.strategy.attention == "eager" or not shape.causal or given:
        return batch * shape.layers * everything
    narrow = [window for window in shape.windows if window < seq]
    slid = sum(_within(seq, window) if job.strategy.flash else everything for window in narrow)
    return batch * ((shape.layers - len(narrow)) * causal + slid)


def _within(seq: int, window: int) -> float:
    """Pairs of a token and itself or one of the `window` - 1 before it."""
    return seq * window - window * (window - 1) / 2
