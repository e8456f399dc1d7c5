"""What LLaMA-Factory 0.9.5 refuses beside a ds_config: hparams/parser.py (get_train_args), model_utils/quantization.py,
and v1/plugins/model_plugins/deepspeed_utils.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from zeroplan.catalog.trainers.tools import LLAMA_FACTORY, LLAMA_FACTORY_1
from zeroplan.check.arguments import Arguments
from zeroplan.check.finding import ERROR, Hit
from zeroplan.check.rule import Rule, arguing
from zeroplan.check.rules.names import STAGE_2, STAGE_3
from zeroplan.check.subject import Subject
from zeroplan.deepspeed.values import AUTO

AT_STAGE_3 = ("predict_with_generate", "pissa_init", "pure_bf16", "use_unsloth", "use_kt")
"""Refused at stage 3 alone."""
ANYWHERE = ("use_galore", "use_apollo")
"""Refused at every stage."""
BADAM = "use_badam"
"""Refused below stage 3, and by ratio at every stage."""
MUON = "use_muon"
"""Its optimizer reads a key of its own groups, which ZeRO's have not: KeyError in the first step, run at 1, 2 and 3."""
BITS, METHOD, MODEL = "quantization_bit", "quantization_method", "model_name_or_path"
QUANTIZED = re.compile(r"-(?:awq|gptq)(?:-int[348])?$|-(?:bnb-)?4bit$|-int[48]$", re.IGNORECASE)
"""Ends of the names of models that are published as quantized weights."""
TAKEN = ("mxfp4", "fp8")
"""Methods of published weights that it takes at stage 3, and gives back their 16 bits
(model_utils/quantization.py:configure_quantization).
"""
OF_PREFERENCES = ("stage", "pref_loss", "finetuning_type", "ref_model")
WORDS = (*AT_STAGE_3, *ANYWHERE, BADAM, MUON, "badam_mode", BITS, METHOD, MODEL, *OF_PREFERENCES)
LINK = "https://github.com/hiyouga/LLaMA-Factory/blob/main/src/llamafactory/hparams/parser.py"
EVALUATED = ", dataset: d, val_size: 0.1, predict_with_generate: true"
FILE = "{model_name_or_path: x, finetuning_type: lora, bf16: true, per_device_train_batch_size: 8%s}"

RULES: tuple[Rule, ...] = (
    Rule(
        "ZP820", ERROR, "What LLaMA-Factory refuses beside DeepSpeed",
        "LLaMA-Factory 0.9.5: hparams/parser.py:get_train_args, run: ValueError",
        arguing(STAGE_3 % "", FILE % EVALUATED, "train.yaml"),
        arguing(STAGE_2 % "", FILE % EVALUATED, "train.yaml"), LINK,
    ),
)  # fmt: skip


def refused(subject: Subject) -> Iterator[Hit]:
    arguments = subject.setting.trainer_arguments
    if arguments is None or arguments.tool != LLAMA_FACTORY:
        return
    stage = subject.facts.stage
    if stage == 3 and (what := _quantized(arguments, subject.setting.quantized_by)):
        yield Hit("ZP820", subject.spelled("zero_optimization.stage"), f"{what} at stage 3: LLaMA-Factory stops",
                  f'{BITS}: 4, with {METHOD}: bnb, or "stage": 2')  # fmt: skip
    if stage and arguments.stated(MUON) and not subject.facts.offloads_optimizer:
        yield Hit("ZP820", subject.spelled("zero_optimization.stage"), f"{MUON} ({arguments.place(MUON)}) at stage "
                  f"{stage}: the first step stops", f"{MUON}: false")  # fmt: skip
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


def beside_a_reference(subject: Subject) -> Iterator[Hit]:
    """A reference model is prepared with the config before the Trainer fills it (trl 0.24, which LLaMA-Factory 0.9.5
    wants: trainer/utils.py:prepare_deepspeed, run).
    """
    arguments = subject.setting.trainer_arguments
    if arguments is None or arguments.tool != LLAMA_FACTORY or subject.facts.stage != 3:
        return
    compares = arguments.stated("stage") in ("dpo", "kto") and arguments.stated("pref_loss") not in ("orpo", "simpo")
    has_one = arguments.stated("finetuning_type") == "full" or arguments.stated("ref_model")
    for name in ("optimizer", "scheduler") if compares and has_one else ():
        section = subject.config.get(name)
        if isinstance(section, dict) and AUTO in (section.get("params") or {}).values():
            yield Hit("ZP820", (name,), f'"auto" in {name} beside a reference model ({arguments.place("stage")}): '
                      "it is prepared before anybody fills that, and DeepSpeed stops", "delete it")  # fmt: skip


def _quantized(arguments: Arguments, quantized_by: str) -> str:
    """What says that weights are loaded quantized, but for bitsandbytes' 4 bits, the only ones that it takes there."""
    bits, method, model = (arguments.stated(name) for name in (BITS, METHOD, MODEL))
    if isinstance(model, str) and (quantized_by or QUANTIZED.search(model)):
        how = f"by {quantized_by}" if quantized_by else "as published"
        return "" if quantized_by in TAKEN else f"{model}, quantized {how}, ({arguments.place(MODEL)})"
    if bits is None or (method in (None, "bnb", "bitsandbytes") and bits == 4):
        return ""
    name, value = (BITS, bits) if method in (None, "bnb", "bitsandbytes") else (METHOD, method)
    return f"{name} {value} ({arguments.place(name)})"


def refused_by_v1(subject: Subject) -> Iterator[Hit]:
    """What v1 takes of a config: bf16 or neither half, and no optimizer or schedule beside its own."""
    if subject.setting.tool != LLAMA_FACTORY_1:
        return
    if str(subject.facts("fp16.enabled")).lower() == "true":
        yield Hit("ZP820", subject.spelled("fp16.enabled"), "fp16: LLaMA-Factory v1 stops", '"bf16": {"enabled": true}')
    if "scheduler" in subject.config:
        yield Hit("ZP820", ("scheduler",), "a scheduler beside that of LLaMA-Factory v1: Accelerate stops", "delete it")


CHECKS = (refused, beside_a_reference, refused_by_v1)
