"""The options that commands share, declared once. Values stay text here: `request` reads them, and its errors
say what to write. Panels group them in the help.
"""

# No `from __future__ import annotations` here: typer evaluates each string at start-up, which costs milliseconds.
import inspect
from collections.abc import Callable, Collection
from functools import wraps
from typing import Annotated, Any

import typer

from zeroplan.cli.values import as_options_have_it, with_card
from zeroplan.specs.target import USUAL, Script

MODEL, JOB, CLUSTER, OUTPUT = "Model", "Job", "Cluster", "Output"


def _option(name: str, panel: str, text: str, metavar: str) -> Any:
    return typer.Option(name, help=text, metavar=metavar, rich_help_panel=panel, show_default=False)


Json = Annotated[bool, typer.Option("--json", help="Machine-readable: bytes as integers.", rich_help_panel=OUTPUT)]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Only the answer.", rich_help_panel=OUTPUT)]
Verbose = Annotated[
    int,
    typer.Option("-v", "--verbose", count=True, help="All tables; -vv: each of their lines.", rich_help_panel=OUTPUT),
]

Text = str | None


class Options:
    """What was typed; None where nothing was."""

    def __init__(self, script: Script = USUAL, /, **typed: str | None) -> None:
        """`script`: what --for and --allow say, which are options of `recommend` alone."""
        for name in self.__annotations__:
            text = typed.get(name)
            setattr(self, name, text and as_options_have_it(name, text))
        self.gpus, self.gpu = with_card(self.gpus, self.gpu)
        self.script = script

    params: Annotated[Text, _option("--params", MODEL, "Parameter count, when only that is known.", "7B")] = None
    model: Annotated[
        Text, _option("--model", MODEL, "Preset, config.json or its folder, or org/name.", "NAME")
    ] = None
    config: Annotated[
        Text, _option("--config", JOB, "The strategy is that of this ds_config.json. - is standard input.", "FILE")
    ] = None
    seq: Annotated[Text, _option("--seq", JOB, "Tokens of a sequence (2048). Or the model's positions, if fewer.",
                                 "TOKENS")] = None  # fmt: skip
    micro_batch: Annotated[Text, _option("--micro-batch", JOB, "Sequences per GPU and micro-step.", "N")] = None
    grad_accum: Annotated[Text, _option("--grad-accum", JOB, "Micro-steps per optimizer step.", "N")] = None
    global_batch: Annotated[
        Text, _option("--global-batch", JOB, "Sequences per step over all GPUs (train_batch_size).", "N")
    ] = None
    precision: Annotated[Text, _option("--precision", JOB, "Training precision (bf16).", "fp32|fp16|bf16|fp8")] = None
    optimizer: Annotated[
        Text,
        _option("--optimizer", JOB, "Optimizer (adamw). One of adam, adamw, sgd, sgd-momentum, adagrad, lion, lamb, "
                "adafactor, adam8bit and muon.", "NAME"),
    ] = None  # fmt: skip
    optim: Annotated[
        Text,
        _option("--optim", JOB, "Optimizer as TrainingArguments name it. The Trainer makes it, for a config without an "
                "optimizer section: adamw_torch_fused (its choice from torch 2.8 on), adamw_torch, adamw_bnb_8bit and "
                "others; -single-tensor behind adamw_torch, sgd or adagrad: as torch before 2.0 updates.",
                "NAME"),
    ] = None  # fmt: skip
    checkpointing: Annotated[
        Text,
        _option("--checkpointing", JOB, "Activation checkpointing (none), such as full. Of all layers (full), of every "
                "K-th (every-K: transformers' activation_checkpointing_enable with every_n_layers), or of attention "
                "alone (selective: transformers' AttentionInterface through torch.utils.checkpoint); -reentrant behind "
                "full or every-K: use_reentrant=True; selective-products: torch's "
                "create_selective_checkpoint_contexts, which keeps what products and fused attention give; "
                "deepspeed: deepspeed.checkpointing, configured with the activation_checkpointing of --config.",
                "KIND"),
    ] = None  # fmt: skip
    attention: Annotated[
        Text,
        _option("--attention", JOB, "Whose attention runs (sdpa). Of transformers itself (eager), torch's kernels "
                "(sdpa), or those of the flash-attention package: flash_attention_2 (or flash), flash_attention_3.",
                "NAME"),
    ] = None  # fmt: skip
    kernels: Annotated[
        Text,
        _option("--kernels", JOB, "Whose operators the model runs. Those of transformers (default), of Liger "
                "(use_liger_kernel), or of Liger its fused linear cross-entropy alone.",
                "transformers|liger|liger-loss"),
    ] = None  # fmt: skip
    stage: Annotated[Text, _option("--stage", JOB, "ZeRO stage (all four when left out).", "0|1|2|3")] = None
    offload_optimizer: Annotated[
        Text, _option("--offload-optimizer", JOB, "Where optimizer states live.", "none|cpu|nvme")
    ] = None
    offload_param: Annotated[
        Text, _option("--offload-param", JOB, "Where parameters live between uses (stage 3).", "none|cpu|nvme")
    ] = None
    zero_init: Annotated[
        Text, _option("--zero-init", JOB, "Build the model under deepspeed.zero.Init (at stage 3: yes).", "yes|no")
    ] = None
    built_in: Annotated[
        Text,
        _option("--built-in", JOB, "The dtype in which the model is built. Before DeepSpeed casts it (the training "
                "precision).", "fp32|fp16|bf16"),
    ] = None  # fmt: skip
    built_on: Annotated[
        Text,
        _option("--built-on", JOB, "Where it is built and cast. On the host, as under the Trainer (default), or on the "
                "GPU, as with device_map.", "host|gpu"),
    ] = None  # fmt: skip
    backend: Annotated[Text, _option("--backend", JOB, "DeepSpeed's accelerator (cuda).", "cuda|cpu")] = None
    rank: Annotated[Text, _option("--rank", JOB, "The rank to look at (that which needs most).", "N")] = None
    gpus: Annotated[
        Text, _option("--gpus", CLUSTER, "GPUs, or nodes x GPUs of a node. 8xA100 names the card too; auto: the fewest "
                      "(recommend).", "8|4x8|auto"),
    ] = None  # fmt: skip
    gpu: Annotated[Text, _option("--gpu", CLUSTER, "Card (see zeroplan gpus).", "NAME")] = None
    gpu_mem: Annotated[
        Text, _option("--gpu-mem", CLUSTER, "Memory of a card, as on its box. Or with its unit, as PyTorch shows it.",
                      "80|79.2GiB"),
    ] = None  # fmt: skip
    headroom: Annotated[
        Text,
        _option("--headroom", CLUSTER, "What of each card stays free (else as much as fits asks for).", "10%|4GiB"),
    ] = None
    host_mem: Annotated[Text, _option("--host-mem", CLUSTER, "Host memory of one node.", "512GiB")] = None
    nvme: Annotated[Text, _option("--nvme", CLUSTER, "Local NVMe of one node.", "3.8TB")] = None
    cluster: Annotated[
        Text,
        _option("--cluster", CLUSTER, "Node (see zeroplan clusters). Or a file that zeroplan calibrate has written.",
                "NAME|FILE"),
    ] = None  # fmt: skip
    accept: Annotated[
        Text, _option("--accept", CLUSTER, "Exit with 0 for a plan that is tight too.", "tight")
    ] = None
    hostfile: Annotated[Text, _option("--hostfile", CLUSTER, "Hosts in DeepSpeed's format.", "FILE")] = None


def flag(name: str) -> str:
    """An option as it is typed: --gpu-mem of gpu_mem."""
    return "--" + name.replace("_", "-")


Named = Annotated[Text, typer.Argument(metavar="[MODEL]", show_default=False)]


def with_options(
    function: Callable[..., None], without: Collection[str] = (), positional: bool = False
) -> Callable[..., None]:
    """Give a command the shared options but those named: it receives them as its first argument, an `Options`.

    `positional`: its first word names the model.
    """
    own = [p.replace(kind=p.KEYWORD_ONLY) for p in list(inspect.signature(function).parameters.values())[1:]]
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=None)
        for name, annotation in Options.__annotations__.items() if name not in without
    ]

    first = [inspect.Parameter("word", inspect.Parameter.KEYWORD_ONLY, annotation=Named, default=None)] * positional

    @wraps(function)
    def command(word: str | None = None, **values: Any) -> None:
        options = Options(**{p.name: values.pop(p.name) for p in shared})
        if word is not None:
            from zeroplan.cli.positional import named

            options = named(options, word)
        function(options, **values)

    command.__signature__ = inspect.Signature([*first, *shared, *own])  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in (*first, *shared, *own)}
    return command
