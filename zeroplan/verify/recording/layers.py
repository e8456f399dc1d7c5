"""Layers that run one after the other, and those of them that run one program."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from transformers.modeling_layers import GradientCheckpointingLayer

from zeroplan.verify.inputs import Inputs
from zeroplan.verify.recording.calls import Like, Opened
from zeroplan.verify.recording.experiments import Experiments
from zeroplan.verify.recording.recorder import Recorder, recorded


def identical_layers(model: torch.nn.Module, inputs: Inputs, experiments: Experiments) -> dict[str, Like]:
    """Layers that run the program of one before them, by its path; each takes what the one before it gives, and beside
    it nothing that such a layer makes.
    """
    _program, recorder = recorded(model, inputs, experiments, {})
    known: list[str] = []
    result: dict[str, Like] = {}
    left_out: set[int] = set()  # tensors that are not made where a layer does not run
    for step in chained(recorder):
        like = next((each for each in known if recorder.programs.made[each] == recorder.programs.made[step.path]), None)
        _first, *rest = dict.fromkeys(step.given)
        if like is None or not left_out.isdisjoint(rest):
            known.append(step.path)
        else:
            result[step.path] = Like(like, step.result)
            left_out |= step.made
    return result


def chained(recorder: Recorder) -> Iterator[Opened]:
    """Layers that make one tensor that leaves them, like their first input, which the next takes; none where one runs
    more than once.
    """
    layers = list(_outermost(recorder.root, recorder.model))
    if len({step.path for step in layers}) < len(layers):
        return
    for at, step in enumerate(layers):
        first, *rest = dict.fromkeys(step.given)
        following = layers[at + 1].given[:1] if at + 1 < len(layers) else step.returned[:1]
        new = tuple([each for each in step.returned if each in step.made])
        of_itself = step.result is not None and new and new == step.returned[:1] == following
        alike = of_itself and recorder.first.get(first) == recorder.first[new[0]]
        program = recorder.programs.made[step.path]
        if alike and program.inputs == 1 + len(rest) and len(program.outputs) == 1:
            yield step


def _outermost(opened: Opened, model: torch.nn.Module) -> Iterator[Opened]:
    """Calls of layers that are not within another: a block of Zamba's has one that gives what the block gives."""
    for step in opened.steps:
        if isinstance(step, Opened):
            is_layer = isinstance(model.get_submodule(step.path), GradientCheckpointingLayer)
            yield from (step,) if is_layer else _outermost(step, model)
