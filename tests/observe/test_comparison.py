"""Predicted beside observed: where a number is DeepSpeed's own, both are equal; the rest is arithmetic."""

from __future__ import annotations

import pytest

from tests.observe.test_log import LOGS, STAGE_2, STAGE_3

ELEMENTS = 2 * 1000 * 256 + 4 * (4 * 256 * 256 + 3 * 256 * 704) + 9 * 256
"""Embedding and head, four layers of attention and MLP, nine norms."""
TOKENS = 2 * 64
MACS = TOKENS * (ELEMENTS - 1000 * 256 - 9 * 256) + 4 * 2 * 2 * 64 * 64 * 256
"""Products of layers and head; scores and their sums of values over all pairs, for two sequences in four layers."""
JOB = ("--model", str(LOGS / "config.json"), "--gpus", "2", "--micro-batch", "2", "--grad-accum", "2", "--seq", "64")


def rows(zeroplan, *arguments: str):
    ran = zeroplan("observe", *arguments, *JOB, "--json")
    assert ran.code == 0, ran.err
    return {(row["group"], row["name"], row["unit"]): row for row in ran.json["observed"]}, ran.json


@pytest.mark.parametrize(
    ("stage", "collective", "calls", "size"),
    [  # three optimizer steps of two micro-steps lie between the summaries
        (2, "all_reduce", 3 * (2 + 2), 3 * (2 * 2 * ELEMENTS + 4 + 1)),  # a bucket each, the norm, the overflow flag
        (2, "all_gather", 3, 3 * ELEMENTS),  # each rank brings its half of two bytes an element
        # the 16 matrices of attention and the 9 norms are kept whole, and gathered after the step
        (3, "all_gather", 3 * (2 + 25), 3 * (2 * (ELEMENTS - 16 * 65536 - 9 * 256) + 16 * 65536 + 9 * 256)),
        (3, "reduce_scatter", 3 * 2, 3 * 2 * 2 * ELEMENTS),
        (3, "all_reduce", 3, 3 * 8),
    ],
)
def test_collectives_are_as_deepspeed_logged_them(zeroplan, stage, collective, calls, size):
    found, _ = rows(zeroplan, str({2: STAGE_2, 3: STAGE_3}[stage]), "--stage", str(stage), "--backend", "cpu")
    counted, sent = found["collectives", collective, "calls"], found["collectives", collective, "bytes"]
    assert counted["observed"] == counted["predicted"] == calls
    assert sent["predicted"] == size
    assert abs(sent["observed"] - size) <= sent["half"]
    assert sent["difference"] == 0


def test_the_profiler_counts_the_products_that_are_predicted(zeroplan):
    found, _ = rows(zeroplan, str(STAGE_2), "--stage", "2")
    group = "forward of one micro-batch on one GPU"
    assert found[group, "parameters", "parameters"]["predicted"] == ELEMENTS
    assert found[group, "multiply-accumulates", "MACs"]["predicted"] == MACS
    assert found[group, "multiply-accumulates", "MACs"]["observed"] == pytest.approx(MACS, rel=1e-4)
    assert found[group, "multiply-accumulates", "MACs"]["difference"] == 0


def test_stage_3_doubles_linear_layers_in_the_profiler_and_a_note_says_so(zeroplan):
    found, whole = rows(zeroplan, str(STAGE_3), "--stage", "3")
    group = "forward of one micro-batch on one GPU"
    linear = TOKENS * (ELEMENTS - 1000 * 256 - 9 * 256)
    observed = found[group, "multiply-accumulates", "MACs"]["observed"]
    assert observed == pytest.approx(MACS + linear, rel=1e-4)
    assert any("counts the products of nn.Linear twice" in note for note in whole["notes"])
    assert (group, "parameters", "parameters") not in found


def test_times_are_there_with_a_card_and_not_without(zeroplan):
    without, whole = rows(zeroplan, str(STAGE_2), "--stage", "2")
    name = "time of an optimizer step", "all three", "s"
    assert without[name]["predicted"] is None
    assert without[name]["difference"] is None
    assert any("No time is predicted" in note for note in whole["notes"])
    found, _ = rows(zeroplan, str(STAGE_2), "--stage", "2", "--gpu", "a100")
    estimated = zeroplan("estimate", *JOB, "--stage", "2", "--gpu", "a100", "--json").json["time"]["step"]
    assert found[name]["predicted"] == pytest.approx(estimated)
    parts = [found["time of an optimizer step", part, "s"]["predicted"] for part in ("forward", "backward", "step")]
    assert sum(parts) == pytest.approx(estimated)
    samples = found["throughput", "of a step", "samples/s"]["predicted"]
    assert samples == pytest.approx(2 * 2 * 2 / estimated)  # micro-batch, accumulation, GPUs


def test_memory_beside_what_estimate_says(zeroplan):
    found, _ = rows(zeroplan, str(STAGE_2), "--stage", "2", "--gpu", "a100")
    memory = zeroplan("estimate", *JOB, "--stage", "2", "--gpu", "a100", "--json").json["memory"]["gpu"]
    group = "memory of a GPU"
    assert found[group, "held between steps", "bytes"]["predicted"] == memory["resident"]
    assert found[group, "most allocated", "bytes"]["predicted"] == memory["peak"]["bytes"]
    assert found[group, "backward, most allocated", "bytes"]["predicted"] == memory["phases"]["backward"]
    assert found[group, "most reserved", "bytes"]["predicted"] == memory["levels"]["reserved"]["bytes"]


def test_on_the_cpu_memory_is_the_process_s_and_has_no_prediction(zeroplan):
    found, whole = rows(zeroplan, str(STAGE_2), "--stage", "2", "--backend", "cpu")
    memory = [row for (group, _, _), row in found.items() if group.startswith("memory")]
    assert memory
    assert all(row["predicted"] is None for row in memory)
    assert any("On the CPU" in note for note in whole["notes"])


def test_after_step_counts_where_gradients_are_gone(zeroplan, tmp_path):
    """Of each two micro-steps' lines the lower one; the median of three such."""
    log = tmp_path / "run.log"
    line = "Engine after step\nMA {} GB         Max_MA 9.0 GB         CA 9.5 GB         Max_CA 10 GB \n"
    log.write_text("".join(line.format(size) for size in (5.0, 3.0, 5.0, 3.5, 5.0, 4.0)))
    found, whole = rows(zeroplan, str(log), "--stage", "2")
    held = found["memory of a GPU", "held between steps", "bytes"]
    assert (held["observed"], held["seen"], held["line"]) == (3.5 * 2**30, 3, 12)
    assert held["half"] == 0.005 * 2**30
    assert "collectives" not in {row["group"] for row in whole["observed"]}
    assert found["memory of a GPU", "most reserved", "bytes"]["observed"] == 9.5 * 2**30


def summary(calls: int) -> str:
    row = f"{' ': <20}{'7.11 MB': <20}{calls: <20}{1.5: <20.2f}{0.5: <20.2f}{1.0: <20.2f}{1.0: <20.2f}\n"
    return (
        f"{'Comm. Op': <20}{'Message Size': <20}{'Count': <20}{'Total Latency(ms)': <20}\nreduce_scatter_tensor\n{row}"
    )


def test_one_summary_needs_the_number_of_steps(zeroplan, tmp_path):
    log = tmp_path / "run.log"
    log.write_text(summary(14))
    found, whole = rows(zeroplan, str(log), "--stage", "3")
    assert found["collectives", "reduce_scatter", "calls"]["predicted"] is None
    assert any("write --steps" in note for note in whole["notes"])
    found, _ = rows(zeroplan, str(log), "--stage", "3", "--steps", "7")
    assert found["collectives", "reduce_scatter", "calls"]["predicted"] == 14


def test_another_job_than_the_logs_is_said(zeroplan):
    ran = zeroplan(
        "observe", str(STAGE_2), "--model", str(LOGS / "config.json"), "--gpus", "4", "--stage", "2", "--json"
    )
    said = ran.json["contradictions"]
    assert "The log's run had world size 2, predicted is 4: state the run's own options." in said
    assert not [note for note in ran.json["notes"] if note in said]
    _, whole = rows(zeroplan, str(STAGE_2), "--stage", "2")
    assert whole["contradictions"] == []


def test_contradictions_stand_right_below_the_answer(zeroplan, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    log = str(STAGE_2)
    ran = zeroplan("observe", log, *JOB, "--stage", "3", "--precision", "fp16")
    assert ran.out.splitlines()[1:3] == [
        "The log's run had ZeRO stage 2, predicted is 3: state the run's own options.",
        "The log's run had dtype bfloat16, predicted is float16: state the run's own options.",
    ]
    quiet = zeroplan("observe", log, *JOB, "--stage", "3", "-q").out.splitlines()
    assert len(quiet) == 2


def test_of_two_runs_in_a_file_the_answer_says_which_is_observed(zeroplan, tmp_path):
    log = tmp_path / "run.log"
    log.write_bytes(STAGE_2.read_bytes() + STAGE_3.read_bytes())
    both, whole = rows(zeroplan, str(log), "--stage", "3")
    alone, _ = rows(zeroplan, str(STAGE_3), "--stage", "3")
    assert {key: row["observed"] for key, row in both.items()} == {key: row["observed"] for key, row in alone.items()}
    assert (whole["runs"], whole["first_line"]) == (2, 528)
    answer = zeroplan("observe", str(log), *JOB, "--stage", "3", "-q").out
    assert "the last of 2 runs, from line 528 on, 5 optimizer steps" in answer


@pytest.mark.parametrize("columns", ["80", "90"])
def test_rows_are_not_folded_at_the_usual_width(zeroplan, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    out = zeroplan("observe", str(STAGE_2), "--stage", "2", "--gpu", "a100", *JOB, "-v").out
    lines = [line for line in out.splitlines() if line.strip()]
    names = ("initialize, most allocated", "multiply-accumulates", "running average", "held between steps", "most reserved")
    for name in names:
        row = next(line for line in lines if line.startswith(name))
        assert len(row.split("  ")) > 4, row
    folded = [line for line in lines if line.strip() in ("steps", "allocated", "tes", "average", ")")]
    assert folded == []
    assert max(map(len, lines[1:])) <= int(columns)


def test_the_screen_names_file_and_line(zeroplan, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    ran = zeroplan("observe", str(STAGE_2), "--stage", "2", *JOB, "-v")
    assert ran.code == 0
    at = max(number for number, text in enumerate(STAGE_2.read_text().splitlines(), 1) if "fwd MACs per GPU:" in text)
    row = next(line for line in ran.out.splitlines() if line.startswith("multiply-accumulates"))
    assert row.split() == [
        "multiply-accumulates",
        "460.6",
        "M",
        "460.6",
        "M",
        "0",
        "median",
        "of",
        "2",
        f"{STAGE_2.name}:{at}",
    ]
    quiet = zeroplan("observe", str(STAGE_2), "--stage", "2", *JOB, "-q")
    assert len(quiet.out.splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "options", "fragments"),
    [
        (None, ("--stage", "2"), ("no such file",)),
        ("folder", ("--stage", "2"), ("found a folder",)),
        ("", ("--stage", "2"), ("found no known line, 0 read", "wall_clock_breakdown", "memory_breakdown")),
        (
            "loss 2.5\nloss 2.4\n",
            ("--stage", "2"),
            ("found no known line, 2 read", "comms_logger", "flops_profiler", "steps_per_print"),
        ),
        (b"\x1f\x8b\x08\x00time (ms) |", ("--stage", "2"), ("found a gzip file", "write gunzip -c ")),
        ("time (ms) | fwd: 1.0 |\n".encode("utf-16"), ("--stage", "2"), ("found UTF-16 text", "iconv -f UTF-16")),
        ("loss\n", (), ("--stage",)),
        ("loss\n", ("--stage", "2", "--steps", "many"), ("--steps", "'many'")),
    ],
)
def test_what_cannot_be_read_is_one_line(zeroplan, tmp_path, text, options, fragments):
    log = tmp_path / "run.log"
    if text == "folder":
        log.mkdir()
    elif text is not None:
        log.write_bytes(text if isinstance(text, bytes) else text.encode())
    ran = zeroplan("observe", str(log), *JOB, *options)
    assert (ran.code, ran.out) == (2, "")
    assert len(ran.err.splitlines()) == 1
    for fragment in fragments:
        assert fragment in ran.err
