"""`zeroplan check --fix` and `--diff`: what is written, what is shown, and what is never touched."""

from __future__ import annotations

import io
import os
import stat
import sys

import pytest

BAD = '{\n  "train_micro_batch_size_per_gpu": 8,\n  "bf16": {"enabled": true},\n  "zero_optimization": {"stage": 2, "overlap_com": true}\n}\n'
GOOD = BAD.replace("overlap_com", "overlap_comm")
DIFF = """\
--- ds_config.json
+++ ds_config.json
@@ -1,5 +1,5 @@
 {
   "train_micro_batch_size_per_gpu": 8,
   "bf16": {"enabled": true},
-  "zero_optimization": {"stage": 2, "overlap_com": true}
+  "zero_optimization": {"stage": 2, "overlap_comm": true}
 }
"""


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "ds_config.json"
    path.write_text(BAD)
    return path


def test_the_file_is_mended(zeroplan, config):
    config.chmod(0o640)
    ran = zeroplan("check", "ds_config.json", "--fix")
    assert ran == (0, "nothing found in 1 file\n", "mended 1 of 1 findings in 1 file\n")
    assert config.read_text() == GOOD
    assert stat.S_IMODE(config.stat().st_mode) == 0o640
    assert os.listdir() == ["ds_config.json"]


def test_a_clean_file_is_not_written(zeroplan, config):
    config.write_text(GOOD)
    before = written(config)
    assert zeroplan("check", "ds_config.json", "--fix").err == "mended 0 of 0 findings in 0 files\n"
    assert written(config) == before


def written(path):
    """Which file it is, and when it was written last; when it was read changes."""
    found = path.stat()
    return found.st_ino, found.st_mtime_ns, found.st_size


def test_what_is_left_decides_the_exit_code(zeroplan, config):
    config.write_text(BAD.replace('"stage": 2', '"stage": 2, "magic": 1'))
    ran = zeroplan("check", "ds_config.json", "--fix", "--format", "concise")
    assert ran.code == 1
    assert ran.out.startswith("ds_config.json:4:37: error ZP108: magic is no key")
    assert ran.err == "mended 1 of 2 findings in 1 file\n"


def test_a_diff_writes_nothing(zeroplan, config):
    ran = zeroplan("check", "ds_config.json", "--diff")
    assert ran == (1, DIFF, "would mend 1 of 1 findings in 1 file\n")
    assert config.read_text() == BAD
    assert zeroplan("check", "ds_config.json", "--fix", "--diff").out == DIFF
    config.write_text(GOOD)
    assert zeroplan("check", "ds_config.json", "--diff") == (0, "", "would mend 0 of 0 findings in 0 files\n")


def test_a_diff_of_standard_input(zeroplan, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(BAD.encode())))
    assert zeroplan("check", "-", "--diff").out == DIFF.replace("ds_config.json", "standard input")
    assert zeroplan("check", "-", "--fix").code == 2


def test_a_file_without_a_last_line_end(zeroplan, config):
    config.write_text(BAD.strip())
    assert "\\ No newline at end of file\n" in zeroplan("check", "ds_config.json", "--diff").out.replace("}\n\\", "\n\\")
    zeroplan("check", "ds_config.json", "--fix")
    assert config.read_text() == GOOD.strip()


def test_bytes_stay(zeroplan, config):
    """A byte order mark, line ends of Windows, and letters beyond ASCII."""
    text = BAD.replace("\n", "\r\n").replace("stage", "stage", 1).replace("8,", '8, "_note": "é😀\\u00e9",')
    config.write_bytes(b"\xef\xbb\xbf" + text.encode())
    zeroplan("check", "ds_config.json", "--fix")
    assert config.read_bytes() == b"\xef\xbb\xbf" + text.replace("overlap_com", "overlap_comm").encode()


def test_a_symbolic_link_stays_one(zeroplan, config):
    os.symlink("ds_config.json", "link.json")
    zeroplan("check", "link.json", "--fix")
    assert os.path.islink("link.json")
    assert config.read_text() == GOOD


def test_all_files_or_none(zeroplan, config, monkeypatch):
    os.mkdir("closed")
    (config.parent / "closed" / "ds_config.json").write_text(BAD)
    from pathlib import Path

    real = Path.replace

    def fails(self, target):
        if "closed" in str(target) and ".before" not in str(self):
            raise PermissionError(13, "Permission denied")
        return real(self, target)

    monkeypatch.setattr(Path, "replace", fails)
    ran = zeroplan("check", "ds_config.json", "closed/ds_config.json", "--fix")
    assert ran.code == 2
    assert ran.err == "zeroplan: closed/ds_config.json: found permission denied, expected a file that can be written\n"
    assert config.read_text() == BAD
    assert sorted(os.listdir("closed") + os.listdir()) == ["closed", "ds_config.json", "ds_config.json"]


def test_ignored_rules_are_not_mended(zeroplan, config):
    assert zeroplan("check", "ds_config.json", "--fix", "--ignore", "ZP108").code == 0
    assert config.read_text() == BAD
