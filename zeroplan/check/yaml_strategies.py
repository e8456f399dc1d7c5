"""Strategies of Lightning's in YAML: what Hydra makes an object of (`_target_`), LightningCLI's `class_path`, and
`strategy: deepspeed_stage_2`.
"""

from __future__ import annotations

import ast
import posixpath
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from zeroplan.check.check import check, placed
from zeroplan.check.document import Beside, Document, Member, ValueNode
from zeroplan.check.finding import WARNING, Finding, Hit, said
from zeroplan.check.inner import DEEPEST
from zeroplan.check.interpolated import as_number, is_interpolated
from zeroplan.check.kind import JSON, OtherKindError
from zeroplan.check.named_config import EXPECTED, CheckedFiles, Made, reached
from zeroplan.check.partly_known import alone, decided
from zeroplan.check.python_file import NOT_OF_PYTHON
from zeroplan.check.python_reader import Literal, literal_of
from zeroplan.check.python_strategies import PLUGIN, REGISTERED, STRATEGY, as_argument, built_config
from zeroplan.check.rules.calls import (
    GONE,
    PACKAGES_OF_CLASSES,
    TRAINER,
    gone_argument,
    unknown_argument,
    unknown_strategy,
)
from zeroplan.check.setting import ACCELERATE, LIGHTNING, Setting
from zeroplan.check.shell_variables import Word
from zeroplan.errors import SpecError

INSIDE = {"_target_": "", "class_path": "init_args", "target": "params"}
"""Keys that name a class, of Hydra, LightningCLI and Latent Diffusion's instantiate_from_config, and where each has its
arguments; "": beside it.
"""
OF_HYDRA = "_"
"""How the keys begin that Hydra keeps to itself: _target_, _recursive_."""
KEY = "strategy"


class Strategy(NamedTuple):
    """A strategy that a file states."""

    path: str
    """Where, with dots; "" for the whole file."""
    call: str
    """The class that is built."""
    arguments: tuple[Member, ...]
    name: Member | None = None
    """The member that names one of Lightning's by its own name."""
    trainer: tuple[Member, ...] = ()
    """The arguments of the Trainer that it stands among."""

    @property
    def config_file(self) -> str:
        """The ds_config that it names; "" where it names none."""
        stated = next((one.node.scalar for one in self.arguments if one.name in ("config", "hf_ds_config")), None)
        return stated if isinstance(stated, str) and stated.lower().endswith(JSON) else ""

    def hits(self) -> Iterator[Hit]:
        """What the class, or Lightning, stops at."""
        stated = None if self.name is None else self.name.node.scalar
        if self.name is not None and (write := unknown_strategy(stated)):
            what = f"{KEY} {said(stated)} is none that Lightning has"
            yield Hit("ZP844", (), what, f"{KEY}: {write}", WARNING, self.name.start)  # a program may have its own
        for one in self.trainer:
            if one.name in GONE:
                yield Hit("ZP843", (), gone_argument(one.name), GONE[one.name], WARNING, one.start)
        for one in self.arguments:
            if (refused := unknown_argument(self.call, one.name)) is not None:
                yield Hit("ZP843", (), refused[0], refused[1].replace("=", ": "), offset=one.start)

    def built(self, document: Document) -> Literal | None:
        """The config that is made of the arguments; None for one that is given a config, or is not known."""
        place = _placed(document, self.name.node if self.name is not None else document.root)
        stated = None if self.name is None else self.name.node.scalar
        if self.name is not None:
            words = [ast.keyword(KEY, ast.copy_location(ast.Constant(stated), place))]
            config = built_config(_call("Trainer", words, place), "Trainer")
        else:
            words = [ast.keyword(one.name, _placed(document, one.node)) for one in self.arguments]
            first = words[0].value if words else place
            config = built_config(_call(self.call, words, first), self.call)
        return None if config is None else literal_of(document, config, self.call)


def named_strategy(word: Word) -> Strategy:
    """The one that an option of a command's line names."""
    value = ValueNode(word.start, word.end, scalar=word.text)
    return Strategy(KEY, STRATEGY, (), Member(KEY, word.start, word.end, value))


def strategy_in(document: Document) -> Strategy | None:
    """The first of a file, in which the arguments of the Trainer may be all that is there, as in Hydra's groups."""
    strategy = _strategy(document.root, "", 0)
    is_trainers = posixpath.basename(posixpath.dirname(document.name)) == TRAINER.lower()
    if strategy is not None and strategy.path == KEY and is_trainers:
        return strategy._replace(trainer=tuple(document.root.members or ()))
    return strategy


def _strategy(node: ValueNode, path: str, depth: int) -> Strategy | None:
    if node.members is None or depth > DEEPEST:
        return None
    by_name = {one.name: one for one in node.members}
    key = next((name for name in INSIDE if name in by_name), "")
    package, _, call = str(by_name[key].node.scalar if key else None).rpartition(".")
    call = STRATEGY if call == PLUGIN and package.partition(".")[0] in PACKAGES_OF_CLASSES[STRATEGY] else call
    if call in (STRATEGY, PLUGIN) and package.partition(".")[0] in ("", *PACKAGES_OF_CLASSES[call]):
        beside = by_name[INSIDE[key]].node.members if INSIDE[key] in by_name else ()
        inside = beside if INSIDE[key] else node.members
        own = [one for one in inside or () if not one.name.startswith(OF_HYDRA)]
        return Strategy(path, call, tuple(own))
    named = by_name.get(KEY)
    is_trainer = call == TRAINER or path.rpartition(".")[2] == TRAINER.lower()
    trainer = tuple(node.members) if is_trainer else ()
    if named is not None and _is_deepspeeds(named.node.scalar):
        return Strategy(f"{path}.{KEY}".lstrip("."), STRATEGY, (), named, trainer)
    below = (_strategy(one.node, f"{path}.{one.name}".lstrip("."), depth + 1) for one in node.members)
    first = next((one for one in below if one is not None), None)
    return first._replace(trainer=first.trainer or trainer) if first is not None else None


def _is_deepspeeds(stated: Any) -> bool:
    return isinstance(stated, str) and (stated in REGISTERED or bool(unknown_strategy(stated)))


def _call(name: str, words: list[ast.keyword], place: ast.expr) -> ast.Call:
    return ast.copy_location(ast.Call(ast.Name(name), [], words), place)


def _placed(document: Document, node: ValueNode) -> ast.expr:
    """A value as Python has it, in its place; a name for what another file decides, and for what is none."""
    is_known = node.members is None and node.items is None and not is_interpolated(node.scalar)
    value = ast.Constant(as_number(document, node).scalar) if is_known else ast.Name("unknown")
    value.lineno, value.col_offset = _place(document, node.start)
    value.end_lineno, value.end_col_offset = _place(document, max(node.start, node.end))
    return value


def _place(document: Document, offset: int) -> tuple[int, int]:
    """Line, and bytes of UTF-8 before it."""
    line, column = document.place(offset)
    return line, len(document.text[offset - column + 1 : offset].encode())


def check_strategy(
    document: Document, strategy: Strategy, setting: Setting, beside: Beside, made: Made
) -> CheckedFiles:  # fmt: skip
    """The findings of the config that a strategy names or is made to; raises `SpecError` where neither is there."""
    setting = replace(setting, reader=LIGHTNING if strategy.call == STRATEGY else ACCELERATE, reader_is_known=True)
    checked = CheckedFiles([placed(document, hit) for hit in strategy.hits()], {document.name: document.text})
    where = f"{document.name}: {strategy.path or strategy.call}"
    if strategy.config_file:
        if (file := beside(strategy.config_file)) is None:
            raise SpecError(document.name, f"{said(strategy.config_file)}, which is not there", "a ds_config.json")
        findings, checked.texts[file[0]] = reached(*file, setting, made)
        checked.findings += findings
        checked.notes.append(f"{where} names {file[0]}")
        return checked
    literal = strategy.built(document)
    if literal is None and not checked.findings:
        raise OtherKindError(document.name, f"{strategy.path or strategy.call} without a config to look at", EXPECTED)
    if literal is not None:
        checked.notes.append(f"{where}: the config that its class makes of it")
        if literal.unknown:
            findings = alone(literal.document, literal.unknown, setting, made)
            checked.notes.append(f"{document.name}: {decided('another file', literal.unknown)}")
        else:
            findings = check(literal.document, made(literal.document, setting, None))
        checked.findings += [_as_yaml(one, strategy.call) for one in findings if one.rule not in NOT_OF_PYTHON]
    return checked


def _as_yaml(finding: Finding, call: str) -> Finding:
    """With the line to write as the class takes it, and no edit."""
    return replace(finding, write=as_argument(finding.write, finding.path, call, ": "), edits=())
