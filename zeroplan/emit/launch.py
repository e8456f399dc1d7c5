"""Launch commands: shell scripts that start train.py, or a training script given to them, on the plan's GPUs."""

from __future__ import annotations

import shlex
from typing import NamedTuple

from zeroplan.specs.job import Job

PORT = 29500
MEETING = f'--master_port "${{MASTER_PORT:-{PORT}}}"'
GIVEN = '"$@"'
"""The training script and what the user typed after it."""
TEXT = """\
#!/usr/bin/env bash
# {what}
#   {usage}
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
{chosen}
{body}
"""
CHOSEN = """\
case "${1:--}" in  # your own script, or train.py beside this file with these arguments
  -m | --module) ;;
  -*) set -- "$here/train.py" "$@" ;;
esac"""


class Launch(NamedTuple):
    """A launch as every launcher needs it."""

    job: Job
    arguments: tuple[str, ...] = ()
    """Arguments that the training script gets after its own; {here} stands for this folder."""

    @property
    def nodes(self) -> int:
        return self.job.cluster.nodes

    @property
    def per_node(self) -> int:
        return self.job.cluster.gpus_per_node

    @property
    def script(self) -> str:
        """The training script, what the user typed after it, and what the plan adds."""
        return " ".join([GIVEN, *(quoted(text) for text in self.arguments)])


def quoted(text: str) -> str:
    """For bash; {here} becomes the folder of the plan."""
    if text.startswith("{here}/"):
        return f'"$here/{text.removeprefix("{here}/")}"'
    return shlex.quote(text)


def hostfile(hosts: dict[str, int]) -> str:
    """A hostfile in DeepSpeed's format."""
    return "".join(f"{name} slots={slots}\n" for name, slots in hosts.items())


def usual_hosts(job: Job) -> dict[str, int]:
    """Names that stand for the user's own."""
    return {f"worker-{number + 1}": job.cluster.gpus_per_node for number in range(job.cluster.nodes)}


def deepspeed_script(launch: Launch) -> str:
    """DeepSpeed's launcher: on one node here, on several over ssh from the first (launcher/runner.py)."""
    what, where = "DeepSpeed's launcher.", f"--num_gpus {launch.per_node}"
    if launch.nodes > 1:
        what = f"DeepSpeed's launcher: run it on the first host of hostfile, which reaches all {launch.nodes} by ssh."
        where = f'--hostfile "$here/hostfile" --num_nodes {launch.nodes} --num_gpus {launch.per_node}'
    return _script(what, "bash deepspeed.sh", f"exec deepspeed {where} {MEETING} {launch.script}")


def torchrun_script(launch: Launch) -> str:
    """With torchrun; on several nodes once on each, with NODE_RANK and MASTER_ADDR."""
    each = f"--nproc_per_node {launch.per_node} {launch.script}"
    if launch.nodes == 1:
        return _script("torchrun on one node.", "bash torchrun.sh", f"exec torchrun --standalone {each}")
    where = f'--node_rank "$NODE_RANK" --master_addr "$MASTER_ADDR" {MEETING}'
    return _on_each(launch, "torchrun", f"exec torchrun --nnodes {launch.nodes} {where} {each}")


def accelerate_script(launch: Launch) -> str:
    """With accelerate launch; on several nodes once on each, with NODE_RANK and MASTER_ADDR."""
    if launch.nodes == 1:
        body = f'exec {accelerate_command()} --main_process_port "${{MASTER_PORT:-{PORT}}}" {launch.script}'
        return _script("accelerate launch on one node.", "bash accelerate.sh", body)
    where = '--machine_rank "$NODE_RANK" --main_process_ip "$MASTER_ADDR" --main_process_port "${MASTER_PORT:-29500}"'
    return _on_each(launch, "accelerate", f"exec {accelerate_command()} {where} {launch.script}")


def accelerate_command() -> str:
    """Up to what tells nodes apart."""
    return 'accelerate launch --config_file "$here/accelerate.yaml" --deepspeed_config_file "$here/ds_config.json"'


def _on_each(launch: Launch, name: str, command: str) -> str:
    last = launch.nodes - 1
    required = f': "${{NODE_RANK:?number of this node, 0 to {last}}}" "${{MASTER_ADDR:?name of the first node}}"'
    usage = f"NODE_RANK=0..{last} MASTER_ADDR=HOST bash {name}.sh"
    return _script(f"{name}: run it on each of the {launch.nodes} nodes.", usage, f"{required}\n{command}")


def _script(what: str, usage: str, body: str) -> str:
    return TEXT.format(what=what, usage=f"{usage} [my_train.py] [arguments]", chosen=CHOSEN, body=body)
