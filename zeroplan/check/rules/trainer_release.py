"""Arguments, and values of them, that the release of transformers does not know which a project asks for."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from zeroplan.catalog.trainers.argument_history import (
    ARGUMENTS,
    NEWEST,
    OPTIMIZERS,
    SCHEDULES,
    Span,
    called_by_swift,
    llama_factory,
    swift,
    trainer,
    trl,
)
from zeroplan.catalog.trainers.swift_configs import RENAMED, newer_name
from zeroplan.catalog.trainers.tools import LLAMA_FACTORY, SWIFT, TRAINER, TRL
from zeroplan.check.arguments import Arguments
from zeroplan.check.finding import ERROR, WARNING, Hit, named, said
from zeroplan.check.interpolated import is_interpolated
from zeroplan.check.kind import DEEPSPEED as KEY
from zeroplan.check.kind import PYTHON
from zeroplan.check.rule import Example, Rule
from zeroplan.check.script_arguments import stops_at_unknown
from zeroplan.releases import number

NEWEST_OF = {TRAINER: NEWEST, TRL: NEWEST, LLAMA_FACTORY: "5.6.0"}
"""The newest transformers that each tool's own newest release takes: of LLaMA-Factory 0.9.5, TRL 1.16."""
LEAVES_OUT = Span("0.13.0", "0.19.0")
"""Releases of TRL whose TrlParser does not mind what it does not know in a file (scripts/utils.py; 0.18.0, run)."""
NEWEST_TRL, NEWEST_LLAMA_FACTORY, NEWEST_SWIFT = "1.16.0", "0.9.5", "4.6.0"
VALUES: dict[str, Mapping[str, Span]] = {"optim": OPTIMIZERS, "lr_scheduler_type": SCHEDULES}
PAIR, QUOTES = re.compile(r"^(\w+): (\S+)$"), "\"'"
FIRST = "4.36.0"
NEAR = 0.8
"""How near a name is to the argument that may have been meant."""
FILE = "output_dir: o\nper_device_train_batch_size: 1\nbf16: true\n%s\ndeepspeed: {bf16: {enabled: auto}, " \
       "zero_optimization: {stage: 2}, train_micro_batch_size_per_gpu: auto}\n"  # fmt: skip
OF_SWIFT = "model: x\n%s: full\ntorch_dtype: bfloat16\ndataset: d\ndeepspeed: zero2\n"
ON_LINE = "torchrun train.py --output_dir o --bf16 --per_device_train_batch_size 8 --deepspeed ds.json\n"

OF_A_DICT = Span("4.53.0", "4.54.0")
"""Releases whose parser takes `deepspeed` for a dict and no text."""
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
    Rule(
        "ZP829", ERROR, "A config on the command line that transformers 4.53 takes for a dict",
        "transformers 4.53.0, run: argument --deepspeed: invalid dict value",
        Example(ON_LINE, (("transformers", "4.53.0"),), file="run.sh"),
        Example(ON_LINE, (("transformers", "4.54.0"),), file="run.sh"),
        "https://github.com/huggingface/transformers/issues/39673",
    ),
    Rule(
        "ZP831", WARNING, "An argument that this release of ms-swift does not know",
        "ms-swift 4.6: utils/utils.py:parse_args, run: ValueError, remaining_argv; 3.12 takes it",
        Example(OF_SWIFT % "train_type", file="train.yaml"), Example(OF_SWIFT % "tuner_type", file="train.yaml"),
        "https://swift.readthedocs.io/en/latest/Instruction/Command-line-parameters.html",
    ),
)  # fmt: skip


class Stated(NamedTuple):
    """The releases that a project asks for; None where it does not say, and the newest is meant."""

    transformers: str | None
    trl: str | None
    llama_factory: str | None
    swift: str | None


def arguments_of_the_release(arguments: Arguments, releases: Stated) -> Iterator[Hit]:
    """Arguments and values that the releases do not have."""
    is_lenient = arguments.tool == TRL and arguments.job is None and releases.trl and LEAVES_OUT.is_in(releases.trl)
    for hit in _absent(arguments, releases):
        mild = hit._replace(severity=WARNING, message=hit.message.replace("stops at it", "leaves it out, or stops"))
        yield mild if is_lenient and hit.rule == "ZP833" else hit


def _absent(arguments: Arguments, releases: Stated) -> Iterator[Hit]:
    tool, stated = arguments.tool, releases.transformers
    if tool == SWIFT:
        yield from _of_swift(arguments, releases.swift)
    if tool not in NEWEST_OF or (arguments.of_gaudi and stated is None):
        return
    release = stated or NEWEST_OF[tool]
    code = "" if arguments.job is None else arguments.job.code
    is_strict = stops_at_unknown(code) if code else tool == TRL
    is_sure = stated is not None and (is_strict or arguments.document.name.endswith(PYTHON))
    own = llama_factory() if tool == LLAMA_FACTORY else {}
    of_release = releases.llama_factory or NEWEST_LLAMA_FACTORY
    of_trainer = {name: span for name, span in ARGUMENTS.items() if name not in own or not own[name].is_in(of_release)}
    of_trainer = {name: span for name, span in of_trainer.items() if name not in code}  # it may have its own
    yield from _unknown(arguments, of_trainer, ("transformers", release), ERROR if is_sure else WARNING)
    if tool == LLAMA_FACTORY and arguments.job is None:
        of_its = {name: span for name, span in own.items() if name not in ARGUMENTS}  # which transformers may have
        severity = WARNING if releases.llama_factory is None else ERROR
        yield from _unknown(arguments, of_its, ("LLaMA-Factory", of_release), severity)
        yield from _of_no_release(arguments, own, "ZP833")
    if tool == TRL:
        of_trl = {name: span for name, span in trl().items() if name not in trainer() and name not in code}
        severity = ERROR if releases.trl is not None and is_strict else WARNING
        yield from _unknown(arguments, of_trl, ("trl", releases.trl or NEWEST_TRL), severity)
    yield from _named_on_the_line(arguments, stated)
    for name, known in VALUES.items():
        yield from _value(arguments, name, known, release, is_stated=stated is not None)


def _named_on_the_line(arguments: Arguments, release: str | None) -> Iterator[Hit]:
    """Transformers 4.53 takes a text on the command line for a dict (its modeling_utils asks typing for the union in
    the other order first); a file of YAML goes through.
    """
    typed = arguments if arguments.job is not None else arguments.command_line
    if typed is None or release is None or not OF_A_DICT.is_in(release):
        return
    if isinstance(stated := typed.stated(KEY), str) and not stated.startswith("{"):
        what = f"--deepspeed {named(stated)}: transformers {release} takes no name of a file on the command line"
        yield Hit("ZP829", (KEY,) if typed is arguments else (), what, "transformers>=4.54")


def _of_swift(arguments: Arguments, stated: str | None) -> Iterator[Hit]:
    """Arguments that other releases of ms-swift have (utils/utils.py:parse_args)."""
    if arguments.stated("ignore_args_error") is True:
        return
    release, severity = stated or NEWEST_SWIFT, WARNING if stated is None else ERROR
    if (new := newer_name(arguments.stated(KEY))) and number(release) >= number(RENAMED):
        what = f"{KEY} {said(arguments.stated(KEY))} is ms-swift 2's name of {new}: {release} looks for such a file"
        yield Hit("ZP831", (KEY,), what, f"{KEY}: {new}" if arguments.job is None else f"--{KEY} {new}", severity)
    if arguments.job is None:
        yield from _of_no_release(arguments, {**swift(), "ENV": Span()}, "ZP831")
    for name in arguments.document.config:
        span = swift().get(name)
        if span is not None and not span.is_in(release):
            new = called_by_swift(name, release)
            value = named(str(arguments.document.config[name]))
            write = "delete it" if not new else f"{new}: {value}" if arguments.job is None else f"--{new} {value}"
            yield Hit("ZP831", (name,), f"{name} {absence(span, 'ms-swift', release)}", write, severity)


def _unknown(
    arguments: Arguments, known: Mapping[str, Span], package: tuple[str, str], severity: str
) -> Iterator[Hit]:  # fmt: skip
    """Arguments that other releases of a package have; `package`: its name and release."""
    for name in arguments.document.config:
        if name in known and not known[name].is_in(package[1]):
            write = _line(arguments.document.config[name], known[name].write)
            write = write if arguments.job is None else PAIR.sub(_as_option, write)
            yield Hit("ZP833", (name,), f"{name} {absence(known[name], *package)}", write, severity)


def _line(value: object, template: str) -> str:
    """What to write in place of an argument; a switch that is off has no other name to go on under."""
    is_off = value in (None, False) and "{}" not in template
    if not template or value is None or is_off or isinstance(value, dict | list) or is_interpolated(value):
        return "delete it"
    return template.format(said(value))


def _as_option(match: re.Match[str]) -> str:
    """An argument of a command's line, where a switch that is off stands for the text no."""
    return f"--{match[1]} {'no' if match[2] == 'false' else match[2].strip(QUOTES)}"


def _of_no_release(arguments: Arguments, own: Mapping[str, Span], rule: str) -> Iterator[Hit]:
    """Keys at which LLaMA-Factory stops (0.9.5 hparams/parser.py:_parse_args), and ms-swift; a fork may know more."""
    known = {*own, *trainer()}
    others = sorted(known - arguments.document.config.keys())
    for name in arguments.document.config:
        if name not in known:
            near = difflib.get_close_matches(name, others, n=1, cutoff=NEAR)
            whose = arguments.tool if arguments.tool == TRAINER else f"{arguments.tool}'s"
            what = f"{named(name)} is no argument of {whose}, which stops at it"
            yield Hit(rule, (name,), what, f"{near[0]}: ..." if near else "delete it")


def unknown_to_trainer(arguments: Arguments, release: str | None) -> Iterator[Hit]:
    """Arguments of a call of transformers' own class that no release has, of which all from 4.36 on are known."""
    if arguments.tool == TRAINER:
        severity = ERROR if release is None or number(release) >= number(FIRST) else WARNING
        for hit in _of_no_release(arguments, {}, "ZP833"):
            yield hit._replace(severity=severity)


def _value(
    arguments: Arguments, name: str, known: Mapping[str, Span], release: str, *, is_stated: bool
) -> Iterator[Hit]:  # fmt: skip
    value = arguments.stated(name)
    if not isinstance(value, str) or (value in known and known[value].is_in(release)):
        return
    near = difflib.get_close_matches(value.lower(), [one for one in known if known[one].is_in(release)], n=1)
    if value in known:
        write = known[value].write or (f"{name}: {near[0]}" if near else "another")
        when = absence(known[value], "transformers", release)
        yield Hit("ZP834", (name,), f"{name} {said(value)} {when}", write, ERROR if is_stated else WARNING)
        return
    by_script = arguments.job is not None  # whose own parser is not known
    what = f"{name} {said(value)} is none that transformers knows, and the Trainer stops"
    write = f"{name}: {near[0]}" if near else f"one of {', '.join(list(known)[:4])}, ..."
    yield Hit("ZP834", (name,), what, write, WARNING if by_script else ERROR)


def absence(span: Span, package: str, release: str) -> str:
    """Since or until when a release of a package does not have something."""
    if span.is_gone(release):
        return f"is gone since {package} {_short(span.until)}, which stops at it"
    return f"came with {package} {_short(span.since)}: {release} stops at it"


def _short(release: str) -> str:
    return release.removesuffix(".0")


CHECKS = ()
"""None that asks a ds_config."""
