"""What DeepSpeed 0.19.8 refuses in the sections optimizer and scheduler: one row per condition."""

from __future__ import annotations

from typing import Any

from zeroplan.deepspeed.facts import Facts
from zeroplan.deepspeed.keys import KEYS
from zeroplan.deepspeed.keys.optimizer import OPTIMIZER_PARAMS
from zeroplan.deepspeed.keys.optimizer_classes import ZERO_TESTED
from zeroplan.deepspeed.keys.scheduler import REQUIRED_SCHEDULER_PARAMS, SCHEDULER_PARAMS
from zeroplan.deepspeed.refusals import Refusal
from zeroplan.deepspeed.values import AUTO
from zeroplan.errors import SpecError, UnknownNameError, shown

TORCH_SCHEDULERS = (
    "ChainedScheduler", "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "CyclicLR", "ExponentialLR",
    "LRScheduler", "LambdaLR", "LinearLR", "MultiStepLR", "MultiplicativeLR", "OneCycleLR", "PolynomialLR",
    "ReduceLROnPlateau", "SequentialLR", "StepLR", "_LRScheduler",
)  # fmt: skip
"""Classes of torch.optim.lr_scheduler, which DeepSpeed takes by name (runtime/engine.py:1929)."""
TORCH_ADAM = ("maximize", "capturable", "differentiable", "fused", "decoupled_weight_decay")
"""What torch.optim's Adam and AdamW know beside."""
OPTIMIZER_NUMBERS = ("lr", "eps", "weight_decay", "momentum", "muon_lr", "adam_lr", "max_coeff", "min_coeff")
WHOLE = ("warmup_num_steps", "lr_range_test_step_size")
"""Steps of a schedule that have to be integers over 0 (runtime/lr_schedules.py:371, 734 and 875)."""
SCHEDULER_NUMBERS = (
    "warmup_min_lr", "warmup_max_lr", "total_num_steps", "warmup_min_ratio", "cos_min_ratio", "lr_range_test_min_lr",
    "lr_range_test_step_rate", "cycle_min_lr", "cycle_max_lr", "decay_lr_rate", "cycle_min_mom", "cycle_max_mom",
    "decay_mom_rate",
)  # fmt: skip


def null_section(c: Facts) -> bool:
    return any(name in c.config and c.config[name] is None for name in ("optimizer", "scheduler"))


def clips_in_the_optimizer(c: Facts) -> bool:
    return c.optimizer != "" and c.states("optimizer.params.max_grad_norm")


def torch_optimizer_in_another_case(c: Facts) -> bool:
    return c.optimizer == "sgd" and c.stated("optimizer.type") != "SGD"


def static_loss_scale_with_lamb(c: Facts) -> bool:
    return c.optimizer == "lamb" and c("fp16.loss_scale") != 0


def lamb_on_the_host(c: Facts) -> bool:
    """FusedLamb has no build for the CPU: its kernel checks that tensors are on the GPU."""
    return c.optimizer == "lamb" and c.offloads_optimizer


def untested_under_zero(c: Facts) -> bool:
    made, tested = c.optimizer_class, {*ZERO_TESTED}
    if c.table.before("0.18.5"):
        tested.discard("muon")
    if c.table.before("0.19.3"):
        tested.discard("ZenFlowCPUAdam")
    return c.stage > 0 and made != "" and made not in tested and not c("zero_allow_untested_optimizer")


def fused_amsgrad(c: Facts) -> bool:
    """Only torch's own Adam knows the variant; DeepSpeed's fused and CPU builds stop."""
    adam = c.optimizer in ("adam", "adamw") and not c.stated("optimizer.params.torch_adam")
    if c.table.before("0.19.8") and c.optimizer_class != "FusedAdam":
        return False  # the CPU build took it without a word
    return adam and bool(c.stated("optimizer.params.amsgrad"))


def legacy_fusion(c: Facts) -> bool:
    """The older step of FP16_Optimizer calls the fused Adam in a way that it no longer knows."""
    sixteen = ("fp16",) if c.table.before("0.17.6") else ("fp16", "bf16")
    adam = c.dtype in sixteen and c.optimizer in ("adam", "adamw")
    return c.stage == 0 and adam and bool(c.stated("optimizer.legacy_fusion"))


def muon_with_reduce_scatter(c: Facts) -> bool:
    return c.optimizer == "muon" and c.stage == 3 and bool(c("zero_optimization.reduce_scatter"))


def muon_with_quantized_gradients(c: Facts) -> bool:
    return c.optimizer == "muon" and c.stage == 3 and bool(c("zero_optimization.zero_quantized_gradients"))


def muon_by_another_iteration(c: Facts) -> bool:
    method = c.stated("optimizer.params.ns_method")
    return c.optimizer == "muon" and method is not None and method not in ("gram", "standard")


def schedule_without_params(c: Facts) -> bool:
    return c.stated("scheduler.type") is not None and c.stated("scheduler.params") is None


def torch_schedule_of_a_wrapped_optimizer(c: Facts) -> bool:
    """PyTorch's schedules want a torch.optim.Optimizer, which what ZeRO and 16-bit training put around it is not."""
    wrapped = c.stage > 0 or c.dtype in ("fp16", "bf16")
    return wrapped and c.stated("scheduler.type") in TORCH_SCHEDULERS


REFUSALS: tuple[Refusal, ...] = (
    Refusal(
        null_section, "runtime/config.py:get_optimizer_name, get_scheduler_name",
        "optimizer or scheduler is null", "leave it out",
        rule="", key="optimizer",
    ),
    Refusal(
        clips_in_the_optimizer, "runtime/engine.py:2481",
        "optimizer.params.max_grad_norm", 'write "gradient_clipping": 1.0 at the top level',
        rule="ZP603", key="optimizer.params.max_grad_norm",
    ),
    Refusal(
        torch_optimizer_in_another_case, "runtime/engine.py:_configure_basic_optimizer",
        "optimizer.type is PyTorch's SGD in another case", 'write "type": "SGD"',
        rule="ZP602", key="optimizer.type",
    ),
    Refusal(
        static_loss_scale_with_lamb, "runtime/engine.py:2022",
        "optimizer Lamb with a fixed fp16.loss_scale", 'write "loss_scale": 0',
        rule="ZP607", key="fp16.loss_scale", since="0.17.1",
    ),
    Refusal(
        lamb_on_the_host, "ops/csrc/lamb/fused_lamb_cuda.cpp:29",
        "optimizer Lamb with offload_optimizer, and Lamb runs on the GPU only",
        'write "type": "AdamW", or leave offload_optimizer out',
        rule="ZP623", key="optimizer.type",
    ),
    Refusal(
        untested_under_zero, "runtime/engine.py:2299",
        "an optimizer that ZeRO was not tested with, without zero_allow_untested_optimizer",
        'write "zero_allow_untested_optimizer": true at the top level',
        rule="ZP604", key="optimizer.type",
    ),
    Refusal(
        fused_amsgrad, "ops/adam/fused_adam.py, cpu_adam.py:__init__",
        "optimizer.params.amsgrad without torch_adam", 'write "torch_adam": true beside it',
        rule="ZP624", key="optimizer.params.amsgrad",
    ),
    Refusal(
        legacy_fusion, "runtime/fp16/fused_optimizer.py:194",
        "optimizer.legacy_fusion is true at stage 0 in 16 bit, and the first step stops", "leave it out",
        rule="ZP625", key="optimizer.legacy_fusion",
    ),
    Refusal(
        muon_with_reduce_scatter, "runtime/zero/stage3.py:361",
        "optimizer Muon at stage 3 with reduce_scatter, which is on by default", 'write "reduce_scatter": false',
        rule="ZP608", key="optimizer.type", since="0.18.9",
    ),
    Refusal(
        muon_with_quantized_gradients, "runtime/zero/stage3.py:363",
        "optimizer Muon at stage 3 with zero_quantized_gradients", 'write "zero_quantized_gradients": false',
        rule="ZP608", key="optimizer.type", since="0.18.9",
    ),
    Refusal(
        muon_by_another_iteration, "runtime/zero/muon/original_muon.py:__init__",
        "optimizer.params.ns_method is neither gram nor standard", 'write "ns_method": "gram"',
        rule="ZP627", key="optimizer.params.ns_method", since="0.19.0",
    ),
    Refusal(
        torch_schedule_of_a_wrapped_optimizer, "runtime/engine.py:1935",
        "scheduler.type is a class of PyTorch's, which take no optimizer of ZeRO's or of 16-bit training",
        'write "type": "WarmupCosineLR", or build the schedule in the training script',
        rule="ZP628", key="scheduler.type",
    ),
    Refusal(
        schedule_without_params, "runtime/engine.py:_scheduler_from_config",
        "scheduler.type without scheduler.params", 'write "params": {}',
        rule="ZP616", key="scheduler.type",
    ),
)  # fmt: skip


def check_params(facts: Facts) -> None:
    """Arguments that the optimizer and the schedule cannot compute with. Raises `ZeroplanError`."""
    _check_optimizer(facts)
    _check_schedule(facts)


def _check_optimizer(facts: Facts) -> None:
    """Constructors take any value; the first step stops on a text or null (csrc/adam/multi_tensor_adam)."""
    params = facts.section("optimizer.params")
    known = OPTIMIZER_PARAMS.get(facts.optimizer, ())
    for name in params if known else ():
        if name not in (*known, *(TORCH_ADAM if params.get("torch_adam") else ())):
            raise UnknownNameError(
                f"parameter of {facts.stated('optimizer.type')} in {facts.place}", name, known, "DeepSpeed refuses it"
            )
    for name in OPTIMIZER_NUMBERS:
        if name in params and not _filled("optimizer.params", name, params[name]) and not _is_number(params[name]):
            _refuse_value(facts, f"optimizer.params.{name}", params[name], "a number without quotes")
    betas = params.get("betas", AUTO)
    if betas != AUTO and not (isinstance(betas, list) and len(betas) == 2 and all(_is_number(beta) for beta in betas)):
        _refuse_value(facts, "optimizer.params.betas", betas, "a list of two numbers")


def _check_schedule(facts: Facts) -> None:
    """Its type, and that its constructor takes each parameter (runtime/engine.py:_scheduler_from_config)."""
    named, params = facts.stated("scheduler.type"), facts.section("scheduler.params")
    if named is None:
        return
    if named not in (*SCHEDULER_PARAMS, *TORCH_SCHEDULERS):
        raise UnknownNameError(
            f"scheduler.type in {facts.place}:", str(named), SCHEDULER_PARAMS, "DeepSpeed refuses it"
        )
    if named not in SCHEDULER_PARAMS:
        return
    for name in REQUIRED_SCHEDULER_PARAMS.get(named, ()):
        if name not in params:
            raise SpecError(
                f"{facts.place}: scheduler.params", shown(params), f"{name}, which {named} needs", f'"{name}": 1000'
            )
    for name, value in params.items():
        if name not in SCHEDULER_PARAMS[named]:
            raise UnknownNameError(
                f"parameter of {named} in {facts.place}", name, SCHEDULER_PARAMS[named], "DeepSpeed refuses it"
            )
        _check_schedule_value(facts, name, value)


def _check_schedule_value(facts: Facts, name: str, value: Any) -> None:
    path = f"scheduler.params.{name}"
    if _filled("scheduler.params", name, value):
        return
    if name in WHOLE and not (isinstance(value, int) and value > 0):
        _refuse_value(facts, path, value, "a whole number over 0")
    kinds = KEYS[path].kind.split("|") if path in KEYS else []
    per_group = "array" in kinds and isinstance(value, list) and all(_is_number(item) for item in value)
    absent = value is None and "null" in kinds
    if name in SCHEDULER_NUMBERS and not (_is_number(value) or per_group or absent):
        _refuse_value(facts, path, value, "a number without quotes")


def _filled(section: str, name: str, value: Any) -> bool:
    """Whether it is an "auto" that the Trainer replaces."""
    known = KEYS.get(f"{section}.{name}")
    return value == AUTO and known is not None and bool(known.auto)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


def _refuse_value(facts: Facts, path: str, value: Any, expected: str) -> None:
    known, name = KEYS.get(path), path.rpartition(".")[2]
    example = known.default if known is not None and known.default is not None else 1
    raise SpecError(f"{facts.place}: {path}", shown(value), expected, f'"{name}": {example}')
