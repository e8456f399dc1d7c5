"""Requests whose search takes longest, each as a command of its own: CPU seconds, memory, and what is proven.

    python benchmarks/search_limit.py [--most-seconds 8] [--most-mb 300]   exits with 1 where one takes more.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
REQUESTS: tuple[str, ...] = (
    "--model mixtral-8x7b --gpus 64x8 --gpu h100-80gb",
    "--max-params --gpus 64x8 --gpu-mem 80 --host-mem 1TiB",
    "--model deepseek-v3 --gpus 32x8 --gpu h100-80gb --objective least-memory",
    "--model llama-3.1-70b --gpus 8 --gpu t4 --optimizer muon",
    "--model kimi-k2 --gpus 64x8 --gpu h100-80gb --nvme 30TB",
    "--params 7B --gpus 8 --gpu-mem 80 --stage 3 --objective pareto",
    "--params 1.3B --gpus 8 --gpu-mem 80 --stage 3 --micro-batch 1 --grad-accum 1",
    "--params 1.3B --gpus 8 --gpu-mem 80 --config {config}",
    "--model {deep} --gpus 8 --gpu-mem 80",
)
CONFIG = {
    "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1, "bf16": {"enabled": True},
    "zero_optimization": {"stage": 3},
}  # fmt: skip
DEEP = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 512, "intermediate_size": 1408,
    "num_attention_heads": 8, "num_key_value_heads": 8, "num_hidden_layers": 1000, "vocab_size": 32000,
    "max_position_embeddings": 2048, "tie_word_embeddings": False,
}  # fmt: skip


class Ran(NamedTuple):
    """One command that has ended."""

    seconds: float
    """CPU time, of user and system."""
    mb: int
    """Peak resident memory."""
    content: dict[str, Any] | None
    """Its JSON."""


def ran(arguments: list[str]) -> Ran:
    """`recommend` with these arguments, in a process whose child it alone is."""
    measured = (
        "import resource, subprocess, sys; found = subprocess.run(sys.argv[1:]); "
        "used = resource.getrusage(resource.RUSAGE_CHILDREN); "
        "sys.stderr.write(f'{used.ru_utime + used.ru_stime} {used.ru_maxrss}')"
    )
    command = [sys.executable, "-c", measured, sys.executable, "-m", "zeroplan", "recommend", *arguments, "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    seconds, kilobytes = done.stderr.split()[-2:]
    return Ran(float(seconds), int(kilobytes) // 1024, json.loads(done.stdout) if done.stdout else None)


def proof(content: dict[str, Any] | None) -> str:
    """What the search says of all that it did not look at."""
    searched = (content or {}).get("searched")
    if content is None or searched is None:
        return "-"
    plan, rows = content.get("plan"), content.get("front", ())
    if searched["proven"]:
        return "proven" if plan or rows else "proven: none fits"
    if rows:
        return f"{len(rows)} rows, others from {searched['bound_seconds']:.1f} s"
    if plan is None:
        return "none was found, not proven"
    if (least := searched.get("bound_bytes")) is not None:
        return f"at most {1 - least / plan['fit']['needed']:.2%} leaner"
    return f"at most {1 - searched['bound_seconds'] / plan['step_seconds']:.2%} faster"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--most-seconds", type=float, default=8.0)
    parser.add_argument("--most-mb", type=int, default=300)
    limits = parser.parse_args()
    print(f"{'seconds':>8} {'MB':>5}  {'proven':<28} request")
    beyond = 0
    with tempfile.TemporaryDirectory() as folder:
        config, deep = Path(folder, "ds_config.json"), Path(folder, "config.json")
        config.write_text(json.dumps(CONFIG))
        deep.write_text(json.dumps(DEEP))
        for request in REQUESTS:
            one = ran(shlex.split(request.format(config=config, deep=deep)))
            beyond += one.seconds > limits.most_seconds or one.mb > limits.most_mb
            print(f"{one.seconds:>8.2f} {one.mb:>5}  {proof(one.content):<28} {request}", flush=True)
    print(f"{beyond} of {len(REQUESTS)} beyond {limits.most_seconds:g} s or {limits.most_mb} MB")
    return 1 if beyond else 0


if __name__ == "__main__":
    sys.exit(main())
