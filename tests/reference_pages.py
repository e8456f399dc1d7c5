"""The pages of docs/reference, made of the code's own tables: `python -m tests.reference_pages` writes them anew."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import click

from tests.typed import typed
from zeroplan.cli import help_pages
from zeroplan.cli.app import COMMANDS, app
from zeroplan.cli.options import PanelOption, shared_options
from zeroplan.deepspeed.keys import CURRENT, OPEN_SECTIONS, REMOVED_KEYS, STRICT_SECTIONS
from zeroplan.deepspeed.keys.key import Key
from zeroplan.deepspeed.versions import key_table, versions
from zeroplan.request.options import OPTIONS
from zeroplan.request.values import flag
from zeroplan.sources import DEEPSPEED
from zeroplan.units import count, gib

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs" / "reference"
WRITTEN = "This page is made of zeroplan's own tables (`python -m tests.reference_pages`)."


def plain(text: str) -> str:
    """Text in which nothing but a mark of code is a sign of Markdown."""
    return " ".join(text.split()).replace("<", "&lt;").replace("*", "\\*")


def cell(text: object) -> str:
    return plain(str(text)).replace("|", "\\|")


def table(head: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> list[str]:
    lines = [head, ("---",) * len(head), *(tuple(map(cell, row)) for row in rows)]
    return [f"| {' | '.join(line)} |" for line in lines]


def commands() -> str:
    """The options that commands share, and of each command its arguments and its own options."""
    lines = ["# Commands", "", WRITTEN, "",
             f"`zeroplan COMMAND --help` has the options that most people use. {help_pages.SCOPE}",
             "", "## Shared options", "", "They say what the job is, and mean the same for each command that takes them."]  # fmt: skip
    lines += by_panel("shared", [each for each in shared_options() if not each.hidden])
    for name in COMMANDS:
        command = app.get_command(click.Context(app), name)
        examples = help_pages.PAGES[name].examples
        widest = max(len(example) for example, _text in examples)
        lines += ["", f"## zeroplan {name}", "", plain(command.help or ""), "",
                  "```sh", *(f"{example:{widest}}  # {text}" for example, text in examples), "```"]  # fmt: skip
        arguments = [each for each in command.params if isinstance(each, click.Argument)]
        if arguments:
            rows = ((f"`{each.metavar or each.name.upper()}`", help_pages.ARGUMENTS.get(each.name, "")) for each in arguments)
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


def keys() -> str:
    """Each key of ds_config.json by its section: what it takes, its default, where it has an effect, and what it does."""
    first, last = versions()[0], versions()[-1]
    lines = ["# Keys of ds_config.json", "", WRITTEN, "",
             f"What DeepSpeed {DEEPSPEED} reads, and since when of the releases from {first} on ({last} is the last that is known): "
             "`zeroplan check --deepspeed V` says what another release does with a file, `zeroplan explain KEY` where a key stands "
             "in DeepSpeed's source and what its values cost your model.", "",
             "A number under ZeRO is a stage at which the key has an effect. An unknown key stops DeepSpeed in the sections that "
             "are marked as strict; elsewhere, at the top too, it is passed over without a word."]  # fmt: skip
    for section in ["", *CURRENT.keys]:
        if not CURRENT.children(section):
            continue
        said = [CURRENT.keys[section].meaning] if section else []
        said += ["Strict: an unknown key stops DeepSpeed."] if section in STRICT_SECTIONS else []
        said += ["Another program or the user names further keys."] if section in OPEN_SECTIONS else []
        lines += ["", f"## {section or 'At the top'}", *(["", plain(" ".join(said))] if said else []), "",
                  *table(("key", "takes", "default", "ZeRO", "what it does"), map(_row, CURRENT.children(section)))]  # fmt: skip
    older = dict.fromkeys(path for version in versions() for path in key_table(version).keys)
    gone = [*REMOVED_KEYS, *(path for path in older if path not in CURRENT.keys and path not in REMOVED_KEYS)]
    lines += ["", "## No longer read", "", f"Those with something to write instead stop DeepSpeed {DEEPSPEED}, whatever they say.", "",
              *table(("key", "read up to", "write instead"),
                     ((f"`{path}`", _last(path), REMOVED_KEYS.get(path, "")) for path in gone))]  # fmt: skip
    return "\n".join([*lines, ""])


def _row(key: Key) -> tuple[str, ...]:
    anchor = key.path.replace(".", "").lower()
    name = f"[`{key.name}`](#{anchor})" if CURRENT.children(key.path) else f"`{key.name}`"
    stages = {(0, 1, 2, 3): "", (): "none"}.get(key.stages, ", ".join(map(str, key.stages)))
    default = _value(key.default) + (f" {key.unit}" if key.unit and key.default is not None else "")
    return name, _takes(key), default, stages, " ".join(_said(key))


def _takes(key: Key) -> str:
    bounds = [
        f"{sign} {value:,}"
        for sign, value in (("≥", key.minimum), (">", key.exclusive_minimum), ("≤", key.maximum), ("<", key.exclusive_maximum))
        if value is not None
    ]
    return ", ".join([" or ".join(key.choices) if key.choices else key.kind.replace("|", " or "), *bounds])


def _value(value: object) -> str:
    if value is None or value == {}:
        return ""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"`{json.dumps(value)}`"
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def _said(key: Key) -> list[str]:
    """What it does, other names of it, and what older releases do."""
    said = [key.meaning.rstrip(".") + "."]
    said += [f"Also written {', '.join(f'`{alias}`' for alias in key.aliases)}."] if key.aliases else []
    said += [f'"auto": the Trainer fills `{key.auto}`.'] if key.auto else []
    said += [f"Deprecated: write `{key.deprecated}`."] if key.deprecated else []
    at = [(version, key_table(version).keys.get(key.path)) for version in versions()]
    for (_before, old), (version, new) in pairwise(at):
        if new and not old:
            said.append(f"Since {version}.")
        elif old and not new:
            said.append(f"Not read by {version}.")
        elif old and new and old.default != new.default:
            said.append(f"Default {_value(old.default) or 'none'} before {version}.")
    return said


def _last(path: str) -> str:
    """The newest release that reads a key; none of those known."""
    return next((version for version in reversed(versions()) if key_table(version).keys.get(path)), "")


def listed(name: str) -> list[dict[str, Any]]:
    """What `zeroplan NAME --json` lists."""
    rows: list[dict[str, Any]] = json.loads(typed([name, "--json"], ROOT, 100).out)[name]
    return rows


def presets() -> str:
    """Models, cards and nodes that are known by name."""
    models, cards, nodes = map(listed, ("models", "gpus", "clusters"))
    lines = ["# Presets", "", WRITTEN, "",
             "What `--model`, `--gpu` and `--cluster` know by name, however it is spelled ([options](../options.md)). Each figure has "
             "its source and date in the file of that name below `presets/`.", "", f"## Models ({len(models)})", "",
             "Parameters are exact: `zeroplan models NAME` lists every tensor. Any other model is named by its config.json or "
             "`org/name`, or recorded ([any model](../recordings.md)).", "",
             *table(("name", "family", "parameters", "layers", "width", ""), (
                 (f"`{one['model']}`", one["family"], count(one["parameters"]), one["layers"], one["hidden"],
                  "with images" if one["images"] else "") for one in models))]  # fmt: skip
    lines += ["", f"## Cards ({len(cards)})", "",
              "Memory is what PyTorch shows of it, with where that comes from ([kinds](../evidence.md#the-evidence-behind-it)); "
              "TFLOP/s those of products in 16 bit, as long runs reach them.", "",
              *table(("name", "card", "memory", "known by", "products", "its memory", "to the host"), (
                  (f"`{one['gpu']}`", one["title"], gib(one["memory_bytes"]), one["evidence"],
                   _rate(one["sustained_matmul_flops_per_s"], 1e12, "TFLOP/s"), _rate(one["memory_bandwidth_bytes_per_s"]),
                   _rate(one["host_link_bytes_per_s"])) for one in cards))]  # fmt: skip
    lines += ["", f"## Nodes ({len(nodes)})", "",
              *table(("name", "GPUs", "card", "host memory", "between GPUs", "between nodes", "NVMe", "read, written"), (
                  (f"`{one['cluster']}`", one["gpus_per_node"], f"`{one['gpu']}`", gib(one["host_memory_bytes"]),
                   _rate(one["intra_node_bytes_per_s"]), _rate(one["inter_node_bytes_per_s"]),
                   gib(one["nvme_bytes"]) if one["nvme_bytes"] else "",
                   ", ".join(filter(None, (_rate(one[f"nvme_{way}_bytes_per_s"]) for way in ("read", "write"))))) for one in nodes))]  # fmt: skip
    return "\n".join([*lines, ""])


def _rate(value: float | None, unit: float = 1e9, name: str = "GB/s") -> str:
    return f"{round(value / unit, 1):,g} {name}" if value else ""


PAGES = {"commands.md": commands, "keys.md": keys, "presets.md": presets}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
