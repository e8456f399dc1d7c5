"""Files that a launch script writes before it names them: of a here-document, by `echo`, `cp`, or by `sed` of a
template, as Megatron-DeepSpeed's and transformers' examples do.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from typing import NamedTuple

from zeroplan.check.document import Beside
from zeroplan.check.launch_files import read_beside
from zeroplan.check.sed import substituted
from zeroplan.check.shell_script import Command
from zeroplan.check.shell_variables import UNKNOWN, Word, word_of

PLACEHOLDER = "?"
"""Stands for what is not known in the name of a file that is written, as a job's number."""
MOST_FILES, MOST_LETTERS = 5, 1_000_000
"""Files that one `sed -i` is followed in, and letters that all are."""
IN_PLACE = ("-i", "--in-place")
ECHO = ("-e", "-n", "-ne", "-en")
PIPED = re.compile(r"(?<!\|)\|&?\s*$")
STANDS_FOR = "${?}"
"""What a file has, as an interpolation, for a value that is not known."""
OF_JSON = re.compile(rf'"(?:[^"\\\n]|\\.)*+(?:"|$)|(?<![\w.+-])[\w.+-]*+{UNKNOWN}[\w.+{UNKNOWN}-]*', re.MULTILINE)
OF_YAML = re.compile(rf"^([ \t]*+(?:- )?[\w.-]++:[ \t]++).*{UNKNOWN}.*$", re.MULTILINE)
KEY = re.compile(r'"[^"\n]*\$\{\?\}[^"\n]*"\s*:')
"""A key that is not known."""
OF_HOSTS = re.compile(
    rf"^(?:num_processes|num_machines|machine_rank|main_process_\w+|gpu_ids|rdzv_\w+):.*{UNKNOWN}.*$", re.MULTILINE
)
"""Lines of Accelerate's file that say where it runs, and nothing of the config."""
OF_ACCELERATE = re.compile(r"^(?:distributed_type|compute_environment|deepspeed_config):", re.MULTILINE)


class WrittenFile(NamedTuple):
    """A file as a script has written it so far."""

    name: str
    """As messages call it."""
    content: Word


class SedCall(NamedTuple):
    """The words of one call of `sed`."""

    scripts: list[Word]
    files: list[Word]
    extended: bool
    in_place: bool

    @classmethod
    def of(cls, operands: Sequence[Word]) -> SedCall:
        scripts, files, is_script = list[Word](), list[Word](), False
        for word in operands:
            text = word.text or ""
            if is_script:
                scripts.append(word)
            elif not text.startswith("-"):
                files.append(word)
            is_script = not is_script and text in ("-e", "--expression", "-ie")
        scripts, files = (scripts, files) if scripts else (files[:1], files[1:])
        extended = any(word.text in ("-E", "-r", "--regexp-extended") for word in operands)
        return cls(scripts, files, extended, any((word.text or "").startswith(IN_PLACE) for word in operands))


class WrittenFiles:
    """What a script has written so far."""

    def __init__(self, text: str, beside: Beside) -> None:
        self._text = text
        self._beside = beside
        self._files: dict[str, WrittenFile] = {}
        self._piped: WrittenFile | None = None
        """What the command before hands on to the next."""
        self._end = 0
        self._room = MOST_LETTERS

    def copy(self) -> WrittenFiles:
        """The files as they are now."""
        now = WrittenFiles(self._text, self._beside)
        now._files = dict(self._files)
        return now

    def get(self, word: Word | None) -> WrittenFile | None:
        """The file that a word names, where the script writes one of this name."""
        return None if word is None or not _key(word) else self._files.get(_key(word))

    def file(self, written: WrittenFile) -> tuple[str, str] | None:
        """Name and text, with `STANDS_FOR` for values of a training file; None where the words of the script do not
        decide it.
        """
        content = self._content(written)
        if OF_ACCELERATE.search(content) is None:
            content = OF_YAML.sub(rf"\1{STANDS_FOR}", content)
        return None if UNKNOWN in content else (written.name, content)

    def partly(self, written: WrittenFile) -> tuple[str, str] | None:
        """Name and text of JSON with `STANDS_FOR` for each value that the words of the script do not decide."""
        content = OF_JSON.sub(_stood_in, self._content(written))
        is_open = content == f'"{STANDS_FOR}"' or KEY.search(content) is not None
        return None if is_open else (written.name, content)

    def _content(self, written: WrittenFile) -> str:
        content = written.content.pieces
        for name in self._files if UNKNOWN in content else ():
            content = content.replace(name.replace(PLACEHOLDER, UNKNOWN), name)
        return OF_HOSTS.sub(f"# {PLACEHOLDER}", content)

    def named(self, command: Command) -> Command:
        """A command with the names of such files in it where a part of a name is not known, as a job's number."""
        if not self._files or all(word.text is not None for word in command.words):
            return command
        words = (word._replace(text=_shown(word)) if self._is_partly(word) else word for word in command.words)
        return command._replace(words=list(words))

    def _is_partly(self, word: Word) -> bool:
        shown = _shown(word).rpartition("=")[2]
        return word.text is None and not shown.startswith(PLACEHOLDER) and posixpath.normpath(shown) in self._files

    def beside(self, name: str) -> tuple[str, str] | None:
        """A file as a command has it that comes now."""
        own = self._files.get(posixpath.normpath(name))
        return self._beside(name) if own is None else self.file(own)

    def add(self, command: Command) -> None:
        """Follow one command that may write a file."""
        (first, *operands), target = command.words, command.writes
        piped = self._piped if PIPED.search(self._text[self._end : first.start]) else None
        name = (first.text or "").rpartition("/")[2]
        self._end = max(word.end for word in (*command.words, command.writes or first, command.reads or first))
        if command.here is not None:
            piped = WrittenFile("a here-document", command.here)
            self._end = max(self._end, command.here.end)
        elif command.reads is not None:
            piped = self._read(command.reads)
        self._piped = None
        if name in ("cp", "mv") and len(operands) == 2:
            self._copy(*operands, is_sure=not command.is_conditional)
        elif name == "sed" and (call := SedCall.of(operands)).in_place:
            self._edit(call, is_sure=not command.is_conditional)
        elif (written := self._output(name, operands, piped)) is not None:
            if name == "tee" and len(operands) == 1:
                target = operands[0]
            if target is None:
                self._piped = written
            else:
                self._write(target, written, appends=command.appends, is_sure=not command.is_conditional)
        elif target is not None and _key(target) in self._files:
            self._files[_key(target)] = WrittenFile(_shown(target), Word(None, 0, 0))

    def _read(self, word: Word) -> WrittenFile | None:
        own = self.get(word)
        if own is not None or not word.text:
            return own
        file = read_beside(word.text, self._beside)
        return None if file is None else WrittenFile(file[0], Word(file[1], 0, 0))

    def _output(self, name: str, operands: Sequence[Word], piped: WrittenFile | None) -> WrittenFile | None:
        """What a command writes to where its output goes; None where its words do not tell."""
        if name == "echo" and operands:
            words = [word for word in operands if word.text not in ECHO]
            text = " ".join(word.pieces for word in words)
            is_plain = "\\" not in text or not any("e" in (word.text or "") for word in operands if word.text in ECHO)
            return WrittenFile("echo", word_of(text, 0, 0) if is_plain else Word(None, 0, 0))
        if name in ("cat", "tee"):
            return piped if not operands or name == "tee" else self._read(operands[0]) if len(operands) == 1 else None
        if name == "sed":
            call = SedCall.of(operands)
            source = self._read(call.files[0]) if call.files else piped
            if source is None or len(call.files) > 1:
                return None
            return WrittenFile(_by_sed(source.name), self._edited(source.content, call))
        return None

    def _copy(self, source: Word, target: Word, *, is_sure: bool) -> None:
        file = self._read(source)
        if file is not None and (is_sure or _key(target) not in self._files):
            self._files[_key(target)] = file
        elif _key(target) in self._files:
            self._files[_key(target)] = WrittenFile(_shown(target), Word(None, 0, 0))

    def _edit(self, call: SedCall, *, is_sure: bool) -> None:
        """`sed -i`: the file is another from here on, also where the script did not write it."""
        for word in call.files[:MOST_FILES]:
            file = self._read(word)
            if file is not None:
                content = self._edited(file.content, call) if is_sure else Word(None, 0, 0)
                self._files[_key(word)] = WrittenFile(_by_sed(file.name), content)

    def _edited(self, content: Word, call: SedCall) -> Word:
        """A text as `sed` leaves it; not known where it does more than put other letters in."""
        text: str | None = content.pieces
        for script in call.scripts:
            self._room -= len(text or "")
            is_followed = text is not None and self._room >= 0 and script.pieces != UNKNOWN
            text = substituted(text or "", script.pieces, extended=call.extended) if is_followed else None
        return Word(None, 0, 0) if text is None else word_of(text, 0, 0)

    def _write(self, target: Word, written: WrittenFile, *, appends: bool, is_sure: bool) -> None:
        if not target.pieces or not _key(target) or target.text == "/dev/null":
            return
        name = f"{_shown(target)} of {written.name}" if written.name == "a here-document" else written.name
        name, before = _shown(target) if written.name == "echo" else name, self._read(target) if appends else None
        if before is not None:
            name, written = before.name, _joined(before, written)
            written = written if is_sure else WrittenFile(name, Word(None, 0, 0))
        self._files[_key(target)] = WrittenFile(name, written.content)


def _key(word: Word) -> str:
    """What a file is looked up by; "" where its folder is not known, which another's may be."""
    return "" if word.pieces.startswith((UNKNOWN, f"/{UNKNOWN}")) else posixpath.normpath(_shown(word))


def _joined(before: WrittenFile, after: WrittenFile) -> WrittenFile:
    """A file with what is written behind its end."""
    text = before.content.pieces
    between = "" if not text or text.endswith("\n") else "\n"
    return WrittenFile(before.name, word_of(f"{text}{between}{after.content.pieces}\n", 0, 0))


def _shown(word: Word) -> str:
    return word.pieces.replace(UNKNOWN, PLACEHOLDER)


def _stood_in(match: re.Match[str]) -> str:
    """A value of JSON with what stands for a part of it that is not known."""
    text = match[0]
    return text.replace(UNKNOWN, STANDS_FOR) if text.startswith('"') else f'"{STANDS_FOR}"'


def _by_sed(name: str) -> str:
    return name if name.endswith(" by sed") else f"{name} by sed"
