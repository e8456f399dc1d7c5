"""A job script for sbatch: one task a node, which starts a process for each of its GPUs."""

from __future__ import annotations

from zeroplan.emit.launch import CHOSEN, PORT, Launch, accelerate_command

TEXT = """\
#!/usr/bin/env bash
#SBATCH --job-name=zeroplan
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node={per_node}
#SBATCH --exclusive
# Submit it from this folder, and add partition, account and time of your site:
#   sbatch slurm.sbatch [my_train.py] [arguments]
set -euo pipefail
here="${{SLURM_SUBMIT_DIR:?submit this with sbatch}}"
if [ ! -f "$here/ds_config.json" ]; then
  echo "no ds_config.json in $here: submit from the folder of the plan" >&2
  exit 2
fi
{chosen}
first="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)"
export here first
srun bash -c '
{command}
' task {script}
"""


def slurm_script(launch: Launch, *, by_accelerate: bool = False) -> str:
    """By srun, which starts the command once a node; torchrun meets at the first of them."""
    torchrun = (
        f"exec torchrun --nnodes {launch.nodes} --nproc_per_node {launch.per_node} --rdzv_id \"$SLURM_JOB_ID\" \\\n"
        f"  --rdzv_backend c10d --rdzv_endpoint \"$first:{PORT}\" \"$@\""
    )  # fmt: skip
    accelerate = (
        f"exec {accelerate_command()} \\\n"
        f'  --machine_rank "$SLURM_NODEID" --main_process_ip "$first" --main_process_port {PORT} "$@"'
    )
    return TEXT.format(
        nodes=launch.nodes, per_node=launch.per_node, command=accelerate if by_accelerate else torchrun,
        script=launch.script, chosen=CHOSEN,
    )  # fmt: skip
