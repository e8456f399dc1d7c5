"""1xx: what changes for a file between two versions of DeepSpeed, beside what the newer one refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from zeroplan.check.finding import ADVICE, WARNING, Hit, named
from zeroplan.check.rule import Rule, example
from zeroplan.check.rules.machine import OFFLOADS, moving_offloads
from zeroplan.check.rules.names import STAGE_2
from zeroplan.check.subject import Subject
from zeroplan.deepspeed.defaults import FIELDS
from zeroplan.deepspeed.keys.key import Key
from zeroplan.deepspeed.versions import key_table
from zeroplan.errors import ZeroplanError
from zeroplan.units import gib

HISTORY = "the releases' own sources: keys/history.json"
CPU = ', "offload_optimizer": {"device": "cpu"%s}'

RULES: tuple[Rule, ...] = (
    Rule(
        "ZP122", ADVICE, "A default that is another one in the newer version", HISTORY,
        example(STAGE_2 % (CPU % ""), upgrade="0.19.4:0.19.8"),
        example((STAGE_2 % (CPU % ', "pin_memory": false'))[:-1] + ', "gradient_clipping": 1.0}',
                upgrade="0.19.4:0.19.8"),
    ),
    Rule(
        "ZP123", WARNING, "A key that the older version ignored and the newer reads", HISTORY,
        example('{"train_batch_size": 8, "bf16": {"enabled": true}, "torch_autocast": {"enabled": false, '
                '"dtype": "bfloat16"}}', upgrade="0.16.9:0.19.8"),
        example('{"train_batch_size": 8, "bf16": {"enabled": true}, "torch_autocast": {"enabled": false, '
                '"dtype": "bfloat16"}}', upgrade="0.18.3:0.19.8"),
    ),
)  # fmt: skip


def changed_defaults(subject: Subject) -> Iterator[Hit]:
    """Defaults that the newer version changes: of keys that the file leaves out, in sections that are on, with an
    effect at its stage.
    """
    older = subject.setting.upgrades_from
    if older is None:
        return
    before, facts = key_table(older).keys, subject.facts
    for path, known in subject.table.keys.items():
        was = before.get(path)
        spelled = subject.spelled(path)
        if was is None or was.default == known.default or len(spelled) > path.count("."):
            continue
        if facts.stage not in known.stages or not _is_used(subject, known):
            continue
        now, then = _json(known.default), _json(was.default)
        yield Hit("ZP122", spelled, f"{named(known.name)} is {now} where nothing says it, and was {then} in {older}"
                  f"{_bytes(subject, known, was.default)}", f'"{known.name}": {then} to keep what was')  # fmt: skip


def read_now(subject: Subject) -> Iterator[Hit]:
    older = subject.setting.upgrades_from
    if older is None:
        return
    before = key_table(older)
    for entry in subject.entries:
        known = entry.known
        if known is None or known.path in before.keys or known.section in before.strict:
            continue
        if known.section and known.section not in before.keys:
            continue  # its section says it
        yield Hit("ZP123", entry.path, f"{named(entry.name)} was ignored by {older}, and {subject.setting.version} "
                  "reads it", "delete it to keep what was")  # fmt: skip


def _is_used(subject: Subject, known: Key) -> bool:
    """Whether what it belongs to is on: an offload that moves something, a precision that is enabled."""
    facts = subject.facts
    if known.section in OFFLOADS:
        return known.section in moving_offloads(subject)
    if known.section in ("fp16", "bf16"):
        return facts(f"{known.section}.enabled") is True
    return not known.section or subject.stated(known.section) is not None


def _json(value: Any) -> str:
    return json.dumps(value) if value is not None else "nothing"


def _bytes(subject: Subject, known: Key, was: Any) -> str:
    """By how much the job holds more or less, as the newest version counts; empty without a model."""
    planned, changes = subject.setting.planned, dict[str, Any]()
    if planned is None or planned.job is None:
        return ""
    if known.path in FIELDS:
        changes = {FIELDS[known.path]: was}
    elif known.section in OFFLOADS and known.name == "pin_memory":
        field = known.section.rpartition(".")[2]
        changes = {field: getattr(planned.job.strategy, field)._replace(pin_memory=was)}
    if not changes:
        return ""
    try:
        now, then = planned.candidate.fit, planned.at(**changes).fit
    except ZeroplanError:
        return ""
    places = (("each GPU", now.gpu.needed - then.gpu.needed), ("a host", now.host.needed - then.host.needed))
    parts = [f"{gib(abs(by))} {'more' if by > 0 else 'less'} of {place}" for place, by in places if by]
    return f": {' and '.join(parts)}" if parts else ": as many bytes"


CHECKS = (read_now, changed_defaults)
