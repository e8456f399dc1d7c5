"""train.py, and the lines of code that a plan needs, as texts; tests/emit/test_runs_as_emitted.py starts them."""

from __future__ import annotations

import ast
import json
from dataclasses import replace

import pytest

from tests.emit.plans import STRATEGIES, candidate
from zeroplan.catalog.models import from_preset
from zeroplan.emit.folder import plan_files
from zeroplan.specs.checkpointing import KINDS, ActivationCheckpointing
from zeroplan.specs.target import TARGETS, Script, is_told

LONGEST = 65
"""Lines, of which some 40 do something."""


def texts(target, gpus=8, name="stage 0", **strategy):
    chosen = candidate(name, gpus)
    return plan_files(replace(chosen, job=chosen.job.at(**strategy)), target, "plan")


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("target", TARGETS)
def test_it_is_python_without_zeroplan(name, target):
    found = texts(target, name=name)
    script = found["train.py"]
    imported = {
        node.module if isinstance(node, ast.ImportFrom) else node.names[0].name
        for node in ast.walk(ast.parse(script)) if isinstance(node, ast.Import | ast.ImportFrom)
    }  # fmt: skip
    assert not any(module.startswith("zeroplan") for module in imported)
    assert len(script.splitlines()) <= LONGEST
    assert max(map(len, script.splitlines())) <= 120
    assert json.loads(found["config.json"])["model_type"] == "llama"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", [*KINDS, "every-3-reentrant"])
def test_checkpointing_is_turned_on_once(kind, target):
    """By TrainingArguments, by the model's own call, or by checkpointing.py."""
    found = texts(target, checkpointing=kind)
    by_arguments = bool(json.loads(found.get("training_arguments.json", "{}")).get("gradient_checkpointing"))
    by_call = "checkpointing_enable(" in found["train.py"]
    by_file = "checkpointing.turn_on(model)" in found["train.py"]
    assert by_arguments + by_call + by_file == (kind != "none")
    assert by_file == ("checkpointing.py" in found)
    assert by_arguments == (target == "hf" and kind != "none" and is_told(target, kind))
    if by_file:
        assert "def turn_on(model):" in found["checkpointing.py"]
        ast.parse(found["checkpointing.py"])


@pytest.mark.parametrize("zero_init", [True, False])
@pytest.mark.parametrize(("target", "asks"), [("hf", "parse_args_into_dataclasses()"), ("accelerate", "accelerator = Accelerator(")])
def test_a_model_that_stays_whole_is_built_before_stage_3_is_asked_for(target, asks, zero_init):
    """Run on a CPU with accelerate 1.15: parameters of a model that is built behind have a ds_tensor, zero3_init_flag or not."""
    script = texts(target, stage=3, zero_init=zero_init)["train.py"]
    assert (script.index(asks) < script.index("model = AutoModel")) == zero_init


def test_deepspeed_s_checkpointing_is_configured_by_number_and_not_by_a_file_with_auto():
    stated = ActivationCheckpointing(partitions=True, contiguous=True, number=16)
    lines = texts("hf", checkpointing="deepspeed", activation_checkpointing=stated)["checkpointing.py"]
    assert "configure(None, partition_activations=True, contiguous_checkpointing=True, num_checkpoints=16)" in lines
    assert "configure" not in texts("hf", checkpointing="deepspeed")["checkpointing.py"]


def test_what_a_target_is_told():
    """The Trainer reads every_n_layers and use_reentrant (transformers 5.23, trainer.py:train); no script of another
    has more than the one call of every model.
    """
    told = {target: {kind for kind in (*KINDS, "every-8") if is_told(target, kind)} for target in TARGETS}
    assert told["hf"] == {"none", "full", "every-2", "every-8", "full-reentrant"}
    assert told["deepspeed"] == told["accelerate"] == told["lightning"] == {"none", "full"}
    assert all(Script("deepspeed", code=True).runs(kind) for kind in KINDS)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("words", [{"lora": 8}, {"lora": 8, "quantize": "nf4"}], ids=str)
def test_adapters_and_quantized_weights(target, words):
    """A config that is changed is the model's; from_pretrained reads the weights' own, and takes device_map from none."""
    import zeroplan
    from zeroplan.emit.readme import in_script

    chosen = zeroplan.recommend(
        model="llama-3.2-1b", gpus=1, gpu="rtx-4090", seq=512, stage=2, checkpointing="full", micro_batch=1, **words
    ).search_result.chosen
    script = plan_files(chosen, target, "plan")["train.py"]
    assert script.count("use_cache") == 1
    assert max(map(len, script.splitlines())) <= 120
    if "quantize" in words:
        (loaded,) = (node for node in ast.walk(ast.parse(script)) if isinstance(node, ast.Call)
                     and ast.unparse(node).startswith("AutoModelForCausalLM.from_pretrained(WEIGHTS, "))  # fmt: skip
        assert {"quantization_config", "use_cache", "dtype"} <= {word.arg for word in loaded.keywords}
    else:
        assert "config.use_cache = False\n" in script
        assert "from_config(config," in script
    assert "device_map" not in script + " ".join(in_script(chosen.job, target))


@pytest.mark.parametrize("target", ["deepspeed", "accelerate", "lightning"])
def test_an_optimizer_that_no_config_names_is_made(target):
    script = texts(target, optimizer="adafactor")["train.py"]
    assert "Adafactor(trained, lr=1e-05, scale_parameter=False, relative_step=False)" in script
    assert "DummyOptim" not in script
    assert "Adafactor" not in texts(target)["train.py"]


@pytest.mark.parametrize("target", TARGETS)
def test_liger_s_kernels_are_applied(target):
    """By the Trainer itself, from its arguments."""
    script = texts(target, kernels="liger")["train.py"]
    assert ("apply_liger_kernel(model, None)" in script) == (target != "hf")


def test_on_the_cpu_the_trainer_is_told():
    arguments = json.loads(texts("hf", backend="cpu")["training_arguments.json"])
    assert arguments["use_cpu"] is True
    assert "use_cpu" not in json.loads(texts("hf")["training_arguments.json"])


def test_the_manifest_brings_what_it_starts():
    found = texts("deepspeed", checkpointing="selective")["pytorchjob.yaml"]
    assert "/plan/train.py" in found
    for name in ("train.py: |", "config.json: |", "checkpointing.py: |"):
        assert name in found


@pytest.mark.parametrize("name", ["whisper-large-v3", "qwen3-vl-4b"])
def test_none_is_written_of_what_a_processor_makes(name):
    """Sound, and images."""
    chosen = candidate("stage 0", 8)
    found = plan_files(replace(chosen, job=chosen.job._replace(model=from_preset(name))), "hf", "plan")
    assert "train.py" not in found
    assert json.loads(found["config.json"])["architectures"]
