"""The same steps as make_activation_reference.py with some weights frozen, into frozen_torch_2.13.json.

python -m tests.references.make_frozen_reference

Of each family the first cases, in turn with these names frozen; then, of those with checkpointing (some layers, with
reentrance, keeping products), with a frozen table of words, whose result transformers has ask for a gradient. Needs
torch and transformers.
"""

import json
import warnings
from itertools import cycle
from pathlib import Path

from tests.references.make_activation_reference import head, runs, write

TARGET = Path(__file__).with_name("frozen_torch_2.13.json")
DRAWN = Path(__file__).with_name("activations_torch_2.13.json")
CHECKPOINTED = DRAWN.with_name("checkpointing_torch_2.13.json")
CASES_A_FAMILY = 4
PATTERNS = (("mlp",), ("attn", "attention"), ("embed", "wte", "wpe"), ("weight",), ("proj", "dense", "fc"), ("norm", "ln_"))
WORDS = ("embed_tokens", "wte", "word_embeddings", "embed_in")
TABLES = (WORDS, ("embed", "wte", "wpe"), ("weight",), (*WORDS, "attn", "attention"), (*WORDS, "layers.0.", "h.0.", "layer.0."))


def cases():
    yield from frozen(DRAWN, PATTERNS)
    yield from frozen(CHECKPOINTED, TABLES)


def frozen(drawn, patterns):
    seen = {}
    for case, names in zip(json.loads(drawn.read_text())["measured"], cycle(patterns), strict=False):
        family = case["config"]["model_type"]
        seen[family] = seen.get(family, 0) + 1
        if seen[family] <= CASES_A_FAMILY:
            yield {**{k: v for k, v in case.items() if not k.endswith(("saved", "_peak"))}, "freeze": names}


def measured():
    for case in cases():
        try:
            if found := runs(case):
                yield found
        except RuntimeError as nothing_to_train:  # every parameter of the model is frozen
            assert "does not require grad" in str(nothing_to_train)


def main():
    write(TARGET, head(), measured())


if __name__ == "__main__":
    main()
