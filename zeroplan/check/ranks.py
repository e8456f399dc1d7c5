"""How many ranks a launcher starts, by its options, its hostfile and the variables around it.

Options as deepspeed 0.19.8 (launcher/runner.py), accelerate 1.15 (commands/launch.py), torch 2.14
(distributed/run.py) and Slurm's sbatch have them; variables as ms-swift 4.6 and LLaMA-Factory 0.9.5 read them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from zeroplan.catalog.hostfile import slots_by_host
from zeroplan.check.shell_output import is_number
from zeroplan.check.shell_variables import Word
from zeroplan.errors import SpecError

SLURM = re.compile(r"^[ \t]*#SBATCH[ \t]+(-{1,2}[\w-]+)(?:[= \t]+|(?<=-[A-Za-z]))(\S+)", re.MULTILINE)
NODES, PER_NODE = ("--nodes", "-N"), ("--gpus-per-node", "--gpus_per_node", "--gres", "--gpus-per-task")
COMMAND = re.compile(r"^[ \t]*[^#\s]", re.MULTILINE)
TASKS, TASKS_PER_NODE = ("--ntasks", "-n"), "--ntasks-per-node"
SET_BY_SLURM = ("SLURM_NNODES", "SLURM_JOB_NUM_NODES")
SET_PER_NODE = ("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE")
PLAIN = ("python", "python3")
"""What starts one rank itself: so many as Slurm gives below srun."""
VISIBLE = "CUDA_VISIBLE_DEVICES"
NPROC_PER_NODE, NNODES, FORCE_TORCHRUN, USE_RAY = "NPROC_PER_NODE", "NNODES", "FORCE_TORCHRUN", "USE_RAY"
OF_LIGHTNING = "PL_DEEPSPEED_CONFIG_PATH"
"""A variable that names the config to Lightning (2.6 pytorch/strategies/deepspeed.py)."""
VARIABLES = (VISIBLE, NPROC_PER_NODE, NNODES, FORCE_TORCHRUN, "SWIFT_SINGLE_DEVICE_MODE", USE_RAY, "USE_MCA",
             OF_LIGHTNING)  # fmt: skip
"""Variables that decide how many ranks a launcher starts, how many GPUs each sees, and which config is read."""
OF_ENVIRONMENT = ("swift", "llamafactory-cli")
"""Launchers that these variables alone decide for."""
ON = ("true", "y", "1")
"""What turns a variable of LLaMA-Factory on (extras/misc.py:is_env_enabled)."""
Environment = Mapping[str, str | None]
"""Variables that are set, None where the value is not known."""
INCLUDE, EXCLUDE = ("--include", "-i"), ("--exclude", "-e")
HOSTFILE = ("--hostfile", "-H")
NODE = re.compile(r"([^:@]+)(?::(\d{1,6}(?:,\d{1,6})*))?")
"""A host, and which of its slots (launcher/runner.py:parse_node_config)."""
Options = Mapping[str, Word]


def is_port(text: str) -> bool:
    """Whether it is the number of a port: 65535 is the largest."""
    return re.fullmatch("[0-9]{1,5}", text) is not None


class Slurm(NamedTuple):
    """What the `#SBATCH` lines of a script say."""

    variables: dict[str, str]
    """Those that Slurm sets for the script, as far as its lines tell."""
    per_node: int | None
    """GPUs of a node; None where the lines do not say."""
    nodes: int | None
    """Nodes of the job; None where the lines do not say, or there are none."""
    tasks: int | None
    """What srun starts: one a node where nothing else is said (Slurm's sbatch)."""

    @classmethod
    def of(cls, text: str) -> Slurm:
        """What the lines before the first command say: sbatch stops reading there."""
        command = COMMAND.search(text)
        stated: dict[str, str] = dict(SLURM.findall(text[: command.start()] if command else text))
        nodes = next((stated[name] for name in NODES if name in stated), None)
        per_node = _gpus(next((stated[name] for name in PER_NODE if name in stated), None))
        variables = dict.fromkeys(SET_BY_SLURM, nodes or "1") if stated else {}
        variables |= dict.fromkeys(SET_PER_NODE, per_node) if per_node else {}
        if not stated:
            return cls(variables, None, None, None)
        every = next((stated[name] for name in TASKS if name in stated), None)
        tasks = _product("1", every) if every else _product(nodes or "1", stated.get(TASKS_PER_NODE, "1"))
        whole = int(nodes) if nodes and is_number(nodes) else None
        return cls(variables, int(per_node) if per_node else None, whole, tasks)


def tasks_of(options: Options, slurm: Slurm) -> int | None:
    """What srun or mpirun starts; None where its own options leave that open."""
    stated = _stated(options, *TASKS, "-np")
    if stated is not None:
        return _product("1", stated)
    return None if any(name in options for name in (*NODES, TASKS_PER_NODE)) else slurm.tasks


def _gpus(value: str | None) -> str | None:
    """The count that ends gpu:a100:8 among other resources, or is all of 8."""
    parts = (value or "").split(",")
    several = [part for part in parts if part.startswith("gpu")] or [part for part in parts if is_number(part)]
    last = several[0].rpartition(":")[2] if several else ""
    return last if is_number(last) else None


def ranks(
    launcher: str, options: Options, environment: Environment, hostfile: tuple[str, str] | None,
    allotted: int | None,
) -> int | None:  # fmt: skip
    """None where they are not stated in full. `hostfile`: name and text of deepspeed's, where it is there; `allotted`:
    GPUs of a node that Slurm gives.
    """
    if launcher in ("accelerate", "trl"):
        return _product("1", _stated(options, "--num_processes"))
    if launcher == "torchrun":
        nodes = _stated(options, "--nnodes")
        return _product("1" if nodes is None else nodes, _stated(options, "--nproc_per_node"))
    if launcher == "deepspeed":
        return _of_deepspeed(options, environment, hostfile, allotted)
    if launcher == "swift":
        return _of_swift(environment)
    if launcher == "llamafactory-cli":
        return _of_llama_factory(environment)
    return None


def visible(environment: Environment) -> int | None:
    """The cards that the environment shows; None where it does not say."""
    names = [name for name in (environment.get(VISIBLE) or "").split(",") if name.strip()]
    return len(names) or None


def _of_swift(environment: Environment) -> int | None:
    """Ranks of torchrun with these variables, where one of them is set, else one process (ms-swift 4.6 cli/main.py);
    Ray's follow from its own groups.
    """
    if environment.get(USE_RAY, "0") != "0":
        return None
    per_node, nodes = (environment.get(name, "1") for name in (NPROC_PER_NODE, NNODES))
    return _product(nodes, per_node)


def _of_llama_factory(environment: Environment) -> int | None:
    """Ranks of torchrun where it is forced or there are several cards, else one (llamafactory 0.9.5 launcher.py)."""
    cards = visible(environment)
    if cards == 1 and not is_forced(environment):
        return 1
    return _product(environment.get(NNODES, "1"), environment.get(NPROC_PER_NODE, str(cards or "")))


def is_forced(environment: Environment) -> bool:
    """Whether LLaMA-Factory starts torchrun on a single card too."""
    return any((environment.get(name) or "0").lower() in ON for name in (FORCE_TORCHRUN, "USE_MCA"))


def hostfile_of(options: Options) -> str | None:
    """The name of the hostfile that `deepspeed` is given."""
    return _stated(options, *HOSTFILE)


def _of_deepspeed(
    options: Options, environment: Environment, hostfile: tuple[str, str] | None, allotted: int | None
) -> int | None:  # fmt: skip
    """As its runner.py has it: parse_resource_filter, apply_num_nodes_and_gpus and, where none of their options is
    there, the cards that the environment shows.
    """
    hosts = None if hostfile is None else _hosts(*hostfile)
    include, exclude = _stated(options, *INCLUDE), _stated(options, *EXCLUDE)
    nodes, per_node = _stated(options, "--num_nodes"), _stated(options, "--num_gpus", "--num_accelerators")
    if include is not None or exclude is not None:
        stops = nodes is not None or per_node is not None or None not in (include, exclude)
        return None if stops else _filtered(hosts, include, exclude)
    if hosts is not None:
        if not all(one is None or is_number(one) for one in (nodes, per_node)):
            return None
        slots = list(hosts.values())[: int(nodes) if nodes else None]
        return len(slots) * int(per_node) if per_node else sum(slots)
    if hostfile_of(options) is not None:
        return _product(nodes, per_node)  # of hosts in a file that is not there
    if per_node is None and nodes is None:
        shown = environment.get(VISIBLE)
        return allotted if shown is None else _filtered(None, f"localhost:{shown}", None)
    return _product("1" if nodes is None else nodes, per_node)


def _hosts(name: str, content: str) -> dict[str, int] | None:
    """Slots by host; None for a file that DeepSpeed refuses."""
    try:
        return slots_by_host(name, content)
    except SpecError:
        return None


def _filtered(hosts: Mapping[str, int] | None, include: str | None, exclude: str | None) -> int | None:
    """The slots that are left; None where a whole host of unknown slots is meant, or what is not there."""
    chosen: dict[str, set[int]] = {}
    for text in (include or exclude or "").split("@"):
        match = NODE.fullmatch(text)
        known = match and hosts and hosts.get(match[1])
        if match is None or (hosts is not None and not known):
            return None
        slots = {int(slot) for slot in match[2].split(",")} if match[2] else set(range(known)) if known else None
        if slots is None or (known and max(slots) >= known):
            return None
        chosen[match[1]] = chosen.get(match[1], set()) | slots
    count = sum(len(slots) for slots in chosen.values())
    if include is not None:
        return count
    return sum(hosts.values()) - count or None if hosts is not None else None


def _stated(options: Options, *names: str) -> str | None:
    """An option's text under one of its names, with dashes for underscores too, empty where that is not known; None
    where the option is not there.
    """
    spelled = (spelling for name in names for spelling in (name, name.replace("_", "-")))
    word = next((options[name] for name in spelled if name in options), None)
    return None if word is None else word.text or ""


def _product(nodes: str | None, per_node: str | None) -> int | None:
    known = [number for number in (nodes, per_node) if number and is_number(number)]
    return int(known[0]) * int(known[1]) or None if len(known) == 2 else None
