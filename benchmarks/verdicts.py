"""What decided the line between `fits` and `tight`: runs on either side of it.

    python -m benchmarks.verdicts

Successes are the published memory rows (tests/references/published/memory.csv; a row with a measured value ran) and
throughput rows whose memory is computed (fits.csv); failures are rows that ran out, and public reports
(tests/references/published/reports.csv). Promised: no report or row that ran out is called `fits`; none that ran is
called `does_not_fit`; and of rows that measured less than 85 % of their card at most one in ten is `tight`.
"""

from __future__ import annotations

import csv
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parents[1]))

import zeroplan
from benchmarks.published.bounds import Bound
from benchmarks.published.engines import predict
from benchmarks.published.levels import capacity
from benchmarks.published.rows import FILE, FITS, Row, UncomputableError, read
from zeroplan.fit import (
    DOES_NOT_FIT,
    OUTSIDE_OF_MORE,
    OUTSIDE_OF_ONE,
    RESERVED_PERCENT,
    TIGHT,
    TierFit,
)
from zeroplan.fit import FITS as FIT
from zeroplan.formulas.outside import at_most
from zeroplan.units import GiB

REPORTS = FILE.with_name("reports.csv")
BELOW, ONE_IN = 0.85, 10
"""Of rows that measured less than this share of their card at most one in so many is tight."""
CONTEXT, NCCL = GiB // 2, 688 << 20
"""What zeroplan counts outside PyTorch's allocator, on a card that it has no preset of."""
OTHER_ENGINES = {"swiftmeg-7B-adam", "fpdt-3"}
"""Rows of Megatron-LM whose predicted peak alone is over their card: the form is too high, by 4 and 0.1 %."""
ANOTHER_JOB = "another job"
COMMON: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1, "gradient_clipping": 1.0,
}  # fmt: skip
STAGE_2: dict[str, Any] = {
    "stage": 2, "allgather_bucket_size": 500_000_000, "reduce_bucket_size": 500_000_000, "overlap_comm": True,
    "contiguous_gradients": True, "round_robin_gradients": True,
}  # fmt: skip
STAGE_3: dict[str, Any] = {
    "stage": 3, "overlap_comm": True, "contiguous_gradients": True, "sub_group_size": 1_000_000_000,
    "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto", "stage3_param_persistence_threshold": "auto",
    "stage3_max_live_parameters": 1_000_000_000, "stage3_max_reuse_distance": 1_000_000_000,
}  # fmt: skip
CPU = {"device": "cpu", "pin_memory": True}
CONFIGS = {
    "z2": STAGE_2, "z2_offload": {**STAGE_2, "offload_optimizer": CPU}, "z3": STAGE_3,
    "z3_offload": {**STAGE_3, "offload_optimizer": CPU, "offload_param": CPU},
}  # fmt: skip
"""zero_optimization of the examples that the reports used; none names an optimizer."""
MODELS: dict[str, dict[str, Any]] = {
    "deepseek-coder-33b": {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 7168, "intermediate_size": 19200,
        "num_hidden_layers": 62, "num_attention_heads": 56, "num_key_value_heads": 8, "vocab_size": 32256,
        "max_position_embeddings": 16384, "tie_word_embeddings": False,
    },
    "deepseek-coder-v2": {
        "model_type": "deepseek_v2", "architectures": ["DeepseekV2ForCausalLM"], "hidden_size": 5120,
        "intermediate_size": 12288, "moe_intermediate_size": 1536, "num_hidden_layers": 60, "num_attention_heads": 128,
        "num_key_value_heads": 128, "n_routed_experts": 160, "n_shared_experts": 2, "num_experts_per_tok": 6,
        "first_k_dense_replace": 1, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 128, "v_head_dim": 128, "vocab_size": 102400, "max_position_embeddings": 163840,
        "tie_word_embeddings": False, "n_group": 8, "topk_group": 3, "topk_method": "group_limited_greedy",
    },
}  # fmt: skip
"""Models of the reports that are no preset, as their config.json has them."""


class Run(NamedTuple):
    """A job that somebody ran, and what is said of it."""

    name: str
    place: str
    """gpu or host: the tier that decided."""
    ran: bool
    tier: TierFit
    measured: float | None
    """GiB of a GPU."""
    verdict: str | None

    @property
    def share(self) -> float:
        """Of what is there, that is counted as needed."""
        return self.tier.needed / (self.tier.room or 1)


def report(row: dict[str, str]) -> Run:
    """A public report under zeroplan as a user would ask."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "ds_config.json"
        section = {"zero_optimization": CONFIGS[row["config"]], row["precision"]: {"enabled": True}}
        config.write_text(json.dumps({**COMMON, **section}), encoding="utf-8")
        model: str | Path = row["model"]
        if model in MODELS:
            model = Path(folder) / row["model"] / "config.json"
            model.parent.mkdir()
            model.write_text(json.dumps(MODELS[row["model"]]), encoding="utf-8")
        found = zeroplan.estimate(
            model=model, config=config, gpus=row["gpus"], gpu=row["gpu"], seq=int(row["seq"]), checkpointing="full",
            host_mem=row["host_mem"] or None,
        )
        (counted,) = found._fits
    tier = counted.tiers[row["tier"]]
    return Run(row["id"], row["tier"], row["outcome"] == "ran", tier, None, counted.verdict)


def reports() -> list[Run]:
    with REPORTS.open(newline="", encoding="utf-8") as file:
        return [report(row) for row in csv.DictReader(file) if row["outcome"] != ANOTHER_JOB]


def other_jobs() -> list[str]:
    """Reports of jobs that are not planned, and why."""
    with REPORTS.open(newline="", encoding="utf-8") as file:
        return [f"{row['id']}: {row['detail']}" for row in csv.DictReader(file) if row["outcome"] == ANOTHER_JOB]


def published(rows: Iterable[Row]) -> list[Run]:
    """Rows that can be computed, each under its own engine's form and the same line."""
    runs = []
    for row in rows:
        try:
            found, card = predict(row), capacity(row)
        except UncomputableError:
            continue
        if card is None or (row.measured is None and not row.ran_out and row.column("what_was_measured") == ""):
            continue
        peak, room, alone = found.peak.bytes, int(card * GiB), row.gpus == 1
        needed = peak + CONTEXT + (0 if alone else NCCL)
        most = at_most(peak, RESERVED_PERCENT, OUTSIDE_OF_ONE if alone else OUTSIDE_OF_MORE)
        tier = TierFit(needed, most, room, room, needed)
        runs.append(Run(row.name, "gpu", not row.ran_out, tier, None if row.ran_out else row.measured, tier.verdict))
    return runs


def bounds(told: list[Run], rows: list[Run], timed: list[Run]) -> list[Bound]:
    runs = [*told, *rows, *timed]
    easy = [run for run in rows if run.ran and run.measured and run.measured * GiB < BELOW * (run.tier.room or 0)]
    tight = [run for run in easy if run.verdict == TIGHT]
    wrong = [run.name for run in runs if not run.ran and run.verdict == FIT]
    refused = [run.name for run in runs if run.ran and run.verdict == DOES_NOT_FIT and run.name not in OTHER_ENGINES]
    return [
        Bound(f"none that ran out fits {', '.join(wrong)}", not wrong),
        Bound(f"none that ran does not fit {', '.join(refused)}", not refused),
        Bound(f"{len(tight)} of {len(easy)} below {BELOW:.0%} of the card are tight", ONE_IN * len(tight) <= len(easy)),
    ]


def by_share(runs: list[Run]) -> list[str]:
    """Runs and failures by the share of the card that is counted as needed."""
    runs = [run for run in runs if run.place == "gpu"]
    edges = [0.0, 0.5, 0.7, 0.8, 0.85, 0.9, 0.95, 1.0, float("inf")]
    lines = [f"{'needed of the card':20}{'ran':>6}{'ran out':>9}   of those that ran: fits, tight"]
    for low, high in pairwise(edges):
        within = [run for run in runs if low <= run.share < high]
        ran = [run for run in within if run.ran]
        verdicts = Counter(run.verdict for run in ran)
        label = f"{low:.0%} to {high:.0%}" if high < 10 else f"over {low:.0%}"
        lines.append(f"{label:20}{len(ran):>6}{len(within) - len(ran):>9}   {verdicts[FIT]}, {verdicts[TIGHT]}")
    return lines


def main() -> int:
    """Print the tables; 1 when a bound is missed."""
    told, rows, timed = reports(), published(read(FILE)), published(read(FITS))
    lines = [f"{'public reports':20}{'outcome':>9}{'needed':>9}{'up to':>9}{'there':>9}  verdict"]
    for run in told:
        tier = run.tier
        sizes = "".join(f"{(size or 0) / GiB:>9.2f}" for size in (tier.needed, tier.most, tier.room))
        lines.append(f"{run.name:20}{'ran' if run.ran else 'ran out':>9}{sizes}  {run.verdict}")
    lines += [f"not compared: {each}" for each in other_jobs()]
    lines += ["", *by_share([*told, *rows, *timed]), ""]
    found = bounds(told, rows, timed)
    lines += map(str, found)
    print("\n".join(lines))
    return 0 if all(bound.kept for bound in found) else 1


if __name__ == "__main__":
    sys.exit(main())
