"""Inputs drawn for `zeroplan check`, and what must hold of any (tests/check/fuzzing/properties.py).

    python -m benchmarks.fuzz_check --inputs 1000000 --first 0      cases by seed, in one process

Files are mutated from the rules' examples, recorded draws and, where ZEROPLAN_CORPUS names a folder of them, public
configs. Each find is told once, with the smallest input that still shows it. Exits with 1 when there is one.
benchmarks/fuzz_check_guided.py lets atheris choose the mutations, by the code that they reach.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable

from tests.check.fuzzing.cases import Case, draw
from tests.check.fuzzing.properties import FORMS, BrokenError, examine

SHRINKS = 2_000
"""Inputs that are tried to make a find smaller."""
TOLD = 100_000


class Finds:
    """What went how, and the first input of each find."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.broken: Counter[str] = Counter()
        self.start = time.monotonic()

    @property
    def inputs(self) -> int:
        return self.outcomes.total()

    def look(self, case: Case, form: str, origin: str) -> None:
        try:
            outcome = examine(case, form)
        except BrokenError as error:
            outcome = "broken"
            if not self.broken[error.signature]:
                tell(shrunk(case, form, error.signature), form, error, origin)
            self.broken[error.signature] += 1
        self.outcomes[outcome] += 1
        if self.inputs % TOLD == 0:
            print(self.summary(), flush=True)

    def summary(self) -> str:
        counts = ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(self.outcomes.items()))
        used = resource.getrusage(resource.RUSAGE_SELF)
        return (f"{self.inputs:,} inputs in {time.monotonic() - self.start:,.0f} s: {counts}; "
                f"{len(self.broken)} finds; {used.ru_maxrss / 1e3:,.0f} MB at most")  # fmt: skip


def tell(case: Case, form: str, error: BrokenError, origin: str) -> None:
    print(f"FOUND {error.signature} ({origin}, {form or 'json'})\n  {str(error)[:1500]}\n  {case}", flush=True)


def shrunk(case: Case, form: str, signature: str) -> Case:
    """The case without what it needs not: options, and ever smaller pieces of its text, as long as the find stays."""

    def stays(smaller: Case) -> bool:
        try:
            examine(smaller, form)
        except BrokenError as error:
            return error.signature == signature
        return False

    for name in tuple(case.options):
        smaller = case._replace(options={key: value for key, value in case.options.items() if key != name})
        case = smaller if stays(smaller) else case
    for smaller in (case._replace(arguments=None), case._replace(beside=None)):
        case = smaller if stays(smaller) else case
    return case._replace(content=_fewer(case.content, lambda content: stays(case._replace(content=content))))


def _fewer(content: bytes, stays: Callable[[bytes], bool]) -> bytes:
    """Delta debugging: pieces are left out, halves first."""
    size, tries = max(1, len(content) // 2), SHRINKS
    while size and tries > 0:
        at = 0
        while at < len(content) and tries > 0:
            left, tries = content[:at] + content[at + size :], tries - 1
            if stays(left):
                content = left
            else:
                at += size
        size //= 2
    return content


def folder_in_memory() -> str:
    """A new folder, which no disk slows down where the system has one in memory."""
    return tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)


def drawn(finds: Finds, first: int, inputs: int) -> None:
    for seed in range(first, first + inputs):
        finds.look(draw(seed), FORMS[seed // 4 % len(FORMS)] if seed % 4 == 0 else "", f"seed {seed}")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--inputs", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=0, help="seed of the first input")
    options = parser.parse_args()
    os.chdir(folder_in_memory())
    finds = Finds()
    drawn(finds, options.first, options.inputs)
    print(finds.summary())
    for signature, count in finds.broken.most_common():
        print(f"  {count:,} times: {signature}")
    return int(bool(finds.broken))


if __name__ == "__main__":
    sys.exit(main())
