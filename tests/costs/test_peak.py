"""Where the peak is, in jobs whose layout leaves one place for it."""

from __future__ import annotations

import pytest

from tests.jobs import job
from zeroplan.costs.ledger import ledger
from zeroplan.costs.passes import alone
from zeroplan.ledger import Moment, total
from zeroplan.specs.job import Job


def peak(of: Job) -> Moment:
    return ledger(of).gpu.peak


def test_scores_of_all_layers_are_there_when_backward_is_in_the_last_layers_attention() -> None:
    """Eager attention keeps its softmax in fp32 and in bf16: 6 bytes for each of s x s scores of 32 heads."""
    found = peak(job("llama-2-7b", gpus=64, seq=4096, stage=3, attention="eager"))
    assert (found.phase, found.place, found.layer) == ("backward", "model.layers.31.self_attn", 31)
    assert found.largest[0].name == "attention"
    assert found.largest[0].bytes > 32 * 32 * 4096**2 * 6


def test_gradients_pile_up_towards_the_first_layer() -> None:
    """Checkpointed, each layer keeps 2bsh of 134 MB and leaves 405 MB of gradients: most is alive at the end."""
    found = peak(job("llama-2-7b", seq=4096, stage=1, micro_batch=4, checkpointing="full"))
    assert (found.phase, found.layer) == ("backward", 0)
    assert [entry.name for entry in found.largest][:2] == ["parameters", "gradients"]


def test_logits() -> None:
    """Of 32,768 tokens in a sharded, checkpointed model: log-softmax keeps its output in fp32, 4 bytes a logit."""
    found = peak(job("llama-2-7b", gpus=64, seq=4096, stage=3, micro_batch=8, checkpointing="full"))
    assert (found.phase, found.place, found.layer) == ("backward", "loss", None)
    assert {entry.name: entry.bytes for entry in found.largest}["logits and loss"] == 8 * 4096 * 32_000 * 4


@pytest.mark.parametrize("stage", [0, 1, 2])
def test_the_optimizer(stage: int) -> None:
    """Few tokens: 6 bytes of fp32 states and their temporaries a parameter outweigh any activation."""
    found = peak(job("llama-2-7b", gpus=1, seq=128, stage=stage))
    assert (found.phase, found.place, found.layer) == ("step", "optimizer", None)
    assert found.largest[0].name == "optimizer states"


def test_largest_lines_are_the_peaks_own() -> None:
    found = peak(job("gpt2", stage=2))
    assert {id(entry) for entry in found.largest} <= {id(entry) for entry in found.lines}
    assert sum(entry.bytes for entry in found.largest) <= total(found.lines)


def test_selective_checkpointing_keeps_no_scores() -> None:
    """Eager scores are recomputed: their 6 bytes for each of s x s and 32 heads are kept by no layer."""
    jobs = {c: job("llama-2-7b", seq=4096, attention="eager", checkpointing=c) for c in ("none", "selective")}
    kept, again = map(ledger, jobs.values())
    saved = {c: alone(one).saved for c, one in jobs.items()}
    assert saved["none"] - saved["selective"] > 31 * 32 * 4096**2 * 6
    assert total(kept.gpu.worst("forward").lines) - total(again.gpu.worst("forward").lines) > 31 * 32 * 4096**2 * 4
