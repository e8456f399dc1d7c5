"""3xx to 7xx: what the card, the host and the links make of a config (--gpu, --gpus, --host-mem, --cluster)."""

from __future__ import annotations

from collections.abc import Iterator

from zeroplan.check.finding import ADVICE, WARNING, Hit
from zeroplan.check.planned import Planned
from zeroplan.check.rule import ISSUE, Rule, example
from zeroplan.check.rules.names import STAGE_2, STAGE_3
from zeroplan.check.subject import Subject
from zeroplan.units import gib

ZERO = "zero_optimization"
HPZ = f"{ZERO}.zero_hpz_partition_size"
OFFLOADS = (f"{ZERO}.offload_optimizer", f"{ZERO}.offload_param")
PINNED = ', "offload_optimizer": {"device": "cpu", "pin_memory": true}'
LOCKED = 0.5
"""Share of a host's memory: what is locked cannot be given to the page cache or to another process (judgement)."""
WORTH = 0.1
"""Share of a step from which on another setting is worth saying."""
SMALL = {"model": "llama-3.2-1b", "gpus": "8", "micro_batch": "1", "checkpointing": "full", "seq": "512"}
EIGHT_BILLION = {"model": "llama-3.1-8b", "gpus": "8", "gpu_mem": "80", "checkpointing": "full"}
FOUR_NODES = {"model": "llama-3.1-8b", "gpus": "4x8", "cluster": "p4d.24xlarge", "checkpointing": "full", "seq": "512"}

RULES: tuple[Rule, ...] = (
    Rule(
        "ZP320", WARNING, "bf16 on a card without it",
        "runtime/engine.py:_do_sanity_check asks torch.cuda.is_bf16_supported, which takes emulation for support",
        example(STAGE_2 % "", gpu="v100-32gb"), example(STAGE_2 % "", gpu="a100-80gb"),
    ),
    Rule(
        "ZP422", ADVICE, "overlap_comm where memory is short", "runtime/zero/stage_1_and_2.py:3260, a second bucket",
        example(STAGE_2 % ', "overlap_comm": true', **(SMALL | {"gpu_mem": "9GiB", "accept": "tight"})),
        example(STAGE_2 % ', "overlap_comm": true', **SMALL, gpu_mem="80"),
    ),
    Rule(
        "ZP423", ADVICE, "ZeRO on one GPU, with nothing offloaded", "run: nothing is divided, buckets are added",
        example('{"train_batch_size": 8, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}', gpus="1"),
        example(STAGE_2 % "", gpus="4"), ISSUE + "1302",
    ),
    Rule(
        "ZP514", ADVICE, "pin_memory, which is true where nothing is stated", "runtime/zero/offload_config.py:45,75",
        example(STAGE_2 % ', "offload_optimizer": {"device": "cpu"}'), example(STAGE_2 % PINNED), since="0.19.5",
    ),
    Rule(
        "ZP515", WARNING, "More than half of the host's memory locked", "torch rounds pinned memory to powers of two",
        example(STAGE_2 % PINNED, **EIGHT_BILLION, host_mem="160GiB", accept="tight"),
        example(STAGE_2 % PINNED, **EIGHT_BILLION, host_mem="1TiB"),
        ISSUE + "5290",
    ),
    Rule(
        "ZP520", ADVICE, "Offloading what would fit", "the planner: the same strategy without offload fits",
        example(STAGE_2 % PINNED, **SMALL, gpu="a100-80gb"), example(STAGE_2 % "", **SMALL, gpu="a100-80gb"),
        ISSUE + "6834",
    ),
    Rule(
        "ZP521", WARNING, "hpZ beside offloaded parameters or states", "reported: the loss diverges",
        example(STAGE_3 % (', "zero_hpz_partition_size": 8' + PINNED)),
        example(STAGE_3 % ', "zero_hpz_partition_size": 8'), ISSUE + "6926",
    ),
    Rule(
        "ZP703", WARNING, "hpZ groups that reach over nodes", "runtime/zero/partition_parameters.py: ranks in a row",
        example(STAGE_3.replace("8", "32", 1) % ', "zero_hpz_partition_size": 16', gpus="4x8"),
        example(STAGE_3.replace("8", "32", 1) % ', "zero_hpz_partition_size": 8', gpus="4x8"),
        "https://github.com/deepspeedai/DeepSpeed/pull/3784",
    ),
    Rule(
        "ZP708", ADVICE, "Stage 3 that waits for the network", "the planner: the same strategy with hpZ is faster",
        example(STAGE_3.replace("8", "32", 1) % "", **FOUR_NODES),
        example(STAGE_3.replace("8", "32", 1) % ', "zero_hpz_partition_size": 8', **FOUR_NODES), ISSUE + "6889",
    ),
)  # fmt: skip


def emulated_bf16(subject: Subject) -> Iterator[Hit]:
    facts, planned = subject.facts, subject.setting.planned
    gpu = planned.cluster.gpu if planned else None
    if gpu is None or facts("bf16.enabled") is not True:
        return
    if "fp16" in gpu.peak and "bf16" not in gpu.peak:
        yield Hit("ZP320", subject.spelled("bf16.enabled"), f"{gpu.title} has no bf16: DeepSpeed refuses it, or with "
                  "newer versions of torch it is emulated, slower than fp32", '"fp16": {"enabled": true}')  # fmt: skip


def lone_rank(subject: Subject) -> Iterator[Hit]:
    facts = subject.facts
    if subject.setting.gpus != 1 or facts.stage == 0 or moving_offloads(subject):
        return
    yield Hit("ZP423", subject.spelled(f"{ZERO}.stage"), f"stage {facts.stage} divides nothing on one GPU, and adds "
              "its buckets", '"stage": 0')  # fmt: skip


def moving_offloads(subject: Subject) -> list[str]:
    """The sections that move something."""
    facts = subject.facts
    least = {OFFLOADS[0]: 1, OFFLOADS[1]: 3}
    return [path for path in OFFLOADS if facts(f"{path}.device") != "none" and facts.stage >= least[path]]


def unsaid_pinning(subject: Subject) -> Iterator[Hit]:
    for path in moving_offloads(subject):
        if subject.stated(f"{path}.pin_memory") is None and len(subject.spelled(path)) == 2:
            yield Hit("ZP514", subject.spelled(path), "pin_memory is not stated, and true since 0.19.5: host "
                      "memory is locked, in powers of two", '"pin_memory": true, or false on a small host')  # fmt: skip


def groups_beside_offload(subject: Subject) -> Iterator[Hit]:
    facts = subject.facts
    if facts.stage == 3 and facts(HPZ) > 1 and moving_offloads(subject):
        yield Hit("ZP521", subject.spelled(HPZ), "hpZ beside offload: users report a loss that diverges",
                  '"zero_hpz_partition_size": 1')  # fmt: skip


def groups_over_nodes(subject: Subject) -> Iterator[Hit]:
    facts, planned = subject.facts, subject.setting.planned
    if planned is None or facts.stage != 3 or planned.cluster.nodes == 1:
        return
    size, inside = facts(HPZ), planned.cluster.gpus_per_node
    if size > 1 and inside % size:
        yield Hit("ZP703", subject.spelled(HPZ), f"groups of {size} on nodes of {inside} GPUs: gathers cross the "
                  "network, which hpZ is there to avoid", f'"zero_hpz_partition_size": {inside}')  # fmt: skip


def locked_memory(subject: Subject) -> Iterator[Hit]:
    planned = _fitting(subject)
    if planned is None or planned.cluster.host_memory is None:
        return
    lines = planned.candidate.ledger.host.peak.lines
    locked = sum(entry.bytes for entry in lines if entry.rule.__name__ in ("rounded_on_node", "exact_on_node"))
    if locked > LOCKED * planned.cluster.host_memory:
        path = moving_offloads(subject)[0]
        yield Hit("ZP515", subject.spelled(path), f"{gib(locked)} of the host's {gib(planned.cluster.host_memory)} are "
                  "locked: the kernel may end processes (exit code -9)", '"pin_memory": false')  # fmt: skip


def _fitting(subject: Subject) -> Planned | None:
    """The plan of a config whose ledger can be made, and fits as far as that is known."""
    planned = subject.setting.planned
    if planned is None or planned.job is None or not planned.candidate.fit.possible:
        return None
    return planned


def second_bucket(subject: Subject) -> Iterator[Hit]:
    planned, facts = _fitting(subject), subject.facts
    if planned is None or facts.stage not in (1, 2) or not facts.overlaps:
        return
    room, least = planned.candidate.fit.gpu.headroom, planned.at(overlap_comm=False).fit.gpu
    saved = planned.candidate.fit.gpu.needed - least.needed
    if room is not None and room < saved:
        yield Hit("ZP422", subject.spelled(f"{ZERO}.overlap_comm"), f"overlap_comm takes {gib(saved)} for a second "
                  f"bucket, and {gib(room)} are left on the card", '"overlap_comm": false')  # fmt: skip


def idle_cards(subject: Subject) -> Iterator[Hit]:
    planned = _fitting(subject)
    offloads = moving_offloads(subject) if planned else []
    if planned is None or not offloads or planned.cluster.capacity is None:
        return
    without = planned.at(offload_optimizer=None, offload_param=None)
    if without.fit.fits:
        seconds = (f": a step would take {without.time.total:.3g} s in place of {planned.candidate.time.total:.3g} s"
                   if planned.is_timed else "")  # fmt: skip
        yield Hit("ZP520", subject.spelled(offloads[0]), f"it fits without offload too{seconds}",
                  f"delete {' and '.join(path.rpartition('.')[2] for path in offloads)}")  # fmt: skip


def waits_for_network(subject: Subject) -> Iterator[Hit]:
    planned, facts = _fitting(subject), subject.facts
    if planned is None or not planned.is_timed or facts.stage != 3 or planned.cluster.nodes == 1:
        return
    if facts(HPZ) > 1 or moving_offloads(subject):
        return
    grouped = planned.at(hpz_partition_size=planned.cluster.gpus_per_node)
    faster = 1 - grouped.time.total / planned.candidate.time.total
    if grouped.fit.fits is not False and faster > WORTH:
        yield Hit("ZP708", subject.spelled(f"{ZERO}.stage"), "parameters are gathered over the network twice in every "
                  f"micro-step: with groups inside the nodes a step is {faster:.0%} shorter",
                  f'"zero_hpz_partition_size": {planned.cluster.gpus_per_node}')  # fmt: skip


CHECKS = (emulated_bf16, lone_rank, unsaid_pinning, groups_beside_offload, groups_over_nodes)
COUNTED = (locked_memory, second_bucket, idle_cards, waits_for_network)
"""These ask the ledger."""
