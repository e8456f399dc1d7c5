"""A JSON Schema of ds_config.json for editors, made from the table of keys.

Draft-07, which editors know in full; VS Code took long to read 2020-12 and Visual Studio reads no later draft
before 18.5. What drafts do not have is written in VS Code's own words, which validators pass over: deprecationMessage
is a warning at the key, errorMessage the text of an error, doNotSuggest keeps a spelling out of completion.

It takes a value as it is meant to be written. So it is stricter than DeepSpeed in one way: texts and switches where
numbers belong, and numbers and texts where switches belong, which pydantic turns into them, are not taken. "auto" is
taken where Hugging Face's Trainer fills it, and with a warning where a section drops it.

An unknown key is an error in the sections where DeepSpeed refuses it. Elsewhere, the top level included, DeepSpeed
passes over it without a word: an editor then shows a warning and a validator takes the file (additionalProperties is a
schema that allows everything and is deprecated), because a mistyped key there has silently no effect, and because
other programs keep keys of their own in the file. Keys that begin as comments do (_, #, //, $) are let alone.
"""

from __future__ import annotations

from typing import Any

from zeroplan.deepspeed.keys import OPEN_SECTIONS, STRICT_SECTIONS, children
from zeroplan.deepspeed.keys.key import Key
from zeroplan.deepspeed.keys.optimizer import DEEPSPEED_OPTIMIZERS
from zeroplan.deepspeed.keys.optimizer_classes import CLASS_PARAMS
from zeroplan.deepspeed.keys.removed import REFUSED_PARAMS, REMOVED_KEYS
from zeroplan.deepspeed.keys.scheduler import SCHEDULER_PARAMS
from zeroplan.deepspeed.keys.torch_schedules import TORCH_SCHEDULES
from zeroplan.deepspeed.names import COMMENTS
from zeroplan.deepspeed.values import ANY_CASE, AUTO
from zeroplan.sources import DEEPSPEED
from zeroplan.specs.optimizer import OPTIMIZERS

DRAFT = "http://json-schema.org/draft-07/schema#"
STAGES = (0, 1, 2, 3)
MINE = "^({})".format("|".join("[$]" if one == "$" else one for one in COMMENTS))
PASSED_OVER = "DeepSpeed knows no such key here and passes over it."
DROPPED = 'Nobody fills this "auto": DeepSpeed drops it and takes its default.'
BOUNDS = {"minimum": "minimum", "maximum": "maximum", "exclusive_minimum": "exclusiveMinimum",
          "exclusive_maximum": "exclusiveMaximum"}  # fmt: skip
_SPELLED = {one.config_type.lower(): one.config_type for one in OPTIMIZERS.values() if one.config_type}
WORDS = {
    "optimizer.type": tuple(dict.fromkeys((
        *(_SPELLED.get(name, name) for name in DEEPSPEED_OPTIMIZERS),
        *(name.removeprefix("torch.") for name in CLASS_PARAMS if name.startswith("torch.")),
    ))),
    "scheduler.type": (*SCHEDULER_PARAMS, *TORCH_SCHEDULES),
}
"""Names of classes, of DeepSpeed's own and of torch's."""
IN_ANY_CASE = {"optimizer.type": DEEPSPEED_OPTIMIZERS}
"""Beside `ANY_CASE`: which words of a key are taken in any case."""


def schema() -> dict[str, Any]:
    """The schema of a whole file. Same version, same schema."""
    return {
        "$schema": DRAFT,
        "title": f"ds_config.json of DeepSpeed {DEEPSPEED}",
        "type": "object",
        **_members(""),
    }


def _members(section: str) -> dict[str, Any]:
    """The keys of a section, under all their spellings, and what becomes of others."""
    properties: dict[str, Any] = {}
    if not section:
        properties["$schema"] = {"type": "string", "description": "Where an editor finds this schema."}
    for known in children(section):
        properties[known.name] = _key(known)
        for alias in known.aliases:
            other = f"Another spelling of {known.name}. {_description(known)}"
            properties[alias] = {**_key(known, own_name=False), "description": other, "doNotSuggest": True}
    properties |= {path.rpartition(".")[2]: _removed(path, instead) for path, instead in _gone(section).items()}
    return {"properties": properties, **_others(section)}


def _others(section: str) -> dict[str, Any]:
    """The schema of names that are not listed."""
    if section in STRICT_SECTIONS:
        return {"additionalProperties": False}
    if section in OPEN_SECTIONS:
        return {}
    return {
        "patternProperties": {MINE: {}},
        "additionalProperties": {"description": PASSED_OVER, **_deprecated(PASSED_OVER)},
    }


def _gone(section: str) -> dict[str, str]:
    """What DeepSpeed refuses in a section by name."""
    removed = {**REMOVED_KEYS, **{path: f"write {instead}" for path, instead in REFUSED_PARAMS.items()}}
    return {path: instead for path, instead in removed.items() if path.rpartition(".")[0] == section}


def _removed(path: str, instead: str) -> dict[str, Any]:
    text = f"DeepSpeed {DEEPSPEED} refuses {path}: {instead}."
    return {"not": {}, "description": text, "errorMessage": text, "doNotSuggest": True}


def _deprecated(text: str) -> dict[str, Any]:
    """For readers of 2019-09 and later, and for VS Code."""
    return {"deprecated": True, "deprecationMessage": text}


def _key(known: Key, *, own_name: bool = True) -> dict[str, Any]:
    """One key; the Trainer fills "auto" under the table's own names only."""
    fields: dict[str, Any] = {"description": _description(known)}
    if known.default is not None and known.default != {}:
        fields["default"] = known.default
    if known.deprecated:
        fields |= _deprecated(f"Write {known.deprecated}.")
    value = _value(known)
    auto = _auto(known, own_name=own_name)
    return {**fields, **value} if auto is None else {**fields, "anyOf": [value, auto]}


def _auto(known: Key, *, own_name: bool) -> dict[str, Any] | None:
    """What "auto" is; None where a value may not be it, or is a text of any kind."""
    if known.default == AUTO and not known.choices:
        return {"enum": [AUTO]}
    if known.auto and own_name:
        return {"enum": [AUTO], "description": f"Filled by Hugging Face's Trainer: {known.auto}."}
    if known.section in STRICT_SECTIONS and not {"object", "any"} & set(known.kind.split("|")):
        # an enum: VS Code then knows that this is the branch that is meant, and warns where a pattern would be an error
        return {"enum": [AUTO], "description": DROPPED, **_deprecated(DROPPED)}
    return None


def _value(known: Key) -> dict[str, Any]:
    """Kind, words and bounds."""
    kinds = _kinds(known)
    if "any" in kinds:
        return {}
    if words := WORDS.get(known.path) or known.choices:
        return _worded(known, kinds, words)
    if known.default == AUTO and kinds[-1] == "string":
        kinds = kinds[:-1]  # one text alone is taken, "auto"
    fields: dict[str, Any] = {"type": kinds[0] if len(kinds) == 1 else kinds}
    fields |= {word: getattr(known, name) for name, word in BOUNDS.items() if getattr(known, name) is not None}
    if "array" in kinds and "string" in kinds:
        fields["items"] = {"type": "string"}
    return fields | (_members(known.path) if "object" in kinds else {})


def _kinds(known: Key) -> list[str]:
    """Kinds of JSON of a key; for a section null where DeepSpeed outlives it: bf16 may be null, optimizer may not."""
    kinds = known.kind.split("|")
    if "object" not in kinds or not known.survives:
        return kinds
    outlives_null = bool({"null", "empty", "any"} & set(known.survives.split("|")))
    return [kind for kind in kinds if kind != "null"] + ["null"] * outlives_null


def _worded(known: Key, kinds: list[str], words: tuple[str, ...]) -> dict[str, Any]:
    """One of several words, or a list of them."""
    if "array" in kinds:
        return {"type": kinds, "items": {"enum": list(words)}}
    listed = {"enum": [*words, *([None] if "null" in kinds else [])]}
    folded = words if known.path in ANY_CASE else IN_ANY_CASE.get(known.path, ())
    return {"anyOf": [listed, {"type": "string", "pattern": _in_any_case(folded)}]} if folded else listed


def _in_any_case(words: tuple[str, ...]) -> str:
    """As a pattern: those of JSON Schema know no flags."""
    spelled = ("".join(f"[{letter.upper()}{letter.lower()}]" if letter.isalpha() else letter for letter in word)
               for word in words)  # fmt: skip
    return f"^({'|'.join(spelled)})$"


def _description(known: Key) -> str:
    """What an editor shows beside the key."""
    parts = [known.meaning]
    if known.unit:
        parts.append(f"In {known.unit}.")
    if known.stages != STAGES:
        at = " and ".join(map(str, known.stages))
        parts.append(f"Has an effect at ZeRO stage {at} only." if at else "Has no effect.")
    return " ".join(parts)
