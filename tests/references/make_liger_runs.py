"""Runs of DeepSpeed with models that Liger has patched, for make_deepspeed_reference --into liger_0.19.8.json.

python -m tests.references.make_liger_runs FOLDER [NUMBER [SEED]]     writes FOLDER/0.json and so on
python -m tests.references.make_liger_runs FILE.case OUT.json          one of them (environment as for verify's child)

As `zeroplan verify` measures on torch's meta device, with Liger's Python in the model and its kernels without effect
(make_liger_reference). Needs what that needs, and DeepSpeed.
"""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

SHAPES = {
    "llama": {}, "mistral": {}, "qwen2": {}, "qwen3": {}, "gemma": {"head_dim": 32}, "gemma2": {"head_dim": 32},
    "olmo2": {}, "phi3": {"pad_token_id": 0}, "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
}  # fmt: skip
EAGER = {"gemma2"}


def drawn(number, seed):
    """Small models, all stages, with offload and accumulation now and then."""
    for at in range(number):
        r = random.Random(f"{seed} {at}")
        family = list(SHAPES)[at % len(SHAPES)]
        heads, stage = r.choice((4, 8)), r.choice((0, 1, 2, 3, 3, 3))
        zero = {"stage": stage, "reduce_bucket_size": r.choice((50_000, 500_000))}
        if stage == 3:
            zero |= {"stage3_prefetch_bucket_size": r.choice((0, 100_000, 5_000_000)),
                     "stage3_param_persistence_threshold": r.choice((0, 1000, 100_000)),
                     "stage3_max_reuse_distance": r.choice((0, 1_000_000_000))}  # fmt: skip
        if stage and r.random() < 0.3:
            zero["offload_optimizer"] = {"device": "cpu"}
        precision = r.choice(("bf16", "bf16", "fp16", "fp32"))
        yield {
            "model": {
                "model_type": family, "hidden_size": 32 * heads, "num_attention_heads": heads,
                "num_key_value_heads": r.choice((2, heads)), "intermediate_size": 16 * r.randint(20, 60),
                "num_hidden_layers": r.choice((2, 3, 4)), "vocab_size": r.randint(1000, 6000),
                "tie_word_embeddings": r.random() < 0.4, **SHAPES[family],
            },
            "ds_config": {
                **({} if precision == "fp32" else {precision: {"enabled": True}}), "zero_optimization": zero,
                "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}, "gradient_clipping": 1.0,
                "gradient_accumulation_steps": r.choice((1, 1, 2)),
            },
            "world": r.choice((2, 4, 8)), "rank": 0, "ranks_per_node": 8, "seq": r.randint(100, 600),
            "micro_batch": r.choice((1, 2, 3)), "steps": 3, "mode": "meta",
            "attention": "eager" if family in EAGER else "sdpa", "checkpointing": r.choice(("none", "full")),
            "zero_init": stage == 3, "parameter_groups": 1, "kernels": r.choice(("liger", "liger", "liger-loss")),
        }  # fmt: skip


def patched(given, found):
    """The child of `zeroplan verify`, its models patched."""
    import torch._dynamo  # before triton is faked
    import deepspeed  # likewise

    from tests.references.make_liger_reference import KERNELS, Patched, liger
    from zeroplan.verify import child, job

    case = json.loads(Path(given).read_text())
    build, kernels, family = job.build, case["kernels"], Patched(case["model"]["model_type"])
    family.__enter__()

    def build_patched(*arguments):
        family.__exit__()  # what the model before this one left in transformers' module
        model = build(*arguments)
        liger()._apply_liger_kernel_to_instance(model=model, **KERNELS[kernels])
        return model

    job.build = build_patched
    return child.main(given, found)


def main(folder, number="36", seed="1"):
    from zeroplan.verify.measure import environment

    for at, case in enumerate(drawn(int(number), seed)):
        given, found = Path(folder, f"{at}.case"), Path(folder, f"{at}.json")
        given.write_text(json.dumps(case))
        command = [sys.executable, "-m", "tests.references.make_liger_runs", str(given), str(found)]
        subprocess.run(command, env={**os.environ, **environment(case)}, check=True, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit(patched(*sys.argv[1:]) if len(sys.argv) == 3 and sys.argv[1].endswith(".case") else main(*sys.argv[1:]))
