"""What a file is, decided by what stands in it: its ending says nothing."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from enum import Enum
from typing import Any

from zeroplan.catalog.trainers.argument_history import trainer
from zeroplan.catalog.trainers.tools import TRAINER, tool_of
from zeroplan.check.accelerate_config import is_accelerate_config
from zeroplan.check.arguments import OWN, YAML, has_own
from zeroplan.check.document import Document, ValueNode
from zeroplan.check.json_reader import read_json
from zeroplan.deepspeed.keys import children
from zeroplan.deepspeed.keys.removed import REMOVED_KEYS
from zeroplan.deepspeed.names import COMMENTS
from zeroplan.errors import SpecError, shown

JSON, SCRIPT = (".json", ".hjson"), (".sh", ".bash", ".zsh", ".sbatch", ".slurm")
DEEPSPEED = "deepspeed"
OWN_KEYS = frozenset({"zero_optimization", "train_micro_batch_size_per_gpu"})
"""Nothing else has keys of these names."""
SECTIONS = ("fp16", "bf16", "optimizer", "scheduler", "aio", "activation_checkpointing")
MAPPING = re.compile(r"(?:\ufeff?\s*(?:#[^\n]*|---)?\n)*[A-Za-z_][\w-]*:(?:\s|$)")
"""How YAML begins: with a key, behind comments."""
OF_EVERY_TRAINER = frozenset({"per_device_train_batch_size", "num_train_epochs"})
TYPED = ("optimizer", "scheduler")
"""Sections that other tools have too, with other keys."""
NEOX = frozenset({
    "pipe_parallel_size", "pipe-parallel-size", "model_parallel_size", "model-parallel-size", "checkpoint_factor",
    "checkpoint-factor", "keep_last_n_checkpoints", "keep-last-n-checkpoints", "output_layer_init_method",
    "output-layer-init-method",
})  # fmt: skip
"""Keys of GPT-NeoX's files."""
OTHERS = {
    **dict.fromkeys(NEOX, "a file of GPT-NeoX, which makes its config of it"),
    "_target_": "a file that Hydra makes an object of", "log_history": "the Trainer's state (trainer_state.json)",
    "apiVersion": "a manifest of Kubernetes",
    "actor_rollout_ref": "a file of verl, which trains without DeepSpeed",
}  # fmt: skip
"""Keys of files that may have DeepSpeed's beside their own, and whose they are."""
OPENRLHF = frozenset({"zero_stage", "micro_train_batch_size"})
RECORDED = "value"
"""The key that a run's config has under each name, as wandb records it."""
NOTEBOOK, PYTHON = ".ipynb", ".py"
SHELL = re.compile(r"[/\s](?:ba|da|z|k)?sh\b")
BATCH = re.compile(r"^#(?:SBATCH|PBS|BSUB|\$) -", re.MULTILINE)
"""Lines for a batch system."""
JOBS = (".job", ".sub", ".pbs", ".lsf", ".sge", ".cmd", ".batch")
"""Endings of scripts that such lines tell, where no ending does."""
EARLY = 5_000
CONFLICT = tuple(re.compile(mark, re.MULTILINE) for mark in (r"^<{7} ", r"^={7}$", r"^>{7} "))
"""What git leaves where two versions differ."""
TEMPLATE = re.compile(r"\{[{%][^{}]*[%}]\}")
"""A place where Jinja puts something in, as JSON has none outside of texts."""
HOSTS = re.compile(r"[ \t]*[^\s#]+[ \t]+slots=\d")
COLUMNS, SLOTS = re.compile("[a-z_]+(?:,[a-z_]+)+"), "slots="
NAMED_HOSTS = re.compile(r"(?:^|[._-]|my)host_?file(?:[._-]|$)")
PLAIN = {
    "dockerfile": "a Dockerfile", "makefile": "a makefile", "justfile": "a justfile", ".md": "Markdown",
    ".toml": "TOML", ".ipynb": "a notebook", ".bat": "a batch file", ".ps1": "a script of PowerShell",
}  # fmt: skip
"""Parts of the names of files, and what they are."""
EVERYONES = ("gradient_accumulation_steps", "gradient_clipping", "optimizer", "scheduler")
"""Keys that files of many trainers have, the last two there as texts."""
LIKELY = 0.75
"""How near a name is to a key that may have been meant."""
LOOKED_AT = 100
"""Names of a file that tell what it is."""
SHOWN = 3
"""Keys that say what a file is instead."""


class OtherKindError(SpecError):
    """A file that is no config of DeepSpeed's and names none: nothing is wrong with it."""


class Kind(Enum):
    """What a JSON or YAML file is."""

    CONFIG = "a ds_config"
    BLOCK = "a ds_config under deepspeed:"
    ACCELERATE = "an Accelerate config"
    ARGUMENTS = "TrainingArguments, or a training file of another tool"
    OTHER = "none of these"


def is_script(name: str, text: str) -> bool:
    """Whether a shell runs it."""
    first = text[: text.find("\n")] if text.startswith("#!") else ""
    base = name.lower().replace("\\", "/").rpartition("/")[2]
    is_job = ("." not in base or base.endswith(JOBS)) and BATCH.search(text[:EARLY]) is not None
    return base.endswith(SCRIPT) or SHELL.search(first) is not None or is_job


def is_notebook(name: str) -> bool:
    return name.lower().endswith(NOTEBOOK)


def is_data(name: str) -> bool:
    """Whether a file is of JSON or YAML by its ending."""
    return name.lower().endswith((*JSON, *YAML))


def is_hostfile(name: str, text: str) -> bool:
    """Whether it lists hosts, by its lines, or by its name."""
    base = name.lower().replace("\\", "/").rpartition("/")[2]
    by_name = is_data(base) or any(part in base for part in PLAIN)
    is_another = by_name or text.lstrip()[:1] in ("{", "[", "")
    first = next((line for line in text[:EARLY].splitlines() if line.strip() and not line.lstrip().startswith("#")), "")
    is_list = (len(first.split()) < 2 and COLUMNS.fullmatch(first.strip()) is None) or SLOTS in text
    is_named = NAMED_HOSTS.search(base) is not None and is_list
    return not is_another and (HOSTS.match(first) is not None or is_named)


def is_yaml(name: str, text: str) -> bool:
    """Whether it is read as YAML: by its ending, but for a ds_config in JSON, which json.load takes under any name;
    where the ending says nothing by its first line.
    """
    if name.lower().endswith(YAML):
        return not _is_json_config(text)
    return not name.lower().endswith(JSON) and MAPPING.match(text) is not None


def _is_json_config(text: str) -> bool:
    if not text.lstrip().startswith("{"):
        return False
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return is_config(content)


def kind_of(document: Document) -> Kind:
    """What a file of these keys is."""
    config = document.config
    names = config.keys()
    if is_others(config) or is_accelerate_config(document):
        return Kind.OTHER if is_others(config) else Kind.ACCELERATE
    if tool_of(names) is not None:
        return Kind.ARGUMENTS
    stated = config.get(DEEPSPEED)
    if is_config(config) and not (isinstance(stated, dict) and is_config(stated) and not OWN_KEYS & names):
        return Kind.CONFIG
    if isinstance(stated, dict) and not is_config(stated) and not all_are_keys(stated):
        return Kind.OTHER
    if DEEPSPEED in names and (not isinstance(stated, dict) or _are_trainers(config)):
        return Kind.ARGUMENTS
    return Kind.BLOCK if isinstance(stated, dict) else Kind.OTHER


def _are_trainers(config: Mapping[str, Any]) -> bool:
    """Whether keys beside a block are the Trainer's: two that hardly any other file has, or most of them."""
    if not has_own(config):
        return False
    return bool(OF_EVERY_TRAINER & config.keys()) or 2 * len(trainer() & config.keys()) >= len(config)


def is_config(config: Mapping[str, Any]) -> bool:
    """Whether these are keys of a ds_config: one that only DeepSpeed has, or a section of its beside another key of its
    top level.
    """
    known = {key.name for key in children() if key.name in config}
    stated = (section for section in SECTIONS if isinstance(config.get(section), dict))
    sections = any(section not in TYPED or _is_typed(config[section]) for section in stated)
    return bool(OWN_KEYS & known) or (sections and len(known) > 1)


def _is_typed(section: Mapping[str, Any]) -> bool:
    """Whether an optimizer or schedule is DeepSpeed's: others have a name beside their params."""
    return "type" in section or ("params" in section and "name" not in section)


def is_others(config: Mapping[str, Any]) -> bool:
    """Whether keys of DeepSpeed's or the Trainer's are those of another tool's file."""
    sections = [value for value in config.values() if isinstance(value, dict)]
    recorded = sum(RECORDED in value for value in sections)
    has_others = bool(OTHERS.keys() & config.keys()) or config.keys() >= OPENRLHF
    return has_others or (recorded > 1 and 2 * recorded > len(config))


def has_no_key(config: Mapping[str, Any]) -> bool:
    """Whether it says something, and nothing that DeepSpeed reads or ever read, nor what may be a slip for that."""
    known = {name: None for one in children() for name in (one.name, *one.aliases)} | dict.fromkeys(REMOVED_KEYS)
    stated = [name for name in config if not name.startswith(COMMENTS)]
    shared = [name for name in stated if name in EVERYONES and not isinstance(config[name], dict)]
    if not stated or any(name in known and name not in shared for name in stated):
        return False
    looked_at = stated[:LOOKED_AT]
    near = sum(bool(difflib.get_close_matches(name.lower(), known, n=1, cutoff=LIKELY)) for name in looked_at)
    return 2 * near < len(looked_at)


def all_are_keys(section: Mapping[str, Any]) -> bool:
    """Whether all keys of a `deepspeed` section are DeepSpeed's."""
    known = {name for key in children() for name in (key.name, *key.aliases)}
    stated = [name for name in section if not name.startswith(COMMENTS)]
    return bool(stated) and known.issuperset(stated)


def block(document: Document) -> Document:
    """The ds_config under `deepspeed`, each key at its place in the file."""
    member = document.members[DEEPSPEED,]
    return Document(document.name, document.text, ValueNode(member.start, member.end, members=member.node.members))


def not_a_config(document: Document, expected: str) -> SpecError:
    """The error that says what a file is that no command of ours reads as a config."""
    config = document.config
    if is_others(config):
        return OtherKindError(document.name, f"{_whose(config)} ({_first_names(config)})", expected)
    if isinstance(section := config.get(DEEPSPEED), dict):
        line, column = document.place(document.members[DEEPSPEED,].start)
        what = f"deepspeed: with {_first_names(section)}, which are no keys of a ds_config"
        return OtherKindError(f"{document.name}:{line}:{column}", what, expected)
    if has_own(config) and len(config.keys() & (OWN | {DEEPSPEED})) > 1:
        what = f"{TRAINER} that name no DeepSpeed config ({_first_names(config)})"
        return SpecError(
            document.name, what, "deepspeed: and the name of one",
            f"zeroplan check ds_config.json --trainer-args {document.name}",
        )  # fmt: skip
    return OtherKindError(document.name, f"keys of something else ({_first_names(config)})", expected)


def refuse_text(name: str, text: str, expected: str) -> None:
    """Raises `SpecError` that says what a text is that is no JSON, where it was not meant for some."""
    base = name.lower().replace("\\", "/").rpartition("/")[2]
    if not base.endswith(JSON) and not text.lstrip().startswith(("{", "[")):
        by_name = next((kind for part, kind in PLAIN.items() if part in base), "text that is neither JSON nor YAML")
        raise OtherKindError(name, by_name, expected)
    if all(mark.search(text) for mark in CONFLICT):
        raise SpecError(name, "a merge conflict", expected)
    if TEMPLATE.search(text):
        raise a_template(name, expected)


def a_template(name: str, expected: str) -> OtherKindError:
    return OtherKindError(name, "a template, whose values another file says", expected)


def _whose(config: Mapping[str, Any]) -> str:
    if config.keys() >= OPENRLHF:
        return "a file of OpenRLHF, which makes its config of it"
    return next((OTHERS[name] for name in config if name in OTHERS), "another tool's file")


def _first_names(names: Mapping[str, Any]) -> str:
    several = list(names)
    more = ["..."] if len(several) > SHOWN else []
    return ", ".join([*map(shown, several[:SHOWN]), *more])


def read_document(name: str, text: str, expected: str) -> Document:
    """A JSON, hjson or YAML file. Raises `SpecError` for YAML that is none, `NotReadableError` for such JSON."""
    if not is_yaml(name, text):
        return read_json(name, text)
    from zeroplan.check.yaml_reader import read_yaml  # where there is such a file

    return read_yaml(name, text, expected)
