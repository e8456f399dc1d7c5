"""Defaults of keys by version: a config that says nothing, and one that need not say it."""

from __future__ import annotations

import pytest

from tests.jobs import job
from zeroplan.deepspeed import defaults
from zeroplan.deepspeed.write import ds_config
from zeroplan.errors import ContradictionError
from zeroplan.specs.job import EngineVersion
from zeroplan.specs.strategy import Strategy

VERSION = "99.0.0"


@pytest.fixture
def changed(monkeypatch):
    """A version whose stages do not scatter, and whose hpZ is 4."""
    of_zero = {"zero_optimization.round_robin_gradients": True, "zero_optimization.zero_hpz_partition_size": 4}
    monkeypatch.setitem(defaults.CHANGED, VERSION, of_zero)
    yield
    defaults.strategy_defaults.cache_clear()


def test_a_strategy_that_says_nothing_is_deepspeeds():
    """`Strategy` has the defaults of the version that everything is compared with."""
    assert defaults.strategy_defaults() == {name: Strategy._field_defaults[name] for name in defaults.strategy_defaults()}


def test_another_version_changes_what_is_meant(changed):
    before, after = defaults.strategy_defaults(), defaults.strategy_defaults(VERSION)
    assert {name for name in after if after[name] != before[name]} == {"round_robin_gradients", "hpz_partition_size"}


def test_a_plan_writes_what_is_not_the_versions_default(changed):
    """What equals 0.19.8's default is written where another version has another."""
    one = job("llama-3.2-1b", gpus=8, stage=3)
    elsewhere = one._replace(engine=EngineVersion(version=VERSION))
    now, then = (ds_config(each, "deepspeed")["zero_optimization"] for each in (one, elsewhere))
    assert "zero_hpz_partition_size" not in now
    assert then["zero_hpz_partition_size"] == 1
    other = job("llama-3.2-1b", gpus=8, stage=1)._replace(engine=EngineVersion(version=VERSION))
    assert ds_config(other, "deepspeed")["zero_optimization"]["round_robin_gradients"] is False


def test_a_default_that_nothing_follows_is_not_passed_over(monkeypatch):
    """Reading takes the default of offload_optimizer.ratio from `Offload`, whatever a version says."""
    monkeypatch.setitem(defaults.CHANGED, "98.0.0", {"zero_optimization.offload_optimizer.ratio": 0.5})
    with pytest.raises(NotImplementedError, match=r"DeepSpeed 98\.0\.0: .*offload_optimizer\.ratio"):
        defaults.strategy_defaults("98.0.0")


def test_an_unknown_version_is_refused():
    with pytest.raises(ContradictionError, match=r"DeepSpeed 1\.2\.3 is not known; known are 0\.19\.8"):
        defaults.default("gradient_clipping", "1.2.3")
