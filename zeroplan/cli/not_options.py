"""Options that people type from other tools for jobs that are not planned: what is planned, and what to do instead."""

from __future__ import annotations

from typing import NamedTuple

import click

from zeroplan.errors import shortened


class Foreign(NamedTuple):
    words: tuple[str, ...]
    """As typed, without dashes and with - for _; one that ends in * stands for all that begin so."""
    answer: str


LONGEST = 300
"""Letters of what click says of words."""
ADAPTERS = (
    "adapters are written --lora 16, with --lora-targets q_proj,v_proj for some layers alone, or --adapter FILE for "
    "what peft's own adapter_config.json says (DoRA, modules_to_save, ranks by layer)"
)
QUANTIZED = (
    "frozen weights in 4 or 8 bit are written --quantize nf4, fp4 or int8, beside --lora 16; with --double-quant yes "
    "and --quant-storage uint8 as BitsAndBytesConfig has them"
)
OTHER_BITS = "of quantized weights bitsandbytes' alone are planned: write --quantize nf4, or int8"
FROZEN = 'frozen weights are named by patterns of their parameters: write --freeze "*embed_tokens*"'
SECOND_MODEL = (
    "a second model (a reference, reward or teacher model) and generation are not planned: one model trains here with "
    "its own loss; plan the trained model alone, and keep room for the other with --headroom"
)
FSDP = "FSDP is not planned: the engine is DeepSpeed; ZeRO-3 shards what FSDP's full shard does, write --stage 3"
TENSOR = (
    "tensor parallelism is not planned: every GPU holds whole layers, sharded by ZeRO alone; write --stage 3 for "
    "models that one GPU does not hold"
)
PIPELINE = "pipeline parallelism is not planned: every GPU runs all layers; write --stage 3 for models of many layers"
SEQUENCE = (
    "sequence and context parallelism are not planned: every GPU computes whole sequences; write --checkpointing full "
    "for long ones"
)
EXPERT = "expert parallelism is not planned: experts are sharded by ZeRO as other weights are; write --stage 3"
PACKING = (
    "packing is not planned: every sequence has --seq tokens of one document; write --seq for the packed length"
)
IMAGES = (
    "images are said by their number and their size as the processor makes them: write --images 1 --image-size 448x448 "
    "with the config.json of a model of images"
)
VIDEO = "video and audio are not planned: models train here on text, or on text and images; leave it out"
OF_NO_STEP = "it changes neither the memory nor the time of a step; leave it out, and write --tokens for a whole run"
EVALUATION = "evaluation and generation are not planned: the numbers are of training steps; leave it out"

FOREIGN: tuple[Foreign, ...] = (
    Foreign(("lora-*", "use-lora", "with-lora", "dora", "use-dora", "use-rslora", "peft*", "use-peft", "adapter-*",
             "additional-target", "finetuning-type",
             "train-type", "tuner-type", "target-modules", "modules-to-save", "pissa-*"), ADAPTERS),
    Foreign(("qlora", "load-in-*", "quant*", "bnb-*", "double-quantization", "use-bnb-*"), QUANTIZED),
    Foreign(("gptq*", "awq*", "hqq*", "eetq*"), OTHER_BITS),
    Foreign(("freeze-*", "trainable-*", "unfrozen-parameters", "vision-tower*"), FROZEN),
    Foreign(("ref", "ref-*", "reference-*", "reward-*", "teacher*", "dpo", "ppo", "grpo", "rlhf*", "orpo", "kto",
             "vllm*", "draft-model"), SECOND_MODEL),
    Foreign(("fsdp*",), FSDP),
    Foreign(("tp", "tp-*", "tensor-parallel*", "tensor-model-parallel*", "autotp*"), TENSOR),
    Foreign(("pp", "pp-*", "pipeline*"), PIPELINE),
    Foreign(("sp", "sp-*", "cp", "cp-*", "sequence-parallel*", "context-parallel*", "ulysses*"), SEQUENCE),
    Foreign(("ep", "ep-*", "expert-*", "autoep*"), EXPERT),
    Foreign(("packing", "packing-*", "neat-packing", "sample-packing", "padding-free"), PACKING),
    Foreign(("image*", "max-pixels", "min-pixels", "max-image*"), IMAGES),
    Foreign(("video*", "audio*"), VIDEO),
    Foreign(("learning-rate", "lr", "lr-*", "min-lr", "warmup-*", "weight-decay", "adam-*", "num-train-epochs",
             "epochs", "max-steps", "logging-*", "save-*", "output-dir", "overwrite-output-dir", "report-to",
             "run-name", "seed", "do-train", "dataset*", "train-file", "push-to-hub", "ddp-timeout"), OF_NO_STEP),
    Foreign(("per-device-eval-*", "eval-*", "do-eval", "predict-with-generate", "max-new-tokens", "generation-*"),
            EVALUATION),
)  # fmt: skip


def not_planned(option: str) -> str | None:
    """What to say of an option that no command has, as it was typed; None where it is a word for nothing here."""
    word = option.lstrip("-").partition("=")[0].replace("_", "-").lower()
    for row in FOREIGN:
        for known in row.words:
            if word == known or (known.endswith("*") and word.startswith(known[:-1])):
                return f"{option.partition('=')[0]}: {row.answer}"
    return None


def refusal(error: click.ClickException) -> str:
    """What to say of words that no command has: what is planned in their place, what was meant, or what click says."""
    if isinstance(error, click.NoSuchOption):
        from zeroplan.cli.typos import unknown_option  # only on the way to an error

        return not_planned(error.option_name) or unknown_option(error)
    word = error.message.removeprefix("No such command '").removesuffix("'.")
    if word == error.message:
        message = error.format_message()
    elif word[:1].isdigit():
        return f"{word}: found a size, expected a command before it; write zeroplan estimate {word}"
    else:
        from zeroplan.cli.typos import unknown_command

        message = unknown_command(word)
    message = shortened(message, LONGEST)
    return f"{message}{'' if message.endswith(('.', '?', '?)')) else '.'} Write zeroplan -h for what there is."
