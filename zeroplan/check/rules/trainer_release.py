"""Arguments, and values of them, that the release of transformers does not know which a project asks for."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping

from zeroplan.catalog.trainers.argument_history import (
    ARGUMENTS,
    NEWEST,
    OPTIMIZERS,
    SCHEDULES,
    Span,
    llama_factory,
    trainer,
    trl,
)
from zeroplan.catalog.trainers.tools import LLAMA_FACTORY, TRAINER, TRL
from zeroplan.check.arguments import Arguments
from zeroplan.check.finding import ERROR, WARNING, Hit, named, said
from zeroplan.check.rule import Example, Rule

NEWEST_OF = {TRAINER: NEWEST, TRL: NEWEST, LLAMA_FACTORY: "5.6.0"}
"""The newest transformers that each tool's own newest release takes: of LLaMA-Factory 0.9.5, TRL 1.16."""
NEWEST_TRL = "1.16.0"
ITS_OWN = {LLAMA_FACTORY: ("overwrite_output_dir",)}
"""Arguments that a tool has itself."""
VALUES: dict[str, Mapping[str, Span]] = {"optim": OPTIMIZERS, "lr_scheduler_type": SCHEDULES}
PYTHON = ".py"
NEAR = 0.8
"""How near a name is to the argument that may have been meant."""
FILE = "output_dir: o\nper_device_train_batch_size: 1\nbf16: true\n%s\ndeepspeed: {bf16: {enabled: auto}, " \
       "zero_optimization: {stage: 2}, train_micro_batch_size_per_gpu: auto}\n"  # fmt: skip
LINK = "https://huggingface.co/docs/transformers/main_classes/trainer"

RULES: tuple[Rule, ...] = (
    Rule(
        "ZP833", WARNING, "An argument that this release of its tool does not know",
        "training_args.py of transformers 4.36 to 5.24, run: ValueError of HfArgumentParser, TypeError of a call",
        Example(FILE % "evaluation_strategy: 'no'", file="train.yaml"),
        Example(FILE % "eval_strategy: 'no'", file="train.yaml"), LINK,
    ),
    Rule(
        "ZP834", ERROR, "An optimizer or schedule that this transformers does not know",
        "training_args.py and trainer_utils.py of transformers 4.36 to 5.24, run: ValueError",
        Example(FILE % "lr_scheduler_type: cosin", file="train.yaml"),
        Example(FILE % "lr_scheduler_type: cosine", file="train.yaml"), LINK,
    ),
)  # fmt: skip


def arguments_of_the_release(
    arguments: Arguments, stated: str | None, stated_trl: str | None
) -> Iterator[Hit]:  # fmt: skip
    """`stated`, `stated_trl`: what a project asks for of transformers and TRL; None: the newest is meant."""
    tool = arguments.tool
    if tool not in NEWEST_OF:
        return
    release = stated or NEWEST_OF[tool]
    is_sure = stated is not None and (tool == TRL or arguments.document.name.endswith(PYTHON))
    for name in arguments.document.config:
        span = ARGUMENTS.get(name)
        if span is None or name in ITS_OWN.get(tool, ()) or span.is_in(release):
            continue
        write = span.write.format(named(str(arguments.stated(name)))) or "delete it"
        yield Hit("ZP833", (name,), f"{name} {_when(span, release)}", write, ERROR if is_sure else WARNING)
    if tool == LLAMA_FACTORY and arguments.job is None:
        yield from _of_llama_factory(arguments)
    if tool == TRL:
        yield from _of_trl(arguments, stated_trl)
    for name, known in VALUES.items():
        yield from _value(arguments, name, known, release, is_stated=stated is not None)


def _of_trl(arguments: Arguments, stated: str | None) -> Iterator[Hit]:
    """Its parser stops at keys that it does not know; those of a project's own classes are no one else's to judge."""
    release, known = stated or NEWEST_TRL, trl()
    for name in arguments.document.config:
        if name not in known or name in trainer() or known[name].is_in(release):
            continue
        write = known[name].write.format(named(str(arguments.stated(name)))) or "delete it"
        when = _when(known[name], release, "trl ")
        yield Hit("ZP833", (name,), f"{name} {when}", write, WARNING if stated is None else ERROR)


def _of_llama_factory(arguments: Arguments) -> Iterator[Hit]:
    """It stops at keys that it does not know (0.9.5 hparams/parser.py:_parse_args); a fork may know its own."""
    known = llama_factory()
    for name in arguments.document.config:
        if name in trainer() or (name in known and not known[name].until):
            continue
        if name in known:
            what = f"{name} is gone since LLaMA-Factory {known[name].until}, which stops at it"
        else:
            what = f"{named(name)} is no argument of LLaMA-Factory's, which stops at it"
        others = sorted({*known, *trainer()} - arguments.document.config.keys())
        near = [] if name in known else difflib.get_close_matches(name, others, n=1, cutoff=NEAR)
        yield Hit("ZP833", (name,), what, f"{near[0]}: ..." if near else "delete it")


def _value(
    arguments: Arguments, name: str, known: Mapping[str, Span], release: str, *, is_stated: bool
) -> Iterator[Hit]:  # fmt: skip
    value = arguments.stated(name)
    if not isinstance(value, str) or (value in known and known[value].is_in(release)):
        return
    near = difflib.get_close_matches(value, [one for one in known if known[one].is_in(release)], n=1)
    if value in known:
        write = known[value].write or f"{name}: {near[0]}" if near else "another"
        severity = ERROR if is_stated else WARNING
        yield Hit("ZP834", (name,), f"{name} {said(value)} {_when(known[value], release)}", write, severity)
        return
    by_script = arguments.job is not None  # whose own parser is not known
    what = f"{name} {said(value)} is none that transformers knows, and the Trainer stops"
    write = f"{name}: {near[0]}" if near else f"one of {', '.join(list(known)[:4])}, ..."
    yield Hit("ZP834", (name,), what, write, WARNING if by_script else ERROR)


def _when(span: Span, release: str, package: str = "transformers ") -> str:
    if span.is_gone(release):
        return f"is gone since {package}{_short(span.until)}, which stops at it"
    return f"came with {package}{_short(span.since)}: {release} stops at it"


def _short(release: str) -> str:
    return release.removesuffix(".0")


CHECKS = ()
"""None that asks a ds_config."""
