"""`--model`: a preset, a Hugging Face config.json or its folder, or org/name from the local cache or the Hub."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from zeroplan.architectures.config import MAX_LAYERS, Config
from zeroplan.architectures.defaults import assumed
from zeroplan.architectures.keys import unread
from zeroplan.architectures.model import model_of
from zeroplan.architectures.read import ModelClass, config_class, known_fields, named
from zeroplan.architectures.refused import QUANTIZATIONS, check_language_model, dequantized, takes_images
from zeroplan.architectures.registry import language_models
from zeroplan.catalog import hub, other_files, presets
from zeroplan.catalog.files import is_recording, place_of, read_object
from zeroplan.catalog.quantization import bits_and_bytes, read_quantization
from zeroplan.catalog.spelling import bare, is_quantized, without_quantization
from zeroplan.errors import SpecError, UnknownNameError, ZeroplanError, printable
from zeroplan.specs.input_sizes import UNSTATED, InputSizes
from zeroplan.specs.model import Model

EXPECTED = "a Hugging Face config.json"
SUGGESTION = "`zeroplan models` lists them; or write --model config.json"
QUANTIZED = "quantized weights (4 or 8 bit) are not planned yet"


def model(name: str, *, online: bool = True, sizes: InputSizes = UNSTATED) -> Model:
    """The model that `--model` names; `online`: the Hub may be asked for it. `sizes`: those of a sequence's inputs.

    Raises a `ZeroplanError` that says what to write instead.
    """
    if not name.strip():
        raise SpecError("model", "an empty name", "a preset, a config.json or org/name", "llama-3.1-8b")
    path = Path(os.path.expanduser(name))
    if _exists(path) or name.endswith(".json") or name.startswith((".", "/", "~")):
        return from_file(path, sizes=sizes)
    if cached := hub.cached(name):
        return from_file(cached, name=name, sizes=sizes)
    try:
        return _of_preset(name, sizes)
    except UnknownNameError as error:
        if hub.REPOSITORY.fullmatch(name):
            return from_hub(name, online=online, sizes=sizes)
        raise _quantized(name) or error from None


def _of_preset(name: str, sizes: InputSizes) -> Model:
    """With its own sizes, or recorded with others. Raises `SpecError` where it cannot be."""
    known = _taking(from_preset(name), sizes)
    if known.sizes.are(sizes):
        return known
    return _recorded(stated_config(known.name).content, name, known.name, sizes)


class StatedConfig(NamedTuple):
    """A config.json that was named."""

    content: dict[str, Any]
    place: str
    name: str
    """Of the model."""
    folder: Path | None = None
    """Where it lies; None for a preset."""


def stated_config(name: str) -> StatedConfig:
    """What config.json says of the model that `--model` names. Raises a `ZeroplanError`."""
    path = Path(os.path.expanduser(name))
    if not (_exists(path) or name.endswith(".json")):
        cached = hub.cached(name)
        if cached is None and not hub.REPOSITORY.fullmatch(name):
            preset, content = presets.load_model(name, SUGGESTION)
            return StatedConfig(content["config"], f"preset {preset}", preset)
        try:
            path = cached or hub.fetched(name)
        except hub.OutOfReachError as error:
            raise hub.out_of_reach(name, error) from error
    path = config_in(path) if os.path.isdir(path) else path
    content = read_object(path, EXPECTED, special=True)
    other_files.check_is_model(content, place_of(path), EXPECTED)
    own = name if hub.REPOSITORY.fullmatch(name) and not _exists(Path(name)) else _label(path)
    return StatedConfig(content, place_of(path), printable(own), path.parent)


def _label(path: Path) -> str:
    """The model's name by its file."""
    return (path.parent.name if path.name == "config.json" else path.stem) or path.name


def from_preset(name: str) -> Model:
    """A shipped preset, described or recorded. Its content is checked by the tests, so its types are not checked again
    here. Raises `UnknownNameError`.
    """
    preset, content = presets.load_model(name, SUGGESTION)
    fields, source = content["config"], f"preset {preset}: {content['source']}"
    if preset in presets.names(presets.RECORDED):
        from zeroplan.catalog.recording import model_from_file  # where one is

        known = model_from_file(presets.recording_of(preset), source=source, name=preset)
    else:
        config = config_class(fields["model_type"], preset)(**known_fields(fields, preset))
        known = model_of(fields["model_type"], config, name=preset, source=source, content=fields)
    if bare("model", name) == bare("model", preset):
        return known
    unread = " (config.json of the repository is not read for it)" if "/" in name else ""
    return known._replace(assumed=(*known.assumed, f"{printable(name)} is preset {preset}{unread}"))


def from_file(path: Path, name: str = "", sizes: InputSizes = UNSTATED) -> Model:
    """A config.json, the folder that holds it, or a recording."""
    if os.path.isdir(path):
        path = config_in(path)
    if is_recording(path):
        from zeroplan.catalog.recording import model_from_file  # where one is

        return _with_sizes(model_from_file(path, source=place_of(path)), sizes, place_of(path))
    content, place = read_object(path, EXPECTED, special=True), place_of(path)
    other_files.check_is_model(content, place, EXPECTED)
    stated = named(content, place)
    label = printable(name or _label(path))
    if sizes.images and takes_images(content):
        return _recorded(content, place, label, sizes)
    check_language_model(content, place)
    bits = bits_and_bytes(content.get("quantization_config"))
    packed = read_quantization(bits, place) if bits else None
    notes = [note for note in (stated.assumed, "" if packed else dequantized(content, place)) if note]
    if not stated.model_type:
        known = _undescribed(content, stated, place, label, notes, sizes)
    else:
        known = _described(content, stated, place, label, notes)
    known = _taking(known, sizes)
    if packed is None:
        return known
    from zeroplan.architectures.quantized import with_quantization  # where weights are

    return with_quantization(known, packed)


def _taking(known: Model, sizes: InputSizes) -> Model:
    """Raises `SpecError` for sizes of what the model does not take."""
    if sizes.images and not known.images:
        raise SpecError("--images", f"{known.name}, a model of text", "a model that takes images; leave it out")
    if sizes.target is not None and known.target is None:
        found = f"{known.name}, whose words are one sequence (--seq)"
        raise SpecError("--target-seq", found, "an encoder-decoder of text; leave it out")
    return known


def _with_sizes(known: Model, sizes: InputSizes, place: str) -> Model:
    """A recorded model. Raises `SpecError` where other sizes were recorded."""
    if not _taking(known, sizes).sizes.are(sizes):
        command = " ".join(["zeroplan trace", "config.json", *sizes.options.split(), "-o other.trace.json"])
        raise SpecError(place, f"recorded with {known.sizes.line}", sizes.line, command)
    return known


def _recorded(content: dict[str, Any], place: str, label: str, sizes: InputSizes) -> Model:
    """A model with inputs of such sizes. Raises `SpecError` where it cannot be recorded."""
    from zeroplan.catalog.kept_recordings import installed, recorded

    known = recorded(content, label, place, sizes)
    if isinstance(known, str):
        if installed():  # a command that records would say the same
            raise ZeroplanError(f"{place} with {sizes.line}: {known}")
        command = f"zeroplan trace {place} {sizes.options}, where they are, and --model its file"
        what = "a model of images" if sizes.images else f"a model with {sizes.line}"
        raise SpecError(place, f"{what} that is not recorded: {known}", "its recording", command)
    return known


def _undescribed(
    content: dict[str, Any], stated: ModelClass, place: str, label: str, notes: list[str], sizes: InputSizes
) -> Model:
    """A model of another family: recorded where torch and transformers are, else by the sizes that it names."""
    from zeroplan.architectures.approximate import approximate  # not for the families that are described
    from zeroplan.catalog.kept_recordings import installed, recorded

    whole = {key: value for key, value in content.items() if key not in QUANTIZATIONS}
    known = recorded(whole, label, place, sizes)
    if not isinstance(known, str):
        return known._replace(assumed=(*notes, *known.assumed))
    why = known
    trace = " ".join(filter(None, ("zeroplan trace", place, sizes.options, "where they are")))
    try:
        known = approximate(content, place, label)
    except SpecError as error:
        found = f"{error.found} and no recording: {why}"
        write = "" if installed() else f"{trace}, and --model its file"
        raise SpecError(error.place, found, f"{error.expected}, or a recording", write) from error
    how = f"by its sizes, not recorded: {why} (`{trace}`)"
    return known._replace(assumed=(*notes, how), architecture=stated.architecture)


def _described(content: dict[str, Any], stated: ModelClass, place: str, label: str, notes: list[str]) -> Model:
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


def from_hub(name: str, *, online: bool = True, sizes: InputSizes = UNSTATED) -> Model:
    """org/name from the Hub; where nothing can be asked, the preset of the same name under its publisher, as assumed.

    Raises `SpecError` where neither is to be had.
    """
    try:
        return from_file(hub.fetched(name, online=online), name=name, sizes=sizes)
    except hub.OutOfReachError as error:
        reason = str(error)
        if quantized := _quantized(name):
            raise quantized from error
        try:
            preset = _of_preset(name.rpartition("/")[2], sizes)
        except UnknownNameError:
            raise hub.out_of_reach(name, error) from error
    assumed = f"{name} has the sizes of preset {preset.name}: its own config.json could not be read ({reason})"
    more = f"{assumed}; a fine-tune may have added tokens"
    return preset._replace(assumed=(*preset.assumed, more))


def _quantized(name: str) -> SpecError | None:
    """What to say of a name of quantized weights that nothing is read of."""
    if not is_quantized(name):
        return None
    try:
        whole = presets.load("model", without_quantization(name.rpartition("/")[2]))[0]
    except ZeroplanError:
        whole = "the model that was quantized"
    return SpecError(f"--model {name}", "a name of quantized weights", f"a model: {QUANTIZED}",
                     f"--model {whole} for full training")  # fmt: skip


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
