"""The shipped recordings: presets/recordings/NAME.trace.json.gz, and what NAME.json beside says of it.

python -m tests.references.make_recordings [NAME ...]                 records these anew, or all
python -m tests.references.make_recordings --into FOLDER NAME ...     the same, as files of FOLDER alone
python -m tests.references.make_recordings --into FOLDER --of sdpa bf16 NAME ...     of one attention and precision
python -m tests.references.make_recordings --add FOLDER REPOSITORY SOURCE [IMAGES HEIGHT WIDTH]

A preset NAME.json states config.json, where it is from and what images each sequence has; the recording, the number of
parameters (torch's own count), layers and width come of it. --add writes the preset of FOLDER/config.json, named as the
folder. Needs torch and transformers.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
import warnings
from datetime import date
from pathlib import Path
from typing import Any

from zeroplan.architectures.recorded.recording import Recording
from zeroplan.catalog import presets
from zeroplan.catalog.recording import written
from zeroplan.specs.images import Images
from zeroplan.specs.input_sizes import InputSizes
from zeroplan.verify.recording.model import built, config_of, recording
from zeroplan.verify.task import class_of

FOLDER = presets.PRESETS / presets.KINDS[presets.RECORDED]
NOT_THE_MODEL = ("auto_map", "transformers_version", "_name_or_path", "quantization_config", "torch_dtype", "dtype")
"""Of a config.json."""


def recorded(
    content: dict[str, Any], name: str, attention: str | None = None, precision: str | None = None
) -> Recording:  # fmt: skip
    images = Images(**content["images"]) if content["images"] else None
    return recording(
        content["config"], name=name, place=f"preset {name}", sizes=InputSizes(images), attention=attention,
        precision=precision, watch=lambda what: print(name, what, flush=True),
    )  # fmt: skip


def into(folder: Path, name: str, way: list[str]) -> None:
    made = recorded(json.loads((FOLDER / f"{name}.json").read_text()), name, *way)
    (folder / presets.recording_of(name).name).write_bytes(packed(made))


def packed(made: Recording) -> bytes:
    return gzip.compress(written(made).encode(), 9, mtime=0)


def make(name: str) -> None:
    path = FOLDER / f"{name}.json"
    content = json.loads(path.read_text())
    made = recorded(content, name)
    config = config_of(content["config"], name)
    kind = class_of(config, name)
    model = built(kind, config, "bf16", "sdpa" if kind._supports_sdpa else "eager")
    content |= {
        "parameters": sum(each.numel() for each in model.parameters()), "layers": made.shape.layers, "hidden": made.shape.hidden,
        "counted": f"torch's own count under transformers {made.versions['transformers']}, {date.today()}",
    }  # fmt: skip
    presets.recording_of(name).write_bytes(packed(made))
    path.write_text(json.dumps(content, indent=2) + "\n")


def add(folder: Path, repository: str, source: str, images: list[str]) -> None:
    config = json.loads((folder / "config.json").read_text())
    config = {key: value for key, value in config.items() if key not in NOT_THE_MODEL}
    stated = dict(zip(("number", "height", "width"), map(int, images), strict=True)) if images else None
    content = {
        "title": repository.rpartition("/")[2], "aliases": [repository], "source": source, "date": str(date.today()),
        "images": stated, "parameters": 0, "config": config,
    }  # fmt: skip
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{folder.name}.json").write_text(json.dumps(content, indent=2) + "\n")


def main(words: list[str]) -> None:
    if os.environ.get("PYTHONHASHSEED") != "0":
        again = [sys.executable, "-m", "tests.references.make_recordings", *words]
        os.execve(sys.executable, again, {**os.environ, "PYTHONHASHSEED": "0"})  # noqa: S606
    warnings.simplefilter("ignore")
    if words[:1] == ["--into"]:
        way = words[3:5] if words[2] == "--of" else []
        for name in words[2 + len(way) + bool(way) :]:
            into(Path(words[1]), name, way)
        return
    if words[:1] == ["--add"]:
        add(Path(words[1]), words[2], words[3], words[4:])
        words = [Path(words[1]).name]
    for name in words or presets.names(presets.RECORDED):
        make(name)


if __name__ == "__main__":
    main(sys.argv[1:])
