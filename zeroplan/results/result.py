"""What every result has: its screen as text and for a notebook, and what `--json` prints as a dictionary."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zeroplan.report.rendered import Screen


class Result:
    """`print` shows what the command shows in a terminal, a notebook shows it in colour."""

    @property
    def fits(self) -> bool | None:
        """Whether anything that was asked for fits; None where no capacity is known."""
        raise NotImplementedError

    def screen(self, *, quiet: bool = False) -> Screen:
        """The answer, and what stands below it unless `quiet`."""
        raise NotImplementedError

    def content(self) -> dict[str, Any]:
        """What `--json` holds, but for the version of its shape."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """The same as `--json`: bytes are integers, times are seconds."""
        import json

        from zeroplan.report import machine

        found: dict[str, Any] = json.loads(machine.dumps(self.content()))
        return found

    @property
    def answer(self) -> str:
        """The one sentence on top."""
        return self.screen(quiet=True).answer.plain

    def __str__(self) -> str:
        from zeroplan.report import rendered  # rich, which --json has no need of

        return rendered.text(self.screen())

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.answer}>"

    def _repr_mimebundle_(self, **_which: object) -> dict[str, str]:
        """For IPython: text in a terminal, HTML in a notebook."""
        from zeroplan.report import rendered

        screen = self.screen()
        return {"text/plain": rendered.text(screen), "text/html": rendered.html(screen)}
