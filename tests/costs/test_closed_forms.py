"""Korthikanti's and ZeRO-Infinity's activations beside what the model's operators keep."""

from __future__ import annotations

import pytest

from tests.jobs import job
from zeroplan.architectures.model import model_of
from zeroplan.architectures.read import read_config
from zeroplan.autograd.equation import terms
from zeroplan.costs.closed_forms import compared, counted, peaks
from zeroplan.costs.ledger import ledger
from zeroplan.costs.paper import closed_forms, of_a_layer
from zeroplan.costs.passes import alone

MODELS = ("gpt2", "llama-3.2-1b", "qwen3-30b-a3b", "opt-1.3b", "gemma-2-2b", "deepseek-v3", "falcon-7b", "phi-3-mini")


def gpt(**fields):
    """A GPT-2 of 2 layers; 4·h is the MLP's width by default."""
    config = {"model_type": "gpt2", "n_embd": 96, "n_head": 6, "n_layer": 2, "vocab_size": 100, **fields}
    model = model_of(*read_config(config, "a test"), name="gpt", source="a test")
    return job("gpt2", seq=40, gpus=1, micro_batch=3, attention="eager")._replace(model=model)


B, S, H, N, T = 3, 40, 96, 6, 120


def test_gpt_2_with_one_gelu_keeps_what_korthikanti_counts_and_the_moments_of_two_norms():
    """34·b·s·h + 5·n·b·s²; a LayerNorm's mean and 1/deviation are 4 bytes each, of each token, twice: 16·T."""
    one = gpt(activation_function="gelu")
    (found,) = compared(one, counted(one))
    assert of_a_layer(one).bytes == 34 * B * S * H + 5 * N * B * S**2
    assert found.make.bytes - of_a_layer(one).bytes == 16 * T
    assert {part.name: part.difference for part in found.parts if part.difference} == {"norms": 16 * T}


def test_gpt_2s_own_gelu_is_made_of_operators():
    """gelu_new keeps x, tanh, 1 + tanh and x/2, the paper's GELU x alone: 3 more of 2 bytes, 4·h wide."""
    one = gpt()
    (found,) = compared(one, counted(one))
    assert {part.name: part.difference for part in found.parts if part.difference} == {
        "norms": 16 * T, "mlp": 3 * 2 * T * 4 * H,
    }  # fmt: skip


def test_without_dropout_three_of_five_bytes_of_a_score_are_gone():
    """No mask (1), nothing that dropout makes (2), and two hidden masks less."""
    one = gpt(activation_function="gelu", attn_pdrop=0.0, resid_pdrop=0.0)
    (found,) = compared(one, counted(one))
    differences = {part.name: part.difference for part in found.parts}
    assert differences == {"norms": 16 * T, "attention": 0, "scores": -3 * N * B * S**2, "mlp": 0, "dropout": -2 * T * H}


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("name", MODELS)
def test_parts_are_the_layer_and_reasons_are_the_difference(name, attention):
    one = job(name, seq=512, micro_batch=2, attention=attention)
    saved = counted(one)
    assert saved.bytes == alone(one).saved
    for found in compared(one, saved):
        assert sum(part.counted for part in found.parts) == found.make.bytes
        assert sum(part.published.bytes for part in found.parts) == of_a_layer(one).bytes
        for part in found.parts:
            assert sum(reason.bytes for reason in part.reasons) == part.difference
            assert all(reason.text for reason in part.reasons)


@pytest.mark.parametrize("name", MODELS)
def test_a_checkpointed_layer_keeps_both_papers_input(name):
    """2·b·s·h in 16 bit, L times."""
    one = job(name, seq=256, micro_batch=2, checkpointing="full")
    saved, shape = counted(one), one.model.shape
    assert saved.bytes == alone(one).saved
    layer, layers, checkpoints, _working = closed_forms(one)
    assert {int(make.bytes) for make in saved.makes} == {layer.bytes} == {2 * 2 * 256 * shape.hidden}
    assert sum(make.layers * make.bytes for make in saved.makes) == layers.bytes == checkpoints.bytes


def test_grouped_keys_and_a_fused_kernel():
    """Llama 3.2 1B: 8 of 32 heads, 64 wide: keys and values are 1536 narrower, 2 bytes each, kept once."""
    one = job("llama-3.2-1b", seq=512, micro_batch=2)
    (found,) = compared(one, counted(one))
    parts = {part.name: part for part in found.parts}
    tokens = 2 * 512
    assert [(reason.text, reason.bytes) for reason in parts["attention"].reasons] == [
        ("8 key-value heads for 32 heads", -2 * tokens * 2 * 1536)
    ]
    assert parts["scores"].counted == 4 * 32 * tokens + 24  # fp32 log-sum-exp, and three int64 of random state
    assert parts["scores"].published.bytes == 5 * 32 * 2 * 512**2


def test_selective_checkpointing_keeps_what_korthikanti_keeps_of_attention():
    """GPT-2 in eager attention is their layer, but for an activation function made of operators: 10·b·s·h for
    attention and no scores. A fused kernel has none to spare but a log-sum-exp of 4 bytes a row, and 24 bytes.
    """
    one = job("gpt2", attention="eager", checkpointing="selective")
    assert of_a_layer(one).bytes == 34 * 2048 * 768
    saved = counted(one)
    assert saved is not None
    (only,) = compared(one, saved)
    assert {part.name: (part.counted, part.published.bytes) for part in only.parts if part.name in ("attention", "scores")} == {
        "attention": (10 * 2048 * 768, 10 * 2048 * 768), "scores": (0, 0)
    }  # fmt: skip
    fused = [counted(job("gpt2", attention="sdpa", checkpointing=kind)) for kind in ("none", "selective")]
    assert fused[0].bytes - fused[1].bytes == 12 * (4 * 12 * 2048 + 24)


def test_the_papers_ledger_has_the_closed_forms_beside_it():
    one = job("gpt2")
    assert ledger(one, "paper").closed_forms == closed_forms(one)
    assert ledger(one).closed_forms == ()


def test_gpt_2_with_attention_upcast_and_reordered_is_counted():
    """transformers drops these scores in a module, and no others: the timeline has to find it."""
    one = gpt(reorder_and_upcast_attn=True)
    assert counted(one).bytes == alone(one).saved


@pytest.mark.parametrize("checkpointing", ["none", "full"])
@pytest.mark.parametrize("name", MODELS)
def test_peaks_are_the_timelines_own(name, checkpointing):
    one = job(name, seq=512, micro_batch=2, checkpointing=checkpointing)
    held = alone(one)
    found = {phase: sum(at.kinds.values()) for phase, at in peaks(one).items()}
    assert found == {"forward": held.forward_peak, "backward": held.backward_peak}


def test_the_loss_takes_ten_and_then_twelve_bytes_a_logit_in_16_bit():
    """torch 2.13 and transformers 5.23, measured: logits (2), their fp32 copy (4) and log-probabilities (4); then
    log-probabilities and two fp32 gradients.
    """
    found = peaks(job("llama-3.2-1b", seq=512, micro_batch=2))
    logit = (("D", 1), ("b", 1), ("s", 1))
    for phase, each in (("forward", 8), ("backward", 12)):
        assert found[phase].module == ""
        assert sum(terms(size).get(logit, 0) for size in found[phase].kinds.values()) == each
    assert terms(found["forward"].kinds["at work"])[*logit, ("w", 1)] == 1
