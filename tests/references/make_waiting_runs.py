"""Runs of DeepSpeed in which gathers end together, for make_deepspeed_reference --into waiting_0.19.8.json.

python -m tests.references.make_waiting_runs FOLDER     writes FOLDER/0.json and so on

At a module of theirs two gathers end, and DeepSpeed goes through its set of tensors to wait for in an order of addresses:
what is alive at once is the most that we say, or less by what `less_in_forward` says. The two of 360 draws in which
that is more than 1 % of forward's peak, three of some 300 with BERT, and gpt-oss-20b as it is. Needs DeepSpeed and
transformers.
"""

import json
import sys
from pathlib import Path

from tests.references.make_bert_runs import drawn
from zeroplan.verify.cases import draw
from zeroplan.verify.measure import measure

GPT_OSS = {
    "ds_config": {"zero_optimization": {"stage": 3}, "bf16": {"enabled": True}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}},
    "world": 8, "rank": 0, "ranks_per_node": 8, "seq": 512, "micro_batch": 1, "steps": 3, "mode": "meta",
    "attention": "eager", "checkpointing": "none", "optimizer": None, "zero_init": True, "parameter_groups": 1,
}  # fmt: skip
"""But for the model."""


def cases(gpt_oss):
    yield from ({**draw(seed), "freeze": None} for seed in (77310096, 77310184))
    first = list(drawn(32, "1"))
    yield from (first[10], first[25], list(drawn(66, "7"))[65])
    yield {**GPT_OSS, "model": gpt_oss}


def main(folder):
    from zeroplan.catalog.models import model

    for at, case in enumerate(cases(model("gpt-oss-20b").config)):
        Path(folder, f"{at}.json").write_text(json.dumps(measure(case), indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
