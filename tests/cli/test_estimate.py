from __future__ import annotations

import json
import re

import pytest

TIERS = ("gpu", "host", "nvme")


def test_the_paper_table_of_7b_on_8_gpus(zeroplan):
    ran = zeroplan("estimate", "--params", "7B", "--gpus", "8", "-v")
    assert ran.code == 0
    row = next(line for line in ran.out.splitlines() if line.startswith("sum"))
    assert row.split("  ")[0] == "sum"
    assert [cell.strip() for cell in row.split("  ") if "GB" in cell] == ["112 GB", "38.5 GB", "26.25 GB", "14 GB"]


def test_the_answer_comes_first_and_assumptions_last(zeroplan):
    lines = zeroplan("estimate", "--params", "7B", "--gpus", "8", "--gpu-mem", "80", "-v").out.strip().splitlines()
    sized = re.sub(r"\d+\.\d\d GiB", "… GiB", lines[0])
    fits = "ZeRO-1 (… GiB), ZeRO-2 (… GiB) and ZeRO-3 (… GiB) fit in … GiB"
    assert sized == f"7B on 8 GPUs: {fits}; ZeRO-0 needs … GiB, … GiB too many."
    tail = " ".join(lines[next(i for i, line in enumerate(lines) if line.startswith("assumed:")) :])
    for default in ("sequence 2048 (--seq)", "precision bf16", "optimizer adamw", "shape inferred from 7B"):
        assert default in tail


def test_quiet_prints_the_answer_alone(zeroplan):
    assert zeroplan("estimate", "--params", "7B", "--gpus", "8", "-q").out.count("\n") == 1


@pytest.mark.parametrize("accounting", ["paper", "deepspeed"])
def test_json_of_one_strategy_has_the_documented_shape(zeroplan, accounting):
    ran = zeroplan("estimate", "--model", "llama-3.1-8b", "--gpus", "4x8", "--gpu-mem", "80GiB", "--stage", "2",
                   "--accounting", accounting, "--json")  # fmt: skip
    found = ran.json
    assert found["schema_version"] == 2
    assert found["accounting"] == accounting
    assert found["model"]["parameters"] == 8_030_261_248
    for tier in TIERS:
        memory = found["memory"][tier]
        assert set(memory["phases"]) == {"init", "forward", "backward", "step"}
        assert memory["peak"]["bytes"] == max(memory["phases"].values())
        for line in memory["lines"]:
            assert type(line["bytes"]) is int
            assert set(line["phases"]) <= {"resident", "init", "forward", "backward", "step"}
            assert line["formula"]
            assert line["source"]
            assert line["evidence"]
    assert {line["evidence"] for line in found["memory"]["gpu"]["lines"] if accounting == "paper"} <= {
        "paper",
        "code",
        "assumed",
    }
    for transfer in found["traffic"]:
        assert transfer["when"] in ("micro_step", "step")
        assert transfer["collective"] in ("all_reduce", "all_gather", "reduce_scatter")
        assert transfer["dtype"] == "bfloat16" or transfer["bytes"] < 100
        assert 0 < transfer["wire_bytes"] < 2 * transfer["bytes"]
    assert found["fit"]["capacity"] == 80 * 2**30
    assert found["fit"]["headroom"] == found["fit"]["capacity"] - found["fit"]["needed"]
    assert found["fit"]["fits"] is True


def test_json_names_every_part_of_a_strategy(zeroplan):
    strategy = zeroplan("estimate", "--params", "1B", "--gpus", "8", "--stage", "3", "--offload-optimizer", "cpu",
                        "--json").json["strategy"]  # fmt: skip
    assert strategy["activation_checkpointing"] == {
        "partitions": False, "on_host": False, "contiguous": False, "number": None,
    }  # fmt: skip
    assert strategy["offload_optimizer"]["device"] == "cpu"
    assert {name for name, value in strategy.items() if isinstance(value, list)} == {"uncounted"}  # a list of keys


def test_json_without_a_stage_has_one_object_for_each(zeroplan):
    stages = zeroplan("estimate", "--params", "7B", "--gpus", "8", "--accounting", "paper", "--json").json["stages"]
    assert [one["strategy"]["stage"] for one in stages] == [0, 1, 2, 3]
    held = [one["memory"]["gpu"]["resident"] for one in stages]
    assert held == [112 * 10**9, 38_500_000_000, 26_250_000_000, 14 * 10**9]


def test_exit_code_1_when_nothing_fits(zeroplan):
    ran = zeroplan("estimate", "--params", "70B", "--gpus", "1", "--gpu-mem", "24")
    assert (ran.code, ran.err) == (1, "")
    assert "too many" in ran.out.splitlines()[0]


def test_host_memory_is_checked_per_node(zeroplan):
    words = (
        "estimate",
        "--params",
        "7B",
        "--gpus",
        "8",
        "--gpu-mem",
        "80",
        "--stage",
        "3",
        "--offload-optimizer",
        "cpu",
    )
    tight, roomy = (zeroplan(*words, "--host-mem", size, "--json").json["fit"] for size in ("64GiB", "1TiB"))
    assert (tight["fits"], tight["host"]["fits"]) == (False, False)
    assert (roomy["fits"], roomy["host"]["fits"]) == (True, True)


def test_a_ds_config_is_a_strategy(zeroplan, tmp_path):
    path = tmp_path / "ds.json"
    path.write_text(json.dumps({
        "train_batch_size": 64, "train_micro_batch_size_per_gpu": 2, "fp16": {"enabled": True},
        "optimizer": {"type": "Lion"}, "zero_optimization": {"stage": 2, "reduce_bucket_size": 2e8, "overlap_comm": True},
    }))  # fmt: skip
    found = zeroplan("estimate", "--config", str(path), "--model", "gpt2", "--gpus", "8", "--json").json["strategy"]
    expected = {"stage": 2, "micro_batch": 2, "grad_accum": 4, "precision": "fp16", "optimizer": "lion",
                "reduce_bucket_size": 200_000_000, "overlap_comm": True}  # fmt: skip
    assert {key: found[key] for key in expected} == expected


def test_auto_is_filled_as_the_trainer_does(zeroplan, tmp_path):
    path = tmp_path / "ds.json"
    keys = ("reduce_bucket_size", "stage3_prefetch_bucket_size", "stage3_param_persistence_threshold")
    path.write_text(json.dumps({"zero_optimization": {"stage": 3} | dict.fromkeys(keys, "auto")}))
    found = zeroplan("estimate", "--config", str(path), "--model", "llama-3.1-8b", "--gpus", "8", "--json").json[
        "strategy"
    ]
    # transformers integrations/deepspeed.py: hidden², int(0.9·hidden²), 10·hidden with hidden 4096
    filled = (found["reduce_bucket_size"], found["prefetch_bucket_size"], found["param_persistence_threshold"])
    assert filled == (16_777_216, 15_099_494, 40_960)


@pytest.mark.parametrize(("typed", "shape"), [("8", (1, 8)), ("4x8", (4, 8)), ("64", (8, 8)), ("3", (1, 3))])
def test_gpus(zeroplan, typed, shape):
    found = zeroplan("estimate", "--params", "1B", "--gpus", typed, "--stage", "1", "--json").json["cluster"]
    assert (found["nodes"], found["gpus_per_node"]) == shape


def test_a_cluster_preset_brings_card_and_node(zeroplan):
    found = zeroplan(
        "estimate", "--params", "1B", "--cluster", "dgx-h100", "--gpus", "16", "--stage", "1", "--json"
    ).json
    assert (found["cluster"]["nodes"], found["cluster"]["gpu"]) == (2, "h100-80gb")
    assert found["fit"]["host"]["capacity"] == 2048 * 2**30


def test_a_hostfile_counts_the_gpus(zeroplan, tmp_path):
    (tmp_path / "hostfile").write_text("a slots=4\nb slots=4\n")
    found = zeroplan(
        "estimate", "--params", "1B", "--hostfile", str(tmp_path / "hostfile"), "--stage", "1", "--json"
    ).json
    assert (found["cluster"]["nodes"], found["cluster"]["gpus_per_node"]) == (2, 4)


def test_a_global_batch_is_solved_for_accumulation(zeroplan):
    words = ("estimate", "--params", "1B", "--gpus", "8", "--stage", "1", "--global-batch", "64", "--json")
    assert zeroplan(*words, "--micro-batch", "2").json["strategy"]["grad_accum"] == 4
    assert zeroplan(*words, "--grad-accum", "2").json["strategy"]["micro_batch"] == 4


def test_fp8_says_what_it_changes(zeroplan):
    assert "fp8 runs inside matmuls" in " ".join(
        zeroplan("estimate", "--params", "7B", "--precision", "fp8").out.split()
    )


def test_a_total_batch_alone_is_solved_as_deepspeed_does(zeroplan, tmp_path):
    """runtime/config.py, _set_batch_related_parameters: only train_batch_size means one micro-step."""
    config = tmp_path / "ds_config.json"
    config.write_text('{"train_batch_size": 64, "zero_optimization": {"stage": 2}, "bf16": {"enabled": true}}')
    words = ("estimate", "--params", "1B", "--gpus", "8", "--config", str(config), "--json")
    strategy = zeroplan(*words).json["strategy"]
    assert (strategy["micro_batch"], strategy["grad_accum"]) == (8, 1)


def test_fp8_training_writes_bf16_in_its_config(zeroplan, tmp_path):
    config = tmp_path / "ds_config.json"
    made = zeroplan("recommend", "--params", "1B", "--gpu-mem", "80", "--precision", "fp8", "-o", str(config),
                    "--for", "deepspeed")  # fmt: skip
    assert made.code == 0
    assert json.loads(config.read_text())["bf16"] == {"enabled": True}
    read = zeroplan("estimate", "--params", "1B", "--config", str(config), "--gpus", "8", "--precision", "fp8")
    assert read.code == 0


def test_adafactor_keeps_a_whole_second_moment_on_flat_partitions(zeroplan):
    """transformers optimization.py: factored only with two dimensions or more, and a flat partition has one."""
    words = ("estimate", "--model", "llama-2-7b", "--gpus", "8", "--stage", "1", "--optimizer", "adafactor", "--json")
    lines = zeroplan(*words).json["memory"]["gpu"]["lines"]
    states = next(line for line in lines if line["name"] == "optimizer states")
    assert states["bytes"] == 4 * 6_738_415_616 // 8


def test_liger_is_refused_where_it_patches_nothing(zeroplan):
    code, _out, error = zeroplan("estimate", "--model", "gpt2", "--gpus", "8", "--kernels", "liger")
    assert code == 2
    assert "liger-kernel does not patch" in error
    assert "llama" in error
    code, _out, error = zeroplan(
        "estimate", "--model", "llama-3.1-8b", "--gpus", "8", "--kernels", "liger", "--backend", "cpu"
    )
    assert code == 2
    assert "Triton" in error


def test_liger_says_where_its_numbers_come_from(zeroplan):
    typed = ("estimate", "--model", "llama-3.1-8b", "--gpus", "8", "--stage", "2", "--kernels", "liger")
    _code, out, _error = zeroplan(*typed, "-v")
    assert "with liger-kernel 0.8.5: what a GPU" in " ".join(out.split())
    _code, out, _error = zeroplan(*typed, "--json")
    lines = {line["name"]: line for line in json.loads(out)["memory"]["gpu"]["lines"]}
    assert lines["Liger norms"]["source"].startswith("liger-kernel 0.8.5")
    assert lines["Liger norms"]["evidence"] == "code"
    assert "logits and loss" not in lines
    _code, out, _error = zeroplan(*typed, "--checkpointing", "selective")
    assert "selective checkpointing beside flash-attention or Liger's kernels" in " ".join(out.split())


FLASH = ("--gpus", "8", "--stage", "2", "--attention", "flash_attention_2")


@pytest.mark.parametrize(
    ("typed", "reason"),
    [
        (("--model", "llama-3.1-8b", "--precision", "fp32"), "with fp32 weights"),
        (("--model", "llama-3.1-8b", "--backend", "cpu"), "expected a GPU"),
        (("--model", "bloom"), "transformers has no flash attention"),
        (("--model", "gpt-oss-20b"), "for its sinks"),
    ],
)
def test_flash_attention_is_refused_where_it_does_not_run(zeroplan, typed, reason):
    code, _out, error = zeroplan("estimate", *typed, *FLASH)
    assert code == 2
    assert reason in error
    assert len(error.strip().splitlines()) == 1


def test_flash_attention_says_where_its_numbers_come_from(zeroplan):
    typed = ("estimate", "--model", "llama-3.1-8b", *FLASH)
    _code, out, _error = zeroplan(*typed, "-v")
    assert "kernels ran in none" in " ".join(out.split())
    assert "Not counted" not in out
    _code, out, _error = zeroplan(*typed, "--json")
    lines = {line["name"]: line for line in json.loads(out)["memory"]["gpu"]["lines"]}
    assert lines["flash attention"]["source"].startswith("flash-attn 2.8.3")
    assert lines["flash attention"]["evidence"] == "code"


@pytest.mark.parametrize(("options", "said"), [([], True), (["--checkpointing", "full"], False)])
def test_experts_that_stay_gathered_are_named_with_the_way_out(zeroplan, options, said):
    """Recorded runs of Mixtral: its grouped products keep views of gathered weights (tests/verify)."""
    _code, out, _err = zeroplan("estimate", "--model", "mixtral-8x7b", "--gpus", "8", "--stage", "3", *options, "-v")
    assert ("--checkpointing full only those of the layer at work" in " ".join(out.split())) is said


def test_flash_attention_beside_liger_is_said_to_be_compared_with_no_run(zeroplan):
    typed = ("estimate", "--model", "llama-3.2-1b", "--stage", "2", "--attention", "flash_attention_2")
    assert "compared with no run" not in " ".join(zeroplan(*typed)[1].split())
    assert "beside Liger's kernels, which is compared with no run" in " ".join(
        zeroplan(*typed, "--kernels", "liger")[1].split()
    )


def test_activation_checkpointing_is_read_where_deepspeeds_function_is_called(zeroplan, tmp_path):
    """15 of 16 inputs go to the host, in bf16: 2 bytes for each of 2,048 tokens and 2,048 widths."""
    config = {
        "zero_optimization": {"stage": 2},
        "bf16": {"enabled": True},
        "activation_checkpointing": {"cpu_checkpointing": True},
    }
    path = tmp_path / "ds_config.json"
    path.write_text(json.dumps(config))
    typed = ("estimate", "--model", "llama-3.2-1b", "--gpus", "8", "--config", str(path), "--json")
    idle = zeroplan(*typed).json
    assert any("activation_checkpointing does nothing" in text for text in idle["assumed"])
    read = zeroplan(*typed, "--checkpointing", "deepspeed").json
    assert not any("activation_checkpointing" in text for text in read["assumed"])
    assert idle["not_counted"] == read["not_counted"] == []
    moved = {entry["to"]: entry["bytes"] for entry in read["copies"] if entry["name"] == "activation checkpoints"}
    assert moved == {"host": 15 * 2 * 2048 * 2048, "gpu": 14 * 2 * 2048 * 2048}
    path.write_text(json.dumps(config | {"activation_checkpointing": {"contiguous_memory_optimization": True}}))
    code, _out, error = zeroplan(*typed, "--checkpointing", "deepspeed")
    assert code == 2
    assert "partition_activations" in error
    assert error.count("\n") == 1


def test_a_batch_that_the_config_leaves_open_is_named(zeroplan, tmp_path):
    path = tmp_path / "ds_config.json"
    path.write_text(json.dumps({"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}}))
    typed = ("estimate", "--params", "1.3B", "--config", str(path), "--json")
    said = 'micro-batch 1, which the config leaves "auto" (--micro-batch)'
    assert said in zeroplan(*typed).json["assumed"]
    assert said not in zeroplan(*typed, "--micro-batch", "1").json["assumed"]


def test_a_models_config_is_no_ds_config(zeroplan, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "qwen2", "hidden_size": 896, "torch_dtype": "bfloat16"}))
    code, _out, error = zeroplan("estimate", "--params", "0.5B", "--config", str(path))
    assert code == 2
    assert f"found a model's config.json, expected a ds_config.json; write --model {path}" in error
