"""The order in which transformers' own models run under DeepSpeed's own hooks, as an `Execution`.

DeepSpeed's stage 3 hooks are set up on a small model, with a coordinator that writes down what they ask for
instead of gathering; nothing is partitioned. Its replacement of torch.nn.functional.linear is in place meanwhile.
"""

from __future__ import annotations

import copy
import random
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import transformers
from deepspeed.runtime.zero.leaf_module_config import DeepSpeedZeroLeafModuleConfig
from deepspeed.runtime.zero.linear import zero3_linear_wrap
from deepspeed.runtime.zero.parameter_offload import DeepSpeedZeRoOffload
from deepspeed.utils.z3_leaf_module import apply_zero_leaf_module_config, z3_leaf_module, z3_leaf_parameter

from tests.architectures.draws import Draw, draw
from zeroplan.architectures.module import Module
from zeroplan.architectures.read import accepted_architectures, build_module, read_config
from zeroplan.errors import ZeroplanError
from zeroplan.specs.execution import Execution, ModuleHook
from zeroplan.specs.model import LeafModules

transformers.logging.set_verbosity_error()
torch.set_num_threads(1)  # threads cost more than these sizes take

Event = tuple[bool, str, bool]
"""Fetched or released, the module's path, and whether under backward."""
NO_LEAVES = LeafModules(classes=())

# Experts few and of widths that transformers' grouped_mm takes, so that draws run.
FIXED: dict[str, Draw] = {
    "deepseek_v2": {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8},
    "deepseek_v3": {"n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1},
    "gpt_oss": {"num_local_experts": 3, "num_experts_per_tok": 2, "intermediate_size": 16},
    "mixtral": {"num_local_experts": 3, "intermediate_size": 16},
    "qwen2_moe": {"num_experts_per_tok": 2, "moe_intermediate_size": 8},
    "qwen3_moe": {"num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8},
}
# What the shared draws leave alone and the order depends on.
DROPOUTS = ("hidden_dropout_prob", "hidden_dropout", "resid_pdrop", "residual_dropout", "dropout")
EXTRA: dict[str, dict[str, list[Any]]] = {
    "opt": {"word_embed_proj_dim": [None, 6]},
    "falcon": {"bias": [True, False]},
    "gpt2": {"reorder_and_upcast_attn": [True, False]},
    "deepseek_v2": {"first_k_dense_replace": [0, 1]},
    "deepseek_v3": {"first_k_dense_replace": [0, 1]},
    **{family: {"output_router_logits": [True, False]} for family in ("gpt_oss", "mixtral", "qwen2_moe", "qwen3_moe")},
}


def varied(family: str, seed: int) -> Draw:
    """A draw, with dropouts on or off and the choices above."""
    rng = random.Random(f"execution {family} {seed}")
    config = draw(family, seed) | FIXED.get(family, {})
    dropout = rng.choice([0.0, 0.1])
    known = transformers.CONFIG_MAPPING[family]().to_dict()
    config |= {name: dropout for name in DROPOUTS if name in known}
    return config | {name: rng.choice(values) for name, values in EXTRA.get(family, {}).items()}


class Coordinator:
    """Takes the place of DeepSpeed's: fetches and releases nothing, notes each request."""

    def __init__(self, model: Any) -> None:
        self.paths = {id(module): path for path, module in model.named_modules()}
        self.events: list[Event] = []

    def fetch_sub_module(self, module: Any, forward: bool) -> None:
        self.events.append((True, self.paths[id(module)], not forward))

    def release_sub_module(self, module: Any, forward: bool) -> None:
        self.events.append((False, self.paths[id(module)], not forward))

    def is_invalid_trace(self) -> bool:
        return True

    def is_record_trace(self) -> bool:
        return False

    def reset_step(self) -> None: ...

    def trace_prologue(self, module: Any) -> None: ...


def hooked(model: Any, leaves: LeafModules) -> Coordinator:
    """DeepSpeed's hooks on every module of the model, leaves taken as a whole."""
    kinds = {"classes": leaves.classes, "names": leaves.names, "name_suffixes": leaves.name_suffixes}
    settings = DeepSpeedZeroLeafModuleConfig(**{kind: list(chosen) for kind, chosen in kinds.items()})
    apply_zero_leaf_module_config(model, settings)
    offload = DeepSpeedZeRoOffload.__new__(DeepSpeedZeRoOffload)
    offload.module, offload.zenflow = model, False
    offload.forward_hooks, offload.backward_hooks = [], []
    offload.param_coordinator = Coordinator(model)
    if leaves.granularity_threshold > 0:
        for parameter in model.parameters():
            parameter.ds_numel = parameter.numel()
        offload.min_granularity_value, offload.min_granularity_layer = sys.maxsize, None
        offload.granularity_info, offload.z3_leaf_layers = set(), []
        offload._get_granularity_recursively(model)
        offload._set_leaf_by_threshold_preorder(model, leaves.granularity_threshold)
    offload.setup_zero_stage3_hooks()
    owners = (parameter.ds_z3_leaf_module for parameter in model.parameters() if z3_leaf_parameter(parameter))
    for module in dict.fromkeys(owners):  # the optimizer's hook, which reduces the gradients of a leaf together
        module.register_full_backward_hook(lambda *_gradients: None)
    return offload.param_coordinator


@contextmanager
def linear(function: Any) -> Iterator[None]:
    plain = torch.nn.functional.linear
    torch.nn.functional.linear = function
    try:
        yield
    finally:
        torch.nn.functional.linear = plain


class Recorder:
    """A model built from config.json, trained for single steps; DeepSpeed's hooks come before its first forward."""

    def __init__(self, config: Draw, dtype: Any, attention: str, leaves: LeafModules | None = None) -> None:
        config = copy.deepcopy(config)
        model_type = config.pop("model_type")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            read = transformers.CONFIG_MAPPING[model_type](**config)
            read._attn_implementation = attention  # Falcon does not take another one later
            torch.manual_seed(0)
            self.model = getattr(transformers, accepted_architectures(model_type)[0])(read).to(dtype).train()
        self.events: list[Event] = [] if leaves is None else hooked(self.model, leaves).events
        self.ready: list[int] = []
        self.index = {id(p): i for i, (_name, p) in enumerate(self.model.named_parameters())}
        for parameter in self.model.parameters():
            parameter.register_post_accumulate_grad_hook(lambda p: self.ready.append(self.index[id(p)]))
        self.tokens = torch.randint(3, read.vocab_size, (2, 4))

    def step(self) -> tuple[list[int], list[Event], list[Event]]:
        """Gradients as they become ready, and the requests of forward and of backward."""
        self.ready.clear()
        self.events.clear()
        loss = self.model(input_ids=self.tokens, labels=self.tokens).loss
        middle = len(self.events)
        loss.backward()
        return list(self.ready), self.events[:middle], self.events[middle:]

    def both(self) -> tuple[list[int], list[Event], list[Event], list[Event]]:
        """A step without checkpointing and one with it: the same forward, the same order of gradients."""
        gradients, forward, backward = self.step()
        self.model.gradient_checkpointing_enable()
        again, forward_again, recomputing = self.step()
        self.model.gradient_checkpointing_disable()
        assert (gradients, forward) == (again, forward_again)
        return gradients, forward, backward, recomputing

    def tensors(self, module: Any, *, recurse: bool) -> tuple[int, ...]:
        return tuple(self.index[id(parameter)] for parameter in module.parameters(recurse))


def together(plain: Recorder, offloaded: Recorder) -> Execution:
    gradients = plain.both()[0]
    with linear(zero3_linear_wrap):
        gradients_stage_3, forward, backward, recomputing = offloaded.both()
    paths = list(dict.fromkeys(path for _enters, path, _backward in forward))
    modules = [offloaded.model.get_submodule(path) for path in paths]
    fetched = [offloaded.tensors(module, recurse=z3_leaf_module(module)) for module in modules]
    place = {path: index for index, path in enumerate(paths)}

    def hooks(events: list[Event]) -> tuple[ModuleHook, ...]:
        return tuple(
            ModuleHook(enters, place[path], fetched[place[path]], backward) for enters, path, backward in events
        )

    leaves = frozenset(index for index, module in enumerate(modules) if z3_leaf_module(module))
    return Execution(
        modules=tuple(paths),
        forward=hooks(forward),
        backward=hooks(backward),
        recomputing=hooks(recomputing),
        gradients=tuple(gradients),
        gradients_stage_3=tuple(gradients_stage_3),
        leaves=leaves,
        subtrees=tuple(offloaded.tensors(module, recurse=True) for module in modules) if leaves else (),
    )


def recorded(config: Draw, dtype: Any = torch.float32, leaves: LeafModules = NO_LEAVES) -> dict[str, Execution]:
    """By attention: eager and, where the model has it, torch's own. Raises what the model raises."""
    executions = {}
    for attention in ("eager", "sdpa"):
        plain = Recorder(config, dtype, attention)
        plain.model(input_ids=plain.tokens)  # most of what cannot run fails here
        executions[attention] = together(plain, Recorder(config, dtype, attention, leaves))
        if not plain.model._supports_sdpa:
            break
    return executions


def runnable(
    family: str, dtype: Any = torch.float32, leaves: LeafModules = NO_LEAVES
) -> Iterator[tuple[Draw, Module, dict[str, Execution]]]:
    """Draws that both sides build and transformers can run forward: many odd sizes fail in its attention."""
    for seed in range(1000):
        config = varied(family, seed)
        try:
            mine = build_module(*read_config(copy.deepcopy(config), "config.json"))
            theirs = recorded(config, dtype, leaves)
        except (ZeroplanError, RuntimeError, ValueError, IndexError, TypeError, AttributeError):
            continue
        yield config, mine, theirs
