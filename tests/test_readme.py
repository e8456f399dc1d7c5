"""The README shows what the tool prints, and its audit's figures are zeroplan's own."""

from __future__ import annotations

import doctest
import re

import pytest

from tests.jobs import job
from tests.readme_blocks import README, blocks, output
from zeroplan.costs.ledger import ledger
from zeroplan.ledger import total

ROW = re.compile(r"^\| .+ \| .+ \| `(zeroplan [^`]+)` \|$", re.MULTILINE)
TEXT = README.read_text(encoding="utf-8")
AUDIT = [(match[1], re.findall(r"\*\*([^*]+)\*\*", match[0])) for match in ROW.finditer(TEXT)]


@pytest.mark.parametrize(
    ("command", "shown"), blocks(), ids=lambda value: value[:60] if value.startswith("zeroplan") else ""
)
def test_an_example_shows_what_the_command_prints(command, shown):
    assert shown == output(command), "run: python -m tests.readme_blocks"


@pytest.mark.parametrize(("command", "figures"), AUDIT, ids=lambda value: value if isinstance(value, str) else "")
def test_an_audited_figure_is_what_zeroplan_prints(command, figures):
    assert figures
    printed = " ".join(output(command).split())
    for figure in figures:
        assert figure in printed


@pytest.mark.parametrize("stage", range(4))
def test_the_paper_beside_deepspeed(stage):
    row = next(line for line in TEXT.splitlines() if line.startswith(f"| {stage} | "))
    one = job("llama-2-7b", stage=stage)
    paper, real = ledger(one, "paper"), ledger(one)
    cells = [cell.strip() for cell in row.split("|")]
    assert cells[2:4] == [f"{total(counted.gpu.resident):,}" for counted in (paper, real)]
    assert cells[5:7] == [f"{sum(t.wire_bytes for t in counted.traffic):,}" for counted in (paper, real)]


def test_the_audit_covers_the_claims_of_the_seed_document():
    for claim in ("16Ψ to 12Ψ", "13B", "500MB", "2× All-Gather", "Reduce-Scatter instead of All-Reduce"):
        assert claim in TEXT


def test_the_two_commands_of_a_fresh_machine_are_there():
    fresh = re.search(r"```sh\n(.*?)```", TEXT, re.DOTALL)
    assert fresh
    commands = [line for line in fresh[1].splitlines() if line and not line.startswith("#")]
    assert len(commands) == 2
    assert "pytest" in commands[1]


def test_the_python_examples_run():
    examples = "\n".join(re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL))
    parsed = doctest.DocTestParser().get_doctest(examples, {}, "README.md", "README.md", 0)
    ran = doctest.DocTestRunner().run(parsed)
    assert ran.attempted
    assert not ran.failed
