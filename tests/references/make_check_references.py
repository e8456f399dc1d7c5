"""Ask DeepSpeed itself what it says of configs, for tests/references/check: `python -m tests.references.make_check_references`.

    evidence FILE.csv   one-change configs: columns case, config_delta, outcome, message (what was run, see its README)
    draws FROM TO       configs of tests/check/deepspeed_draws.py, by seed
    corpus FOLDER       public files: what the engine says of each, raw and with "auto" filled
    mended FOLDER       of drawn configs and public files that `check --fix` leaves without an error: what it says then
    models              configs with small Llamas: buffers for NVMe, quantized shares, heads of Ulysses

A delta of null takes a key away. DeepSpeed must be installed. Run it in an empty folder: some configs write files.
"""

from __future__ import annotations

import csv
import importlib.metadata
import json
import os
import sys
import tempfile
from pathlib import Path

from tests.check import deepspeed_models, deepspeed_says
from tests.check.deepspeed_draws import draw
from tests.check.filled import filled
from tests.check.mending import digest, mended_draws, mended_file
from tests.check.one_change import RULES_BY_CASE
from zeroplan.check.json_reader import read_json

HERE = Path(__file__).parent / "check"
BASE = {
    "train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": True}, "zero_optimization": {"stage": 2},
    "optimizer": {"type": "Adam", "params": {"lr": 1e-4, "torch_adam": True}},
}
VERSIONS = {name: importlib.metadata.version(name) for name in ("deepspeed", "torch")}


def evidence(path):
    rows = []
    with open(path, encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            delta = json.loads(row["config_delta"])
            config = {name: value for name, value in {**BASE, **delta}.items() if value is not None or name not in delta}
            said = "" if row["outcome"] == "ok" else " ".join(row["message"].split())[:160]
            rows.append({
                "case": row["case"], "config": config, "client_optimizer": "zero_allow_untested_optimizer" in delta,
                "said": said, "rule": RULES_BY_CASE.get(row["case"], ""),
            })
    write("one_change.json", {"versions": VERSIONS, "rows": rows})


def draws(first, last):
    answers = []
    for seed in range(first, last):
        config = draw(seed)
        answers.append([seed, config, short(deepspeed_says.says(config))])
    write("draws.json", {"versions": VERSIONS, "draws": answers})


def corpus(folder):
    found = {}
    with (Path(folder) / "LABELS.csv").open(encoding="utf-8", newline="") as stream:
        worlds = {row["file"]: int(row["raw_ws"]) for row in csv.DictReader(stream)}
    for path in sorted(Path(folder).glob("*.json")):
        try:
            config = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            continue
        world = worlds[path.name]
        found[path.name] = [world, *(short(deepspeed_says.says(one, world=world)) for one in (config, filled(config, world)))]
    write("corpus.json", {"versions": VERSIONS, "files": found})


def mended(folder):
    drawn = {seed: [digest(text), short(deepspeed_says.says(json.loads(text)))] for seed, text in mended_draws(HERE / "draws.json")}
    public = {}
    for path in sorted(Path(folder).glob("*.json")):
        for reader, world, text in mended_file(Path(folder), path):
            config = json.loads(json.dumps(read_json(path.name, text).config))
            config = filled(config, world) if reader == "hf" else config
            public.setdefault(path.name, {})[reader] = [digest(text), short(deepspeed_says.says(config, world=world))]
    write("mended.json", {"versions": VERSIONS, "draws": drawn, "files": public})


def models():
    buffers = [[world, size, short(deepspeed_models.says_of_llama(deepspeed_models.offloaded(size), {}, world))]
               for world, size in deepspeed_models.buffers()]
    quantized = [[widths, world, short(deepspeed_models.says_of_llama(deepspeed_models.QUANTIZED, widths, world))]
                 for widths, world in deepspeed_models.quantized()]
    heads = [[*one, short(deepspeed_models.says_of_heads(*one))] for one in deepspeed_models.HEADS]
    versions = VERSIONS | {"transformers": importlib.metadata.version("transformers")}
    write("models.json", {"versions": versions, "buffers": buffers, "quantized": quantized, "heads": heads})


def short(said):
    return said[:100]


def write(name, content):
    text = json.dumps(content, separators=(",", ":")).replace("],[", "],\n[").replace("},{", "},\n{")
    (HERE / name).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    what, *given = sys.argv[1:]
    deepspeed_says.prepare()
    given = [os.path.abspath(part) if os.path.exists(part) else int(part) for part in given]
    os.chdir(tempfile.mkdtemp())
    {"evidence": evidence, "draws": draws, "corpus": corpus, "mended": mended, "models": models}[what](*given)
