"""The order in which transformers' own models run under DeepSpeed's own hooks, as an `Execution`.

DeepSpeed's stage 3 hooks are set up on a small model, with a coordinator that writes down what they ask for
instead of gathering; nothing is partitioned. Its replacement of torch.nn.functional.linear is in place meanwhile.
"""

from __future__ import annotations

import copy
import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import transformers
from deepspeed.runtime.zero.linear import zero3_linear_wrap
from deepspeed.runtime.zero.parameter_offload import DeepSpeedZeRoOffload

from tests.architectures.draws import Draw, draw
from zeroplan.architectures.execution import Execution
from zeroplan.architectures.module import Module
from zeroplan.architectures.read import accepted_architectures, build_module, read_config
from zeroplan.errors import ZeroplanError

transformers.logging.set_verbosity_error()
torch.set_num_threads(1)  # threads cost more than these sizes take

Event = tuple[bool, Any]

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


def layers(config: Draw) -> int:
    return int(config.get("n_layer", config.get("num_hidden_layers", 2)))


class Coordinator:
    """Takes the place of DeepSpeed's: fetches and releases nothing, notes each request."""

    def __init__(self, model: Any) -> None:
        self.paths = {id(module): path for path, module in model.named_modules() if list(module.parameters(False))}
        self.events: list[Event] = []

    def note(self, enters: bool, module: Any) -> None:
        if id(module) in self.paths:
            self.events.append((enters, self.paths[id(module)]))

    def fetch_sub_module(self, module: Any, forward: bool) -> None:
        self.note(True, module)

    def release_sub_module(self, module: Any, forward: bool) -> None:
        self.note(False, module)

    def is_invalid_trace(self) -> bool:
        return True

    def is_record_trace(self) -> bool:
        return False

    def reset_step(self) -> None: ...

    def trace_prologue(self, module: Any) -> None: ...


def hooked(model: Any) -> Coordinator:
    """DeepSpeed's hooks on every module of the model."""
    offload = DeepSpeedZeRoOffload.__new__(DeepSpeedZeRoOffload)
    offload.module, offload.zenflow = model, False
    offload.forward_hooks, offload.backward_hooks = [], []
    offload.param_coordinator = Coordinator(model)
    offload.setup_zero_stage3_hooks()
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

    def __init__(self, config: Draw, dtype: Any, *, offloaded: bool = False) -> None:
        config = copy.deepcopy(config)
        model_type = config.pop("model_type")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            read = transformers.CONFIG_MAPPING[model_type](**config)
            read._attn_implementation = "eager"
            torch.manual_seed(0)
            self.model = getattr(transformers, accepted_architectures(model_type)[0])(read).to(dtype).train()
        self.events: list[Event] = hooked(self.model).events if offloaded else []
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


def steps(events: list[Event], modules: list[str]) -> tuple[Event, ...]:
    place = {path: index for index, path in enumerate(modules)}
    return tuple((enters, place[path]) for enters, path in events)


def together(plain: Recorder, offloaded: Recorder) -> Execution:
    gradients = plain.both()[0]
    with linear(zero3_linear_wrap):
        gradients_stage3, forward, backward, recomputing = offloaded.both()
    modules = list(dict.fromkeys(path for _enters, path in forward))
    own = [offloaded.model.get_submodule(path).parameters(False) for path in modules]
    return Execution(
        modules=tuple(modules),
        owned=tuple(tuple(offloaded.index[id(p)] for p in parameters) for parameters in own),
        forward=steps(forward, modules),
        backward=steps(backward, modules),
        recomputing=steps(recomputing, modules),
        gradients=tuple(gradients),
        gradients_stage3=tuple(gradients_stage3),
    )


def recorded(config: Draw, dtype: Any = torch.float32) -> list[Execution]:
    """As run with eager attention and, where the model has it, with torch's own. Raises what the model raises."""
    plain = Recorder(config, dtype)
    plain.model(input_ids=plain.tokens)  # most of what cannot run fails here
    offloaded = Recorder(config, dtype, offloaded=True)
    executions = []
    for attention in ["eager", "sdpa"] if plain.model._supports_sdpa else ["eager"]:
        plain.model.set_attn_implementation(attention)
        offloaded.model.set_attn_implementation(attention)
        executions.append(together(plain, offloaded))
    return executions


def runnable(family: str, dtype: Any = torch.float32) -> Iterator[tuple[Draw, Module, list[Execution]]]:
    """Draws that both sides build and transformers can run forward: many odd sizes fail in its attention."""
    for seed in range(1000):
        config = varied(family, seed)
        try:
            mine = build_module(*read_config(copy.deepcopy(config), "config.json"))
            theirs = recorded(config, dtype)
        except (ZeroplanError, RuntimeError, ValueError, IndexError, TypeError, AttributeError):
            continue
        yield config, mine, theirs
