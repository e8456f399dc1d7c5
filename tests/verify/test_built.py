"""DeepSpeed's cast of a model that was built in another dtype, run here on the host: what is alive at most."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import weakref
from types import SimpleNamespace

import pytest

from tests.jobs import job
from zeroplan.architectures.model import model_of
from zeroplan.architectures.read import read_config
from zeroplan.costs.ledger import ledger
from zeroplan.ledger import total
from zeroplan.levels import left_by_initialize

CONFIG = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 176, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 1003, "tie_word_embeddings": False,
}  # fmt: skip
DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
LIVE = importlib.util.find_spec("deepspeed") is not None and importlib.metadata.version("deepspeed") == "0.19.8"


def planned(**strategy):
    model_type, config = read_config(CONFIG, "test")
    one = job("llama-3.2-1b", gpus=4, **{"stage": 2, **strategy})
    return one._replace(model=model_of(model_type, config, name="test", source="test"))


def on_host(one):
    """Bytes of one process at most while models are built."""
    moments = [total(m.lines) for m in ledger(one).host.moments if m.place == "each process builds the model"]
    return moments[0] // one.cluster.gpus_per_node if moments else 0


@pytest.mark.skipif(not LIVE, reason="DeepSpeed 0.19.8 is not installed")
@pytest.mark.parametrize(("built", "trained"), [("fp32", "bf16"), ("fp32", "fp16"), ("bf16", "fp16"), ("bf16", "bf16")])
def test_deepspeed_casts_parameter_by_parameter(built, trained, monkeypatch):
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    import torch
    from deepspeed.runtime.engine import DeepSpeedEngine
    from torch.utils._python_dispatch import TorchDispatchMode
    from transformers import AutoConfig, AutoModelForCausalLM

    settings = dict(CONFIG)
    config = AutoConfig.for_model(settings.pop("model_type"), **settings)
    model = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, DTYPES[built]))
    now = most = sum(p.untyped_storage().nbytes() for p in model.parameters())

    def died(size):
        nonlocal now
        now -= size

    for parameter in model.parameters():
        weakref.finalize(parameter.untyped_storage(), died, parameter.untyped_storage().nbytes())
    del parameter

    class Live(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal now, most
            made = func(*args, **(kwargs or {}))
            if "_to_copy" in str(func):
                now += made.untyped_storage().nbytes()
                most = max(most, now)
            return made

    with Live():
        DeepSpeedEngine._cast_module_mixed_precision(
            SimpleNamespace(module=model), getattr(torch, DTYPES[trained]), None, False
        )
    assert on_host(planned(precision=trained, built_in=built, built_on="host")) == most


def test_fp32_on_the_host_is_twice_as_much():
    """4 bytes for 2 of each parameter, and 2 of the first tensor, the embedding of 1003 × 64, that is copied beside."""
    usual, fp32 = (on_host(planned(built_in=built)) for built in (None, "fp32"))
    assert fp32 == 2 * usual + 2 * 1003 * 64
    assert on_host(planned(built_in="fp32", built_on="gpu")) == 0


def test_fp32_on_the_gpu_leaves_twice_as_much_cached():
    one = planned(built_in="fp32", built_on="gpu")
    assert left_by_initialize(one, 0) == 4 * one.model.parameters
    for other in (planned(), planned(built_in="fp32"), planned(built_on="gpu")):
        assert left_by_initialize(other, 0) == 2 * one.model.parameters


def test_zero_init_builds_in_the_training_dtype():
    usual, fp32 = (ledger(planned(stage=3, built_in=built)) for built in (None, "fp32"))
    assert usual.gpu == fp32.gpu
    assert usual.host == fp32.host
