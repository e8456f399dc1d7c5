"""Make zeroplan/catalog/trainers/argument_names.json: the arguments of training files of LLaMA-Factory, TRL and ms-swift by release.

    python -m tests.references.make_argument_names LLaMA-Factory=FOLDER TRL=FOLDER ms-swift=FOLDER

Each holds a folder for each release (0.9.5): of LLaMA-Factory the files of its hparams, of TRL those of its trainers' configs, its
model's and its scripts' arguments, of ms-swift those with a class of arguments, each called by its path with -- for /. They are
parsed, not run. Each name stands with the first release that has it and the first that no longer has it, empty for the first and the
newest that are there. What is not named stays as it is. Beside them stand the fields of transformers' TrainingArguments that every
release has (training_arguments_by_release.json), and those that Seq2SeqTrainingArguments adds.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.references.make_training_arguments import by_release, number
from zeroplan.catalog.trainers.argument_history import ARGUMENTS

OF_LLAMA_FACTORY = re.compile(r"(?:model|data|finetuning|generating|training)_args\.py")
OF_TRL = re.compile(
    r"trl--(?:trainer|experimental--\w+)--(?:base|bco|cpo|dpo|gkd|grpo|kto|model|nash_md|online_dpo|orpo|ppo|ppov2|prm|reward|rloo|sft|xpo)"
    r"_config\.py|trl--scripts--utils\.py"
)
"""Not those of images, nor of distillation."""
IS_READ = re.compile(r"\w+(?:Config|Arguments?)")
"""Classes of arguments, but for those of conversations."""
NOT_READ = "ChatArguments"
OF_SWIFT = ("SftArguments", "PtArguments", "PretrainArguments", "RLHFArguments")
"""Classes of ms-swift that its commands which train parse, each with those that it is made of."""
OF_SEQ2SEQ = ("generation_config", "generation_max_length", "generation_num_beams", "predict_with_generate", "sortish_sampler")
OUT = Path(__file__).parents[2] / "zeroplan" / "catalog" / "trainers" / "argument_names.json"


def is_stated(value: ast.expr | None) -> bool:
    """Whether a field is an argument: not one that __post_init__ sets."""
    return not isinstance(value, ast.Call) or not any(
        one.arg == "init" and isinstance(one.value, ast.Constant) and one.value.value is False for one in value.keywords
    )


def names_of_files(folder: Path, is_read: Callable[[str], object]) -> set[str]:
    """Those of each class of arguments in these files."""
    several = [one for path in folder.iterdir() if is_read(path.name) for one in classes(path)]
    read = [one for one in several if IS_READ.fullmatch(one.name) and one.name != NOT_READ]
    return {name for one in read for name in fields(one)}


def names_of_swift(folder: Path) -> set[str]:
    """Those of `OF_SWIFT`, and of each class that these are made of."""
    several = [one for path in folder.iterdir() for one in classes(path)]
    left, seen = [*OF_SWIFT], set[str]()
    while left:
        name = left.pop()
        seen.add(name)
        bases = {ast.unparse(base).rpartition(".")[2] for one in several if one.name == name for base in one.bases}
        left += bases - seen
    return {name for one in several if one.name in seen for name in fields(one)}


def classes(path: Path) -> list[ast.ClassDef]:
    return [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)]


def fields(one: ast.ClassDef) -> set[str]:
    stated = [line for line in one.body if isinstance(line, ast.AnnAssign) and is_stated(line.value)]
    return {line.target.id for line in stated if isinstance(line.target, ast.Name)}


def spans(sources: Path, names: Callable[[Path], set[str]]) -> dict[str, list[str]]:
    folders = sorted((one for one in sources.iterdir() if one.is_dir()), key=lambda one: number(one.name))
    every = {folder.name: names(folder) for folder in folders}
    releases, several = list(every), {}
    for name in sorted(set().union(*every.values())):
        has = [release for release in releases if name in every[release]]
        after = releases[releases.index(has[-1]) + 1 :]
        several[name] = ["" if has[0] == releases[0] else has[0], after[0] if after else ""]
    return several


NAMES: dict[str, Callable[[Path], set[str]]] = {
    "LLaMA-Factory": partial(names_of_files, is_read=OF_LLAMA_FACTORY.fullmatch),
    "TRL": partial(names_of_files, is_read=OF_TRL.fullmatch),
    "ms-swift": names_of_swift,
}


def main(folders: dict[str, Path]) -> None:
    trainer = sorted({*(by_release()["5.24.0"]["fields"] - set(ARGUMENTS)), *OF_SEQ2SEQ})
    content = json.loads(OUT.read_text()) | {"TrainingArguments": trainer}
    content |= {tool: spans(folder, NAMES[tool]) for tool, folder in folders.items()}
    lines = [f'"{tool}": {json.dumps(known)}' for tool, known in content.items()]
    OUT.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main({tool: Path(folder) for tool, _, folder in (word.partition("=") for word in sys.argv[1:])})
