"""The kernels of fla, causal_conv1d and mamba_ssm in transformers' models on the meta device.

Where one of these packages is not installed, transformers runs a loop over chunks or tokens, which holds other tensors
than people train with; where it is, its kernels cannot run on `meta`. Inside `fast_kernels` a stand-in takes its place:
an autograd function that makes, keeps and lets go of the tensors of the package's own, as its source was read and as
runs on an H100 had them. What launching a kernel takes is not counted, and Hub kernels (`use_kernels=True`) are not
meant.
Only the child process imports this module (it needs torch and transformers).
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import CellType, FunctionType
from typing import Any

import torch
from transformers import integrations
from transformers.integrations import hub_kernels

from zeroplan.verify.recording.fast_kernels_conv import causal_conv1d_fn
from zeroplan.verify.recording.fast_kernels_fla import chunk_gated_delta_rule, chunk_kda
from zeroplan.verify.recording.fast_kernels_mamba import mamba_chunk_scan_combined, mamba_split_conv1d_scan_combined
from zeroplan.verify.recording.fast_kernels_selective import mamba_inner_fn, selective_scan_fn
from zeroplan.verify.values import tensors_in

Function = Callable[..., Any]
VERSIONS = {"flash-linear-attention": "0.6.0", "causal-conv1d": "1.7.0", "mamba-ssm": "2.3.2.post1"}
"""Those whose sources were read: of the first the distribution fla-core, which has its operators."""
STAND_INS: dict[str, Function] = {
    each.__name__: each
    for each in (
        causal_conv1d_fn, chunk_gated_delta_rule, chunk_kda, mamba_chunk_scan_combined,
        mamba_split_conv1d_scan_combined, mamba_inner_fn, selective_scan_fn,
    )
}  # fmt: skip
"""By the name that the package gives the function."""
DECORATOR = "use_kernel_func_from_hub_with_fallback"
MODELS = "transformers."


@contextmanager
def fast_kernels() -> Iterator[set[str]]:
    """Inside, transformers' layers meet the stand-ins with tensors on `meta`; with any others they run as ever. Gives
    the names of those that ran.

    A layer's function is a wrapper whose closure has what it calls: of models that are imported, and that will be.
    """
    ran: set[str] = set()
    with ExitStack() as undo:
        for wrapper in _wrappers():
            _replace(wrapper, undo, ran)
        decorator = getattr(hub_kernels, DECORATOR)

        def with_stand_ins(*args: Any, **named: Any) -> Function:
            decorate = decorator(*args, **named)

            def run(function: Function) -> Any:
                decorated = decorate(function)
                wrapper = _wrapper_in(decorated)
                if wrapper is not None:
                    _replace(wrapper, undo, ran)
                return decorated

            return run

        several = (integrations, hub_kernels)  # the first reads the second's when it is asked
        originals = [(module, getattr(module, DECORATOR)) for module in several]
        for module, original in originals:
            undo.callback(setattr, module, DECORATOR, original)
            setattr(module, DECORATOR, with_stand_ins)
        yield ran


def _wrappers() -> Iterator[FunctionType]:
    """Of modules that are imported, each once."""
    known: set[int] = set()
    for name, module in list(sys.modules.items()):
        if not name.startswith(MODELS):
            continue
        for each in list(vars(module).values()):
            wrapper = _wrapper_in(each)
            if wrapper is not None and id(wrapper) not in known:
                known.add(id(wrapper))
                yield wrapper


def _wrapper_in(value: Any) -> FunctionType | None:
    """The wrapper that a decorated function is, or has in it where the package `kernels` made it a module."""
    if isinstance(value, torch.nn.Module):
        value = next((each.cell_contents for each in getattr(type(value).forward, "__closure__", None) or ()), None)
    if not isinstance(value, FunctionType):
        return None
    cells = _cells(value)
    return value if {"implementation", "applicable_params", "func_name"} <= cells.keys() else None


def _cells(function: FunctionType) -> dict[str, CellType]:
    return dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))


class _Every:
    """Holds any name: the stand-in leaves out what its package does not take, the wrapper's copy what it does not."""

    def __contains__(self, _name: object) -> bool:
        return True


def _replace(wrapper: FunctionType, undo: ExitStack, ran: set[str]) -> None:
    """Put a stand-in into a wrapper's closure; a copy of the wrapper keeps what was there. `ran`: gets its name."""
    cells = _cells(wrapper)
    stand_in = STAND_INS.get(cells["func_name"].cell_contents)
    if stand_in is None:
        return
    before = tuple([CellType(cell.cell_contents) for cell in wrapper.__closure__ or ()])
    as_ever = FunctionType(wrapper.__code__, wrapper.__globals__, wrapper.__name__, wrapper.__defaults__, before)
    taken = inspect.signature(stand_in).parameters

    def run(*args: Any, **named: Any) -> Any:
        if not any(each.device.type == "meta" for each in tensors_in((args, named))):
            return as_ever(*args, **named)
        ran.add(stand_in.__name__)
        return stand_in(*args, **{name: value for name, value in named.items() if name in taken})

    for name, content in (("implementation", run), ("applicable_params", _Every()), ("is_new_implementation", True)):
        undo.callback(setattr, cells[name], "cell_contents", cells[name].cell_contents)
        cells[name].cell_contents = content
