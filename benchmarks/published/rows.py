"""A published row as it stands in a CSV file, and what its columns say, read without trust in their format."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).parents[2] / "tests" / "references" / "published" / "memory.csv"
FITS = FILE.with_name("fits.csv")

HELD, ALLOCATED, RESERVED, USED = "allocated", "max allocated", "reserved", "nvidia-smi"
LEVELS = (HELD, ALLOCATED, RESERVED, USED)
NUMBER = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?(?:e[0-9]+)?)\s*(?:$|\()", re.IGNORECASE)
LARGEST = 10.0**15
DEGREE = re.compile(r"\b(dp|tp|pp|sp|cp|ep)\s*=\s*([0-9]+)", re.IGNORECASE)


class UncomputableError(Exception):
    """A row that no form can compute; the text says why."""


@dataclass(frozen=True)
class Row:
    """`text` is the row; every property reads a column, None where it says nothing usable."""

    text: Mapping[str, str]

    def column(self, name: str) -> str:
        return (self.text.get(name) or "").strip()

    def lower(self, name: str) -> str:
        return self.column(name).lower()

    def number(self, name: str) -> float | None:
        match = NUMBER.match(self.column(name).replace(",", ""))
        return _sensible(match[1]) if match else None

    def count(self, name: str) -> int | None:
        value = self.number(name)
        return int(value) if value else None

    def wanted(self, name: str) -> int:
        value = self.count(name)
        if value is None:
            raise UncomputableError(f"{name} is {self.column(name)!r}: no number")
        return value

    @property
    def name(self) -> str:
        return self.column("id")

    @property
    def family(self) -> str:
        """What the id calls its source: all before the first dash, a model's size aside."""
        return re.sub(r"[0-9.]+B$", "", re.split(r"[-_]", self.name)[0]) or "?"

    @property
    def measured(self) -> float | None:
        """GiB per GPU."""
        return self.number("value_gib")

    @property
    def ran_out(self) -> bool:
        words = f"{self.lower('what_was_measured')} {self.lower('measured_value')}"
        return bool(re.search(r"\boom\b|out of memory", words))

    @property
    def stage(self) -> int:
        match = re.match(r"(?:zero|stage|[ _-])*([0-3])\b", self.lower("zero_stage"))
        if not match:
            raise UncomputableError(f"zero_stage is {self.column('zero_stage')!r}")
        return int(match[1])

    def degree(self, kind: str) -> int:
        found = {name.lower(): int(value) for name, value in DEGREE.findall(self.column("parallel"))}
        return found.get(kind) or 1

    @property
    def gpus(self) -> int:
        return self.count("gpus") or self.degree("dp") * self.degree("tp") * self.degree("pp") * self.degree("cp")

    @property
    def tp(self) -> int:
        return self.degree("tp")

    @property
    def pp(self) -> int:
        return self.degree("pp")

    @property
    def ranks(self) -> int:
        """Over how many the states are split: data parallel, and Ulysses or context parallel beside it."""
        stated = self.degree("dp") * self.degree("sp") * self.degree("cp")
        return stated if DEGREE.search(self.column("parallel")) else max(1, self.gpus // (self.tp * self.pp))

    @property
    def seq(self) -> int:
        return self.wanted("seq")

    @property
    def micro_batch(self) -> int:
        value = self.count("micro_batch")
        if value is None:
            if self.ran_out:
                return 1
            raise UncomputableError(f"micro_batch is {self.column('micro_batch')!r}: no number")
        return value

    @property
    def tokens(self) -> int:
        """Of one micro-batch on one GPU."""
        return self.micro_batch * self.seq // (self.degree("sp") * self.degree("cp"))

    @property
    def accumulation(self) -> int:
        return self.count("grad_accum") or 1

    @property
    def sequence_parallel(self) -> bool:
        """Megatron's, which splits norms and checkpoints over the tensor-parallel ranks."""
        words = f"{self.lower('parallel')} {self.lower('notes')} {self.lower('framework')}"
        return "sp=megatron" in words or "sequence parallel on" in words or "torchtitan" in words

    @property
    def checkpointing(self) -> str:
        words = self.lower("checkpointing")
        if re.match(r"full|on\b|yes|true|gradient checkpointing|recipe default \(on", words):
            return "full"
        return "selective" if words.startswith("selective") else "none"

    @property
    def flash(self) -> bool:
        words = self.lower("attention_impl")
        return "no flash" not in words and "eager" not in words

    @property
    def liger(self) -> bool:
        words = f"{self.lower('framework')} {self.lower('notes')}"
        return bool(re.search(r"liger", re.sub(r"\b(?:no|without) liger", "", words)))

    @property
    def offload(self) -> str:
        return re.sub(r"possible for.*", "", self.lower("offload"))

    @property
    def optimizer(self) -> str:
        """As zeroplan names it."""
        match = re.search(r"muon|8-?bit|adafactor|adagrad|lion|lamb|sgd", self.lower("optimizer"))
        if not match:
            return "adamw"
        return "adam8bit" if "bit" in match[0] else match[0]

    @property
    def offloads_optimizer(self) -> bool:
        """A bare device stands for the optimizer's."""
        return bool(re.search(r"optimizer|^(cpu|yes|true)\b", self.offload))

    @property
    def offloads_checkpoints(self) -> bool:
        return bool(re.search(r"activation checkpoints|activations|checkpoints\+chunks", self.offload))

    @property
    def rank(self) -> int | None:
        """The rank that was looked at, where the row names one."""
        match = re.search(r"\brank\s?([0-9]+)\b", self.lower("what_was_measured"))
        return int(match[1]) if match else None

    def version(self, package: str) -> tuple[int, ...] | None:
        match = re.search(rf"\b{package} v?([0-9]+(?:\.[0-9]+)+)", self.lower("framework"))
        return tuple(map(int, match[1].split("."))) if match else None

    def setting(self, pattern: str) -> int | None:
        """A size in elements that the notes state: `reduce_bucket 5e7`."""
        match = re.search(rf"(?:{pattern})[a-z_]*[ =:~]*~?([0-9][0-9.]*(?:e[0-9]+)?)", self.lower("notes"))
        size = _sensible(match[1].rstrip(".")) if match else None
        return None if size is None else int(size)

    @property
    def level(self) -> str:
        """Which of the four levels was measured."""
        words = self.lower("what_was_measured")
        if "only proves" in words:
            raise UncomputableError("a full card, which proves a fit and no level")
        if "reserved" in words or ("torchtitan" in self.lower("framework") and "peak memory" in words):
            return RESERVED
        if re.search(r"max.{0,12}(allocated|memalloc)|maxmemalloc|max_ma|peak active|peak allocated", words):
            return ALLOCATED
        if re.search(r"allocated|memalloc|\bma\b", words):
            return HELD
        if re.search(r"nvidia-smi|gpu memory|memory used|usage|hbm", words):
            return USED
        if "peak" in words:
            return ALLOCATED
        raise UncomputableError(f"what_was_measured is {words!r}: none of the levels")


def _sensible(text: str) -> float | None:
    value = float(text)
    return value if value < LARGEST else None


def read(path: Path = FILE) -> list[Row]:
    """The rows of a CSV file with the columns of tests/references/published/memory.csv."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        return [Row(dict(entry)) for entry in csv.DictReader(file)]
