"""How far numbers hold, in words: what is said of recorded runs is what there are."""

import json

from tests.conftest import REFERENCES
from tests.jobs import job
from tests.readme_blocks import ROOT
from zeroplan.report.subject import trust

MEASURED = json.loads((REFERENCES / "families_0.19.8.json").read_text())["measured"]


def test_recorded_models_name_the_runs_that_were_made():
    families = {run["case"]["model"]["model_type"] for run in MEASURED}
    said = " ".join(map(str, trust(job("qwen2.5-vl-7b"))))
    assert f"{len(families)} families recorded so ran under DeepSpeed, {len(MEASURED)} runs equal" in said
    evidence = (ROOT / "docs" / "evidence.md").read_text(encoding="utf-8")
    assert f"{len(families)} families: {len(MEASURED)} runs" in evidence
    assert f"{len(families)} families, " in (ROOT / "README.md").read_text(encoding="utf-8")
