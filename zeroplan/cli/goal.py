"""What a training run is to come to: `--tokens`, `--deadline`, `--price` and `--objective`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from zeroplan.cli.options import Options
from zeroplan.errors import ContradictionError, QuantityError, UnknownNameError, nearest, shown
from zeroplan.specs.objective import APART, CHEAPEST, FASTEST, LEAST_MEMORY, OBJECTIVES, PARETO
from zeroplan.specs.training import Price, TrainingRequest
from zeroplan.units import read_count, read_duration

EVERY = ""
"""The name of a price that holds for all cards."""
CURRENCY = r"([^\s\d.,=+-]{0,3})"
EXAMPLE = "2.5, 2.5EUR or a100=1.8,h100=3"


class Goal(NamedTuple):
    """What was typed, and read."""

    tokens: int | None = None
    deadline: float | None = None
    prices: Mapping[str, Price] = {}
    """Of a GPU-hour, by card as it is written; one under `EVERY`: of all."""
    objective: str = FASTEST
    apart: float = APART
    """Of the front, by what share each row needs less than the one before."""

    @property
    def cheapest(self) -> bool:
        return self.objective == CHEAPEST

    def at(self, card: str = EVERY) -> TrainingRequest:
        """For one card. Raises `UnknownNameError` for a card without a price."""
        price = self.prices.get(EVERY) or self.prices.get(card)
        if self.prices and price is None:
            known, what = ", ".join(self.prices), card or "this card"
            raise ContradictionError(f"--price: found one for {known}, expected one for {what}; write one number")
        return TrainingRequest(self.tokens, self.deadline, price)

    @property
    def asked(self) -> bool:
        return bool(self.tokens or self.prices)


NOTHING = Goal()


def read_goal(
    tokens: str | None = None, deadline: str | None = None, price: str | None = None, objective: str | None = None,
    apart: str | None = None,
) -> Goal:  # fmt: skip
    """Raises `ZeroplanError` for what cannot be meant."""
    if objective not in (None, *OBJECTIVES):
        raise QuantityError(
            f"--objective: found {shown(objective)}, expected {', '.join(OBJECTIVES[:-1])} or "
            f"{OBJECTIVES[-1]}; "
            f"write --objective {_meant(str(objective))}"
        )
    goal = Goal(
        read_count(tokens, "--tokens", "1T, 300B or 1e12") if tokens is not None else None,
        read_duration(deadline, "--deadline") if deadline is not None else None,
        _prices(price) if price is not None else {},
        objective or FASTEST,
        _share(apart) if apart is not None else APART,
    )
    if goal.deadline is not None and goal.tokens is None:
        raise ContradictionError("--deadline is for a number of tokens; add --tokens, as in --tokens 1T")
    if goal.cheapest and not goal.prices:
        raise ContradictionError("--objective cheapest needs what a GPU-hour costs; add --price, as in --price 2.5")
    if goal.objective == LEAST_MEMORY and goal.deadline is not None:
        raise ContradictionError(
            "--objective least-memory takes the time it takes, and --deadline sets an end; keep one"
        )
    if goal.objective == PARETO and goal.asked:
        raise ContradictionError(
            "--objective pareto: found --tokens or --price, which are of one plan; leave one of the two out"
        )
    if apart is not None and goal.objective != PARETO:
        raise ContradictionError("--apart is for the rows of a front; add --objective pareto")
    return goal


def _share(text: str) -> float:
    """`1%`, or a share such as `0.01`."""
    match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{0,9})?|\.[0-9]{1,9})( ?%)?", text)
    share = float(match[1]) / (100 if match[2] else 1) if match else 1.0
    if share >= 1:
        raise QuantityError(
            f"--apart: found {shown(text)}, expected a share from 0 up to less than 100%; write --apart 1%"
        )
    return share


def _meant(typed: str) -> str:
    """A word that begins or ends so, else the most alike."""
    alike = [word for word in OBJECTIVES if typed and (word.startswith(typed) or word.endswith(typed))]
    return alike[0] if alike else nearest(typed, OBJECTIVES)


def _prices(text: str) -> dict[str, Price]:
    found: dict[str, Price] = {}
    for part in text.split(","):
        name, equals, amount = part.rpartition("=")
        if (equals and not name.strip()) or (not equals and "," in text) or name.strip() in found:
            raise _wrong(text)
        found[name.strip()] = _price(amount.strip(), text)
    if len({price.currency for price in found.values()}) > 1:
        raise QuantityError(f"--price: found {shown(text)}, expected one currency; write --price {EXAMPLE}")
    return found


def _price(text: str, whole: str) -> Price:
    """A number, and a currency before or behind it."""
    match = re.fullmatch(rf"{CURRENCY}\s?([0-9]{{1,9}}(?:\.[0-9]{{0,9}})?|\.[0-9]{{1,9}})\s?{CURRENCY}", text)
    if match is None or (match[1] and match[3]) or float(match[2]) <= 0:
        raise _wrong(whole)
    return Price(float(match[2]), match[1] or match[3] or Price(0).currency)


def _wrong(text: str) -> QuantityError:
    expected = "what a GPU costs an hour: a number above 0, or one for each card"
    return QuantityError(f"--price: found {shown(text)}, expected {expected}; write --price {EXAMPLE}")


def check_cards(goal: Goal, names: Sequence[str]) -> None:
    """Every price is of a card that is asked about, and every card has one. Raises `ZeroplanError`."""
    for name in goal.prices:
        if name != EVERY and name not in names:
            raise UnknownNameError("card behind --price", name, names, "prices bear the names of the cards as written")
    for name in names:
        goal.at(name)


def card_named(options: Options) -> str:
    """The card as it is written."""
    return options.gpu or options.gpu_mem or options.cluster or EVERY
