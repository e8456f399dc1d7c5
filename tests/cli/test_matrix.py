"""`zeroplan matrix`: every cell is what `estimate` says, in each form it is written in."""

from __future__ import annotations

import csv

import pytest

from tests.conftest import ROOT

WORDS = ("matrix", "--params", "1.3B,7B", "--gpus", "8", "--gpu-mem", "24")
GiB = 2**30
OFFLOAD = {
    "ZeRO-2 + CPU": ("--stage", "2", "--offload-optimizer", "cpu"),
    "ZeRO-3 + CPU": ("--stage", "3", "--offload-optimizer", "cpu", "--offload-param", "cpu"),
}
STRATEGIES = {**{f"ZeRO-{stage}": ("--stage", str(stage)) for stage in range(4)}, **OFFLOAD}


@pytest.mark.parametrize(("strategy", "typed"), STRATEGIES.items(), ids=STRATEGIES)
def test_a_cell_is_an_estimate(zeroplan, strategy, typed):
    cell = zeroplan(*WORDS, "--json").json["rows"][1]["strategies"][strategy]
    alone = zeroplan("estimate", "--params", "7B", "--gpus", "8", "--gpu-mem", "24", *typed, "--json").json
    assert (cell["needed"], cell["fits"]) == (alone["fit"]["needed"], alone["fit"]["fits"])
    assert cell["host_needed"] == alone["fit"]["host"]["needed"]
    assert cell["step"] == alone["time"]["step"]


def test_each_form_has_the_same_cells(zeroplan):
    cells = zeroplan(*WORDS, "--json").json["rows"][1]["strategies"]
    marks = {"fits": "", "tight": " ~", "does_not_fit": " ✗"}
    shown = [f"{one['needed'] / GiB:.2f}{marks[one['verdict']]}" for one in cells.values()]
    markdown = zeroplan(*WORDS, "--format", "markdown").out.splitlines()
    assert markdown[0] == f"| GiB per GPU | {' | '.join(STRATEGIES)} |"
    assert markdown[3] == f"| 7B | {' | '.join(shown)} |"
    header, _first, second = csv.reader(zeroplan(*WORDS, "--format", "csv").out.splitlines())
    assert header[:4] == ["model", "parameters", "ZeRO-0 GiB", "ZeRO-0 verdict"]
    assert second[:2] == ["7B", "7000000000"]
    assert second[2::2] == [text.split()[0] for text in shown]
    assert second[3::2] == [one["verdict"] for one in cells.values()]
    text = zeroplan(*WORDS)
    row = next(line for line in text.out.splitlines() if line.startswith("7B "))
    assert row.split()[1:] == " ".join(shown).split()


def test_the_answer_names_the_first_that_fits(zeroplan):
    found = zeroplan(*WORDS, "-q").out
    assert found == "On 8 GPUs of 23.70 GiB (NVIDIA GeForce RTX 3090 24GB): the first that fits is ZeRO-1 for 1.3B, " \
        "ZeRO-3 + CPU for 7B.\n"  # fmt: skip
    none = zeroplan("matrix", "--params", "70B", "--gpus", "1", "--gpu-mem", "24")
    assert none.code == 1
    assert "nothing fits for 70B" in none.out


def test_without_a_card_nothing_fits_or_fails(zeroplan):
    ran = zeroplan("matrix", "--model", "gpt2,llama-3.1-8b", "--gpus", "8")
    assert ran.code == 0
    assert "✗" not in ran.out
    assert ran.out.startswith("What each of 8 GPUs needs, in GiB.")


def test_the_usual_sizes_stand_in(zeroplan):
    found = zeroplan("matrix", "--gpu-mem", "80", "--json").json
    assert [row["model"]["name"] for row in found["rows"]] == ["1.3B", "7B", "13B", "70B"]
    assert "8 GPUs (--gpus)" in found["assumed"]


def test_a_node_s_memory_and_what_cannot_run_are_marked(zeroplan):
    small = zeroplan("matrix", "--params", "7B", "--gpu-mem", "80", "--host-mem", "60GiB").out
    row = next(line for line in small.splitlines() if line.startswith("7B "))
    assert row.split()[-1] == "h"
    assert "h: more than the 60.00 GiB of a node's memory" in " ".join(small.split())
    lamb = zeroplan("matrix", "--params", "1.3B,7B", "--gpu-mem", "80", "--optimizer", "lamb")
    assert "1.3B, 7B, ZeRO-2 + CPU: --optimizer lamb runs on the GPU only" in lamb.out
    cell = zeroplan("matrix", "--params", "7B", "--optimizer", "lamb", "--json").json["rows"][0]["strategies"]
    assert "runs on the GPU only" in cell["ZeRO-3 + CPU"]["reason"]


@pytest.mark.parametrize("columns", [80, 140])
def test_nothing_is_cut_or_too_wide(zeroplan, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = zeroplan("matrix", "--params", "1.3B,7B,405B", "--gpu-mem", "80").out.splitlines()
    assert all(len(line) <= columns for line in lines[1:])
    assert "…" not in "\n".join(lines)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--stage", "2"), "matrix: found --stage, expected none, for stages and offload are its columns"),
        (("--format", "html"), "--format: found 'html', expected text, markdown, csv; write --format markdown"),
        (("--json", "--format", "csv"), "--json and --format csv both say what is printed; keep one"),
        (("--gpus", "8,16"), "matrix: found several values behind --gpus, expected them behind any of --params, --model"),
        (("--params", "7B,", "--gpus", "8"), "--params: found '7B,', expected something on both sides of each comma; write --params 7B"),
        (("--params", "7B", "--model", "gpt2,gpt2-xl"), "--params and --model both name"),
    ],
)
def test_bad_input_is_one_line(zeroplan, words, expected):
    ran = zeroplan("matrix", *words)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert expected in ran.err


def test_from_python():
    import zeroplan

    found = zeroplan.matrix(params=["1.3B", "7B"], gpus=8)
    assert list(found.rows) == ["1.3B", "7B"]
    assert list(found.rows["7B"]) == list(STRATEGIES)
    assert found.fits is None
    assert found.csv().startswith("model,parameters,")


def test_a_spreadsheet_takes_no_model_s_name_for_a_formula(zeroplan, tmp_path):
    file = tmp_path / "=cmd.json"
    file.write_text((ROOT / "tests/references/logs/config.json").read_text())
    rows = list(csv.reader(zeroplan("matrix", "--model", str(file), "--gpus", "8", "--format", "csv").out.splitlines()))
    assert rows[1][0] == "'=cmd"
