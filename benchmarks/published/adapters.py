"""Published figures of adapters, and what zeroplan says of each job.

Rows stand in tests/references/published/adapters.csv: a job as zeroplan's options have it, what was measured, and what
was assumed where the source leaves it open. A row's kind says how near the planned job is to the one that ran.
"""

from __future__ import annotations

import csv
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import zeroplan
from benchmarks.published.rows import FILE
from zeroplan.costs.ledger import ledger
from zeroplan.fit import fit
from zeroplan.formulas import activations
from zeroplan.ledger import Detail, Moment, Tier, line
from zeroplan.levels import Level, levels

ADAPTERS = FILE.with_name("adapters.csv")
DEEPSPEED, TRAINER, FSDP, GPTQ, LITGPT, OTHER = KINDS = ("deepspeed", "trainer", "fsdp", "gptq", "litgpt", "other")
MEANING = {
    DEEPSPEED: "peft under DeepSpeed: the job that is planned",
    TRAINER: "peft under the Trainer alone, or data parallel without ZeRO",
    FSDP: "peft under FSDP, planned as stage 3",
    GPTQ: "GPTQ's 4 bit under DeepSpeed, planned as nf4",
    LITGPT: "another model's code, planned as transformers has it",
    OTHER: "not planned",
}
INITIALIZED = (DEEPSPEED, GPTQ)
"""Kinds whose runs called deepspeed.initialize."""
OUT_OF_MEMORY = "out of memory"
LEVELS = ("allocated", "reserved", "nvidia-smi")
"""Instruments, in the order of zeroplan's levels."""
STEPS = ("forward", "backward", "step")
GIB = 2**30

STAGE_3: dict[str, Any] = {"stage": 3, "contiguous_gradients": True}
AUTO: dict[str, Any] = {
    **STAGE_3, "sub_group_size": 1_000_000_000, "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto",
    "stage3_param_persistence_threshold": "auto", "stage3_max_live_parameters": 1_000_000_000,
    "stage3_max_reuse_distance": 1_000_000_000,
}  # fmt: skip
BUCKETS: dict[str, Any] = {
    "stage": 2, "allgather_bucket_size": 200_000_000, "reduce_bucket_size": 200_000_000, "contiguous_gradients": True,
}  # fmt: skip
ZERO: dict[str, dict[str, Any]] = {
    "stage_0": {"stage": 0},
    "without_master": {"stage": 2, "contiguous_gradients": False, "overlap_comm": False},
    "z2_2e8": {**BUCKETS, "overlap_comm": True}, "z2_swift": {**BUCKETS, "overlap_comm": False},
    "z3": STAGE_3, "z3_auto": {**AUTO, "overlap_comm": True},
}  # fmt: skip
"""zero_optimization of each config that the rows name; `fsdp N`: of layers with N elements."""


def _qwen(hidden: int, layers: int, heads: int, ffn: int, vocab: int) -> dict[str, Any]:
    """Qwen of 2023 as its successor has it: the same widths, its query, key and value in one matrix."""
    return {
        "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_size": hidden,
        "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": heads,
        "intermediate_size": ffn, "vocab_size": vocab,
        "max_position_embeddings": 8192, "tie_word_embeddings": False,
    }  # fmt: skip


MODELS: dict[str, dict[str, Any]] = {
    "qwen-1.8b": _qwen(2048, 24, 16, 5504, 151936), "qwen-7b": _qwen(4096, 32, 32, 11008, 151936),
    "qwen-14b": _qwen(5120, 40, 40, 13696, 152064), "qwen-72b": _qwen(8192, 80, 64, 24576, 152064),
    "yi-34b": {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 7168, "num_hidden_layers": 60,
        "num_attention_heads": 56, "num_key_value_heads": 8, "intermediate_size": 20480, "vocab_size": 64000,
        "max_position_embeddings": 4096, "tie_word_embeddings": False,
    },
    "mistral-7b-v0.2": {
        "model_type": "mistral", "architectures": ["MistralForCausalLM"], "hidden_size": 4096, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 32000,
        "max_position_embeddings": 32768, "sliding_window": None, "tie_word_embeddings": False,
    },
    "stablelm-alpha-3b": {
        "model_type": "gpt_neox", "architectures": ["GPTNeoXForCausalLM"], "hidden_size": 4096, "num_hidden_layers": 16,
        "num_attention_heads": 32, "intermediate_size": 16384, "vocab_size": 50688, "max_position_embeddings": 4096,
        "rotary_pct": 0.25, "use_parallel_residual": True, "hidden_act": "gelu", "tie_word_embeddings": False,
    },
}  # fmt: skip
"""Models that are no preset, as their config.json has them."""


class AdapterRow(NamedTuple):
    """One line of the file."""

    text: Mapping[str, str]

    def column(self, name: str) -> str:
        return self.text[name]

    @property
    def name(self) -> str:
        return self.text["id"]

    @property
    def kind(self) -> str:
        return self.text["kind"]

    @property
    def source(self) -> str:
        """What the id calls it: all before the first dash."""
        return self.name.partition("-")[0]

    @property
    def left_out(self) -> str:
        """Why it is not planned; empty where it is."""
        return self.text["left_out"]

    @property
    def ran_out(self) -> bool:
        return self.text["measures"] == OUT_OF_MEMORY

    @property
    def measured(self) -> float:
        """GiB of a GPU."""
        return float(self.text["gib"])

    @property
    def tokens(self) -> int:
        """Of one micro-step on a GPU."""
        return int(self.text["seq"]) * int(self.text["micro_batch"])


class Predicted(NamedTuple):
    """A row, and what zeroplan says of it."""

    row: AdapterRow
    level: Level
    phase: str
    """Of the peak."""
    verdict: str | None

    @property
    def at(self) -> float:
        return self.level.bytes / GIB

    @property
    def error(self) -> float:
        """(predicted - measured) / measured."""
        return self.at / self.row.measured - 1

    @property
    def ranged(self) -> bool:
        """Whether it is printed as a range."""
        return self.level.low < self.level.high

    @property
    def inside(self) -> bool:
        return self.level.low <= self.row.measured * GIB <= self.level.high


def read(path: Path = ADAPTERS) -> list[AdapterRow]:
    with path.open(newline="", encoding="utf-8") as stream:
        return [AdapterRow(text) for text in csv.DictReader(stream)]


def predict(row: AdapterRow) -> Predicted:
    """The level that the row's instrument shows."""
    with tempfile.TemporaryDirectory() as folder:
        (job,) = zeroplan.estimate(**options(row, Path(folder)))._jobs
    counted = ledger(job, detail=Detail.WHOLE)
    counted = counted._replace(gpu=_as_it_ran(row, counted.gpu))
    if row.kind not in INITIALIZED:  # nothing was flattened, and nothing stays of it
        job = job._replace(strategy=job.strategy._replace(stage=0))
    shown = levels(job, counted)[0 if row.ran_out else LEVELS.index(row.column("measures"))]
    return Predicted(row, shown, counted.gpu.peak.phase, fit(job, counted).verdict)


def options(row: AdapterRow, folder: Path) -> dict[str, Any]:
    """The row as `zeroplan.estimate` takes it; what it takes as a file is written into the folder."""
    stated = ("seq", "gpus", "gpu", "checkpointing", "attention", "built_in")
    quantized = ("quantize", "double_quant", "quant_storage") if row.column("quantize") else ()
    asked: dict[str, Any] = {name: row.column(name) for name in (*stated, *quantized) if row.column(name)}
    model: str | Path = row.column("model")
    if model in MODELS:
        model = _written(folder / str(model) / "config.json", MODELS[str(model)])
    adapter = _written(folder / "adapter_config.json", _adapter(row.column("adapter")))
    return {**asked, "model": model, "adapter": adapter, "config": _written(folder / "ds_config.json", _config(row))}


def _written(path: Path, content: dict[str, Any]) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def _adapter(words: str) -> dict[str, Any]:
    """peft's adapter_config.json of a row's `r=64 alpha=16 dropout=0.05 targets=q_proj,v_proj save=lm_head`."""
    stated = dict(word.split("=") for word in words.split())
    targets = stated["targets"]
    return {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": int(stated["r"]), "lora_alpha": int(stated["alpha"]),
        "lora_dropout": float(stated["dropout"]),
        "target_modules": targets if targets == "all-linear" else targets.split(","),
        "modules_to_save": stated["save"].split(",") if "save" in stated else None,
    }  # fmt: skip


def _config(row: AdapterRow) -> dict[str, Any]:
    name, _, layer = row.column("config").partition(" ")
    section = _sharded(int(layer)) if name == FSDP else dict(ZERO[name])
    if row.column("offload") == "param":
        section |= {"offload_param": {"device": "cpu"}, "offload_optimizer": {"device": "cpu"}}
    precision: dict[str, Any] = {"enabled": True}
    if name == "without_master":
        precision |= {"bf16_master_weights_and_grads": True, "bf16_optimizer_states": True}
    return {
        "train_micro_batch_size_per_gpu": int(row.column("micro_batch")),
        "gradient_accumulation_steps": int(row.column("grad_accum")),
        row.column("precision"): precision, "zero_optimization": section,
    }  # fmt: skip


def _sharded(layer: int) -> dict[str, Any]:
    """Stage 3 as FSDP gathers: a layer of so many elements, and the next one; no bucket to speak of."""
    return {
        "stage": 3, "stage3_max_live_parameters": 2 * layer, "stage3_max_reuse_distance": 0,
        "stage3_prefetch_bucket_size": layer, "stage3_param_persistence_threshold": 0, "reduce_bucket_size": 1_000_000,
    }  # fmt: skip


def _as_it_ran(row: AdapterRow, gpu: Tier) -> Tier:
    """Without the initialize of an engine that did not run, and with the outputs that the source's loop keeps."""
    moments = gpu.moments if row.kind in INITIALIZED else [one for one in gpu.moments if one.phase in STEPS]
    return gpu._replace(moments=tuple(_with_kept(row, moment) for moment in moments))


def _with_kept(row: AdapterRow, moment: Moment) -> Moment:
    kept = row.text.get(f"kept_{moment.phase}")
    if not kept:
        return moment
    numbers = line("outputs kept by the loop", activations.logits, t=row.tokens, v=int(kept) // 4, logit_bytes=4)
    return moment._replace(lines=(*moment.lines, numbers))
