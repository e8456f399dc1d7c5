"""Live bytes at operator level: every storage from its birth to its death, counted once, by tier and label.

Only the child process imports this module (it needs torch).
"""

from __future__ import annotations

import sys
import weakref
from collections import Counter
from collections.abc import Iterator
from functools import partial
from types import FrameType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from zeroplan.verify.crossings import Crossings
from zeroplan.verify.stand_ins import PASS, StandIns

GPU, HOST, PINNED = "gpu", "host", "host_pinned"
SKIPPED = ("/zeroplan/verify/", "/deepspeed/comm/", "/deepspeed/utils/nvtx.py", "/deepspeed/accelerator/")
# DeepSpeed's own linear layer computes the model: what it makes are activations, as if torch's had run; so are
# the checkpoints that it copies.
MODEL_CODE = ("/transformers/", "/deepspeed/runtime/zero/linear.py", "/deepspeed/runtime/activation_checkpointing/")
AUTOGRAD = "/torch/autograd/graph.py"
Key = tuple[str, str]
MODELS = frozenset({"activations", "backward, autograd", "backward, model"})
"""Labels of what the model's own forward and backward make; a gradient leaves them when it reaches its parameter."""
LESS = "gpu_less_activations"


def maker(frame: FrameType | None) -> str:
    """Who made a tensor: 'model', 'autograd', 'optimizer', or the DeepSpeed function as `module.function`."""
    while frame is not None:
        name = frame.f_code.co_filename
        if name.endswith(AUTOGRAD):
            return "autograd"
        if any(part in name for part in MODEL_CODE):
            return "model"
        if "/torch/optim/" in name or "/deepspeed/ops/" in name:
            return "optimizer"
        if "/deepspeed/" in name and not any(part in name for part in SKIPPED):
            return f"{name.rpartition('/')[2].removesuffix('.py')}.{frame.f_code.co_name.strip('_')}"
        frame = frame.f_back
    return "caller"


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in an operator's result."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for entry in value:
            yield from tensors(entry)


class Live:
    """One storage that holds bytes."""

    __slots__ = ("bytes", "dtype", "label", "reference", "tier")

    def __init__(self, size: int, tier: str, label: str, dtype: str, reference: Any) -> None:
        self.bytes, self.tier, self.label, self.dtype, self.reference = size, tier, label, dtype, reference


class StorageTracker(TorchDispatchMode):  # type: ignore[misc, unused-ignore]
    """Follows storages; `phase` names what runs, `sums` holds live bytes by (tier, label)."""

    def __init__(self, stand_ins: StandIns) -> None:
        super().__init__()
        self.stand_ins = stand_ins
        self.crossings = Crossings()
        self.phase = "build"
        self.live: dict[int, Live] = {}
        self.ignored: dict[int, Any] = {}
        self.sums: Counter[Key] = Counter()
        self.totals: Counter[str] = Counter()
        self.peaks: dict[str, int] = {}
        self.at_peak: dict[str, dict[Key, int]] = {}
        self._resize = torch.UntypedStorage.resize_

    def __enter__(self) -> StorageTracker:
        seen = self

        def resize(storage: torch.UntypedStorage, size: int) -> Any:
            result = seen._resize(storage, size)
            seen.resized(storage)
            return result

        torch.UntypedStorage.resize_ = resize  # type: ignore[method-assign, assignment, unused-ignore]
        super().__enter__()
        return self

    def __exit__(self, *stopped: Any) -> None:
        torch.UntypedStorage.resize_ = self._resize  # type: ignore[method-assign, unused-ignore]
        super().__exit__(*stopped)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        made = self.stand_ins.dispatched(func, args, kwargs)
        if made is PASS:
            made = func(*args, **kwargs)
        self.crossings.see(func, args, made, lambda: maker(sys._getframe(2)))
        for tensor in tensors(made):
            self.see(tensor)
        return made

    def see(self, tensor: torch.Tensor, label: str | None = None) -> None:
        """Count a tensor's storage if it is new; re-read its size if it is known."""
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        known = self.live.get(key)
        if known is not None:
            if known.bytes != size:
                self.stand_ins.born(storage)
                self._change(known, size)
            return
        if key in self.ignored:
            return
        if self.stand_ins.is_bookkeeping(storage, self.phase):
            self.ignored[key] = weakref.ref(storage, partial(self._forget, key))
            return
        self.stand_ins.born(storage)
        tier = self.stand_ins.tier(storage)
        label = label or self._label(maker(sys._getframe(1)))
        dtype = str(tensor.dtype).removeprefix("torch.")
        live = Live(0, tier, label, dtype, weakref.ref(storage, partial(self._died, key)))
        self.live[key] = live
        self._change(live, size)

    def resized(self, storage: torch.UntypedStorage) -> None:
        known = self.live.get(storage._cdata)
        if known is not None:
            self.stand_ins.born(storage)
            self._change(known, storage.nbytes())

    def relabel(self, tensor: torch.Tensor, label: str) -> None:
        """Say what a storage is, now that it is known."""
        self.see(tensor, label)
        self.name(tensor.untyped_storage()._cdata, label)

    def name(self, key: int, label: str) -> None:
        known = self.live[key]
        size = known.bytes
        self._change(known, 0)
        known.label = label
        self._change(known, size, born=False)

    def move(self, tensor: torch.Tensor, tier: str) -> None:
        """A storage belongs to another tier (a host tensor that was pinned)."""
        self.see(tensor)
        known = self.live[tensor.untyped_storage()._cdata]
        size = known.bytes
        self._change(known, 0)
        known.tier = tier
        self._change(known, size)

    def start(self, phase: str) -> None:
        """Begin to look for the largest moment of a phase."""
        self.phase = phase
        self.peaks, self.at_peak = {}, {}
        for name in (GPU, LESS, HOST):
            self._look(name)

    def now(self) -> dict[str, int]:
        """Live bytes by tier."""
        return {tier: self.totals[tier] for tier in (GPU, HOST, PINNED)}

    def _label(self, who: str) -> str:
        if who in ("model", "autograd"):
            return {"forward": "activations", "backward": f"backward, {who}"}.get(self.phase, who)
        return who

    def _change(self, known: Live, size: int, born: bool = True) -> None:
        change = size - known.bytes
        known.bytes = size
        self.totals[known.tier] += change
        self.sums[known.tier, known.label] += change
        if known.tier == GPU and known.label not in MODELS:
            self.totals[LESS] += change
            if change > 0:
                self._look(LESS)
        if change > 0 and born:
            self._look(GPU if known.tier == GPU else HOST)

    def _look(self, name: str) -> None:
        """Peaks of the GPU, of the GPU less what the model's own passes hold, and of the host, pinned or not."""
        total = self.totals[HOST] + self.totals[PINNED] if name == HOST else self.totals[name]
        if total > self.peaks.get(name, -1):
            self.peaks[name] = total
            self.at_peak[name] = {key: size for key, size in self.sums.items() if size}

    def _forget(self, key: int, _dead: Any) -> None:
        self.ignored.pop(key, None)

    def _died(self, key: int, _dead: Any) -> None:
        known = self.live.pop(key, None)
        if known is not None:
            self._change(known, 0)
