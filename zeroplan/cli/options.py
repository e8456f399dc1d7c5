"""The options of `zeroplan.request.options` as click has them: a command receives what was typed, unread."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import click

from zeroplan.request.options import OPTIONS, Option
from zeroplan.request.values import flag

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

OUTPUT = "Output"
EVERYTHING = "--help-all"


def file_names(_ctx: click.Context, _param: click.Parameter | click.Command, typed: str) -> list[CompletionItem]:
    """Have the shell complete a word as it completes any file name."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(typed, type="file")]


class PanelOption(click.Option):
    """An option that knows its panel: the heading under which the help has it.

    `group`: the function's argument that receives it, with all else that was typed of that group; without, it is an
    argument of its own.
    """

    def __init__(self, names: Sequence[str], *, panel: str = "", group: str = "", **settings: Any) -> None:
        super().__init__(names, **settings)
        self.panel = panel
        self.group = group

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        return file_names(ctx, self, incomplete)


JSON = PanelOption(["--json"], is_flag=True, panel=OUTPUT, help="Machine-readable: bytes as integers.")
QUIET = PanelOption(["-q", "--quiet"], is_flag=True, panel=OUTPUT, help="Only the answer.")
VERBOSE = PanelOption(["-v", "--verbose"], count=True, panel=OUTPUT, help="All tables; -vv: each of their lines.")
MODEL_WORD = click.Argument(["word"], required=False, metavar="[MODEL]", shell_complete=file_names)
"""The model as a command's first word."""


def shared_options(without: Collection[str] = ()) -> list[PanelOption]:
    """Those that commands and functions share, but not those named, as the argument `options`."""
    return [option for option in _shared() if option.name not in without]


@cache
def _shared() -> list[PanelOption]:
    return grouped_options("options", OPTIONS)


def grouped_options(group: str, declared: Mapping[str, Option]) -> list[PanelOption]:
    """Declared options as one argument of a command's function."""
    return [
        PanelOption([flag(name)], group=group, panel=option.panel, metavar=option.metavar, help=option.text,
                    default=option.usual, multiple=option.repeats)
        for name, option in declared.items()
    ]  # fmt: skip
