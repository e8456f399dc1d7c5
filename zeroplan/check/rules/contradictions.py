"""Arguments that axolotl and LLaMA-Factory refuse beside one another in their own files, before DeepSpeed starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from zeroplan.catalog.trainers.tools import AXOLOTL, LLAMA_FACTORY
from zeroplan.check.arguments import Arguments
from zeroplan.check.finding import ERROR, WARNING, Hit
from zeroplan.check.rule import Example, Rule
from zeroplan.check.rules.refused_files import evaluation_strategy
from zeroplan.releases import number

AXOLOTLS = (
    "base_model: x/y\ndatasets:\n  - {path: d, type: alpaca}\nmicro_batch_size: 1\ngradient_accumulation_steps: 2\n"
    "learning_rate: 0.0001\nbf16: true\noutput_dir: o\nval_set_size: %s\neval_steps: 10\ndeepspeed: "
    "{bf16: {enabled: auto}, zero_optimization: {stage: 2}, train_micro_batch_size_per_gpu: auto, "
    "gradient_accumulation_steps: auto}\n"
)
LORA = ("lora", "qlora")
TRAINS, WITHOUT_LORA = "finetuning_type", ("full", "freeze")
OTHER_STAGES = ("pt", "rm", "ppo", "dpo", "kto")
OF_LORA = ("loraplus_lr_ratio", "use_rslora", "use_dora", "pissa_init")
OWN_OPTIMIZERS = ("use_galore", "use_apollo", "use_badam")
SMALL = 1e-6
KNOWN_SINCE = "0.9.0"
"""The LLaMA-Factory from which all of these are refused."""

RULES: tuple[Rule, ...] = (
    Rule(
        "ZP860", ERROR, "Arguments that axolotl or LLaMA-Factory refuses beside one another",
        "axolotl 0.9.0, 0.19.0: validate_config; LLaMA-Factory 0.9.5: hparams/parser.py:get_train_args, run",
        Example(AXOLOTLS % 0, file="axolotl.yaml"), Example(AXOLOTLS % 0.1, file="axolotl.yaml"),
        "https://docs.axolotl.ai/docs/config-reference.html",
    ),
)  # fmt: skip


class FileArguments:
    """The arguments of a file, as a tool has them."""

    def __init__(self, arguments: Arguments) -> None:
        self.of, self._written = arguments.stated, arguments.document.config
        self.evaluation = evaluation_strategy(arguments)

    def __call__(self, name: str) -> Any:
        return self.of(name)

    def all(self, *names: str) -> bool:
        return all(map(self.of, names))

    def lacks(self, name: str) -> bool:
        """Whether it is off: what another file decides is not."""
        return not self.of(name) and not self._written.get(name)


class Contradiction(NamedTuple):
    names: tuple[str, ...]
    """Arguments at which it stands, the first that is stated."""
    what: str
    holds: Callable[[FileArguments], bool]
    write: str


def _is_on(name: str, beside: str, values: tuple[str, ...]) -> Callable[[FileArguments], bool]:
    """Whether an argument is on where another has one of these values."""
    return lambda of: bool(of(name)) and of(beside) in values


def _stops_early_by_other_steps(of: FileArguments) -> bool:
    """Whether a patience is not counted in checkpoints (axolotl: utils/schemas/config.py)."""
    saved, evaluated = of("save_steps"), of("eval_steps")
    if not of("early_stopping_patience"):
        return False
    if of.lacks("save_steps") or of.lacks("eval_steps"):
        return True
    return isinstance(saved, int) and isinstance(evaluated, int) and saved % evaluated != 0


OF_AXOLOTL = (
    Contradiction(("sample_packing",), "sample_packing beside rl", lambda of: of.all("sample_packing", "rl"),
                  "sample_packing: false"),
    Contradiction(("batch_size",), "batch_size beside gradient_accumulation_steps",
                  lambda of: of.all("batch_size", "gradient_accumulation_steps"), "delete batch_size"),
    Contradiction(("load_in_8bit",), "adapter qlora with load_in_8bit",
                  lambda of: of("adapter") == "qlora" and bool(of("load_in_8bit")), "load_in_4bit: true"),
    Contradiction(("adapter",), "adapter qlora without load_in_4bit",
                  lambda of: of("adapter") == "qlora" and of.lacks("load_in_4bit") and of.lacks("load_in_8bit"),
                  "load_in_4bit: true"),
    Contradiction(("load_in_8bit", "load_in_4bit"), "load_in_8bit or load_in_4bit without an adapter",
                  lambda of: of.lacks("adapter") and bool(of("load_in_8bit") or of("load_in_4bit")), "adapter: lora"),
    Contradiction(("flash_attn_fuse_mlp",), "flash_attn_fuse_mlp beside an adapter",
                  lambda of: of("adapter") in LORA and bool(of("flash_attn_fuse_mlp")), "delete flash_attn_fuse_mlp"),
    Contradiction(("warmup_ratio",), "warmup_steps beside warmup_ratio",
                  lambda of: of.all("warmup_steps", "warmup_ratio"), "one of them"),
    Contradiction(("save_steps",), "save_steps with a save_strategy that is not steps",
                  lambda of: of.all("save_steps", "save_strategy") and of("save_strategy") != "steps",
                  "save_strategy: steps"),
    Contradiction(("save_steps",), "save_steps beside saves_per_epoch",
                  lambda of: of.all("save_steps", "saves_per_epoch"), "one of them"),
    Contradiction(("eval_steps",), "eval_steps with an eval_strategy that is not steps",
                  lambda of: bool(of("eval_steps") and of.evaluation) and of.evaluation not in ("steps", "no"),
                  "eval_strategy: steps"),
    Contradiction(("eval_steps", "eval_strategy", "evaluation_strategy"), "an evaluation of val_set_size 0",
                  lambda of: of("val_set_size") == 0 and bool(of("eval_steps") or of.evaluation)
                  and of.lacks("test_datasets") and of.evaluation != "no", "val_set_size: 0.05, or delete it"),
    Contradiction(("eval_steps",), "eval_steps beside evals_per_epoch",
                  lambda of: of.all("eval_steps", "evals_per_epoch"), "one of them"),
    Contradiction(("evals_per_epoch",), "evals_per_epoch with an eval_strategy that is not steps",
                  lambda of: bool(of("evals_per_epoch") and of.evaluation) and of.evaluation not in ("steps", "no"),
                  "eval_strategy: steps"),
    Contradiction(("eval_table_size",), "eval_table_size beside sample_packing",
                  lambda of: of.all("eval_table_size", "sample_packing") and of.lacks("eval_sample_packing")
                  and of("eval_sample_packing") is not False, "eval_sample_packing: false"),
    Contradiction(("val_set_size",), "val_set_size beside test_datasets",
                  lambda of: of.all("val_set_size", "test_datasets"), "val_set_size: 0"),
    Contradiction(("gpu_memory_limit",), "gpu_memory_limit beside max_memory",
                  lambda of: of.all("gpu_memory_limit", "max_memory"), "one of them"),
    Contradiction(("unfrozen_parameters",), "unfrozen_parameters beside peft_layers_to_transform",
                  lambda of: of.all("adapter", "unfrozen_parameters", "peft_layers_to_transform"), "one of them"),
    Contradiction(("early_stopping_patience",), "early_stopping_patience without save_steps that eval_steps divide",
                  _stops_early_by_other_steps, "save_steps: 100, eval_steps: 100"),
    Contradiction(("base_model",), "neither datasets nor pretraining_dataset",
                  lambda of: of.lacks("datasets") and of.lacks("pretraining_dataset"), "datasets: ..."),
)  # fmt: skip
"""What axolotl 0.4 refuses too."""

OF_LLAMA_FACTORY = (
    Contradiction(("val_size",), "val_size without a dataset",
                  lambda of: of.lacks("dataset") and _is_share(of("val_size")), "dataset: ..."),
    Contradiction(("do_train",), "do_train without a dataset",
                  lambda of: of("do_train") is True and of.lacks("dataset") and not of("val_size"), "dataset: ..."),
    Contradiction(("val_size",), "val_size beside eval_dataset",
                  lambda of: bool(of("eval_dataset")) and _is_share(of("val_size")), "one of them"),
    Contradiction(("do_eval", "do_predict", "eval_strategy", "evaluation_strategy", "predict_with_generate"),
                  "an evaluation without eval_dataset or val_size",
                  lambda of: _is_evaluated(of) and of.lacks("eval_dataset") and of.lacks("val_size"), "val_size: 0.1"),
    Contradiction(("streaming",), "streaming without max_steps",
                  lambda of: bool(of("streaming")) and of.lacks("max_steps"), "max_steps: 1000"),
    Contradiction(("val_size",), "a val_size that is a share of a stream",
                  lambda of: bool(of("streaming")) and _is_share(of("val_size")) and of("val_size") < 1,
                  "val_size: 1000"),
    Contradiction(("max_samples",), "max_samples beside streaming", lambda of: of.all("max_samples", "streaming"),
                  "one of them"),
    Contradiction(("train_on_prompt",), "train_on_prompt beside mask_history",
                  lambda of: of.all("train_on_prompt", "mask_history"), "one of them"),
    Contradiction(("interleave_probs",), "interleave_probs without an interleaving mix_strategy",
                  lambda of: bool(of("interleave_probs")) and of("mix_strategy") in (None, "concat"),
                  "mix_strategy: interleave_under"),
    Contradiction(("adapter_name_or_path",), "adapter_name_or_path with a finetuning_type that is not lora",
                  _is_on("adapter_name_or_path", TRAINS, WITHOUT_LORA),
                  "finetuning_type: lora"),
    Contradiction(("quantization_bit",), "quantization_bit with a finetuning_type that is not lora",
                  _is_on("quantization_bit", TRAINS, WITHOUT_LORA),
                  "finetuning_type: lora"),
    Contradiction(("pissa_init",), "pissa_init beside quantization_bit",
                  lambda of: of.all("pissa_init", "quantization_bit"), "pissa_init: false"),
    Contradiction(("resize_vocab",), "resize_vocab beside quantization_bit",
                  lambda of: of.all("resize_vocab", "quantization_bit"), "resize_vocab: false"),
    Contradiction(("quantization_device_map",), "quantization_device_map auto in training",
                  lambda of: of("quantization_device_map") == "auto" and bool(of("do_train")), "delete it"),
    *[Contradiction((name,), f"{name} in a stage that is not sft", _is_on(name, "stage", OTHER_STAGES),
                    f"{name}: false")
      for name in ("predict_with_generate", "neat_packing", "train_on_prompt", "mask_history")],
    Contradiction(("compute_accuracy",), "compute_accuracy beside predict_with_generate",
                  lambda of: of.all("compute_accuracy", "predict_with_generate"), "one of them"),
    Contradiction(("load_best_model_at_end",), "load_best_model_at_end in stage rm or ppo",
                  _is_on("load_best_model_at_end", "stage", ("rm", "ppo")),
                  "load_best_model_at_end: false"),
    Contradiction(("stage",), "stage ppo without a reward_model",
                  lambda of: of("stage") == "ppo" and of.lacks("reward_model"), "reward_model: ..."),
    Contradiction(("use_llama_pro",), "use_llama_pro with finetuning_type full",
                  _is_on("use_llama_pro", TRAINS, ("full",)), "finetuning_type: freeze"),
    *[Contradiction((name,), f"{name} with a finetuning_type that is not lora", _is_on(name, TRAINS, WITHOUT_LORA),
                    f"delete {name}") for name in OF_LORA],
    *[Contradiction((name,), f"{name} with finetuning_type lora", _is_on(name, TRAINS, ("lora",)),
                    "finetuning_type: full") for name in OWN_OPTIMIZERS],
    Contradiction(OWN_OPTIMIZERS, "two of GaLore, APOLLO and BAdam",
                  lambda of: sum(bool(of(name)) for name in OWN_OPTIMIZERS) > 1, "one of them"),
    Contradiction(("pissa_init",), "pissa_init in stage ppo or kto",
                  _is_on("pissa_init", "stage", ("ppo", "kto")), "pissa_init: false"),
)  # fmt: skip


def _is_share(size: Any) -> bool:
    return isinstance(size, int | float) and size > SMALL


def _is_evaluated(of: FileArguments) -> bool:
    does = of("do_eval") is True or of("do_predict") is True
    return does or bool(of("predict_with_generate")) or of.evaluation in ("steps", "epoch")


OF_TOOLS = {AXOLOTL: OF_AXOLOTL, LLAMA_FACTORY: OF_LLAMA_FACTORY}


def refused_together(arguments: Arguments, llama_factory: str | None) -> Iterator[Hit]:
    """What contradicts itself in a tool's own file. `llama_factory`: its release that the project asks for."""
    if arguments.job is not None:  # whose line has names alone that bear on a config
        return
    of, tool = FileArguments(arguments), arguments.tool
    is_older = llama_factory is not None and number(llama_factory) < number(KNOWN_SINCE)
    severity = WARNING if tool == LLAMA_FACTORY and is_older else ERROR
    for one in OF_TOOLS.get(tool, ()):
        if one.holds(of):
            name = next((name for name in one.names if of(name) is not None), one.names[0])
            yield Hit("ZP860", (name,), f"{one.what}: {tool} stops", one.write, severity)


CHECKS = ()
"""None that asks a ds_config."""
