"""What training steps of transformers hold, measured by torch, into activations_torch_2.13.json.

python -m tests.references.make_activation_reference [CASES_A_FAMILY [SEED]]

A case is one forward and backward of a small model with random weights: on the CPU, or on torch's meta device with
one of CUDA's attention kernels called in place of the choice that torch makes. Every operator is watched: the bytes
of each storage that it makes count until that storage is freed. Parameters, buffers and token ids are left out, and
a parameter's gradient is dropped as soon as it is whole. Needs torch and transformers.
"""

import gc
import json
import sys
import warnings
import weakref
from contextlib import contextmanager, nullcontext
from datetime import date
from functools import partial
from itertools import islice
from pathlib import Path

from tests.references.activation_draws import FAMILIES, drawn_cases
from zeroplan.specs.checkpointing import KEPT

MUTATED = "cached during selective activation checkpoint has been mutated"
"""Where a model changes a product in place, as gpt_oss and olmo with clip_qkv do."""
TARGET = Path(__file__).with_name("activations_torch_2.13.json")
WIDTHS = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


def watched():
    """A mode that counts the bytes of every storage that operators make, until it is freed."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    aten = torch.ops.aten

    class Live(TorchDispatchMode):
        def __init__(self, device, ignored):
            super().__init__()
            self.device, self.ignored = device, {t.untyped_storage()._cdata for t in ignored}
            self.sizes, self.refs = {}, {}
            self.live = self.peak = 0

        def died(self, key, _ref):
            self.live -= self.sizes.pop(key)
            del self.refs[key]

        def count(self, tensor):
            storage = tensor.untyped_storage()
            key = storage._cdata
            if key in self.sizes or key in self.ignored or tensor.device.type != self.device:
                return
            self.sizes[key] = storage.nbytes()
            self.live += storage.nbytes()
            self.refs[key] = weakref.ref(storage, partial(self.died, key))

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = computed(func, args, kwargs or {})
            for tensor in out if isinstance(out, (tuple, list)) else [out]:
                if isinstance(tensor, torch.Tensor):
                    self.count(tensor)
            self.peak = max(self.peak, self.live)
            return out

    def computed(func, args, kwargs):
        first = args[0] if args else None
        if not isinstance(first, torch.Tensor) or first.device.type not in ("meta", "card"):
            return func(*args, **kwargs)
        if func is aten._local_scalar_dense.default:  # a number read off a tensor without any
            return True if first.dtype == torch.bool else 1.0 if first.is_floating_point() else 0
        if func is aten._grouped_mm.default and first.dtype != torch.bfloat16:  # its meta function knows bf16 only
            half = [a.bfloat16() if isinstance(a, torch.Tensor) and a.dtype == first.dtype else a for a in args]
            made = func(*half, **kwargs)
            return torch.empty_strided(made.size(), made.stride(), dtype=first.dtype, device=first.device)
        return func(*args, **kwargs)

    return Live


@contextmanager
def cuda_operators(kernel):
    """On the meta device torch would choose other operators: these are CUDA's attention kernel and dropout.

    scaled_dot_product_attention does to a mask what torch does (ATen/native/transformers/attention.cpp).
    """
    import torch
    import torch.nn.functional as F

    aten, before = torch.ops.aten, (F.scaled_dot_product_attention, F.dropout)

    def attention(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
        if attn_mask is not None and attn_mask.dtype == torch.bool:  # convert_boolean_attn_mask
            hidden = torch.scalar_tensor(float("-inf"), dtype=q.dtype, device=q.device)
            attn_mask = torch.where(attn_mask, 0.0, hidden)
            del hidden
        if kernel == "flash":
            assert attn_mask is None
            return aten._scaled_dot_product_flash_attention(q, k, v, dropout_p, is_causal, False, scale=scale)[0]
        if kernel == "efficient":
            if attn_mask is not None:  # preprocess_mask
                seq = attn_mask.shape[-1]
                attn_mask = F.pad(attn_mask, (0, 8 - seq % 8))[..., :seq] if seq % 8 else attn_mask
                attn_mask = attn_mask.expand(*q.shape[:3], seq)
            run = partial(aten._scaled_dot_product_efficient_attention, q, k, v, attn_mask, True)
            return run(dropout_p, is_causal, scale=scale)[0]
        assert kernel == "cudnn"
        run = partial(aten._scaled_dot_product_cudnn_attention, q, k, v, attn_mask, True)
        return run(dropout_p, is_causal, False, scale=scale)[0]

    def dropout(x, p=0.5, training=True, inplace=False):
        return aten.native_dropout(x, p, True)[0] if p and training else x

    F.scaled_dot_product_attention, F.dropout = attention, dropout
    try:
        yield
    finally:
        F.scaled_dot_product_attention, F.dropout = before


def drop_gradient(parameter):
    parameter.grad = None


def built(case):
    import torch
    from torch.utils.checkpoint import create_selective_checkpoint_contexts
    from transformers import AutoConfig

    from zeroplan.verify.task import class_of

    aten = torch.ops.aten
    fields = dict(case["config"])
    config = AutoConfig.for_model(fields.pop("model_type"), **fields)
    config.use_cache = False
    dtype = getattr(torch, WIDTHS[case["dtype"]])
    with torch.device(case["device"]):
        model = class_of(config, "case")._from_config(config, dtype=dtype, attn_implementation=case["attention"])
    if case["checkpointing"]:
        words = {"use_reentrant": case.get("reentrant", False)}
        if case.get("keeps_products"):
            words["context_fn"] = partial(create_selective_checkpoint_contexts, [getattr(aten, op).default for op in KEPT])
        model.activation_checkpointing_enable(words, every_n_layers=case.get("every", 1))
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    for name in ("eager", "sdpa"):  # a case before this one may have wrapped them
        ALL_ATTENTION_FUNCTIONS._local_mapping.pop(name, None)
    if case.get("selective"):
        from zeroplan.verify.job import checkpoint_attention

        checkpoint_attention()
    if case.get("by") == "deepspeed":
        import deepspeed

        model._set_gradient_checkpointing(gradient_checkpointing_func=deepspeed.checkpointing.checkpoint)
    for name, parameter in model.named_parameters():
        if any(part in name for part in case.get("freeze", ())):
            parameter.requires_grad_(False)
        else:
            parameter.register_post_accumulate_grad_hook(drop_gradient)
    return model.train(), config.vocab_size


def measured(case):
    """The case with bytes saved for backward, and at most in forward and in backward."""
    model, vocabulary = built(case)
    ids = token_ids(case, vocabulary)
    with cuda_operators(case["kernel"]) if case["device"] == "meta" else nullcontext():
        return {**case, **stepped(model, ids, case["device"], lambda: model(input_ids=ids, labels=ids).loss)}


def token_ids(case, vocabulary):
    import torch

    ids = torch.zeros((case["batch"], case["seq"]), dtype=torch.int64, device=case["device"])
    return ids.random_(0, vocabulary) if case["device"] == "cpu" else ids


def stepped(model, ids, device, forward, beside=()):
    """Bytes saved for backward, and at most in forward and in backward, of one step; `forward` gives the loss."""
    live = watched()(device, [*model.parameters(), *model.buffers(), ids, *beside])
    gc.collect()
    gc.disable()  # only what nothing refers to any more is freed
    try:
        with live:
            loss = forward()
            saved, most = live.live, live.peak
            live.peak = live.live
            loss.backward()
    finally:
        gc.enable()
    return {"saved": saved, "forward_peak": most, "backward_peak": live.peak}


def runs(case, measure=measured):
    """Whether transformers takes the config."""
    try:
        return measure(case)
    except Exception as refusal:
        if type(refusal).__name__ == "StrictDataclassClassValidationError" or MUTATED in str(refusal):
            return None
        raise


def cases(number, seed):
    for family in FAMILIES:
        yield from islice(filter(None, map(runs, drawn_cases(family, seed))), number)


def head():
    import torch
    import transformers

    return {
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__, "python": sys.version.split()[0]},
        "date": date.today().isoformat(),
        "saved": "bytes that live between forward and backward",
        "forward_peak": "most bytes in forward",
        "backward_peak": "most bytes in backward, parameters' gradients dropped when they are whole",
    }  # fmt: skip


def main(number="16", seed="1"):
    write(TARGET, head(), cases(int(number), int(seed)))


def write(target, head, measured):
    """The fields of `head`, then a line for each measured case."""
    warnings.simplefilter("ignore")
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in measured)
    fields = "".join(f'"{name}": {json.dumps(value)},\n' for name, value in head.items())
    target.write_text(f'{{\n{fields}"measured": [\n{lines}\n]\n}}\n')


if __name__ == "__main__":
    main(*sys.argv[1:])
