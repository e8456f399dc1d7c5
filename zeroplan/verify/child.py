"""`python -m zeroplan.verify.child CASE.json OUT.json`: one rank of N of real DeepSpeed, measured.

The case's format is described in `zeroplan.verify.measure`. The environment (DS_ACCELERATOR, RANK, WORLD_SIZE, ...)
must be set before the start: `zeroplan.verify.measure.environment` gives it.
"""

from __future__ import annotations

import gc
import importlib.metadata
import json
import platform
import sys
import time
import traceback
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


def versions() -> dict[str, str]:
    installed = {name: importlib.metadata.version(name) for name in ("deepspeed", "torch", "transformers")}
    return {**installed, "python": platform.python_version()}


def run(case: dict[str, Any]) -> dict[str, Any]:
    """Build, initialize, train, and give back what was held and moved."""
    from zeroplan.verify import job, owners, plain
    from zeroplan.verify.collectives import Collectives, traffic
    from zeroplan.verify.setting import Harness
    from zeroplan.verify.steps import Phases, name_gradients, train

    setting = Harness(case)
    storages, stand_ins = setting.storages, setting.stand_ins
    collectives = Collectives(case["rank"])
    collectives.install()
    deepspeed = setting.start_deepspeed()
    storages.crossings.where = lambda: (collectives.step, collectives.phase)
    if setting.disk is not None:
        setting.disk.where = storages.crossings.where
    out: dict[str, Any] = {}
    phases = Phases(storages)
    with storages, setting.kernels():
        if case.get("activations", True):
            out["activations"] = plain.activations(case, setting)
            gc.collect()
        config = setting.config()
        storages.phase = "build"
        with phases.phase("build", 0, 0):
            context = deepspeed.zero.Init(config_dict_or_path=config) if case.get("zero_init") else None
            model = job.build(case, setting.device, context)
            batch = job.inputs(case, setting.device, setting.stand_ins)
        name_gradients(model, storages)
        for name, tensor in batch.items():
            storages.relabel(tensor, "inputs" if name else "")

        def keep(name: str) -> None:
            gc.collect()
            out[name] = owners.held(storages, owners.kinds(storages, engine, model, batch))

        owners.kinds(storages, None, model, batch)
        parameters = job.groups(model, case.get("parameter_groups", 1))
        with phases.phase("init", 0, 0):
            engine, *_ = deepspeed.initialize(
                model=model, config=config, optimizer=job.client_optimizer(case, parameters),
                model_parameters=None if case.get("optimizer") else parameters,
            )  # fmt: skip
        keep("after_init")

        def after_step(step: int) -> None:
            keep(f"after_step_{step}")

        with setting.lists():
            train(engine, batch, phases, case.get("steps", 3), collectives.at, after_step)
        if engine.skipped_steps and not setting.cuda:  # there tensors that nobody sent have no values to trust
            raise RuntimeError(f"{engine.skipped_steps} steps were skipped (overflow): what was measured is not steady")
        out |= out.pop(f"after_step_{case.get('steps', 3)}")
        out["phases"] = phases.entries
        looked_at = (0, 1, case.get("steps", 3))
        out["traffic"] = traffic([call for call in collectives.calls if call.step in looked_at])
        out["pins"] = sorted(stand_ins.pins)
        out["optimizer_classes"] = [type(engine.optimizer).__name__, type(engine.basic_optimizer).__name__]
        out["files"] = setting.files()
        out["disk_traffic"] = setting.disk.traffic(looked_at) if setting.disk else []
        out["pcie_traffic"] = storages.crossings.traffic(looked_at)
    return out | ({"card": of_card(setting, engine)} if setting.cuda else {})


def of_card(setting: Any, engine: Any) -> dict[str, Any]:
    """The card, and what ran on it otherwise than as usual."""
    from zeroplan.verify import card

    return {**card.described(), "compiled_optimizers": setting.compiles, "skipped_steps": engine.skipped_steps}


def is_theirs(frames: Sequence[traceback.FrameSummary]) -> bool:
    """Whether DeepSpeed stopped, or torch at what DeepSpeed asked for: our own mode hands every call of torch's on."""
    frames = [frame for frame in frames if frame.name != "__torch_function__"]
    return any(part in frames[-1].filename for part in ("/deepspeed/", "/pydantic/"))


def main(case_path: str, out_path: str) -> int:
    started = time.monotonic()
    case = json.loads(Path(case_path).read_text())
    out: dict[str, Any] = {"versions": versions(), "date": datetime.now(UTC).date().isoformat(), "case": case}
    try:
        out |= run(case)
    except Exception as error:  # whatever it is, the parent is told
        out["refused" if is_theirs(traceback.extract_tb(error.__traceback__)) else "failed"] = (
            f"{type(error).__name__}: {error}"
        )
        out["traceback"] = traceback.format_exc().splitlines()[-24:]
    out["seconds"] = round(time.monotonic() - started, 1)
    Path(out_path).write_text(json.dumps(out, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
