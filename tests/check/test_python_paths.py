"""Paths that a Python file puts together, each as Python itself has it."""

from __future__ import annotations

import pytest

BAD = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 5}}'
CONCISE = ("--format", "concise", "--fail-on", "error")


@pytest.mark.parametrize(
    "text",
    [
        'D = Path(__file__).parent.parent / "conf" / "d.json"\nargs = TrainingArguments(deepspeed=str(D))\n',
        'D = Path("conf") / "d.json"\nargs = TrainingArguments(deepspeed=D.as_posix())\n',
        'args = TrainingArguments(deepspeed=os.path.join("conf", "d" + ".json"))\n',
        'ROOT = os.path.dirname(os.path.abspath(__file__))\nC = Path(ROOT) / "../conf"\nargs = TrainingArguments(deepspeed=f"{C}/d.json")\n',
        'C = Path(__file__).resolve().parents[1].joinpath("conf", "d.json")\nargs = TrainingArguments(deepspeed=C)\n',
        'p = Path("conf") / "d.json"\nwith open(p) as f:\n    ds = json.load(f)\ndeepspeed.initialize(config=ds)\n',
        'HERE = os.getcwd()\nargs = TrainingArguments(deepspeed=HERE + "/conf/d.json")\n',
    ],
)
def test_a_config_that_is_named_so(check_files, tmp_path, zeroplan, text):
    for folder in ("conf", "src", ".git"):
        (tmp_path / folder).mkdir()
    (tmp_path / "conf" / "d.json").write_text(BAD)
    (tmp_path / "src" / "t.py").write_text(f"import json, os\nfrom pathlib import Path\n{text}")
    check_files({"none.json": "{}"})
    ran = zeroplan("check", "src/t.py", *CONCISE)
    assert ran.code == 1, ran.out + ran.err
    assert "d.json:1:" in ran.out


@pytest.mark.parametrize("text", ['ds = json.load(open(ds))\n', 'a = b\nb = a\nds = a + b\n', 'ds = ", ".join(["a", "b"])\n', 'ds = x / "d.json"\n'])
def test_what_names_nothing(check_files, text):
    ran = check_files({"t.py": f"import json\n{text}deepspeed.initialize(config=ds)\n"})
    assert ran.code == 2


def test_a_dict_that_is_unfolded_in_a_call(check_files):
    text = 'import deepspeed\nkw = {"config": "d.json"}\nengine = deepspeed.initialize(args=args, model=m, **kw)\n'
    assert check_files({"t.py": text, "d.json": BAD}, *CONCISE).code == 1


def test_a_path_of_another_machine_that_is_a_name_alone(check_files):
    ran = check_files({"t.py": 'args = TrainingArguments(deepspeed="/tmp/d.json")\n', "d.json": BAD}, *CONCISE)
    assert ran.code == 1


def test_a_script_in_a_folder_names_a_config_near_it(check_files, tmp_path, zeroplan):
    for folder in ("pkg/train", "pkg/conf", ".git"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "pkg/conf/d.json").write_text(BAD)
    (tmp_path / "pkg/train/t.py").write_text('C = Path(__file__).parent.parent / "conf" / "d.json"\na = TrainingArguments(deepspeed=str(C))\n')
    assert check_files({"run.sh": "deepspeed --num_gpus $N pkg/train/t.py\n"}, *CONCISE).code == 1


def test_names_that_stand_for_themselves_twice(check_files):
    texts = "".join(f'a{at} = f"{{a{at - 1}}}{{a{at - 1}}}"\n' for at in range(1, 40))
    for text in ('ds = f"{ds}{ds}"\n', f'a0 = "x"\n{texts}ds = a39\n'):
        assert check_files({"t.py": f"{text}args = TrainingArguments(deepspeed=ds)\n"}).code == 2
