"""The options that commands and functions share, each declared once: its type, how it is read, and its help.

`zeroplan.cli.options` makes click's options of the declarations, `zeroplan.api` its keyword arguments.
"""

# No `from __future__ import annotations` here: typing compiles each string, which a start has to wait for.
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict

from zeroplan.errors import UnknownNameError
from zeroplan.request import values
from zeroplan.request.values import CardMemory, Reader, Written
from zeroplan.specs.target import USUAL, Script

if TYPE_CHECKING:
    from zeroplan.specs.headroom import Headroom

MODEL, JOB, CLUSTER, GOAL = "Model", "Job", "Cluster", "Goal"
"""Panels of the help."""


class Option(NamedTuple):
    """One option: how its value is read, and what the help says of it."""

    read: Reader
    panel: str
    metavar: str
    text: str
    usual: str | None = None
    """What it is where nobody says, if the help shows it."""
    repeats: bool = False
    """It may be typed several times; its values are read together."""


def option(
    read: Reader, panel: str, metavar: str, text: str, usual: str | None = None, *, repeats: bool = False
) -> Any:
    """A field of a dataclass of options; None where nothing was stated."""
    return field(default=usual, metadata={"option": Option(read, panel, metavar, text, usual, repeats)})


def declared(kind: type) -> dict[str, Option]:
    """The options of a dataclass, by name."""
    return {each.name: each.metadata["option"] for each in fields(kind) if each.metadata}


def read_fields(holder: Any, stated: Mapping[str, Any], options: Mapping[str, Option]) -> None:
    """Put what is stated into a frozen dataclass, read. Raises `ZeroplanError`."""
    for name, value in stated.items():
        if value is not None:
            object.__setattr__(holder, name, options[name].read(name, value))


Precision = Literal["fp32", "fp16", "bf16", "fp8"]
Attention = Literal["eager", "sdpa", "flash_attention_2", "flash_attention_3"]
Kernels = Literal["transformers", "liger", "liger-loss"]
Device = Literal["none", "cpu", "nvme"]
BuiltIn = Literal["fp32", "fp16", "bf16"]
BuiltOn = Literal["host", "gpu"]
Backend = Literal["cuda", "cpu"]
AdapterDtype = Literal["training", "fp32"]
Quantize = Literal["nf4", "fp4", "int8"]
QuantStorage = Literal["bf16", "fp16", "fp32", "uint8"]


class ForScript:
    script: Script
    """What --for and --allow say, which are options of `recommend` alone."""


@dataclass(frozen=True, init=False, repr=False, eq=False)  # a start waits for each method that is made
class Options(ForScript):
    """What was stated, read; None where nothing was."""

    params: Written[int] | None = option(
        values.parameters, MODEL, "7B", "Parameter count, when only that is known."
    )
    model: str | None = option(values.text, MODEL, "NAME", "Preset, config.json or its folder, or org/name.")
    images: int | None = option(
        values.count("1"), MODEL, "N", "Images of each sequence, whose words are among its tokens. 0: text alone."
    )
    image_size: tuple[int, int] | None = option(
        values.image_size, MODEL, "HxW", "Their height and width in pixels, as the model's processor makes them."
    )
    image_tokens: int | None = option(
        values.integer("256"), MODEL, "N", "In place of it the tokens of each, which stand for the squarest such image."
    )
    target_seq: int | None = option(
        values.integer("128"), MODEL, "TOKENS", "Tokens of a target, of an encoder-decoder (as many as --seq)."
    )
    freeze: tuple[str, ...] | None = option(
        values.patterns, MODEL, "PATTERN",
        "Parameters that do not train. By their names, as in *embed_tokens*; may be repeated.", repeats=True,
    )  # fmt: skip
    train: tuple[str, ...] | None = option(
        values.patterns, MODEL, "PATTERN",
        "Parameters that train all the same. Without --freeze these alone; may be repeated.", repeats=True,
    )  # fmt: skip
    lora: int | None = option(
        values.adapter_rank, MODEL, "RANK", "LoRA adapters of this rank train. The weights stay frozen."
    )
    lora_targets: tuple[str, ...] | None = option(
        values.names, MODEL, "NAMES",
        "Layers that get adapters (all-linear). By the ends of their names, as in q_proj,v_proj.", repeats=True,
    )  # fmt: skip
    adapter: str | None = option(
        values.text, MODEL, "FILE", "Adapters as peft has them. Its adapter_config.json, or the folder with it."
    )
    adapter_dtype: AdapterDtype | None = option(
        values.choice(AdapterDtype), MODEL, "training|fp32",
        "The dtype that adapters are made in (training). fp32 is peft's own; it lasts under ZeRO-3 with zero.Init.",
    )  # fmt: skip
    quantize: Quantize | None = option(
        values.bits(Quantize), MODEL, "nf4|fp4|int8", "Frozen weights of linear layers lie in 4 or 8 bit (QLoRA)."
    )
    double_quant: bool | None = option(
        values.switch, MODEL, "yes|no", "Scales of 4-bit weights are quantized again (no)."
    )
    quant_storage: QuantStorage | None = option(
        values.choice(QuantStorage), MODEL, "bf16|fp16|fp32|uint8",
        "The dtype of the tensors that hold 4-bit weights (the training precision).",
    )  # fmt: skip
    config: str | None = option(
        values.text, JOB, "FILE", "The strategy is that of this ds_config.json. - is standard input."
    )
    seq: int | None = option(
        values.integer("2048"), JOB, "TOKENS", "Tokens of a sequence (2048). Or the model's positions, if fewer."
    )
    micro_batch: int | None = option(values.integer(), JOB, "N", "Sequences per GPU and micro-step.")
    grad_accum: int | None = option(values.integer(), JOB, "N", "Micro-steps per optimizer step.")
    global_batch: int | None = option(
        values.integer(), JOB, "N", "Sequences per step over all GPUs (train_batch_size)."
    )
    precision: Precision | None = option(
        values.choice(Precision), JOB, "fp32|fp16|bf16|fp8", "Training precision (bf16)."
    )
    optimizer: str | None = option(
        values.optimizer, JOB, "NAME",
        "Optimizer (adamw). One of adam, adamw, sgd, sgd-momentum, adagrad, lion, lamb, adafactor, adam8bit and muon.",
    )  # fmt: skip
    optim: str | None = option(
        values.optim, JOB, "NAME",
        "Optimizer as TrainingArguments name it. The Trainer makes it, for a config without an optimizer section: "
        "adamw_torch_fused (its choice from torch 2.8 on), adamw_torch, adamw_bnb_8bit and others; -single-tensor "
        "behind adamw_torch, sgd or adagrad: as torch before 2.0 updates.",
    )  # fmt: skip
    checkpointing: str | None = option(
        values.checkpointing, JOB, "KIND",
        "Activation checkpointing (none), such as full. Of all layers (full), of every K-th (every-K: transformers' "
        "activation_checkpointing_enable with every_n_layers), or of attention alone (selective: transformers' "
        "AttentionInterface through torch.utils.checkpoint); -reentrant behind full or every-K: use_reentrant=True; "
        "selective-products: torch's create_selective_checkpoint_contexts, which keeps what products and fused "
        "attention give; deepspeed: deepspeed.checkpointing, configured with the activation_checkpointing of "
        "--config.",
    )  # fmt: skip
    attention: Attention | None = option(
        values.attention, JOB, "NAME",
        "Whose attention runs (sdpa). Of transformers itself (eager), torch's kernels (sdpa), or those of the "
        "flash-attention package: flash_attention_2 (or flash), flash_attention_3.",
    )  # fmt: skip
    kernels: Kernels | None = option(
        values.choice(Kernels), JOB, "transformers|liger|liger-loss",
        "Whose operators the model runs. Those of transformers (default), of Liger (use_liger_kernel), or of Liger its "
        "fused linear cross-entropy alone.",
    )  # fmt: skip
    stage: Literal[0, 1, 2, 3] | None = option(values.stage, JOB, "0|1|2|3", "ZeRO stage (all four when left out).")
    offload_optimizer: Device | None = option(
        values.device, JOB, "none|cpu|nvme", "Where optimizer states live."
    )
    offload_param: Device | None = option(
        values.device, JOB, "none|cpu|nvme", "Where parameters live between uses (stage 3)."
    )
    zero_init: bool | None = option(
        values.switch, JOB, "yes|no", "Build the model under deepspeed.zero.Init (at stage 3: yes)."
    )
    built_in: BuiltIn | None = option(
        values.choice(BuiltIn), JOB, "fp32|fp16|bf16",
        "The dtype in which the model is built. Before DeepSpeed casts it (the training precision).",
    )  # fmt: skip
    built_on: BuiltOn | None = option(
        values.choice(BuiltOn), JOB, "host|gpu",
        "Where it is built and cast. On the host, as under the Trainer (default), or on the GPU, as with device_map.",
    )  # fmt: skip
    backend: Backend | None = option(
        values.choice(Backend), JOB, "cuda|cpu", "DeepSpeed's accelerator (cuda)."
    )
    rank: int | str | None = option(values.rank, JOB, "N", "The rank to look at (that which needs most).")
    gpus: Written[tuple[int, ...]] | None = option(
        values.gpus, CLUSTER, "8|4x8|auto",
        "GPUs, or nodes x GPUs of a node. 8xA100 names the card too; auto: the fewest (recommend).",
    )  # fmt: skip
    gpu: str | None = option(values.text, CLUSTER, "NAME", "Card (see zeroplan gpus).")
    gpu_mem: CardMemory | None = option(
        values.card_memory, CLUSTER, "80|79.2GiB",
        "Memory of a card, as on its box. Or with its unit, as PyTorch shows it.",
    )  # fmt: skip
    headroom: "Written[Headroom] | None" = option(
        values.headroom, CLUSTER, "10%|4GiB", "What of each card stays free (else as much as fits asks for)."
    )
    host_mem: Written[int] | None = option(
        values.memory("GiB", "512GiB"), CLUSTER, "512GiB", "Host memory of one node."
    )
    nvme: Written[int] | None = option(values.memory("GB", "3.8TB"), CLUSTER, "3.8TB", "Local NVMe of one node.")
    cluster: str | None = option(
        values.text, CLUSTER, "NAME|FILE",
        "Node (see zeroplan clusters). Or a file that zeroplan calibrate has written.",
    )  # fmt: skip
    accept: Literal["tight"] | None = option(
        values.accepted, CLUSTER, "tight", "Exit with 0 for a plan that is tight too."
    )
    hostfile: str | None = option(values.text, CLUSTER, "FILE", "Hosts in DeepSpeed's format.")

    def __init__(self, script: Script = USUAL, **stated: Any) -> None:
        """`stated`: text as it is typed, or values of the option's type. Raises `ZeroplanError`."""
        object.__setattr__(self, "script", script)
        gpus, gpu = values.with_card(stated.get("gpus"), stated.get("gpu"))
        read_fields(self, {**stated, "gpus": gpus, "gpu": gpu}, OPTIONS)

    def replace(self, **stated: Any) -> "Options":
        """The same options with these values, read."""
        return Options(**{**vars(self), **stated})


OPTIONS = declared(Options)
"""All options, in the order of the help."""
TRAINED = (
    "lora", "lora_targets", "adapter", "adapter_dtype", "quantize", "double_quant", "quant_storage", "freeze", "train",
)  # fmt: skip
"""Those that say what trains."""

Path = str | PathLike[str]
Number = str | float
"""Text as it is typed, or a number."""
Numbers = Number | Sequence[Number]
"""Or several, where the command takes them."""
Paths = Path | Sequence[Path]


class Words(TypedDict, total=False):
    """The same as keyword arguments, for type checkers: text, Python's own values, and lists where these are taken."""

    params: Numbers | None
    model: Paths | None
    images: Number | None
    image_size: str | Sequence[int] | None
    image_tokens: Number | None
    target_seq: Number | None
    freeze: str | Sequence[str] | None
    train: str | Sequence[str] | None
    lora: Number | None
    lora_targets: str | Sequence[str] | None
    adapter: Path | None
    adapter_dtype: str | None
    quantize: str | None
    double_quant: str | bool | None
    quant_storage: str | None
    config: Paths | None
    seq: Numbers | None
    micro_batch: Numbers | None
    grad_accum: Numbers | None
    global_batch: Numbers | None
    precision: str | Sequence[str] | None
    optimizer: str | Sequence[str] | None
    optim: str | Sequence[str] | None
    checkpointing: str | Sequence[str] | None
    attention: str | Sequence[str] | None
    kernels: str | Sequence[str] | None
    stage: Numbers | None
    offload_optimizer: str | Sequence[str] | None
    offload_param: str | Sequence[str] | None
    zero_init: str | bool | None
    built_in: str | Sequence[str] | None
    built_on: str | None
    backend: str | None
    rank: Number | None
    gpus: Numbers | None
    gpu: str | Sequence[str] | None
    gpu_mem: Numbers | None
    headroom: Number | None
    host_mem: Number | None
    nvme: Number | None
    cluster: Paths | None
    accept: str | None
    hostfile: Path | None


def stated(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options that have a value. Raises `UnknownNameError` for what is no option."""
    for name in given:
        if name not in OPTIONS:
            raise UnknownNameError("option", name, OPTIONS)
    return {name: given[name] for name in OPTIONS if given.get(name) is not None}
