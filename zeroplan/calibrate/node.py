"""Findings as the text of a node's file: `--cluster node.yaml` reads it."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from zeroplan import __version__
from zeroplan.calibrate.findings import Findings, Measurement
from zeroplan.calibrate.host import machine
from zeroplan.catalog.node_file import CARD


def text(findings: Findings) -> str:
    """YAML of the form of `presets/clusters/`. Figures of a card without a preset are left as comments."""
    lines = [f"# Measured by zeroplan calibrate {__version__} on {machine()}"]
    lines += [f"# left out: {reason}" for reason in findings.left_out]
    lines.append(f"title: {json.dumps('measured: ' + machine())}")
    lines.append(f"gpu: {findings.gpu}" if findings.gpu else "# gpu: not known; write the preset of the card")
    known = findings.gpus_per_node
    lines.append(f"gpus_per_node: {known}" if known else "# gpus_per_node: no GPU was found; write how many there are")
    for figure in findings.figures:
        mark = "" if findings.gpu or figure.field not in CARD else "# "
        lines += [f"{mark}{figure.field}:", f"{mark}  {_figure(figure)}"]
    if findings.observations:
        lines += ["observations:", *(f"  - {json.dumps(seen)}" for seen in findings.observations)]
    return "\n".join(lines) + "\n"


def _figure(figure: Measurement) -> str:
    source = f"zeroplan calibrate {__version__} on {machine()}: {figure.how}"
    parts = {"value": written(figure), "source": source, "date": today(), "evidence": "measured"}
    return "{" + ", ".join(f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in parts.items()) + "}"


def today() -> str:
    return datetime.now(UTC).date().isoformat()


def written(figure: Measurement) -> str:
    """The value with its unit, four digits of it."""
    scale = {"B": ("GiB", 2**30), "B/s": ("GB/s", 10**9), "FLOP/s": ("TFLOP/s", 10**12)}
    unit, factor = scale.get(figure.unit, (figure.unit, 1))
    return f"{figure.value / factor:.4g} {unit}"
