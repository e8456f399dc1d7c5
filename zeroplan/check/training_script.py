"""What a command starts, and what the code of that does with the options on the line."""

from __future__ import annotations

from collections.abc import Sequence

from zeroplan.check.command_line import TOOLS, CommandLine
from zeroplan.check.finding import named, said
from zeroplan.check.kind import PYTHON
from zeroplan.check.launch_files import file_of
from zeroplan.check.launched import TrainingScript
from zeroplan.check.launcher_parsers import RANKS
from zeroplan.check.launcher_refusal import Refusal
from zeroplan.check.ranks import PLAIN
from zeroplan.check.script_arguments import stops_at_unknown
from zeroplan.check.script_parser import (
    LOCAL_RANK,
    accumulated,
    asked_precision,
    invalid_choice,
    missing,
    unrecognized,
)
from zeroplan.check.shell_variables import Word

OF_ONE_VALUE = (
    "model", "model_name_or_path", "output_dir", "learning_rate", "num_train_epochs", "per_device_train_batch_size",
    "max_steps", "save_steps", "lr_scheduler_type", "deepspeed", "system", "gradient_accumulation_steps", "run_name",
)  # fmt: skip
"""Arguments of the Trainer and of the tools around it that are no lists."""


def training_script(
    line: CommandLine, file: tuple[str, str] | None, stated: Sequence[tuple[str, Word]], *, knows_options: bool,
    pipeline: bool,
) -> TrainingScript:  # fmt: skip
    """The script that a line starts. `file`: its name and text, where it is there; `stated`: its options;
    `knows_options`: whether the file is surely the one that is started; `pipeline`: whether they make a PipelineModule.
    """
    code, options = "" if file is None else file[1], {name: word.text for name, word in stated}
    of_parser = code if knows_options and line.launcher in (*RANKS, *PLAIN) else ""
    return TrainingScript(
        _name(line), file,
        tuple([word.text for word in line.script_words if word.text and word.text.endswith(PYTHON)]), pipeline,
        accumulated(code, options), asked_precision(code, options),
        _refusal(code, of_parser, line, stated),
    )  # fmt: skip


def _refusal(code: str, of_parser: str, line: CommandLine, stated: Sequence[tuple[str, Word]]) -> Refusal | None:
    """Why its parser stops. `code`: the script; `of_parser`: the same, where its own parser reads the line, or ""."""
    name = named(_name(line))
    unknown = _unrecognized(of_parser, line, stated)
    if unknown == LOCAL_RANK:
        why = f"deepspeed hands {LOCAL_RANK} to {name}, whose parser does not know it and stops"
        return Refusal(why, f"parser.add_argument('{LOCAL_RANK}', type=int), or deepspeed --no_local_rank")
    if needed := _missing(of_parser, line):
        why = f"no {named(needed)}, which the parser of {name} requires: it stops"
        return Refusal(why, f"{named(needed)} ...")
    is_strict = line.launcher in TOOLS or stops_at_unknown(code)
    if is_strict and (surplus := _surplus(line.script_words)) is not None:
        why = f"{named(surplus[1])} stands behind the one value of {named(surplus[0])}: the parser stops at it"
        return Refusal(why, "quotes around the whole value")
    options = {option: word.text for option, word in stated}
    if (chosen := invalid_choice(of_parser, options)) is not None:
        value = f"{chosen[0]} {said(options[chosen[0]])}, none of {', '.join(chosen[1])}"
        return Refusal(f"{value}: the parser of {name} stops at it", "one of these")
    if unknown:
        why = f"{named(unknown)} is no option of {name}, whose parser stops at it"
        return Refusal(why, "one that its parser knows, or parse_known_args in it")
    return None


def _name(line: CommandLine) -> str:
    """The file that a line starts: "?" where it is not known, "" for none."""
    return file_of(line.script) or ("" if line.script is None else "?")


def _unrecognized(code: str, line: CommandLine, stated: Sequence[tuple[str, Word]]) -> str:
    options = [name for name, word in stated if name.startswith("--") and word.text is not None and " " not in name]
    own = line.parsed.options
    by_launch = "no_local_rank" not in own and own.get("launcher", "pdsh") == "pdsh"  # others start the script itself
    by_deepspeed = line.launcher == "deepspeed" and line.parsed.is_whole and by_launch
    return unrecognized(code, options, has_local_rank=by_deepspeed)


def _missing(code: str, line: CommandLine) -> str:
    """A required option; "" where words that no line sets may be it."""
    words = [word.text for word in line.script_words]
    return "" if None in words else missing(code, [word for word in words if word and word.startswith("-")])


def _surplus(words: Sequence[Word]) -> tuple[str, str] | None:
    """An option that takes one value, and what stands behind that: a text without quotes."""
    for option, value, more in zip(words, words[1:], words[2:], strict=False):
        name, texts = (option.text or "").lstrip("-").replace("-", "_"), (value.text, more.text)
        is_option = (option.text or "").startswith("--") and name in OF_ONE_VALUE
        if is_option and all(text and not text.startswith("-") for text in texts):
            return str(option.text), str(more.text)
    return None
