"""Wall time of whole commands against `python -c pass`, measured in one run; of a page in seconds.

python benchmarks/startup.py [--runs 21]   exits with 1 when a command is over its bound.

Warm means compiled, as pip leaves an installed package: an editable checkout is compiled first, because an
environment with PYTHONDONTWRITEBYTECODE would otherwise compile it anew in each run. All of it, for a file that changed
within a second of its compiling looks as if it had not.
"""

from __future__ import annotations

import argparse
import compileall
import statistics
import subprocess
import sys
import time
from pathlib import Path

import zeroplan

BOUNDS = {
    ("estimate", "--params", "7B", "--gpus", "8"): 16.0,
    ("recommend", "--gpu-mem", "80"): 50.0,
    ("estimate", "--model", "llama-3.1-8b", "--gpus", "8", "--gpu", "h100-80gb"): None,
}
PAGES = {
    ("report", "7B", "--gpus", "8", "--gpu-mem", "80", "-o", "-"): 1.0,
    ("report", "llama-3.1-405b", "--gpus", "64x8", "--gpu", "h100", "-o", "-"): 5.0,
}
"""Seconds that a page with its grid may take."""


def seconds(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
    return time.perf_counter() - start


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=21)
    runs = parser.parse_args().runs
    compileall.compile_dir(str(Path(zeroplan.__file__).parent), quiet=1, force=True)
    bare = [sys.executable, "-c", "pass"]
    failed = 0
    for arguments, bound in BOUNDS.items():
        command = [sys.executable, "-m", "zeroplan", *arguments]
        seconds(command), seconds(bare)  # warm
        ratios, times = [], []
        for _ in range(runs):  # interleaved, so that both see the same machine
            base, whole = seconds(bare), seconds(command)
            ratios.append(whole / base)
            times.append(whole)
        ratio = statistics.median(ratios)
        verdict = "" if bound is None else f"  (at most {bound:g}: {'ok' if ratio <= bound else 'TOO SLOW'})"
        print(
            f"{ratio:5.1f} × python -c pass, {statistics.median(times) * 1e3:4.0f} ms  "
            f"zeroplan {' '.join(arguments)}{verdict}"
        )
        failed += bound is not None and ratio > bound
    for arguments, bound in PAGES.items():
        whole = statistics.median(seconds([sys.executable, "-m", "zeroplan", *arguments]) for _ in range(min(runs, 5)))
        verdict = "ok" if whole <= bound else "TOO SLOW"
        print(f"{whole:.2f} s  zeroplan {' '.join(arguments)}  (at most {bound:g} s: {verdict})")
        failed += whole > bound
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
