"""What help pages say: of zeroplan its commands, of each command three examples and the options that are used most."""

from __future__ import annotations

from typing import NamedTuple

OF_A_JOB = ("ask", "estimate", "recommend", "report", "compare", "diff", "matrix", "explain", "verify", "observe")
SCOPE = (
    "Scope: training of one model of text, or of text and images, whole, in part or by adapters (LoRA, QLoRA), every "
    "sequence of --seq tokens. Not planned: a second model (DPO, PPO), generation, evaluation, tensor or sequence "
    "parallelism."
)
"""`zeroplan.specs.scope` says it of a job."""
SHORT_SCOPE = "Scope: training of one model, whole, in part or by adapters."

Rows = tuple[tuple[str, str], ...]


class Page(NamedTuple):
    """The help of one command."""

    examples: Rows
    """Commands that run as they stand, with what each answers."""
    usual: tuple[str, ...] = ()
    """Parameters that --help shows; empty: all."""


FRONT_EXAMPLES: Rows = (
    ("zeroplan ask", "five questions, then the plan"),
    ("zeroplan recommend 7B --gpus 8 --gpu a100", "the fastest plan that fits"),
    ("zeroplan estimate llama-3.1-8b --gpus 8", "what ZeRO 0 to 3 need"),
    ("zeroplan check ds_config.json", "what DeepSpeed refuses in it"),
)
FRONT: tuple[tuple[str, Rows], ...] = (
    ("Plan", (
        ("ask", "Five questions for a first plan"),
        ("recommend", "The fastest plan that fits, and its ds_config.json"),
        ("report", "The same as a page to pass around, with charts"),
        ("estimate", "Memory and traffic of ZeRO 0 to 3"),
        ("compare, matrix", "Strategies, cards, GPU counts or models side by side"),
    )),
    ("Check", (
        ("check", "What DeepSpeed refuses or ignores in a config"),
        ("diff", "What differs between two configs, and by how much"),
        ("trace, verify", "Record any model; run DeepSpeed without a GPU"),
        ("observe", "The log of a run beside the prediction"),
        ("calibrate", "Measure this machine for --cluster"),
    )),
    ("Understand", (
        ("explain", "Formula and source of any number, or a ds_config key"),
        ("rules, schema", "What check looks for; JSON Schemas, of --json too"),
        ("models, gpus, clusters", "The models, cards and nodes known by name"),
    )),
)  # fmt: skip
"""Every command, with as many words as fit beside it."""

ARGUMENTS = {
    "model": "A config.json, its folder, a preset or org/name.",
    "word": "A size (7B), or what --model takes. Of matrix: or several, 7B,13B.",
    "files": "ds_config.json, a folder, a launch script, YAML of accelerate launch or of TrainingArguments that name "
    "one; - is standard input.",
    "first": "A ds_config.json.",
    "second": "Another; - is standard input.",
    "term": "A line, formula, ds_config key or rule of check; also MFU, needed or activations.",
    "log": "What the run has printed.",
    "name": "Show every tensor of this model.",
}
"""What each stands for: an argument of click's has no help of its own."""
ANSWER = ("json", "verbose", "quiet")
CARDS = ("gpus", "gpu", "gpu_mem")
PAGES: dict[str, Page] = {
    "ask": Page((
        ("zeroplan ask", "questions, with defaults"),
        ("yes '' | zeroplan ask", "every default"),
        ("printf 'gpt2\\nt4\\n2\\n\\n512\\n' | zeroplan ask", "from a pipe"),
    )),
    "estimate": Page(
        (
            ("zeroplan estimate 7B --gpus 8", "ZeRO 0 to 3 side by side"),
            ("zeroplan estimate llama-3.1-8b --gpus 8 --gpu a100", "and what fits"),
            ("zeroplan estimate qwen2.5-7b --gpus 8 --stage 3", "one stage in parts"),
        ),
        ("word", "config", "seq", "micro_batch", "stage", "checkpointing", "offload_optimizer", "precision", *CARDS,
         *ANSWER),
    ),
    "recommend": Page(
        (
            ("zeroplan recommend 7B --gpus 8 --gpu a100", "the fastest plan"),
            ("zeroplan recommend gpt2-xl --gpu 4090 --gpus auto", "the fewest GPUs"),
            ("zeroplan recommend 13B --gpus 2x8xH100 -o -", "its ds_config.json"),
        ),
        ("word", "seq", "global_batch", "stage", *CARDS, "tokens", "why", "output", "folder", "target", *ANSWER),
    ),
    "report": Page(
        (
            ("zeroplan report 7B --gpus 8 --gpu a100", "writes plan.html"),
            ("zeroplan report 7B --gpus 8 --gpu a100 -o plan.md", "its tables"),
            ("zeroplan report gpt2-xl --gpu t4 --grid wide", "more settings to try"),
        ),
        ("word", "seq", "global_batch", "stage", *CARDS, "output", "form", "chart", "grid", "target", "force", "quiet"),
    ),
    "compare": Page(
        (
            ("zeroplan compare 7B --gpu h100", "1 to 512 GPUs"),
            ("zeroplan compare 7B --gpu a100,h100 --gpus 8,16", "cards by numbers"),
            ("zeroplan compare 7B --gpus 8xA100 --stage 1,2,3", "stages"),
        ),
        ("word", "seq", "micro_batch", "stage", "checkpointing", "offload_optimizer", "config", *CARDS, *ANSWER),
    ),
    "matrix": Page(
        (
            ("zeroplan matrix --gpus 8 --gpu a100", "1.3B to 70B"),
            ("zeroplan matrix 7B,13B --gpus 16 --gpu h100", "sizes"),
            ("zeroplan matrix gpt2-xl,opt-1.3b --format csv", "models, as CSV"),
        ),
        ("word", "seq", "micro_batch", "checkpointing", "precision", *CARDS, "form", *ANSWER),
    ),
    "check": Page(
        (
            ("zeroplan check ds_config.json", "what to mend"),
            ("zeroplan check ds_config.json --diff", "what --fix would change"),
            ("zeroplan check ds_config.json --model gpt2 --gpu t4", "and the fit"),
        ),
        ("files", "reader", "trainer_args", "model", *CARDS, "select", "ignore", "form", "fix", "diff", "fail_on"),
    ),
    "diff": Page(
        (
            ("zeroplan diff a.json b.json", "what differs"),
            ("zeroplan diff a.json b.json --params 7B --gpus 8", "and in bytes"),
            ("zeroplan diff a.json b.json --params 7B --gpu a100", "and in seconds"),
        ),
        ("first", "second", "params", "model", "seq", "micro_batch", "checkpointing", *CARDS, *ANSWER),
    ),
    "explain": Page(
        (
            ("zeroplan explain 'optimizer states'", "a line of the tables"),
            ("zeroplan explain reduce_bucket_size", "a ds_config key"),
            ("zeroplan explain needed --params 7B --gpus 8", "with its values"),
        ),
        ("term", "params", "model", "seq", "stage", "gpus", "gpu", "json"),
    ),
    "trace": Page(
        (
            ("zeroplan trace gpt2", "writes gpt2.trace.json"),
            ("zeroplan trace gpt2 -o model.trace.json", "under another name"),
            ("zeroplan trace gpt2 -o model.trace.json --force", "again"),
        ),
        ("model", "images", "image_size", "image_tokens", "target_seq", "attention", "precision", "output", "force"),
    ),
    "verify": Page(
        (
            ("zeroplan verify gpt2 --gpus 8 --stage 2", "one rank of eight"),
            ("zeroplan verify gpt2 --gpus 8 --config ds_config.json", "a config"),
            ("zeroplan verify gpt2 --gpus 2 --stage 3 --seq 128 --real", "with real tensors"),
        ),
        ("word", "config", "seq", "micro_batch", "stage", "gpus", "real", "cuda", "save", *ANSWER),
    ),
    "observe": Page(
        (
            ("zeroplan observe run.log --params 7B --stage 3", "of a strategy"),
            ("zeroplan observe run.log --params 7B --config a.json", "of a config"),
            ("zeroplan observe run.log --params 7B --stage 2 --json", "for a program"),
        ),
        ("log", "steps", "params", "model", "config", "seq", "micro_batch", "stage", "gpus", *ANSWER),
    ),
    "calibrate": Page((
        ("zeroplan calibrate", "host, disk and GPUs"),
        ("zeroplan calibrate --quick", "in a hurry"),
        ("zeroplan calibrate --quick -o node.yaml", "then --cluster node.yaml"),
    )),
    "rules": Page((
        ("zeroplan rules", "all rules"),
        ("zeroplan rules --json", "for a program"),
        ("zeroplan explain ZP101", "one of them"),
    )),
    "schema": Page((
        ("zeroplan schema", "on the screen"),
        ("zeroplan schema -o ds_config.schema.json", "as a file"),
        ("zeroplan schema --of estimate", "of estimate --json"),
    )),
    "models": Page((
        ("zeroplan models", "all presets"),
        ("zeroplan models llama-3.1-8b", "every tensor of one model"),
        ("zeroplan models gpt2 --json", "for a program"),
    )),
    "gpus": Page((
        ("zeroplan gpus", "all cards"),
        ("zeroplan gpus --json", "for a program"),
        ("zeroplan estimate 7B --gpus 8xA100", "with one of them"),
    )),
    "clusters": Page((
        ("zeroplan clusters", "all nodes"),
        ("zeroplan clusters --json", "for a program"),
        ("zeroplan estimate 7B --cluster dgx-h100", "with one of them"),
    )),
}  # fmt: skip
