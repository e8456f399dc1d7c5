"""Hugging Face models under DeepSpeed: zeroplan's own ledger of the job, and what an older version does otherwise."""

from __future__ import annotations

import re
from typing import Any

from benchmarks.published.prediction import Moment, Prediction, prediction
from benchmarks.published.rows import Row, UncomputableError
from benchmarks.published.shapes import Shape, shape
from zeroplan.architectures.model import model_of
from zeroplan.architectures.read import config_class, known_fields
from zeroplan.costs.ledger import ledger
from zeroplan.errors import ZeroplanError
from zeroplan.formulas import activations, fused, outside
from zeroplan.ledger import Ledger, Line, Tier, is_activation, line, total
from zeroplan.specs.cluster import Cluster
from zeroplan.specs.job import Job
from zeroplan.specs.model import Model
from zeroplan.specs.strategy import Offload, Strategy, Workload

FAMILIES = (
    (r"qwen-?3", "qwen3"), (r"qwen", "qwen2"), (r"opt-", "opt"), (r"gpt(?!-neox)", "gpt2"), (r"bloom", "bloom"),
    (r"falcon", "falcon"), (r"mistral", "mistral"), (r"llama|vicuna|baichuan|\byi\b", "llama"),
    (r"phi-?3", "phi3"), (r"phi", "phi"), (r"gemma-?2", "gemma2"), (r"gemma-?3", "gemma3_text"), (r"gemma", "gemma"),
    (r"neox|pythia", "gpt_neox"), (r"olmo-?2", "olmo2"), (r"olmo", "olmo"), (r"starcoder-?2", "starcoder2"),
)  # fmt: skip
LOGITS_STAY_LOW = (4, 46)
"""transformers from which the model's logits stay in 16 bit; before, llama returned them in fp32."""
NO_TORCH_MAX = (4, 48)
"""transformers from which OPT has one attention for all models, without torch.max on its scores."""
FLATTENS_ON_THE_CARD = (0, 19)
"""DeepSpeed from which parameters are flattened where they are if there is room (#7828, February 2026)."""
TRAINER = re.compile(r"\btrainer\b|swift|llama-?factory|axolotl|\btrl\b")
"""Launchers on transformers' Trainer, whose from_pretrained partitions a model as it is loaded at stage 3."""
STEPS = ("forward", "backward", "step")


def predict(row: Row) -> Prediction:
    one = shape(row)
    job, assumed = job_of(row, one)
    try:
        found = ledger(job)
    except ZeroplanError as error:
        raise UncomputableError(f"zeroplan refuses the job: {error}") from error
    outputs = _kept_outputs(row, one)
    held = [*found.gpu.resident, *outputs]
    if outputs:
        assumed.append("the loop holds the model's output until the next one, and not in backward")
    phases = [phase for phase in found.gpu.phases if phase.endswith(STEPS)]
    if row.liger:
        moments = _with_liger(row, one, found)
    else:
        extra = _old_attention(row, one)
        moments = [Moment(phase, (*found.gpu.worst(phase).lines, *extra * ("ward" in phase))) for phase in phases]
    if row.offloads_checkpoints and not row.liger:
        raise UncomputableError("activation checkpoints on the host are computed with Liger's kernels alone")
    initialize = total(found.gpu.worst("init").lines)
    left = _left_by_initialize(row, job)
    if row.stage == 3 and not job.strategy.builds_partitioned:
        initialize += 2 * job.model.largest.elements
    return prediction("transformers", [(held, moments)], initialize=initialize, cached=left, assumed=assumed)


def _left_by_initialize(row: Row, job: Job) -> int:
    """Blocks that flattening or partitioning on the card frees and does not hand back."""
    if row.stage == 3 and not job.strategy.builds_partitioned:
        return outside.left_by_flattening(job.model.parameters, job.strategy.element_bytes)
    if row.stage not in (1, 2) or (row.version("deepspeed") or (0,)) < FLATTENS_ON_THE_CARD:
        return 0
    return outside.left_by_flattening(job.model.parameters, job.strategy.element_bytes)


def job_of(row: Row, one: Shape) -> tuple[Job, list[str]]:
    """The row as zeroplan's job, and what the row left open."""
    if row.tp > 1 or row.pp > 1:
        raise UncomputableError("a transformers model under tensor or pipeline parallelism")
    version = row.version("deepspeed")
    assumed = []
    partitioned = bool(TRAINER.search(row.lower("framework")))
    if row.stage == 3 and partitioned:
        assumed.append("from_pretrained builds the model under zero.Init, which also replaces the linear function")
    elif row.stage == 3:
        assumed.append("the model is built without zero.Init")
        assumed.append("gathered weights stay after forward without checkpointing (DeepSpeed before #8189)")
    if version is None:
        assumed.append("DeepSpeed's version is not stated")
    precision = re.search(r"fp16|bf16|fp32", row.lower("precision"))
    states = f"{row.lower('precision')} {row.lower('notes')}"
    low_states = bool(re.search(r"bf16 master\b|bf16 states|pure bf16|no fp32 master", states))
    if low_states and row.stage == 0:
        raise UncomputableError("16-bit states without a master copy, outside DeepSpeed's optimizers")
    choices: dict[str, Any] = {
        "stage": row.stage, "micro_batch": row.micro_batch, "grad_accum": row.accumulation,
        "precision": precision[0] if precision else "bf16", "optimizer": row.optimizer,
        "checkpointing": row.checkpointing, "attention": _attention(row),
        "zero_init": partitioned if row.stage == 3 else None,
        "memory_efficient_linear": partitioned or row.stage < 3,
        **_sizes(row),
    }  # fmt: skip
    if low_states:
        choices |= {"master_dtype": "bf16", "states_as_master": True}
    if row.offloads_optimizer:
        choices["offload_optimizer"] = Offload("cpu")
    if "param" in row.offload:
        choices["offload_param"] = Offload("cpu")
    gpus = row.gpus
    cluster = Cluster(nodes=max(1, gpus // 8), gpus_per_node=min(8, gpus))
    seq = row.tokens // row.micro_batch
    return Job(model_for(row, one), cluster, Workload(seq), Strategy(**choices)), assumed


def _attention(row: Row) -> str:
    """As transformers names it."""
    stated = row.lower("attention_impl")
    package = re.search(r"flash[-_ ]?att(?:entio)?n[-_ ]?([23])", stated)
    if package and "16" in row.lower("precision"):
        return f"flash_attention_{package[1]}"
    return "eager" if "eager" in stated else "sdpa"


def _sizes(row: Row) -> dict[str, int]:
    """Bucket sizes that the notes state."""
    stated = {
        "reduce_bucket_size": row.setting(r"reduce_?bucket|\bbuckets|reduce/\w+ buckets?"),
        "prefetch_bucket_size": row.setting(r"prefetch"),
        "max_live_parameters": row.setting(r"max_live"),
        "sub_group_size": row.setting(r"sub_group"),
        "param_persistence_threshold": row.setting(r"persistence"),
    }
    return {name: size for name, size in stated.items() if size is not None}


def model_for(row: Row, one: Shape, **others: Any) -> Model:
    """The family that the model's name says, with the row's widths, and other fields of its config."""
    name = row.lower("model")
    named = (family for pattern, family in FAMILIES if re.search(pattern, name))
    family = next(named, "llama" if one.gated else "gpt2")
    positions = max(row.seq, 1)
    fields: dict[str, Any] = {
        "model_type": family, "vocab_size": one.vocab, "hidden_size": one.hidden, "num_hidden_layers": one.layers,
        "num_attention_heads": one.heads, "num_key_value_heads": one.keys * one.heads // one.queries,
        "intermediate_size": one.ffn, "tie_word_embeddings": one.tied, "max_position_embeddings": positions,
    }  # fmt: skip
    if one.queries != one.hidden:
        fields["head_dim"] = one.queries // one.heads
    if family == "gpt2":
        fields = {
            "model_type": family, "vocab_size": one.vocab, "n_embd": one.hidden, "n_layer": one.layers,
            "n_head": one.heads, "n_inner": one.ffn, "n_positions": positions, "tie_word_embeddings": one.tied,
        }  # fmt: skip
    elif family == "opt":
        fields |= {"ffn_dim": one.ffn, "word_embed_proj_dim": one.hidden, "max_position_embeddings": 2048}
    elif family == "bloom":
        fields |= {"n_layer": one.layers, "n_head": one.heads}
    if family == "gpt2":
        fields |= others
    try:
        config = config_class(family, "row")(**known_fields(fields, "row"))
        config.validate("row")
    except ZeroplanError as error:
        raise UncomputableError(f"no {family} of these widths: {error}") from error
    return model_of(family, config, name="row", source="a published row", content=fields)


def _kept_outputs(row: Row, one: Shape) -> list[Line]:
    """The last micro-batch's logits: a loop that holds the model's output holds them until the next one."""
    returns_output = re.search(r"\bhf\b|transformers", row.lower("framework"))
    if not returns_output or row.liger:
        return []
    version = row.version("transformers")
    old = version < LOGITS_STAY_LOW if version else (row.version("deepspeed") or (0,)) < (0, 15, 2)
    wide = old and one.gated  # OPT, BLOOM and GPT-2 returned the head's own precision
    per_logit = 4 if wide else 2
    return [line("outputs kept by the loop", activations.logits, t=row.tokens, v=one.vocab, logit_bytes=per_logit)]


def _old_attention(row: Row, one: Shape) -> tuple[Line, ...]:
    """Old OPT clamped its scores with torch.max, which keeps them for backward."""
    version = row.version("transformers")
    clamps = "opt" in row.lower("model") and (version is None or version < NO_TORCH_MAX)
    if not clamps or "eager" not in row.lower("attention_impl") or row.checkpointing == "full":
        return ()
    sizes = {"t": row.tokens, "s": row.seq, "a": one.heads, "layers": one.layers}
    return (line("clamped scores", activations.clamped_scores, **sizes),)


def _with_liger(row: Row, one: Shape, found: Ledger) -> list[Moment]:
    """DeepSpeed's part from the ledger, the model's from Liger's fused kernels."""
    t, h = row.tokens, one.hidden
    widths = {"t": t, "h": h, "q": one.queries, "kv": one.keys, "f": one.ffn, "a": one.heads, "tp": 1}
    layer = fused.swiglu_layer(**widths)
    head = line("final norm and head input", fused.head_input, t=t, h=h, tp=1)
    loss = line("fused loss", fused.liger_loss, t=t, h=h, v=one.vocab)
    if row.checkpointing == "full":
        layers = 1 if row.offloads_checkpoints else one.layers
        kept = line("checkpoints", activations.checkpoints, t=t, h=h, layers=layers, w=2)
        inner = [line("layer recomputed", fused.unfused_swiglu_layer, **widths)]
    else:
        kept = line("activations", activations.layers_saved, layer_bytes=layer, layers=one.layers)
        inner = []
    flight = line("gradients in flight", fused.residual_gradients, t=t, h=h, tp=1)
    forward, backward = _own_lines(found.gpu, "forward"), _own_lines(found.gpu, "backward")
    return [
        Moment("loss", (*forward, kept, head, loss)),
        Moment("backward of a layer", (*backward, kept, *inner, flight)),
        Moment("step", found.gpu.worst("step").lines),
    ]


def _own_lines(tier: Tier, phase: str) -> tuple[Line, ...]:
    """The phase's moment at which DeepSpeed itself has most."""
    moments = [
        tuple(entry for entry in moment.lines if not is_activation(entry))
        for moment in tier.moments if moment.phase.endswith(phase)
    ]  # fmt: skip
    return max(moments, key=total, default=tier.resident)
