"""What trainers refuse of their own files beside DeepSpeed, before a config is read."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from zeroplan.catalog.trainers.tools import AXOLOTL, LLAMA_FACTORY, SWIFT, TRAINER, TRL
from zeroplan.check.arguments import SWITCHES, Arguments
from zeroplan.check.finding import ERROR, WARNING, Hit, named, said
from zeroplan.check.finding import number as figure
from zeroplan.check.rule import Example, Rule
from zeroplan.check.script_arguments import has_parser
from zeroplan.releases import number

FSDP = "fsdp"
OPTIMIZER = "optimizer"
EVALUATES = ("eval_strategy", "evaluation_strategy")
TOOLS_OF_TRAINER = (TRAINER, TRL, LLAMA_FACTORY)
"""Tools whose files have these arguments as the Trainer has them."""
BY_LOSS = ("reduce_lr_on_plateau", "greedy")
"""Schedules that follow the loss of an evaluation."""
USUAL_STEPS = 500
MILLION = 1_000_000
"""Shares are compared in millionths, as the Trainer does."""
RUN = "run: transformers 5.24 training_args.py, axolotl 0.19 schemas/validation.py, ms-swift 4.6 arguments/sft_args.py"
BESIDE = 'output_dir: o\nper_device_train_batch_size: 1\nbf16: true\ndeepspeed: {bf16: {enabled: auto}, ' \
         'zero_optimization: {stage: 2}, train_micro_batch_size_per_gpu: auto}\n'  # fmt: skip

GROUP, LEAST = "num_generations", 2
"""Answers to one prompt in GRPO, which compares them, and how many it needs."""
USUAL_GROUP, OF_GROUPS = 8, "GRPOConfig"
OF_GRPO = ("scale_rewards", "vllm_device", "importance_sampling_level")
GROUPED_SINCE = "0.15.0"
GROUPS = "model_name_or_path: x/y\ndataset_name: d\n" + BESIDE + "num_generations: %s\n"

BF16_SINCE = "0.19.0"
"""The TRL whose bf16 may be None, and is no switch (sft_config.py; 0.24, 1.16, run: expected one argument)."""
MODE_SINCE = "3.12.0"
"""The release of ms-swift that asks for vLLM's mode (arguments/rlhf_args.py)."""

VALUED = ("model", "model_name_or_path", "dataset", "data_path", "train_file", "output_dir", "learning_rate",
          "num_train_epochs",
          "per_device_train_batch_size", "max_steps", "save_steps", "lr_scheduler_type")  # fmt: skip
"""Arguments that stand on a line with a value."""

RULES: tuple[Rule, ...] = (
    Rule(
        "ZP822", ERROR, "What a trainer refuses of its own file beside DeepSpeed", RUN,
        Example(f"{BESIDE}fsdp: full_shard\n", file="train.yaml"), Example(BESIDE, file="train.yaml"),
        "https://huggingface.co/docs/transformers/main_classes/trainer",
    ),
    Rule(
        "ZP835", ERROR, "A generation that holds no whole groups of answers",
        "trl 1.16: trainer/grpo_config.py:__post_init__, run: ValueError",
        Example(GROUPS % 6, (("gpus", "8"),), file="train.yaml"), Example(GROUPS % 4, (("gpus", "8"),), "train.yaml"),
        "https://huggingface.co/docs/trl/grpo_trainer",
    ),
)  # fmt: skip


def sharded_twice(arguments: Arguments) -> Iterator[Hit]:
    if arguments.stated(FSDP) not in (None, False, "", []):
        yield Hit("ZP822", (FSDP,), f"fsdp beside deepspeed: {_whose(arguments)} stops", "delete one of them")


def without_value(arguments: Arguments) -> Iterator[Hit]:
    """An option of a line that another one follows: argparse stops at it (run: expected one argument)."""
    if arguments.job is None or not (arguments.tool or has_parser(arguments.job.code)):
        return
    for name in VALUED:
        if _is_bare(arguments, name):
            yield Hit("ZP822", (name,), f"--{name} has no value: its parser stops", f"--{name} ...")


def _is_bare(arguments: Arguments, name: str) -> bool:
    member = arguments.document.members.get((name,))
    word = "" if member is None else arguments.document.text[member.start : member.end]
    return arguments.stated(name) is True and word.startswith("--") and "=" not in word


def bare_bf16(arguments: Arguments, release: str | None) -> Iterator[Hit]:
    """TRL's own classes have no switch of it, but for PPO's. `release`: that of TRL which the project asks for."""
    is_its = arguments.job is not None and arguments.tool == TRL and "PPOConfig" not in arguments.job.code
    if is_its and _is_bare(arguments, "bf16") and (release is None or number(release) >= number(BF16_SINCE)):
        severity = WARNING if release is None else ERROR
        yield Hit("ZP822", ("bf16",), "--bf16 has no value: TRL's parser stops since 0.19", "--bf16 true", severity)


def both_halves(arguments: Arguments) -> Iterator[Hit]:
    """In axolotl bf16 wins."""
    if arguments.tool != AXOLOTL and all(arguments.stated(half) is True for half in SWITCHES):
        yield Hit("ZP822", ("fp16",), f"bf16 and fp16 are both true: {_whose(arguments)} stops", "fp16: false")


def best_model(arguments: Arguments) -> Iterator[Hit]:
    """The best model is looked for where both an evaluation and a checkpoint are."""
    evaluates = _evaluates(arguments)
    saves = arguments.stated("save_strategy") or "steps"
    texts = isinstance(evaluates, str) and isinstance(saves, str) and arguments.tool in TOOLS_OF_TRAINER
    if texts and arguments.stated("load_best_model_at_end") is True and saves not in (evaluates, "best"):
        what = f"load_best_model_at_end where eval_strategy is {said(evaluates)} and save_strategy {said(saves)}"
        yield Hit("ZP822", ("load_best_model_at_end",), f"{what}: {_whose(arguments)} stops",
                  f"eval_strategy: {named(saves)}")  # fmt: skip
    elif texts and arguments.stated("load_best_model_at_end") is True and evaluates == saves == "steps":
        yield from _best_of_steps(arguments)


def evaluation_strategy(arguments: Arguments) -> object:
    """Under the older name too; None where neither is stated."""
    return next((stated for name in EVALUATES if (stated := arguments.stated(name)) is not None), None)


def _evaluates(arguments: Arguments) -> object:
    """The strategy of evaluation, under the older name too."""
    strategy = evaluation_strategy(arguments)
    return "no" if strategy is None else strategy


def _best_of_steps(arguments: Arguments) -> Iterator[Hit]:
    usual = 10 if arguments.tool == TRL else USUAL_STEPS
    saved = _steps(arguments.stated("save_steps"), USUAL_STEPS)
    evaluated = _steps(arguments.stated("eval_steps") or arguments.stated("logging_steps"), usual)
    if saved is None or evaluated is None or _is_multiple(saved, evaluated):
        return
    what = f"load_best_model_at_end where save_steps {figure(saved)} is no multiple of eval_steps {figure(evaluated)}"
    yield Hit("ZP822", ("load_best_model_at_end",), f"{what}: {_whose(arguments)} stops",
              f"save_steps: {figure(evaluated)}")  # fmt: skip


def _is_multiple(saved: float, evaluated: float) -> bool:
    """As transformers 5.24 has it (training_args.py:_validate_args): steps below 1 are shares of all."""
    if saved % evaluated == 0:
        return True
    return max(saved, evaluated) < 1 and saved * MILLION % (evaluated * MILLION) == 0


def _steps(stated: object, usual: float) -> float | None:
    """None for what is no number of steps."""
    if stated is None:
        return usual
    return stated if isinstance(stated, int | float) and not isinstance(stated, bool) and stated > 0 else None


def steps_of_zero(arguments: Arguments) -> Iterator[Hit]:
    """Evaluation by steps takes logging_steps where eval_steps is absent or 0."""
    strategy, steps = arguments.stated("logging_strategy") or "steps", arguments.stated("logging_steps")
    if arguments.tool in TOOLS_OF_TRAINER and strategy == "steps" and type(steps) is int and steps == 0:
        what = f"logging_steps 0 with logging_strategy {said(strategy)}: {_whose(arguments)} stops"
        yield Hit("ZP822", ("logging_steps",), what, 'logging_strategy: "no"')


def plateau(arguments: Arguments) -> Iterator[Hit]:
    evaluates = _evaluates(arguments)
    schedule = arguments.stated("lr_scheduler_type")
    if arguments.tool in TOOLS_OF_TRAINER and schedule in BY_LOSS and evaluates in ("no", False):
        what = f"lr_scheduler_type {said(schedule)} without an eval_strategy: {_whose(arguments)} stops"
        yield Hit("ZP822", ("lr_scheduler_type",), what, "eval_strategy: epoch")


def vllm_of_swift(arguments: Arguments, release: str | None) -> Iterator[Hit]:
    """`release`: the ms-swift that the project asks for; None: the newest."""
    if arguments.tool != SWIFT or (release is not None and number(release) < number(MODE_SINCE)):
        return
    is_open = arguments.job is not None and arguments.job.is_open
    if arguments.stated("use_vllm") is True and "vllm_mode" not in arguments.document.config and not is_open:
        write = "vllm_mode: colocate" if arguments.job is None else "--vllm_mode colocate"
        yield Hit("ZP822", ("use_vllm",), "use_vllm without vllm_mode: ms-swift stops", write)


def groups_of_answers(arguments: Arguments, gpus: int | None, release: str | None) -> Iterator[Hit]:
    """A generation holds whole groups of answers to the same prompt, on all ranks together. `release`: the TRL that the
    project asks for.
    """
    group = arguments.stated(GROUP) or (USUAL_GROUP if _is_grpo(arguments) else None)
    if release is not None and number(release) < number(GROUPED_SINCE):
        return
    if not isinstance(group, int) or isinstance(group, bool) or group < 1:
        return
    is_its = arguments.job is None or OF_GROUPS in arguments.job.code
    severity = ERROR if arguments.tool == TRL and is_its else WARNING  # another may group otherwise
    if group < LEAST:
        what = f"{GROUP} {group}, of which no advantage can be computed: TRL stops"
        yield Hit("ZP835", (GROUP,), what, f"{GROUP}: {LEAST}", severity)
        return
    micro_batch, steps = arguments("per_device_train_batch_size"), arguments("gradient_accumulation_steps")
    steps = arguments.stated("steps_per_generation") or steps
    stated = arguments.stated("generation_batch_size")
    parts = (stated,) if stated is not None else (micro_batch, gpus, steps)
    if not all(isinstance(part, int) and part > 0 for part in parts) or (batch := math.prod(parts)) % group == 0:
        return
    how = "" if stated is not None else f" ({' * '.join(map(str, parts))})"
    what = f"{batch} answers of a generation{how} are no whole groups of {GROUP} {group}: TRL stops since 0.15"
    fitting = [one for one in range(LEAST, min(group, batch) + 1) if batch % one == 0]
    write = f"{GROUP}: {fitting[-1]}" if fitting else f"per_device_train_batch_size: {group}"
    yield Hit("ZP835", (GROUP,), what, write, severity)


def _is_grpo(arguments: Arguments) -> bool:
    """Whether it is a file of GRPO's, by what no other trainer of TRL has."""
    return any(arguments.stated(name) is not None for name in OF_GRPO)


def axolotls_own(arguments: Arguments) -> Iterator[Hit]:
    if arguments.tool != AXOLOTL:
        return
    optimizer = str(arguments.stated(OPTIMIZER) or arguments.stated("optim") or "")
    if optimizer in ("muon", "q_galore_adamw8bit") or optimizer.startswith("flash_"):
        yield Hit("ZP822", (OPTIMIZER,), f"{said(optimizer)} beside deepspeed: axolotl stops",
                  f"{OPTIMIZER}: adamw_torch_fused")  # fmt: skip
    if arguments.stated("relora"):
        yield Hit("ZP822", ("relora",), "relora beside deepspeed: axolotl stops", "delete one of them")


def swifts_own(arguments: Arguments) -> Iterator[Hit]:
    """It writes gather_16bit_weights_on_model_save, of which its zero3 has the other name already."""
    key = "deepspeed_autotp_size"
    if arguments.tool == SWIFT and arguments.stated(key) and str(arguments.stated("deepspeed")).startswith("zero3"):
        yield Hit("ZP822", (key,), f"{key} with the config zero3: DeepSpeed refuses what ms-swift makes of both",
                  "deepspeed: zero2")  # fmt: skip
    named_config = str(arguments.stated("deepspeed") or "")
    if arguments.tool == SWIFT and arguments.stated(OPTIMIZER) == "muon" and named_config != "zero0":
        is_zero = named_config.startswith("zero") and not named_config.endswith(".json")
        yield Hit("ZP822", (OPTIMIZER,), "ms-swift's Muon keeps what it knows by parameter, and ZeRO gives it others: "
                  "the first step stops", f"delete {OPTIMIZER}", "" if is_zero else WARNING)  # fmt: skip


def _whose(arguments: Arguments) -> str:
    return "the Trainer" if arguments.tool in (TRAINER, TRL) else arguments.tool


REFUSED_ALONE: tuple[Callable[[Arguments], Iterator[Hit]], ...] = (
    without_value, both_halves, best_model, steps_of_zero, plateau,
)  # fmt: skip
REFUSED_BESIDE_DEEPSPEED: tuple[Callable[[Arguments], Iterator[Hit]], ...] = (sharded_twice, axolotls_own, swifts_own)
CHECKS = ()
"""None that asks a ds_config."""
