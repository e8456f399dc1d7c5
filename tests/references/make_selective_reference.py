"""Training steps of transformers whose attention alone is checkpointed, measured by torch, into selective_torch_2.13.json.

python -m tests.references.make_selective_reference [CASES_A_FAMILY [SEED]]

As make_activation_reference and make_flops_reference measure; every call of transformers' AttentionInterface goes
through torch.utils.checkpoint with use_reentrant=False. Families that compute attention without it are left out.
"""

import sys
from functools import partial
from itertools import islice
from pathlib import Path

from tests.references.activation_draws import FAMILIES, drawn_cases
from tests.references.make_activation_reference import head, measured, runs, write
from tests.references.make_flops_reference import counted

TARGET = Path(__file__).with_name("selective_torch_2.13.json")
OWN_ATTENTION = ("bloom", "falcon")


def with_operations(case):
    """Bytes, and operations of products."""
    operations = counted(case)
    return {**measured(case), "forward": operations["forward"], "backward": operations["backward"]}


def drawn(family, seed):
    for case in drawn_cases(family, f"selective {seed}"):
        case["config"].pop("reorder_and_upcast_attn", None)
        yield {**case, "checkpointing": False, "selective": True}


def cases(number, seed):
    for family in FAMILIES:
        if family not in OWN_ATTENTION:
            yield from islice(filter(None, map(partial(runs, measure=with_operations), drawn(family, seed))), number)


def main(number="4", seed="1"):
    texts = {"forward": "operations of forward", "backward": "of backward, with what runs again"}
    write(TARGET, head() | texts, cases(int(number), int(seed)))


if __name__ == "__main__":
    main(*sys.argv[1:])
