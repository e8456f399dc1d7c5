"""`--model`: a preset, a Hugging Face config.json or its folder, or org/name from the local cache or the Hub."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from zeroplan.architectures.config import MAX_LAYERS, Config
from zeroplan.architectures.model import model_of
from zeroplan.architectures.read import accepted_architectures, config_class, known_fields
from zeroplan.catalog import presets
from zeroplan.catalog.files import place_of, read_object, read_text
from zeroplan.errors import SpecError, UnknownNameError, ZeroplanError, printable, shown
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
        "model", name, "`zeroplan models` lists them; or write --model config.json, or --params 7B"
    )
    fields = content["config"]
    config = config_class(fields["model_type"], found)(**known_fields(fields, found))
    source = f"preset {found}: {content['source']}"
    return model_of(fields["model_type"], config, name=found, source=source, content=fields)


def from_file(path: Path, name: str = "") -> Model:
    """A config.json, or the folder that holds it."""
    if os.path.isdir(path):
        path = path / "config.json"
    content = read_object(path, EXPECTED, special=True)
    kind = config_class(content.get("model_type"), str(path))
    model_type = content["model_type"]
    _check_architectures(content, model_type, str(path))
    config = _validated(kind, known_fields(content, str(path)), str(path))
    config.validate(str(path))
    config.check_run(str(path))
    label = name or (path.parent.name if path.name == "config.json" else path.stem) or path.name
    return model_of(model_type, config, name=printable(label), source=place_of(path), content=content)


def from_hub(name: str) -> Model:
    """org/name through huggingface_hub (an optional extra), which keeps it in the local cache."""
    way_out = f"download its config.json and write --model {name.rsplit('/', 1)[-1]}/config.json, or --params 7B"
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


def _check_architectures(content: dict[str, Any], model_type: str, place: str) -> None:
    named = content.get("architectures")
    accepted = accepted_architectures(model_type)
    if named in (None, []):
        return
    if not isinstance(named, list) or named[0] not in accepted:
        raise SpecError(
            place, f"architectures {shown(named)}", f"a model with a language-model head ({' or '.join(accepted)})",
            "--params with the count of yours",
        )  # fmt: skip


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
