"""What DeepSpeed reads out of a config, to compare two texts: `python -m tests.check.deepspeed_reads < PAIRS`, JSON lists."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

DEPRECATED = ("cpu_offload", "cpu_offload_param", "cpu_offload_use_pin_memory", "stage3_gather_fp16_weights_on_model_save")


def reads(config: dict[str, Any]) -> dict[str, str]:
    """Every setting of DeepSpeedConfig with its value, without the config itself."""
    from deepspeed.runtime.config import DeepSpeedConfig

    found = vars(DeepSpeedConfig(config))
    return {name: repr(_plain(value)) for name, value in found.items() if name not in ("_param_dict", "mesh_device")}


def _plain(value: Any) -> Any:
    """Objects by what they hold, without the deprecated names, which say nothing more once their successors are set."""
    if isinstance(value, dict):
        return {name: _plain(inside) for name, inside in sorted(value.items(), key=str) if name not in DEPRECATED}
    if isinstance(value, list | tuple):
        return [_plain(inside) for inside in value]
    return _plain(vars(value)) if hasattr(value, "__dict__") and not isinstance(value, type) else value


def main() -> None:
    """Prints the settings that differ, a list for each pair."""
    os.environ.update(DS_ACCELERATOR="cpu", RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
    pairs = json.load(sys.stdin)
    differing = []
    for before, after in pairs:
        was, now = reads(before), reads(after)
        differing.append([name for name in was.keys() | now.keys() if was.get(name) != now.get(name)])
    print(json.dumps(differing))


if __name__ == "__main__":
    main()
