"""What each operator keeps for backward, in bytes and as a polynomial in the model's sizes.

Forward runs on a tree built from sizes that remember their names, so an equation is not written down anywhere: it is
what the operators do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from typing import Any, NamedTuple

from zeroplan.architectures.config import Config
from zeroplan.architectures.forward_run import ForwardRun
from zeroplan.architectures.gradient_flow import layers_that_train
from zeroplan.architectures.identical_layers import checkpointing_layers, representatives
from zeroplan.architectures.module import Dropout, Module
from zeroplan.architectures.norms import LayerNorm, RMSNorm
from zeroplan.architectures.trace import checkpoint_layers, run_forward, run_of
from zeroplan.autograd.equation import named, terms
from zeroplan.autograd.log import FREED, KEPT, MADE
from zeroplan.autograd.tensor import Tensor
from zeroplan.specs.account import SavedActivations, SavedByLayer, SavedByOperator
from zeroplan.specs.model import TimelineRequest

LETTERS = {
    "hidden_size": "h", "intermediate_size": "f", "num_attention_heads": "n", "num_key_value_heads": "ν",
    "head_dim": "d", "vocab_size": "D", "num_experts": "E", "num_experts_per_tok": "κ", "moe_intermediate_size": "e",
    "shared_expert_intermediate_size": "es", "qk_nope_head_dim": "dn", "qk_rope_head_dim": "dr", "v_head_dim": "dv",
    "q_lora_rank": "rq", "kv_lora_rank": "rk", "word_embed_proj_dim": "h",
}  # fmt: skip
"""Fields of a config, by the letters of `symbols`; a second field has a letter only where it has its value."""
NORM_CLASSES = ("RMSNorm", "LayerNorm", "T5LayerNorm", "RMSNormGated")
"""Ends of the names of norms' classes."""
COUNTS = frozenset({"n", "ν", "b", "s", "w", "E", "κ"})
"""Letters that are no width of anything."""
ATTENTION, SCORES, MLP, NORMS, DROPOUT, CHECKPOINTS = "attention", "scores", "mlp", "norms", "dropout", "checkpoints"


class StorageRecord(NamedTuple):
    """A storage: what it is, and of the operator that keeps it, if any, the module and the place in the sequence."""

    number: int
    bytes: int
    layer: int
    kept_by: str = ""
    kept_in: int = 0
    kept_at: int = 0


def storages_alive(log: Sequence[tuple[Any, ...]]) -> list[StorageRecord]:
    """What is alive at the end of the log."""
    result: dict[int, StorageRecord] = {}
    for what, key, *of in log:
        if what == MADE:
            result[key] = StorageRecord(key, of[0], of[2])
        elif what == KEPT and not result[key].kept_by:
            result[key] = result[key]._replace(kept_by=of[0], kept_in=of[1], kept_at=of[2])
        elif what == FREED:
            del result[key]
    return list(result.values())


def with_names(config: Config, build: Callable[[Config], Module]) -> tuple[Module, dict[str, int]]:
    """The tree of this config with its sizes named, and the sizes."""
    config = copy(config)
    sizes: dict[str, int] = {}
    for field, letter in LETTERS.items():
        value = getattr(config, field, None)
        if type(value) is int and value and sizes.get(letter, value) == value:
            sizes[letter] = value
            setattr(config, field, named(letter, value))
    return build(config), sizes


def with_named_batch(request: TimelineRequest) -> TimelineRequest:
    """The request with its sizes named."""
    return request._replace(
        batch=named("b", request.batch), seq=named("s", request.seq), width=named("w", request.width)
    )


def saved(root: Module, sizes: dict[str, int], request: TimelineRequest) -> SavedActivations:
    """What is alive when forward has returned, by the module and operator that keep it."""
    sizes = {"b": request.batch, "s": request.seq, "w": request.width, **sizes}
    run = run_of(with_named_batch(request), root)
    representative = representatives(root, request.recomputing, trains=layers_that_train(root, request))
    run.passed_over = frozenset(id(layer) for layer in checkpointing_layers(root)) - {
        ran for _layer, ran in representative
    }
    checkpoint_layers(root, run)
    inputs = _inputs(root) if run.checkpointed else {}
    loss = run_forward(root, run)
    inside: dict[int, list[StorageRecord]] = {}
    for storage in sorted(storages_alive(run.log), key=lambda each: (each.kept_at, -each.bytes)):
        own = request.recomputing.keeps_products or storage.layer not in run.checkpointed  # else others keep it
        made_in = inputs.get(storage.number, storage.layer if own else 0)
        inside.setdefault(made_in, []).append(storage)
    paths = _Paths(root)
    rest = tuple(each._replace(part="") for each in paths.kept(inside.get(0, ()), checkpointed=False))
    del loss
    makes: dict[frozenset[tuple[str, int]], SavedByLayer] = {}
    for ran, layers in Counter(ran for _layer, ran in representative).items():
        kept = paths.kept(inside.get(ran, ()), checkpointed=ran in run.checkpointed)
        make = SavedByLayer(paths.of[ran], layers, kept)
        like = makes.get(key := frozenset(make.parts.items()))
        makes[key] = like._replace(layers=like.layers + layers) if like else make
    return SavedActivations(tuple(makes.values()), rest, sizes)


def _inputs(root: Module) -> dict[int, int]:
    """The layer that each storage, by number, is the input of, by identity: filled as forward runs."""
    result: dict[int, int] = {}

    def noting(layer: Module, forward: Callable[..., Any]) -> Callable[..., Any]:
        def noted(run: ForwardRun, x: Tensor, *rest: Any) -> Any:
            assert x.storage is not None
            result[x.storage.number] = id(layer)
            return forward(run, x, *rest)

        return noted

    for layer in checkpointing_layers(root):
        layer.forward = noting(layer, layer.forward)  # type: ignore[method-assign]
    return result


class _Paths:
    """Modules by identity: where they are, and what part of a layer they belong to."""

    def __init__(self, root: Module) -> None:
        modules = list(root.named_modules())
        self.of = {id(module): path for path, module in modules}
        self.layers = [f"{self.of[id(layer)]}." for layer in checkpointing_layers(root)]
        by_path = dict(modules)
        self.parts = {id(module): _part(path, by_path) for path, module in modules}

    def kept(self, storages: Iterable[StorageRecord], *, checkpointed: bool) -> tuple[SavedByOperator, ...]:
        """By part, module and operator, in the order in which they were first kept."""
        sums: dict[tuple[str, str, str], int] = {}
        for storage in storages:
            operator = storage.kept_by.removesuffix("Backward")
            if checkpointed:
                key = CHECKPOINTS, "", "Checkpoint"
            else:
                key = self._part(storage, operator), self._short(storage.kept_in), operator
            sums[key] = sums.get(key, 0) + storage.bytes
        return tuple(SavedByOperator(*key, size) for key, size in sums.items())

    def _part(self, storage: StorageRecord, operator: str) -> str:
        part = self.parts.get(storage.kept_in, "")
        if part in (ATTENTION, DROPOUT) and _of_scores(storage.bytes):
            return SCORES
        return DROPOUT if part == MLP and operator == "NativeDropout" else part

    def _short(self, module: int) -> str:
        path = f"{self.of.get(module, '')}."
        layer = next((each for each in self.layers if path.startswith(each)), "")
        return path.removeprefix(layer).removesuffix(".")


def _part(path: str, modules: dict[str, Module]) -> str:
    """The innermost of a norm, a dropout, an attention; of nothing such, an MLP."""
    while path:
        module = modules[path]
        if isinstance(module, RMSNorm | LayerNorm) or module.transformers_class.endswith(NORM_CLASSES):
            return NORMS
        if isinstance(module, Dropout):
            return DROPOUT
        if "Attention" in module.transformers_class:
            return ATTENTION
        path = path.rpartition(".")[0]
    return MLP


def _of_scores(size: int) -> bool:
    """Something for every pair of tokens, or for every token without a width."""
    result = [dict(powers) for powers in terms(size)]
    return all(powers.get("s", 0) > 1 or COUNTS.issuperset(powers) for powers in result)
