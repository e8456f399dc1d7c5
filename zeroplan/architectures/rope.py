"""Rotary positions: the settings that config.json gives, and the frequencies kept as buffers."""

from __future__ import annotations

from dataclasses import dataclass
from sys import float_info
from typing import Any, ClassVar

from zeroplan.architectures.attention import Rope, rotary
from zeroplan.architectures.config import Config
from zeroplan.architectures.forward_run import ForwardRun
from zeroplan.architectures.module import Buffer, Module
from zeroplan.autograd.tensor import Tensor
from zeroplan.errors import SpecError, shown

Settings = dict[str, Any]

# rope_type -> the settings that must stand beside it; all but two of them numbers
NEEDED: dict[str, tuple[str, ...]] = {
    "default": (),
    "proportional": (),
    "linear": ("factor",),
    "dynamic": ("factor",),
    "yarn": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
    "longrope": ("short_factor", "long_factor"),
}
SCALES_LENGTH = frozenset({"llama3", "yarn", "longrope"})
LARGEST = float_info.max
SLIDING = "sliding_attention"
READS_HEAD_DIM = frozenset({"dynamic", "yarn", "longrope"})


@dataclass(kw_only=True, init=False, eq=False, repr=False)
class RotaryConfig(Config):
    """A config with rotary positions; `rope_scaling` is the former name of `rope_parameters` and wins."""

    rotates_part: ClassVar[bool] = False
    """The plain rope of this family rotates partial_rotary_factor of a head, not all of it."""
    window_stated: ClassVar[str] = "sliding_window: 4096"
    """What gives layers of type sliding_attention their width."""
    head_dim_declared: ClassVar[bool] = False
    """The family's config class has head_dim, so that config.json without it is the same as null."""

    max_position_embeddings: int = 2048
    rope_theta: float = 10000.0
    partial_rotary_factor: float | None = None
    rope_parameters: dict[str, Any] | None = None
    rope_scaling: dict[str, Any] | None = None

    @property
    def rotary_head(self) -> int:
        """The head width that the frequencies are computed from."""
        return self.head_dim if self.head_dim is not None else self.head_width

    @property
    def turned(self) -> int:
        """The part of a query's head that goes through the rope, where that is not up to its settings."""
        return self.head_width

    def rope(self) -> Settings:
        """One set of settings, as transformers completes it."""
        settings = dict(self.rope_scaling or self.rope_parameters or {})
        settings.setdefault("rope_theta", self.rope_theta)
        if self.partial_rotary_factor is not None:
            settings.setdefault("partial_rotary_factor", self.partial_rotary_factor)
        return self.completed(settings)

    def completed(self, settings: Settings) -> Settings:
        """With the type under its present name and the length that scaling starts from."""
        settings.setdefault("rope_type", settings.get("type", "default"))
        if str(settings["rope_type"]) in SCALES_LENGTH:
            settings.setdefault("original_max_position_embeddings", self.max_position_embeddings)
        return settings

    def windows(self) -> dict[str, int | None]:
        """The masks that the model makes: by kind of layer, how far back a token sees (None: to the start)."""
        return {"": None}

    def kinds(self) -> list[str]:
        """The kind of each layer, as `windows` names it."""
        return [""] * self.num_hidden_layers

    def ropes(self) -> dict[str, Settings]:
        """The settings by the prefix of their buffers' names; more than one where layer types differ."""
        return {"": self.rope()}

    def validate(self, place: str) -> None:
        super().validate(place)
        nested = (self.rope_scaling or self.rope_parameters or {}).keys() & set(self.layer_types or ())
        if nested and list(self.ropes()) == [""]:
            found = f"rope settings nested under {sorted(nested)[0]}"
            raise SpecError(place, found, "one set of settings for all layers")
        masks = self.windows()
        if strange := sorted({kind for kind in self.kinds() if kind not in masks}):
            expected = " or ".join(sorted({*masks, "sliding_attention"}))
            raise SpecError(place, f"layer type {shown(strange[0])}", f"{expected}, as this family's layers are")
        for settings in self.ropes().values():
            check_rope(self, settings, place)

    def check_run(self, place: str) -> None:
        """Each layer takes the mask of its type, of which the model makes those of `windows` (run: KeyError), and that
        of a sliding window needs its width (run: ValueError).
        """
        windows = self.windows()
        for kind in self.kinds():
            if kind not in windows:
                known = " or ".join(sorted({*windows, SLIDING}))
                raise SpecError(place, f"layer type {shown(kind)}", f"{known}, for which this family has a mask")
            if kind == SLIDING and windows[kind] is None:
                request = "a width, which transformers needs for its mask"
                raise SpecError(place, f"layer type {kind!r} and no sliding_window", request, self.window_stated)
        for settings in () if self.rotates_part else self.ropes().values():
            turned = 2 * (frequencies(self, settings) or 0)
            if turned != self.turned:
                found = f"rope settings for {turned} elements of a head"
                raise SpecError(place, found, f"{self.turned}, which transformers turns in this family")


def check_rope(c: RotaryConfig, settings: Settings, place: str) -> None:
    """Refuse rope settings that transformers cannot compute frequencies from."""
    kind = settings["rope_type"]
    if not isinstance(kind, str) or kind not in NEEDED:
        raise SpecError(place, f"rope_type = {shown(kind)}", f"one of {', '.join(NEEDED)}")
    for name in ("rope_theta", *NEEDED[kind]):
        check_setting(settings, name, kind, place)
    part = settings.get("partial_rotary_factor", 1.0)
    if not is_number(part) or not 0 <= part <= 1:
        raise SpecError(place, f"partial_rotary_factor = {shown(part)}", "a part of the head, from 0 to 1")
    length = settings.get("original_max_position_embeddings")
    if kind in SCALES_LENGTH and not is_number(length, above=0):
        found = f"original_max_position_embeddings = {shown(length)} in the rope settings"
        raise SpecError(place, found, "a positive number")
    check_rotary_width(c, settings, place)


def check_setting(settings: Settings, name: str, kind: str, place: str) -> None:
    value = settings.get(name)
    if name in ("short_factor", "long_factor"):
        good = isinstance(value, list) and all(is_number(item) for item in value)
        expected = f"a list of numbers for rope_type {kind}"
    else:
        expected = f"a positive number for rope_type {kind}"
        by_lengths = name == "factor" and kind == "yarn" and value is None and name in settings
        good = by_lengths or is_number(value, above=0)
    if not good:
        found = f"{name} = {shown(value)}" if name in settings else f"rope settings without {name}"
        raise SpecError(place, found, expected)


def check_rotary_width(c: RotaryConfig, settings: Settings, place: str) -> None:
    kind, head = settings["rope_type"], c.head_dim
    if kind in READS_HEAD_DIM and head is None and c.head_dim_declared:
        found = f"rope_type {kind} without head_dim"
        raise SpecError(place, found, "head_dim, which transformers needs here", f"head_dim: {c.head_width}")
    turned = int(c.rotary_head * settings.get("partial_rotary_factor", 1.0))
    if head is not None and head > 4 and head % 2 and turned == head:
        raise SpecError(place, f"head_dim = {head}", "an even head_dim for rotary positions")
    if kind == "dynamic" and turned == 2:
        raise SpecError(place, "rope_type dynamic with 2 rotated elements", "more of them")
    if frequencies(c, settings) is None:
        parts = len(settings["short_factor"]) if kind == "longrope" else turned // 2
        found = f"{parts} rope factors for {turned} rotated elements"
        raise SpecError(place, found, f"{(turned + 1) // 2} factors")


def is_number(value: object, above: float = float("-inf")) -> bool:
    """Whether it is one that a float holds, which an integer of 400 digits is not."""
    numeric = isinstance(value, int | float) and not isinstance(value, bool)
    return numeric and above < value <= LARGEST and value >= -LARGEST  # type: ignore[operator]


def frequencies(c: RotaryConfig, settings: Settings) -> int | None:
    """The length of inv_freq: half the rotated elements; None where two lengths do not fit together."""
    kind, head = settings["rope_type"], c.rotary_head
    factor = settings.get("partial_rotary_factor", 1.0)
    if kind == "proportional":
        return max(head // 2, int(factor * head // 2))
    turned = head if kind == "default" and not c.rotates_part else int(head * factor)
    half = (turned + 1) // 2
    if kind == "longrope":
        return broadcast(half, len(settings["short_factor"]))
    return broadcast(half, turned // 2) if kind == "yarn" else half


def broadcast(one: int, other: int) -> int | None:
    if other in (one, 1):
        return one
    return other if one == 1 else None


class RotaryEmbedding(Module):
    """The frequencies, twice: as used and as first computed. No parameters, and nothing for backward."""

    transformers_class = "RotaryEmbedding"
    backward_fetches = 0
    returns = 0
    kept_in: ClassVar[int | None] = None
    """Bytes of a cosine where they do not take the model's dtype."""
    takes_gradient = False

    def __init__(self, c: RotaryConfig) -> None:
        super().__init__()
        self.widths: dict[str, int] = {}
        """Elements that the rope turns in a head, by kind of layer."""
        for prefix, settings in c.ropes().items():
            length = frequencies(c, settings)
            assert length is not None
            cast = settings["rope_type"] == "default"
            setattr(self, f"{prefix}inv_freq", Buffer((length,), "float32", cast_by_init=cast))
            setattr(self, f"{prefix}original_inv_freq", Buffer((length,), "float32", cast_by_init=cast))
            self.widths[prefix.rstrip("_")] = 2 * length

    def forward(self, run: ForwardRun, x: Tensor, positions: Tensor, kind: str = "") -> Rope | Tensor:
        """Cosines and sines, or in DeepSeek V2 complex numbers."""
        return rotary(run, positions, self.widths[kind], self.kept_in or x.width)


class WideRotary(RotaryEmbedding):
    """Cosines and sines stay in fp32."""

    kept_in = 4
