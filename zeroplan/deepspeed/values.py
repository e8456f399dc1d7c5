"""Values of ds_config.json checked against the table of keys, with the latitude that DeepSpeed's pydantic has."""

from __future__ import annotations

from typing import Any

from zeroplan.deepspeed.keys import KEYS
from zeroplan.deepspeed.keys.key import Key
from zeroplan.errors import SpecError, shown

TRUE, FALSE = {"true", "1", "on", "yes", "t", "y"}, {"false", "0", "off", "no", "f", "n"}


def checked(section: dict[str, Any], path: str, name: str, place: str, default: Any = None) -> Any:
    """`section[name]` as DeepSpeed reads it, `default` when absent. Raises `SpecError` for what it refuses."""
    if name not in section:
        return default
    known, value = KEYS[f"{path}.{name}"], section[name]
    read = {"integer": _integer, "number": _number, "boolean": _boolean}.get(known.kind.split("|")[0], _text)(value)
    if read is None or not _in_range(known, read):
        raise SpecError(f"{place}: {path}.{name}", shown(value), _expected(known), f'"{name}": {_example(known)}')
    return read


def _integer(value: Any) -> int | None:
    number = _number(value)
    return int(number) if number is not None and number == int(number) else None


def _number(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if abs(number) < float("inf") else None


def _boolean(value: Any) -> bool | None:
    text = str(value).lower()
    return True if text in TRUE else False if text in FALSE else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _in_range(known: Key, value: Any) -> bool:
    if known.choices:
        return value in known.choices
    if isinstance(value, str):
        return True
    low, above, high = known.minimum, known.exclusive_minimum, known.maximum
    return (low is None or value >= low) and (above is None or value > above) and (high is None or value <= high)


def _expected(known: Key) -> str:
    if known.choices:
        return " or ".join(known.choices)
    bounds = [f"at least {known.minimum:g}"] if known.minimum is not None else []
    bounds += [f"at most {known.maximum:g}"] if known.maximum is not None else []
    unit = f" of {known.unit}" if known.unit else ""
    return f"{'an' if known.kind[0] in 'aeiou' else 'a'} {known.kind}{unit}{', ' if bounds else ''}{', '.join(bounds)}"


def _example(known: Key) -> str:
    if known.choices:
        return f'"{known.choices[-1]}"'
    return str(known.default).lower() if known.default is not None else "1"
