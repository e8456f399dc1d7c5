"""Watches a training run from inside: Python imports this by itself where its folder is on PYTHONPATH.

In each process of a launcher it writes to $PROBE what DeepSpeed's engine is and what the model's forward keeps for
backward. No operator is compiled unless $PROBE_COMPILES says so: optimizers' kernels then do nothing.
"""

import os

if os.environ.get("PROBE") and "LOCAL_RANK" in os.environ:
    import atexit
    import functools
    import importlib
    import json
    import sys
    import time
    from pathlib import Path

    import torch
    import torch.utils.checkpoint

    LET_GO = 1
    """Seconds at the end of a process. DeepSpeed keeps gloo's groups alive at stage 3, and a thread of gloo's that drops a
    tensor once Python has begun to end is ended inside a destructor: the process aborts (pytorch issue 190489).
    """
    CLOSED = []
    """What checkpointed layers keep beside their inputs, which no hook sees: the keywords that they are called with."""
    once = torch.utils.checkpoint.checkpoint

    @functools.wraps(once)
    def checkpoint(function, *args, **kwargs):
        CLOSED.append([getattr(function, "keywords", {}), kwargs])
        return once(function, *args, **kwargs)

    torch.utils.checkpoint.checkpoint = checkpoint  # before transformers takes it from there

    import deepspeed
    from deepspeed.accelerator import get_accelerator

    SEEN = {"steps": 0, "micro_steps": 0}

    class Builder:
        """Of operators whose kernels do nothing."""

        NAME = name = "does_nothing"

        def load(self, verbose=True):
            return self

        def __getattr__(self, _name):
            return lambda *_args, **_kwargs: 0

    def without_operators():
        for name in [name for name in sys.modules if name.startswith("deepspeed.")]:
            for operator in ("FusedAdam", "CPUAdam", "FusedLion", "CPULion", "CPUAdagrad"):
                if hasattr(sys.modules[name], f"{operator}Builder"):
                    setattr(sys.modules[name], f"{operator}Builder", Builder)

    def storages(value):
        """Bytes of the tensors in arguments, by their places."""
        if isinstance(value, torch.Tensor):
            return {value.untyped_storage().data_ptr(): value.untyped_storage().nbytes()}
        inside = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
        return {place: size for one in inside for place, size in storages(one).items()}

    def watched(engine):
        """The engine, which says what it is when it has run."""
        forward = engine.forward

        @functools.wraps(forward)
        def through(*args, **kwargs):
            CLOSED.clear()
            saved, given = {}, storages([args, kwargs])
            SEEN["micro_steps"] += 1
            SEEN["batch"] = next((list(t.shape) for t in [*args, *kwargs.values()] if isinstance(t, torch.Tensor)), None)
            if SEEN["batch"] is None:
                SEEN["batch"] = next(list(t.shape) for a in args if isinstance(a, dict) for t in a.values())

            def pack(tensor):
                place = tensor.untyped_storage().data_ptr()
                weights = {p.data.untyped_storage().data_ptr() for p in engine.module.parameters()}
                if place not in weights and place not in given:
                    saved[place] = tensor.untyped_storage().nbytes()
                return tensor

            with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
                found = forward(*args, **kwargs)
            closed = {place: size for place, size in storages(CLOSED).items() if place not in given}
            CLOSED.clear()
            SEEN["saved"] = sum({**saved, **closed}.values())
            return found

        engine.forward = through
        return engine

    def device(section, optimizer, *switches):
        """Where the optimizer itself has it."""
        on = any(getattr(optimizer, name, False) for name in switches)
        return section.device if section and on else "none"

    def keeps_products(module):
        """Whether it is checkpointed with a context of its own, whose results autograd's hooks do not see."""
        return "context_fn" in getattr(getattr(module, "_gradient_checkpointing_func", None), "keywords", {})

    def said(engine):
        config = engine._config
        from transformers import PreTrainedModel

        model = next(m for m in engine.module.modules() if isinstance(m, PreTrainedModel))
        zero = config.zero_config
        return {
            **SEEN,
            "steps": engine.global_steps,
            "stage": engine.zero_optimization_stage(),
            "class": type(engine.optimizer).__name__,
            "optimizer": type(engine.basic_optimizer).__name__,
            "offload_optimizer": device(zero.offload_optimizer, engine.optimizer, "cpu_offload", "offload_optimizer"),
            "offload_param": device(zero.offload_param, engine.optimizer, "offload_param"),
            "accumulation": engine.gradient_accumulation_steps(),
            "micro_batch": engine.train_micro_batch_size_per_gpu(),
            "clipping": engine.gradient_clipping(),
            "dtype": sorted({str(p.dtype) for p in engine.module.parameters()}),
            "attention": model.config._attn_implementation,
            "keeps_products": any(keeps_products(module) for module in model.modules()),
            "reduce_bucket_size": zero.reduce_bucket_size,
            "ranks": engine.world_size,
        }

    def initialize(*args, **kwargs):
        model = kwargs.get("model", args[1] if len(args) > 1 else None)
        SEEN["built_partitioned"] = any(hasattr(p, "ds_id") for p in model.parameters())
        if kwargs.get("args") is not None:  # Lightning's, whose CPU has no number
            kwargs["args"].device_rank = int(os.environ["LOCAL_RANK"])
        if not os.environ.get("PROBE_COMPILES"):
            without_operators()
        found = really(*args, **kwargs)
        engine = watched(found[0])
        atexit.register(time.sleep, LET_GO)
        atexit.register(lambda: Path(os.environ["PROBE"], f"{os.environ['RANK']}.json").write_text(json.dumps(said(engine))))
        return found

    really, deepspeed.initialize = deepspeed.initialize, initialize
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None
    type(get_accelerator()).is_fp16_supported = lambda _self: True
    if os.environ.get("PROBE_LIGHTNING"):
        strategies = importlib.import_module("lightning.pytorch.strategies.deepspeed")
        strategies.CUDAAccelerator = object  # it takes no other, and asks for the numbers of GPUs
        strategies._validate_device_index_selection = lambda *_devices: None
