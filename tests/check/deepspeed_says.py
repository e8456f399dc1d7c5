"""What DeepSpeed itself says of a config: `deepspeed.initialize` on a small model and one step, in a forked child.

The CPU accelerator stands for a card: compiled operators are stand-ins that do nothing, and 16 bits are supported.
The script passes an optimizer of its own where the config names none, as the Trainer and most scripts do.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any

SECONDS = 20
LATER = (2, 99, 5_000, 10_000_000)
"""Steps to which the schedule is taken on: some of its parameters are read after the warm-up only."""
SMALL = 1e-3
"""Of the loss: no scale of 16 powers overflows, so the first step is taken."""


def prepare() -> None:
    """Import what the children need, once. Call it before `says`."""
    environment = {"DS_ACCELERATOR": "cpu", "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_SIZE": "1"}
    os.environ.update(environment, MASTER_ADDR="127.0.0.1", MASTER_PORT="29500", TORCHDYNAMO_DISABLE="1")
    import logging

    import deepspeed
    import torch
    from deepspeed.accelerator import get_accelerator

    logging.getLogger("DeepSpeed").setLevel(logging.CRITICAL)
    import torch._dynamo  # asked for by the first optimizer: two seconds in every child

    torch.set_num_threads(1)
    type(get_accelerator()).is_fp16_supported = lambda _self: True
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None
    from zeroplan.verify.accelerator import Builder, Kernels, replace_builders
    from zeroplan.verify.disk import Disk

    Kernels.__getattr__ = _kernel
    device = type(get_accelerator())
    device.disk = Disk()
    device._torch_empty_pinned = lambda _self, like, shape: torch.zeros(shape, dtype=like.dtype)
    device._torch_is_pinned = lambda _self, _tensor: True
    replace_builders()
    type(get_accelerator()).create_op_builder = lambda _self, _name: Builder()
    deepspeed.runtime.engine.DeepSpeedEngine.print_forward_breakdown = lambda *_a, **_k: None


def _kernel(_kernels: Any, name: str) -> Any:
    """A kernel that computes nothing, and refuses what a compiled one cannot take for a number."""
    if name.startswith("__"):
        raise AttributeError(name)

    def called(*given: Any, **_named: Any) -> int:
        for value in given:
            texts = isinstance(value, list) and value and isinstance(value[0], str)
            if isinstance(value, str | dict | None) or texts:
                raise TypeError(f"{name}(): incompatible function arguments: {value!r}")
        return 0

    return called


def says(config: dict[str, Any], *, world: int = 1, step: bool = True, model: dict[str, Any] | None = None) -> str:
    """"" when DeepSpeed takes the config, else its error as `Type: message`, on one line.

    `model` is a config.json for transformers; without it two small layers are trained.
    """
    return asked(_run, copy.deepcopy(config), world, step, model)


def asked(function: Callable[..., None], *given: Any) -> str:
    """The error that stops a function in a forked child, on one line; "" where none does."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _silence()
        signal.alarm(SECONDS)
        said = _tried(function, *given)
        with os.fdopen(writing, "w") as stream:
            json.dump(said, stream)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as stream:
        text = stream.read()
    _pid, status = os.waitpid(child, 0)
    return json.loads(text) if text else f"died: status {status}"


def _silence() -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)


def _tried(function: Callable[..., None], *given: Any) -> str:
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            function(*given)
    except BaseException as error:  # whatever it is, it stops the run
        if os.environ.get("TRACE"):
            return traceback.format_exc()
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{last.filename.rpartition('site-packages/')[2]}:{last.lineno}"
        return " ".join(f"{type(error).__name__}: {error}".split())[:400] + f" [{place}]"
    return ""


def _run(config: dict[str, Any], world: int, step: bool, of_model: dict[str, Any] | None) -> None:
    import deepspeed
    import torch

    connect(world)
    if not step:
        deepspeed.DeepSpeedConfig(config)
        return
    torch.manual_seed(0)
    model = _model() if of_model is None else _transformer(of_model)
    parameters = list(model.parameters())
    if "muon" in str((config.get("optimizer") or {}) if isinstance(config.get("optimizer"), dict) else "").lower():
        for parameter in parameters:
            parameter.use_muon = parameter.ndim == 2
    client = None if _named(config) else _client(config, parameters)
    engine, *_ = deepspeed.initialize(model=model, config=config, optimizer=client, model_parameters=parameters)
    for _micro in range(min(int(engine.gradient_accumulation_steps()), 8)):
        given = torch.ones(1, 8) if of_model is None else torch.ones(1, 8, dtype=torch.long)
        found = engine(given)
        loss = (found if of_model is None else found.logits).float().mean() * SMALL
        engine.backward(loss)
        engine.step()
    for later in LATER if engine.lr_scheduler is not None else ():
        engine.lr_scheduler.step(later)


def _model() -> Any:
    """Two layers that take inputs of any dtype, as embeddings take whole numbers."""
    import torch

    class Casting(torch.nn.Sequential):
        def forward(self, given: Any) -> Any:
            return super().forward(given.to(self[0].weight.dtype))

    return Casting(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8, bias=False))


def connect(world: int) -> None:
    """As rank 0 of so many, of which the others are not there."""
    import deepspeed
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    os.environ["WORLD_SIZE"] = str(world)
    dist.init_process_group("fake", rank=0, world_size=world, store=FakeStore())
    deepspeed.init_distributed(dist_backend="fake", verbose=False)


def _transformer(config: dict[str, Any]) -> Any:
    import transformers

    kind = transformers.AutoConfig.for_model(**config)
    return transformers.AutoModelForCausalLM.from_config(kind)


def _named(config: dict[str, Any]) -> bool:
    section = config.get("optimizer")
    return isinstance(section, dict) and section.get("type") is not None


def _client(config: dict[str, Any], parameters: list[Any]) -> Any:
    """DeepSpeed's own Adam for the CPU where the optimizer is offloaded, else torch's."""
    import torch
    from deepspeed.ops.adam import DeepSpeedCPUAdam

    zero = config.get("zero_optimization")
    zero = zero if isinstance(zero, dict) else {}
    offload = zero.get("offload_optimizer") or {}
    device = offload.get("device", "none") if isinstance(offload, dict) else "none"
    if device in ("cpu", "nvme") or zero.get("cpu_offload"):
        return DeepSpeedCPUAdam(parameters, lr=1e-3)
    return torch.optim.AdamW(parameters, lr=1e-3)


def main(first: str, last: str) -> None:
    """`python -m tests.check.deepspeed_says FROM TO`: what DeepSpeed says of drawn configs, by seed, as JSON."""
    import tempfile

    from tests.check.deepspeed_draws import draw

    prepare()
    os.chdir(tempfile.mkdtemp())
    print(json.dumps({seed: says(draw(seed)) for seed in range(int(first), int(last))}))


if __name__ == "__main__":
    main(*sys.argv[1:3])
