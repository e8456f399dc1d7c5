"""Where `zeroplan recommend` writes its plan, and for whom."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from zeroplan.cli.screen import exit_code
from zeroplan.errors import ContradictionError, printable
from zeroplan.request.options import Words
from zeroplan.results.recommend import Recommendation

if TYPE_CHECKING:
    from zeroplan.emit.folder import WrittenFiles


class PlanOutput(NamedTuple):
    """What was typed: -o or --dir, --for, --force."""

    file: str | None
    folder: str | None
    target: str
    force: bool

    def check(self, *, json: bool) -> None:
        """Before anything is searched. Raises `ZeroplanError` for what goes nowhere."""
        if json and self.file == "-":
            raise ContradictionError("--json and -o - both want standard output; keep one")
        if self.file is not None and self.folder is not None:
            raise ContradictionError("-o writes the config and --dir all files; keep one")
        if self.target == "accelerate" and self.file == "-":
            raise ContradictionError("--for accelerate writes two files; write -o accelerate.yaml, or --dir plan")

    def write(self, result: Recommendation, options: Words) -> WrittenFiles | None:
        """What was written; None without a plan, or where nothing is to be written."""
        chosen = result.search_result.chosen
        if chosen is None or (self.file is None and self.folder is None):
            return None
        if exit_code(result.verdict, options.get("accept")):
            return None
        from zeroplan.catalog.hostfile import read_hostfile
        from zeroplan.emit.folder import WrittenFiles, write_alone, write_plan

        if self.file is not None:
            paths = write_alone(chosen.job, self.target, self.file, given=result.given, force=self.force)
            return WrittenFiles(tuple(map(printable, paths)))
        assert self.folder is not None
        hostfile = options.get("hostfile")
        hosts = read_hostfile(os.fspath(hostfile)) if hostfile else None
        names = write_plan(
            chosen, self.target, self.folder, given=result.given, hosts=hosts, assumed=result.assumed, force=self.force
        )
        return WrittenFiles(tuple(map(printable, names)), printable(self.folder))
