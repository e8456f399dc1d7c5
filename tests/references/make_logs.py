"""DeepSpeed's own log lines, of two ranks on the CPU with everything switched on that it prints.

torchrun --nproc_per_node 2 tests/references/make_logs.py STAGE warning|info > tests/references/logs/NAME.log 2>&1

The model is logs/config.json. What DeepSpeed calls memory is the process's here. Paths were cut from torch's warnings.
"""

import os
import sys
from pathlib import Path

os.environ.setdefault("DS_ACCELERATOR", "cpu")
os.environ.setdefault("DS_BUILD_OPS", "0")

import deepspeed
import torch
import transformers
from deepspeed.utils.logging import set_log_level_from_string
from transformers import LlamaConfig, LlamaForCausalLM

MICRO, SEQ, ACCUM, STEPS = 2, 64, 2, 5
stage, level = int(sys.argv[1]), sys.argv[2]
set_log_level_from_string(level)
deepspeed.init_distributed(dist_backend="gloo", verbose=False)
rank = deepspeed.comm.get_rank()
if rank == 0:
    print(f"made with deepspeed {deepspeed.__version__}, torch {torch.__version__}, transformers {transformers.__version__}")
torch.manual_seed(0)
config = LlamaConfig.from_json_file(Path(__file__).parent / "logs" / "config.json")
config.use_cache = False
model = LlamaForCausalLM._from_config(config, dtype=torch.bfloat16, attn_implementation="sdpa")
ds_config = {
    "train_micro_batch_size_per_gpu": MICRO, "gradient_accumulation_steps": ACCUM,
    "bf16": {"enabled": True}, "zero_optimization": {"stage": stage},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": True}},
    "wall_clock_breakdown": True, "memory_breakdown": True, "steps_per_print": 1,
    "comms_logger": {"enabled": True, "verbose": False, "prof_all": True, "debug": False},
    "flops_profiler": {"enabled": True, "profile_step": 3, "detailed": False},
}
engine, *_ = deepspeed.initialize(model=model, config=ds_config, model_parameters=model.parameters())
tokens = torch.randint(0, 1000, (MICRO, SEQ), generator=torch.Generator().manual_seed(rank))
for micro_step in range(STEPS * ACCUM):
    loss = engine(input_ids=tokens, labels=tokens).loss
    engine.backward(loss)
    engine.step()
    if micro_step in (2 * ACCUM - 1, STEPS * ACCUM - 1):
        deepspeed.comm.log_summary()
