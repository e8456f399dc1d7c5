"""What a training run is to come to: `--tokens`, `--deadline`, `--price` and `--objective`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from math import inf
from typing import Any

from zeroplan.errors import ContradictionError, QuantityError, UnknownNameError, nearest, shown
from zeroplan.request.options import GOAL, Options, declared, option, read_fields
from zeroplan.request.values import flag, read_share, written
from zeroplan.specs.objective import APART, CHEAPEST, FASTEST, LEAST_MEMORY, OBJECTIVES, PARETO
from zeroplan.specs.training import Price, TrainingRequest
from zeroplan.units import LARGEST_COUNT, LONGEST_DURATION, read_count, read_duration

EVERY = ""
"""The name of a price that holds for all cards."""
CURRENCY = r"([^\s\d.,=+-]{0,3})"
EXAMPLE = "2.5, 2.5EUR or a100=1.8,h100=3"


def _tokens(name: str, value: Any) -> int:
    if type(value) is int and 1 <= value <= LARGEST_COUNT:
        return value
    return read_count(written(name, value), flag(name), "1T, 300B or 1e12")


def _deadline(name: str, value: Any) -> timedelta:
    if isinstance(value, timedelta):
        if not 0 < value.total_seconds() <= LONGEST_DURATION:
            raise QuantityError(f"--deadline: found {value}, expected more than nothing and up to 100 years; write 30d")
        return value
    return timedelta(seconds=read_duration(written(name, value), flag(name)))


def _share(name: str, value: Any) -> float:
    """`1%`, or a share such as `0.01`."""
    if isinstance(value, float) and 0 <= value < 1:
        return value
    text = written(name, value)
    share = read_share(text)
    if share is None:
        raise QuantityError(
            f"--apart: found {shown(text)}, expected a share from 0 up to less than 100%; write --apart 1%"
        )
    return share


def _objective(name: str, value: Any) -> str:
    text = written(name, value)
    if text not in OBJECTIVES:
        raise QuantityError(
            f"--objective: found {shown(text)}, expected {', '.join(OBJECTIVES[:-1])} or {OBJECTIVES[-1]}; "
            f"write --objective {_meant(text)}"
        )
    return text


def _prices(name: str, value: Any) -> Mapping[str, Price]:
    """One price for all cards, or each card's: text, or a dictionary."""
    if isinstance(value, Mapping):
        if not value or not all(isinstance(card, str) for card in value):
            raise _wrong(str(dict(value)))
        text = ",".join(f"{card}={_amount(each)}" for card, each in value.items())
        parts = [(card, "=", each) for card, each in value.items()]
    elif isinstance(value, str):
        text, parts = value, [part.rpartition("=") for part in value.split(",")]
    else:
        text, parts = written(name, value), [(EVERY, "", value)]
    prices: dict[str, Price] = {}
    for card, equals, amount in parts:
        if (equals and not card.strip()) or (not equals and "," in text) or card.strip() in prices:
            raise _wrong(text)
        prices[card.strip()] = _price(amount, text)
    if len({price.currency for price in prices.values()}) > 1:
        raise QuantityError(f"--price: found {shown(text)}, expected one currency; write --price {EXAMPLE}")
    return prices


def _amount(price: Any) -> str:
    return f"{price.amount}{price.currency}" if isinstance(price, Price) else written("price", price)


def _price(amount: Any, whole: str) -> Price:
    """A number, and in text a currency before or behind it."""
    if isinstance(amount, Price):
        return amount
    if isinstance(amount, int | float) and not isinstance(amount, bool) and 0 < amount < inf:
        return Price(float(amount))
    text = written("price", amount).strip()
    match = re.fullmatch(rf"{CURRENCY}\s?([0-9]{{1,9}}(?:\.[0-9]{{0,9}})?|\.[0-9]{{1,9}})\s?{CURRENCY}", text)
    if match is None or (match[1] and match[3]) or float(match[2]) <= 0:
        raise _wrong(whole)
    return Price(float(match[2]), match[1] or match[3] or Price(0).currency)


def _wrong(text: str) -> QuantityError:
    expected = "what a GPU costs an hour: a number above 0, or one for each card"
    return QuantityError(f"--price: found {shown(text)}, expected {expected}; write --price {EXAMPLE}")


def _meant(typed: str) -> str:
    """A word that begins or ends so, else the most alike."""
    alike = [word for word in OBJECTIVES if typed and (word.startswith(typed) or word.endswith(typed))]
    return alike[0] if alike else nearest(typed, OBJECTIVES)


@dataclass(frozen=True)
class Goal:
    """What was stated of a training run, read. Raises `ZeroplanError` for what cannot be meant."""

    tokens: int | None = option(_tokens, GOAL, "1T", "Tokens to train: how long it takes.")
    deadline: timedelta | None = option(_deadline, GOAL, "30d|12h|2w", "By when --tokens must be trained.")
    price: Mapping[str, Price] | None = option(
        _prices, GOAL, "2.5|a100=1.8,h100=3", "Of a GPU-hour, in dollars or as in 2.5EUR: what training costs."
    )
    objective: str = option(
        _objective, GOAL, "NAME",
        "What is looked for. The fastest plan; that which needs fewest bytes of a GPU (least-memory); all of which "
        "none is both faster and leaner (pareto); fewest-gpus: as --gpus auto; cheapest (with --price): of several "
        "cards, or GPU counts (--gpus auto), that whose tokens cost least.",
        usual=FASTEST,
    )  # fmt: skip
    apart: float | None = option(
        _share, GOAL, "1%",
        "Of --objective pareto, how far rows are apart. By what share each needs less than the one before (1%; 0: show "
        "all).",
    )  # fmt: skip

    def __post_init__(self) -> None:
        read_fields(self, vars(self), GOALS)
        _check(self)

    @property
    def cheapest(self) -> bool:
        return self.objective == CHEAPEST

    @property
    def rows_apart(self) -> float:
        """By what share each row of a front needs less than the one before."""
        return APART if self.apart is None else self.apart

    def at(self, card: str = EVERY) -> TrainingRequest:
        """For one card. Raises `ContradictionError` for a card without a price."""
        prices = self.price or {}
        price = prices.get(EVERY) or prices.get(card)
        if prices and price is None:
            known, what = ", ".join(prices), card or "this card"
            raise ContradictionError(f"--price: found one for {known}, expected one for {what}; write one number")
        deadline = None if self.deadline is None else self.deadline.total_seconds()
        return TrainingRequest(self.tokens, deadline, price)

    @property
    def of_a_run(self) -> bool:
        """Whether anything is asked of a whole training run."""
        return bool(self.tokens or self.price)


GOALS = declared(Goal)


def _check(goal: Goal) -> None:
    """Raises `ContradictionError` for what does not go together."""
    if goal.deadline is not None and goal.tokens is None:
        raise ContradictionError("--deadline is for a number of tokens; add --tokens, as in --tokens 1T")
    if goal.cheapest and not goal.price:
        raise ContradictionError("--objective cheapest needs what a GPU-hour costs; add --price, as in --price 2.5")
    if goal.objective == LEAST_MEMORY and goal.deadline is not None:
        raise ContradictionError(
            "--objective least-memory takes the time it takes, and --deadline sets an end; keep one"
        )
    if goal.objective == PARETO and goal.of_a_run:
        raise ContradictionError(
            "--objective pareto: found --tokens or --price, which are of one plan; leave one of the two out"
        )
    if goal.apart is not None and goal.objective != PARETO:
        raise ContradictionError("--apart is for the rows of a front; add --objective pareto")


NOTHING = Goal()


def check_cards(goal: Goal, names: Sequence[str]) -> None:
    """Every price is of a card that is asked about, and every card has one. Raises `ZeroplanError`."""
    for name in goal.price or {}:
        if name != EVERY and name not in names:
            raise UnknownNameError("card behind --price", name, names, "prices bear the names of the cards as written")
    for name in names:
        goal.at(name)


def card_named(options: Options) -> str:
    """The card as it is written."""
    return options.gpu or (options.gpu_mem and options.gpu_mem.text) or options.cluster or EVERY
