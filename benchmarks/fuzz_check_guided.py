"""As benchmarks/fuzz_check.py, with mutations that atheris (libFuzzer) keeps where they reach code that none reached.

    pip install atheris; python -m benchmarks.fuzz_check_guided --inputs 100000 --first 0

atheris is not among the dependencies: it runs on Linux, under some versions of Python only (3.0.0: 3.11 to 3.13).
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from pathlib import Path
from typing import Any

import atheris

with atheris.instrument_imports(include=["zeroplan"]):
    from benchmarks.fuzz_check import Finds, folder_in_memory
    from tests.check.fuzzing import texts
    from tests.check.fuzzing.cases import BESIDES, CONFIG, READERS, Case
    from tests.check.fuzzing.mutations import TOKENS, YAML_TOKENS, mutated
    from tests.check.fuzzing.properties import FORMS

NAMES = (CONFIG, CONFIG, CONFIG, "accelerate.yaml")
HEAD = 3
"""Bytes before the file: its name, the options, who reads it and how findings are written."""
LARGEST = 6_000


def case(data: bytes) -> tuple[Case, str]:
    """The input of libFuzzer's bytes, and a form of output."""
    name, beside, reader = data[:HEAD].ljust(HEAD, b"\0")
    options = dict(BESIDES[beside % len(BESIDES)])
    if (found := READERS[reader % len(READERS)]) is not None:
        options["reader"] = found
    return Case(NAMES[name % len(NAMES)], data[HEAD:], options), FORMS[reader % len(FORMS)]


def beginnings() -> list[bytes]:
    """A quarter of the texts: libFuzzer runs each before it begins."""
    config, other = ([*dict.fromkeys(found)][::4] for found in (texts.json_texts(), texts.yaml_texts()))
    named = [(0, text) for text in config] + [(3, text) for text in other]
    return [bytes([name, at % 251, at % 241]) + text.encode("utf-8", "surrogatepass")
            for at, (name, text) in enumerate(named)]  # fmt: skip


def changed(data: bytes, most: int, seed: int) -> bytes:
    """As libFuzzer does half of the time, else as text."""
    rng = random.Random(seed)
    if rng.random() < 0.5:
        return bytes(atheris.Mutate(data, len(data)))[:most]
    text, tokens = data[HEAD:].decode("utf-8", "ignore"), YAML_TOKENS if data[:1] == b"\3" else TOKENS
    return (data[:HEAD].ljust(HEAD, b"\0") + mutated(rng, text, tokens).encode("utf-8", "surrogatepass"))[:most]


def main() -> None:
    """libFuzzer ends the process: with 1 when something was found."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--inputs", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=0, help="libFuzzer's seed")
    options = parser.parse_args()
    corpus = folder_in_memory()
    for at, data in enumerate(beginnings()):
        Path(corpus, f"{at:05}").write_bytes(data)
    os.chdir(folder_in_memory())
    finds = Finds()

    def one(data: bytes) -> None:
        finds.look(*case(data), "guided")
        if finds.inputs == options.inputs:
            print(finds.summary(), flush=True)
            os._exit(int(bool(finds.broken)))

    flags: list[Any] = [f"-seed={options.first + 1}", f"-max_len={LARGEST}", "-timeout=60", "-rss_limit_mb=1000"]
    atheris.Setup([sys.argv[0], *flags, corpus], one, custom_mutator=changed)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
