"""transformers that finds the flash-attention package: its own Python runs, up to the package's function.

What the function keeps and makes is replayed from the package's source (autograd/flash.py, flash-attn 2.8.3), for its
second version and its third, whose call differs in dropout alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from transformers import PreTrainedModel
from transformers import modeling_flash_attention_utils as package

from zeroplan.architectures.forward_run import FLASH

VERSIONS = tuple(FLASH)
"""As transformers calls them, the second first."""
Attend = Callable[..., torch.Tensor]


def never(*_arguments: Any, **_named: Any) -> torch.Tensor:
    """Stands for the function while a model is built, which calls none."""
    raise AssertionError


@contextmanager
def flash_package(attend: Attend = never) -> Iterator[None]:
    """`attend` runs in the place of the package's functions; it is told `contiguous` of the third version, whose result
    is so where that of the second lies as the queries do.
    """

    def functions(implementation: str, *_stated: Any, **_named: Any) -> tuple[Any, ...]:
        def flash_attn_func(
            q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dropout_p: float = 0.0,
            softmax_scale: float | None = None,  # noqa: ARG001 (transformers looks which of these there are)
            causal: bool = False, window_size: tuple[int, int] = (-1, -1), softcap: float = 0.0,
            deterministic: bool = False,  # noqa: ARG001
        ) -> torch.Tensor:  # fmt: skip
            local = 0 <= window_size[0] < k.shape[1] - 1
            return attend(
                q, k, v, dropout=dropout_p, softcap=softcap > 0, local=local, causal=causal,
                contiguous=implementation == VERSIONS[1],
            )  # fmt: skip

        def flash_attn_varlen_func(
            q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cu_seqlens_q: torch.Tensor, cu_seqlens_k: torch.Tensor,
            max_seqlen_q: Any, max_seqlen_k: Any, dropout_p: float = 0.0,
            softmax_scale: float | None = None,  # noqa: ARG001 (transformers looks which of these there are)
            causal: bool = False, window_size: tuple[int, int] = (-1, -1), softcap: float = 0.0,
            deterministic: bool = False,  # noqa: ARG001
        ) -> torch.Tensor:  # fmt: skip
            local = 0 <= window_size[0] < int(max_seqlen_k) - 1
            return attend(
                q, k, v, cu_seqlens_q, cu_seqlens_k, dropout=dropout_p, softcap=softcap > 0, local=local,
                causal=causal, longest=int(max_seqlen_q), contiguous=implementation == VERSIONS[1],
            )  # fmt: skip

        return flash_attn_func, flash_attn_varlen_func, None, None, None

    matrix = package.FLASH_ATTENTION_COMPATIBILITY_MATRIX
    with ExitStack() as patched:
        for version in FLASH.values():
            there = mock.patch.dict(matrix[version], general_availability_check=lambda: True)
            patched.enter_context(there)
        patched.enter_context(mock.patch.object(package, "_loaded_implementation", None))
        patched.enter_context(mock.patch.object(package, "_lazy_imports", functions))
        patched.enter_context(mock.patch.object(PreTrainedModel, "_flash_attn_can_dispatch", return_value=True))
        yield
