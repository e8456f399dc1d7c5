"""`typing.NamedTuple`, quick to define: no annotation is read, and each class's `__new__` is compiled when the first
record of it is made.

Defining 160 of typing's took a tenth of a command's start. Generic records take typing's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["NamedTuple"]

if TYPE_CHECKING:
    from typing import NamedTuple
else:
    from collections import _tuplegetter

    class Record(tuple):
        """What all records share; of their fields and defaults each class knows its own."""

        __slots__ = ()

        def __new__(cls, *values, **named):
            """The first one: compiled from names that Python has parsed already."""
            fields = ", ".join(cls._fields)
            names = {"_new": tuple.__new__, "__builtins__": {}}
            made = eval(f"lambda _cls, {fields}: _new(_cls, ({fields},))", names)  # noqa: S307
            made.__defaults__ = tuple(cls._field_defaults.values())
            made.__name__, made.__qualname__ = "__new__", f"{cls.__qualname__}.__new__"
            cls.__new__ = staticmethod(made)
            return made(cls, *values, **named)

        @classmethod
        def _make(cls, values):
            made = tuple.__new__(cls, values)
            if len(made) != len(cls._fields):
                raise TypeError(f"{cls.__name__}: found {len(made)} values, expected {len(cls._fields)}")
            return made

        def _replace(self, /, **changed):
            made = self._make(map(changed.pop, self._fields, self))
            if changed:
                raise ValueError(f"{type(self).__name__} has no fields {', '.join(changed)}")
            return made

        def _asdict(self):
            return dict(zip(self._fields, self, strict=True))

        def __repr__(self):
            fields = ", ".join(f"{name}={value!r}" for name, value in self._asdict().items())
            return f"{type(self).__name__}({fields})"

        def __getnewargs__(self):
            """For copy and pickle."""
            return tuple(self)

    class NamedTupleMeta(type):
        """Makes a record of a class's body: its annotations are the fields, its values their defaults."""

        def __new__(cls, name, bases, body):
            if not bases:
                return super().__new__(cls, name, bases, body)
            fields = tuple(body.get("__annotations__", ()))
            defaults = {field: body[field] for field in fields if field in body}
            last = fields[len(fields) - len(defaults) :]
            if len(bases) > 1 or not fields or any(field not in body for field in last):
                raise TypeError(f"{name}: found other bases, no fields or a default before a field without one")
            getters = {field: _tuplegetter(at, None) for at, field in enumerate(fields)}
            own = {"__slots__": (), "__match_args__": fields, "_fields": fields, "_field_defaults": defaults}
            return type(name, (Record,), {**body, **getters, **own})

    class NamedTuple(metaclass=NamedTupleMeta):
        pass
