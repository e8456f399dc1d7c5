"""What trainers refuse of their own files beside DeepSpeed, before a config is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from zeroplan.catalog.trainers.tools import AXOLOTL, LLAMA_FACTORY, SWIFT, TRAINER, TRL
from zeroplan.check.arguments import SWITCHES, Arguments
from zeroplan.check.finding import ERROR, WARNING, Hit, named, said
from zeroplan.check.rule import Example, Rule

FSDP = "fsdp"
OPTIMIZER = "optimizer"
RUN = "run: transformers 5.24 training_args.py, axolotl 0.19 schemas/validation.py, ms-swift 4.6 arguments/sft_args.py"
BESIDE = 'output_dir: o\nper_device_train_batch_size: 1\nbf16: true\ndeepspeed: {bf16: {enabled: auto}, ' \
         'zero_optimization: {stage: 2}, train_micro_batch_size_per_gpu: auto}\n'  # fmt: skip

OLDER = {"train_type": "tuner_type", "sft_type": "tuner_type", "model_id_or_path": "model", "lora_modules": "adapters"}
"""Arguments of ms-swift before 4.0, and what 4.6 calls them."""
OF_SWIFT = "model: x\n%s: full\ntorch_dtype: bfloat16\ndataset: d\ndeepspeed: zero2\n"

RULES: tuple[Rule, ...] = (
    Rule(
        "ZP822", ERROR, "What a trainer refuses of its own file beside DeepSpeed", RUN,
        Example(f"{BESIDE}fsdp: full_shard\n", file="train.yaml"), Example(BESIDE, file="train.yaml"),
        "https://huggingface.co/docs/transformers/main_classes/trainer",
    ),
    Rule(
        "ZP831", WARNING, "An argument that ms-swift 4 calls otherwise",
        "ms-swift 4.6: utils/utils.py:parse_args, run: ValueError, remaining_argv; 3.12 takes it",
        Example(OF_SWIFT % "train_type", file="train.yaml"), Example(OF_SWIFT % "tuner_type", file="train.yaml"),
        "https://swift.readthedocs.io/en/latest/Instruction/Command-line-parameters.html",
    ),
)  # fmt: skip


def sharded_twice(arguments: Arguments) -> Iterator[Hit]:
    if arguments.stated(FSDP) not in (None, False, "", []):
        yield Hit("ZP822", (FSDP,), f"fsdp beside deepspeed: {_whose(arguments)} stops", "delete one of them")


def both_halves(arguments: Arguments) -> Iterator[Hit]:
    """In axolotl bf16 wins."""
    if arguments.tool != AXOLOTL and all(arguments.stated(half) is True for half in SWITCHES):
        yield Hit("ZP822", ("fp16",), f"bf16 and fp16 are both true: {_whose(arguments)} stops", "fp16: false")


def best_model(arguments: Arguments) -> Iterator[Hit]:
    """The best model is looked for where both an evaluation and a checkpoint are."""
    names = ("eval_strategy", "evaluation_strategy")
    evaluates = next((stated for name in names if (stated := arguments.stated(name)) is not None), "no")
    saves = arguments.stated("save_strategy") or "steps"
    texts = isinstance(evaluates, str) and isinstance(saves, str) and arguments.tool in (TRAINER, TRL, LLAMA_FACTORY)
    if texts and arguments.stated("load_best_model_at_end") is True and saves not in (evaluates, "best"):
        what = f"load_best_model_at_end where eval_strategy is {said(evaluates)} and save_strategy {said(saves)}"
        yield Hit("ZP822", ("load_best_model_at_end",), f"{what}: {_whose(arguments)} stops",
                  f"eval_strategy: {named(saves)}")  # fmt: skip


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


def older_names(arguments: Arguments) -> Iterator[Hit]:
    for old, new in OLDER.items() if arguments.tool == SWIFT else ():
        if arguments.stated(old) is not None:
            yield Hit("ZP831", (old,), f"{old} is {new} since ms-swift 4.0, which stops at the older name",
                      f"{new}: {named(str(arguments.stated(old)))}")  # fmt: skip


def _whose(arguments: Arguments) -> str:
    return "the Trainer" if arguments.tool in (TRAINER, TRL) else arguments.tool


REFUSED_CHECKS: tuple[Callable[[Arguments], Iterator[Hit]], ...] = (
    sharded_twice, both_halves, best_model, axolotls_own, swifts_own, older_names,
)  # fmt: skip
CHECKS = ()
"""None that asks a ds_config."""
