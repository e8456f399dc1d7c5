"""`zeroplan recommend`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from zeroplan import api
from zeroplan.cli.output import PlanOutput
from zeroplan.cli.progress import watched
from zeroplan.cli.screen import View, exit_code, show
from zeroplan.errors import ContradictionError
from zeroplan.request.options import Words
from zeroplan.specs.objective import FASTEST, PARETO


def run(
    options: Words, output: PlanOutput, *, view: View, max_params: bool, alternatives: Sequence[str],
    goal: Mapping[str, Any], allow: str | None, method: str | None = None,
) -> int:  # fmt: skip
    """0 with a plan, 1 when nothing fits, or nothing in time, or a plan is tight and not accepted."""
    accept, several = options.get("accept"), method is not None and "," in method
    named = () if method is None else method
    if several and (max_params or alternatives):
        other = "--max-params" if max_params else "--why"
        raise ContradictionError(f"--method compares plans; leave {other} out, or name one method")
    if max_params:
        _check_largest(output, alternatives, goal)
        with watched("recommend --max-params"):
            largest = api.recommend(
                **options, max_params=True, method=named, target=output.target, allow=allow
            )
        return show(largest, view, accept=accept)
    _check_output(output, alternatives, goal, json=view.json)
    if several and (output.file is not None or output.folder is not None):
        raise ContradictionError("-o and --dir write one plan and --method compares several; name one method")
    with watched("recommend"):
        result = api.recommend(
            **options, **goal, method=named, why=alternatives, target=output.target, allow=allow
        )
    result.written = output.write(result, options)
    if view.json or output.file != "-" or exit_code(result.verdict, accept):
        return show(result, view, accept=accept, errors=output.file == "-")
    return 0  # with -o - standard output holds the config and nothing else


def _check_largest(output: PlanOutput, alternatives: Sequence[str], goal: Mapping[str, Any]) -> None:
    """Raises `ContradictionError` for what --max-params makes nothing of."""
    if alternatives:
        raise ContradictionError("--why asks about a plan and --max-params makes none; write --params SIZE")
    if goal != {"objective": FASTEST}:
        raise ContradictionError("--max-params makes no plan to train with; leave out --tokens, --price and others")
    if output.file is not None or output.folder is not None:
        none = "-o and --dir write a plan and --max-params makes none"
        raise ContradictionError(f"{none}; write --params SIZE in its place")


def _check_output(output: PlanOutput, alternatives: Sequence[str], goal: Mapping[str, Any], *, json: bool) -> None:
    """Raises `ZeroplanError` for what can be written nowhere."""
    output.check(json=json)
    if goal["objective"] == PARETO and (output.file is not None or output.folder is not None):
        raise ContradictionError(
            "-o and --dir write one plan and --objective pareto makes several; write --headroom as the table says"
        )
    if alternatives and output.file == "-":
        raise ContradictionError("--why and -o - both want standard output; write -o ds_config.json")
