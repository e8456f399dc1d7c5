"""Shapes of what transformers' own image processors make: image_inputs.json.

python -m tests.references.make_image_inputs

Of each family of make_recorded_families that has a processor without torchvision, two sequences with the family's images.
Settings are those of the small config: sizes of patches and squares, and bounds on sizes so wide that nothing is resized.
Needs transformers and Pillow. Without such a processor: kimi_k25, minimax_m3_vl and lfm2_vl; Gemma 4's fills images up to
its own number of tokens whatever their size.
"""

import datetime
import json
import warnings
from pathlib import Path

import numpy
import transformers
from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING_NAMES

from tests.references.make_recorded_families import OF_IMAGES, content
from zeroplan.verify.recording.model import config_of

LEFT_OUT = ("kimi_k25", "minimax_m3_vl", "lfm2_vl", "gemma4")
LIKE = {"glm4v_moe": "glm4v", "glm_ocr": "glm46v", "qwen3_vl_moe": "qwen3_vl"}
"""Of another family's processor."""
SEQUENCES = 2
NESTED = ("idefics3", "llava_onevision", "mllama", "smolvlm")
"""That take the images of each sequence apart."""
SMALLEST, LARGEST = 1, 10**7


def settings(family, config, usual):
    vision, images = config.vision_config, OF_IMAGES[family][1]
    stated = getattr(vision, "image_size", 0)
    side = stated if isinstance(stated, int) else stated[0]
    found = {"patch_size": vision.patch_size} if hasattr(usual, "patch_size") else {}
    if hasattr(usual, "merge_size"):
        found["merge_size"] = vision.spatial_merge_size
    square = {"height": side, "width": side}
    if family in ("smolvlm", "idefics3"):
        longest = max(images.height, images.width)
        return found | {"max_image_size": {"longest_edge": side}, "size": {"longest_edge": longest}, "do_image_splitting": longest > side}
    if family == "llava_next":
        return found | {"size": {"shortest_edge": side}, "crop_size": square, "image_grid_pinpoints": config.image_grid_pinpoints}
    if family == "llava_onevision":
        return found | {"size": square, "image_grid_pinpoints": config.image_grid_pinpoints}
    if family == "mllama":
        return found | {"size": square, "max_image_tiles": vision.max_num_tiles}
    if family in ("llava", "vipllava"):
        return found | {"size": {"shortest_edge": side}, "crop_size": square}
    if family in ("aya_vision", "got_ocr2"):
        return {"size": square, "crop_to_patches": False}
    if family in ("internvl", "gemma3", "paligemma"):
        return found | {"size": square}
    if family == "mistral3":
        return found | {"patch_size": vision.patch_size * config.spatial_merge_size, "size": {"longest_edge": LARGEST}}
    return found | {"size": {"shortest_edge": SMALLEST, "longest_edge": LARGEST}}


def made(family):
    config, images = config_of(content(family), family), OF_IMAGES[family][1]
    names = IMAGE_PROCESSOR_MAPPING_NAMES[LIKE.get(family, family)]
    kind = getattr(transformers, names["pil"])
    each = [numpy.full((images.height, images.width, 3), 100, dtype=numpy.uint8)] * images.number
    given = [each] * SEQUENCES if family in NESTED else each * SEQUENCES
    found = kind(**settings(family, config, kind()))(given, return_tensors="pt")
    tensors = {name: value for name, value in found.items() if hasattr(value, "shape")}
    inputs = {
        name: {"shape": [*value.shape], "dtype": str(value.dtype).removeprefix("torch."),
               **({"values": value.tolist()} if value.numel() < 100 else {})}
        for name, value in tensors.items()
    }  # fmt: skip
    return {"family": family, "processor": kind.__name__, "images": images, "inputs": inputs}


def main():
    warnings.simplefilter("ignore")
    rows = [made(family) for family in OF_IMAGES if family not in LEFT_OUT]
    head = json.dumps({"transformers": transformers.__version__, "date": datetime.date.today().isoformat(), "sequences": SEQUENCES})
    lines = ",\n".join(map(json.dumps, rows))
    Path(__file__).with_name("image_inputs.json").write_text(f'{head[:-1]}, "made": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
