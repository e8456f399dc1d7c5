"""Which form a row gets: decided by what its columns say about the code that ran, never by its id."""

from __future__ import annotations

import re

from benchmarks.published import megatron, sharded, transformers
from benchmarks.published.prediction import Prediction
from benchmarks.published.rows import Row, UncomputableError

WITHOUT_A_FORM = re.compile(
    r"oneflow|colossalai|nanotron|litgpt|torchtune|lightning|accelerate|prototype|fsdp1|kernel benchmark|galvatron"
)


OTHER_MEASURE = (
    (r"\bhost\b|\bcpu\b", "host memory"),
    (r"\binit", "the initialize of an old engine"),
)  # fmt: skip
OTHER_JOB = (
    (r"\bppo\b|dpo|reward", "several models at once, or pairs of samples"),
    (r"much shorter|short samples|\(short, not stated\)", "samples are shorter than seq, by how much is not stated"),
    (r"chunks", "attention and loss in chunks that lie on the host"),
)  # fmt: skip


def predict(row: Row) -> Prediction:
    """Raises `UncomputableError` with the reason."""
    check(row)
    framework = row.lower("framework")
    if "torchtitan" in framework:
        return sharded.torchtitan(row)
    if re.search(r"llm-foundry|composer", framework):
        return sharded.llm_foundry(row)
    found = WITHOUT_A_FORM.search(framework)
    if row.optimizer != "adamw" and not re.search(r"deepspeed|\bhf\b", framework):
        raise UncomputableError(f"states of {row.optimizer} outside DeepSpeed")
    if found:
        raise UncomputableError(f"no form for {found[0]}")
    if re.search(r"megatron|paddle", f"{framework} {row.lower('attention_impl')}"):
        return megatron.predict(row)
    if re.search(r"deepspeed|\bhf\b|transformers", framework):
        return transformers.predict(row)
    raise UncomputableError(f"no form for {row.column('framework')!r}")


def check(row: Row) -> None:
    """Raises `UncomputableError` for what is not one model's full training, or not measured in its steps."""
    if row.lower("trainable") not in ("full", ""):
        raise UncomputableError(f"trainable is {row.column('trainable')!r}")
    job = " ".join(map(row.lower, ("framework", "notes", "seq", "offload")))
    for pattern, reason in OTHER_JOB:
        if re.search(pattern, job):
            raise UncomputableError(reason)
    for pattern, reason in () if row.ran_out else OTHER_MEASURE:
        if re.search(pattern, row.lower("what_was_measured")):
            raise UncomputableError(reason)
