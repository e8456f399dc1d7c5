"""What many tests need: the command line in this process, and jobs of a named model."""

from __future__ import annotations

import gc
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests import shared
from zeroplan.__main__ import main

REFERENCES = Path(__file__).parent / "references"
ROOT = Path(__file__).parent.parent
FEW_COLLECTIONS = 1_000_000
"""Objects between garbage collections: one process keeps what thousands of tests have counted, and none is garbage."""
gc.set_threshold(FEW_COLLECTIONS)
shared.share()


def pytest_configure(config: pytest.Config) -> None:
    """Make the folders that workers and the commands which tests start share: of results, and, where the environment says
    never to write bytecode, of bytecode, so that each file is compiled once."""
    if hasattr(config, "workerinput"):
        return
    names = [shared.RUN_FOLDER]
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
        names.append("PYTHONPYCACHEPREFIX")
    for name in names:
        folder = tempfile.TemporaryDirectory()
        os.environ[name] = folder.name
        config.add_cleanup(folder.cleanup)


def pytest_sessionfinish() -> None:
    """Garbage that warns of what was not closed is collected once: pytest then looks for it several times, in all that
    a process has kept."""
    gc.collect()
    gc.freeze()


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def zeroplan(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Run a command as typed: `zeroplan("estimate", "--params", "7B")`."""

    def run(*arguments: str) -> Ran:
        monkeypatch.setattr(sys, "argv", ["zeroplan", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return Ran(int(ended.value.code or 0), captured.out, captured.err)

    return run
