"""What is remembered of one job is not given to another."""

from __future__ import annotations

import inspect
import pkgutil
import random
from functools import partial
from importlib import import_module

import pytest

import zeroplan.costs
from tests.jobs import job
from tests.verify.recorded import job_of
from zeroplan.costs.deepspeed.fetch import micro_steps
from zeroplan.costs.deepspeed.partitions import persistent_elements, persistent_tensors
from zeroplan.costs.deepspeed.traffic import traffic
from zeroplan.errors import ZeroplanError
from zeroplan.specs.software import TRANSFORMERS
from zeroplan.specs.strategy import Offload
from zeroplan.verify.cases import draw

CHANGES = {
    "stage": (0, 1, 2, 3), "precision": ("bf16", "fp16", "fp32"), "optimizer": ("adamw", "sgd", "lion", "muon"),
    "micro_batch": (1, 2, 3), "grad_accum": (1, 2, 3, 4), "checkpointing": ("none", "selective", "full", "every-2"),
    "attention": ("sdpa", "eager", "flash_attention_2"), "reduce_bucket_size": (1000, 100_000, 500_000_000),
    "allgather_bucket_size": (1000, 10**9), "prefetch_bucket_size": (0, 12_344, 10**6),
    "param_persistence_threshold": (0, 1000, 10**5), "max_live_parameters": (0, 10**4, 10**9),
    "max_reuse_distance": (0, 10**5, 10**9), "sub_group_size": (1000, 10**9), "overlap_comm": (True, False),
    "contiguous_gradients": (True, False), "reduce_scatter": (True, False), "round_robin_gradients": (True, False),
    "parameter_alignment": (True, False), "use_multi_rank_bucket_allreduce": (True, False),
    "kernels": ("transformers", "liger"), "gradient_clipping": (0.0, 1.0), "prescale_gradients": (True, False), "grad_accum_dtype": (None, "fp32"),
    "communication_dtype": (None, "fp32"), "master_dtype": (None, "bf16"), "states_as_master": (True, False),
    "buffer_dtype": (None, "fp32"), "check_grad_overflow": (True, False), "immediate_grad_update": (True, False),
    "compute_grad_norm": (True, False), "torch_adam": (True, False), "amsgrad": (True, False),
    "update": ("fused", "foreach", "single-tensor"), "client_optimizer": (True, False),
    "built_in": (None, "fp32"), "built_on": ("host", "gpu"), "decoupled_decay": (True, False), "weight_decay": (0.0, 0.01),
    "parameter_groups": (1, 2), "hpz_partition_size": (1, 2), "memory_efficient_linear": (True, False),
    "autocast": (None, "bf16"), "quantized_weights": (True, False), "quantized_gradients": (True, False),
    "all_reduce_for_fetch": (True, False), "allgather_sequential": (True, False), "backend": ("cuda", "cpu"),
    "native_pinning": (True, False), "ns_method": ("gram", "standard"), "aio_block_size": (1024, 10**5, 2**20),
    "offload_param": (None, Offload("cpu"), Offload("nvme", max_in_cpu=0), Offload("nvme", max_in_cpu=0, buffer_count=64)),
}  # fmt: skip
"""Values of a strategy's fields, of which one to three are set anew."""


def gathered(one):
    """Calls within the node."""
    return sum(transfer.calls for transfer in traffic(one) if transfer.group == "hpz")


def test_more_micro_steps_gather_more_within_the_node():
    """With secondary partitions the first micro-step differs, so a step's calls stand for all of its micro-steps."""
    one = job("llama-3.2-1b", gpus=16, stage=3, hpz_partition_size=8, max_reuse_distance=0)
    third, fourth, fifth = (gathered(one.at(grad_accum=count)) for count in (3, 4, 5))
    assert fifth - fourth == fourth - third > 0


def test_one_node_of_sixteen_is_not_two_of_eight():
    """qgZ changes nothing on one node."""
    two = job("llama-3.2-1b", gpus=16, stage=3, quantized_gradients=True)
    one = two._replace(cluster=two.cluster._replace(nodes=1, gpus_per_node=16))
    assert {transfer.collective for transfer in traffic(two)} >= {"all_to_all"}
    assert "all_to_all" not in {transfer.collective for transfer in traffic(one)}


def test_groups_are_named_for_what_runs_in_them():
    """Over all ranks it is data parallelism, also where secondary partitions are shared by all of them."""
    one = job("llama-3.2-1b", gpus=8, stage=3, hpz_partition_size=8)
    assert {transfer.group for transfer in traffic(one)} == {"dp"}
    both = job("llama-3.2-1b", gpus=16, stage=3, hpz_partition_size=8, quantized_gradients=True)
    assert {transfer.group for transfer in traffic(both) if transfer.collective == "all_to_all"} == {"qgz"}


def test_a_parameter_gathered_in_fp32_is_not_one_in_bf16():
    """And beyond model_persistence_threshold no small tensor stays."""
    wide, narrow = (job("bert-base", stage=3, precision=precision) for precision in ("fp32", "bf16"))
    assert (list(persistent_elements(wide)), list(persistent_elements(narrow))) == (["float32"], ["bfloat16"])
    none_stays = narrow.at(model_persistence_threshold=0)
    assert persistent_tensors(narrow)
    assert not persistent_tensors(none_stays)


def remembered():
    """Every count that is remembered, with what picks its key."""
    found = {}
    for module in pkgutil.walk_packages(zeroplan.costs.__path__, "zeroplan.costs."):
        for name, count in vars(import_module(module.name)).items():
            known = inspect.getclosurevars(count).nonlocals if inspect.isfunction(count) else {}
            if {"key_of", "count"} <= known.keys():
                more = {"software": TRANSFORMERS} if "software" in inspect.signature(count).parameters else {}
                counted_of, key_of = (partial(known[which], **more) for which in ("count", "key_of"))
                found[f"{count.__module__}.{name}"] = counted_of, partial(key, key_of)
    return found


def key(key_of, one):
    """Where what the key reads contradicts itself nothing is remembered: a key that equals no other."""
    try:
        return key_of(one)
    except ZeroplanError:
        return object()


def plain(value):
    """Comparable, whatever it is made of."""
    if isinstance(value, dict):
        return {plain(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(entry) for entry in value]
    if isinstance(value, (set, frozenset)) or not hasattr(value, "__dict__") or callable(value):
        return value
    return {name: plain(entry) for name, entry in vars(value).items() if name not in ("job", "strategy")}


def counted(count, one):
    """Some of what is drawn contradicts itself, or is asked for what other stages know."""
    try:
        return plain(count(one))
    except Exception as error:
        return type(error)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_remembered_is_the_same_for_all_that_share_a_key(seed):
    """Counts that say they read the same of two strategies, each made anew."""
    dice, counts = random.Random(seed), remembered()
    assert len(counts) > 50
    for _case in range(4):
        try:
            first = job_of(draw(dice.randrange(10**6)))
        except ZeroplanError:
            continue
        for _change in range(6):
            names = dice.sample(sorted(CHANGES), dice.randint(1, 3))
            second = first.at(**{name: dice.choice(CHANGES[name]) for name in names})
            for name, (count, read) in counts.items():
                if second != first and read(first) == read(second):
                    assert counted(count, first) == counted(count, second), (name, names)
            first = second


def test_small_partitions_stay_in_memory_by_the_block_size_of_the_job():
    """Two jobs of one model that differ in aio.block_size alone: what is shorter than a block is not read from NVMe."""
    nvme = Offload("nvme", max_in_cpu=0, buffer_count=64)
    short = job("gpt2-xl", stage=3, offload_param=nvme, aio_block_size=2**20)
    long = short.at(aio_block_size=2**23)
    alone = job("gpt2-xl", stage=3, offload_param=nvme, aio_block_size=2**23)
    assert len(micro_steps(short).steady.read) > len(micro_steps(long).steady.read)
    assert micro_steps(long).steady.read == micro_steps(alone).steady.read
