"""Operations of training steps of transformers, counted by torch's FlopCounterMode, into flops_torch_2.13.json.

python -m tests.references.make_flops_reference [CASES_A_FAMILY [SEED]]

The steps are those of make_checkpointing_reference, some without any checkpointing. FlopCounterMode (2.13) has no
formula for the CPU's fused attention and for grouped products: it is given that of the other fused kernels, and
2·rows·width·width.
"""

import json
import random
import sys
import warnings
from contextlib import nullcontext
from functools import partial
from itertools import islice
from pathlib import Path

from tests.references.activation_draws import FAMILIES
from tests.references.make_activation_reference import built, cuda_operators, head, runs, token_ids, watched, write
from tests.references.make_checkpointing_reference import drawn

TARGET = Path(__file__).with_name("flops_torch_2.13.json")


def counter():
    import torch
    from torch.utils import flop_counter

    aten = torch.ops.aten

    def grouped(x, y, *_rest, out_shape=None, **_more):
        return 2 * x[-2] * x[-1] * y[-1]

    def forward(q, k, v, *_rest, out_shape=None, **_more):
        return flop_counter.sdpa_flop_count(q, k, v)

    def backward(gradient, q, k, v, *_rest, out_shape=None, **_more):
        return flop_counter.sdpa_backward_flop_count(gradient, q, k, v)

    formulas = {
        aten._grouped_mm: grouped, aten._scaled_dot_product_flash_attention_for_cpu: forward,
        aten._scaled_dot_product_flash_attention_for_cpu_backward: backward,
    }  # fmt: skip
    return flop_counter.FlopCounterMode(display=False, custom_mapping=formulas)


def counted(case):
    """The case with what forward and backward multiply and add, what runs again included in backward."""
    model, vocabulary = built(case)
    ids, device = token_ids(case, vocabulary), case["device"]
    live = watched()(device, [*model.parameters(), *model.buffers(), ids])
    with cuda_operators(case["kernel"]) if device == "meta" else nullcontext(), counter() as both:
        with live:
            loss = model(input_ids=ids, labels=ids).loss
            forward = both.get_total_flops()
            loss.backward()
    return {**case, "forward": forward, "backward": both.get_total_flops() - forward}


def also_plain(family, seed):
    """Every third step without checkpointing."""
    r = random.Random(f"flops {family} {seed}")
    for case in drawn(family, seed):
        plain = r.random() < 1 / 3
        yield {**case, "checkpointing": False, "every": 0, "reentrant": False, "keeps_products": False} if plain else case


def cases(number, seed):
    for family in FAMILIES:
        yield from islice(filter(None, map(partial(runs, measure=counted), also_plain(family, seed))), number)


def main(number="4", seed="1"):
    texts = {"forward": "operations of forward", "backward": "of backward, with what checkpointed layers run again"}
    known = {name: value for name, value in head().items() if name in ("versions", "date")}
    write(TARGET, known | texts, cases(int(number), int(seed)))


if __name__ == "__main__":
    main(*sys.argv[1:])
