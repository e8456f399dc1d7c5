"""`typing.NamedTuple`, made without reading annotations: in modules that keep these as text.

Reading those of 160 classes took a tenth of a command's start. Generic records take typing's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["NamedTuple"]

if TYPE_CHECKING:
    from typing import NamedTuple
else:
    from collections import namedtuple

    class NamedTupleMeta(type):
        """Of a class's body makes a named tuple: its annotations are the fields, its values their defaults."""

        def __new__(cls, name, bases, body):
            if not bases:
                return super().__new__(cls, name, bases, body)
            fields = body.get("__annotations__", {})
            defaults = [body[field] for field in fields if field in body]
            last = list(fields)[len(fields) - len(defaults) :]
            if len(bases) > 1 or not fields or any(field not in body for field in last):
                raise TypeError(f"{name}: found other bases, no fields or a default before a field without one")
            made = namedtuple(name, fields, defaults=defaults, module=body["__module__"])
            for key, value in body.items():
                if key not in fields:
                    setattr(made, key, value)
            return made

    class NamedTuple(metaclass=NamedTupleMeta):
        pass
