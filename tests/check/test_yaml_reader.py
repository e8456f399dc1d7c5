"""YAML with places: what PyYAML's safe_load reads, and one line for all that is hostile."""

from __future__ import annotations

from contextlib import suppress

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from zeroplan.check.yaml_reader import read_yaml
from zeroplan.errors import SpecError

SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-(10**9), 10**9), st.floats(allow_nan=False), st.text(max_size=8))
NAMES = st.text(st.characters(categories=["L", "Nd"]), min_size=1, max_size=6).filter(lambda name: name != "<<")
MAPPINGS = st.dictionaries(
    NAMES,
    st.recursive(SCALARS, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3))),
    min_size=1, max_size=5,
)  # fmt: skip
BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


def read(text):
    return read_yaml("a.yaml", text, "a config")


@given(MAPPINGS, st.booleans())
def test_what_yaml_writes_is_read_as_safe_load_reads_it(content, flow):
    text = yaml.safe_dump(content, default_flow_style=flow, allow_unicode=True)
    assert read(text).config == {str(name): value for name, value in yaml.safe_load(text).items()}


@pytest.mark.parametrize("text", ["1e-4", "5e8", "1.0e-4", "5.0e+8", "no", "'no'", "yes", "0x10", "1_000", "~", "", "190:20:30"])
def test_scalars_are_resolved_as_accelerate_has_them(text):
    assert read(f"a: {text}").config == yaml.safe_load(f"a: {text}")


def test_places_count_letters_and_not_bytes():
    document = read("é: 1\nb: {ü: 2,\n  c: 3}\n")
    assert [(path, *document.place(member.start)) for path, member in document.walk()] == [
        (("é",), 1, 1), (("b",), 2, 1), (("b", "ü"), 2, 5), (("b", "c"), 3, 3),
    ]  # fmt: skip


def test_an_alias_is_what_it_stands_for():
    assert read("a: &x {b: 1}\nc: *x\nd: {<<: *x, e: 2}").config == {"a": {"b": 1}, "c": {"b": 1}, "d": {"b": 1, "e": 2}}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (BOMB, "over 20,000 values, as aliases unfold"),
        ("a: &a [*a]", "the alias 'a' of nothing before it"),
        ("a: !!python/object/apply:os.system ['touch hacked']", "the tag '!!python/object/apply:os.system'"),
        ("!!python/object:x.Y {}", "the tag"),
        ("a: !own 1", "the tag '!own'"),
        ("[" * 10_000, "over 50 lists or mappings inside one another"),
        ("? " * 10_000, "over 50 lists or mappings inside one another"),
        ("a: 1\n---\nb: 2", "a second document"),
        ("", "an empty file"),
        ("a", "no keys"),
        ("[1]", "no keys"),
        ("a: b: c", "text that is not YAML"),
        ("a: \0", "text that is not YAML"),
        ("a: '", "text that is not YAML"),
        ("? [1]\n: 2", "a list or mapping as a key"),
        ("a" * 200_001, "200,001 letters"),
        ("".join(f"a{at}: 1\n" for at in range(10_001)), "over 20,000 values"),
    ],
    ids=range(17),
)  # fmt: skip
def test_hostile_text_is_one_line(text, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SpecError) as error:
        read(text)
    assert said in str(error.value)
    assert "\n" not in str(error.value)
    assert list(tmp_path.iterdir()) == []


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text):
    """Nothing else is raised."""
    with suppress(SpecError):
        assert isinstance(read(text).config, dict)
