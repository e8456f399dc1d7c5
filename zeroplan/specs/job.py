"""A job: one model under one strategy on one cluster."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from zeroplan.sources import DEEPSPEED
from zeroplan.specs.cluster import Cluster
from zeroplan.specs.execution import Execution, ModuleHook
from zeroplan.specs.model import LeafModules, Model
from zeroplan.specs.strategy import Strategy, Workload

NO_LEAVES = LeafModules(classes=())
FIELDS = {name: place for place, name in enumerate(Strategy._fields)}


class EngineVersion(NamedTuple):
    """One version of a program that trains."""

    name: str = "deepspeed"
    version: str = DEEPSPEED


class Job(NamedTuple):
    model: Model
    cluster: Cluster
    workload: Workload
    strategy: Strategy
    rank: int | None = None
    """The rank that is looked at; None: the one that needs most."""
    engine: EngineVersion = EngineVersion()
    """What runs it."""

    @property
    def ranks(self) -> int:
        """Data-parallel ranks: every GPU is one."""
        return self.cluster.gpus

    @property
    def tokens(self) -> int:
        """Tokens of one micro-batch on one GPU."""
        return self.strategy.micro_batch * self.workload.seq

    @property
    def label_seq(self) -> int:
        """Tokens of the sequence that the last layer predicts: of an encoder-decoder its target."""
        return self.model.target or self.workload.seq

    @property
    def adapter_dtype(self) -> str:
        """Of what peft adds: its own float32 (autocast_adapter_dtype) where deepspeed.zero.Init has built the model,
        which DeepSpeed takes as it is; else it casts them too (runtime/engine.py:_cast_module_mixed_precision).
        """
        strategy, adapter = self.strategy, self.model.adapter
        stays = strategy.stage == 3 and strategy.builds_partitioned
        return "float32" if stays and adapter and adapter.autocast_adapter_dtype else strategy.dtype

    @property
    def leaves(self) -> LeafModules:
        """Leaf modules are known to stage 3 alone."""
        return self.strategy.leaves if self.strategy.stage == 3 else NO_LEAVES

    @property
    def execution(self) -> Execution:
        """The order in which a step runs the model."""
        strategy = self.strategy
        return self.model.profile.execution(
            self.leaves, eager=strategy.attention == "eager", flash=strategy.flash, kernels=strategy.kernels,
            recomputing=strategy.recomputing, frozen=self.model.frozen,
        )

    @property
    def backward_hooks(self) -> Sequence[ModuleHook]:
        """Modules that backward enters and leaves, with what checkpointing runs again."""
        execution = self.execution
        return execution.recomputing if self.strategy.recomputing.every else execution.backward

    def at(self, **changes: Any) -> "Job":
        """The same job under a changed strategy. A search asks for thousands: fields are put in their places.

        Raises `KeyError` for what is no field of a strategy.
        """
        fields = list(self.strategy)
        for name, value in changes.items():
            fields[FIELDS[name]] = value
        strategy = tuple.__new__(Strategy, fields)
        return JOB((self.model, self.cluster, self.workload, strategy, self.rank, self.engine))


JOB = partial(tuple.__new__, Job)
"""Make a job of all its fields, without the work that a call by name does."""
