"""Kinds of files that public repositories have, each as small as it was once taken for another, or judged otherwise than
its reader does. What the reader does was run: accelerate 1.15, transformers 5.24, DeepSpeed 0.19.8, omegaconf 2.3.
"""

from __future__ import annotations

import pytest

LAUNCH = "distributed_type: DEEPSPEED\nnum_processes: 2\nmixed_precision: bf16\n"


@pytest.fixture
def check(zeroplan, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def run(name, text, *options):
        (tmp_path / name).write_text(text, encoding="utf-8")
        return zeroplan("check", name, "--format", "concise", *options)

    return run


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ds.yaml", '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2, '
                    '"reduce_bucket_size": 5e8}}'),
        ("hydra.yaml", "train_micro_batch_size_per_gpu: ${batch}\nbf16: {enabled: true}\n"
                       "zero_optimization: {stage: 3, stage3_max_live_parameters: 1e9, "
                       "stage3_gather_16bit_weights_on_model_save: true}\n"),
        ("sat.yaml", "batch: 1\ndeepspeed:\n  train_micro_batch_size_per_gpu: 1\n  bf16: {enabled: true}\n"
                     "  zero_optimization: {stage: 2, reduce_bucket_size: 1e9}\n"),
        ("trl.yaml", 'method: dpo\ndeepspeed: {bf16: {enabled: true}, zero_optimization: {stage: 2}, '
                     'train_micro_batch_size_per_gpu: "auto"}\n'),
    ],
)  # fmt: skip
def test_what_runs(check, name, text):
    """json.load takes JSON under any name; OmegaConf has 1e9 for a number; who writes "auto" has somebody who fills it."""
    ran = check(name, text)
    assert (ran.code, ran.err) == (0, "")
    assert "error" not in ran.out


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("espnet.yaml", "ngpu: 1\nmax_epoch: 3\ndeepspeed_config: null\n", "keys of something else ('ngpu'"),
        ("strategy.yaml", "_target_: lightning.pytorch.strategies.FSDPStrategy\nzero_optimization: true\nstage: 2\n",
         "a file that Hydra makes an object of ('_target_'"),
        ("wandb.yaml", "deepspeed: {value: null}\noutput_dir: {value: out}\nlearning_rate: {value: 1.0e-05}\n"
                       "per_device_train_batch_size: {value: 4}\n", "another tool's file ('deepspeed'"),
        ("jinja.json", '{"train_batch_size": {{ size }}, "bf16": {"enabled": true}}', "a template"),
    ],
)  # fmt: skip
def test_what_is_another_tools(check, zeroplan, name, text, said):
    ran = check(name, text)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert zeroplan("estimate", "--config", name, "--params", "7B").code == 2


@pytest.mark.parametrize(
    ("more", "write"),
    [
        ("deepspeed_config: ./ds.json\n", "deepspeed_config: {deepspeed_config_file: ./ds.json}"),
        ("deepspeed_config: {zero_stage: 2}\ngpu_ids: 0\n", "gpu_ids: '0'"),
        ("deepspeed_config: {zero_stage: 2}\ngpu_ids: [0, 1]\n", "gpu_ids: '0,1'"),
        ("deepspeed_config: {zero_stage: 2}\ncompute_environment: local_machine\n", "compute_environment: LOCAL_MACHINE"),
        ("deepspeed_config: {zero_stage: 2}\nmain_process_port: '29555'\n", "main_process_port: 29555"),
        ("deepspeed_config: {zero_stage: auto}\n", "zero_stage: 3"),
        ("deepspeed_config: {zero_stage: 2, zero3_init_flag: maybe}\n", "zero3_init_flag: true"),
    ],
)  # fmt: skip
def test_where_accelerate_launch_stops(check, more, write):
    """Run: AttributeError of str, int and list, ValueError of unknown keys, of 'auto' and of 'maybe', TypeError of a port."""
    ran = check("accelerate.yaml", LAUNCH + more)
    assert ran.code == 1
    assert ran.out.count(" error ZP811: ") == 1
    assert f"write: {write}\n" in ran.out


@pytest.mark.parametrize("more", [
    "deepspeed_config: {zero_stage: 2}\ngpu_ids: all\nmain_process_port: 29555\n", "deepspeed_config: {zero_stage: '2'}\n",
    "deepspeed_config: {zero_stage: 2, zero3_init_flag: off}\n", "deepspeed_config: {zero_stage: 2}\ngpu_ids: 0,1\n",
])  # fmt: skip
def test_where_it_does_not(check, more):
    assert " error " not in check("accelerate.yaml", LAUNCH + more).out


def test_a_field_twice(check):
    """PyYAML keeps the last."""
    assert "warning ZP103: zero_stage is there twice: accelerate launch takes the last" in check(
        "accelerate.yaml", f"{LAUNCH}deepspeed_config: {{zero_stage: 2, zero_stage: 3}}\n").out  # fmt: skip


@pytest.mark.parametrize(
    ("text", "write"),
    [
        ('"fp16": {"enabled": true, "dynamic_loss_scale": true}', "delete it"),
        ('"bf16": {"enabled": true}, "comment": "neox"', "delete it"),
        ('"bf16": {"enabled": true}, "zero_optimization": {"stage": 1, "allreduce_bucket_size": 5e8}', '"reduce_bucket_size": 500000000'),
        ('"bf16": {"enabled": true}, "zero3_save_16bit_model": true', '"stage3_gather_16bit_weights_on_model_save" in zero_optimization'),
        ('"bf16": {"enabled": true}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "scheduler": {"type": "WarmupCosineLR", '
         '"params": {"total_num_steps": 10000, "warmup_min_lr": 1e-5}}', '"warmup_min_ratio": 0.1'),
        ('"bf16": {"enabled": true}, "scheduler": {"type": "WarmupCosineLR", "params": {"total_num_steps": 10000, "warmup_max_lr": 1e-4}}',
         "delete it; the optimizer's lr is what it rises to"),
    ],
)  # fmt: skip
def test_what_to_write_is_what_deepspeed_takes(check, text, write):
    """Run: min_loss_scale refuses true, comet is a section; WarmupCosineLR begins at warmup_min_ratio of the optimizer's rate."""
    assert f"write: {write}\n" in check("ds.json", f'{{"train_micro_batch_size_per_gpu": 1, {text}}}').out


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("generation_config.json", '{"eos_token_id": 2, "_from_model_config": true, "transformers_version": "4.41.2"}', "keys of something else"),
        ("trainer_state.json", '{"epoch": 1.0, "global_step": 10, "log_history": [], "train_batch_size": 2}', "the Trainer's state"),
        ("config.json", '{"model_type": "qwen", "architectures": ["QWenLMHeadModel"], "bf16": false, "fp16": true, "hidden_size": 64}',
         "a model's config.json"),
        ("config.json", '{"n_embd": 768, "n_layer": 12, "vocab_size": 21128}', "keys of something else"),
        ("conflict.json", '{\n<<<<<<< HEAD\n "train_batch_size": 8\n=======\n "train_batch_size": 4\n>>>>>>> other\n}', "a merge conflict"),
        ("rlhf.yaml", "pretrain: meta-llama/Llama-3-8B\nzero_stage: 3\nmicro_train_batch_size: 2\nlearning_rate: 1.0e-6\n",
         "a file of OpenRLHF"),
    ],
)  # fmt: skip
def test_what_lies_beside_a_config(check, name, text, said):
    ran = check(name, text)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("ray job submit -- python3 -m openrlhf.cli.train_ppo_ray --zero_stage $STAGE", "a script of OpenRLHF"),
        ("python3 -m verl.trainer.main_ppo data.train_files=x", "a script of verl, which trains without DeepSpeed"),
    ],
)  # fmt: skip
def test_scripts_of_tools_without_a_config(check, line, said):
    ran = check("run.sh", f"#!/bin/bash\n{line}\n")
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


@pytest.mark.parametrize("line", ['base.update({"zero_optimization": {"stage": 2}, "bf16": {"enabled": True}})',
                                  'base |= {"zero_optimization": {"stage": 3}, "bf16": {"enabled": True}}'])  # fmt: skip
def test_a_dict_that_is_put_into_another(check, zeroplan, line):
    """Its batch stands in the other; a name that nobody knows is wrong in either."""
    assert check("train.py", f"base = load()\n{line}\n").code == 0
    assert "other code decides the rest of what it is put into" in zeroplan("check", "train.py").out
    assert "ZP108" in check("train.py", f"base = load()\n{line}\n".replace('"stage"', '"overlap_com": True, "stage"')).out


@pytest.mark.parametrize(("batch", "options", "micro"), [(6, (), 2), (400, ("--gpus", "4"), 100), (7, (), 1), (64, (), 4)])
def test_a_share_that_divides_the_batch(check, batch, options, micro):
    """Run: 4 beside a train_batch_size of 6 on one GPU: AssertionError, 6 != 4 * 1 * 1."""
    ran = check("ds.json", f'{{"train_batch_size": {batch}, "bf16": {{"enabled": true}}}}', *options)
    assert f'write: "train_micro_batch_size_per_gpu": {micro}\n' in ran.out


TRAINER = "output_dir: o\nper_device_train_batch_size: 1\n"
BLOCK = "deepspeed: {zero_optimization: {stage: 2}, train_micro_batch_size_per_gpu: auto}\n"
AXOLOTL = "base_model: x\nsequence_len: 512\nmicro_batch_size: 1\nbf16: true\n" + BLOCK


@pytest.mark.parametrize(
    ("text", "stops"),
    [
        (f"{TRAINER}bf16: true\n{BLOCK}", False), (f"{TRAINER}bf16: true\nfp16: true\n{BLOCK}", True),
        (f"{TRAINER}bf16: true\nfsdp: full_shard\n{BLOCK}", True), (f"{TRAINER}bf16: true\nfsdp: ''\n{BLOCK}", False),
        (AXOLOTL, False), (f"{AXOLOTL}fp16: true\n", False), (f"{AXOLOTL}fsdp: [full_shard]\n", True),
        (f"{AXOLOTL}optimizer: muon\n", True), (f"{AXOLOTL}optimizer: flash_adamw\n", True),
        (f"{AXOLOTL}optimizer: adamw_torch\n", False), (f"{AXOLOTL}adapter: lora\nrelora: true\n", True),
        ("model: x\ntuner_type: full\nfsdp: fsdp2\ndeepspeed: zero3\n", True),
        ("model: x\ntuner_type: full\ndeepspeed_autotp_size: 2\ndeepspeed: zero3\n", True),
        ("model: x\ntuner_type: full\ndeepspeed_autotp_size: 2\ndeepspeed: zero2\n", False),
    ],
)  # fmt: skip
def test_what_a_trainer_refuses_of_its_own_file(check, text, stops):
    """Run: ValueError or ValidationError of transformers 5.24, axolotl 0.19 and ms-swift 4.6, or none."""
    assert ("error ZP822" in check("train.yaml", text).out) == stops


def test_a_key_twice_in_llama_factorys(check):
    """Run: ConstructorError of OmegaConf, found duplicate key stage."""
    file = "model_name_or_path: x\nfinetuning_type: lora\nstage: sft\nstage: sft\noutput_dir: o\n" + BLOCK
    assert "train.yaml:4:1: error ZP103: stage is there twice: LLaMA-Factory stops" in check("train.yaml", file).out


@pytest.mark.parametrize("name", ["train.yaml", "run.sh"])
def test_a_config_as_a_text_of_json(check, name):
    """Run: transformers parses it; DeepSpeed: Input should be 0, 1, 2 or 3."""
    config = '{"zero_optimization": {"stage": 9}, "train_batch_size": "auto"}'
    text = {"train.yaml": f"{TRAINER}bf16: true\ndeepspeed: '{config}'\n",
            "run.sh": f"torchrun --nproc_per_node 2 train.py --per_device_train_batch_size 1 --bf16 --deepspeed '{config}'\n"}[name]  # fmt: skip
    assert "error ZP401" in check(name, text).out


def test_a_launch_without_a_config_hides_no_other(check, tmp_path):
    head = "model_name_or_path: x\nfinetuning_type: lora\nstage: sft\noutput_dir: o\nbf16: true\n"
    (tmp_path / "bad.yaml").write_text(f"{head}deepspeed: {{zero_optimization: {{stage: 7}}, train_batch_size: auto}}\n", encoding="utf-8")
    (tmp_path / "none.yaml").write_text(head, encoding="utf-8")
    assert "error ZP401" in check("run.sh", "llamafactory-cli train bad.yaml\nllamafactory-cli train none.yaml\n").out
    ran = check("run.sh", "llamafactory-cli train none.yaml\n")
    assert (ran.code, ran.out) == (2, "")
    assert "none.yaml: found a training file of LLaMA-Factory that names no DeepSpeed config" in ran.err


def test_accumulation_that_the_config_leaves_out(check):
    """Run: a step of the Trainer on one rank: it trains with an accumulation of 1, and stops where the micro-batch is "auto"
    too (2 != 1 * 1 * 1).
    """
    file = TRAINER + "bf16: true\ngradient_accumulation_steps: 2\ndeepspeed: {zero_optimization: {stage: 2}, train_batch_size: auto%s}\n"
    assert "warning ZP205" in check("train.yaml", file % "").out
    assert "error ZP205" in check("train.yaml", file % ", train_micro_batch_size_per_gpu: auto").out


@pytest.mark.parametrize("text", [
    "optimizer: {name: sgd, lr: 0.1}\nscheduler: {name: cosine}\n",
    "optimizer: {_component_: torch.optim.AdamW, lr: 2.0e-4}\ngradient_accumulation_steps: 4\ncompile: true\n",
])  # fmt: skip
def test_an_optimizer_of_another_tool(check, text):
    ran = check("sft.yaml", text)
    assert (ran.code, ran.out) == (2, "")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("Dockerfile", "FROM x\nRUN y\n", "a Dockerfile"),
        ("README.md", "# x\n", "Markdown"), ("x.ipynb.txt", "words\n", "a notebook"), ("notes", "words and words\n", "neither JSON nor YAML"),
    ],
)  # fmt: skip
def test_what_is_no_json_is_named(check, name, text, said):
    ran = check(name, text)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


@pytest.mark.parametrize(("name", "first"), [("run", "#!/bin/bash -l"), ("run", "#! /bin/sh -e"), ("run.job", "#SBATCH --nodes=1"),
                                             ("run.pbs", "#PBS -l select=1"), ("run.lsf", "#BSUB -n 4")])  # fmt: skip
def test_scripts_of_any_name(check, name, first):
    """Run: a shell, sbatch, qsub and bsub take them."""
    (line, config) = "deepspeed --num_gpus 2 t.py --deepspeed_config ds.json\n", '{"train_batch_size": 2, "bf16": {"enabled": true}, "optimizr": 1}'
    check("ds.json", config)
    assert "ZP105: optimizr" in check(name, f"{first}\n{line}").out


def test_lines_of_a_batch_system_in_a_python_file(check):
    """A program that writes job scripts is none."""
    text = 'JOB = """\n#SBATCH --nodes=1\n"""\nds_config = {"train_batch_size": 8, "optimizr": 1, "zero_optimization": {"stage": 2}}\n'
    assert "submit.py:4:" in check("submit.py", text).out


def test_a_script_that_is_built_on_an_accelerator(check):
    """Run: accelerate launch trains; --output_dir is diffusers' name too, and --mixed_precision none of the Trainer's."""
    file = "distributed_type: DEEPSPEED\nnum_processes: 2\nmixed_precision: bf16\ndeepspeed_config: {zero_stage: 2}\n"
    check("in.yaml", file)
    ran = check("run.sh", "accelerate launch --config_file in.yaml t.py --mixed_precision bf16 --output_dir out\n")
    assert "ZP620" not in ran.out


def test_python_with_old_line_ends(check):
    ran = check("train.py", 'x = 1\r\rds_config = {"train_micro_batch_size_per_gpu": 1,\r "zero_optimization": {"stage": 9}}\r')
    assert "error ZP401" in ran.out


def test_a_ds_config_in_the_place_of_accelerates(check):
    """Run: ValueError, a `distributed_type` must be specified in the config file."""
    check("ok.json", '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}')
    ran = check("run.sh", "accelerate launch --config_file ok.json t.py\n")
    assert (ran.code, ran.err) == (1, "")
    assert "ok.json:1:2: error ZP811: no distributed_type: accelerate launch stops" in ran.out


def test_a_dict_whose_batch_is_put_there_later(check):
    """DeepSpeed-Chat's way: a function returns the dict, and its caller fills it in."""
    ran = check("train.py", 'def get():\n    ds_config = {"zero_optimization": {"stage": 2}, "bf16": {"enabled": True}}\n    return ds_config\n')
    assert (ran.code, "ZP203" in ran.out) == (0, False)


INITIALIZE = 'import deepspeed\n%sdeepspeed.initialize(model=m, config=%s)\n'


@pytest.mark.parametrize(
    ("config", "rule"),
    [
        ('{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "zero_optimization": {"stage": 3, "sub_group_size": "auto"}}', None),
        ('{"train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": True}, "zero_optimization": {"stage": 2}}', "ZP207"),
        ('{"train_batch_size": 8, "fp16": {"enabled": True, "enable": 1}}', "ZP108"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("by_name", [False, True])
def test_what_initialize_is_given(check, config, rule, by_name):
    """Run: DeepSpeed drops "auto" of its strict sections, stops at one that counts (TypeError), refuses enable."""
    before, given = (f"cfg = {config}\n", "cfg") if by_name else ("", config)
    out = check("train.py", INITIALIZE % (before, given)).out
    assert (f"error {rule}" in out) if rule else " error " not in out


@pytest.mark.parametrize(("code", "rule"), [("a = Accelerator(mixed_precision='bf16')\n", False), ("a = Accelerator()\nt = SFTTrainer(x)\n", True)])
def test_the_script_itself_says_whose_its_arguments_are(check, code, rule):
    """Run: a script with an Accelerator alone trains whatever its own --output_dir and --num_train_epochs are called."""
    check("in.yaml", "distributed_type: DEEPSPEED\nnum_processes: 2\nmixed_precision: bf16\ndeepspeed_config: {zero_stage: 2}\n")
    check("t.py", code)
    out = check("run.sh", "accelerate launch --config_file in.yaml t.py --num_train_epochs 1 --output_dir out\n").out
    assert ("error ZP620" in out) == rule


def test_ms_swifts_file_is_ms_swift(check):
    """ms-swift's swift/cli/sft.py is what `swift sft` starts: its precision follows torch_dtype."""
    check("in.yaml", "distributed_type: DEEPSPEED\nnum_processes: 2\nmixed_precision: bf16\ndeepspeed_config: {zero_stage: 2}\n")
    out = check("run.sh", "accelerate launch --config_file in.yaml swift/cli/sft.py --torch_dtype bfloat16 --num_train_epochs 1\n").out
    assert "ZP620" not in out
