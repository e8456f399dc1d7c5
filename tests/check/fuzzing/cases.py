"""One input of `zeroplan check`: a file, what is typed beside it, and how both are drawn."""

from __future__ import annotations

import json
import random
from typing import NamedTuple

import yaml

from tests.check.fuzzing import texts
from tests.check.fuzzing.mutations import (
    NAMES,
    TOKENS,
    VALUES,
    YAML_TOKENS,
    as_text,
    damaged,
    mutated,
    odd_config,
    odd_launch,
)
from tests.check.hjson_writing import written
from zeroplan.check.arguments import DEFAULTS

CONFIG = "ds_config.json"
READERS = ("deepspeed", "hf", "accelerate", "lightning", None)
BESIDES = (
    {}, {}, {"gpus": "1"}, {"gpus": "8"}, {"gpus": "3"}, {"accelerator": "cpu"}, {"client_optimizer": "no"},
    {"client_optimizer": "yes", "gpus": "4"}, {"version": "0.16.0"}, {"precision": "bf16"},
    {"optimizer": "adafactor", "precision": "fp16"},
)  # fmt: skip
PLANNED = (
    {"model": "llama-3.2-1b", "gpus": "8", "gpu_mem": "24"}, {"model": "gpt2", "gpus": "2", "gpu": "v100-32gb", "host_mem": "1GiB"},
    {"model": "mixtral-8x7b", "gpus": "2x8", "gpu_mem": "80"}, {"gpu": "a100-80gb", "gpus": "1"},
)  # fmt: skip


class Case(NamedTuple):
    name: str
    """Of the file, which says what kind it is."""
    content: bytes
    options: dict[str, str]
    arguments: tuple[str, bytes] | None = None
    """The file of --trainer-args."""
    beside: bytes | None = None
    """A ds_config.json that a YAML may name."""


def draw(seed):
    """The case of a seed."""
    rng = random.Random(seed)
    name, text, beside = _file(rng)
    content = text.encode("utf-8", "surrogatepass")
    if rng.random() < 0.05:
        content = damaged(rng, content)
    reader = rng.choice(READERS)
    options = {"reader": reader} if reader else {}
    options |= rng.choice(PLANNED) if rng.random() < 0.005 else rng.choice(BESIDES)
    arguments = _arguments(rng) if rng.random() < 0.05 else None
    return Case(name, content, options, arguments, None if beside is None else beside.encode("utf-8", "surrogatepass"))


def _file(rng):
    kind = rng.random()
    if kind < 0.0003:
        return CONFIG, _large(rng), None
    if kind < 0.34:
        return CONFIG, mutated(rng, rng.choice(texts.json_texts()), TOKENS, texts.json_texts()), None
    if kind < 0.66:
        return CONFIG, _structured(rng), None
    if kind < 0.70:
        return CONFIG, _tokens(rng, TOKENS), None
    beside = None if rng.random() < 0.2 else _structured(rng) if rng.random() < 0.5 else rng.choice(texts.json_texts())
    name = rng.choice(("accelerate.yaml", "train.yml"))
    if kind < 0.82:
        return name, mutated(rng, rng.choice(texts.yaml_texts()), YAML_TOKENS, texts.yaml_texts()), beside
    if kind < 0.85:
        return name, _tokens(rng, YAML_TOKENS), beside
    return name, _yaml(rng), beside


def _structured(rng):
    """A config with odd values, as a program writes it or as people do."""
    config = odd_config(rng, rng.choice(texts.read_configs()))
    text = written(rng, config) if rng.random() < 0.3 else json.dumps(config, indent=rng.choice((None, None, 2, "\t")),
                                                                      ensure_ascii=rng.random() < 0.7)  # fmt: skip
    return mutated(rng, text, TOKENS, ()) if rng.random() < 0.3 else text


def _large(rng):
    """Thousands of members, of a few kinds again and again or each another."""
    members = [json.dumps(odd_config(rng, {}))[1:-1] for _ in range(20)]
    members += ['"overlap_com": true', '"gradient_cliping": 1.0', "bf16: {'enabled': true,}", '"amp": {}', '"k%d": 1', "// c"]
    chosen = rng.sample(members, rng.randrange(1, 6))
    lines = [rng.choice(chosen).replace("%d", str(at)) for at in range(rng.choice((300, 1000, 3000)))]
    return ("{" + rng.choice((",\n", "\n", ",")).join(line for line in lines if line) + "}")[:400_000]


def _tokens(rng, tokens):
    named = [f'"{name}": ' for name in rng.sample(NAMES, 4)]
    return "".join(rng.choice((*tokens, *named, *named)) for _ in range(rng.randrange(40)))


def _yaml(rng):
    if rng.random() < 0.6:
        content = odd_launch(rng)
    else:
        inside = rng.choice((CONFIG, CONFIG, rng.choice(VALUES), odd_config(rng, rng.choice(texts.read_configs()))))
        content = {"deepspeed": inside} | _odd_arguments(rng)
    text = as_text(content) if rng.random() < 0.3 else _dumped(content, flow=rng.choice((True, False, None)))
    return mutated(rng, text, YAML_TOKENS, ()) if rng.random() < 0.3 else text


def _dumped(content, *, flow):
    """Half a pair of surrogates has no place in YAML."""
    try:
        return yaml.dump(content, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper), default_flow_style=flow, sort_keys=False)
    except UnicodeEncodeError:
        return as_text(content)


def _odd_arguments(rng):
    return {name: rng.choice((*VALUES, DEFAULTS[name])) for name in rng.sample(tuple(DEFAULTS), rng.randrange(5))}


def _arguments(rng):
    name, text = rng.choice(texts.argument_texts())
    if rng.random() < 0.5:
        text = as_text(_odd_arguments(rng))
    if rng.random() < 0.3:
        text = mutated(rng, text, YAML_TOKENS, ())
    return f"arguments{name[name.rindex('.') :]}", text.encode("utf-8", "surrogatepass")
