"""Rows that others bring: read without trust, and a reason for each that cannot be computed."""

from __future__ import annotations

import csv

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import published_memory
from benchmarks.published import fits, measures
from benchmarks.published.engines import predict
from benchmarks.published.rows import ALLOCATED, HELD, RESERVED, USED, Row, UncomputableError, read

ROWS = read()
NAMED = {row.name: row for row in ROWS}
LLAMA = NAMED["chenyaofo-5-max"].text
OTHERS = ("bslog3Don-1", "tt-T5a", "simumax-llama3_405b_l4_tp1_pp2_dp4_mbc4_cef", "mleng-H200-8K", "tr3m-29")
SPOILT = ["", "0", "-1", "1e9", "1e400", "full", "?", "nan", "stage 3", "dp=0,tp=0", "dp=3,tp=7,pp=5", "rank 9999"]


@pytest.mark.parametrize(
    ("words", "level"),
    [
        ("torch.cuda.memory_allocated", HELD), ("allocated after iteration 1 (rank 0)", HELD),
        ("MemAllocated between steps", HELD), ("torch.cuda.max_memory_allocated", ALLOCATED),
        ("torch max allocated, rank 0", ALLOCATED), ("MaxMemAllocated", ALLOCATED),
        ("torch.cuda.max_memory_reserved, worst rank", RESERVED), ("GPU memory usage", USED),
        ("nvidia-smi used memory per GPU, rounded", USED),
    ],
)  # fmt: skip
def test_levels_are_told_apart_by_their_words(words, level):
    assert Row({"what_was_measured": words}).level == level


@pytest.mark.parametrize(("text", "number"), [("8", 8), ("2 (ds_config default)", 2), ("", None), ("32 total over", None)])
def test_a_number_is_read_or_missing(text, number):
    assert Row({"micro_batch": text}).count("micro_batch") == number


def test_a_bucket_is_read_from_the_notes():
    row = Row({"notes": "stage3_prefetch 1e7, max_live 1e9, reduce_bucket 67108864, overlap_comm"})
    assert (row.setting("reduce_?bucket"), row.setting("prefetch"), row.setting("max_live")) == (67108864, 10**7, 10**9)


@pytest.mark.parametrize("words", ["no Liger; HF eager logits/CE", "without liger", ""])
def test_liger_is_not_read_where_it_is_denied(words):
    assert not Row({"framework": "deepspeed + HF transformers", "notes": words}).liger


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    name=st.sampled_from(["chenyaofo-5-max", *OTHERS]), column=st.sampled_from(sorted(LLAMA)),
    text=st.text(max_size=20) | st.sampled_from(SPOILT),
)  # fmt: skip
def test_a_spoilt_column_gives_a_reason_or_a_prediction_but_no_crash(name, column, text):
    row = Row({**NAMED[name].text, column: text})
    measures.compare([row])
    fits.ran_out([row])


def test_missing_columns_give_a_reason():
    table = measures.compare([Row({"id": "x", "value_gib": "3"})])
    assert table.left_out
    assert not table.compared


def test_a_row_without_a_form_says_so():
    row = next(row for row in ROWS if row.name == "oneflow-0")
    with pytest.raises(UncomputableError, match="no form for oneflow"):
        predict(row)


def test_another_file_is_measured(tmp_path, capsys):
    path = tmp_path / "rows.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(LLAMA))
        writer.writeheader()
        writer.writerow({**LLAMA, "id": "mine-1"})
        writer.writerow({**LLAMA, "id": "mine-2", "hidden": "?"})
    assert published_memory.main(["--rows", str(path), "--all"]) == 0
    printed = capsys.readouterr().out
    assert "mine-1" in printed
    assert "hidden is '?': no number" in printed


def test_a_file_that_is_not_there_is_named(capsys):
    with pytest.raises(SystemExit) as ended:
        published_memory.main(["--rows", "no/such.csv"])
    assert ended.value.code == 2
    assert "no/such.csv" in capsys.readouterr().err
