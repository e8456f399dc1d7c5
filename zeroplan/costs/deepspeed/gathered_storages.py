"""What stage 3's coordinator has gathered on a rank: in flight, in a receive buffer, or in a tensor's own storage.

It follows runtime/zero/partition_parameters.py of DeepSpeed 0.19.8 (all_gather_coalesced, AllGatherCoalescedHandle,
free_param) event by event. `Settings` decide what is gathered; of its thresholds (stage3_prefetch_bucket_size,
stage3_max_live_parameters, stage3_max_reuse_distance) the coordinator only asks whether one exceeds a count, so that a
replay holds for all that lie between the same two counts. Sizes are elements, and so is storage but where tensors have
several dtypes (`Settings.widths`).
"""

from collections.abc import Sequence, Set
from itertools import permutations
from math import inf
from typing import Any, NamedTuple

from zeroplan.arithmetic import ceil_div, round_up
from zeroplan.costs.deepspeed.nvme_swap import Swapper
from zeroplan.costs.deepspeed.quantized_collectives import scales
from zeroplan.specs.strategy import Strategy


class GatherWait(NamedTuple):
    """Elements held while a module waits for its tensors.

    DeepSpeed goes through a set of them, in an order of addresses: where several gathers end at once, each is unpacked,
    and its buffer goes, before the next one, or later.
    """

    most: int
    fewest: int

    def less(self, besides: int) -> int:
        """By how many there may be fewer than `most`, with so many at another moment."""
        return self.most - max(self.fewest, besides) if self.most > besides else 0


NOTHING = GatherWait(0, 0)


class SeveralDtypesError(Exception):
    """One all-reduce for tensors of several dtypes: DeepSpeed stops (runtime/zero/utils.py:get_only_unique_item)."""


class GatheredStorages:
    """Gathered tensors and their storage; the state that lasts across micro-steps."""

    def __init__(self, sizes: Sequence[int], settings: "Settings") -> None:
        self.sizes, self.settings = sizes, settings
        self.persistent, self.ranks = settings.persistent, settings.ranks
        self.padded = [round_up(size, settings.ranks) for size in sizes]
        self.received, self.stored, self.second = map(settings.stored, (self.padded, sizes, settings.second))
        """Storage of each tensor as it is gathered by itself, as it is unpacked, and of its secondary partition."""
        self.available: set[int] = set()
        self.storage: dict[int, int] = {}
        """Elements of each gathered tensor's own storage."""
        self.buffers: dict[int, tuple[set[int], int]] = {}
        """Receive buffers of coalesced gathers, numbered as they were made: members not consumed yet (of views, not
        released, and ~member while autograd keeps a released one), elements.
        """
        self.lies_in: dict[int, int] = {}
        """The buffer of each member that is not consumed yet, or that is a view."""
        self.made = 0
        self.views: set[int] = set()
        """Tensors that lie in the buffer of their all-reduce."""
        self.joined_low_precision: set[int] = set()
        """Tensors in flight in another dtype, whose pieces are joined first."""
        self.kept: dict[int, int] = {}
        """Elements of released tensors whose storage autograd keeps until their module's backward."""
        self.swapper = Swapper(settings.swapped, settings.swap_buffers)
        self.swaps = bool(settings.swapped)
        self.gathered = 0  # elements in `storage`, `buffers` and `kept`
        self.secondary: set[int] = set()
        """Tensors with a secondary partition; `copied` of their elements are on the GPU."""
        self.copied = 0
        self.most = 0  # of both, since it was last asked for, but for the wait for gathers
        self.most_from_host = 0  # of gathers alone, with the partitions that are copied from the host first
        self.waiting = NOTHING
        self.place = 0, 0
        """The pass and the hook."""
        for index in range(len(settings.second)):  # `initialize` partitions them all
            self.copy_again(index)

    def begin(self) -> None:
        """A micro-step begins."""
        self.swapper.read = []
        self.gathers: list[tuple[Any, ...]] = []
        """Rows of `Gather`."""
        self.live_parameters = 0
        self.flying: set[int] = set()

    def gather(self, tensors: set[int]) -> None:
        """One coalesced call, or one for each tensor; those with a secondary partition within the node."""
        if self.swaps:
            self.swapper.fetch(tensors)
        near = tensors & self.secondary if self.secondary else set()
        for part, ranks in ((near, self.settings.near), (tensors - near if near else tensors, self.ranks)):
            joins = self.settings.all_reduce and part is not near
            if self.settings.sequential:
                self.one_by_one(part, ranks)
            elif part:
                self.call(part, ranks, joins=joins)
        if self.swaps:
            for index in tensors & self.persistent:
                self.swapper.release(index)

    def one_by_one(self, tensors: set[int], ranks: int) -> None:
        """A call for each tensor; the codes they came in go together, with one handle (MultipleAllGatherHandles)."""
        before = self.made
        for index in sorted(tensors):
            self.call({index}, ranks, joins=False)
        if made := [self.buffers.pop(number) for number in range(before, self.made)]:
            members, elements = zip(*made, strict=True)
            self.receive(set().union(*members), sum(elements))

    def call(self, tensors: set[int], ranks: int, *, joins: bool) -> None:
        """One collective, or one for each dtype; they are waited for and kept together. One rank's partitions are the
        parameters, unless they are on the host.
        """
        self.live_parameters += sum([self.sizes[index] for index in tensors])
        self.flying |= tensors
        if self.ranks == 1 and not self.settings.host_changes_gathers:
            return
        alone, elements, copied, from_host = len(tensors) == 1, 0, 0, 0
        joined = joins and not alone and not self.settings.dequantized
        low_precision = set() if joined or self.ranks == 1 else tensors & self.settings.low_precision
        parts = self.parts(tensors, low_precision)
        if joined and sum(map(bool, parts)) > 1:
            raise SeveralDtypesError
        for members in parts:
            if not members:
                continue
            full = sum([self.padded[index] for index in members])
            gathered = received = sum([self.received[index] for index in members])
            self.gathers.append((tuple(sorted(members)), full, ranks, members is low_precision, joined, *self.place))
            if members is low_precision:  # smaller until they are converted
                gathered = ceil_div(full, self.settings.smaller)
                if self.settings.dequantized:
                    gathered += ceil_div(4 * ranks * scales(full // ranks), self.settings.smaller)
                copied += gathered // ranks
            elements += gathered
            if self.ranks > 1 and not joined:
                from_host += received // ranks
        if (alone and not low_precision) or self.ranks == 1:
            for index in tensors:  # received in place
                self.storage[index] = self.received[index]
        else:
            self.receive(set(tensors), elements)
            self.joined_low_precision |= low_precision if not alone else set()
            self.views |= tensors if joined else set()
        self.gathered += elements
        most = self.gathered + self.copied + copied
        self.most = max(self.most, most)
        self.most_from_host = max(self.most_from_host, most + from_host)

    def parts(self, tensors: set[int], low_precision: set[int]) -> Sequence[Set[int]]:
        """Of a coalesced call the tensors of each dtype, which travel by themselves."""
        if self.settings.of_each_dtype:
            return [tensors & each for each in self.settings.of_each_dtype]
        return (low_precision, tensors - low_precision) if low_precision else (tensors,)

    def receive(self, tensors: set[int], elements: int) -> None:
        """A buffer for a coalesced gather of these tensors."""
        self.buffers[self.made] = tensors, elements
        self.lies_in.update(dict.fromkeys(tensors, self.made))
        self.made += 1

    def consume(self, waited: set[int]) -> None:
        """Wait for a module's tensors: a coalesced gather is unpacked whole by the first member waited for."""
        before, leave = self.gathered, waited - self.views if self.views else waited
        reached = sorted({self.lies_in[index] for index in waited if index in self.lies_in})
        ended: list[tuple[int, int]] = []
        for number in reached:
            (members, elements), gathered = self.buffers[number], self.gathered
            if flat := self.unpack(members & self.flying):
                self.buffers[number] = members, elements + flat
            ended.append((self.gathered - gathered, elements if members <= leave else 0))
        most = fewest = self.gathered + self.copied
        if len(ended) > 1 and not self.settings.low_precision:
            fewest = before + self.copied + _fewest_at_once(ended)
        self.waiting = GatherWait(most, fewest)
        self.available |= waited
        self.flying -= waited
        for number in reached:
            self.leave_buffer(number, leave)

    def unpack(self, tensors: set[int]) -> int:
        """Out of their common buffer, once; what travelled smaller is joined, converted, and goes first.

        Gives the elements of what codes became, of which the handle has views: it goes with the buffer.
        """
        if tensors <= self.available:
            return 0
        if self.settings.sequential:
            self.convert(tensors)
            return 0
        low_precision = tensors & self.joined_low_precision if self.joined_low_precision else set()
        flat = (
            self.settings.flat(sum([self.padded[i] for i in tensors]), alone=not low_precision)
            if self.settings.low_precision
            else 0
        )
        self.gathered += flat
        for index in (*sorted(low_precision), *(tensors - low_precision)):
            if index not in self.storage and index not in self.views:
                self.storage[index] = self.stored[index]
                self.gathered += self.stored[index]
                if index in low_precision:
                    concurrent = self.settings.joined(self.sizes[index])
                    self.most = max(self.most, self.gathered + self.copied + concurrent)
        self.available |= tensors
        self.joined_low_precision -= low_precision
        return flat

    def convert(self, tensors: set[int]) -> None:
        """What came by itself, tensor by tensor."""
        for index in sorted(tensors - set(self.storage)):
            self.storage[index] = self.stored[index]
            self.gathered += self.stored[index]
            concurrent = self.settings.flat(self.padded[index], alone=True)
            self.most = max(self.most, self.gathered + self.copied + concurrent)
        self.available |= tensors

    def leave_buffer(self, number: int, tensors: set[int]) -> None:
        """A receive buffer goes with the last tensor that needs it."""
        members, elements = self.buffers[number]
        for index in members & tensors:
            members.discard(index)
            self.lies_in.pop(index, None)
        if not members:
            self.gathered -= elements
            del self.buffers[number]

    def keep(self, index: int) -> None:
        """Autograd has a view of the tensor's own storage, or of the buffer that it lies in, which then stays whole.

        After an all-reduce parameters are narrowed out of its buffer (runtime/zero/partition_parameters.py:1457).
        """
        if index in self.views and index in self.lies_in:
            members, _elements = self.buffers[self.lies_in.pop(index)]
            members.remove(index)
            members.add(~index)
        self.kept[index] = self.kept.get(index, 0) + self.storage.pop(index, 0)

    def let_go(self, tensors: Sequence[int]) -> int:
        """The module's backward has run: what autograd kept for it goes. Gives what is held then.

        What bitsandbytes holds in a node of its own is no saved tensor, and lives as long as the graph.
        """
        let = [index for index in tensors if index not in self.settings.held]
        for index in let:
            self.gathered -= self.kept.pop(index, 0)
        for number in list(self.buffers) if self.settings.all_reduce else ():
            self.leave_buffer(number, {~index for index in let})
        return self.gathered

    def drop(self, index: int) -> None:
        if self.settings.second and index not in self.secondary:
            self.copy_again(index)
        self.available.discard(index)
        if self.swaps:
            self.swapper.release(index)
        self.gathered -= self.storage.pop(index, 0)
        if index in self.views:
            self.views.discard(index)
            if index in self.lies_in:
                self.leave_buffer(self.lies_in[index], {index})

    def copy_again(self, index: int) -> None:
        """The secondary partition of a tensor that is about to be partitioned; beside the offloaded on the host."""
        self.secondary.add(index)
        on_gpu = not self.settings.host_changes_gathers
        if on_gpu and index not in self.settings.frozen:  # those stay, and count as resident
            self.copied += self.second[index]
            self.most = max(self.most, self.gathered + self.copied)


MOST_ENDED = 4
"""Gathers that end at once, up to which all orders are tried; beyond, as they were issued."""


def _fewest_at_once(ended: Sequence[tuple[int, int]]) -> int:
    """Elements at most, in the order that needs fewest; of each gather those it is unpacked into, and its buffer's."""
    orders = permutations(ended) if len(ended) <= MOST_ENDED else [ended]
    return min(_most_at_once(order) for order in orders)


def _most_at_once(order: Sequence[tuple[int, int]]) -> int:
    most = now = 0
    for unpacked, buffer in order:
        most = max(most, now + unpacked)
        now += unpacked - buffer
    return most


class Settings(NamedTuple):
    """Settings of the coordinator in one run."""

    persistent: frozenset[int]
    ranks: int
    prefetch_bucket_size: int
    max_live_parameters: int
    max_reuse_distance: int
    grad_accum: int
    host_changes_gathers: bool
    """Partitions come from the host where that changes which gathers there are, or what stays: one rank's are the
    parameters, and secondary ones stay there (hpZ)."""
    all_reduce: bool
    """Coalesced gathers are all-reduces, and the parameters views of their buffer."""
    sequential: bool
    """Every tensor is gathered by itself."""
    leaves: frozenset[int]
    """Modules gathered whole."""
    subtrees: tuple[tuple[int, ...], ...]
    """All tensors below each module, when there are leaves."""
    viewed: frozenset[int]
    """Tensors of which forward saves views for backward."""
    checkpointed: frozenset[int]
    """Tensors of layers that run again in backward."""
    reentrant: bool
    """They do so under a backward of their own, whose graph saves parameters as forward does without checkpointing."""
    swapped: frozenset[int]
    """Tensors whose partitions live on NVMe, and the buffers between NVMe and the GPU."""
    swap_buffers: int
    low_precision: frozenset[int]
    """Tensors that travel in fewer bytes (autocast, quantized weights), and how many times fewer."""
    smaller: int
    dequantized: str
    """The dtype that quantized weights become; empty when none are."""
    second: Sequence[int]
    """Elements of each tensor's secondary partition, if there are any, and the ranks that share them (hpZ)."""
    near: int
    frozen: frozenset[int] = frozenset()
    """Tensors that do not train."""
    held: frozenset[int] = frozenset()
    """Of these, those whose gathered storage a node of the graph holds from forward to backward, whatever is released
    (bitsandbytes' MatMul4Bit)."""
    replaced: frozenset[int] = frozenset()
    """Those that other storage takes the place of as forward leaves their module (bitsandbytes' Linear8bitLt)."""
    persistent_to_replace: frozenset[int] = frozenset()
    """Of these, those that are gathered after each step, and stay so until then."""
    widths: Sequence[int] = ()
    """How much storage an element of each tensor takes, where they have several dtypes."""
    of_each_dtype: tuple[frozenset[int], ...] = ()
    """The tensors of each dtype then, in the order of their calls."""

    def stored(self, elements: Sequence[int]) -> Sequence[int]:
        """Storage that so many elements of each tensor take."""
        if not (self.widths and elements):
            return elements
        return [width * count for width, count in zip(self.widths, elements, strict=True)]

    def joined(self, size: int) -> int:
        """Elements beside a tensor while its pieces are joined in the dtype that they came in."""
        return {"float16": 0, "bfloat16": size}.get(self.dequantized, size // 2)

    def flat(self, elements: int, *, alone: bool) -> int:
        """fp16 that 8-bit codes become first; what came alone in fp16 stays as it is."""
        return {"float16": 0 if alone else elements, "bfloat16": elements, "float32": elements // 2}.get(
            self.dequantized, 0
        )


class ThresholdRange(NamedTuple):
    """Thresholds above the one count, and no greater than the other."""

    above: float = -inf
    upto: float = inf

    def has(self, threshold: int) -> bool:
        return self.above < threshold <= self.upto


class ReplayThresholds(NamedTuple):
    """The thresholds of one replay and of all that would be like it."""

    bucket: ThresholdRange = ThresholdRange()
    live: ThresholdRange = ThresholdRange()
    reach: ThresholdRange = ThresholdRange()

    def has(self, strategy: Strategy) -> bool:
        """Whether the replay is this strategy's too, which is the same in all else."""
        return (
            self.bucket.has(strategy.prefetch_bucket_size) and self.live.has(strategy.max_live_parameters)
            and self.reach.has(strategy.max_reuse_distance)
        )  # fmt: skip


class Threshold:
    """One number, and the counts it was compared with that are nearest to it."""

    def __init__(self, value: int) -> None:
        self.value, self.above, self.upto = value, -inf, inf

    def exceeds(self, count: int) -> bool:
        """Whether it is above the count: asked a thousand times a replay."""
        if count < self.value:
            if count > self.above:  # noqa: PLR1730
                self.above = count
            return True
        if count < self.upto:  # noqa: PLR1730
            self.upto = count
        return False

    @property
    def span(self) -> ThresholdRange:
        return ThresholdRange(self.above, self.upto)
