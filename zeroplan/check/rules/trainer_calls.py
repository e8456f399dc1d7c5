"""Calls of transformers' Trainer, of Accelerator and of DeepSpeed at which their releases stop, in a file of Python."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from zeroplan.catalog.trainers.argument_history import NEWEST, Span
from zeroplan.check.finding import ERROR, WARNING, named
from zeroplan.check.python_nodes import first_name, imported_from, last_name, without_version_checks
from zeroplan.check.rule import Example, Rule
from zeroplan.check.rules.calls import Refused
from zeroplan.check.rules.trainer_release import absence
from zeroplan.releases import number

TRAINER_CLASSES = ("Trainer", "Seq2SeqTrainer")
ARGUMENT_CLASSES = ("TrainingArguments", "Seq2SeqTrainingArguments")
TRAINER_ARGUMENTS = {
    "tokenizer": Span(until="5.0.0", write="processing_class=..."),
    "processing_class": Span(since="4.46.0", write="tokenizer=..."),
}
"""Arguments that not every release's has (trainer.py of 4.45 to 5.24)."""
IN_DATA_LOADERS = Span(until="1.0.0", write="dataloader_config=DataLoaderConfiguration(...)")
OF_ACCELERATOR = {
    "fp16": Span(until="0.20.0", write='mixed_precision="fp16"'),
    **dict.fromkeys(("dispatch_batches", "even_batches", "use_seedable_sampler"), IN_DATA_LOADERS),
}
"""Those of Accelerator (accelerator.py of 0.20 to 1.15)."""
NEWEST_ACCELERATE = "1.15.0"
EVALUATES, STRATEGIES = ("eval_strategy", "evaluation_strategy"), ("epoch", "steps")
DATA, AT = "eval_dataset", 5
"""The argument of Trainer with the data of an evaluation, and how many there are up to it."""
EVALUATING = """from transformers import Trainer, TrainingArguments
args = TrainingArguments("out", bf16=True, eval_strategy="epoch", deepspeed="ds_config.json")
trainer = Trainer(model, args, train_dataset=data%s)
"""

GROUPS_SINCE = "0.18.6"
GROUPED = """import deepspeed
model = deepspeed.tp_model_init(model, tp_size=2, dtype=dtype, tp_group=group)
ds_config = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "tensor_parallel": {"autotp_size": 2}}
engine = deepspeed.initialize(model=model, config=ds_config%s)
"""

RULES: tuple[Rule, ...] = (
    Rule(
        "ZP721", ERROR, "An mpu beside the groups that tp_model_init was given",
        "runtime/tensor_parallel/init_utils.py:88, run with two ranks: ValueError; 0.18.5 does not look",
        Example(GROUPED % ", mpu=mpu", file="train.py"), Example(GROUPED % "", file="train.py"),
        "https://www.deepspeed.ai/tutorials/autotp-training/", since=GROUPS_SINCE,
    ),
    Rule(
        "ZP859", ERROR, "An evaluation that is given no data",
        "transformers 5.24: trainer.py:__init__, run: ValueError; 4.38 at the end of the first epoch",
        Example(EVALUATING % "", file="train.py"), Example(EVALUATING % ", eval_dataset=data", file="train.py"),
        "https://huggingface.co/docs/transformers/main_classes/trainer",
    ),
)  # fmt: skip


def refused_calls_of_releases(
    tree: ast.Module, deepspeed: str, transformers: str | None, accelerate: str | None
) -> Iterator[Refused]:  # fmt: skip
    """Those of a file. `transformers`, `accelerate`: the releases that a project asks for; None: the newest."""
    if number(deepspeed) >= number(GROUPS_SINCE):
        yield from _groups_twice(tree)
    yield from _lost(tree, TRAINER_CLASSES, "transformers", TRAINER_ARGUMENTS, transformers, NEWEST)
    yield from _lost(tree, ("Accelerator",), "accelerate", OF_ACCELERATOR, accelerate, NEWEST_ACCELERATE)
    yield from _without_data(tree)


def _groups_twice(tree: ast.Module) -> Iterator[Refused]:
    """Tensor-parallel groups of tp_model_init, and others behind them."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and first_name(node.func) == "deepspeed"]
    at = _given(calls, "initialize", "mpu")
    if at is not None and _given(calls, "tp_model_init", "tp_group") is not None:
        yield Refused("ZP721", at, "mpu beside the tp_group of tp_model_init: deepspeed.initialize stops", "delete mpu")


def _given(calls: list[ast.Call], name: str, argument: str) -> ast.expr | None:
    """The first value other than None that a call of `name` gives an argument."""
    of_name = (call for call in calls if last_name(call.func) == name)
    values = (one.value for call in of_name for one in call.keywords if one.arg == argument)
    return next((one for one in values if not (isinstance(one, ast.Constant) and one.value is None)), None)


def _lost(
    tree: ast.Module, names: tuple[str, ...], package: str, arguments: Mapping[str, Span], stated: str | None,
    newest: str,
) -> Iterator[Refused]:  # fmt: skip
    """Arguments of calls that a release does not have."""
    release = stated or newest
    for call in _calls(tree, names, package):
        for one in call.keywords:
            span = arguments.get(one.arg or "")
            if span is not None and not span.is_in(release):
                what = f"{one.arg} of {last_name(call.func)} {absence(span, package, release)}"
                yield Refused("ZP833", one.value, what, span.write, WARNING if stated is None else ERROR)


def _without_data(tree: ast.Module) -> Iterator[Refused]:
    """The only Trainer of a file, beside its only arguments, where these evaluate."""
    calls, several = _calls(tree, TRAINER_CLASSES, "transformers"), _calls(tree, ARGUMENT_CLASSES, "transformers")
    if len(calls) != 1 or len(several) != 1:
        return
    (trainer,), (arguments,) = calls, several
    names = [one.arg for one in trainer.keywords]
    if _is_set_elsewhere(tree) or any(isinstance(one, ast.Starred) for one in trainer.args):
        return
    value = next((one.value for one in arguments.keywords if one.arg in EVALUATES), None)
    strategy = getattr(value, "value", None)
    if value is None or strategy not in STRATEGIES or DATA in names or None in names or len(trainer.args) >= AT:
        return
    what = f"evaluation by {strategy} and no {DATA} for {last_name(trainer.func)}: it stops"
    yield Refused("ZP859", value, what, f'{named("eval_strategy")}="no", or {DATA}=...')


def _is_set_elsewhere(tree: ast.Module) -> bool:
    """Whether a file has another trainer, or sets what the evaluation needs behind its call."""
    nodes = list(ast.walk(tree))
    trainers = [node for node in nodes if isinstance(node, ast.Call) and last_name(node.func).endswith("Trainer")]
    stored = (node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store))
    return len(trainers) != 1 or any(name in (*EVALUATES, DATA) for name in stored)


def _calls(tree: ast.Module, names: tuple[str, ...], package: str) -> list[ast.Call]:
    """Calls of what is imported from a package, where no release is asked for."""
    imported = imported_from(tree, package)
    return [node for node in without_version_checks(tree) if isinstance(node, ast.Call)
            and last_name(node.func) in names and first_name(node.func) in imported]  # fmt: skip


CHECKS = ()
"""None that asks a ds_config."""
