"""Make zeroplan/catalog/trainers/argument_names.json: the arguments of LLaMA-Factory's training files by release.

    python -m tests.references.make_llama_factory_arguments SOURCES

SOURCES holds, in a folder for each release (0.9.5), the files of its hparams. They are parsed, not run. Each name stands with the
first release that has it and the first that no longer has it, empty for the first and the newest that are there. Beside them
stand the fields of transformers' TrainingArguments that every release has (training_arguments_by_release.json), and those that
Seq2SeqTrainingArguments adds.
"""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

from tests.references.make_training_arguments import by_release, number
from zeroplan.catalog.trainers.argument_history import ARGUMENTS

FILES = ("model_args.py", "data_args.py", "finetuning_args.py", "generating_args.py", "training_args.py")
OF_SEQ2SEQ = ("generation_config", "generation_max_length", "generation_num_beams", "predict_with_generate", "sortish_sampler")
OUT = Path(__file__).parents[2] / "zeroplan" / "catalog" / "trainers" / "argument_names.json"


def is_stated(value: ast.expr | None) -> bool:
    """Whether a field is an argument: not one that __post_init__ sets."""
    return not isinstance(value, ast.Call) or not any(
        one.arg == "init" and isinstance(one.value, ast.Constant) and one.value.value is False for one in value.keywords
    )


def names(folder: Path) -> set[str]:
    trees = [ast.parse((folder / file).read_text()) for file in FILES if (folder / file).exists()]
    bodies = [node.body for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)]
    return {one.target.id for body in bodies for one in body
            if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and is_stated(one.value)}  # fmt: skip


def main(sources: Path) -> None:
    folders = sorted((one for one in sources.iterdir() if one.is_dir()), key=lambda one: number(one.name))
    every = {folder.name: names(folder) for folder in folders}
    releases = list(every)
    spans = {}
    for name in sorted(set().union(*every.values())):
        has = [release for release in releases if name in every[release]]
        after = releases[releases.index(has[-1]) + 1 :]
        spans[name] = ["" if has[0] == releases[0] else has[0], after[0] if after else ""]
    fields = by_release()["5.24.0"]["fields"] - set(ARGUMENTS)
    trainer = sorted({*fields, *OF_SEQ2SEQ})
    OUT.write_text(json.dumps({"TrainingArguments": trainer, "LLaMA-Factory": spans}, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
