"""Files drawn for Accelerate and the Trainer: what each of them says is in tests/references/check/integration.json."""

from __future__ import annotations

import random

STAGES = (0, 1, 2, 3)
OPTIMIZER = {"type": "AdamW", "params": {"lr": 1e-4}}


def launch(seed):
    """YAML for accelerate launch, and the ds_config.json that it may name."""
    rng = random.Random(f"launch {seed}")
    lines = [] if rng.random() < 0.05 else [f"distributed_type: {rng.choice(['DEEPSPEED'] * 8 + ['MULTI_GPU'])}"]
    lines += [f"num_processes: {rng.choice([1, 2, 8])}", "num_machines: 1", "use_cpu: false"]
    if rng.random() < 0.4:
        lines.append(f"mixed_precision: {rng.choice(['bf16', 'fp16', chr(39) + 'no' + chr(39), 'no', 'null', 'bf17'])}")
    if rng.random() < 0.06:
        lines.append(rng.choice(["zero_stage: 2", "num_process: 2", "learning_rate: 1.0e-4"]))
    fields = {
        "zero_stage": rng.choice(STAGES), "zero3_init_flag": rng.choice(["true", "false"]),
        "offload_optimizer_device": rng.choice(["none", "cpu"]), "offload_param_device": rng.choice(["none", "cpu"]),
        "gradient_accumulation_steps": rng.choice([1, 4, "auto", "null"]), "gradient_clipping": rng.choice([1.0, "auto"]),
        "zero3_save_16bit_model": rng.choice(["true", "false"]), "zero_stages": 3,
    }  # fmt: skip
    with_file = rng.random() < 0.5
    share = 0.12 if with_file else 0.6
    chosen = {name: value for name, value in fields.items() if rng.random() < share}
    if with_file:
        chosen["deepspeed_config_file"] = rng.choice(["ds_config.json"] * 6 + ["missing.json"])
    lines += ["deepspeed_config:", *(f"  {name}: {value}" for name, value in chosen.items())] if chosen else []
    return "\n".join(lines) + "\n", config(rng)


def config(rng):
    found = {"train_batch_size": 8, rng.choice(["bf16", "fp16"]): {"enabled": True}}
    if rng.random() < 0.85:
        found["zero_optimization"] = {"stage": rng.choice(STAGES)}
    return found


def trainer(seed):
    """A config with its zero_optimization, and TrainingArguments."""
    rng = random.Random(f"trainer {seed}")

    def one_of(*values):
        return rng.choice([*values, "auto", "auto", "auto"])

    found = {"zero_optimization": {"stage": rng.choice(STAGES)}, "train_batch_size": one_of(8, 16)}
    found["train_micro_batch_size_per_gpu"] = one_of(4, 8)
    found["gradient_accumulation_steps"] = one_of(1, 2)
    found["gradient_clipping"] = one_of(1.0, 0.5)
    if rng.random() < 0.6:
        found["bf16"] = {"enabled": one_of(True, False)}
    if rng.random() < 0.3:
        found["fp16"] = {"enabled": one_of(False)}
    if rng.random() < 0.6:
        params = {"lr": one_of(1e-4, 5e-5), "betas": one_of([0.9, 0.999], [0.9, 0.95]), "eps": one_of(1e-8),
                  "weight_decay": one_of(0.0, 0.1, 0)}  # fmt: skip
        found["optimizer"] = {"type": "AdamW", "params": params}
    if rng.random() < 0.4:
        params = {"warmup_min_lr": one_of(0, 1e-6), "warmup_max_lr": one_of(1e-4, 5e-5),
                  "warmup_num_steps": one_of(1, 10)}  # fmt: skip
        found["scheduler"] = {"type": "WarmupLR", "params": params}
    stated = {
        "per_device_train_batch_size": rng.choice([4, 8]), "gradient_accumulation_steps": rng.choice([1, 2]),
        "max_grad_norm": rng.choice([1.0, 0.5]), "bf16": rng.choice([True, True, False]),
        "learning_rate": rng.choice([1e-4, 5e-5]), "adam_beta2": rng.choice([0.999, 0.95]),
        "weight_decay": rng.choice([0.0, 0.1]), "warmup_steps": rng.choice([0, 10]),
    }  # fmt: skip
    return found, {name: value for name, value in stated.items() if rng.random() < 0.5}
