"""What a config's aio section says, and what of it is named as not counted."""

from __future__ import annotations

import pytest

from tests.costs.timing.test_step import job
from zeroplan.deepspeed.read import read_config
from zeroplan.errors import SpecError
from zeroplan.specs.strategy import Offload

NVME = {"device": "nvme", "nvme_path": "/local_nvme"}


def read(aio, **zero):
    config = {"zero_optimization": {"stage": 3, "offload_optimizer": NVME, **zero}, "aio": aio}
    return read_config(config, "ds_config.json").fields


def test_every_key_that_changes_seconds_is_read():
    said = {"block_size": 8388608, "queue_depth": 32, "intra_op_parallelism": 8, "single_submit": False}
    fields = read({**said, "overlap_events": False})
    assert {f"aio_{name}": value for name, value in said.items()}.items() <= fields.items()
    assert fields["aio_overlap_events"] is False


@pytest.mark.parametrize("name", ["block_size", "queue_depth", "intra_op_parallelism"])
def test_nothing_in_flight_is_refused(name):
    with pytest.raises(SpecError, match=rf"aio\.{name}.*0.*from 1"):
        read({name: 0})


def test_one_call_per_request_is_named_where_files_are_swapped():
    on_disk, in_memory = (
        job(stage=3, offload_optimizer=Offload(device), aio_single_submit=True).strategy for device in ("nvme", "cpu")
    )
    assert ["aio.single_submit" in entry for entry in on_disk.not_counted] == [True]
    assert on_disk.untimed == on_disk.not_counted  # memory is counted all the same
    assert in_memory.not_counted == ()


def test_gpudirect_is_named_where_parameters_are_swapped():
    """Only the parameters' swapper asks for it (runtime/swap_tensor/partitioned_param_swapper.py)."""
    assert read({"use_gds": True}, offload_param=NVME)["uncounted"] == ("aio.use_gds",)
    assert "uncounted" not in read({"use_gds": True})
