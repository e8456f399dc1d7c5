"""The hooks that other repositories take from this one, by the form that pre-commit asks for (its clientlib.py)."""

from __future__ import annotations

import re
import shlex

import pytest
import yaml

from tests.conftest import ROOT
from zeroplan.catalog.files import OF_DEEPSPEED
from zeroplan.check.folder import JSON

HOOKS = {hook["id"]: hook for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))}
TAKEN = ("ds_config.json", "conf/ds_config_zero3.json", "DS_config.JSON", "my-deepspeed.hjson", "a/zero2.json", "zero3_offload.json",
         "configs/deepspeed_z3.json", "dsconfig.json")  # fmt: skip
LEFT = ("config.json", "ads.json", "zerowaste.json", "ds_config.yaml", "ds/config.json", "words.json", "deepspeed.py")


def test_both_hooks_are_there():
    assert HOOKS.keys() == {"zeroplan-check", "zeroplan-fix"}
    for hook in HOOKS.values():
        assert {"id", "name", "entry", "language", "files"} <= hook.keys()
        assert hook["language"] == "python"


@pytest.mark.parametrize("hook", HOOKS.values(), ids=HOOKS)
def test_the_command_runs(hook, zeroplan, tmp_path):
    (tmp_path / "ds_config.json").write_text('{"train_batch_size": 8, "bf16": {"enabled": true}}')
    program, *arguments = shlex.split(hook["entry"])
    assert program == "zeroplan"
    assert zeroplan(*arguments, str(tmp_path / "ds_config.json")).code == 0


@pytest.mark.parametrize("hook", HOOKS.values(), ids=HOOKS)
def test_files_are_those_that_a_folder_gives_by_name(hook):
    for path in (*TAKEN, *LEFT):
        name = path.rpartition("/")[2].lower()
        assert bool(re.search(hook["files"], path)) == (path in TAKEN)
        assert (name.endswith(JSON) and bool(OF_DEEPSPEED.search(name))) == (path in TAKEN)
