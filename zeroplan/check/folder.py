"""Which files of a folder are DeepSpeed configs, or name one."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence

from zeroplan.catalog.files import LARGEST_CONFIG, read_text
from zeroplan.catalog.trainers.tools import tool_of
from zeroplan.check.arguments import YAML
from zeroplan.check.document import Document
from zeroplan.check.json_reader import NotReadableError, read_json
from zeroplan.check.launch import AccelerateConfig, is_launch
from zeroplan.deepspeed.keys import children
from zeroplan.errors import SpecError, ZeroplanError, shown

JSON = (".json", ".hjson")
ENDINGS = (*JSON, *YAML)
NAMED = re.compile(r"(?:^|[^a-z])(?:ds|deepspeed|zero[0-3]?)(?:[^a-z]|conf|$)")
"""How people name them: ds_config.json, deepspeed.json, zero3_offload.json, my-ds-config.json."""
OWN_KEYS = frozenset({"zero_optimization", "train_micro_batch_size_per_gpu"})
"""Nothing else has keys of these names."""
SECTIONS = ("fp16", "bf16", "optimizer", "scheduler", "aio", "activation_checkpointing")
EXPECTED = "a ds_config.json"


def configs(paths: Sequence[str]) -> list[str]:
    """The paths with each folder replaced by the configs below it, each once, folders in the order of their names.

    A file that is named is taken as it is. In a folder, a file is taken that `looks_like_config`. Symbolic
    links to folders are not followed, so that none leads round in a circle, and hidden folders are left out. Raises
    `SpecError` for a folder that holds no config: a gate that looks at nothing must not pass.
    """
    files: dict[str, None] = {}
    for path in paths:
        if path != "-" and os.path.isdir(path):
            inside = [name for name in _walked(path) if looks_like_config(name)]
            if not inside:
                expected = "a DeepSpeed config in *.json or *.hjson, or a *.yaml that names one"
                raise SpecError(shown(path)[1:-1], "a folder without one", expected, "the name of a file")
            files.update(dict.fromkeys(inside))
        else:
            files[path] = None
    return list(files)


def _walked(folder: str) -> Iterator[str]:
    """Regular files by their endings. Raises `SpecError` for a folder that cannot be listed."""
    for place, folders, names in os.walk(folder, onerror=_stop):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = os.path.normpath(os.path.join(place, name))
            if name.lower().endswith(ENDINGS) and os.path.isfile(path):
                yield path


def _stop(error: OSError) -> None:
    place = shown(str(error.filename))[1:-1]
    raise SpecError(place, (error.strerror or str(error)).lower(), "a folder that can be listed") from error


def looks_like_config(path: str) -> bool:
    """By its name, or by what stands in it: a key that only DeepSpeed has, or one of its sections beside another key of
    its top level; or that it is a training file or an Accelerate config with DeepSpeed in it, which YAML alone may be.
    What is not to be read as an object, and is not named like one, is no config.
    """
    is_yaml = path.lower().endswith(YAML)
    if not is_yaml and NAMED.search(os.path.basename(path).lower()):
        return True
    try:
        text = read_text(path, EXPECTED, LARGEST_CONFIG)
        if is_yaml:
            return "deepspeed" in text.lower() and _names_config(_yaml(path, text))
        document = read_json(path, text)
    except (ZeroplanError, NotReadableError):
        return False
    names = {member.name: member.node.members is not None for member in document.root.members or ()}
    known = {key.name for key in children() if key.name in names}
    is_config = bool(OWN_KEYS & known) or (any(names.get(section) for section in SECTIONS) and len(known) > 1)
    return is_config or (tool_of(document.config) is not None and bool(document.config.get("deepspeed")))


def _yaml(path: str, text: str) -> Document:
    from zeroplan.check.yaml_reader import read_yaml  # where there is such a file

    return read_yaml(path, text, EXPECTED)


def _names_config(document: Document) -> bool:
    """Whether DeepSpeed is in a YAML that Accelerate or a training tool reads."""
    if is_launch(document):
        launch = AccelerateConfig(document)
        return launch.is_deepspeed and bool(launch.fields)
    config = document.config.get("deepspeed")
    if isinstance(config, dict):
        return bool(OWN_KEYS & config.keys()) or tool_of(document.config) is not None
    return isinstance(config, str) and (config.endswith(JSON) or tool_of(document.config) is not None)
