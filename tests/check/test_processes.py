"""How many processes commands of ms-swift and LLaMA-Factory start, by their variables, and where they stop at DeepSpeed."""

from __future__ import annotations

import json

import pytest

from zeroplan.check.launcher import launches
from zeroplan.check.script_parser import unrecognized

SWIFT = "swift sft --model x --torch_dtype bfloat16 --deepspeed ds.json"
FACTORY = "llamafactory-cli train lf.yaml"


@pytest.mark.parametrize(
    ("script", "gpus"),
    [
        (SWIFT, 1),
        (f"NPROC_PER_NODE=8 {SWIFT}", 8),
        (f"NNODES=2 {SWIFT}", 2),
        (f"NNODES=2 NPROC_PER_NODE=4 {SWIFT}", 8),
        (f"export NPROC_PER_NODE=4\n{SWIFT}", 4),
        (f"env NPROC_PER_NODE=4 {SWIFT}", 4),
        (f"G=4\nNPROC_PER_NODE=$G \\\n{SWIFT}", 4),
        (f"NPROC_PER_NODE=8\n{SWIFT}", 1),
        (f"NPROC_PER_NODE=$1 {SWIFT}", None),
        (f"CUDA_VISIBLE_DEVICES=0,1 {SWIFT}", 1),
        (f"#SBATCH --nodes=2\n#SBATCH --gpus-per-node=8\nsrun {SWIFT}", None),  # a process for each task, and no torchrun
    ],
)
def test_processes_of_swift(script, gpus):
    """Run: ms-swift 4.6 cli/main.py with these variables: torch.distributed.run where NPROC_PER_NODE or NNODES is set
    (whose --nproc_per_node and --nnodes are 1 where nothing says them), else the script itself.
    """
    (one,) = launches("run.sh", f"{script}\n")
    assert one.gpus == gpus


@pytest.mark.parametrize(
    ("script", "gpus"),
    [
        (FACTORY, None),
        (f"FORCE_TORCHRUN=1 {FACTORY}", None),
        (f"FORCE_TORCHRUN=1 NPROC_PER_NODE=8 {FACTORY}", 8),
        (f"FORCE_TORCHRUN=1 NNODES=2 NPROC_PER_NODE=8 {FACTORY}", 16),
        (f"CUDA_VISIBLE_DEVICES=0,1,2,3 {FACTORY}", 4),
        (f"CUDA_VISIBLE_DEVICES=0,1,2,3 NNODES=2 {FACTORY}", 8),
        (f"CUDA_VISIBLE_DEVICES=0 {FACTORY}", 1),
        (f"FORCE_TORCHRUN=1 NNODES=$N {FACTORY}", None),
    ],
)
def test_processes_of_llama_factory(script, gpus):
    """llamafactory 0.9.5 launcher.py: NPROC_PER_NODE, or the cards that are visible, on each of NNODES (1)."""
    (one,) = launches("run.sh", f"{script}\n")
    assert one.gpus == gpus


@pytest.fixture
def check(zeroplan, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = {"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "bf16": {"enabled": True},
              "zero_optimization": {"stage": 2}}  # fmt: skip
    (tmp_path / "ds.json").write_text(json.dumps(config), encoding="utf-8")
    factory = "model_name_or_path: x\nfinetuning_type: lora\noutput_dir: o\nbf16: true\ndeepspeed: ds.json\n"
    (tmp_path / "lf.yaml").write_text(factory, encoding="utf-8")

    (tmp_path / "plain.yaml").write_text(factory.replace("deepspeed: ds.json\n", ""), encoding="utf-8")

    def run(script):
        (tmp_path / "run.sh").write_text(f"#!/bin/bash\n{script}\n", encoding="utf-8")
        ran = zeroplan("check", "run.sh", "--select", "ZP821", "--format", "json")
        return [(one["severity"], one["line"], one["write"]) for one in ran.json["findings"]]

    return run


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (f"CUDA_VISIBLE_DEVICES=0,1 {SWIFT}", [("error", 2, "NPROC_PER_NODE=2")]),
        (f"CUDA_VISIBLE_DEVICES=0,1 {SWIFT.replace('ds.json', 'zero3')}", [("error", 2, "NPROC_PER_NODE=2")]),
        (f"CUDA_VISIBLE_DEVICES=0,1,2,3 NPROC_PER_NODE=2 {SWIFT}", [("error", 2, "NPROC_PER_NODE=4")]),
        (f"CUDA_VISIBLE_DEVICES=0,1 NPROC_PER_NODE=2 {SWIFT}", []),
        (f"CUDA_VISIBLE_DEVICES=0 {SWIFT}", []),
        (f"CUDA_VISIBLE_DEVICES=0,1 SWIFT_SINGLE_DEVICE_MODE=1 {SWIFT}", []),
        (f"CUDA_VISIBLE_DEVICES=$GPUS {SWIFT}", []),
        (f"NPROC_PER_NODE=8 {SWIFT}", []),
        (SWIFT, [("advice", 2, "NPROC_PER_NODE=8")]),
        (f"CUDA_VISIBLE_DEVICES=0 {FACTORY}", [("error", 2, "FORCE_TORCHRUN=1")]),
        (f"FORCE_TORCHRUN=1 CUDA_VISIBLE_DEVICES=0 {FACTORY}", []),
        (f"FORCE_TORCHRUN=$F CUDA_VISIBLE_DEVICES=0 {FACTORY}", []),
        (f"CUDA_VISIBLE_DEVICES=0,1 {FACTORY}", []),
        (FACTORY, []),
    ],
)
def test_where_they_stop(check, script, expected):
    """ms-swift 4.6 arguments/sft_args.py:_init_deepspeed raises where is_mp() (utils/env.py: two cards or more for each
    process); llamafactory 0.9.5 hparams/parser.py:get_train_args where nothing is distributed.
    """
    assert check(script) == expected


def test_a_run_without_deepspeed_is_not_judged(zeroplan, check, tmp_path):
    (tmp_path / "run.sh").write_text("CUDA_VISIBLE_DEVICES=0 llamafactory-cli train plain.yaml\n", encoding="utf-8")
    ran = zeroplan("check", "run.sh")
    assert (ran.code, ran.out) == (2, "")
    assert "names no DeepSpeed config" in ran.err


def test_ranks_decide_what_fits(zeroplan, check, tmp_path):
    line = f"{SWIFT} --tuner_type full --max_length 1024".replace("--model x", "--model meta-llama/Llama-3.2-3B")
    for before, code in (("", 1), ("NPROC_PER_NODE=8 ", 0)):
        (tmp_path / "run.sh").write_text(f"{before}{line}\n", encoding="utf-8")
        ran = zeroplan("check", "run.sh", "--gpu-mem", "40")
        assert (" GiB on 1 GPU, " in ran.out, ran.code) == (code == 1, code)


PARSER = "parser = argparse.ArgumentParser()\nparser.add_argument('--local_rank', type=int)\nparser.add_argument('-e', '--epochs', '--n_epochs')\n"
CALLS = "args = parser.parse_args()\ndeepspeed.initialize(args=args, config={'train_batch_size': 8, 'bf16': {'enabled': True}})\n"


@pytest.mark.parametrize(
    ("line", "code", "stops_at"),
    [
        ("deepspeed t.py --epochs 1", PARSER + CALLS, ""), ("deepspeed t.py --n_ep 1", PARSER + CALLS, ""),
        ("deepspeed t.py --epochs 1 --lr 2", PARSER + CALLS, "--lr"), ("torchrun t.py --lr 2", PARSER + CALLS, "--lr"),
        ("deepspeed t.py", PARSER.replace("--local_rank", "--rank") + CALLS, "--local_rank"),
        ("torchrun t.py", PARSER.replace("--local_rank", "--rank") + CALLS, ""),
        ("deepspeed --no_local_rank t.py", PARSER.replace("--local_rank", "--rank") + CALLS, ""),
        ("deepspeed t.py --deepspeed", PARSER + CALLS, "--deepspeed"),
        ("deepspeed t.py --deepspeed", PARSER + "parser = deepspeed.add_config_arguments(parser)\n" + CALLS, ""),
        ("deepspeed t.py --lr 1", PARSER + "add_own(parser)\n" + CALLS, ""),
        ("deepspeed t.py --lr 1", (PARSER + CALLS).replace("parse_args()", "parse_known_args()[0]"), ""),
        ("deepspeed t.py $MORE", PARSER + CALLS, ""),
    ],
)  # fmt: skip
def test_the_parser_of_a_script(check_files, line, code, stops_at):
    """Run with Python 3.11's argparse: error: unrecognized arguments."""
    ran = check_files({"run.sh": f"{line}\n", "t.py": code}, "--format", "concise", "--fail-on", "error")
    assert ran.code == bool(stops_at)
    assert (f"ZP847: deepspeed hands {stops_at}" in ran.out or f"ZP847: {stops_at} is no option" in ran.out) == bool(stops_at)


@pytest.mark.parametrize("options", [[], ["--epochs", "1"], ["--n_ep", "1"], ["--lr", "2"], ["--local_rank=0"], ["--deepspeed"]])
def test_as_argparse_has_it(options):
    """What argparse itself says of each."""
    import argparse  # the parser that the test asks

    parser = argparse.ArgumentParser(exit_on_error=False)
    parser.add_argument("--local_rank", type=int)
    parser.add_argument("-e", "--epochs", "--n_epochs")
    left = parser.parse_known_args(options)[1]
    assert unrecognized(PARSER + CALLS, [one for one in options if one.startswith("--")], has_local_rank=False) == (left[0] if left else "")


OTHERS = "args = ap.parse_args()\ndeepspeed.initialize(config={'train_batch_size': 8, 'bf16': {'enabled': True}})\n"


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("deepspeed $MORE t.py", "ap = argparse.ArgumentParser()\nap.add_argument('--lr')\n"),
        ("deepspeed --launcher openmpi t.py", "ap = argparse.ArgumentParser()\nap.add_argument('--lr')\n"),
        ("deepspeed t.py --lr 1", "ap = argparse.ArgumentParser()\nadd_own(ap)\n"),
        ("torchrun t.py --lr 1", "ap = argparse.ArgumentParser()\nadd = ap.add_argument\nadd('--lr')\n"),
        ("torchrun t.py --no-flash", "ap = argparse.ArgumentParser()\nap.add_argument('--flash', action=argparse.BooleanOptionalAction)\n"),
        ("torchrun t.py --text '--foo bar'", "ap = argparse.ArgumentParser()\nap.add_argument('--text')\n"),
    ],
)
def test_what_a_parser_may_know_besides(check_files, line, code):
    assert "ZP847" not in check_files({"run.sh": f"{line}\n", "t.py": code + OTHERS}).out


@pytest.mark.parametrize("line", ["[[ -n $A && mode = $MODE ]] && echo", "((i = 0; j = 3))", "test a = b", "A= b"])
def test_no_assignments(check_files, line):
    files = {"run.sh": f"{line}\ndeepspeed train.py --deepspeed_config ds.json\n", "ds.json": '{"train_batch_size": 8}'}
    assert "ZP849" not in check_files(files).out
