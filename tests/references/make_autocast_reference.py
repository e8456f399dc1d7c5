"""What training steps of transformers hold with fp32 weights under torch.autocast, into autocast_torch_2.13.json.

python -m tests.references.make_autocast_reference [CASES_A_FAMILY [SEED]]

torch's own autocast runs, with the lists of operators that it has for CUDA (autocast_device.cpp, compiled here), on
tensors that have a size and no numbers; attention's kernel and dropout are CUDA's. Autocast is left when the loss is
there, as DeepSpeed's engine leaves it. A case is measured as in make_activation_reference. Needs torch, transformers
and g++.
"""

import functools
import gc
import json
import subprocess
import sys
import tempfile
import types
import warnings
from datetime import date
from itertools import islice
from pathlib import Path

from tests.references import make_activation_reference as activations
from tests.references.activation_draws import FAMILIES, drawn_cases

TARGET = Path(__file__).with_name("autocast_torch_2.13.json")
DEVICE = "card"


@functools.cache
def install():
    """The device, and the mode under which tensors are made on it."""
    import torch
    from torch._subclasses import fake_tensor
    from transformers.utils import import_utils

    torch.utils.rename_privateuse1_backend(DEVICE)
    built = Path(tempfile.mkdtemp(), "autocast_device.so")
    folder = Path(torch.__file__).parent
    headers = [f"-I{folder}/include", f"-I{folder}/include/torch/csrc/api/include"]
    libraries = [f"-L{folder}/lib", "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{folder}/lib"]
    source = str(Path(__file__).with_name("autocast_device.cpp"))
    command = ["g++", "-O0", "-std=c++20", "-shared", "-fPIC", source, *headers, *libraries, "-o", str(built)]
    subprocess.run(command, check=True)
    torch.ops.load_library(str(built))
    module = types.ModuleType(DEVICE)
    module.is_available = module.is_initialized = lambda: True
    module.device_count = lambda: 1
    module.current_device = lambda: 0
    module.get_amp_supported_dtype = lambda: [torch.bfloat16, torch.float16]
    torch._register_device_module(DEVICE, module)
    for name in ("silu_backward", "mish_backward"):  # on CUDA each is one operator
        torch.library.impl(f"aten::{name}", "PrivateUse1", lambda *_args: None)
    fake_tensor.init_gpu_context = lambda *_device: None
    import_utils.is_fake_tensor = lambda _tensor: False  # transformers would think that it is compiled
    return fake_tensor.FakeTensorMode(allow_non_fake_inputs=True)


def attention_in_half(otherwise):
    """scaled_dot_product_attention is on the list of 16 bit: its tensors are cast, then the kernel is called."""
    import torch

    def run(*tensors, attn_mask=None, dropout_p=0.0, **options):
        q, k, v, *mask = tensors
        mask = mask[0] if mask else attn_mask
        if torch.is_autocast_enabled(DEVICE):
            dtype = torch.get_autocast_dtype(DEVICE)
            q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
            if mask is not None and mask.is_floating_point():
                mask = mask.to(dtype)
        with torch.autocast(DEVICE, enabled=False):
            return otherwise(q, k, v, mask, dropout_p, **options)

    return run


def moved(model):
    """The model on the device; tensors tied to each other stay so."""
    import torch

    made = {}
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None and id(parameter) not in made:
                made[id(parameter)] = torch.nn.Parameter(torch.empty(parameter.shape, dtype=parameter.dtype, device=DEVICE))
                made[id(parameter)].register_post_accumulate_grad_hook(activations.drop_gradient)
            module._parameters[name] = made.get(id(parameter))
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = torch.empty(buffer.shape, dtype=buffer.dtype, device=DEVICE)
    return model


def measured(case):
    """The case with bytes saved for backward, and at most in forward and in backward."""
    import torch
    import torch.nn.functional as F

    dtype = getattr(torch, activations.WIDTHS[case["autocast"]])
    with install():
        model = moved(activations.built({**case, "device": "meta"})[0])
        ids = torch.zeros((case["batch"], case["seq"]), dtype=torch.int64, device=DEVICE)

        def forward():
            with torch.autocast(DEVICE, dtype=dtype):
                return model(input_ids=ids, labels=ids).loss

        with activations.cuda_operators(case["kernel"]):
            F.scaled_dot_product_attention = attention_in_half(F.scaled_dot_product_attention)
            return {**case, **activations.stepped(model, ids, DEVICE, forward)}


def runs(case):
    """Whether transformers takes the config, and such a device every operator (not falcon's index by a list)."""
    try:
        return activations.runs(case, measured)
    except NotImplementedError:
        assert case["config"]["model_type"] == "falcon"
        return None


def under_autocast(family, seed):
    """Cases on CUDA with fp32 weights: kernels are chosen for 16 bit."""
    for number, case in enumerate(drawn_cases(family, seed)):
        if case["device"] == "meta" and (case["kernel"] or case["attention"] == "eager"):
            yield {**case, "device": DEVICE, "dtype": "fp32", "autocast": ("bf16", "bf16", "fp16")[number % 3]}


def cases(number, seed):
    for family in FAMILIES:
        yield from islice(filter(None, map(runs, under_autocast(family, seed))), number)


def head():
    import torch
    import transformers

    return {
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        "date": date.today().isoformat(),
        "autocast": "torch's, with CUDA's lists of operators, on a device without hardware",
    }  # fmt: skip


def main(number="4", seed="1"):
    activations.write(TARGET, head(), cases(int(number), int(seed)))


if __name__ == "__main__":
    main(*sys.argv[1:])
