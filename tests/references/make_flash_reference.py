"""What training steps of transformers hold with the flash-attention package, into flash_attn_2.8.3.json.

python -m tests.references.make_flash_reference FOLDER [CASES_A_FAMILY [SEED]]

FOLDER is flash-attn's source distribution, unpacked. Its own Python runs (flash_attn/ and hopper/), and so does
transformers' around it. Its compiled kernels do not: in the place of each stands a function that makes the tensors
which csrc/flash_attn/flash_api.cpp (hopper/flash_api.cpp) makes around the kernel, on torch's meta device. A case is
measured as in make_activation_reference. Needs torch, transformers and einops.
"""

import functools
import importlib
import json
import random
import sys
import types
import warnings
from datetime import date
from itertools import islice
from pathlib import Path

from tests.references import make_activation_reference as activations
from tests.references.activation_draws import FAMILIES, drawn_config

VERSION = "2.8.3"
TARGET = Path(__file__).with_name(f"flash_attn_{VERSION}.json")
NOT_THERE = {"bloom", "gpt_oss"}
"""transformers has no flash attention for bloom, and neither of these two versions for gpt_oss."""
MULTIPROCESSORS = 132
"""Of an H100: the second version splits the keys of a small batch over them."""


def up(size, multiple):
    return -(-size // multiple) * multiple


def splits(blocks, multiprocessors, key_blocks):
    """num_splits_heuristic"""
    if blocks >= 0.8 * multiprocessors:
        return 1
    efficiency = {}
    for number in range(1, min(128, multiprocessors, key_blocks) + 1):
        if number == 1 or -(-key_blocks // number) != -(-key_blocks // (number - 1)):
            waves = blocks * number / multiprocessors
            efficiency[number] = waves / -(-waves // 1)
    return next(number for number, each in efficiency.items() if each >= 0.85 * max(efficiency.values()))


def second():
    """The extension flash_attn_2_cuda."""
    import torch

    def fwd(q, k, v, out, _alibi, dropout, _scale, _causal, _left, _right, softcap, returned, _generator):
        assert q.dtype in (torch.float16, torch.bfloat16)
        assert q.dtype == k.dtype == v.dtype
        assert {each.stride(-1) for each in (q, k, v)} == {1}
        assert q.shape == (*q.shape[:2], q.shape[2], k.shape[3]) and k.shape == v.shape
        assert q.shape[3] % 8 == 0 and q.shape[3] <= 256 and not returned and out is None and q.shape[1] > 1
        assert not (softcap and dropout)
        batch, seq, heads, width = q.shape
        made = torch.empty_like(q)
        sums = q.new_empty(batch, heads, seq, dtype=torch.float32)
        nothing = q.new_empty(0)
        block = 256 if width <= 64 else 128 if width <= 128 else 64
        parts = splits(batch * heads * up(seq, 64) // 64, 2 * MULTIPROCESSORS, up(seq, block) // block)
        if not dropout and parts > 1:
            rounded = up(width, 32 if width <= 128 else 64)
            sums_of_parts = q.new_empty(parts, batch, heads, seq, dtype=torch.float32)  # noqa: F841
            parts_of_out = q.new_empty(parts, batch, heads, seq, rounded, dtype=torch.float32)  # noqa: F841
        return made, sums, nothing, q.new_empty(2, dtype=torch.int64)

    def bwd(dout, q, k, v, _out, _sums, dq, dk, dv, _alibi, _dropout, _scale, _causal, _left, _right, *_rest):
        assert {each.stride(-1) for each in (dout, q, k, v, dq, dk, dv)} == {1}
        assert dout.shape == q.shape
        batch, seq, heads, width = q.shape
        rounded, rows = up(width, 32 if width <= 128 else 64), up(seq, 128)
        softmax_d = q.new_empty(batch, heads, rows, dtype=torch.float32)
        summed = q.new_empty(batch, rows, heads, rounded, dtype=torch.float32)  # noqa: F841
        if k.shape[2] != heads:
            k_expanded = q.new_empty(batch, k.shape[1], heads, width)  # noqa: F841
            v_expanded = q.new_empty(batch, k.shape[1], heads, width)  # noqa: F841
        return dq, dk, dv, softmax_d

    def varlen_fwd(q, k, v, out, starts_q, starts_k, *rest):
        (used, left_padding, blocks, alibi, _longest_q, longest_k, dropout, _scale, zeros, causal, *window) = rest
        assert all(each is None for each in (out, used, left_padding, blocks, alibi)) and not dropout and not zeros
        assert not causal and window[:2] == [-1, -1] and int(longest_k) > 1
        assert starts_q.dtype == torch.int32 and starts_q.shape == starts_k.shape
        assert q.shape == k.shape == v.shape and q.shape[2] % 8 == 0 and {each.stride(-1) for each in (q, k, v)} == {1}
        tokens, heads, _width = q.shape
        sums = q.new_empty(heads, tokens, dtype=torch.float32)
        return torch.empty_like(q), sums, q.new_empty(0), q.new_empty(2, dtype=torch.int64)

    def varlen_bwd(dout, q, k, _v, _out, _sums, dq, dk, dv, starts_q, *_rest):
        assert dout.shape == q.shape and dout.stride(-1) == 1
        tokens, heads, width = q.shape
        rows = tokens + 128 * (starts_q.numel() - 1)
        softmax_d = q.new_empty(heads, rows, dtype=torch.float32)
        summed = q.new_empty(rows, heads, up(width, 32 if width <= 128 else 64), dtype=torch.float32)  # noqa: F841
        assert k.shape[1] == heads
        return dq, dk, dv, softmax_d

    return types.SimpleNamespace(fwd=fwd, bwd=bwd, varlen_fwd=varlen_fwd, varlen_bwd=varlen_bwd)


def third():
    """The operators of flash_attn_3, on a card of compute capability 9."""
    import torch

    def rounded_width(width):
        return next(each for each in (64, 96, 128, 192, 256) if width <= each)

    def fwd(q, k, v, *rest):
        (softmax_scale, _causal, left, right, _chunk, _softcap, _interleaved, _metadata, parts, _pack, _margin) = rest[-11:]
        assert softmax_scale and parts == 1 and (left >= 0) == (right >= 0)
        assert q.dtype in (torch.float16, torch.bfloat16)
        if (starts := rest[4]) is not None:
            tokens, heads, width = q.shape
            sequences = starts.numel() - 1
            schedule = q.new_empty(1 + (sequences if sequences <= 992 else 0), dtype=torch.int32)  # noqa: F841
            return q.new_empty(tokens, heads, width), q.new_empty(heads, tokens, dtype=torch.float32), None, None
        assert q.shape[3] % 8 == 0 and q.shape[3] <= 256 and k.shape == v.shape
        batch, seq, heads, width = q.shape
        made = q.new_empty(batch, seq, heads, width)
        sums = q.new_empty(batch, heads, seq, dtype=torch.float32)
        counter = q.new_empty(1, dtype=torch.int32)  # noqa: F841 (alive while the kernel runs)
        return made, sums, None, None

    def of_several(q, k, sequences, longest):
        tokens, heads, width = q.shape
        assert k.shape == q.shape
        rounded = rounded_width(width)
        block = 128 if rounded <= 64 else 80 if rounded == 128 else 64
        rows = up(tokens + sequences * block, block)
        softmax_d, sums_log2 = (q.new_empty(heads, rows, dtype=torch.float32) for _each in range(2))
        dq_sum = q.new_empty(heads, rows * rounded, dtype=torch.float32)
        semaphore = q.new_empty(up(longest, block) // block, sequences, heads, dtype=torch.int32)  # noqa: F841
        return softmax_d, sums_log2, dq_sum, None, None

    def bwd(dout, q, k, _v, _out, _sums, dq, dk, dv, *rest):
        (_scale, causal, left, _right, softcap, deterministic, _margin) = rest[-7:]
        assert not deterministic and dout.shape == q.shape
        if rest[0] is not None:
            assert not causal and left < 0 and not softcap
            return dq, dk, dv, *of_several(q, k, rest[0].numel() - 1, int(rest[4]))
        batch, seq, heads, width = q.shape
        local = 0 <= left < k.shape[1] - 1
        rounded = rounded_width(width)
        causal = causal and not local  # a window says both
        if rounded <= 64:
            rows_at_once = 96 if causal and softcap > 0 else 128
        else:
            rows_at_once = 80 if rounded == 128 and not (causal or local or softcap > 0) else 64
        keys_at_once = 128 if rounded <= 128 else 96 if rounded <= 192 else 80
        rows, keys = up(seq, rows_at_once), up(k.shape[1], keys_at_once)
        softmax_d = q.new_empty(batch, heads, rows, dtype=torch.float32)
        sums_log2 = q.new_empty(batch, heads, rows, dtype=torch.float32)
        dq_sum = q.new_empty(batch, heads, rows * rounded, dtype=torch.float32)
        dk_sum = dv_sum = None
        if k.shape[2] != heads:
            dk_sum = q.new_empty(batch, k.shape[2], keys * rounded, dtype=torch.float32)
            dv_sum = q.new_empty(batch, k.shape[2], keys * rounded, dtype=torch.float32)
        semaphore = q.new_empty(rows // rows_at_once, batch, heads, dtype=torch.int32)  # noqa: F841
        return dq, dk, dv, softmax_d, sums_log2, dq_sum, dk_sum, dv_sum

    return types.SimpleNamespace(fwd=fwd, bwd=bwd)


@functools.cache
def install(folder):
    """flash-attn's Python in front of stand-ins for its kernels, and a transformers that finds both packages."""
    import torch

    sys.path[:0] = [folder, f"{folder}/hopper"]
    sys.modules["flash_attn_2_cuda"] = second()
    sys.modules["flash_attn_3"] = types.ModuleType("flash_attn_3")
    sys.modules["flash_attn_3._C"] = sys.modules["flash_attn_3"]._C = types.ModuleType("flash_attn_3._C")
    # As under torch before 2.4 the package calls its functions without torch.library around them: seen from outside
    # such an operator would be one, and what it makes inside unseen.
    version, torch.__version__ = torch.__version__, "2.3"
    importlib.import_module("flash_attn")
    torch.__version__ = version
    importlib.import_module("flash_attn_interface").flash_attn_3_cuda = third()

    from transformers import PreTrainedModel
    from transformers import modeling_flash_attention_utils as flash

    def dispatches(model, flash_attn_version, **_rest):
        assert model._supports_flash_attn and flash_attn_version in (2, 3)
        return True

    packed = flash._is_packed_sequence

    def unpacked(*args):
        packed(*args)  # nothing is read off a tensor without numbers
        return False

    PreTrainedModel._flash_attn_can_dispatch = dispatches
    flash.is_flash_attn_2_available = flash.is_flash_attn_3_available = flash.is_flash_attn_available = (
        lambda **_options: True
    )
    for each in flash.FLASH_ATTENTION_COMPATIBILITY_MATRIX.values():
        each["general_availability_check"] = lambda: True
    flash._is_packed_sequence = unpacked


def drawn_cases(family, seed):
    """Without an end. Heads of other widths than multiples of 8 are for the second version, which pads them."""
    r = random.Random(f"flash {family} {seed}")
    while True:
        c = drawn_config(r, family)
        if family == "falcon":
            c.pop("alibi", None)
        if family == "bert":  # positions are a buffer of so many
            c["max_position_embeddings"] = 1024
        if "v_head_dim" in c:  # transformers fills values up to a key's width, and breaks on wider ones
            c["v_head_dim"] = min(c["v_head_dim"], c["qk_nope_head_dim"] + c["qk_rope_head_dim"])
        version = r.choice([2, 2, 3])
        if version == 2 and "head_dim" in c and r.random() < 0.3:
            c["head_dim"] = r.choice([12, 20, 36])
        elif "head_dim" in c and r.random() < 0.4:
            c["head_dim"] = r.choice([72, 104, 136])
        yield {
            "config": c, "batch": r.choice([1, 1, 2, 3, 4]), "seq": r.choice([r.randint(5, 100), r.randint(100, 700)]),
            "dtype": r.choice(["bf16", "fp16"]), "attention": f"flash_attention_{version}", "device": "meta",
            "kernel": "flash", "checkpointing": r.random() < 0.4,
        }  # fmt: skip


def runs(case):
    """Whether transformers takes the config, and flash-attn the combination."""
    c = case["config"]
    if c["model_type"] == "gemma2" and c.get("attention_dropout"):
        return None
    return activations.runs(case)


def cases(number, seed):
    for family in FAMILIES:
        if family not in NOT_THERE:
            yield from islice(filter(None, map(runs, drawn_cases(family, seed))), number)


def head():
    import torch
    import transformers

    return {
        "versions": {"flash-attn": VERSION, "torch": torch.__version__, "transformers": transformers.__version__},
        "date": date.today().isoformat(),
        "kernels": "flash-attn's Python as it is; for each kernel a function that makes what flash_api.cpp makes",
    }  # fmt: skip


def main(folder, number="4", seed="1"):
    warnings.simplefilter("ignore")
    install(folder)
    activations.write(TARGET, head(), cases(int(number), int(seed)))


if __name__ == "__main__":
    main(*sys.argv[1:])
