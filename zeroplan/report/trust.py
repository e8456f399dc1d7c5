"""The job that numbers are of and how far they hold, as lines of a screen."""

from __future__ import annotations

from rich.console import RenderableType
from rich.text import Text

from zeroplan.clock import Speed
from zeroplan.report.subject import compared, left_out, step_compared
from zeroplan.specs.job import Job
from zeroplan.specs.scope import Scope


def scope_lines(scope: Scope, *, quiet: bool = False) -> list[RenderableType]:
    """The job that the numbers are of, and what of the user's own is not planned, which nothing leaves out."""
    planned = [] if quiet else [Text(scope.line, style="dim")]
    return [*planned, *(Text(said, style="yellow") for said in scope.not_planned)]


def trust(job: Job, *, whole: bool = True) -> list[RenderableType]:
    """How far the numbers hold: what runs have confirmed, and what of the config is not in them."""
    return [Text(compared(job, whole=whole), style="dim"), *not_counted(job)]


def step_trust(job: Job, speed: Speed) -> Text:
    """How far the seconds of a step hold."""
    return Text(step_compared(job, speed), style="dim")


def not_counted(job: Job) -> list[RenderableType]:
    """What of the config is in no number."""
    return [Text(text, style="yellow")] if (text := left_out(job)) else []
