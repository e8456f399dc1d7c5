"""What a command starts, and what the code of that does with the options on the line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from zeroplan.check.command_line import TOOLS, CommandLine
from zeroplan.check.finding import said
from zeroplan.check.kind import PYTHON
from zeroplan.check.launch_files import file_of
from zeroplan.check.launched import TrainingScript
from zeroplan.check.launcher_parsers import RANKS
from zeroplan.check.ranks import PLAIN
from zeroplan.check.script_arguments import stops_at_unknown
from zeroplan.check.script_parser import accumulated, asked_precision, invalid_choice, missing, unrecognized
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
        file_of(line.script) or ("" if line.script is None else "?"), file,
        tuple([word.text for word in line.script_words if word.text and word.text.endswith(PYTHON)]), pipeline,
        accumulated(code, options), asked_precision(code, options),
        _unrecognized(of_parser, line, stated), _no_choice(of_parser, options), _missing(of_parser, line),
        _surplus(line.script_words) if line.launcher in TOOLS or stops_at_unknown(code) else ("", ""),
    )  # fmt: skip


def _unrecognized(code: str, line: CommandLine, stated: Sequence[tuple[str, Word]]) -> str:
    options = [name for name, word in stated if name.startswith("--") and word.text is not None and " " not in name]
    own = line.parsed.options
    by_launch = "no_local_rank" not in own and own.get("launcher", "pdsh") == "pdsh"  # others start the script itself
    by_deepspeed = line.launcher == "deepspeed" and line.parsed.is_whole and by_launch
    return unrecognized(code, options, has_local_rank=by_deepspeed)


def _missing(code: str, line: CommandLine) -> str:
    """None where words that no line sets may be options."""
    words = [word.text for word in line.script_words]
    return "" if None in words else missing(code, [word for word in words if word and word.startswith("-")])


def _surplus(words: Sequence[Word]) -> tuple[str, str]:
    """An option that takes one value, and what stands behind that: a text without quotes."""
    for option, value, more in zip(words, words[1:], words[2:], strict=False):
        name, texts = (option.text or "").lstrip("-").replace("-", "_"), (value.text, more.text)
        is_option = (option.text or "").startswith("--") and name in OF_ONE_VALUE
        if is_option and all(text and not text.startswith("-") for text in texts):
            return option.text or "", more.text or ""
    return "", ""


def _no_choice(code: str, options: Mapping[str, str | None]) -> str:
    chosen = invalid_choice(code, options)
    return "" if chosen is None else f"{chosen[0]} {said(options[chosen[0]])}, none of {', '.join(chosen[1])}"
