"""The model, optimizer and inputs of a case, built as a user of transformers would.

Parameters are created in the training dtype of the case's ds_config (transformers' `dtype=`), so DeepSpeed's own cast
finds nothing to do, unless the case names another; buffers stay as the model makes them. `use_cache` is off, as the
Trainer sets it.
Only the child process imports this module (it needs torch and transformers).
"""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import transformers
from torch.utils import checkpoint

from zeroplan.specs.checkpointing import DEEPSPEED, KEPT, Recomputing, recomputing
from zeroplan.specs.images import Images
from zeroplan.specs.input_sizes import InputSizes
from zeroplan.specs.quantization import Quantization
from zeroplan.verify.dtypes import DTYPES
from zeroplan.verify.inputs import inputs as given
from zeroplan.verify.stand_ins import StandIns
from zeroplan.verify.task import class_of, task_of
from zeroplan.verify.values import ValuedStandIns

ADAPTERS = ".lora_"
NO_DECAY = ("bias", "norm", "ln_", "layernorm")


def training_dtype(ds_config: dict[str, Any]) -> torch.dtype:
    return DTYPES[precision_of(ds_config)]


def precision_of(ds_config: dict[str, Any]) -> str:
    """fp16 if enabled, else bf16 if enabled, else fp32 (deepspeed/runtime/config.py)."""
    enabled = (name for name in ("fp16", "bf16") if ds_config.get(name, {}).get("enabled") is True)
    return next(enabled, "fp32")


def config_of(case: dict[str, Any]) -> Any:
    """The model's config, as transformers has it."""
    settings = dict(case["model"])
    config = transformers.AutoConfig.for_model(settings.pop("model_type"), **settings)
    no_cache(config)
    if case.get("pads"):
        config.get_text_config().pad_token_id = 0
    return config


def build(case: dict[str, Any], device: str, init: Any = None) -> torch.nn.Module:
    """The language model of the case's HF configuration, on `device`, with fresh weights."""
    config = config_of(case)
    torch.manual_seed(case.get("seed", 0))
    dtype = DTYPES.get(case.get("built_in") or "", training_dtype(case["ds_config"]))
    with init or torch.device(device), as_partitioned() if init and device == "cuda" else contextlib.nullcontext():
        model: torch.nn.Module = class_of(config, "case")._from_config(
            config, dtype=dtype, attn_implementation=case.get("attention", "eager")
        )
    recomputes = recomputing(case.get("checkpointing") or "none")
    if case.get("kernels"):
        put_liger(model, loss_alone=case["kernels"] == "liger-loss")
    if case.get("quantization"):
        from zeroplan.verify.quantized import quantize

        loaded = DTYPES.get(case.get("packed_from") or "", dtype)
        model = quantize(model, Quantization(**case["quantization"]), training_dtype(case["ds_config"]), loaded)
    if case.get("adapter"):
        of_products = training_dtype(case["ds_config"]) if case.get("quantization") else dtype
        model = with_adapter(model, case, of_products, device)
    for name, parameter in model.named_parameters():
        if matches(name, case.get("freeze")) and not matches(name, case.get("train")):
            parameter.requires_grad_(False)
    if case.get("checkpointing") == DEEPSPEED:
        from deepspeed import checkpointing

        checkpointing.configure(None, deepspeed_config=resolved(case))
        model._set_gradient_checkpointing(gradient_checkpointing_func=checkpointing.checkpoint)
        if not all(parameter.requires_grad for parameter in model.parameters()):
            model.enable_input_require_grads()  # activation_checkpointing_enable calls it itself
    elif recomputes.attention:
        checkpoint_attention()
    elif recomputes.every:
        model.activation_checkpointing_enable(words(recomputes), every_n_layers=recomputes.every)
    return model.train()


def put_liger(model: torch.nn.Module, *, loss_alone: bool) -> None:
    """Patch it as transformers' Trainer does with use_liger_kernel."""
    from liger_kernel.transformers.monkey_patch import _apply_liger_kernel_to_instance

    others = ("rope", "rms_norm", "swiglu", "geglu") if loss_alone else ()
    _apply_liger_kernel_to_instance(model=model, **dict.fromkeys(others, False))


@contextlib.contextmanager
def as_partitioned() -> Iterator[None]:
    """Inside, transformers draws no weights, as in from_pretrained at stage 3: it would look for rows of tensors that
    zero.Init has emptied. What torch's modules draw stays.
    """
    drawn = transformers.PreTrainedModel._initialize_weights
    transformers.PreTrainedModel._initialize_weights = lambda *_args, **_words: None
    try:
        yield
    finally:
        transformers.PreTrainedModel._initialize_weights = drawn


def no_cache(config: Any) -> None:
    """No keys and values are kept: the Trainer says so of a model's config, and not of the language model's inside."""
    config.use_cache = False
    if config.get_text_config() is not config:
        config.get_text_config().use_cache = False


def with_adapter(model: torch.nn.Module, case: dict[str, Any], dtype: torch.dtype, device: str) -> torch.nn.Module:
    """The model as peft wraps it; what is new is made where the model is, in the dtype of its layers' products.

    On "meta", or where weights are partitioned, peft leaves in float32 what it would cast elsewhere.
    """
    import peft
    from peft.tuners.lora import layer

    partitions = _partitions_for_peft(case) if case.get("zero_init") else None
    if device == "meta":  # torch.autocast knows no such device: verify.autocast reads the CPU's
        layer._LoraFactorsProxy.forward = _fold
    with torch.device(device):
        config = peft.LoraConfig(**case["adapter"])
        wide = bool(case.get("autocast_adapter_dtype") and case.get("zero_init"))  # else DeepSpeed casts them
        wrapped: torch.nn.Module = peft.get_peft_model(model, config, autocast_adapter_dtype=wide)
    del partitions
    for name, parameter in wrapped.named_parameters():
        if ADAPTERS in name and not wide:
            parameter.data = parameter.data.to(dtype)
    return wrapped


def _fold(self: Any, weight: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", enabled=False):
        return torch.baddbmm(weight, self.lhs, self.rhs, alpha=self.scaling)


def _partitions_for_peft(case: dict[str, Any]) -> Any:
    """What tells peft that weights are partitioned, for as long as it lives."""
    from transformers.integrations import HfDeepSpeedConfig

    return HfDeepSpeedConfig(resolved(case))


def matches(name: str, patterns: Sequence[str] | None) -> bool:
    """Whether a parameter's name is one of these globs."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns or ())


def checkpoint_attention() -> None:
    """From now on each call of transformers' AttentionInterface goes through torch.utils.checkpoint."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS, AttentionInterface

    def through_checkpoint(attend: Any) -> Any:
        def attention(module: torch.nn.Module, *inputs: Any, **words: Any) -> Any:
            forward = attend or sys.modules[type(module).__module__].eager_attention_forward
            return checkpoint.checkpoint(forward, module, *inputs, use_reentrant=False, **words)

        return attention

    ALL_ATTENTION_FUNCTIONS["eager"] = through_checkpoint(None)
    ALL_ATTENTION_FUNCTIONS["sdpa"] = through_checkpoint(AttentionInterface._global_mapping["sdpa"])


def words(recomputes: Recomputing) -> dict[str, Any]:
    """What torch.utils.checkpoint.checkpoint is told."""
    if not recomputes.keeps_products:
        return {"use_reentrant": recomputes.reentrant}
    operators = [getattr(torch.ops.aten, name).default for name in KEPT]
    contexts = functools.partial(checkpoint.create_selective_checkpoint_contexts, operators)
    return {"use_reentrant": False, "context_fn": contexts}


def groups(model: torch.nn.Module, count: int) -> list[dict[str, Any]]:
    """1: all; 2: with decay, then biases and norms without, as the Trainer does; k: tensor i goes to group i mod k."""
    trainable = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    if count == 1:
        return [{"params": [p for _name, p in trainable]}]
    if count == 2:
        plain = [any(part in name.lower() for part in NO_DECAY) for name, _p in trainable]
        decay = [p for (_name, p), no in zip(trainable, plain, strict=True) if not no]
        return [
            {"params": decay, "weight_decay": 0.01},
            {"params": [p for (_name, p), no in zip(trainable, plain, strict=True) if no], "weight_decay": 0.0},
        ]
    split: list[dict[str, Any]] = [{"params": []} for _ in range(count)]
    for index, (_name, parameter) in enumerate(trainable):
        split[index % count]["params"].append(parameter)
    return [group for group in split if group["params"]]


def client_optimizer(case: dict[str, Any], parameters: list[dict[str, Any]]) -> torch.optim.Optimizer | None:
    """Torch's own optimizer of the case, or None when the ds_config names one."""
    if not case.get("optimizer"):
        return None
    settings = dict(case["optimizer"])
    kind = getattr(torch.optim, settings.pop("type"))
    made: torch.optim.Optimizer = kind(parameters, **{"lr": 1e-5, **settings})
    return made


def inputs(case: dict[str, Any], device: str, stand_ins: StandIns) -> dict[str, torch.Tensor]:
    """What one micro-batch gives the model."""
    config = config_of(case)
    task = task_of(class_of(config, "case"), config, "case")
    images = Images(*case["images"]) if case.get("images") else None
    sizes = InputSizes(images, case.get("target"))
    made = given(config, task, sizes, case["micro_batch"], case["seq"], precision_of(case["ds_config"]), device)
    for name, value in made.values.items():
        assert isinstance(stand_ins, ValuedStandIns)
        stand_ins.known(made.tensors[name], value)
    return made.tensors


def resolved(case: dict[str, Any]) -> dict[str, Any]:
    """The ds_config with the case's batch sizes in it; a train_batch_size stays where it is theirs."""
    config = {**case["ds_config"], "train_micro_batch_size_per_gpu": case["micro_batch"]}
    config.setdefault("gradient_accumulation_steps", 1)
    config.setdefault("steps_per_print", 1_000_000)
    if config.get("train_batch_size") != case["micro_batch"] * config["gradient_accumulation_steps"] * case["world"]:
        config.pop("train_batch_size", None)
    return config
