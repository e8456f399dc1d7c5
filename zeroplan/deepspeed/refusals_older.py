"""What DeepSpeed before 0.19.8 refused and 0.19.8 takes: a row per condition, with the first version that takes it."""

from __future__ import annotations

from zeroplan.deepspeed.facts import Facts
from zeroplan.deepspeed.refusals import OFFLOAD, PARAM, Refusal
from zeroplan.deepspeed.refusals_precision import bf16_masters, bf16_states, dynamic_fp16, fp16_masters
from zeroplan.deepspeed.refusals_zenflow import TORCH_ADAMW, on
from zeroplan.deepspeed.zenflow import SECTION, switched_on

RULE = "ZP120"
ONE_BIT = ("onebitadam", "zerooneadam", "onebitlamb")
SWITCHED = ("amp", "curriculum_learning", "progressive_layer_drop")
"""Sections that stopped without `enabled`."""
TAKEN_OUT = ("torch_adam", "adam_w_mode")
"""What was taken out of the shared parameters before ZenFlow got them."""


def masters_outside_stage_2(c: Facts) -> bool:
    return fp16_masters(c) and c.stage != 2


def masters_without_cpu_adam(c: Facts) -> bool:
    """States in bf16 were no question of where they are."""
    return bf16_masters(c) and not bf16_states(c) and not c.builds_cpu_adam


def accumulates_as_the_model(c: Facts) -> bool:
    """bf16 at stage 0 was BF16_Optimizer, which accumulates in fp32 alone."""
    accumulates = c.stated_dtype("data_types.grad_accum_dtype")
    wanted = {"bf16": (None, "fp32"), None: (accumulates,)}.get(c.dtype, (None, c.dtype))
    return c.stage == 0 and accumulates not in wanted


def accumulates_apart_from_the_model(c: Facts) -> bool:
    accumulates = c.stated_dtype("data_types.grad_accum_dtype")
    differs = None not in (accumulates, c.dtype) and accumulates != c.dtype
    return c.stage == 0 and differs and (c.dtype, accumulates) != ("bf16", "fp32")


def lamb_without_loss_scaling(c: Facts) -> bool:
    fixed = c("fp16.enabled") is True and c("fp16.loss_scale") != 0
    return c.optimizer == "lamb" and (c("bf16.enabled") is True or fixed)


def muon_on_the_host(c: Facts) -> bool:
    scatters = bool(c("zero_optimization.reduce_scatter"))
    return c.optimizer == "muon" and c.stage in (1, 2) and c.offloads_optimizer and scatters


def muon_of_fp32_sums(c: Facts) -> bool:
    fp32 = c.stated_dtype("data_types.grad_accum_dtype") == "fp32"
    return c.optimizer == "muon" and c.stage == 1 and c.dtype == "bf16" and fp32 and not c.offloads_optimizer


def one_bit_under_zero(c: Facts) -> bool:
    return c.optimizer in ONE_BIT and c.stage > 0


def amp_with_another(c: Facts) -> bool:
    on = bool(c.section("amp").get("enabled"))
    return on and (c.stage > 0 or c("fp16.enabled") is True or c("bf16.enabled") is True)


def autocast(c: Facts) -> bool:
    return c.stated("torch_autocast.enabled") is True


def zenflow_parameters(c: Facts) -> bool:
    return on(c) and any(name not in (*TORCH_ADAMW, *TAKEN_OUT) for name in c.section("optimizer.params"))


def tensor_parallel(c: Facts) -> bool:
    size = c.stated("tensor_parallel.autotp_size")
    return isinstance(size, int) and size > 1


def expert_parallel(c: Facts) -> bool:
    return bool(c.stated("expert_parallel.enabled"))


def offloads_anything(c: Facts) -> bool:
    return any(c(f"{section}.device") != "none" for section in (OFFLOAD, PARAM))


def without_switch(c: Facts) -> bool:
    return any(c.states(name) and "enabled" not in c.section(name) for name in SWITCHED)


def drops_layers_by_no_schedule(c: Facts) -> bool:
    section = c.section("progressive_layer_drop")
    return bool(section.get("enabled")) and not {"theta", "gamma"} <= section.keys()


def elastic_beside_batch_sizes(c: Facts) -> bool:
    elastic = c.section("elasticity")
    needs = any(name not in elastic for name in ("max_train_batch_size", "micro_batch_sizes"))
    sizes = any(c.states(name) for name in ("train_batch_size", "train_micro_batch_size_per_gpu",
                                            "gradient_accumulation_steps"))  # fmt: skip
    return bool(elastic.get("enabled")) and (needs or (sizes and not elastic.get("ignore_non_elastic_batch_info")))


REFUSALS: tuple[Refusal, ...] = (
    Refusal(
        masters_outside_stage_2, "runtime/config.py:_do_error_check",
        "fp16.fp16_master_weights_and_grads at stage {stage}", 'write "stage": 2, or leave it out',
        rule="ZP311", key="fp16.fp16_master_weights_and_grads", until="0.18.3",
    ),
    Refusal(
        masters_without_cpu_adam, "runtime/base_optimizer.py",
        "bf16.bf16_master_weights_and_grads without offload_optimizer and DeepSpeed's Adam",
        'write "bf16_optimizer_states": true, or "offload_optimizer": {"device": "cpu"} and "type": "AdamW"',
        rule="ZP312", key="bf16.bf16_master_weights_and_grads", since="0.18.3", until="0.19.1",
    ),
    Refusal(
        accumulates_as_the_model, "runtime/engine.py:_configure_optimizer",
        "data_types.grad_accum_dtype at stage 0, where bf16 accumulates in fp32 and others in their own dtype",
        "leave it out",
        rule="ZP315", key="data_types.grad_accum_dtype", until="0.17.6",
    ),
    Refusal(
        accumulates_apart_from_the_model, "runtime/engine.py:_configure_optimizer",
        "data_types.grad_accum_dtype is not the model's dtype at stage 0", 'leave it out, or write "stage": 1',
        rule="ZP315", key="data_types.grad_accum_dtype", since="0.17.6", until="0.18.5",
    ),
    Refusal(
        lamb_without_loss_scaling, "runtime/engine.py:_do_optimizer_sanity_check",
        "optimizer Lamb in bf16, or with a fixed fp16.loss_scale", 'write "fp16": {"enabled": true}',
        rule="ZP607", key="optimizer.type", until="0.17.1",
    ),
    Refusal(
        lambda c: c.optimizer == "muon" and c.stage == 3, "runtime/engine.py:_configure_basic_optimizer",
        "optimizer Muon at stage 3", 'write "stage": 2',
        rule="ZP608", key="optimizer.type", since="0.17.6", until="0.18.9",
    ),
    Refusal(
        muon_on_the_host, "runtime/zero/stage_1_and_2.py:__init__",
        "optimizer Muon with offload_optimizer and reduce_scatter, which is on by default",
        'write "reduce_scatter": false',
        rule="ZP608", key="optimizer.type", since="0.19.3", until="0.19.8",
    ),
    Refusal(
        muon_of_fp32_sums, "runtime/engine.py:_configure_bf16_optimizer",
        "optimizer Muon at stage 1 in bf16 with fp32 accumulation", 'write "stage": 2',
        rule="ZP608", key="optimizer.type", since="0.19.7", until="0.19.8",
    ),
    Refusal(
        one_bit_under_zero, "runtime/engine.py:_configure_basic_optimizer",
        "a 1-bit optimizer under ZeRO", 'write "type": "AdamW", or "stage": 0',
        rule="ZP601", key="optimizer.type", until="0.19.7",
    ),
    Refusal(
        lambda c: autocast(c) and (c("fp16.enabled") is True or c("bf16.enabled") is True),
        "runtime/torch_autocast.py:init_autocast_params",
        "torch_autocast beside fp16 or bf16", "keep one",
        rule="ZP323", key="torch_autocast.enabled", since="0.17.2", until="0.18.3",
    ),
    Refusal(
        lambda c: on(c) and c.optimizer == "muon", "runtime/zenflow/zenflow_stage_1_and_2.py:step",
        f"{SECTION} with Muon, and the first step stops", 'write "type": "AdamW"',
        rule="ZP523", key="optimizer.type", since="0.17.5", until="0.19.6",
    ),
    Refusal(
        zenflow_parameters, "ops/adam/zenflow_torch_adam.py",
        f"{SECTION} with a name in optimizer.params that PyTorch's AdamW does not know",
        f"keep {', '.join(TORCH_ADAMW[:4])}",
        rule="ZP523", key="optimizer.params", since="0.17.5", until="0.19.1",
    ),
    Refusal(
        lambda c: c.stage == 3 and switched_on(c), "runtime/zenflow/engine.py",
        f"{SECTION} at stage 3, and training stops in the first steps", 'write "stage": 2',
        rule="ZP523", key=SECTION, since="0.17.5", until="0.18.1",
    ),
    Refusal(
        without_switch, "runtime/config.py:get_amp_params, get_pld_params",
        f"{', '.join(SWITCHED[:-1])} or {SWITCHED[-1]} without enabled", 'write "enabled": false there',
        rule=RULE, key="", until="0.19.8",
    ),
    Refusal(
        lambda c: c.optimizer == "muon", "runtime/engine.py:_configure_basic_optimizer",
        "optimizer Muon of PyTorch's, which takes matrices alone", 'write "type": "AdamW"',
        rule=RULE, key="optimizer.type", until="0.17.6",
    ),
    Refusal(
        lambda c: not isinstance(c.stated("torch_autocast.enabled"), bool | int | None), "runtime/engine.py:forward",
        "torch_autocast.enabled that is no true or false", 'write "enabled": true',
        rule=RULE, key="torch_autocast.enabled", since="0.17.2", until="0.17.6",
    ),
    Refusal(
        lambda c: dynamic_fp16(c) and c.stated("fp16.loss_scale_window") == 0,
        "runtime/fp16/loss_scaler.py:update_scale",
        "fp16.loss_scale_window 0", 'write "loss_scale_window": 1000',
        rule=RULE, key="fp16.loss_scale_window", until="0.17.1",
    ),
    Refusal(
        lambda c: c("fp16.enabled") is True and isinstance(c.stated("fp16.loss_scale"), str),
        "runtime/fp16/fused_optimizer.py:backward", "a text for fp16.loss_scale", 'write "loss_scale": 0',
        rule=RULE, key="fp16.loss_scale", until="0.17.1",
    ),
    Refusal(
        drops_layers_by_no_schedule, "runtime/engine.py:pld_theta, pld_gamma",
        "progressive_layer_drop without theta and gamma", 'write "theta": 0.5 and "gamma": 0.001',
        rule=RULE, key="progressive_layer_drop", until="0.19.8",
    ),
    Refusal(
        elastic_beside_batch_sizes, "elasticity/config.py, runtime/config.py:DeepSpeedConfig.__init__",
        "elasticity without max_train_batch_size and micro_batch_sizes, or beside batch sizes",
        'write them, and "ignore_non_elastic_batch_info": true',
        rule=RULE, key="elasticity.enabled", until="0.19.8",
    ),
    Refusal(
        amp_with_another, "runtime/engine.py:_do_sanity_check, _configure_optimizer",
        "amp beside ZeRO, fp16 or bf16", "delete amp",
        rule=RULE, key="amp.enabled", until="0.19.8",
    ),
    Refusal(
        lambda c: c.states("steps_per_print") and c.stated("steps_per_print") is None, "runtime/engine.py:__init__",
        "steps_per_print is null", 'write "steps_per_print": 10',
        rule=RULE, key="steps_per_print", until="0.15.2",
    ),
    Refusal(
        lambda c: tensor_parallel(c) and c.stage == 3, "runtime/engine.py:_do_sanity_check",
        "tensor_parallel.autotp_size at stage 3", 'write "stage": 2',
        rule=RULE, key="tensor_parallel.autotp_size", since="0.16.4", until="0.19.4",
    ),
    Refusal(
        lambda c: expert_parallel(c) and (c.stage == 3 or tensor_parallel(c)), "runtime/engine.py:_do_sanity_check",
        "expert_parallel at stage 3 or with tensor_parallel", 'write "stage": 2, without autotp_size',
        rule=RULE, key="expert_parallel.enabled", since="0.19.2", until="0.19.3",
    ),
    Refusal(
        lambda c: expert_parallel(c) and c.stage == 3 and tensor_parallel(c), "runtime/engine.py:_do_sanity_check",
        "expert_parallel with tensor_parallel at stage 3", 'write "stage": 2',
        rule=RULE, key="expert_parallel.enabled", since="0.19.3", until="0.19.8",
    ),
    Refusal(
        lambda c: not c("managed_gradient_accumulation") and offloads_anything(c), "runtime/engine.py:_do_sanity_check",
        "managed_gradient_accumulation is false with offloading", 'write "managed_gradient_accumulation": true',
        rule="ZP209", key="managed_gradient_accumulation", since="0.19.4", until="0.19.5",
    ),
    Refusal(
        lambda c: c.states("scheduler.params.warmup_max_lr") and c.stated("scheduler.params.warmup_max_lr") is None
        and c.stated("scheduler.type") in ("WarmupLR", "WarmupDecayLR"), "runtime/lr_schedules.py:WarmupLR.__init__",
        "scheduler.params.warmup_max_lr is null", 'write "warmup_max_lr": 0.001',
        rule=RULE, key="scheduler.params.warmup_max_lr", until="0.17.2",
    ),
    Refusal(
        lambda c: c.stated("scheduler.type") == "WarmupCosineLR"
        and c.stated("scheduler.params.warmup_type") not in (None, "log", "linear"),
        "runtime/lr_schedules.py:WarmupCosineLR.get_lr_ratio",
        "scheduler.params.warmup_type of WarmupCosineLR is neither log nor linear", 'write "warmup_type": "log"',
        rule=RULE, key="scheduler.params.warmup_type", until="0.19.4",
    ),
    Refusal(
        lambda c: c.stated("scheduler.type") == "WarmupCosineLR"
        and isinstance(c.stated("scheduler.params.total_num_steps"), int)
        and c.stated("scheduler.params.total_num_steps") == c.stated("scheduler.params.warmup_num_steps"),
        "runtime/lr_schedules.py:WarmupCosineLR.get_lr_ratio",
        "total_num_steps of WarmupCosineLR is warmup_num_steps, and the step after the warm-up divides by nothing",
        "write more steps",
        rule=RULE, key="scheduler.params.total_num_steps", until="0.19.3",
    ),
    Refusal(
        lambda c: c.stated("scheduler.type") == "OneCycle"
        and any(isinstance(value, list) for value in c.section("scheduler.params").values()),
        "runtime/lr_schedules.py:OneCycle._get_decay_lr",
        "a list in scheduler.params of OneCycle", "write one number",
        rule=RULE, key="scheduler.params", until="0.19.6",
    ),
)  # fmt: skip
