"""What other tools call an option, a value, a card or a model is taken as it is meant; two meanings are refused."""

from __future__ import annotations

import json
import time

import pytest

from zeroplan.catalog import hardware
from zeroplan.catalog.models import model
from zeroplan.cli.aliases import ALIASES, NAMES, PLACES, SWITCHES
from zeroplan.cli.not_options import not_planned
from zeroplan.errors import ZeroplanError
from zeroplan.request.options import Options
from zeroplan.request.values import flag

JOB = ("gpt2", "--stage", "2", "--gpus", "2")

# --- Options: as typed elsewhere, and as zeroplan has it ------------------------------------------------------

OPTIONS = [
    # transformers' TrainingArguments and the arguments of its example scripts
    ("gpt2 --per_device_train_batch_size 4", "gpt2 --micro-batch 4"),
    ("gpt2 --per-device-train-batch-size 4", "gpt2 --micro-batch 4"),
    ("gpt2 --gradient_accumulation_steps 3", "gpt2 --grad-accum 3"),
    ("gpt2 --gradient_checkpointing", "gpt2 --checkpointing full"),
    ("gpt2 --gradient_checkpointing True", "gpt2 --checkpointing full"),
    ("gpt2 --gradient-checkpointing=true", "gpt2 --checkpointing full"),
    ("gpt2 --gradient_checkpointing false", "gpt2 --checkpointing none"),
    ("gpt2 --bf16", "gpt2 --precision bf16"),
    ("gpt2 --fp16 true --bf16 false", "gpt2 --precision fp16"),
    ("gpt2 --torch_dtype bfloat16", "gpt2 --precision bf16"),
    ("gpt2 --attn_implementation eager", "gpt2 --attention eager"),
    ("--model_name_or_path gpt2", "--model gpt2"),
    ("--model-id gpt2", "--model gpt2"),
    ("gpt2 --max_seq_length 512", "gpt2 --seq 512"),
    ("gpt2 --model_max_length 512", "gpt2 --seq 512"),
    ("gpt2 --block_size 512", "gpt2 --seq 512"),
    ("llama-3.2-1b --use_liger_kernel", "llama-3.2-1b --kernels liger"),
    ("gpt2 --deepspeed ds_config.json", "gpt2 --config ds_config.json"),
    # TRL, LLaMA-Factory, Axolotl
    ("gpt2 --max_length 512", "gpt2 --seq 512"),
    ("gpt2 --cutoff_len 512", "gpt2 --seq 512"),
    ("gpt2 --sequence_len 512", "gpt2 --seq 512"),
    ("--base_model gpt2", "--model gpt2"),
    # ds_config.json and the launcher of DeepSpeed
    ("gpt2 --train_micro_batch_size_per_gpu 4", "gpt2 --micro-batch 4"),
    ("gpt2 --train_batch_size 16 --gpus 2", "gpt2 --global-batch 16 --gpus 2"),
    ("gpt2 --num_gpus 4", "gpt2 --gpus 4"),
    ("gpt2 --num_gpus 4 --num_nodes 2", "gpt2 --gpus 2x4"),
    ("gpt2 --deepspeed_config ds_config.json", "gpt2 --config ds_config.json"),
    ("gpt2 --stage 2 --cpu_offload", "gpt2 --stage 2 --offload-optimizer cpu"),
    # torchrun, accelerate launch
    ("gpt2 --nproc_per_node 4 --nnodes 2", "gpt2 --gpus 2x4"),
    ("gpt2 --nproc-per-node=4", "gpt2 --gpus 4"),
    ("gpt2 --world-size 4", "gpt2 --gpus 4"),
    ("gpt2 --num_processes 8 --num_machines 2", "gpt2 --gpus 2x4"),
    ("gpt2 --gpus 2x4 --nnodes 2", "gpt2 --gpus 2x4"),
    ("gpt2 --mixed_precision no", "gpt2 --precision fp32"),
    ("gpt2 --zero_stage 2 --offload_optimizer_device cpu", "gpt2 --stage 2 --offload-optimizer cpu"),
    ("gpt2 --zero_stage 3 --zero3_init_flag false", "gpt2 --stage 3 --zero-init no"),
    # Megatron, Lightning, and words alone
    ("gpt2 --micro-batch-size 4 --seq-length 512", "gpt2 --micro-batch 4 --seq 512"),
    ("gpt2 --global-batch-size 16 --gpus 2", "gpt2 --global-batch 16 --gpus 2"),
    ("gpt2 --accumulate_grad_batches 3", "gpt2 --grad-accum 3"),
    ("gpt2 --batch-size 4", "gpt2 --micro-batch 4"),
    ("gpt2 --seq-len 512", "gpt2 --seq 512"),
    ("gpt2 --num-gpus 2", "gpt2 --gpus 2"),
    ("gpt2 --zero 2", "gpt2 --stage 2"),
    ("gpt2 --dtype fp32", "gpt2 --precision fp32"),
    ("gpt2 --gpu-type t4", "gpt2 --gpu t4"),
    ("gpt2 --host_mem 64GiB", "gpt2 --host-mem 64GiB"),
    ("--model-size 350M", "--params 350M"),
    # the model in the first place
    ("350M", "--params 350M"),
    ("1.3b", "--params 1.3b"),
    ("124439808", "--params 124439808"),
    ("gpt2", "--model gpt2"),
    ("./config.json", "--model ./config.json"),
    # values
    ("gpt2 --precision bfloat16", "gpt2 --precision bf16"),
    ("gpt2 --precision BF16", "gpt2 --precision bf16"),
    ("gpt2 --precision half", "gpt2 --precision fp16"),
    ("gpt2 --precision float32", "gpt2 --precision fp32"),
    ("gpt2 --precision torch.float16", "gpt2 --precision fp16"),
    ("gpt2 --stage zero2", "gpt2 --stage 2"),
    ("gpt2 --stage ZeRO-3", "gpt2 --stage 3"),
    ("gpt2 --stage z3", "gpt2 --stage 3"),
    ("gpt2 --stage 3 --zero-init true", "gpt2 --stage 3 --zero-init yes"),
    ("gpt2 --optimizer AdamW", "gpt2 --optimizer adamw"),
    ("gpt2 --stage 2 --offload-optimizer CPU", "gpt2 --stage 2 --offload-optimizer cpu"),
    ("gpt2 --gpus 2xT4", "gpt2 --gpus 2 --gpu T4"),
    ("gpt2 --gpus 2x4xT4", "gpt2 --gpus 2x4 --gpu T4"),
    ("gpt2 --gpus 2x4090", "gpt2 --gpus 2 --gpu 4090"),
    # one option by two names that agree
    ("gpt2 --bf16 --dtype bfloat16", "gpt2 --precision bf16"),
    ("gpt2 --zero 2 --stage ZeRO-2", "gpt2 --stage 2"),
]  # fmt: skip


@pytest.fixture
def _files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ds_config.json").write_text('{"zero_optimization": {"stage": 2}, "bf16": {"enabled": true}}')
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')


@pytest.mark.usefixtures("_files")
@pytest.mark.parametrize(("typed", "meant"), OPTIONS, ids=lambda text: text)
def test_an_option_of_another_tool_is_the_option_here(zeroplan, typed, meant):
    ran = zeroplan("estimate", *typed.split(), "--json")
    assert ran.code == 0, ran.err
    assert ran.json == zeroplan("estimate", *meant.split(), "--json").json


def test_the_positional_takes_what_params_and_model_take(zeroplan):
    """Of each command that names a model; `matrix` takes several."""
    rows = [row["model"]["name"] for row in zeroplan("matrix", "350M,1.3B", "--gpus", "2", "--json").json["rows"]]
    assert rows == ["350M", "1.3B"]
    assert zeroplan("compare", "gpt2", "--gpu", "t4", "--gpus", "1,2", "--json").json["model"]["name"] == "gpt2"
    assert "gpt2" in zeroplan("recommend", "gpt2", "--gpu", "t4", "--gpus", "1", "-q").out


REFUSED = [
    ("gpt2 --params 7B", "gpt2 and --params 7B", "keep one"),
    ("7B --model gpt2", "7B and --model gpt2", "keep one"),
    ("7B,gpt2", "'7B,gpt2'", "write two commands"),
    ("7Gb", "'7Gb'", "--params 7B"),
    ("gpt2 --batch-size 4 --micro-batch 2", "--batch-size 4 and --micro-batch 2", "--micro-batch"),
    ("gpt2 --batch_size 4 --per_device_train_batch_size 2", "--batch_size 4 and --per_device_train_batch_size 2", "keep one"),
    ("gpt2 --bf16 --fp16", "--bf16 and --fp16", "--precision"),
    ("gpt2 --zero 2 --stage 3", "--zero 2 and --stage 3", "--stage"),
    ("gpt2 --gradient_checkpointing --checkpointing none", "--gradient_checkpointing and --checkpointing none", "keep one"),
    ("gpt2 --num-gpus 2 --gpus 4", "--num-gpus", "--gpus 4"),
    ("gpt2 --batch-size none", "'none'", "--batch-size is --micro-batch here"),
    ("gpt2 --seq-len", "--seq-len", "--seq"),
    ("gpt2 --bf16=maybe", "maybe", "--precision bf16"),
    ("gpt2 --nnodes 2", "--nnodes", "--gpus 2x8"),
    ("gpt2 --nnodes 2 --gpus 8", "--nnodes 2 beside --gpus 8", "--gpus 2x4"),
    ("gpt2 --world-size 9 --nnodes 2", "--world-size 9", "--gpus NODESxGPUS"),
    ("gpt2 --nproc-per-node gpu", "'gpu'", "--gpus 4x8"),
    ("gpt2 --gpus 2xA100 --gpu h100", "--gpus 2xA100 and --gpu h100", "--gpus 2"),
    ("gpt2 --offload-optimizer true", "'true'", "--offload-optimizer cpu, or nvme"),
    ("gpt2 --offload-optimizer yes", "'yes'", "--offload-optimizer cpu, or nvme"),
    ("gpt2 --offload-optimizer on", "'on'", "--offload-optimizer cpu, or nvme"),
    ("gpt2 --offload-param 1", "'1'", "--offload-param cpu, or nvme"),
    ("gpt2 --offload-param true", "'true'", "--offload-param cpu, or nvme"),
    ("gpt2 --offload-optimizer gpu", "'gpu'", "--offload-optimizer none"),
    ("gpt2 --offload-optimizer false", "'false'", "--offload-optimizer none"),
    ("gpt2 --precision int8", "'int8'", "--precision"),
    ("gpt2 --stage zero4", "'zero4'", "--stage 2"),
    ("gpt2 --modle x", "--modle", "--model, or"),
    ("gpt2 --bach-size 4", "--bach-size", "--batch-size"),
    ("gpt2 --dora", "--dora", "--lora 16"),
    ("gpt2 --learning_rate 1e-5", "--learning_rate", "leave it out"),
    ("gpt2 --per_device_eval_batch_size 4", "--per_device_eval_batch_size", "leave it out"),
]  # fmt: skip


@pytest.mark.parametrize(("typed", "found", "write"), REFUSED, ids=lambda text: text)
def test_what_may_mean_two_things_is_refused_in_one_line(zeroplan, typed, found, write):
    ran = zeroplan("estimate", *typed.split())
    assert (ran.code, ran.out) == (2, "")
    assert len(ran.err.splitlines()) == 1
    assert found in ran.err
    assert write in ran.err


def test_a_misspelt_option_names_that_one_alone(zeroplan):
    err = zeroplan("estimate", "--modle", "gpt2").err
    assert "write --model, or see" in err
    assert "--nvme" not in err


@pytest.mark.parametrize(("typed", "write"), [("7B", "zeroplan estimate 7B"), ("estimat", "'estimate'"), ("--params", "zeroplan estimate --params")])
def test_a_word_before_any_command(zeroplan, typed, write):
    ran = zeroplan(typed)
    assert (ran.code, ran.out) == (2, "")
    assert write in ran.err


def test_a_value_that_looks_like_an_alias_stays_a_value(zeroplan, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "batch_size").mkdir()
    (tmp_path / "batch_size" / "config.json").write_text('{"model_type": "gpt2"}')
    assert zeroplan("estimate", "--model", "./batch_size", "-q").code == 0


def test_the_last_of_one_name_typed_twice_holds(zeroplan):
    twice = zeroplan("estimate", "gpt2", "--stage", "1", "--stage", "2", "--json").json
    assert twice == zeroplan("estimate", "gpt2", "--stage", "2", "--json").json


def test_aliases_are_words_of_one_option_and_of_nothing_else():
    own = {flag(name)[2:] for name in Options.__annotations__}
    words = [word for group in ALIASES.values() for word in group]
    assert len(words) == len(set(words)) == len(NAMES)
    assert not (set(words) | set(PLACES)) & own
    assert not set(words) & (set(SWITCHES) | set(PLACES))
    assert {option[2:] for option in (*ALIASES, *(switch.option for switch in SWITCHES.values()))} <= own
    for word in (*words, *SWITCHES, *PLACES):
        assert not_planned(f"--{word}") is None, word


def test_check_keeps_its_own_option_of_that_name(zeroplan, tmp_path):
    """--deepspeed is the Trainer's file elsewhere, and a version there."""
    (tmp_path / "ds.json").write_text('{"train_batch_size": 8}')
    ran = zeroplan("check", str(tmp_path / "ds.json"), "--deepspeed", "0.19.8")
    assert ran.code in (0, 1), ran.err


# --- Cards ----------------------------------------------------------------------------------------------------

CARDS = [
    # typed, GB on the box, in its title
    ("A100", 80, "A100 SXM"), ("a100", 80, "A100 SXM"), ("A100-40GB", 40, "A100 SXM"), ("A100 40GB", 40, "A100 SXM"),
    ("a100-80", 80, "A100 SXM"), ("A100 80G", 80, "A100 SXM"), ("NVIDIA A100-SXM4-80GB", 80, "A100 SXM"),
    ("NVIDIA A100-SXM4-40GB", 40, "A100 SXM"), ("NVIDIA A100-PCIE-40GB", 40, "A100 PCIe"),
    ("NVIDIA A100 80GB PCIe", 80, "A100 PCIe"), ("H100", 80, "H100 SXM"), ("NVIDIA H100 80GB HBM3", 80, "H100 SXM"),
    ("H100 SXM5", 80, "H100 SXM"), ("H100 PCIe", 80, "H100 PCIe"), ("h100 nvl", 94, "H100 NVL"), ("h200", 141, "H200"),
    ("NVIDIA H200", 141, "H200"), ("B200", 180, "B200"), ("L40S", 48, "L40S"), ("NVIDIA L40S", 48, "L40S"),
    ("A10G", 24, "A10G"), ("T4", 16, "T4"), ("Tesla T4", 16, "T4"), ("V100", 32, "V100"),
    ("Tesla V100-SXM2-16GB", 16, "V100"), ("V100-32GB", 32, "V100"), ("4090", 24, "RTX 4090"),
    ("rtx4090", 24, "RTX 4090"), ("RTX 4090", 24, "RTX 4090"), ("RTX 4090 24GB", 24, "RTX 4090"),
    ("NVIDIA GeForce RTX 4090", 24, "RTX 4090"), ("3090ti", 24, "RTX 3090 Ti"), ("rtx_3090", 24, "RTX 3090"),
    ("mi300x", 192, "MI300X"), ("AMD Instinct MI300X", 192, "MI300X"), ("RTX A6000", 48, "A6000"),
    ("GH200 480GB", 96, "GH200"), ("L4", 24, "L4"),
]  # fmt: skip


@pytest.mark.parametrize(("typed", "gigabytes", "title"), CARDS)
def test_a_card_in_any_usual_spelling(typed, gigabytes, title):
    card = hardware.gpu(typed)
    assert card.memory_class == gigabytes
    assert title in card.title


@pytest.mark.parametrize("typed", ["rtx-4090-48gb", "a100-60gb", "quadro rtx 6000", "v100-pcie-16gb", "rtx 6000", "100", "h"])
def test_a_card_that_is_none_of_these(typed):
    with pytest.raises(ZeroplanError):
        hardware.gpu(typed)


@pytest.mark.parametrize(
    ("typed", "said"),
    [("A100", "A100 is NVIDIA A100 SXM 80GB (--gpu a100-40gb"), ("V100", "--gpu v100-16gb"), ("h100", "--gpu h100-pcie or h100-nvl"), ("2xA100", "a100-40gb"), ("a100-80gb", ""), ("4090", "")],
)
def test_a_short_name_says_which_card_it_is_taken_for(zeroplan, typed, said):
    option = "--gpus" if typed.startswith("2x") else "--gpu"
    assumed = zeroplan("estimate", "gpt2", option, typed, "--stage", "2", "--json").json["assumed"]
    found = [text for text in assumed if "otherwise)" in text]
    assert bool(found) == bool(said)
    assert all(said in text for text in found)


# --- Models ---------------------------------------------------------------------------------------------------

LLAMA_2_7B, LLAMA_3_8B, QWEN_7B = 6_738_415_616, 8_030_261_248, 7_615_616_512
MISTRAL_V1, MISTRAL_V3, GPT2, GPT2_XL = 7_241_732_096, 7_248_023_552, 124_439_808, 1_557_611_200
MODELS = [
    # typed, parameters as published
    ("Qwen/Qwen3-VL-8B-Instruct", 8_767_123_696), ("qwen3-vl 8b", 8_767_123_696),
    ("Llama-2-7b-hf", LLAMA_2_7B), ("meta-llama/Llama-2-7b-hf", LLAMA_2_7B), ("meta-llama/Llama-2-7b-chat-hf", LLAMA_2_7B),
    ("llama2-7b", LLAMA_2_7B), ("Llama 2 7B", LLAMA_2_7B), ("llama_2_7b", LLAMA_2_7B), ("llama2:7b", LLAMA_2_7B),
    ("llama3-8b", LLAMA_3_8B), ("llama-3-8b-instruct", LLAMA_3_8B), ("Meta-Llama-3-8B", LLAMA_3_8B),
    ("meta-llama/Meta-Llama-3-8B-Instruct", LLAMA_3_8B), ("meta-llama/Llama-3.1-8B-Instruct", LLAMA_3_8B),
    ("META-LLAMA/llama-3.1-8b", LLAMA_3_8B), ("llama3.1-8b", LLAMA_3_8B), ("Llama-3.1-8B-Instruct", LLAMA_3_8B),
    ("Qwen2.5-7B-Instruct", QWEN_7B), ("qwen2.5 7b", QWEN_7B), ("Qwen/Qwen2.5-7B", QWEN_7B), ("qwen2.5-coder-7b", QWEN_7B),
    ("Qwen/Qwen2.5-Coder-7B-Instruct", QWEN_7B), ("Qwen/Qwen3-8B", 8_190_735_360), ("qwen3 8b", 8_190_735_360),
    ("mistralai/Mistral-7B-v0.1", MISTRAL_V1), ("Mistral-7B-Instruct-v0.1", MISTRAL_V1),
    ("mistralai/Mistral-7B-Instruct-v0.3", MISTRAL_V3), ("mistral 7b v0.3", MISTRAL_V3),
    ("gpt2", GPT2), ("openai-community/gpt2", GPT2), ("GPT2", GPT2), ("gpt-2", GPT2), ("gpt2-xl", GPT2_XL), ("gpt2xl", GPT2_XL),
    ("mixtral-8x7b-instruct-v0.1", 46_702_792_704), ("facebook/opt-1.3b", 1_315_758_080), ("opt-13b", 12_853_473_280),
    ("bert-base-uncased", 109_514_298), ("deepseek-ai/DeepSeek-R1", 671_026_404_352), ("gemma-2-9b-it", 9_241_705_984),
    ("google/gemma-2b-it", 2_506_172_416), ("EleutherAI/pythia-6.9b-deduped", 6_857_302_016), ("phi_1_5", 1_418_270_720),
]  # fmt: skip


@pytest.fixture
def _offline(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.mark.usefixtures("_offline")
@pytest.mark.parametrize(("typed", "parameters"), MODELS)
def test_a_model_in_any_usual_spelling(typed, parameters):
    assert model(typed).parameters == parameters


NOT_MODELS = [
    ("mistral-7b", "mistral-7b-v0.1, mistral-7b-v0.3"),  # their vocabularies differ
    ("llama-38b", "nearest"),
    ("llama-7b", "llama-2-7b"),
    ("gemma-3-12b-it", "gemma-3-12b-text"),  # an image tower stands in its config.json
    ("mistralai/Mistral-7B-v0.2", "Mistral-7B-v0.2"),
    ("TheBloke/Llama-2-7B-GPTQ", "write --model llama-2-7b for full training"),
    ("TheBloke/Llama-2-7B-Chat-AWQ", "write --model llama-2-7b for full training"),
    ("Llama-2-7b-GGUF", "quantized"),
    ("unsloth/llama-3-8b-bnb-4bit", "write --model llama-3-8b for full training"),
    ("Qwen/Qwen3-8B-FP8", "write --model qwen3-8b for full training"),
    ("nobody/nothing", "config.json"),
]


@pytest.mark.usefixtures("_offline")
@pytest.mark.parametrize(("typed", "said"), NOT_MODELS)
def test_a_model_that_is_none_of_these(typed, said):
    with pytest.raises(ZeroplanError) as error:
        model(typed)
    assert said in str(error.value)


@pytest.mark.usefixtures("_offline")
@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "is preset llama-3.1-8b (config.json of the repository is not read"),
        ("Qwen2.5-7B-Instruct", "is preset qwen2.5-7b"),
        ("NousResearch/Llama-2-7b-hf", "has the sizes of preset llama-2-7b: its own config.json could not be read"),
        ("llama-3.1-8b", None), ("Llama 3.1 8B", None),
    ],
)  # fmt: skip
def test_a_preset_in_place_of_another_name_is_said(typed, said):
    assumed = model(typed).assumed
    assert bool(assumed) == bool(said)
    assert not said or said in assumed[0]


def test_positions_are_those_of_the_repository():
    """Of Qwen2.5-7B 131,072; its model card says that the config.json of Instruct is set for 32,768."""
    assert (model("qwen2.5-7b").shape.positions, model("qwen2.5-7b-instruct").shape.positions) == (131072, 32768)


@pytest.mark.usefixtures("_offline")
def test_offline_a_repository_fails_within_a_second(zeroplan):
    start = time.perf_counter()
    ran = zeroplan("estimate", "nobody/nothing")
    assert time.perf_counter() - start < 1
    assert (ran.code, len(ran.err.splitlines())) == (2, 1)


def test_json_says_what_a_name_was_taken_for(zeroplan):
    assumed = zeroplan("estimate", "Qwen/Qwen3-8B", "--stage", "3", "--json").json["assumed"]
    assert any("Qwen/Qwen3-8B is preset qwen3-8b" in text for text in assumed)
    json.dumps(assumed)
