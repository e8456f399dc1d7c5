"""Public configs and what DeepSpeed's parser said of each; ZEROPLAN_CORPUS names the folder that holds them."""

from __future__ import annotations

import csv
import os
from functools import cache
from pathlib import Path

import pytest

CORPUS = Path(os.environ.get("ZEROPLAN_CORPUS") or "no corpus")
FILES = sorted(CORPUS.glob("*.json"))

needs_corpus = pytest.mark.skipif(not FILES, reason="ZEROPLAN_CORPUS names no folder of configs")
each_file = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem[-70:])


@cache
def labels():
    with (CORPUS / "LABELS.csv").open(encoding="utf-8", newline="") as stream:
        return {row["file"]: row for row in csv.DictReader(stream)}
