"""Configs of DeepSpeed's PipelineModule."""

from __future__ import annotations

from collections.abc import Iterator

from zeroplan.check.finding import ADVICE, ERROR, WARNING, Hit
from zeroplan.check.rule import Example, Rule
from zeroplan.check.rules.wrong_steps import STEPS, ZERO, micro_batches
from zeroplan.check.subject import Subject

LINK = "https://www.deepspeed.ai/tutorials/pipeline/"
CODE = (
    "from deepspeed.pipe import PipelineModule\nnet = PipelineModule(layers=layers, num_stages=2)\n"
    "deepspeed.initialize(model=net, config={'train_micro_batch_size_per_gpu': 1, 'gradient_accumulation_steps': %d,\n"
    "    'bf16': {'enabled': True}, 'zero_optimization': {'stage': %d}})\n"
)

RULES: tuple[Rule, ...] = (
    Rule(
        "ZP718", ERROR, "A PipelineModule at stage 2 or 3",
        "runtime/pipe/engine.py:PipelineEngine, run: AssertionError",
        Example(CODE % (4, 2), file="train.py"), Example(CODE % (4, 1), file="train.py"), LINK,
    ),
    Rule(
        "ZP719", WARNING, "A PipelineModule with accumulation in releases that sum its gradients",
        "runtime/engine.py:_backward_prologue of 0.16.0 to 0.18.2, run: the sum of micro-batches and not their mean",
        Example(CODE % (4, 1), (("version", "0.18.2"),), file="train.py"),
        Example(CODE % (4, 1), (("version", "0.18.3"),), file="train.py"), LINK, since="0.16.0", until="0.18.3",
    ),
    Rule(
        "ZP720", ERROR, "A PipelineModule without steps_per_print in releases that divide by it",
        "runtime/pipe/engine.py:train_batch of 0.15.2 to 0.16.4, run: TypeError",
        Example(CODE % (1, 1), (("version", "0.16.4"),), file="train.py"),
        Example(CODE % (1, 1), (("version", "0.19.8"),), file="train.py"), LINK, since="0.15.2", until="0.16.5",
    ),
)  # fmt: skip
SHARDS_GRADIENTS, PRINTED = (2, 3), "steps_per_print"


def at_stage_2_or_3(subject: Subject) -> Iterator[Hit]:
    if subject.setting.pipeline and subject.facts.stage in SHARDS_GRADIENTS:
        what = f"a PipelineModule at stage {subject.facts.stage}: DeepSpeed stops, its stages keep all gradients"
        write = '"stage": 1, or --no-pipeline-parallel of Megatron-DeepSpeed, pipe_parallel_size 0 of GPT-NeoX'
        yield Hit("ZP718", subject.spelled(f"{ZERO}.stage"), what, write)


def summed_gradients(subject: Subject) -> Iterator[Hit]:
    count = micro_batches(subject)
    if subject.setting.pipeline and count != 1 and subject.facts.stage not in SHARDS_GRADIENTS:
        what = (f"DeepSpeed {subject.setting.version} sums the gradients of {count or 'the'} micro-batches of a "
                "PipelineModule: a step as large as one of as many times the learning rate")  # fmt: skip
        yield Hit("ZP719", subject.spelled(STEPS), what, "deepspeed>=0.18.3", ADVICE if count is None else "")


def nothing_printed(subject: Subject) -> Iterator[Hit]:
    if subject.setting.pipeline and subject.facts.stage not in SHARDS_GRADIENTS and not subject.config.get(PRINTED):
        what = f"no {PRINTED} beside a PipelineModule: DeepSpeed {subject.setting.version} stops in the first step"
        yield Hit("ZP720", (PRINTED,), what, f'"{PRINTED}": 10')


CHECKS = (at_stage_2_or_3, summed_gradients, nothing_printed)
