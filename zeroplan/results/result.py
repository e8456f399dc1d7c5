"""What every result has: its screen as text and for a notebook, and what `--json` prints as a dictionary."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from zeroplan.fit import FITS, VERDICTS
from zeroplan.report.depth import BRIEF, EVERYTHING, QUIET

if TYPE_CHECKING:
    from zeroplan.report.rendered import Screen
    from zeroplan.schema.json_object import JsonDocument


class Result:
    """`print` shows what the command shows in a terminal, a notebook shows it in colour."""

    typed: tuple[str, ...] = ()
    """The words of the command, from which the next one is made; none from Python."""

    @property
    def verdict(self) -> str | None:
        """`fits`, `tight` or `does_not_fit`: the best of what was asked for; None where no capacity is known."""
        raise NotImplementedError

    @property
    def fits(self) -> bool | None:
        """Whether the verdict is `fits`; None where no capacity is known."""
        return None if self.verdict is None else self.verdict == FITS

    def screen(self, level: int = BRIEF) -> Screen:
        """The answer, and what stands below it at a level."""
        raise NotImplementedError

    def content(self) -> JsonDocument:
        """What `--json` holds."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """The same as `--json`: bytes are integers, times are seconds."""
        import json

        from zeroplan.report import json_objects

        content: dict[str, Any] = json.loads(json_objects.dumps(self.content()))
        return content

    @property
    def answer(self) -> str:
        """The one sentence on top."""
        return self.screen(QUIET).summary.plain

    def __str__(self) -> str:
        return self.text()

    def text(self, verbose: int = 0) -> str:
        """What the command prints; with `verbose` 1 or 2 as with -v or -vv."""
        from zeroplan.report import rendered  # rich, which --json has no need of

        return rendered.text(self.screen(min(BRIEF + verbose, EVERYTHING)))

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.answer}>"

    def _repr_mimebundle_(self, **_which: object) -> dict[str, str]:
        """For IPython: text in a terminal, HTML in a notebook."""
        from zeroplan.report import rendered

        screen = self.screen()
        return {"text/plain": rendered.text(screen), "text/html": rendered.html(screen)}


def best(verdicts: Iterable[str | None]) -> str | None:
    """The best of several verdicts; none of them is known where one is not, unless another fits."""
    several = set(verdicts)
    return next((verdict for verdict in (FITS, None, *VERDICTS[1:]) if verdict in several), None)


def worst(verdicts: Iterable[str | None]) -> str | None:
    """The worst of several verdicts; unknown where one is, unless another does not fit."""
    several = set(verdicts)
    return next((verdict for verdict in (*reversed(VERDICTS[1:]), None, FITS) if verdict in several), None)
