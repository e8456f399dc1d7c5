"""Two runs that a script starts at once."""

from __future__ import annotations

import pytest

CONFIG = '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}'
ONE = "deepspeed --include localhost:0%s t.py --deepspeed ds.json"
TAIL = " t.py --deepspeed ds.json"
OTHER = "torchrun --nproc_per_node 2%s t.py --deepspeed ds.json"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (f"{ONE % ''} &\n{ONE % ''} &\nwait\n", 2), (f"{ONE % ''} > a.log 2>&1 &\n{OTHER % ''}\n", 2), (f"{ONE % ''} | tee a &\n{ONE % ''} | tee b &\n", 2),
        (f"{OTHER % ' --master_port 29501'} &\n{ONE % ''} &\n{ONE % ' --master_port=29501'}\n", 3), (f"{ONE % ''} \\\n  &> a &\n\n{ONE % ''}\n", 4),
        (f"deepspeed --hostfile h{TAIL} &\ndeepspeed --hostfile h{TAIL} &\n", 2), (f"deepspeed --hostfile h{TAIL} &\ndeepspeed --hostfile i{TAIL} &\n", None),
        (f"{ONE % ''}\n{ONE % ''}\n", None), (f"{ONE % ''} &\nwait\n{ONE % ''} &\n", None), (f"{ONE % ''} &\nwait $!; {ONE % ''}\n", None),
        (f"{ONE % ''} && {ONE % ''}\n", None), (f"{ONE % ''} > a 2>&1\n{ONE % ''}\n", None), (f"{ONE % ''} &\n{ONE % ' --master_port 29501'} &\n", None),
        (f"{OTHER % ' --standalone'} &\n{OTHER % ' --standalone'} &\n", None), (f"{ONE % ' --master_port $P'} &\n{ONE % ' --master_port $P'} &\n", None),
        (f"{ONE % ''} |& tee a\n{ONE % ''} |& tee b\n", None), (f"{ONE % ''}  # train & save\n{ONE % ''}\n", None),
        (f"{ONE % ''} > 'a&b'\n{ONE % ''}\n", None), (f"a() {{\n{ONE % ''} &\n}}\nb() {{\n{ONE % ''} &\n}}\n\"$@\"\n", None),
        (f"{OTHER % ' --nnodes 2 --node_rank 0'} &\n{OTHER % ' --nnodes 2 --node_rank 1'} &\n", None),
        (f"{ONE % ''} &\nwhile kill -0 $!; do sleep 1; done\n{ONE % ''}\n", None), (f"{ONE % ''} &\nif ! wait $!; then exit 1; fi\n{ONE % ''}\n", None),
        (f"docker exec a {ONE % ''} &\ndocker exec b {ONE % ''} &\n", None), (f"{ONE % ''} &\ndeepspeed --include worker-1:0 t.py --deepspeed ds.json &\n", None),
        (f"if [ $1 = a ]; then\n{ONE % ''} &\nelse\n{ONE % ''} &\nfi\n", None), (f"ssh a '{ONE % ''}' &\nssh b '{ONE % ''}' &\n", None),
    ],
)  # fmt: skip
def test_runs_at_once_on_one_port(check_files, text, line):
    """A second store at the port of a first, run with torch 2.14: DistNetworkError, EADDRINUSE."""
    ran = check_files({"run.sh": text, "ds.json": CONFIG}, "--format", "concise")
    assert [int(one.split(":")[1]) for one in ran.out.splitlines() if "ZP854" in one] == ([] if line is None else [line])


@pytest.mark.parametrize("text", [" " + ">&>" * 60, " | " + "a |" * 20_000, '"' * 50_000, " #" * 30_000])
def test_what_stands_behind_a_command_takes_no_time(check_files, text):
    """Seconds each, and more than a minute, where a pattern is tried from each letter."""
    assert check_files({"run.sh": f"{ONE % ''}{text}\n", "ds.json": CONFIG}).code in (0, 1, 2)
