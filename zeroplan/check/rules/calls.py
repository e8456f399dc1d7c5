"""Arguments that Accelerate's plugin and Lightning's strategy do not take, strategies that Lightning has not, and
from_pretrained(device_map=...) at stage 3.
"""

from __future__ import annotations

import ast
import difflib
import json
from collections.abc import Iterator
from typing import NamedTuple

from zeroplan.check.finding import ERROR, WARNING, Hit, said
from zeroplan.check.python_nodes import first_name, last_name, modules_of, outside_branches
from zeroplan.check.python_strategies import (
    AIO,
    CHECKPOINTING,
    LIGHTNING_ZERO,
    OF_LIGHTNING,
    OF_PLUGIN,
    OPTIMIZER,
    PARAMETERS,
    PLUGIN,
    REGISTERED,
    STRATEGY,
)
from zeroplan.check.rule import Example, Rule
from zeroplan.check.script_parser import OF_DEEPSPEED
from zeroplan.check.subject import Subject

TAKEN: dict[str, tuple[str, ...]] = {
    PLUGIN: (
        *OF_PLUGIN, "hf_ds_config", "is_train_batch_min", "offload_optimizer_nvme_path", "offload_param_nvme_path",
        "zero3_init_flag", "transformer_moe_cls_names", "enable_msamp", "msamp_opt_level",
    ),
    STRATEGY: (
        *LIGHTNING_ZERO, *AIO, *CHECKPOINTING, *(one for one, _ in OPTIMIZER.values()),
        *(one for one, _ in PARAMETERS.values()), "accelerator", "zero_optimization", "remote_device",
        "offload_optimizer", "offload_parameters", "zero_allow_untested_optimizer", "logging_batch_size_per_gpu",
        "config", "logging_level", "parallel_devices", "cluster_environment", "loss_scale", "initial_scale_power",
        "loss_scale_window", "hysteresis", "min_loss_scale", "load_full_weights", "precision_plugin", "precision",
        "process_group_backend", "timeout", "exclude_frozen_parameters",
    ),
}  # fmt: skip
"""By call. The same in all releases from accelerate 0.21 to 1.15, and from lightning 1.9 to 2.6, but for arguments that
came later: transformer_moe_cls_names, enable_msamp, timeout, exclude_frozen_parameters.
"""
PACKAGES_OF_CLASSES = {
    PLUGIN: ("accelerate",), **dict.fromkeys((STRATEGY, *OF_LIGHTNING),
                                             ("lightning", "pytorch_lightning", "lightning_fabric")),
}  # fmt: skip
FABRIC, OF_FABRIC = "Fabric", "deepspeed_stage_1_offload"
"""The strategy that Fabric alone has."""
TRAINER, DEEPSPEED, STAGE_3 = "Trainer", "deepspeed", 3
GONE = {
    **dict.fromkeys(("gpus", "num_processes", "tpu_cores", "ipus"), "accelerator and devices"),
    **dict.fromkeys(("amp_backend", "amp_level"), "precision"), "replace_sampler_ddp": "use_distributed_sampler",
    "resume_from_checkpoint": "trainer.fit(ckpt_path=...)",
    **dict.fromkeys(("auto_lr_find", "auto_scale_batch_size", "auto_select_gpus", "move_metrics_to_cpu",
                     "multiple_trainloader_mode", "track_grad_norm"), "delete it"),
}  # fmt: skip
"""Arguments of Lightning's Trainer that 1.9 has and 2.0 does not (pytorch/trainer/trainer.py of both), and what to
write.
"""
MEANT = {"config_file": "hf_ds_config", "deepspeed_config_file": "hf_ds_config", "ds_config": "hf_ds_config"}
"""What Accelerate's file calls otherwise than the plugin."""

PARSERS, PARSING = ("ArgumentParser", "HfArgumentParser"), ("parse_args", "parse_args_into_dataclasses")
OF_KERNEL = "-f"
ADDS = "add_config_arguments"
PARSES = """import argparse, deepspeed
parser = argparse.ArgumentParser()
parser.add_argument("%s", default="ds_config.json")
parser = deepspeed.add_config_arguments(parser)
engine = deepspeed.initialize(args=parser.parse_args(), model=model)
"""
CELL = json.dumps({"nbformat": 4, "cells": [{"cell_type": "code", "source": [
    "import argparse, deepspeed\n", "parser = argparse.ArgumentParser()\n", "args = parser.parse_args(%s)\n",
    "ds_config = {'train_batch_size': 8, 'bf16': {'enabled': True}, 'zero_optimization': {'stage': 2}}\n",
]}]})  # fmt: skip
PLACED = """from transformers import AutoModelForCausalLM, TrainingArguments
zero = {"stage": %s}
ds_config = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "zero_optimization": zero}
args = TrainingArguments("out", deepspeed=ds_config, per_device_train_batch_size=1, bf16=True)
model = AutoModelForCausalLM.from_pretrained("gpt2", device_map="auto")
"""

RULES: tuple[Rule, ...] = (
    Rule(
        "ZP843", ERROR, "An argument that DeepSpeedPlugin, DeepSpeedStrategy or Lightning's Trainer does not take",
        "accelerate 1.15: utils/dataclasses.py, lightning 2.6.6: pytorch/strategies/deepspeed.py, run: TypeError",
        Example("from accelerate import DeepSpeedPlugin\np = DeepSpeedPlugin(zero_stage=2, config_file='ds.json')\n",
                file="train.py"),
        Example("from accelerate import DeepSpeedPlugin\np = DeepSpeedPlugin(hf_ds_config='ds_config.json')\n",
                file="train.py"),
        "https://huggingface.co/docs/accelerate/package_reference/deepspeed",
    ),
    Rule(
        "ZP844", ERROR, "A strategy that Lightning does not have",
        "lightning 2.6.6: pytorch/strategies/deepspeed.py:register_strategies, run: ValueError",
        Example("import lightning as L\nt = L.Trainer(strategy='deepspeed_stage3')\n", file="train.py"),
        Example("import lightning as L\nt = L.Trainer(strategy='deepspeed_stage_3')\n", file="train.py"),
        "https://lightning.ai/docs/pytorch/stable/advanced/model_parallel/deepspeed.html",
    ),
    Rule(
        "ZP851", ERROR, "from_pretrained(device_map=...) at stage 3",
        "transformers 5.24: integrations/accelerate.py:check_and_set_device_map, run: ValueError",
        Example(PLACED % '3, "stage3_gather_16bit_weights_on_model_save": True', file="train.py"),
        Example(PLACED % 2, file="train.py"),
        "https://huggingface.co/docs/transformers/deepspeed",
    ),
    Rule(
        "ZP855", ERROR, "An option that deepspeed.add_config_arguments adds too",
        "__init__.py:_add_core_arguments, run: argparse.ArgumentError, conflicting option string",
        Example(PARSES % "--deepspeed_config", file="train.py"), Example(PARSES % "--ds_config", file="train.py"),
        "https://www.deepspeed.ai/getting-started/#argument-parsing",
    ),
    Rule(
        "ZP856", ERROR, "A parser in a notebook that is given no arguments",
        "argparse with sys.argv of ipykernel, run: SystemExit 2, unrecognized arguments: -f",
        Example(CELL % "", file="train.ipynb"), Example(CELL % "[]", file="train.ipynb"),
        "https://docs.python.org/3/library/argparse.html#the-parse-args-method",
    ),
)  # fmt: skip


class Refused(NamedTuple):
    """A part of a call at which Python or the library stops."""

    rule: str
    node: ast.expr
    message: str
    write: str
    severity: str = ""
    """Where it is not the rule's own."""

    @property
    def takes(self) -> list[str]:
        """Names of attributes that it is made of: deepspeed, of args.deepspeed."""
        return [one.attr for one in ast.walk(self.node) if isinstance(one, ast.Attribute)]


def refused_calls(tree: ast.Module) -> Iterator[Refused]:
    """Those of a file, of what it imports of these packages."""
    modules = modules_of(tree)
    registers = any("registry" in name.lower() for name in modules)
    yield from _options_twice(tree)
    for call in ast.walk(tree):
        if isinstance(call, ast.Call):
            name = last_name(call.func)
            package = modules.get(first_name(call.func), "").partition(".")[0]
            if package in PACKAGES_OF_CLASSES.get(name, ()):
                yield from _refused(call, name, registers=registers)


def _options_twice(tree: ast.Module) -> Iterator[Refused]:
    """Options that a parser has already as DeepSpeed adds its own to it, or again behind that."""
    scopes = [tree, *(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))]
    for scope in scopes if ADDS in ast.dump(tree) else ():
        yield from _options_twice_in(scope)


def _options_twice_in(scope: ast.AST) -> Iterator[Refused]:
    calls = [node for node in outside_branches(scope) if isinstance(node, ast.Call)]
    parsers = {ast.dump(call.args[0]) for call in calls
               if last_name(call.func) == ADDS and first_name(call.func) == DEEPSPEED and call.args}  # fmt: skip
    resolves = any(one.arg == "conflict_handler" for call in calls for one in call.keywords)
    for call in () if resolves else calls:
        at = getattr(call.func, "value", None)
        if last_name(call.func) == "add_argument" and call.args and at is not None and ast.dump(at) in parsers:
            named = [one for one in call.args if getattr(one, "value", None) in OF_DEEPSPEED]
            yield from (Refused("ZP855", one, f"{ADDS} adds {said(one.value)} too, and argparse stops at the second",
                                "delete it") for one in named if isinstance(one, ast.Constant))  # fmt: skip


def arguments_of_a_kernel(tree: ast.Module) -> Iterator[Refused]:
    """Parsers in a notebook, whose arguments are those of its kernel: -f and the name of a file."""
    nodes = list(ast.walk(tree))
    assigned = [(node.targets[0].id, node.value) for node in nodes
                if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)]  # fmt: skip
    others = {name for name, value in assigned if last_name(getattr(value, "func", None)) not in (*PARSERS, ADDS)}
    parsers = {name for name, _value in assigned} - others
    called = {node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    lines = (line for line in tree.body if isinstance(line, ast.Assign | ast.Expr)
             or (isinstance(line, ast.FunctionDef) and line.name in called))  # fmt: skip
    takes_it = any(isinstance(node, ast.Constant) and node.value == OF_KERNEL for node in nodes)
    inside = (node for line in lines for node in (line, *outside_branches(line))) if not takes_it else ()
    for call in (node for node in inside if isinstance(node, ast.Call)):
        at = getattr(call.func, "value", None)
        if last_name(call.func) in PARSING and not call.args and not call.keywords and last_name(at) in parsers:
            yield Refused("ZP856", call, "the arguments of a notebook are its kernel's (-f ...json): the parser stops",
                          f"{last_name(call.func)}([])")  # fmt: skip


def _refused(call: ast.Call, name: str, *, registers: bool) -> Iterator[Refused]:
    """`registers`: whether the file gives Lightning strategies of its own."""
    if name in OF_LIGHTNING:
        value = next((one.value for one in call.keywords if one.arg == "strategy"), None)
        if name == TRAINER and value is not None and DEEPSPEED in ast.dump(value).lower():
            gone = [(one.arg, one.value) for one in call.keywords if one.arg in GONE]
            yield from (Refused("ZP843", at, gone_argument(one), GONE[one], WARNING) for one, at in gone if one)
        stated = getattr(value, "value", None)
        if isinstance(value, ast.Constant) and not registers and (write := unknown_strategy(stated, name)):
            yield Refused("ZP844", value, f"strategy {said(stated)} is none that Lightning has", f'strategy="{write}"')
        return
    for one in call.keywords:
        if one.arg is not None and (what := unknown_argument(name, one.arg)) is not None:
            yield Refused("ZP843", one.value, *what)


def unknown_strategy(stated: object, call: str = FABRIC) -> str:
    """The name to write in place of one of DeepSpeed's that Lightning has not; "" where it has it, or another's is
    meant.
    """
    is_known = stated in REGISTERED and (call == FABRIC or stated != OF_FABRIC)
    if not isinstance(stated, str) or not stated.startswith("deepspeed") or is_known:
        return ""
    near = difflib.get_close_matches(stated, REGISTERED.keys() - {OF_FABRIC}, n=1)
    return near[0] if near else "deepspeed_stage_2"


def gone_argument(name: str) -> str:
    """Why Lightning's Trainer stops at an argument that it had."""
    return f"Trainer takes no {name} since lightning 2.0: a TypeError"


def unknown_argument(call: str, name: str) -> tuple[str, str] | None:
    """Why a call stops at an argument, and what to write; None for one that it takes."""
    if name in TAKEN[call]:
        return None
    near = difflib.get_close_matches(name, TAKEN[call], n=1, cutoff=0.8)
    write = MEANT[name] if call == PLUGIN and name in MEANT else near[0] if near else ""
    return f"{call} takes no {name}: a TypeError", f"{write}=..." if write else "delete it"


def placed_by_the_script(subject: Subject) -> Iterator[Hit]:
    """Transformers divides the model as it is built at stage 3, and takes no place for it beside."""
    at = subject.setting.device_map
    if at is not None and subject.setting.fills and subject.facts.stage == STAGE_3:
        yield Hit("ZP851", subject.spelled("zero_optimization.stage"),
                  f"from_pretrained(device_map=...) at {at.place}: transformers stops at it at stage 3",
                  "from_pretrained without device_map", "" if at.is_sure else WARNING)  # fmt: skip


CHECKS = (placed_by_the_script,)
