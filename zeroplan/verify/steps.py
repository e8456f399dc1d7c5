"""Three steps of a training loop, each phase bracketed: live bytes before, at the peak and after.

Only the child process imports this module (it needs torch).
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator
from typing import Any

import torch

from zeroplan.verify import card
from zeroplan.verify.storages import GPU, HOST, LESS, MODELS, PINNED, StorageTracker


class Phases:
    """The list of phases as they ran."""

    def __init__(self, storages: StorageTracker) -> None:
        self.storages = storages
        self.entries: list[dict[str, Any]] = []

    @contextlib.contextmanager
    def phase(self, name: str, step: int, micro: int) -> Iterator[None]:
        """Cycles are collected before a phase and left alone inside it, so that they do not blur its peak."""
        gc.collect()
        gc.disable()
        self.storages.start(name)
        before = self.storages.now()
        try:
            with self._card() as seen:
                yield
        finally:
            gc.enable()
        peaks, at_peak = self.storages.peaks, self.storages.at_peak
        self.entries.append(
            {
                "phase": name,
                "step": step,
                "micro": micro,
                "before": before,
                "after": self.storages.now(),
                "peak": peaks,
                "at_peak": {
                    GPU: _by_label(at_peak[GPU], (GPU,)),
                    LESS: {k: v for k, v in _by_label(at_peak[LESS], (GPU,)).items() if k not in MODELS},
                    HOST: _by_label(at_peak[HOST], (HOST, PINNED)),
                },
                **({"card": seen.readings} if seen else {}),
            }
        )

    def _card(self) -> contextlib.AbstractContextManager[card.Phase | None]:
        stand_ins = self.storages.stand_ins
        return card.watched(stand_ins.tensors) if isinstance(stand_ins, card.CardStandIns) else contextlib.nullcontext()


def _by_label(sums: dict[tuple[str, str], int], tiers: tuple[str, ...]) -> dict[str, int]:
    chosen = {(tier, label): size for (tier, label), size in sums.items() if tier in tiers and size}
    single = len(tiers) == 1
    return {label if single else f"{tier}: {label}": size for (tier, label), size in sorted(chosen.items())}


def name_gradients(model: torch.nn.Module, storages: StorageTracker) -> None:
    """Storages that become a parameter's gradient are called so from then on. Set before DeepSpeed's own hooks."""

    def named(parameter: torch.Tensor) -> None:
        if parameter.grad is not None:
            storages.relabel(parameter.grad, "gradients")

    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(named)


def train(
    engine: Any,
    batch: dict[str, torch.Tensor],
    phases: Phases,
    steps: int,
    moment: Callable[[int, str, int, str], None],
    after_step: Callable[[int], None],
) -> None:
    """The usual loop; `moment` hears where it is, `after_step` is called between steps."""
    micro_steps = engine.gradient_accumulation_steps()
    for step in range(1, steps + 1):
        for micro in range(1, micro_steps + 1):
            moment(step, "micro_step", micro, "forward")
            with phases.phase("forward", step, micro):
                loss = engine(**batch).loss
            moment(step, "micro_step", micro, "backward")
            with phases.phase("backward", step, micro):
                engine.backward(loss)
                del loss
            last = micro == micro_steps
            moment(step, "step" if last else "micro_step", micro, "step")
            with phases.phase("step", step, micro):
                engine.step()
        gc.collect()
        after_step(step)
