"""Defaults of keys by version: a config that says nothing, and one that need not say it."""

from __future__ import annotations

import pytest

from tests.jobs import job
from zeroplan.deepspeed import defaults
from zeroplan.deepspeed.keys import KEYS, OPEN_SECTIONS, STRICT_SECTIONS
from zeroplan.deepspeed.keys.removed import REMOVED_KEYS
from zeroplan.deepspeed.keys.table import KeyTable
from zeroplan.deepspeed.versions import key_table
from zeroplan.deepspeed.write import ds_config
from zeroplan.errors import ContradictionError
from zeroplan.specs.job import EngineVersion
from zeroplan.specs.strategy import Strategy

VERSION = "99.0.0"


@pytest.fixture
def another(monkeypatch):
    """A version with other defaults."""

    def made(**changes):
        keys = [known.replaced(default=changes[known.name]) if known.name in changes else known for known in KEYS.values()]
        table = KeyTable(VERSION, keys, strict=STRICT_SECTIONS, open_sections=OPEN_SECTIONS, removed=REMOVED_KEYS)
        monkeypatch.setattr(defaults, "key_table", lambda version: table if version == VERSION else key_table(version))
        defaults.strategy_defaults.cache_clear()

    yield made
    defaults.strategy_defaults.cache_clear()


@pytest.fixture
def changed(another):
    """A version that distributes gradients in turn, and whose hpZ is 4."""
    another(round_robin_gradients=True, zero_hpz_partition_size=4)


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


def test_a_default_that_nothing_follows_is_not_passed_over(another):
    """Reading takes the default of offload_optimizer.ratio from `Offload`, whatever a version says."""
    another(ratio=0.5)
    with pytest.raises(NotImplementedError, match=r"DeepSpeed 99\.0\.0: .*offload_optimizer\.ratio"):
        defaults.strategy_defaults(VERSION)


def test_a_release_before_pinning_is_not_planned():
    """pin_memory is false by default until 0.19.5 (runtime/zero/offload_config.py), and reading takes true."""
    with pytest.raises(NotImplementedError, match=r"DeepSpeed 0\.19\.4: .*pin_memory"):
        defaults.strategy_defaults("0.19.4")
    assert defaults.strategy_defaults("0.19.7") == defaults.strategy_defaults()


def test_an_unknown_version_is_refused():
    with pytest.raises(ContradictionError, match=r"DeepSpeed 1\.2\.3 is not known: known are the releases from 0\.14\.0 to 0\.19\.8"):
        defaults.default("gradient_clipping", "1.2.3")
