"""What of a model trains: all of it, what --freeze and --train leave, or adapters."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from zeroplan.errors import ContradictionError, SpecError, shown
from zeroplan.request.options import Options
from zeroplan.request.values import flag
from zeroplan.specs.model import Model, with_frozen
from zeroplan.specs.trained import Trained

if TYPE_CHECKING:
    from zeroplan.catalog.trainers.file import TrainerFile
    from zeroplan.specs.adapter import Adapter

TASKS = {"ForSequenceClassification": "SEQ_CLS", "ForTokenClassification": "TOKEN_CLS", "MaskedLM": None, "Model": None}
"""Ends of names of classes that are no language models, and the task that peft is told."""


def read_trained(options: Options, model: Model, file: TrainerFile | None = None) -> Model:
    """The model with the parameters frozen that the options say, and with adapters where they ask for them. `file`: a
    training file, which says it where options do not.

    Raises `ZeroplanError` for a pattern that no name matches, and for options that contradict one another.
    """
    trained = what_trains(options, model, file)
    if trained.quantization is not None and file is not None:
        raise SpecError(file.place, "quantized weights", "16-bit ones: those of 4 and 8 bit are not planned yet")
    if trained.adapter is None:
        return with_frozen(model, trained.freeze or ("*",), trained.train) if trained.freeze or trained.train else model
    from zeroplan.architectures.adapters import unmatched, with_adapter  # where adapters are asked for

    adapter = trained.adapter
    found = with_adapter(model, adapter)
    if names := unmatched(model, adapter):
        if options.lora_targets:
            wrong = f"found {shown(names[0])}, which no module of {model.name} is named like"
            raise ContradictionError(f"--lora-targets: {wrong}; leave it out")
        left_out = f"target_modules {', '.join(names)}: no module of {model.name} is named so, and peft says nothing"
        found = found._replace(assumed=(*found.assumed, left_out))
    return found


def what_trains(options: Options, model: Model, file: TrainerFile | None = None) -> Trained:
    """What of a model trains, as options say it, or else a training file. Raises `ZeroplanError`."""
    adapted = _stated(options, "lora", "lora_targets", "adapter")
    parts = _stated(options, "freeze", "train")
    if adapted and parts:
        raise ContradictionError(
            f"{flag(adapted[0])} and {flag(parts[0])} both say what trains; keep one, or write modules_to_save in an "
            "adapter_config.json"
        )
    said = Trained() if file is None or options.adapter is not None else file.stated.trained(model)
    if file is not None:
        said = said._replace(quantization=file.stated.quantization)
    if (adapted and (said.freeze or said.train)) or (parts and said.adapter):
        typed = flag((adapted or parts)[0])
        assert file is not None
        raise ContradictionError(
            f"{typed} and {file.stated.trains} of {file.place} both say what trains; leave {typed} out, or --config"
        )
    if parts:
        _check_patterns(options, model)
        return said._replace(freeze=options.freeze or (), train=options.train or ())
    return said._replace(adapter=_adapter(options, model, said.adapter)) if adapted else said


def model_under_adapter(options: Options) -> str | None:
    """The model that an adapter's own file names."""
    if options.adapter is None:
        return None
    from zeroplan.catalog.adapters import base_of

    return base_of(options.adapter)


def _stated(options: Options, *names: str) -> list[str]:
    return [name for name in names if getattr(options, name) is not None]


def _adapter(options: Options, model: Model, said: Adapter | None) -> Adapter:
    """What --lora or --adapter says; `said`: what a training file does."""
    from zeroplan.catalog.adapters import read_adapter_file
    from zeroplan.specs.adapter import ALL_LINEAR, CAUSAL_LM, TOKEN_CLS, Adapter

    if options.adapter is not None:
        for name in _stated(options, "lora", "lora_targets"):
            raise ContradictionError(f"--adapter and {flag(name)} both say which adapters; keep one")
        return read_adapter_file(options.adapter)
    rank = options.lora or (said.r if said else None)
    if rank is None:
        raise ContradictionError("--lora-targets names the layers of adapters; write their rank too, --lora 16")
    targets = options.lora_targets or (ALL_LINEAR,)
    is_all = len(targets) == 1 and targets[0].lower() == ALL_LINEAR
    task = next((task for end, task in TASKS.items() if model.architecture.endswith(end)), CAUSAL_LM)
    if is_all and task == TOKEN_CLS:
        raise ContradictionError(
            f"{model.name}: peft takes no {ALL_LINEAR} for a token classifier, whose head it trains as a whole; write "
            "--lora-targets q_proj,v_proj"
        )
    named = ALL_LINEAR if is_all else targets
    if said is not None:
        return said._replace(r=rank, target_modules=named if options.lora_targets else said.target_modules)
    return Adapter(r=rank, lora_alpha=2 * rank, target_modules=named, task_type=task)


def _check_patterns(options: Options, model: Model) -> None:
    """Raises `ContradictionError` for a pattern of --freeze or --train that no name matches."""
    for name in ("freeze", "train"):
        for pattern in getattr(options, name) or ():
            if not any(fnmatchcase(tensor.name, pattern) for tensor in model.tensors):
                raise ContradictionError(
                    f"{flag(name)}: found {shown(pattern)}, which no parameter of {model.name} is named like, expected "
                    f'one such as {model.tensors[0].name}; write {flag(name)} "*{_part(model.tensors[0].name)}*"'
                )


def _part(name: str) -> str:
    """The module of a parameter, without its path."""
    return name.rpartition(".")[0].rpartition(".")[2] or name
