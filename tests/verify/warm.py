"""Measurements in children of one process that has torch, DeepSpeed and transformers: a third of the seconds.

`Warm().measure(case)` gives what `zeroplan.verify.measure.measure` gives: whatever depends on the case (the process
group, the accelerator, the model's module) is made in the fork. `python -m tests.verify.warm` is that process; a line of
its input names a case's file and where the result goes, a line of its output says that the fork has ended.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from zeroplan.verify.measure import environment

ANY = {"rank": 0, "world": 1, "mode": "meta"}
TIMEOUT = 600


class Warm:
    def __init__(self, python: str = sys.executable) -> None:
        self.process = subprocess.Popen(
            [python, "-m", "tests.verify.warm"], env={**os.environ, **environment(ANY)}, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def __enter__(self) -> Warm:
        return self

    def __exit__(self, *_error: object) -> None:
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()

    def measure(self, case: dict[str, Any]) -> dict[str, Any]:
        with tempfile.TemporaryDirectory(prefix="zeroplan-warm-") as folder:
            given, found, log = (Path(folder, name) for name in ("case.json", "out.json", "log"))
            given.write_text(json.dumps(case), encoding="utf-8")
            print(given, found, log, sep="\t", file=self.process.stdin, flush=True)
            if not self.process.stdout.readline():
                raise RuntimeError("the process that measures has ended")
            if not found.exists():
                return {"case": case, "failed": log.read_text(encoding="utf-8")[-2000:] or "killed, or out of time"}
            return json.loads(found.read_text(encoding="utf-8"))


def serve() -> None:
    """Nothing is imported before a fork that DeepSpeed or torch would make other than in a process of its own."""
    import deepspeed  # noqa: F401
    import torch._dynamo.polyfills.loader
    import torch.testing._internal.distributed.fake_pg  # noqa: F401
    import transformers.generation.utils
    import transformers.modeling_utils  # noqa: F401

    answers, nothing = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)  # what the libraries print is no answer
    for line in sys.stdin:
        given, found, log = line.rstrip("\n").split("\t")
        child = os.fork()
        if not child:
            run(given, found, log)
        os.waitpid(child, 0)
        os.write(answers, b"done\n")


def run(given: str, found: str, log: str) -> None:
    """In the fork, which ends here."""
    from zeroplan.verify.child import main

    signal.alarm(TIMEOUT)
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT), 2)
    os.environ.update(environment(json.loads(Path(given).read_text(encoding="utf-8"))))
    os._exit(main(given, found))


if __name__ == "__main__":
    serve()
