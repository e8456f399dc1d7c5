"""Why a launcher starts nothing, as far as the line of a script tells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from zeroplan.catalog.hostfile import slots_by_host
from zeroplan.check.launcher_parsers import Parsed
from zeroplan.check.ranks import NODE
from zeroplan.check.shell_output import is_number
from zeroplan.errors import SpecError

BACKENDS = ("pdsh", "openmpi", "mpich", "impi", "slurm", "mvapich")
"""What `deepspeed --launcher` takes for several hosts (launcher/constants.py)."""
COUNTED = ("auto", "cpu", "gpu", "xpu")
"""Words that torchrun takes for a number (distributed/run.py:determine_local_world_size)."""
PARADIGMS = ("cpu", "multi_gpu", "tpu", "use_deepspeed", "use_fsdp")
"""Options of `accelerate launch` of which it takes one (commands/launch.py:_validate_launch_command)."""
TWO_PROCESSES = 2
ALONE = "--include worker-1:0,1 alone, of a hostfile with lines such as worker-1 slots=8"


class Refusal(NamedTuple):
    """Why nothing is started, and what to write."""

    why: str
    write: str


def refusal(launcher: str, parsed: Parsed, hostfile: tuple[str, str] | None) -> Refusal | None:
    """None where the options do not tell. `hostfile`: name and text of deepspeed's, where it is there."""
    if parsed.refusal:
        return Refusal(parsed.refusal, parsed.instead or "the options that it has, in front of the script")
    if launcher == "deepspeed":
        return _of_deepspeed(parsed.options, hostfile)
    if launcher == "torchrun":
        return _of_torchrun(parsed.options)
    return _of_accelerate(parsed.options) if launcher == "accelerate" else None


def _of_torchrun(options: Mapping[str, str | None]) -> Refusal | None:
    stated = options.get("nproc_per_node", "1")
    if stated is None or is_number(stated) or stated in COUNTED:
        return None
    return Refusal(f"--nproc_per_node {stated}", "--nproc_per_node 8")


def _of_accelerate(options: Mapping[str, str | None]) -> Refusal | None:
    several = [f"--{name}" for name in PARADIGMS if name in options]
    if len(several) > 1:
        return Refusal(f"{' and '.join(several)} together", "one of them")
    if "multi_gpu" in options and int(options.get("num_processes") or TWO_PROCESSES) < TWO_PROCESSES:
        return Refusal(f"--multi_gpu on {options['num_processes']} process", "--num_processes 2")
    return None


def _of_deepspeed(options: Mapping[str, str | None], hostfile: tuple[str, str] | None) -> Refusal | None:
    """As main() of its runner.py goes on."""
    filters = [f"--{name}" for name in ("include", "exclude") if name in options]
    counts = [f"--{name}" for name in ("num_nodes", "num_gpus", "num_accelerators") if name in options]
    if len(filters) > 1 or (filters and counts):
        return Refusal(f"{' and '.join([*counts, *filters])} together", ALONE)
    if "no_ssh" in options and "node_rank" not in options:
        return Refusal("--no_ssh without --node_rank", "--node_rank 0, with each node its own")
    if hostfile is None:
        return None if "force_multi" not in options else _of_backend(options, [])
    try:
        hosts = slots_by_host(*hostfile)
    except SpecError as error:
        return Refusal(f"a hostfile that it does not take ({str(error).partition(', expected')[0]})", ALONE)
    return _of_hosts(options, list(hosts))


def _of_hosts(options: Mapping[str, str | None], hosts: Sequence[str]) -> Refusal | None:
    filters = (options.get("include") or options.get("exclude") or "").split("@")
    named = [match[1] for text in filters if (match := NODE.fullmatch(text))]
    missing = [name for name in named if name not in hosts]
    if missing:
        return Refusal(f"{missing[0]}, which is not in the hostfile", ALONE)
    stays = bool(named) or "num_nodes" in options or len(hosts) == 1
    return None if stays else _of_backend(options, hosts)


def _of_backend(options: Mapping[str, str | None], hosts: Sequence[str]) -> Refusal | None:
    """What reaches several hosts."""
    name = options.get("launcher") or BACKENDS[0]
    is_needed = "no_ssh" not in options and (len(hosts) > 1 or "force_multi" in options)
    if not is_needed or name.lower() in BACKENDS:
        return None
    return Refusal(f"--launcher {name}", f"--launcher {BACKENDS[0]}")
