"""Every byte that a training step holds with the flash-attention package, against its own Python and transformers'
(flash_attn_2.8.3.json).
"""

from __future__ import annotations

import json

import pytest

from tests.autograd.recorded import COUNTED, Case, held, name
from tests.conftest import REFERENCES
from zeroplan.architectures.registry import FAMILIES, family
from zeroplan.autograd.flash import FlashPackage, Rows, _second, _third, splits
from zeroplan.autograd.memory import Memory
from zeroplan.autograd.tensor import empty

CASES: list[Case] = json.loads((REFERENCES / "flash_attn_2.8.3.json").read_text())["measured"]
WITHOUT = {"bloom", "gpt_oss"}
"""transformers does not run them with it."""


def test_all_families_and_ways_are_recorded():
    assert {case["config"]["model_type"] for case in CASES} == set(FAMILIES) - WITHOUT
    ways = {(case["attention"], case["checkpointing"], case["dtype"]) for case in CASES}
    versions = ("flash_attention_2", "flash_attention_3")
    assert ways == {(one, again, dtype) for one in versions for again in (True, False) for dtype in ("bf16", "fp16")}


@pytest.mark.parametrize("case", CASES, ids=name)
def test_as_flash_attention_does(case: Case):
    assert held(case) == {counted: case[counted] for counted in COUNTED}


def test_what_is_inside_the_kernel_by_hand():
    """At the attention's backward, for one layer of llama with 8 heads of 64, 2 of them for keys, 2 x 1,000 tokens in
    bf16: rows rounded up to 1,024. Second version: softmax_d 4·2·8·1024, dq_accum 4·2·1024·8·64, and for keys and values
    8 heads in 2 bytes: 2·2·2·1000·8·64. Third: softmax_d and the log-sum-exp in base 2, 2·4·2·8·1024, dq_accum as before,
    keys' and values' sums 2·4·2·2·1024·64, and a semaphore for every 128 rows, 4·8·2·8.
    """
    config = {"model_type": "llama", "vocab_size": 16, "num_attention_heads": 8, "num_key_value_heads": 2,
              "hidden_size": 16, "head_dim": 64, "intermediate_size": 16, "num_hidden_layers": 1}  # fmt: skip
    case = {"batch": 2, "seq": 1000, "dtype": "bf16", "device": "meta", "kernel": "flash", "checkpointing": False,
            "config": config}  # fmt: skip
    peaks = {version: held(case, attention=f"flash_attention_{version}")["backward_peak"] for version in (2, 3)}
    second = 4 * 2 * 8 * 1024 + 4 * 2 * 1024 * 8 * 64 + 2 * 2 * 2 * 1000 * 8 * 64
    third = 2 * 4 * 2 * 8 * 1024 + 4 * 2 * 1024 * 8 * 64 + 2 * 4 * 2 * 2 * 1024 * 64 + 4 * 8 * 2 * 8
    random_state = 16  # of the second version
    assert peaks[2] - peaks[3] == second - third + random_state


def test_what_is_inside_the_kernel_where_images_lie_in_one_row_by_hand():
    """3 images of 100 patches each, 4 heads of 80. Backward of the second version has room for 128 more rows of each
    image: softmax_d, 4·4·684, and dq_accum, 4·684·4·96. The third takes 64 rows at once of heads of 96 and rounds 300 + 3·64
    up to 512: softmax_d and the log-sum-exp in base 2, 2·4·4·512, dq_accum, 4·4·512·96, and a semaphore for each of 2·3
    blocks and 4 heads.
    """
    memory, rows = Memory(2), Rows(1, 3, 300, 300, 100)
    q, k = (empty(memory, (300, 4, 80), 2) for _which in "qk")
    before = memory.allocated
    second = _second(q, k, rows)
    assert memory.allocated - before == 4 * 4 * 684 + 4 * 684 * 4 * 96
    del second
    third = _third(q, k, FlashPackage(3, 132, causal=False, longest=100), rows)
    assert memory.allocated - before == 2 * 4 * 4 * 512 + 4 * 4 * 512 * 96 + 4 * 2 * 3 * 4
    del third


@pytest.mark.parametrize(
    ("blocks", "slots", "key_blocks", "parts"),
    [
        (212, 264, 16, 1),  # 212 >= 0.8 * 264: the multiprocessors are busy enough
        (1, 264, 4, 4),  # 1/264, 2/264, (3 would give the same blocks a part as 4: 2, so it is left out), 4/264
        (200, 264, 2, 1),  # 200/264 is filled better than 400/528, which is as good
        (100, 264, 4, 2),  # 0.379, 0.758, 4: 400/528 = 0.758
    ],
)
def test_keys_go_in_parts_where_multiprocessors_are_idle(blocks, slots, key_blocks, parts):
    assert splits(blocks, slots, key_blocks) == parts


@pytest.mark.parametrize(
    ("model_type", "stated", "reason"),
    [
        ("bloom", {}, "no flash attention"), ("gpt_oss", {}, "sinks"), ("falcon", {"alibi": True}, "ALiBi"),
        ("falcon", {}, ""), ("llama", {}, ""),
    ],
)  # fmt: skip
def test_families_that_transformers_does_not_run_with_it(model_type, stated, reason):
    config, _build = family(model_type)
    found = config(**stated).no_flash
    assert reason in found
    assert bool(found) == bool(reason)
