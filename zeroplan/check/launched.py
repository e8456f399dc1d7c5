"""One training run that a launch script starts, as `launcher` reads it, and files as that run has them."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from zeroplan.check.arguments import Arguments
from zeroplan.check.document import Beside
from zeroplan.check.kind import DEEPSPEED as KEY
from zeroplan.check.launcher_refusal import Refusal
from zeroplan.check.openrlhf import OpenRLHF
from zeroplan.check.ranks import Environment
from zeroplan.check.shell_variables import Word
from zeroplan.check.written_files import WrittenFile, WrittenFiles


class NamedConfig(NamedTuple):
    """What names a run's config, on its line, and who reads it."""

    file: Word | None = None
    """The ds_config that the line names."""
    reader: str = ""
    """Who reads that."""
    accelerate: Word | None = None
    """The file of `accelerate launch --config_file`."""
    overrides: tuple[tuple[str, Any], ...] = ()
    """Fields of that file which options of `accelerate launch` replace."""
    leaves_out: str = ""
    """An option at which `accelerate launch` starts no DeepSpeed."""
    training: Word | None = None
    """A training file that names, or has, the ds_config."""
    is_first: bool = False
    """Whether that is the first argument of a script."""
    strategy: Word | None = None
    """The name of one of Lightning's strategies."""
    is_open: bool = False
    """Whether words that no line sets may name a config."""

    @property
    def word(self) -> Word | None:
        return self.file or self.training or self.accelerate


class TrainingScript(NamedTuple):
    """What a run starts, and what the code of that does with the options it is given."""

    name: str = ""
    """The script, or the file of the module that is run as one: "?" where it is not known, "" for none."""
    file: tuple[str, str] | None = None
    """Name and text, where it is there."""
    more: tuple[str, ...] = ()
    """Scripts in Python that it is given, as nanoGPT's are settings."""
    pipeline: bool = False
    """Whether its model is a PipelineModule of DeepSpeed's, by its options."""
    accumulates: int | None = None
    """Micro-batches of a step that its own Accelerator asks for."""
    precision: str | None = None
    """The mixed precision that its own Accelerator asks for."""
    refusal: Refusal | None = None
    """Why its own parser stops at the line."""

    @property
    def code(self) -> tuple[str, str] | None:
        """Name and text, where it speaks of DeepSpeed."""
        return self.file if self.file is not None and KEY in self.file[1].lower() else None


class Place(NamedTuple):
    """Where in its script a run is started, and what the script has done before."""

    line: int
    start: int
    """Where the command stands in the text."""
    folder: str = ""
    """Where it is started, seen from where the script is."""
    is_below: bool = False
    """Whether srun, mpirun or a shell on another host starts it."""
    is_left_out: bool = False
    """Whether it is in a branch that the script's own variables do not take."""
    is_conditional: bool = False
    """Whether it is in a condition or a loop."""
    goes_on: bool = False
    """Whether the script goes on while it runs."""
    written: WrittenFiles | None = None
    """The files that the script itself has written before."""


class Launch(NamedTuple):
    """One training run that a script starts."""

    launcher: str
    place: Place
    config: NamedConfig
    script: TrainingScript
    stated: Arguments | None = None
    """The Trainer's arguments, on the line or in the file that its --config names, where some are stated; None as the
    value of those whose variables no line of the script sets.
    """
    unknown: tuple[str, ...] = ()
    """Of these, the arguments that bear on a config and have no value."""
    command: str = ""
    """What a tool is to do: train, of `llamafactory-cli train`."""
    options: Mapping[str, str | None] = MappingProxyType({})
    """The launcher's own, as its parser has them."""
    environment: Environment = MappingProxyType({})
    """Environment variables that are set and decide how many processes start, as NPROC_PER_NODE."""
    gpus: int | None = None
    """Ranks; None where that is not stated in full."""
    nodes: int | None = None
    """Those that Slurm gives the script, where its lines say how many."""
    hosts: tuple[str, str] | None = None
    """Name and text of the hostfile of `deepspeed`, where it is there."""
    refusal: Refusal | None = None
    """Why the launcher starts nothing."""
    cut: str = ""
    """The first word that a backslash with something behind it leaves out."""
    built: OpenRLHF | None = None
    """The options of a command of OpenRLHF, which makes a config of them."""
    starts: bool = False
    """Whether it is DeepSpeed's own launcher with a script behind it."""

    @property
    def arguments(self) -> Arguments | None:
        """The Trainer's arguments, where all that bear on a config are known."""
        return None if self.unknown else self.stated

    @property
    def may_have_config(self) -> bool:
        """Whether its line, its script or a tool's options have, or name, a config."""
        named = self.config.word or self.config.strategy or self.config.is_open
        return bool(named or self.starts or self.built or self.script.code)

    @property
    def own(self) -> WrittenFile | None:
        """The config, where the script itself writes it."""
        written = self.place.written
        return None if written is None else written.get(self.config.word)

    @property
    def own_file(self) -> tuple[str, str] | None:
        """Its name and text, where the words of the script decide it."""
        written = self.place.written
        return written.file(self.own) if written is not None and self.own is not None else None

    @property
    def own_part(self) -> tuple[str, str] | None:
        """Its name and text where it is JSON, as far as they do, with interpolations for the rest."""
        written = self.place.written
        return written.partly(self.own) if written is not None and self.own is not None else None

    @property
    def names(self) -> list[str]:
        """Where the config may be, seen from where the script is, or from where that was started."""
        word = self.config.word
        return [] if word is None or not word.text else names_from(self.place.folder, word.text)


def within(folder: str, beside: Beside) -> Beside:
    """Files as a command has them that is started in this folder, or else where the script is."""
    if not folder:
        return beside
    return lambda name: next((file for one in names_from(folder, name) if (file := beside(one)) is not None), None)


def names_from(folder: str, name: str) -> list[str]:
    """Names of a file that a command started in this folder names, seen from where the script is, or from here."""
    return [posixpath.join(folder, name), name] if folder else [name]
