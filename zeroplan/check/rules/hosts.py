"""Ranks and the hosts that they go onto: of a hostfile, of Accelerate's file, of Slurm."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from zeroplan.catalog.hostfile import slots_by_host
from zeroplan.check.accelerate_config import ALONE, PROCESSES, AccelerateConfig
from zeroplan.check.finding import ERROR, WARNING, Hit, named
from zeroplan.check.rule import Example, Rule, launching
from zeroplan.check.shell_output import is_number
from zeroplan.errors import SpecError

if TYPE_CHECKING:
    from zeroplan.check.launched import Launch

TAKEN = re.compile(r"\S+\s+slots=\d+")
"""A line that DeepSpeed's launcher takes (launcher/runner.py:_parse_hostfile)."""
FILTERS = ("include", "exclude")
MACHINES = {"torchrun": "nnodes", "accelerate": "num_machines"}
"""Launchers that run on each node by themselves, and their option that says how many there are."""
STANDARD = "zero_stage: 2, deepspeed_multinode_launcher: standard"
ON_NODES = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=4\n" \
           "%storchrun --nnodes 2 --nproc_per_node 4 train.py --deepspeed ds.json\n"  # fmt: skip

RULES: tuple[Rule, ...] = (
    Rule(
        "ZP839", ERROR, "Ranks that do not go onto the hosts",
        "launcher/runner.py, run: so many ranks on each host; accelerate: utils/launch.py:prepare_deepspeed_cmd_env",
        launching(STANDARD, "num_machines: 3, main_process_ip: a, "),
        launching(STANDARD, "num_machines: 2, main_process_ip: a, "),
        "https://github.com/huggingface/accelerate/issues/2780",
    ),
    Rule(
        "ZP840", WARNING, "A launcher of one node in a job of several",
        "Slurm's sbatch: the script runs on the first node alone",
        Example(ON_NODES % "", file="job.sbatch"), Example(ON_NODES % "srun ", file="job.sbatch"),
        "https://github.com/huggingface/accelerate/issues/2816",
    ),
    Rule(
        "ZP846", ERROR, "A hostfile at which DeepSpeed's launcher stops",
        "launcher/runner.py:_parse_hostfile, run: ValueError",
        Example("worker-1 slots=8\nworker-2:8\n", file="hostfile"),
        Example("worker-1 slots=8\nworker-2 slots=8\n", file="hostfile"),
        "https://www.deepspeed.ai/getting-started/#resource-configuration-multi-node",
    ),
)  # fmt: skip


def of_hostfile(name: str, text: str) -> Iterator[Hit]:
    """The line at which it stops."""
    try:
        slots_by_host(name, text)
    except SpecError as error:
        line = int(error.place.rpartition(":")[2]) if error.place != name else 1
        if TAKEN.match((text.splitlines() or [""])[line - 1].strip()) and "second time" not in error.found:
            return  # it takes no slots, or very many, without a word
        offset = sum(len(before) for before in text.splitlines(keepends=True)[: line - 1])
        yield Hit("ZP846", (), f"{error.found}: deepspeed stops, it takes {error.expected}", "worker-1 slots=8",
                  offset=offset)  # fmt: skip


def more_than_slots(launch: Launch) -> Iterator[Hit]:
    """`deepspeed --num_gpus 16` starts 16 ranks on each host, whatever slots its line says."""
    per_host = launch.options.get("num_gpus") or launch.options.get("num_accelerators") or ""
    if launch.launcher != "deepspeed" or launch.hosts is None or not is_number(per_host):
        return
    if any(name in launch.options for name in FILTERS):
        return
    nodes = launch.options.get("num_nodes", "")
    if nodes is None or (fewest := _least_slots(launch.hosts, int(nodes) if is_number(nodes) else None)) is None:
        return
    if int(per_host) > fewest.slots:
        what = f"--num_gpus {per_host} is for each host, and {fewest.said}: ranks without a GPU"
        yield Hit("ZP839", (), what, f"--num_gpus {fewest.slots}", offset=launch.place.start)


def of_one_node(launch: Launch) -> Iterator[Hit]:
    """What sbatch runs is on the first node, and the launchers on the others are waited for."""
    option = MACHINES.get(launch.launcher)
    if option is None or launch.place.is_below or (launch.nodes or 1) < 2:
        return
    if launch.options.get(option, "1") not in ("1", "1:1", None, ""):
        what = f"{launch.launcher} without srun runs on the first of {launch.nodes} nodes alone"
        yield Hit("ZP840", (), f"{what}, and waits for the others", "srun --ntasks-per-node=1 in front of it",
                  offset=launch.place.start)  # fmt: skip


def ranks_of_machines(accelerate: AccelerateConfig, hostfile: tuple[str, str] | None) -> Iterator[Hit]:
    """Accelerate starts num_processes // num_machines on each, by `deepspeed` on those of a hostfile."""
    processes, count = accelerate.stated_processes, accelerate.machines
    if not accelerate.is_deepspeed or processes is None or count == 1 or not accelerate.reaches_others:
        return
    each = processes // count
    on_each = f"{PROCESSES} {processes} on {count} machines: {each} ranks on each"
    if processes % count:
        yield Hit("ZP839", (PROCESSES,), f"{on_each}, {each * count} together", f"{PROCESSES}: {each * count or count}",
                  WARNING if each else "")  # fmt: skip
    is_given = accelerate.fields.get("deepspeed_multinode_launcher") not in ALONE  # those take no hostfile
    is_filtered = any(f"deepspeed_{name}ion_filter" in accelerate.fields for name in ("inclus", "exclus"))
    fewest = _least_slots(hostfile, count) if hostfile is not None and is_given and not is_filtered else None
    if fewest is not None and each > fewest.slots:
        yield Hit("ZP839", (PROCESSES,), f"{on_each}, and {fewest.said}", f"{PROCESSES}: {fewest.slots * count}")


class _Slots(NamedTuple):
    """The host with the fewest."""

    host: str
    slots: int

    @property
    def said(self) -> str:
        return f"{named(self.host)} has {self.slots} slot{'s' * (self.slots != 1)}"


def _least_slots(hostfile: tuple[str, str], nodes: int | None) -> _Slots | None:
    """The host with the fewest slots among the first `nodes` of a hostfile, or all of them; None for a file that
    DeepSpeed refuses.
    """
    with suppress(SpecError):
        several = list(slots_by_host(*hostfile).items())[:nodes]
        return min((_Slots(*one) for one in several), key=lambda one: one.slots, default=None)
    return None


HOST_CHECKS = (more_than_slots, of_one_node)
CHECKS = ()
"""None that asks a ds_config."""
