"""What a training engine says of a job: what it holds, allocates, sends, copies and updates.

An engine is one named version of one program, and each of them is one class. Memory, time and search read an engine
through this protocol alone; `engines.engine_of` has the one that runs a job.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from zeroplan.costs.memory import PhaseMemory
from zeroplan.ledger import Copied, Line, Tier, Transfer
from zeroplan.specs.cluster import SourcedValue
from zeroplan.specs.job import Job
from zeroplan.specs.software import Software

FORWARD, BACKWARD, UPDATE = "forward", "backward", "after the step"
"""Phases in which collectives run."""
EVERY, FIRST, LATER, LAST = "every micro-step", "the first", "each later one", "the last"
"""Micro-steps of an optimizer step in which they do."""


class PhaseTransfer(NamedTuple):
    """All calls of one kind in one phase: of every micro-step, or of some alone."""

    phase: str
    transfer: Transfer
    micro_steps: str = EVERY
    gathers: bool = False
    """Parameters for modules that are about to run."""


GATHER, REDUCE = "gather", "reduce"
FOR_GATHER, FOR_REDUCTION = "wait for a gather", "wait for a reduction"

IssuedEvent = tuple[str, int, float, int]
"""Its kind, the module hook of the pass before which it is issued (as many as there are hooks: when the pass is over),
the share of all that the pass gathers or reduces, and its number among its kind, from 0; of a wait the one that is
waited for."""


class IssueOrder(NamedTuple):
    """Collectives of one micro-step as they are issued, and what work waits for."""

    forward: tuple[IssuedEvent, ...] = ()
    backward: tuple[IssuedEvent, ...] = ()


class MatrixProducts(NamedTuple):
    """Products of an update, which run in one dtype."""

    dtype: str
    flops: int
    touched: int
    """Bytes of operands and results."""


class OptimizerUpdate(NamedTuple):
    """What the slowest rank updates in a step."""

    on_gpu: float
    """Parameters that the GPU updates."""
    moved: int
    """Bytes that the update reads and writes on the GPU for each of them."""
    norm: int
    """Bytes that the gradients' norm and their clipping read and write for each; 0 without both."""
    on_host: int
    """Parameters that the CPUs update."""
    products: MatrixProducts | None = None
    """Products of matrices that are made orthogonal (Muon)."""
    tensors: int = 0
    """That the GPU's update goes through one by one."""


Choice = dict[str, Any]
"""Fields of a strategy that stand before its numbers."""
Numbers = dict[str, tuple[Any, ...]]
"""Values of each number, the default first: the job's own, which is the engine's where nobody says otherwise."""
Values = dict[str, Any]
"""One value of some numbers."""


class Start(NamedTuple):
    """Numbers from which a refinement may begin, in rows, from what may be fastest on."""

    rows: list[list[Values]]
    monotone: bool
    """Each needs no more memory than the one before it in a row, and than the one in its place of the row before; and
    none of a later row is faster than that.
    """


class TrainingEngine(Protocol):
    """One version of a training engine. All methods are of one rank of the job, the one that needs most."""

    def check(self, job: Job) -> None:
        """Raise `ContradictionError` where it refuses the job, or stops while it trains."""

    def completed(self, job: Job) -> Job:
        """The job with the settings without which it would stop, where nobody stated them."""

    # Memory

    def resident(self, job: Job) -> list[Line]:
        """What the GPU holds between steps."""

    def initialize(self, job: Job) -> tuple[Line, ...]:
        """All that is alive on the GPU where setting up has most."""

    def phase_memory(self, job: Job) -> PhaseMemory:
        """What each phase allocates beside it."""

    def gathered(self, job: Job) -> int:
        """Bytes of parameters that a pass gathers at most, a part of that; 0 where none are partitioned."""

    def host(self, job: Job) -> Tier:
        """Memory of one rank on its host."""

    def nvme(self, job: Job) -> Tier:
        """Bytes of one rank's files."""

    # Traffic and time

    def traffic(self, job: Job) -> tuple[Transfer, ...]:
        """Collectives of a step."""

    def copies(self, job: Job) -> tuple[Copied, ...]:
        """Copies between GPU, host and NVMe in a step."""

    def in_phases(self, job: Job, transfers: Sequence[Transfer]) -> Iterator[PhaseTransfer]:
        """The collectives by the phase and the micro-steps in which they run."""

    def issue_order(self, job: Job, *, first: bool = False) -> IssueOrder:
        """The order of collectives in a micro-step, the step's `first` or a later one, in a job that overlaps."""

    def exposed_share(self, job: Job, software: Software) -> SourcedValue | None:
        """The share of overlapped communication that is exposed; None where nothing is overlapped."""

    def hooked(self, job: Job) -> bool:
        """Whether it runs Python around each module of a pass."""

    def update(self, job: Job) -> OptimizerUpdate:
        """What a step's optimizer does."""

    # Search

    def choices(self, job: Job, fixed: Values) -> Iterator[Choice]:
        """Every choice that runs and that the fixed fields leave free."""

    def numbers(self, job: Job, choice: Choice, fixed: Values) -> Numbers:
        """Numbers that a choice leaves free."""

    def lean(self, choice: Choice, numbers: Numbers) -> Iterator[Values]:
        """Numbers that may need least of the GPU; the first of them hold least between steps."""

    def fast(self, job: Job, numbers: Numbers, has_room: Callable[[Values], bool]) -> Iterator[Values]:
        """Numbers that may be fastest, whether they fit or not; `has_room`: whether what they hold does."""

    def starts(self, choice: Choice, numbers: Numbers) -> Iterator[Start]:
        """Where refining numbers may begin."""

    @property
    def larger_is_faster(self) -> tuple[str, ...]:
        """Numbers of which a larger one is no slower, so far as the clock can tell."""

    @property
    def gains_by_room(self) -> tuple[str, ...]:
        """Numbers of which more may be faster where others make room for them."""

    @property
    def makes_room(self) -> tuple[str, ...]:
        """Numbers of which less needs less memory."""
