"""What of a model trains: all of it, what --freeze and --train leave, or adapters."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from zeroplan.errors import ContradictionError, shown
from zeroplan.request.options import Options
from zeroplan.request.strategy import Reading
from zeroplan.request.values import flag
from zeroplan.specs.model import Model, with_frozen
from zeroplan.specs.trained import Trained

if TYPE_CHECKING:
    from zeroplan.catalog.trainers.file import TrainerFile
    from zeroplan.specs.adapter import Adapter
    from zeroplan.specs.quantization import Quantization

TASKS = {"ForSequenceClassification": "SEQ_CLS", "ForTokenClassification": "TOKEN_CLS", "MaskedLM": None, "Model": None}
"""Ends of names of classes that are no language models, and the task that peft is told."""
REST = "inferred.rest"
"""The tensor of what the sizes of an inferred shape do not reach."""


def read_trained(options: Options, model: Model, file: TrainerFile | None = None) -> Model:
    """The model with the parameters frozen that the options say, and with adapters where they ask for them. `file`: a
    training file, which says it where options do not.

    Raises `ZeroplanError` for a pattern that no name matches, and for options that contradict one another.
    """
    trained, untouched = what_trains(options, model, file), model
    if model.quantization and _stated(options, "quantize", "double_quant", "quant_storage"):
        raise ContradictionError(
            f"--quantize and the quantization_config of {model.name} both say how weights lie; leave --quantize out"
        )
    if model.quantization and trained.adapter is None:
        raise ContradictionError(
            f"{model.name}: its weights are quantized (quantization_config) and cannot train, and the Trainer refuses "
            "them alone; write --lora 16, or remove it to plan full training in 16 bit"
        )
    if trained.adapter is None:
        return with_frozen(model, trained.freeze or ("*",), trained.train) if trained.freeze or trained.train else model
    if trained.quantization is not None and not model.quantization:  # a quantization_config counts before a file
        from zeroplan.architectures.quantized import with_quantization  # where weights are

        model = with_quantization(model, trained.quantization)
    from zeroplan.architectures.adapters import unmatched, with_adapter  # where adapters are asked for

    adapter = trained.adapter
    found = _with_rest(with_adapter(model, adapter), untouched)
    if names := unmatched(model, adapter):
        if options.lora_targets:
            wrong = f"found {shown(names[0])}, which no module of {model.name} is named like"
            raise ContradictionError(f"--lora-targets: {wrong}; leave it out")
        left_out = f"target_modules {', '.join(names)}: no module of {model.name} is named so, and peft says nothing"
        found = found._replace(assumed=(*found.assumed, left_out))
    if note := _above_width(found):
        found = found._replace(assumed=(*found.assumed, note))
    return found


def _above_width(model: Model) -> str:
    """That adapters have a higher rank than the product of A [r, in] and B [out, r] can have; empty where none do."""
    inputs: dict[str, tuple[int, ...]] = {}
    beyond: dict[str, int] = {}
    for each in model.tensors:
        of_a, is_a, _name = each.name.rpartition(".lora_A.")
        of_b, is_b, _name = each.name.rpartition(".lora_B.")
        if is_a:
            inputs[of_a] = each.shape
        elif is_b and of_b in inputs and inputs[of_b][0] > min(inputs[of_b][1], each.shape[0]):
            beyond[of_b.rpartition(".")[2]] = inputs[of_b][0]
    if not beyond:
        return ""
    rank, names = max(beyond.values()), ", ".join(beyond)
    return f"rank {rank:,} is above the smaller width of {names}: a lower one says as much (--lora)"


def _with_rest(adapted: Model, model: Model) -> Model:
    """The model with what of it lies in no module: the last parameters of a shape that was inferred, frozen here."""
    rest = tuple([each._replace(trainable=False) for each in model.tensors if each.name == REST])
    elements = sum(each.elements for each in rest)
    return adapted._replace(tensors=(*adapted.tensors, *rest), parameters=adapted.parameters + elements)


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
    quantization = _quantization(options, file.stated.quantization if file else None)
    if (adapted and (said.freeze or said.train)) or (parts and said.adapter):
        typed = flag((adapted or parts)[0])
        assert file is not None
        raise ContradictionError(
            f"{typed} and {file.stated.trains} of {file.place} both say what trains; leave {typed} out, or --config"
        )
    if quantization is not None and not adapted and said.adapter is None:
        raise ContradictionError(
            "--quantize without adapters: quantized weights cannot train, and the Trainer refuses them alone; "
            "write --lora 16 too"
        )
    if parts:
        _check_patterns(options, model)
        return Trained(freeze=options.freeze or (), train=options.train or ())
    adapter = _adapter(options, model, said.adapter) if adapted else said.adapter
    if options.adapter_dtype is not None:
        if adapter is None:
            raise ContradictionError("--adapter-dtype is of adapters; write --lora 16 too")
        adapter = adapter._replace(autocast_adapter_dtype=options.adapter_dtype == "fp32")
    return said._replace(adapter=adapter, quantization=quantization)


def _quantization(options: Options, said: Quantization | None) -> Quantization | None:
    """What --quantize and its options say; `said`: what a training file does."""
    stated = _stated(options, "quantize", "double_quant", "quant_storage")
    if not stated:
        return said
    from zeroplan.specs.quantization import INT8, Quantization

    kind = options.quantize or (said.kind if said else None)
    if kind is None:
        raise ContradictionError(f"{flag(stated[0])} is of quantized weights; write --quantize nf4 too")
    if kind == INT8 and _stated(options, "double_quant", "quant_storage"):
        raise ContradictionError("--double-quant and --quant-storage are of weights in 4 bit; leave them out with int8")
    usual = said or Quantization()
    double = usual.double if options.double_quant is None else options.double_quant
    return usual._replace(kind=kind, double=double, storage=options.quant_storage or usual.storage)


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


def of_quantized(fixed: Mapping[str, Any], quantization: Quantization) -> Reading:
    """How a quantized model is built: whole on each GPU, as transformers never builds one under deepspeed.zero.Init.

    Raises `ContradictionError` where its bits would be lost, or are not counted.
    """
    from zeroplan.specs.quantization import INT8

    precision = fixed.get("precision", "bf16")
    if fixed.get("zero_init"):
        raise ContradictionError("--zero-init yes: transformers builds no quantized model under deepspeed.zero.Init; "
                                 "leave it out")  # fmt: skip
    if precision not in ("bf16", "fp16"):
        raise ContradictionError(f"--quantize with --precision {precision} is not planned; write --precision bf16")
    if quantization.kind != INT8 and quantization.storage not in ("", precision, "uint8"):
        raise ContradictionError(
            f"--quant-storage {quantization.storage}: DeepSpeed casts it to {precision} as numbers, and the weights "
            f"are lost; write --quant-storage {precision}, or uint8"
        )
    return Reading({"zero_init": False, "built_on": "gpu"})
