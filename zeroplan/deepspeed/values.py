"""Values of ds_config.json checked against the table of keys, with the latitude that DeepSpeed's pydantic has."""

from __future__ import annotations

import json
import re
from typing import Any

from zeroplan.deepspeed.keys import CURRENT
from zeroplan.deepspeed.keys.key import Key
from zeroplan.deepspeed.keys.table import KeyTable
from zeroplan.errors import SpecError, nearest, shown

AUTO = "auto"
"""Filled by the Trainer where `Key.auto` says so, dropped by DeepSpeed elsewhere (runtime/config_utils.py:51)."""
ANY_CASE = {
    "communication_data_type": str.lower,  # runtime/config.py:get_communication_data_type
    "seq_parallel_communication_data_type": str.lower,
    "gradient_allreduce_op": str.lower,  # runtime/config.py:get_gradient_allreduce_op
    "checkpoint.writer.type": str.upper,  # runtime/model_checkpointing/config.py:_make_upper_case
    "checkpoint.writer.data_parallel": str.upper,
    "checkpoint.tag_validation": str.upper,  # runtime/config.py:get_checkpoint_tag_validation_mode
}
"""Texts whose case DeepSpeed does not look at, and how the table writes them."""
DTYPES = {
    **dict.fromkeys(("torch.float16", "fp16", "float16", "half"), "fp16"),
    **dict.fromkeys(("torch.float32", "fp32", "float32", "float"), "fp32"),
    **dict.fromkeys(("torch.bfloat16", "bf16", "bfloat16"), "bf16"),
    **dict.fromkeys(("torch.int8", "int8"), "int8"),
}
"""The spellings of a dtype (runtime/config.py:DtypeEnum), and a short one for each."""
KINDS: dict[type, tuple[str, ...]] = {
    type(None): ("null",), bool: ("boolean", "integer", "number"), int: ("integer", "number"), float: ("number",),
    str: ("string",), list: ("array",), dict: ("object",),
}  # fmt: skip
"""What JSON calls a Python value."""
WHOLE_TEXT = re.compile(r"\s*([+-]?[0-9]{1,4000}(?:_[0-9]+)*)(?:\.0+)?\s*", re.ASCII)
TRUE, FALSE = {"true", "1", "on", "yes", "t", "y"}, {"false", "0", "off", "no", "f", "n"}


def checked(
    section: dict[str, Any], path: str, name: str, place: str, default: Any = None, *, table: KeyTable = CURRENT
) -> Any:  # fmt: skip
    """`section[name]` as DeepSpeed reads it, `default` when absent or null. Raises `SpecError` for what it refuses."""
    if name not in section:
        return default
    known, value = table.keys[f"{path}.{name}" if path else name], section[name]
    if value is None and "null" in known.kind.split("|"):
        return default
    read = (_coerced if table.coerces else _read)(known, value)
    if read is None or not _in_range(known, read):
        found = json.dumps(value)
        raise SpecError(
            f"{place}: {known.path}", found if len(found) < 60 else shown(value), expected(known),
            f'"{name}": {example(known, value)}',
        )  # fmt: skip
    return read


def fault(known: Key, value: Any, table: KeyTable = CURRENT) -> str:
    """Why a strict section refuses a value: its "kind", a "fraction", a "text" that is no number, its "range", no such
    "choice"; empty when it is taken. An "auto" is refused by few sections.
    """
    kinds = known.kind.split("|")
    dropped = value == AUTO and known.section not in table.keeps_auto
    made_object = table.coerces and "object" in kinds and _pairs(value) and not (value and known.path in table.strict)
    if dropped or made_object or "any" in kinds or (value is None and "null" in kinds):
        return ""
    if isinstance(value, list | dict):
        return _fault_of_several(known, kinds, value)
    unwanted = known.plain and (isinstance(value, bool) or (isinstance(value, str) and "." in value))
    read = None if value is None or unwanted else (_coerced if table.coerces else _read)(known, value)
    if read is not None:
        return "" if _in_range(known, read) else "choice" if known.choices else "range"
    if value is None or unwanted:
        return "kind"
    if isinstance(value, float) and kinds[0] == "integer" and value % 1:
        return "fraction"
    return "text" if isinstance(value, str) and kinds[0] in ("integer", "number") else "kind"


def stops(known: Key, value: Any) -> bool:
    """Whether a key that DeepSpeed reads by hand stops it with a value of this kind."""
    whole = known.kind.split("|")[0] == "object"
    survived = (known.survives or ("object" if whole else "any")).split("|")
    kinds = KINDS.get(type(value), ())
    return not (
        "any" in survived or any(kind in survived for kind in kinds)
        or ("empty" in survived and not value) or ("full" in survived and bool(value))
        or ("numeric" in survived and isinstance(value, str) and as_number(value) is not None)
        or ("whole" in survived and isinstance(value, str) and _whole(value) is not None)
        or ("blank" in survived and isinstance(value, str | list) and not value)
        or ("auto" in survived and value == AUTO)
        or ("bit" in survived and value in (0, 1))
    )  # fmt: skip


def _fault_of_several(known: Key, kinds: list[str], value: list[Any] | dict[str, Any]) -> str:
    if isinstance(value, dict):
        return "" if "object" in kinds else "kind"
    if "array" not in kinds:
        return "kind"
    if known.choices:
        return "" if all(item in known.choices for item in value) else "choice"
    return "kind" if "string" in kinds and not all(isinstance(item, str) for item in value) else ""


def _read(known: Key, value: Any) -> Any:
    """The value as the key's first kind; None when it is not of it."""
    kinds = known.kind.split("|")
    if kinds[0] == "object" or not known.settable or (kinds[0] == "array" and "string" not in kinds):
        return None
    if kinds[0] == "integer" and "string" in kinds and isinstance(value, str):
        return None  # one text alone is taken, "auto"
    read = {"integer": _integer, "number": as_number, "boolean": _boolean}.get(kinds[0], _text)(value)
    return ANY_CASE[known.path](read) if isinstance(read, str) and known.path in ANY_CASE else read


def _coerced(known: Key, value: Any) -> Any:
    """As pydantic 1 makes it of the key's first kind, by Python's own constructors; None where that fails."""
    kinds = known.kind.split("|")
    if kinds[0] == "string" and not known.choices:
        return str(value) if isinstance(value, str | int | float) and known.name != "nvme_path" else _text(value)
    if kinds[0] == "integer" and known.path == "zero_optimization.stage":
        return value if isinstance(value, int | float) and value in (0, 1, 2, 3) else None
    return _whole(value) if kinds[0] == "integer" else _read(known, value)


def _whole(value: Any) -> int | None:
    """As `int` makes it of a number or text; None where it stops."""
    try:
        return int(value)
    except (ValueError, OverflowError, TypeError):
        return None


def _pairs(value: Any) -> bool:
    """Whether `dict` makes an object of it: of nothing, or of texts and lists of two parts."""
    several = value if isinstance(value, str | list) else None
    return several is not None and all(isinstance(one, str | list) and len(one) == 2 for one in several)


def _integer(value: Any) -> int | None:
    if isinstance(value, str):
        whole = WHOLE_TEXT.fullmatch(value)
        return int(whole.group(1)) if whole else None
    if isinstance(value, int):
        return int(value)
    number = as_number(value)
    return int(number) if number is not None and number == int(number) and abs(number) < 2**63 else None


def as_number(value: Any) -> float | None:
    """As `float` reads it; None for what it cannot, infinities and nan."""
    if isinstance(value, bool):
        return float(value)
    try:
        number = float(value) if isinstance(value, int | float | str) else None
    except (ValueError, OverflowError):
        return None
    return number if number is not None and abs(number) < float("inf") else None


def _boolean(value: Any) -> bool | None:
    if isinstance(value, int | float):
        return bool(value) if value in (0, 1) else None
    text = value.lower() if isinstance(value, str) else ""
    return True if text in TRUE else False if text in FALSE else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _in_range(known: Key, value: Any) -> bool:
    if known.choices:
        return value in known.choices
    if isinstance(value, str):
        return True
    low, above, high = known.minimum, known.exclusive_minimum, known.maximum
    below = known.exclusive_maximum
    if below is not None and value >= below:
        return False
    return (low is None or value >= low) and (above is None or value > above) and (high is None or value <= high)


def expected(known: Key) -> str:
    """What a key takes, in words."""
    kinds = known.kind.split("|")
    if known.choices:
        return " or ".join(known.choices)
    bounds = [f"at least {known.minimum:g}"] if known.minimum is not None else []
    bounds += [f"at most {known.maximum:g}"] if known.maximum is not None else []
    unit = f" of {known.unit}" if known.unit else ""
    bounds += [f"more than {known.exclusive_minimum:g}"] if known.exclusive_minimum is not None else []
    bounds += [f"less than {known.exclusive_maximum:g}"] if known.exclusive_maximum is not None else []
    kind = " or ".join("true or false" if kind == "boolean" else kind for kind in kinds)
    if kinds == ["boolean"]:
        return kind
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}{unit}{', ' if bounds else ''}{', '.join(bounds)}"


def example(known: Key, value: Any) -> str:
    """What to write instead of a value, as JSON: the number that it means, the nearest word, or the default.

    A fraction under 1 was no request for 0, which DeepSpeed refuses of a floor (fp16.min_loss_scale).
    """
    number = meant(known, value)
    if number is not None and (number or number == as_number(value)):
        return json.dumps(number)
    if known.choices:
        word = nearest(value, known.choices) if isinstance(value, str) else known.default
        return f'"{word if word in known.choices else known.choices[0]}"'
    if known.default is None or (known.default == AUTO and known.kind.split("|")[0] in ("integer", "number")):
        return {"integer": "1", "number": "1.0", "boolean": "true"}.get(known.kind.split("|")[0], '"..."')
    return json.dumps(known.default)


def meant(known: Key, value: Any) -> int | float | None:
    """The number that a text or fraction stands for, where the key takes it."""
    kind = known.kind.split("|")[0]
    number = as_number(value.strip('"\' ') if isinstance(value, str) else value)
    if kind not in ("integer", "number") or isinstance(value, bool) or number is None:
        return None
    whole = int(number) if kind == "integer" or (number.is_integer() and "e" not in str(value)) else number
    return whole if _in_range(known, whole) and not (known.choices or abs(number) >= 2**63) else None
