"""What sed makes of a text: each line was run with GNU sed 4.9."""

from __future__ import annotations

import time

import pytest

from zeroplan.check.sed import substituted

TEXT = '{"a": X_1, "b": "X"}\nX X\n'


@pytest.mark.parametrize(
    ("script", "written"),
    [
        ("s/X_1/4/", '{"a": 4, "b": "X"}\nX X\n'),
        ("s/X/y/g", '{"a": y_1, "b": "y"}\ny y\n'),
        ("s/X/y/", '{"a": y_1, "b": "X"}\ny X\n'),
        ("s/X.*/z&z/", '{"a": zX_1, "b": "X"}z\nzX Xz\n'),
        ('s/X_1/2/;s/"b"/"c"/', '{"a": 2, "c": "X"}\nX X\n'),
        ('s|"X"|"a/b"|', '{"a": X_1, "b": "a/b"}\nX X\n'),
        ('s/[0-9]*, "b"/9/', '{"a": X_9: "X"}\nX X\n'),
        ("s/^/# /", '# {"a": X_1, "b": "X"}\n# X X\n'), ("s/$/;/", '{"a": X_1, "b": "X"};\nX X;\n'),
        ("s#X$#end#", '{"a": X_1, "b": "X"}\nX end\n'),
        ("s/^X/start/", '{"a": X_1, "b": "X"}\nstart X\n'),
        (r"s/X_[0-9]\+/7/", '{"a": 7, "b": "X"}\nX X\n'),
        ("s/a\": X_1;/q/; s/X/1/", '{"a": 1_1, "b": "X"}\n1 X\n'),
        ("s/[[:space:]]X/-/g", '{"a":-_1, "b": "X"}\nX-\n'),
        (r"s/\./p/g", TEXT),
        ('s/"a": .*,/"a": 8,/', '{"a": 8, "b": "X"}\nX X\n'),
        (r"s/X/\&/", '{"a": &_1, "b": "X"}\n& X\n'),
    ],
)  # fmt: skip
def test_what_sed_writes(script, written):
    assert substituted(TEXT, script) == written


def test_extended_expressions():
    assert substituted(TEXT, "s/X[_0-9]+/7/", extended=True) == '{"a": 7, "b": "X"}\nX X\n'


@pytest.mark.parametrize("script", ["1d", "/X/d", r"s/\(X\)/[\1]/", "s/X/y/p", "s/X/y", "y/X/Y/", "s/+/p/", "s/[z-a]/p/", "s//p/", "s"])
def test_what_is_not_followed(script):
    """`s/+/p/` leaves the text as it is in GNU sed, and `[z-a]` is an error of its."""
    assert substituted(TEXT, script) in (None, TEXT)


@pytest.mark.parametrize("script", ["s/(X|Y)/7/", "s/X{2}/7/"])
def test_extended_expressions_that_are_not_followed(script):
    assert substituted(TEXT, script, extended=True) is None


def test_an_expression_that_goes_back_and_forth():
    start = time.perf_counter()
    assert substituted("a" * 300 + "\n" + "a" * 60_000, "s/.*.*b/x/") is None
    assert substituted(("a" * 299 + "\n") * 200, "s/.*.*b/x/") is not None
    assert time.perf_counter() - start < 20
