"""How long `zeroplan check` takes for 1,000 configs in one process: `python benchmarks/check.py [--most 2]`.

Drawn configs of tests/check, of which some two thirds have findings, in a folder: from the walk to the last line.
Exits with 1 when the fastest of --runs takes more than --most seconds.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
import tempfile
import time
from pathlib import Path

from zeroplan.cli.check import CheckCommand, run
from zeroplan.request.options import Options

DRAWS = Path(__file__).parent.parent / "tests" / "references" / "check" / "draws.json"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--configs", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--most", type=float, default=2.0, help="seconds")
    options = parser.parse_args()
    drawn = json.loads(DRAWS.read_text(encoding="utf-8"))["draws"][: options.configs]
    with tempfile.TemporaryDirectory() as folder:
        for seed, config, _said in drawn:
            (Path(folder) / f"ds_config_{seed:05}.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
        seconds = min(timed(folder) for _ in range(options.runs))
    print(f"{len(drawn):,} configs in {seconds:.2f} s, {len(drawn) / seconds:,.0f} a second (at most {options.most} s)")
    return int(seconds > options.most)


def timed(folder: str) -> float:
    """Seconds of one run over the folder."""
    command = CheckCommand(
        [folder], Options(), None, None, None, "cuda", None, "concise", [], [], "warning", exit_zero=False
    )
    start = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):
        run(command)
    return time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main())
