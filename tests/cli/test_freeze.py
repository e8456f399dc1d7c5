"""What trains, as --freeze and --train say: bytes by arithmetic, the job in words, and the files that do it."""

from __future__ import annotations

import json
import re

import pytest

PARAMETERS = 8_030_261_248
"""Of Llama-3.1-8B."""
LAYER = 2 * 4096 * 4096 + 2 * 1024 * 4096 + 3 * 4096 * 14336 + 2 * 4096
"""Of one of its layers: queries and output, keys and values, the feed-forward's three, two norms."""
LLAMA = ("--model", "llama-3.1-8b", "--gpus", "8")


def lines(ran):
    return {line["name"]: line["bytes"] for line in ran.json["memory"]["gpu"]["lines"] if "resident" in line["phases"]}


def test_one_layer_trains_and_the_others_are_held_whole_at_stage_2(zeroplan):
    held = lines(zeroplan("estimate", *LLAMA, "--stage", "2", "--train", "*.layers.31.*", "--json"))
    assert held["parameters"] == 2 * LAYER
    assert held["frozen parameters"] == 2 * (PARAMETERS - LAYER)
    assert held["fp32 master copy"] == pytest.approx(4 * LAYER / 8, abs=64)
    assert held["optimizer states"] == pytest.approx(8 * LAYER / 8, abs=64)


def test_what_is_frozen_and_kept_is_what_train_alone_says(zeroplan):
    alone = zeroplan("estimate", *LLAMA, "--stage", "3", "--train", "*.layers.31.*", "--json").json
    both = zeroplan("estimate", *LLAMA, "--stage", "3", "--freeze", "*", "--train", "*.layers.31.*", "--json").json
    assert alone == both


def test_patterns_add_up(zeroplan):
    words = ("--freeze", "*embed_tokens*", "--freeze", "*lm_head*", "--freeze", "*norm*")
    scope = zeroplan("estimate", *LLAMA, "--stage", "2", *words, "--json").json["scope"]
    left = PARAMETERS - 2 * 128256 * 4096 - 65 * 4096
    assert scope["trains"] == f"{left / 1e9:.2f}B of 8.03B parameters ({left / PARAMETERS:.2%}, the others frozen)"
    assert scope["trains"] in scope["line"]
    assert "full training" not in scope["line"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--freeze", "*embd*"), r'--freeze: found .\*embd\*., which no parameter of llama-3.1-8b .* write --freeze "'),
        (("--train", "lm_head"), r"--train: found 'lm_head', which no parameter"),
        (("--freeze", ""), r"--freeze: found '', expected a pattern"),
        (("--freeze", "*"), r"all parameters are frozen; leave one to train"),
        (("--unfreeze", "*"), r"--unfreeze: no option of zeroplan estimate"),
    ],
)
def test_what_names_nothing_is_refused(zeroplan, words, said):
    ran = zeroplan("estimate", *LLAMA, *words)
    assert (ran.code, ran.out) == (2, "")
    assert re.search(said, ran.err)
    assert ran.err.count("\n") == 1


SMALL = ("--model", "smollm2-135m", "--gpus", "2", "--gpu", "rtx-4090", "--seq", "512", "--global-batch", "8")


@pytest.mark.parametrize("target", ["hf", "deepspeed", "accelerate", "lightning"])
def test_what_is_written_freezes_too_and_checks_as_planned(zeroplan, tmp_path, monkeypatch, target):
    folder = tmp_path / "plan"
    words = ("--train", "*.norm.*", "--train", "*.layers.29.*", "--stage", "3", "--checkpointing", "full")
    assert zeroplan("recommend", *SMALL, *words, "--for", target, "--dir", str(folder)).code == 0
    script = (folder / "train.py").read_text()
    compile(script, "train.py", "exec")
    assert "requires_grad_(any(fnmatchcase(name, pattern) for pattern in ['*.norm.*', '*.layers.29.*']))" in script
    assert "model.enable_input_require_grads()" in script
    command = re.search(r"^zeroplan (check .*)$", (folder / "README.md").read_text(), re.MULTILINE)
    assert "--train '*.norm.*' --train '*.layers.29.*'" in command[1]
    monkeypatch.chdir(folder)
    checked = zeroplan(*(word.strip("'") for word in command[1].split()))
    assert (checked.code, checked.err) == (0, "")
    assert "nothing found" in checked.out
    assert "training of 3.54M of 135M parameters" in " ".join(checked.out.split())


def test_no_bucket_is_larger_than_what_trains(zeroplan, tmp_path):
    zeroplan("recommend", *SMALL, "--train", "*.norm.*", "--stage", "2", "-o", str(tmp_path / "ds.json"))
    zero = json.loads((tmp_path / "ds.json").read_text())["zero_optimization"]
    assert zero["reduce_bucket_size"] <= 576 * 1  # model.norm.weight


def test_the_largest_model_is_larger_where_little_trains(zeroplan):
    words = ("recommend", "--max-params", "--gpus", "2", "--gpu-mem", "24", "--stage", "3", "--checkpointing", "full",
             "--micro-batch", "1", "--seq", "512", "--json")  # fmt: skip
    whole, part = (zeroplan(*words, *more).json["largest"] for more in ((), ("--train", "*.norm.*")))
    assert part["without offload"]["parameters"] > 2 * whole["without offload"]["parameters"]


def test_mfu_counts_the_gradients_that_are_made(zeroplan):
    """Norms alone train: of each product one gradient, its input's, so 4·Ψ·T in place of 6·Ψ·T; attention runs back whole.
    Llama-3.2-1B has 16 layers of 2,048; an A100 gives 312 TFLOP/s.
    """
    words = ("--model", "llama-3.2-1b", "--gpus", "1", "--gpu", "a100-80gb", "--stage", "2", "--train", "*norm*", "--json")
    time = zeroplan("estimate", *words).json["time"]
    flops = 4 * 1_235_814_400 * 2048 + 12 * 16 * 2048 * 2048 * 2048
    assert time["utilisation"][0]["value"] == pytest.approx(flops / (312e12 * time["step"]), rel=1e-6)


def test_seconds_are_marked_as_compared_with_no_run(zeroplan):
    words = (*LLAMA, "--gpu", "a100-80gb", "--stage", "2")
    whole, part = (zeroplan("compare", *words, "--micro-batch", "1,2", *more).out for more in ((), ("--train", "*norm*")))
    assert "~step" in whole
    assert "?step" in part
