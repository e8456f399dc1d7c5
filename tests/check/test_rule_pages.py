"""docs/rules is what the rules say: `python -m tests.rule_pages` writes it anew."""

from __future__ import annotations

from tests.rule_pages import FOLDER, pages


def test_the_pages_are_those_of_the_rules():
    texts = pages()
    assert {path.name for path in FOLDER.glob("*.md")} == texts.keys()
    stale = [name for name, text in texts.items() if (FOLDER / name).read_text(encoding="utf-8") != text]
    assert stale == []
