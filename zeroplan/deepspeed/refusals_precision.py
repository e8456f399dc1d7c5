"""What DeepSpeed 0.19.8 refuses of precisions: one row per condition."""

from __future__ import annotations

from zeroplan.deepspeed.facts import Facts
from zeroplan.deepspeed.refusals import Refusal
from zeroplan.deepspeed.values import AUTO, DTYPES


def fp16_masters(c: Facts) -> bool:
    """Until 0.17.1 the key was read only where fp16 is on."""
    return bool(c("fp16.fp16_master_weights_and_grads")) and (not c.table.before("0.17.1") or c("fp16.enabled") is True)


def bf16_masters(c: Facts) -> bool:
    return bool(c("bf16.bf16_master_weights_and_grads"))


def bf16_states(c: Facts) -> bool:
    return bool(c("bf16.bf16_optimizer_states"))


def bf16_masters_without_cpu_adam(c: Facts) -> bool:
    stay_on_gpu = bf16_states(c) and not c.offloads_optimizer
    return bf16_masters(c) and not stay_on_gpu and not c.builds_cpu_adam


def parameters_in_another_dtype(c: Facts) -> bool:
    stated = c.stated("data_types.param_dtype")
    return stated is not None and c.dtype is not None and c.stated_dtype("data_types.param_dtype") != c.dtype


def mixed_accumulation_without_zero(c: Facts) -> bool:
    accumulates = c.stated_dtype("data_types.grad_accum_dtype")
    return c.stage == 0 and None not in (accumulates, c.dtype) and accumulates != c.dtype


def unknown_autocast_dtype(c: Facts) -> bool:
    """Any spelling of a dtype is taken and null is not, enabled or not."""
    stated = c.stated("torch_autocast.dtype")
    return c.states("torch_autocast.dtype") and not (isinstance(stated, str) and stated in DTYPES)


def autocast_of_quantized_weights(c: Facts) -> bool:
    return c.stated("torch_autocast.enabled") is True and bool(c("zero_optimization.zero_quantized_weights"))


def dynamic_fp16(c: Facts) -> bool:
    return c("fp16.enabled") is True and c("fp16.loss_scale") == 0


def unknown_fp32_modules(c: Facts) -> bool:
    stated = c.stated("data_types.keep_in_fp32_modules")
    names = isinstance(stated, list) and all(isinstance(name, str) for name in stated)
    return c.states("data_types.keep_in_fp32_modules") and stated != AUTO and not names


REFUSALS: tuple[Refusal, ...] = (
    Refusal(
        lambda c: fp16_masters(c) and c.stage == 0, "runtime/config.py:_do_error_check",
        "fp16.fp16_master_weights_and_grads without ZeRO", 'write "stage": 1, 2 or 3, or leave it out',
        rule="ZP311", key="fp16.fp16_master_weights_and_grads", since="0.18.3",
    ),
    Refusal(
        lambda c: bf16_masters(c) and c.stage == 0, "runtime/config.py:_do_error_check",
        "bf16.bf16_master_weights_and_grads without ZeRO", 'write "stage": 1, 2 or 3, or leave it out',
        rule="ZP311", key="bf16.bf16_master_weights_and_grads", since="0.18.3",
    ),
    Refusal(
        lambda c: bf16_states(c) and not bf16_masters(c), "runtime/config.py:_do_error_check",
        "bf16.bf16_optimizer_states without bf16_master_weights_and_grads",
        'write "bf16_master_weights_and_grads": true',
        rule="ZP310", key="bf16.bf16_optimizer_states", since="0.18.3",
    ),
    Refusal(
        lambda c: fp16_masters(c) and bf16_masters(c), "runtime/base_optimizer.py:499",
        "fp16_master_weights_and_grads and bf16_master_weights_and_grads are both true", "keep one",
        rule="ZP322", key="bf16.bf16_master_weights_and_grads", since="0.18.3",
    ),
    Refusal(
        lambda c: fp16_masters(c) and not c.builds_cpu_adam, "runtime/base_optimizer.py:521",
        "fp16.fp16_master_weights_and_grads without offload_optimizer and DeepSpeed's Adam",
        'write "offload_optimizer": {"device": "cpu"} and "type": "AdamW"',
        rule="ZP312", key="fp16.fp16_master_weights_and_grads",
    ),
    Refusal(
        bf16_masters_without_cpu_adam, "runtime/base_optimizer.py:512",
        "bf16.bf16_master_weights_and_grads without offload_optimizer and DeepSpeed's Adam",
        'write "bf16_optimizer_states": true, or "offload_optimizer": {"device": "cpu"} and "type": "AdamW"',
        rule="ZP312", key="bf16.bf16_master_weights_and_grads", since="0.19.1",
    ),
    Refusal(
        parameters_in_another_dtype, "runtime/engine.py:1827",
        "data_types.param_dtype is not the dtype that fp16 and bf16 enable", "leave it out",
        rule="ZP313", key="data_types.param_dtype", since="0.19.2",
    ),
    Refusal(
        mixed_accumulation_without_zero, "runtime/engine.py:2323",
        "data_types.grad_accum_dtype is not the model's dtype at stage 0", 'leave it out, or write "stage": 1',
        rule="ZP315", key="data_types.grad_accum_dtype", since="0.18.5",
    ),
    Refusal(
        lambda c: c.stated("data_types.grad_accum_dtype") == AUTO, "runtime/engine.py:1809",
        'data_types.grad_accum_dtype is "auto", which nothing fills', "leave it out",
        rule="ZP314", key="data_types.grad_accum_dtype",
    ),
    Refusal(
        unknown_autocast_dtype, "runtime/config.py:get_torch_autocast_dtype",
        "torch_autocast.dtype is no dtype", 'write "dtype": "bfloat16", or leave it out',
        rule="ZP318", key="torch_autocast.dtype", since="0.17.2",
    ),
    Refusal(
        autocast_of_quantized_weights, "runtime/torch_autocast.py:32",
        "torch_autocast.enabled with zero_optimization.zero_quantized_weights", "keep one",
        rule="ZP323", key="torch_autocast.enabled", since="0.17.2",
    ),
    Refusal(
        lambda c: isinstance(c.stated("fp16.loss_scale"), bool), "runtime/precision_config.py:_validate_loss_scale",
        "fp16.loss_scale is true or false", 'write "loss_scale": 0',
        rule="ZP306", key="fp16.loss_scale", since="0.18.8",
    ),
    Refusal(
        lambda c: dynamic_fp16(c) and c("fp16.loss_scale_window") <= 0,
        "runtime/precision_config.py:_validate_dynamic_loss_scale_params",
        "fp16.loss_scale_window is not over 0 with dynamic loss scaling", 'write "loss_scale_window": 1000',
        rule="ZP305", key="fp16.loss_scale_window", since="0.19.3",
    ),
    Refusal(
        lambda c: dynamic_fp16(c) and c("fp16.min_loss_scale") <= 0,
        "runtime/precision_config.py:_validate_dynamic_loss_scale_params",
        "fp16.min_loss_scale is not over 0 with dynamic loss scaling", 'write "min_loss_scale": 1',
        rule="ZP305", key="fp16.min_loss_scale", since="0.19.3",
    ),
    Refusal(
        unknown_fp32_modules, "runtime/config.py:_initialize_params",
        "data_types.keep_in_fp32_modules is neither auto nor a list of names", 'write "keep_in_fp32_modules": "auto"',
        rule="ZP324", key="data_types.keep_in_fp32_modules", since="0.19.8",
    ),
)  # fmt: skip
