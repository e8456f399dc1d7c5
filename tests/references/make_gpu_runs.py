"""Real DeepSpeed on a CUDA card, as one rank of many: every case of gpu/cases.py, for gpu/NAME.json.

python -m tests.references.make_gpu_runs OUT.json [FIRST [COUNT]]

Several cases run side by side as far as the ledger's bytes have room for them. Needs DeepSpeed, transformers and a card; run on none yet.
"""

import json
import sys
import threading
import time
from pathlib import Path

from tests.references.gpu.cases import cases
from zeroplan.verify.measure import measure

ROOM, AT_ONCE = 76 << 30, 6
BESIDE = 3 << 29
"""Of a case's bytes, what its kernels and the allocator's rounding may take beside the ledger's."""


class Card:
    """Hands out its room."""

    def __init__(self, room):
        self.room, self.running, self.freed = room, 0, threading.Condition()

    def __call__(self, size):
        size = min(size, self.room_in_all)
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

    room_in_all = ROOM


def main(target, first="0", count="1000"):
    found, card, started = {}, Card(ROOM), time.monotonic()
    chosen = list(enumerate(cases(ROOM)))[int(first) : int(first) + int(count)]

    def run(number, one, size):
        begun = time.monotonic()
        try:
            alone = card.running == 1
            found[number] = {**measure(one.to_measure, timeout=150), "request": one.request, "alone": alone}
        finally:
            card.back(size)
        stopped = found[number].get("refused") or found[number].get("failed") or ""
        print(f"{number} {time.monotonic() - started:.0f}: {time.monotonic() - begun:.0f} s", one.request,
              f"{one.needed / 2**30:.1f} GiB", stopped[-300:], flush=True)  # fmt: skip
        ordered = [found[at] for at in sorted(found)]
        Path(target).write_text(json.dumps(ordered))

    threads = []
    for number, one in chosen:
        size = card(one.needed + BESIDE)
        thread = threading.Thread(target=run, args=(number, one, size))
        thread.start()
        threads.append(thread)
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
