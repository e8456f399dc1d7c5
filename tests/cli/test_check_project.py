"""[tool.zeroplan] of the nearest pyproject.toml, and folders of configs."""

from __future__ import annotations

import os

import pytest

BAD = '{"train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": true}, "zero_optimization": {"stage": 2, "magic": 1}}'


@pytest.fixture
def project(tmp_path, monkeypatch):
    inside = tmp_path / "a" / "b"
    inside.mkdir(parents=True)
    monkeypatch.chdir(inside)
    (inside / "ds_config.json").write_text(BAD)

    def write(table, folder=tmp_path):
        (folder / "pyproject.toml").write_text(table)

    return write


@pytest.mark.parametrize(
    ("table", "rules"),
    [
        ("", ["ZP108"]),
        ('[tool.zeroplan]\nignore = ["zp1"]', []),
        ('[tool.zeroplan]\nselect = ["ZP2"]', []),
        ('[tool.zeroplan]\nfor = "deepspeed"', ["ZP207", "ZP108"]),
        ('[tool.zeroplan]\nfor = "deepspeed"\nignore = ["ZP108"]\ngpus = 8\ndeepspeed = "0.19.8"', ["ZP207"]),
        ('[tool.other]\nignore = ["ZP1"]', ["ZP108"]),
    ],
)
def test_the_table_counts(zeroplan, project, table, rules):
    project(table)
    found = zeroplan("check", "ds_config.json", "--format", "json").json["findings"]
    assert [one["rule"] for one in found] == rules


def test_options_win(zeroplan, project):
    project('[tool.zeroplan]\nfor = "deepspeed"\nignore = ["ZP1"]\nfail-on = "advice"\ngpus = 3')
    found = zeroplan("check", "ds_config.json", "--for", "hf", "--ignore", "ZP5", "--format", "json")
    assert [one["rule"] for one in found.json["findings"]] == ["ZP108"]


def test_fail_on(zeroplan, project, tmp_path):
    (tmp_path / "a" / "b" / "x.json").write_text('{"train_batch_size": 8, "bf16": {"enabled": true}}')
    assert zeroplan("check", "x.json").code == 0
    project('[tool.zeroplan]\nfail-on = "advice"')
    assert zeroplan("check", "x.json").code == 1
    assert zeroplan("check", "x.json", "--fail-on", "error").code == 0


def test_the_nearest_file_counts(zeroplan, project, tmp_path):
    project('[tool.zeroplan]\nignore = ["ZP1"]')
    assert zeroplan("check", "ds_config.json").code == 0
    project('[project]\nname = "x"', tmp_path / "a")
    assert zeroplan("check", "ds_config.json").code == 1


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ('ingore = ["ZP1"]', "tool.zeroplan.ingore: found a key that there is not, expected select or ignore or fail-on or for or "
                             "deepspeed or gpus; write ignore"),
        ('ignore = "ZP1"', "tool.zeroplan.ignore: found 'ZP1', expected a list of texts"),
        ('select = ["XP1"]', "tool.zeroplan.select: found 'XP1', expected the id of a rule"),
        ('fail-on = "errors"', "tool.zeroplan.fail-on: found 'errors', expected error or warning or advice; write fail-on = \"error\""),
        ('for = "trainer"', "tool.zeroplan.for: found 'trainer', expected deepspeed or hf"),
        ("gpus = true", "tool.zeroplan.gpus: found True, expected a whole number from 1; write gpus = 8"),
        ("gpus = 0", "tool.zeroplan.gpus: found 0"),
        ("gpus = ", "text that is not TOML"),
    ],
    ids=lambda value: value[:20],
)  # fmt: skip
def test_a_wrong_table_is_one_line(zeroplan, project, tmp_path, table, said):
    project(f"[tool.zeroplan]\n{table}\n")
    ran = zeroplan("check", "ds_config.json")
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert str(tmp_path / "pyproject.toml") in ran.err
    assert said in ran.err


def test_a_folder(zeroplan, tmp_path, monkeypatch):
    """Configs by name or content, in the order of their names; links that lead round, pipes and other JSON do not matter."""
    monkeypatch.chdir(tmp_path)
    for name in ("b/zero3.json", "b/train.json", "a/deep.hjson", "a/model.json", ".git/ds_config.json", "a/x.yaml"):
        os.makedirs(os.path.dirname(name), exist_ok=True)
        with open(name, "w") as stream:
            stream.write('{"hidden_size": 8, "bf16": true, "train_batch_size": 8}' if "model" in name else BAD)
    os.symlink("..", "a/loop")
    os.symlink("loop.json", "a/loop.json")
    os.symlink("../b/zero3.json", "a/zero3.json")
    os.mkfifo("a/pipe.json")
    os.mkdir("a/folder.json")
    with open("a/binary.json", "wb") as stream:
        stream.write(b"\0\xff" * 9)
    ran = zeroplan("check", ".", "b/zero3.json", "--format", "json")
    assert ran.json["files"] == ["a/deep.hjson", "a/x.yaml", "a/zero3.json", "b/train.json", "b/zero3.json"]
    assert zeroplan("check", "a/folder.json").code == 2
    with open("a/ds_config.json", "wb") as stream:
        stream.write(b"\xff")
    ran = zeroplan("check", "a")
    assert (ran.code, ran.err) == (1, "zeroplan: a/ds_config.json, byte 0: found bytes that are not UTF-8, expected a "
                                      "ds_config.json: not looked at\n")  # fmt: skip


def test_a_folder_of_training_files(zeroplan, tmp_path, monkeypatch):
    """Files that name a config, or hold one, are looked at as they are by themselves; each finding is said once."""
    monkeypatch.chdir(tmp_path)
    os.mkdir("jobs")
    files = {
        "ds.json": '{"train_batch_size": 8, "zero_optimization": {"stage": 5}}',
        "jobs/named.yaml": "model_name_or_path: a\nfinetuning_type: lora\ndeepspeed: ds.json\n",
        "jobs/held.yml": "deepspeed: {train_batch_size: 8, zero_optimization: {stage: 2, overlap_com: true}}\n",
        "jobs/named.json": '{"model_name_or_path": "a", "cutoff_len": 5, "deepspeed": "ds.json"}',
        "jobs/launch.yaml": "distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 5}\n",
        "jobs/without.yaml": "model_name_or_path: a\nfinetuning_type: lora\n",
        "jobs/fsdp.yaml": "distributed_type: FSDP\nfsdp_config: {}\ndeepspeed_config: {}\n",
        "jobs/ci.yaml": "on: push\njobs: {test: {steps: [{run: deepspeed train.py}]}}\n",
        "jobs/group.yaml": "deepspeed: {stage: 2}\n", "jobs/broken.yaml": "deepspeed: [\n",
    }  # fmt: skip
    for name, text in files.items():
        with open(name, "w") as stream:
            stream.write(text)
    taken = ["jobs/held.yml", "jobs/launch.yaml", "jobs/named.json", "jobs/named.yaml"]
    ran = zeroplan("check", "jobs", "--format", "json")
    assert ran.json["files"] == taken
    alone = [finding for name in taken for finding in zeroplan("check", name, "--format", "json").json["findings"]]
    assert {one["rule"] for one in alone} >= {"ZP108", "ZP401"}
    assert ran.json["findings"] == [one for at, one in enumerate(alone) if one not in alone[:at]]
    assert ran.code == 1


CONFIGS = {"ds_config.json": True, "my-ds-config.json": True, "deepspeed.json": True, "zero2_offload.json": True,
           "zero3.json": True, "dsconfig_z3.json": True, "ads.json": False, "zerowaste.json": False,
           "words.json": False}  # fmt: skip


@pytest.mark.parametrize(("name", "taken"), CONFIGS.items())
def test_names_of_configs(name, taken, tmp_path):
    from zeroplan.check.folder import looks_like_config

    (tmp_path / name).write_text("{}")
    assert looks_like_config(str(tmp_path / name)) == taken
