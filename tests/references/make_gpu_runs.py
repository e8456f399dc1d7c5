"""Real DeepSpeed on a CUDA card, as one rank of many: every case of gpu/cases.py, for gpu/NAME.json.

python -m tests.references.make_gpu_runs --cases CASES.json
python -m tests.references.make_gpu_runs CASES.json OUT.json [SECONDS] [WORD ...]
python -m tests.references.make_gpu_runs --join OUT.json ... > gpu/NAME.json

The first and the last need no card. Several cases run side by side as far as the ledger's bytes have room for them, those alone whose
request has one of the words; none is begun after SECONDS. Needs DeepSpeed, transformers and a card.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path

from zeroplan.verify.measure import measure

ROOM, AT_ONCE = 76 << 30, int(os.environ.get("AT_ONCE", "6"))
RESERVED, BESIDE = 1.35, 3 << 29
"""Of a case's bytes, what its kernels and the allocator may take beside the ledger's."""


class Card:
    """Hands out its room."""

    def __init__(self, room):
        self.room, self.running, self.freed = room, 0, threading.Condition()

    def __call__(self, size):
        size = min(size, ROOM)
        with self.freed:
            self.freed.wait_for(lambda: self.room >= size and self.running < AT_ONCE)
            self.room -= size
            self.running += 1
        return size

    def back(self, size):
        with self.freed:
            self.room += size
            self.running -= 1
            self.freed.notify_all()


def listed(target):
    from tests.references.gpu.cases import cases

    rows = [{"request": one.request, "needed": one.needed, "case": one.to_measure} for one in cases(ROOM)]
    Path(target).write_text(json.dumps(rows))


def main(source, target, seconds="1000", *words):
    ran, card, started = {}, Card(ROOM), time.monotonic()
    chosen = [
        (number, one) for number, one in enumerate(json.loads(Path(source).read_text()))
        if not words or any(word in json.dumps(one["request"]) for word in words)
    ]  # fmt: skip

    def run(number, one, size):
        begun, alone = time.monotonic(), card.running == 1
        try:
            ran[number] = {**measure(one["case"], timeout=120), "request": one["request"], "alone": alone}
        finally:
            card.back(size)
        stopped = ran[number].get("refused") or ran[number].get("failed") or ""
        print(f"{number} {time.monotonic() - started:.0f}: {time.monotonic() - begun:.0f} s", one["request"],
              f"{one['needed'] / 2**30:.1f} GiB", stopped[-300:], flush=True)  # fmt: skip
        ordered = [ran[at] for at in sorted(ran)]
        Path(target).write_text(json.dumps(ordered))

    threads = []
    for number, one in chosen:
        size = card(int(RESERVED * one["needed"]) + BESIDE)
        if time.monotonic() - started > float(seconds):
            break
        thread = threading.Thread(target=run, args=(number, one, size))
        thread.start()
        threads.append(thread)
    for thread in threads:
        thread.join()


def kept(run):
    """Of a run that ended: its request, peaks by the tensors of Python and by CUDA's allocator, and what is beside it."""
    rows = [
        [each["phase"], each["step"], each["micro"], each["peak"]["gpu"], each["card"]["max_memory_allocated"],
         each["card"]["max_memory_reserved"], each["card"]["memory_allocated"], each["card"]["max_requested"]]
        for each in run["phases"]
    ]  # fmt: skip
    card = run["card"]
    return {
        "request": run["request"], "activations": run.get("activations"), "held": sum(run["held_total"]["gpu"].values()),
        "skipped_steps": card.get("skipped_steps", 0), "alone": run["alone"], "outside": card["outside"], "phases": rows,
    }  # fmt: skip


def join(*sources):
    """What was measured, or joined before: of a request the first."""
    read = [json.loads(Path(source).read_text()) for source in sources]
    runs = [run for each in read if isinstance(each, list) for run in each if "phases" in run]
    head = {
        "card": runs[0]["card"]["name"], "total": runs[0]["card"]["total"], "cuda": runs[0]["card"]["cuda"],
        "versions": runs[0]["versions"], "date": max(run["date"] for run in runs),
        "phases": ["phase", "step", "micro", "peak", "max_memory_allocated", "max_memory_reserved", "memory_allocated",
                   "max_requested"],
    }  # fmt: skip
    rows = [run for each in read if isinstance(each, dict) for run in each["runs"]] + list(map(kept, runs))
    first = {json.dumps(row["request"]): row for row in reversed(rows)}
    lines = ",\n".join(map(json.dumps, reversed(first.values())))
    print(f'{json.dumps(head)[:-1]}, "runs": [\n{lines}\n]}}')


if __name__ == "__main__":
    {"--cases": listed, "--join": join}[sys.argv[1]](*sys.argv[2:]) if sys.argv[1][:2] == "--" else main(*sys.argv[1:])
