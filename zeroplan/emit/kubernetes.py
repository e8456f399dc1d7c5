"""A PyTorchJob of Kubeflow's training operator (kubeflow.org/v1), and a ConfigMap that brings the plan's files.

What its webhook asks of a PyTorchJob (training-operator pkg/webhooks/pytorch/pytorchjob_webhook.go): a name that is a
DNS label, replicas of type Master and Worker only, one Master, at least one Worker where there are any, and in each a
container with the name pytorch and an image. The operator sets RANK to the number of the pod, and MASTER_ADDR and
MASTER_PORT.
"""

from __future__ import annotations

from typing import Any

from zeroplan.deepspeed.write_zero import NVME_PATH
from zeroplan.emit.launch import GIVEN, Launch, accelerate_command
from zeroplan.emit.yaml_text import dumps
from zeroplan.specs.cluster import NVIDIA
from zeroplan.specs.strategy import Strategy

NAME, MOUNT = "zeroplan", "/plan"
IMAGE, SCRIPT = "registry.example.com/training:latest", f"{MOUNT}/train.py"
CARDS = {NVIDIA: "nvidia.com/gpu", "AMD": "amd.com/gpu", "Intel": "habana.ai/gaudi"}
"""Names under which makers' device plugins offer cards."""
HEADER = f"""\
# Put in your own image ({IMAGE}), which has torch, deepspeed, transformers and what train.py imports.
# The ConfigMap holds the plan's files: {SCRIPT} is started, or what you write in its place.
"""


def pytorch_job(launch: Launch, files: dict[str, str], *, by_accelerate: bool = False) -> str:
    """`files` are what the containers find in /plan, by name."""
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{NAME}-files"}, "data": files}
    replicas: dict[str, Any] = {"Master": _replica(launch, 1, by_accelerate=by_accelerate)}
    if launch.nodes > 1:
        replicas["Worker"] = _replica(launch, launch.nodes - 1, by_accelerate=by_accelerate)
    job = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": NAME},
        "spec": {
            "nprocPerNode": str(launch.per_node),
            "runPolicy": {"cleanPodPolicy": "None"},
            "pytorchReplicaSpecs": replicas,
        },
    }
    return HEADER + dumps(config_map, job)


def _replica(launch: Launch, count: int, *, by_accelerate: bool) -> dict[str, Any]:
    volumes: list[dict[str, Any]] = [
        {"name": "plan", "configMap": {"name": f"{NAME}-files"}},
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
    ]
    mounts = [{"name": "plan", "mountPath": MOUNT}, {"name": "shm", "mountPath": "/dev/shm"}]  # noqa: S108
    for number, disk in enumerate(disks(launch.job.strategy)):
        volumes.append({"name": f"nvme-{number}", "hostPath": {"path": disk, "type": "Directory"}})
        mounts.append({"name": f"nvme-{number}", "mountPath": disk})
    container = {
        "name": "pytorch",
        "image": IMAGE,
        "command": ["bash", "-c", _command(launch, by_accelerate=by_accelerate)],
        "resources": {"limits": {CARDS.get(launch.job.cluster.maker, CARDS[NVIDIA]): launch.per_node}},
        "volumeMounts": mounts,
    }
    template = {"spec": {"containers": [container], "volumes": volumes}}
    return {"replicas": count, "restartPolicy": "OnFailure", "template": template}


def disks(strategy: Strategy) -> list[str]:
    """Where the plan's ds_config.json puts what is offloaded to NVMe."""
    parts = [part for part in (strategy.offload_param, strategy.offload_optimizer) if part and part.device == "nvme"]
    return list(dict.fromkeys(part.nvme_path or NVME_PATH for part in parts))


def _command(launch: Launch, *, by_accelerate: bool) -> str:
    if by_accelerate:
        start = f'{accelerate_command()} --machine_rank "$RANK" --main_process_ip "$MASTER_ADDR"'
        start += ' --main_process_port "$MASTER_PORT"'
    else:
        start = f'torchrun --nnodes {launch.nodes} --nproc_per_node {launch.per_node} --node_rank "$RANK"'
        start += ' --master_addr "$MASTER_ADDR" --master_port "$MASTER_PORT"'
    return f"here={MOUNT}\nexec {start} {launch.script.replace(GIVEN, SCRIPT)}\n"
