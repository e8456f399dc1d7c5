"""Strategies of Lightning's in YAML, and calls at which Lightning 2.6.6 and Accelerate 1.15 stopped when run."""

from __future__ import annotations

import pytest

from tests.check.test_python_strategies import LIGHTNING_ZERO, OPTIMIZER
from zeroplan.check.kind import read_document
from zeroplan.check.yaml_strategies import strategy_in

HYDRA = "_target_: lightning.pytorch.strategies.DeepSpeedStrategy\nstage: 2\noffload_optimizer: true\n"
CLASS = """\
trainer:
  strategy:
    class_path: lightning.pytorch.strategies.DeepSpeedStrategy
    init_args:
      stage: 2
      offload_optimizer: true
"""
NAMED = "trainer:\n  accelerator: gpu\n  strategy: deepspeed_stage_2_offload\nmodel: {size: 1}\n"


@pytest.mark.parametrize("text", [HYDRA, CLASS, NAMED])
def test_one_strategy_written_in_three_ways(text):
    document = read_document("a.yaml", text, "YAML")
    literal = strategy_in(document).built(document)
    assert literal.document.config["zero_optimization"] == {**LIGHTNING_ZERO, "offload_optimizer": OPTIMIZER}


@pytest.mark.parametrize(
    ("text", "place"),
    [(HYDRA.replace("2", "4"), "a.yaml:2:8: error ZP401"), (CLASS.replace("2", "4"), "a.yaml:5:14: error ZP401")],
)
def test_a_value_stands_where_the_file_has_it(check_files, text, place):
    ran = check_files({"a.yaml": text}, "--format", "concise")
    assert ran.code == 1
    assert place in ran.out
    assert "write: stage: 0" in ran.out


def test_the_config_that_a_class_is_given(check_files):
    text = CLASS.replace("stage: 2", "config: ds.json")
    ran = check_files({"a.yaml": text, "ds.json": '{"train_batch_size": 8, "zero_optimization": {"stage": 5}}'})
    assert ran.code == 1
    assert "ds.json:1:" in ran.out


def test_what_another_file_decides(check_files):
    ran = check_files({"a.yaml": HYDRA + "reduce_bucket_size: ${bucket}\n"})
    assert ran.code == 0
    assert "another file decides zero_optimization.reduce_bucket_size" in ran.out


@pytest.mark.parametrize("text", [HYDRA + "offload_params: true\n", CLASS + "      offload_params: true\n"])
def test_an_argument_that_the_class_does_not_take(check_files, text):
    """TypeError: DeepSpeedStrategy.__init__() got an unexpected keyword argument 'offload_params'."""
    ran = check_files({"a.yaml": text}, "--format", "concise")
    assert ran.code == 1
    assert "ZP843: DeepSpeedStrategy takes no offload_params" in ran.out
    assert "write: offload_parameters: ..." in ran.out


def test_a_name_that_lightning_does_not_have(check_files):
    """A program may have its own strategies by name: a warning."""
    ran = check_files({"a.yaml": NAMED.replace("stage_2_offload", "stage2")}, "--format", "concise", "--fail-on", "error")
    assert ran.code == 0
    assert "a.yaml:3:3: warning ZP844" in ran.out


@pytest.mark.parametrize("value", ["ddp", "fsdp", "auto"])
def test_strategies_without_deepspeed(check_files, value):
    ran = check_files({"a.yaml": NAMED.replace("deepspeed_stage_2_offload", value)})
    assert ran.code == 2


PLUGIN = "from accelerate.utils import DeepSpeedPlugin\nplugin = DeepSpeedPlugin(%s)\n"
LIGHTNING = "import lightning as L\nt = L.%s(strategy=%r)\n"


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (PLUGIN % "zero_stage=3, config_file=args.deepspeed", "ZP843"),
        (PLUGIN % "hf_ds_config='ds.json', stage=3", "ZP843"),
        (LIGHTNING % ("Trainer", "deepspeed_stage3"), "ZP844"),
        (LIGHTNING % ("Fabric", "deepspeed_stage3"), "ZP844"),
        (LIGHTNING % ("Trainer", "deepspeed_stage_1_offload"), "ZP844"),
        (LIGHTNING % ("Fabric", "deepspeed_stage_1_offload"), ""),
        ("class DeepSpeedPlugin:\n    pass\n" + PLUGIN % "zero_stage=2, config_file='a'", ""),
    ],
)
def test_calls(check_files, text, rule):
    ran = check_files({"a.py": text, "ds.json": '{"train_batch_size": 8}'}, "--format", "concise")
    assert ran.code == (1 if rule else 0)
    assert rule in ran.out


def test_the_option_that_a_script_hands_to_such_a_call(check_files):
    files = {"run.sh": "deepspeed train.py --deepspeed ds.json\n", "ds.json": '{"train_batch_size": 8}'}
    code = PLUGIN % "zero_stage=3, config_file=args.deepspeed"
    assert "train.py:2:" in check_files({**files, "train.py": code}).out
    other = PLUGIN % "zero_stage=3, config_file=args.other"
    assert check_files({**files, "train.py": other}, "--fail-on", "error").code == 0


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yaml", "trainer:\n  gpus: 8\n  strategy: deepspeed_stage_2\n"),
        ("a.yaml", "_target_: pytorch_lightning.Trainer\nstrategy: deepspeed_stage_2\ngpus: 8\n"),
        ("a.yaml", CLASS + "  gpus: 8\n"),
        ("a.py", "import pytorch_lightning as pl\nt = pl.Trainer(gpus=8, strategy='deepspeed_stage_2')\n"),
    ],
)
def test_what_the_trainer_of_lightning_2_no_longer_takes(check_files, name, text):
    """In pytorch-lightning 1.9.5's Trainer.__init__, and not in 2.0.9's; which is meant the file does not say."""
    ran = check_files({name: text}, "--format", "concise", "--fail-on", "error")
    assert ran.code == 0
    assert "warning ZP843: Trainer takes no gpus since lightning 2.0" in ran.out


@pytest.mark.parametrize("group", ["strategy", "/strategy", "override strategy", "strategy@trainer.strategy"])
def test_what_hydra_puts_together(zeroplan, tmp_path, monkeypatch, group):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs" / "strategy").mkdir(parents=True)
    (tmp_path / "configs" / "strategy" / "deepspeed.yaml").write_text(HYDRA.replace("2", "4"))
    (tmp_path / "configs" / "train.yaml").write_text(f"defaults:\n  - _self_\n  - data: own\n  - {group}: deepspeed\nname: x\n")
    ran = zeroplan("check", "configs/train.yaml", "--format", "concise")
    assert ran.code == 1
    assert "configs/strategy/deepspeed.yaml:2:8: error ZP401" in ran.out


@pytest.mark.parametrize(
    "text",
    [
        "import lightning as L\nfrom my.strategies import DeepSpeedStrategy\ns = DeepSpeedStrategy(own=1)\n",
        "import lightning as L\nimport my\ns = my.DeepSpeedStrategy(own=1)\n",
        "import lightning.pytorch as pl\nfrom transformers import Trainer\nt = Trainer(strategy='deepspeed_stage3')\n",
        "import lightning as L\nfrom lightning.pytorch.strategies import StrategyRegistry\nt = L.Trainer(strategy='deepspeed_mine')\n",
    ],
)
def test_calls_of_others(check_files, text):
    assert "ZP84" not in check_files({"a.py": text}).out


@pytest.mark.parametrize("text", [HYDRA.replace("lightning.pytorch", "my") + "own: 1\n", CLASS.replace("init_args", "dict_kwargs").replace("stage", "own")])
def test_classes_of_others(check_files, text):
    assert "ZP843" not in check_files({"a.yaml": text}).out
