"""Written configs through DeepSpeed itself: its parser, the Trainer's filling of "auto", and a few real engines."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import random
import sys
import types

import pytest

from tests.deepspeed.test_write import chosen, draw
from zeroplan.deepspeed.write import ds_config, dumps
from zeroplan.emit.trainer import training_arguments
from zeroplan.sources import DEEPSPEED
from zeroplan.specs.optimizer import OPTIMIZERS

os.environ.setdefault("DS_ACCELERATOR", "cpu")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
deepspeed = pytest.importorskip("deepspeed")
transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")
pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(deepspeed.__version__ != DEEPSPEED, reason=f"written for {DEEPSPEED}"),
]

CASES = 72


def _recommendations():
    rng, found = random.Random(1908), []
    while len(found) < CASES:
        if (job := chosen(draw(rng))) is not None:
            found.append(job)
    return found


JOBS = _recommendations()


class Ranks:
    """The part of an mpu that the parser asks for."""

    def __init__(self, ranks):
        self.get_data_parallel_world_size = lambda: ranks


@pytest.fixture
def parsed(monkeypatch):
    """DeepSpeed's parser, as rank 0 of any number."""
    from deepspeed.runtime import config as module

    monkeypatch.setattr(module.dist, "get_rank", lambda *_args: 0)
    return lambda config, ranks: module.DeepSpeedConfig(config, mpu=Ranks(ranks))


def written(job, target):
    """The config as it comes out of the file."""
    return json.loads(dumps(ds_config(job, target)))


def filled(job):
    """The config for the Trainer after transformers' own filling, with this plan's TrainingArguments."""
    from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

    config = HfTrainerDeepSpeedConfig(written(job, "hf"))
    arguments = trainer_arguments(job)
    model = types.SimpleNamespace(config=types.SimpleNamespace(hidden_size=job.model.shape.hidden))
    config.trainer_config_process(arguments)
    config.trainer_config_finalize(arguments, model, num_training_steps=100)
    return config.config


def trainer_arguments(job):
    """The Trainer's own defaults, changed where the plan says so."""
    fields = dataclasses.fields(transformers.TrainingArguments)
    values = {f.name: None if f.default is dataclasses.MISSING else f.default for f in fields}
    said = training_arguments(job)
    assert said.keys() <= values.keys()
    values |= {**said, "world_size": job.ranks, "get_warmup_steps": lambda _steps: 0}
    return types.SimpleNamespace(**values)


def check(found, job):
    """What DeepSpeed resolved is what was planned."""
    strategy, zero = job.strategy, found.zero_config
    assert found.world_size == job.ranks
    batch = strategy.micro_batch, strategy.grad_accum, strategy.micro_batch * strategy.grad_accum * job.ranks
    resolved = found.train_micro_batch_size_per_gpu, found.gradient_accumulation_steps, found.train_batch_size
    assert resolved == batch
    assert found.gradient_clipping == strategy.gradient_clipping
    assert found.float16_config.enabled == (strategy.precision == "fp16")
    assert found.bfloat16_config.enabled == (strategy.precision == "bf16")
    assert zero.stage == strategy.stage
    if strategy.stage > 0:
        assert zero.reduce_bucket_size == strategy.reduce_bucket_size
        assert zero.overlap_comm == strategy.overlaps
        assert zero.contiguous_gradients == strategy.contiguous_gradients
        assert zero.reduce_scatter == strategy.reduce_scatter
    if strategy.stage in (1, 2):
        assert zero.allgather_bucket_size == strategy.allgather_bucket_size
    if strategy.stage == 3:
        assert zero.prefetch_bucket_size == strategy.prefetch_bucket_size
        assert zero.param_persistence_threshold == strategy.param_persistence_threshold
        assert zero.model_persistence_threshold == strategy.model_persistence_threshold
        assert zero.max_live_parameters == strategy.max_live_parameters
        assert zero.max_reuse_distance == strategy.max_reuse_distance
        assert zero.sub_group_size == strategy.sub_group_size
        assert zero.gather_16bit_weights_on_model_save
    for name, count in (("offload_optimizer", 4), ("offload_param", 5)):
        meant, real = getattr(strategy, name), getattr(zero, name)
        assert (real.device if real else "none") == (meant.device if meant else "none")
        if meant:
            assert real.pin_memory == meant.pin_memory
            assert real.buffer_count == (meant.buffer_count or count)
    named = OPTIMIZERS[strategy.optimizer].config_type
    assert (found.optimizer_name or "").lower() == (named or "").lower()


@pytest.mark.parametrize("case", range(CASES))
def test_deepspeed_reads_what_is_planned(case, parsed):
    job = JOBS[case]
    check(parsed(written(job, "deepspeed"), job.ranks), job)


@pytest.mark.parametrize("case", range(CASES))
def test_the_trainer_fills_in_what_is_planned(case, parsed):
    """No mismatch, no "auto" left, and DeepSpeed then reads the same plan."""
    job = JOBS[case]
    config = filled(job)
    assert '"auto"' not in json.dumps(config)
    check(parsed(config, job.ranks), job)


@pytest.mark.parametrize("name", [name for name, known in OPTIMIZERS.items() if known.config_type is None])
def test_the_trainer_knows_the_optimizer(name):
    from transformers.training_args import OptimizerNames

    assert OPTIMIZERS[name].trainer in {entry.value for entry in OptimizerNames}


def _engines():
    """A dozen of the drawn plans that a CPU without libaio can run: no NVMe, no fused Lion or Lamb, no Muon (it compiles for minutes)."""
    found = {}
    for job in JOBS:
        strategy, devices = job.strategy, {"none"}
        devices |= {part.device for part in (strategy.offload_optimizer, strategy.offload_param) if part}
        if strategy.grad_accum > 8 or "nvme" in devices:
            continue
        if strategy.optimizer in ("adam", "adamw"):
            placed = "offload_param" if strategy.offload_param else "offload_optimizer"
            key = (strategy.stage, placed if len(devices) > 1 else strategy.precision)
        elif strategy.optimizer in ("adagrad", "sgd-momentum") and strategy.stage and len(devices) == 1:
            key = (strategy.optimizer,)
        else:
            continue
        found.setdefault(key, job)
    return found


ENGINES = _engines()


@pytest.fixture(scope="module")
def operators():
    """DeepSpeed's optimizers for the CPU: the first run on a machine compiles them, which takes minutes.

    What every child needs is imported here, once.
    """
    import torch.testing._internal.distributed.fake_pg  # noqa: F401
    from deepspeed.ops.op_builder import CPUAdamBuilder, FusedAdamBuilder

    assert transformers.LlamaForCausalLM
    for builder in (FusedAdamBuilder, CPUAdamBuilder):
        builder().load(verbose=False)


def train(job, config, answers):
    """Two steps of a tiny llama as rank 0 of the job's ranks, with collectives that answer for themselves."""
    try:
        import torch

        torch.set_num_threads(1)
        engine = engine_of(job, config)
        losses = []
        for _ in range(2 * job.strategy.grad_accum):
            tokens = torch.randint(0, 64, (1, 8))
            loss = engine(input_ids=tokens, labels=tokens).loss
            engine.backward(loss)
            engine.step()
            losses.append(loss.item())
        answers.put((engine.global_steps, engine.skipped_steps, losses))
    except BaseException as error:
        answers.put(f"{type(error).__name__}: {error}")


def engine_of(job, config):
    import torch
    import torch.distributed as torch_dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    places = {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": job.ranks, "LOCAL_SIZE": job.cluster.gpus_per_node}
    os.environ.update({name: str(value) for name, value in places.items()})
    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT="29500")

    def gathered(output_tensor, input_tensor, *_args, **_options):
        output_tensor.zero_()
        output_tensor.view(-1)[: input_tensor.numel()].copy_(input_tensor.view(-1))
        return Done()

    def scattered(output_tensor, input_tensor, *_args, **_options):
        output_tensor.view(-1).copy_(input_tensor.view(-1)[: output_tensor.numel()])
        return Done()

    torch_dist.all_gather_into_tensor = gathered
    torch_dist.reduce_scatter_tensor = scattered
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None
    deepspeed.accelerator.get_accelerator().is_fp16_supported = lambda: True
    torch_dist.init_process_group("fake", rank=0, world_size=job.ranks, store=FakeStore())
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=64, **shape))
    dtype = getattr(torch, job.strategy.dtype)
    return deepspeed.initialize(model=model.to(dtype), model_parameters=model.parameters(), config=config)[0]


class Done:
    """A collective that has finished."""

    def wait(self):
        return True

    def is_completed(self):
        return True


@pytest.mark.parametrize("key", sorted(ENGINES, key=str), ids=str)
def test_an_engine_trains_with_it(key, operators):
    """`deepspeed.initialize` and two optimizer steps, none skipped, in a child: DeepSpeed keeps global state."""
    job = ENGINES[key]
    config = written(job, "deepspeed")
    if job.strategy.precision == "fp16":
        config["fp16"]["initial_scale_power"] = 4  # at the default, 16, the tiny model overflows in its first step
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    child = context.Process(target=train, args=(job, config, answers))
    child.start()
    answer = answers.get(timeout=120)
    child.join(timeout=30)
    assert not isinstance(answer, str), answer
    steps, skipped, losses = answer
    assert (steps, skipped) == (2, 0)
    assert all(loss == loss and loss < 100 for loss in losses)
