"""accelerator.clip_grad_norm_ under DeepSpeed, run with accelerate 1.15 and DeepSpeed 0.19.8 on one rank: of a gradient of norm 200 and
clip_grad_norm_(..., 0.01) a step of SGD at lr 1 has norm 1 with gradient_clipping 1 and without one, 0.01 without DeepSpeed.
"""

from __future__ import annotations

import pytest

LOOP = "from accelerate import Accelerator\naccelerator = Accelerator()\naccelerator.clip_grad_norm_(model.parameters(), %s)\n"
ACC = "distributed_type: DEEPSPEED\nnum_processes: 8\nmixed_precision: bf16\ndeepspeed_config:\n  zero_stage: 2\n"
FILE = "distributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n  zero3_init_flag: false\n"
DS = '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}%s}'


@pytest.mark.parametrize(
    ("norm", "acc", "ds", "word"),
    [
        ("0.01", ACC + "  gradient_clipping: 1.0\n", "", "1 does, not 0.01"),
        ("max_norm=0.5", ACC, "", "1 does, not 0.5"),
        ("1.0", ACC, "", ""), ("1.0, 2.0", ACC, "", ""),
        ("args.max_grad_norm", ACC, "", ""),
        ("0.5", FILE, DS % ', "gradient_clipping": 0.5', ""),
        ("0.5", FILE, DS % ', "gradient_clipping": 0.3', "0.3 does, not 0.5"),
        ("0.5", FILE, DS % ', "gradient_clipping": "auto"', "1 does, not 0.5"),
        ("0.5", FILE, DS % "", "1 does, not 0.5"),
        ("args.norm", FILE, DS % ', "gradient_clipping": 0', "nothing does"),
    ],
)
def test_what_clips(check_files, norm, acc, ds, word):
    files = {"run.sh": "accelerate launch --config_file acc.yaml t.py\n", "acc.yaml": acc, "t.py": LOOP % norm, "ds.json": ds or "{}"}
    ran = check_files(files, "--format", "concise")
    assert ("warning ZP852" in ran.out) == bool(word)
    assert word in ran.out


def test_an_older_release_that_clips_nothing(check_files):
    files = {"run.sh": "accelerate launch --config_file acc.yaml t.py\n", "acc.yaml": FILE, "t.py": LOOP % "args.norm", "ds.json": DS % ""}
    assert "clips nothing under DeepSpeed: nothing does" in check_files(files, "--deepspeed", "0.16.9").out
