"""Each option is declared once: what is read has the option's type, is read again as it is, and is what specs know."""

from __future__ import annotations

from datetime import timedelta
from typing import get_args

import click
import pytest

from zeroplan.cli.app import COMMANDS, app
from zeroplan.errors import ContradictionError, QuantityError
from zeroplan.request import options
from zeroplan.request.goal import GOALS, Goal
from zeroplan.request.options import OPTIONS, Options
from zeroplan.request.strategy import FIELDS, Reading
from zeroplan.request.values import flag
from zeroplan.specs import strategy
from zeroplan.specs.training import Price

TYPED = {
    "params": "1.3b", "model": "gpt2", "images": "2", "image_size": "448 x 336", "image_tokens": "256", "target_seq": "128", "freeze": "*wte*", "train": ("*.ln_1.*", "*.ln_2.*"),
    "lora": "16", "lora_targets": "c_attn,c_proj", "adapter": "adapter_config.json", "adapter_dtype": "FP32", "quantize": "NF4", "double_quant": "yes", "quant_storage": "bfloat16", "config": "ds_config.json", "seq": "512", "micro_batch": "4", "grad_accum": "2",
    "global_batch": "64", "precision": "bfloat16", "optimizer": "AdamW", "optim": "adamw_torch-single-tensor",
    "checkpointing": "every-4", "attention": "flash", "kernels": "liger", "stage": "zero3", "offload_optimizer": "cpu",
    "offload_param": "none", "zero_init": "false", "built_in": "fp32", "built_on": "gpu", "backend": "cuda", "rank": "3",
    "gpus": "4x8", "gpu": "a100-80gb", "gpu_mem": "79.5GiB", "headroom": "10%", "host_mem": "512", "nvme": "3.8TB",
    "cluster": "dgx-h100", "accept": "tight", "hostfile": "hosts",
}  # fmt: skip
READ = {
    "seq": 512, "micro_batch": 4, "grad_accum": 2, "global_batch": 64, "precision": "bf16", "optimizer": "adamw",
    "attention": "flash_attention_2", "stage": 3, "zero_init": False, "rank": 3, "freeze": ("*wte*",),
    "train": ("*.ln_1.*", "*.ln_2.*"), "lora": 16, "lora_targets": ("c_attn", "c_proj"),
    "images": 2, "image_size": (448, 336), "image_tokens": 256, "target_seq": 128, "quantize": "nf4", "adapter_dtype": "fp32", "double_quant": True, "quant_storage": "bf16",
}  # fmt: skip


def test_every_option_is_read_and_read_again():
    assert TYPED.keys() == OPTIONS.keys()
    read = Options(**TYPED)
    assert {name: getattr(read, name) for name in READ} == READ
    assert (read.params.value, read.gpus.value, read.gpu_mem.bytes) == (1_300_000_000, (4, 8), 795 * 2**30 // 10)
    assert (read.headroom.value.share, read.host_mem.value, read.nvme.value) == (0.1, 512 * 2**30, 3_800_000_000_000)
    assert vars(read.replace()) == vars(read)
    with pytest.raises(AttributeError):
        read.stage = 2


def test_choices_are_those_that_a_strategy_has():
    assert get_args(options.Precision) == strategy.PRECISIONS
    assert get_args(options.Attention) == strategy.ATTENTION
    assert get_args(options.Kernels) == strategy.KERNELS
    assert get_args(options.Device) == strategy.DEVICES
    assert get_args(options.BuiltIn) == strategy.BUILT_IN
    assert get_args(options.BuiltOn) == strategy.BUILT_ON
    assert get_args(options.Backend) == strategy.BACKENDS
    assert set(FIELDS) <= set(strategy.Strategy._fields) & OPTIONS.keys()


def test_a_command_has_the_declared_options():
    """By name, with the help's words; none of them is declared a second time."""
    params = app.get_command(click.Context(app), "recommend").params
    typed = {param.name: param for param in params}
    assert len(typed) == len(params)
    for name, option in {**OPTIONS, **GOALS}.items():
        assert typed[name].opts == [flag(name)]
        assert (typed[name].help, typed[name].metavar, typed[name].panel) == (option.text, option.metavar, option.panel)
    assert "recommend" in COMMANDS


def test_a_goal_has_types():
    goal = Goal(tokens="1T", deadline="12h", price="a100=1.8EUR,h100=3EUR", apart=None)
    assert (goal.tokens, goal.deadline) == (10**12, timedelta(hours=12))
    assert goal.price == {"a100": Price(1.8, "EUR"), "h100": Price(3.0, "EUR")}
    assert goal.at("a100").deadline == 12 * 3600
    assert Goal(price={"a100": 1.8, "h100": "3"}).price == {"a100": Price(1.8), "h100": Price(3.0)}
    with pytest.raises(QuantityError, match="--price: found 'a100=0,h100=3', expected what a GPU costs an hour"):
        Goal(price={"a100": 0, "h100": 3})
    with pytest.raises(ContradictionError, match="--gpus 8xA100 and --gpu h100 both name a card; write --gpus 8"):
        Options(gpus="8xA100", gpu="h100")


def test_steps_are_joined_in_order():
    first, second = Reading({"stage": 2, "precision": "bf16"}, ("one",)), Reading({"precision": "fp16"}, ("two",))
    assert first.then(second) == Reading({"stage": 2, "precision": "fp16"}, ("one", "two"))
    assert first.fixed == {"stage": 2, "precision": "bf16"}
