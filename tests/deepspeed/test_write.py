"""The ds_config.json that `recommend` writes: which keys, which values, and that reading it back gives the same plan."""

from __future__ import annotations

import contextlib
import io
import json
import random
import sys
from functools import cache, partial
from math import prod

import pytest

from tests import shared
from tests.jobs import job
from zeroplan.__main__ import main
from zeroplan.check.any_file import check_file
from zeroplan.check.arguments import read_arguments
from zeroplan.deepspeed.defaults import ZERO_FIELDS
from zeroplan.deepspeed.keys import KEYS
from zeroplan.deepspeed.read import read_config
from zeroplan.deepspeed.write import ds_config, dumps
from zeroplan.emit.accelerate import accelerate_yaml
from zeroplan.emit.trainer import arguments_file, training_arguments
from zeroplan.plan import plan
from zeroplan.request.check_setting import read_inputs, setting_of
from zeroplan.request.options import Options
from zeroplan.request.request import read_request
from zeroplan.specs.optimizer import OPTIMIZERS
from zeroplan.specs.strategy import Offload, Strategy
from zeroplan.specs.target import TARGETS, Script

SEED = 20261121
CASES = range(60)
MODELS = (
    "bloom-7b1", "deepseek-v2-lite", "falcon-7b", "gemma-2-9b", "gemma-3-1b", "gpt2-xl", "gpt-neox-20b", "gpt-oss-20b",
    "llama-2-7b", "llama-2-13b", "llama-3.1-70b", "mistral-7b-v0.3", "mixtral-8x7b", "opt-13b", "phi-4", "pythia-1.4b",
    "qwen2.5-0.5b", "qwen3-30b-a3b", "smollm2-135m", "tinyllama-1.1b",
)  # fmt: skip
PARAMS = ("125M", "350M", "1.3B", "3B", "7B", "13B", "34B", "70B", "175B", "405B")
GPUS = ("1", "2", "3", "4", "8", "2x4", "2x8", "4x8", "6x8", "8x8", "16x8", "32x8", "64x8")
GPU_MEM = ("16", "24", "32", "40", "48", "64", "80", "94", "96", "128", "141", "16GiB", "37.5GiB", "79.2GiB", "100GB")
PRECISIONS = ("fp32", "fp16", "bf16")
UNOFFLOADABLE = ("lamb", "muon")
"""FusedLamb steps on CUDA tensors alone; Muon and stage 3 need reduce_scatter off."""


def ranks_of(gpus):
    """Of a number of GPUs as it is typed: 8, or nodes x GPUs."""
    return prod(map(int, gpus.split("x")))


def draw(rng):
    """Options of one request, by name."""
    gpus = rng.choice(GPUS)
    ranks = ranks_of(gpus)
    options = {
        "gpus": gpus,
        "gpu_mem": rng.choice(GPU_MEM),
        "precision": rng.choice(PRECISIONS),
        "optimizer": rng.choice([*OPTIMIZERS, "adam", "adamw", "adamw"]),
        "seq": rng.choice(["512", "2048", "4096"]),
        "host_mem": rng.choice(["256GiB", "1TB", "2TB", "8TB"]),
    }
    options["model" if rng.random() < 0.7 else "params"] = None
    if "model" in options:
        options["model"] = rng.choice(MODELS)
    else:
        options["params"] = rng.choice(PARAMS)
    if rng.random() < 0.4:
        options["nvme"] = "8TB"
    if rng.random() < 0.7:
        options["stage"] = rng.choice("0123")
    if rng.random() < 0.3:
        options["global_batch"] = str(ranks * rng.choice([1, 3, 8, 32]))
    if rng.random() < 0.2:
        options["checkpointing"] = rng.choice(["none", "full"])
    if options["optimizer"] not in UNOFFLOADABLE and rng.random() < 0.6:
        options |= draw_offload(rng, options.get("stage", "3"), "nvme" in options)
        if "offload_param" in options:
            options["stage"] = "3"
    return options


def draw_offload(rng, stage, nvme):
    """Where the optimizer goes, and at stage 3 perhaps the parameters."""
    if stage == "0":
        return {}
    devices = ["cpu", *(["nvme"] if nvme and stage == "3" else [])]
    drawn = {"offload_optimizer": rng.choice(devices)}
    if stage == "3" and rng.random() < 0.6:
        drawn["offload_param"] = rng.choice(devices)
    return drawn


def flags(options):
    """The options as they are typed."""
    return [text for name, value in options.items() for text in ("--" + name.replace("_", "-"), value)]


def read(options, target="hf"):
    return read_request(Options(Script(target), **options), default_params="7B", default_gpus=8)


def chosen(options, target="hf"):
    """The job of the plan for a target, or None when nothing fits."""
    request = read(options, target)
    best = plan(request.job(), request.fixed, reserve=None).chosen
    return best.job if best else None


@cache
def recommendation(case):
    """A drawn request that fits, as (options, job): of the processes that test, the first that needs it searches."""
    options, strategy = shared.of_run(f"test_write, case {case}", lambda: first_that_fits(case))
    return options, read(options).job()._replace(strategy=strategy)


def first_that_fits(case):
    """A drawn request that fits, as (options, strategy)."""
    rng = random.Random(f"{SEED} {case}")
    while True:
        options = draw(rng)
        if (job := chosen(options)) is not None:
            assert job == read(options).job()._replace(strategy=job.strategy)
            return options, job.strategy


def recommendations():
    return list(map(recommendation, CASES))


def zeroplan(*arguments):
    """Exit code, standard output and standard error of the command, in this process."""
    out, err, before = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = ["zeroplan", *arguments]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as stop:
            main()
    finally:
        sys.argv = before
    return stop.value.code, out.getvalue(), err.getvalue()


def leaves(section, prefix=""):
    """(path, value) of every entry that is no section."""
    for name, value in section.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def sections(config, prefix=""):
    for name, value in config.items():
        if isinstance(value, dict):
            yield prefix + name
            yield from sections(value, f"{prefix}{name}.")


def trainer_value(path, job):
    """What transformers 5.23 puts for "auto" (integrations/deepspeed.py), None where it takes an argument."""
    hidden = job.model.shape.hidden
    fills = {"zero_optimization.reduce_bucket_size": hidden * hidden}
    if job.strategy.stage == 3:
        fills["zero_optimization.stage3_prefetch_bucket_size"] = int(0.9 * hidden * hidden)
        fills["zero_optimization.stage3_param_persistence_threshold"] = 10 * hidden
    return fills.get(path)


def explicit(strategy):
    """What stands for itself in a file: defaults that are None or 0 in a Strategy, written out."""
    changed = {"overlap_comm": strategy.overlaps}
    for name, count in (("offload_optimizer", 4), ("offload_param", 5)):
        part = getattr(strategy, name)
        if part and part.device == "nvme":
            part = part._replace(nvme_path=part.nvme_path or "/local_nvme", buffer_count=part.buffer_count or count)
        changed[name] = part
    return strategy._replace(**changed)


def effective(strategy):
    """The fields that do something at its stage, by name."""
    idle = {
        field for key, field in ZERO_FIELDS.items() if strategy.stage not in KEYS[f"zero_optimization.{key}"].stages
    }
    return {name: value for name, value in explicit(strategy)._asdict().items() if name not in idle}


def test_draws_cover_what_is_written():
    """Each stage, precision, optimizer and device is among the draws, or the other tests say little."""
    strategies = [job.strategy for _options, job in recommendations()]
    assert {s.stage for s in strategies} == {0, 1, 2, 3}
    assert {s.precision for s in strategies} == set(PRECISIONS)
    assert {s.optimizer for s in strategies} == set(OPTIMIZERS)
    for name in ("offload_optimizer", "offload_param"):
        assert {part.device if part else None for part in (getattr(s, name) for s in strategies)} == {
            None, "cpu", "nvme",
        }  # fmt: skip
    assert {"none", "full", "every-2", "every-4"} <= {s.checkpointing for s in strategies}
    assert len({job.ranks for _options, job in recommendations()}) >= 8


@pytest.mark.parametrize("case", CASES)
def test_for_the_trainer_auto_stands_where_the_trainer_puts_the_same(case):
    """No "auto" that the Trainer leaves alone; no number where its fill is that number."""
    _options, job = recommendation(case)
    config = ds_config(job, "hf")
    whole = dict(leaves(ds_config(job, "deepspeed")))
    for path, value in leaves(config):
        known = KEYS[path]
        if value == "auto":
            assert known.auto, path
            assert job.strategy.stage in known.stages, path
            fill = trainer_value(path, job)
            assert fill is None or fill == whole[path], path
        else:
            assert value == whole[path], path
            assert not known.auto or value != trainer_value(path, job), path
            assert not known.auto or trainer_value(path, job) is not None, path
    assert {"fp16.enabled", "bf16.enabled"} <= dict(leaves(config)).keys()
    assert whole.keys() - {"fp16.enabled", "bf16.enabled"} == dict(leaves(config)).keys() - {
        "fp16.enabled",
        "bf16.enabled",
    }


@pytest.mark.parametrize("case", CASES)
def test_trainer_arguments_say_what_auto_means(case):
    _options, job = recommendation(case)
    strategy, arguments = job.strategy, training_arguments(job)
    assert arguments["per_device_train_batch_size"] == strategy.micro_batch
    assert arguments["gradient_accumulation_steps"] == strategy.grad_accum
    assert arguments["max_grad_norm"] == strategy.gradient_clipping
    assert [name for name in ("fp16", "bf16") if arguments.get(name)] == [strategy.precision][
        : strategy.precision != "fp32"
    ]
    every = arguments.get("gradient_checkpointing_kwargs", {}).get("every_n_layers", 1)
    again = ("full" if every == 1 else f"every-{every}") if arguments.get("gradient_checkpointing") else "none"
    assert again == (strategy.checkpointing if strategy.checkpointing != "selective" else "none")
    assert ("optim" in arguments) == ("optimizer" not in ds_config(job, "hf"))


@pytest.mark.parametrize("case", CASES)
def test_for_deepspeed_every_value_is_written(case):
    _options, job = recommendation(case)
    config = ds_config(job, "deepspeed")
    for path, value in leaves(json.loads(dumps(config))):
        assert value != "auto", path
        if KEYS[path].kind.startswith("integer"):
            assert type(value) is int, path
    batch = config["train_micro_batch_size_per_gpu"] * config["gradient_accumulation_steps"] * job.ranks
    assert config["train_batch_size"] == batch
    asked = job.workload.global_batch
    assert asked is None or batch == asked
    on = [name for name in ("fp16", "bf16") if config.get(name, {}).get("enabled")]
    assert on == [job.strategy.precision][: job.strategy.precision != "fp32"]


def legal(known, value):
    """Whether DeepSpeed's own type and bounds take the value."""
    plain = {"integer": int, "number": (int, float), "boolean": bool, "string": str, "array": list, "object": dict}
    kinds = [plain[kind] for kind in known.kind.split("|") if kind in plain]
    if not any(isinstance(value, kind) and (kind is bool) == isinstance(value, bool) for kind in kinds):
        return False
    if known.choices:
        return value in known.choices
    low, above, high, below = known.minimum, known.exclusive_minimum, known.maximum, known.exclusive_maximum
    return (
        (low is None or value >= low) and (above is None or value > above)
        and (high is None or value <= high) and (below is None or value < below)
    )  # fmt: skip


@pytest.mark.parametrize("target", ["hf", "deepspeed"])
@pytest.mark.parametrize("case", CASES)
def test_every_key_is_known_and_does_something(case, target):
    """Each key is in the table by its first spelling, legal, not deprecated, and has an effect at the stage."""
    _options, job = recommendation(case)
    config = ds_config(job, target)
    for path, value in leaves(config):
        known = KEYS[path]
        assert job.strategy.stage in known.stages, path
        assert not known.deprecated, path
        assert value == "auto" or legal(known, value), f"{path}: {value!r}"
    for path in sections(config):
        assert job.strategy.stage in KEYS[path].stages, path
    if job.strategy.stage in (1, 2):
        assert config["zero_optimization"]["allgather_bucket_size"] % 2 == 0
    devices = [config["zero_optimization"].get(f"offload_{part}", {}) for part in ("optimizer", "param")]
    on_disk = [section for section in devices if section.get("device") == "nvme"]
    assert ("aio" in config) == bool(on_disk)
    assert all(section["nvme_path"].startswith("/") for section in on_disk)


@pytest.mark.parametrize("case", CASES)
def test_reading_back_gives_the_same_strategy(case):
    _options, job = recommendation(case)
    strategy = job.strategy
    outside = {name: getattr(strategy, name) for name in ("checkpointing", "attention")}
    if OPTIMIZERS[strategy.optimizer].config_type is None:
        outside["optimizer"] = strategy.optimizer
    stated = read_config(json.loads(dumps(ds_config(job, "deepspeed"))), "ds_config.json")
    assert stated.auto == ()
    assert stated.notes == ()
    assert stated.train_batch_size == strategy.micro_batch * strategy.grad_accum * job.ranks
    assert effective(Strategy(**stated.fields, **outside)) == effective(strategy)


def argument_flags(job, arguments):
    """TrainingArguments as flags of this command line."""
    typed = ["--micro-batch", str(arguments["per_device_train_batch_size"])]
    typed += ["--grad-accum", str(arguments["gradient_accumulation_steps"])]
    typed += ["--precision", next((name for name in ("fp16", "bf16") if arguments.get(name)), "fp32")]
    typed += ["--checkpointing", job.strategy.checkpointing]  # selective is in no argument, nor is attention
    typed += ["--attention", job.strategy.attention]
    if "optim" in arguments:
        known = {o.trainer: name for name, o in OPTIMIZERS.items() if o.config_type is None}
        typed += ["--optimizer", known[arguments["optim"]]]
    return typed


COUNTED = ("memory", "traffic")
WORKLOAD = ("model", "params", "gpus", "gpu_mem", "host_mem", "nvme", "seq")


@pytest.mark.parametrize("case", CASES)
def test_estimating_the_written_file_gives_the_planned_bytes(case, tmp_path):
    """`recommend -o FILE`, then `estimate --config FILE`: same strategy, same ledger, whole. So for the other target."""
    options, job = recommendation(case)
    typed_for, other = ("hf", "deepspeed")[:: 1 if case % 2 else -1]
    job = job if typed_for == "hf" else chosen(options, typed_for)  # of every k-th layer the Trainer alone is told
    paths = {target: tmp_path / f"{target}.json" for target in (typed_for, other)}
    words = ("recommend", *flags(options), "--json", "-o", str(paths[typed_for]), "--for", typed_for)
    code, out, _err = zeroplan(*words)
    assert code == 0
    planned = json.loads(out)["plan"]
    assert paths[typed_for].read_text(encoding="utf-8") == dumps(ds_config(job, typed_for))
    paths[other].write_text(dumps(ds_config(job, other)), encoding="utf-8")
    outside = {name: value for name, value in options.items() if name in WORKLOAD}
    for target, path in paths.items():
        typed = argument_flags(job, training_arguments(job))
        if target == "deepspeed":
            typed = typed[6:]  # batch and precision stand in the file
        code, out, err = zeroplan("estimate", "--config", str(path), *flags(outside), *typed, "--json")
        assert code == 0, err
        estimated = json.loads(out)
        assert {part: estimated[part] for part in COUNTED} == {part: planned[part] for part in COUNTED}
        read, meant = (effective(as_strategy(found["strategy"])) for found in (estimated, planned))
        assert read == meant


def as_strategy(found):
    offloads = {
        name: Offload(**found[name]) if found[name] else None for name in ("offload_optimizer", "offload_param")
    }
    return Strategy(**{**found, **offloads})


@pytest.mark.parametrize("target", ["hf", "deepspeed"])
@pytest.mark.parametrize("case", CASES[::6])
def test_the_same_request_gives_the_same_bytes(case, target):
    """`-o -` prints the config alone, ends with a line break, and repeats itself."""
    options, job = recommendation(case)
    job = job if target == "hf" else chosen(options, target)  # which is told of fewer kinds of checkpointing
    first = zeroplan("recommend", *flags(options), "-o", "-", "--for", target)
    shared.anew()
    assert first == zeroplan("recommend", *flags(options), "-o", "-", "--for", target)
    code, out, err = first
    assert (code, err) == (0, "")
    assert out == dumps(ds_config(job, target))
    assert out.endswith("}\n")
    assert isinstance(json.loads(out), dict)


CPU = {"device": "cpu"}
STATED = [
    (stage, path, value)
    for stages, path, value in (
        ((0, 1, 2, 3), "gradient_clipping", 0.5),
        ((0, 1, 2, 3), "gradient_clipping", 0),
        ((1, 2, 3), "zero_optimization.reduce_bucket_size", 12_345_678),
        ((1, 2, 3), "zero_optimization.overlap_comm", False),
        ((1, 2, 3), "zero_optimization.contiguous_gradients", False),
        ((1, 2, 3), "zero_optimization.reduce_scatter", False),
        ((1, 2), "zero_optimization.allgather_bucket_size", 20_000_000),
        ((3,), "zero_optimization.stage3_prefetch_bucket_size", 0),
        ((3,), "zero_optimization.stage3_param_persistence_threshold", 0),
        ((3,), "zero_optimization.stage3_max_live_parameters", 2_000_000_000),
        ((3,), "zero_optimization.stage3_max_reuse_distance", 0),
        ((3,), "zero_optimization.sub_group_size", 10_000_000),
        ((1, 2, 3), "zero_optimization.offload_optimizer", {**CPU, "pin_memory": False}),
        ((3,), "zero_optimization.offload_optimizer", {**CPU, "pin_memory": True, "ratio": 0.5}),
        ((1, 2), "zero_optimization.round_robin_gradients", True),
        ((1, 2), "zero_optimization.use_multi_rank_bucket_allreduce", False),
        ((3,), "zero_optimization.stage3_model_persistence_threshold", 1000),
        ((3,), "zero_optimization.zero_hpz_partition_size", 2),
        ((1, 2, 3), "data_types.grad_accum_dtype", "fp32"),
        ((0, 1, 2, 3), "communication_data_type", "fp32"),
        ((1, 2, 3), "optimizer.params.torch_adam", True),
        ((0, 1, 2, 3), "optimizer.params.lr", 3e-4),
        ((0, 1, 2, 3), "optimizer.params.betas", [0.9, 0.95]),
        ((0, 1, 2, 3), "optimizer.params.weight_decay", 0.1),
        ((0, 1, 2, 3), "scheduler", {"type": "WarmupLR", "params": {"warmup_num_steps": 10}}),
    )
    for stage in stages
]


def at(config, path):
    for name in path.split("."):
        config = config.get(name, {})
    return config


@pytest.mark.parametrize(("stage", "path", "value"), STATED, ids=str)
def test_what_a_given_config_says_is_written_again(stage, path, value, tmp_path):
    """`recommend --config FILE` keeps the file's own settings."""
    given = {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 4,
        "bf16": {"enabled": True},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
        "zero_optimization": {"stage": stage},
    }
    inside = given
    *outer, last = path.split(".")
    for name in outer:
        inside = inside.setdefault(name, {})
    inside[last] = value
    file = tmp_path / "given.json"
    file.write_text(json.dumps(given), encoding="utf-8")
    request = ("--model", "qwen2.5-0.5b", "--gpus", "4", "--gpu-mem", "80", "--host-mem", "1TB")
    code, out, err = zeroplan("recommend", "--config", str(file), *request, "-o", "-", "--for", "deepspeed")
    assert code == 0, err
    assert at(json.loads(out), path) == value


SMALL = ("recommend", "--model", "gpt2", "--gpus", "2", "--gpu-mem", "24")


class TestFile:
    def test_written_whole_and_alone(self, tmp_path):
        path = tmp_path / "made.json"
        code, out, err = zeroplan(*SMALL, "-o", str(path))
        assert (code, err) == (0, "")
        assert out
        assert [entry.name for entry in tmp_path.iterdir()] == ["made.json"]
        printed = zeroplan(*SMALL, "-o", "-")[1]
        assert path.read_text(encoding="utf-8") == printed
        assert path.stat().st_mode & 0o777 == 0o644

    def test_an_existing_file_stays(self, tmp_path):
        path = tmp_path / "mine.json"
        path.write_text("mine", encoding="utf-8")
        code, out, err = zeroplan(*SMALL, "-o", str(path))
        assert (code, out) == (2, "")
        assert "--force" in err
        assert err.count("\n") == 1
        assert path.read_text(encoding="utf-8") == "mine"
        assert len(list(tmp_path.iterdir())) == 1

    def test_force_replaces_it(self, tmp_path):
        path = tmp_path / "mine.json"
        path.write_text("mine" * 10_000, encoding="utf-8")
        assert zeroplan(*SMALL, "-o", str(path), "--force")[0] == 0
        assert path.read_text(encoding="utf-8") == zeroplan(*SMALL, "-o", "-")[1]
        assert len(list(tmp_path.iterdir())) == 1

    @pytest.mark.parametrize("place", ["", "missing/made.json"])
    def test_a_place_that_cannot_be_written(self, place, tmp_path):
        code, out, err = zeroplan(*SMALL, "-o", str(tmp_path / place))
        assert (code, out) == (2, "")
        assert err.startswith("zeroplan: ")
        assert err.count("\n") == 1
        assert list(tmp_path.iterdir()) == []

    def test_a_failure_midway_leaves_nothing(self, tmp_path, monkeypatch):
        path = tmp_path / "mine.json"
        path.write_text("mine", encoding="utf-8")

        def full(*_args):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("pathlib.Path.replace", full)
        code, _out, err = zeroplan(*SMALL, "-o", str(path), "--force")
        assert code == 2
        assert "no space left" in err
        assert path.read_text(encoding="utf-8") == "mine"
        assert len(list(tmp_path.iterdir())) == 1

    def test_nothing_is_written_when_nothing_fits(self, tmp_path):
        path = tmp_path / "made.json"
        request = ("--params", "400B", "--gpus", "1", "--gpu-mem", "16", "--stage", "1", "--offload-optimizer", "none")
        code, _out, _err = zeroplan("recommend", *request, "-o", str(path))
        assert code == 1
        assert not path.exists()

    @pytest.mark.parametrize("more", [("--json", "-o", "-"), ("--for", "accelerate", "-o", "-")])
    def test_two_things_on_one_output_or_an_unknown_target(self, more):
        code, out, err = zeroplan(*SMALL, *more)
        assert (code, out) == (2, "")
        assert err.startswith("zeroplan: ")


def test_the_trainer_is_told_of_liger():
    """transformers 5.23 training_args.py: liger_kernel_config is handed to the function that patches the model."""
    assert "use_liger_kernel" not in training_arguments(job("llama-3.1-8b"))
    assert training_arguments(job("llama-3.1-8b", kernels="liger"))["use_liger_kernel"] is True
    alone = training_arguments(job("llama-3.1-8b", kernels="liger-loss"))
    assert not any(alone["liger_kernel_config"].values())
    assert "fused_linear_cross_entropy" not in alone["liger_kernel_config"]


@pytest.mark.parametrize("target", TARGETS)
def test_check_finds_nothing_in_what_is_written(target):
    """But advice on a stage that was asked for: ZeRO on one GPU, with nothing to divide."""
    for options, planned in recommendations():
        written = plan_text = dumps(ds_config(planned, target))
        name, arguments = "ds_config.json", None
        if target == "hf":
            arguments = read_arguments("args.json", arguments_file(training_arguments(planned), name))
        if target == "accelerate":
            name, plan_text = "accelerate.yaml", accelerate_yaml(planned, "ds_config.json")
        known = read_inputs(Options(gpus=options["gpus"]), reader=target, arguments=arguments)
        beside = ("ds_config.json", written)
        checked = check_file(
            name, plan_text, known.setting, lambda _path, beside=beside: beside, partial(setting_of, known)
        )
        found = {one.rule for one in checked.findings} - ({"ZP423"} if "stage" in options else set())
        assert found == set(), (options, checked.findings)


OPERATORS = ("checkpointing", "attention", "kernels", "optimizer")


def test_check_with_the_model_says_that_it_fits():
    """As the plan was made: on the same cards, with the same operators, and as much kept free."""
    for options, planned in map(recommendation, CASES[::6]):
        names = ("model", "params", "gpus", "gpu_mem", "host_mem", "nvme", "seq")
        typed = {name: options[name] for name in names if name in options}
        typed |= {name: getattr(planned.strategy, name) for name in OPERATORS}
        known = read_inputs(Options(**typed, headroom="5%"), reader="deepspeed")
        checked = check_file(
            "ds_config.json", dumps(ds_config(planned, "deepspeed")), known.setting, lambda _path: None,
            partial(setting_of, known),
        )  # fmt: skip
        assert not [one for one in checked.findings if one.severity == "error" or one.rule.startswith("ZP90")]
