"""The findings of the configs that a launch script gives to the training runs that it starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import islice
from types import MappingProxyType

from zeroplan.check.check import MOST, placed
from zeroplan.check.document import Beside, Document, ValueNode
from zeroplan.check.embedded_python import embedded_python
from zeroplan.check.finding import ERROR, named
from zeroplan.check.kind import OtherKindError
from zeroplan.check.launch_files import read_beside
from zeroplan.check.launched import within
from zeroplan.check.launcher import commands_of, launches
from zeroplan.check.named_config import CheckedFiles, Made
from zeroplan.check.python_reader import WORDS
from zeroplan.check.rules.processes import on_one_port
from zeroplan.check.rules.shell_text import TEXT_CHECKS
from zeroplan.check.run import check_run
from zeroplan.check.setting import Setting
from zeroplan.check.shell_script import Command
from zeroplan.check.started_scripts import StartedScript, started_scripts
from zeroplan.errors import SpecError

SCRIPTS = "deepspeed, torchrun or accelerate launch with a --deepspeed or --config_file that is there"
NOT_TAKEN = "a run in a branch that the script's own variables do not take"
NO_CONFIG = "a script that gives no DeepSpeed config to a training run"
Visit = tuple[str, frozenset[tuple[str, str]]]
"""A script, and what it is handed on."""
MOST_SEEN, LARGEST = 40, 100_000
"""Scripts that one starts, and these in turn, and letters of each."""
NOTHING: Mapping[str, str] = MappingProxyType({})
DEEPEST = 2
"""Scripts that start one another."""
WITHOUT_CONFIG = {
    "openrlhf.cli.": "a script of OpenRLHF, which makes its config of its own options, as --zero_stage",
    "deepspeed_stage_": "a script that names a strategy of Lightning's, which makes its config itself",
    "verl.trainer.": "a script of verl, which trains without DeepSpeed",
}
"""What is in scripts of tools that take no ds_config."""


def started(
    name: str, text: str, setting: Setting, beside: Beside, made: Made, above: tuple[str, ...] = (),
    handed: Mapping[str, str] = NOTHING, seen: set[Visit] | None = None,
) -> CheckedFiles:  # fmt: skip
    """The configs that a script gives to the training runs that it starts, with what it states of each. `above`: the
    scripts that start it; `handed`: what the last of them hands on; `seen`: scripts that were looked at, with that.
    """
    seen = set() if seen is None else seen
    checked, left_out, others = CheckedFiles(texts={name: text}), list[tuple[str, str]](), list[OtherKindError]()
    document = Document(name, text, ValueNode(0, len(text), members=[]))
    several = commands_of(name, text, beside, handed)
    starts = launches(name, text, beside, several)
    for launch in starts:
        if launch.place.is_left_out:
            left_out.append((f"{name}:{launch.place.line}", NOT_TAKEN))
            continue
        try:
            files = beside if launch.place.written is None else launch.place.written.beside
            inner, why = check_run(launch, document, setting, within(launch.place.folder, files), made)
        except OtherKindError as error:
            others.append(error)
            continue
        checked.findings += [one for one in inner.findings if one not in checked.findings]
        checked.texts |= inner.texts
        checked.notes += [f"{name}:{launch.place.line}: {note}" for note in inner.notes]
        left_out += [(f"{name}:{launch.place.line}", why)] if why else []
    if len(checked.texts) > 1 or checked.notes or left_out:
        hits = [hit for rule in TEXT_CHECKS for hit in islice(rule(text), MOST)]
        hits += islice(on_one_port(text, starts), MOST)
        checked.findings += [placed(document, hit) for hit in hits]
    inner = _embedded(name, text, several, setting, beside, made)
    checked.findings += inner.findings
    checked.texts |= inner.texts
    checked.notes += inner.notes
    runs = [*started_scripts(several)] if len(above) < DEEPEST else []
    hindrances = list[SpecError]()
    for script in runs:
        try:
            inner = _started_there(name, script, setting, beside, made, above, seen)
        except SpecError as hindrance:
            hindrances.append(hindrance)
            continue
        checked.findings += [one for one in inner.findings if one not in checked.findings]
        checked.texts |= inner.texts
        checked.notes += [note for note in inner.notes if note not in checked.notes]
    if len(checked.texts) == 1 and not checked.notes and not any(one.severity == ERROR for one in checked.findings):
        if (others or hindrances) and not left_out:
            raise (*others, *hindrances)[0]
        none = f"a script that starts {named(runs[0].name)}, which may give one" if runs else NO_CONFIG
        own = next((said for module, said in WITHOUT_CONFIG.items() if module in text), none)
        place, found = left_out[0] if left_out else (name, own)
        raise SpecError(place, found, SCRIPTS)
    checked.notes += [f"{place}: {found}: not looked at" for place, found in left_out]
    checked.notes += [f"{error}: not looked at" for error in others]
    return checked


def _embedded(
    name: str, text: str, several: Sequence[Command], setting: Setting, beside: Beside, made: Made
) -> CheckedFiles:  # fmt: skip
    """The configs in Python that the script runs itself, which may write them."""
    checked = CheckedFiles()
    codes = (code for code in embedded_python(text, several) if any(word in code for word in WORDS))
    for code in islice(codes, MOST) if any(word in text for word in WORDS) else ():
        from zeroplan.check.python_file import check_python  # where there is such a text

        with suppress(SpecError):
            inner = check_python(name, code, setting, beside, made)
            checked.findings += inner.findings
            checked.texts |= {file: content for file, content in inner.texts.items() if file != name}
            checked.notes += [f"{name}: Python in it has, or names, a config", *inner.notes]
    return checked


def _started_there(
    name: str, script: StartedScript, setting: Setting, beside: Beside, made: Made, above: tuple[str, ...],
    seen: set[Visit],
) -> CheckedFiles:  # fmt: skip
    """What another script starts that this one does; nothing where it is not there. Raises `SpecError` where it starts
    nothing with a config.
    """
    inner = within(script.folder, beside)
    file = read_beside(script.name, inner)
    file = None if file is None or len(file[1]) > LARGEST else file
    visit = None if file is None else (file[0], frozenset(script.handed.items()))
    if file is None or visit is None or file[0] in (name, *above) or visit in seen or len(seen) >= MOST_SEEN:
        return CheckedFiles()
    seen.add(visit)
    checked = started(*file, setting, inner, made, (*above, name), script.handed, seen)
    checked.notes.insert(0, f"{name} starts {file[0]}")
    return checked
