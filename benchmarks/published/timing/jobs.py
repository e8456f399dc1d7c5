"""A row as zeroplan's job, with the collectives of its engine and the software that ran it."""

from __future__ import annotations

import re
from typing import NamedTuple

from benchmarks.published import engines, transformers
from benchmarks.published.rows import Row, UncomputableError
from benchmarks.published.shapes import shape
from benchmarks.published.timing.clusters import cluster_of, with_early_flash
from zeroplan.clock import StepTime
from zeroplan.costs.engine import BACKWARD, FORWARD
from zeroplan.costs.ledger import ledger
from zeroplan.costs.timing.step import step_time
from zeroplan.errors import ZeroplanError
from zeroplan.formulas import volume
from zeroplan.ledger import Ledger, Tier, Transfer
from zeroplan.specs.job import Job
from zeroplan.specs.software import LIGER, TRANSFORMERS, Software, fitted, judged
from zeroplan.specs.strategy import Strategy, Workload

FSDP = Software(
    "PyTorch FSDP, eager", passes=TRANSFORMERS.passes, exposed_share=fitted(0.15),
    exposed_share_at_stage_3=fitted(0.15), logit_bytes=fitted(24.0), in_order=False,
)  # fmt: skip
COMPOSER = FSDP._replace(
    name="llm-foundry on PyTorch FSDP", passes=judged(1.0, "norms run in 16 bit as single kernels, GELU too")
)
COMPILED = FSDP._replace(name="PyTorch FSDP, compiled", passes=judged(0.5, "torch.compile fuses neighbours"))
MEGATRON = TRANSFORMERS._replace(
    name="Megatron's kernels under DeepSpeed", passes=judged(0.6, "norms, bias and activation, softmax fused by hand")
)


GPT_VOCABULARY = "50257"
"""Of a GPT that does not state its own."""
NO_DROPOUT = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
"""As MPT is trained; a layer with dropout at its end runs again to the end."""


OTHER_ENGINE = re.compile(r"deepcompile|oneflow")


class Timed(NamedTuple):
    job: Job
    ledger: Ledger
    software: Software

    row: Row | None = None
    """Where the model is split over ranks (parallel.py)."""

    @property
    def time(self) -> StepTime:
        if self.row is not None:
            from benchmarks.published.timing.parallel import parallel_step

            return parallel_step(self.row, self)
        return step_time(self.job, self.ledger, self.software)


def timed(row: Row) -> Timed:
    """Raises `UncomputableError` with the reason."""
    row = completed(row)
    framework = row.lower("framework")
    if any(row.degree(kind) > 1 for kind in ("sp", "ep")):
        raise UncomputableError("expert parallelism, or sequences split by Ulysses")
    if any(row.degree(kind) > 1 for kind in ("tp", "pp", "cp")):
        return _split_over_ranks(row)
    for pattern, reason in engines.OTHER_JOB:
        if re.search(pattern, " ".join(map(row.lower, ("framework", "notes", "seq", "what_was_measured")))):
            raise UncomputableError(reason)
    if found := OTHER_ENGINE.search(framework):
        raise UncomputableError(f"no form for {found[0]}")
    if re.search(r"fsdp|composer|torchtune|litgpt|lightning", framework):
        return _fully_sharded(row)
    if re.search(r"deepspeed|\bhf\b|trainer|transformers|swift|llama-?factory|axolotl", framework):
        return _deepspeed(row)
    if re.search(r"megatron|nemo|paddle", framework):
        return _split_over_ranks(row)
    raise UncomputableError(f"no form for {row.column('framework')!r}")


def completed(row: Row) -> Row:
    """With what its other columns say: a GPT's vocabulary, and the accumulation that tokens/s and step time make."""
    found = dict(row.text)
    if row.count("vocab") is None and "gpt" in row.lower("model"):
        found["vocab"] = GPT_VOCABULARY
    rate, seconds, size = row.number("tokens_per_s_per_gpu"), row.number("step_time_s"), row.count("micro_batch")
    if row.count("grad_accum") is None and rate and seconds and size and row.count("seq"):
        replicas = row.gpus // (row.tp * row.pp * row.degree("cp"))
        found["grad_accum"] = str(max(1, round(rate * seconds * row.gpus / (replicas * size * row.seq))))
    return Row(found)


def _attention(row: Row) -> str:
    text = row.lower("attention_impl")
    if re.search(r"no flash|eager|multihead", text):
        return "eager"
    return "flash_attention_3" if re.search(r"flash[-_ ]?(attn|attention)[-_ ]?3|fa3", text) else "flash_attention_2"


def _deepspeed(row: Row) -> Timed:
    job, _assumed = transformers.job_of(row, shape(row))
    job = job._replace(cluster=cluster_of(row)).at(attention=_attention(row))
    if row.checkpointing == "full" and not re.search(r"non-reentrant", row.lower("checkpointing")):
        job = job.at(checkpointing="full-reentrant")
    if "zero++" in row.lower("framework"):
        per_node = job.cluster.gpus_per_node
        job = job.at(quantized_weights=True, quantized_gradients=True, hpz_partition_size=per_node)
    fused = re.search(r"megatron", f"{row.lower('framework')} {row.lower('attention_impl')}")
    software = MEGATRON if fused else LIGER if row.liger else TRANSFORMERS
    try:
        return Timed(job, ledger(job), software)
    except ZeroplanError as error:
        raise UncomputableError(f"zeroplan refuses the job: {error}") from error


def _fully_sharded(row: Row) -> Timed:
    one, framework = shape(row), row.lower("framework")
    precision = "fp8" if re.search(r"fp8|float8", row.lower("precision")) else "bf16"
    strategy = Strategy(
        stage=3, precision=precision, micro_batch=row.micro_batch, grad_accum=row.accumulation,
        attention=_attention(row), checkpointing=_checkpointing(row), memory_efficient_linear=False,
    )  # fmt: skip
    model = transformers.model_for(row, one, **NO_DROPOUT)
    cluster = cluster_of(row)
    composer = "foundry" in framework
    if composer and "triton" in row.lower("attention_impl"):
        cluster = cluster._replace(gpu=with_early_flash(cluster.gpu))
    job = Job(model, cluster, Workload(row.seq), strategy)
    compiled = "compile" in framework and "no compile" not in framework
    traffic = _traffic(row, job)
    return Timed(
        job, Ledger("published", Tier(), traffic=traffic), COMPILED if compiled else COMPOSER if composer else FSDP
    )


def _split_over_ranks(row: Row) -> Timed:
    """torchtitan splits the local batch again by the pipeline; a scale for each row costs what fp8's products gain."""
    framework, pipelined = row.lower("framework"), row.pp > 1
    size = row.micro_batch
    if "torchtitan" in framework and pipelined:
        size = max(1, size // row.pp)
    stated = row.lower("precision")
    half = "fp16" if "fp16" in stated else "bf16"
    precision = "fp8" if re.search(r"fp8|float8(?! rowwise)", stated) else half
    kind = row.checkpointing
    if kind == "full":
        kind = "full-reentrant" if re.search(r"megatron|deepspeed", framework) else "full"
    elif kind == "selective":
        kind = "none" if "megatron" in framework else "every-2"  # Megatron's runs the core of attention again
    strategy = Strategy(
        stage=min(row.stage, 3), precision=precision, micro_batch=size, grad_accum=row.accumulation,
        attention=_attention(row), checkpointing=kind, memory_efficient_linear=False,
    )  # fmt: skip
    job = Job(transformers.model_for(row, shape(row)), cluster_of(row), Workload(row.seq), strategy)
    software = COMPILED if "compile" in framework else MEGATRON
    return Timed(job, Ledger("published", Tier()), software, row)


def _checkpointing(row: Row) -> str:
    """Selective checkpointing recomputes the share that hardware and model utilisation tell, else about half."""
    if row.checkpointing != "selective":
        return row.checkpointing
    hardware, model = re.search(r"hfu=([0-9.]+)", row.lower("notes")), row.number("mfu")
    share = 3 * (float(hardware[1]) / model - 1) if hardware and model else 0.5
    if share < 0.1:
        return "none"
    return "full" if share > 0.75 else f"every-{max(2, round(1 / share))}"


def _traffic(row: Row, job: Job) -> tuple[Transfer, ...]:
    """Each layer gathered in forward, and in backward unless it stays; gradients reduce-scattered."""
    reduces_wide = not re.search(r"pure|bf16 mixed", row.lower("precision"))
    hybrid, stays = "hybrid" in row.lower("zero_stage"), "grad_op" in row.lower("zero_stage")
    ranks = min(8, job.ranks) if hybrid else job.ranks
    layers, psi = job.model.shape.layers + 1, job.model.parameters
    width = 4 if reduces_wide else 2

    def sent(when: str, collective: str, w: int, over: int) -> Transfer:
        return Transfer(
            when, collective, "", layers, psi * w, over, "dp", volume.replayed, {"moved": psi, "w": w}
        )

    found = [sent(FORWARD, "all_gather", 2, ranks), sent(BACKWARD, "reduce_scatter", width, ranks)]
    if not stays:
        found.append(sent(BACKWARD, "all_gather", 2, ranks))
    if hybrid and job.ranks > ranks:
        found.append(sent(BACKWARD, "all_reduce", width, job.ranks))
    return tuple(entry for entry in found if entry.ranks > 1)
