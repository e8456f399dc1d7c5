"""The fullest moment of a phase, from the events that torch's allocator writes down. No card is needed for that."""

from collections import Counter

import pytest

pytest.importorskip("torch", reason="needs torch (zeroplan[verify])")

from zeroplan.verify.card import _by_size, _fullest


def event(action, place, size):
    return {"action": action, "addr": place, "size": size}


EVENTS = [
    event("alloc", 1, 400),
    event("alloc", 2, 300),  # 1,000 with what was there: the fullest moment
    event("free_requested", 1, 400),
    event("free_completed", 1, 400),
    event("alloc", 1, 350),
    event("free_requested", 7, 300),
    event("alloc", 3, 50),
]


def test_the_fullest_moment_is_where_most_bytes_are_given_out():
    assert _fullest(Counter({(7, 300): 1}), EVENTS) == {(7, 300): 1, (1, 400): 1, (2, 300): 1}


def test_it_may_be_the_beginning():
    before = Counter({(7, 300): 1, (8, 900): 1})
    assert _fullest(before, [event("free_requested", 8, 900), *EVENTS[:1]]) == before


def test_blocks_by_size():
    assert _by_size({(1, 512): 1, (2, 512): 2, (3, 1024): 1}) == [[1024, 1], [512, 3]]
