"""The JSON Schema of each command's `--json`, derived from its dataclasses."""

from __future__ import annotations

import ast
import inspect
from functools import cache, reduce
from itertools import pairwise
from operator import or_
from textwrap import dedent
from types import UnionType, new_class
from typing import Annotated, Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, Field, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema
from typing_extensions import TypedDict

from zeroplan.errors import UnknownNameError
from zeroplan.schema.check import Check, Rules
from zeroplan.schema.comparisons import Compare, Diff, MatrixDocument
from zeroplan.schema.estimate import AnyEstimate
from zeroplan.schema.explain import Explain
from zeroplan.schema.json_object import is_record, members
from zeroplan.schema.measurements import Calibrate, Observe, Verify
from zeroplan.schema.presets import Clusters, Gpus, Models
from zeroplan.schema.recommend import Recommend

DOCUMENTS: dict[str, Any] = {
    "recommend": Recommend, "estimate": AnyEstimate, "compare": Compare, "matrix": MatrixDocument, "check": Check,
    "diff": Diff, "verify": Verify, "observe": Observe, "calibrate": Calibrate, "explain": Explain, "rules": Rules,
    "models": Models, "gpus": Gpus, "clusters": Clusters,
}  # fmt: skip
"""By command."""
UNITS = "Bytes are integers, times are seconds. Numbers of a GPU are per GPU, those of host and NVMe per node."


class Untitled(GenerateJsonSchema):
    """Without a title that repeats each key."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002
        return False


def json_schema(command: str) -> dict[str, Any]:
    """The JSON Schema of a command's `--json`. Raises `UnknownNameError` for a command without."""
    if command not in DOCUMENTS:
        raise UnknownNameError("command with --json", command, DOCUMENTS)
    schema = TypeAdapter(_typed(DOCUMENTS[command])).json_schema(schema_generator=Untitled)
    head = {"$schema": Untitled.schema_dialect, "$comment": UNITS}
    return {**head, **schema, "title": f"zeroplan {command} --json"}


def _typed(annotation: Any) -> Any:
    """The annotation with a TypedDict in place of each record: to pydantic a NamedTuple is an array."""
    if is_record(annotation):
        return _typed_dict(annotation)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        return reduce(or_, map(_typed, arguments))
    return annotation if origin in (None, Literal) else origin[tuple(map(_typed, arguments))]


@cache
def _typed_dict(record: type) -> Any:
    """One object under its name less `Object`: no other keys, each described by the docstring below its field."""
    body = {
        "__annotations__": _fields(record),
        "__doc__": _one_line(record.__doc__),
        "__module__": record.__module__,
        "__pydantic_config__": ConfigDict(extra="forbid"),
    }
    name = record.__name__.removesuffix("Object")
    return new_class(name, (TypedDict,), exec_body=lambda namespace: namespace.update(body))


def _fields(record: type) -> dict[str, Any]:
    hints, described = get_type_hints(record), _descriptions(record)
    typed: dict[str, Any] = {}
    for member in members(record):
        hint = hints[member.name]
        if member.is_merged:
            typed |= _fields(hint)
            continue
        kind: Any = _typed(_less_none(hint) if member.is_optional else hint)
        field = Annotated[kind, Field(description=described.get(member.name))]
        typed[member.key] = NotRequired[field] if member.is_optional else field
    return typed


def _less_none(hint: Any) -> Any:
    return reduce(or_, (one for one in get_args(hint) if one is not type(None)))


def _descriptions(record: type) -> dict[str, str]:
    """The docstrings below fields, which are in the source alone."""
    described: dict[str, str] = {}
    for each in reversed(record.__mro__):
        if is_record(each):
            body = ast.parse(dedent(inspect.getsource(each))).body[0]
            assert isinstance(body, ast.ClassDef)
            for statement, below in pairwise(body.body):
                match statement, below:
                    case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                        described[name] = _one_line(text)
    return described


def _one_line(text: str | None) -> str:
    return " ".join((text or "").split())
