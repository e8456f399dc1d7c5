"""One forward pass over a tree of modules, and the backward passes that follow from it.

Autograd runs operators in the reverse order of forward, so backward visits modules in reverse.
"""

from __future__ import annotations

from zeroplan.architectures.module import Module, ModuleList, Parameter

Step = tuple[bool, int]
"""Whether a module enters (or else exits), and its index in `Walk.modules`."""


class Walk:
    """Modules with parameters of their own as forward enters and leaves them, and the uses of parameters."""

    def __init__(self, root: Module) -> None:
        self.paths: list[str] = []
        self.modules: list[Module] = []
        self.steps: list[Step] = []
        self.uses: list[int] = []
        self.biased: list[int] = []  # where in `uses` a weight and its bias meet the linear function
        self.layers: list[tuple[int, int, int]] = []  # first step, the one after the last, exits that never come
        self.index = {id(parameter): i for i, (_name, parameter) in enumerate(root.named_parameters())}
        self.run("", root)

    def run(self, path: str, module: Module) -> None:
        owner = len(self.modules)
        if module.parameters:
            self.paths.append(path)
            self.modules.append(module)
            self.steps.append((True, owner))
            if module.calls_linear and len(module.parameters) == 2:
                self.biased.append(len(self.uses))
        for name, part in module.in_forward_order():
            if isinstance(part, Parameter):
                self.uses.append(self.index[id(part)])
                continue
            start = len(self.steps)
            self.run(f"{path}.{name}" if path else name, part)
            if isinstance(module, ModuleList):
                self.layers.append((start, len(self.steps), unfinished(part)))
        if module.parameters:
            self.steps.append((False, owner))

    def backward(self, start: int, stop: int) -> list[Step]:
        """The forward steps from `start` to `stop`, undone."""
        undone: list[Step] = []
        for enters, index in reversed(self.steps[start:stop]):
            module = self.modules[index]
            times = int(module.takes_gradient) if enters else module.backward_fetches
            undone += [(not enters, index)] * times
        return undone

    def recomputing(self) -> list[Step]:
        """Backward; where a layer's first saved tensor is asked for, its forward runs again, up to the last one."""
        steps: list[Step] = []
        stop = len(self.steps)
        for first, after, open_ones in reversed(self.layers):
            undone = self.backward(first, after)
            steps += self.backward(after, stop)
            steps += undone[:open_ones] + self.steps[first : after - open_ones] + undone[open_ones:]
            stop = first
        return steps + self.backward(0, stop)

    def uses_stage3(self) -> list[int]:
        uses = self.uses.copy()
        for at in self.biased:
            uses[at], uses[at + 1] = uses[at + 1], uses[at]
        return uses


def unfinished(layer: Module) -> int:
    """The layer's modules with parameters that enclose the operator which saves the last tensor for backward."""
    inner = [part for _name, part in layer.in_forward_order() if isinstance(part, Module)]
    deeper = unfinished(inner[-1]) if inner and not layer.saves_last else 0
    return bool(layer.parameters) + deeper
