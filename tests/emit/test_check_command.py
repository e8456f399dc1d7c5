"""The `zeroplan check` that a plan's README.md gives finds nothing in the plan's own files."""

from __future__ import annotations

import re
import shlex

import pytest

from zeroplan.specs.target import TARGETS

H200 = ("--model", "llama-3.1-70b", "--gpus", "8", "--gpu", "h200", "--host-mem", "2TiB")
"""With checkpointing, which its ds_config.json cannot say: without, it lacks 34 GiB."""
SMALL = ("--model", "smollm2-135m", "--gpus", "2", "--seq", "512", "--global-batch", "16")
ALREADY = ("--stage", "3", "--offload-param", "none")
"""Settled, for it takes half as long to search."""
PLANS = {
    "of a large model": (*H200, *ALREADY),
    "of a count": ("--params", "7B", "--gpus", "8", "--gpu-mem", "80"),
    "with lines of code": (*H200, *ALREADY, "--allow", "code"),
    "with every other layer": (*SMALL, "--gpu-mem", "24", "--checkpointing", "every-2"),
    "in fp32 with eager attention": (*SMALL, "--gpu-mem", "24GiB", "--precision", "fp32", "--attention", "eager"),
    "with the script's optimizer": (*SMALL, "--gpu", "t4", "--optimizer", "adafactor"),
    "with Liger's kernels": (*SMALL, "--gpu", "a100-40gb", "--kernels", "liger"),
    "offloaded": (*SMALL, "--gpu", "a100-40gb", "--stage", "3", "--offload-optimizer", "cpu", "--offload-param", "cpu"),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("plan", PLANS)
def test_nothing_is_found(plan, target, zeroplan, tmp_path, monkeypatch):
    written = zeroplan("recommend", *PLANS[plan], "--for", target, "--dir", str(tmp_path / "plan"))
    assert written.code == 0, written.err
    text = (tmp_path / "plan" / "README.md").read_text()
    found = re.search(r"## Check\n.*?```sh\n(zeroplan .*?)\n```", text, re.DOTALL)
    assert found
    monkeypatch.chdir(tmp_path / "plan")
    checked = zeroplan(*shlex.split(found[1])[1:])
    assert (checked.code, checked.err) == (0, ""), (found[1], checked.out)


def test_without_its_arguments_the_finding_says_what_was_assumed(zeroplan, tmp_path, monkeypatch):
    zeroplan("recommend", *H200, "--dir", str(tmp_path / "plan"))
    monkeypatch.chdir(tmp_path / "plan")
    words = ("check", "ds_config.json", "--for", "hf", "--micro-batch", "4", *H200)
    said = "no checkpointing was assumed (--checkpointing, --trainer-args)"
    assert said in " ".join(zeroplan(*words).out.split())
    assert said not in " ".join(zeroplan(*words, "--checkpointing", "none").out.split())
