"""Inputs of reentrant layers that are partitioned or offloaded until backward, as deepspeed.checkpointing does it.

deepspeed/runtime/activation_checkpointing/checkpointing.py (CheckpointFunction) and offload_activations.py. When the
layer has run, DeepSpeed empties the input's own tensor: whoever else holds that tensor loses its bytes too. The sizes
are those of one tensor-parallel rank.
"""

from __future__ import annotations

from collections import deque

from zeroplan.autograd.graph import log_saved
from zeroplan.autograd.strides import Sizes, contiguous_strides
from zeroplan.autograd.tensor import Node, Storage, Tensor, empty

PLACEHOLDER = 4
"""Bytes of torch.empty([]), which an offloaded input's own tensor holds."""
ON_GPU = 2
"""The newest inputs that the pool leaves on the GPU: the last, and the one that is on its way (keep_last_count, and
the stash of max_fwd_stash_count)."""


class OffloadedInput:
    """A layer's input between forward and backward: its bytes if they are on the GPU, and what stands in its place."""

    __slots__ = ("like", "offload", "tensor")

    def __init__(self, around: InputOffload, like: Tensor, tensor: Tensor | None) -> None:
        self.offload, self.like, self.tensor = around, like, tensor

    def restored(self) -> Tensor:
        """The input as it was, from the host by a copy; buffers that no layer took go with the first."""
        self.offload.buffers = []
        like, result = self.like, self.tensor
        if result is None:
            result = empty(like.memory, like.shape, like.width, like.strides)
        like.storage = self.tensor = None
        return result


class InputOffload:
    """What one forward pass does with its layers' inputs."""

    def __init__(self, *, partitions: bool, on_host: bool, buffers: int) -> None:
        """`buffers`: as many as a config wants contiguous, 0 where it does not."""
        self.partitions, self.on_host, self.wanted = partitions, on_host, buffers
        self.buffers: list[Tensor] = []
        self.taken = 0
        self.newest: deque[OffloadedInput] = deque()
        self.sizes: dict[int, int] = {}
        """Bytes of each layer's input, by the layer's identity."""

    def part(self, node: Node, x: Tensor) -> Tensor | None:
        """Before the layer runs, a copy of the input; None where it is on the host (partition_activations)."""
        self.sizes[x.memory.layer] = x.elements * x.width
        if not self.partitions:
            return None
        whole = x if x.is_contiguous else empty(x.memory, x.shape, x.width)
        out = empty(x.memory, x.shape, x.width)
        del whole
        if self.on_host:
            return None
        if self.wanted:
            out = self._buffer(node, out)
        log_saved(node, out)
        return out

    def _buffer(self, node: Node, part: Tensor) -> Tensor:
        """The next of the contiguous buffers, all of which are made with the first."""
        if not self.taken:
            self.buffers = [empty(part.memory, part.shape, part.width) for _each in range(self.wanted)]
            for each in self.buffers:
                log_saved(node, each)
        self.taken += 1
        return self.buffers[self.taken - 1]

    def empty(self, node: Node, x: Tensor, part: Tensor | None) -> OffloadedInput:
        """After the layer has run."""
        strides: Sizes = contiguous_strides(x.shape) if self.partitions else x.strides
        kept = OffloadedInput(self, x.as_strided(x.shape, strides), part or (None if self.partitions else x.detach()))
        if self.on_host and not self.partitions:
            self.newest.append(kept)
            if len(self.newest) > ON_GPU:
                self.newest.popleft().tensor = None
        x.storage = kept.like.storage = Storage(x.memory, PLACEHOLDER)
        log_saved(node, x)
        return kept
