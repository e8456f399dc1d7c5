"""Calls of transformers' Trainer and of Accelerator at which their releases stop, in a file of Python."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from zeroplan.catalog.trainers.argument_history import NEWEST, Span
from zeroplan.check.finding import ERROR, WARNING, named
from zeroplan.check.python_nodes import first_name, last_name, modules_of
from zeroplan.check.rule import Example, Rule
from zeroplan.check.rules.calls import Refused
from zeroplan.check.rules.trainer_release import absence

TRAINERS = ("Trainer", "Seq2SeqTrainer")
ARGUMENTS = ("TrainingArguments", "Seq2SeqTrainingArguments")
OF_TRAINER = {
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

RULES: tuple[Rule, ...] = (
    Rule(
        "ZP859", ERROR, "An evaluation that is given no data",
        "transformers 5.24: trainer.py:__init__, run: ValueError; 4.38 at the end of the first epoch",
        Example(EVALUATING % "", file="train.py"), Example(EVALUATING % ", eval_dataset=data", file="train.py"),
        "https://huggingface.co/docs/transformers/main_classes/trainer",
    ),
)  # fmt: skip


def refused_calls_of_releases(
    tree: ast.Module, transformers: str | None, accelerate: str | None
) -> Iterator[Refused]:  # fmt: skip
    """`transformers`, `accelerate`: the releases that a project asks for; None: the newest."""
    yield from _lost(tree, TRAINERS, "transformers", OF_TRAINER, transformers, NEWEST)
    yield from _lost(tree, ("Accelerator",), "accelerate", OF_ACCELERATOR, accelerate, NEWEST_ACCELERATE)
    yield from _without_data(tree)


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
    calls, several = _calls(tree, TRAINERS, "transformers"), _calls(tree, ARGUMENTS, "transformers")
    if len(calls) != 1 or len(several) != 1:
        return
    (trainer,), (arguments,) = calls, several
    names = [one.arg for one in trainer.keywords]
    value = next((one.value for one in arguments.keywords if one.arg in EVALUATES), None)
    strategy = getattr(value, "value", None)
    if value is None or strategy not in STRATEGIES or DATA in names or None in names or len(trainer.args) >= AT:
        return
    what = f"evaluation by {strategy} and no {DATA} for {last_name(trainer.func)}: it stops"
    yield Refused("ZP859", value, what, f'{named("eval_strategy")}="no", or {DATA}=...')


def _calls(tree: ast.Module, names: tuple[str, ...], package: str) -> list[ast.Call]:
    """Calls of what is imported from a package."""
    modules = modules_of(tree)
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call) and last_name(node.func) in names
            and modules.get(first_name(node.func), "").partition(".")[0] == package]  # fmt: skip


CHECKS = ()
"""None that asks a ds_config."""
