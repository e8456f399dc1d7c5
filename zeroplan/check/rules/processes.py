"""Processes that a command starts, and what is refused of them: by ms-swift, LLaMA-Factory and DeepSpeed's launcher."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from zeroplan.check.finding import ADVICE, ERROR, Hit
from zeroplan.check.ranks import FORCE_TORCHRUN, NNODES, NPROC_PER_NODE, USE_RAY, VISIBLE, is_forced, visible
from zeroplan.check.rule import Example, Rule

if TYPE_CHECKING:
    from zeroplan.check.launcher import Launch

SWIFT_LINE = "CUDA_VISIBLE_DEVICES=0,1 %sswift sft --model x --deepspeed ds.json --torch_dtype bfloat16\n"
DEEPSPEED_LINE = "deepspeed %s train.py --deepspeed ds.json\n"
SINGLE = "SWIFT_SINGLE_DEVICE_MODE"

RULES: tuple[Rule, ...] = (
    Rule(
        "ZP821", ERROR, "Processes with which ms-swift or LLaMA-Factory stops at DeepSpeed",
        "ms-swift 4.6: arguments/sft_args.py:_init_deepspeed, cli/main.py; LLaMA-Factory 0.9.5: launcher.py, "
        "hparams/parser.py:get_train_args: read",
        Example(SWIFT_LINE % "", file="run.sh"), Example(SWIFT_LINE % "NPROC_PER_NODE=2 ", file="run.sh"),
        "https://swift.readthedocs.io/en/latest/Instruction/Command-line-parameters.html",
    ),
    Rule(
        "ZP827", ERROR, "Options at which deepspeed starts nothing", "launcher/runner.py, run: ValueError",
        Example(DEEPSPEED_LINE % "--include localhost:0,1 --num_gpus 2", file="run.sh"),
        Example(DEEPSPEED_LINE % "--include localhost:0,1", file="run.sh"),
        "https://www.deepspeed.ai/getting-started/",
    ),
)  # fmt: skip


def of_swift(launch: Launch) -> Iterator[Hit]:
    """A process that sees several cards spreads the model over them, which ms-swift does not do under DeepSpeed."""
    environment, cards = launch.environment, visible(launch.environment)
    if launch.launcher != "swift" or environment.get(SINGLE, "0") != "0" or environment.get(USE_RAY, "0") != "0":
        return
    per_node = environment.get(NPROC_PER_NODE, "1") or ""
    if cards is not None and per_node.isdecimal() and int(per_node) and cards >= 2 * int(per_node):
        several = f"{cards} GPUs to {per_node} process{'es' * (per_node != '1')}"
        yield Hit("ZP821", (), f"{VISIBLE} shows {several} ({NPROC_PER_NODE}): ms-swift stops, DeepSpeed does not go "
                  "with its device_map", f"{NPROC_PER_NODE}={cards}", offset=launch.start)  # fmt: skip
    elif cards is None and VISIBLE not in environment and not {NPROC_PER_NODE, NNODES} & environment.keys():
        yield Hit("ZP821", (), f"no {NPROC_PER_NODE}: one process, and where that sees several GPUs ms-swift stops at "
                  "DeepSpeed", f"{NPROC_PER_NODE}=8", ADVICE, offset=launch.start)  # fmt: skip


def of_llama_factory(launch: Launch) -> Iterator[Hit]:
    environment = launch.environment
    if launch.launcher != "llamafactory-cli" or visible(environment) != 1 or environment.get(USE_RAY, "0") != "0":
        return
    if not is_forced(environment) and environment.get(FORCE_TORCHRUN, "0") is not None:
        yield Hit("ZP821", (), f"{VISIBLE} shows one GPU, for which LLaMA-Factory starts no torchrun: it stops at "
                  "DeepSpeed", f"{FORCE_TORCHRUN}=1", offset=launch.start)  # fmt: skip


def of_deepspeed(launch: Launch) -> Iterator[Hit]:
    if launch.refusal:
        yield Hit("ZP827", (), f"{launch.refusal}: deepspeed starts nothing",
                  "--include worker-1:0,1 alone, of a hostfile with lines such as worker-1 slots=8",
                  offset=launch.start)  # fmt: skip


PROCESS_CHECKS = (of_swift, of_llama_factory, of_deepspeed)
CHECKS = ()
"""None that asks a ds_config."""
