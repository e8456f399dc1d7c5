"""Processes that a command starts, and what is refused of them: by ms-swift, LLaMA-Factory and DeepSpeed's launcher."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from zeroplan.check.finding import ADVICE, ERROR, WARNING, Hit, named
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
        "ZP827", ERROR, "Options at which a launcher starts nothing",
        "deepspeed: launcher/runner.py; torch: distributed/run.py; accelerate: commands/launch.py, run: ValueError",
        Example(DEEPSPEED_LINE % "--include localhost:0,1 --num_gpus 2", file="run.sh"),
        Example(DEEPSPEED_LINE % "--include localhost:0,1", file="run.sh"),
        "https://www.deepspeed.ai/getting-started/",
    ),
    Rule(
        "ZP830", ERROR, "A whole host to --include in releases that leave it out",
        "launcher/runner.py:parse_inclusion_exclusion of 0.15.2 to 0.19.6, run: no slots",
        Example(DEEPSPEED_LINE % "--include worker-1", (("version", "0.19.6"),), file="run.sh"),
        Example(DEEPSPEED_LINE % "--include worker-1:0,1", (("version", "0.19.6"),), file="run.sh"),
        "https://github.com/deepspeedai/DeepSpeed/issues/6671", since="0.15.2", until="0.19.7",
    ),
    Rule(
        "ZP828", WARNING, "A command that ends before its options do", "run in bash 5: they are a command of their own",
        Example("deepspeed train.py --deepspeed ds.json \\\n  # --bf16 \\\n  --lr 1e-5\n", file="run.sh"),
        Example("deepspeed train.py --deepspeed ds.json \\\n  --lr 1e-5\n", file="run.sh"),
        "https://www.gnu.org/software/bash/manual/html_node/Escape-Character.html",
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


def of_launcher(launch: Launch) -> Iterator[Hit]:
    if launch.refusal:
        launcher = "accelerate launch" if launch.launcher == "accelerate" else launch.launcher
        yield Hit("ZP827", (), f"{named(launch.refusal.why)}: {launcher} starts nothing", launch.refusal.write,
                  offset=launch.start)  # fmt: skip


def whole_hosts(launch: Launch) -> Iterator[Hit]:
    hosts = (launch.options.get("include") or "").split("@") if launch.launcher == "deepspeed" else []
    whole = [name for name in hosts if name and ":" not in name]
    if whole:
        yield Hit("ZP830", (), f"--include {named(whole[0])} without its slots: these releases start nothing there",
                  f"--include {named(whole[0])}:0,1,2,3, or deepspeed>=0.19.7", offset=launch.start)  # fmt: skip


def cut_off(launch: Launch) -> Iterator[Hit]:
    if launch.cut:
        loses = "" if launch.named and launch.has_script else ERROR
        what = f"the command ends before {named(launch.cut)}: a backslash goes on where nothing at all follows it"
        write = "no blank behind a backslash, and no comment or empty line within a command"
        yield Hit("ZP828", (), what, write, loses, offset=launch.start)


PROCESS_CHECKS = (of_swift, of_llama_factory, of_launcher, whole_hosts, cut_off)
CHECKS = ()
"""None that asks a ds_config."""
