"""Runs of DeepSpeed with the flash-attention package, for make_deepspeed_reference --into flash_attn_0.19.8.json.

python -m tests.references.make_flash_runs SOURCE FOLDER [NUMBER [SEED]]     writes FOLDER/0.json and so on
python -m tests.references.make_flash_runs SOURCE FOLDER --images              six of each recorded family of images
python -m tests.references.make_flash_runs SOURCE FILE.case OUT.json         one of them (environment as for the child)

As `zeroplan verify` measures on torch's meta device, with flash-attn's Python (SOURCE, as in make_flash_reference) and
functions in the place of its kernels. Needs what that needs, and DeepSpeed. Runs with images are of the recordings that
make_recorded_families makes (tests/references/families), and are joined into flash_images_0.19.8.json.
"""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

from tests.references import make_liger_runs


def drawn(number, seed):
    """As the runs with Liger are drawn, in 16 bit and without it."""
    for at, case in enumerate(make_liger_runs.drawn(number, f"flash {seed}")):
        del case["kernels"]
        if not {"bf16", "fp16"} & set(case["ds_config"]):
            case["ds_config"]["bf16"] = {"enabled": True}
        yield {**case, "attention": f"flash_attention_{3 if at % 3 == 2 else 2}"}


def of_images(number=6):
    """Of recorded families whose towers run with it, at each stage and of both versions."""
    from tests.references.make_recorded_families import OF_IMAGES
    from zeroplan.request.options import Options
    from zeroplan.request.request import read_request
    from zeroplan.verify.case import as_measured, case_of

    for family in OF_IMAGES:
        path = Path(__file__).with_name("families") / f"{family}.trace.json.gz"
        r = random.Random(f"flash {family}")
        for at in range(number):
            options = Options(
                model=str(path), gpus=r.choice(("2", "8", "2x8")), stage=str(at % 4), attention="sdpa",
                precision="bf16", seq=str(r.choice((192, 256, 320, 448))), micro_batch=r.choice("12"),
                checkpointing=r.choice(("none", "full")), optimizer="adamw",
            )  # fmt: skip
            job = read_request(options, default_params="7B", default_gpus=8).job()
            if not job.model.no_flash:
                case = case_of(as_measured(job, real=False), None, mode="meta", activations=True)
                yield {**case, "recording": family, "attention": f"flash_attention_{2 + at % 2}"}


def measured(source, given, found):
    """The child of `zeroplan verify`, with transformers finding the package."""
    import torch._dynamo  # noqa: F401 (both before torch says for a moment that it is another version)
    import deepspeed  # noqa: F401

    from tests.references.make_flash_reference import install
    from zeroplan.verify import child

    install(source)
    return child.main(given, found)


def main(source, folder, number="18", seed="1"):
    from zeroplan.verify.measure import environment

    for at, case in enumerate(of_images() if number == "--images" else drawn(int(number), seed)):
        given, found = Path(folder, f"{at}.case"), Path(folder, f"{at}.json")
        given.write_text(json.dumps(case))
        command = [sys.executable, "-m", "tests.references.make_flash_runs", source, str(given), str(found)]
        subprocess.run(command, env={**os.environ, **environment(case)}, check=True, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    one = len(sys.argv) == 4 and sys.argv[2].endswith(".case")
    sys.exit(measured(*sys.argv[1:]) if one else main(*sys.argv[1:]))
