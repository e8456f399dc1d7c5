"""config.json, already parsed, to a config of its family and to the tree of modules.

The types of the values are the caller's to check, against the class that `config_class` returns; what the
values mean is checked here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from zeroplan.architectures.config import Config
from zeroplan.architectures.keys import unread
from zeroplan.architectures.module import Module
from zeroplan.architectures.registry import (
    FAMILIES,
    accepted_architectures,
    family,
    family_of_architecture,
    language_model,
    language_models,
)
from zeroplan.errors import SpecError, shown

__all__ = [
    "ModelClass",
    "accepted_architectures",
    "build_module",
    "config_class",
    "known_fields",
    "named",
    "read_config",
]

NAME = re.compile(r"[\w.+-]{1,80}")


class ModelClass(NamedTuple):
    """Which class of transformers a config.json means."""

    model_type: str
    """That of the described family that it is read as; empty for one that is not described."""
    architecture: str
    assumed: str = ""
    """How the family was found, where the file does not name it."""


def named(content: Mapping[str, Any], place: str) -> ModelClass:
    """The family and class by `model_type` and `architectures`; both must mean the same where both are known."""
    model_type, architecture = _stated_type(content, place), _stated_architecture(content, place)
    if model_type in FAMILIES:
        architecture = _as_transformers_spells(architecture, model_type)
        if architecture and architecture not in accepted_architectures(model_type):
            raise _another_class(architecture, model_type, place)
        built = language_model(model_type, content.get("is_decoder") is True)
        if architecture in language_models(model_type) and architecture != built:
            wanted = "true" if architecture == language_model(model_type, is_decoder=True) else "false"
            stated = f"architectures {shown([architecture])} without is_decoder: {wanted}"
            write = f'"is_decoder": {wanted} or "architectures": ["{built}"]'
            raise SpecError(place, stated, "both of one model", write)
        return ModelClass(model_type, architecture or built)
    if model_type.lower() in FAMILIES:
        raise SpecError(place, f"model_type = {shown(model_type)}", "it in small letters", f'"{model_type.lower()}"')
    like = family_of_architecture(architecture)
    if like is None or unread(content, family(like)[0], like):
        return ModelClass("", architecture)
    return ModelClass(like, architecture, f"model_type {model_type} read as {like}, the family of {architecture}")


def _stated_type(content: Mapping[str, Any], place: str) -> str:
    model_type = content.get("model_type")
    if not isinstance(model_type, str) or not NAME.fullmatch(model_type):
        found = "no model_type" if model_type is None else f"model_type = {shown(model_type)}"
        like = "gpt2" if "n_embd" in content else "llama"
        raise SpecError(place, found, "the name of a model family", f'"model_type": "{like}"')
    return model_type


def _stated_architecture(content: Mapping[str, Any], place: str) -> str:
    stated = content.get("architectures")
    if stated in (None, []):
        return ""
    if not isinstance(stated, list) or not isinstance(stated[0], str):
        raise SpecError(place, f"architectures = {shown(stated)}", "a list of one class", '["LlamaForCausalLM"]')
    first: str = stated[0]
    return first


def _as_transformers_spells(architecture: str, model_type: str) -> str:
    """The class, whose capital letters say nothing: AutoModel goes by model_type, and early files say
    LLaMAForCausalLM.
    """
    accepted = accepted_architectures(model_type)
    return next((one for one in accepted if one.lower() == architecture.lower()), architecture)


def _another_class(architecture: str, model_type: str, place: str) -> SpecError:
    stated, known = f"architectures {shown([architecture])}", accepted_architectures(model_type)
    other = family_of_architecture(architecture)
    if other:
        return SpecError(
            place, f"{stated}, a class of {other}, with model_type {model_type}", "both of one family",
            f'"model_type": "{other}" or "architectures": ["{known[0]}"]',
        )  # fmt: skip
    return SpecError(
        place, stated, f"a class of {model_type} that is planned ({', '.join(known)})",
        f'"architectures": ["{known[0]}"] to plan its language model',
    )  # fmt: skip


def config_class(model_type: object, place: str) -> type[Config]:
    """The config class of a described `model_type`. Raises `SpecError`."""
    stated = _stated_type({"model_type": model_type}, place)
    if stated not in FAMILIES:
        raise SpecError(place, f"model_type = {shown(stated)}", f"a family that is described: {', '.join(FAMILIES)}")
    return family(stated)[0]


def known_fields(config: Mapping[str, Any], place: str = "config.json", model_type: str = "") -> dict[str, Any]:
    """What of a config.json its family reads, under our names; the types are not checked yet.

    `model_type`: that of the family, where config.json has another.
    """
    cls = config_class(model_type or config.get("model_type"), place)
    if config.get("per_layer_config"):
        raise SpecError(place, "per_layer_config", "layers that share one config (others are not modelled)")
    return cls.known(config, place)


def read_config(config: Mapping[str, Any], place: str) -> tuple[str, Config]:
    """`model_type` and the family's config, checked. Raises `SpecError`."""
    cls = config_class(config.get("model_type"), place)
    read = cls(**known_fields(config, place))
    read.validate(place)
    return config["model_type"], read


def build_module(model_type: str, config: Config) -> Module:
    """The tree of modules of a checked config."""
    return family(model_type)[1](config)
