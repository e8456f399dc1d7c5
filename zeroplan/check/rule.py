"""What is known of one rule: everything but how it is recognised."""

from __future__ import annotations

from typing import NamedTuple

SITE = "https://www.deepspeed.ai/docs/config-json/"
REMOVALS = "https://github.com/deepspeedai/DeepSpeed/issues/8489"
ISSUE = "https://github.com/deepspeedai/DeepSpeed/issues/"


class Example(NamedTuple):
    """A config, and how `check` was called: option names of `Setting`, with their values."""

    text: str
    options: tuple[tuple[str, object], ...] = ()


class Rule(NamedTuple):
    """A rule of the table. A severity of error says that DeepSpeed refuses; everything else runs."""

    id: str
    severity: str
    title: str
    evidence: str
    """File and line below deepspeed/ in 0.19.8, or what was run."""
    bad: Example
    good: Example
    link: str = SITE
    since: str = ""
    """First version of DeepSpeed that behaves so; empty: all that are known."""
    until: str = ""
    """First version that no longer does."""


def example(text: str, **options: object) -> Example:
    return Example(text, tuple(options.items()))
