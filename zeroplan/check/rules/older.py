"""What older DeepSpeeds, or older packages around one, do not do together: each was replayed from a public issue."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from zeroplan.check.finding import ERROR, WARNING, Hit
from zeroplan.check.rule import ISSUE, Rule, arguing, example
from zeroplan.check.rules.names import STAGE_3
from zeroplan.check.setting import ACCELERATE, LIGHTNING, TRAINER
from zeroplan.check.subject import Subject
from zeroplan.deepspeed.values import AUTO
from zeroplan.errors import SpecError
from zeroplan.releases import number

ZERO = "zero_optimization"
WRAPPERS = (TRAINER, ACCELERATE, LIGHTNING)
"""Readers that build the model under zero.Init at stage 3."""
ADAPTERS = (
    "base_model: x\nadapter: lora\nlora_r: 8\nlora_alpha: 16\nlora_target_linear: true\nsequence_len: 512\n"
    "datasets: [{path: d, type: alpaca}]\nmicro_batch_size: 8\nbf16: true\ngradient_checkpointing: true\n"
    "gradient_checkpointing_kwargs: {use_reentrant: %s}\n"
)
AUTOTP = "tensor_parallel.autotp_size"
GENERATING = ("num_generations", "max_completion_length", "response_length", "num_ppo_epochs")
"""Arguments of trainers of TRL that generate."""
GENERATES = "{output_dir: o, bf16: true, per_device_train_batch_size: 8, num_generations: 8}"

OPTIMIZER = ', "optimizer": {"type": "AdamW", "params": {"lr": "auto"}}'
REFERENCE = (
    '{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "bf16": {"enabled": true}, '
    '"gradient_clipping": "auto", "zero_optimization": {"stage": 2}%s}'
)
POPPED, FROZEN = (1, 10), (0, 19)
"""Releases of TRL since which a reference model gets no optimizer, and since which GRPO's is not frozen, and none is
built unless beta says so (trainer/grpo_trainer.py, models/utils.py).
"""
STEPS = ("scheduler.params.total_num_steps", "scheduler.params.warmup_num_steps")
STOPS_BEFORE, TAKES_SCHEDULES = "0.17.6", (0, 23)
OWN_REFUSAL, HANDS_ON = (4, 30), (4, 33, 3)
"""The transformers whose Trainer itself refuses an optimizer without a schedule, and that hands on one of its own."""
UNIVERSAL_TP, OTHER_FAULT = "0.16.4", "0.18.4"
USUAL_BETA = 0.04

RULES: tuple[Rule, ...] = (
    Rule(
        "ZP824", ERROR, "MiCS in a model that zero.Init built", "runtime/zero/mics.py of 0.19.2, run: AssertionError",
        example(STAGE_3 % ', "mics_shard_size": 8', version="0.16.4", reader=TRAINER),
        example(STAGE_3 % ', "mics_shard_size": 8', version="0.16.4"),
        "https://github.com/huggingface/accelerate/issues/3442", until="0.19.7",
    ),
    Rule(
        "ZP825", ERROR, "Adapters at stage 3 with checkpointing that is not reentrant",
        "runtime/zero/partitioned_param_coordinator.py, run with 0.19.2: CheckpointError; 0.19.3 runs",
        arguing(STAGE_3 % "", ADAPTERS % "false", "train.yaml", version="0.19.2"),
        arguing(STAGE_3 % "", ADAPTERS % "true", "train.yaml", version="0.19.2"),
        "https://github.com/huggingface/transformers/issues/47254", until="0.19.3",
    ),
    Rule(
        "ZP826", ERROR, "AutoTP below an Accelerate that does not know it",
        "accelerate 1.0.1, 1.5.2 with DeepSpeed 0.16.4 to 0.19.8, run: AssertionError, Data inconsistency within the "
        "TP group; 1.6.0 runs",
        example('{"train_batch_size": 8, "bf16": {"enabled": true}, "zero_optimization": {"stage": 1}, '
                '"tensor_parallel": {"autotp_size": 2}}', reader=ACCELERATE, accelerate="1.5.2"),
        example('{"train_batch_size": 8, "bf16": {"enabled": true}, "zero_optimization": {"stage": 1}, '
                '"tensor_parallel": {"autotp_size": 2}}', reader=ACCELERATE, accelerate="1.6.0"),
        ISSUE + "7199",
    ),
    Rule(
        "ZP850", WARNING, "An optimizer section beside a reference model in an older TRL",
        "trl 0.17: models/utils.py:prepare_deepspeed; runtime/bf16_optimizer.py of 0.15.4 to 0.17.5, run: torch.cat()",
        arguing(REFERENCE % OPTIMIZER, GENERATES, "grpo.yaml", version="0.16.4", trl="0.17.0"),
        arguing(REFERENCE % "", GENERATES, "grpo.yaml", version="0.16.4", trl="0.17.0"),
        "https://github.com/huggingface/trl/issues/3359",
    ),
    Rule(
        "ZP858", ERROR, "An optimizer without a scheduler under an older Trainer or Accelerate",
        "transformers 4.30 to 4.33.2, and with accelerate 0.20 to 0.22 from 4.33.3 on, run: ValueError, no scheduler",
        example(REFERENCE % OPTIMIZER, reader=TRAINER, transformers="4.34.0", accelerate="0.21.0"),
        example(REFERENCE % OPTIMIZER, reader=TRAINER, transformers="4.34.0", accelerate="0.23.0"),
        "https://github.com/OpenGVLab/InternVL/issues/288",
    ),
    Rule(
        "ZP832", ERROR, "Generation of an older TRL at stage 3", "trl 0.14.0, 0.15.2: models/utils.py:add_hooks, run "
        "with 0.16.4 and 0.19.8: AttributeError, _register_hooks_recursively; 0.15.2 with 0.16.3, and 0.16.0, run",
        arguing(STAGE_3 % "", GENERATES, "grpo.yaml", version="0.16.4", trl="0.15.2"),
        arguing(STAGE_3 % "", GENERATES, "grpo.yaml", version="0.16.4", trl="0.16.0"),
        "https://github.com/om-ai-lab/VLM-R1/issues/32", since="0.16.4",
    ),
    Rule(
        "ZP528", WARNING, "SuperOffload in the releases that brought it",
        "0.18.0, 0.18.1, run: TypeError, timers, as it starts; 0.18.4, 0.18.8, run: KeyError in the first backward",
        example(STAGE_3 % ', "offload_optimizer": {"device": "cpu", "super_offload": true}', version="0.18.8"),
        example(STAGE_3 % ', "offload_optimizer": {"device": "cpu", "super_offload": true}', version="0.18.9"),
        ISSUE + "7925", since="0.18.0", until="0.18.9",
    ),
    Rule(
        "ZP716", WARNING, "hpZ in releases that do not bring loaded weights into it",
        "runtime/zero/partition_parameters.py of 0.18.3, run: other losses before it",
        example(STAGE_3 % ', "zero_hpz_partition_size": 2', version="0.17.6", reader=TRAINER),
        example(STAGE_3 % ', "zero_hpz_partition_size": 2', version="0.18.3", reader=TRAINER),
        ISSUE + "7606", until="0.18.3",
    ),
)  # fmt: skip


def built_by_zero_init(subject: Subject) -> Iterator[Hit]:
    facts, version = subject.facts, subject.setting.version
    if facts.stage != 3 or subject.setting.reader not in WRAPPERS:
        return
    shards, shared = facts.stated(f"{ZERO}.mics_shard_size"), facts(f"{ZERO}.zero_hpz_partition_size")
    if isinstance(shards, int) and shards > 0:
        yield Hit("ZP824", subject.spelled(f"{ZERO}.mics_shard_size"), "MiCS in a model that zero.Init built, as the "
                  "Trainer and Accelerate do: DeepSpeed stops", '"zero_hpz_partition_size": 8')  # fmt: skip
    if isinstance(shared, int) and shared > 1:
        yield Hit("ZP716", subject.spelled(f"{ZERO}.zero_hpz_partition_size"), f"DeepSpeed {version} does not bring "
                  "loaded weights into the second copy: the first step computes with others",
                  "deepspeed>=0.18.3")  # fmt: skip


def adapters_not_reentrant(subject: Subject) -> Iterator[Hit]:
    arguments = subject.setting.trainer_arguments
    if arguments is None or subject.facts.stage != 3:
        return
    with suppress(SpecError):
        file = arguments.file
        kind = file.stated.settings.get("checkpointing") if file is not None else None
        if file is None or kind is None or not file.stated.trains or file.stated.reentrant_at_stage_3:
            return
        if kind.value != "none" and not kind.value.endswith("-reentrant"):
            yield Hit("ZP825", subject.spelled(f"{ZERO}.stage"), f"{file.stated.trains} with checkpointing that is not "
                      f"reentrant ({kind.key}): DeepSpeed {subject.setting.version} stops as it recomputes",
                      "use_reentrant: true, or deepspeed>=0.19.3")  # fmt: skip


def generates_at_stage_3(subject: Subject) -> Iterator[Hit]:
    """It takes hooks off the engine and puts them on with a function that DeepSpeed renamed in 0.16.4."""
    arguments, version = subject.setting.trainer_arguments, subject.setting.trl
    if arguments is None or version is None or number(version) >= (0, 16) or subject.facts.stage != 3:
        return
    name = next((name for name in GENERATING if arguments.stated(name) is not None), None)
    if name is not None:
        what = f"trl {version} generates ({arguments.place(name)}) at stage 3 with a function that DeepSpeed"
        may_not = arguments.stated("ds3_gather_for_generation") is False or arguments.stated("use_vllm") is True
        yield Hit("ZP832", subject.spelled(f"{ZERO}.stage"), f"{what} {subject.setting.version} lacks, and stops",
                  "trl>=0.16", WARNING if may_not else ERROR)  # fmt: skip


def optimizer_of_a_reference(subject: Subject) -> Iterator[Hit]:
    """TRL prepares it with the whole config, at stage 0 below stage 3, and DeepSpeed builds its optimizer too, and its
    schedule, whose "auto" the Trainer fills when training begins.
    """
    arguments, release = subject.setting.trainer_arguments, subject.setting.trl
    if arguments is None or release is None or number(release) >= POPPED or arguments.stated("use_peft") is True:
        return
    beta = arguments.stated("beta")
    beta = beta if beta is not None else USUAL_BETA if number(release) < FROZEN else 0
    by_grpo = arguments.stated(GENERATING[0]) is not None and bool(beta)
    if not (by_grpo or arguments.has_reference) or not isinstance(subject.config.get("optimizer"), dict):
        return
    facts = subject.facts
    if (name := next((one for one in STEPS if subject.stated(one) == AUTO), None)) is not None:
        what = f'"auto", which is filled as training begins: trl {release} builds a schedule of it before, for the '
        yield Hit("ZP850", subject.spelled(name), f"{what}reference model, and DeepSpeed stops",
                  "delete scheduler and optimizer: the Trainer builds its own", ERROR)  # fmt: skip
        return
    if not by_grpo:
        return
    is_frozen = number(release) < FROZEN and facts.stage in (1, 2)
    if is_frozen and facts.dtype == "bf16" and subject.table.before(STOPS_BEFORE):
        what = "an optimizer of a reference model, of which nothing trains: DeepSpeed stops in bf16"
        yield Hit("ZP850", ("optimizer",), f"{what} (trl {release})", "delete it: the Trainer builds its own", ERROR)
    elif not is_frozen:
        what = f"trl {release} hands it to the reference model too, which then holds states of an optimizer"
        yield Hit("ZP850", ("optimizer",), what, "delete it: the Trainer builds its own, or trl>=1.10")


def super_offload(subject: Subject) -> Iterator[Hit]:
    """Its first releases stop as it is built; later ones look for a sub-group by another number than it has, but in one
    group of parameters that is cut into several. The Trainer makes two groups.
    """
    path, version = f"{ZERO}.offload_optimizer.super_offload", subject.setting.version
    if subject.facts.stage != 3 or subject.facts.stated(path) is not True:
        return
    always = subject.table.before(OTHER_FAULT) or subject.setting.reader == TRAINER
    where = "" if always else " where a rank's parameters fit in one sub_group_size, or are several groups"
    yield Hit("ZP528", subject.spelled(path), f"SuperOffload of DeepSpeed {version} stops{where}", "deepspeed>=0.18.9",
              ERROR if always else WARNING)  # fmt: skip


def tensor_parallel_unknown(subject: Subject) -> Iterator[Hit]:
    setting, size = subject.setting, subject.facts.stated(AUTOTP)
    is_read = setting.reader in (TRAINER, ACCELERATE) and not subject.table.before(UNIVERSAL_TP)
    if setting.accelerate is None or not is_read:
        return
    if isinstance(size, int) and size > 1 and number(setting.accelerate) < (1, 6):
        yield Hit("ZP826", subject.spelled(AUTOTP), f"AutoTP with accelerate {setting.accelerate}: ranks of a group "
                  "get other batches, and DeepSpeed stops", "accelerate>=1.6")  # fmt: skip


def schedule_of_none(subject: Subject) -> Iterator[Hit]:
    """An optimizer beside which the Trainer hands on its own schedule, in a DummyScheduler, or refuses to."""
    setting = subject.setting
    has_none = isinstance(subject.config.get("optimizer"), dict) and "scheduler" not in subject.config
    if setting.reader != TRAINER or not has_none:
        return
    release = number(setting.transformers or "5")
    by_accelerate = setting.accelerate is not None and number(setting.accelerate) < TAKES_SCHEDULES
    if OWN_REFUSAL <= release < HANDS_ON:
        by = f"the Trainer of transformers {setting.transformers} wants both, or neither"
    elif release >= HANDS_ON and by_accelerate:
        by = f"accelerate {setting.accelerate} takes no schedule of the Trainer's then"
    else:
        return
    yield Hit("ZP858", ("optimizer",), f"an optimizer and no scheduler: {by}, and stops",
              "delete it: the Trainer builds its own")  # fmt: skip


CHECKS = (
    schedule_of_none, built_by_zero_init, adapters_not_reentrant, generates_at_stage_3, super_offload,
    tensor_parallel_unknown, optimizer_of_a_reference,
)  # fmt: skip
