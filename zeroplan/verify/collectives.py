"""torch.distributed's collectives as one rank of N sees them: recorded, and answered at once.

An all-gather puts this rank's shard at its place and zeros elsewhere, a reduce-scatter gives this rank its own slice,
an all-reduce leaves what is there: nothing overflows, no step is skipped.
Only the child process imports this module (it needs torch).
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from zeroplan.verify.storages import SKIPPED

TRANSPARENT = {
    "_dist_allgather_fn",
    "_torch_reduce_scatter_fn",
    "wrapped_fn",
    "log_wrapper",
    "wrapper",
    "<lambda>",
    "<listcomp>",
    "<genexpr>",
    "decorate_context",
}


class RecordedCollective(NamedTuple):
    """One collective; `elements` counts the full tensor (gathered, or before it is reduced)."""

    step: int
    when: str
    micro: int
    phase: str
    collective: str
    dtype: str
    ranks: int
    asked_by: str
    elements: int
    element_bytes: int


class Finished:
    """A work object that has finished."""

    def wait(self, *_args: Any) -> bool:
        return True

    def is_completed(self) -> bool:
        return True

    def get_future(self) -> Any:
        future: Any = torch.futures.Future()
        future.set_result(None)
        return future


def asked_by() -> str:
    """The DeepSpeed function that asked for a collective."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        deepspeed = "/deepspeed/" in name and not any(part in name for part in SKIPPED)
        if deepspeed and frame.f_code.co_name not in TRANSPARENT:
            return frame.f_code.co_name.lstrip("_")
        frame = frame.f_back  # type: ignore[assignment]
    return "caller"


class Collectives:
    """Replaces the functions of torch.distributed and keeps every call with the moment it came at."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.calls: list[RecordedCollective] = []
        self.step, self.micro, self.when, self.phase = 0, 0, "init", "init"

    def at(self, step: int, when: str, micro: int, phase: str) -> None:
        self.step, self.when, self.micro, self.phase = step, when, micro, phase

    def install(self) -> None:
        replaced: dict[str, Callable[..., Any]] = {
            "all_reduce": self.all_reduce, "all_reduce_coalesced": self.all_reduce_coalesced,
            "reduce": self.reduce, "broadcast": self.broadcast,
            "all_gather_into_tensor": self.all_gather_into_tensor, "_all_gather_base": self.all_gather_into_tensor,
            "all_gather": self.all_gather,
            "reduce_scatter_tensor": self.reduce_scatter_tensor, "_reduce_scatter_base": self.reduce_scatter_tensor,
            "reduce_scatter": self.reduce_scatter,
            "all_to_all_single": self.all_to_all_single, "all_to_all": self.all_to_all,
            "barrier": self.barrier, "monitored_barrier": self.barrier,
            "broadcast_object_list": self.nothing, "all_gather_object": self.all_gather_object,
            "_coalescing_manager": coalescing,
        }  # fmt: skip
        for name, function in replaced.items():
            for module in (dist, dist.distributed_c10d):
                if hasattr(module, name):
                    setattr(module, name, function)

    def keep(self, collective: str, tensor: torch.Tensor | None, elements: int, group: Any) -> Finished:
        dtype = "none" if tensor is None else str(tensor.dtype).removeprefix("torch.")
        moment = (self.step, self.when, self.micro, self.phase)
        size = 0 if tensor is None else tensor.element_size()
        self.calls.append(
            RecordedCollective(*moment, collective, dtype, dist.get_world_size(group), asked_by(), elements, size)
        )
        return Finished()

    def all_reduce(self, tensor: Any, *_: Any, group: Any = None, **__: Any) -> Finished:
        return self.keep("all_reduce", tensor, tensor.numel(), group)

    def all_reduce_coalesced(self, tensors: Any, *_: Any, group: Any = None, **__: Any) -> Finished:
        return self.keep("all_reduce", tensors[0], sum(t.numel() for t in tensors), group)

    def reduce(self, tensor: Any, *_: Any, group: Any = None, **__: Any) -> Finished:
        return self.keep("reduce", tensor, tensor.numel(), group)

    def broadcast(self, tensor: Any, *_: Any, group: Any = None, **__: Any) -> Finished:
        return self.keep("broadcast", tensor, tensor.numel(), group)

    def all_gather_into_tensor(self, output_tensor: Any, input_tensor: Any, group: Any = None, **_: Any) -> Finished:
        self.fill(output_tensor.view(-1).chunk(dist.get_world_size(group)), input_tensor, group)
        return self.keep("all_gather", output_tensor, output_tensor.numel(), group)

    def all_gather(self, tensor_list: Any, tensor: Any, group: Any = None, **_: Any) -> Finished:
        self.fill(tensor_list, tensor, group)
        return self.keep("all_gather", tensor, sum(t.numel() for t in tensor_list), group)

    def fill(self, parts: Any, own: torch.Tensor, group: Any) -> None:
        if own.device.type == "meta":
            return
        for rank, part in enumerate(parts):
            mine = rank == dist.get_rank(group)
            if mine and part.data_ptr() != own.data_ptr():
                part.view(-1).copy_(own.view(-1))
            elif not mine:
                part.zero_()

    def reduce_scatter_tensor(self, output: Any, given: Any, *_: Any, group: Any = None, **__: Any) -> Finished:
        if output.device.type != "meta":
            output.view(-1).copy_(given.view(-1).chunk(dist.get_world_size(group))[dist.get_rank(group)])
        return self.keep("reduce_scatter", given, given.numel(), group)

    def reduce_scatter(self, output: Any, input_list: Any, *_: Any, group: Any = None, **__: Any) -> Finished:
        if output.device.type != "meta":
            output.copy_(input_list[dist.get_rank(group)])
        return self.keep("reduce_scatter", output, sum(t.numel() for t in input_list), group)

    def all_to_all_single(self, output: Any, given: Any = None, *_: Any, group: Any = None, **named: Any) -> Finished:
        given = named.get("input", given)
        if output.device.type != "meta":
            output.zero_()
        return self.keep("all_to_all", given, given.numel(), group)

    def all_to_all(self, outputs: Any, inputs: Any, group: Any = None, **_: Any) -> Finished:
        for output in outputs:
            output.zero_()
        return self.keep("all_to_all", inputs[0], sum(t.numel() for t in inputs), group)

    def barrier(self, group: Any = None, **_: Any) -> Finished:
        return self.keep("barrier", None, 0, group)

    def nothing(self, *_: Any, **__: Any) -> None: ...

    def all_gather_object(self, object_list: Any, obj: Any, **_: Any) -> None:
        object_list[:] = [obj] * len(object_list)


@contextlib.contextmanager
def coalescing(*_: Any, **__: Any) -> Iterator[Finished]:
    """Torch's coalescing manager: calls inside it are recorded one by one."""
    yield Finished()


def traffic(calls: list[RecordedCollective]) -> list[dict[str, Any]]:
    """Calls of one kind joined: how many, how many bytes, and the sizes in elements as [size, times] runs."""
    joined: dict[tuple[Any, ...], list[RecordedCollective]] = {}
    for call in calls:
        joined.setdefault(call[:8], []).append(call)
    return [
        {
            **dict(zip(RecordedCollective._fields[:8], key, strict=True)),
            "calls": len(group),
            "bytes": sum(call.elements * call.element_bytes for call in group),
            "sizes": runs([call.elements for call in group]),
        }
        for key, group in joined.items()
    ]


def runs(sizes: list[int]) -> list[list[int]]:
    """Sizes in order, equal neighbours counted: [5, 5, 3] is [[5, 2], [3, 1]]."""
    groups: list[list[int]] = []
    for size in sizes:
        if groups and groups[-1][0] == size:
            groups[-1][1] += 1
        else:
            groups.append([size, 1])
    return groups
