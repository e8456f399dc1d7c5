"""What Muon holds and makes beside other optimizers: momentum of whole matrices, updates, and what it gathers."""

from __future__ import annotations


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


def gather_buffers(size: int) -> int:
    """S -- what gradients and momentum were gathered through, kept for the next step up to 256 MiB [DeepSpeed
    runtime/zero/stage3.py:_partitioned_buffers_all_gather].
    """
    return size


def gathering(alive: int, w: int) -> int:
    """w·Y -- the buffers that a gather of gradients or momentum goes through, kept ones among them [DeepSpeed
    runtime/zero/stage3.py:_partitioned_buffers_all_gather].
    """
    return w * alive


def orthogonalizing(alive: int, w: int) -> int:
    """w·Y -- what Muon makes of one matrix while it orthogonalizes the update, at its largest moment [DeepSpeed
    runtime/zero/muon/original_muon.py:muon_update].
    """
    return w * alive


def updates(alive: int, w: int) -> int:
    """w·Y -- Muon's updates of whole matrices, which take the gradients' place until the step has read them [DeepSpeed
    runtime/zero/stage_1_and_2.py:get_flat_partition].
    """
    return w * alive


def exchanged_momentum(alive: int, w: int) -> int:
    """w·Y -- pieces of momentum sent and received, of matrices that lie on several ranks [DeepSpeed
    runtime/bf16_optimizer.py:_prepare_muon_updates].
    """
    return w * alive


def matrix_copies(alive: int, w: int) -> int:
    """w·Y -- a clone of one matrix's gradient, and its momentum if that lies on several ranks [DeepSpeed
    runtime/bf16_optimizer.py:_prepare_muon_updates].
    """
    return w * alive


def gathered_gradients(alive: int, w: int) -> int:
    """w·Y -- whole gradients of some matrices, gathered for Muon [DeepSpeed
    runtime/zero/stage3.py:_partitioned_buffers_all_gather].
    """
    return w * alive


def gathered_momentum(alive: int, w: int) -> int:
    """w·Y -- whole momentum of the same matrices, and this rank's pieces that it was gathered from [DeepSpeed
    runtime/zero/stage3.py:_muon_update_sub_group].
    """
    return w * alive


def exchanged_updates(alive: int, w: int) -> int:
    """w·Y -- updates and momentum of a round, one matrix from each rank, each as long as the longest [DeepSpeed
    runtime/zero/stage3.py:_muon_update_sub_group].
    """
    return w * alive


def partitions_from_host(alive: int, w: int) -> int:
    """w·Y -- a sub-group's gradients and momentum, copied to the GPU for Muon [DeepSpeed
    runtime/zero/stage3.py:_apply_muon_updates_cpu_offload].
    """
    return w * alive
