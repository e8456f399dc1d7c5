"""What training steps of transformers hold with Liger's kernels, into liger_0.8.5.json.

python -m tests.references.make_liger_reference [CASES_A_FAMILY [SEED]]

Liger's own Python runs: what it makes, saves, copies and hands on. Its Triton kernels do not: each is a call that
does nothing, so that no GPU is needed, and what one takes for itself is not seen. Branches for CUDA are taken. A
case is measured as in make_activation_reference. Needs liger-kernel, torch and transformers, and no triton.
"""

import gc
import importlib.abc
import importlib.machinery
import importlib.util
import json
import sys
import types
import warnings
from datetime import date
from functools import partial
from itertools import islice
from pathlib import Path
from unittest import mock

from tests.references.activation_draws import drawn_cases
from tests.references.make_activation_reference import cuda_operators, drop_gradient, runs, stepped, token_ids, write
from tests.references.make_activation_reference import built as built_by_transformers

VERSION = "0.8.5"
TARGET = Path(__file__).with_name(f"liger_{VERSION}.json")
FAMILIES = (
    "llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "phi3", "olmo2", "gpt_oss", "mixtral",
    "qwen3_moe", "deepseek_v2", "deepseek_v3",
)  # fmt: skip
KERNELS = {"liger": {}, "liger-loss": {"rope": False, "rms_norm": False, "swiglu": False, "geglu": False}}
MULTIPROCESSORS = 132


class Constant:
    def __init__(self, value=None):
        self.value = value


class Kernel:
    """Launched on any grid it does nothing."""

    def __init__(self, function):
        self.__name__ = function.__name__

    def __getitem__(self, _grid):
        return _prefix_sum if self.__name__ == "_moe_router_prefix_sum_kernel" else lambda *_args, **_options: None


def _prefix_sum(_counts, _starts, tile_starts, *, E, TK, BLOCK_M_TOKEN, **_options):
    """As many tiles as any routing needs at most."""
    tile_starts.most = TK // BLOCK_M_TOKEN + E


class Fake(types.ModuleType):
    """A module of triton: whatever is asked for is there."""

    __path__ = ()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_args, **_options: None


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Fake triton; Liger, with CUDA's branches taken on the device that is there."""

    def find_spec(self, name, path, _target=None):
        if name.partition(".")[0] == "triton":
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        if name.startswith("liger_kernel.ops."):
            spec = importlib.machinery.PathFinder.find_spec(name, path)
            if spec and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
                spec.loader = AsOnCuda(spec.loader.name, spec.loader.path)
            return spec
        return None

    def create_module(self, spec):
        fake = Fake(spec.name)
        fake.__version__ = "3.5.0"
        fake.jit = lambda function=None, **_options: Kernel(function) if function else Kernel
        fake.autotune = fake.heuristics = lambda *_args, **_options: lambda kernel: kernel
        fake.cdiv = lambda x, y: -(-x // y)
        fake.next_power_of_2 = lambda n: 1 << (n - 1).bit_length()
        fake.constexpr = Constant
        return fake

    def exec_module(self, module):
        pass


class AsOnCuda(importlib.machinery.SourceFileLoader):
    def get_data(self, path):
        data = super().get_data(path)
        if not path.endswith(".py"):
            return data
        for found, instead in ((b'.type == "cuda"', b'.type != "none"'), (b'.type != "cuda"', b'.type == "none"')):
            data = data.replace(found, instead)
        return data.replace(b"int(expert_tile_offset[-1].item())", b"expert_tile_offset.most")

    def path_stats(self, path):
        raise OSError  # no bytecode: it is another's


def liger():
    """liger_kernel.transformers.monkey_patch without a GPU."""
    import torch
    import torch._dynamo  # it looks for triton, and shall not find the fake

    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, Finder())
    torch.cuda.get_device_properties = lambda _device: mock.Mock(multi_processor_count=MULTIPROCESSORS)
    torch.cuda.get_device_capability = lambda _device=None: (9, 0)
    torch.equal = lambda _loss, one: one.clone() is None  # torch.tensor made it unseen: its copy is seen
    from liger_kernel.ops.rope import LigerRopeFunction
    from liger_kernel.transformers import monkey_patch, rope

    def rotary(_op, q, k, cos, sin, *_rest, rotary_dim=None):
        return LigerRopeFunction.apply(q, k, cos, sin, None, 1, rotary_dim)

    rope.dispatch = rotary
    return monkey_patch


class Patched:
    """Names that Liger puts into a module of transformers, put back at the end."""

    def __init__(self, family):
        folder = family.removesuffix("_text")
        self.module = importlib.import_module(f"transformers.models.{folder}.modeling_{folder}")

    def __enter__(self):
        self.before = dict(vars(self.module))

    def __exit__(self, *_error):
        vars(self.module).update(self.before)


def measured(case):
    """The case with bytes saved for backward, and at most in forward and in backward."""
    monkey_patch = liger()
    model, vocabulary = built_by_transformers(case)
    with Patched(case["config"]["model_type"]):
        monkey_patch._apply_liger_kernel_to_instance(model=model, **KERNELS[case["kernels"]])
        ids = token_ids(case, vocabulary)
        with cuda_operators(case["kernel"]):
            return {**case, **stepped(model, ids, case["device"], lambda: model(input_ids=ids, labels=ids).loss)}


def on_cuda(family, seed):
    """Cases as CUDA runs them; Liger takes silu or gelu, whatever the config says."""
    for number, case in enumerate(drawn_cases(family, seed)):
        if case["device"] == "meta" and "hidden_act" not in case["config"]:
            yield {**case, "kernels": "liger-loss" if number % 4 == 0 else "liger"}


def cases(number, seed):
    for family in FAMILIES:
        yield from islice(filter(None, map(partial(runs, measure=measured), on_cuda(family, seed))), number)


def head():
    import torch
    import transformers

    return {
        "versions": {"liger-kernel": VERSION, "torch": torch.__version__, "transformers": transformers.__version__},
        "date": date.today().isoformat(),
        "kernels": "Liger's Python as it is, its Triton kernels without effect",
    }  # fmt: skip


def main(number="8", seed="1"):
    write(TARGET, head(), cases(int(number), int(seed)))


if __name__ == "__main__":
    main(*sys.argv[1:])
