"""Make zeroplan/catalog/trainers/argument_names.json: the arguments of training files of LLaMA-Factory and TRL by release.

    python -m tests.references.make_argument_names LLAMA_FACTORY TRL

Both hold a folder for each release (0.9.5): LLAMA_FACTORY the files of its hparams, TRL those of its trainers' configs, its model's
and its scripts' arguments, each called by its path with -- for /. They are parsed, not run. Each name stands with the first release
that has it and the first that no longer has it, empty for the first and the newest that are there. Beside them stand the fields of
transformers' TrainingArguments that every release has (training_arguments_by_release.json), and those that
Seq2SeqTrainingArguments adds.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Callable
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
OF_SEQ2SEQ = ("generation_config", "generation_max_length", "generation_num_beams", "predict_with_generate", "sortish_sampler")
OUT = Path(__file__).parents[2] / "zeroplan" / "catalog" / "trainers" / "argument_names.json"


def is_stated(value: ast.expr | None) -> bool:
    """Whether a field is an argument: not one that __post_init__ sets."""
    return not isinstance(value, ast.Call) or not any(
        one.arg == "init" and isinstance(one.value, ast.Constant) and one.value.value is False for one in value.keywords
    )


def names(folder: Path, is_read: Callable[[str], object]) -> set[str]:
    trees = [ast.parse(path.read_text()) for path in folder.iterdir() if is_read(path.name)]
    classes = [node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)]
    bodies = [node.body for node in classes if IS_READ.fullmatch(node.name) and node.name != NOT_READ]
    return {one.target.id for body in bodies for one in body
            if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and is_stated(one.value)}  # fmt: skip


def spans(sources: Path, is_read: Callable[[str], object]) -> dict[str, list[str]]:
    folders = sorted((one for one in sources.iterdir() if one.is_dir()), key=lambda one: number(one.name))
    every = {folder.name: names(folder, is_read) for folder in folders}
    releases, several = list(every), {}
    for name in sorted(set().union(*every.values())):
        has = [release for release in releases if name in every[release]]
        after = releases[releases.index(has[-1]) + 1 :]
        several[name] = ["" if has[0] == releases[0] else has[0], after[0] if after else ""]
    return several


def main(llama_factory: Path, trl: Path) -> None:
    trainer = sorted({*(by_release()["5.24.0"]["fields"] - set(ARGUMENTS)), *OF_SEQ2SEQ})
    content = {
        "TrainingArguments": trainer, "LLaMA-Factory": spans(llama_factory, OF_LLAMA_FACTORY.fullmatch),
        "TRL": spans(trl, OF_TRL.fullmatch),
    }  # fmt: skip
    lines = [f'"{tool}": {json.dumps(known)}' for tool, known in content.items()]
    OUT.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
