"""Log lines as DeepSpeed 0.19.8 printed them (tests/references/make_logs.py), and as launchers and files mangle them."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from tests.conftest import REFERENCES
from zeroplan.observe.log import read_log

LOGS = REFERENCES / "logs"
STAGE_2, STAGE_3 = LOGS / "stage_2_0.19.8.log", LOGS / "stage_3_0.19.8.log"
GiB = 2**30


def printed(path: Path, before: str, after: str) -> list[float]:
    """Numbers between two texts, one a line at most: read another way than the parser does."""
    lines = [line for line in path.read_text().splitlines() if before in line]
    return [float(line.split(before, 1)[1].split(after, 1)[0]) for line in lines]


def test_the_fixtures_say_what_made_them():
    for path in (STAGE_2, STAGE_3):
        assert "made with deepspeed 0.19.8, torch 2.13.0+cpu, transformers 5.23.0" in path.read_text()


@pytest.mark.parametrize("path", [STAGE_2, STAGE_3])
def test_timers_in_seconds(path):
    log = read_log(str(path))
    assert log.steps == 5
    for name in ("fwd", "bwd", "step_microstep"):
        assert list(log.series["time", name].values) == pytest.approx(
            [value / 1e3 for value in printed(path, f"| {name}: ", " |") if value]
        ), name


def test_memory_is_gib_though_it_says_gb():
    log, path = read_log(str(STAGE_2)), STAGE_2
    found = [value for (what, _), series in log.series.items() if what == "MA" for value in series.values]
    assert sorted(found) == pytest.approx(sorted(value * GiB for value in printed(path, "MA ", " GB")))
    assert len(log.series["Max_MA", "Engine after backward"].values) == 10  # five steps of two micro-steps
    assert list(log.series["host", "used"].values) == pytest.approx(
        [value * GiB for value in printed(path, "used = ", " GB")]
    )


def test_throughput_lines_come_with_the_log_level_info():
    log = read_log(str(STAGE_2))
    assert list(log.series["samples/s", "average"].values) == printed(STAGE_2, "RunningAvgSamplesPerSec=", ",")
    assert list(log.series["MaxMemAllocated", "throughput"].values) == pytest.approx(
        [value * GiB for value in printed(STAGE_2, "MaxMemAllocated=", "GB")]
    )
    assert ("samples/s", "average") not in read_log(str(STAGE_3)).series


def test_the_flops_profiler():
    log = read_log(str(STAGE_2))
    assert list(log.series["profile", "fwd MACs per GPU"].values) == [460.59e6, 460.59e6]
    assert list(log.series["profile", "fwd flops per GPU"].values) == [921.53e6, 921.53e6]
    assert read_log(str(STAGE_3)).job == {"world size": 2, "batch size per GPU": 2}


def test_what_the_run_was_comes_with_the_log_level_info():
    assert read_log(str(STAGE_2)).job == {
        "world size": 2, "batch size per GPU": 2, "accumulation": 2, "ZeRO stage": 2, "dtype": "bfloat16",
    }  # fmt: skip


@pytest.mark.parametrize("how", ["as printed", "pdsh", "torchrun", "colours", "progress bars"])
@pytest.mark.parametrize(("first", "second"), [(STAGE_2, STAGE_3), (STAGE_3, STAGE_2), (STAGE_2, STAGE_2)])
def test_of_several_runs_in_one_file_the_last_is_read(first, second, how, tmp_path):
    both = tmp_path / "run.log"
    text = first.read_bytes() + second.read_bytes()
    both.write_bytes(text if how == "as printed" else mangled(how, text))
    alone, found = read_log(str(second)), read_log(str(both))
    before = len(first.read_text().splitlines())
    assert (found.runs, found.lines, found.steps) == (2, before + alone.lines, alone.steps)
    begins = {STAGE_2: "Initializing TorchBackend", STAGE_3: "After args sanity test"}[second]
    inside = next(at for at, line in enumerate(second.read_text().splitlines(), 1) if begins in line)
    assert found.first == before + inside
    assert {key: (list(s.values), [line - before for line in s.lines]) for key, s in found.series.items()} == {
        key: (list(s.values), list(s.lines)) for key, s in alone.series.items()
    }
    assert [summary.steps for summary in found.summaries] == [summary.steps for summary in alone.summaries]
    assert found.job == alone.job


def test_a_run_begins_where_steps_are_counted_from_0_again(tmp_path):
    log = tmp_path / "run.log"
    run = "[Rank 0] step=0, skipped=0, lr=[0]\n" * 2 + "".join(f"[Rank 0] step={n}, skipped=0, lr=[0]\n" for n in (1, 2, 7))
    log.write_text(run * 3 + "[Rank 0] time (ms) | fwd: 1.00 | bwd: 1.00 | step: 1.00\n")
    found = read_log(str(log))
    assert (found.runs, found.first, found.lines) == (3, 11, 16)
    assert read_log(str(STAGE_2)).runs == read_log(str(STAGE_3)).runs == 1


@pytest.mark.parametrize("path", [STAGE_2, STAGE_3])
def test_summaries_of_the_comms_logger(path):
    log = read_log(str(path))
    assert [summary.steps for summary in log.summaries] == [2, 5]
    for summary in log.summaries:
        assert set(summary.collectives) == {"broadcast", "all_reduce", "all_gather"} | (
            {"reduce_scatter"} if path == STAGE_3 else set()
        )
    # 3,726,592 bf16 elements in a bucket, once a micro-step: "7.11 MB" are MiB
    name = "reduce_scatter" if path == STAGE_3 else "all_reduce"
    found = log.summaries[-1].collectives[name]
    assert abs(found.bytes - 10 * 2 * 3_726_592) < 10 * 2**20 * 0.006


def mangled(how: str, text: bytes) -> bytes:
    lines = text.splitlines()
    if how == "pdsh":
        return b"\n".join(b"worker-0: " + line for line in lines)
    if how == "torchrun":
        return b"\n".join(b"[default0]:" + line for line in lines)
    if how == "srun":
        return b"\n".join(b"0: " + line for line in lines)
    if how == "colours":
        return b"\n".join(b"\x1b[32m" + line + b"\x1b[0m" for line in lines)
    if how == "dos":
        return b"\r\n".join(lines)
    if how == "not utf-8":
        return b"\n".join(b"\xff\xfe\x00" + line if line.startswith(b"[Rank") else line for line in lines)
    assert how == "progress bars"
    return b"\n".join(b"\r 10%|#         | 1/10\r 20%|##        | 2/10\r" + line for line in lines)


@pytest.mark.parametrize("path", [STAGE_2, STAGE_3])
@pytest.mark.parametrize("how", ["pdsh", "torchrun", "srun", "colours", "dos", "not utf-8", "progress bars"])
def test_prefixes_colours_and_foreign_bytes_change_nothing(how, path, tmp_path):
    changed = tmp_path / "run.log"
    changed.write_bytes(mangled(how, path.read_bytes()))
    plain, found = read_log(str(path)), read_log(str(changed))
    assert found.lines == plain.lines
    assert {key: (list(s.values), list(s.lines)) for key, s in found.series.items()} == {
        key: (list(s.values), list(s.lines)) for key, s in plain.series.items()
    }
    for one, other in zip(plain.summaries, found.summaries, strict=True):
        assert {n: vars(c) for n, c in one.collectives.items()} == {n: vars(c) for n, c in other.collectives.items()}


def test_a_line_without_end_is_read_in_pieces(tmp_path):
    long = tmp_path / "run.log"
    long.write_bytes(b"x" * 3_000_000 + b"\n[Rank 0] time (ms) | fwd: 1500.00 | bwd: 3000.00 | step: 5.00\n")
    log = read_log(str(long))
    assert log.lines == 2
    assert list(log.series["time", "fwd"].values) == [1.5]
    assert list(log.series["time", "fwd"].lines) == [2]


def test_stragglers_are_another_table(tmp_path):
    head = f"{'Comm. Op': <20}{'Message Size': <20}{'Count': <20}"
    row = f"{' ': <20}{'2.0 KB': <20}{3: <20}{1.5: <20.2f}{0.5: <20.2f}{1.0: <20.2f}{1.0: <20.2f}\n"
    log = tmp_path / "run.log"
    log.write_text(
        f"{head}{'Total Latency(ms)': <20}{'Avg Latency(ms)': <20}\nall_reduce | [Caller Func: step]\n{row}"
        f"_____\nBreakdown with straggler effect\n-----\n{head}{'Total comm lat(ms)': <20}\nall_reduce\n{row}"
    )
    found = read_log(str(log)).summaries
    assert len(found) == 1
    assert (found[0].collectives["all_reduce"].calls, found[0].collectives["all_reduce"].bytes) == (3, 3 * 2048)
    assert found[0].collectives["all_reduce"].seconds == pytest.approx(1.5e-3)


def test_median_of_the_fixture_is_that_of_its_lines():
    values = printed(STAGE_3, "| bwd: ", " |")
    assert statistics.median(read_log(str(STAGE_3)).series["time", "bwd"].values) == pytest.approx(
        statistics.median(values) / 1e3
    )
