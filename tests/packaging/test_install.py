"""A wheel and an editable install both find the presets."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib

import pytest

from tests.conftest import ROOT

COUNT = "from zeroplan.catalog import presets as p; print(p.PRESETS, *(len(p.names(k)) for k in p.KINDS))"
COMMAND = [
    sys.executable,
    "-m",
    "zeroplan",
    "estimate",
    "--model",
    "llama-3.1-8b",
    "--gpus",
    "8",
    "--gpu",
    "h100",
    "-q",
]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, unpacked where pip would put it."""
    built, target = tmp_path_factory.mktemp("wheel"), tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    build = [*pip, "wheel", str(ROOT), "--no-deps", "--no-build-isolation", "-w", str(built)]
    subprocess.run(build, check=True, capture_output=True)
    (file,) = built.glob("zeroplan-*.whl")
    install = [*pip, "install", str(file), "--no-deps", "--no-index", "--target", str(target)]
    subprocess.run(install, check=True, capture_output=True)
    return target


def ran(command, path, cwd):
    environment = {**os.environ, "PYTHONPATH": str(path)}
    return subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True, check=True).stdout


def test_a_wheel_carries_the_presets(wheel, tmp_path):
    folder, models, recorded, gpus, clusters = ran([sys.executable, "-c", COUNT], wheel, tmp_path).split()
    assert folder == str(wheel / "zeroplan" / "presets")
    assert int(recorded) >= 25
    assert (int(models) >= 60, int(gpus) >= 25, int(clusters) >= 10) == (True, True, True)
    assert "fit in 79.21 GiB" in ran(COMMAND, wheel, tmp_path)


def test_an_editable_install_uses_those_of_the_checkout(tmp_path):
    """An editable install puts the checkout on the path, and nothing else."""
    folder, *_counts = ran([sys.executable, "-c", COUNT], ROOT, tmp_path).split()
    assert folder == str(ROOT / "presets")
    assert "fit in 79.21 GiB" in ran(COMMAND, ROOT, tmp_path)


def test_a_source_distribution_carries_what_the_tests_read():
    """The README, docs/ and what .ci/run runs, beside the package."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    included = set(project["tool"]["hatch"]["build"]["targets"]["sdist"]["include"])
    assert {"zeroplan", "presets", "tests", "benchmarks", "docs", "README.md", ".pre-commit-hooks.yaml", ".ci"} <= included
