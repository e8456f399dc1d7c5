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


class Launch(NamedTuple):
    """One training run that a script starts."""

    launcher: str
    line: int
    config: Word | None
    """The ds_config that it names."""
    reader: str
    """Who reads that."""
    accelerate: Word | None
    """The file of `accelerate launch --config_file`."""
    gpus: int | None
    """Ranks; None where that is not stated in full."""
    arguments: Arguments | None
    """The Trainer's, on the line or in the file that its --config names, where some are stated and all that bear on a
    config are known.
    """
    stated: Arguments | None = None
    """The Trainer's arguments, with None as the value of those whose variables no line of the script sets."""
    unknown: tuple[str, ...] = ()
    """Arguments that bear on a config and whose values no line of the script sets."""
    overrides: tuple[tuple[str, Any], ...] = ()
    """Fields of its file that options of `accelerate launch` replace."""
    leaves_out: str = ""
    """An option at which `accelerate launch` starts no DeepSpeed."""
    training: Word | None = None
    """A training file that names, or has, the ds_config."""
    start: int = 0
    """Where the command stands."""
    refusal: Refusal | None = None
    """Why the launcher starts nothing."""
    environment: Environment = MappingProxyType({})
    """Environment variables that are set and decide how many processes start, as NPROC_PER_NODE."""
    folder: str = ""
    """Where it is started, seen from where the script is."""
    cut: str = ""
    """The first word that a backslash with something behind it leaves out."""
    script: str = ""
    """The training script, or the file of the module that is run as one: "?" where it is not known, "" for none."""
    options: Mapping[str, str | None] = MappingProxyType({})
    """The launcher's own, as its parser has them."""
    written: WrittenFiles | None = None
    """The files that the script itself has written before."""
    hosts: tuple[str, str] | None = None
    """Name and text of the hostfile of `deepspeed`, where it is there."""
    command: str = ""
    """What a tool is to do: train, of `llamafactory-cli train`."""
    is_first: bool = False
    """Whether the training file is the first argument of a script."""
    is_below: bool = False
    """Whether srun, mpirun or a shell on another host starts it."""
    nodes: int | None = None
    """Those that Slurm gives the script, where its lines say how many."""
    built: OpenRLHF | None = None
    """The options of a command of OpenRLHF, which makes a config of them."""
    starts: bool = False
    """Whether it is DeepSpeed's own launcher with a script behind it."""
    pipeline: bool = False
    """Whether its model is a PipelineModule of DeepSpeed's, by its options."""
    accumulates: int | None = None
    """Micro-batches of a step that the script's own Accelerator asks for."""
    precision: str | None = None
    """The mixed precision that the script's own Accelerator asks for."""
    unrecognized: str = ""
    """The first option at which the script's own parser stops."""
    no_choice: str = ""
    """The first option of the script whose value is none of its choices, with these."""
    strategy: Word | None = None
    """The name of one of Lightning's strategies."""
    more: tuple[str, ...] = ()
    """Scripts in Python that it is given, as nanoGPT's are settings."""
    python: tuple[str, str] | None = None
    """Name and text of the training script, where it is there."""
    is_open: bool = False
    """Whether words that no line sets may name a config."""
    is_left_out: bool = False
    """Whether it is in a branch that the script's own variables do not take."""
    is_conditional: bool = False
    """Whether it is in a condition or a loop."""
    goes_on: bool = False
    """Whether the script goes on while it runs."""

    @property
    def named(self) -> Word | None:
        return self.config or self.training or self.accelerate

    @property
    def code(self) -> tuple[str, str] | None:
        """The training script, where it speaks of DeepSpeed."""
        return self.python if self.python is not None and KEY in self.python[1].lower() else None

    @property
    def own(self) -> WrittenFile | None:
        """The config, where the script itself writes it."""
        return None if self.written is None else self.written.get(self.named)

    @property
    def own_file(self) -> tuple[str, str] | None:
        """Its name and text, where the words of the script decide it."""
        return self.written.file(self.own) if self.written is not None and self.own is not None else None

    @property
    def own_part(self) -> tuple[str, str] | None:
        """Its name and text where it is JSON, as far as they do, with interpolations for the rest."""
        return self.written.partly(self.own) if self.written is not None and self.own is not None else None

    @property
    def names(self) -> list[str]:
        """Where the config may be, seen from where the script is, or from where that was started."""
        return [] if self.named is None or not self.named.text else names_from(self.folder, self.named.text)


def within(folder: str, beside: Beside) -> Beside:
    """Files as a command has them that is started in this folder, or else where the script is."""
    if not folder:
        return beside
    return lambda name: next((file for one in names_from(folder, name) if (file := beside(one)) is not None), None)


def names_from(folder: str, name: str) -> list[str]:
    """Names of a file that a command started in this folder names, seen from where the script is, or from here."""
    return [posixpath.join(folder, name), name] if folder else [name]
