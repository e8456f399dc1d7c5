"""`zeroplan schema`."""

from __future__ import annotations

import json
from typing import Any

from zeroplan.deepspeed.files import write_whole


def run(of: str | None, output: str | None, *, force: bool) -> int:
    """To a file, or to standard output; `of`: the command whose --json it describes, None: ds_config.json."""
    write_whole(output or "-", json.dumps(_schema(of), indent=2, ensure_ascii=False) + "\n", force=force)
    return 0


def _schema(of: str | None) -> dict[str, Any]:
    if of is None:
        from zeroplan.deepspeed.schema import schema

        return schema()
    from zeroplan.schema.json_schema import json_schema  # pydantic, which no other command has need of

    return json_schema(of)
