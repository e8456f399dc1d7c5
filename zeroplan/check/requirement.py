"""The DeepSpeed, transformers, Accelerate and TRL that a project asks for: what stands in requirements, lock files and
Dockerfiles around a config.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from fnmatch import fnmatch
from functools import cache
from typing import NamedTuple

from zeroplan.catalog.files import project_folders
from zeroplan.check.kind import NOTEBOOK
from zeroplan.deepspeed.versions import versions
from zeroplan.releases import number

LOCAL = re.compile(r"\+[\w.]+")
"""A build of the same release, as in ==0.15.1+cu121."""
LOCKS = ("poetry.lock", "uv.lock", "pdm.lock", "pylock.toml", "Pipfile.lock")
EXACT = re.compile(r"={2,3}([0-9]+(?:\.[0-9]+)*)")
FILES = (
    *LOCKS, "requirement*.txt", "requirements*.in", "constraints*.txt", "pyproject.toml", "Pipfile",
    "environment*.yml", "environment*.yaml", "pixi.toml", "setup.py", "setup.cfg", "*Dockerfile*",
)  # fmt: skip
"""Where versions are required, the exact ones first."""
INSTALLS = re.compile(r"""\s*["']?\s*[!%]\s*(?:python3? -m )?pip3? install\b""")
LARGEST, SHORT = 16_000_000, 10
"""Letters of a file, and of a commit in a message."""
NUMBER = re.compile(r"\d+(?:\.\d+)+(?![\w.*])")
INCLUDED = re.compile(r"^\s*(?:-r|--requirement|-c|--constraint)[ =]\s*(\S+)", re.MULTILINE)
"""Another file that pip reads there."""
DEEPEST = 3
"""Such files within one another."""
SET_BY_DOCKER = re.compile(r"^\s*(?:ARG|ENV)\s+(\w+)[= ][\"']?([\w.+-]+)", re.MULTILINE | re.IGNORECASE)
COMMENT = re.compile(r"(?:^|\s)#(?!egg=).*$")
PROSE = re.compile(r"\s*(?:description|name|title|summary|keywords)\s*=")
"""Keys of pyproject.toml with words for people."""
OPERATOR = r"(?:===?|~=|!=|>=|<=|>|<)"
SPECIFIERS = rf"(?P<all>{OPERATOR}\s*[\w.*+!]+(?:\s*,\s*{OPERATOR}\s*[\w.*+!]+)*)"
"""As in >=0.14,<0.17."""
RELEASES = {
    "transformers": (*(f"4.{minor}.0" for minor in range(30, 58)), *(f"5.{minor}.0" for minor in range(25))),
    "trl": (*(f"0.{minor}.0" for minor in range(5, 30)), *(f"1.{minor}.0" for minor in range(17))),
    "accelerate": (*(f"0.{minor}.0" for minor in range(20, 35)), *(f"1.{minor}.0" for minor in range(16))),
    "ms-swift": (*(f"{major}.{minor}.0" for major, last in ((2, 7), (3, 13), (4, 7)) for minor in range(last)),),
    "llamafactory": ("0.7.1", "0.8.0", "0.8.1", "0.8.2", "0.8.3", "0.9.0", "0.9.1", "0.9.2", "0.9.3", "0.9.4", "0.9.5"),
    "openrlhf": (*(f"0.{minor}.0" for minor in range(1, 12)), "0.10.2", "0.11.2"),
}
"""What a range may allow: the first of each minor release, up to the newest that is known."""

SOURCES = {
    "llamafactory": (
        "src/llamafactory/extras/env.py", "src/llamafactory/cli.py", "src/llamafactory/__init__.py",
        "src/llmtuner/__init__.py",
    ),
    "ms-swift": ("swift/version.py",),
}  # fmt: skip
"""Where a tool's own source says its version."""
OWN_VERSION = re.compile(r"""^(?:VERSION|__version__)\s*=\s*["'](\d+(?:\.\d+)+)""", re.MULTILINE)


class Patterns(NamedTuple):
    """How files ask for a package."""

    listed: re.Pattern[str]
    """deepspeed[dev]>=0.14,<0.17: requirements, pyproject.toml, setup.py, and what pip is given in a Dockerfile."""
    assigned: re.Pattern[str]
    """deepspeed = "^0.16.4": Poetry's, and a Pipfile."""
    conda: re.Pattern[str]
    """- deepspeed=0.16.4: an environment of conda's; deepspeed=0.16.4=py_0: a list of it."""
    source: re.Pattern[str]
    """git+https://github.com/deepspeedai/DeepSpeed@v0.16.4."""
    commit: re.Pattern[str]
    """git+https://github.com/deepspeedai/DeepSpeed@6ba9628: of no release that is known."""
    wheel: re.Pattern[str]
    """The address or name of a wheel, or of a source archive."""
    table: re.Pattern[str]
    """[tool.poetry.dependencies.deepspeed], with a version below it."""
    locked: re.Pattern[str]
    locked_json: re.Pattern[str]


@cache
def _patterns(package: str) -> Patterns:
    return Patterns(
        re.compile(rf"(?<![\w./-]){package}(?:\[[\w ,-]*\])?\s*\(?\s*{SPECIFIERS}", re.IGNORECASE),
        re.compile(
            rf"""^\s*["']?{package}["']?\s*[:=]\s*(?:\{{[^}}\n]*?version["']?\s*[:=]\s*)?"""
            r"""["'](?P<all>[~^]?[=<>!]*\s*\d[\w.,*<>=! ]*)["']"""
        ),
        re.compile(rf"^(?:\s*-\s*(?:[\w.-]+::)?{package}(?:\s*=\s*|\s+)|{package}=)(?P<all>\d[\w.*]*)"),
        re.compile(rf"{package}[\w.-]*(?:\.git)?@v?(?P<all>\d+\.\d+\.\d+)\b", re.IGNORECASE),
        re.compile(rf"/{package}(?:\.git)?@(?P<all>[0-9a-f]{{7,40}})\b", re.IGNORECASE),
        re.compile(
            rf"\b{package}-(?P<all>\d+\.\d+\.\d+)[\w.+%]*?(?:-[\w.]+-[\w.]+-[\w.]+\.whl|\.tar\.gz)", re.IGNORECASE
        ),
        re.compile(
            rf"""^\[tool\.poetry\.(?:group\.[\w-]+\.)?dependencies\.{package}\][ \t]*\n(?:[^\[\n]*\n)*?"""
            r"""version[ \t]*=[ \t]*["'](?P<all>[~^]?[=<>!]*\s*\d[\w.,*<>=! ]*)["']""",
            re.MULTILINE,
        ),
        re.compile(rf"""name\s*=\s*"{package}"\s*\n\s*version\s*=\s*"(?P<all>[^"\n]+)\""""),
        re.compile(rf""""{package}"\s*:\s*\{{[^{{}}]*?"version"\s*:\s*"==(?P<all>[^"\n]+)\""""),
    )


class Requirement(NamedTuple):
    """What one line of a file asks for."""

    specifiers: str
    """As in >=0.14,<0.17."""
    place: str
    """File and line."""
    version: str | None
    """The newest known version that it allows; None where none is known."""

    @property
    def is_older(self) -> bool:
        """Whether it asks for a DeepSpeed before the first that is known."""
        named = NUMBER.findall(self.specifiers)
        return self.version is None and bool(named) and all(number(one) < number(versions()[0]) for one in named)

    @property
    def is_uncertain(self) -> bool:
        """Whether it is of a time that is not known here: before the first release, or a commit."""
        return self.is_older or self.specifiers.startswith("@")

    @property
    def of_its_time(self) -> str:
        """The transformers that was there with the newest DeepSpeed that it names, before and since 0.9."""
        return "4.30.0" if any(number(one) >= number("0.9.0") for one in NUMBER.findall(self.specifiers)) else "4.29.0"

    @property
    def nearest(self) -> str:
        """The known version that the file is checked as."""
        return self.version or versions()[0 if self.is_older else -1]

    @property
    def line(self) -> str:
        stated = f"{self.place}: deepspeed{self.specifiers}"
        if self.version is None:
            known = versions()
            unknown = f"{stated}, of which nothing is known here ({known[0]} to {known[-1]}): checked as {self.nearest}"
            return f"{unknown}, and no error is certain" if self.is_uncertain else unknown
        return f"{stated}: checked as DeepSpeed {self.version}"


def requirement_of(path: str, package: str = "deepspeed") -> Requirement | None:
    """What is required in a config's folder or, where nothing is, in the next above that says it, up to the root of
    its repository or the folder that one is in. What a notebook installs itself comes first.
    """
    here = os.getcwd()
    if path.lower().endswith(NOTEBOOK) and (own := _in_notebook(os.path.abspath(path), here, package)) is not None:
        return own
    folders = project_folders(os.path.dirname(os.path.abspath(path)), here)
    stated = next(filter(None, (_in_folder(folder, here, package) for folder in folders)), None)
    return stated or next(filter(None, (_of_source(folder, here, package) for folder in folders)), None)


@cache
def _of_source(folder: str, here: str, package: str) -> Requirement | None:
    """The release of a tool whose own source a folder has, as a fork of it does; a .dev0 is taken for its release."""
    for name in SOURCES.get(package, ()):
        path = os.path.join(folder, name)
        text = _text(path) or ""
        if match := OWN_VERSION.search(text):
            line = text.count("\n", 0, match.start()) + 1
            return Requirement(f"=={match[1]}", f"{os.path.relpath(path, here)}:{line}", match[1])
    return None


@cache
def _in_notebook(path: str, here: str, package: str) -> Requirement | None:
    """What its cells give pip at last."""
    text = _text(path) or ""
    lines = ((at, line) for at, line in enumerate(text.splitlines(), 1)
             if INSTALLS.match(line) and re.search(rf"\b{package}\b", line.lower()))  # fmt: skip
    several = [(at, _specifiers(_patterns(package), line)) for at, line in lines]
    at, specifiers = several[-1] if several else (0, "")
    return _requirement(package, specifiers, os.path.relpath(path, here), at) if specifiers else None


@cache
def _in_folder(folder: str, here: str, package: str) -> Requirement | None:
    """The first of its files that says a version, named as seen from `here`."""
    try:
        names = sorted(name for name in os.listdir(folder) if any(_is_named(name, pattern) for pattern in FILES))
    except OSError:
        return None
    order = {name: next(at for at, pattern in enumerate(FILES) if _is_named(name, pattern)) for name in names}
    plain = sorted(names, key=lambda name: (order[name], len(name.partition(".")[0]), name))  # a plain name first
    paths = [os.path.join(folder, name) for name in plain]
    return next((requirement for path in paths for requirement in _in_file(path, here, package)), None)


def _is_named(name: str, pattern: str) -> bool:
    return fnmatch(name.lower(), pattern.lower())


def _in_file(path: str, here: str, package: str, depth: int = 0) -> Iterator[Requirement]:
    """Each line that says a version, and what files say that pip reads there."""
    if (text := _text(path)) is None:
        return
    place = os.path.relpath(path, here)
    if os.path.basename(path) in LOCKS:
        for pattern in (_patterns(package).locked, _patterns(package).locked_json):
            if match := pattern.search(text):
                yield _requirement(package, f"=={match['all']}", place, text.count("\n", 0, match.start("all")) + 1)
        return
    for at, line in enumerate(text.splitlines(), 1):
        stated = COMMENT.sub("", line)
        if package not in stated.lower() or PROSE.match(stated) or not _is_for_linux(stated):
            continue
        if specifiers := _specifiers(_patterns(package), stated):
            yield _requirement(package, specifiers, place, at)
    if match := _patterns(package).table.search(text):
        at = text.count("\n", 0, match.start("all")) + 1
        yield _requirement(package, _of_poetry("".join(match["all"].split())), place, at)
    for name in INCLUDED.findall(text) if depth < DEEPEST and path.endswith((".txt", ".in")) else ():
        yield from _in_file(os.path.join(os.path.dirname(path), name), here, package, depth + 1)


def _text(path: str) -> str | None:
    """What a file says, with what a Dockerfile sets put in; None where it cannot be read."""
    try:
        if os.path.getsize(path) > LARGEST or not os.path.isfile(path):
            return None
        with open(path, "rb") as stream:
            content = stream.read()
    except OSError:
        return None
    text = content.decode("utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8", errors="replace")
    if "dockerfile" in os.path.basename(path).lower():
        for name, value in SET_BY_DOCKER.findall(text):
            text = text.replace(f"${{{name}}}", value).replace(f"${name}", value)
    return text


def _specifiers(patterns: Patterns, line: str) -> str:
    """What a line asks for, as pip writes it; empty where it names no version."""
    if match := patterns.listed.search(line):
        return "".join(match["all"].split())
    if match := patterns.assigned.search(line):
        return _of_poetry("".join(match["all"].split()))
    if match := patterns.conda.search(line):
        number = match["all"]
        return f"=={number}" if number.endswith(".*") or number.count(".") > 1 else f"=={number}.*"
    if match := patterns.source.search(line) or patterns.wheel.search(line):
        return f"=={match['all']}"
    commit = patterns.commit.search(line)
    return "" if commit is None else f"@{commit['all'][:SHORT]}"


def _is_for_linux(line: str) -> bool:
    """Whether a marker behind a semicolon leaves a line out where DeepSpeed runs."""
    from packaging.markers import InvalidMarker, Marker, default_environment

    environment = {**default_environment(), "sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"}
    stated = line.partition(";")[2].strip()
    for marker in (stated, stated.rstrip(", ]"), stated.rstrip(", ]")[:-1]):  # in a list of texts it has a quote behind
        with suppress(InvalidMarker):
            return Marker(marker).evaluate(environment)  # type: ignore[arg-type]
    return True


def _of_poetry(text: str) -> str:
    """^0.16.4 is >=0.16.4,<0.17, ~0.16.4 likewise, and a version alone is itself."""
    if text[0] in "^~" and text[1:2] != "=":
        first, second = [*text[1:].split("."), "0"][:2]
        if text[0] == "^" and first not in ("", "0"):
            return f">={text[1:]},<{int(first) + 1}"
        return f">={text[1:]},<{first}.{int(second) + 1}"
    return text if text[0] in "=<>!~" else f"=={text}"


def _releases(package: str, specifiers: str) -> list[str]:
    """Those that are known, and those that the bounds name."""
    from packaging.version import Version

    return sorted({*RELEASES[package], *NUMBER.findall(specifiers)}, key=Version)


def _requirement(package: str, specifiers: str, place: str, line: int) -> Requirement:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    plain = LOCAL.sub("", specifiers)
    exact = EXACT.fullmatch(plain)
    candidates = versions() if package == "deepspeed" else (exact[1],) if exact else _releases(package, plain)
    try:
        allowed = list(SpecifierSet(plain).filter(candidates))
    except InvalidSpecifier:
        allowed = []
    return Requirement(specifiers, f"{place}:{line}", allowed[-1] if allowed else None)
