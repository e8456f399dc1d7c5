"""All files of one plan for one framework, as texts by name, and the writing of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from zeroplan.deepspeed.files import write_all, write_folder, write_whole
from zeroplan.deepspeed.write import ds_config, dumps
from zeroplan.emit.accelerate import accelerate_yaml
from zeroplan.emit.kubernetes import MOUNT, pytorch_job
from zeroplan.emit.launch import (
    Launch,
    accelerate_script,
    deepspeed_script,
    hostfile,
    torchrun_script,
    usual_hosts,
)
from zeroplan.emit.lightning import lightning_trainer
from zeroplan.emit.readme import PURPOSES, readme
from zeroplan.emit.script import FIRST, own_files
from zeroplan.emit.script import NAME as SCRIPT
from zeroplan.emit.slurm import slurm_script
from zeroplan.emit.trainer import arguments_file, training_arguments, words
from zeroplan.errors import SpecError, printable, shown
from zeroplan.search import Candidate
from zeroplan.specs.job import Job

CONFIG = "ds_config.json"


class WrittenFiles(NamedTuple):
    """Files of a plan as they are shown; of a folder their names in it."""

    files: tuple[str, ...]
    folder: str | None = None

    def __str__(self) -> str:
        """In words."""
        return f"{self.folder} with {', '.join(self.files)}" if self.folder else " and ".join(self.files)


def write_plan(
    chosen: Candidate, target: str, folder: str, *, given: dict[str, Any] | None = None,
    hosts: dict[str, int] | None = None, assumed: tuple[str, ...] = (), force: bool = False,
) -> list[str]:  # fmt: skip
    """Every file of the plan in `folder`, all or none; their names."""
    texts = plan_files(chosen, target, folder, given=given, hosts=hosts, assumed=assumed)
    stale = [name for name in PURPOSES if name not in texts and (Path(folder) / name).exists()]
    place = f"--dir {shown(folder)}"
    if force and stale:
        raise SpecError(place, f"{stale[0]} of another plan", "files that this plan replaces", "a new folder")
    if force and _is_the_user_s(Path(folder) / SCRIPT):
        raise SpecError(place, f"a {SCRIPT} that no plan wrote", "files that this plan replaces", "a new folder")
    write_folder(folder, texts, force=force)
    return list(texts)


def _is_the_user_s(script: Path) -> bool:
    """Whether there is something that does not begin as every train.py of a plan does."""
    try:
        with script.open("rb") as stream:
            return stream.read(len(FIRST.encode())) != FIRST.encode()
    except FileNotFoundError:
        return False
    except OSError:
        return True


def write_alone(
    job: Job, target: str, path: str, *, given: dict[str, Any] | None = None, force: bool = False
) -> list[str]:
    """The config as one file; Accelerate's takes a ds_config.json beside it. The paths."""
    config = dumps(ds_config(job, target, given))
    if target != "accelerate":
        write_whole(path, config, force=force)
        return [path]
    if Path(path).suffix not in (".yaml", ".yml"):
        raise SpecError(f"-o {shown(path)}", "another ending", "a YAML file for Accelerate", "-o accelerate.yaml")
    beside = str(Path(path).with_name(CONFIG))
    write_all({path: accelerate_yaml(job, beside), beside: config}, force=force)
    return [path, beside]


def plan_files(
    chosen: Candidate, target: str, folder: str, *, given: dict[str, Any] | None = None,
    hosts: dict[str, int] | None = None, assumed: tuple[str, ...] = (),
) -> dict[str, str]:  # fmt: skip
    """Texts by name. `folder` is where they will lie, as seen from where training starts."""
    job = chosen.job
    launch = Launch(job, _arguments(job, target, given))
    texts = {CONFIG: dumps(ds_config(job, target, given))} | own_files(job, target) | _own(job, target, folder, given)
    brought = texts | _own(job, target, MOUNT, given)
    if target == "accelerate":
        texts["accelerate.sh"] = accelerate_script(launch)
    else:
        texts["torchrun.sh"] = torchrun_script(launch)
    if target in ("hf", "deepspeed"):
        texts["deepspeed.sh"] = deepspeed_script(launch)
        if job.cluster.nodes > 1:
            texts["hostfile"] = hostfile(hosts or usual_hosts(job))
    by_accelerate = target == "accelerate"
    texts["slurm.sbatch"] = slurm_script(launch, by_accelerate=by_accelerate)
    texts["pytorchjob.yaml"] = pytorch_job(launch, brought, by_accelerate=by_accelerate)
    texts["README.md"] = printable(readme(chosen, launch, target, list(texts), assumed, given), keeps="\n")
    return texts


def _own(job: Job, target: str, folder: str, given: dict[str, Any] | None) -> dict[str, str]:
    """What the framework reads beside ds_config.json."""
    config = str(Path(folder) / CONFIG)
    if target == "hf":
        return {"training_arguments.json": arguments_file(training_arguments(job, given), config)}
    if target == "accelerate":
        return {"accelerate.yaml": accelerate_yaml(job, config)}
    return {"lightning_trainer.py": lightning_trainer(job)} if target == "lightning" else {}


def _arguments(job: Job, target: str, given: dict[str, Any] | None) -> tuple[str, ...]:
    """What the script is told: by HfArgumentParser's names, or those of deepspeed.add_config_arguments."""
    config = f"{{here}}/{CONFIG}"
    if target == "hf":
        arguments = training_arguments(job, given)
        if arguments.pop("liger_kernel_config", None):  # no text on a command line becomes a dict there
            del arguments["use_liger_kernel"]
        return tuple(words({"deepspeed": config, **arguments}))
    return ("--deepspeed", "--deepspeed_config", config) if target == "deepspeed" else ()
