"""The clock: its work against the trace's FLOPs, its terms, and the shape of things with their sources."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from zeroplan.catalog import hardware
from zeroplan.catalog.models import from_preset
from zeroplan.clock import GROUPS, StepTime
from zeroplan.costs.ledger import ledger
from zeroplan.costs.passes import timeline_request
from zeroplan.costs.timing.rates import rates
from zeroplan.costs.timing.speed import HARDWARE, MODEL, interval, speed
from zeroplan.costs.timing.step import step_time
from zeroplan.costs.timing.work import pairs, work
from zeroplan.formulas import timing
from zeroplan.specs.cluster import Cluster, SourcedValue
from zeroplan.specs.job import Job
from zeroplan.specs.strategy import Offload, Strategy, Workload

PRESETS = (
    "llama-3.1-8b", "gpt2-xl", "opt-1.3b", "bloom-560m", "falcon-7b", "pythia-1.4b", "gemma-2-2b", "qwen2.5-7b",
    "qwen3-0.6b", "phi-2", "phi-3-mini", "olmo-7b", "mixtral-8x7b", "qwen3-30b-a3b", "deepseek-v2-lite", "gpt-j-6b",
    "starcoder2-15b", "mistral-7b-v0.1",
)  # fmt: skip


@cache
def model(name: str) -> Any:
    return from_preset(name)


def job(name: str = "llama-3.1-8b", cluster: Cluster | None = None, seq: int = 1024, **strategy: Any) -> Job:
    chosen = Strategy(**{"stage": 2, **strategy})
    return Job(model(name), cluster or hardware.cluster("dgx-h100"), Workload(seq), chosen)


def timed(one: Job) -> StepTime:
    return step_time(one, ledger(one))


@pytest.mark.parametrize("name", PRESETS)
def test_products_and_attention_are_those_of_the_trace(name: str):
    """The trace's FLOPs are compared with torch's own count (tests/autograd/test_flops.py)."""
    one = job(name, seq=512, micro_batch=2)
    one = one if one.model.has_sdpa else one.at(attention="eager")
    found, counted = work(one), one.model.profile.flops(timeline_request(one), causal=True)
    rope = 2.0 * 2 * 512 * one.model.shape.head_width  # some families make their rotary angles by a product
    products = found.layers.flops + found.head.flops
    assert products + found.attention == pytest.approx(counted.forward, abs=2 * rope)


def test_a_layers_bytes_by_hand():
    """GPT-2 XL, 1,600 wide: per token 30·1600 + 6·6400 bytes of element-wise operators, in 48 layers."""
    found = work(job("gpt2-xl", seq=512, micro_batch=3))
    assert found.elements == 48 * 3 * 512 * (30 * 1600 + 6 * 6400)


def test_products_take_their_multiplications_and_their_operands():
    # 2·512·1024·2048 FLOP at 1 TFLOP/s and 2·(512·1024 + 1024·2048 + 512·2048) bytes at 1 TB/s
    flops, touched = 2 * 512 * 1024 * 2048, 2 * (512 * 1024 + 1024 * 2048 + 512 * 2048)
    assert timing.products(flops, 1e12, touched, 1e12) == pytest.approx(2.1475e-3 + 7.34e-6, rel=1e-4)


def test_causal_attention_leaves_out_what_lies_ahead_and_beyond_a_window():
    sees = pairs(job("mistral-7b-v0.1", seq=8192, attention="flash_attention_2"))
    masked = pairs(job("mistral-7b-v0.1", seq=8192))  # torch's kernels get the window as a mask
    within = 4096 * 4097 / 2 + 4096 * 4096
    assert sees == 32 * within
    assert masked == 32 * 8192**2
    assert pairs(job("llama-3.1-8b", seq=1024)) == 32 * 1024 * 1025 / 2
    assert pairs(job("llama-3.1-8b", seq=1024, attention="eager")) == 32 * 1024**2


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize("accum", [1, 4])
def test_terms_and_groups_sum_to_the_step(stage: int, accum: int):
    found = timed(job(stage=stage, grad_accum=accum, checkpointing="full"))
    assert found.total == pytest.approx(sum(entry.seconds for entry in found.terms))
    assert found.total == pytest.approx(sum(found.of(group) for group in GROUPS))
    for entry in found.terms:
        assert entry.seconds == pytest.approx(entry.times * entry.rule(**entry.symbols))


def test_nothing_is_hidden_without_overlap():
    """overlap_comm off: what the ring needs is what the step adds; on, part of it is behind backward."""
    slow = hardware.cluster("p4d.24xlarge")._replace(nodes=2)
    off, on = (timed(job(cluster=slow, seq=4096, micro_batch=4, overlap_comm=flag)) for flag in (False, True))
    assert on.exposed_communication < 0.7 * off.exposed_communication
    assert on.compute == off.compute


def test_accumulation_pays_stage_2_and_3_every_micro_step_and_stage_1_once():
    """Stage 1 keeps gradients to the last micro-step (ZeRO, §5; runtime/engine.py:allreduce_gradients)."""
    for stage, grows in ((1, False), (2, True), (3, True)):
        one, four = (timed(job(stage=stage, grad_accum=accum)).exposed_communication for accum in (1, 4))
        assert (four > 2 * one) == grows


def test_stage_3_on_100_gbit_is_bound_by_the_network_and_on_800_it_is_not():
    """ZeRO++ (arXiv 2306.10209): 100 Gb/s a node and 1,024 tokens a GPU leave 14 TFLOP/s of V100's 125."""

    def share(network: float) -> float:
        cluster = hardware.cluster("dgx-a100")._replace(
            nodes=8, inter_node=SourcedValue(network, "test", "", "measured")
        )
        found = timed(job("llama-2-13b", cluster, 2048, stage=3, micro_batch=2, checkpointing="full"))
        return found.exposed_communication / found.total

    assert share(12.5e9) > 0.5  # more seconds wait for the network than compute
    assert share(100e9) < 1 / 3


def test_an_offloaded_optimizer_slows_the_step_as_published():
    """LLaMA-7B, 8 A800, checkpointing, four micro-steps: 14.4 s without and 31.2 s with, on a host of 0.4 G/s."""
    host = SourcedValue(0.42e9, "from those rows", "", "published")
    cluster = hardware.cluster("dgx-a100")._replace(host_adam=host)
    asked_for: dict[str, Any] = {
        "stage": 3, "micro_batch": 2, "grad_accum": 4, "checkpointing": "full", "attention": "sdpa",
    }  # fmt: skip
    without = timed(job("llama-2-7b", cluster, 4096, **asked_for))
    offloaded = timed(job("llama-2-7b", cluster, 4096, **asked_for, offload_optimizer=Offload("cpu")))
    assert offloaded.total - without.total == pytest.approx(31.22 - 14.38, rel=0.1)


def test_larger_micro_batches_raise_utilisation_to_a_plateau():
    def used(micro_batch: int) -> float:
        one = job("gpt2-xl", seq=1024, stage=1, micro_batch=micro_batch, grad_accum=64)
        found = speed(one, ledger(one)).utilisation
        return next(entry.value for entry in found if entry.convention == MODEL)

    found = [used(size) for size in (1, 2, 4, 8, 16, 32)]
    assert found == sorted(found)
    assert found[1] - found[0] > 5 * (found[5] - found[4])


def test_model_and_hardware_utilisation():
    """Llama-2-7B, 2,048 tokens: 6·6.74e9 + 12·32·4096·2048 = 43.65 GFLOP a token."""
    one = job("llama-2-7b", seq=2048, micro_batch=4)
    plain = speed(one, ledger(one))
    by_convention = {entry.convention: entry.value for entry in plain.utilisation}
    per_token = 6 * 6_738_415_616 + 12 * 32 * 4096 * 2048
    assert by_convention[MODEL] == pytest.approx(per_token * plain.tokens_per_gpu / 989e12)
    full = one.at(checkpointing="full")
    again = speed(full, ledger(full))
    model_flops, hardware_flops = ({e.convention: e.value for e in again.utilisation}[c] for c in (MODEL, HARDWARE))
    assert model_flops < by_convention[MODEL]
    assert hardware_flops / model_flops > by_convention[HARDWARE] / by_convention[MODEL] * 1.2


def test_checkpointed_layers_of_llama_stop_before_their_last_product():
    """Non-reentrant checkpointing stops when all that backward needs is there: down_proj's result is not.

    Reentrant checkpointing runs it all. Of Llama-3.1-8B's layer down_proj is 58.7M of 218.1M weights.
    """

    def again(kind: str) -> float:
        terms = {entry.name: entry for entry in timed(job(checkpointing=kind)).terms}
        return terms["matrix products, recomputation"].seconds / terms["matrix products, forward"].seconds

    assert again("full") == pytest.approx(1 - 58_720_256 / 218_103_808)
    assert again("full-reentrant") == pytest.approx(1)


def test_the_interval_says_what_is_not_known():
    known = job(offload_optimizer=Offload("cpu"), cluster=hardware.cluster("dgx-h200"))
    unknown = known._replace(cluster=known.cluster._replace(host_adam=None))
    narrow, wide = (interval(timed(one)) for one in (known, unknown))
    assert narrow.low < timed(known).total < narrow.high
    assert wide.high / timed(unknown).total > 2
    assert "optimizer on the CPU: rate assumed" in wide.reason


def test_fp32_runs_at_its_own_peak_and_fp8_faster_than_16_bits():
    fp32, bf16, fp8 = (rates(job(precision=precision)).products.value for precision in ("fp32", "bf16", "fp8"))
    assert rates(job(precision="fp32", autocast="bf16")).products.value == bf16
    assert fp32 == pytest.approx(0.8 * 67e12)
    assert bf16 < fp8 < 2 * bf16


def test_buckets_cost_at_both_ends():
    """Small ones by their latency, a large one because the last has no backward left to hide behind."""
    slow = hardware.cluster("p4d.24xlarge")._replace(nodes=2)

    def shows(cluster: Cluster, bucket: int, micro_batch: int) -> float:
        asked_for: dict[str, Any] = {"reduce_bucket_size": bucket, "overlap_comm": True, "micro_batch": micro_batch}
        return timed(job(cluster=cluster, **asked_for)).exposed_communication

    assert shows(slow, 500_000, 2) > 1.1 * shows(slow, 500_000_000, 2)
    fast = hardware.cluster("dgx-h100")
    assert shows(fast, 2_000_000_000, 8) > 1.05 * shows(fast, 500_000_000, 8)


def test_an_encoder_attends_to_all():
    assert pairs(job("bert-base", seq=512)) == 12 * 512**2


@pytest.mark.parametrize(
    ("stage", "gpus", "tensors"), [(0, 1, 148), (1, 1, 148), (2, 8, 19), (3, 8, 148)]
)  # fmt: skip
def test_an_update_starts_tensor_by_tensor(stage, gpus, tensors):
    """gpt2 has 148; eight ranks of stage 2 have a share of 19 at most. 0.25 ms each, with the work of the update in it."""
    one = job("gpt2", Cluster(nodes=1, gpus_per_node=gpus), stage=stage)
    assert timed(one).optimizer == pytest.approx(tensors * 0.25e-3)


def test_an_update_that_takes_longer_is_as_long_as_it_takes():
    """Llama-2-7B on one GPU: 6.74e9 parameters, 291 tensors."""
    one = job("llama-2-7b", Cluster(nodes=1, gpus_per_node=1), stage=0)
    assert timed(one).optimizer > 291 * 0.25e-3
    assert "waiting for the update to start" not in {entry.name for entry in timed(one).terms}


def test_fp32_at_stage_0_updates_all_at_once():
    one = job("gpt2", Cluster(nodes=1, gpus_per_node=1), stage=0, precision="fp32")
    assert "waiting for the update to start" not in {entry.name for entry in timed(one).terms}
