"""Stage 3: every tensor partitioned, gathered when its module runs (DeepSpeed 0.19.8)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from itertools import accumulate
from types import ModuleType

from zeroplan.costs.allocations import (
    END,
    START,
    Allocation,
    AllocationTracker,
    PassProfile,
)
from zeroplan.costs.cache import cached, order_free_key
from zeroplan.costs.deepspeed import optimizer_states
from zeroplan.costs.deepspeed.events import GatheredTimeline
from zeroplan.costs.deepspeed.fetch import by_order, first_step_micro_steps, micro_steps, replay_free_key
from zeroplan.costs.deepspeed.layout import bucket_dtypes
from zeroplan.costs.deepspeed.muon import GATHER_BUFFERS, matrices
from zeroplan.costs.deepspeed.nvme_swap import on_gpu
from zeroplan.costs.deepspeed.optimizer_states import (
    FROZEN,
    built_states,
    kept_codes,
    master_name,
    model_buffers,
    numbers,
    state_bytes,
    state_dtype,
    temporaries,
)
from zeroplan.costs.deepspeed.partitions import (
    below_ratio,
    by_dtype,
    gathered_dtype,
    in_gathered_dtype,
    padded_sizes,
    persistent_elements,
    persistent_tensors,
    replaced,
    secondary_sizes,
    shard_sizes,
    small_tensors,
    sub_group_members,
    sub_groups,
    trainable_shard_elements,
    trained_dtype,
    transient_secondary_sizes,
)
from zeroplan.costs.deepspeed.stage_3_backward import replay_backward
from zeroplan.costs.memory import FirstStep, PhaseMemory
from zeroplan.formulas import states, transient, transient_stage_3
from zeroplan.ledger import DTYPE_BYTES, Line, line, total
from zeroplan.specs.job import Job

PERSISTENT, REPLACED = "persistent parameters", "persistent parameters, replaced in forward"
"""The second, 8-bit, are gathered after the step, and go in forward, module by module, which has codes of its own."""


def resident(job: Job) -> list[Line]:
    """Between steps; the optimizer's step partitions the persistent parameters first and gathers them last."""
    strategy, shards, lines = job.strategy, trainable_shard_elements(job), list[Line]()
    if not strategy.offload_param:
        lines += [*_trained(job), *_frozen(job)]
    if not strategy.offload_optimizer:
        g = DTYPE_BYTES[strategy.accumulation]
        lines.append(line("gradients", states.shard_gradients, strategy.accumulation, shards=shards, g=g))
    lines += [*_optimizer(job), *_gather_buffers(job)]
    if strategy.contiguous_gradients:
        for dtype in bucket_dtypes(job):
            size = {"bucket": strategy.reduce_bucket_size, "w": DTYPE_BYTES[dtype]}
            lines.append(line("reduce bucket", states.reduce_bucket, dtype, **size))
    for name, replaces in ((PERSISTENT, False), (REPLACED, True)):
        for dtype, persistent in persistent_elements(job, replaces=replaces).items():
            w = DTYPE_BYTES[dtype]
            lines.append(line(name, states.persistent_parameters, dtype, persistent=persistent, w=w))
    emptied = line("emptied leaves", states.emptied_leaves, "float32", tensors=_emptied_leaves(job))
    if emptied.bytes:
        lines.append(emptied)
    norms = {} if strategy.offload_optimizer else {"float64": 1, "bool": 1}
    lines += [*built_states(job), *model_buffers(job), *kept_codes(job)]
    return [*lines, *numbers(job, norms), *optimizer_states.on_gpu(job)]


def _trained(job: Job) -> Iterator[Line]:
    """Partitions of what trains."""
    sizes = shard_sizes(job)
    for dtype, shards in by_dtype(job, {index: sizes[index] for index in job.model.trainable}).items():
        yield line("parameters", states.shard_parameters, dtype, shards=shards, w=DTYPE_BYTES[dtype])


def _frozen(job: Job) -> Iterator[Line]:
    """Partitions of what does not train, and the second copies of it that stay (hpZ)."""
    frozen = sorted(job.model.frozen)
    for name, rule, sizes in (
        (FROZEN, states.frozen_shards, shard_sizes(job)),
        ("secondary partitions", states.kept_secondary_partitions, secondary_sizes(job)),
    ):
        for dtype, kept in by_dtype(job, {index: sizes[index] for index in frozen} if sizes else {}).items():
            yield line(name, rule, dtype, frozen=kept, w=DTYPE_BYTES[dtype])


def _emptied_leaves(job: Job) -> int:
    """Leaf modules that are released at once."""
    if not job.strategy.leaves.granularity_threshold:
        return 0
    stay, execution = set(small_tensors(job)), job.execution
    return sum(bool(set(execution.subtrees[module]) - stay) for module in execution.leaves)


def _optimizer(job: Job) -> list[Line]:
    """Optimizer states of the sub-groups that the GPU updates."""
    strategy, groups = job.strategy, on_gpu(job)
    here = sum(group.elements for group in groups)
    if not here:
        partial = strategy.offload_optimizer and strategy.offload_optimizer.ratio < 1 and not below_ratio(job)
        dtype = trained_dtype(job)
        return [line("placeholder", states.placeholder, dtype, w=DTYPE_BYTES[dtype])] if partial else []
    dtype, master = state_dtype(job), strategy.master
    lines = [line(master_name(job), states.shard_master, master, shards=here, master=DTYPE_BYTES[master])]
    if strategy.offload_optimizer:
        fp32 = line("fp32 gradients", states.shard_fp32_gradients, master, shards=here, master=DTYPE_BYTES[master])
        lines.append(fp32)
    of_muon = sum(group.elements for group in groups if group.muon)
    if size := state_bytes(job, dtype):
        lines.append(line("optimizer states", states.shard_states, dtype, shards=here - of_muon, m=size))
    return [*lines, *_momentum(job, of_muon)] if of_muon else lines


def _momentum(job: Job, elements: int) -> list[Line]:
    """Muon's, in the dtype that gradients travel in."""
    from zeroplan.formulas import muon

    dtype = job.strategy.communication
    return [line("Muon's momentum", muon.shard_momentum, dtype, shards=elements, g=DTYPE_BYTES[dtype])]


PHASES_KEPT = 16
"""Of the strategies asked for last: each has a row for every hook and gradient."""
AWAY_IN_THE_STEP = (PERSISTENT, REPLACED, GATHER_BUFFERS)
"""Residents that are not there while the optimizer runs."""


@cached(replay_free_key, PHASES_KEPT, order=by_order)
def phase_memory(job: Job) -> PhaseMemory:
    """Gathered parameters and gradients from the replay of the third step, and of the first where it needs more."""
    largest = micro_steps(job).largest
    forwards = [step.forward for step in largest]
    backward, last = replay_backward(job, *largest).tracker, forwards[-1]
    left = (*_secondary(job), *backward.lines())
    return PhaseMemory(
        _at_most(job, *forwards), _gathered(job, last.elements[-1], last.secondary[-1]),
        backward.peak_lines(), (*step(job), *left), AWAY_IN_THE_STEP, left,
        (*_from_host(job), *_secondary(job), *_norms(job)), cache(partial(_first_step, job)),
        counted_in_passes=(REPLACED,),
        forward_pass=_forward_pass(job, *forwards), backward_pass=PassProfile(backward),
    )  # fmt: skip


def gathered(job: Job) -> int:
    """Bytes of parameters at most, with secondary partitions, in forward or in backward."""
    passes = (each for step in micro_steps(job).largest for each in (step.forward, step.backward))
    return DTYPE_BYTES[gathered_dtype(job)] * max(max(each.most) for each in passes)


def _forward_pass(job: Job, *forwards: GatheredTimeline) -> PassProfile:
    """What is gathered, hook by hook, in one pass after the other."""
    tracker, dtype = AllocationTracker(), gathered_dtype(job)
    w = DTYPE_BYTES[dtype]
    for rule in (transient_stage_3.gathered_parameters, transient_stage_3.secondary_partitions):
        tracker.allocate(rule, dtype, 0)
    snapshots, nothing = tracker.snapshots, (0, 0)
    for forward in forwards:
        snapshots.add(START, 0, nothing, 0, nothing)
        now, at_end = 0, nothing
        for at, _ready, most, elements, secondary in forward.rows:
            now, at_end = (elements + secondary) * w, (elements, secondary)
            snapshots.add(at, most * w, (most - secondary, secondary), now, at_end)
        snapshots.add(END, now, at_end, now, at_end)
    return PassProfile(tracker)


def less_in_forward(job: Job) -> int:
    """Bytes by which forward's fullest moment may be below what is counted: DeepSpeed goes through a set of tensors to
    wait for, in an order of addresses, and gathers that end at one module may be unpacked one after the other's buffer
    has gone (runtime/zero/partitioned_param_coordinator.py:fetch_sub_module). Activations are left out.
    """
    if job.strategy.stage < 3:
        return 0
    forwards = [micro_step.forward for micro_step in micro_steps(job).largest]
    most = max(max(forward.most) for forward in forwards)
    fewest = max(most - less for forward in forwards for most, less in zip(forward.most, forward.less, strict=True))
    return DTYPE_BYTES[gathered_dtype(job)] * (most - fewest)


def _gather_buffers(job: Job) -> list[Line]:
    """Muon's, which stay for later steps."""
    if not matrices(job):
        return []
    from zeroplan.costs.deepspeed import muon_gather

    return muon_gather.lines(_of_muon(job).kept(job))


def _of_muon(job: Job) -> ModuleType:
    """The replay of Muon's updates."""
    from zeroplan.costs.deepspeed import muon_gather, muon_offload

    return muon_offload if job.strategy.offload_optimizer else muon_gather


def _first_step(job: Job) -> FirstStep:
    """Forward and backward of the first optimizer step, each empty when the later ones need no less.

    Persistent parameters come with it, released and gathered like the others while the trace is recorded.
    """
    later, padded = micro_steps(job).largest[-1], padded_sizes(job)
    resident = in_gathered_dtype(job, padded, set(persistent_tensors(job)).difference(replaced(job)))
    first = FirstStep()
    first_steps = first_step_micro_steps(job)
    for number, first_step in enumerate(first_steps, 1):
        if not first_step.forward.is_within(later.forward, resident):
            lines = _at_most(job, first_step.forward)
            if total(lines) > total(first.forward):
                first = first._replace(forward=lines, forward_pass=_forward_pass(job, first_step.forward))
        if not first_step.backward.is_within(later.backward, resident):
            tracker = replay_backward(job, first_step, ends=number == len(first_steps)).tracker
            lines = tracker.peak_lines()
            if total(lines) > total(first.backward):
                first = first._replace(backward=lines, backward_pass=PassProfile(tracker))
    return first


def _secondary(job: Job) -> tuple[Line, ...]:
    """Secondary partitions of all tensors that train, once the step has made them; beside offloaded parameters on the
    host.
    """
    secondary = [] if job.strategy.offload_param else transient_secondary_sizes(job)
    return _gathered(job, 0, in_gathered_dtype(job, secondary))


def _from_host(job: Job) -> tuple[Line, ...]:
    """Offloaded partitions of the persistent parameters are all copied before they are gathered, or each for itself."""
    tracker = AllocationTracker()
    sizes = shard_sizes(job)
    shards = [in_gathered_dtype(job, sizes, [index]) for index in persistent_tensors(job)]
    if job.strategy.offload_param and job.ranks > 1 and shards:
        copied = sum(shards)
        if job.strategy.allgather_sequential:
            yet = [*accumulate([job.ranks * share for share in reversed(shards)], initial=0)]  # to be gathered after it
            copied = max(share - later for share, later in zip(reversed(shards), yet, strict=False))
        tracker.allocate(transient_stage_3.partitions_from_host, gathered_dtype(job), copied)
    return tracker.lines()


def _norms(job: Job) -> tuple[Line, ...]:
    """One of each sub-group, all together, and scaled: until the step returns. Offloaded gradients' are the host's."""
    tracker = AllocationTracker()
    if not job.strategy.offload_optimizer:
        tracker.allocate(transient_stage_3.norms_of_groups, "float64", len(sub_groups(job)) + 2)
    return tracker.lines()


def _at_most(job: Job, *forwards: GatheredTimeline) -> tuple[Line, ...]:
    fullest = max(forwards, key=lambda forward: forward.most[forward.fullest])
    row = fullest.fullest
    return _gathered(job, fullest.most[row] - fullest.secondary[row], fullest.secondary[row])


def _gathered(job: Job, elements: int, secondary: int) -> tuple[Line, ...]:
    tracker, dtype = AllocationTracker(), gathered_dtype(job)
    tracker.allocate(transient_stage_3.gathered_parameters, dtype, elements)
    tracker.allocate(transient_stage_3.secondary_partitions, dtype, secondary)
    return tracker.lines()


@cached(order_free_key)
def step(job: Job) -> tuple[Line, ...]:
    """Muon's updates, norms tensor by tensor, then one sub-group after the other: flattened, converted, updated."""
    strategy, tracker = job.strategy, AllocationTracker()
    kept, master = strategy.accumulation, strategy.master
    if matrices(job):
        _of_muon(job).apply(job, tracker)
    if not strategy.offload_optimizer:
        shards = shard_sizes(job)
        for members in sub_group_members(job):
            largest = max([shards[index] for index in members])
            tracker.transient_peak((transient_stage_3.gradient_for_the_norm, "float64", largest))
            tracker.allocate(transient_stage_3.norms_of_groups, "float64", 1)
        tracker.allocate(transient_stage_3.norms_of_groups, "float64", 2)
    else:
        tracker.transient_peak((transient_stage_3.norms, "float64", 2))  # a square and the sum
    for group in on_gpu(job):
        members, elements = group.members, group.elements
        read: list[Allocation] = []
        if not strategy.offload_optimizer:
            read = [(transient_stage_3.flattened_gradients, kept, elements)] if len(members) > 1 else []
            if kept != master:
                converted: Allocation = (transient_stage_3.fp32_gradients, master, elements)
                tracker.transient_peak(*read, converted)
                read = [converted]
        copies = 0 if group.muon else temporaries(job, [elements])
        tracker.transient_peak(*read, (transient.optimizer_temporaries, master, copies))
    return tracker.peak_lines()
