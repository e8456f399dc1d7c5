"""What Muon holds and makes beside other optimizers: momentum of whole matrices, updates, and what it gathers."""

from __future__ import annotations

from zeroplan.categories import Category

STAGE_3 = "DeepSpeed runtime/zero/stage3.py"
STAGES_1_2 = "DeepSpeed runtime/zero/stage_1_and_2.py"
BF16 = "DeepSpeed runtime/bf16_optimizer.py"


def momentum(own: int, g: int) -> int:
    """g·O -- Muon's momentum, of all whole matrices that touch this rank's partition [DeepSpeed
    runtime/zero/stage_1_and_2.py:_muon_momentum_buffer].
    """
    return g * own


def staged_momentum(own: int, g: int) -> int:
    """g·O -- the momentum of a step that may still be discarded; kept for the next [DeepSpeed
    runtime/zero/stage_1_and_2.py:_muon_staging_momentum].
    """
    return g * own


def shard_momentum(shards: int, g: int) -> int:
    """g·P -- Muon's momentum, this rank's pieces, in the dtype that gradients travel in [DeepSpeed
    runtime/zero/stage3.py:_create_momentum_buffer].
    """
    return g * shards


def whole_momentum(psi: int, m: int) -> int:
    """M·Ψ -- Muon's momentum of its matrices, whole on each rank at stage 0 [DeepSpeed
    runtime/zero/muon/muon_optimizer.py:step].
    """
    return m * psi


# fmt: off
# held between steps
gather_buffers = Category("gather buffers", f"{STAGE_3}:_partitioned_buffers_all_gather",
    "what gradients and momentum were gathered through, kept for the next step up to 256 MiB")

# for a while, in elements
gathering = Category("gathering", f"{STAGE_3}:_partitioned_buffers_all_gather",
    "the buffers that a gather of gradients or momentum goes through, kept ones among them")
gathered_gradients = Category("gathered gradients", f"{STAGE_3}:_partitioned_buffers_all_gather",
    "whole gradients of some matrices, gathered for Muon")
gathered_momentum = Category("gathered momentum", f"{STAGE_3}:_muon_update_sub_group",
    "whole momentum of the same matrices, and this rank's pieces that it was gathered from")
partitions_from_host = Category("partitions from host", f"{STAGE_3}:_apply_muon_updates_cpu_offload",
    "a sub-group's gradients and momentum, copied to the GPU for Muon")
exchanged_momentum = Category("exchanged momentum", f"{BF16}:_prepare_muon_updates",
    "pieces of momentum sent and received, of matrices that lie on several ranks")
matrix_copies = Category("matrix copies", f"{BF16}:_prepare_muon_updates",
    "a clone of one matrix's gradient, and its momentum if that lies on several ranks")
orthogonalizing = Category("orthogonalizing", "DeepSpeed runtime/zero/muon/original_muon.py:muon_update",
    "what Muon makes of one matrix while it orthogonalizes the update, at its largest moment")
updates = Category("updates", f"{STAGES_1_2}:get_flat_partition",
    "Muon's updates of whole matrices, which take the gradients' place until the step has read them")
exchanged_updates = Category("exchanged updates", f"{STAGE_3}:_muon_update_sub_group",
    "updates and momentum of a round, one matrix from each rank, each as long as the longest")
