"""The operators that "meta" mode runs in place of torch's fallbacks: CUDA's, by name and by what they hold."""

import pytest

torch = pytest.importorskip("torch", reason="needs torch (zeroplan[verify])")

from torch.nn import functional as F  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from zeroplan.verify import kernels  # noqa: E402

FLASH, EFFICIENT = "_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention"
SEQ = 13


class Calls(TorchDispatchMode):
    """Every operator that runs, with what it was given and what it made."""

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        self.found.append((func._schema.name.removeprefix("aten::"), args, made))
        return made

    def names(self):
        return [name for name, _args, _made in self.found]

    def call(self, name):
        return next((args, made) for found, args, made in self.found if found == name)


@pytest.fixture
def calls():
    with kernels.as_on_cuda(), Calls() as calls:
        yield calls


def heads(count, width, dtype, *, grad=True):
    return torch.empty(2, count, SEQ, width, dtype=dtype, device="meta", requires_grad=grad)


def qkv(width, dtype, *, key_heads=4, value_width=None, grad=True):
    value = heads(key_heads, value_width or width, dtype, grad=grad)
    return heads(4, width, dtype, grad=grad), heads(key_heads, width, dtype, grad=grad), value


def chosen(calls):
    return [name for name in calls.names() if name in (FLASH, EFFICIENT)] or ["math"]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_flash_in_16_bit(calls, dtype):
    made = F.scaled_dot_product_attention(*qkv(16, dtype), is_causal=True)
    assert chosen(calls) == [FLASH]
    assert made.shape == (2, 4, SEQ, 16)
    made.sum().backward()
    assert "_scaled_dot_product_flash_attention_backward" in calls.names()


def test_flash_shares_key_heads_where_asked(calls):
    query, key, value = qkv(16, torch.bfloat16, key_heads=2)
    F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
    assert chosen(calls) == [FLASH]
    assert calls.call(FLASH)[0][1].shape[1] == 2


def test_flash_pads_heads_to_8(calls):
    made = F.scaled_dot_product_attention(*qkv(20, torch.bfloat16), is_causal=True)
    assert [tensor.shape[-1] for tensor in calls.call(FLASH)[0][:3]] == [24, 24, 24]
    assert made.shape[-1] == 20


@pytest.mark.parametrize(
    ("given", "options"),
    [
        (qkv(16, torch.float32), {"is_causal": True}),
        (qkv(12, torch.float32), {"is_causal": True}),
        (qkv(24, torch.bfloat16, value_width=16), {"is_causal": True}),
        (qkv(264, torch.bfloat16), {"is_causal": True}),
    ],
    ids=["fp32", "fp32 of 12", "two widths", "over 256"],
)
def test_efficient_otherwise(calls, given, options):
    F.scaled_dot_product_attention(*given, **options)
    assert chosen(calls) == [EFFICIENT]


@pytest.mark.parametrize(
    ("given", "options"),
    [
        (qkv(16, torch.float32, key_heads=2), {"is_causal": True, "enable_gqa": True}),
        (qkv(18, torch.float32), {"is_causal": True}),
        (qkv(20, torch.bfloat16), {"attn_mask": torch.empty(SEQ, SEQ, dtype=torch.bool, device="meta")}),
        (qkv(16, torch.bfloat16, key_heads=1), {"is_causal": True}),
    ],
    ids=["fp32 with shared keys", "fp32 of 18", "16 bit of 20 with a mask", "one key head, not asked for"],
)
def test_math_where_no_kernel_fits(calls, given, options):
    F.scaled_dot_product_attention(*given, **options)
    assert chosen(calls) == ["math"]


def test_bits_become_numbers_in_padded_rows(calls):
    mask = torch.empty(2, 1, SEQ, SEQ, dtype=torch.bool, device="meta")
    F.scaled_dot_product_attention(*qkv(16, torch.bfloat16), attn_mask=mask)
    bias = calls.call(EFFICIENT)[0][3]
    assert (bias.dtype, bias.shape) == (torch.bfloat16, (2, 4, SEQ, SEQ))
    assert bias.untyped_storage().nbytes() == 2 * 2 * SEQ * 16
    numbers = calls.call("where")[1]
    assert numbers.untyped_storage().nbytes() == 2 * 2 * SEQ * SEQ


def test_aligned_numbers_are_taken_as_they_are(calls):
    mask = torch.empty(2, 1, SEQ, 16, dtype=torch.bfloat16, device="meta")
    query, _key, _value = qkv(16, torch.bfloat16)
    longer = torch.empty(2, 4, 16, 16, dtype=torch.bfloat16, device="meta")
    F.scaled_dot_product_attention(query, longer, longer, attn_mask=mask)
    assert calls.call(EFFICIENT)[0][3].untyped_storage()._cdata == mask.untyped_storage()._cdata


def test_the_log_sum_exp_is_made_for_a_gradient(calls):
    F.scaled_dot_product_attention(*qkv(16, torch.float32), is_causal=True)
    assert calls.call(EFFICIENT)[1][1].shape == (2, 4, 32)
    calls.found.clear()
    with torch.no_grad():
        F.scaled_dot_product_attention(*qkv(16, torch.float32), is_causal=True)
    assert calls.call(EFFICIENT)[1][1].numel() == 0


def test_dropout_keeps_a_mask_of_bits(calls):
    x = heads(4, 16, torch.bfloat16)
    torch.nn.Dropout(0.1)(x)
    assert calls.call("native_dropout")[1][1].dtype == torch.bool


def test_dropout_of_the_math_kernel_too(calls):
    F.scaled_dot_product_attention(*qkv(18, torch.float32), is_causal=True, dropout_p=0.1)
    assert chosen(calls) == ["math"]
    assert calls.call("native_dropout")[1][1].dtype == torch.bool


def test_all_dropped_is_not_fused(calls):
    F.dropout(heads(4, 16, torch.bfloat16), 1.0)
    assert "native_dropout" not in calls.names()


@pytest.mark.parametrize("options", [{"p": 0.0}, {"p": 0.1, "training": False}])
def test_no_dropout_is_the_input(calls, options):
    x = heads(4, 16, torch.bfloat16)
    assert F.dropout(x, **options) is x


@pytest.mark.parametrize(
    "softmax",
    [
        lambda x: F.softmax(x, dim=-1, dtype=torch.float32),
        lambda x: torch.softmax(x, -1, dtype=torch.float32),
        lambda x: x.softmax(-1, dtype=torch.float32),
    ],
    ids=["functional", "torch", "method"],
)
def test_softmax_reads_fp16(calls, softmax):
    x = heads(4, 16, torch.float16)
    made = softmax(x)
    assert made.dtype == torch.float32
    assert "_to_copy" not in calls.names()
    made.sum().backward()
    assert x.grad.dtype == torch.float16


def test_softmax_copies_bf16(calls):
    F.softmax(heads(4, 16, torch.bfloat16), dim=-1, dtype=torch.float32)
    assert "_to_copy" in calls.names()


def test_other_devices_are_left_alone(calls):
    x = torch.ones(1, 2, 8, 8, dtype=torch.float16)
    F.softmax(x, dim=-1, dtype=torch.float32)
    F.dropout(x, 0.1)
    F.scaled_dot_product_attention(x, x, x)
    assert {"_to_copy", "bernoulli_"} <= set(calls.names())
    assert chosen(calls) == ["math"]


def test_torch_is_put_back():
    names = [(F, "scaled_dot_product_attention"), (torch, "softmax"), (torch.Tensor, "softmax")]
    before = [getattr(owner, name) for owner, name in names]
    with kernels.as_on_cuda():
        assert all(getattr(owner, name) is not was for (owner, name), was in zip(names, before, strict=True))
    assert [getattr(owner, name) for owner, name in names] == before
    with Calls() as calls:
        F.dropout(heads(4, 16, torch.bfloat16), 0.1)
    assert "bernoulli_" in calls.names()
