"""Which families are described as the transformers that is here has them."""

from __future__ import annotations

import pytest

from zeroplan.architectures.registry import FAMILIES
from zeroplan.sources import transformers_of


def families_here(*, module: bool = False) -> list[str]:
    """By name; without any the test is skipped, or its whole module."""
    version = pytest.importorskip("transformers").__version__
    found = sorted(family for family in FAMILIES if transformers_of(family) == version)
    if not found:
        pytest.skip(f"no family is described as transformers {version} has it", allow_module_level=module)
    return found
