"""What models of images are given: pixels, and a word in the text for each place that an image's features take."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import _disable_current_modes
from transformers.image_processing_utils import select_best_resolution
from transformers.models.llava_next.modeling_llava_next import image_size_to_num_patches

from zeroplan.errors import SpecError
from zeroplan.specs.images import Images
from zeroplan.verify.task import TYPED, WORD

SOFT_TOKENS, USUAL_SOFT_TOKENS = (70, 140, 280, 560, 1120), 280
"""Tokens of a Gemma 4 image: at most, by the processor's setting; and as it is set (image_processing_gemma4.py)."""


class Given(NamedTuple):
    """The pixels of a batch, and how many words each image takes."""

    pixels: dict[str, torch.Tensor]
    values: dict[str, torch.Tensor]
    """Whole numbers that are read."""
    words: int


def meta(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def patched(config: Any, images: Images, batch: int, dtype: torch.dtype) -> Given:
    """Qwen's: all patches of a batch in rows, and a grid for each image."""
    vision = config.vision_config
    patch, merged = vision.patch_size, vision.spatial_merge_size
    check_multiple(images, UNITS[patched](config))
    rows, columns = images.height // patch, images.width // patch
    number = batch * images.number
    channels = getattr(vision, "in_channels", None) or getattr(vision, "in_chans", 3)
    pixels = meta(number * rows * columns, channels * vision.temporal_patch_size * patch * patch, dtype=dtype)
    with _disable_current_modes():
        grid = torch.tensor([[1, rows, columns]] * number, device="cpu")
    return Given({"pixel_values": pixels}, {"image_grid_thw": grid}, rows * columns // merged**2)


def whole(config: Any, images: Images, batch: int, dtype: torch.dtype) -> Given:
    """Images of the one size that the vision model has."""
    vision = config.vision_config
    stated = vision.image_size
    height, width = (stated, stated) if isinstance(stated, int) else tuple(stated)
    if (images.height, images.width) != (height, width):
        raise SpecError("--image-size", f"{images.height}x{images.width}", f"what this model takes: {height}x{width}")
    pixels = meta(batch * images.number, 3, height, width, dtype=dtype)
    return Given({"pixel_values": pixels}, {}, words_of(config, height, width))


def words_of(config: Any, height: int, width: int) -> int:
    """How many words an image of one size takes."""
    stated = getattr(config, "mm_tokens_per_image", None) or getattr(config, "image_seq_length", None)
    vision = config.vision_config
    patch = vision.patch_size if isinstance(vision.patch_size, int) else vision.patch_size[0]
    return int(stated or (height // patch) * (width // patch))


def any_size(config: Any, images: Images, batch: int, dtype: torch.dtype) -> Given:
    """Mistral's: an image of any size, its patches merged."""
    number, unit = batch * images.number, UNITS[any_size](config)
    check_multiple(images, unit)
    with _disable_current_modes():
        sizes = torch.tensor([[images.height, images.width]] * number, device="cpu")
    pixels = meta(number, 3, images.height, images.width, dtype=dtype)
    return Given({"pixel_values": pixels}, {"image_sizes": sizes}, images.height // unit * (images.width // unit))


def placed(config: Any, images: Images, batch: int, dtype: torch.dtype) -> Given:
    """Gemma 4's: patches in rows with the place of each, filled up to what the processor has for all images."""
    vision = config.vision_config
    unit = UNITS[placed](config)
    check_multiple(images, unit)
    words, number = images.height // unit * (images.width // unit), batch * images.number
    most = next((each for each in SOFT_TOKENS if each >= max(words, USUAL_SOFT_TOKENS)), 0)
    if not most:
        found = f"{images.height}x{images.width}, which is {words:,} tokens"
        raise SpecError("--image-size", found, f"at most {SOFT_TOKENS[-1]:,} tokens")
    rows, columns = images.height // vision.patch_size, images.width // vision.patch_size
    with _disable_current_modes():
        grid = torch.cartesian_prod(torch.arange(columns, device="cpu"), torch.arange(rows, device="cpu"))
        places = torch.full((number, most * vision.pooling_kernel_size**2, 2), -1, device="cpu")
        places[:, : len(grid)] = grid
    pixels = meta(*places.shape[:2], 3 * vision.patch_size**2, dtype=dtype)
    return Given({"pixel_values": pixels}, {"image_position_ids": places}, words)


def tiled(config: Any, images: Images, batch: int, dtype: torch.dtype) -> Given:
    """Llama 4's: squares of one size, and where there are several the whole image as one more."""
    vision = config.vision_config
    size = vision.image_size
    check_multiple(images, size)
    tiles = images.height // size * (images.width // size)
    tiles += tiles > 1
    words = int((size // vision.patch_size) ** 2 * vision.pixel_shuffle_ratio**2)
    return Given({"pixel_values": meta(batch * images.number * tiles, 3, size, size, dtype=dtype)}, {}, tiles * words)


def unpadded(config: Any, images: Images, batch: int, dtype: torch.dtype) -> Given:
    """LLaVA-NeXT's: the whole image, and squares of the nearest resolution, of which what is padding has no word
    (processing_llava_next.py, _get_number_of_features).
    """
    size, number = config.vision_config.image_size, batch * images.number
    stated, side = (images.height, images.width), size // config.vision_config.patch_size
    squares = image_size_to_num_patches(list(stated), config.image_grid_pinpoints, size)
    best = select_best_resolution(list(stated), config.image_grid_pinpoints)
    height, width = (side * (each // size) for each in best)
    if images.width / images.height > width / height:
        height -= (height - int(round(images.height * (width / images.width), 7))) // 2 * 2
    else:
        width -= (width - int(round(images.width * (height / images.height), 7))) // 2 * 2
    with _disable_current_modes():
        sizes = torch.tensor([stated] * number, device="cpu")
    pixels = meta(number, squares, 3, size, size, dtype=dtype)
    return Given({"pixel_values": pixels}, {"image_sizes": sizes}, side * side + height * width + height)


def check_multiple(images: Images, unit: int) -> None:
    """Raises `SpecError`."""
    if images.height % unit or images.width % unit:
        raise SpecError("--image-size", f"{images.height}x{images.width}", f"multiples of {unit} pixels")


KINDS: dict[str, Callable[[Any, Images, int, torch.dtype], Given]] = {
    **dict.fromkeys(
        ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe"), patched
    ),
    **dict.fromkeys(("gemma3", "llava", "internvl", "paligemma", "aya_vision", "got_ocr2", "vipllava"), whole),
    "mistral3": any_size, "gemma4": placed, "llama4": tiled, "llava_next": unpadded,
}  # fmt: skip
UNITS: dict[Callable[[Any, Images, int, torch.dtype], Given], Callable[[Any], int]] = {
    patched: lambda config: config.vision_config.patch_size * config.vision_config.spatial_merge_size,
    any_size: lambda config: config.vision_config.patch_size * config.spatial_merge_size,
    placed: lambda config: config.vision_config.patch_size * config.vision_config.pooling_kernel_size,
}
"""Pixels of a token's side, where an image of any size may come."""
TYPE = "mm_token_type_ids"
"""How the input is called that says which words are an image's, where no other name is known."""


def counted(config: Any, images: Images) -> Images:
    """With the tokens that each takes, or the size that takes them. Raises `SpecError` for what it does not take."""
    if not images.height:
        images = sized(config, images)
    return images._replace(tokens=KINDS[config.model_type](config, images, 1, torch.float32).words)


def sized(config: Any, images: Images) -> Images:
    """The squarest images of so many tokens. Raises `SpecError` where the model takes none such."""
    kind, vision, tokens = KINDS[config.model_type], config.vision_config, images.tokens
    if kind is whole:
        stated = vision.image_size
        height, width = (stated, stated) if isinstance(stated, int) else stated
        if words_of(config, height, width) != tokens:
            raise SpecError("--image-tokens", f"{tokens:,}", f"the {words_of(config, height, width):,} of this model")
        return images._replace(height=height, width=width)
    unit = UNITS.get(kind)
    if unit is None:
        raise SpecError("--image-tokens", f"{config.model_type}, whose tokens follow from the size", "--image-size")
    rows = next(rows for rows in range(math.isqrt(tokens), 0, -1) if tokens % rows == 0)
    return images._replace(height=rows * unit(config), width=tokens // rows * unit(config))


def least_of(images: Images) -> int:
    """Tokens of a sequence that has its images, and words around them."""
    return (images.tokens + 1) * images.number + 1


def inputs_of(
    config: Any, images: Images, batch: int, seq: int, dtype: torch.dtype
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:  # fmt: skip
    """Inputs of a batch, and the values of those that are whole numbers. Raises `SpecError`."""
    given = KINDS[config.model_type](config, images, batch, dtype)
    taken = given.words * images.number
    if taken + images.number > seq:
        raise SpecError("--seq", f"{seq} tokens", f"more than the {taken} that the images of a sequence take")
    stated = (getattr(config, name, None) for name in ("image_token_id", "image_token_index"))
    word = next(each for each in stated if each is not None)
    row = ([WORD] + [word] * given.words) * images.number
    with _disable_current_modes():  # values are nobody's memory
        ids = torch.tensor([row + [WORD] * (seq - len(row))] * batch, device="cpu")
        typed = {TYPED.get(config.model_type, TYPE): (ids == word).long()}
    values = {"input_ids": ids, **typed, **given.values}
    on_meta = {name: torch.empty_like(each, device="meta") for name, each in values.items()}
    return {**on_meta, **given.pixels, "labels": on_meta["input_ids"]}, values
