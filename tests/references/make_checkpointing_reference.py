"""Training steps of transformers with layers checkpointed, measured by torch, into checkpointing_torch_2.13.json.

python -m tests.references.make_checkpointing_reference [CASES_A_FAMILY [SEED]]

As make_activation_reference measures: `every`-th layer, the first among them, through torch.utils.checkpoint with
use_reentrant as `reentrant` says, which is what activation_checkpointing_enable(..., every_n_layers=every) does; with
`keeps_products`, context_fn keeps the results of products and fused attention.
"""

import json
import random
import sys
import warnings
from itertools import islice
from pathlib import Path

from tests.references.activation_draws import FAMILIES, drawn_cases
from tests.references.make_activation_reference import head, runs, write

TARGET = Path(__file__).with_name("checkpointing_torch_2.13.json")
LAYERS = ("num_hidden_layers", "n_layer")
WAYS = [(every, reentrant, False) for every in (2, 3, 4) for reentrant in (False, True)] + [(1, True, False)] * 3
KEEPING = [(1, False, True), (1, False, True), (2, False, True)]


def drawn(family, seed):
    """Without an end: more layers than the other reference has, so that some of each make repeat."""
    r = random.Random(f"layers {family} {seed}")
    for case in drawn_cases(family, seed):
        for name in LAYERS:
            if name in case["config"]:
                case["config"][name] = r.randint(2, 8)
        every, reentrant, keeps = r.choice(WAYS + KEEPING)
        yield {**case, "checkpointing": True, "every": every, "reentrant": reentrant, "keeps_products": keeps}


def cases(number, seed):
    for family in FAMILIES:
        yield from islice(filter(None, map(runs, drawn(family, seed))), number)


def main(number="4", seed="1"):
    write(TARGET, head(), cases(int(number), int(seed)))


if __name__ == "__main__":
    main(*sys.argv[1:])
