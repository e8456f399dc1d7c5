"""`recommend --dir`: all files or none, nothing of the user's replaced unasked, and a README.md that tells them."""

from __future__ import annotations

import json
import os
import re

import pytest

from tests.emit.plans import candidate
from zeroplan.deepspeed.write import ds_config, dumps
from zeroplan.emit.folder import plan_files, write_plan
from zeroplan.emit.launch import Launch
from zeroplan.emit.readme import PURPOSES, readme
from zeroplan.errors import SpecError
from zeroplan.specs.target import TARGETS
from zeroplan.units import gib

SMALL = ("recommend", "--model", "smollm2-135m", "--gpus", "2", "--gpu-mem", "24", "--stage", "2", "--micro-batch", "4",
         "--checkpointing", "none", "--offload-optimizer", "none")  # fmt: skip
PLAN = candidate("stage 2, every other layer", 32)


def contents(folder):
    return {entry.name: entry.read_text(encoding="utf-8") for entry in folder.iterdir()}


@pytest.mark.parametrize("target", TARGETS)
def test_the_folder_holds_the_plan_and_nothing_else(target, tmp_path):
    names = write_plan(PLAN, target, str(tmp_path / "deep" / "plan"))
    found = contents(tmp_path / "deep" / "plan")
    assert sorted(names) == sorted(found)
    assert found == plan_files(PLAN, target, str(tmp_path / "deep" / "plan"))
    assert found["ds_config.json"] == dumps(ds_config(PLAN.job, target))
    for name, text in found.items():
        mode = (tmp_path / "deep" / "plan" / name).stat().st_mode
        assert bool(mode & 0o100) == text.startswith("#!"), name


@pytest.mark.parametrize("target", TARGETS)
def test_the_readme_names_each_file_and_the_plan_s_numbers(target):
    texts = plan_files(PLAN, target, "plan")
    text = texts["README.md"]
    assert set(re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)) == set(texts) <= set(PURPOSES)
    assert gib(PLAN.fit.gpu.needed) in text
    assert "micro-batch 4 × accumulation 2 × 32 GPUs = 256 sequences of 512 tokens" in text
    started = re.search(r"```sh\n(.*?)```", text, re.DOTALL)[1]
    for line in started.splitlines():
        assert line.startswith("# ") or any(word in texts for word in line.split()), line
    if target != "hf":
        assert "batch_size=4" in text
        assert "every_n_layers=2" in text


@pytest.mark.parametrize("target", TARGETS)
def test_the_readme_names_the_flags_that_launchers_append(target):
    """But Accelerate's and Lightning's, which append none."""
    texts = plan_files(PLAN, target, "plan")
    script = texts["README.md"].partition("## In your own training script")[2]
    appended = texts.get("torchrun.sh", "").rpartition('"$@"')[2]
    assert set(re.findall(r"--deepspeed\w*", appended)) == set(re.findall(r"--deepspeed\w*", script))
    assert ("--local_rank" in script) == (target == "deepspeed")


def test_the_readme_has_the_line_for_leaf_modules():
    """The class that transformers gives the block of experts (models/qwen3_moe/modeling_qwen3_moe.py)."""
    experts = candidate("stage 3 with decay", 32, "qwen3-30b-a3b")
    text = readme(experts, Launch(experts.job), "deepspeed", [])
    assert 'deepspeed.utils.set_z3_leaf_modules(model, ["Qwen3MoeSparseMoeBlock"])' in text
    zero = ds_config(experts.job, "deepspeed")["zero_optimization"]
    assert "transformers.models.qwen3_moe.modeling_qwen3_moe.Qwen3MoeSparseMoeBlock" in zero["leaf_module"]["classes"]
    dense = candidate("stage 3 with decay", 32)
    assert "leaf" not in readme(dense, Launch(dense.job), "deepspeed", [])
    assert "leaf_module" not in ds_config(dense.job, "deepspeed")["zero_optimization"]


def test_hpz_is_as_planned():
    assert ds_config(candidate("stage 3 with decay", 32).job, "hf")["zero_optimization"]["zero_hpz_partition_size"] == 8


class TestWriting:
    def test_what_is_there_stays(self, tmp_path):
        (tmp_path / "README.md").write_text("mine")
        with pytest.raises(SpecError, match=r"--dir .*README.md.*already there.*--force"):
            write_plan(PLAN, "hf", str(tmp_path))
        assert contents(tmp_path) == {"README.md": "mine"}

    def test_other_files_stay_beside_it(self, tmp_path):
        (tmp_path / "mine.py").write_text("mine")
        names = write_plan(PLAN, "hf", str(tmp_path))
        assert contents(tmp_path).keys() == {"mine.py", *names}

    @pytest.mark.parametrize("force", [False, True])
    def test_a_train_py_of_the_user_s_is_never_replaced(self, force, tmp_path):
        (tmp_path / "train.py").write_text("mine")
        with pytest.raises(SpecError, match=r"train\.py"):
            write_plan(PLAN, "hf", str(tmp_path), force=force)
        assert contents(tmp_path) == {"train.py": "mine"}

    def test_force_replaces_the_same_plan_s_files(self, tmp_path):
        names = write_plan(PLAN, "hf", str(tmp_path))
        (tmp_path / "ds_config.json").write_text("{}")
        write_plan(PLAN, "hf", str(tmp_path), force=True)
        assert contents(tmp_path).keys() == set(names)
        assert json.loads((tmp_path / "ds_config.json").read_text())["zero_optimization"]["stage"] == 2

    def test_files_of_another_plan_would_contradict_it(self, tmp_path):
        write_plan(PLAN, "accelerate", str(tmp_path))
        before = contents(tmp_path)
        with pytest.raises(SpecError, match=r"accelerate.yaml of another plan.*new folder"):
            write_plan(PLAN, "lightning", str(tmp_path), force=True)
        assert contents(tmp_path) == before

    @pytest.mark.parametrize("nth", range(10))
    @pytest.mark.parametrize("force", [False, True])
    def test_a_failure_midway_leaves_all_as_it_was(self, nth, force, tmp_path, monkeypatch):
        """Of ten files the n-th cannot take its place."""
        folder = tmp_path / "plan"
        if force:
            write_plan(PLAN, "hf", str(folder))
            for entry in folder.iterdir():
                entry.write_text(f"{entry.read_text()}mine")
        before = contents(folder) if force else {}
        calls, places = [], {"os.link": os.link, "pathlib.Path.replace": type(folder).replace}

        def full(real):
            def place(*words):
                calls.append(words)
                if len(calls) == nth + 1:
                    raise OSError(28, "No space left on device")
                return real(*words)

            return place

        for name, real in places.items():
            monkeypatch.setattr(name, full(real))
        with pytest.raises(SpecError, match="no space left"):
            write_plan(PLAN, "hf", str(folder), force=force)
        monkeypatch.undo()
        assert folder.exists() == force
        assert (contents(folder) if force else {}) == before

    def test_a_long_path_is_no_trouble(self, tmp_path):
        """Errors cut what they quote: nothing else may."""
        folder = tmp_path / ("long" * 40) / "plan"
        assert len(contents(folder) if write_plan(PLAN, "hf", str(folder)) else {}) == 10


class TestCommand:
    @pytest.mark.parametrize("target", TARGETS)
    def test_all_files_of_the_plan(self, zeroplan, tmp_path, target):
        folder = tmp_path / "plan"
        ran = zeroplan(*SMALL, "--dir", str(folder), "--for", target, "--json")
        assert (ran.code, ran.err) == (0, "")
        planned = ran.json["plan"]["strategy"]
        assert sorted(contents(folder)) == sorted(plan_names(target))
        config = folder / "ds_config.json"
        outside = ("--model", "smollm2-135m", "--gpus", "2", "--gpu-mem", "24")
        typed = ["--precision", "bf16", "--micro-batch", "4", "--grad-accum", str(planned["grad_accum"])]
        typed = typed if target == "hf" else []  # its own file states them
        read = zeroplan("estimate", "--config", str(config), *outside, *typed, "--json")
        assert read.code == 0, read.err
        strategy = read.json["strategy"]
        differing = {name for name, value in planned.items() if strategy[name] != value}
        assert differing == set()

    def test_the_screen_says_where(self, zeroplan, tmp_path):
        ran = zeroplan(*SMALL, "--dir", str(tmp_path / "plan"))
        assert "torchrun.sh" in ran.out
        again = zeroplan(*SMALL, "--dir", str(tmp_path / "plan"))
        assert again.code == 2
        assert again.out == ""
        assert again.err.count("\n") == 1
        assert "--force" in again.err
        assert zeroplan(*SMALL, "--dir", str(tmp_path / "plan"), "--force").code == 0

    def test_hosts_of_a_hostfile_are_the_plan_s(self, zeroplan, tmp_path):
        hosts = tmp_path / "hosts"
        hosts.write_text("alpha slots=1\nbeta slots=1\n")
        words = [*SMALL[:3], "--hostfile", str(hosts), *SMALL[5:]]
        assert zeroplan(*words, "--dir", str(tmp_path / "plan")).code == 0
        assert (tmp_path / "plan" / "hostfile").read_text() == hosts.read_text()

    @pytest.mark.parametrize(
        ("more", "said"),
        [
            (("--dir", "plan", "-o", "ds_config.json"), "keep one"),
            (("--dir", ""), "--dir plan"),
            (("--for", "accelerate", "-o", "-"), "-o accelerate.yaml"),
            (("--for", "accelerate", "-o", "ds_config.json"), "-o accelerate.yaml"),
            (("--for", "Lightning", "-o", "-"), "hf, deepspeed, accelerate or lightning"),
        ],
    )
    def test_what_goes_nowhere_is_refused(self, zeroplan, more, said, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        ran = zeroplan(*SMALL, *more)
        assert (ran.code, ran.out) == (2, "")
        assert said in ran.err
        assert ran.err.count("\n") == 1
        assert list(tmp_path.iterdir()) == []

    def test_a_folder_that_cannot_be_made(self, zeroplan, tmp_path):
        (tmp_path / "file").write_text("mine")
        ran = zeroplan(*SMALL, "--dir", str(tmp_path / "file" / "plan"))
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.startswith("zeroplan: --dir")
        assert contents(tmp_path) == {"file": "mine"}

    def test_nothing_is_written_when_nothing_fits(self, zeroplan, tmp_path):
        words = ("--params", "400B", "--gpus", "1", "--gpu-mem", "16", "--stage", "1", "--offload-optimizer", "none")
        assert zeroplan("recommend", *words, "--dir", str(tmp_path / "plan")).code == 1
        assert list(tmp_path.iterdir()) == []


def plan_names(target):
    both = {"README.md", "ds_config.json", "slurm.sbatch", "pytorchjob.yaml", "train.py", "config.json"}
    return both | {
        "hf": {"torchrun.sh", "deepspeed.sh", "training_arguments.json"},
        "deepspeed": {"torchrun.sh", "deepspeed.sh"},
        "accelerate": {"accelerate.yaml", "accelerate.sh"},
        "lightning": {"torchrun.sh", "lightning_trainer.py"},
    }[target]
