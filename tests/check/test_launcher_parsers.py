"""Options on launch lines: refused exactly where the launchers' own parsers refuse them."""

from __future__ import annotations

import random

import pytest

from zeroplan.check.launcher_parsers import OPTIONS, parsed
from zeroplan.check.shell_variables import Word

LINES = [
    ("deepspeed", "--num_gpus 8 t.py", ""),
    ("deepspeed", "--num_gpu 8 t.py --num-gpus 4", ""),
    ("deepspeed", "-H hosts -i a@b:0 --no_ssh_check t.py", ""),
    ("deepspeed", "--num-gpus 8 t.py", "--num_gpus"),
    ("deepspeed", "--nproc_per_node=8 t.py", "--num_gpus"),
    ("deepspeed", "--num_gpus 8 --deepspeed ds.json t.py", "none"),
    ("deepspeed", "--num_gpus eight t.py", "none"),
    ("deepspeed", "--num_gpus 8", "none"),
    ("torchrun", "--nproc-per-node 8 --nnodes=2 t.py", ""),
    ("torchrun", "--nproc-per 8 -m pack.train --x", ""),
    ("torchrun", "--num_gpus 8 t.py", "--nproc_per_node"),
    ("torchrun", "--node_rank first t.py", "none"),
    ("accelerate", "--num-processes 8 --config_file a.yaml t.py --foo", ""),
    ("accelerate", "--num_process 8 t.py", "--num_processes"),
    ("accelerate", "--mixed_precision half t.py", "none"),
]
WORDS = ("1", "8", "-1", "x", "2.5", "no", "fp16", "a b", "", "auto", "info", "t.py", "debug", "torch", "1e3", "--", "0x8", "1_000")
NOT_COMPARED = frozenset({
    "min_elastic_nodes", "max_elastic_nodes", "elastic_training", "use_env", "print_completion", "ipex", "use_xpu",
    "use_tp", "tp_size", "mpirun_ccl", "fsdp_backward_prefetch_policy", "fp8_override_linear_precision",
    "fp8_enable_fsdp_float8_all_gather", "fp8_pad_inner_dim",
})  # fmt: skip
"""Of older releases; a value of the last three is not looked at."""


def words(texts):
    return [Word(text, 0, 0) for text in texts]


@pytest.mark.parametrize(("launcher", "line", "instead"), LINES)
def test_what_a_launcher_takes(launcher, line, instead):
    """`instead`: what is proposed, "none" where nothing is."""
    told = parsed(launcher, words(line.split()))
    assert bool(told.refusal) == bool(instead)
    assert told.instead == instead.replace("none", "")


def test_a_word_that_is_not_known_refuses_nothing():
    unknown = Word(None, 0, 0)
    for option in ("--master_port", "--log_level", "--hostfile"):
        taken = parsed("deepspeed", [*words([option]), unknown, *words(["t.py"])])
        assert (taken.refusal, taken.options) == ("", {option[2:]: None})
    assert parsed("deepspeed", [unknown, *words(["--foo"])]).is_whole is False


def real_parsers():
    runner = pytest.importorskip("deepspeed.launcher.runner")
    run = pytest.importorskip("torch.distributed.run")
    launch = pytest.importorskip("accelerate.commands.launch")
    return {"deepspeed": runner.parse_args, "torchrun": run.get_args_parser().parse_args,
            "accelerate": launch.launch_command_parser().parse_args}  # fmt: skip


def drawn(draws):
    """A launcher and a line for it."""
    launcher = draws.choice(list(OPTIONS))
    options = OPTIONS[launcher]
    kinds = f"{options.flags} {options.texts} {options.numbers} {options.fractions}".split()
    names = [name for name in (*kinds, *options.choices) if name not in NOT_COMPARED]
    line = []
    for _ in range(draws.randint(0, 4)):
        name = draws.choice([*names, "foo", "num_gpus", "nproc_per_node", "num_processes"])
        form = draws.choice([f"--{name}", f"--{name.replace('_', '-')}", f"--{name[: draws.randint(2, len(name))]}"])
        value = draws.choice(WORDS)
        line += [f"{form}={value}"] if draws.random() < 0.3 else [form, *[value] * (name not in options.flags.split())]
    return launcher, [*line, *["t.py", "--lr", "3"][: draws.randint(0, 3)]]


def test_drawn_lines_are_refused_as_by_the_real_parsers(capsys):
    real, draws = real_parsers(), random.Random(29)
    lines = [*((launcher, line.split()) for launcher, line, _ in LINES), *(drawn(draws) for _ in range(1_500))]
    for launcher, line in lines:
        try:
            real[launcher](list(line))
            refuses = False
        except SystemExit as stop:
            refuses = stop.code != 0
        said, told = capsys.readouterr().err, parsed(launcher, words(line)).refusal
        if "ambiguous" not in said or told:  # between two spellings of one option
            assert bool(told) == refuses, (launcher, line, told, said[-200:])
