"""What each command prints with --json is as its own schema has it: no other keys, none missing, each described."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache

import click
import jsonschema
import pytest

from tests.conftest import REFERENCES, ROOT
from zeroplan.calibrate.findings import Findings
from zeroplan.cli.app import COMMANDS, app
from zeroplan.ledger import Checked
from zeroplan.schema.json_schema import DOCUMENTS, json_schema

CONFIGS = {
    "z2.json": {"zero_optimization": {"stage": 2, "overlap_com": True}},
    "z3.json": {
        "zero_optimization": {
            "stage": 3, "reduce_bucket_size": 1_000_000, "offload_optimizer": {"device": "nvme", "nvme_path": "/x"},
        },
        "steps_per_print": 7, "activation_checkpointing": {"cpu_checkpointing": True},
    },
    "z1.json": {"zero_optimization": {"stage": 1}},
    "zenflow.json": {
        "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}, "zenflow": {"update_interval": 4, "select_interval": 4, "topk_ratio": 0.1, "select_strategy": "step"}},
    },
    "sequence.json": {"sequence_parallel_size": 4, "zero_optimization": {"stage": 2}},
}  # fmt: skip
REST = {"train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": True}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}
LOG = str(REFERENCES / "logs" / "stage_3_0.19.8.log")
INVOCATIONS = [
    "estimate 7B --gpus 8",
    "estimate 7B --gpus 8 --stage 2",
    "estimate gpt2 --gpus 2xH100 --stage 3 --timeline --checkpointing full",
    "estimate llama-3.1-8b --gpus 8 --stage 3 --accounting paper",
    "estimate gpt2 --gpus 8xA100 --headroom 10%",
    "estimate gpt2 --gpus 2 --stage 2 --backend cpu",
    "estimate gpt2 --gpus 8 --config z3.json",
    "estimate gpt2 --gpus 8 --gpu a100 --config zenflow.json",
    "estimate gpt2 --gpus 8 --config sequence.json --partial",
    "estimate mixtral-8x7b --cluster dgx-h100 --gpus 2x8 --stage 3 --offload-optimizer cpu --offload-param nvme",
    "recommend gpt2 --gpus 8 --gpu a100",
    "recommend gpt2 --gpus 8 --gpu a100 --tokens 1B --price 2 --deadline 100h --headroom 10%",
    "recommend gpt2 --gpus 8 --gpu a100 --price 2 --why zero-3 --why offload",
    "recommend gpt2 --gpus 2 --gpu a100 --objective least-memory --why zero-0 --stage 2",
    "recommend gpt2 --gpus 8 --gpu a100 --tokens 100B --deadline 1h --stage 2",
    "recommend gemma-2-2b --gpus 8 --gpu a100-40gb --seq 4096 --stage 3 --micro-batch 1",
    "recommend gpt2-xl --gpus 1 --gpu t4 --stage 0",
    "recommend gpt2 --gpus 2 --gpu a100 --objective pareto --headroom 1GiB --stage 2",
    "recommend gpt2 --gpus auto --gpu a100 --objective pareto --stage 2",
    "recommend gpt2 --gpus 2 --gpu a100,h100 --price 2",
    "recommend gpt2-xl --gpu a100,t4 --gpus auto",
    "recommend gpt2 --gpu-mem 40,80 --gpus 2 --stage 2",
    "recommend gpt2 --cluster dgx-a100,dgx-h100 --gpus 2 --stage 2",
    "recommend gpt2 --gpu a100 --gpus auto --objective cheapest --price 2 --stage 2",
    "recommend qwen3-8b --gpus 8 --gpu h100 --seq 4096 --headroom 5% --for deepspeed --stage 3 --micro-batch 1",
    "recommend gpt2-xl --gpu 4090 --gpus auto --allow code",
    "recommend --max-params --gpu t4 --gpus 2 --stage 3",
    "compare 7B --gpu h100 --gpus 1,8",
    "compare gpt2 --gpu a100,h100 --gpus 8 --headroom 5%",
    "compare gpt2 --gpus 8xA100 --stage 1,2 --micro-batch 1,3 --global-batch 32",
    "matrix gpt2-xl,gpt2",
    "matrix 7B --gpus 8 --gpu a100 --headroom 10%",
    "check z2.json z3.json",
    "check z2.json --model gpt2 --gpu t4",
    "check z1.json",
    "diff z1.json z3.json",
    "diff z1.json z1.json --model gpt2 --gpu a100",
    "diff z1.json z3.json --model gpt2 --gpus 8",
    "diff z1.json z3.json --model gpt2 --gpus 8 --gpu a100 --headroom 5%",
    f"observe {LOG} --model gpt2 --stage 3 --gpus 2",
    f"observe {LOG} --model gpt2 --stage 3 --gpu a100",
    "explain optimizer-states --gpus 8",
    "explain all_gather --gpus 8",
    "explain reduce_bucket_size --gpu a100",
    "explain offload_optimizer.device",
    "explain needed --model gpt2 --gpu a100",
    "explain step --model gpt2 --gpu a100",
    "explain nvidia-smi --model gpt2 --gpu a100",
    "explain activations --model gpt2",
    "explain activations --model mixtral-8x7b",
    "explain ZP101",
    "rules",
    "models",
    "models gpt2",
    "gpus",
    "clusters",
]


@cache
def validator(command: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(json_schema(command))


def assert_valid(document) -> None:
    errors = [f"{one.json_path}: {one.message[:300]}" for one in validator(document["command"]).iter_errors(document)]
    assert not errors


@pytest.fixture
def configs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, content in CONFIGS.items():
        (tmp_path / name).write_text(json.dumps({**REST, **content}), encoding="utf-8")


@pytest.mark.parametrize("command", INVOCATIONS)
def test_output_is_valid(zeroplan, configs, command):
    words = command.split()
    ran = zeroplan(*words, *(("--format", "json") if words[0] == "check" else ("--json",)))
    assert ran.code in (0, 1), ran.err
    assert ran.json["command"] == words[0]
    assert_valid(ran.json)


@pytest.mark.parametrize("rank", [(), ("--rank", "3")])
def test_output_of_verify_is_valid(zeroplan, monkeypatch, rank):
    measured = {"versions": {"deepspeed": "0.19.8"}, "date": "2026-11-25", "seconds": 1.0}
    rows = [Checked("held on the GPU", "gradients float32", "bytes", 8, 9, 0.0), Checked("peaks", "step", "bytes", 8, 8, 0.01, 2)]
    monkeypatch.setattr("zeroplan.cli.verify._check_installed", lambda: None)
    monkeypatch.setattr("zeroplan.cli.verify._measured", lambda job, given, mode: (job, measured))
    monkeypatch.setattr("zeroplan.verify.compare.compare", lambda job, ledger, measured: rows)
    ran = zeroplan("verify", "gpt2", "--gpus", "8", *rank, "--json")
    assert ran.code == 1
    assert_valid(ran.json)


@pytest.mark.parametrize("gpus", [None, 8])
def test_output_of_calibrate_is_valid(zeroplan, monkeypatch, tmp_path, gpus):
    found = Findings()
    found.add("host_memory", 2**34, "B", "MemTotal of /proc/meminfo")
    found.observations, found.left_out, found.gpu, found.gpus_per_node = ["1 GB/s"], ["CPU Adam"], gpus and "a100-80gb", gpus
    monkeypatch.setattr("zeroplan.cli.calibrate.measure", lambda disk, quick: found)
    written = ("-o", str(tmp_path / "node.yaml")) if gpus else ()
    assert_valid(zeroplan("calibrate", "--quick", *written, "--json").json)


def test_every_command_with_json_has_a_schema():
    commands = {name: app.get_command(click.Context(app), name) for name in COMMANDS}
    with_json = {name for name, command in commands.items() if any("--json" in param.opts for param in command.params)}
    assert set(DOCUMENTS) == with_json | {"check"}
    ran = {command.split()[0] for command in INVOCATIONS} | {"verify", "calibrate"}
    assert ran == set(DOCUMENTS)


def objects(schema):
    """Every object of a schema, by name."""
    found = dict(schema.get("$defs", {}))
    return found if "anyOf" in schema else {**found, schema["title"]: schema}


@pytest.mark.parametrize("command", DOCUMENTS)
def test_every_key_is_described_and_no_other_is_allowed(command):
    schema = json_schema(command)
    jsonschema.Draft202012Validator.check_schema(schema)
    for name, found in objects(schema).items():
        assert found["additionalProperties"] is False, name
        assert found["description"], name
        for key, kind in found["properties"].items():
            described = schema["$defs"][kind["$ref"].rpartition("/")[2]] if "$ref" in kind else kind
            assert described.get("description"), f"{name}.{key}"


@pytest.mark.parametrize("words", [("clusters",), ("estimate", "gpt2", "--stage", "2"), ("models",)], ids=" ".join)
def test_an_unknown_key_and_a_missing_one_are_refused(zeroplan, words):
    found = zeroplan(*words, "--json").json
    assert_valid(found)
    for name in found:
        assert not validator(words[0]).is_valid({key: value for key, value in found.items() if key != name}), name
    assert not validator(words[0]).is_valid({**found, "undocumented": 1})


def test_a_nested_key_that_is_unknown_is_refused(zeroplan):
    found = zeroplan("estimate", "gpt2", "--stage", "2", "--gpu", "a100", "--json").json
    for inside in (found["strategy"], found["memory"]["gpu"]["lines"][0], found["time"]["terms"][0], found["fit"]["host"]):
        inside["undocumented"] = 1
        assert not validator("estimate").is_valid(found)
        del inside["undocumented"]
    assert_valid(found)


def test_a_key_that_may_be_missing_is_not_null(zeroplan):
    found = zeroplan("matrix", "gpt2", "--json").json
    assert "kept_free" not in found
    assert not validator("matrix").is_valid({**found, "kept_free": None})


def test_the_command_prints_it_and_writes_it(zeroplan, tmp_path):
    assert zeroplan("schema", "--of", "gpus").json == json_schema("gpus")
    path = tmp_path / "gpus.schema.json"
    assert zeroplan("schema", "--of", "gpus", "-o", str(path)).code == 0
    assert json.loads(path.read_text(encoding="utf-8")) == json_schema("gpus")


@pytest.mark.parametrize(("name", "nearest"), [("estimat", "estimate"), ("ask", ""), ("", ""), ("new\nline", "")])
def test_an_unknown_command_is_one_line(zeroplan, name, nearest):
    ran = zeroplan("schema", "--of", name)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("zeroplan: unknown command with --json")
    assert ran.err.count("\n") == 1
    assert nearest in ran.err


@pytest.mark.parametrize("more", [(), ("--json",)], ids=" ".join)
def test_no_other_command_loads_pydantic_for_it(more):
    words = ["estimate", "--params", "7B", "--gpus", "8", *more]
    code = f"import sys; sys.argv = {['zeroplan', *words]}; from zeroplan.__main__ import main\ntry:\n main()\nexcept SystemExit:\n pass\n"
    code += "print(*(name for name in sys.modules if name == 'pydantic' or name.startswith('zeroplan.schema')), file=sys.stderr)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    loaded = set(ran.stderr.split())
    assert "pydantic" not in loaded
    assert bool(loaded) == bool(more)
