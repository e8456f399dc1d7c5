"""Classes that a repository brings itself (`auto_map` of its config.json): its code runs only where that is trusted."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers.dynamic_module_utils import get_class_from_dynamic_module

from zeroplan.errors import SpecError

OPTION = "--trust-remote-code"
CONFIG = "AutoConfig"
MODELS = ("AutoModelForCausalLM", "AutoModelForSeq2SeqLM", "AutoModelForMaskedLM", "AutoModelForSequenceClassification",
          "AutoModel")  # fmt: skip
"""In auto_map, the first that is there."""


def brings(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """What of its classes a repository brings."""
    stated = content.get("auto_map")
    return stated if isinstance(stated, dict) else {}


def config_class(content: Mapping[str, Any], folder: Path, place: str) -> Any:
    """Raises `SpecError`."""
    return _class(brings(content).get(CONFIG), folder, place)


def model_class(content: Mapping[str, Any], folder: Path, place: str) -> Any:
    """Raises `SpecError`."""
    stated = brings(content)
    return _class(next((stated[name] for name in MODELS if name in stated), None), folder, place)


def _class(reference: Any, folder: Path, place: str) -> Any:
    if not isinstance(reference, str):
        raise SpecError(f"{place}: auto_map", f"no {CONFIG} with one of {', '.join(MODELS)}", "names of classes")
    if "--" in reference:
        raise SpecError(f"{place}: auto_map", reference, "code in the same folder", "the folder that has the code")
    try:
        return get_class_from_dynamic_module(reference, folder, local_files_only=True)
    except Exception as error:  # whatever the repository's code does
        found = f"{reference}, which does not load: {' '.join(str(error).split())[:200]}"
        raise SpecError(f"{place}: auto_map", found, "code that this transformers runs") from error
