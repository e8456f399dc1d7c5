"""What each command shows by default, at three widths, in tests/report/screens/. `python -m tests.report.screens` rewrites
them: read the difference before it is committed.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from rich.cells import cell_len

from tests.conftest import ROOT
from tests.typed import typed

FOLDER = Path(__file__).with_name("screens")
WIDTHS = (80, 100, 140)
LOG = "tests/references/logs/stage_3_0.19.8.log --model tests/references/logs/config.json"
BOTH = "tests/references/diff/before.json tests/references/diff/after.json"
CASES = {
    "zeroplan": "",
    "estimate": "estimate 7B --gpus 8",
    "estimate-card": "estimate 7B --gpus 8 --gpu-mem 80",
    "estimate-stage": "estimate llama-3.1-8b --gpus 8 --gpu a100-80gb --stage 3",
    "estimate-tight": "estimate 13B --gpus 8 --gpu a100-80gb --stage 1",
    "estimate-offload": "estimate qwen2.5-7b --gpus 1 --gpu rtx-4090 --stage 3 --offload-optimizer cpu --checkpointing full",
    "estimate-experts": "estimate mixtral-8x7b --gpus 8 --gpu h100-80gb --stage 3",
    "recommend": "recommend --gpu-mem 80",
    "recommend-4090": "recommend qwen2.5-7b --gpus 1 --gpu rtx-4090",
    "recommend-512": "recommend llama-3.1-70b --gpus 64x8 --gpu h100-80gb",
    "recommend-nothing": "recommend 70B --gpus 1 --gpu rtx-4090 --host-mem 64GiB",
    "recommend-why": "recommend 7B --gpus 8 --gpu a100-80gb --why zero-3",
    "recommend-run": "recommend 7B --gpus 8 --gpu a100-80gb --tokens 1T --price 2",
    "recommend-late": "recommend 7B --gpus 8 --gpu a100-80gb --tokens 1T --deadline 30d",
    "recommend-cards": "recommend 13B --gpus 8 --gpu h100-80gb,a100-80gb",
    "recommend-largest": "recommend --max-params --gpus 8 --gpu-mem 80",
    "recommend-front": "recommend 1.3B --gpus 2 --gpu-mem 80 --objective pareto",
    "recommend-auto": "recommend 13B --gpus auto --gpu a100-40gb",
    "compare": "compare 7B --gpus 8,64,512 --gpu a100-80gb",
    "compare-many": "compare 7B --gpu a100-80gb --gpus 1,2,4,8,16,32,64,128,256,512,1024",
    "matrix": "matrix 1.3B,7B,13B,70B --gpus 8 --gpu-mem 80",
    "explain-key": "explain reduce_bucket_size",
    "explain-sum": "explain peak --params 7B --gpus 8",
    "explain-step": "explain step --params 7B --gpus 8 --gpu a100-80gb --stage 3",
    "explain-activations": "explain activations --model llama-3.1-8b --gpus 8 --stage 2",
    "diff": f"diff {BOTH} --model llama-3.1-8b --gpus 8 --gpu a100-80gb",
    "observe": f"observe {LOG} --stage 3 --gpus 2 --micro-batch 2 --grad-accum 2 --seq 64 --backend cpu",
    "check": "check tests/references/diff/after.json --model llama-3.1-8b --gpus 8 --gpu a100-80gb",
}
"""By the name of its file."""


def shown(case: str, width: int) -> str:
    """The screen, its exit code, and how many lines a terminal of that width shows."""
    ran = typed(shlex.split(CASES[case]), ROOT, width)
    text = ran.out + ran.err
    return f"$ zeroplan {CASES[case]}  # exit {ran.code}, {lines(text, width)} lines of {width} columns\n{text}"


def lines(text: str, width: int) -> int:
    """Lines that a terminal shows of a text."""
    return sum(max(1, -(-cell_len(line) // width)) for line in text.rstrip("\n").split("\n"))


def path(case: str, width: int) -> Path:
    return FOLDER / f"{case}.{width}.txt"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for case in CASES:
        for width in WIDTHS:
            path(case, width).write_text(shown(case, width), encoding="utf-8")
            print(path(case, width).read_text().partition("\n")[0])


if __name__ == "__main__":
    main()
