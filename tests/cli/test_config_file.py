"""One reader of ds_config files in all commands: hjson, YAML that states or names one, and precision that is filled in."""

from __future__ import annotations

import pytest

HJSON = """{
  # per GPU
  "train_micro_batch_size_per_gpu": 1,
  bf16: {enabled: true},
  "zero_optimization": {"stage": 2,},
}
"""
PLAIN = '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}'
NO_PRECISION = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}}'
MODEL = ("--model", "gpt2", "--gpus", "8", "--seq", "128")


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def written(name, text):
        (tmp_path / name).write_text(text, encoding="utf-8")
        return name

    return written


def test_comments_and_trailing_commas_are_read_as_deepspeed_reads_them(zeroplan, write):
    lenient = zeroplan("estimate", *MODEL, "--config", write("a.json", HJSON), "--json")
    strict = zeroplan("estimate", *MODEL, "--config", write("b.json", PLAIN), "--json")
    assert lenient.json["memory"] == strict.json["memory"]
    assert any("json.load of the Trainer and Accelerate stops" in one for one in lenient.json["assumed"])
    assert not any("json.load" in one for one in strict.json["assumed"])


def test_diff_reads_them_too(zeroplan, write):
    ran = zeroplan("diff", write("a.json", HJSON), write("b.json", PLAIN), "--json")
    assert ran.code == 0, ran.err
    assert ran.json["changes"] == []


def test_diff_compares_what_no_plan_counts(zeroplan, write):
    """Without a model no number is asked for; with one the config is refused."""
    texts = [PLAIN.replace("{", f'{{"tensor_parallel": {{"autotp_size": {size}}}, ', 1) for size in (2, 4)]
    files = write("a.json", texts[0]), write("b.json", texts[1])
    ran = zeroplan("diff", *files, "--json")
    assert ran.code == 0, ran.err
    assert "tensor_parallel.autotp_size" in ran.out
    counted = zeroplan("diff", *files, "--model", "gpt2")
    assert counted.code == 2
    assert "is not planned" in counted.err


def test_compare_reads_them_too(zeroplan, write):
    files = f"{write('a.json', HJSON)},{write('b.json', PLAIN)}"
    ran = zeroplan("compare", *MODEL, "--gpu", "a100-80gb", "--config", files, "--json")
    assert ran.code == 0, ran.err
    lenient, strict = (row["fit"] for row in ran.json["rows"])
    assert lenient == strict


WRONG = {
    "a key twice": ('{"bf16": {"enabled": true,\n "enabled": true}}', "a.json:2:2: found the key 'bf16.enabled' twice"),
    "no JSON": ('{"bf16": {"enabled" true}}', "a.json:1:21: found text that is not JSON"),
    "no number": ('{"gradient_clipping": NaN}', "a.json:1:23: found NaN"),
    "nothing": (" \n", "a.json: found an empty file"),
    "a list": ("[1]", "a.json: found a JSON list"),
    "something else": ("hidden_size: 4096", "a.json: found no key that DeepSpeed knows ('hidden_size')"),
    "a key without a value": ('{"gradient_clipping"}', "a.json:1:21: found text that is not JSON"),
    "too long": ('{"a": "' + 600_000 * "x" + '"}', "a.json: found 600,009 bytes"),
}


@pytest.mark.parametrize(("text", "said"), WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("command", ["estimate", "diff", "recommend"])
def test_what_cannot_be_read_is_one_line_with_its_place(zeroplan, write, text, said, command):
    name = write("a.json", text)
    typed = {
        "estimate": ("estimate", *MODEL, "--config", name),
        "diff": ("diff", name, write("b.json", PLAIN)),
        "recommend": ("recommend", *MODEL, "--gpu", "a100-80gb", "--config", name),
    }[command]
    ran = zeroplan(*typed)
    assert ran.code == 2
    assert said in ran.err
    assert ran.err.count("\n") == 1


def test_a_yaml_that_states_one(zeroplan, write):
    launch = "distributed_type: DEEPSPEED\nmixed_precision: bf16\nnum_processes: 8\ndeepspeed_config: {zero_stage: 2}\n"
    ran = zeroplan("estimate", *MODEL, "--config", write("accelerate.yaml", launch), "--micro-batch", "1",
                   "--grad-accum", "1", "--json")  # fmt: skip
    strict = zeroplan("estimate", *MODEL, "--config", write("b.json", PLAIN), "--json")
    assert ran.json["memory"]["gpu"]["resident"] == strict.json["memory"]["gpu"]["resident"]


@pytest.mark.parametrize(
    "text",
    ["distributed_type: DEEPSPEED\ndeepspeed_config: {deepspeed_config_file: b.json}\n", "deepspeed: b.json\n",
     "deepspeed:\n  train_micro_batch_size_per_gpu: 1\n  bf16: {enabled: true}\n  zero_optimization: {stage: 2}\n",
     "train_micro_batch_size_per_gpu: 1\nbf16: {enabled: true}\nzero_optimization: {stage: 2}\n"],
)  # fmt: skip
def test_a_yaml_that_names_or_is_one(zeroplan, write, text):
    name = write("b.json", PLAIN)
    ran = zeroplan("diff", write("a.yaml", text), name, "--json")
    assert ran.code == 0, ran.err
    assert ran.json["changes"] == []


@pytest.mark.parametrize(
    "text",
    ["deepspeed: gone.json\n", "distributed_type: MULTI_GPU\nnum_processes: 8\n", "deepspeed: null\n", "- 1\n",
     "deepspeed: a.yaml\n"],
)  # fmt: skip
def test_a_yaml_without_one_is_an_error_of_one_line(zeroplan, write, text):
    ran = zeroplan("estimate", *MODEL, "--config", write("a.yaml", text))
    assert ran.code == 2
    assert ran.err.count("\n") == 1
    assert "a.yaml" in ran.err


def test_precision_that_the_trainer_fills_in(zeroplan, write):
    """bf16 weights are 2 bytes, fp32 ones 4."""
    name = write("nop.json", NO_PRECISION)
    bare = zeroplan("estimate", *MODEL, "--config", name, "--json").json
    filled = zeroplan("estimate", *MODEL, "--config", name, "--precision", "bf16", "--json").json
    stated = zeroplan("estimate", *MODEL, "--config", write("b.json", PLAIN), "--json").json
    assert bare["strategy"]["precision"] == "fp32"
    assert any(one.startswith("no precision section: fp32") and one.endswith("write --precision bf16")
               for one in bare["assumed"])  # fmt: skip
    assert filled["strategy"]["precision"] == "bf16"
    assert filled["memory"] == stated["memory"]
    assert any("as the Trainer or Accelerate fills it in" in one for one in filled["assumed"])


def test_a_precision_that_is_off_is_another_matter(zeroplan, write):
    off = NO_PRECISION.replace('"zero', '"bf16": {"enabled": false}, "zero')
    ran = zeroplan("estimate", *MODEL, "--config", write("off.json", off), "--precision", "bf16")
    assert ran.code == 2
    assert "contradicts" in ran.err


def test_the_batch_is_that_of_data_parallel_ranks(zeroplan, write):
    """8 GPUs in sequence groups of 4 are 2 ranks that share a batch: 2 = 1 · 1 · 2."""
    text = PLAIN.replace("{", '{"sequence_parallel_size": 4, "train_batch_size": 2, ', 1)
    wrong = text.replace('"train_batch_size": 2', '"train_batch_size": 3')
    assert zeroplan("estimate", *MODEL, "--partial", "--config", write("a.json", text)).code == 0
    ran = zeroplan("estimate", *MODEL, "--partial", "--config", write("b.json", wrong))
    assert ran.code == 2
    assert "train_batch_size" in ran.err
    third = zeroplan("estimate", *MODEL, "--config", write("c.json", text.replace(": 4", ": 3")))
    assert 'write "sequence_parallel_size": 2' in third.err


def test_advice_is_taken(zeroplan, write):
    text = PLAIN.replace('"bf16": {"enabled": true}', '"fp16": {"enabled": true, "min_loss_scale": 0.05}')
    ran = zeroplan("estimate", *MODEL, "--config", write("a.json", text))
    assert 'write "min_loss_scale": 1' in ran.err
    mended = write("b.json", text.replace("0.05", "1"))
    assert zeroplan("estimate", *MODEL, "--config", mended).code in (0, 1)
