"""The options of `zeroplan.request.options` as typer has them: a command receives what was typed, unread.

Panels group them in the help.
"""

# No `from __future__ import annotations` here: typer evaluates each string at start-up, which costs milliseconds.
import inspect
from collections.abc import Callable, Collection
from functools import wraps
from typing import Annotated, Any

import typer

from zeroplan.request.options import OPTIONS, Option
from zeroplan.request.values import flag

OUTPUT = "Output"
EVERYTHING = "--help-all"
Json = Annotated[bool, typer.Option("--json", help="Machine-readable: bytes as integers.", rich_help_panel=OUTPUT)]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Only the answer.", rich_help_panel=OUTPUT)]
Verbose = Annotated[
    int,
    typer.Option("-v", "--verbose", count=True, help="All tables; -vv: each of their lines.", rich_help_panel=OUTPUT),
]
Named = Annotated[str | None, typer.Argument(metavar="[MODEL]", show_default=False)]


def _parameter(name: str, option: Option) -> inspect.Parameter:
    made = typer.Option(
        flag(name), help=option.text, metavar=option.metavar, rich_help_panel=option.panel,
        show_default=option.usual is not None,
    )  # fmt: skip
    kind = str if option.usual is not None else str | None
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[kind, made], default=option.usual
    )


def _stated(names: Collection[str], values: dict[str, Any]) -> dict[str, Any]:
    """Those options that were typed, taken out of the values of all."""
    typed = {name: values.pop(name) for name in names}
    return {name: value for name, value in typed.items() if value is not None}


def with_options(
    function: Callable[..., None], without: Collection[str] = (), positional: bool = False
) -> Callable[..., None]:
    """Give a command the shared options but those named: it receives what was typed of them as its first argument.

    `positional`: its first word names the model. A parameter of its own that is annotated with declared options, as in
    Annotated[dict[str, str], GOALS], receives what was typed of those.
    """
    shared = {name: option for name, option in OPTIONS.items() if name not in without}
    parameters = [_parameter(name, option) for name, option in shared.items()]
    groups: dict[str, dict[str, Option]] = {}
    for own in list(inspect.signature(function).parameters.values())[1:]:
        declared = getattr(own.annotation, "__metadata__", (None,))[0]
        if isinstance(declared, dict):
            groups[own.name] = declared
            parameters += [_parameter(name, option) for name, option in declared.items()]
        else:
            parameters.append(own.replace(kind=inspect.Parameter.KEYWORD_ONLY))
    if positional:
        parameters.insert(0, inspect.Parameter(
            "word", inspect.Parameter.KEYWORD_ONLY, annotation=Named, default=None
        ))  # fmt: skip

    @wraps(function)
    def command(word: str | None = None, **values: Any) -> None:
        options = _stated(shared, values)
        own = {name: _stated(group, values) for name, group in groups.items()}
        if word is not None:
            from zeroplan.cli.positional import with_model

            options = with_model(options, word)
        function(options, **own, **values)

    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command
