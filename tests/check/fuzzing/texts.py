"""Texts that fuzzing begins with: the rules' examples, recorded draws, and public configs where they are."""

from __future__ import annotations

import json
from functools import cache

from tests.conftest import REFERENCES
from tests.corpus import FILES
from zeroplan.check.rules import RULES

RECORDED = REFERENCES / "check"
HAND_WRITTEN = (
    '{ // all\n  "train_batch_size": 8,\n\n  /* of\n   it */\n  "zero_optimization": {\n    "stage": 3,\n    "overlap_com": true,\n'
    '    "gradient_clipping": 1.0, # here\n    "reduce_bucket_size": "5e8"\n  },\r\n  "fp16": {"enabled": "true"},\n}\n',
    "train_batch_size: 8\nbf16: {\n  enabled: true\n}\nzero_optimization: {stage: 2\n overlap_comm: yes\n}\n",
    "{'train_batch_size': 8, 'bf16': {'enabled': true,}\n 'zero_optimization': {'cpu_offload': true, 'stage': 2}}",
    '{"train_batch_size": GBSIZE,\n "zero_optimization": {"stage": ZERO_STAGE,\n}}',
    '{"a": "b"}', "{}", "[]", "", "null", "{",
)  # fmt: skip
TRAINING = (
    "deepspeed: ds_config.json\nper_device_train_batch_size: 2\nlearning_rate: 1e-4\nbf16: true\n",
    "deepspeed:\n  train_batch_size: auto\n  zero_optimization: &z {stage: 3, overlap_comm: true}\n  fp16: {<<: *z}\nfp16: yes\n",
    "deepspeed: {zero_optimization: {stage: 2, cpu_offload: true}, steps_per_print: 1e3}\nmax_steps: .inf\n",
    "? deepspeed\n: ds_config.json\n? |\n  two\n  lines\n: >-\n  folded\n  text\n",
)


@cache
def examples(yaml):
    """Of the rules, by kind of file."""
    found = [one for rule in RULES.values() for one in (rule.bad, rule.good) if one.file.endswith(".yaml") == yaml]
    return tuple(dict.fromkeys(one.text for one in found))


@cache
def json_texts():
    drawn = json.loads((RECORDED / "draws.json").read_text(encoding="utf-8"))["draws"]
    changed = json.loads((RECORDED / "one_change.json").read_text(encoding="utf-8"))["rows"]
    configs = [config for _seed, config, _said in drawn[:600]] + [row["config"] for row in changed]
    indents = (None, 2, 4, "\t")
    written = [json.dumps(config, indent=indents[at % 4]) for at, config in enumerate(configs)]
    public = [path.read_text(encoding="utf-8") for path in FILES]
    return (*HAND_WRITTEN, *examples(False), *written, *public, *public)


@cache
def yaml_texts():
    launches = json.loads((RECORDED / "integration.json").read_text(encoding="utf-8"))["launch"]
    return (*examples(True), *TRAINING * 20, *(text for text, _config, _said in launches))


@cache
def argument_texts():
    """TrainingArguments, each with its file's name."""
    named = [dict(one.options)["trainer_args"] for rule in RULES.values() for one in (rule.bad, rule.good)
             if "trainer_args" in dict(one.options)]  # fmt: skip
    return tuple(tuple(one.split(": ", 1)) for one in named)


@cache
def read_configs():
    """What of the texts is JSON and an object."""
    found = []
    for text in json_texts():
        try:
            config = json.loads(text)
        except ValueError:
            continue
        if isinstance(config, dict):
            found.append(config)
    return tuple(found)
