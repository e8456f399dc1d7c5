"""What operators give on the meta device lies as torch has it, the second time too."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from zeroplan.verify.recording.dispatch_cache import DispatchCache  # noqa: E402
from zeroplan.verify.recording.lies import Lies  # noqa: E402
from zeroplan.verify.values import tensors_in  # noqa: E402

aten = torch.ops.aten


def empty(*shape, dtype=torch.bfloat16, device="meta"):
    return torch.empty(shape, dtype=dtype, device=device)


def sizes(result):
    return [(Lies.of(each), each.untyped_storage().nbytes()) for each in tensors_in(result)]


@pytest.mark.parametrize(
    ("operator", "args", "named"),
    [
        (aten.add.Tensor, (empty(2, 8).t(), empty(8, 2)), {}),
        (aten.add.Tensor, (empty(4, dtype=torch.int64), 1.0), {}),
        (aten.mm.default, (empty(3, 4), empty(4, 5)), {}),
        (aten.native_layer_norm.default, (empty(2, 8), [8], empty(8), None, 1e-5), {}),
        (aten.split_with_sizes_copy.default, (empty(6, 4), [2, 4]), {}),
        (aten.sum.dim_IntList, (empty(6, 4), [0], True), {"dtype": torch.float32}),
        (aten.arange.default, (7,), {"device": torch.device("meta")}),
    ],
)
def test_a_second_result_lies_as_the_first(operator, args, named):
    cache = DispatchCache()
    first, second = (cache.run(operator, args, named) for _ in range(2))
    assert sizes(first) == sizes(second) == sizes(operator(*args, **named))
    assert type(first) is type(second)
    storages = {each.untyped_storage()._cdata for each in tensors_in((first, second, args))}
    assert len(storages) == len(tensors_in((first, second, args)))
    assert len(cache.entries) == 1
    assert all(cache.entries.values())


def test_numbers_of_other_types_are_other_arguments():
    cache, whole = DispatchCache(), empty(4, dtype=torch.int64)
    results = [cache.run(aten.mul.Tensor, (whole, number), {}) for number in (1, 1.0, True, 1.0)]
    assert [each.dtype for each in results] == [torch.int64, torch.float32, torch.int64, torch.float32]


def test_what_is_written_is_given_back():
    cache, x = DispatchCache(), empty(2, 8)
    assert all(cache.run(aten.mul_.Tensor, (x, 2), {}) is x for _ in range(2))


def test_a_tensor_that_gets_other_sizes_or_another_storage_does_each_time():
    cache = DispatchCache()
    for _ in range(2):
        x, other = empty(2, 8), empty(2, 8)
        cache.run(aten.set_.source_Tensor, (x, other), {})
        assert x.untyped_storage()._cdata == other.untyped_storage()._cdata
        cache.run(aten.resize_.default, (x, [3]), {})
        assert x.shape == (3,)


def test_what_shares_a_storage_and_what_has_bytes_runs_each_time():
    cache, x = DispatchCache(), empty(2, 8)
    for _ in range(2):
        assert cache.run(aten.t.default, (x,), {}).untyped_storage()._cdata == x.untyped_storage()._cdata
        assert cache.run(aten.add.Tensor, (torch.ones(2), 1), {}).tolist() == [2, 2]
        assert cache.run(aten.zeros.default, ([2],), {}).tolist() == [0, 0]
    assert not any(cache.entries.values())
