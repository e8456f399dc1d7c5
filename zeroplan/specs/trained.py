"""What of a model trains, as a job states it before the model is read."""

from typing import NamedTuple

from zeroplan.specs.adapter import Adapter
from zeroplan.specs.quantization import Quantization


class Trained(NamedTuple):
    """Patterns of frozen and of training parameters, or adapters beside frozen weights; nothing: all weights train."""

    freeze: tuple[str, ...] = ()
    """Patterns of the names of parameters that do not train."""
    train: tuple[str, ...] = ()
    """Patterns of those that train all the same."""
    adapter: Adapter | None = None
    quantization: Quantization | None = None
    """How the frozen weights of linear layers lie."""
