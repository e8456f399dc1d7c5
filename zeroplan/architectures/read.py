"""config.json, already parsed, to a config of its family and to the tree of modules.

The types of the values are the caller's to check, against the class that `config_class` returns; what the
values mean is checked here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zeroplan.architectures.config import Config
from zeroplan.architectures.module import Module
from zeroplan.architectures.registry import FAMILIES, accepted_architectures, family
from zeroplan.errors import SpecError, UnknownNameError, shown

__all__ = ["accepted_architectures", "build_module", "config_class", "known_fields", "read_config"]

WAY_OUT = "for another family give its size with --params"


def config_class(model_type: object, place: str) -> type[Config]:
    """The config class of a `model_type`. Raises `UnknownNameError`, or `SpecError` where there is none."""
    if not isinstance(model_type, str):
        found = "no model_type" if model_type is None else f"model_type = {shown(model_type)}"
        raise SpecError(place, found, "the name of a model family", '"model_type": "llama"')
    if model_type not in FAMILIES:
        raise UnknownNameError(f"model_type in {place}:", model_type, FAMILIES, WAY_OUT)
    return family(model_type)[0]


def known_fields(config: Mapping[str, Any], place: str = "config.json") -> dict[str, Any]:
    """What of a config.json its family reads, under our names; the types are not checked yet."""
    cls = config_class(config.get("model_type"), place)
    if config.get("per_layer_config"):
        raise SpecError(place, "per_layer_config", "layers that share one config (others are not modelled)")
    return cls.known(config, place)


def read_config(config: Mapping[str, Any], place: str) -> tuple[str, Config]:
    """`model_type` and the family's config, checked. Raises `SpecError`, `UnknownNameError`."""
    cls = config_class(config.get("model_type"), place)
    read = cls(**known_fields(config, place))
    read.validate(place)
    return config["model_type"], read


def build_module(model_type: str, config: Config) -> Module:
    """The tree of modules of a checked config."""
    return family(model_type)[1](config)
