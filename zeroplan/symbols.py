"""The nomenclature: each name that a formula may take as argument, with its letter, unit and meaning."""

from __future__ import annotations

from typing import NamedTuple


class Symbol(NamedTuple):
    letter: str
    unit: str
    meaning: str


SYMBOLS: dict[str, Symbol] = {
    "psi": Symbol("Ψ", "elements", "trainable parameters of the model"),
    "flat": Symbol("F", "elements", "parameters flattened and padded to a multiple of 2N"),
    "shards": Symbol("P", "elements", "what one rank owns at stage 3: each tensor split over N, rounded up"),
    "persistent": Symbol("Q", "elements", "small tensors that stay gathered at stage 3, each padded to N"),
    "live": Symbol("V", "elements", "gathered parameters alive at once at stage 3"),
    "largest": Symbol("Λ", "elements", "the largest tensor of the model"),
    "bucket": Symbol("B", "elements", "reduce_bucket_size"),
    "own": Symbol("O", "elements", "whole tensors that touch this rank's partition"),
    "group": Symbol("G", "elements", "the largest sub-group's partition (sub_group_size)"),
    "accum": Symbol("α", "micro-steps", "gradient accumulation"),
    "copies": Symbol("c", "", "how many of them at once"),
    "n_d": Symbol("N", "ranks", "data-parallel ranks that share this state (1 where it is replicated)"),
    "tp": Symbol("τ", "ranks", "tensor-parallel ranks"),
    "inflight": Symbol("φ", "micro-batches", "forwards of a pipeline stage that wait for their backward"),
    "ranks": Symbol("r", "ranks", "ranks on one node, which share the host's memory"),
    "w": Symbol("w", "bytes", "bytes of one element in the training precision"),
    "g": Symbol("g", "bytes", "bytes of one gradient element"),
    "k": Symbol("K", "bytes", "bytes of optimizer states per parameter, the fp32 master copy included"),
    "m": Symbol("M", "bytes", "bytes of the optimizer's own states per parameter, the master copy aside"),
    "master": Symbol("μ", "bytes", "bytes of a master weight: 4, or 2 with 16-bit master weights"),
    "rounded": Symbol("R", "bytes", "the page-locked blocks, each rounded up as its allocator does"),
    "b": Symbol("b", "sequences", "micro-batch per GPU"),
    "s": Symbol("s", "tokens", "sequence length"),
    "t": Symbol("T", "tokens", "tokens of one micro-batch on one GPU, b·s"),
    "h": Symbol("h", "elements", "hidden size"),
    "f": Symbol("f", "elements", "width of the MLP"),
    "q": Symbol("q", "elements", "width of the queries, heads × head size"),
    "kv": Symbol("k", "elements", "width of the keys, key-value heads × head size"),
    "a": Symbol("n", "heads", "attention heads"),
    "kv_heads": Symbol("ν", "heads", "key-value heads"),
    "head_width": Symbol("d", "elements", "width of one head"),
    "nope_width": Symbol("dn", "elements", "width of a head's part without a position"),
    "rope_width": Symbol("dr", "elements", "width of a head's part with a position"),
    "value_width": Symbol("dv", "elements", "width of one head's values"),
    "query_rank": Symbol("rq", "elements", "rank of the queries' projection"),
    "key_rank": Symbol("rk", "elements", "rank of the keys' and values' projection"),
    "expert_width": Symbol("e", "elements", "width of one expert's MLP"),
    "shared_width": Symbol("es", "elements", "width of the shared expert's MLP"),
    "layers": Symbol("L", "layers", "layers"),
    "v": Symbol("D", "entries", "vocabulary"),
    "e": Symbol("E", "experts", "experts of a layer"),
    "top": Symbol("κ", "experts", "experts each token goes to"),
    "interval": Symbol("ci", "layers", "layers from one activation checkpoint to the next"),
    "layer_bytes": Symbol("A", "bytes", "what one layer keeps for backward"),
    "logit_bytes": Symbol("λ", "bytes", "bytes per logit alive at that moment"),
    "buffer_count": Symbol("β", "buffers", "swap buffers (buffer_count)"),
    "buffer_size": Symbol("σ", "elements", "elements of one swap buffer (buffer_size)"),
    "moved": Symbol("X", "elements", "elements that the replay of DeepSpeed's events gathers, reduces or copies"),
    "alive": Symbol("Y", "elements", "elements that the replay finds alive at that moment"),
    "chosen": Symbol("χ", "elements", "of the columns that ZenFlow updates at once, and of all vectors"),
    "indices": Symbol("ι", "columns", "columns that ZenFlow has chosen, as often as they are kept"),
    "tensors": Symbol("t", "tensors", "how many of them"),
    "size": Symbol("S", "bytes", "bytes of the line itself"),
}
BY_LETTER = {symbol.letter: symbol for symbol in SYMBOLS.values()}
