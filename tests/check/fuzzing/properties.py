"""What must hold of any input of `zeroplan check`: the command itself is run, in this process, on files."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import time
import traceback
from functools import partial
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET

from tests.check.fuzzing.cases import CONFIG
from tests.check.mending import only_mended_keys_differ
from zeroplan.catalog.trainers.example_configs import is_example
from zeroplan.catalog.trainers.swift_configs import is_own
from zeroplan.check.json_reader import COMMENTS, NotReadableError, read_json
from zeroplan.check.mended import mended
from zeroplan.check.named_config import check_json
from zeroplan.check.rules import RULES
from zeroplan.cli import check as command
from zeroplan.errors import ZeroplanError
from zeroplan.request.check_setting import read_inputs, setting_of
from zeroplan.request.options import Options

OWN = ("reader", "accelerator", "version", "client_optimizer")
FORMS = (*("full", "concise", "github", "markdown", "junit") * 6, "sarif")
"""SARIF tells every rule each time, and takes ten times as long."""
SMALL, SECONDS, SECONDS_OF_LARGE = 8_000, 1.5, 5.0
"""Bytes of a small input, and processor seconds that one run over it, or over a larger one, may take."""


LONGEST = 20
"""Of processor time: what is not done by then may never be."""
OUT, ERR = (io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace", newline="") for _ in range(2))
"""As the command's own streams; the same ones for all runs, since click keeps each that it was given."""


class BrokenError(AssertionError):
    """A property that does not hold. `signature` is the same for finds of one cause."""

    def __init__(self, signature, detail):
        super().__init__(f"{signature}: {detail}")
        self.signature = signature


class Ran(NamedTuple):
    code: int
    out: str
    err: str


def examine(case, form=""):
    """Run the case in the current folder, which is emptied of its files first. Raises `BrokenError`.

    Says how it went: "refused" (exit code 2), "found", "clean", or "mended". With a form of output also whether that is
    one, which takes twice as long.
    """
    _write(case)
    if form:
        _shown(case, form)
    ran = _timed(case, "json", fix=True)
    if ran.code == 2:
        _one_line(ran, case)
        return "refused"
    findings = _findings(ran)
    if Path(case.name).read_bytes() == case.content:
        return "found" if findings else "clean"
    _that(case.name == CONFIG, "mended what is no JSON")
    _mended_once(case, findings)
    return "mended"


def _shown(case, form):
    """The file as it is, in a form that others read."""
    ran = _timed(case, form)
    if ran.code != 2:
        _form(form, ran, _findings(_timed(case, "json")))


def _findings(ran):
    """Each in its place."""
    findings = _strict_json(ran.out)["findings"]
    for finding in findings:
        _placed(finding)
    _that(ran.code == any(one["severity"] != "advice" for one in findings), "exit code", ran.code)
    return findings


def _write(case):
    for name in os.listdir():
        os.unlink(name)
    if case.beside is not None:
        Path(CONFIG).write_bytes(case.beside)
    Path(case.name).write_bytes(case.content)
    if case.arguments is not None:
        Path(case.arguments[0]).write_bytes(case.arguments[1])


def _timed(case, form, *, fix=False):
    start = time.process_time()
    signal.signal(signal.SIGPROF, _hangs)
    signal.setitimer(signal.ITIMER_PROF, LONGEST)
    try:
        ran = _run(case, form, fix=fix)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    taken, most = time.process_time() - start, SECONDS if len(case.content) < SMALL else SECONDS_OF_LARGE
    _that(taken < most, "slow", f"{taken:.1f} s for {len(case.content):,} bytes")
    return ran


def _hangs(_signal, frame):
    raise BrokenError("it does not end", f"{frame.f_code.co_qualname} after {LONGEST} s")


def _run(case, form, *, fix):
    options = dict(case.options)
    own = {name: options.pop(name, None) for name in OWN}
    typed = command.CheckCommand(
        [case.name], Options(**options), own["reader"], case.arguments and case.arguments[0], own["client_optimizer"],
        own["accelerator"] or "cuda", own["version"], form, [], [], "warning", exit_zero=False, fix=fix,
    )  # fmt: skip
    for stream in (OUT, ERR):
        stream.seek(0)
        stream.truncate()
    try:
        with contextlib.redirect_stdout(OUT), contextlib.redirect_stderr(ERR):
            code = command.run(typed)
    except ZeroplanError as error:
        return Ran(2, _read(OUT), str(error))
    except BrokenError:
        raise
    except Exception as error:
        raise BrokenError(_signature(error), error) from error
    return Ran(code, _read(OUT), _read(ERR))


def _read(stream):
    stream.seek(0)
    return stream.read()


def _signature(error):
    """The kind of an exception and where it came from; of a recursion, where it began to repeat does not matter."""
    if isinstance(error, RecursionError):
        return "RecursionError"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "zeroplan" in frame.filename]
    last = frames[-1]
    return f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno} {last.name}"


def _that(holds, signature, detail=""):
    if not holds:
        raise BrokenError(signature, detail)


def _one_line(ran, case):
    _that(ran.out == "", "output beside an error", ran.out[:80])
    _that(ran.err and len(ran.err.splitlines()) == 1, "error of several lines", repr(ran.err)[:200])
    _that(len(ran.err) < 600, "error of many letters", repr(ran.err)[:700])
    _that(Path(case.name).read_bytes() == case.content, "refused and written")


def _strict_json(text):
    try:
        return json.loads(text, parse_constant=lambda name: _that(False, "output that is not JSON", name))
    except ValueError as error:
        raise BrokenError("output that is not JSON", error) from error


def _placed(finding):
    """In its file, by a rule that there is, on one line; with edits of JSON alone."""
    rule = finding["rule"]
    _that(not finding["edits"] or finding["file"].endswith(".json"), f"edits of {rule} in YAML", finding)
    if is_own(finding["file"]) or is_example(finding["file"]):  # of a tool's package: it is no file here
        return
    lines = Path(finding["file"]).read_bytes().decode("utf-8-sig").split("\n")
    _that(1 <= finding["line"] <= len(lines), f"line of {rule}", finding)
    length = len(lines[finding["line"] - 1])
    _that(1 <= finding["column"] <= length + 1, f"column of {rule}", finding)
    _that(finding["column"] < finding["end_column"] <= max(length, finding["column"]) + 1, f"end column of {rule}", finding)
    _that(rule in RULES, "rule", rule)
    for part in ("message", "write"):
        _that(len(finding[part].splitlines()) <= 1, f"{part} of {rule} on several lines", finding)
        _that(len(finding[part]) < 600, f"{part} of {rule} without an end", len(finding[part]))
    _that(finding["message"], f"empty message of {rule}")


def _form(form, ran, findings):
    """What other programs, and terminals, can read."""
    lines = ran.out.split("\n")[:-1]
    if form == "junit":
        try:
            ET.fromstring(ran.out)
        except ET.ParseError as error:
            raise BrokenError("XML that is none", error) from error
        return
    if form == "sarif":
        _that(len(_strict_json(ran.out)["runs"][0]["results"]) == len(findings), "results")
        return
    _that(all(line.isprintable() for line in lines), f"letters that a terminal obeys in {form}",
          [line for line in lines if not line.isprintable()][:2])  # fmt: skip
    if form in ("concise", "github"):
        _that(len(lines) == len(findings) + 1, f"lines of {form}", lines)
    if form == "markdown" and findings:
        _that(len(lines) == len(findings) + 4, "rows", lines)


def _mended_once(case, left):
    """What is written stays when it is asked for again, and what was said to be left is found then."""
    path, before = Path(case.name), case.content.decode("utf-8-sig")
    first = path.read_bytes()
    after = first.decode("utf-8-sig")
    again = _timed(case, "json", fix=True)
    _that(path.read_bytes() == first, "mended twice", [before, after, path.read_bytes()])
    _that(again.err.startswith("mended 0 of "), "mended again", again.err)
    _that(_findings(again) == left, "other findings when it is asked again", [before, after, left])
    _same_otherwise(case, before, after)


def _same_otherwise(case, before, after):
    """What was no finding stays; of a quarter of the texts the keys too, which takes mending them again."""
    if (was := _document(before)) is None:
        return
    now = _document(after)
    _that(now is not None, "mended and not to be read", [before, after])
    comments = [sum(remark.what == COMMENTS for remark in one.remarks) for one in (was, now)]
    _that(comments[0] == comments[1], "a comment lost", [before, after])
    _that(_is_json(after) or not _is_json(before), "mended and no JSON any more", [before, after])
    if len(before) % 4 or case.arguments is not None:
        return
    options = {name: value for name, value in case.options.items() if name not in OWN}
    known = read_inputs(Options(**options), **{name: case.options[name] for name in OWN if name in case.options})
    found = mended(before, partial(check_json, CONFIG, setting=known.setting, made=partial(setting_of, known)), list)
    _that(found.text == after, "another text than the command's", [found.text, after])
    try:
        only_mended_keys_differ(before, found)
    except AssertionError as error:
        raise BrokenError("another key changed", [before, after, error]) from error


def _document(text):
    try:
        return read_json(CONFIG, text)
    except (ZeroplanError, NotReadableError):
        return None


def _is_json(text):
    with contextlib.suppress(ValueError, RecursionError):
        return isinstance(json.loads(text), dict)
    return False
