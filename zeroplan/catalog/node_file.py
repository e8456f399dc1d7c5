"""A node of the user's own, in a YAML or JSON file of the form of `presets/clusters/`: `--cluster node.yaml`."""

from __future__ import annotations

from typing import Any

from zeroplan.catalog.files import LARGEST_CONFIG, read_object, read_text
from zeroplan.clock import STRENGTH
from zeroplan.errors import SpecError, nearest, shown

EXPECTED = "a node as `zeroplan calibrate -o node.yaml` writes it"
CARD = ("sustained_matmul", "memory_bandwidth", "host_link")
"""Figures of the card that a node's file may state: they take the place of the preset's."""
FIGURES = (
    "host_memory", "cpu_cores", "nvme", "intra_node", "inter_node", "all_reduce", "effective_inter_node", "nvme_read",
    "nvme_write", "host_adam", "hop", "crossing", *CARD,
)  # fmt: skip
WORDS = ("title", "note", "aliases", "gpu", "gpus_per_node", "observations")
"""`observations`: what was measured beside the figures, for people."""
SAYS = ("value", "source", "date", "evidence")
LARGEST_NODE = 10_000
LARGEST_NODE_FILE = 100_000
"""Bytes of YAML, all of which PyYAML reads twice at 100 kB/s. What `zeroplan calibrate` writes has 5 kB."""
LINK, DISK, DELAY = (1e7, 1e13, "B/s"), (1e6, 1e12, "B/s"), (1e-9, 1.0, "s")
BOUNDS = {
    "host_memory": (1e8, 1e15, "B"), "nvme": (1e6, 1e17, "B"), "intra_node": LINK, "inter_node": LINK,
    "all_reduce": LINK, "effective_inter_node": LINK, "host_link": LINK, "nvme_read": DISK, "nvme_write": DISK,
    "host_adam": (1e6, 1e12, "/s"), "hop": DELAY, "crossing": DELAY, "memory_bandwidth": (1e10, 1e14, "B/s"),
    "sustained_matmul": (1e12, 1e17, "FLOP/s"),
}  # fmt: skip
"""From what to what a figure is believed: ten times and more beyond the slowest and the fastest that is sold, to catch
a slipped unit."""


def is_file(name: str) -> bool:
    """Whether a name of a cluster is that of a file."""
    return is_yaml(name) or name.strip().lower().endswith(".json")


def is_yaml(name: str) -> bool:
    """Whether a name is that of a YAML file, by its ending."""
    return name.strip().lower().endswith((".yaml", ".yml"))


def read_node(path: str) -> dict[str, Any]:
    """The content, with each field in its place; units are read where figures are. Raises `SpecError`."""
    content = _parsed(path)
    if not isinstance(content, dict):
        raise SpecError(path, _kind(content), EXPECTED)
    for key, entry in content.items():
        if key not in FIGURES and key not in WORDS:
            near = nearest(str(key)[:40], (*FIGURES, *WORDS))
            raise SpecError(f"{path}.{str(key)[:40]}", "an unknown field", "a node's fields", near)
        if key in FIGURES:
            _check_figure(f"{path}.{key}", entry)
    _check_gpus(path, content)
    return content


def check_bounds(path: str, key: str, value: float, written: Any) -> None:
    """Raises `SpecError` with the line of a figure that no machine has."""
    low, high, unit = BOUNDS[key]
    if not low <= value <= high:
        place = f"{path}, line {_line_of(path, key)}, {key}"
        raise SpecError(place, shown(written), f"{low:g} to {high:g} {unit}, which machines have")


def _line_of(path: str, key: str) -> int:
    if not is_yaml(path):
        written = enumerate(read_text(path, EXPECTED, LARGEST_CONFIG).splitlines(), 1)
        return next((number for number, line in written if f'"{key}"' in line), 1)
    import yaml

    root: Any = yaml.compose(read_text(path, EXPECTED, LARGEST_NODE_FILE), Loader=yaml.SafeLoader)
    lines: dict[str, int] = {name.value: name.start_mark.line + 1 for name, _value in root.value}
    return lines[key]


def _check_once(path: str, root: Any) -> None:
    """PyYAML takes the last of two; a YAML alias may stand in many places, and is looked at once."""
    waiting: list[Any] = [root]
    seen: set[int] = set()
    while waiting:
        node = waiting.pop()
        if id(node) in seen or not isinstance(getattr(node, "value", None), list):
            continue
        seen.add(id(node))
        pairs = node.value if node.id == "mapping" else [(None, value) for value in node.value]
        lines: dict[str, int] = {}
        for name, value in pairs:
            waiting.append(value)
            if name is None or name.id != "scalar":
                continue
            line = name.start_mark.line + 1
            if name.value in lines:
                twice = f"{shown(name.value)} a second time, after line {lines[name.value]}"
                raise SpecError(f"{path}, line {line}", twice, "each field once")
            lines[name.value] = line


def _parsed(path: str) -> Any:
    if not is_yaml(path):
        return read_object(path, EXPECTED, largest=LARGEST_CONFIG, unique=True)
    import yaml

    text = read_text(path, EXPECTED, LARGEST_NODE_FILE)
    try:
        _check_once(path, yaml.compose(text, Loader=yaml.SafeLoader))
        return yaml.safe_load(text)  # libyaml's faster loader crashes on what is nested a thousand times
    except yaml.MarkedYAMLError as error:
        at = error.problem_mark
        place = f"{path}, line {at.line + 1}, column {at.column + 1}" if at else path
        raise SpecError(place, f"no YAML: {error.problem}", EXPECTED) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # a character, a date, a depth that cannot be
        raise SpecError(path, f"no YAML: {' '.join(str(error).split())[:80]}", EXPECTED) from error


def _check_gpus(path: str, content: dict[str, Any]) -> None:
    card, number = content.get("gpu"), content.get("gpus_per_node")
    if "gpus_per_node" not in content and card is not None:
        raise SpecError(path, "no gpus_per_node", "how many a node has", "gpus_per_node: 8")
    # Without either: a host and a disk, measured where there was no GPU.
    if "gpus_per_node" in content and (type(number) is not int or not 1 <= number <= LARGEST_NODE):
        place = f"{path}.gpus_per_node"
        raise SpecError(place, _kind(number), f"a whole number from 1 to {LARGEST_NODE:,}", "gpus_per_node: 8")
    if "gpu" in content and not isinstance(card, str):
        raise SpecError(f"{path}.gpu", _kind(card), "a GPU preset (see `zeroplan gpus`)", "gpu: a100-80gb")
    stated = [key for key in CARD if key in content]
    if stated and card is None:
        raise SpecError(path, f"{stated[0]} and no gpu", "the card that it is of", "gpu: a100-80gb")


def _check_figure(place: str, entry: Any) -> None:
    if not isinstance(entry, dict):
        raise SpecError(place, _kind(entry), f"a mapping of {', '.join(SAYS)}")
    for key in SAYS:
        if entry.get(key) is None:
            raise SpecError(place, f"no {key}", f"a mapping of {', '.join(SAYS)}")
    for key in (*SAYS, "kind"):
        if isinstance(entry.get(key), dict | list | tuple | set):
            raise SpecError(f"{place}.{key}", _kind(entry[key]), "text")
    if entry["evidence"] not in STRENGTH:
        raise SpecError(f"{place}.evidence", _kind(entry["evidence"]), f"one of {', '.join(STRENGTH)}", "measured")


def _kind(value: Any) -> str:
    """What was found: of containers the kind alone, for a YAML alias can make them endless."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple | set):
        return "a list"
    return "nothing" if value is None else shown(value)
