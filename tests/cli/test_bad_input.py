"""Bad input: exit code 2, one line that quotes what was found and says what to write, nothing else, and no harm."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from zeroplan.__main__ import main

LLAMA = {
    "model_type": "llama", "vocab_size": 32000, "hidden_size": 512, "num_hidden_layers": 2,
    "num_attention_heads": 8, "intermediate_size": 1376,
}  # fmt: skip
JOB = ("--params", "7B", "--gpus", "8", "--gpu-mem", "80")
DEEP = 80_000


def as_json(text: str) -> str:
    """Values of a JSON file are quoted as JSON quotes them, the rest as Python does."""
    for python, json_text in (("'", '"'), ("None", "null"), ("True", "true"), ("False", "false")):
        text = text.replace(python, json_text)
    return text


def assert_refused(code: int, out: str, err: str, *fragments: str) -> None:
    assert (code, out) == (2, ""), err
    assert err.startswith("zeroplan: ")
    assert err.endswith("\n")
    assert len(err.splitlines()) == 1, err
    assert "Traceback" not in err
    for fragment in fragments:
        assert as_json(fragment) in as_json(err)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """An empty working folder, an empty Hugging Face cache, and no network."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def listing() -> dict[str, bytes | str | None]:
    """Everything in the working folder: links and folders by name, files by content."""
    found: dict[str, bytes | str | None] = {}
    for path in sorted(Path().rglob("*")):
        found[str(path)] = str(path.readlink()) if path.is_symlink() else path.read_bytes() if path.is_file() else None
    return found


# --- Options -------------------------------------------------------------------------------------------------
# flag -> values; each error quotes the value, and says what to write instead.

COUNTS = (
    "0", "-1", "-7B", "NaN", "inf", "7 B", "7Gb", "7BB", "B7", "  ", "٧", "٧B", "１B", "1e400", "1e999", "10^30",
    "1" + "0" * 30, "0x10", "7_000_000_000", "7,000,000,000", "+7B", "7.5", "1e-3", "seven", ".", "1e", "7B ", "🙂",
)  # fmt: skip
SIZES = (
    "0", "-1", "-80GB", "NaN", "inf", "80Gb", "80 gib", "80 gb", "80g", "80G", "80XB", "80GB/s", "", "  ",
    "٨٠", "٨٠GB", "1e400GB", "1e30GB", "10^30", "0x50", "8_0GB", "+80GB", "80.5", "0GB", "0.0000000001GB", "9EiB",
    "80GB\n",
)  # fmt: skip
INTEGERS = (
    "0", "-1", "NaN", "inf", "2k", "", "  ", "٧", "1e3", "1e400", "10^30", "0x10", "1_000", "+8", "1.5",
    "1" + "0" * 16, "8\n", " 8",
)  # fmt: skip
GPUS = (
    "0", "-8", "NaN", "", "  ", "٨", "1e3", "1.5", "0x8", "8x0", "8x", "x8", "4x8x2", "4X8", "4×8", "4 x 8", "+8",
    "1000001", "99999999", "all",
)  # fmt: skip
# flag -> what to write -> values
OPTIONS = [
    ("--params", "7B", COUNTS),
    ("--gpu-mem", "80GB", (*SIZES, "99999")),
    ("--host-mem", "512GiB", SIZES[::2]),
    ("--nvme", "3.8TB", SIZES[1::2]),
    ("--seq", "--seq 2048", INTEGERS),
    ("--micro-batch", "--micro-batch ", INTEGERS),
    ("--grad-accum", "--grad-accum ", INTEGERS[::2]),
    ("--global-batch", "--global-batch ", INTEGERS[1::2]),
    ("--gpus", "--gpus 4x8", GPUS),
    ("--stage", "--stage ", ("4", "-1", "two", "", "1.0", "02", "٣", "ZeRO-4", "3 ")),
    ("--precision", "bf16", ("fp4", "bf-16", "", "int8", "tf32")),
    ("--optimizer", "adamw", ("Adam W", "adamx", "", "rmsprop")),
    ("--checkpointing", "full", ("Fully", "partial", "", "true")),
    ("--attention", "sdpa", ("Flashy", "flash2", "", "xformers")),
    ("--offload-optimizer", "cpu", ("host", "gpu", "", "true")),
    ("--offload-param", "cpu", ("ssd", "1", "", "disk")),
    ("--accounting", "paper", ("Paper", "x", "")),
    ("--gpu", "zeroplan gpus", ("", "  ", "rtx-9090", "a", "٧", "[/b]")),
    ("--cluster", "zeroplan clusters", ("", "  ", "dgx", "٧", "[/b]")),
    ("--model", "llama-3", ("llama-9000", "ll\nama")),
]


@pytest.mark.parametrize(
    ("flag", "value", "write"),
    [
        pytest.param(flag, value, write, id=f"{flag[2:]}={value!r:.24}")
        for flag, write, values in OPTIONS
        for value in values
    ],
)
def test_a_bad_value_of_an_option(zeroplan, flag, value, write):
    model = () if flag in ("--params", "--model") else ("--params", "7B")
    shown = "" if not value.strip() else repr(value)
    assert_refused(*zeroplan("estimate", *model, flag, value), shown, write)


@pytest.mark.parametrize("command", [("recommend",), ("explain", "parameters")], ids=["recommend", "explain"])
@pytest.mark.parametrize(
    ("flag", "value"),
    [("--params", "0"), ("--gpus", "12"), ("--gpu-mem", "80Gb"), ("--seq", "0"), ("--stage", "4"), ("--model", "nope")],
)
def test_the_other_commands_refuse_the_same(zeroplan, command, flag, value):
    assert_refused(*zeroplan(*command, flag, value), value)


# --- Requests: id, arguments, what was found, what to write --------------------------------------------------

REQUESTS = [
    ("no command of that name", ["frobnicate"], "frobnicate", ""),
    ("command in capitals", ["Estimate"], "Estimate", "estimate"),
    ("empty command", [""], "''", ""),
    ("option unknown at the top", ["--foo"], "--foo", ""),
    ("short option unknown", ["-x"], "-x", ""),
    ("estimate: option unknown", ["estimate", "--foo"], "--foo", ""),
    ("estimate: option misspelt", ["estimate", "--parms", "7B"], "--parms", "--params"),
    ("estimate: option cut short", ["estimate", "--par", "7B"], "--par", "--params"),
    ("estimate: option in capitals", ["estimate", "--PARAMS", "7B"], "--PARAMS", ""),
    ("recommend: option of estimate", ["recommend", *JOB, "--accounting", "paper"], "--accounting", ""),
    ("estimate: option of recommend", ["estimate", *JOB, "--force"], "--force", ""),
    ("gpus: option misspelt", ["gpus", "--jsn"], "--jsn", "--json"),
    ("clusters: option of estimate", ["clusters", "--params", "7B"], "--params", ""),
    ("models: option unknown", ["models", "--foo"], "--foo", ""),
    ("flag with a value", ["estimate", *JOB, "--json=1"], "--json", ""),
    ("--params without its value", ["estimate", "--params"], "--params", ""),
    ("--stage without its value", ["estimate", *JOB, "--stage"], "--stage", ""),
    ("-o without its value", ["recommend", *JOB, "-o"], "-o", ""),
    ("estimate: argument too many", ["estimate", *JOB, "extra"], "extra", ""),
    ("recommend: argument too many", ["recommend", *JOB, "extra"], "extra", ""),
    ("models: two names", ["models", "llama-3.1-8b", "opt-1.3b"], "opt-1.3b", ""),
    ("gpus: argument", ["gpus", "h100"], "h100", ""),
    ("clusters: argument", ["clusters", "dgx-h100"], "dgx-h100", ""),
    ("models: unknown", ["models", "nope"], "'nope'", "zeroplan models"),
    ("models: empty", ["models", ""], "empty", "llama-3.1-8b"),
    ("models: blank", ["models", "  "], "empty", "llama-3.1-8b"),
    ("models: no such file", ["models", "./nope/config.json"], "nope/config.json", "config.json"),
    ("explain: no term", ["explain"], "TERM", ""),
    ("explain: two terms", ["explain", "stage", "parameters"], "parameters", ""),
    ("explain: unknown", ["explain", "bogus_term"], "'bogus_term'", ""),
    ("explain: misspelt", ["explain", "optimiser states"], "'optimiser states'", "optimizer states"),
    ("explain: empty", ["explain", ""], "''", ""),
    ("explain: blank", ["explain", "  "], "unknown", ""),
    ("explain: markup", ["explain", "[/red]"], "'[/red]'", ""),
    ("explain: long", ["explain", "x" * 5000], "xxx...", ""),
    ("explain: key unknown in a section", ["explain", "zero_optimization.bogus"], "zero_optimization.bogus", ""),
    ("explain: known term, bad job", ["explain", "stage", "--params", "0"], "'0'", "7B"),
    ("no model", ["estimate"], "no model", "--params 7B"),
    ("no card", ["recommend", "--params", "7B"], "no card", "--gpu-mem 80"),
    ("--params and --model", ["estimate", "--params", "7B", "--model", "llama-3.1-8b"], "--params", "--model"),
    ("--params under 1M", ["estimate", "--params", "999K"], "999K", "--model config.json"),
    ("--params over 10T", ["estimate", "--params", "10.1T"], "10.1T", "--model config.json"),
    ("--gpu of another --cluster", ["estimate", "--params", "7B", "--gpu", "a100-80gb", "--cluster", "dgx-h100"],
     "a100-80gb", "h100-80gb"),
    ("--gpu-mem that no card has", ["estimate", "--params", "7B", "--gpu-mem", "81"], "81", "81GB"),
    ("12 GPUs", ["estimate", "--params", "7B", "--gpus", "12"], "12", "--gpus 2x6"),
    ("13 GPUs", ["estimate", "--params", "7B", "--gpus", "13"], "13", "--gpus 13x1"),
    ("10 GPUs of dgx-h100", ["estimate", "--params", "7B", "--gpus", "10", "--cluster", "dgx-h100"], "10", "2x5"),
    ("--offload-param at stage 2", ["estimate", *JOB, "--offload-param", "cpu", "--stage", "2"],
     "--offload-param", "--stage 3"),
    ("--offload-optimizer nvme at stage 2", ["estimate", *JOB, "--offload-optimizer", "nvme", "--stage", "2"],
     "--offload-optimizer nvme", "--stage 3"),
    ("--offload-optimizer at stage 0", ["recommend", *JOB, "--offload-optimizer", "cpu", "--stage", "0"],
     "--offload-optimizer", "--stage 1"),
    ("batch 7 on 8 GPUs", ["estimate", *JOB, "--global-batch", "7"], "7", "--global-batch 8"),
    ("batch and micro-batch", ["recommend", *JOB, "--global-batch", "16", "--micro-batch", "3"],
     "16", "--global-batch 24"),
    ("batch and accumulation", ["estimate", *JOB, "--global-batch", "16", "--grad-accum", "3"],
     "16", "--global-batch 24"),
    ("batch, micro-batch and accumulation",
     ["estimate", *JOB, "--global-batch", "16", "--micro-batch", "2", "--grad-accum", "2"], "16", "--global-batch 32"),
    ("--for vllm", ["recommend", *JOB, "--for", "vllm"], "'vllm'", "--for hf"),
    ("--for in capitals", ["recommend", *JOB, "--for", "HF"], "'HF'", "--for hf"),
    ("--for empty", ["recommend", *JOB, "--for", ""], "''", "--for hf"),
    ("--timeline of every stage", ["estimate", *JOB, "--timeline"], "every stage", "--stage 2"),
    ("--json and -o -", ["recommend", *JOB, "--json", "-o", "-"], "--json", "keep one"),
    ("--model empty", ["estimate", "--model", ""], "empty", "llama-3.1-8b"),
    ("--model that is not there", ["estimate", "--model", "nope.json"], "nope.json", "config.json"),
    ("--model in a folder that is not there", ["estimate", "--model", "./no/config.json"], "no/config.json", ""),
    ("--model that nobody has fetched", ["estimate", "--model", "nobody/no-such-model"], "nobody/no-such-model",
     "config.json"),
    ("--model as an address", ["estimate", "--model", "https://huggingface.co/a/b"], "https://huggingface.co/a/b", ""),
    ("--model as a device", ["estimate", "--model", "/dev/null"], "/dev/null", "config.json"),
    ("--config that is not there", ["estimate", *JOB, "--config", "nope.json"], "nope.json", "ds_config.json"),
    ("--config as a folder", ["estimate", *JOB, "--config", "."], "a folder", "ds_config.json"),
    ("--config as an endless device", ["estimate", *JOB, "--config", "/dev/zero"], "/dev/zero", "ds_config.json"),
    ("--hostfile that is not there", ["estimate", "--params", "7B", "--hostfile", "nope"], "nope", "hostfile"),
    ("--hostfile as a folder", ["estimate", "--params", "7B", "--hostfile", "."], "a folder", "hostfile"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "found", "write"), [pytest.param(*case, id=name) for name, *case in REQUESTS]
)  # fmt: skip
def test_a_bad_request(zeroplan, arguments, found, write):
    assert_refused(*zeroplan(*arguments), found, write)


# --- Files: what any JSON file may hold ----------------------------------------------------------------------

JUNK = [
    ("empty", b"", "empty"),
    ("blank", b" \n\t", "empty"),
    ("not JSON", b"hidden_size: 4096\n", "not JSON"),
    ("truncated", b'{"model_type":', "not JSON"),
    ("two objects", b"{}{}", "not JSON"),
    ("single quotes", b"{'a': 1}", "not JSON"),
    ("trailing comma", b'{"a": 1,}', "not JSON"),
    ("NUL after the object", b"{}\0", "not JSON"),
    ("list", b"[]", "list"),
    ("null", b"null", "JSON"),
    ("number", b"3", "JSON"),
    ("text", b'"x"', "JSON"),
    ("10 MB", b"x" * 10_000_000, "10,000,000"),
    ("NUL bytes", b"\0\1\2\0", "not JSON"),
    ("not UTF-8", b'{"a": "\xff"}', "UTF-8"),
    ("UTF-16", '{"a": 1}'.encode("utf-16"), "UTF-8"),
    ("nested lists", b"[" * DEEP + b"]" * DEEP, "nesting"),
    ("nested objects", b'{"a":' * DEEP + b"1" + b"}" * DEEP, "nesting"),
    ("a number of 5000 digits", b'{"a": ' + b"1" * 5000 + b"}", "number"),
]

AS_CONFIG = {
    "not JSON": "no key that DeepSpeed knows", "single quotes": "no key that DeepSpeed knows",
    "trailing comma": "no key that DeepSpeed knows",
    "nested lists": "list", "nested objects": "inside one another",
    "a number of 5000 digits": "no key that DeepSpeed knows",
}
"""DeepSpeed reads hjson, which takes these for configs: of keys that it does not know."""


@pytest.mark.parametrize("option", ["--model", "--config"])
@pytest.mark.parametrize(("name", "content", "found"), [pytest.param(*case, id=case[0]) for case in JUNK])
def test_junk_where_json_is_expected(zeroplan, option, name, content, found):
    Path("bad.json").write_bytes(content)
    model = ("--params", "7B") if option == "--config" else ()
    found = AS_CONFIG.get(name, found) if option == "--config" else found
    assert_refused(*zeroplan("estimate", *model, option, "bad.json"), "bad.json", found)


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"\xff", b"x" * 5_000_000, b'{"a": NaN}'], ids=["empty", "list", "bytes", "5 MB", "NaN"]
)
def test_junk_on_standard_input(zeroplan, monkeypatch, content):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    assert_refused(*zeroplan("estimate", *JOB, "--config", "-"), "standard input")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{"gradient_clipping": %s}', "1:23"),
        ('{"zero_optimization": {"stage": 3,\n"reduce_bucket_size": %s}}', "2:23"),
        ('{"optimizer": {"type": "AdamW", "params": {"lr": %s}}}', "1:50"),
    ],
    ids=["key", "section", "parameter"],
)
def test_a_number_of_a_ds_config_that_json_does_not_have(zeroplan, text, place, number):
    """A model's config.json may hold them: transformers writes such."""
    Path("ds.json").write_text(text % number, encoding="utf-8")
    assert_refused(*zeroplan("estimate", *JOB, "--config", "ds.json"), f"ds.json:{place}: found {number}", "a finite number")


def test_a_number_of_a_ds_config_is_quoted_in_a_line(zeroplan):
    Path("ds.json").write_text('{"gradient_clipping": ' + "1" * 5000 + "}", encoding="utf-8")
    assert_refused(*zeroplan("estimate", *JOB, "--config", "ds.json"), f"found {'1' * 57}..., expected a finite number")


def test_a_byte_order_mark_and_a_repeated_key_are_no_error_in_a_model(zeroplan):
    Path("bom.json").write_bytes(b"\xef\xbb\xbf" + json.dumps(LLAMA).encode())
    Path("twice.json").write_text(json.dumps(LLAMA)[:-1] + ', "vocab_size": 64000}', encoding="utf-8")
    assert zeroplan("estimate", "--model", "bom.json").code == 0
    assert zeroplan("models", "twice.json", "--json").json["tensors"][0]["shape"] == [64000, 512]


def _places() -> None:
    """Things that have a path but are no readable config.json."""
    Path("empty").mkdir()
    Path("folder/config.json").mkdir(parents=True)
    Path("loop.json").symlink_to("loop.json")
    Path("looped").mkdir()
    Path("looped/config.json").symlink_to("config.json")
    Path("dangling.json").symlink_to("nowhere.json")
    os.mkfifo("pipe")
    Path("piped").mkdir()
    os.mkfifo("piped/config.json")
    Path("plain").write_text("{}", encoding="utf-8")


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("empty", "no such file"),
        ("folder", "a folder"),
        ("loop.json", "symbolic links"),
        ("looped", "symbolic links"),
        ("dangling.json", "no such file"),
        ("pipe", "not a regular file"),
        ("piped", "not a regular file"),
        ("plain/config.json", "not a directory"),
    ],
)
def test_a_path_that_holds_no_config(zeroplan, path, found):
    _places()
    before = listing()
    assert_refused(*zeroplan("estimate", "--model", path), path, found, "config.json")
    assert listing() == before


@pytest.mark.parametrize("path", ["loop.json", "pipe", "dangling.json", "plain/x"])
@pytest.mark.parametrize("option", ["--config", "--hostfile"])
def test_a_path_that_holds_no_other_file(zeroplan, option, path):
    _places()
    assert_refused(*zeroplan("estimate", "--params", "7B", option, path), path)


@pytest.mark.parametrize("option", ["--model", "--config", "--hostfile"])
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root reads everything")
def test_a_file_without_permission(zeroplan, option):
    Path("secret.json").write_text("{}", encoding="utf-8")
    Path("secret.json").chmod(0)
    model = () if option == "--model" else ("--params", "7B")
    assert_refused(*zeroplan("estimate", *model, option, "secret.json"), "secret.json", "permission")


@pytest.mark.parametrize("name", ["new\nline.json", "sepa\u2028rator.json", "[/b]/x.json", "- x.json"])
def test_a_strange_file_name_keeps_the_error_on_one_line(zeroplan, name):
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text("nope", encoding="utf-8")
    assert_refused(*zeroplan("estimate", "--model", f"./{name}"), "not JSON")


@pytest.mark.parametrize("name", ["new\nline.json", "[/b]/x.json", "é.json"])
def test_a_strange_file_name_is_no_error(zeroplan, name):
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(json.dumps(LLAMA), encoding="utf-8")
    assert zeroplan("estimate", "--model", f"./{name}").code == 0


# --- config.json: what it may say ----------------------------------------------------------------------------

WIDTHS = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
WRONG = ("512", "", 512.0, 1.5, True, [], [512], {}, None, 0, -1, "٧", "[/b]")
MODELS = [
    *((f"{name}={value!r}", {name: value}, name, "") for name in WIDTHS for value in WRONG
      if (name, value) not in [("intermediate_size", None)]),
    ("no model_type", {"model_type": None}, "no model_type", '"model_type": "llama"'),
    ("model_type=3", {"model_type": 3}, "model_type = 3", '"model_type": "llama"'),
    ("model_type=[]", {"model_type": ["llama"]}, "['llama']", '"model_type": "llama"'),
    ("model_type empty", {"model_type": ""}, "''", '"model_type": "llama"'),
    ("model_type in capitals", {"model_type": "LLaMA"}, "'LLaMA'", "llama"),
    ("model_type of no decoder", {"model_type": "mamba"}, "'mamba'", "bert, bloom, deepseek_v2"),
    ("model_type of two lines", {"model_type": "a\nb\x1b[31m"}, r"a\nb\x1b", '"model_type": "llama"'),
    ("model_type long", {"model_type": "x" * 9000}, "xxx...", '"model_type": "llama"'),
    ("architecture of nobody", {"architectures": ["MambaForCausalLM"]}, "MambaForCausalLM", '["LlamaForCausalLM"]'),
    ("architecture of another family", {"architectures": ["OPTForCausalLM"]}, "a class of opt", '"model_type": "opt"'),
    ("architecture with another head", {"architectures": ["LlamaForQuestionAnswering"]},
     "LlamaForQuestionAnswering", "LlamaForSequenceClassification"),
    ("architectures as text", {"architectures": "LlamaForCausalLM"}, "'LlamaForCausalLM'", '["LlamaForCausalLM"]'),
    ("architectures of numbers", {"architectures": [3]}, "[3]", '["LlamaForCausalLM"]'),
    ("a model inside", {"text_config": {"hidden_size": 8}}, "multimodal", "--model that file"),
    ("quantized by another", {"quantization_config": {"quant_method": "gptq", "bits": 4}}, "(gptq)", "remove it"),
    ("quantized in no dtype", {"quantization_config": {"load_in_4bit": True, "bnb_4bit_quant_storage": "int3"}}, "'int3'",
     '"bfloat16"'),
    ("quantized twice", {"quantization_config": {"load_in_4bit": True, "load_in_8bit": True}}, "load_in_4bit and load_in_8bit",
     "one of them"),
    ("layer_types of another family", {"model_type": "qwen2", "num_key_value_heads": 8, "layer_types": ["chunked_attention"] * 2},
     "'chunked_attention'", "sliding_attention"),
    ("heads that do not divide", {"num_attention_heads": 7}, "num_attention_heads = 7", ""),
    ("key-value heads that do not divide", {"num_key_value_heads": 3}, "num_key_value_heads = 3", ""),
    ("no key-value heads", {"num_key_value_heads": 0}, "num_key_value_heads = 0", ""),
    ("head_dim=0", {"head_dim": 0}, "head_dim = 0", ""),
    ("10,001 layers", {"num_hidden_layers": 10_001}, "10001", "10000"),
    ("activation unknown", {"hidden_act": "nope"}, "'nope'", "silu"),
    ("tied as text", {"tie_word_embeddings": "yes"}, "'yes'", "boolean"),
    ("dropout over 1", {"attention_dropout": 1.5}, "1.5", "0 and 1"),
    ("rope_theta=0", {"rope_theta": 0}, "rope_theta = 0", "positive"),
    ("rope_theta as text", {"rope_theta": "10000"}, "'10000'", "number"),
    ("rope_type unknown", {"rope_scaling": {"rope_type": "nope"}}, "'nope'", "llama3"),
    ("rope without its factor", {"rope_scaling": {"rope_type": "linear"}}, "factor", "positive"),
    ("rope as text", {"rope_scaling": "linear"}, "'linear'", ""),
    ("layer_types too short", {"layer_types": ["full_attention"]}, "1 layer_types", "one type a layer"),
    ("layer_types unknown", {"layer_types": ["nope", "nope"]}, "'nope'", "full_attention"),
    ("padding outside the vocabulary", {"pad_token_id": 32000}, "pad_token_id = 32000", "null"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "found", "write"), [pytest.param(*case, id=name) for name, *case in MODELS])
def test_a_config_json_that_cannot_be_a_model(zeroplan, monkeypatch, fields, found, write):
    monkeypatch.setattr("zeroplan.catalog.kept_recordings.installed", lambda: None)
    Path("m").mkdir()
    Path("m/config.json").write_text(json.dumps({**LLAMA, **fields}), encoding="utf-8")
    assert_refused(*zeroplan("estimate", "--model", "m"), "m/config.json", found, write)


@pytest.mark.parametrize(
    "text",
    ['{"model_type": "llama", "hidden_size": 1e400}', '{"model_type": "llama", "attention_dropout": 1e400}'],
    ids=["width", "probability"],
)
def test_a_number_beyond_all_floats(zeroplan, text):
    Path("huge.json").write_text(text, encoding="utf-8")
    assert_refused(*zeroplan("estimate", "--model", "huge.json"), "huge.json", "nf")


# --- ds_config.json: what it may say -------------------------------------------------------------------------


def zero(**fields: object) -> dict[str, object]:
    return {"zero_optimization": {"stage": 3, **fields}}


CONFIGS = [
    *((f"stage={value!r}", zero(stage=value), repr(value), '"stage": ') for value in
      (2.5, 4, -1, None, "auto", "three", [], {})),
    *((f"{key}={value!r}", zero(**{key: value}), repr(value), f'"{key}": ') for key in
      ("reduce_bucket_size", "stage3_prefetch_bucket_size", "stage3_max_live_parameters", "sub_group_size")
      for value in ("lots", "", "0x10", "nan", "inf", -1, 0.5, 1.5, [], {})),
    ("reduce_bucket_size=0", zero(reduce_bucket_size=0), "0", '"reduce_bucket_size": '),
    *((f"{key}={value!r}", zero(**{key: value}), repr(value), f'"{key}": ') for key in
      ("overlap_comm", "contiguous_gradients", "reduce_scatter") for value in ("maybe", "", 2, [])),
    *((f"{name} on {device!r}", zero(**{name: {"device": device}}), repr(device), '"device": ')
      for name in ("offload_optimizer", "offload_param") for device in ("gpu", "CPU", "", None, 3, [])),
    *((f"{name}={value!r}", zero(**{name: value}), name, "an object in {}")
      for name in ("offload_optimizer", "offload_param") for value in ("cpu", 5, True)),
    ("unknown key in offload_param", zero(offload_param={"device": "cpu", "pin": True}), "'pin'", "pin_memory"),
    ("buffer_count=-1", zero(offload_param={"device": "nvme", "buffer_count": -1}), "-1", '"buffer_count": '),
    ("nvme_path=5", zero(offload_optimizer={"device": "nvme", "nvme_path": 5}), "nvme_path", "5"),
    ("ratio=2", zero(offload_optimizer={"device": "cpu", "ratio": 2}), "2", '"ratio": '),
    ("unknown key in zero_optimization", zero(reduce_bucket=1), "'reduce_bucket'", "reduce_bucket_size"),
    ("key in capitals", zero(Overlap_Comm=True), "'Overlap_Comm'", "overlap_comm"),
    ("unknown key in fp16", {"fp16": {"enabled": True, "loss": 1}}, "'loss'", "loss_scale"),
    *((f"{name}={value!r}", {name: value}, name, "an object in {}")
      for name in ("zero_optimization", "fp16", "bf16", "optimizer") for value in (True, [], "3")
      if (name, value) != ("zero_optimization", True)),  # an old form of stage 1
    ("fp16 and bf16", {"fp16": {"enabled": True}, "bf16": {"enabled": True}}, "fp16 and bf16", "keep one"),
    ("bf16 maybe", {"bf16": {"enabled": "maybe"}}, "'maybe'", "true or false"),
    ("fp16 list", {"fp16": {"enabled": []}}, "[]", "true or false"),
    ("optimizer unknown", {"optimizer": {"type": "AdamZ"}}, "'AdamZ'", "AdamW"),
    ("optimizer empty", {"optimizer": {"type": ""}}, "''", "AdamW"),
    ("optimizer number", {"optimizer": {"type": 5}}, "5", "AdamW"),
    ("optimizer list", {"optimizer": {"type": ["Adam"]}}, "['Adam']", "AdamW"),
    *((f"{key}={value!r}", {key: value}, repr(value), f'"{key}": ') for key in
      ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
      for value in (0, -1, True, "x", 1.5, [], {})),
    ("batch that 8 GPUs do not divide", {"train_batch_size": 7}, "7", "8"),
    ("batch that is not the product",
     {"train_batch_size": 32, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 3}, "32", "48"),
]  # fmt: skip


@pytest.mark.parametrize(("config", "found", "write"), [pytest.param(*case, id=name) for name, *case in CONFIGS])
def test_a_ds_config_that_deepspeed_would_not_run(zeroplan, config, found, write):
    Path("ds.json").write_text(json.dumps(config), encoding="utf-8")
    assert_refused(*zeroplan("estimate", *JOB, "--config", "ds.json"), found, write)


@pytest.mark.parametrize("command", ["estimate", "recommend"])
@pytest.mark.parametrize(
    ("config", "flag", "value", "stated"),
    [
        (zero(), "--stage", "2", "3"),
        ({"bf16": {"enabled": True}}, "--precision", "fp16", "bf16"),
        ({"optimizer": {"type": "AdamW"}}, "--optimizer", "sgd", "adamw"),
        ({"train_batch_size": 16}, "--global-batch", "32", "16"),
        ({"train_micro_batch_size_per_gpu": 2}, "--micro-batch", "4", "2"),
        ({"gradient_accumulation_steps": 2}, "--grad-accum", "4", "2"),
        (zero(offload_param={"device": "cpu"}), "--offload-param", "nvme", "cpu"),
        (zero(offload_param={"device": "cpu"}), "--offload-param", "none", "cpu"),
        (zero(), "--offload-optimizer", "cpu", "nothing"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_flag_that_contradicts_the_config(zeroplan, command, config, flag, value, stated):
    Path("ds.json").write_text(json.dumps(config), encoding="utf-8")
    ran = zeroplan(command, *JOB, "--config", "ds.json", flag, value)
    assert_refused(*ran, flag, stated, "contradicts")


# --- hostfile ------------------------------------------------------------------------------------------------

HOSTS = [
    ("empty", "", "no host"),
    ("blank", "\n \n", "no host"),
    ("comments", "# worker-1 slots=8\n", "no host"),
    ("no slots", "w1\n", "'w1'"),
    ("slots=0", "w1 slots=0\n", "slots=0"),
    ("slots=-1", "w1 slots=-1\n", "slots=-1"),
    ("slots=+8", "w1 slots=+8\n", "slots=+8"),
    ("slots=8.5", "w1 slots=8.5\n", "slots=8.5"),
    ("slots=1e3", "w1 slots=1e3\n", "slots=1e3"),
    ("slots=0x8", "w1 slots=0x8\n", "slots=0x8"),
    ("slots=x", "w1 slots=x\n", "slots=x"),
    ("slots apart", "w1 slots= 8\n", "slots= 8"),
    ("slots in capitals", "w1 SLOTS=8\n", "SLOTS=8"),
    ("no host name", " slots=8\n", "slots=8"),
    ("NUL", "w1 slots=8\0\n", r"\x00"),
    ("second line", "w1 slots=8\nw2\n", "hosts:2"),
    ("a host twice", "w1 slots=8\nw1 slots=8\n", "w1"),
    ("unequal slots", "w1 slots=8\nw2 slots=4\n", "4 and 8"),
    ("UTF-16", "w1 slots=8".encode("utf-16"), "UTF-8"),
    ("5 MB", "x" * 5_000_000, "5,000,000"),
]


@pytest.mark.parametrize(("content", "found"), [pytest.param(*case, id=name) for name, *case in HOSTS])
def test_a_bad_hostfile(zeroplan, content, found):
    Path("hosts").write_bytes(content if isinstance(content, bytes) else content.encode())
    assert_refused(*zeroplan("estimate", "--params", "7B", "--hostfile", "hosts"), "hosts", found)


def test_hostfile_and_gpus(zeroplan):
    Path("hosts").write_text("w1 slots=8\n", encoding="utf-8")
    ran = zeroplan("estimate", "--params", "7B", "--hostfile", "hosts", "--gpus", "8")
    assert_refused(*ran, "--gpus and --hostfile", "keep one")


# --- output --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [(), ("--json",), ("--quiet",), ("--for", "deepspeed")], ids=" ".join)
@pytest.mark.parametrize(
    ("path", "found", "write"),
    [
        ("mine.json", "already there", "--force"),
        ("linked.json", "already there", "--force"),
        ("pipe", "already there", "--force"),
        ("/dev/null", "already there", "--force"),
        ("folder", "a folder", "folder/ds_config.json"),
        (".", "a folder", "./ds_config.json"),
        ("missing/ds.json", "found no folder 'missing'", ""),
        ("mine.json/ds.json", "not a directory", ""),
        ("x" * 300 + ".json", "too long", ""),
        ("n" * 250, "too long", ""),
    ],
    ids=lambda value: value[:20],
)
def test_a_file_that_cannot_be_written(zeroplan, path, found, write, more):
    Path("mine.json").write_text("mine", encoding="utf-8")
    Path("linked.json").symlink_to("mine.json")
    Path("folder").mkdir()
    os.mkfifo("pipe")
    before = listing()
    assert_refused(*zeroplan("recommend", *JOB, "-o", path, *more), path[:40], found, write)
    assert listing() == before


def test_force_leaves_no_temporary_file_and_a_folder_alone(zeroplan):
    Path("mine.json").write_text("mine", encoding="utf-8")
    Path("folder").mkdir()
    assert_refused(*zeroplan("recommend", *JOB, "-o", "folder", "--force"), "a folder")
    assert zeroplan("recommend", *JOB, "-o", "mine.json", "--force").code == 0
    assert sorted(listing()) == ["folder", "mine.json"]
    assert json.loads(Path("mine.json").read_text(encoding="utf-8"))


def test_a_bad_request_leaves_the_output_unwritten(zeroplan):
    assert_refused(*zeroplan("recommend", "--params", "7Gb", "--gpu-mem", "80", "-o", "new.json"), "'7Gb'")
    assert listing() == {}


# --- the same through the installed command ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["estimate", "--params", "7Gb"], "'7Gb'"),
        (["estimate", "--params", b"\xff"], r"\udcff"),
        (["estimate", "--model", b"no/\xff.json"], r"\udcff.json"),
        (["recommend", *JOB, "-o", "no/such/folder/ds.json"], "no/such/folder/ds.json"),
        (["frobnicate"], "frobnicate"),
    ],
    ids=["value", "bytes", "file name", "output", "command"],
)
def test_the_process_fails_in_one_line(arguments, found):
    ran = subprocess.run(
        [sys.executable, "-m", "zeroplan", *arguments], capture_output=True, check=False, timeout=20,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert_refused(ran.returncode, ran.stdout.decode(), ran.stderr.decode(), found)


# --- anything at all -----------------------------------------------------------------------------------------

SETTINGS = settings(
    max_examples=150, deadline=None, derandomize=True, database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip


def run(*arguments: str) -> tuple[int, str, str]:
    """As the `zeroplan` fixture, for many runs in one test."""
    out, err = io.StringIO(), io.StringIO()
    typed = mock.patch.object(sys, "argv", ["zeroplan", *arguments])
    with typed, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0), out.getvalue(), err.getvalue()


def assert_answered(code: int, out: str, err: str) -> None:
    """An answer, or a refusal; nothing between."""
    if code == 2:
        assert_refused(code, out, err)
    else:
        assert code in (0, 1)
        assert out
        assert not err


TYPED = st.one_of(
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12),
    st.from_regex(r"[-+]?[0-9٧]{0,3}[.x_]?[0-9]{0,2}(e[0-9]{1,3})?[kKMGTB]?i?[bB]?", fullmatch=True),
    st.sampled_from(["none", "cpu", "nvme", "0", "1", "2", "3", "8", "4x8", "80", "bf16", "adamw", "h100", "full"]),
)
FLAGS = [
    "--params", "--seq", "--micro-batch", "--grad-accum", "--global-batch", "--precision", "--optimizer",
    "--checkpointing", "--attention", "--stage", "--offload-optimizer", "--offload-param", "--gpus", "--gpu",
    "--gpu-mem", "--host-mem", "--nvme", "--cluster", "--model", "--config", "--hostfile",
]  # fmt: skip


@SETTINGS
@given(flags=st.dictionaries(st.sampled_from(FLAGS), TYPED.filter(lambda text: text != "-"), min_size=1, max_size=3))
def test_any_text_in_any_option(flags):
    typed = [word for pair in flags.items() for word in pair]
    model = [] if {"--params", "--model"} & flags.keys() else ["--params", "7B"]
    assert_answered(*run("estimate", "--quiet", *model, *typed))


@settings(SETTINGS, max_examples=75)
@given(term=TYPED)
def test_any_term(term):
    assert_answered(*run("explain", "--stage", "2", "--", term))


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 2), st.sampled_from([7, 64, 128, 10**6, 10**12]),
    st.floats(allow_nan=False, allow_infinity=False, width=16), st.text(max_size=4),
)  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
FAMILIES = [
    "llama", "gpt2", "bert", "opt", "bloom", "falcon", "mixtral", "qwen2_moe", "deepseek_v3", "gemma3_text", "gpt_oss",
    "phi3",
]  # fmt: skip
MODEL_FIELDS = [
    *WIDTHS, "num_key_value_heads", "head_dim", "rope_scaling", "rope_parameters", "rope_theta", "layer_types",
    "architectures", "tie_word_embeddings", "hidden_act", "pad_token_id", "max_position_embeddings", "sliding_window",
    "num_experts_per_tok", "n_routed_experts", "num_local_experts", "moe_intermediate_size", "kv_lora_rank", "n_embd",
    "n_head", "n_layer", "partial_rotary_factor", "attention_dropout", "first_k_dense_replace",
]  # fmt: skip


@SETTINGS
@given(
    family=st.sampled_from(FAMILIES) | VALUES, fields=st.dictionaries(st.sampled_from(MODEL_FIELDS), VALUES, max_size=4)
)
def test_any_config_json(family, fields):
    Path("any.json").write_text(json.dumps({"model_type": family, **fields}), encoding="utf-8")
    assert_answered(*run("estimate", "--quiet", "--model", "any.json"))


ZERO_FIELDS = [
    "stage", "reduce_bucket_size", "allgather_bucket_size", "stage3_prefetch_bucket_size",
    "stage3_param_persistence_threshold", "stage3_max_live_parameters", "stage3_max_reuse_distance", "sub_group_size",
    "overlap_comm", "contiguous_gradients", "reduce_scatter", "round_robin_gradients", "zero_hpz_partition_size",
]  # fmt: skip
SECTIONS = [
    "fp16", "bf16", "optimizer", "scheduler", "zero_optimization", "gradient_clipping", "aio", "train_batch_size",
    "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "activation_checkpointing", "tensorboard",
]  # fmt: skip
OFFLOADS = st.fixed_dictionaries(
    {"device": st.sampled_from(["none", "cpu", "nvme"]) | VALUES},
    optional=dict.fromkeys(["pin_memory", "buffer_count", "ratio", "nvme_path", "buffer_size", "max_in_cpu"], VALUES),
)
ZERO = st.fixed_dictionaries(
    {"stage": st.integers(0, 3)},
    optional={**dict.fromkeys(ZERO_FIELDS[1:], VALUES), "offload_optimizer": OFFLOADS, "offload_param": OFFLOADS},
)


@SETTINGS
@given(
    zero_section=ZERO | VALUES,
    rest=st.dictionaries(
        st.sampled_from(SECTIONS),
        VALUES | st.fixed_dictionaries({"enabled": SCALARS}) | st.fixed_dictionaries({"type": VALUES}),
        max_size=3,
    ),
)
def test_any_ds_config(zero_section, rest):
    Path("any.json").write_text(json.dumps({**rest, "zero_optimization": zero_section}), encoding="utf-8")
    assert_answered(*run("estimate", "--quiet", *JOB, "--config", "any.json"))


@settings(SETTINGS, max_examples=75)
@given(text=st.text(max_size=30) | st.from_regex(r"([a-c]{1,2} slots=[0-9]{1,2}\n){1,3}", fullmatch=True))
def test_any_hostfile(text):
    Path("hosts").write_text(text, encoding="utf-8")
    assert_answered(*run("estimate", "--quiet", "--params", "7B", "--hostfile", "hosts"))


def test_a_mistyped_command_is_suggested_once(zeroplan):
    ran = zeroplan("estimat")
    assert ran.code == 2
    assert ran.err.count("'estimate'") == 1
