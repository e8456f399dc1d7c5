"""The findings of a config in which other code, or another file, decides some values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from zeroplan.check.check import check
from zeroplan.check.document import Document
from zeroplan.check.finding import ERROR, Finding
from zeroplan.check.interpolated import Known
from zeroplan.check.named_config import Made
from zeroplan.check.rules import combinations, names, offload, optimizer, precision, scheduler, values
from zeroplan.check.setting import TRAINER, Setting

OF_ONE_KEY = frozenset(rule.id for room in (names, values) for rule in room.RULES)
"""Rules that one key and its value are enough for."""
ROOMS = (precision, optimizer, scheduler, offload, combinations)
OF_SEVERAL = frozenset(rule.id for room in ROOMS for rule in room.RULES)
"""Rules about keys that stand beside one another."""
STAGE = "zero_optimization.stage"
KEYS_SHOWN = 3


def alone(
    document: Document, unknown: Sequence[tuple[int, str]], setting: Setting, made: Made
) -> list[Finding]:
    """What one key and its value are enough for, and errors about others that are known with all that stands beside
    them. `unknown`: lines and paths of what something else decides.
    """
    setting = replace(setting, reader=TRAINER, reader_is_known=True)  # who fills in the "auto" that stands for them
    paths = [path for _, path in unknown]
    findings = check(document, made(document, setting, None))
    sure = [one for one in findings if one.rule in OF_ONE_KEY or (one.rule in OF_SEVERAL and _is_known(one, paths))]
    return [replace(one, write=one.write.replace(": null", ": ...")) if one.path in paths else one for one in sure]


def _is_known(finding: Finding, unknown: Sequence[str]) -> bool:
    """Whether it is an error whose section has nothing in it that is not known, nor below its own key."""
    section = finding.path.rpartition(".")[0]
    if finding.severity != ERROR or not finding.path or STAGE in unknown or any(" " in path for path in unknown):
        return False
    near = (path.rpartition(".")[0] == section or path.startswith(f"{finding.path}.") for path in unknown)
    return not any(near)


def decided(by: str, unknown: Sequence[tuple[int, str]]) -> str:
    keys = [*(path for _, path in unknown[:KEYS_SHOWN]), *["..."] * (len(unknown) > KEYS_SHOWN)]
    return f"{by} decides {', '.join(keys)}: what goes with that is not checked"


def of_interpolated(known: Known, setting: Setting, made: Made) -> tuple[list[Finding], str]:
    """Those of a config of which interpolations stand for a part, and a note that says for which."""
    (line, _path), *_others = known.unknown
    note = f"{known.document.name}:{line}: {decided('what ${...} stands for', known.unknown)}"
    return alone(known.document, known.unknown, setting, made), note
