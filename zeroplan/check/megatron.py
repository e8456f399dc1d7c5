"""What scripts of Megatron-DeepSpeed make of their ranks: options as its megatron/arguments.py and pretrain_gpt.py have
them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from zeroplan.check.launch_options import value_of
from zeroplan.check.shell_variables import Word

SHARED = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "ds_sequence_parallel_size",
          "context_parallel_size")  # fmt: skip
"""Options that say how many ranks share one micro-batch; each is 1 where it is not stated."""
OWN = ("num_layers", "hidden_size", "num_attention_heads")
"""Options that all of its scripts are given."""
WITHOUT = "no_pipeline_parallel"
PIPE = "GPTModelPipe"
SCRIPT = re.compile(r"(?:^|/)pretrain_gpt\w*\.py$")


class Megatron(NamedTuple):
    """How ranks train together."""

    gpus: int | None
    """Ranks with a micro-batch of their own; None where that is not known."""
    pipeline: bool
    """Whether its model is a PipelineModule, which it is for one stage too."""


def of_megatron(
    script: Word | None, stated: Sequence[tuple[str, Word]], code: str, gpus: int | None, *, is_open: bool
) -> Megatron | None:  # fmt: skip
    """None for another script. `code`: the script, "" where it is not there; `gpus`: ranks that start; `is_open`:
    whether words that no line sets may be options.
    """
    options = {name.lstrip("-").replace("-", "_"): word for name, word in stated}
    if not all(name in options for name in OWN):
        return None
    shared = 1
    for name in SHARED:
        value = value_of(options[name].text or "") if name in options else 1
        if type(value) is not int or value < 1:
            return Megatron(None, pipeline=False)
        shared *= value
    is_gpt = PIPE in code if code else script is not None and SCRIPT.search(script.text or "") is not None
    pipeline = is_gpt and WITHOUT not in options and not is_open
    return Megatron(None if gpus is None or gpus % shared else gpus // shared, pipeline)
