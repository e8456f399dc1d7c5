"""`zeroplan recommend --gpu a,b` or `--gpu-mem 24,40,80`: which card."""

from __future__ import annotations

from zeroplan.cli.fewest import AUTO, counted, fewest_gpus
from zeroplan.cli.options import Options, flag
from zeroplan.cli.recommend import planned, read
from zeroplan.cli.several import lists, with_values
from zeroplan.errors import ContradictionError, QuantityError
from zeroplan.results.cards import Card, Cards
from zeroplan.sizing import Fewest, lack, leanest

CARDS = ("gpu", "gpu_mem", "cluster")
"""Options that may hold several cards."""
INSTEAD = {"gpus": "write --gpus auto for the fewest, or zeroplan compare --gpus 8,64"}
MOST = 32
"""Cards in one table."""


def named(options: Options) -> dict[str, list[str]]:
    """The option that names several cards, with their names; empty where one is asked of."""
    several = lists(options, CARDS, "recommend", INSTEAD)
    if len(several) > 1:
        first, second = list(several)[:2]
        raise ContradictionError(f"{flag(first)} and {flag(second)} both name several cards; keep one")
    for names in several.values():
        if len(names) > MOST:
            raise QuantityError(f"recommend: found {len(names)} cards, expected at most {MOST}; write fewer")
    return several


def asked(options: Options, several: dict[str, list[str]]) -> Cards:
    """A plan for each card, with as many GPUs as asked for or as few as are enough."""
    (option, names), = several.items()  # fmt: skip
    each = {name: with_values(options, {option: name}) for name in names}
    for one in each.values():  # a wrong name is said before any is planned
        read(with_values(one, {"gpus": "1"}) if one.gpus == AUTO else one)
    return Cards(option, [_card(name, one) for name, one in each.items()])


def _card(name: str, options: Options) -> Card:
    fewest: Fewest | None = None
    if options.gpus == AUTO:
        fewest = fewest_gpus(options)
        options = counted(options, fewest)
    found = planned(options, lines=False, rescue=False, fewest=fewest)
    if found.fits:
        return Card(name, found, None)
    request = read(options)
    return Card(name, found, lack(leanest(request.job(), request.settled, request.reserve)))
