"""YAML as people write it: keys in their own order, texts of several lines as blocks."""

from __future__ import annotations

from typing import Any


def dumps(*documents: dict[str, Any]) -> str:
    import yaml  # only where a file is written

    class Blocks(yaml.SafeDumper):
        pass

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)

    Blocks.add_representer(str, text)
    Blocks.ignore_aliases = lambda *_args: True  # type: ignore[method-assign]
    parts = [yaml.dump(part, Dumper=Blocks, sort_keys=False, width=1000) for part in documents]
    return "---\n".join(parts)
