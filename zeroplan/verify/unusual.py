"""Unusual keys together: a drawn case (`zeroplan.verify.cases`) with two to six settings that few configs have.

`draw(seed)` is a case as `zeroplan.verify.measure` takes it. A row says where DeepSpeed 0.19.8 takes a key; what it
refuses beyond that is measured as "refused". Not drawn: what zeroplan names as not counted, what only saving or loading
a checkpoint reads, and enable_sanity_checks, whose broadcasts the measurement answers itself.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any, NamedTuple

from zeroplan.deepspeed.facts import Facts
from zeroplan.verify import cases

ZERO, PARAMS = "zero_optimization", "optimizer.params"
OFFLOAD, PARAM = f"{ZERO}.offload_optimizer", f"{ZERO}.offload_param"
Condition = Callable[[Facts], object]


class Unusual(NamedTuple):
    path: str
    """Dotted, in the ds_config."""
    values: tuple[Any, ...]
    fits: Condition


def everywhere(_c: Facts) -> bool:
    return True


def sharded(c: Facts) -> bool:
    return c.stage > 0


def stage_3(c: Facts) -> bool:
    return c.stage == 3


def gradients_sharded(c: Facts) -> bool:
    return c.stage in (1, 2)


def scales_before(c: Facts) -> bool:
    """Dividing gradients before they are reduced, which reduce_scatter at stages 2 and 3 forbids."""
    return c.stage < 2 or not c(f"{ZERO}.reduce_scatter")


def adds(c: Facts) -> bool:
    return c.stage < 3 and not flows(c)


def accumulates_in_another(c: Facts) -> bool:
    """Neither ZenFlow nor a step without norms, which BF16_Optimizer does not know."""
    return c.stage > 0 and not flows(c) and c(f"{ZERO}.compute_grad_norm")


def flows(c: Facts) -> bool:
    return c.stated(f"{ZERO}.zenflow") is not None


def plain_fp32(c: Facts) -> bool:
    return c.dtype == "fp32" and not flows(c)


def torch_adam(c: Facts) -> bool:
    return bool(c.stated(f"{PARAMS}.torch_adam"))


def fused_adam(c: Facts) -> bool:
    return c.optimizer in ("adam", "adamw") and not torch_adam(c) and not c.offloads_optimizer


def partly_offloaded(c: Facts) -> bool:
    return c.offloads_optimizer and c(f"{OFFLOAD}.ratio") < 1


def may_change_optimizer(c: Facts) -> bool:
    """Another than Adam holds its states in fp32 and is offloaded as a whole, to the host."""
    masters = any(c.stated(f"{name}.{name}_master_weights_and_grads") for name in ("fp16", "bf16"))
    return not (masters or flows(c) or partly_offloaded(c) or on_nvme(c, OFFLOAD))


def on_nvme(c: Facts, path: str) -> bool:
    return bool(c.stated(f"{path}.device") == "nvme")


def swaps(c: Facts) -> bool:
    return c.stage == 3 and (on_nvme(c, OFFLOAD) or on_nvme(c, PARAM))


def may_offload_parameters(c: Facts) -> bool:
    return c.stage == 3 and not c.states(PARAM)


def may_swap_parameters(c: Facts) -> bool:
    """Beside an optimizer on NVMe, for which the model is large enough; secondary partitions cannot be there."""
    return may_offload_parameters(c) and on_nvme(c, OFFLOAD) and not c.states(f"{ZERO}.zero_hpz_partition_size")


ADAGRAD = {"type": "Adagrad", "params": {"lr": 1e-5, "weight_decay": 0.01}}
LION = {"type": "Lion", "params": {"lr": 1e-5}}
ON_NVME = {"device": "nvme", "nvme_path": "/nvme", "pin_memory": True}
LEAVES: tuple[dict[str, list[str]], ...] = (
    {"name_suffixes": ["mlp"]}, {"classes": ["LlamaMLP", "GPT2Block"]},
    {"names": ["model.layers.0", "transformer.h.0"]}, {"classes": []},
)  # fmt: skip
KEYS: tuple[Unusual, ...] = (
    Unusual("communication_data_type", ("fp16", "bf16", "fp32"), sharded),
    Unusual("prescale_gradients", (True,), scales_before),
    Unusual("gradient_predivide_factor", (2.0,), scales_before),
    Unusual("gradient_allreduce_op", ("sum",), adds),
    Unusual("data_types.grad_accum_dtype", ("fp32", "fp16", "bf16"), accumulates_in_another),
    Unusual("data_types.buffer_dtype", ("bf16", "fp32"), everywhere),
    Unusual("fp16.loss_scale", (0,), lambda c: c.dtype == "fp16"),
    Unusual("fp16.auto_cast", (True,), lambda c: c.dtype == "fp16"),
    Unusual("bf16.immediate_grad_update", (True,), lambda c: c.dtype == "bf16"),
    Unusual("bf16.check_grad_overflow", (False,), lambda c: c.dtype == "bf16"),
    Unusual("torch_autocast", tuple({"enabled": True, "dtype": name} for name in ("bfloat16", "float16")), plain_fp32),
    Unusual(f"{PARAMS}.amsgrad", (True,), torch_adam),
    Unusual(f"{PARAMS}.foreach", (False,), torch_adam),
    Unusual(f"{PARAMS}.fp32_optimizer_states", (False,), lambda c: c.builds_cpu_adam and not flows(c)),
    Unusual(f"{PARAMS}.set_grad_none", (False,), fused_adam),
    Unusual(f"{PARAMS}.adam_w_mode", (False,), lambda c: c.optimizer == "adam"),
    Unusual("optimizer", (ADAGRAD, LION), may_change_optimizer),
    Unusual(f"{ZERO}.allgather_partitions", (False,), sharded),
    Unusual(f"{ZERO}.ignore_unused_parameters", (False,), gradients_sharded),
    Unusual(f"{ZERO}.stage3_use_all_reduce_for_fetch_params", (True,), stage_3),
    Unusual(f"{ZERO}.stage3_allgather_sequential", (True,), stage_3),
    Unusual(f"{ZERO}.stage3_module_granularity_threshold", (300, 1_000), stage_3),
    Unusual(f"{ZERO}.leaf_module", LEAVES, stage_3),
    Unusual(f"{ZERO}.memory_efficient_linear", (False,), stage_3),
    Unusual(f"{ZERO}.override_module_apply", (False,), stage_3),
    Unusual(f"{ZERO}.zero_quantized_nontrainable_weights", (True,), stage_3),
    Unusual(PARAM, tuple({"device": "cpu", "pin_memory": pins} for pins in (True, False)), may_offload_parameters),
    Unusual(PARAM, (ON_NVME,), may_swap_parameters),
    Unusual(f"{OFFLOAD}.fast_init", (True,), lambda c: c.stage == 3 and on_nvme(c, OFFLOAD)),
    Unusual("aio.block_size", (4_096, 4 * 1024**2), swaps),
    Unusual("aio.intra_op_parallelism", (2, 8), swaps),
)  # fmt: skip
CHECKPOINTING = ("every-2", "every-3-reentrant", "full-reentrant", "deepspeed", "selective")


def put(config: dict[str, Any], path: str, value: Any) -> None:
    """Set the value at a dotted path, whose sections are made where there are none."""
    *sections, name = path.split(".")
    for section in sections:
        config = config.setdefault(section, {})
    config[name] = copy.deepcopy(value)


def in_codes(r: random.Random, case: dict[str, Any]) -> None:
    """ZeRO++'s quantized collectives, and a model of widths whose partitions they can quantize."""
    hidden = r.choice((128, 256))
    case["model"] = {
        "model_type": r.choice(("llama", "qwen2", "mistral")), "hidden_size": hidden, "num_attention_heads": 4,
        "num_key_value_heads": r.choice((2, 4)), "intermediate_size": 256 * r.choice((1, 2, 3)),
        "num_hidden_layers": r.choice((1, 2, 3)), "vocab_size": 256 * r.choice((1, 2, 5)),
        "tie_word_embeddings": r.random() < 0.4,
    }  # fmt: skip
    case |= {"world": 8, "ranks_per_node": r.choice((2, 4, 8)), "rank": r.choice((0, 1, 7))}
    section = case["ds_config"][ZERO]
    section["zero_quantized_weights"] = True
    section.pop("zero_hpz_partition_size", None)
    if section.get("reduce_scatter", True) and r.random() < 0.5:
        section["zero_quantized_gradients"] = True


def draw(seed: int) -> dict[str, Any]:
    """One case, the same for the same seed; nothing in it is frozen."""
    r = random.Random(seed)  # noqa: S311 (draws, not secrets)
    case = copy.deepcopy(cases.draw(seed)) | {"freeze": None}
    config = case["ds_config"]
    facts = Facts(config, "case")
    for row in r.sample(KEYS, len(KEYS)):
        if row.fits(facts) and r.random() < 0.3:
            put(config, row.path, r.choice(row.values))
    if stage_3(facts) and not cases.swaps(config[ZERO]) and "torch_autocast" not in config and r.random() < 0.15:
        in_codes(r, case)
    elif may_change_optimizer(facts) and r.random() < 0.1:
        case = cases.under_muon(case)
        config = case["ds_config"]
    if stage_3(facts) and not on_nvme(facts, PARAM) and r.random() < 0.4:
        nodes = [ranks for ranks in (2, 4, 8) if case["world"] % ranks == 0]
        config[ZERO]["zero_hpz_partition_size"] = r.choice(nodes or [1])
    if r.random() < 0.3:
        case["checkpointing"] = r.choice(CHECKPOINTING)
    return case
