"""`--model`: a preset, a Hugging Face config.json or its folder, or org/name from the local cache or the Hub."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from zeroplan.architectures.config import MAX_LAYERS, Config
from zeroplan.architectures.defaults import assumed
from zeroplan.architectures.keys import unread
from zeroplan.architectures.model import model_of
from zeroplan.architectures.read import Named, config_class, known_fields, named
from zeroplan.architectures.refused import QUANTIZATIONS, check_language_model, dequantized
from zeroplan.architectures.registry import language_models
from zeroplan.catalog import other_files, presets
from zeroplan.catalog.files import place_of, read_object, read_text
from zeroplan.errors import SpecError, UnknownNameError, ZeroplanError, printable
from zeroplan.specs.model import Model

EXPECTED = "a Hugging Face config.json"
LONGEST_REVISION = 1000
"""Bytes: a commit has 40."""
REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")


def model(name: str) -> Model:
    """The model that `--model` names. Raises a `ZeroplanError` that says what to write instead."""
    if not name.strip():
        raise SpecError("model", "an empty name", "a preset, a config.json or org/name", "llama-3.1-8b")
    path = Path(os.path.expanduser(name))
    if _exists(path) or name.endswith(".json") or name.startswith((".", "/", "~")):
        return from_file(path)
    if cached := _cached(name):
        return from_file(cached, name=name)
    try:
        return from_preset(name)
    except UnknownNameError:
        if REPOSITORY.fullmatch(name):
            return from_hub(name)
        raise


def from_preset(name: str) -> Model:
    """A shipped preset. Its content is checked by the tests, so its types are not checked again here."""
    found, content = presets.load(
        "model", name, "`zeroplan models` lists them; or write --model config.json"
    )
    fields = content["config"]
    config = config_class(fields["model_type"], found)(**known_fields(fields, found))
    source = f"preset {found}: {content['source']}"
    return model_of(fields["model_type"], config, name=found, source=source, content=fields)


def from_file(path: Path, name: str = "") -> Model:
    """A config.json, or the folder that holds it."""
    if os.path.isdir(path):
        path = config_in(path)
    content, place = read_object(path, EXPECTED, special=True), place_of(path)
    other_files.check_is_model(content, place, EXPECTED)
    stated = named(content, place)
    check_language_model(content, place)
    notes = [note for note in (stated.assumed, dequantized(content, place)) if note]
    label = printable(name or (path.parent.name if path.name == "config.json" else path.stem) or path.name)
    if not stated.model_type:
        from zeroplan.architectures.approximate import approximate  # not for the families that are described

        return approximate(content, place, label)._replace(assumed=tuple(notes), architecture=stated.architecture)
    return _described(content, stated, place, label, notes)


def _described(content: dict[str, Any], stated: Named, place: str, label: str, notes: list[str]) -> Model:
    """The model of a described family, with what its config.json leaves out and what of it nothing reads."""
    kind = config_class(stated.model_type, place)
    config = _validated(kind, known_fields(content, place, stated.model_type), place)
    config.validate(place)
    config.check_run(place)
    read = {**content, "model_type": stated.model_type}
    read = {key: value for key, value in read.items() if key not in QUANTIZATIONS}
    head = None
    if stated.architecture not in language_models(stated.model_type):
        from zeroplan.architectures.heads import head_of  # not for language models

        head = head_of(content, config, stated.model_type, stated.architecture, place)
    planned = model_of(
        stated.model_type, config, name=label, source=place, content=read, architecture=stated.architecture, head=head
    )
    if head:
        notes = [*notes, *head.assumed(content)]
    return planned._replace(
        assumed=(*notes, *assumed(content, config, stated.model_type)),
        unread=unread(content, kind, stated.model_type),
    )


def config_in(folder: Path) -> Path:
    """A folder's config.json, or where there is none the adapter_config.json that says what the folder is."""
    config, adapter = folder / "config.json", folder / other_files.ADAPTER_FILE
    return adapter if not _exists(config) and _exists(adapter) else config


def from_hub(name: str) -> Model:
    """org/name through huggingface_hub (an optional extra), which keeps it in the local cache."""
    way_out = f"download its config.json and write --model {name.rsplit('/', 1)[-1]}/config.json"
    try:
        from huggingface_hub import hf_hub_download  # optional extra
    except ImportError:
        raise SpecError(
            f"--model {name}", "no preset and nothing in the local Hugging Face cache",
            "a model known here", f"pip install 'zeroplan[hub]' to fetch it, or {way_out}",
        ) from None  # fmt: skip
    try:
        return from_file(Path(hf_hub_download(name, "config.json")), name=name)
    except ZeroplanError:
        raise
    except Exception as error:  # the Hub's client raises requests', httpx's and its own
        reason = type(error).__name__
        raise SpecError(f"--model {name}", f"no answer from the Hub ({reason})", "its config.json", way_out) from error


def _validated(kind: type[Config], fields: dict[str, Any], place: str) -> Config:
    """Types checked strictly, as transformers does: a file is not trusted."""
    for name, value in fields.items():
        for each in (value, *(value.values() if isinstance(value, dict) else ())):
            if isinstance(each, list) and len(each) > MAX_LAYERS:
                raise SpecError(f"{place}: {name}", f"a list of {len(each):,}", f"one of at most {MAX_LAYERS:,}")
    from pydantic import TypeAdapter, ValidationError  # 80 ms, only for files

    try:
        return TypeAdapter(kind).validate_json(json.dumps(fields), strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"] if isinstance(part, str))
        expected = first["msg"].lower().replace("input should be ", "")
        place = f"{place}: {field}" if field else place
        raise SpecError(place, json.dumps(first["input"])[:60], expected) from error


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return True  # a loop or a name too long: let reading it say so


def _cached(name: str) -> Path | None:
    """config.json of org/name in the Hugging Face cache, if it is there."""
    if not REPOSITORY.fullmatch(name):
        return None
    home = Path(os.environ.get("HF_HOME") or Path("~/.cache/huggingface").expanduser())
    root = Path(os.environ.get("HF_HUB_CACHE") or home / "hub") / f"models--{name.replace('/', '--')}"
    try:
        revision = read_text(root / "refs" / "main", "a revision", LONGEST_REVISION).strip()
    except SpecError:
        return None
    path = root / "snapshots" / revision / "config.json"
    return path if path.is_file() else None
