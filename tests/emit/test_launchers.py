"""Launch scripts start what they are given on the planned nodes and GPUs; SLURM and Kubernetes take theirs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import types

import pytest
import yaml

from tests.emit.plans import GPUS, STRATEGIES, candidate
from zeroplan.catalog.hostfile import read_hostfile
from zeroplan.emit.folder import plan_files
from zeroplan.specs.target import TARGETS

CASES = [(name, gpus, target) for name in STRATEGIES for gpus in GPUS.values() for target in TARGETS]
SCRIPTS = ("deepspeed.sh", "torchrun.sh", "accelerate.sh", "slurm.sbatch")
RECORDER = '#!/usr/bin/env bash\nprintf "%s\\n" "$(basename "$0")" "$@" >> "$RECORD"\n'
DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


def files(name, gpus, target, folder="plan"):
    return plan_files(candidate(name, gpus), target, str(folder))


def written(texts, folder):
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")


@pytest.fixture
def started(tmp_path, monkeypatch):
    """What a script starts, as the words of each command, with stand-ins for the programs that it calls."""
    programs, record = tmp_path / "bin", tmp_path / "record"
    programs.mkdir()
    for name in ("deepspeed", "torchrun", "accelerate"):
        (programs / name).write_text(RECORDER)
    (programs / "srun").write_text('#!/usr/bin/env bash\nexec "$@"\n')
    (programs / "scontrol").write_text('#!/usr/bin/env bash\nprintf "node-7\\nnode-8\\n"\n')
    for program in programs.iterdir():
        program.chmod(0o755)

    def start(script, *words, **environment):
        place = {"PATH": f"{programs}:{os.environ['PATH']}", "RECORD": str(record), **environment}
        command = ["bash", str(script), *words]
        ran = subprocess.run(command, check=False, env=place, cwd=tmp_path, capture_output=True, text=True)
        return ran, record.read_text().splitlines() if record.exists() else []

    return start


@pytest.mark.parametrize(("name", "gpus", "target"), CASES)
def test_scripts_are_bash(name, gpus, target, tmp_path):
    """`bash -n`, and shellcheck where it is installed."""
    texts = files(name, gpus, target)
    found = [file for file in SCRIPTS if file in texts]
    assert len(found) == (3 if target in ("hf", "deepspeed") else 2)
    written(texts, tmp_path)
    for file in found:
        subprocess.run(["bash", "-n", str(tmp_path / file)], check=True)
        if shutil.which("shellcheck"):
            subprocess.run(["shellcheck", "--severity=warning", str(tmp_path / file)], check=True)


@pytest.mark.parametrize("file", SCRIPTS)
@pytest.mark.parametrize("gpus", GPUS.values(), ids=GPUS)
def test_a_script_starts_what_it_is_given(file, gpus, started, tmp_path):
    """On all nodes and GPUs, with the words of the user before those of the plan, none of them split."""
    target = "accelerate" if file == "accelerate.sh" else "hf"
    folder = tmp_path / "a plan"
    folder.mkdir()
    written(files("stage 2, every other layer", gpus, target), folder)
    nodes = gpus // 8
    place = {"NODE_RANK": "2", "MASTER_ADDR": "first", "SLURM_SUBMIT_DIR": str(folder), "SLURM_JOB_ID": "17",
             "SLURM_JOB_NODELIST": "node-[7-8]"}  # fmt: skip
    ran, words = started(folder / file, "my train.py", "--name", "a b", **place)
    assert ran.returncode == 0, ran.stderr
    at = words.index("my train.py")
    assert words[at + 1 : at + 3] == ["--name", "a b"]
    before, after = words[:at], words[at + 3 :]
    if file == "accelerate.sh":
        assert before[:3] == ["accelerate", "launch", "--config_file"]
        assert str(folder / "accelerate.yaml") in before
        assert str(folder / "ds_config.json") in before
        assert after == []
        assert ("--machine_rank" in before) == (nodes > 1)
        return
    assert after[:2] == ["--deepspeed", str(folder / "ds_config.json")]
    assert "--fp16" in after
    assert after[after.index("--gradient_checkpointing_kwargs") + 1] == '{"every_n_layers": 2}'
    each = "--num_gpus" if file == "deepspeed.sh" else "--nproc_per_node"
    assert before[before.index(each) + 1] == "8"
    if file == "deepspeed.sh" and nodes > 1:
        assert before[before.index("--hostfile") + 1] == str(folder / "hostfile")
    if file == "torchrun.sh" and nodes > 1:
        assert before[before.index("--node_rank") + 1] == "2"
        assert before[before.index("--nnodes") + 1] == str(nodes)
    if file == "slurm.sbatch":
        assert before[before.index("--rdzv_endpoint") + 1] == "node-7:29500"
        assert before[before.index("--nnodes") + 1] == str(nodes)


@pytest.mark.parametrize("file", SCRIPTS)
@pytest.mark.parametrize("typed", [(), ("--steps", "a b")], ids=["nothing", "arguments"])
def test_a_script_without_a_training_script_starts_the_folder_s(file, typed, started, tmp_path):
    folder = tmp_path / "a plan"
    folder.mkdir()
    written(files("stage 0", 8, "accelerate" if file == "accelerate.sh" else "deepspeed"), folder)
    place = {"SLURM_SUBMIT_DIR": str(folder), "SLURM_JOB_ID": "17", "SLURM_JOB_NODELIST": "node-7"}
    ran, words = started(folder / file, *typed, **place)
    assert ran.returncode == 0, ran.stderr
    at = words.index(str(folder / "train.py"))
    assert words[at + 1 : at + 1 + len(typed)] == list(typed)


@pytest.mark.parametrize("file", SCRIPTS)
def test_a_module_is_a_script_of_one_s_own(file, started, tmp_path):
    written(files("stage 0", 8, "accelerate" if file == "accelerate.sh" else "deepspeed"), tmp_path)
    place = {"SLURM_SUBMIT_DIR": str(tmp_path), "SLURM_JOB_ID": "17", "SLURM_JOB_NODELIST": "node-7"}
    ran, words = started(tmp_path / file, "--module", "mine.train", **place)
    assert ran.returncode == 0, ran.stderr
    assert words[words.index("--module") + 1] == "mine.train"
    assert not any(word.endswith("train.py") for word in words)


def test_slurm_asks_for_the_plan_s_nodes():
    text = files("stage 0", 32, "deepspeed")["slurm.sbatch"]
    asked = dict(re.findall(r"^#SBATCH --([a-z-]+)=(\S+)$", text, re.MULTILINE))
    assert (asked["nodes"], asked["gpus-per-node"], asked["ntasks-per-node"]) == ("4", "8", "1")


def test_the_hostfile_is_one_for_deepspeed(tmp_path):
    written(files("stage 0", 32, "deepspeed"), tmp_path)
    assert list(read_hostfile(str(tmp_path / "hostfile")).values()) == [8] * 4
    named = plan_files(candidate("stage 0", 32), "hf", "plan", hosts={"a": 8, "b": 8, "c": 8, "d": 8})
    assert named["hostfile"].split() == ["a", "slots=8", "b", "slots=8", "c", "slots=8", "d", "slots=8"]
    assert "hostfile" not in files("stage 0", 8, "deepspeed")


@pytest.mark.parametrize(("name", "gpus", "target"), CASES)
def test_the_manifest_is_a_pytorch_job(name, gpus, target):
    """What training-operator's webhook asks for, and the fields of Kubernetes that it stands on (core/v1)."""
    texts = files(name, gpus, target)
    config_map, found = yaml.safe_load_all(texts["pytorchjob.yaml"])
    assert (config_map["apiVersion"], config_map["kind"]) == ("v1", "ConfigMap")
    assert (found["apiVersion"], found["kind"]) == ("kubeflow.org/v1", "PyTorchJob")
    assert DNS_LABEL.fullmatch(found["metadata"]["name"])
    spec = found["spec"]
    assert spec["nprocPerNode"] == "8"
    assert isinstance(spec["runPolicy"]["cleanPodPolicy"], str)
    replicas = spec["pytorchReplicaSpecs"]
    assert replicas.keys() == ({"Master", "Worker"} if gpus > 8 else {"Master"})
    assert replicas["Master"]["replicas"] == 1
    assert sum(part["replicas"] for part in replicas.values()) * 8 == gpus
    for part in replicas.values():
        assert part["restartPolicy"] in ("Always", "OnFailure", "Never", "ExitCode")
        check_pod(part["template"]["spec"], config_map)


def check_pod(pod, config_map):
    (container,) = pod["containers"]
    assert container["name"] == "pytorch"
    assert container["image"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 8
    assert all(isinstance(word, str) for word in container["command"])
    subprocess.run(["bash", "-n", "-c", container["command"][-1]], check=True)
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert all(DNS_LABEL.fullmatch(name) for name in volumes)
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes.keys()
    assert len({mount["mountPath"] for mount in container["volumeMounts"]}) == len(volumes)
    assert volumes["plan"]["configMap"]["name"] == config_map["metadata"]["name"]


@pytest.mark.parametrize(("name", "gpus", "target"), CASES)
def test_the_manifest_brings_the_same_files(name, gpus, target):
    """The config to the byte; what names its path names where it is mounted."""
    texts = files(name, gpus, target)
    brought, _job = yaml.safe_load_all(texts["pytorchjob.yaml"])
    assert brought["data"]["ds_config.json"] == texts["ds_config.json"]
    for file, text in brought["data"].items():
        assert text.replace("/plan/", "plan/") == texts[file], file


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "gpus", "target"), CASES[::5])
def test_the_manifest_by_kubernetes_own_schema(name, gpus, target):
    """Strictly: no field beside those of Kubernetes 1.30 (package kubernetes-validate, no part of any extra)."""
    schema = pytest.importorskip("kubernetes_validate")
    config_map, found = yaml.safe_load_all(files(name, gpus, target)["pytorchjob.yaml"])
    schema.validate(config_map, "1.30", strict=True)
    for part in found["spec"]["pytorchReplicaSpecs"].values():
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}, **part["template"]}
        schema.validate(pod, "1.30", strict=True)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "gpus", "target"), CASES[::5])
def test_the_manifest_by_kubeflow_s_own_classes(name, gpus, target):
    """Nothing is lost in the SDK's KubeflowOrgV1PyTorchJob (package kubeflow-training 1.9, no part of any extra)."""
    training = pytest.importorskip("kubeflow.training")
    _map, stated = yaml.safe_load_all(files(name, gpus, target)["pytorchjob.yaml"])
    client, answer = training.ApiClient(), types.SimpleNamespace(data=json.dumps(stated))
    found = client.sanitize_for_serialization(client.deserialize(answer, "KubeflowOrgV1PyTorchJob"))
    for part in stated["spec"]["pytorchReplicaSpecs"].values():  # a quantity is a text there
        part["template"]["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": "8"}
    assert found == stated


def test_disks_are_mounted_where_the_config_looks_for_them():
    texts = files("stage 3 on disks", 8, "deepspeed")
    zero = json.loads(texts["ds_config.json"])["zero_optimization"]
    _map, found = yaml.safe_load_all(texts["pytorchjob.yaml"])
    pod = found["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
    mounted = [mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]]
    assert zero["offload_param"]["nvme_path"] in mounted
    assert {volume["hostPath"]["path"] for volume in pod["volumes"] if "hostPath" in volume} <= set(mounted)


def test_aio_is_the_strategy_s_own():
    aio = json.loads(files("stage 3 on disks", 8, "hf")["ds_config.json"])["aio"]
    assert (aio["queue_depth"], aio["intra_op_parallelism"]) == (32, 4)
