"""Hooks of a walk: those of a layer like one before are written out when somebody asks for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from zeroplan.specs.execution import ModuleHook

HOOK = partial(tuple.__new__, ModuleHook)
"""A hook of its four fields, without the work that a call by name does."""


class LayerHooks:
    """What one pass through a layer enters and leaves, field by field."""

    def __init__(self, hooks: Sequence[ModuleHook]) -> None:
        self.size = len(hooks)
        self.enters = [hook.enters for hook in hooks]
        self.modules = [hook.module for hook in hooks]
        self.tensors = [hook.tensors for hook in hooks]
        self.in_backward = [hook.backward for hook in hooks]
        self.reads = set(self.tensors)

    def moved(self, modules: int, tensors: int) -> Iterator[ModuleHook]:
        """The hooks of an identical layer, whose modules and tensors have numbers so much higher."""
        theirs = {read: tuple([index + tensors for index in read]) for read in self.reads}
        moved = map(modules.__add__, self.modules), map(theirs.__getitem__, self.tensors)
        return map(HOOK, zip(self.enters, *moved, self.in_backward, strict=True))


class HookSequence:
    """Hooks one after the other, as a walk adds to them."""

    def __init__(self) -> None:
        self.size = 0
        self.known: list[ModuleHook] = []
        """Written out, and what comes after them: layers like another, then hooks."""
        self.layers: list[tuple[LayerHooks, int, int]] = []
        self.last: list[ModuleHook] = []

    def __len__(self) -> int:
        return self.size

    def add(self, *hooks: ModuleHook) -> None:
        self.last += hooks
        self.size += len(hooks)

    def follow(self, like: LayerHooks, modules: int, tensors: int) -> None:
        """Those of a layer like one before, see `LayerHooks.moved`."""
        if self.last:
            self.every()
        self.layers.append((like, modules, tensors))
        self.size += like.size

    def since(self, start: int) -> list[ModuleHook]:
        """Hooks from that number on."""
        first = self.size - len(self.last)
        return self.last[start - first :] if start >= first else self.every()[start:]

    def every(self) -> list[ModuleHook]:
        """All hooks."""
        for like, modules, tensors in self.layers:
            self.known += like.moved(modules, tensors)
        self.known += self.last
        self.layers, self.last = [], []
        return self.known
