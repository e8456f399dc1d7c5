"""train.py: a training script of one target that does what the plan says, with random tokens for data.

It builds the model from config.json beside it, as the plan counts it: weights in the training dtype, at stage 3 shared
out as they are made.
"""

from __future__ import annotations

import json

from zeroplan.catalog.other_files import ADAPTER, ADAPTER_FILE
from zeroplan.deepspeed.write import LEARNING_RATE
from zeroplan.emit.checkpointing import FILE, call, checkpointing_file
from zeroplan.specs.job import Job
from zeroplan.specs.model import IDS, OF_SEQUENCES, OF_TOKENS, VALUES
from zeroplan.specs.optimizer import OPTIMIZERS
from zeroplan.specs.quantization import INT8
from zeroplan.specs.strategy import Strategy

NAME, MODEL, STEPS = "train.py", "config.json", 10
FIRST = '"""Trains the model of config.json on random tokens, as the plan says, '
HEADER = '''\
{first}with {who}.

Copy it under another name before you put your own model and data in: zeroplan recommend --force writes it anew.
"""

'''
HF = '''\
import json
{matching}from pathlib import Path

{deepspeed}import torch
from transformers import AutoConfig, {auto}, HfArgumentParser, Trainer, TrainingArguments
{imports}
HERE = Path(__file__).parent
{weights}
{tokens}

def main():
    planned = json.loads((HERE / "training_arguments.json").read_text())
    planned["deepspeed"] = str(HERE / "ds_config.json")
    parser = HfArgumentParser(TrainingArguments)
    parser.add_argument("--seq", type=int, default={seq}, help="tokens of a sequence")
    unasked = {{"max_steps": {steps}, "logging_steps": 1, "save_strategy": "no", "report_to": "none"}}
    parser.set_defaults(**(unasked | planned))
{whole}    arguments, more = parser.parse_args_into_dataclasses(){first_is}
{started}
{built}{calls}    data = RandomTokens(config.get_text_config().vocab_size, more.seq)
    Trainer(model, arguments, train_dataset=data).train()
'''
DEEPSPEED = '''\
import argparse
{matching}from pathlib import Path

import deepspeed
import torch
from transformers import AutoConfig, {auto}
{imports}
HERE = Path(__file__).parent
{weights}

def main():
    parser = deepspeed.add_config_arguments(argparse.ArgumentParser())
    parser.add_argument("--local_rank", type=int, help="what DeepSpeed's launcher says")
    parser.add_argument("--steps", type=int, default={steps})
    parser.add_argument("--seq", type=int, default={seq}, help="tokens of a sequence")
    arguments = parser.parse_args()
    plan = arguments.deepspeed_config or str(HERE / "ds_config.json")
    deepspeed.init_distributed()

{config}{share}    model = {model}
{calls}    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
{optimizer}    engine, *_ = deepspeed.initialize(model=model, model_parameters=trained, config=plan{given})
    shape = (engine.train_micro_batch_size_per_gpu(), arguments.seq)
    for step in range(arguments.steps):
        for _ in range(engine.gradient_accumulation_steps()):
            tokens = torch.randint(config.get_text_config().vocab_size, shape, device=engine.device)
            loss = engine(input_ids=tokens, labels={batch_labels}).loss
            engine.backward(loss)
            engine.step()
        if engine.global_rank == 0:
            print(f"step {{step + 1}}: loss {{loss.item():.4f}}", flush=True)
'''
ACCELERATE = '''\
import argparse
{matching}from pathlib import Path

import torch
from accelerate import Accelerator
{dummy}from transformers import AutoConfig, {auto}
{imports}
HERE = Path(__file__).parent
{weights}MICRO_BATCH, ACCUMULATION = {micro_batch}, {grad_accum}

{tokens}

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default={steps})
    parser.add_argument("--seq", type=int, default={seq}, help="tokens of a sequence")
    arguments = parser.parse_args()
{whole}    accelerator = Accelerator(gradient_accumulation_steps=ACCUMULATION){first_is}

{built}{calls}    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
{optimizer}    data = RandomTokens(config.get_text_config().vocab_size, arguments.seq)
    batches = torch.utils.data.DataLoader(data, batch_size=MICRO_BATCH)
    model, optimizer, batches = accelerator.prepare(model, optimizer, batches)
    for number, batch in zip(range(1, arguments.steps * ACCUMULATION + 1), batches):
        with accelerator.accumulate(model):
            loss = model(**batch).loss
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        if number % ACCUMULATION == 0:
            accelerator.print(f"step {{number // ACCUMULATION}}: loss {{loss.item():.4f}}", flush=True)
'''
LIGHTNING = '''\
import argparse
{matching}from pathlib import Path

import torch
from lightning.pytorch import LightningModule
from lightning_trainer import MICRO_BATCH, trainer
from transformers import AutoConfig, {auto}
{imports}
HERE = Path(__file__).parent
{weights}
{tokens}

class LanguageModel(LightningModule):
    def __init__(self):
        super().__init__()
        self.model = None

    def configure_model(self):  # here stage 3 shares it out as it is made
        if self.model is None:
{config}            model = {model}
{calls}            self.model = model

    def training_step(self, batch):
        return self.model(**batch).loss
{optimizer}

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default={steps})
    parser.add_argument("--seq", type=int, default={seq}, help="tokens of a sequence")
    arguments = parser.parse_args()
    vocabulary = AutoConfig.from_pretrained(HERE).get_text_config().vocab_size
    batches = torch.utils.data.DataLoader(RandomTokens(vocabulary, arguments.seq), batch_size=MICRO_BATCH)
    trainer(max_steps=arguments.steps, enable_checkpointing=False, logger=False).fit(LanguageModel(), batches)
'''
QUANTIZED = '''WEIGHTS = HERE / "weights"  # a folder or a name on the Hub: bits are packed of a model as it is loaded
QUANTIZATION = BitsAndBytesConfig(
{fields})
'''
TOKENS = '''
class RandomTokens(torch.utils.data.Dataset):
    def __init__(self, vocabulary, length):
        self.vocabulary, self.length = vocabulary, length

    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        tokens = torch.randint(self.vocabulary, (self.length,))
        return {{"input_ids": tokens, "labels": {labels}}}
'''
SHARED = "    shared = HfDeepSpeedConfig(plan)  # while it lives, stage 3 shares models out as they are made\n"
FIRST_IS = {"hf": "  # before the model is made: stage 3 shares it out",
            "accelerate": "  # first: stage 3 shares out what is made then"}  # fmt: skip
STARTED = "    deepspeed.init_distributed()  # stage 3 counts the processes; on CPUs the Trainer joins them later\n"
MAIN = '''

if __name__ == "__main__":
    main()
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()  # else its threads may abort a process that is done
'''
EARLY = "import torch._dynamo.polyfills.loader  # transformers would import it where stage 3 has replaced torch.empty"
AUTO = {
    "ForSequenceClassification": "ForSequenceClassification", "ForTokenClassification": "ForTokenClassification",
    "ForMaskedLM": "ForMaskedLM", "ForConditionalGeneration": "ForSeq2SeqLM",
}  # fmt: skip
"""By the ends of classes; others are language models."""
LABELS = {
    IDS: ("tokens", "tokens"),
    OF_TOKENS: ("torch.zeros_like(tokens)", "torch.zeros_like(tokens)"),
    OF_SEQUENCES: ("torch.tensor(0)", "torch.zeros_like(tokens[:, 0])"),
    VALUES: ("torch.tensor(0, dtype=torch.{dtype})", "torch.zeros_like(tokens[:, 0], dtype=torch.{dtype})"),
}
"""What a sequence is learned with, and a batch."""
OF_TARGET = ("tokens.new_zeros({target})", "tokens.new_zeros((len(tokens), {target}))")
"""The same, of a target that is not as long as its source."""
TEXTS = {"hf": HF, "deepspeed": DEEPSPEED, "accelerate": ACCELERATE, "lightning": LIGHTNING}
WHO = {
    "hf": "transformers' Trainer", "deepspeed": "DeepSpeed", "accelerate": "Accelerate",
    "lightning": "Lightning's Trainer",
}  # fmt: skip
OWN_OPTIMIZERS = {
    "adafactor": (
        "from transformers.optimization import Adafactor",
        f"Adafactor(trained, lr={LEARNING_RATE}, scale_parameter=False, relative_step=False)",
    ),
    "adam8bit": ("from bitsandbytes.optim import AdamW8bit", f"AdamW8bit(trained, lr={LEARNING_RATE})"),
}
"""Those that ds_config.json does not name: an import, and the call, as the Trainer makes them."""


def own_files(job: Job, target: str) -> dict[str, str]:
    """train.py and what it reads and imports, by name; nothing where no config.json of the model is known."""
    if not job.model.config:
        return {}
    config = {MODEL: json.dumps(job.model.config, indent=2) + "\n"}
    if not has_one(job):
        return config | adapter_file(job)
    files = {NAME: train_script(job, target), **config}
    lines = checkpointing_file(job.strategy)
    return files | adapter_file(job) | ({FILE: lines} if lines else {})


def has_one(job: Job) -> bool:
    """Whether a script can be written: images and sound come from the model's own processor."""
    of_words = not job.model.images and all(each.dtype.startswith("int") for each in job.model.inputs)
    return bool(job.model.config) and of_words


def adapter_file(job: Job) -> dict[str, str]:
    """adapter_config.json as peft reads it, by name; nothing where no adapters train."""
    if not job.model.adapter:
        return {}
    from zeroplan.catalog.adapters import settings  # with all fields of peft's

    return {ADAPTER_FILE: json.dumps({ADAPTER: "LORA", **settings(job.model.adapter)}, indent=2) + "\n"}


def train_script(job: Job, target: str) -> str:
    """The text of train.py."""
    strategy, by_config = job.strategy, bool(OPTIMIZERS[job.strategy.optimizer].config_type)
    auto = auto_class(job)
    learned_with = OF_TARGET if job.model.target else LABELS[job.model.labels]
    labels, batch_labels = (each.format(dtype=strategy.dtype, target=job.model.target) for each in learned_with)
    lines = [*_adapting(job, target), *_freezing(job), *_asking_for_gradients(job), *_calls(strategy, target)]
    made, more = OWN_OPTIMIZERS.get(strategy.optimizer, ("", "")), []
    if target != "hf" and not by_config:
        more.append(made[0])
    if job.model.adapter:
        more.append("from peft import LoraConfig, get_peft_model")
    if _applies_liger(strategy, target):
        more.append("from transformers.integrations.liger import apply_liger_kernel")
    if target == "deepspeed" and strategy.builds_partitioned:
        more.append("from transformers.integrations import HfDeepSpeedConfig")
    if target == "lightning" and strategy.builds_partitioned:
        more.append(EARLY)
    if any("checkpointing.turn_on" in line for line in lines):
        more.append("\nimport checkpointing")
    indent = " " * (12 if target == "lightning" else 4)
    built = f'dtype=torch.{strategy.dtype}, attn_implementation="{strategy.attention}"'
    model = f"{auto}.from_config(config, {built})"
    if job.model.quantization:
        more.append("from transformers import BitsAndBytesConfig")
        inside = f"\n{indent}    "
        loaded = "WEIGHTS, quantization_config=QUANTIZATION, use_cache=False,"
        model = f"{auto}.from_pretrained({inside}{loaded}{inside}{built},\n{indent})"
    config = _config(job, target, indent)
    built, comes_first = f"{config}{indent}model = {model}\n", strategy.stage == 3 and not strategy.builds_partitioned
    body = TEXTS[target].format(
        auto=auto,
        matching="from fnmatch import fnmatchcase\n" if job.model.freeze else "",
        imports="".join(f"{line}\n" for line in more),
        weights=_quantization(job) if job.model.quantization else "",
        tokens=TOKENS.format(labels=labels),
        batch_labels=batch_labels,
        seq=job.workload.seq,
        steps=STEPS,
        micro_batch=strategy.micro_batch,
        grad_accum=strategy.grad_accum,
        model=model,
        config=config,
        whole=built if comes_first else "",  # what asks for stage 3 behind it shares nothing out
        built="" if comes_first else built,
        first_is="" if comes_first else FIRST_IS.get(target, ""),
        deepspeed="import deepspeed\n" if strategy.builds_partitioned else "",
        started=STARTED if strategy.builds_partitioned else "",
        share=SHARED if strategy.builds_partitioned else "",
        calls="".join(f"{indent}{line}\n" for line in lines),
        dummy="from accelerate.utils import DummyOptim\n" if by_config else "",
        optimizer=_optimizer(made[1], target, by_config=by_config),
        given="" if by_config else ", optimizer=optimizer",
    )
    return HEADER.format(first=FIRST, who=WHO[target]) + body + MAIN


def _config(job: Job, target: str, indent: str) -> str:
    """Lines that read config.json; a model that is loaded has its own, and data need the size of the vocabulary."""
    if job.model.quantization:
        return "" if target == "lightning" else f"{indent}config = AutoConfig.from_pretrained(HERE)\n"
    lines = ["config = AutoConfig.from_pretrained(HERE)", "config.use_cache = False"]
    if job.model.labels in (OF_SEQUENCES, VALUES) and not isinstance(job.model.config.get("pad_token_id"), int):
        lines.append("config.pad_token_id = 0  # put in your tokenizer's: the last token before it is read")
    return "".join(f"{indent}{line}\n" for line in lines)


def auto_class(job: Job) -> str:
    """Which AutoModel of transformers gives the model's class."""
    name, is_encoder = job.model.architecture, job.model.family == "bert" and not job.model.config.get("is_decoder")
    ending = next((each for each in AUTO if name.endswith(each)), "ForMaskedLM" if is_encoder else "ForCausalLM")
    return f"AutoModel{AUTO.get(ending, ending)}"


def bits_and_bytes(job: Job) -> dict[str, str]:
    """Arguments of transformers.BitsAndBytesConfig, as Python writes them."""
    quantization, dtype = job.model.quantization, job.strategy.dtype
    assert quantization is not None
    if quantization.kind == INT8:
        return {"load_in_8bit": "True"}
    storage = "uint8" if quantization.storage == "uint8" else dtype
    return {
        "load_in_4bit": "True", "bnb_4bit_quant_type": f'"{quantization.kind}"',
        "bnb_4bit_use_double_quant": str(quantization.double), "bnb_4bit_compute_dtype": f"torch.{dtype}",
        "bnb_4bit_quant_storage": f"torch.{storage}",
    }  # fmt: skip


def _quantization(job: Job) -> str:
    """What a quantized model is loaded with, and from where."""
    fields = [f"    {name}={value},\n" for name, value in bits_and_bytes(job).items()]
    return QUANTIZED.format(fields="".join(fields))


def _adapting(job: Job, target: str) -> list[str]:
    """Adapters are made in the dtype of the weights, which DeepSpeed trains them in wherever it casts them, or as peft
    makes them.

    A model that was loaded is not in training: its layers would not be checkpointed.
    """
    if not job.model.adapter:
        return []
    wide = job.model.adapter.autocast_adapter_dtype
    starts = ["model.train()"] if job.model.quantization and target != "hf" else []
    return [
        *starts,
        f"model = get_peft_model(model, LoraConfig.from_pretrained(HERE), autocast_adapter_dtype={wide})",
    ]


def _freezing(job: Job) -> list[str]:
    """Parameters that do not train."""
    model = job.model
    if not model.freeze:
        return []
    named = "any(fnmatchcase(name, pattern) for pattern in {})"
    trains = [named.format(list(model.train))] if model.train else []
    trains += [f"not {named.format(list(model.freeze))}"] if model.freeze != ("*",) else []
    return [
        "for name, parameter in model.named_parameters():",
        f"    parameter.requires_grad_({' or '.join(trains)})",
    ]


def _asking_for_gradients(job: Job) -> list[str]:
    """With checkpointing the words' embeddings ask for a gradient where they do not train: without one a checkpointed
    layer has nothing to run backward to.
    """
    return ["model.enable_input_require_grads()"] if job.model.frozen and job.strategy.recomputing.every else []


def _calls(strategy: Strategy, target: str) -> list[str]:
    """What is done to a `model` before it trains."""
    lines = []
    if _applies_liger(strategy, target):
        alone = ', dict.fromkeys(("rope", "rms_norm", "swiglu", "geglu"), False)'
        lines.append(f"apply_liger_kernel(model{alone if strategy.kernels == 'liger-loss' else ', None'})")
    turned_on = call(strategy.checkpointing, target)
    return lines + ([turned_on] if turned_on else [])


def _applies_liger(strategy: Strategy, target: str) -> bool:
    return target != "hf" and strategy.kernels != "transformers"


def _optimizer(made: str, target: str, *, by_config: bool) -> str:
    """The lines that make it; where ds_config.json does, Accelerate wants a stand-in."""
    if target == "lightning":
        trained = "trained = [parameter for parameter in self.parameters() if parameter.requires_grad]"
        lines = f"{trained}\n        return {made}" if made else "pass  # Lightning asks for it and never calls it"
        return f"\n    def configure_optimizers(self):\n        {lines}\n"
    if target == "accelerate" and by_config:
        return f"    optimizer = DummyOptim(trained, lr={LEARNING_RATE})\n"
    return "" if by_config or target == "hf" else f"    optimizer = {made}\n"
