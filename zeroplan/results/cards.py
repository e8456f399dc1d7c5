"""What `recommend` comes to for several cards: a plan for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from zeroplan.errors import ContradictionError
from zeroplan.plan import leanest
from zeroplan.progress import part
from zeroplan.report.depth import BRIEF, QUIET
from zeroplan.request.goal import Goal, card_named, check_cards
from zeroplan.request.options import Options
from zeroplan.request.several import label
from zeroplan.request.values import AUTO
from zeroplan.results.fewest import counted, fewest_gpus, larger
from zeroplan.results.planning import planned, read_plan
from zeroplan.results.recommend import Recommendation
from zeroplan.sizing import Fewest, Lack, lack
from zeroplan.specs.target import Script

if TYPE_CHECKING:
    from zeroplan.report.rendered import Screen
    from zeroplan.schema import recommend as schema


class Card(NamedTuple):
    name: str
    """As it was written."""
    recommendation: Recommendation
    lack: Lack | None
    """What is missing where nothing fits."""

    @property
    def tokens_per_s_per_gpu(self) -> float:
        """0 where nothing fits, or no clock is known."""
        return (self.recommendation.plan.tokens_per_s_per_gpu or 0.0) if self.recommendation.plan else 0.0

    @property
    def cost_per_million(self) -> float:
        """Infinite where nothing fits."""
        cost = self.recommendation.run.cost_per_million if self.recommendation.run else None
        return inf if cost is None else cost


class Cards(Recommendation):
    """The plan of the card that is fastest per GPU, or whose tokens cost least, and those of the others in `cards`."""

    def __init__(self, option: str, rows: Sequence[Card], *, cheapest: bool = False) -> None:
        if cheapest:
            rows = sorted(rows, key=lambda card: (not card.recommendation.fits, card.cost_per_million))
            best = rows[0].recommendation
        else:
            best = max(rows, key=lambda card: (card.recommendation.fits, card.tokens_per_s_per_gpu)).recommendation
        super().__init__(
            best.job, best.search_result, best.assumed, best.given, best.fewest, headroom=best.headroom, run=best.run
        )
        self._cheapest = cheapest
        self.cards = {card.name: card.recommendation.plan for card in rows}
        self._option, self._rows = option, rows

    def screen(self, level: int = BRIEF) -> Screen:
        from zeroplan.report import cards as report
        from zeroplan.report import rendered
        from zeroplan.report.subject import scope_lines

        rows = [
            report.CardRow(card.name, of.job, of.search_result.chosen, card.lack, of.fewest, of.run)
            for card, of in ((card, card.recommendation) for card in self._rows)
        ]
        summary = report.summary(rows, self._option, cheapest=self._cheapest)
        head, body = scope_lines(self.scope, quiet=level == QUIET), report.details(self._option, rows, self.written)
        assumed = report.common([card.recommendation.assumed for card in self._rows])
        return rendered.screen(summary, head, body, assumed, level)

    def content(self) -> schema.CardsDocument:
        from zeroplan.report import json_objects
        from zeroplan.schema import recommend as schema

        cards = [self._card(card) for card in self._rows]
        return schema.CardsDocument(scope=json_objects.scope_object(self.scope), cards=cards)

    def _card(self, card: Card) -> schema.CardObject:
        from zeroplan.report import json_objects, json_plan
        from zeroplan.schema import recommend as schema

        one, chosen = card.recommendation, card.recommendation.search_result.chosen
        # the option may be --gpus itself
        named: dict[str, Any] = {self._option: card.name, "gpus": one.job.ranks}
        return schema.CardObject(
            **named,
            plan=json_plan.entry(chosen) if chosen else None,
            lack=json_plan.lack(card.lack),
            fewest=json_plan.fewest(one.fewest) if one.fewest else None,
            run=json_plan.training_run(one.run) if one.run else None,
            assumed=one.assumed,
            kept_free=json_objects.kept_free(one.headroom, one.job.cluster.capacity),
        )


def plan_of_each_card(
    stated: Mapping[str, Any], several: Mapping[str, Sequence[Any]], goal: Goal, script: Script
) -> Cards:  # fmt: skip
    """A plan for each card, with as many GPUs as are stated or as few as are enough."""
    (option, cards), = several.items()  # fmt: skip
    named = {label(option, card): card for card in cards}
    check_cards(goal, list(named))
    each = {name: Options(script, **{**stated, option: card}) for name, card in named.items()}
    for one in each.values():  # a wrong name is said before any is planned
        read_plan(one.replace(gpus=1) if _is_auto(one) else one)
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
        try:
            rows.append(_card(str(gpus), options.replace(gpus=gpus), goal))
        except ContradictionError:  # a batch that is no multiple
            if not rows:
                raise
    return Cards("gpus", rows, cheapest=True)


def _card(name: str, options: Options, goal: Goal) -> Card:
    fewest: Fewest | None = None
    if _is_auto(options):
        fewest = fewest_gpus(options, goal)
        options = counted(options, fewest)
    best = planned(options, equations=False, rescue=False, fewest=fewest, goal=goal)
    if best.search_result.chosen:
        return Card(name, best, None)
    request = read_plan(options)
    return Card(name, best, lack(leanest(request.job(), request.fixed, request.reserve)))


def _is_auto(options: Options) -> bool:
    """Whether the fewest GPUs are looked for."""
    return options.gpus is not None and options.gpus.text == AUTO
