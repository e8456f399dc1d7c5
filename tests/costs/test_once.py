"""What is remembered of one job is not given to another."""

from __future__ import annotations

from tests.jobs import job
from zeroplan.costs.deepspeed.traffic import traffic
from zeroplan.costs.passes import own_bytes


def gathered(one):
    """Calls within the node."""
    return sum(transfer.calls for transfer in traffic(one) if transfer.group == "hpz")


def test_more_micro_steps_gather_more_within_the_node():
    """With secondary partitions the first micro-step differs, so a step's calls stand for all of its micro-steps."""
    one = job("llama-3.2-1b", gpus=16, stage=3, hpz_partition_size=8, max_reuse_distance=0)
    third, fourth, fifth = (gathered(one.at(grad_accum=count)) for count in (3, 4, 5))
    assert fifth - fourth == fourth - third > 0


def test_one_node_of_sixteen_is_not_two_of_eight():
    """qgZ changes nothing on one node."""
    two = job("llama-3.2-1b", gpus=16, stage=3, quantized_gradients=True)
    one = two._replace(cluster=two.cluster._replace(nodes=1, gpus_per_node=16))
    assert {transfer.collective for transfer in traffic(two)} >= {"all_to_all"}
    assert "all_to_all" not in {transfer.collective for transfer in traffic(one)}


def test_groups_are_named_for_what_runs_in_them():
    """Over all ranks it is data parallelism, also where secondary partitions are shared by all of them."""
    one = job("llama-3.2-1b", gpus=8, stage=3, hpz_partition_size=8)
    assert {transfer.group for transfer in traffic(one)} == {"dp"}
    both = job("llama-3.2-1b", gpus=16, stage=3, hpz_partition_size=8, quantized_gradients=True)
    assert {transfer.group for transfer in traffic(both) if transfer.collective == "all_to_all"} == {"qgz"}


def test_a_parameter_gathered_in_fp32_is_not_one_in_bf16():
    """Its embedding has 30,522 rows of 768; beyond model_persistence_threshold no small tensor stays, and all are gathered."""
    wide, narrow = (job("bert-base", stage=3, precision=precision) for precision in ("fp32", "bf16"))
    assert (own_bytes(wide)[0], own_bytes(narrow)[0]) == (4 * 30522 * 768, 2 * 30522 * 768)
    none_stays = narrow.at(model_persistence_threshold=0)
    assert set(own_bytes(narrow)) < set(own_bytes(none_stays)) == set(range(len(narrow.model.tensors)))

