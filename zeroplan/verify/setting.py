"""The surroundings of a run: device, stand-ins, process group and DeepSpeed itself, set up in the right order.

Only the child process imports this module (it needs torch and deepspeed).
"""

from __future__ import annotations

import contextlib
import gc
import logging
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist

from zeroplan.architectures.registry import SEQUENCES
from zeroplan.verify import autocast, job, kernels
from zeroplan.verify.card import CardStandIns
from zeroplan.verify.disk import Disk, kind_of
from zeroplan.verify.stand_ins import MetaStandIns, StandIns
from zeroplan.verify.storages import StorageTracker
from zeroplan.verify.values import ValuedStandIns


class Harness:
    """Everything that stands between a case and the DeepSpeed that runs it."""

    def __init__(self, case: dict[str, Any]) -> None:
        self.case = case
        mode = case.get("mode", "meta")
        self.meta, self.cuda = mode == "meta", mode == "cuda"
        if self.cuda and not torch.cuda.is_available():
            raise RuntimeError("torch finds no CUDA device on this machine; leave out --cuda")
        self.device = {"meta": "meta", "cuda": "cuda", "real": "cpu"}[mode]
        architecture = (case["model"].get("architectures") or [""])[0]
        reads = case.get("images") or architecture.endswith(SEQUENCES)  # sizes of images, places of ends and labels
        kinds = {"meta": ValuedStandIns if reads else MetaStandIns, "cuda": CardStandIns}
        self.stand_ins = kinds.get(mode, StandIns)()
        self.storages = StorageTracker(self.stand_ins)
        self.compiles = self.cuda and _has_compiler()
        self.disk: Disk | None = None
        self.scratch = tempfile.TemporaryDirectory(prefix="zeroplan-verify-")

    def start_deepspeed(self) -> Any:
        """Process group first, then the accelerator, then whatever asks for either."""
        from torch.testing._internal.distributed.fake_pg import FakeStore

        dist.init_process_group("fake", rank=self.case["rank"], world_size=self.case["world"], store=FakeStore())
        import deepspeed
        from deepspeed.accelerator import get_accelerator, real_accelerator

        logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
        if self.meta:
            from zeroplan.verify import overlapped
            from zeroplan.verify.accelerator import MetaAccelerator, replace_builders

            overlapped.install(self.stand_ins, self.storages)
            host = get_accelerator()
            device = MetaAccelerator(self.stand_ins, self.storages, self.case.get("gpu_memory"))  # type: ignore[arg-type]
            real_accelerator.ds_accelerator, self.disk = device, device.disk
            replace_builders()
            from deepspeed.runtime.zero import linear

            linear.get_accelerator = lambda: host  # asked for autocast's state alone: the CPU's (verify/autocast.py)
            sys.modules["deepspeed.runtime.engine"].autocast_if_enabled = (  # type: ignore[attr-defined]
                lambda _engine: self.autocast()
            )
        elif self.cuda and not self.compiles:
            from zeroplan.verify.accelerator import replace_builders

            replace_builders()
        else:
            type(get_accelerator()).is_fp16_supported = lambda _self: True
        from deepspeed.runtime.zero import utils as zero_utils

        # By name: the package's attribute `torch` is torch itself.
        sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # type: ignore[attr-defined]
        zero_utils.get_lst_from_rank0 = list
        zero_utils.assert_lst_len_same_as_other_ranks = lambda _lst: None
        deepspeed.init_distributed(dist_backend="fake", verbose=False)
        import transformers  # noqa: F401

        if self.case.get("adapter"):
            import peft  # noqa: F401 (it makes tensors as it is imported)
        if self.case.get("quantization"):
            import bitsandbytes  # noqa: F401

        if self.case.get("zero_init"):
            import torch._dynamo.polyfills.loader  # noqa: F401 (it cannot be imported under zero.Init)

        gc.collect()
        gc.freeze()  # the libraries' own objects need no collecting before each phase
        return deepspeed

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """What DeepSpeed's engine has around the model's forward (runtime/torch_autocast.py)."""
        section = self.case["ds_config"].get("torch_autocast", {})
        if section.get("enabled") is not True:
            return contextlib.nullcontext()
        from deepspeed.runtime.config import get_torch_autocast_dtype

        dtype = get_torch_autocast_dtype({"torch_autocast": section})
        context: contextlib.AbstractContextManager[Any] = torch.autocast("cuda" if self.cuda else "cpu", dtype=dtype)
        return context

    @contextlib.contextmanager
    def kernels(self) -> Iterator[None]:
        """On "meta", torch's optimizers take the paths of CUDA and the model its kernels."""
        if not self.meta:
            yield
            return
        from torch.optim import optimizer as torch_optimizer

        foreach = torch_optimizer._get_foreach_kernels_supported_devices
        fused = torch_optimizer._get_fused_kernels_supported_devices
        torch_optimizer._get_foreach_kernels_supported_devices = lambda: [*foreach(), "meta"]
        torch_optimizer._get_fused_kernels_supported_devices = lambda: [*fused(), "meta"]
        torch.Tensor.record_stream = lambda _self, _stream: None
        try:
            from zeroplan.verify.recording.fast_kernels import fast_kernels  # transformers is there by now

            with kernels.as_on_cuda(), autocast.as_on_cuda(), fast_kernels(), self.lists():
                yield
        finally:
            torch_optimizer._get_foreach_kernels_supported_devices = foreach
            torch_optimizer._get_fused_kernels_supported_devices = fused

    def lists(self) -> contextlib.AbstractContextManager[None]:
        """Tensors have the values of lists that they are made of, which images' sizes follow from; once more where
        zero.Init has put back torch's own function.
        """
        valued = isinstance(self.stand_ins, ValuedStandIns)
        return self.stand_ins.made_of_lists() if valued else contextlib.nullcontext()  # type: ignore[attr-defined]

    def config(self) -> dict[str, Any]:
        """The ds_config to run. In "meta" mode NVMe folders are made in a scratch place and stay empty."""
        config = job.resolved(self.case)
        zero = dict(config.get("zero_optimization", {}))
        for name in ("offload_optimizer", "offload_param"):
            if self.meta and (zero.get(name) or {}).get("device") == "nvme":
                zero[name] = {**zero[name], "nvme_path": str(self.scratch.name)}
        return {**config, "zero_optimization": zero}

    def files(self) -> list[dict[str, Any]]:
        """Files on NVMe, by folder below zero_stage_3: how many, and their bytes."""
        by_folder: dict[str, list[int]] = {}
        for path, size in self.disk.files.items() if self.disk else ():
            by_folder.setdefault(kind_of(path), []).append(size)
        return [
            {"folder": folder, "files": len(sizes), "bytes": sum(sizes), "sizes": sorted(sizes)}
            for folder, sizes in by_folder.items()
        ]


def _has_compiler() -> bool:
    """Whether DeepSpeed can build its optimizers' kernels here; without, kernels that do nothing stand in."""
    from torch.utils import cpp_extension

    return cpp_extension.CUDA_HOME is not None and cpp_extension.is_ninja_available()
