"""What LLaMA-Factory 0.9.5 refuses beside a ds_config: hparams/parser.py, get_train_args."""

from __future__ import annotations

from collections.abc import Iterator

from zeroplan.catalog.trainers.tools import LLAMA_FACTORY
from zeroplan.check.finding import ERROR, Hit
from zeroplan.check.rule import Rule, arguing
from zeroplan.check.rules.names import STAGE_2, STAGE_3
from zeroplan.check.subject import Subject

AT_STAGE_3 = ("predict_with_generate", "pissa_init", "pure_bf16", "use_unsloth", "use_kt")
"""Refused at stage 3 alone."""
ANYWHERE = ("use_galore", "use_apollo")
"""Refused at every stage."""
BADAM = "use_badam"
"""Refused below stage 3, and by ratio at every stage."""
WORDS = (*AT_STAGE_3, *ANYWHERE, BADAM, "badam_mode")
LINK = "https://github.com/hiyouga/LLaMA-Factory/blob/main/src/llamafactory/hparams/parser.py"
FILE = "{model_name_or_path: x, finetuning_type: lora, bf16: true, per_device_train_batch_size: 8%s}"

RULES: tuple[Rule, ...] = (
    Rule(
        "ZP820", ERROR, "What LLaMA-Factory refuses beside DeepSpeed",
        "LLaMA-Factory 0.9.5: hparams/parser.py:get_train_args, run: ValueError",
        arguing(STAGE_3 % "", FILE % ", predict_with_generate: true", "train.yaml"),
        arguing(STAGE_2 % "", FILE % ", predict_with_generate: true", "train.yaml"), LINK,
    ),
)  # fmt: skip


def refused(subject: Subject) -> Iterator[Hit]:
    arguments = subject.setting.trainer_arguments
    if arguments is None or arguments.tool != LLAMA_FACTORY:
        return
    stage = subject.facts.stage
    for name in (*AT_STAGE_3, *ANYWHERE, BADAM):
        by_ratio = name == BADAM and arguments.stated("badam_mode") == "ratio"
        of_stage = (stage == 3) if name in AT_STAGE_3 else name != BADAM or stage != 3
        if not arguments.stated(name) or not (of_stage or by_ratio):
            continue
        where, write = f"stage {stage}", f"{name}: false"
        if by_ratio:
            where, write = "badam_mode ratio on several GPUs", "badam_mode: layer, at stage 3"
        elif name == BADAM:
            write = '"stage": 3'
        elif name in AT_STAGE_3:
            write += ', or "stage": 2'
        yield Hit("ZP820", subject.spelled("zero_optimization.stage"), f"{name} ({arguments.place(name)}) at {where}: "
                  "LLaMA-Factory stops", write)  # fmt: skip


CHECKS = (refused,)
