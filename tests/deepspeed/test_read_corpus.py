"""Public ds_config.json files: zeroplan takes what DeepSpeed 0.19.8 takes, reads the same values, and never crashes.

The files are other people's and not in this repository: ZEROPLAN_CORPUS names a folder that holds them, with a
LABELS.csv that says of each what DeepSpeed did with it.
"""

from __future__ import annotations

import copy
import json
import os
from functools import cache
from pathlib import Path

import pytest

from tests.corpus import FILES, each_file, labels, needs_corpus
from zeroplan.deepspeed.facts import Facts
from zeroplan.deepspeed.keys.removed import REMOVED_OPTIMIZERS
from zeroplan.sources import DEEPSPEED

GPUS = 8
MICRO, ACCUM = "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"
TRAINER = {MICRO: 1, ACCUM: 1, "gradient_clipping": 1.0, "fp16.enabled": False, "bf16.enabled": True}
HIDDEN = 4096  # llama-2-7b
UNPLANNED = ("compile.deepcompile", "tensor_parallel.autotp_size", "autotuning.enabled",
             "data_efficiency.data_routing.random_ltd.enabled")  # fmt: skip
"""Public files divide the model, compile the step, profile or route tokens, which no plan does."""

pytestmark = needs_corpus


@cache
def content(path):
    """The object in the file; None where it is a template that is no JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError:
        return None


@pytest.fixture
def estimated(zeroplan, tmp_path, monkeypatch):
    """The file under a short name, which errors quote whole, and what `estimate` says to it."""
    monkeypatch.chdir(tmp_path)

    def run(path):
        Path("ds_config.json").write_bytes(path.read_bytes())
        return zeroplan(
            "estimate", "--config", "ds_config.json", "--model", "llama-2-7b", "--gpus", str(GPUS), "--json"
        )

    return run


def batch(config):
    """(micro, accumulation, total) over 8 GPUs as runtime/config.py:_set_batch_related_parameters solves them."""
    named = (config.get(key) for key in (MICRO, ACCUM, "train_batch_size"))
    micro, accum, total = (None if value == "auto" else value for value in named)
    micro = TRAINER[MICRO] if config.get(MICRO) == "auto" else micro
    accum = TRAINER[ACCUM] if config.get(ACCUM) == "auto" else accum
    if total is not None and micro is not None:
        accum = accum if accum is not None else total // micro // GPUS
    elif total is not None:
        accum = 1 if accum is None else accum
        micro = total // GPUS // accum
    elif micro is not None:
        accum = 1 if accum is None else accum
        total = micro * accum * GPUS
    return micro, accum, total


def batch_is_refused(config):
    """Whether DeepSpeed's assertion on the three sizes fails at 8 GPUs."""
    micro, accum, total = batch(config)
    return total is not None and (not micro or not accum or total != micro * accum * GPUS)


def test_every_file_is_labelled():
    assert len(FILES) > 100
    assert {path.name for path in FILES} == labels().keys()


@each_file
def test_one_line_or_an_estimate(path, estimated):
    """Exit 0 or 1 with JSON, or 2 with one line that says what is wrong; nothing else."""
    code, out, err = estimated(path)
    if code == 2:
        assert out == ""
        assert err.startswith("zeroplan: ")
        assert err.count("\n") == 1
    else:
        assert code in (0, 1)
        assert err == ""
        assert json.loads(out)["command"] == "estimate"


@each_file
def test_taken_when_deepspeed_takes_it(path, estimated):
    """Exit 2 exactly where DeepSpeed's parser refuses, or its engine for the optimizer that the file names."""
    config, label = content(path), labels()[path.name]
    code, _out, err = estimated(path)
    if config is None:  # a template: hjson takes its words for texts, which are no sizes
        assert code == 2
        assert "ds_config.json:" in err
        return
    named = (config.get("optimizer") or {}).get("type", "")
    if label["hf"] != "ok":
        assert code == 2
    elif any(Facts(config, "").stated(path) for path in UNPLANNED):
        assert code == 2
        assert "is not planned" in err
    elif batch_is_refused(config):
        assert code == 2
        assert "train_batch_size" in err
    elif named.lower() in {name.lower() for name in REMOVED_OPTIMIZERS}:
        assert code == 2
        assert named in err
    elif "max_grad_norm" in (config.get("optimizer") or {}).get("params", {}):
        assert code == 2
        assert "max_grad_norm" in err
    else:
        assert code in (0, 1), err


@pytest.fixture(scope="module")
def parse():
    """DeepSpeed's own parser at 8 ranks, "auto" filled as the Trainer does; None where it refuses."""
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    deepspeed = pytest.importorskip("deepspeed")
    if deepspeed.__version__ != DEEPSPEED:
        pytest.skip(f"compared with {DEEPSPEED}")
    from deepspeed.runtime import config as module

    ranks = type("Ranks", (), {"get_data_parallel_world_size": lambda _self: GPUS})()

    def parsed(config):
        try:
            return module.DeepSpeedConfig(filled(config), mpu=ranks)
        except Exception:
            return None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module.dist, "get_rank", lambda *_args: 0)
        yield parsed


def filled(config):
    config = copy.deepcopy(config)
    if config.get("train_batch_size") == "auto":
        config["train_batch_size"] = batch(config)[2]
    fills = {**TRAINER, "zero_optimization.reduce_bucket_size": HIDDEN**2}
    if (config.get("zero_optimization") or {}).get("stage") == 3:
        fills["zero_optimization.stage3_prefetch_bucket_size"] = int(0.9 * HIDDEN**2)
        fills["zero_optimization.stage3_param_persistence_threshold"] = 10 * HIDDEN
    if "bf16" not in config:
        fills["fp16.enabled"] = True
    for path, value in fills.items():
        section, _, name = path.rpartition(".")
        inside = config.get(section, {}) if section else config
        if inside.get(name) == "auto":
            inside[name] = value
    return config


ZERO = (
    "reduce_bucket_size", "allgather_bucket_size", "prefetch_bucket_size", "param_persistence_threshold",
    "model_persistence_threshold", "max_live_parameters", "max_reuse_distance", "sub_group_size",
    "contiguous_gradients", "reduce_scatter", "round_robin_gradients",
)  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@each_file
def test_values_are_those_that_deepspeed_resolves(path, estimated, parse):
    config = content(path)
    code, out, _err = estimated(path)
    if config is None or code == 2 or (real := parse(config)) is None:
        return
    strategy, zero = json.loads(out)["strategy"], real.zero_config
    assert strategy["stage"] == zero.stage
    assert {name: strategy[name] for name in ZERO} == {name: getattr(zero, name) for name in ZERO}
    assert strategy["hpz_partition_size"] == zero.zero_hpz_partition_size
    overlaps = strategy["stage"] == 3 if strategy["overlap_comm"] is None else strategy["overlap_comm"]
    assert overlaps == zero.overlap_comm
    sizes = real.train_micro_batch_size_per_gpu, real.gradient_accumulation_steps
    assert (strategy["micro_batch"], strategy["grad_accum"]) == sizes
    assert strategy["gradient_clipping"] == real.gradient_clipping
    if not (config.get("fp16", {}).get("enabled") == "auto" and "bf16" not in config):
        modes = {"fp16": real.float16_config, "bf16": real.bfloat16_config}
        on = [name for name, mode in modes.items() if mode.enabled]
        assert [strategy["precision"]] == (on or ["fp32"])
    for name in ("offload_optimizer", "offload_param"):
        section = getattr(zero, name)
        idle = strategy["stage"] == 0 or (name == "offload_param" and strategy["stage"] < 3)
        device = section.device if section and not idle else "none"
        assert (strategy[name] or {"device": "none"})["device"] == device
        for key in ("pin_memory", "ratio", "buffer_size", "max_in_cpu") if strategy[name] else ():
            assert strategy[name][key] == getattr(section, key, strategy[name][key])


@pytest.mark.filterwarnings("ignore")
@each_file
def test_written_again_deepspeed_takes_it(path, zeroplan, parse, tmp_path):
    """`recommend --config FILE --for deepspeed`: no "auto", and the parser accepts the whole of it."""
    file = tmp_path / "ds_config.json"
    file.write_bytes(path.read_bytes())
    card = ("--model", "tinyllama-1.1b", "--gpus", str(GPUS), "--gpu-mem", "80", "--host-mem", "1TB")
    code, out, err = zeroplan("recommend", "--config", str(file), *card, "--for", "deepspeed", "-o", "-")
    if code == 2:
        assert err.count("\n") == 1
        return
    if code == 1:  # too little room for its batch, and nothing is written
        assert out == ""
        assert "Tight: " in err or "does not fit" in err
        return
    assert '"auto"' not in out
    assert parse(json.loads(out)) is not None
