"""Numbers that one test works out and another reads in the same session, whichever worker ran the first."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import NamedTuple


class Noted(NamedTuple):
    """A folder of this session with a file of each process."""

    folder: Path

    def write(self, name: str, numbers: list[float]) -> None:
        with (self.folder / f"noted-{os.getpid()}.jsonl").open("a", encoding="utf-8") as stream:
            stream.write(json.dumps([name, numbers]) + "\n")

    def read(self) -> dict[str, list[float]]:
        """What has been written by now."""
        lines = [line for path in self.folder.glob("noted-*.jsonl") for line in path.read_text(encoding="utf-8").splitlines()]
        return dict(json.loads(line) for line in lines)
