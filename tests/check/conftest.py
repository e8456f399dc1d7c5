"""What tests of `check` share."""

from __future__ import annotations

import pytest


@pytest.fixture
def check_files(zeroplan, tmp_path, monkeypatch):
    """`zeroplan check` of the first of several files, by name, in a folder of their own."""
    monkeypatch.chdir(tmp_path)

    def run(files, *options):
        for name, text in files.items():
            (tmp_path / name).write_text(text, encoding="utf-8")
        return zeroplan("check", next(iter(files)), *options)

    return run
