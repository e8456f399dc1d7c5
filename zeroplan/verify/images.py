"""What models of images are given: pixels, and a word in the text for each place that an image's features take."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import _disable_current_modes
from transformers.image_processing_utils import select_best_resolution
from transformers.models.llava_next.modeling_llava_next import image_size_to_num_patches

from zeroplan.errors import SpecError, shown
from zeroplan.specs.images import Images
from zeroplan.verify.task import TYPED, WORD

SOFT_TOKENS, USUAL_SOFT_TOKENS = (70, 140, 280, 560, 1120), 280
"""Tokens of a Gemma 4 image: at most, by the processor's setting; and as it is set (image_processing_gemma4.py)."""
LFM2_TOKENS = 256
"""Of an LFM2-VL image that is not cut into tiles (image_processing_lfm2_vl.py: max_image_tokens)."""


class Given(NamedTuple):
    """The pixels of a batch, and how many words each image takes."""

    pixels: dict[str, torch.Tensor]
    values: dict[str, torch.Tensor]
    """Of those that are read: sizes, places, and pixels that are compared."""
    words: int
    of_words: dict[str, tuple[int, ...]] = {}  # noqa: RUF012 (a tuple's default, never changed)
    """Sizes of whole numbers (batch, sequence, ...) that each word has of each image."""


def meta(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def patched(config: Any, images: Images, batch: int, dtype: torch.dtype) -> Given:
    """Qwen's: all patches of a batch in rows, and a grid for each image."""
    vision = config.vision_config
    patch, unit = vision.patch_size, merged_patches(config)
    check_multiple(images, unit)
    rows, columns = images.height // patch, images.width // patch
    number = batch * images.number
    channels = int(getattr(vision, "in_channels", 0) or getattr(vision, "in_chans", 3))
    frames = getattr(vision, "temporal_patch_size", 1)
    pixels = meta(number * rows * columns, channels * frames * patch * patch, dtype=dtype)
    with _disable_current_modes():
        grid = torch.tensor([[1, rows, columns]] * number, device="cpu")
    return Given({"pixel_values": pixels}, {"image_grid_thw": grid}, rows * columns // (unit // patch) ** 2)


def patched_squares(config: Any, images: Images, batch: int, dtype: torch.dtype) -> Given:
    """Kimi's and PaddleOCR's: the same with each patch as a square."""
    made, patch = patched(config, images, batch, dtype), config.vision_config.patch_size
    pixels = meta(len(made.pixels["pixel_values"]), 3, patch, patch, dtype=dtype)
    return made._replace(pixels={"pixel_values": pixels})


def merged_patches(config: Any) -> int:
    """Pixels of the side of what patches are merged to."""
    vision = config.vision_config
    merged = getattr(vision, "spatial_merge_size", None) or vision.merge_kernel_size[0]
    return int(vision.patch_size * merged)


def whole(config: Any, images: Images, batch: int, dtype: torch.dtype) -> Given:
    """Images of the one size that the vision model has."""
    vision = config.vision_config
    stated = vision.image_size
    height, width = (stated, stated) if isinstance(stated, int) else tuple(stated)
    if (images.height, images.width) != (height, width):
        raise SpecError("--image-size", f"{images.height}x{images.width}", f"what this model takes: {height}x{width}")
    pixels = meta(batch * images.number, 3, height, width, dtype=dtype)
    return Given({"pixel_values": pixels}, {}, words_of(config, height, width))


NECKS = {"got_ocr2": 4}
"""Patches to a side that convolutions behind the tower join; image_seq_length is not read for them."""


def words_of(config: Any, height: int, width: int) -> int:
    """How many words an image of one size takes."""
    stated = getattr(config, "mm_tokens_per_image", None) or getattr(config, "image_seq_length", None)
    if stated and config.model_type not in NECKS:
        return int(stated)
    vision = config.vision_config
    joined = NECKS.get(config.model_type, getattr(config, "downsample_factor", 1))
    side = (vision.patch_size if isinstance(vision.patch_size, int) else vision.patch_size[0]) * joined
    return (height // side) * (width // side)


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


def split(config: Any, images: Images, batch: int, dtype: torch.dtype) -> Given:
    """Idefics 3's and SmolVLM's: squares of one size, where there are several the whole image as one more, and a mask
    of their pixels. Which squares are padding is read from the pixels: none is.
    """
    vision = config.vision_config
    size = vision.image_size
    check_multiple(images, size)
    squares = images.height // size * (images.width // size)
    squares += squares > 1
    words = squares * (size // vision.patch_size // config.scale_factor) ** 2
    shape = batch, images.number * squares
    with _disable_current_modes():
        pixels = torch.ones((), dtype=dtype, device="cpu").expand(*shape, 3, size, size)
        mask = torch.ones((), dtype=torch.int64, device="cpu").expand(*shape, size, size)
    return Given({}, {"pixel_values": pixels, "pixel_attention_mask": mask}, words)


def filled_up(config: Any, images: Images, batch: int, dtype: torch.dtype) -> Given:
    """LFM2-VL's: patches of an image that is not cut into tiles, in rows that are filled up to those of the largest."""
    patch, factor, number = config.vision_config.patch_size, config.downsample_factor, batch * images.number
    check_multiple(images, UNITS[filled_up](config))
    rows, columns = images.height // patch, images.width // patch
    words, most = rows * columns // factor**2, LFM2_TOKENS * factor**2
    if words > LFM2_TOKENS:
        found = f"{images.height}x{images.width}, which is {words:,} tokens"
        raise SpecError("--image-size", found, f"at most {LFM2_TOKENS}: larger images are cut into tiles")
    with _disable_current_modes():
        shapes = torch.tensor([[rows, columns]] * number, device="cpu")
        mask = (torch.arange(most, device="cpu") < rows * columns).int().repeat(number, 1)
    pixels = meta(number, most, 3 * patch**2, dtype=dtype)
    return Given({"pixel_values": pixels}, {"spatial_shapes": shapes, "pixel_attention_mask": mask}, words)


def crossed(config: Any, images: Images, batch: int, dtype: torch.dtype) -> Given:
    """Llama 3.2's: as many squares for each image whatever its size, and one word; layers of the text look at them."""
    vision = config.vision_config
    size, tiles = vision.image_size, vision.max_num_tiles
    check_multiple(images, size)
    known = [tuple(each) for each in vision.supported_aspect_ratios]
    if (images.height // size, images.width // size) not in known:
        expected = ", ".join(f"{rows * size}x{columns * size}" for rows, columns in known)
        raise SpecError("--image-size", f"{images.height}x{images.width}", f"one of {expected}")
    number = batch, images.number
    pixels = {
        "pixel_values": meta(*number, tiles, 3, size, size, dtype=dtype),
        "aspect_ratio_ids": meta(*number, dtype=torch.int64),
        "aspect_ratio_mask": meta(*number, tiles, dtype=torch.int64),
    }
    return Given(pixels, {}, 1, {"cross_attention_mask": (images.number, tiles)})


def unpadded(config: Any, images: Images, batch: int, dtype: torch.dtype) -> Given:
    """LLaVA-NeXT's: the whole image, and squares of the nearest resolution, of which what is padding has no word
    (processing_llava_next.py, _get_number_of_features).
    """
    height, width, squares = unpadded_features(config, images)
    size, number = config.vision_config.image_size, batch * images.number
    with _disable_current_modes():
        sizes = torch.tensor([(images.height, images.width)] * number, device="cpu")
    pixels = meta(number, squares, 3, size, size, dtype=dtype)
    side = size // config.vision_config.patch_size
    return Given({"pixel_values": pixels}, {"image_sizes": sizes}, side * side + height * width + height)


def unpadded_once(config: Any, images: Images, batch: int, dtype: torch.dtype) -> Given:
    """LLaVA-OneVision's: the same, with fewer features where there are more than of its largest grid; of a sequence
    with several images each is whole (processing_llava_onevision.py, _get_unpadded_features).
    """
    side = config.vision_config.image_size // config.vision_config.patch_size
    height, width, squares = unpadded_features(config, images)
    most = most_squares(config)
    ratio = math.sqrt(height * width / (most * side**2))
    if ratio > 1.1:
        height, width = int(height // ratio), int(width // ratio)
    made = unpadded(config, images, batch, dtype)
    words = side * side + height * width + height
    if images.number > 1:
        squares, words = 1, side * side + 1
    pixels = made.pixels["pixel_values"]
    with _disable_current_modes():
        each = torch.full((batch,), images.number, device="cpu")
    values = {**made.values, "batch_num_images": each}
    return Given({"pixel_values": meta(len(pixels), squares, *pixels.shape[2:], dtype=dtype)}, values, words)


def most_squares(config: Any) -> int:
    """Squares of the largest grid that LLaVA-OneVision's `vision_aspect_ratio` (anyres_max_9) allows for an image.

    Raises `SpecError` for a value that its class does not take.
    """
    name, number = config.vision_aspect_ratio, config.vision_aspect_ratio.removeprefix("anyres_max_")
    if not number.isdigit():
        raise SpecError("vision_aspect_ratio", shown(name), "anyres_max_ and a number", "anyres_max_9")
    return int(number)


def unpadded_features(config: Any, images: Images) -> tuple[int, int, int]:
    """Rows and columns of features of an image that has no padding, and the squares that it is cut into."""
    size, stated = config.vision_config.image_size, (images.height, images.width)
    side = size // config.vision_config.patch_size
    squares = image_size_to_num_patches(list(stated), config.image_grid_pinpoints, size)
    best = select_best_resolution(list(stated), config.image_grid_pinpoints)
    height, width = (side * (each // size) for each in best)
    if images.width / images.height > width / height:
        height -= (height - int(round(images.height * (width / images.width), 7))) // 2 * 2
    else:
        width -= (width - int(round(images.width * (height / images.height), 7))) // 2 * 2
    return height, width, squares


def check_multiple(images: Images, unit: int) -> None:
    """Raises `SpecError`."""
    if images.height % unit or images.width % unit:
        raise SpecError("--image-size", f"{images.height}x{images.width}", f"multiples of {unit} pixels")


KINDS: dict[str, Callable[[Any, Images, int, torch.dtype], Given]] = {
    **dict.fromkeys(
        ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe", "glm4v", "glm4v_moe", "glm46v",
         "glm_ocr", "exaone4_5", "minimax_m3_vl"), patched
    ),
    **dict.fromkeys(("gemma3", "llava", "internvl", "paligemma", "aya_vision", "got_ocr2", "vipllava"), whole),
    **dict.fromkeys(("kimi_k25", "paddleocr_vl"), patched_squares),
    **dict.fromkeys(("mistral3", "mistral_large4"), any_size),
    **dict.fromkeys(("idefics3", "smolvlm"), split),
    "gemma4": placed, "llama4": tiled, "lfm2_vl": filled_up, "mllama": crossed, "llava_next": unpadded,
    "llava_onevision": unpadded_once,
}  # fmt: skip
UNITS: dict[Callable[[Any, Images, int, torch.dtype], Given], Callable[[Any], int]] = {
    patched: merged_patches, patched_squares: merged_patches,
    any_size: lambda config: config.vision_config.patch_size * config.spatial_merge_size,
    placed: lambda config: config.vision_config.patch_size * config.vision_config.pooling_kernel_size,
    filled_up: lambda config: config.vision_config.patch_size * config.downsample_factor,
}
"""Pixels of a token's side, where an image of any size may come."""
TYPING = (
    "gemma4", "glm46v", "glm4v", "glm4v_moe", "glm_ocr", "paddleocr_vl", "qwen2_5_vl", "qwen2_vl", "qwen3_5",
    "qwen3_5_moe", "qwen3_vl", "qwen3_vl_moe",
)  # fmt: skip
"""Families whose processors say which words are an image's (return_mm_token_type_ids)."""
TYPES = {**dict.fromkeys(TYPING, "mm_token_type_ids"), **TYPED}
"""How the input is called that says so; of other families none comes."""


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
        typed = {TYPES[config.model_type]: (ids == word).long()} if config.model_type in TYPES else {}
    values = {"input_ids": ids, **typed, **given.values}
    on_meta = {name: torch.empty_like(each, device="meta") for name, each in values.items()}
    seen = {name: meta(batch, seq, *sizes, dtype=torch.int64) for name, sizes in given.of_words.items()}
    return {**on_meta, **given.pixels, **seen, "labels": on_meta["input_ids"]}, values
