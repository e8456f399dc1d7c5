"""The pages of docs/reference, made of the code's own tables: `python -m tests.reference_pages` writes them anew."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import click

from tests.typed import typed
from zeroplan.cli.app import COMMANDS, app
from zeroplan.cli.help_pages import ARGUMENTS
from zeroplan.cli.options import PanelOption, shared_options
from zeroplan.deepspeed.keys import KEYS
from zeroplan.deepspeed.versions import key_table, versions
from zeroplan.request.options import OPTIONS
from zeroplan.request.values import flag
from zeroplan.sources import DEEPSPEED
from zeroplan.units import count, gib

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs" / "reference"
WRITTEN = "This page is made of zeroplan's own tables (`python -m tests.reference_pages`)."


def cell(text: object) -> str:
    return " ".join(str(text).split()).replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def table(head: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> list[str]:
    lines = [head, ("---",) * len(head), *(tuple(map(cell, row)) for row in rows)]
    return [f"| {' | '.join(line)} |" for line in lines]


def commands() -> str:
    """The options that commands share, and of each command its arguments and its own options."""
    lines = ["# Commands", "", WRITTEN, "",
             "`zeroplan COMMAND --help` has the options that most people use, with examples that run as they stand.",
             "", "## Shared options", "", "They say what the job is, and mean the same for each command that takes them."]  # fmt: skip
    lines += by_panel("shared", [each for each in shared_options() if not each.hidden])
    for name in COMMANDS:
        command = app.get_command(click.Context(app), name)
        lines += ["", f"## zeroplan {name}", "", " ".join((command.help or "").split())]
        arguments = [each for each in command.params if isinstance(each, click.Argument)]
        if arguments:
            rows = ((f"`{each.metavar or each.name.upper()}`", ARGUMENTS.get(each.name, "")) for each in arguments)
            lines += ["", *table(("argument", "meaning"), rows)]
        options = [each for each in command.params if isinstance(each, PanelOption) and not each.hidden]
        shared = {each.name for each in options} & OPTIONS.keys()
        if len(shared) > len(OPTIONS) / 2:
            left_out = ", ".join(f"`{flag(each)}`" for each in OPTIONS if each not in shared)
            lines += ["", f"Takes the [shared options](#shared-options){f', but for {left_out}' * bool(left_out)}."]
            options = [each for each in options if each.name not in shared]
        lines += by_panel(name, options)
    return "\n".join([*lines, ""])


def by_panel(name: str, options: Iterable[PanelOption]) -> list[str]:
    panels = defaultdict(list)
    for each in options:
        value = f" {each.metavar}" if each.metavar else ""
        usual = f" Usual: `{each.default}`." if isinstance(each.default, str) and each.default else ""
        panels[each.panel or "Options"].append((f"`{', '.join(each.opts)}{value}`", f"{each.help or ''}{usual}"))
    lines = []
    for panel, rows in panels.items():
        lines += ["", f"### {panel} ({name})", "", *table(("option", "meaning"), rows)]
    return lines


@cache
def read_since(path: str) -> str:
    """The first of the known versions that reads a key, where the first of all does not."""
    every = [version for version in versions() if key_table(version).key(path)]
    return every[0] if every and every[0] != versions()[0] else ""


def keys() -> str:
    """Each key of ds_config.json: what it takes, its default, where it has an effect, and what it does."""
    sections = defaultdict(list)
    for path, key in KEYS.items():
        section = path.rpartition(".")[0] if key.kind != "object" else path
        default = "" if key.default is None else json.dumps(key.default)
        takes = " or ".join(key.choices) if key.choices else key.kind.replace("|", " or ")
        stages = "" if key.stages == (0, 1, 2, 3) else "none" if not key.stages else ", ".join(map(str, key.stages))
        meaning = key.meaning + (f" Deprecated: {key.deprecated}." if key.deprecated else "")
        sections[section.partition(".")[0]].append((
            f"`{path}`", takes + (f", {key.unit}" if key.unit else ""), f"`{default}`" if default else "", stages,
            read_since(path), meaning,
        ))  # fmt: skip
    first, last = versions()[0], versions()[-1]
    lines = ["# Keys of ds_config.json", "", WRITTEN, "",
             f"As DeepSpeed {DEEPSPEED} reads them. A version stands where the key came after {first}, the first that "
             f"is known ({last} is the last); `zeroplan check --deepspeed V` says what another version does, and "
             "`zeroplan explain KEY` what a key changes in bytes and seconds."]  # fmt: skip
    for section in sorted(sections, key=lambda name: (name != "", name)):
        lines += ["", f"## {section or 'At the top'}", "",
                  *table(("key", "takes", "default", "ZeRO stages", "since", "meaning"), sections[section])]  # fmt: skip
    return "\n".join([*lines, ""])


def listed(name: str) -> list[dict[str, Any]]:
    """What `zeroplan NAME --json` lists."""
    return json.loads(typed([name, "--json"], ROOT, 100).out)[name]


def presets() -> str:
    """Models, cards and nodes that are known by name."""
    models = ((f"`{one['model']}`", one["family"], count(one["parameters"]), one["layers"], one["hidden"],
               "with images" if one["images"] else "") for one in listed("models"))  # fmt: skip
    lines = ["# Presets", "", WRITTEN, "", "## Models", "", "Parameters are exact: `zeroplan models NAME` lists every tensor.",
             "", *table(("name", "family", "parameters", "layers", "width", ""), models)]  # fmt: skip
    cards = ((f"`{one['gpu']}`", one["title"], gib(one["memory_bytes"]),
              ", ".join(sorted(one["peak_flops_per_s"]))) for one in listed("gpus"))
    lines += ["", "## Cards", "", "Memory is what PyTorch shows of it.", "",
              *table(("name", "card", "memory", "computes in"), cards)]  # fmt: skip
    nodes = ((f"`{one['cluster']}`", one["gpus_per_node"], f"`{one['gpu']}`", gib(one["host_memory_bytes"]),
              gib(one["nvme_bytes"]) if one["nvme_bytes"] else "") for one in listed("clusters"))  # fmt: skip
    lines += ["", "## Nodes", "", *table(("name", "GPUs", "card", "host memory", "NVMe"), nodes)]
    return "\n".join([*lines, ""])


PAGES = {"commands.md": commands, "keys.md": keys, "presets.md": presets}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
