"""`zeroplan recommend --gpu a,b` or `--gpu-mem 24,40,80`: which card; and how many GPUs cost least."""

from __future__ import annotations

from zeroplan.cli.fewest import counted, fewest_gpus, larger
from zeroplan.cli.goal import NOTHING, Goal, card_named, check_cards
from zeroplan.cli.options import Options
from zeroplan.cli.progress import part
from zeroplan.cli.recommend import planned, read
from zeroplan.cli.several import AUTO, with_values
from zeroplan.errors import ContradictionError
from zeroplan.plan import leanest
from zeroplan.results.cards import Card, Cards
from zeroplan.sizing import Fewest, lack


def asked(options: Options, several: dict[str, list[str]], goal: Goal = NOTHING) -> Cards:
    """A plan for each card, with as many GPUs as asked for or as few as are enough."""
    (option, names), = several.items()  # fmt: skip
    check_cards(goal, names)
    each = {name: with_values(options, {option: name}) for name in names}
    for one in each.values():  # a wrong name is said before any is planned
        read(with_values(one, {"gpus": "1"}) if one.gpus == AUTO else one)
    rows: list[Card] = []
    for number, (name, one) in enumerate(each.items(), 1):
        part(name, number, len(each))
        rows.append(_card(name, one, goal))
    return Cards(option, rows, cheapest=goal.cheapest)


def cheapest_number(options: Options, goal: Goal) -> Cards:
    """From the fewest GPUs that are enough on, doubled: the number whose tokens cost least."""
    check_cards(goal, [card_named(options)])
    first = fewest_gpus(options, goal)
    if first.gpus is None:
        counts = [first.smaller or 1]
    else:
        counts = list(dict.fromkeys([first.gpus, *larger(options, first.gpus)]))
    rows: list[Card] = []
    for number, gpus in enumerate(counts, 1):
        part(f"{gpus:,} GPUs", number, len(counts))
        one = with_values(options, {"gpus": str(gpus)})
        try:
            rows.append(_card(str(gpus), one, goal))
        except ContradictionError:  # a batch that is no multiple
            if not rows:
                raise
    return Cards("gpus", rows, cheapest=True)


def _card(name: str, options: Options, goal: Goal) -> Card:
    fewest: Fewest | None = None
    if options.gpus == AUTO:
        fewest = fewest_gpus(options, goal)
        options = counted(options, fewest)
    found = planned(options, lines=False, rescue=False, fewest=fewest, goal=goal)
    if found.found.chosen:
        return Card(name, found, None)
    request = read(options)
    return Card(name, found, lack(leanest(request.job(), request.fixed, request.reserve)))
