"""Which arguments and names each release of transformers' TrainingArguments has, of 4.36 to 5.24 (training_args.py and
trainer_utils.py of each).
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from zeroplan.releases import number


class Span(NamedTuple):
    """The releases that have a word."""

    since: str = ""
    """The first; empty: all before `until`."""
    until: str = ""
    """The first that no longer has it; empty: the newest has it."""
    write: str = ""
    """What to write where there is no such word; {} stands for its value."""

    def is_in(self, release: str) -> bool:
        return number(self.since or "0") <= number(release) and not self.is_gone(release)

    def is_gone(self, release: str) -> bool:
        """Whether a release no longer has it."""
        return bool(self.until) and number(self.until) <= number(release)


NEWEST = "5.24.0"

ARGUMENTS: dict[str, Span] = {
    **dict.fromkeys(("accelerator_config", "dataloader_prefetch_factor"), Span("4.38.0")),
    "optim_target_modules": Span("4.39.0"),
    "eval_do_concat_batches": Span("4.40.0"),
    "eval_strategy": Span("4.41.0", write="evaluation_strategy: {}"),
    **dict.fromkeys(("batch_eval_metrics", "restore_callback_states_from_checkpoint"), Span("4.41.0")),
    "eval_on_start": Span("4.42.0"),
    **dict.fromkeys(("eval_use_gather_object", "torch_empty_cache_steps"), Span("4.43.0")),
    "use_liger_kernel": Span("4.45.0"),
    "include_for_metrics": Span("4.46.0"),
    "average_tokens_across_devices": Span("4.46.2"),
    "tp_size": Span("4.50.0", "4.52.0"),
    "evaluation_strategy": Span(until="4.51.0", write="eval_strategy: {}"),
    **dict.fromkeys(("dispatch_batches", "split_batches"), Span(until="4.51.0", write="accelerator_config")),
    **dict.fromkeys(("hub_revision", "liger_kernel_config"), Span("4.53.0")),
    "parallelism_config": Span("4.56.0"),
    **dict.fromkeys(("project", "trackio_space_id"), Span("4.57.0")),
    "use_ipex": Span(until="4.57.0"),
    **dict.fromkeys(
        ("_n_gpu", "fp16_backend", "fp16_opt_level", "fsdp_min_num_params", "fsdp_transformer_layer_cls_to_wrap",
         "half_precision_backend", "include_tokens_per_second", "jit_mode_eval", "mp_parameters",
         "overwrite_output_dir", "past_index", "ray_scope", "save_safetensors", "tpu_metrics_debug", "tpu_num_cores",
         "use_legacy_prediction_loop", "use_mps_device"),
        Span(until="5.0.0"),
    ),
    "adafactor": Span(until="5.0.0", write="optim: adafactor"),
    "include_inputs_for_metrics": Span(until="5.0.0", write='include_for_metrics: ["inputs"]'),
    "no_cuda": Span(until="5.0.0", write="use_cpu: {}"),
    "per_gpu_eval_batch_size": Span(until="5.0.0", write="per_device_eval_batch_size: {}"),
    "per_gpu_train_batch_size": Span(until="5.0.0", write="per_device_train_batch_size: {}"),
    "push_to_hub_model_id": Span(until="5.0.0", write="hub_model_id: {}"),
    "push_to_hub_organization": Span(until="5.0.0", write="hub_model_id, with the organization before a slash"),
    "push_to_hub_token": Span(until="5.0.0", write="hub_token"),
    "torchdynamo": Span(until="5.0.0", write="torch_compile_backend: {}"),
    **dict.fromkeys(("enable_jit_checkpoint", "use_cache"), Span("5.0.0")),
    "group_by_length": Span(until="5.2.0", write="train_sampling_strategy: group_by_length"),
    "train_sampling_strategy": Span("5.2.0", write="group_by_length: true"),
    **dict.fromkeys(("ddp_static_graph", "trackio_bucket_id", "trackio_static_space_id"), Span("5.6.0")),
    "logging_dir": Span(until="5.15.0", write="TENSORBOARD_LOGGING_DIR in the environment"),
    "warmup_ratio": Span(until="5.15.0", write="warmup_steps: {}"),
    **dict.fromkeys(("dataloader_in_order", "dataloader_multiprocessing_context"), Span("5.15.0")),
    "activation_checkpointing": Span("5.23.0", write="gradient_checkpointing: {}"),
    "activation_checkpointing_kwargs": Span("5.23.0", write="gradient_checkpointing_kwargs: {}"),
}  # fmt: skip
"""Those that not every release has."""

_GALORE = [f"galore_{name}{kind}" for name in ("adamw", "adamw_8bit", "adafactor") for kind in ("", "_layerwise")]
OPTIMIZERS: dict[str, Span] = {
    **dict.fromkeys(
        ("adafactor", "adagrad", "adamw_8bit", "adamw_anyprecision", "adamw_bnb_8bit", "adamw_torch",
         "adamw_torch_fused", "adamw_torch_npu_fused", "adamw_torch_xla", "lion_32bit", "lion_8bit",
         "paged_adamw_32bit", "paged_adamw_8bit", "paged_lion_32bit", "paged_lion_8bit", "rmsprop", "sgd"),
        Span(),
    ),
    **dict.fromkeys(("rmsprop_bnb", "rmsprop_bnb_32bit", "rmsprop_bnb_8bit"), Span("4.38.0")),
    **dict.fromkeys(_GALORE, Span("4.39.0")),
    **dict.fromkeys(("adalomo", "lomo"), Span("4.42.0")),
    **dict.fromkeys(
        ("adamw_torch_4bit", "ademamix", "ademamix_8bit", "grokadamw", "paged_ademamix_32bit", "paged_ademamix_8bit",
         "schedule_free_adamw", "schedule_free_sgd"),
        Span("4.45.0"),
    ),
    **dict.fromkeys(
        ("adamw_torch_8bit", "apollo_adamw", "apollo_adamw_layerwise", "schedule_free_radam"), Span("4.49.0")
    ),
    "stable_adamw": Span("4.54.0"),
    "adamw_hf": Span(until="4.50.0", write="optim: adamw_torch"),
    "adamw_apex_fused": Span(until="5.8.0", write="optim: adamw_torch_fused"),
}  # fmt: skip
"""Values of `optim`."""

SCHEDULES: dict[str, Span] = {
    **dict.fromkeys(
        ("constant", "constant_with_warmup", "cosine", "cosine_with_restarts", "inverse_sqrt", "linear", "polynomial",
         "reduce_lr_on_plateau"),
        Span(),
    ),
    "cosine_with_min_lr": Span("4.40.0"),
    "warmup_stable_decay": Span("4.41.0"),
    "cosine_warmup_with_min_lr": Span("4.54.0"),
    "greedy": Span("5.4.0"),
}  # fmt: skip
"""Values of `lr_scheduler_type`."""

RENAMED = {
    "torch_dtype": "dtype: {}", "max_seq_length": "max_length: {}", "use_liger": "use_liger_kernel: {}",
    "max_prompt_length": "max_length, which the prompt counts in", "vllm_max_model_len": "vllm_max_model_length: {}",
    "vllm_guided_decoding_regex": "vllm_structured_outputs_regex: {}",
}
"""What TRL calls arguments that it had under another name."""

SWIFT_NAMES = (
    ("tuner_type", "train_type", "sft_type"), ("model", "model_id_or_path"), ("template", "template_type"),
    ("target_modules", "lora_target_modules"), ("quant_bits", "quantization_bit"), ("torch_dtype", "dtype"),
    ("per_device_train_batch_size", "batch_size"), ("per_device_eval_batch_size", "eval_batch_size"),
    ("adapters", "ckpt_dir"), ("adapters", "lora_modules"),
)  # fmt: skip
"""What releases of ms-swift call the same argument, the newest first."""


@cache
def llama_factory() -> dict[str, Span]:
    """Arguments of LLaMA-Factory's own from 0.7.1 to 0.9.5, by the releases that have them."""
    return {name: Span(*span) for name, span in _names()["LLaMA-Factory"].items()}


@cache
def trl() -> dict[str, Span]:
    """Arguments of TRL's own from 0.9.3 to 1.16, likewise: of its trainers, its model and its scripts."""
    spans: dict[str, list[str]] = _names()["TRL"]
    return {name: Span(since, until, RENAMED.get(name, "")) for name, (since, until) in spans.items()}


@cache
def swift() -> dict[str, Span]:
    """Arguments of ms-swift's own from 2.0 to 4.6, likewise: of its commands that train."""
    return {name: Span(*span) for name, span in _names()["ms-swift"].items() if name not in trainer()}


def called_by_swift(name: str, release: str) -> str:
    """What a release of ms-swift calls an argument that has another name there; empty where it has none."""
    several = next((names for names in SWIFT_NAMES if name in names), ())
    return next((one for one in several if one in trainer() or swift()[one].is_in(release)), "")


@cache
def trainer() -> frozenset[str]:
    """Arguments of Seq2SeqTrainingArguments that every release of transformers has, and those of `ARGUMENTS`."""
    return frozenset({*_names()["TrainingArguments"], *ARGUMENTS})


@cache
def _names() -> dict[str, Any]:
    path = files("zeroplan.catalog.trainers").joinpath("argument_names.json")
    content: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return content
