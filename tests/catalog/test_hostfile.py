from __future__ import annotations

import pytest

from zeroplan.catalog.hostfile import read_hostfile
from zeroplan.errors import SpecError


def test_hosts_comments_and_blank_lines(tmp_path):
    path = tmp_path / "hostfile"
    path.write_text("# two nodes\nworker-1 slots=8\n\nworker-2   slots=8  # the second\n")
    assert read_hostfile(str(path)) == {"worker-1": 8, "worker-2": 8}


@pytest.mark.parametrize(
    ("text", "place"),
    [("worker-1\n", ":1"), ("worker-1 slots=x\n", ":1"), ("a slots=0", ":1"), ("#", "")],
)
def test_a_bad_line_is_named(tmp_path, text, place):
    path = tmp_path / "hostfile"
    path.write_text(text)
    with pytest.raises(SpecError, match=f"hostfile{place}.*slots=8"):
        read_hostfile(str(path))


def test_a_host_stands_once(tmp_path):
    path = tmp_path / "hostfile"
    path.write_text("a slots=8\na slots=8\n")
    with pytest.raises(SpecError, match="hostfile:2.*a second time"):
        read_hostfile(str(path))


def test_what_follows_is_passed_over(tmp_path):
    """launcher/runner.py:_parse_hostfile looks for `^(\\S+)\\s+slots=(\\d+)` in each line."""
    path = tmp_path / "hostfile"
    path.write_text("worker-1 slots=8 # rack 1\nworker-2 slots=8 fast\n", encoding="utf-8")
    assert read_hostfile(str(path)) == {"worker-1": 8, "worker-2": 8}
