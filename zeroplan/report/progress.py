"""A line on standard error that says what a command is at, and for how long."""

from __future__ import annotations

from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Column

from zeroplan.report.console import console

PER_SECOND = 4


class Drawn:
    """The line, from now until it is erased."""

    def __init__(self, text: str) -> None:
        what = TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis"))
        self.line = Progress(
            SpinnerColumn("line"), what, TimeElapsedColumn(),
            console=console(errors=True), transient=True, refresh_per_second=PER_SECOND,
            redirect_stdout=False, redirect_stderr=False,
        )  # fmt: skip
        self.task = self.line.add_task(text, total=None)
        self.line.start()

    def say(self, text: str) -> None:
        self.line.update(self.task, description=text)

    def erase(self) -> None:
        self.line.stop()
