"""Plans drawn, written, started on the CPU as their README.md says, and looked at from inside.

    python -m tests.emit.running --draws 40 [--first 0]

The model's shape is cut small in config.json; all else of the folder stays, but that Lightning is told of the CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from tests.conftest import ROOT
from zeroplan.architectures.adapters import with_adapter
from zeroplan.architectures.quantized import with_quantization
from zeroplan.catalog.adapters import read_adapter_file
from zeroplan.catalog.models import model
from zeroplan.costs.passes import timeline_request
from zeroplan.specs.cluster import Cluster
from zeroplan.specs.input_sizes import InputSizes
from zeroplan.specs.job import Job
from zeroplan.specs.model import with_frozen
from zeroplan.specs.quantization import Quantization
from zeroplan.specs.strategy import Strategy, Workload
from zeroplan.specs.target import TARGETS

PROBE = Path(__file__).parent / "probe"
SEQ, STEPS = 64, 2
LLAMA = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4,
         "num_key_value_heads": 2, "vocab_size": 256, "max_position_embeddings": 128}  # fmt: skip
GPT2 = {"n_embd": 64, "n_layer": 4, "n_head": 4, "vocab_size": 256, "n_positions": 128}
MODELS = {
    "smollm2-135m": LLAMA, "llama-3.2-1b": LLAMA, "qwen3-0.6b": LLAMA, "phi-4": LLAMA,
    "gemma-2b": LLAMA | {"num_key_value_heads": 1}, "gpt2-xl": GPT2,
    "mixtral-8x7b": LLAMA | {"num_local_experts": 4}, "llama-3.1-8b": LLAMA,
}  # fmt: skip
"""Fields of config.json that make each small."""
TOKENS = ("pad_token_id", "bos_token_id", "eos_token_id")
EXACT = 0.001
"""Share by which what forward keeps for backward may differ from the plan's count."""
CLASSES = {
    "adam": {"FusedAdam", "DeepSpeedCPUAdam"}, "adamw": {"FusedAdam", "DeepSpeedCPUAdam"}, "sgd": {"SGD"},
    "sgd-momentum": {"SGD"}, "adafactor": {"Adafactor"}, "lion": {"FusedLion", "DeepSpeedCPULion"},
    "adagrad": {"Adagrad", "DeepSpeedCPUAdagrad"}, "muon": {"MuonWithAuxAdam"},
}  # fmt: skip
DTYPES = {"fp32": "torch.float32", "fp16": "torch.float16", "bf16": "torch.bfloat16"}


class Kept(NamedTuple):
    """Bytes that forward keeps for backward, and those it would keep without checkpointing."""

    planned: int
    without: int

    def agrees(self, seen: int) -> bool:
        """Nearer to what is planned than to no checkpointing, and near."""
        nearer = abs(seen - self.planned) <= abs(seen - self.without)
        return nearer and abs(seen - self.planned) <= EXACT * self.planned


class Started(NamedTuple):
    """One plan, and what ran."""

    typed: tuple[str, ...]
    script: str
    strategy: dict[str, Any]
    seen: dict[str, Any]
    """Of the first rank, empty where it did not come so far."""
    expected: dict[str, Any]
    output: str
    seconds: float

    @property
    def differing(self) -> dict[str, Any]:
        """What is not as planned: seen, and planned."""
        return {name: (self.seen.get(name), value) for name, value in self.expected.items()
                if not _agree(name, self.seen.get(name), value)}  # fmt: skip


def draw(seed: int, targets: tuple[str, ...] = TARGETS) -> dict[str, str]:
    """Options of `recommend`, by name."""
    r = random.Random(seed)
    options = {
        "model": r.choice(list(MODELS)), "gpus": r.choice(("1", "1", "2")), "for": targets[seed % len(targets)],
        "gpu": r.choice(("h100-80gb", "h200", "rtx-4090", "a100-80gb")), "global-batch": r.choice(("4", "8")),
        "seq": r.choice(("128", "512", "2048")), "host-mem": "1TiB",
    }  # fmt: skip
    for name, chance, values in (
        ("stage", 0.7, "0123"), ("micro-batch", 0.4, ("1", "2")),
        ("checkpointing", 0.6, ("none", "full", "selective", "every-2", "full-reentrant", "selective-products")),
        ("precision", 0.4, ("fp32", "fp16")), ("attention", 0.3, ("eager",)), ("allow", 0.3, ("code",)),
        ("optimizer", 0.4, ("adam", "sgd", "sgd-momentum", "adafactor", "muon")),
        ("lora", 0.2, ("8",)), ("offload-optimizer", 0.3, ("cpu",)), ("offload-param", 0.2, ("cpu",)), ("backend", 0.15, ("cpu",)),
    ):  # fmt: skip
        if r.random() < chance:
            options[name] = r.choice(values)
    if options.get("stage") == "0":
        options.pop("offload-optimizer", None)
    if options.get("stage") in (*"012",):
        options.pop("offload-param", None)
    return options


def typed(options: dict[str, str]) -> tuple[str, ...]:
    return tuple(word for name, value in options.items() for word in (f"--{name}", value))


def written(options: dict[str, str], folder: Path) -> dict[str, Any] | None:
    """The plan's strategy as --json has it, with its folder; None where nothing fits, or is refused."""
    ran = _zeroplan("recommend", *typed(options), "--dir", str(folder), "--json")
    if ran.returncode not in (0, 1, 2) or "Traceback" in ran.stderr:
        raise AssertionError(f"recommend {' '.join(typed(options))}: {ran.stderr[-2000:]}")
    return json.loads(ran.stdout)["plan"]["strategy"] if ran.returncode == 0 else None


def started(options: dict[str, str], strategy: dict[str, Any], folder: Path, *, seed: int = 0) -> Started:
    """The folder, cut small, by one of the commands of its README.md."""
    commands = re.search(r"## Start\n\n```sh\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    assert commands
    scripts = [line.split()[1] for line in commands[1].splitlines() if line.startswith("bash ")]
    script = scripts[seed // 4 % len(scripts)]
    cut(folder, options)
    seen = folder / "seen"
    seen.mkdir()
    before = time.monotonic()
    steps = ("--max_steps", str(STEPS)) if options["for"] == "hf" else ("--steps", str(STEPS))
    more = ("--use_cpu", "True") if options["for"] == "hf" and options.get("backend") != "cpu" else ()
    output = _run(["bash", script, *steps, "--seq", str(SEQ), *more], folder, seen, lightning=options["for"] == "lightning")
    found = seen / "0.json"
    return Started(
        typed(options), script, strategy, json.loads(found.read_text()) if found.exists() else {},
        expected(options, strategy, folder), output, time.monotonic() - before,
    )  # fmt: skip


def cut(folder: Path, options: dict[str, str]) -> None:
    config = folder / "config.json"
    fields = {**json.loads(config.read_text()), **MODELS.get(options["model"], {})}
    fields.pop("layer_types", None)
    fields |= dict.fromkeys(TOKENS if options["model"] in MODELS else ()) | ({"head_dim": 16} if fields.get("head_dim") else {})
    config.write_text(json.dumps(fields))
    if "quantize" in options:
        from transformers import AutoConfig, AutoModelForCausalLM

        AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder)).save_pretrained(folder / "weights")
    made = folder / "lightning_trainer.py"
    if made.exists():
        made.write_text(made.read_text().replace('accelerator="gpu"', 'accelerator="cpu"'))


def expected(options: dict[str, str], strategy: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What the plan says of the run."""
    offloads = {name: (strategy[name] or {}).get("device", "none") for name in ("offload_optimizer", "offload_param")}
    small = Strategy(**{
        **{name: value for name, value in strategy.items() if name in ("stage", "precision", "micro_batch", "checkpointing", "attention", "kernels")},
        "backend": "cpu",
    })  # fmt: skip
    trains = model(str(folder / "config.json"), sizes=InputSizes(target=int(options.get("target-seq", 0)) or None))
    if "train" in options:
        trains = with_frozen(trains, ["*"], [options["train"]])
    if "quantize" in options:
        trains = with_quantization(trains, Quantization(options["quantize"], storage=strategy["precision"]))
    if (folder / "adapter_config.json").exists():
        trains = with_adapter(trains, read_adapter_file(str(folder)))
    job = Job(trains, Cluster(nodes=1, gpus_per_node=int(options["gpus"])), Workload(SEQ), small)
    products = strategy["checkpointing"] == "selective-products"
    kinds = () if trains.is_recorded else ("none", "full", strategy["checkpointing"])  # with CUDA's kernels alone
    kept = {kind: saved(job.at(checkpointing=kind)) for kind in kinds}
    return {
        "steps": STEPS, "micro_steps": STEPS * strategy["grad_accum"], "batch": [strategy["micro_batch"], SEQ],
        "stage": strategy["stage"], "optimizer": strategy["optimizer"], **offloads,
        "accumulation": strategy["grad_accum"], "micro_batch": strategy["micro_batch"],
        "clipping": strategy["gradient_clipping"], "dtype": [DTYPES[strategy["precision"]]],
        "attention": strategy["attention"], "keeps_products": products, "ranks": int(options["gpus"]),
        "built_partitioned": strategy["stage"] == 3 and "quantize" not in options,
        # DeepSpeed's own function keeps a layer's input where torch's hooks do not see it
        **({} if strategy["checkpointing"] == "deepspeed" or not kept else
           {"saved": Kept(kept["full" if products else strategy["checkpointing"]], kept["none"])}),
        **({"reduce_bucket_size": strategy["reduce_bucket_size"]} if strategy["stage"] else {}),
    }  # fmt: skip


def saved(job: Job) -> int:
    """Bytes that forward keeps; DeepSpeed's own linear keeps its input where the weight does not train too."""
    result = job.model.profile.alone(timeline_request(job), job.leaves)
    assert result
    return result[0]


def _agree(name: str, seen: Any, planned: Any) -> bool:
    if seen is None:
        return False
    if name == "optimizer":
        return seen in CLASSES[planned]
    if name == "saved":
        return planned.agrees(seen)
    if name == "reduce_bucket_size" and seen == LLAMA["hidden_size"] ** 2:
        return True  # "auto" is filled from the small model's width
    return seen == planned


def _zeroplan(*words: str) -> subprocess.CompletedProcess[str]:
    place = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, "-m", "zeroplan", *words], check=False, env=place, capture_output=True, text=True)


def _run(command: list[str], folder: Path, seen: Path, *, lightning: bool) -> str:
    place = {
        **os.environ, "PYTHONPATH": str(PROBE), "PROBE": str(seen), "DS_ACCELERATOR": "cpu", "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1", "TORCHDYNAMO_DISABLE": "1", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        **({"PROBE_LIGHTNING": "1"} if lightning else {}), "MASTER_PORT": str(_free_port()),
    }  # fmt: skip
    place.pop("RANK", None)
    try:
        ran = subprocess.run(command, check=False, env=place, cwd=folder, capture_output=True, text=True, timeout=300)
    except subprocess.TimeoutExpired:
        return "no end after 300 s"
    return "" if ran.returncode == 0 and any(seen.iterdir()) else ran.stdout[-6000:] + ran.stderr[-60000:]


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=40)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--for", dest="target", choices=TARGETS, action="append")
    arguments = parser.parse_args()
    seed, failed, done = arguments.first, 0, 0
    while done < arguments.draws:
        options = draw(seed, tuple(arguments.target or TARGETS))
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place, "plan")
            strategy = written(options, folder)
            if strategy is not None:
                one = started(options, strategy, folder, seed=seed)
                done, bad = done + 1, bool(one.output or one.differing)
                failed += bad
                print(f"{seed}: {'FAILED' if bad else 'as planned'} {one.seconds:.0f} s {one.script} {' '.join(one.typed)}: "
                      f"stage {strategy['stage']} {strategy['checkpointing']}; {one.seen.get('saved')} bytes of "
                      f"{one.expected['saved']}", flush=True)  # fmt: skip
                if bad:
                    print(one.differing, *re.findall(r"^.*Error.*$", one.output, re.MULTILINE)[:4], sep="\n", flush=True)
                    Path(tempfile.gettempdir(), f"running-{seed}.txt").write_text(one.output)
        seed += 1
    print(f"{done - failed} of {done} as planned")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
