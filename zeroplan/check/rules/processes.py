"""Processes that a command starts, and what is refused of them: by ms-swift, LLaMA-Factory and DeepSpeed's launcher."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from zeroplan.catalog.trainers.tools import LLAMA_FACTORY
from zeroplan.check.finding import ADVICE, ERROR, WARNING, Hit, named
from zeroplan.check.kind import PYTHON
from zeroplan.check.ranks import (
    FORCE_TORCHRUN,
    NNODES,
    NPROC_PER_NODE,
    USE_RAY,
    VISIBLE,
    is_forced,
    is_port,
    visible,
)
from zeroplan.check.rule import Example, Rule
from zeroplan.check.shell_functions import functions

if TYPE_CHECKING:
    from zeroplan.check.launched import Launch

SWIFT_LINE = "CUDA_VISIBLE_DEVICES=0,1 %sswift sft --model x --deepspeed ds.json --torch_dtype bfloat16\n"
DEEPSPEED_LINE = "deepspeed %s train.py --deepspeed ds.json\n"
OTHER_COMMANDS = ("api", "chat", "eval", "export", "webchat")
"""Commands of LLaMA-Factory that take a file."""
TRAINS = (
    "model_name_or_path: x\nfinetuning_type: full\noutput_dir: o\nbf16: true\ndeepspeed: {bf16: {enabled: auto}, "
    "zero_optimization: {stage: 2}, train_micro_batch_size_per_gpu: auto, gradient_accumulation_steps: auto}\n"
)
RAY_LINE = (
    "ray job submit -- python3 -m openrlhf.cli.train_ppo_ray --actor.num_nodes 1 --actor.num_gpus_per_node 8 "
    "--train.colocate_all --vllm.tensor_parallel_size 2 --ds.zero_stage 3 --vllm.num_engines %d\n"
)
SFT_LINE = "deepspeed --module openrlhf.cli.train_sft --%s 3 --ds.zpg 1\n"
STRICT = (
    "parser = argparse.ArgumentParser()\nparser.add_argument(%s)\nargs = parser.parse_args()\n"
    "deepspeed.initialize(config={'train_batch_size': 8, 'bf16': {'enabled': True}})\n"
)
USUAL_PORT = "29500"
MEETS_ELSEWHERE = (
    "standalone", "rdzv_backend", "rdzv_endpoint", "nnodes", "node_rank",
)  # fmt: skip
"""Options with which a launcher may take another port, or joins the other's ranks."""
LOCAL = "localhost"
WAITS = re.compile(r"wait|\b(?:fg|ssh|read|kill|pkill|exit|exec|sleep|timeout)\b|--pid\b|\bPET_")
PORTS = "deepspeed --include localhost:0 train.py --deepspeed ds.json &\n" \
        "deepspeed --include localhost:1%s train.py --deepspeed ds.json &\nwait\n"  # fmt: skip
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
        "ZP837", ERROR, "A training file that the launcher's --local_rank stands before",
        "launcher/launch.py: --local_rank, run; LLaMA-Factory 0.9.5: hparams/parser.py:read_args, run",
        Example("deepspeed src/train.py lf.yaml\n", file="run.sh", beside=TRAINS),
        Example("deepspeed --no_local_rank src/train.py lf.yaml\n", file="run.sh", beside=TRAINS),
        "https://github.com/hiyouga/LLaMA-Factory/issues/6075",
    ),
    Rule(
        "ZP838", ERROR, "A training file for a command that does not train",
        "LLaMA-Factory 0.9.5: hparams/parser.py: _INFER_ARGS, run: ValueError",
        Example("llamafactory-cli chat lf.yaml\n", file="run.sh", beside=TRAINS),
        Example("FORCE_TORCHRUN=1 llamafactory-cli train lf.yaml\n", file="run.sh", beside=TRAINS),
        "https://github.com/hiyouga/LLaMA-Factory/issues/8301",
    ),
    Rule(
        "ZP845", ERROR, "Ranks of OpenRLHF's actor and vLLM's engines that are to share their GPUs and differ",
        "OpenRLHF 0.5.9 to 0.11.0: cli/train_ppo_ray.py:train, run (ray, vllm stubbed): AssertionError",
        Example(RAY_LINE % 2, file="run.sh"), Example(RAY_LINE % 4, file="run.sh"),
        "https://openrlhf.readthedocs.io/en/latest/hybrid_engine.html",
    ),
    Rule(
        "ZP861", WARNING, "Options of OpenRLHF by the names of another release",
        "OpenRLHF 0.10.2, 0.10.4, 0.11.0: cli/*.py, run: unrecognized arguments; 0.10.1 read",
        Example(SFT_LINE % "zero_stage", file="run.sh"), Example(SFT_LINE % "ds.zero_stage", file="run.sh"),
        "https://openrlhf.readthedocs.io/en/latest/",
    ),
    Rule(
        "ZP847", ERROR, "An option at which the script's own parser stops",
        "argparse, run: unrecognized arguments; launcher/launch.py: --local_rank",
        Example("deepspeed train.py --lr 1\n", file="run.sh", beside=STRICT % "'--lr'"),
        Example("deepspeed --no_local_rank train.py --lr 1\n", file="run.sh", beside=STRICT % "'--lr'"),
        "https://www.deepspeed.ai/getting-started/#launching-deepspeed-training",
    ),
    Rule(
        "ZP828", WARNING, "A command that ends before its options do", "run in bash 5: they are a command of their own",
        Example("deepspeed train.py --deepspeed ds.json \\\n  # --bf16 \\\n  --lr 1e-5\n", file="run.sh"),
        Example("deepspeed train.py --deepspeed ds.json \\\n  --lr 1e-5\n", file="run.sh"),
        "https://www.gnu.org/software/bash/manual/html_node/Escape-Character.html",
    ),
    Rule(
        "ZP854", ERROR, "Two runs at once on one port",
        "deepspeed: launcher/runner.py, torch: distributed/run.py, 29500 by default; torch 2.14, run: EADDRINUSE",
        Example(PORTS % "", file="run.sh"), Example(PORTS % " --master_port 29501", file="run.sh"),
        "https://docs.pytorch.org/docs/stable/elastic/run.html",
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
                  "with its device_map", f"{NPROC_PER_NODE}={cards}", offset=launch.place.start)  # fmt: skip
    elif cards is None and VISIBLE not in environment and not {NPROC_PER_NODE, NNODES} & environment.keys():
        yield Hit("ZP821", (), f"no {NPROC_PER_NODE}: one process, and where that sees several GPUs ms-swift stops at "
                  "DeepSpeed", f"{NPROC_PER_NODE}=8", ADVICE, offset=launch.place.start)  # fmt: skip


def of_llama_factory(launch: Launch) -> Iterator[Hit]:
    environment = launch.environment
    if launch.launcher != "llamafactory-cli" or visible(environment) != 1 or environment.get(USE_RAY, "0") != "0":
        return
    if not is_forced(environment) and environment.get(FORCE_TORCHRUN, "0") is not None:
        yield Hit("ZP821", (), f"{VISIBLE} shows one GPU, for which LLaMA-Factory starts no torchrun: it stops at "
                  "DeepSpeed", f"{FORCE_TORCHRUN}=1", offset=launch.place.start)  # fmt: skip


def of_launcher(launch: Launch) -> Iterator[Hit]:
    if launch.refusal:
        launcher = "accelerate launch" if launch.launcher == "accelerate" else launch.launcher
        yield Hit("ZP827", (), f"{named(launch.refusal.why)}: {launcher} starts nothing", launch.refusal.write,
                  offset=launch.place.start)  # fmt: skip


def whole_hosts(launch: Launch) -> Iterator[Hit]:
    hosts = (launch.options.get("include") or "").split("@") if launch.launcher == "deepspeed" else []
    whole = [name for name in hosts if name and ":" not in name]
    if whole:
        yield Hit("ZP830", (), f"--include {named(whole[0])} without its slots: these releases start nothing there",
                  f"--include {named(whole[0])}:0,1,2,3, or deepspeed>=0.19.7", offset=launch.place.start)  # fmt: skip


def cut_off(launch: Launch) -> Iterator[Hit]:
    if launch.cut and not (launch.cut.endswith(PYTHON) and launch.script.name.endswith(PYTHON)):
        loses = "" if launch.config.word and launch.script.name else ERROR
        what = f"the command ends before {named(launch.cut)}: a backslash goes on where nothing at all follows it"
        write = "no blank behind a backslash, and no comment or empty line within a command"
        yield Hit("ZP828", (), what, write, loses, offset=launch.place.start)


def behind_local_rank(launch: Launch) -> Iterator[Hit]:
    """LLaMA-Factory looks for a file at sys.argv[1], transformers' examples where it is the only argument."""
    if not launch.config.is_first or launch.launcher != "deepspeed" or "no_local_rank" in launch.options:
        return
    by_llama_factory = launch.arguments is not None and launch.arguments.tool == LLAMA_FACTORY
    whose = "LLaMA-Factory" if by_llama_factory else "a script that looks for a file at its first argument"
    word = launch.config.word
    file = named(word.text) if word is not None and word.text else "the file"
    what = f"deepspeed puts --local_rank before {file}, and {whose} does not read it"
    write = "llamafactory-cli train with it, or deepspeed --no_local_rank"
    yield Hit("ZP837", (), what, write if by_llama_factory else "deepspeed --no_local_rank",
              ERROR if by_llama_factory else WARNING, offset=launch.place.start)  # fmt: skip


def trains_nothing(launch: Launch) -> Iterator[Hit]:
    """Its other commands take no TrainingArguments (llamafactory 0.9.5 hparams/parser.py: _INFER_ARGS)."""
    has_file = launch.config.training is not None
    if launch.launcher == "llamafactory-cli" and launch.command in OTHER_COMMANDS and has_file:
        what = f"llamafactory-cli {launch.command} stops at arguments of training, as deepspeed is one"
        yield Hit("ZP838", (), what, "llamafactory-cli train, or a file of inference", offset=launch.place.start)


def colocated(launch: Launch) -> Iterator[Hit]:
    shared = None if launch.built is None else launch.built.colocated()
    if shared is not None and shared[0] != shared[1]:
        what = f"{shared[0]} ranks of the actor, and {shared[1]} of vLLM's engines on the same GPUs: OpenRLHF stops"
        yield Hit("ZP845", (), what, "engines * tensor_parallel_size = the actor's nodes * GPUs of each",
                  offset=launch.place.start)  # fmt: skip


def named_otherwise(launch: Launch, release: str | None) -> Iterator[Hit]:
    """`release`: the OpenRLHF that the project asks for; None: the newest."""
    other = None if launch.built is None else launch.built.named_otherwise(release)
    if other is not None:
        since = "since OpenRLHF 0.10.2" if "." in other[1] else f"in OpenRLHF {release}"
        what = f"--{other[0]} is --{other[1]} {since}: its parser stops"
        yield Hit("ZP861", (), what, f"--{other[1]}", WARNING if release is None else ERROR, launch.place.start)


def not_recognized(launch: Launch) -> Iterator[Hit]:
    refusal = launch.script.refusal
    if refusal is not None:
        yield Hit("ZP847", (), refusal.why, refusal.write, offset=launch.place.start)


def on_one_port(text: str, launches: Sequence[Launch]) -> Iterator[Hit]:
    """Runs that a script starts at once: the store of the second finds its port taken."""
    taken: dict[tuple[str | None, ...], Launch] = {}
    within = functions(text)
    for launch in launches:
        in_function = any(one.start <= launch.place.start < one.end for one in within)
        is_sure = not (launch.place.is_conditional or launch.place.is_below or launch.refusal or in_function)
        meeting = _meets(launch) if is_sure else None
        before = None if meeting is None else taken.get(meeting)
        if meeting is not None and before is not None:
            if before.place.start != launch.place.start and not _waits(text, before, launch):
                first = f"the run that line {before.place.line} starts"
                what = f"port {meeting[0]}, which {first} still has: this one stops"
                option = "--master_port" if launch.launcher == "deepspeed" else "--master-port"
                yield Hit("ZP854", (), what, f"{option} {int(meeting[0] or 0) + 1}", offset=launch.place.start)
        elif meeting is not None and launch.place.goes_on:
            taken[meeting] = launch


def _meets(launch: Launch) -> tuple[str | None, ...] | None:
    """The port, and the hosts, where its ranks meet; None where that is not known, or any that is free."""
    options = launch.options
    hosts = options.get("include", "") or ""
    elsewhere = any(name in options for name in MEETS_ELSEWHERE) or (hosts and not hosts.startswith(LOCAL))
    port = options.get("master_port", USUAL_PORT) or ""
    if launch.launcher not in ("deepspeed", "torchrun") or elsewhere or not is_port(port):
        return None
    return port, *(options.get(name, "") for name in ("hostfile", "master_addr", "num_nodes"))


def _waits(text: str, first: Launch, second: Launch) -> bool:
    return WAITS.search(text, first.place.start, second.place.start) is not None


PROCESS_CHECKS = (
    not_recognized, colocated, of_swift, of_llama_factory, of_launcher, whole_hosts, cut_off, behind_local_rank,
    trains_nothing,
)  # fmt: skip
CHECKS = ()
"""None that asks a ds_config."""
