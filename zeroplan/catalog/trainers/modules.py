"""Names of a model's modules, as tools look for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zeroplan.specs.model import Model


def linear_names(
    model: Model, *, without: tuple[str, ...] = (), named: Callable[[str], bool] | None = None
) -> tuple[str, ...]:
    """Last parts of the paths of modules with Linear in the name of their class, each once. `without`: parts of paths
    that are passed over; `named`: whether a last part counts (all).
    """
    from zeroplan.architectures.profile import TreeProfile

    profile = model.profile
    assert isinstance(profile, TreeProfile)
    classes = [(path, module.transformers_class.rpartition(".")[2]) for path, module in profile.root.named_modules()]
    paths = [path for path, name in classes if "Linear" in name]
    names = [path.rpartition(".")[2] for path in paths if not any(part in path for part in without)]
    return tuple(dict.fromkeys(name for name in names if named is None or named(name)))
