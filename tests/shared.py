"""What is counted once for all tests: by a process the model of a name and the search of a space, by a run what `of_run` is
given.

Many tests ask for the same plan in other words: as a screen, as JSON, written to a file, refused at the last step. A model
is made anew by each command, and with it go the runs of its operators that it remembers; here it is the same object
each time, also where weights are packed, frozen or adapted. A search is a function of its space, of what is kept free and of its objective; plans made of an equal space
share its result. tests/search searches by itself, and `anew` forgets what was found where a test is about a second search.
"""

from __future__ import annotations

import os
import pickle
from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import lru_cache, wraps
from hashlib import sha256
from pathlib import Path
from typing import Any

from tests import several_models  # noqa: F401 (before what remembers counts is imported)
from zeroplan import plan, why
from zeroplan.architectures import adapters, infer, quantized
from zeroplan.catalog import models, recording
from zeroplan.request import trained

RUN_FOLDER = "ZEROPLAN_TESTS_OF_ONE_RUN"
"""The variable that names a folder which all processes of one run of the tests see."""
KEPT_MODELS, KEPT_RECORDINGS, KEPT_SEARCHES = 32, 16, 512
REPOSITORY = Path(__file__).parent.parent
SEARCHES = ("best", "nearest", "neighbours", "front")
_known: OrderedDict[Hashable, Any] = OrderedDict()


def share() -> None:
    """From here on, for whoever imports them afterwards."""
    infer.infer = lru_cache(KEPT_MODELS)(infer.infer)
    models.from_preset = lru_cache(KEPT_MODELS)(models.from_preset)
    recording.from_file = of_the_repository(recording.from_file)
    quantized.with_quantization = lru_cache(KEPT_MODELS)(quantized.with_quantization)
    adapters.with_adapter = lru_cache(KEPT_MODELS)(adapters.with_adapter)
    trained.with_frozen = lru_cache(KEPT_MODELS)(trained.with_frozen)
    for module in (plan, why):
        for name in SEARCHES:
            if search := getattr(module, name, None):
                setattr(module, name, remembered(search))


def of_the_repository(read: Callable[[Path], Any]) -> Callable[[Path], Any]:
    """What reads a file, whose latest results are kept for files that no test writes."""
    read_once = lru_cache(KEPT_RECORDINGS)(read)

    @wraps(read)
    def looked_up(path: Path) -> Any:
        return read_once(path) if path.resolve().is_relative_to(REPOSITORY) else read(path)

    return looked_up


def of_run(name: str, count: Callable[[], Any]) -> Any:
    """A picklable result under its name, from the first process of the run that has counted it."""
    folder = os.environ.get(RUN_FOLDER)
    if folder is None:
        return count()
    kept = Path(folder) / sha256(name.encode()).hexdigest()
    if not kept.exists():
        begun = kept.with_suffix(f".{os.getpid()}")
        begun.write_bytes(pickle.dumps(count()))
        begun.replace(kept)
    return pickle.loads(kept.read_bytes())


def anew() -> None:
    """Forget all searches."""
    _known.clear()


def remembered(search: Callable[..., Any]) -> Callable[..., Any]:
    """The search, its latest results kept by what it was given."""

    @wraps(search)
    def looked_up(*given: Any, **named: Any) -> Any:
        key = search.__name__, hashed(given), hashed(named)
        if key not in _known:
            _known[key] = search(*given, **named)
            if len(_known) > KEPT_SEARCHES:
                _known.popitem(last=False)
        _known.move_to_end(key)
        return _known[key]

    return looked_up


def hashed(given: Any) -> Hashable:
    """What is equal only where type and every field are, dictionaries in their order."""
    if isinstance(given, dict):
        return dict, *((name, hashed(each)) for name, each in given.items())
    if isinstance(given, tuple | list):
        return type(given), *map(hashed, given)
    return type(given), given
