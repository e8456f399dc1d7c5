"""1xx and 4xx: keys that DeepSpeed does not know, knows elsewhere, no longer knows, or knows twice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from zeroplan.check.arguments import TRAINER_ARGUMENTS
from zeroplan.check.edit import Edits, deleted, renamed, valued
from zeroplan.check.finding import ERROR, WARNING, Hit, named
from zeroplan.check.rule import ISSUE, REMOVALS, Rule, example
from zeroplan.check.rules import answers
from zeroplan.check.rules.elsewhere import at_home, likely
from zeroplan.check.subject import Entry, Subject
from zeroplan.deepspeed.keys import KEYS
from zeroplan.deepspeed.keys.removed import IGNORED_KEYS
from zeroplan.deepspeed.names import COMMENTS, OLD_NAMES, OLD_OFFLOADS, WITHOUT_EFFECT
from zeroplan.deepspeed.values import AUTO
from zeroplan.deepspeed.versions import read_elsewhere

OK = '{"train_batch_size": 8, "bf16": {"enabled": true}}'
STAGE_3 = ('{"train_batch_size": 8, "bf16": {"enabled": true}, '
           '"zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": true%s}}')  # fmt: skip
STAGE_2 = '{"train_batch_size": 8, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2%s}}'
FP16 = '{"train_batch_size": 8, "fp16": {"enabled": true%s}}'
STRICT = "runtime/config_utils.py:DeepSpeedConfigModel.model_config, extra=forbid"
ZERO = "zero_optimization"
AUTOTP = "tensor_parallel.autotp_size"
SHORT = 40
"""Letters of a value that a replacement line repeats."""

RULES: tuple[Rule, ...] = (
    Rule(
        "ZP105", WARNING, "A key that DeepSpeed does not know, where it ignores such keys",
        "run: gradient_cliping is ignored without a word",
        example('{"train_batch_size": 8, "bf16": {"enabled": true}, "gradient_cliping": 1.0}'),
        example('{"train_batch_size": 8, "bf16": {"enabled": true}, "gradient_clipping": 1.0, "_note": "mine"}'),
        ISSUE + "653",
    ),
    Rule(
        "ZP106", WARNING, "A key that belongs into another section, where it is ignored", "runtime/config.py",
        example('{"train_batch_size": 8, "bf16": {"enabled": true}, "overlap_comm": true}'),
        example(STAGE_2 % ', "overlap_comm": true'),
    ),
    Rule(
        "ZP107", WARNING, "An option of the training script in DeepSpeed's config", "runtime/config.py",
        example('{"train_batch_size": 8, "bf16": {"enabled": true}, "gradient_checkpointing": true}'), example(OK),
    ),
    Rule(
        "ZP108", ERROR, "A key that DeepSpeed does not know, where it refuses such keys", STRICT,
        example(STAGE_2 % ', "overlap_com": true'), example(STAGE_2 % ', "overlap_comm": true'),
    ),
    Rule(
        "ZP302", ERROR, "A key of fp16 in bf16", STRICT,
        example('{"train_batch_size": 8, "bf16": {"enabled": true, "loss_scale": 0}}'), example(OK),
    ),
    Rule(
        "ZP303", ERROR, "apex's optimization level in fp16", STRICT,
        example(FP16 % ', "opt_level": "O2"'), example(FP16 % ""),
    ),
    Rule(
        "ZP410", ERROR, "A spelling of an offload section that DeepSpeed does not know", STRICT,
        example(STAGE_3 % ', "cpu_offload_params": true'), example(STAGE_3 % ', "offload_param": {"device": "cpu"}'),
        ISSUE + "912",
    ),
    Rule(
        "ZP412", ERROR, "A key of the top level in zero_optimization", STRICT,
        example(STAGE_2 % ', "gradient_clipping": 1.0'), example(OK),
    ),
    Rule(
        "ZP507", ERROR, "A key of one offload section in the other", STRICT,
        example(STAGE_3 % ', "offload_optimizer": {"device": "cpu", "buffer_size": 100000000}'),
        example(STAGE_3 % ', "offload_param": {"device": "cpu", "buffer_size": 100000000}'),
    ),
    Rule(
        "ZP512", ERROR, "aio in zero_optimization", STRICT,
        example(STAGE_3 % ', "aio": {"queue_depth": 32}'), example(STAGE_3 % ""), ISSUE + "2721",
    ),
    Rule(
        "ZP408", WARNING, "A deprecated key", "runtime/config_utils.py:_process_deprecated_field",
        example(STAGE_2 % ', "cpu_offload": false'), example(STAGE_2 % ', "offload_optimizer": {"device": "none"}'),
    ),
    Rule(
        "ZP409", ERROR, "A deprecated key beside the one that replaces it",
        "runtime/config_utils.py:_process_deprecated_field",
        example(STAGE_2 % ', "cpu_offload": false, "offload_optimizer": {"device": "none"}'),
        example(STAGE_2 % ', "offload_optimizer": {"device": "none"}'),
    ),
    Rule(
        "ZP411", ERROR, "Two spellings of one key", "runtime/config_utils.py: populate_by_name and extra=forbid",
        example(STAGE_3 % ', "param_persistence_threshold": 1000, "stage3_param_persistence_threshold": 2000'),
        example(STAGE_3 % ', "param_persistence_threshold": 1000'),
    ),
    Rule(
        "ZP413", ERROR, "A key of ZeRO that was removed", "runtime/config.py:_reject_removed_config_keys",
        example(STAGE_3 % ', "mics_shard_size": 8'), example(STAGE_3 % ""), REMOVALS, since="0.19.7",
    ),
    Rule(
        "ZP414", ERROR, "A section that was removed, refused whatever it says",
        "runtime/config.py:_reject_removed_config_keys",
        example('{"train_batch_size": 8, "bf16": {"enabled": true}, "elasticity": {"enabled": false}}'), example(OK),
        REMOVALS, since="0.19.7",
    ),
    Rule(
        "ZP510", WARNING, "A key of aio that DeepSpeed does not know", "runtime/swap_tensor/aio_config.py",
        example(STAGE_3 % ', "offload_param": {"device": "nvme", "nvme_path": "/nvme"}}, "aio": {"thread_count": 8'),
        example(STAGE_3 % ', "offload_param": {"device": "nvme", "nvme_path": "/nvme"}}, "aio": {"queue_depth": 8'),
    ),
    Rule(
        "ZP617", WARNING, "lr_scheduler, which DeepSpeed calls scheduler", "run: ignored without a word",
        example('{"train_batch_size": 8, "bf16": {"enabled": true}, "lr_scheduler": {"type": "WarmupLR"}}'),
        example('{"train_batch_size": 8, "bf16": {"enabled": true}, "scheduler": {"type": "WarmupLR", "params": {}}}'),
    ),
)  # fmt: skip
LOOK_ALIKES = {"cpu_offload_params": "offload_param", "cpu_offload_optimizer": "offload_optimizer",
               "offload_params": "offload_param", "offload_optimizers": "offload_optimizer"}  # fmt: skip
LARGE = 1000
"""From which on a number is a count, whatever point it has."""
OF_ACCELERATE = {
    "zero_stage": '"stage" in zero_optimization', "zero3_init_flag": "zero3_init_flag in Accelerate's own file",
    "zero3_save_16bit_model": '"stage3_gather_16bit_weights_on_model_save" in zero_optimization',
}  # fmt: skip
"""Fields of Accelerate's that people write here, and what to write instead."""
OFFLOADS = (f"{ZERO}.offload_param", f"{ZERO}.offload_optimizer")


def unknown_keys(subject: Subject) -> Iterator[Hit]:
    for entry in subject.entries:
        if entry.known is not None or entry.section in subject.table.open or _removed(subject, entry):
            continue
        if entry.section in subject.table.strict:
            if entry.value != AUTO or entry.section in subject.table.keeps_auto:
                yield _refused(subject, entry)
        elif not entry.name.startswith(COMMENTS):
            yield _ignored(subject, entry)


def _of_another_version(subject: Subject, entry: Entry) -> Hit | None:
    """A key that newer versions read, or older ones did."""
    version, strict = subject.setting.version, entry.section in subject.table.strict
    versions = read_elsewhere(entry.section, entry.name, version)
    if versions is None or entry.name in IGNORED_KEYS or f"{entry.section}.{entry.name}" in IGNORED_KEYS:
        return None
    newer, older = versions
    read = f"is read from DeepSpeed {newer} on" if newer else f"was read until DeepSpeed {older}"
    does = "refuses it" if strict else "ignores it without a word"
    write = f'delete it, or pip install "deepspeed>={newer}"' if newer else "delete it"
    if (entry.section, entry.name) == ("compile", "enabled"):
        write = "delete it; engine.compile() in the script compiles"
    return Hit("ZP108" if strict else "ZP105", entry.path, f"{named(entry.name)} {read}: {version} {does}", write)


def _refused(subject: Subject, entry: Entry) -> Hit:
    section, name = entry.section, entry.name
    if (other := _of_another_version(subject, entry)) is not None:
        return other
    rule, home = "ZP108", at_home(name, subject.table)
    # In tensor_parallel.tp it would be known, and turn nothing on.
    if section == "tensor_parallel" and name == "tp_size" and subject.table.key(AUTOTP):
        new = AUTOTP.rpartition(".")[2]
        return Hit("ZP108", entry.path, f"{name} is no key of {section}: DeepSpeed refuses it",
                   f'"{new}": {_short(entry.value)}', edits=renamed(subject.document, entry.path, new))
    if section == "bf16" and any(known.name == name for known in subject.table.children("fp16")):
        return Hit("ZP302", entry.path, f"{name} belongs to fp16: DeepSpeed refuses it in bf16", "delete it",
                   edits=deleted(subject.document, entry.path))
    if section == "fp16" and name in ("opt_level", "fp16_opt_level"):
        return Hit("ZP303", entry.path, f"{name} was apex's: DeepSpeed refuses it", "delete it",
                   edits=deleted(subject.document, entry.path))
    if section == ZERO and name in LOOK_ALIKES:
        return Hit("ZP410", entry.path, f"{name} is no key of zero_optimization: DeepSpeed refuses it",
                   *_offload(subject, entry, LOOK_ALIKES[name]))
    edits = answers.place(subject, entry, home) if home else answers.key(subject, entry)
    if section in OFFLOADS and any(f"{other}.{name}" in home for other in OFFLOADS):
        rule, edits = "ZP507", ()
    elif section == ZERO and name in home:
        rule = "ZP512" if name == "aio" else "ZP412"
    return Hit(rule, entry.path, f"{named(name)} is no key of {section}: DeepSpeed refuses it",
               _instead(subject, entry, home), edits=edits)


def _ignored(subject: Subject, entry: Entry) -> Hit:
    section, name, home = entry.section or "the top level", entry.name, at_home(entry.name, subject.table)
    if (other := _of_another_version(subject, entry)) is not None:
        return other
    if name in IGNORED_KEYS or f"{entry.section}.{name}" in IGNORED_KEYS:
        new = IGNORED_KEYS.get(name) or IGNORED_KEYS[f"{entry.section}.{name}"]
        rule = "ZP617" if name == "lr_scheduler" else "ZP510"
        return Hit(rule, entry.path, f"DeepSpeed ignores {name} without a word; it reads {new}",
                   f'"{new.rpartition(".")[2]}": ...',
                   edits=answers.moved_to(subject, entry.path, KEYS[new], entry.value) if entry.section else ())
    if entry.section == "bf16" and any(known.name == name for known in subject.table.children("fp16")):
        return Hit("ZP106", entry.path, f"{name} belongs to fp16: DeepSpeed ignores it in bf16", "delete it",
                   edits=deleted(subject.document, entry.path))
    if not entry.section and name in OF_ACCELERATE:
        return Hit("ZP107", entry.path, f"{name} is a field of Accelerate's deepspeed_config: DeepSpeed ignores it",
                   OF_ACCELERATE[name])  # fmt: skip
    if not entry.section and name in TRAINER_ARGUMENTS:
        return Hit("ZP107", entry.path, f"{name} is an option of the training script: DeepSpeed ignores it",
                   "delete it here, and set it there")  # fmt: skip
    rule = "ZP510" if entry.section == "aio" else "ZP106" if home else "ZP105"
    return Hit(rule, entry.path, f"{named(name)} is no key of {section}: DeepSpeed ignores it without a word",
               _instead(subject, entry, home),
               edits=answers.place(subject, entry, home) if home else answers.key(subject, entry))  # fmt: skip


def _instead(subject: Subject, entry: Entry, home: tuple[str, ...]) -> str:
    if home:
        return "move it to " + " or ".join(path.rpartition(".")[0] or "the top level" for path in home[:3])
    near = likely(entry, subject.table)
    is_there = near and subject.stated(f"{entry.section}.{near}" if entry.section else near) is not None
    takes = near and not is_there and answers.takes(subject, entry, near)
    return f'"{near}": {_short(entry.value)}' if takes else "delete it"


def _short(value: Any) -> str:
    """A value as a replacement line repeats it."""
    large = isinstance(value, float) and value.is_integer() and abs(value) >= LARGE
    text = json.dumps(int(value) if large else value)
    return text if len(text) <= SHORT else "..."


def _removed(subject: Subject, entry: Entry) -> bool:
    return f"{entry.section}.{entry.name}".lstrip(".") in subject.table.removed


def removed_keys(subject: Subject) -> Iterator[Hit]:
    for entry in subject.entries:
        if _removed(subject, entry):
            path = f"{entry.section}.{entry.name}" if entry.section else entry.name
            yield Hit("ZP413" if entry.section else "ZP414", entry.path,
                      f"{entry.name} was removed from DeepSpeed, which refuses it whatever it says",
                      subject.table.removed[path], edits=answers.removed(subject, entry))  # fmt: skip


def deprecated_keys(subject: Subject) -> Iterator[Hit]:
    section = subject.config.get(ZERO)
    if not isinstance(section, dict):
        return
    for old, new in {**OLD_OFFLOADS, **OLD_NAMES, WITHOUT_EFFECT: ""}.items():
        if old not in section or section[old] == AUTO:
            continue
        short = new.removeprefix("stage3_")
        if any(name in section and section[name] != AUTO for name in (new, short) if name):
            yield Hit("ZP409", (ZERO, old), f"{old} beside {new}, which replaces it: DeepSpeed refuses both together",
                      f"delete {old}",
                      edits=deleted(subject.document, (ZERO, old)) if _agree(section, old, new) else ())  # fmt: skip
        elif old in OLD_OFFLOADS:
            entry = Entry((ZERO, old), ZERO, None, section[old])
            yield Hit("ZP408", (ZERO, old), f"{old} is deprecated; {new} replaces it", *_offload(subject, entry, new))
        elif new:
            yield Hit("ZP408", (ZERO, old), f"{old} is deprecated; {new} replaces it",
                      f'"{new}": {_short(section[old])}', edits=renamed(subject.document, (ZERO, old), new))
        else:
            yield Hit("ZP408", (ZERO, old), f"{old} is deprecated and does nothing",
                      '"pin_memory": true in offload_optimizer or offload_param',
                      edits=deleted(subject.document, (ZERO, old)))  # fmt: skip


def _offload(subject: Subject, entry: Entry, new: str) -> tuple[str, str, int | None, Edits]:
    """The rest of a finding about a switch that became a section: true is the CPU, false or null is nothing."""
    document, cpu = subject.document, '{"device": "cpu"}'
    if entry.value in (False, None):
        return "delete it", "", None, deleted(document, entry.path)
    new_name = renamed(document, entry.path, new)
    if isinstance(entry.value, dict):
        return f'"{new}": ...', "", None, new_name
    edits = (*new_name, *valued(document, entry.path, cpu)) if entry.value is True else ()
    return f'"{new}": {cpu}', "", None, edits


def _agree(section: dict[str, Any], old: str, new: str) -> bool:
    """Whether an old key says what the one beside it says."""
    beside = section.get(new, section.get(new.removeprefix("stage3_")))
    if old in OLD_NAMES:
        return section[old] is beside
    device = beside.get("device", "none") if isinstance(beside, dict) else None
    return isinstance(section[old], bool) and device is not None and section[old] == (device == "cpu")


def two_spellings(subject: Subject) -> Iterator[Hit]:
    seen: dict[tuple[tuple[str, ...], str], str] = {}
    for entry in subject.entries:
        if entry.known is None or entry.section not in subject.table.strict or entry.value == AUTO:
            continue
        place = (entry.path[:-1], entry.known.path)
        if place in seen and seen[place] != entry.name:
            yield Hit("ZP411", entry.path,
                      f"{entry.name} and {seen[place]} are one key: DeepSpeed refuses both together",
                      f"keep {entry.known.name}", edits=_one_of(subject, entry, seen[place]))  # fmt: skip
        seen[place] = entry.name


def _one_of(subject: Subject, entry: Entry, other: str) -> Edits:
    """The spelling gone that is not the table's own, where both say the same."""
    beside = (*entry.path[:-1], other)
    value = subject.document.members[beside].node.plain()
    if entry.known is None or entry.value != value or type(entry.value) is not type(value):
        return ()
    return deleted(subject.document, beside if entry.name == entry.known.name else entry.path)


CHECKS = (unknown_keys, removed_keys, deprecated_keys, two_spellings)
