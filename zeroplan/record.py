"""`typing.NamedTuple` for all records here, made without reading their annotations, which are for type checkers.

Reading those of 160 classes took a tenth of a command's start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["NamedTuple"]

if TYPE_CHECKING:
    from typing import NamedTuple
else:
    from collections import namedtuple

    class Reading(type):
        """Of a class's body makes a named tuple: its annotations are the fields, its values their defaults."""

        def __new__(cls, name, bases, body):
            if not bases:
                return super().__new__(cls, name, bases, body)
            fields = body.get("__annotations__", {})
            made = namedtuple(
                name, fields, defaults=[body[field] for field in fields if field in body], module=body["__module__"]
            )
            for key, value in body.items():
                if key not in fields:
                    setattr(made, key, value)
            return made

    class NamedTuple(metaclass=Reading):
        pass
