"""Stand-ins for the kernels of fla, causal_conv1d and mamba_ssm: bytes worked out by hand from the packages' sources.

Shapes are those that the sources state; each test writes down what a tensor of it takes, and which live together.
"""

from __future__ import annotations

import importlib
import sys
from collections import Counter

import pytest

torch = pytest.importorskip("torch", reason="needs torch (zeroplan[verify])")
transformers = pytest.importorskip("transformers", reason="needs transformers (zeroplan[verify])")
if not hasattr(transformers.integrations.hub_kernels, "use_kernel_func_from_hub_with_fallback"):
    pytest.skip("needs transformers that choose kernels by package (5.24)", allow_module_level=True)

from torch.utils._pytree import tree_flatten  # noqa: E402

from tests.references.gpu.kernel_families import FAMILIES, content  # noqa: E402
from tests.verify.test_recordings import Bytes  # noqa: E402
from zeroplan.verify.recording import fast_kernels_mamba  # noqa: E402
from zeroplan.verify.recording.fast_kernels import STAND_INS, fast_kernels  # noqa: E402
from zeroplan.verify.stand_ins import PASS  # noqa: E402

BF16, FLOAT = torch.bfloat16, torch.float32
B, T = 2, 100
"""Sequences and tokens: in chunks of 64 tokens the second has 36."""


class Watched(Bytes):
    """Operators by name too, and no storages but those that they made."""

    def __init__(self):
        super().__init__(())
        self.operators = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        given = {
            each.untyped_storage()._cdata for each in tree_flatten((args, kwargs))[0] if isinstance(each, torch.Tensor)
        }
        made = self.stand_ins.dispatched(func, args, kwargs or {})
        result = func(*args, **(kwargs or {})) if made is PASS else made
        self.operators[str(func)] += 1
        for each in tree_flatten(result)[0]:
            if isinstance(each, torch.Tensor) and each.untyped_storage()._cdata not in given:
                self.see(each.untyped_storage())
        return result


def given(*shape, dtype=BF16):
    return torch.empty(shape, dtype=dtype, device="meta", requires_grad=True)


def by_token(batch, channels, tokens):
    """[b, d, l] whose memory is [b, l, d], as a projection gives it."""
    return given(batch, tokens, channels).mT


def stepped(name, inputs, named, in_rows=True):
    """Bytes when forward has returned, and the peaks of forward and of backward; `inputs` not counted."""
    with Watched() as watched:
        made = STAND_INS[name](*inputs, **named)
    result = made[0] if isinstance(made, tuple) else made
    kept, forward = watched.now, watched.most
    gradient = torch.empty_like(result) if in_rows else torch.empty(result.shape, dtype=BF16, device="meta")
    wanted = [each for each in (*inputs, *named.values()) if isinstance(each, torch.Tensor)]
    watched.most = watched.now
    with watched:
        gradients = torch.autograd.grad(result, wanted, gradient)
    assert [each.shape for each in gradients] == [each.shape for each in wanted]
    return kept, forward, watched.most


def test_causal_convolution():
    """All that it keeps was given. 64 channels, 4 wide."""
    x = B * 64 * T * 2
    weight, bias = 64 * 4 * 4, 64 * 4  # in fp32, before they are narrowed
    inputs = (by_token(B, 64, T), given(64, 4), given(64))
    assert stepped("causal_conv1d_fn", inputs, {"activation": "silu"}) == (x, x, x + x + weight + bias + weight // 2)
    copied = x + x + weight + bias + x  # a gradient in the other order
    assert stepped("causal_conv1d_fn", inputs, {"activation": "silu"}, in_rows=False) == (x, x, copied)


def test_gated_delta_rule():
    """H = 2 heads of K = 32 for queries and keys, HV = 4 of V = 16 for values."""
    q, full = B * T * 2 * 32 * 2, B * T * 4 * 32 * 2
    v, gate, beta = B * T * 4 * 16 * 2, B * T * 4 * 4, B * T * 4 * 2
    norm, inverse, states = B * T * 2 * 4, B * T * 4 * 64 * 2, B * 2 * 4 * 32 * 16 * 2
    kept = 2 * (q + norm) + gate + inverse
    inside = full + v + states + v  # w, u, states and v_new
    forward = kept + inside + v
    # What chunk_gated_delta_rule_bwd holds when prepare_wy_repr_bwd adds the keys' gradients up over value heads.
    until = inside + states + v + 2 * q + full + gate  # states', values', queries', keys', w's and the gate's gradients
    backward = kept + v + until + full + v + gate + beta + q
    inputs = given(B, T, 2, 32), given(B, T, 2, 32), given(B, T, 4, 16), given(B, T, 4, dtype=FLOAT), given(B, T, 4)
    named = {"use_qk_l2norm_in_kernel": True}
    assert stepped("chunk_gated_delta_rule", inputs, named) == (kept + v, forward, backward)


def test_gated_delta_rule_holds_copies_of_what_is_split(monkeypatch):
    """As transformers splits a projection: q, k and v have to be copied, and copies are held until forward is over."""
    whole = given(B, T, 2 * 32 + 2 * 32 + 4 * 16)
    q, k, v = (
        each.unflatten(-1, (heads, -1)) for each, heads in zip(whole.split([64, 64, 64], -1), (2, 2, 4), strict=True)
    )
    rest = given(B, T, 4, dtype=FLOAT), given(B, T, 4)
    apart = tuple(torch.empty_like(each, memory_format=torch.contiguous_format).requires_grad_() for each in (q, k, v))
    named = {"use_qk_l2norm_in_kernel": True}
    one = B * T * 64 * 2
    kept, forward, backward = stepped("chunk_gated_delta_rule", (*apart, *rest), named)
    assert stepped("chunk_gated_delta_rule", (q, k, v, *rest), named) == (kept + one, forward + 3 * one, backward + one)


def test_kimis_delta_attention():
    """2 heads of 32, and a gate for each element."""
    x, wide, beta = B * T * 2 * 32 * 2, B * T * 2 * 32 * 4, B * T * 2 * 4
    norm, matrix, states = B * T * 2 * 4, B * T * 2 * 64 * 2, B * 2 * 2 * 32 * 32 * 2
    kept = 2 * (x + norm) + wide + 2 * matrix
    forward = kept + 3 * x + states + x + x  # w, u and keys; states, v_new and the result
    again = 4 * x + states + x  # and queries
    # dAqk; the states' gradients; of values: one; of queries, keys and gates in fp32, of beta; of Akk
    held = again + 2 * matrix + states + x + 3 * wide + beta + 2 * matrix
    backward = kept + x + held + 3 * wide + 2 * beta  # the second set, with beta's in 32 / 32 parts and their sum
    inputs = (*(given(B, T, 2, 32) for _which in "qkv"), given(B, T, 2, 32, dtype=FLOAT), given(B, T, 2))
    assert stepped("chunk_kda", inputs, {"use_qk_l2norm_in_kernel": True}) == (kept + x, forward, backward)


def scan(monkeypatch):
    """4 heads of 16 in 2 groups with 32 states, chunks of 64; one program sums a group's heads."""
    monkeypatch.setattr(fast_kernels_mamba, "SPLIT_OVER", 1)
    return given(B, T, 4, 16), given(B, T, 4), given(4, dtype=FLOAT), given(B, T, 2, 32), given(B, T, 2, 32)


def test_scan_in_chunks(monkeypatch):
    x, steps, states = B * T * 4 * 16 * 2, B * 4 * 2 * 64 * 4, B * 2 * 4 * 16 * 32 * 4
    last, products, group, dt = B * 4 * 16 * 32 * 4, B * 2 * 2 * 64 * 64 * 4, B * T * 2 * 32 * 4, B * T * 4 * 2
    kept = x + steps
    forward = 2 * steps + states // 2 + last + products + x
    made = 2 * group // 2 + dt  # places for the gradients of B, C and dt
    # dt as given; steps, products and the last state; states and theirs in bf16; of x, of steps, of B and C in fp32
    held = dt + 2 * steps + products + last + states + x + steps + 2 * group + 2 * steps
    small = B * 4 * 2 * 4 + 2 * 4  # of each chunk's decay, and of D in bf16
    backward = kept + made + held + small + 2 * products
    named = {"chunk_size": 64, "D": given(4), "dt_bias": given(4)}
    assert stepped("mamba_chunk_scan_combined", scan(monkeypatch), named) == (kept, forward, backward)
    gated = stepped("mamba_chunk_scan_combined", scan(monkeypatch), {**named, "z": given(B, T, 4, 16)})
    assert gated == (kept + x, forward + x, backward + 3 * x + 2 * 4)  # z's gradient, the scan's, and D's once more


def test_heads_of_a_group_are_split_over_multiprocessors(monkeypatch):
    """1 group of 64 heads, 2 sequences of 2 chunks: 256 programs for 132, so 2 heads each, and 32 parts of each sum."""
    monkeypatch.setattr(fast_kernels_mamba, "SPLIT_OVER", 132)
    assert fast_kernels_mamba.Chunks(B, 2, 64, heads=64, width=16, groups=1, state=32).splits == 32
    assert fast_kernels_mamba.Chunks(B, 2000, 64, heads=64, width=16, groups=1, state=32).splits == 1


@pytest.mark.parametrize("heads", [8, 4])
def test_convolution_scan_norm_and_projection(monkeypatch, heads):
    """64 channels in 2 groups with 32 states; with 4 heads rows of the projection, 260 wide, are no multiples of 8."""
    monkeypatch.setattr(fast_kernels_mamba, "SPLIT_OVER", 1)
    dim, channels = 64, 64 + 2 * 2 * 32
    x, steps, states = B * T * dim * 2, B * heads * 2 * 64 * 4, B * 2 * dim * 32 * 4
    last, products, deviations, out = B * dim * 32 * 4, B * 2 * 2 * 64 * 64 * 4, 2 * B * T * 4, B * T * 48 * 2
    kept = x + deviations + out
    convolved = B * T * channels * 2
    # Together when the scan makes its results: what is convolved, steps, states in bf16, the last, products.
    forward = convolved + 2 * steps + states // 2 + last + products + x
    width = dim // heads
    inputs = (
        given(B, T, dim + channels + heads), given(channels, 4), given(channels), given(heads),
        given(heads, dtype=FLOAT), given(heads), 64,
    )  # fmt: skip
    named = {"rmsnorm_weight": given(dim), "outproj_weight": given(48, dim), "headdim": width, "ngroups": 2}
    # Results again, what is convolved, two gradients of it and of the projection, the norm's, and the scan's as above.
    group, dt = B * T * 2 * 32 * 4, B * T * heads * 2
    projected = B * T * (dim + channels + heads) * 2
    scanned = dt + 2 * steps + products + last + states + steps + 2 * group + 2 * steps + 2 * products
    small = B * heads * 2 * 4 + heads * 2 + dim * 2  # of each chunk's decay, of D and of the norm's weight in bf16
    backward = kept + x + 2 * convolved + projected + 2 * x + scanned + small
    assert stepped("mamba_split_conv1d_scan_combined", inputs, named) == (kept, forward, backward)


@pytest.mark.parametrize("tokens", [T, 2049])
def test_selective_scan(tokens):
    """64 channels with 16 states; a pair for each state and block of 2,048 tokens."""
    x, states, group = B * 64 * tokens * 2, B * 64 * -(-tokens // 2048) * 2 * 16 * 4, B * 16 * tokens * 2
    a, d = 64 * 16 * 4, 64 * 4
    kept = states + x + 2 * group  # and what is before the gate; B and C are copied to rows of tokens
    inputs = (
        given(B, 64, tokens),
        given(B, 64, tokens),
        given(64, 16, dtype=FLOAT),
        *(by_token(B, 16, tokens) for _ in "bc"),
    )
    named = {"D": given(64, dtype=FLOAT), "z": given(B, 64, tokens), "delta_bias": given(64, dtype=FLOAT)}
    made = 3 * x + a + 2 * d + 4 * group + 2 * group  # of z, u and steps; of B and C in fp32, then in bf16
    assert stepped("selective_scan_fn", inputs, named) == (kept + x, kept + x, kept + x + made)


def test_all_of_mamba_between_projections():
    """64 channels with 16 states, steps from 4 numbers."""
    x, rows, group = B * 64 * T * 2, B * T * (4 + 2 * 16) * 2, B * 16 * T * 2
    states, out = B * 64 * 2 * 16 * 4, B * T * 48 * 2
    kept = 2 * x + rows + 2 * group + states + x  # its input in rows of tokens, and what is before the gate
    forward = kept + x + x + x  # convolved, steps, gated
    inputs = (
        by_token(B, 128, T), given(64, 1, 4), given(64), given(36, 64), given(64, 4), given(48, 64), None,
        given(64, 16, dtype=FLOAT),
    )  # fmt: skip
    named = {"D": given(64, dtype=FLOAT), "delta_bias": given(64, dtype=FLOAT)}
    # When the weight of x_proj gets its gradient: convolved twice, steps, their gradient and that of what is convolved,
    # of the input, before and after the gate; of A, D and biases in fp32; of weights and of rows in bf16.
    weights = (48 * 64 + 64 * 4 + 36 * 64) * 2
    backward = kept + out + 9 * x + (64 * 16 + 2 * 64) * 4 + rows + weights
    assert stepped("mamba_inner_fn", inputs, named) == (kept + out, forward, backward)


FALLBACKS = {
    "aten.convolution.default",
    "aten.linalg_solve_triangular.default",
    "aten.triu.default",
    "aten.softplus.default",
}
"""What transformers' own functions run; of softplus, the layers of the delta rule run one themselves."""


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_meets_the_stand_ins(family):
    """As many operators in 256 tokens as in 64, and none of a fallback's."""
    config = transformers.AutoConfig.for_model(**content(family))
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=BF16).train()

    def operators(tokens):
        ids = torch.zeros((B, tokens), dtype=torch.long, device="meta")
        model.zero_grad()
        with Watched() as watched:
            model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
        return watched.operators

    with fast_kernels():
        short = operators(64)
        assert all(parameter.grad is not None for parameter in model.parameters())
        long = operators(256)
    otherwise = operators(64)
    delta_rule = "layer_types" in FAMILIES[family] and "linear_attention" in FAMILIES[family]["layer_types"]
    met = FALLBACKS & short.keys()
    assert short == long
    assert met <= ({"aten.softplus.default"} if delta_rule else set())
    assert FALLBACKS & otherwise.keys() > met


def test_tensors_elsewhere_meet_what_was_there():
    module = importlib.import_module("transformers.models.qwen3_5.modeling_qwen3_5")
    x, weight = torch.randn(2, 8, 12), torch.randn(8, 4)
    before = module.causal_conv1d_fn(x, weight, activation="silu")
    cells = [each.cell_contents for each in module.causal_conv1d_fn.__closure__]
    with fast_kernels():
        inside = module.causal_conv1d_fn(x, weight, activation="silu", unknown="ignored")
        assert module.causal_conv1d_fn(x.to("meta"), weight.to("meta")).shape == x.shape
        with pytest.raises(ValueError, match="can't keep packed sequences apart"):
            module.causal_conv1d_fn(x, weight, seq_idx=torch.zeros(2, 12, dtype=torch.int32))
    assert torch.equal(inside, before)
    assert all(
        each.cell_contents is cell for each, cell in zip(module.causal_conv1d_fn.__closure__, cells, strict=True)
    )


def test_models_imported_inside_meet_them_too():
    name = "transformers.models.lfm2_moe.modeling_lfm2_moe"
    sys.modules.pop(name, None)
    x, weight = torch.empty(2, 8, 12, device="meta"), torch.empty(8, 3, device="meta")

    def convolutions(module):
        with Watched() as watched:
            module.causal_conv1d_fn(x, weight)
        return watched.operators["aten.convolution.default"]

    with fast_kernels():
        module = importlib.import_module(name)
        assert convolutions(module) == 0
    assert convolutions(module) == 1


def test_sequences_of_several_lengths_are_refused():
    inputs = (*(given(1, T, 2, 32) for _which in "qkv"), given(1, T, 2, dtype=FLOAT), given(1, T, 2))
    with pytest.raises(NotImplementedError, match="several lengths"):
        STAND_INS["chunk_gated_delta_rule"](*inputs, cu_seqlens=torch.empty(3, device="meta", dtype=torch.long))
