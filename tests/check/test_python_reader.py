"""Configs that stand in Python files as dict literals."""

from __future__ import annotations

import pytest

from zeroplan.check.python_reader import python_configs

TRAIN = '''import deepspeed
MICRO, BIG = 4, 2 ** 20
STEPS = 2
ds_config = {
    "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": STEPS,
    "bf16": {"enabled": True, "loss_scale": 0},  # ä
    "zero_optimization": {"stage": 2, "reduce_bucket_size": 5 * 2**20, "overlap_com": True},
}
model = {"hidden_size": 64, "optimizer": "adam"}
'''
DECIDED = '''def main(args):
    deepspeed.initialize(config=dict(train_batch_size=args.bs, fp16=None, zero_optimization={"stage": args.stage, "bla": 1}))
'''


@pytest.fixture
def check(tmp_path, monkeypatch, zeroplan):
    monkeypatch.chdir(tmp_path)

    def run(text, *options):
        (tmp_path / "train.py").write_text(text, encoding="utf-8")
        return zeroplan("check", "train.py", "--format", "concise", *options)

    return run


def configs(text):
    return [one.document.config for one in python_configs("train.py", text).literals]


def test_what_a_literal_says():
    """Arithmetic and names that one line of the module sets are worked out."""
    assert configs(TRAIN) == [{
        "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2, "bf16": {"enabled": True, "loss_scale": 0},
        "zero_optimization": {"stage": 2, "reduce_bucket_size": 5_242_880, "overlap_com": True},
    }]  # fmt: skip


def test_findings_stand_at_their_lines_as_python(check):
    ran = check(TRAIN)
    assert "train.py:6:31: error ZP302" in ran.out
    assert 'train.py:7:72: error ZP108: overlap_com is no key of zero_optimization: DeepSpeed refuses it; write: "overlap_comm": True' in ran.out
    assert ran.code == 1


def test_what_other_code_decides_is_not_judged(check):
    """Of a stage that nobody knows no combination is told; a key that there is not is none at any."""
    ran = check(DECIDED, "--format", "full")
    assert "ZP108" in ran.out
    assert "ZP203" not in ran.out
    assert "train.py:2: other code decides train_batch_size, zero_optimization.stage: what goes with that is not checked" in ran.out


@pytest.mark.parametrize("change", ['ds_config["train_batch_size"] = n', "ds_config.update(batch)", 'ds_config["bf16"]["enabled"] = False'])
def test_a_dict_that_is_changed_later(check, change):
    ran = check('ds_config = {"zero_optimization": {"stage": 2}, "fp16": {"enabled": True}}\n' + change + "\n", "--format", "full")
    assert (ran.code, "ZP203" in ran.out) == (0, False)
    assert "what line 2 sets" in ran.out


def test_a_name_that_two_lines_set_is_not_known():
    text = "A = 1\nA = 2\nds_config = {'train_batch_size': A, 'fp16': {}}\n"
    assert python_configs("x.py", text).literals[0].unknown == ((3, "train_batch_size"),)


@pytest.mark.parametrize("text", ['x = {"fp16": True}\n', "x = {}\n", 'x = {"optimizer": 1, "scheduler": 2}\n', "", "x = {**a, 'b': 1}\n"])
def test_other_dicts_are_none(text):
    assert python_configs("x.py", text).literals == []


def test_a_power_that_nobody_waits_for():
    text = 'ds_config = {"train_batch_size": 9 ** 9 ** 9, "fp16": {}}\n'
    assert python_configs("x.py", text).literals[0].unknown == ((1, "train_batch_size"),)


def test_a_folder_is_walked_for_them(check, tmp_path, zeroplan):
    check(TRAIN)
    (tmp_path / "broken.py").write_text('x = {"zero_optimization"\n', encoding="utf-8")
    ran = zeroplan("check", ".", "--format", "concise")
    assert "train.py:6:31: error ZP302" in ran.out
    assert "in 1 file" in ran.out


@pytest.mark.parametrize(("text", "word"), [("x = ", "text that is not Python"), ("x = 1\n", "a Python file without a dict")])
def test_what_holds_none(check, text, word):
    ran = check(text)
    assert (ran.code, ran.out) == (2, "")
    assert word in ran.err


def test_nothing_is_written_into_code(check, tmp_path):
    check(TRAIN, "--fix")
    assert (tmp_path / "train.py").read_text(encoding="utf-8") == TRAIN


@pytest.mark.parametrize(
    "text",
    [
        'o = {"optimizer": None, "zero_optimization": None, "no_load_optim": True}\n',
        'def f():\n    return {"optimizer": {"type": "SGD"}, "scheduler": {"type": "x"}}\n',
    ],
)
def test_dicts_of_others_with_keys_of_ours(text):
    assert python_configs("x.py", text).literals == []


def test_lightning_writes_the_batch_size(check):
    """lightning: pytorch/strategies/deepspeed.py:_auto_select_batch_size."""
    ran = check('s = DeepSpeedStrategy(config={"optimizer": {"type": "AdamW"}, "zero_optimization": {"stage": 2}})\n')
    assert "ZP203" not in ran.out


TRAINED = "from transformers import TrainingArguments\na = TrainingArguments('x', per_device_train_batch_size={}, bf16=True, deepspeed={})\n"
TWO_HALVES = '{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": "auto"}, "fp16": {"enabled": True}}'
AUTO = '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": %d}}'


def test_the_arguments_beside_a_dict_are_compared(check):
    """transformers 5.24: HfTrainerDeepSpeedConfig.trainer_config_process stops at both."""
    ran = check(TRAINED.format(8, TWO_HALVES))
    assert "error ZP205: 4 for train_micro_batch_size_per_gpu, per_device_train_batch_size says 8 (train.py:2)" in ran.out
    assert "error ZP620: true for enabled, fp16 says false" in ran.out


def test_arguments_that_other_code_sets_are_not_compared(check):
    assert "ZP205" not in check(TRAINED.format("n", TWO_HALVES)).out


def test_a_file_that_a_call_names_is_followed(check, tmp_path):
    (tmp_path / "ds.json").write_text('{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": true}, "zero_optimization": {"stage": 1}}')
    assert "ds.json:1:2: error ZP205" in check(TRAINED.format(8, "'ds.json'")).out
    ran = check("CONFIG = 'ds.json'\n" + TRAINED.format(4, "CONFIG"), "--format", "full")
    assert (ran.code, "train.py:3: ds.json" in ran.out) == (0, True)
    ran = check(TRAINED.format(4, "'no.json'"))
    assert (ran.code, ran.out) == (2, "")
    assert 'train.py:2: found "no.json", which is not there' in ran.err


@pytest.mark.parametrize(
    ("call", "stage", "stops"),
    [
        ("HfDeepSpeedConfig(c)", 3, True), ("HfDeepSpeedConfig(c)", 2, False),
        ("deepspeed.zero.Init(config_dict_or_path=c)", 2, True), ("deepspeed.initialize(model=m, config=c)", 2, True),
        ("TrainingArguments('x', deepspeed=c)\nHfDeepSpeedConfig(c)", 3, False), ("DeepSpeedPlugin(c)", 3, False),
    ],
)  # fmt: skip
def test_who_is_given_a_config_reads_it(check, call, stage, stops):
    """Run with transformers 5.24: from_pretrained below HfDeepSpeedConfig at stage 3 is a TypeError for "auto"."""
    ran = check(f"c = {AUTO % stage}\n{call}\n")
    assert ("error ZP207" in ran.out) == stops


@pytest.mark.parametrize(
    ("before", "stage", "warns"),
    [("", 3, True), ("", 2, False), ("h = HfDeepSpeedConfig(c)\n", 3, False), ("with deepspeed.zero.Init():\n    pass\n", 3, False)],
)
def test_a_model_that_every_rank_builds_whole(check, before, stage, warns):
    """DeepSpeed 7458: transformers' from_pretrained divides weights where HfDeepSpeedConfig says stage 3, and nowhere else."""
    config = AUTO.replace('"auto"', "1") % stage
    ran = check(f"c = {config}\n{before}m = AutoModel.from_pretrained('x')\ne = deepspeed.initialize(model=m, config=c)\n")
    assert ("warning ZP806: every rank builds the whole model in from_pretrained" in ran.out) == warns


@pytest.mark.parametrize(
    ("config", "rule"),
    [
        ('{"train_batch_size": 8, "optimizer": {"type": "OneBitAdam", "params": {"lr": b}}}', "ZP601"),
        ('{"steps_per_print": b, "fp16": {"enabled": True}, "bf16": {"enabled": True}}', "ZP301"),
        ('{"steps_per_print": b, "fp16": {"enabled": c}, "bf16": {"enabled": True}}', None),
        ('{"train_batch_size": 8, "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": p}}}', None),
        ('{"train_batch_size": 8, "zero_optimization": {"stage": s, "offload_param": {"device": "cpu"}}, "bf16": {"enabled": True}}', None),
    ],
)
def test_errors_about_what_is_known_beside_what_is_not(check, config, rule):
    """DeepSpeed 0.19.8 with numbers for the names: OneBitAdam is not a supported optimizer; fp16 and bf16 cannot both be on."""
    ran = check(f"deepspeed.initialize(model=m, config={config})\n")
    assert (f"error {rule}" in ran.out) if rule else "error" not in ran.out


@pytest.mark.parametrize(
    "text",
    [
        'D = {"enabled": True, "min_loss_scale": 0.5}\nds_config = {"train_batch_size": 8, "fp16": D}\n',
        'def f():\n    d = {"enabled": True, "min_loss_scale": 0.5}\n    return g(ds_config={"train_batch_size": 8, "fp16": d})\n',
        'def f():\n    least = 0.5\n    ds_config = {"train_batch_size": 8, "fp16": {"enabled": True, "min_loss_scale": least}}\n',
    ],
)
def test_names_that_one_line_sets_anywhere(check, text):
    """DeepSpeedFP16Config: min_loss_scale is no whole number."""
    assert "error ZP304" in check(text).out


def test_a_dict_that_names_itself(check):
    assert check('d = {"train_batch_size": 8, "fp16": d}\nds_config = {"train_batch_size": 8, "fp16": d}\n').code in (0, 1)


BAD = '{"train_batch_size": 8, "zero_optimization": {"stage": 5}}'


@pytest.mark.parametrize(
    "text",
    [
        'with open("ds.json") as file:\n    config = json.load(file)\ndeepspeed.initialize(model=m, config=config)\n',
        'config = json.load(open("ds.json"))\ndeepspeed.initialize(model=m, config=config)\n',
        'config = json.loads(Path("ds.json").read_text())\ndeepspeed.initialize(model=m, config=config)\n',
        'p = os.path.join(os.path.dirname(__file__), "ds.json")\ndeepspeed.initialize(config=p)\n',
        'deepspeed.initialize(config=str(Path(__file__).parent / "ds.json"))\n',
        'class Args:\n    ds: str = "ds.json"\n\n\ndeepspeed.initialize(config=args.ds)\n',
        'class Args:\n    ds: str = field(default="ds.json")\n\n\ndeepspeed.initialize(config=args.ds)\n',
        'parser.add_argument("--ds", default="ds.json")\nwith open(args.ds) as f:\n    c = json.load(f)\n'
        "deepspeed.initialize(config=c)\n",
    ],
)
def test_files_that_names_stand_for(check_files, text):
    ran = check_files({"a.py": text, "ds.json": BAD})
    assert ran.code == 1
    assert "ds.json:1:" in ran.out


def test_a_file_that_other_lines_change(check_files):
    text = 'c = json.load(open("ds.json"))\nc["zero_optimization"] = {}\ndeepspeed.initialize(config=c)\n'
    assert check_files({"a.py": text, "ds.json": BAD}).code == 2


def test_the_default_of_an_option_that_the_program_reads_itself(check_files):
    text = 'parser.add_argument("--deepspeed_config", default="ds.json")\nconfig = prepare(args)\n'
    assert "ds.json:1:" in check_files({"a.py": text, "ds.json": BAD}).out
    assert check_files({"a.py": text.replace("deepspeed_config", "data"), "ds.json": BAD}).code == 2


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('deepspeed.initialize(args=args, **{"config": "ds.json"})\n', 1), ('job = Estimator(hyperparameters={"deepspeed": "./ds.json"})\n', 1),
        ("deepspeed.initialize(model=m, optimizer=o, config={'train_batch_size': 8, 'optimizer': {'type': 'Adam', 'params': {'lr': '1e-3'}}})\n", 0),
        ("deepspeed.initialize(model=m, config={'train_batch_size': 8, 'optimizer': {'type': 'Adam', 'params': {'lr': '1e-3'}}})\n", 1),
    ],
)  # fmt: skip
def test_what_calls_are_given(check_files, text, code):
    """A text for lr: run with 0.19.8, the engine starts where the call has an optimizer."""
    assert check_files({"a.py": text, "ds.json": BAD}, "--fail-on", "error").code == code


@pytest.mark.parametrize(
    "text",
    [
        'from config import batch\nbatch = batch * 2\nds_config = {"train_batch_size": batch, "zero_optimization": {"stage": 2}}\n',
        "import os\ncfg = os.path.join(os.path.dirname(__file__), cfg)\ndeepspeed.initialize(config=cfg)\n",
        'ds_config = {"train_batch_size": ((10**64)**64)*((10**64)**64), "zero_optimization": {"stage": 2}}\n',
        'ds_config = {"gradient_clipping": (-8)**0.5, "zero_optimization": {"stage": 2}}\n',
        'ds_config = {"steps_per_print": 10**9 * "x", "zero_optimization": {"stage": 2}}\n',
        'parser.add_argument("--deepspeed", default=os.path.join("configs", "ds.json"))\n',
    ],
)
def test_values_that_are_not_worked_out(check_files, text):
    ran = check_files({"a.py": text, "ds.json": BAD}, "--fail-on", "error")
    assert ran.code in (0, 2)
