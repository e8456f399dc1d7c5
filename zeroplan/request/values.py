"""Values of options, read: from text as people write it, or from Python's own, which are taken as they are.

A reader takes the option's name and a value, and gives what `Options` holds; what it gives it takes too. Words of
torch, transformers and Accelerate stand for the options' own. What only one reader needs it imports itself: help pages
load the options and read none.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from math import isfinite
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, get_args

from zeroplan.errors import ContradictionError, QuantityError, nearest, shown

if TYPE_CHECKING:
    from zeroplan.specs.headroom import Headroom

BF16, FP16, FP32 = "bf16", "fp16", "fp32"
WORDS: dict[str, dict[str, str]] = {
    "precision": {
        BF16: BF16, "bfloat16": BF16, "bf16-mixed": BF16, FP16: FP16, "float16": FP16, "half": FP16,
        "16-mixed": FP16, FP32: FP32, "float32": FP32, "float": FP32, "no": FP32, "fp8": "fp8",
    },
    "attention": {"fa2": "flash_attention_2", "fa3": "flash_attention_3"},
    "zero_init": {"true": "yes", "on": "yes", "1": "yes", "false": "no", "off": "no", "0": "no"},
}  # fmt: skip
"""By option, in small letters; `no` is Accelerate's mixed_precision."""
WORDS["built_in"] = WORDS["quant_storage"] = WORDS["precision"]
WORDS["double_quant"] = WORDS["zero_init"]
STAGE = r"(?:(?:deepspeed|zero|z|stage|zero[-_ ]?stage|deepspeed_stage)[-_ ]?)?([0-3])"
CARD = r"([0-9]{1,7}(?:x[0-9]{1,7})?) ?[xX×*] ?([A-Za-z][\w .-]*|[345]0[6-9]0(?: ?[tT][iI])?)"
"""GPUs with their card behind them, as in 8xA100, 2x8xH100 or 8x4090; a node has no 4090 GPUs."""
AUTO = "auto"
"""As many GPUs as are enough."""
OFFLOADED = ("true", "yes", "on", "1")
SAYS_NO_DEVICE = (*OFFLOADED, "false", "no", "off", "0", "gpu", "cuda")
"""What people write behind an offload that is no place to offload to."""
HEADROOM = "10% or 4GiB"
"""An example."""

Value = TypeVar("Value")
Reader = Callable[[str, Any], Any]


class Written(NamedTuple, Generic[Value]):
    """A value, and how it was written, for what is said of it."""

    value: Value
    text: str


class CardMemory(NamedTuple):
    """The memory of a card: its size on the box in GB, or bytes."""

    size_class: int | None
    bytes: int | None
    text: str


def flag(name: str) -> str:
    """An option as it is typed: --gpu-mem of gpu_mem."""
    return "--" + name.replace("_", "-")


def as_options_have_it(name: str, text: str) -> str:
    """The value of an option, or of each part of a list, in the option's own words."""
    if name == "stage":
        return ",".join(_stage(part) for part in text.split(","))
    words = WORDS.get(name)
    if words is None:
        return text
    return ",".join(words.get(part.lower().removeprefix("torch."), part) for part in text.split(","))


def _stage(text: str) -> str:
    if text in ("0", "1", "2", "3"):
        return text
    match = re.fullmatch(STAGE, text.lower())
    return match[1] if match else text


def written(name: str, value: Any) -> str:
    """A value as a user types it. Raises `QuantityError` for what nobody can."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    if isinstance(value, Real):
        whole = _whole(value)
        return _decimal(float(value)) if whole is None else _size(whole) if name == "params" else str(whole)
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
        return ",".join("" if each is None else written(name, each) for each in value)
    raise QuantityError(
        f"{flag(name)}: found {shown(value)}, expected text, a number, True or False, a path or a list of these; "
        f"write {name} as a user types {flag(name)}"
    )


def _decimal(value: float) -> str:
    """Without an exponent, which no option is written with."""
    from decimal import Decimal

    return f"{Decimal(str(value)):f}" if isfinite(value) else str(value)


def _whole(value: Any) -> int | None:
    """A number without a fraction; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    if isinstance(value, Integral):
        return int(value)
    return int(float(value)) if float(value).is_integer() else None


def _size(value: int) -> str:
    """7_000_000_000 parameters are 7B, where that is all of them."""
    from zeroplan.units import LARGEST_COUNT, count, read_count

    short = count(value) if 10**6 <= value <= LARGEST_COUNT else ""
    return short if short and read_count(short) == value else str(value)


def text(name: str, value: Any) -> str:
    """A name, or the path of a file."""
    return written(name, value)


def patterns(name: str, value: Any) -> tuple[str, ...]:
    """Globs of parameters' names: one, or several."""
    several = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, Sequence) else ()
    wrong = [each for each in several if not isinstance(each, str) or not each.strip()]
    if wrong or not several:
        raise QuantityError(
            f"{flag(name)}: found {shown(str(wrong[0] if wrong else value))}, expected a pattern of parameters' names; "
            f'write {flag(name)} "*embed_tokens*"'
        )
    return several


def names(name: str, value: Any, example: str = "q_proj,v_proj") -> tuple[str, ...]:
    """Names with commas between them, or a list."""
    several = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, Sequence) else ()
    parts = [part.strip() for each in several for part in (each.split(",") if isinstance(each, str) else ("",))]
    if not parts or not all(parts):
        raise QuantityError(
            f"{flag(name)}: found {shown(str(value))}, expected names with commas between them; write {flag(name)} "
            f"{example}"
        )
    return tuple(parts)


def parameters(name: str, value: Any) -> Written[int]:
    if isinstance(value, Written):
        return value
    from zeroplan.units import LARGEST_COUNT, read_count

    whole = _whole(value)
    if whole is not None and 1 <= whole <= LARGEST_COUNT:
        return Written(whole, _size(whole))
    typed = written(name, value)
    return Written(read_count(typed), typed)


def count(example: str) -> Reader:
    """A whole number from 0."""
    from_one = integer(example)
    return lambda name, value: 0 if _whole(value) == 0 or value == "0" else from_one(name, value)


def integer(example: str = "8") -> Reader:
    """A whole number from 1."""

    def read(name: str, value: Any) -> int:
        from zeroplan.units import LARGEST_COUNT, read_integer

        whole = _whole(value)
        if whole is not None and 1 <= whole <= LARGEST_COUNT:
            return whole
        return read_integer(written(name, value), flag(name), example)

    return read


def adapter_rank(name: str, value: Any) -> int:
    """The rank of adapters."""
    from zeroplan.specs.adapter import LARGEST_RANK

    try:
        found: int = integer("16")(name, value)
    except QuantityError:
        found = 0
    if not 1 <= found <= LARGEST_RANK:
        raise QuantityError(
            f"{flag(name)}: found {shown(written(name, value))}, expected a whole number from 1 to "
            f"{LARGEST_RANK:,}; write {flag(name)} 16"
        )
    return found


def image_size(name: str, value: Any) -> tuple[int, int]:
    """Height and width in pixels: 448x448, or two numbers."""
    typed = written(name, value)
    match = re.fullmatch(r"([1-9][0-9]{0,4}) ?[xX×*,] ?([1-9][0-9]{0,4})", typed.strip())
    if match is None:
        expected = "height and width in pixels"
        raise QuantityError(f"{flag(name)}: found {shown(typed)}, expected {expected}; write {flag(name)} 448x448")
    return int(match[1]), int(match[2])


def rank(name: str, value: Any) -> int | str:
    """A rank, or what is none: how many there are is the cluster's to say, and the error's."""
    typed = written(name, value)
    return int(typed) if re.fullmatch("[0-9]{1,9}", typed) else typed


def stage(name: str, value: Any) -> int:
    typed = as_options_have_it(name, written(name, value))
    if typed not in ("0", "1", "2", "3"):
        raise QuantityError(f"--stage: found {shown(typed)}, expected 0, 1, 2 or 3; write --stage 2")
    return int(typed)


def choice(kind: Any) -> Reader:
    """One of the words of a `Literal`, in any case."""

    def read(name: str, value: Any) -> str:
        return _chosen(name, value, get_args(kind))

    return read


def _chosen(name: str, value: Any, choices: Sequence[str]) -> str:
    typed = as_options_have_it(name, written(name, value))
    if typed.lower() in choices:
        return typed.lower()
    raise _no_choice(name, typed, choices)


def bits(kind: Any) -> Reader:
    """How weights are quantized, None for none: of what names 4 bits nf4 is meant, which QLoRA takes."""

    def read(name: str, value: Any) -> str | None:
        choices = get_args(kind)
        typed = as_options_have_it(name, written(name, value))
        if typed.lower() == "none":
            return None
        if "4" in typed and typed.lower() not in choices:
            raise _no_choice(name, typed, choices, meant="nf4")
        return _chosen(name, value, choices)

    return read


def _no_choice(name: str, typed: str, choices: Sequence[str], meant: str = "") -> QuantityError:
    return QuantityError(
        f"{flag(name)}: found {shown(typed)}, expected {', '.join(choices)}; write {flag(name)} "
        f"{meant or nearest(typed, choices)}"
    )


def optimizer(name: str, value: Any) -> str:
    from zeroplan.specs.optimizer import OPTIMIZERS

    return _chosen(name, value, tuple(OPTIMIZERS))


def checkpointing(name: str, value: Any) -> str:
    from zeroplan.specs.checkpointing import KINDS, is_checkpointing

    typed = written(name, value)
    if not is_checkpointing(typed.lower()):
        raise _no_choice(name, typed, KINDS)
    return typed.lower()


def attention(name: str, value: Any) -> str:
    """`flash` is version 2 of the package."""
    from zeroplan.specs.strategy import ATTENTION, FLASH

    kind = _chosen(name, value, (*ATTENTION, "flash"))
    return FLASH if kind == "flash" else kind


def switch(name: str, value: Any) -> bool:
    return value if isinstance(value, bool) else _chosen(name, value, ("yes", "no")) == "yes"


def device(name: str, value: Any) -> str:
    """A place to offload to. A yes, a no, or the place where states are without offload is none."""
    typed = written(name, value)
    if typed.lower() not in SAYS_NO_DEVICE:
        return _chosen(name, typed, ("none", "cpu", "nvme"))
    option = flag(name)
    write = f"{option} cpu, or nvme" if typed.lower() in OFFLOADED else f"{option} none, or leave it out"
    raise QuantityError(f"{option}: found {shown(typed)}, expected where to: none, cpu or nvme; write {write}")


def optim(name: str, value: Any) -> str:
    """A name that the Trainer has, and that is planned."""
    from zeroplan.specs.optimizer import OPTIMS, SINGLE_TENSOR, TORCHS_OPTIMS, UNPLANNED_OPTIMS

    typed, known = written(name, value), (*OPTIMS, *(name + SINGLE_TENSOR for name in TORCHS_OPTIMS))
    if typed in UNPLANNED_OPTIMS:
        raise QuantityError(
            f"--optim: found {typed}, which is not planned, expected {', '.join(OPTIMS)}; write --optim "
            f"{nearest(typed, OPTIMS)}, whose memory is another"
        )
    if typed not in known:
        raise _no_choice(name, typed, known)
    return typed


def with_card(gpus: Any, gpu: Any) -> tuple[Any, Any]:
    """--gpus and --gpu, where the first names the card too. Raises `ContradictionError` for two cards."""
    if not isinstance(gpus, str) or gpus.isdigit():
        return gpus, gpu
    match = re.fullmatch(CARD, gpus)
    if match is None:
        return gpus, gpu
    if gpu not in (None, match[2]):
        raise ContradictionError(
            f"--gpus {gpus} and --gpu {written('gpu', gpu)} both name a card; write --gpus {match[1]}"
        )
    return match[1], match[2]


def gpus(name: str, value: Any) -> Written[tuple[int, ...]]:
    """GPUs, or nodes and the GPUs of each; `auto` has no number yet."""
    if isinstance(value, Written):
        return value
    typed = written(name, value)
    if typed == AUTO:
        return Written((), typed)
    match = re.fullmatch(r"([0-9]{1,18})(?:x([0-9]{1,18}))?", typed)
    numbers = tuple(int(part) for part in match.groups() if part) if match else ()
    if not numbers or 0 in numbers:
        raise no_gpus(typed, ", at least 1" if numbers else "")
    return Written(numbers, typed)


def no_gpus(typed: str, more: str = "") -> QuantityError:
    return QuantityError(
        f"--gpus: found {shown(typed)}, expected GPUs or nodes x GPUs{more}; write --gpus 8 or --gpus 4x8"
    )


def card_memory(name: str, value: Any) -> CardMemory:
    """A bare number is what stands on a card's box."""
    if isinstance(value, CardMemory):
        return value
    typed = written(name, value)
    if re.fullmatch(r"[0-9]{1,4}", typed) and int(typed) > 0:
        return CardMemory(int(typed), None, typed)
    from zeroplan.units import read_bytes

    return CardMemory(None, read_bytes(typed, flag(name)), typed)


def memory(unit: str, example: str) -> Reader:
    """A size in bytes; a bare number is in `unit`."""

    def read(name: str, value: Any) -> Written[int]:
        if isinstance(value, Written):
            return value
        from zeroplan.units import read_bytes, read_integer

        typed = written(name, value)
        if not is_bare(typed):
            return Written(read_bytes(typed, flag(name), example), typed)
        read_integer(typed, flag(name), example)
        return Written(read_bytes(typed + unit, flag(name), example), typed)

    return read


def is_bare(typed: str) -> bool:
    """Whether a number has no unit."""
    return re.fullmatch(r"[0-9]+", typed) is not None


def headroom(name: str, value: Any) -> Written[Headroom]:
    """`10%`, a share such as `0.1`, or bytes with their unit."""
    if isinstance(value, Written):
        return value
    from zeroplan.specs.headroom import Headroom
    from zeroplan.units import read_bytes

    typed = written(name, value)
    if re.match(r"\.?[0-9].*[A-Za-z]$", typed):
        return Written(Headroom(bytes=read_bytes(typed, "--headroom", HEADROOM)), typed)
    share = read_share(typed)
    if share is None:
        expected = "a share from 0 up to less than 100%, or bytes with their unit"
        raise QuantityError(f"--headroom: found {shown(typed)}, expected {expected}; write --headroom {HEADROOM}")
    return Written(Headroom(share=share), typed)


def read_share(typed: str) -> float | None:
    """`1%`, or a share such as `0.01`; None for what is none, or is all."""
    match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{0,9})?|\.[0-9]{1,9})( ?%)?", typed)
    share = float(match[1]) / (100 if match[2] else 1) if match else 1.0
    return share if share < 1 else None


def accepted(name: str, value: Any) -> str:
    typed = written(name, value)
    if typed != "tight":
        raise QuantityError(f"--accept: found {shown(typed)}, expected tight; write --accept tight")
    return typed
