"""from_pretrained(device_map=...) at stage 3: run with transformers 5.24 on a tiny Llama, "auto", {"": 0} and {"": "cpu"} are a ValueError
once TrainingArguments with stage 3 are there, and None, and stage 2, are not.
"""

from __future__ import annotations

import pytest

DS = '{"train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": %d, "stage3_gather_16bit_weights_on_model_save": true}}'
CONCISE = ("--format", "concise")
ARGUMENTS = 'from transformers import AutoModelForCausalLM, TrainingArguments\nargs = TrainingArguments("o", deepspeed="ds.json", bf16=True)\n'
MODEL = 'model = AutoModelForCausalLM.from_pretrained("m"%s)\n'


@pytest.mark.parametrize(
    ("text", "severity"),
    [
        (ARGUMENTS + MODEL % ', device_map="auto"', "error"),
        (ARGUMENTS + MODEL % ', device_map={"": 0}', "error"),
        (ARGUMENTS + MODEL % ", device_map=None", ""),
        (ARGUMENTS + MODEL % "", ""),
        (ARGUMENTS + MODEL % ", device_map=args.device_map", ""),
        (MODEL % ', device_map="auto"' + ARGUMENTS, "warning"),
        (ARGUMENTS + 'if args.big:\n    device_map = {"": rank}\n' + MODEL % ", device_map=device_map", "warning"),
        (ARGUMENTS + "def generate():\n    " + MODEL % ', device_map="auto"', "warning"),
        ("def train():\n" + "".join(f"    {line}\n" for line in (ARGUMENTS + MODEL % ', device_map="auto"').splitlines()) + "train()\n", "error"),
        (ARGUMENTS + "def run_inference():\n    " + MODEL % ', device_map="auto"', "warning"),
        (ARGUMENTS + 't = AutoTokenizer.from_pretrained("m", device_map="auto")\n', ""),
        (ARGUMENTS + 'kwargs = {"device_map": "auto"}\n' + MODEL % ", **kwargs", "warning"),
    ],
)
def test_a_model_that_a_script_places(check_files, tmp_path, text, severity):
    (tmp_path / "ds.json").write_text(DS % 3)
    ran = check_files({"t.py": text}, *CONCISE)
    assert [line.split()[1] for line in ran.out.splitlines() if "ZP851" in line] == ([severity] if severity else [])
    (tmp_path / "ds.json").write_text(DS % 2)
    assert "ZP851" not in check_files({"t.py": text}, *CONCISE).out


def test_of_an_option(check_files):
    code = 'p = HfArgumentParser((A, TrainingArguments))\na, t = p.parse_args_into_dataclasses()\nmodel = M.from_pretrained("m", device_map=a.device_map)\n'
    files = {"run.sh": "torchrun --nproc_per_node 2 t.py --deepspeed ds.json --bf16 True --per_device_train_batch_size 1 --device_map auto\n", "t.py": code, "ds.json": DS % 3}
    assert "error ZP851" in check_files(files, *CONCISE).out
    assert "ZP851" not in check_files({**files, "run.sh": files["run.sh"].replace("auto", "None")}, *CONCISE).out


def test_of_a_file_that_the_script_imports(check_files):
    acc = "distributed_type: DEEPSPEED\nnum_processes: 2\nmixed_precision: bf16\ndeepspeed_config:\n  zero_stage: 3\n  zero3_init_flag: true\n"
    files = {"run.sh": "accelerate launch --config_file acc.yaml t.py\n", "acc.yaml": acc, "t.py": "from own import load\n",
             "own.py": "def load():\n    return " + MODEL.partition("= ")[2] % ', device_map="auto"'}  # fmt: skip
    assert "acc.yaml:5:3: warning ZP851" in check_files(files, *CONCISE).out
