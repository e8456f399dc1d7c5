"""Recorded training steps of transformers (tests/references/activations_torch_2.13.json), and ours of the same."""

from __future__ import annotations

import json
import os
import random
from importlib import import_module
from typing import Any

import pytest

from tests.conftest import REFERENCES
from tests.described import families_here
from zeroplan.architectures.forward_run import ForwardRun
from zeroplan.architectures.read import build_module, read_config
from zeroplan.architectures.trace import run_step
from zeroplan.specs.checkpointing import Recomputing

Case = dict[str, Any]
MORE = int(os.environ.get("ZEROPLAN_STEPS", "1"))
"""Cases of each family that are drawn and measured anew, where torch and transformers are installed."""
WIDTHS = {"fp32": 4, "bf16": 2, "fp16": 2}
COUNTED = ("saved", "forward_peak", "backward_peak")
DRAWN, FROZEN = "activations_torch_2.13.json", "frozen_torch_2.13.json"


def read(name: str = DRAWN) -> list[Case]:
    cases: list[Case] = json.loads((REFERENCES / name).read_text())["measured"]
    return cases


def name(case: Case) -> str:
    """What a failing case is, in a line."""
    where = case["kernel"] or case["device"]
    again = " checkpointed" if case["checkpointing"] else ""
    return f"{case['config']['model_type']} {case['batch']}x{case['seq']} {case['dtype']} {case['attention']} {where}{again}"


def run_of(case: Case) -> ForwardRun:
    """On the meta device softmax reads fp16 by way of a copy in fp32, as on the CPU: `half` is left out."""
    kernel = "cpu" if case["device"] == "cpu" else case["kernel"] or "flash"
    width, attention = WIDTHS[case["dtype"]], case["attention"]
    return ForwardRun(
        width, case["batch"], case["seq"], attention=attention, kernel=kernel, recomputing=recomputing_of(case),
        autocast_bytes=WIDTHS[case["autocast"]] if case.get("autocast") else 0,
    )  # fmt: skip


def recomputing_of(case: Case) -> Recomputing:
    """Every layer, where a case does not say which."""
    if case.get("selective"):
        return Recomputing(attention=True)
    return Recomputing(case.get("every", int(case["checkpointing"])), case.get("reentrant", False), case.get("keeps_products", False))


def held(case: Case, **changes: Any) -> dict[str, int]:
    """Our bytes of this case; nothing is left when the step is over."""
    case = {**case, **changes}
    family, config = read_config(dict(case["config"]), "recorded")
    run, root = run_of(case), build_module(family, config)
    run.frozen = frozenset(
        id(parameter) for name, parameter in root.named_parameters() if any(part in name for part in case.get("freeze", ()))
    )
    found = run_step(root, run)
    assert run.allocated == 0
    return found


def measured_now(maker: str) -> None:
    """Draws more cases by that module of tests/references, measures them with torch, and compares."""
    pytest.importorskip("torch")
    here = families_here()
    attentions = import_module("transformers.modeling_utils").ALL_ATTENTION_FUNCTIONS
    reference, seed = import_module(f"tests.references.{maker}"), random.randrange(10**6)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(attentions, "_local_mapping", dict(attentions._local_mapping))  # which a case may wrap
        patched.setattr(reference, "FAMILIES", here)
        cases = list(reference.cases(MORE, seed))
    for case in cases:
        assert held(case) == {counted: case[counted] for counted in COUNTED}, (seed, case)
