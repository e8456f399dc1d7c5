"""PipelineModules: what one step in each of 39 releases showed (tests/references/make_pipeline_by_release.py), and
scripts of Megatron-DeepSpeed.
"""

from __future__ import annotations

import json

import pytest

from tests.references.make_pipeline_by_release import CASES, WRITTEN

STEPS = json.loads(WRITTEN.read_text())
CONCISE = ("--format", "concise", "--fail-on", "error")
CODE = "net = PipelineModule(layers=layers, num_stages=2)\ndeepspeed.initialize(model=net, config=%r)\n"


def config(stage, accumulated, printed=1000):
    printing = {} if printed is None else {"steps_per_print": printed}
    return {**printing, "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": accumulated, "bf16": {"enabled": True},
            "zero_optimization": {"stage": stage}}  # fmt: skip


@pytest.mark.parametrize("version", STEPS)
def test_each_release(version, check_files):
    """Four micro-batches, each of another weight: the mean of their gradients moves each by 1/4, the sum by 1."""
    for case, weights in STEPS[version].items():
        ran = check_files({"a.py": CODE % config(*CASES[case])}, "--deepspeed", version, *CONCISE)
        assert ("error ZP718" in ran.out) == (str(weights).startswith("AssertionError: ZeRO-2")), (case, weights, ran.out)
        assert ("error ZP720" in ran.out) == (str(weights).startswith("TypeError: unsupported operand")), (case, weights, ran.out)
        if isinstance(weights, str):
            continue
        sums = weights == [-1.0] * 4
        assert ("warning ZP719" in ran.out) == sums, (case, weights, ran.out)


@pytest.mark.parametrize(
    ("code", "is_one"),
    [
        (CODE, True), ("class Net(PipelineModule):\n    pass\n\n\n" + CODE.replace("PipelineModule(layers", "Net(layers"), True),
        ("deepspeed.initialize(model=deepspeed.pipe.PipelineModule(layers=a), config=%r)\n", True),
        ("net = Net()\n" + CODE, False), ("from deepspeed.pipe import PipelineModule\ndeepspeed.initialize(model=net, config=%r)\n", False),
    ],
)  # fmt: skip
def test_models_that_are_one(check_files, code, is_one):
    assert ("ZP718" in check_files({"a.py": code % config(2, 1)}, *CONCISE).out) == is_one


def test_a_script_whose_code_has_one(check_files):
    """Two stages: four of the eight ranks share the batch, which the script alone does not say."""
    code = "net = PipelineModule(layers=layers, num_stages=2)\ndeepspeed.initialize(args=args, model=net)\n"
    ds = {**config(1, 2), "train_batch_size": 8}
    files = {"run.sh": "deepspeed --num_gpus 8 train.py --deepspeed_config ds.json\n", "train.py": code, "ds.json": json.dumps(ds)}
    assert check_files(files, *CONCISE).code == 0
    assert "ZP718" in check_files({**files, "ds.json": json.dumps(config(2, 1))}, *CONCISE).out


MEGATRON = "deepspeed --num_gpus 8 pretrain_gpt.py --num-layers 2 --hidden-size 8 --num-attention-heads 2 --deepspeed --deepspeed_config ds.json"


@pytest.mark.parametrize(
    ("options", "stage", "batch", "rule"),
    [
        ("", 2, 16, "ZP718"), ("--no-pipeline-parallel", 3, 16, ""), ("", 1, 16, ""), ("--tensor-model-parallel-size 4", 1, 4, ""),
        ("--tensor-model-parallel-size 4", 1, 6, "ZP201"), ("--no-pipeline-parallel --ds-sequence-parallel-size 2", 3, 8, ""),
        ("--pipeline-model-parallel-size 2 --tensor-model-parallel-size 2", 1, 4, ""), ("--tensor-model-parallel-size $TP", 1, 6, ""),
    ],
)  # fmt: skip
def test_megatron(check_files, options, stage, batch, rule):
    """8 ranks, two micro-batches of 1 a step: 16 samples where each rank has its own, 4 where four share one."""
    ds = json.dumps({**config(stage, 2), "train_batch_size": batch})
    ran = check_files({"run.sh": f"{MEGATRON} {options}\n", "ds.json": ds}, *CONCISE)
    assert ran.code == bool(rule)
    assert rule in ran.out


def test_python_with_options_of_its_own(check_files):
    line = MEGATRON.replace("deepspeed --num_gpus 8", "python -u -m torch.distributed.run --nproc_per_node 8")
    assert "ZP718" in check_files({"run.sh": f"{line}\n", "ds.json": json.dumps(config(3, 1))}, *CONCISE).out
