"""Seconds of DeepSpeed's steps on one CUDA card, for gpu/steps_NAME.json.

python -m tests.references.make_gpu_steps --cases CASES.json
python -m tests.references.make_gpu_steps CASES.json OUT.json [SECONDS]
python -m tests.references.make_gpu_steps --join OUT.json ... > gpu/NAME.json

The first and the last need no card. One rank alone (NCCL, world 1), case by case in one process, begun anew where it stopped: whole steps
without a wait inside, then forward, backward and step apart, then the kernels of one step by torch's profiler. Needs
DeepSpeed, transformers and a card.
"""

import gc
import json
import os
import subprocess
import sys
import time
import traceback
from pathlib import Path
from statistics import median

WARM, TIMED, APART, LONGEST = 3, 8, 3, 4
"""Steps before, steps timed and steps timed in parts; the seconds after which no more are timed."""
USUAL = {
    "gpus": "1", "gpu": "h100-80gb", "host_mem": "128GiB", "precision": "bf16", "optimizer": "adamw",
    "attention": "sdpa", "checkpointing": "none", "stage": "0", "seq": "2048", "micro_batch": "1",
}  # fmt: skip
OPT, EIGHT = {"model": "opt-1.3b"}, {"model": "llama-3.1-8b", "lora": "16", "checkpointing": "full"}
CASES = (
    *({**OPT, "micro_batch": size} for size in "148"),
    {"model": "llama-3.2-1b", "micro_batch": "4"},
    {**EIGHT, "micro_batch": "1"},
    {**EIGHT, "micro_batch": "4"},
    {**EIGHT, "micro_batch": "4", "quantize": "nf4", "double_quant": True},
    {"model": "qwen3-vl-4b", "lora": "16", "micro_batch": "4", "checkpointing": "full"},
    {"model": "paligemma-3b-pt-224", "micro_batch": "4", "seq": "512"},
    {"model": "granite-3.1-3b-a800m", "micro_batch": "2"},
    {**OPT, "micro_batch": "16", "checkpointing": "full"},
    {**OPT, "micro_batch": "4", "stage": "2"},
    {**OPT, "micro_batch": "4", "stage": "3"},
    {**OPT, "micro_batch": "4", "stage": "2", "grad_accum": "4"},
    {**OPT, "micro_batch": "8", "stage": "2", "offload_optimizer": "cpu"},
    {**OPT, "micro_batch": "8", "stage": "3", "offload_optimizer": "cpu", "offload_param": "cpu"},
    {**EIGHT, "micro_batch": "4", "quantize": "int8"},
    {**EIGHT, "micro_batch": "1", "checkpointing": "none"},
    {**EIGHT, "micro_batch": "4", "stage": "3"},
    {"model": "whisper-large-v3", "micro_batch": "4", "seq": "256"},
    {"model": "modernbert-large", "micro_batch": "16", "seq": "1024"},
    {"model": "roberta-large", "micro_batch": "16", "seq": "512"},
    {"model": "t5-base", "micro_batch": "16", "seq": "512"},
    {"model": "qwen2-vl-7b", "lora": "16", "micro_batch": "2", "checkpointing": "full"},
    {"model": "smollm3-3b", "micro_batch": "2", "checkpointing": "full"},
    {**OPT, "micro_batch": "4", "train": "*.layers.23.*"},
    {**OPT, "micro_batch": "2", "attention": "eager"},
    {"model": "llama-3.2-1b", "micro_batch": "1", "seq": "8192", "checkpointing": "full"},
    {"model": "llama-3.2-3b", "micro_batch": "4", "checkpointing": "full"},
    {"model": "qwen2.5-0.5b", "micro_batch": "8", "seq": "1024"},
    {"model": "gemma-2b", "micro_batch": "2", "seq": "1024"},
    {"model": "gpt2-xl", "micro_batch": "8", "seq": "1024"},
    {"model": "gpt2", "micro_batch": "4", "seq": "1024"},
    {"model": "lfm2-1.2b", "micro_batch": "4"},
    {"model": "qwen3.5-4b", "lora": "16", "micro_batch": "2", "checkpointing": "full"},
    {"model": "qwen1.5-moe-a2.7b", "lora": "16", "micro_batch": "2", "checkpointing": "full"},
    {**OPT, "micro_batch": "4", "precision": "fp16", "stage": "1"},
    {**OPT, "micro_batch": "2", "precision": "fp32"},
    {**EIGHT, "micro_batch": "4", "quantize": "nf4", "double_quant": True, "stage": "3"},
)  # fmt: skip


def job_of(request):
    from tests.references.gpu import cases

    return cases.job_of(request, USUAL)


def listed(target):
    from zeroplan.verify.case import case_of

    rows = [{"request": request, "case": case_of(job_of(request), None, mode="cuda")} for request in CASES]
    Path(target).write_text(json.dumps(rows))


def timed(given):
    import deepspeed
    import torch

    from zeroplan.verify import job
    from zeroplan.verify.stand_ins import StandIns

    torch.cuda.reset_peak_memory_stats()
    begun = torch.cuda.memory_allocated()
    config = job.resolved(given)
    context = deepspeed.zero.Init(config_dict_or_path=config) if given.get("zero_init") else None
    model = job.build(given, "cuda", context)
    parameters = job.groups(model, given.get("parameter_groups", 1))
    engine, *_ = deepspeed.initialize(
        model=model, config=config, optimizer=job.client_optimizer(given, parameters),
        model_parameters=None if given.get("optimizer") else parameters,
    )  # fmt: skip
    batch = job.inputs(given, "cuda", StandIns())
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
        return loss

    for _ in range(WARM):
        step()
    spent, end = [], time.perf_counter() + LONGEST
    while len(spent) < TIMED and time.perf_counter() < end:
        start = clock()
        loss = step()
        spent.append(clock() - start)
    apart = []
    for _ in range(APART):
        step(apart)
    steps = [part[2] for part in apart][micro_steps - 1 :: micro_steps]
    return {
        "seconds": spent, "forward": median(part[0] for part in apart), "backward": median(part[1] for part in apart),
        "step": median(steps), "loss": float(loss.detach()), "skipped": engine.skipped_steps, "allocated_before": begun,
        "max_memory_allocated": torch.cuda.max_memory_allocated(), "max_memory_reserved": torch.cuda.max_memory_reserved(),
        "outside": outside(), "kernels": kernels(step),
    }  # fmt: skip


def outside():
    """What the driver has taken beside the allocator."""
    import torch

    free, total = torch.cuda.mem_get_info()
    return total - free - torch.cuda.memory_reserved()


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


def child(source, target, end):
    """Case after case, until one breaks the process, or `end` of the clock."""
    rows, out = json.loads(Path(source).read_text()), Path(target)
    ran = json.loads(out.read_text()) if out.exists() else []
    import deepspeed
    import torch

    deepspeed.init_distributed(dist_backend="nccl", verbose=False)
    head = {"card": torch.cuda.get_device_name(), "versions": {"torch": torch.__version__, "deepspeed": deepspeed.__version__}}
    for row in rows[len(ran) :]:
        begun = time.monotonic()
        if time.time() > float(end):
            break
        out.write_text(json.dumps([*ran, {"failed": "the process ended", "request": row["request"]}]))
        try:
            one = {**head, **timed(row["case"])}
        except Exception:
            one = {"failed": traceback.format_exc()[-1500:]}
        ran.append({**one, "request": row["request"]})
        out.write_text(json.dumps(ran))
        spent = one.get("seconds")
        said = f"{median(spent) * 1e3:.1f} ms" if spent else one["failed"][-300:]
        print(f"{time.monotonic() - begun:.0f} s", row["request"], said, flush=True)
        gc.collect()
        torch.cuda.empty_cache()
        if "failed" in one:
            break  # what it left behind is nobody's


def main(source, target, seconds="1000"):
    around = {"DS_ACCELERATOR": "cuda", "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1",
              "MASTER_PORT": "29501"}  # fmt: skip
    end, total, out = time.time() + float(seconds), len(json.loads(Path(source).read_text())), Path(target)
    while time.time() < end and (len(json.loads(out.read_text())) if out.exists() else 0) < total:
        code = f"from tests.references.make_gpu_steps import child; child({source!r}, {target!r}, {end})"
        subprocess.run([sys.executable, "-c", code], env={**os.environ, **around}, check=False)


def join(*sources):
    """Of those that ran: of the kernels how many and their seconds."""
    rows = [row for source in sources for row in json.loads(Path(source).read_text()) if "seconds" in row]
    head = {"card": rows[0]["card"], "versions": rows[0]["versions"]}
    kept = ("request", "seconds", "forward", "backward", "step", "skipped", "max_memory_allocated", "max_memory_reserved")
    lines = ",\n".join(
        json.dumps({**{name: row[name] for name in kept}, "kernels": row["kernels"]["all"], "allocated_before": row["allocated_before"]})
        for row in rows
    )  # fmt: skip
    print(f'{json.dumps(head)[:-1]}, "steps": [\n{lines}\n]}}')


if __name__ == "__main__":
    {"--cases": listed, "--join": join}[sys.argv[1]](*sys.argv[2:]) if sys.argv[1][:2] == "--" else main(*sys.argv[1:])
