"""What training steps of transformers' classifiers hold, measured by torch, into heads_torch_2.13.json and _2.14.json.

python -m tests.references.make_head_reference [CASES_A_FAMILY [SEED]]

Measured as make_activation_reference measures language models: a forward and backward of a small ForSequenceClassification
or ForTokenClassification with random weights. A sequence has a whole number as its label, or a value where there is one
label; a token a whole number. Needs transformers, and the torch whose file it is to be: 2.13 measures the families of
CHANGED beside transformers 5.23, 2.14 the others.
"""

import random
import sys
from pathlib import Path

from tests.references.activation_draws import FAMILIES, drawn_case
from tests.references.make_activation_reference import WIDTHS, cuda_operators, drop_gradient, head, runs, stepped, token_ids, write
from zeroplan.architectures.registry import BARE, accepted_architectures, language_models

CHANGED = frozenset({"falcon", "deepseek_v2", "deepseek_v3"})
"""Families that hold other bytes since: the routers of deepseek_v2 and deepseek_v3 have weights in fp32 from transformers
5.24 on, so none are converted; falcon's queries share one head of keys, which torch 2.14 hands to fused kernels too
(ATen/native/transformers/sdp_utils_cpp.h: supports_mqa)."""
MEASURED = {"2.13": CHANGED, "2.14": frozenset(FAMILIES) - CHANGED}
"""By version of torch."""


def drawn_head(r, family):
    case = drawn_case(r, family)
    config = case["config"]
    heads = [name for name in accepted_architectures(family) if name not in language_models(family) and not name.endswith(BARE)]
    case["architecture"] = r.choice(heads)
    config["num_labels"] = r.choice([1, 2, 2, 5]) if "Sequence" in case["architecture"] else r.choice([2, 3, 9])
    config.setdefault("pad_token_id", r.choice([0, 0, None]))
    if config["pad_token_id"] is None and case["batch"] > 1:  # transformers refuses it
        config["pad_token_id"] = 0
    if r.random() < 0.3:
        config["classifier_dropout"] = r.choice([0.0, 0.2])
    return case


def measured(case):
    import torch
    import transformers

    fields = dict(case["config"])
    config = transformers.AutoConfig.for_model(fields.pop("model_type"), **fields)
    config.use_cache = False
    dtype, device = getattr(torch, WIDTHS[case["dtype"]]), case["device"]
    with torch.device(device):
        made = getattr(transformers, case["architecture"])
        model = made._from_config(config, dtype=dtype, attn_implementation=case["attention"])
    if case["checkpointing"]:
        model.activation_checkpointing_enable({"use_reentrant": False}, every_n_layers=1)
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(drop_gradient)
    model.train()
    ids = token_ids(case, config.vocab_size)
    whole = "Token" in case["architecture"] or config.num_labels > 1
    shape = ids.shape if "Token" in case["architecture"] else ids.shape[:1]
    labels = torch.zeros(shape, dtype=torch.int64 if whole else dtype, device=device)
    with cuda_operators(case["kernel"]) if device == "meta" else torch.enable_grad():
        found = stepped(model, ids, device, lambda: model(input_ids=ids, labels=labels).loss, beside=(labels,))
    return {**case, **found}


def cases(number, seed, families):
    for family in sorted(families):
        r = random.Random(f"{family} heads {seed}")
        taken = 0
        while taken < number:
            if case := runs(drawn_head(r, family), measured):
                taken += 1
                yield case


def main(number="4", seed="1"):
    import torch

    version = torch.__version__.rpartition(".")[0]
    target = Path(__file__).with_name(f"heads_torch_{version}.json")
    write(target, head(), cases(int(number), int(seed), MEASURED[version]))


if __name__ == "__main__":
    main(*sys.argv[1:])
