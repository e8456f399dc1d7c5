"""From a family's config to a `Model`: tensors from the tree of modules, widths from the config."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from math import prod
from typing import TYPE_CHECKING, Any

from zeroplan.architectures.config import Config
from zeroplan.architectures.module import Linear, Module, tree, tree_parameters
from zeroplan.architectures.profile import TracedProfile, TreeProfile
from zeroplan.architectures.registry import family, language_model
from zeroplan.architectures.shape import shape_of
from zeroplan.specs.model import MASKED_WORD, NEXT_WORD, Model, ParameterSpec

if TYPE_CHECKING:
    from zeroplan.architectures.heads import HeadConfig

TRAINING = "training"
BUFFER_DTYPES = {"embed_scale": TRAINING, "e_score_correction_bias": "kept"}
"""Buffers without a dtype of their own; see `Model.buffers`."""


def model_of(
    model_type: str, config: Config, *, name: str, source: str, content: Mapping[str, Any] | None = None,
    architecture: str = "", head: HeadConfig | None = None,
) -> Model:  # fmt: skip
    """The model that transformers would build from this config; `content`: config.json as it was stated.

    `architecture`, `head`: the class, where it is not the family's language model.
    """
    build = family(model_type)[1]
    if head:
        from zeroplan.architectures.heads import builder

        build = builder(build, head)
    model = model_from(config, build, family=model_type, classes=model_type, name=name, source=source, content=content)
    if head:
        return model._replace(
            architecture=architecture, loss=head.loss, labels=head.labels_are, unplanned=head.unplanned
        )
    architecture = language_model(model_type, getattr(config, "is_decoder", False))
    return model._replace(architecture=architecture, loss=MASKED_WORD if "MaskedLM" in architecture else NEXT_WORD)


def model_from(
    config: Config, build: Callable[[Any], Module], *, family: str, classes: str, name: str, source: str,
    content: Mapping[str, Any] | None,
) -> Model:  # fmt: skip
    """The model of the tree that `build` makes; `classes`: the described family whose class names its modules have."""
    root = build(config)
    return Model(
        name=name, family=family, shape=shape_of(config, root), source=source, config=dict(content or {}),
        has_sdpa=config.has_sdpa, no_flash=config.no_flash, own_attention=config.own_attention,
        changes_products=config.changes_products, **of_tree(TracedProfile(root, classes, config, build)),
    )  # fmt: skip


def _stated_dtype(path: str, dtype: str) -> str:
    return dtype if dtype == TRAINING else BUFFER_DTYPES.get(path.rpartition(".")[2], dtype)


def of_tree(profile: TreeProfile) -> dict[str, Any]:
    """Fields of a `Model` that follow from its tree."""
    root = profile.root
    owners = [(module, id(p)) for _path, module in tree(root) for p in module.parameters.values()]
    viewed = {parameter for module, parameter in owners if module.saves_views}
    viewed -= {id(p) for _path, module in tree(root) for p in module.parametrized}
    linear = {parameter for module, parameter in owners if module.transformers_class == Linear.transformers_class}
    uses, named = Counter(parameter for _module, parameter in owners), tree_parameters(root)
    tensors = tuple([
        ParameterSpec(
            path, p.shape, p.elements, id(p) in viewed, id(p) in linear, trainable=p.trains and p.packed is None,
            still=not p.trains, packed=p.packed,
            dtype=p.dtype,
        )
        for path, p in named
    ])  # fmt: skip
    return {
        "tensors": tensors,
        "parameters": sum(t.elements for t in tensors),
        "buffers": tuple(
            ("built" if b.cast_by_init else _stated_dtype(path, b.dtype), prod(b.shape))
            for path, b in root.named_buffers()
        ),
        "profile": profile,
        "tied": tuple(p.elements for _path, p in named for _use in range(uses[id(p)] - 1)),
    }
