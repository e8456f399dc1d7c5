"""Seconds of DeepSpeed's steps on one CUDA card, for gpu/steps_NAME.json.

python -m tests.references.make_gpu_steps OUT.json [FIRST [COUNT]]

One rank alone (NCCL, world 1), each case in a process of its own: whole steps without a wait inside, then forward,
backward and step apart, then the kernels of one step by torch's profiler. Needs DeepSpeed, transformers and a card; run on none yet.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

WARM, TIMED, APART = 4, 12, 5
SECONDS = 90
USUAL = {
    "gpus": "1", "gpu": "h100-80gb", "host_mem": "128GiB", "precision": "bf16", "optimizer": "adamw",
    "attention": "sdpa", "checkpointing": "none", "stage": "0", "seq": "2048", "micro_batch": "1",
}  # fmt: skip
CASES = (
    *({"model": "opt-1.3b", "micro_batch": size} for size in "1248"),
    {"model": "opt-1.3b", "micro_batch": "16", "checkpointing": "full"},
    {"model": "opt-1.3b", "micro_batch": "4", "stage": "1"},
    {"model": "opt-1.3b", "micro_batch": "4", "stage": "2"},
    {"model": "opt-1.3b", "micro_batch": "4", "stage": "3"},
    {"model": "opt-1.3b", "micro_batch": "4", "stage": "2", "grad_accum": "4"},
    {"model": "opt-1.3b", "micro_batch": "8", "stage": "2", "offload_optimizer": "cpu"},
    {"model": "opt-1.3b", "micro_batch": "8", "stage": "3", "offload_optimizer": "cpu", "offload_param": "cpu"},
    {"model": "opt-1.3b", "micro_batch": "2", "attention": "eager"},
    {"model": "llama-3.2-1b", "micro_batch": "4"},
    {"model": "llama-3.2-1b", "micro_batch": "1", "seq": "8192", "checkpointing": "full"},
    {"model": "llama-3.2-3b", "micro_batch": "4", "checkpointing": "full"},
    {"model": "llama-3.2-3b", "micro_batch": "16", "checkpointing": "full", "stage": "2", "offload_optimizer": "cpu"},
    {"model": "qwen2.5-0.5b", "micro_batch": "8", "seq": "1024"},
    {"model": "qwen2.5-1.5b", "micro_batch": "4"},
    {"model": "gemma-2b", "micro_batch": "2", "seq": "1024"},
    {"model": "gpt2-xl", "micro_batch": "8", "seq": "1024"},
    {"model": "gpt2", "micro_batch": "4", "seq": "1024"},
    {"model": "pythia-1.4b", "micro_batch": "4"},
    {"model": "opt-1.3b", "micro_batch": "4", "precision": "fp16", "stage": "1"},
    {"model": "opt-1.3b", "micro_batch": "2", "precision": "fp32"},
)  # fmt: skip


def case(request):
    from zeroplan.request.options import Options
    from zeroplan.request.request import read_request
    from zeroplan.verify.case import as_measured, case_of

    job = as_measured(read_request(Options(**{**USUAL, **request})).job(), real=False)
    return case_of(job, None, mode="cuda")


def run(given):
    import deepspeed
    import torch

    from zeroplan.verify import job

    deepspeed.init_distributed(dist_backend="nccl", verbose=False)
    model = job.build(given, "cuda")
    engine, *_ = deepspeed.initialize(
        model=model, config=job.resolved(given), model_parameters=[p for p in model.parameters() if p.requires_grad]
    )
    batch = job.inputs(given, "cuda")
    micro_steps = engine.gradient_accumulation_steps()

    def clock(wait=True):
        if wait:
            torch.cuda.synchronize()
        return time.perf_counter()

    def step(apart=None):
        for _ in range(micro_steps):
            moments = [clock(apart is not None)]
            loss = engine(**batch).loss
            moments.append(clock(apart is not None))
            engine.backward(loss)
            moments.append(clock(apart is not None))
            engine.step()
            moments.append(clock(apart is not None))
            if apart is not None:
                apart.append([after - before for before, after in zip(moments, moments[1:])])

    for _ in range(WARM):
        step()
    spent, end = [], time.perf_counter() + 20
    while len(spent) < TIMED and time.perf_counter() < end:
        start = clock()
        step()
        spent.append(clock() - start)
    apart = []
    for _ in range(APART):
        step(apart)
    steps = [part[2] for part in apart][micro_steps - 1 :: micro_steps]
    found = {
        "case": given, "seconds": spent, "forward": median(part[0] for part in apart),
        "backward": median(part[1] for part in apart), "step": median(steps),
        "max_memory_allocated": torch.cuda.max_memory_allocated(),
        "max_memory_reserved": torch.cuda.max_memory_reserved(),
    }  # fmt: skip
    found["kernels"] = kernels(step)
    found["card"] = torch.cuda.get_device_name()
    found["versions"] = {"torch": torch.__version__, "deepspeed": deepspeed.__version__}
    return found


def kernels(step):
    """Of one step the 40 longest: name, times, seconds in all; and all together."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        step()
        torch.cuda.synchronize()
    rows = [(each.key[:110], each.count, each.self_device_time_total / 1e6) for each in seen.key_averages()]
    rows.sort(key=lambda row: -row[2])
    return {"longest": rows[:40], "all": [sum(row[1] for row in rows), sum(row[2] for row in rows)]}


def child(given, target):
    Path(target).write_text(json.dumps(run(json.loads(Path(given).read_text()))))


def main(target, first="0", count="1000"):
    found, chosen = [], CASES[int(first) : int(first) + int(count)]
    around = {"DS_ACCELERATOR": "cuda", "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1",
              "MASTER_PORT": "29501"}  # fmt: skip
    for request in chosen:
        begun = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            given, out = Path(folder, "case.json"), Path(folder, "out.json")
            given.write_text(json.dumps(case(request)))
            code = f"from tests.references.make_gpu_steps import child; child({str(given)!r}, {str(out)!r})"
            try:
                ended = subprocess.run([sys.executable, "-c", code], env={**os.environ, **around}, timeout=SECONDS,
                                       capture_output=True, text=True, check=False)  # fmt: skip
                failed = ended.stderr[-800:]
            except subprocess.TimeoutExpired:
                failed = "out of time"
            one = json.loads(out.read_text()) if out.exists() else {"failed": failed}
        found.append({**one, "request": request})
        spent = one.get("seconds")
        print(f"{time.monotonic() - begun:.0f} s", request, f"{median(spent) * 1e3:.1f} ms" if spent else one, flush=True)
        Path(target).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
