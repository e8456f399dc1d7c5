"""README.md of a plan's folder: its numbers, what each file is for, how to start it, what the script must do."""

from __future__ import annotations

from typing import Any

from zeroplan.costs.timing.speed import speed_of
from zeroplan.emit.check_command import checked
from zeroplan.emit.checkpointing import call, in_the_script
from zeroplan.emit.launch import Launch
from zeroplan.emit.script import NAME as SCRIPT
from zeroplan.emit.script import STEPS, bits_and_bytes, has_one
from zeroplan.emit.trainer import training_arguments
from zeroplan.fit import PLACES, TierFit
from zeroplan.ledger import total
from zeroplan.plan import label
from zeroplan.search import Candidate
from zeroplan.sources import DEEPSPEED, transformers_of
from zeroplan.specs.input_sizes import InputSizes
from zeroplan.specs.job import Job
from zeroplan.specs.scope import scope
from zeroplan.specs.strategy import FLOATING, Strategy
from zeroplan.units import count, gb, gib, seconds

PURPOSES = {
    "ds_config.json": "DeepSpeed's config: the plan itself",
    "train.py": "a training script that does what the plan says, on random tokens",
    "config.json": "the model, which train.py builds",
    "adapter_config.json": "the adapters, as peft reads them; train.py adds them to the model",
    "checkpointing.py": "the lines that turn the plan's checkpointing on; train.py imports it",
    "training_arguments.json": "TrainingArguments, for `HfArgumentParser.parse_json_file` or to copy from",
    "accelerate.yaml": "Accelerate's config, which names ds_config.json",
    "lightning_trainer.py": "`trainer()` makes the Lightning Trainer of this plan",
    "hostfile": "the nodes, for DeepSpeed's launcher: put in your own host names",
    "deepspeed.sh": "starts train.py with DeepSpeed's launcher",
    "torchrun.sh": "starts train.py with torchrun",
    "accelerate.sh": "starts train.py with `accelerate launch`",
    "slurm.sbatch": "starts train.py under SLURM",
    "pytorchjob.yaml": "starts train.py on Kubernetes with Kubeflow's training operator; it holds the other files",
    "README.md": "this text",
}


PATH_INSIDE = "`{}` names ds_config.json as seen from where zeroplan ran; change that where you start it."
AT_START = {
    "hf": [
        "The launchers append `--deepspeed` and what must agree with it: `HfArgumentParser(TrainingArguments)` reads "
        "them.",
        PATH_INSIDE.format("training_arguments.json"),
    ],
    "deepspeed": [
        "The launchers append `--deepspeed --deepspeed_config`, and DeepSpeed's own `--local_rank` too: "
        "`deepspeed.add_config_arguments(parser)` and `parser.add_argument(\"--local_rank\", type=int)` take them.",
    ],
    "accelerate": [PATH_INSIDE.format("accelerate.yaml")],
    "lightning": ["`from lightning_trainer import trainer` in the script, with this folder on `PYTHONPATH`."],
}
"""How the script gets the plan, by --for (DeepSpeed 0.19.8, deepspeed/__init__.py and launcher/launch.py; transformers
5.23.0's TrainingArguments has local_rank)."""


SHARED = {
    "deepspeed": "While a `transformers.integrations.HfDeepSpeedConfig(\"ds_config.json\")` lives, transformers shares "
    "the model out as it is made.",
    "lightning": "The model is made in `configure_model`, so that stage 3 shares it out from the start; "
    "`import torch._dynamo.polyfills.loader` stands before, which would fail in there.",
}
"""How the model is made at stage 3; the Trainer and Accelerate do it unasked."""


def readme(
    chosen: Candidate, launch: Launch, target: str, names: list[str], assumed: tuple[str, ...] = (),
    given: dict[str, Any] | None = None,
) -> str:  # fmt: skip
    """`names` are the files of the folder; `given` is the user's own ds_config.json."""
    files = [f"| `{name}` | {PURPOSES[name]} |" for name in [*names, "README.md"]]
    parts = [
        f"# {_model(chosen.job)} on {chosen.job.ranks} GPU{'s' * (chosen.job.ranks > 1)}: {label(chosen)}",
        "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in _numbers(chosen))]),
        scope([chosen.job.model], chosen.job.workload.seq).line,
        _counted_as(chosen.job),
        "## Files",
        "\n".join(["| file | what for |", "|---|---|", *files]),
        "## Start",
        *_start(launch, names), *_packages(chosen.job),
        "## Check",
        f"In this folder, before anything is started:\n\n```sh\n{checked(chosen.job, target)}\n```",
        "## In your own training script" if SCRIPT in names else "## In the training script",
        "\n".join(f"- {line}" for line in in_script(chosen.job, target, given)),
    ]
    if left_out := chosen.job.strategy.not_counted:
        parts.append(f"Not counted: {', '.join(left_out)}.")
    if assumed:
        parts.append(f"Assumed: {'; '.join(assumed)}.")
    return "\n\n".join(parts) + "\n"


def in_script(job: Job, target: str, given: dict[str, Any] | None = None) -> list[str]:
    """What the files cannot do by themselves."""
    strategy = job.strategy
    lines = [_given(job), *AT_START[target], *_build(job)]
    if target != "hf":
        lines.append(f"The training DataLoader has `batch_size={strategy.micro_batch}`.")
    if job.model.quantization:
        has_script = has_one(job)
        bits = ", ".join(f"{name}={value}" for name, value in bits_and_bytes(job).items())
        lines.append(
            "Weights are quantized as they are loaded: `from_pretrained(..., quantization_config="
            f"BitsAndBytesConfig({bits}))`.{' Put them into weights/, or a name into train.py.' * has_script}"
        )
    if job.model.adapter:
        wide = job.model.adapter.autocast_adapter_dtype
        dtype = "in float32" if wide else "and in the dtype of its weights"
        lines.append(
            f"Adapters are added before DeepSpeed takes the model, {dtype}: "
            f"`get_peft_model(model, LoraConfig.from_pretrained(folder), autocast_adapter_dtype={wide})`."
        )
        if job.model.quantization:
            lines.append("`prepare_model_for_kbit_training` is not called: it puts what is not quantized into float32.")
        elif has_one(job):
            lines.append("train.py gives the model random weights: load yours in its place, `from_pretrained(name)`.")
    turned_on = call(strategy.checkpointing, target)
    if turned_on:
        how = f"`{turned_on}`, as train.py has it" if has_one(job) else in_the_script(strategy.checkpointing)
        lines.append(f"Checkpointing ({strategy.checkpointing}): {how}.")
    lines += _optimizer(job, target)
    if target == "accelerate":
        arguments = ", ".join(f"{name}={value}" for name, value in training_arguments(job, given).items())
        lines.append(f"Where the Trainer runs it: `TrainingArguments({arguments})`, or it stops at what differs.")
    if strategy.kernels != "transformers" and target != "hf":
        lines.append("Liger's kernels are applied to the model before DeepSpeed takes it.")
    if strategy.kernels == "liger-loss" and target == "hf":
        lines.append("`liger_kernel_config` cannot be given on a command line: read `training_arguments.json`.")
    return lines + (_at_stage_3(job, target) if strategy.stage == 3 else [])


def _given(job: Job) -> str:
    """What the model is given, and its attention."""
    images, target = job.model.images, job.model.target
    with_them = f", among them those of {images.line}, {images.tokens:,} tokens each" if images else ""
    targets = f", {InputSizes(target=target).line}" if target is not None else ""
    attention = f'`attn_implementation="{job.strategy.attention}"`'
    return f"Sequences of {job.workload.seq} tokens{with_them}{targets}; {attention}."


def _build(job: Job) -> list[str]:
    """How the model is loaded, where the plan says it; transformers puts quantized weights on a rank's GPU unasked."""
    strategy = job.strategy
    if strategy.builds_partitioned or (strategy.built_in is None and strategy.built_on == "host"):
        return []
    dtype = FLOATING.get(strategy.built_in or "", strategy.dtype)
    place = ", on the GPU (`device_map`)" if strategy.built_on == "gpu" and not job.model.quantization else ""
    return [f"The model is loaded with `dtype=torch.{dtype}`{place}."]


TORCH_ADAMW = {
    "fused": "torch.optim.AdamW, fused=True",
    "foreach": "torch.optim.AdamW",
    "single-tensor": "torch.optim.AdamW, foreach=False",
}
"""Which AdamW the script makes, by its update."""
CPU_ADAM = "deepspeed.ops.adam.DeepSpeedCPUAdam, which Accelerate puts in the place of another AdamW"


def _optimizer(job: Job, target: str) -> list[str]:
    strategy = job.strategy
    if not strategy.has_optimizer_section:
        older = strategy.update == "single-tensor"
        if target == "hf":
            return ["Torch's optimizer is counted tensor by tensor, as torch before 2.0 runs it."] if older else []
        return [f"The script makes the optimizer ({_client_class(strategy)})."]
    by_target = {
        "hf": "`learning_rate` is a TrainingArgument, which the Trainer writes into ds_config.json.",
        "deepspeed": "ds_config.json makes the optimizer: its `lr` is a placeholder, put in your own.",
        "accelerate": "ds_config.json makes the optimizer: `accelerate.utils.DummyOptim(parameters, lr=...)` in its "
        "place, or the Trainer.",
        "lightning": "ds_config.json makes the optimizer: `configure_optimizers` has to be there, and is not called. "
        "Its `lr` is a placeholder, put in your own.",
    }
    return [by_target[target]]


def _client_class(strategy: Strategy) -> str:
    if not strategy.torch_adam:
        return strategy.optimizer
    return TORCH_ADAMW[strategy.update] if strategy.runs_torch_adam else CPU_ADAM


def _at_stage_3(job: Job, target: str) -> list[str]:
    return [*_leaves(job), *([SHARED[target]] if target in SHARED and job.strategy.builds_partitioned else [])]


def _leaves(job: Job) -> list[str]:
    """What of leaf modules the model has; ds_config.json says it too, and either is enough."""
    whole = sorted({name.rpartition(".")[2] for name in job.strategy.leaves.classes if _is_of(name, job)})
    if not whole or not job.execution.leaves:
        return []
    names = ", ".join(f'"{name}"' for name in whole)
    return [
        f"ds_config.json has stage 3 gather each expert block whole (`leaf_module`), as does "
        f"`deepspeed.utils.set_z3_leaf_modules(model, [{names}])` before `deepspeed.initialize`."
    ]


def _is_of(name: str, job: Job) -> bool:
    return not name.startswith("transformers.models.") or f".models.{job.model.family}." in name


def _model(job: Job) -> str:
    return job.model.name if job.model.inferred else f"{job.model.name} ({count(job.model.weights)} parameters)"


def _counted_as(job: Job) -> str:
    model = job.model
    like = f"transformers {transformers_of(model.family)} behave"
    if model.recorded_with:
        like = f"the model's own operators behave, recorded with {model.recorded_with}"
    return f"Memory and traffic are counted as DeepSpeed {DEEPSPEED} and {like}; no step was measured."


def _numbers(chosen: Candidate) -> list[tuple[str, str]]:
    job, strategy, speed = chosen.job, chosen.strategy, speed_of(chosen.job, chosen.time)
    steps = f"micro-batch {strategy.micro_batch} × accumulation {strategy.micro_steps} × {job.ranks} GPUs"
    sequences = strategy.micro_batch * strategy.micro_steps * job.ranks
    low, high = seconds(speed.interval.low), seconds(speed.interval.high)
    gpu = job.cluster.gpu
    rows = [
        *([("GPU", gpu.title)] if gpu else []),
        ("nodes × GPUs", f"{job.cluster.nodes} × {job.cluster.gpus_per_node}"),
        ("batch", f"{steps} = {sequences} sequences of {job.workload.seq} tokens a step"),
        ("precision", strategy.precision),
        ("checkpointing", strategy.checkpointing),
        ("GPU memory", f"held {gib(total(chosen.ledger.gpu.resident))}, peak "
         f"{gib(total(chosen.ledger.gpu.peak.lines))}, {_of(chosen.fit.gpu)}"),
    ]  # fmt: skip
    rows += [
        (PLACES[key], _of(getattr(chosen.fit, key))) for key in ("host", "nvme") if getattr(chosen.fit, key).needed
    ]
    return [
        *rows,
        ("sent per GPU", f"{gb(chosen.ledger.sent(strategy.micro_steps))} a step"),
        ("step", f"{seconds(chosen.time.total)}, from {low} to {high}"),
        ("tokens/s", f"{speed.tokens_per_gpu:,.0f} per GPU"),
    ]


def _of(tier: TierFit) -> str:
    needs = f"needs {gib(tier.needed)} (such runs took up to {gib(tier.most)})"
    if tier.capacity is None:
        return f"{needs}; how much there is was not said"
    return f"{needs} of {gib(tier.capacity)}: {str(tier.verdict).replace('_', ' ')}"


def _packages(job: Job) -> list[str]:
    """What has to be installed beside DeepSpeed and transformers."""
    names = ["peft"] * bool(job.model.adapter) + ["bitsandbytes"] * bool(job.model.quantization)
    return [f"Beside DeepSpeed, transformers and accelerate: `pip install {' '.join(names)}`."] if names else []


def _start(launch: Launch, names: list[str]) -> list[str]:
    """Any one of these commands starts it; what they start, and what for."""
    block = "```sh\n" + "\n".join(_commands(launch, names)) + "\n```"
    if SCRIPT not in names:
        return [block]
    arguments = "--max_steps 2" if "training_arguments.json" in names else "--steps 2"
    own = (
        f"Each starts `train.py`, which trains for {STEPS} steps; arguments behind the command are the script's, as in "
        f"`{arguments} --seq 128`. If the first word behind it is a script of your own, that is started in its place."
    )
    return [block, own]


def _commands(launch: Launch, names: list[str]) -> list[str]:
    each, own = launch.nodes > 1, "" if SCRIPT in names else " /path/to/train.py"
    lines = []
    for name in ("deepspeed.sh", "torchrun.sh", "accelerate.sh"):
        if name in names:
            on_each = each and name != "deepspeed.sh"
            lines += ["# on each node, with its own number"] if on_each else []
            lines.append(f"{'NODE_RANK=0 MASTER_ADDR=worker-1 ' * on_each}bash {name}{own}")
    lines += [f"sbatch slurm.sbatch{own}"] if "slurm.sbatch" in names else []
    return lines + (["kubectl apply -f pytorchjob.yaml"] if "pytorchjob.yaml" in names else [])
