"""4xx: keys of zero_optimization that do nothing at this stage, or not what they seem to."""

from __future__ import annotations

from collections.abc import Iterator

from zeroplan.check.edit import valued
from zeroplan.check.finding import ADVICE, WARNING, Hit
from zeroplan.check.rule import Rule, example
from zeroplan.check.rules.names import STAGE_2, STAGE_3
from zeroplan.check.setting import ACCELERATE, TRAINER
from zeroplan.check.subject import Entry, Subject
from zeroplan.deepspeed.keys.key import STAGE_3 as ONLY_3
from zeroplan.deepspeed.keys.key import STAGES_1_2
from zeroplan.deepspeed.values import AUTO

ZERO = "zero_optimization"
OWN_RULES = (f"{ZERO}.offload_param", f"{ZERO}.zero_hpz_partition_size", f"{ZERO}.cpu_offload_param")
"""Sections and keys whose idleness has a rule of its own."""

RULES: tuple[Rule, ...] = (
    Rule(
        "ZP115", WARNING, "zero_optimization as a switch", "runtime/zero/config.py:read_zero_config_deprecated",
        example('{"train_batch_size": 8, "bf16": {"enabled": true}, "zero_optimization": true}'),
        example('{"train_batch_size": 8, "bf16": {"enabled": true}, "zero_optimization": {"stage": 1}}'),
    ),
    Rule(
        "ZP402", WARNING, "A key of stage 3 below stage 3", "run: accepted without a word, and read by stage3.py only",
        example(STAGE_2 % ', "stage3_max_live_parameters": 1000000000'),
        example(STAGE_3 % ', "stage3_max_live_parameters": 1000000000'),
    ),
    Rule(
        "ZP403", ADVICE, "A key of stages 1 and 2 at stage 3", "run: accepted without a word",
        example(STAGE_3 % ', "round_robin_gradients": true'), example(STAGE_2 % ', "round_robin_gradients": true'),
    ),
    Rule(
        "ZP407", WARNING, "elastic_checkpoint at stage 3", "runtime/zero/config.py:elastic_checkpoint_deprecated",
        example(STAGE_3 % ', "elastic_checkpoint": true'), example(STAGE_3 % ', "elastic_checkpoint": false'),
    ),
    Rule(
        "ZP415", WARNING, "Stage 3 saves no whole model", "runtime/engine.py:save_16bit_model",
        example('{"train_batch_size": "auto", "bf16": {"enabled": true}, "zero_optimization": {"stage": 3}}',
                reader="hf"),
        example(STAGE_3 % ""), "https://github.com/huggingface/transformers/issues/21482",
    ),
    Rule(
        "ZP420", ADVICE, "Gradients that are not laid side by side", "runtime/zero/stage_1_and_2.py:300,1441",
        example(STAGE_2 % ', "contiguous_gradients": false'), example(STAGE_2 % ', "contiguous_gradients": true'),
    ),
    Rule(
        "ZP421", WARNING, "ignore_unused_parameters off", "runtime/zero/stage_1_and_2.py:1934",
        example(STAGE_2 % ', "ignore_unused_parameters": false'),
        example(STAGE_2 % ', "ignore_unused_parameters": true'),
    ),
    Rule(
        "ZP424", WARNING, "Stage 3 keeps nothing that it has gathered", "6 public configs",
        example(STAGE_3 % ', "stage3_max_live_parameters": 0'),
        example(STAGE_3 % ', "stage3_max_live_parameters": 1000000000'),
    ),
)  # fmt: skip


def old_form(subject: Subject) -> Iterator[Hit]:
    value = subject.config.get(ZERO)
    if isinstance(value, bool):
        stage = int(value)
        yield Hit("ZP115", (ZERO,), f"{str(value).lower()} is an old form that means stage {stage}",
                  f'"{ZERO}": {{"stage": {stage}}}',
                  edits=() if "allgather_size" in subject.config else valued(subject.document, (ZERO,),
                                                                             f'{{"stage": {stage}}}'))  # fmt: skip


def idle_at_this_stage(subject: Subject) -> Iterator[Hit]:
    facts = subject.facts
    if not isinstance(subject.config.get(ZERO), dict):
        return
    for entry in subject.entries:
        known = entry.known
        if known is None or entry.section != ZERO or known.path in OWN_RULES or known.deprecated:
            continue
        if entry.value in (AUTO, None, False) or facts.stage in known.stages:
            continue
        if known.stages == ONLY_3 and not known.path.startswith(f"{ZERO}.zero_quantized"):
            yield Hit("ZP402", entry.path, f"{entry.name} does nothing at stage {facts.stage}, only at stage 3",
                      "delete it")
        elif known.stages == STAGES_1_2 and facts.stage == 3 and entry.value != known.default and not _has_own(entry):
            yield Hit("ZP403", entry.path, f"{entry.name} does nothing at stage 3", "delete it")


def _has_own(entry: Entry) -> bool:
    return entry.name == "elastic_checkpoint"


def elastic_checkpoint(subject: Subject) -> Iterator[Hit]:
    facts = subject.facts
    if facts.stage == 3 and facts(f"{ZERO}.elastic_checkpoint"):
        yield Hit("ZP407", subject.spelled(f"{ZERO}.elastic_checkpoint"),
                  "stage 3 has no elastic checkpoints: saving or "
                  "loading stops", '"checkpoint": {"load_universal": true} at the top level')  # fmt: skip


def whole_model(subject: Subject) -> Iterator[Hit]:
    facts, name = subject.facts, "stage3_gather_16bit_weights_on_model_save"
    if facts.stage != 3 or subject.setting.reader not in (TRAINER, ACCELERATE):
        return
    if subject.stated(f"{ZERO}.{name}") in (None, False):
        yield Hit("ZP415", subject.spelled(f"{ZERO}.{name}"), "stage 3 saves each rank's shard and no whole model; "
                  "zero_to_fp32.py then joins them", f'"{name}": true')  # fmt: skip


def unused_parameters(subject: Subject) -> Iterator[Hit]:
    facts = subject.facts
    if facts.stage in (1, 2) and not facts(f"{ZERO}.ignore_unused_parameters"):
        yield Hit("ZP421", subject.spelled(f"{ZERO}.ignore_unused_parameters"), "false: DeepSpeed stops at the first "
                  "parameter that gets no gradient", '"ignore_unused_parameters": true')  # fmt: skip


def scattered_gradients(subject: Subject) -> Iterator[Hit]:
    """Offloading lays them side by side whatever is stated."""
    facts = subject.facts
    if facts.stage != 2 or facts.offloads_optimizer:
        return
    if not facts(f"{ZERO}.contiguous_gradients"):
        yield Hit("ZP420", subject.spelled(f"{ZERO}.contiguous_gradients"), "each gradient is a tensor of its own "
                  "until it is reduced: memory falls to pieces", '"contiguous_gradients": true')  # fmt: skip


def gathers_again(subject: Subject) -> Iterator[Hit]:
    """A reuse distance of 0 alone frees memory where it is scarcest; what it costs, only a model tells."""
    live, reuse = f"{ZERO}.stage3_max_live_parameters", f"{ZERO}.stage3_max_reuse_distance"
    if subject.facts.stage != 3 or subject.stated(live) != 0:
        return
    for key in (live, reuse):
        if subject.stated(key) == 0:
            name = key.removeprefix(f"{ZERO}.")
            yield Hit("ZP424", subject.spelled(key), f"{name} 0: every module gathers its parameters anew",
                      f'"{name}": 1000000000')  # fmt: skip


CHECKS = (old_form, idle_at_this_stage, elastic_checkpoint, whole_model, unused_parameters, scattered_gradients,
          gathers_again)  # fmt: skip
