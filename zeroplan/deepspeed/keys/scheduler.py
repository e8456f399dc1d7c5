"""scheduler: its type and the parameters of DeepSpeed's five learning-rate schedules."""

from __future__ import annotations

from zeroplan.deepspeed.keys.key import Key

SCHEDULER_PARAMS: dict[str, tuple[str, ...]] = {
    "WarmupLR": ("warmup_min_lr", "warmup_max_lr", "warmup_num_steps", "warmup_type", "last_batch_iteration"),
    "WarmupDecayLR": (
        "total_num_steps",
        "warmup_min_lr",
        "warmup_max_lr",
        "warmup_num_steps",
        "warmup_type",
        "last_batch_iteration",
    ),
    "WarmupCosineLR": (
        "total_num_steps",
        "warmup_min_ratio",
        "warmup_num_steps",
        "cos_min_ratio",
        "warmup_type",
        "last_batch_iteration",
    ),
    "LRRangeTest": (
        "lr_range_test_min_lr",
        "lr_range_test_step_size",
        "lr_range_test_step_rate",
        "lr_range_test_staircase",
        "last_batch_iteration",
    ),
    "OneCycle": (
        "cycle_min_lr",
        "cycle_max_lr",
        "decay_lr_rate",
        "cycle_first_step_size",
        "cycle_second_step_size",
        "cycle_first_stair_count",
        "cycle_second_stair_count",
        "decay_step_size",
        "cycle_momentum",
        "cycle_min_mom",
        "cycle_max_mom",
        "decay_mom_rate",
        "last_batch_iteration",
    ),
}
"""DeepSpeed's schedules and what each takes (runtime/lr_schedules.py:24); other types name torch's."""

REQUIRED_SCHEDULER_PARAMS: dict[str, tuple[str, ...]] = {
    "WarmupDecayLR": ("total_num_steps",),
    "WarmupCosineLR": ("total_num_steps",),
    "OneCycle": ("cycle_min_lr", "cycle_max_lr"),
}

KEYS: tuple[Key, ...] = (
    Key(
        path="scheduler",
        kind="object|null",
        default=None,
        meaning="The learning-rate schedule that DeepSpeed builds itself; absent, the client's.",
        place="runtime/constants.py:31",
    ),
    Key(
        path="scheduler.type",
        kind="string|null",
        default=None,
        meaning=(
            "One of DeepSpeed's (see SCHEDULER_PARAMS) or a class of torch.optim.lr_scheduler, in the "
            "exact spelling."
        ),
        place="runtime/constants.py:28",
    ),
    Key(
        path="scheduler.params",
        kind="object|null",
        default=None,
        meaning=(
            "Arguments of the schedule; has to be there when type is, and unknown ones raise a TypeError."
        ),
        place="runtime/constants.py:33",
    ),
    Key(
        path="scheduler.params.warmup_min_lr",
        kind="number|array",
        default=0.0,
        meaning="WarmupLR, WarmupDecayLR: learning rate at the start.",
        place="runtime/lr_schedules.py:727",
        auto="0",
    ),
    Key(
        path="scheduler.params.warmup_max_lr",
        kind="number|array|null",
        default=None,
        meaning=(
            "WarmupLR, WarmupDecayLR: learning rate after the warm-up; absent, WarmupLR takes the "
            "optimizer's lr and WarmupDecayLR 0.001."
        ),
        place="runtime/lr_schedules.py:728",
        auto="TrainingArguments.learning_rate",
    ),
    Key(
        path="scheduler.params.warmup_num_steps",
        kind="integer",
        default=1000,
        meaning="All Warmup schedules: steps of the warm-up (1 counts as 2).",
        place="runtime/lr_schedules.py:729",
        unit="steps",
        exclusive_minimum=0,
        auto="max(1, TrainingArguments.get_warmup_steps(num_training_steps))",
    ),
    Key(
        path="scheduler.params.warmup_type",
        kind="string",
        default="log",
        meaning="All Warmup schedules: shape of the rise; another text warns and counts as log.",
        place="runtime/lr_schedules.py:730",
        choices=("log", "linear"),
    ),
    Key(
        path="scheduler.params.total_num_steps",
        kind="integer",
        default=None,
        meaning="WarmupDecayLR, WarmupCosineLR: steps of the whole training; has to be given.",
        place="runtime/lr_schedules.py:816",
        unit="steps",
        auto="number of training steps",
    ),
    Key(
        path="scheduler.params.warmup_min_ratio",
        kind="number",
        default=0.0,
        meaning="WarmupCosineLR: share of the optimizer's lr at the start.",
        place="runtime/lr_schedules.py:868",
    ),
    Key(
        path="scheduler.params.cos_min_ratio",
        kind="number",
        default=0.0001,
        meaning="WarmupCosineLR: share of the optimizer's lr at the end.",
        place="runtime/lr_schedules.py:870",
    ),
    Key(
        path="scheduler.params.lr_range_test_min_lr",
        kind="number|array",
        default=0.001,
        meaning="LRRangeTest: first learning rate.",
        place="runtime/lr_schedules.py:354",
    ),
    Key(
        path="scheduler.params.lr_range_test_step_size",
        kind="integer",
        default=2000,
        meaning="LRRangeTest: steps between two rises.",
        place="runtime/lr_schedules.py:355",
        unit="steps",
        exclusive_minimum=0,
    ),
    Key(
        path="scheduler.params.lr_range_test_step_rate",
        kind="number",
        default=1.0,
        meaning="LRRangeTest: how fast the rate rises.",
        place="runtime/lr_schedules.py:356",
    ),
    Key(
        path="scheduler.params.lr_range_test_staircase",
        kind="boolean",
        default=False,
        meaning="LRRangeTest: rises in stairs instead of smoothly.",
        place="runtime/lr_schedules.py:357",
    ),
    Key(
        path="scheduler.params.cycle_min_lr",
        kind="number|array",
        default=None,
        meaning="OneCycle: lowest learning rate; has to be given.",
        place="runtime/lr_schedules.py:485",
    ),
    Key(
        path="scheduler.params.cycle_max_lr",
        kind="number|array",
        default=None,
        meaning="OneCycle: highest learning rate; has to be given.",
        place="runtime/lr_schedules.py:486",
    ),
    Key(
        path="scheduler.params.decay_lr_rate",
        kind="number",
        default=0.0,
        meaning="OneCycle: decay of the rate after the cycle.",
        place="runtime/lr_schedules.py:487",
    ),
    Key(
        path="scheduler.params.cycle_first_step_size",
        kind="integer",
        default=2000,
        meaning="OneCycle: steps of the rising half.",
        place="runtime/lr_schedules.py:488",
        unit="steps",
        exclusive_minimum=0,
    ),
    Key(
        path="scheduler.params.cycle_second_step_size",
        kind="integer|null",
        default=None,
        meaning="OneCycle: steps of the falling half; absent, as many as the rising one.",
        place="runtime/lr_schedules.py:489",
        unit="steps",
        minimum=0,
    ),
    Key(
        path="scheduler.params.cycle_first_stair_count",
        kind="integer",
        default=0,
        meaning="OneCycle: stairs in the rising half; 0 is smooth.",
        place="runtime/lr_schedules.py:490",
    ),
    Key(
        path="scheduler.params.cycle_second_stair_count",
        kind="integer|null",
        default=None,
        meaning="OneCycle: stairs in the falling half; absent, as many as in the rising one.",
        place="runtime/lr_schedules.py:491",
    ),
    Key(
        path="scheduler.params.decay_step_size",
        kind="integer",
        default=0,
        meaning="OneCycle: steps between two decays; 0 does not decay.",
        place="runtime/lr_schedules.py:492",
        unit="steps",
    ),
    Key(
        path="scheduler.params.cycle_momentum",
        kind="boolean",
        default=True,
        meaning="OneCycle: also cycles the momentum, against the rate.",
        place="runtime/lr_schedules.py:493",
    ),
    Key(
        path="scheduler.params.cycle_min_mom",
        kind="number|array",
        default=0.8,
        meaning="OneCycle: lowest momentum.",
        place="runtime/lr_schedules.py:494",
    ),
    Key(
        path="scheduler.params.cycle_max_mom",
        kind="number|array",
        default=0.9,
        meaning="OneCycle: highest momentum.",
        place="runtime/lr_schedules.py:495",
    ),
    Key(
        path="scheduler.params.decay_mom_rate",
        kind="number",
        default=0.0,
        meaning="OneCycle: decay of the momentum after the cycle.",
        place="runtime/lr_schedules.py:496",
    ),
    Key(
        path="scheduler.params.last_batch_iteration",
        kind="integer",
        default=-1,
        meaning="All five: index of the last batch of a resumed run.",
        place="runtime/lr_schedules.py:731",
    ),
)
