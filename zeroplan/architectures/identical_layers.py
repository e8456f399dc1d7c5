"""Which layers of a tree are identical: one of them represents the others."""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache
from itertools import accumulate

from zeroplan.architectures.module import KEPT_TREES, GradientCheckpointingLayer, LookUp, Module, tree
from zeroplan.specs.checkpointing import PLAIN, Recomputing


@lru_cache(maxsize=KEPT_TREES)
def checkpointing_layers(root: Module) -> list[GradientCheckpointingLayer]:
    """The layers that checkpointing knows and a step runs, in order; not those that are within another."""
    return [layer for _place, layer in _placed(root) if not layer.is_within]


@lru_cache(maxsize=KEPT_TREES)
def places_of_layers(root: Module) -> list[int]:
    """The place of each of `checkpointing_layers` among all layers that transformers can checkpoint: every-K counts
    those too that no step runs.
    """
    return [place for place, layer in _placed(root) if not layer.is_within]


def checkpointed_layers(root: Module, recomputing: Recomputing) -> frozenset[int]:
    """Layers that run again, by identity, those within another too."""
    return frozenset(id(layer) for place, layer in _placed(root) if recomputing.has(place))


def _placed(root: Module) -> list[tuple[int, GradientCheckpointingLayer]]:
    """All layers that a step runs, those within another too, with their places."""
    every = (module for _path, module in tree(root) if isinstance(module, GradientCheckpointingLayer))
    return [(place, layer) for place, layer in enumerate(every) if layer.called]


def input_embeddings(root: Module) -> frozenset[int]:
    """Modules whose result asks for a gradient, by identity: the table of words, which described families register
    first; a recording names them.
    """
    named = [(path, module.input_embeddings) for path, module in tree(root) if module.input_embeddings is not None]
    if not named:
        return frozenset([next(id(module) for _path, module in tree(root) if isinstance(module, LookUp))])
    whole = {f"{above}.{path}" if above else path for above, paths in named for path in paths}
    return frozenset([id(module) for path, module in tree(root) if path in whole])


@lru_cache(maxsize=2 * KEPT_TREES)
def representatives(
    root: Module, recomputing: Recomputing = PLAIN, ran: Recomputing | None = None, trains: tuple[Hashable, ...] = ()
) -> list[tuple[int, int]]:
    """Each layer, in order, with its representative (the layer that runs for it), by identity; `ran`: under `ran_as`;
    `trains`: what of each layer trains, where not all does (`gradient_flow.layers_that_train`).

    The first layer of each signature in a chain and the last of it represent themselves, the second of a signature the
    others, as far as no other signature comes between.

    What identical layers share (cosines, a mask) goes with the first of them in backward. Where a layer also returns
    its weights, what it leaves depends on whether the one before keeps its own: each runs for itself then, where
    DeepSpeed treats inputs by their place, and where some layers are checkpointed and not all trains.
    """
    layers = checkpointing_layers(root)
    if _each_by_itself(root, recomputing) or (trains and recomputing.every > 1):
        return themselves(root)
    run_for: dict[Hashable, int] = {}
    for layer, role in zip(layers, layer_roles(root, ran or recomputing, trains), strict=True):
        run_for.setdefault(role, id(layer))
    roles = layer_roles(root, recomputing, trains)
    return [(id(layer), run_for[role]) for layer, role in zip(layers, roles, strict=True)]


def themselves(root: Module) -> list[tuple[int, int]]:
    """Each layer as its own representative."""
    return [(id(layer), id(layer)) for layer in checkpointing_layers(root)]


def of_each_kind(root: Module, recomputing: Recomputing, trains: tuple[Hashable, ...] = ()) -> list[tuple[int, int]]:
    """As `representatives`, where bytes are told apart by what keeps them. Of several chains of which less than every
    other layer is checkpointed, a representative's bytes are those of the others, and not by their kind.
    """
    several = recomputing.every > EVERY_OTHER and len(chains_of(root)) > 1
    return themselves(root) if several else representatives(root, recomputing, trains=trains)


SHARED, EVERY_OTHER = (2, 3), 2


def ran_as(root: Module, recomputing: Recomputing) -> Recomputing:
    """The K of every-K in whose run each layer has one of its role: layers are identical whatever lies
    between.
    """
    if recomputing.every < 2 or _each_by_itself(root, recomputing):
        return recomputing
    wanted, shared = set(layer_roles(root, recomputing)), [recomputing._replace(every=every) for every in SHARED]
    return next((other for other in shared if wanted.issubset(layer_roles(root, other))), recomputing)


def _each_by_itself(root: Module, recomputing: Recomputing) -> bool:
    by_weights = recomputing.every > 1 and any(layer.gives_weights for layer in checkpointing_layers(root))
    return recomputing.inputs.by_place or by_weights


FIRST, LATER, LAST = range(3)


@lru_cache(maxsize=2 * KEPT_TREES)
def layer_roles(root: Module, recomputing: Recomputing, trains: tuple[Hashable, ...] = ()) -> list[Hashable]:
    """Each layer's signature, what of it trains, whether it is checkpointed, its chain, whether it is the first of
    these or the last of its chain, and how many kinds of layers have come in the chain: what those share is there as
    long as one of them is to run backward.
    """
    result: list[Hashable] = []
    plain, places = signature_numbers(root, PLAIN), places_of_layers(root)
    for chain in chains_of(root) or [range(number, number + 1) for number in range(len(plain))]:
        seen: set[Hashable] = set()
        for number in chain:
            like = plain[number], recomputing.has(places[number]), trains[number] if trains else None, chain.start
            role = LAST if number == chain.stop - 1 else LATER if like in seen else FIRST
            seen.add(like)
            result.append((like, role, len(seen)))
    return result


@lru_cache(maxsize=KEPT_TREES)
def chains_of(root: Module) -> tuple[range, ...]:
    """Layers that follow each other, by their numbers; empty where they are not known to."""
    count = len(checkpointing_layers(root))
    stated = next((module.chains for _path, module in tree(root) if module.chains is not None), (count,))
    ends = list(accumulate(stated))
    return tuple([range(end - size, end) for size, end in zip(stated, ends, strict=True) if size])


@lru_cache(maxsize=2 * KEPT_TREES)
def signature_numbers(root: Module, recomputing: Recomputing, *, attending: bool = True) -> list[int]:
    """Number each layer's signature: one that is checkpointed is not like one that is not.

    Not `attending`: whatever mask it gets, which changes no module, no parameter and not the order in which they run.
    """
    known: dict[Hashable, int] = {}
    if recomputing == PLAIN:
        result = ((signature(layer), layer.kind if attending else "") for layer in checkpointing_layers(root))
        return [known.setdefault(each, len(known)) for each in result]
    plain = signature_numbers(root, PLAIN, attending=attending)
    if recomputing.every < 2:
        return plain
    pairs = zip(places_of_layers(root), plain, strict=True)
    return [known.setdefault((kind, recomputing.has(place)), len(known)) for place, kind in pairs]


def signature(module: Module) -> Hashable:
    """What tells layers apart beside the kind of attention: modules, shapes of their parameters, a recorded program."""
    shapes = [parameter.shape for parameter in module.parameters.values()]
    children = [signature(child) for child in module.children.values()] if module.children else ()
    return type(module), module.program_number, *shapes, *children


def first_parameter(module: Module) -> int:
    """The parameter registered first in a module or below, by identity."""
    for parameter in module.parameters.values():
        return id(parameter)
    for child in module.children.values():
        if result := first_parameter(child):
            return result
    return 0
