"""What was recorded of a model: its modules, the programs that they run, and what of its config costs read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from zeroplan.architectures.recorded.modules import ModuleRecord
from zeroplan.architectures.recorded.program import Program
from zeroplan.specs.images import Images
from zeroplan.specs.model import ModelInput, Shape

OWN_CODE = "its class is its repository's own code"
"""A note on a recording, beside those on stand-ins."""


class Variant(NamedTuple):
    """What a program was recorded for."""

    attention: str
    """eager, sdpa, flash_attention_2 or flash_attention_3."""
    dtypes: tuple[str, ...]
    """Training precisions."""
    backend: str
    """cuda or cpu: whose kernels ran."""
    batches: tuple[int, int]
    """Sequences at least and at most; 0: no most."""
    tokens: tuple[int, int]
    """Of a sequence, at least and at most; 0: no most."""
    multiple: int
    """Sequences are of so many tokens, or multiples: kernels and chunks round theirs up."""
    program: int
    """Its place among the recording's."""
    checkpoints: bool | None = None
    """Whether layers are checkpointed, where the model's own code asks for that."""

    def serves(self, attention: str, dtype: str, backend: str, *, checkpoints: bool) -> bool:
        same = self.attention == attention and dtype in self.dtypes and self.backend == backend
        return same and self.checkpoints in (None, checkpoints)

    def holds(self, batch: int, seq: int) -> bool:
        """Whether its sizes are those of such a batch."""
        ranges = ((self.batches, batch), (self.tokens, seq))
        within = all(least <= number and (not most or number <= most) for (least, most), number in ranges)
        return within and seq % self.multiple == 0


class Recording(NamedTuple):
    """A recorded model."""

    name: str
    model_type: str
    architecture: str
    """transformers' class."""
    loss: str
    labels: str
    config: str
    """config.json, as text."""
    shape: Shape
    modules: ModuleRecord
    variants: tuple[Variant, ...]
    programs: Sequence[Program]
    versions: Mapping[str, str]
    """Of torch and transformers."""
    notes: tuple[str, ...] = ()
    """What ran in place of kernels that were not there, and whose code."""
    images: Images | None = None
    """Those of each sequence."""
    inputs: tuple[ModelInput, ...] = ()
    """Beside the words and their labels."""
    input_embeddings: tuple[str, ...] = ()
    """Paths of modules whose result asks for a gradient where layers are checkpointed (enable_input_require_grads)."""
    target: int | None = None
    """Tokens of each target of an encoder-decoder; 0: as many as its source has."""
