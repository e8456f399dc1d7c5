"""`recommend --json`: a plan and its alternatives, a front of plans, a plan for each card, or the largest models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from zeroplan.schema.estimate import StrategyEstimate
from zeroplan.schema.job import KeptFree, ScopeObject
from zeroplan.schema.json_object import JsonDocument, JsonObject
from zeroplan.specs.training import Price


@dataclass(frozen=True, kw_only=True)
class PlanEntry(StrategyEstimate):
    """A strategy of the search."""

    name: str
    """What is particular of it, in words."""
    step_seconds: float
    """Seconds of one optimizer step."""


@dataclass(frozen=True, kw_only=True)
class RejectedObject(PlanEntry):
    """A strategy beside the plan."""

    change: str
    """What it changes of the plan."""
    reason: str
    """Why it lost."""


@dataclass(frozen=True, kw_only=True)
class WayOutObject(PlanEntry):
    """A strategy that fits after a single change of what was asked for."""

    change: str
    """What is to be changed."""


@dataclass(frozen=True, kw_only=True)
class FrontRow(PlanEntry):
    """A plan of the front of time and memory."""

    seconds_slower: float
    """Seconds of a step more than the fastest."""
    bytes_less: int
    """Bytes of a GPU needed less than the fastest."""


@dataclass(frozen=True, kw_only=True)
class Searched(JsonObject):
    """How much the search looked at."""

    strategies: int
    """Strategies of the space."""
    configurations: int
    """Configurations of the space: choices by batch sizes, numbers left open."""
    without_room: int
    """Configurations without room for what they hold and their activations."""
    evaluated: int
    """Strategies that were counted and timed."""


@dataclass(frozen=True, kw_only=True)
class LackObject(JsonObject):
    """What is missing of the strategy nearest to fitting."""

    tier: str
    """The first tier that is short: gpu, host or nvme."""
    bytes: int
    """Bytes missing on one GPU, or on one node."""
    name: str
    """The strategy, in words."""


@dataclass(frozen=True, kw_only=True)
class FewestObject(JsonObject):
    """The fewest GPUs on which something fits, or ends in time."""

    gpus: int | None
    """Number of GPUs; null: nothing fits on as many as were tried."""
    smaller: int | None
    """The next smaller number that was tried."""
    lack: LackObject | None
    """What the next smaller number lacks; null where it has room."""
    late_seconds: float | None
    """Seconds by which the next smaller number misses the deadline, where it has room."""


@dataclass(frozen=True, kw_only=True)
class TrainingRunObject(JsonObject):
    """The whole training run under the plan; null where it does not apply."""

    tokens: int | None
    """Tokens that are trained."""
    steps: int | None
    """Optimizer steps."""
    seconds: float | None
    """Seconds of all steps."""
    low: float | None
    """Seconds by the lower end of a step's interval."""
    high: float | None
    """Seconds by the upper end of a step's interval."""
    gpu_hours: float | None
    """GPU-hours of all steps."""
    deadline_seconds: float | None
    """Seconds within which the run is to end."""
    late_seconds: float | None
    """Seconds after the deadline; less than zero: to spare."""
    in_time: bool
    """Whether it ends before the deadline, or has none."""
    price: Price | None
    """The price of one GPU for an hour."""
    cost: float | None
    """Cost of all GPU-hours, in the price's currency."""
    cost_per_million_tokens: float | None
    """Cost of a million tokens, in the price's currency."""


@dataclass(frozen=True, kw_only=True)
class DifferenceObject(JsonObject):
    """One line of the step or of memory that differs between plan and alternative."""

    name: str
    """As tables name the line."""
    plan: float
    """Of the plan: seconds of a step, or bytes."""
    alternative: float
    """Of the alternative likewise."""
    difference: float
    """Of the alternative less that of the plan."""


@dataclass(frozen=True, kw_only=True)
class WhyObject(JsonObject):
    """An alternative that --why names, and the lines that set it back."""

    what: str
    """As it was written behind --why."""
    is_plan: bool
    """Whether the plan has it already."""
    reason: str
    """Why it is not the plan, in one clause."""
    lack: LackObject | None
    """What is missing where none fits."""
    seconds_slower: float | None
    """Seconds of a step more than the plan, for as many sequences; null beside no plan."""
    bytes_more: int | None
    """Bytes of a GPU needed more than the plan; null but with --objective least-memory."""
    seconds: Sequence[DifferenceObject]
    """Lines of the step that differ, the largest difference first."""
    of: str
    """The place that `bytes` is of: gpu, host or nvme."""
    bytes: Sequence[DifferenceObject]
    """Lines of memory at that place's peak that differ, the largest difference first."""
    alternative: PlanEntry | None
    """The best strategy that has it, or that nearest to fitting; null: it is the plan, or cannot run."""


@dataclass(frozen=True, kw_only=True)
class RecommendDocument(JsonDocument):
    """What every form of recommend has."""

    command: Literal["recommend"] = "recommend"
    """The command that ran."""
    scope: ScopeObject
    """The job that the numbers are of."""


@dataclass(frozen=True, kw_only=True)
class PlanDocument(RecommendDocument):
    """The plan, and what the others lost by."""

    plan: PlanEntry | None
    """The best strategy that fits; null where nothing does."""
    rejected: Sequence[RejectedObject]
    """Neighbours of the plan; where nothing fits, what is nearest to fitting."""
    searched: Searched
    """How much the search looked at."""
    ways_out: Sequence[WayOutObject]
    """Where nothing fits, single changes after which something does."""
    assumed: Sequence[str]
    """What nobody stated."""
    kept_free: KeptFree | None = None
    """With --headroom, what of each card is kept free."""
    flash_attention_2: RejectedObject | None = None
    """The plan with flash_attention_2, where that would gain and no attention was asked for."""
    with_code: RejectedObject | None = None
    """The plan with lines in the training script (--allow code), where they would gain."""
    fewest: FewestObject | None = None
    """With --gpus auto, the fewest GPUs."""
    run: TrainingRunObject | None = None
    """With --tokens or --price, the whole training run."""
    in_time: FewestObject | None = None
    """Where the deadline is missed, the fewest GPUs that make it."""
    why: Sequence[WhyObject] | None = None
    """With --why, each alternative."""


@dataclass(frozen=True, kw_only=True)
class FrontDocument(RecommendDocument):
    """Plans of which none is both faster and leaner (--objective pareto)."""

    front: Sequence[FrontRow]
    """From the fastest to the leanest."""
    apart: float
    """Share by which each row needs less than the one before, at least; the last may be nearer."""
    searched: Searched
    """How much the search looked at."""
    assumed: Sequence[str]
    """What nobody stated."""
    kept_free: KeptFree | None = None
    """With --headroom, what of each card is kept free."""
    fewest: FewestObject | None = None
    """With --gpus auto, the fewest GPUs."""


@dataclass(frozen=True, kw_only=True)
class CardObject(JsonObject):
    """The plan for one of several cards, nodes or numbers of GPUs."""

    gpu: str | None = None
    """The card as --gpu has it."""
    gpu_mem: str | None = None
    """The card as --gpu-mem has it."""
    cluster: str | None = None
    """The node as --cluster has it."""
    gpus: int
    """GPUs of the plan."""
    plan: PlanEntry | None
    """The best strategy that fits; null where nothing does."""
    lack: LackObject | None
    """What is missing where nothing fits."""
    fewest: FewestObject | None = None
    """With --gpus auto, the fewest GPUs."""
    run: TrainingRunObject | None = None
    """With --tokens or --price, the whole training run."""
    assumed: Sequence[str]
    """What nobody stated."""
    kept_free: KeptFree | None = None
    """With --headroom, what of each card is kept free."""


@dataclass(frozen=True, kw_only=True)
class CardsDocument(RecommendDocument):
    """A plan for each of several cards, nodes or numbers of GPUs."""

    cards: Sequence[CardObject]
    """As they were written; the cheapest first with --objective cheapest."""


@dataclass(frozen=True, kw_only=True)
class MethodObject(JsonObject):
    """The plan for one of several ways to train."""

    method: Literal["full", "lora", "qlora"]
    """As --method has it."""
    trains: str
    """What trains, in words."""
    plan: PlanEntry | None
    """The best strategy that fits; null where nothing does."""
    lack: LackObject | None
    """What is missing where nothing fits."""
    other_stage: PlanEntry | None
    """Of adapters on several GPUs: the plan at stage 3 in place of a lower one, or at stage 2 in place of 3."""
    assumed: Sequence[str]
    """What nobody stated."""


@dataclass(frozen=True, kw_only=True)
class MethodsDocument(RecommendDocument):
    """A plan for each way to train (--method)."""

    methods: Sequence[MethodObject]
    """In the order in which they were named."""


@dataclass(frozen=True, kw_only=True)
class LargestModel(JsonObject):
    """The largest model that fits."""

    parameters: int
    """Its parameters."""
    plan: PlanEntry
    """The fastest strategy at that size."""
    next_size: int | None
    """Parameters of the next larger size, which does not fit; null at the end of the sizes."""
    lack: LackObject | None
    """What the next larger size lacks."""


@dataclass(frozen=True, kw_only=True)
class LargestDocument(RecommendDocument):
    """The largest models that the cluster can train (--max-params)."""

    largest: Mapping[str, LargestModel | None]
    """By what may be offloaded; null where nothing fits."""
    assumed: Sequence[str]
    """What nobody stated."""
    kept_free: KeptFree | None = None
    """With --headroom, what of each card is kept free."""


Recommend = PlanDocument | FrontDocument | CardsDocument | MethodsDocument | LargestDocument
