"""Options by the names that other tools have for them, rewritten before they are parsed.

Of transformers' TrainingArguments, accelerate launch, the launchers of DeepSpeed and torch, ds_config.json, Megatron,
Lightning and LLaMA-Factory; with _ for - too. What means two things is not here.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from zeroplan.errors import ContradictionError, QuantityError, printable, shown

ALIASES: dict[str, tuple[str, ...]] = {
    "--params": ("model-size", "num-params", "n-params", "num-parameters", "parameters"),
    "--model": ("model-name-or-path", "model-id", "model-name", "model-path", "base-model",
                "pretrained-model-name-or-path"),
    "--config": ("deepspeed", "deepspeed-config", "deepspeed-config-file", "ds-config"),
    "--seq": ("seq-len", "seq-length", "seqlen", "sequence-length", "sequence-len", "max-seq-length", "max-seq-len",
              "max-length", "cutoff-len", "model-max-length", "block-size", "context-length", "ctx-len"),
    "--micro-batch": ("batch-size", "per-device-train-batch-size", "per-device-batch-size", "micro-batch-size",
                      "train-micro-batch-size-per-gpu", "per-gpu-train-batch-size", "mbs"),
    "--grad-accum": ("gradient-accumulation-steps", "grad-accum-steps", "accumulate-grad-batches", "gas"),
    "--global-batch": ("train-batch-size", "global-batch-size", "total-batch-size", "gbs"),
    "--precision": ("dtype", "torch-dtype", "mixed-precision"),
    "--attention": ("attn-implementation", "attn-impl", "attn"),
    "--stage": ("zero", "zero-stage", "ds-stage", "deepspeed-stage"),
    "--offload-optimizer": ("offload-optimizer-device",),
    "--offload-param": ("offload-param-device", "offload-params", "offload-parameters"),
    "--zero-init": ("zero3-init-flag",),
    "--gpu": ("gpu-type", "gpu-name", "gpu-model", "card"),
    "--gpu-mem": ("gpu-memory", "vram", "gpu-vram"),
    "--host-mem": ("cpu-mem", "cpu-memory", "host-memory", "ram"),
    "--cluster": ("instance-type", "node-type"),
    "--hostfile": ("deepspeed-hostfile", "host-file"),
}  # fmt: skip
NAMES = {word: option for option, words in ALIASES.items() for word in words}


class Switch(NamedTuple):
    """A flag that stands for an option with its value."""

    option: str
    on: str
    off: str | None = None
    """What it says when it is false; None: nothing."""
    takes: tuple[str, ...] = ()
    """Values of the option that may stand behind it too."""


SWITCHES: dict[str, Switch] = {
    **{half: Switch("--precision", half) for half in ("bf16", "fp16", "fp32", "fp8")},
    **dict.fromkeys(("gradient-checkpointing", "activation-checkpointing"),
                    Switch("--checkpointing", "full", "none", ("full", "selective", "none"))),
    "no-gradient-checkpointing": Switch("--checkpointing", "none"),
    **dict.fromkeys(("use-liger-kernel", "use-liger", "enable-liger-kernel"),
                    Switch("--kernels", "liger", "transformers")),
    **dict.fromkeys(("use-flash-attn", "use-flash-attention-2", "flash-attention-2"),
                    Switch("--attention", "flash_attention_2")),
    **{f"zero{stage}": Switch("--stage", str(stage)) for stage in range(4)},
    "cpu-offload": Switch("--offload-optimizer", "cpu", "none"),
    "cpu-offload-params": Switch("--offload-param", "cpu", "none"),
}  # fmt: skip
Place = Literal["nodes", "of a node", "of one node", "of all"]
PLACES: dict[str, Place] = {
    **dict.fromkeys(("num-nodes", "nnodes", "num-machines", "n-nodes", "nodes"), "nodes"),
    **dict.fromkeys(("num-gpus",), "of one node"),
    **dict.fromkeys(("nproc-per-node", "gpus-per-node", "num-gpus-per-node", "n-gpus-per-node"), "of a node"),
    **dict.fromkeys(("world-size", "num-processes", "n-gpus", "ngpus"), "of all"),
}  # fmt: skip
"""How many GPUs, as launchers count them: deepspeed's --num_gpus of a node, --num_nodes; torchrun's --nproc-per-node,
--nnodes; accelerate launch's --num_processes of all nodes, --num_machines. `of one node`: all of them, unless nodes are
counted too."""
TRUE, FALSE = ("true", "yes"), ("false", "no")


class Typed(NamedTuple):
    """An option as it was typed."""

    option: str
    name: str
    value: str
    renamed: bool = True

    def __str__(self) -> str:
        return f"{self.name} {printable(self.value)}".rstrip()


class KnownOption(NamedTuple):
    """An option of the command."""

    takes_value: bool
    repeats: bool = False


def rewritten(arguments: Sequence[str], known: Mapping[str, KnownOption]) -> tuple[list[str], list[Typed]]:
    """The arguments with the command's own option names, and what was typed of each option.

    Raises `ContradictionError` for two names of one option with different values, and `QuantityError`.
    """
    rest, written, typed, places = list(arguments), [], [], {}
    while rest:
        name, equals, value = rest[0].partition("=")
        word = name[2:].replace("_", "-") if name.startswith("--") else ""
        option = _option(name, word, known)
        if rest[0] == "--":
            break
        rest.pop(0)
        if option and known[option].takes_value:
            said = Typed(option, name, _value(name, option, value if equals else None, rest), name != option)
            written += [said.option, said.value] if not equals else [f"{said.option}={said.value}"]
            typed += [said] if not known[option].repeats else []
        elif option:
            written.append(option + equals + value)
        elif (place := PLACES.get(word)) and "--gpus" in known:
            places[place] = Typed("--gpus", name, _value(name, "--gpus", value if equals else None, rest))
        elif (switch := SWITCHES.get(word)) and switch.option in known:
            said = Typed(switch.option, name, value if equals else _truth(rest, switch))
            setting = _setting(said, switch)
            typed += [said._replace(value=setting, name=str(said))] if setting else []
            written += [switch.option, setting] if setting else []
        else:
            written.append(name + equals + value)
    if places:
        written = _with_places(written, typed, places)
    _check_once(typed)
    return written + rest, [said for said in typed if said.renamed]


def _option(name: str, word: str, known: Mapping[str, KnownOption]) -> str | None:
    """The command's own option that a typed one stands for."""
    if name in known:
        return name
    if f"--{word}" in known and word:
        return f"--{word}"
    option = NAMES.get(word)
    return option if option in known else None


def _value(name: str, option: str, stated: str | None, rest: list[str]) -> str:
    if stated is not None:
        return stated
    if rest:
        return rest.pop(0)
    raise QuantityError(f"{name}: found no value behind it, expected that of {option}; zeroplan -h shows how")


def _truth(rest: list[str], switch: Switch) -> str:
    """What stands behind a flag, as transformers' parser lets it: --bf16 true."""
    return rest.pop(0) if rest and rest[0].lower() in (*TRUE, *FALSE, *switch.takes) else ""


def _setting(said: Typed, switch: Switch) -> str | None:
    text = said.value.lower()
    if text in ("", *TRUE, "1"):
        return switch.on
    if text in (*FALSE, "0"):
        return switch.off
    if text in switch.takes:
        return text
    raise QuantityError(
        f"{said.name}: found {printable(said.value)}, expected true or false; write {said.option} {switch.on}"
    )


def _with_places(written: list[str], typed: list[Typed], places: dict[Place, Typed]) -> list[str]:
    """GPUs and nodes as launchers count them, as --gpus."""
    own = next((said for said in typed if said.option == "--gpus"), None)
    counted = {place: (said.name, said.value) for place, said in places.items()}
    gpus = placed(counted, own and own.value)
    if gpus is None:
        return written
    typed.append(Typed("--gpus", " ".join(str(said) for said in places.values()), gpus))
    return [*written, "--gpus", gpus]


def placed(counts: Mapping[Place, tuple[str, str]], gpus: str | None) -> str | None:
    """What --gpus says of these counts, each with its name as typed; None where the typed --gpus says it all.

    Raises `ContradictionError` for counts that do not make a cluster, and `QuantityError`.
    """
    nodes, each, every = counts.get("nodes"), counts.get("of a node") or counts.get("of one node"), counts.get("of all")
    if len(counts) == 1 and nodes is None and "of a node" not in counts:
        (_name, value), = counts.values()  # fmt: skip
        return value
    number = {place: _count(name, value) for place, (name, value) in counts.items()}
    if nodes and each is None and every is None:
        return _nodes_alone(nodes, number["nodes"], gpus)
    total, width = number.get("of all"), number.get("of a node") or number.get("of one node")
    count = number.get("nodes") or (total // width if total and width else 1)
    width = width or (total or 0) // count
    if total is not None and count * width != total:
        typed = " and ".join(f"{name} {value}" for name, value in counts.values())
        raise ContradictionError(f"{typed}: found no even number of GPUs a node; write --gpus NODESxGPUS, as in 4x8")
    return f"{count}x{width}"


def _nodes_alone(nodes: tuple[str, str], count: int, gpus: str | None) -> str | None:
    name, value = nodes
    if gpus is None:
        raise ContradictionError(f"{name}: found {value} and no GPUs of a node; write --gpus {count}x8")
    if count == 1 or gpus.startswith(f"{count}x"):
        return None
    if gpus.isdigit() and int(gpus) % count == 0:
        raise ContradictionError(
            f"{name} {value} beside --gpus {gpus}, which counts all; write --gpus {count}x{int(gpus) // count}, "
            f"or --gpus {count}x{gpus}"
        )
    raise ContradictionError(f"{name} {value} beside --gpus {gpus}: --gpus counts nodes too; write --gpus {count}x8")


def _count(name: str, value: str) -> int:
    if not (value.isascii() and value.isdigit() and len(value) <= 7 and int(value)):
        raise QuantityError(f"{name}: found {shown(value)}, expected a whole number from 1; write --gpus 4x8")
    return int(value)


def _check_once(typed: list[Typed]) -> None:
    """One name typed twice is the last one's, as of any command; two names of one option are looked at."""
    first: dict[str, Typed] = {}
    for said in typed:
        before = first.setdefault(said.option, said)
        if before.name == said.name:
            continue
        from zeroplan.request.values import as_options_have_it

        field = said.option[2:].replace("-", "_")
        same = as_options_have_it(field, before.value) == as_options_have_it(field, said.value)
        if not same:
            raise ContradictionError(f"{_shown(before)} and {_shown(said)} both set {said.option}; keep one")


def _shown(said: Typed) -> str:
    switched = said.name.partition(" ")[0][2:].replace("_", "-")
    return said.name if switched in SWITCHES or switched in PLACES else str(said)
