"""Changes of texts, and of configs, that no author would make."""

from __future__ import annotations

import copy
import json
import re

from tests.check.deepspeed_draws import ODD
from zeroplan.check.accelerate_config import FILE, SECTION
from zeroplan.check.rules.accelerate import FIELDS, TOP
from zeroplan.deepspeed.keys import KEYS
from zeroplan.deepspeed.keys.removed import IGNORED_KEYS, REMOVED_KEYS
from zeroplan.deepspeed.names import OLD_NAMES, OLD_OFFLOADS, WITHOUT_EFFECT

NAMES = sorted({name for known in KEYS.values() for name in (known.name, *known.aliases)}
               | {*OLD_NAMES, *OLD_OFFLOADS, WITHOUT_EFFECT}
               | {path.rpartition(".")[2] for path in (*REMOVED_KEYS, *IGNORED_KEYS)})  # fmt: skip
SECTIONS = sorted({known.section for known in KEYS.values()})
STRANGE = (
    "\0", "\ufeff", "\r", "\r\n", "\x85", "\u2028", "\x0b", "\x1b[31m", "\x7f", "é", "😀", "\u202e", "\t", "\n", " ", "\\", "\\n",
    "\\u0000", "\\ud800", "\\udc00\\ud800", "\\u001b", "\\u2028",
)  # fmt: skip
TOKENS = (
    "{", "}", "[", "]", ":", ",", '"', "'", "'''", "//", "#", "/*", "*/", "{}", "[]", '""', "null", "true", "false", "NaN",
    "Infinity", "-Infinity", "-", "-0", "0", "1e999", "-1e-999", "0x10", "1_000", "1.", ".5", "1e5", "9" * 99, "9" * 400, "9" * 5000, "1" + "0" * 90,
    '"auto"', '"${X}"', "<value>", '"a": 1', "a: b", '"zero_optimization": {', '"params": {', "// c\n", "/* c */", *STRANGE,
)  # fmt: skip
YAML_TOKENS = (
    "- ", "? ", ": ", "&a ", "*a", "*b", "<<: *a", "!!python/object/apply:os.system [x]", "!!str ", "!!int ", "!!float ",
    "!!bool ", "!own ", "---\n", "...\n", "%YAML 1.1\n", "|\n", ">-\n", "~", "yes", "no", ".inf", ".nan", "1e-4", "190:20:30",
    "2026-01-01", "0o17", "0b1", "'", '"', "# c\n", "\n  ", "\n", "{", "}", "[", "]", "@", "`", *STRANGE,
)  # fmt: skip
HUGE = (
    10**18, 2**63, -(2**63) - 1, 10**99, 10**308, 10**400, -(10**400), 1e308, -1e308, 5e-324, 0.1, -0.0, float("nan"), float("inf"),
    float("-inf"), "1" * 5000, "1e999", "-1e400", "nan", "inf", "9" * 400, "1_000", " 4 ", "4.0", "\u0664", "0x10", "True", "CPU",
    "a\nb", "\x1b[31m", "\ud800", "\u2028", "x" * 300, "${X}", "<value>", "torch.float16", "adam", "AdamW", "WarmupLR", "StepLR",
    [[]], [None], [{}], [0.9, 0.999], ["a", 1], {"a": {"a": {}}}, {"": None}, {"enabled": "auto"}, {"device": "cpu"},
    {"device": ["cpu"]}, {"stage": {"stage": 3}}, {"type": ["AdamW"]}, {"params": []}, [[[[[[[[[[1]]]]]]]]]],
)  # fmt: skip
VALUES = (*ODD, *HUGE)
NAME = re.compile(r"(?<!\w)\w{1,60}(?=[\"']?[ \t]*:)")
VALUE = re.compile(r"(?<=:)[ \t]*[^\s,{}\[\]:]+")


def mutated(rng, text, tokens=TOKENS, others=()):
    """The text with a few changes."""
    for _ in range(rng.choice((1, 1, 1, 2, 3, 5, 10))):
        text = rng.choice(CHANGES)(rng, text, tokens, others)
    return text


def _span(rng, text, most=40):
    start = rng.randrange(len(text) + 1)
    return start, min(len(text), start + rng.randrange(1, most))


def _deleted(rng, text, tokens, others):
    start, end = _span(rng, text)
    return text[:start] + text[end:]


def _repeated(rng, text, tokens, others):
    start, end = _span(rng, text, 120)
    return text[:end] + text[start:end] * rng.choice((1, 1, 2, 30)) + text[end:]


def _moved(rng, text, tokens, others):
    start, end = _span(rng, text, 120)
    left, at = text[:start] + text[end:], rng.randrange(len(text) - (end - start) + 1)
    return left[:at] + text[start:end] + left[at:]


def _inserted(rng, text, tokens, others):
    at = rng.randrange(len(text) + 1)
    return text[:at] + rng.choice(tokens) + text[at:]


def _replaced(rng, text, tokens, others):
    start, end = _span(rng, text, 12)
    return text[:start] + rng.choice(tokens) + text[end:]


def _revalued(rng, text, tokens, others):
    """Another value behind a colon."""
    found = list(VALUE.finditer(text))
    if not found:
        return text
    one = rng.choice(found)
    return text[: one.start()] + " " + as_text(rng.choice(VALUES)) + text[one.end() :]


def _renamed(rng, text, tokens, others):
    found = list(NAME.finditer(text))
    if not found:
        return text
    one = rng.choice(found)
    return text[: one.start()] + rng.choice(NAMES) + text[one.end() :]


def _flipped(rng, text, tokens, others):
    if not text:
        return text
    at = rng.randrange(len(text))
    return text[:at] + chr(ord(text[at]) ^ 1 << rng.randrange(7)) + text[at + 1 :]


def _cut(rng, text, tokens, others):
    return text[: rng.randrange(len(text) + 1)]


def _crossed(rng, text, tokens, others):
    other = rng.choice(others) if others else text
    return text[: rng.randrange(len(text) + 1)] + other[rng.randrange(len(other) + 1) :]


def _nested(rng, text, tokens, others):
    at, depth = rng.randrange(len(text) + 1), rng.choice((2, 10, 45, 95, 99, 100, 101, 102, 2000))
    opened, closed = rng.choice((('{"a":', "}"), ("[", "]"), ("{", "}"), ("- ", ""), ("? ", ""), ("a: {", "}")))
    return text[:at] + opened * depth + "1" + closed * (depth if rng.random() < 0.8 else 0) + text[at:]


def _line_ends(rng, text, tokens, others):
    return text.replace("\n", rng.choice(("\r\n", "\r", "", "\n\n", " ")))


CHANGES = (_deleted, _deleted, _repeated, _moved, _inserted, _inserted, _inserted, _replaced, _replaced, _revalued, _revalued,
           _renamed, _renamed, _flipped, _cut, _crossed, _nested, _line_ends)  # fmt: skip


def as_text(value):
    """As JSON writes it; whole numbers of more digits than Python writes do not come here."""
    return json.dumps(value)


def damaged(rng, content):
    """Bytes with some of them changed, so that they are no UTF-8 as often as not."""
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 8))):
        at = rng.randrange(len(changed) + 1)
        what = rng.randrange(4)
        if what == 0 and at < len(changed):
            changed[at] ^= 1 << rng.randrange(8)
        elif what == 1:
            changed[at:at] = rng.choice((b"\xff", b"\xfe\xff", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\xc0\x80", b"\0", b"\x80"))
        elif what == 2:
            del changed[at : at + rng.randrange(1, 30)]
        else:
            changed[at:at] = rng.randbytes(rng.randrange(1, 6))
    return bytes(changed)


def odd_config(rng, config):
    """A copy with a few values, names and places changed."""
    config = copy.deepcopy(config)
    for _ in range(rng.choice((1, 1, 2, 3, 6, 12))):
        rng.choice((_odd_value, _odd_value, _odd_value, _misplaced, _misplaced, _wrapped, _misspelt, _section_gone))(rng, config)
    return config


def _section(config, path):
    """The object at a path, made where it is missing or something else."""
    for part in path.split(".") if path else ():
        if not isinstance(config.get(part), dict):
            config[part] = {}
        config = config[part]
    return config


def _odd_value(rng, config):
    known = KEYS[rng.choice(tuple(KEYS))]
    section = _section(config, known.section)
    near = (known.default, *known.choices, known.minimum, known.maximum)
    section[rng.choice((known.name, known.name, *known.aliases))] = copy.deepcopy(rng.choice((*VALUES, *near)))


def _misplaced(rng, config):
    _section(config, rng.choice(SECTIONS))[rng.choice(NAMES)] = copy.deepcopy(rng.choice(VALUES))


def _wrapped(rng, config):
    """A value inside a list or an object of its own."""
    if config:
        name = rng.choice(tuple(config))
        value = config[name]
        config[name] = rng.choice(([value], [value, value], {name: value}, {"params": value}, {"": value}))


def _misspelt(rng, config):
    known = KEYS[rng.choice(tuple(KEYS))]
    name, cut = known.name, rng.randrange(len(known.name))
    letter = rng.choice("aeiosz_-")
    wrong = (name[:cut] + name[cut + 1 :], name[:cut] + letter + name[cut:], name[:cut] + letter + name[cut + 1 :], name.upper())
    value = known.default if rng.random() < 0.6 else rng.choice(VALUES)
    _section(config, known.section)[rng.choice(wrong)] = copy.deepcopy(value)


def _section_gone(rng, config):
    if config:
        config.pop(rng.choice(tuple(config)))


def odd_launch(rng):
    """Fields for accelerate launch with any value."""
    inside = {name: rng.choice((*VALUES, 0, 1, 2, 3, "cpu", "nvme", "true", "false")) for name in rng.sample(FIELDS, rng.randrange(6))}
    if rng.random() < 0.4:
        inside[FILE] = rng.choice(("ds_config.json", "ds_config.json", "missing.json", "", ".", "/", "a\nb", 1, [1], "accelerate.yaml"))
    config = {"distributed_type": "DEEPSPEED", "num_processes": 8, SECTION: inside}
    for name in rng.sample(TOP, rng.randrange(3)):
        config[name] = rng.choice(VALUES)
    if rng.random() < 0.2:
        config[rng.choice(NAMES)] = rng.choice(VALUES)
    if rng.random() < 0.2:
        config.pop(rng.choice(tuple(config)))
    return config
