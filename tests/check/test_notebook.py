"""Notebooks: cells in Python, commands of a shell, and files that cells write."""

from __future__ import annotations

import json

import pytest

from zeroplan.check.notebook import parts_of

BAD = '{"train_batch_size": 8, "zero_optimization": {"stage": 5}}'
ACCELERATE = "distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 5\n"
CONCISE = ("--format", "concise", "--fail-on", "error")


def notebook(*cells, indent=1):
    """As nbformat writes it: each line of a cell on one of the file."""
    content = [{"cell_type": "markdown", "metadata": {}, "source": ["# deepspeed\n"]}]
    content += [{"cell_type": "code", "metadata": {}, "outputs": [], "source": cell.splitlines(keepends=True)} for cell in cells]
    return json.dumps({"cells": content, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=indent)


PYTHON = f"import deepspeed\nds_config = {BAD}\ndeepspeed.initialize(config=ds_config)\n"


@pytest.mark.parametrize(
    "cells",
    [
        [PYTHON], ["pip install deepspeed", "%matplotlib inline\n!pip install x", PYTHON],
        [f"%%writefile ds.json\n{BAD}", "!deepspeed train.py --deepspeed_config ds.json"], [f"%%writefile ds_config.json\n{BAD}"],
        [f"config = '''\n{BAD}\n'''\nopen('ds.json', 'w').write(config)"],
        [f"%%writefile ds.json\n{BAD}", "%%bash\ndeepspeed train.py \\\n  --deepspeed_config ds.json"],
        [f"%%writefile ds.json\n{BAD}", "args = TrainingArguments('o', deepspeed='ds.json')"],
        [f"%%writefile ds.json\n{BAD}", "%%writefile ./t.py\nargs = TrainingArguments('o', deepspeed='ds.json')", "!torchrun t.py"],
        [f"%%writefile ds.json\n{BAD}", "%%writefile t.py\nimport deepspeed\ndeepspeed.initialize(config='ds.json')"],
        [f"%%writefile ds.json\n{BAD}", "%%writefile run.sh\ndeepspeed train.py --deepspeed_config ds.json"],
        ["%%writefile a.yaml\n" + ACCELERATE, "!accelerate launch --config_file ./a.yaml train.py"],
        ["%%writefile a.yaml\n" + ACCELERATE],
    ],
)  # fmt: skip
@pytest.mark.parametrize("indent", [1, None])
def test_the_config_of_a_notebook(check_files, cells, indent):
    ran = check_files({"a.ipynb": notebook(*cells, indent=indent)}, *CONCISE)
    assert ran.code == 1
    assert "a.ipynb:" in ran.out
    assert "error ZP401: 5 here" in ran.out


def test_lines_are_those_of_the_file(check_files):
    text = notebook("import deepspeed", PYTHON)
    line = 1 + next(at for at, one in enumerate(text.splitlines()) if "ds_config = " in one)
    assert f"a.ipynb:{line}:" in check_files({"a.ipynb": text}, *CONCISE).out


def test_cells_of_code_alone():
    parts = parts_of("a.ipynb", notebook("x = 1\n!echo a\n", "%%bash\necho b\n"))
    assert [line for line in parts.python.splitlines() if line] == ["x = 1", "pass"]
    assert [line for line in parts.shell.splitlines() if line] == ["echo a", "echo b"]


@pytest.mark.parametrize("text", [notebook("x = 1"), '{"cells": 1}', '{"cells": [1]}', "{", notebook()])
def test_notebooks_without_one(check_files, text):
    ran = check_files({"a.ipynb": text})
    assert ran.code == 2
    assert "notebook" in ran.err


def test_notebooks_of_a_folder(zeroplan, tmp_path):
    (tmp_path / "a.ipynb").write_text(notebook(PYTHON))
    (tmp_path / "b.ipynb").write_text(notebook("x = 1"))
    ran = zeroplan("check", str(tmp_path), *CONCISE)
    assert ran.code == 1
    assert "b.ipynb" not in ran.out + ran.err


def test_commands_that_go_on(check_files):
    cell = "!deepspeed train.py \\\n    --deepspeed_config ds.json"
    ran = check_files({"a.ipynb": notebook(f"%%writefile ds.json\n{BAD}", cell)}, *CONCISE)
    assert ran.code == 1


@pytest.mark.parametrize("line", ["out = !nvidia-smi", "model?", "%time x = 1"])
def test_lines_for_ipython(check_files, line):
    assert check_files({"a.ipynb": notebook(f"{line}\n{PYTHON}")}, *CONCISE).code == 1


def test_a_file_that_is_written_twice(check_files):
    good = BAD.replace("5}", "2}")
    assert check_files({"a.ipynb": notebook(f"%%writefile ds.json\n{BAD}", f"%%writefile ds.json\n{good}")}, *CONCISE).code == 0
    assert check_files({"a.ipynb": notebook(PYTHON.replace("5}", "2}"), f"%%writefile other.json\n{BAD}")}, *CONCISE).code == 1


CONFIG = "ds_config = {'train_batch_size': 8, 'bf16': {'enabled': True}}\n"


@pytest.mark.parametrize(
    ("cell", "stops"),
    [
        ("parser = argparse.ArgumentParser()\nargs = parser.parse_args()\n", True), ("p = HfArgumentParser(A)\na, = p.parse_args_into_dataclasses()\n", True),
        ("def get():\n    parser = argparse.ArgumentParser()\n    return parser.parse_args()\nargs = get()\n", True),
        ("def get():\n    parser = argparse.ArgumentParser()\n    return parser.parse_args()\n", False),
        ("parser = argparse.ArgumentParser()\nargs = parser.parse_args([])\n", False), ("parser = argparse.ArgumentParser()\nargs = parser.parse_args(args=[])\n", False),
        ("sys.argv = ['x']\nparser = argparse.ArgumentParser()\nargs = parser.parse_args()\n", False), ("args = own.parse_args()\n", False),
    ],
)  # fmt: skip
def test_a_parser_that_has_the_arguments_of_the_kernel(check_files, cell, stops):
    """Run with sys.argv of ipykernel ([..., '-f', 'kernel.json']): SystemExit 2, unrecognized arguments: -f."""
    ran = check_files({"a.ipynb": notebook("import argparse, sys\n" + CONFIG, cell)}, *CONCISE)
    assert (ran.code, "error ZP856" in ran.out) == (int(stops), stops)


@pytest.mark.parametrize("line", ["!deepspeed t.py --deepspeed_config {path}", "!deepspeed t.py \\\n  --deepspeed_config {path}", "!deepspeed t.py --deepspeed_config $path"])
def test_names_of_python_in_a_line_for_a_shell(check_files, line):
    """IPython puts in the values of {path} and $path."""
    ran = check_files({"a.ipynb": notebook("path = './ds.json'", line), "ds.json": BAD}, *CONCISE)
    assert (ran.code, "ds.json:1:" in ran.out and "error ZP401: 5 here" in ran.out) == (1, True)
    unknown = check_files({"a.ipynb": notebook("path = f()", line), "ds.json": BAD}, *CONCISE)
    assert unknown.code == 2
