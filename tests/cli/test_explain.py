from __future__ import annotations

import re

import pytest

from zeroplan.deepspeed.keys import KEYS


def test_a_line_shows_formula_symbols_values_and_source(zeroplan):
    ran = zeroplan("explain", "optimizer states", "--params", "7B", "--gpus", "8")
    text = " ".join(ran.out.split())
    assert ran.code == 0
    for said in (
        "⌈K·Ψ / N⌉",
        "⌈12·7,000,000,000 / 8⌉",
        "10,500,000,000",
        "data-parallel ranks",
        "§5.1",
        "arxiv.org/abs/1910.02054",
    ):
        assert said in text


@pytest.mark.parametrize("term", ["reduce_bucket_size", "zero_optimization.reduce_bucket_size"])
def test_a_key_shows_default_unit_and_place(zeroplan, term):
    ran = zeroplan("explain", term)
    assert ran.code == 0
    for said in ("500,000,000 elements", "hidden_size * hidden_size", "runtime/zero/config.py"):
        assert said in ran.out


@pytest.mark.parametrize("path", [p for p in KEYS if p.startswith(("zero_optimization.", "aio."))])
def test_every_zero_and_aio_key_is_explained(zeroplan, path):
    ran = zeroplan("explain", path)
    assert ran.code == 0
    assert path in ran.out


@pytest.mark.parametrize(
    "term", ["gradients", "all-gather", "reduce bucket", "gathered parameters", "logits", "checkpoints"]
)
def test_lines_transfers_and_formulas(zeroplan, term):
    assert zeroplan("explain", term, "--checkpointing", "full", "--json").json["entries"]


def test_an_unknown_term_suggests_the_nearest(zeroplan):
    ran = zeroplan("explain", "optimiser state")
    assert ran.code == 2
    assert "optimizer states" in ran.err


def test_activations_are_explained_beside_two_papers(zeroplan, monkeypatch):
    """GPT-2's layer at 1 × 1,024 tokens: 34·768·1,024 + 5·12·1,024² by Korthikanti; three more of gelu_new's results."""
    monkeypatch.setenv("COLUMNS", "150")  # no equation is wrapped
    ran = zeroplan("explain", "activations", "--model", "gpt2", "--gpus", "1", "--seq", "1024", "--attention", "eager", "-v")
    text = " ".join(ran.out.split())
    assert ran.code == 0
    for said in (
        f"{34 * 768 * 1024 + 5 * 12 * 1024**2:,}",
        "34·b·s·h + 5·n·b·s^2",
        "(1 + 2·w)·n·T·s",
        f"+{16 * 1024:,}",
        f"+{3 * 2 * 1024 * 4 * 768:,}",
        "arxiv.org/abs/2205.05198",
        "NativeDropout",
    ):
        assert said in text


@pytest.mark.parametrize("checkpointing", ["none", "selective", "full"])
def test_activations_for_a_program(zeroplan, checkpointing):
    typed = ("--model", "llama-3.2-1b", "--gpus", "1", "--stage", "1", "--checkpointing", checkpointing, "--json")
    found = zeroplan("explain", "activations", *typed).json["activations"]
    estimate = zeroplan("estimate", *typed).json
    forms = {entry["name"]: entry["bytes"] for entry in found["closed_forms"]}
    assert forms["activation checkpoints"] == 2 * 2048 * 2048 * 16
    held = estimate["memory"]["gpu"]["activations"]
    counted = found["counted"]
    layers = sum(make["layers"] * make["bytes"] for make in counted["layers"])
    assert layers + sum(each["bytes"] for each in counted["rest"]) == counted["saved"] == held["saved"]
    for make in counted["layers"]:
        assert sum(each["bytes"] for each in make["kept"]) == make["bytes"]


def test_activations_are_counted_once(zeroplan):
    """No closed form stands beside the model's own lines, under selective checkpointing neither."""
    for model in ("gpt2", "bert-base"):
        typed = "explain", "activations", "--model", model, "--gpus", "1", "--json"
        assert not zeroplan(*typed).json["entries"]
        assert not zeroplan(*typed, "--checkpointing", "selective").json["entries"]


def test_the_letters_of_an_equation_are_explained(zeroplan):
    """GPT-2 keeps two results of gelu_new in each of 12 layers for products: 24·w·T·f."""
    out = zeroplan("explain", "products", "--model", "gpt2", "--gpus", "1", "--stage", "0").out
    assert "24·w·T·f" in out
    for letter, meaning in (("w", "bytes of one element"), ("T", "tokens of one micro-batch"), ("f", "width of the MLP")):
        assert f"  {letter}  {meaning}" in out
    assert "bytes of the line itself" not in out


def test_what_was_counted_is_shown_as_a_count(zeroplan, monkeypatch):
    """The reduce bucket of 500,000,000 elements in bf16: no letters that stand for numbers of a replay."""
    monkeypatch.setenv("COLUMNS", "150")  # no count is wrapped
    typed = "reduce bucket", "--model", "llama-3.1-8b", "--gpus", "8", "--stage", "3"
    text = " ".join(zeroplan("explain", *typed, "-v").out.split())
    for said in ("2 bytes × 500,000,000 elements", "counted: bytes of one × elements", "stage3.py:_setup_for_real_optimizer"):
        assert said in text
    assert "w·Y" not in text
    counted = zeroplan("explain", *typed, "--json").json["entries"][-1]
    assert counted["worked"] == "2 bytes × 500,000,000 elements"
    assert counted["symbols"] == {"alive": 500_000_000, "w": 2}
    lines = zeroplan("estimate", *typed[1:], "-vv").out
    assert re.search(r"reduce bucket +0.93 GiB +2 bytes × 500,000,000 elements +init", lines)
    assert "w·Y" not in lines


WORDS = ["peak", "needed", "free", "tokens/s", "MFU", "HFU", "interval"]


@pytest.mark.parametrize("word", WORDS)
def test_a_sum_of_the_tables_is_what_estimate_says(zeroplan, word):
    job = ("--model", "mixtral-8x7b", "--gpus", "16", "--gpu", "h100-80gb", "--stage", "3", "--checkpointing", "full")
    entries = zeroplan("explain", word, *job, "--grad-accum", "2", "--json").json["quantities"]
    found = zeroplan("estimate", *job, "--grad-accum", "2", "--json").json
    time, used = found["time"], [one["value"] for one in found["time"]["utilisation"]]
    said = {
        "peak": found["memory"]["gpu"]["peak"]["bytes"], "needed": found["fit"]["needed"],
        "free": found["fit"]["headroom"], "tokens/s per GPU": time["tokens_per_s_per_gpu"], "MFU": used[0],
        "MFU, causal": used[1], "HFU": used[2], "interval, from": time["interval"]["low"],
        "interval, to": time["interval"]["high"],
    }  # fmt: skip
    assert entries
    for entry in entries:
        assert entry["value"] == pytest.approx(said[entry["name"]], rel=1e-12)
        assert entry["source"]
        assert entry["evidence"]
        assert set(entry["symbols"]) <= set(re.findall(r"[^\W\d]+", entry["formula"]))


def test_a_sum_shows_formula_symbols_values_and_source(zeroplan):
    text = " ".join(zeroplan("explain", "mfu", "--params", "7B", "--gpus", "8", "--gpu", "a100-80gb", "--stage", "2").out.split())
    for said in ("MFU = (6·Ψ + 12·L·q·s)·T·α / (Π·Δ)", "6·7,000,000,000 + 12·32·4,096·2,048", "arxiv.org/abs/2204.02311",
                 "3.12e+14: datasheet", "parameters of the model", "evidence:"):  # fmt: skip
        assert said in text
    text = " ".join(zeroplan("explain", "needed", "--params", "7B", "--gpus", "8").out.split())
    assert "needed = Mp + Mc + Mn" in text
    assert "ZeRO-3" in text
    for line in ("CUDA context", "NCCL buffers"):
        assert "evidence:" in zeroplan("explain", line).out


@pytest.mark.parametrize("word", ["MFU", "tokens per second", "interval"])
def test_what_needs_a_card_says_so(zeroplan, word):
    ran = zeroplan("explain", word)
    assert (ran.code, ran.out) == (2, "")
    assert "no card" in ran.err


ROWS = ["sum", "held between steps", "+ gradients and buffers", "host memory per node", "sent per GPU", "step"]
BESIDE_SUMS = ["peak", "needed", "free", "activations", "CUDA context", "NCCL buffers", "reserved by PyTorch", "nvidia-smi", "from", "to", "compute", "communication", "optimizer", "tokens/s per GPU", "MFU", "HFU"]  # fmt: skip


@pytest.mark.parametrize("row", [*ROWS, *BESIDE_SUMS, "NVMe per node", "offload"])
def test_every_row_of_the_tables_is_explained(zeroplan, row):
    asked = ["--params", "7B", "--gpus", "8", "--gpu", "a100-80gb", "--stage", "3", "--offload-optimizer", "nvme"]
    ran = zeroplan("explain", row, *asked)
    assert (ran.code, ran.err) == (0, "")


@pytest.mark.parametrize("row", ROWS)
def test_a_sum_is_its_parts_and_each_part_is_explained(zeroplan, row):
    asked = ["--params", "1B", "--gpus", "4", "--gpu", "a100-80gb"]
    found = zeroplan("explain", row, *asked, "--json").json["sums"]
    assert [one["stage"] for one in found] == [0, 1, 2, 3]
    for one in found:
        assert sum(part["value"] for part in one["parts"]) == pytest.approx(one["value"], rel=1e-12)
    for name in {part["name"] for one in found for part in one["parts"]}:
        assert zeroplan("explain", name, *asked).code == 0


def test_the_papers_sum_of_7b_is_sixteen_bytes_a_parameter(zeroplan):
    """16·7e9 = 112 GB at stage 0; at stage 3 an eighth of it."""
    found = zeroplan("explain", "sum", "--params", "7B", "--gpus", "8", "--json").json["sums"]
    assert [one["value"] for one in found][::3] == [112 * 10**9, 14 * 10**9]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["NVMe per node"], "--offload-optimizer nvme"),
        (["nvidia-smi", "--backend", "cpu"], "--backend cpu"),
        (["step"], "--gpu"),
    ],
)
def test_a_row_that_is_not_there_says_why(zeroplan, asked, said):
    ran = zeroplan("explain", *asked, "--params", "1B", "--gpus", "2")
    assert ran.code == 2
    assert said in ran.err


@pytest.mark.parametrize(("term", "value"), [
    # gpt2: 12 layers of 768 with weights of 768 x 2,304, 768 x 768, 768 x 3,072 and 3,072 x 768; r 16 on each
    ("lora", 12 * 16 * (768 + 2304 + 768 + 768 + 768 + 3072 + 3072 + 768)),
    ("adapters", 2_359_296),
    # half a byte a weight; a scale of 4 bytes for 64 weights, and a table of 16 such values for each of 48
    ("qlora", 12 * 7_077_888 // 2 + 12 * 7_077_888 // 64 * 4 + 48 * 64),
    ("nf4", 47_778_816),
])  # fmt: skip
def test_adapters_and_quantized_weights_are_explained_though_nobody_trains_any(zeroplan, term, value):
    ran = zeroplan("explain", term, "--model", "gpt2", "--json")
    assert {one["value"] for one in ran.json["quantities"]} == {value}
    assert "(--lora 16" in " ".join(zeroplan("explain", term, "--model", "gpt2", "-v").out.split())


def test_scales_of_a_job_that_nobody_stated(zeroplan):
    ran = zeroplan("explain", "quantization states", "--model", "gpt2", "--stage", "2", "--json")
    assert {one["bytes"] for one in ran.json["entries"]} == {12 * 7_077_888 // 64 * 4 + 48 * 64}


@pytest.mark.parametrize(("words", "said"), [
    (("element-wise operators",), "write --gpu h100-80gb or --gpu-mem 80"),
    (("adapters' element-wise operators",), "write --gpu h100-80gb or --gpu-mem 80, and --lora 16"),
    (("weights unpacked", "--gpu", "h100-80gb"), "this job has none of it; write --lora 16 --quantize nf4"),
    (("quantization states", "--lora", "8"), "this job has none of it; write --quantize nf4"),
])  # fmt: skip
def test_what_a_job_lacks_for_a_line_is_said(zeroplan, words, said):
    ran = zeroplan("explain", *words)
    assert ran.code == 2
    assert ran.err.endswith(f"{said}\n")


def test_every_row_of_a_job_with_adapters_is_explained(zeroplan):
    job = ("--model", "gpt2", "--gpus", "2", "--gpu", "a100-80gb", "--lora", "16", "--quantize", "nf4", "--stage", "2")
    shown = zeroplan("estimate", *job, "--json").json
    rows = {line["name"] for line in shown["memory"]["gpu"]["lines"]} | {term["name"] for term in shown["time"]["terms"]}
    assert {"frozen parameters", "quantization states", "weights unpacked, forward"} <= rows
    rows |= {"sent by each GPU a step", "ZeRO paper", "gradients, buffers", "held", "step"}
    for row in rows:
        assert zeroplan("explain", row, *job).code == 0, row
