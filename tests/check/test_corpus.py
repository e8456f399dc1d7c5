"""Public configs: an error exactly where DeepSpeed 0.19.8 refuses, its parser (LABELS.csv) or its engine (corpus.json).

The files are other people's and not in this repository: ZEROPLAN_CORPUS names a folder that holds them.
"""

from __future__ import annotations

import json
from functools import cache

import pytest

from tests.conftest import REFERENCES
from tests.corpus import each_file, labels, needs_corpus
from zeroplan.check.check import check_text
from zeroplan.check.finding import ERROR
from zeroplan.check.setting import Setting

NO_ANSWER = ("ModuleNotFoundError", "died")
"""A monitor's package is not there, or ZenFlow's second process waits for a card: the parser's verdict stands alone."""

ACCELERATE_STOPS = {
    f"deepspeedai+DeepSpeedExamples__inference--sglang--{name}.json": "stage3_max_live_parameters: not found in kwargs"
    for name in ("ds_offload_cpu", "ds_offload_nvme_aio", "ds_offload_nvme_gds")
}
"""Files with an "auto" that nothing fills: accelerate 1.15.0 utils/dataclasses.py:fill_match, run; the Trainer calls it."""
pytestmark = needs_corpus


@cache
def engine():
    return json.loads((REFERENCES / "check" / "corpus.json").read_text(encoding="utf-8"))["files"]


def refused(path, column):
    """What stops DeepSpeed with the file, raw or filled; empty when nothing does."""
    if column == "hf" and path.name in ACCELERATE_STOPS:
        return ACCELERATE_STOPS[path.name]
    label = labels()[path.name]
    said = engine().get(path.name, ["", "", ""])[1 + (column == "hf")]
    return label[f"{column}_msg"] if label[column] == "error" else "" if said.startswith(NO_ANSWER) else said


@each_file
@pytest.mark.parametrize(("reader", "column"), [("deepspeed", "raw"), ("hf", "hf")])
def test_an_error_exactly_where_deepspeed_refuses(path, reader, column):
    ranks = labels()[path.name]["raw_ws"]
    setting = Setting(reader=reader, gpus=int(ranks) if column == "raw" else None, accelerator="cpu")
    if column == "hf" and labels()[path.name]["hf_ws"].isdigit():
        setting = Setting(reader=reader, gpus=int(ranks), accelerator="cpu")
    found = [one for one in check_text(path.name, path.read_text(encoding="utf-8"), setting) if one.severity == ERROR]
    assert bool(found) == bool(refused(path, column)), refused(path, column) or found


REASONS = {
    "compression_training": "The DeepSpeed compression library",
    "curriculum_learning": "Legacy top-level 'curriculum_learning'",
    "amp": "NVIDIA Apex AMP",
    "fp16.opt_level": "opt_level",
    "fp16.min_loss_scale": "min_loss_scale",
    "zero_optimization.reduce_bucket_size": "reduce_bucket_size",
    "zero_optimization.device": "device |",
    "sparse_attention": "Sparse Attention",
    "progressive_layer_drop": "Progressive Layer Dropping",
    "aio.use_gds": "GDS",
    "train_batch_size": "train_batch_size is not equal",
}
"""The key that a finding is about, and a part of what DeepSpeed says."""


@each_file
def test_for_the_same_reason(path):
    label = labels()[path.name]
    setting = Setting(reader="hf", accelerator="cpu")
    found = check_text(path.name, path.read_text(encoding="utf-8"), setting)
    about = {one.path for one in found if one.severity == ERROR}
    named = {key for key, part in REASONS.items() if part in label["hf_msg"]}
    assert not named or named & about
