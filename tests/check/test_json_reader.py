"""The reader against Python's json and, where it is installed, DeepSpeed's own hjson."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from zeroplan.check.json_reader import (
    BRACES,
    COMMENTS,
    MISSING,
    QUOTES,
    TRAILING,
    UNQUOTED,
    NotReadableError,
    read_json,
)
from zeroplan.errors import SpecError

LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=12)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.text(), VALUES), st.sampled_from([None, 0, 2]), st.booleans())
def test_what_json_writes_is_read_as_json_reads_it(config, indent, ascii_only):
    text = json.dumps(config, indent=indent, ensure_ascii=ascii_only)
    document = read_json("x", text)
    assert document.config == json.loads(text)
    assert document.remarks == []
    for path, member in document.walk():
        assert text[member.start] == '"'
        assert json.loads(text[member.start : member.end]) == path[-1]
        assert json.loads(text[member.node.start : member.node.end]) == member.node.plain()


@given(st.text(alphabet='{}[]",:\n ab1/*#e.-\\\'', max_size=40))
def test_any_text_is_read_or_refused(text):
    try:
        assert isinstance(read_json("x", text).config, dict)
    except NotReadableError as stopped:
        error = stopped
    else:
        return
    assert 0 <= error.offset <= len(text)
    assert "\n" not in str(error)


HJSON = [
    ('{"a": 1, // why\n "b": 2}', [COMMENTS]),
    ('{"a": 1 # why\n}', [COMMENTS]),
    ('/* all\n of it */ {"a": {"b": [1, 2]}}', [COMMENTS]),
    ('{"a": [1, 2,], "b": 3,}', [TRAILING, TRAILING]),
    ('{"a": 1\n "b": 2}', [MISSING]),
    ("{'a': 'it''s'\n}", None),
    ("{'a': 'x\"y'}", [QUOTES, QUOTES]),
    ("{a: 1, b: true}", [UNQUOTED, UNQUOTED]),
    ('{"a": ZERO_STAGE,\n "b": 1}', [UNQUOTED, MISSING]),
    ("a: 1\nb: two words\n", [BRACES, UNQUOTED, UNQUOTED, MISSING, UNQUOTED]),
]


@pytest.mark.parametrize(("text", "remarks"), HJSON, ids=lambda value: repr(value)[:30])
def test_hjson_is_read_as_deepspeed_reads_it(text, remarks):
    hjson = pytest.importorskip("hjson")
    try:
        document = read_json("x", text)
    except NotReadableError:
        assert remarks is None
        return
    assert document.config == json.loads(json.dumps(hjson.loads(text)))
    found = [remark.what for remark in document.remarks]
    assert remarks is None or sorted(found) == sorted(remarks)


@pytest.mark.parametrize("text", ['{"a": -3 /*b: 1\n}', '{"a": /* b *,true}\n}', '{/*a: 1}', '{"a": "x" /*b: 2\n}', '{"a": 1}/*/'])
def test_a_comment_without_an_end_is_refused_as_deepspeed_refuses_it(text):
    """hjson ends with an IndexError there."""
    hjson = pytest.importorskip("hjson")
    with pytest.raises(IndexError):
        hjson.loads(text)
    with pytest.raises(NotReadableError, match="a comment that ends"):
        read_json("x", text)


def test_the_last_of_two_keys_counts_and_both_have_places():
    document = read_json("x", '{"a": 1,\n  "a": 5e8}')
    assert document.config == {"a": 500_000_000.0}
    assert [document.place(member.start) for _path, member in document.walk()] == [(1, 2), (2, 3)]
    assert document.members["a",].node.scalar == 5e8


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "an object"),
        ("[1]", "an object"),
        ('{"a" 1}', "':' after a key"),
        ('{"a": }', "a value"),
        ('{"a": "x', "a text that ends in a quote"),
        ('{"a": {"b": 1}', "'}' or ','"),
        ('{"a": 1}}', "the end of the file"),
        ("[" * 9999, "an object"),
        ('\ufeff{"a": 1}', "byte order mark"),
        ('{"a": "\\x"}', "cannot read"),
        ('{"a": 1 /* b: 2\n}', "a comment that ends"),
        ('{"a": /* b\n}', "a comment that ends"),
    ],
    ids=lambda value: value[:20],
)
def test_what_cannot_be_read_is_said(text, said):
    with pytest.raises(NotReadableError, match=said.replace("}", r"\}")):
        read_json("x", text)


@pytest.mark.parametrize(
    ("text", "said"), [('{"a":' * 9999, "over 100 objects"), ('{"a": [' + "[" * 9999, "over 100"), ('{"a": "\0"}', "NUL")]
)
def test_what_is_no_config_is_bad_use(text, said):
    with pytest.raises(SpecError, match=said):
        read_json("x", text)
