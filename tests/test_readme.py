"""README.md and docs/*.md show what the tool prints, name what exists, and their audit's figures are zeroplan's own."""

from __future__ import annotations

import doctest
import json
import re
from collections import defaultdict

import click
import pytest

from tests.conftest import REFERENCES
from tests.jobs import job
from tests.readme_blocks import FILES, README, ROOT, blocks, command, outputs, session
from zeroplan.cli.aliases import ALIASES, NAMES, PLACES, SWITCHES
from zeroplan.cli.app import COMMANDS, app
from zeroplan.costs.ledger import ledger
from zeroplan.ledger import total
from zeroplan.report.brief import marks

MOST_LINES = 200
ROW = re.compile(r"^\| .+ \| .+ \| `(zeroplan [^`]+)` \|$", re.MULTILINE)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
TEXTS = {file.relative_to(ROOT).as_posix(): file.read_text(encoding="utf-8") for file in FILES}
PARTS = ("tests", "benchmarks", "zeroplan", "presets", "docs")


def of(name: str) -> str:
    return TEXTS[f"docs/{name}.md"]


def shown() -> dict[tuple[str, ...], list]:
    """What stands in the files, by the commands that it takes: the same ones are run once."""
    found = defaultdict(list)
    for file, block in blocks():
        written = tuple(one for one, _text in block)
        found[tuple(command(one).bare for one in written)].append((file.name, written, tuple(text for _, text in block)))
    for match in ROW.finditer(of("taught")):
        found[(match[1],)].append(("taught.md", None, re.findall(r"\*\*([^*]+)\*\*", match[0])))
    return found


SHOWN = shown()


@pytest.mark.parametrize("commands", SHOWN, ids=lambda commands: commands[0][:70])
def test_what_a_file_shows_is_what_the_commands_print(commands):
    for name, written, expected in SHOWN[commands]:
        if written is not None:
            assert expected == outputs(written), f"{name}: run python -m tests.readme_blocks"
            continue
        assert expected, f"{name}: {commands[0]}: no figure in bold"
        (ran,) = session(commands)
        printed = " ".join(" ".join(ran.lines).split())
        for figure in expected:
            assert figure in printed, name


@pytest.mark.parametrize("stage", range(4))
@pytest.mark.parametrize(
    ("name", "figure"),
    [
        ("memory", lambda counted: total(counted.gpu.resident)),
        ("traffic", lambda counted: sum(transfer.wire_bytes for transfer in counted.traffic)),
    ],
    ids=["held", "sent"],
)
def test_the_paper_beside_deepspeed(name, figure, stage):
    row = next(line for line in of(name).splitlines() if line.startswith(f"| {stage} | "))
    one = job("llama-2-7b", stage=stage)
    cells = [cell.strip() for cell in row.split("|")]
    assert cells[2:4] == [f"{figure(ledger(one, accounting)):,}" for accounting in ("paper", "deepspeed")]


def test_the_audit_covers_the_claims_of_the_seed_document():
    for claim in ("16Ψ to 12Ψ", "13B", "500MB", "2× All-Gather", "Reduce-Scatter instead of All-Reduce"):
        assert claim in of("taught")


def test_the_recorded_runs_are_as_many_as_is_said():
    said = re.findall(r"^\| `(tests/references/\w+_0\.19\.8\.json)` \| (\d+) \|", of("evidence"), re.MULTILINE)
    recorded = {path: len(json.loads((ROOT / path).read_text(encoding="utf-8"))["measured"]) for path, _number in said}
    assert {path: int(number) for path, number in said} == recorded
    assert {path.name for path in REFERENCES.glob("*_0.19.8.json")} - {"hooks_0.19.8.json"} == {path.rpartition("/")[2] for path in recorded}
    assert f"{sum(recorded.values()):,} recorded runs" in TEXTS["README.md"]


def test_the_fields_of_json_are_told(zeroplan):
    told = set(re.findall(r"`(\w+)", of("json")))
    shown = zeroplan("estimate", "--params", "7B", "--gpus", "8", "--gpu-mem", "80", "--stage", "2", "--timeline", "--json")
    assert set(shown.json) <= told
    for field in shown.json["memory"]["gpu"]:
        assert f".{field}" in of("json"), field


def test_every_name_of_another_tool_is_told():
    """With the option that it is read as."""
    rows = re.findall(r"^\| (`--.+`) \| (.+) \|$", of("options").partition("## Names in other tools")[2], re.MULTILINE)
    told = {word: read for words, read in rows for word in re.findall(r"`--([\w-]+)`", words)}
    read = {word: f"`{option}`" for option, words in ALIASES.items() for word in words}
    read |= {word: f"`{switch.option} {switch.on}`" for word, switch in SWITCHES.items()}
    assert {word: told.get(word) for word in read} == read
    assert told.keys() == read.keys() | PLACES.keys()
    for word, place in PLACES.items():
        assert told[word].endswith("`--gpus`"), word
        assert {other for other in PLACES if told[other] == told[word]} == {other for other in PLACES if PLACES[other] == place}


def test_the_signs_before_numbers_are_told():
    rows = re.findall(r"^\| `(.)` \| (.+?) \| .+ \|$", of("evidence"), re.MULTILINE)
    said = marks.legend(job("llama-2-7b", stage=1), (marks.EXACT, marks.NEAR, marks.PUBLISHED, marks.ASSUMED)).plain
    assert [f"{sign} {meaning}" for sign, meaning in rows] == said.split("  ")[:4]
    for sign, meaning in rows:
        assert f"`{sign}` {meaning.replace(' 0.19.8', '')}" in TEXTS["README.md"]


def test_the_two_commands_of_a_fresh_machine_are_there():
    """`.ci/run` takes the second from here."""
    fresh = re.search(r"```sh\n(.*?)```", TEXTS["README.md"], re.DOTALL)
    assert fresh
    commands = [line for line in fresh[1].splitlines() if line and not line.startswith("#")]
    assert len(commands) == 2
    assert "pytest" in commands[1]


def test_the_readme_stays_short():
    assert len(TEXTS["README.md"].splitlines()) <= MOST_LINES


@pytest.mark.parametrize("name", [name for name in TEXTS if ">>> " in TEXTS[name]])
def test_the_python_examples_run(name):
    examples = "\n".join(re.findall(r"```python\n(.*?)```", TEXTS[name], re.DOTALL))
    parsed = doctest.DocTestParser().get_doctest(examples, {}, name, name, 0)
    ran = doctest.DocTestRunner().run(parsed)
    assert ran.attempted
    assert not ran.failed


def slugs(text: str) -> set[str]:
    """The anchors that GitHub gives headings."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(name: str) -> list[str]:
    return LINK.findall(SPAN.sub("", FENCE.sub("", TEXTS[name])))


@pytest.mark.parametrize("name", TEXTS)
def test_what_a_file_links_to_is_there(name):
    for link in links(name):
        if re.match(r"https?://", link):
            continue
        path, _, anchor = link.partition("#")
        target = ((ROOT / name).parent / path if path else ROOT / name).resolve()
        assert target.exists(), link
        if anchor:
            assert anchor in slugs(target.read_text(encoding="utf-8")), link


@pytest.mark.parametrize("index", ["README.md", "docs/index.md"])
def test_every_file_is_reached(index):
    reached = {((ROOT / index).parent / link.partition("#")[0]).resolve() for link in links(index)}
    assert set(FILES) - {README, ROOT / "docs" / "index.md"} <= reached


@pytest.fixture(scope="module")
def commands():
    """Every command with its options."""
    return {
        name: {option for parameter in loaded(name).params for option in (*parameter.opts, *parameter.secondary_opts)}
        for name in COMMANDS
    }


def loaded(name: str) -> click.Command:
    command = app.get_command(click.Context(app), name)
    assert command is not None
    return command


def own(typed: str) -> str:
    """The option of zeroplan that a typed one stands for."""
    word = typed[2:].replace("_", "-")
    switch = SWITCHES.get(word)
    return switch.option if switch else "--gpus" if word in PLACES else NAMES.get(word, f"--{word}")


@pytest.mark.parametrize("name", TEXTS)
def test_commands_options_and_paths_that_a_file_names_exist(name, commands):
    """In code: what examples show aside, which is run."""
    options = set().union(*commands.values(), {"--help", "--version", "--install-completion", "--show-completion"})
    text = TEXTS[name]
    code = [line for kind, body in FENCE.findall(text) if kind in ("sh", "yaml") for line in body.splitlines()]
    code += SPAN.findall(FENCE.sub("", text))
    for line in code:
        called = re.search(r"\bzeroplan ([a-z]+)", line)
        if called:
            assert called[1] in commands, line
        if called or line.startswith("-"):
            given = re.findall(r"(?<!\S)--[a-z][\w-]*", line[called.start() :] if called else line)
            known = commands[called[1]] | {"--help"} if called else options
            assert {typed if typed in known else own(typed) for typed in given} <= known, line
        module = re.search(r"-m (benchmarks|tests)\.(\w+)", line)
        assert not module or (ROOT / module[1] / f"{module[2]}.py").is_file(), line
        path = line.removesuffix("/")
        if re.fullmatch(r"[\w./-]+", path) and path.split("/")[0] in PARTS and "/" in path:
            assert (ROOT / path).exists(), line
