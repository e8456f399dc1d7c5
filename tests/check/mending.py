"""Configs that DeepSpeed refuses and that `check --fix` leaves without an error, as recorded and as tested."""

from __future__ import annotations

import csv
import hashlib
import json
import re
from functools import cache

from zeroplan.check.check import check_text, count
from zeroplan.check.finding import ERROR
from zeroplan.check.json_reader import read_json
from zeroplan.check.mended import mended
from zeroplan.check.setting import Setting


def mended_by(setting, text, kept=list):
    return mended(text, lambda any_text: check_text("ds_config.json", any_text, setting), kept)


def digest(text):
    """Of the mended text: what was recorded is about these very letters."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def mended_draws(path):
    """Seed and mended text of each drawn config that is refused, and not after mending."""
    for seed, config, said in json.loads(path.read_text(encoding="utf-8"))["draws"]:
        text = json.dumps(config)
        found = mended_by(Setting(gpus=1, client_optimizer=True), text)
        if said and found.text != text and not count(found.left, ERROR):
            yield seed, found.text


def mended_file(folder, path):
    """For whom, on how many ranks and the mended text of a public file whose every error is mended."""
    text = path.read_text(encoding="utf-8")
    for reader, setting in settings(folder, path):
        found = mended_by(setting, text)
        if count(found.done, ERROR) and not count(found.left, ERROR):
            yield reader, int(labels(folder)[path.name]["raw_ws"]), found.text


def settings(folder, path):
    """As the verdicts of LABELS.csv were asked for."""
    label = labels(folder)[path.name]
    ranks = int(label["raw_ws"])
    yield "deepspeed", Setting(reader="deepspeed", gpus=ranks, accelerator="cpu")
    yield "hf", Setting(reader="hf", gpus=ranks if label["hf_ws"].isdigit() else None, accelerator="cpu")


@cache
def labels(folder):
    with (folder / "LABELS.csv").open(encoding="utf-8", newline="") as stream:
        return {row["file"]: row for row in csv.DictReader(stream)}


def only_mended_keys_differ(text, found):
    """Of what a text says, and what it says when it is mended."""
    before, after = (dict(leaves(read_json("x", part).config)) for part in (text, found.text))
    changed = {key for key in before.keys() | after.keys() if repr(before.get(key)) != repr(after.get(key))}
    written = {name for one in found.done for edit in one.edits for name in re.findall(r"\w+", edit.text)}
    for key in changed:
        twin = any(one.rule == "ZP411" and ".".join(key[:-1]) == one.path.rpartition(".")[0] for one in found.done)
        named = twin or any(within(key, one.path) for one in found.done)
        emptied = written & {name for path in after for name in path if path[: len(key)] == key}
        assert named or written & {*key} or emptied, (key, [(one.rule, one.path) for one in found.done])
    assert all(one.edits for one in found.done)


def within(key, path):
    """Whether a path of names and a finding's path, joined by dots, which names may have too, lie on one branch. All do
    with (), which is what an empty config says.
    """
    key, path = "".join(f"{name}." for name in key), f"{path}."
    return key.startswith(path) or path.startswith(key)


def leaves(value, path=()):
    if isinstance(value, dict) and value:
        for name, inside in value.items():
            yield from leaves(inside, (*path, name))
    else:
        yield path, value
