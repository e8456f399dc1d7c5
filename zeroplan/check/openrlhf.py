"""The ds_config that OpenRLHF makes of the options of its commands (0.11 utils/deepspeed/deepspeed_utils.py:
get_train_ds_config; names without a section are those of releases before 0.10.2).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from zeroplan.check.document import Document, Member, ValueNode
from zeroplan.check.launch_options import value_of
from zeroplan.check.shell_variables import Word
from zeroplan.releases import number

TRAINS = re.compile(r"(?:^|[./])train_(?:sft|dpo|rm|kto|kd|prm|(ppo_ray))(?:\.py)?$")
"""Modules, and scripts of older releases, that `deepspeed` starts; train_ppo_ray starts its own ranks on Ray."""
NODES, PER_NODE = ("actor_num_nodes", "actor.num_nodes"), ("actor_num_gpus_per_node", "actor.num_gpus_per_node")
ENGINES = ("vllm_num_engines", "vllm.num_engines")
OF_ENGINE = ("vllm_tensor_parallel_size", "vllm.tensor_parallel_size")
COLOCATED, ASYNC = ("colocate_all_models", "train.colocate_all"), ("async_train", "train.async_enable")
USUAL_RANKS = 8
SECTIONED = "0.10.2"
"""The release whose options have a section."""
STAGE, MICRO_BATCH = ("zero_stage", "ds.zero_stage"), ("micro_train_batch_size", "train.micro_batch_size")
BATCH, CLIPPING = ("train_batch_size", "train.batch_size"), ("max_norm",)
OFFLOAD, PARTITION = ("adam_offload", "ds.adam_offload"), ("zpg", "ds.zpg")
SHARED = (("ring_attn_size", "ds.ring_attn_size"), ("ds_tensor_parallel_size", "ds.tensor_parallel_size"))
"""Ranks that share a batch, which the batch size is multiplied by."""
HALF, TYPE = ("bf16",), ("param_dtype", "ds.param_dtype")
OPTIONS = {
    "zero_optimization.stage": STAGE, "train_micro_batch_size_per_gpu": MICRO_BATCH, "train_batch_size": BATCH,
    "zero_optimization.zero_hpz_partition_size": PARTITION, "gradient_clipping": (*CLIPPING, *CLIPPING),
}  # fmt: skip
"""By the key that each becomes: the option before 0.10.2, and since."""
USUAL_STAGE = 2
DYNAMIC = ("use_dynamic_batch", "train.dynamic_batch_enable")


def of_options(document: Document, script: Word | None, stated: Sequence[tuple[str, Word]]) -> OpenRLHF | None:
    """The options of one of its commands, by its module, or by its name and an option that hardly another has; None
    for another script, and where no line sets a value that bears on the config.
    """
    if script is None or TRAINS.search(script.text or "") is None:
        return None
    options = OpenRLHF(document, script, stated)
    is_its = (script.text or "").startswith("openrlhf.") or MICRO_BATCH[0] in options.stated
    return options if is_its and options.is_known else None


class OpenRLHF:
    """Its options, and what each becomes."""

    def __init__(self, document: Document, script: Word, stated: Sequence[tuple[str, Word]]) -> None:
        self.document, self.script = document, script
        self.stated = {name.lstrip("-"): word for name, word in stated}

    @property
    def is_by_ray(self) -> bool:
        """Whether it starts its own ranks."""
        match = TRAINS.search(self.script.text or "")
        return match is not None and match[1] is not None

    @property
    def ranks(self) -> int | None:
        """Those of the actor, which `train_ppo_ray` starts (cli/train_ppo_ray.py: 1 node of 8)."""
        several = [self.number(NODES, 1), self.number(PER_NODE, USUAL_RANKS)]
        return None if None in several else math.prod(one for one in several if one is not None)

    def colocated(self) -> tuple[int, int] | None:
        """Ranks of the actor, and those of vLLM's engines where they are to have the same GPUs: OpenRLHF stops where
        they differ (0.11 cli/train_ppo_ray.py:train).
        """
        engines, each = self.number(ENGINES, 0), self.number(OF_ENGINE, 1)
        together = self._value(COLOCATED) is True and self._value(ASYNC) is not True
        if not self.is_by_ray or not together or not engines or not each or self.ranks is None:
            return None
        return self.ranks, engines * each

    def named_otherwise(self, release: str | None) -> tuple[str, str] | None:
        """An option by the name of another release, and its name in this one; None: the newest."""
        is_older = release is not None and number(release) < number(SECTIONED)
        was, now = (1, 0) if is_older else (0, 1)
        several = (STAGE, NODES, PER_NODE, ENGINES, OF_ENGINE, COLOCATED, MICRO_BATCH, BATCH, OFFLOAD, PARTITION)
        return next(((names[was], names[now]) for names in several if names[was] in self.stated), None)

    def number(self, names: Sequence[str], usual: int) -> int | None:
        """A whole number that an option states; None for what is none, or not known."""
        stated = next((self.stated[name] for name in names if name in self.stated), None)
        value = usual if stated is None else value_of(stated.text or "")
        return value if type(value) is int else None

    @property
    def is_known(self) -> bool:
        """Whether lines set all values that bear on the config."""
        bearing = {*STAGE, *MICRO_BATCH, *BATCH, *CLIPPING, *OFFLOAD, *PARTITION, *HALF, *TYPE, *SHARED[0], *SHARED[1]}
        return all(word.text is not None for name, word in self.stated.items() if name in bearing)

    def config(self) -> Document:
        """The config, each key at its option."""
        zero = [self._member("stage", STAGE, USUAL_STAGE)]
        if self._value(OFFLOAD) is True:
            zero.append(self._section("offload_optimizer", [self._member("device", OFFLOAD, "cpu", value="cpu")]))
        if self._value(PARTITION) is not None:
            zero.append(self._member("zero_hpz_partition_size", PARTITION, 1))
        members = [self._section("zero_optimization", zero), *self._precision(), *self._batch()]
        if self._value(CLIPPING) is not None:
            members.append(self._member("gradient_clipping", CLIPPING, 1.0))
        start, end = self.script.start, self.script.end
        return Document(self.document.name, self.document.text, ValueNode(start, end, members=members))

    def option(self, path: tuple[str, ...]) -> str:
        """The option that a key is made of, as the line or its release spells it; "" for a key of none."""
        names = OPTIONS.get(".".join(path), ())
        usual = f"--{names[self._is_sectioned()]}" if names else ""
        return next((f"--{name}" for name in names if name in self.stated), usual)

    def _precision(self) -> list[Member]:
        kind = self._value(TYPE) or ("bf16" if self._value(HALF) is True or self._is_sectioned() else None)
        if kind not in ("bf16", "fp16"):
            return []
        names = TYPE if self._value(TYPE) else HALF
        return [self._section(str(kind), [self._member("enabled", names, True, value=True)])]

    def _batch(self) -> list[Member]:
        """Both sizes where both are stated, else none: the defaults differ between commands and releases."""
        micro_batch, batch = self._value(MICRO_BATCH), self._value(BATCH)
        if type(micro_batch) is not int or type(batch) is not int or self._value(DYNAMIC) is True:
            return []
        for names in SHARED:
            shared = self._value(names)
            batch *= shared if isinstance(shared, int) else 1
        return [self._member("train_micro_batch_size_per_gpu", MICRO_BATCH, micro_batch),
                self._member("train_batch_size", BATCH, batch, value=batch)]  # fmt: skip

    def _is_sectioned(self) -> bool:
        """Whether the options are those since 0.10.2, whose usual type is bf16."""
        return any("." in name for name in self.stated)

    def _value(self, names: Sequence[str]) -> Any:
        word = next((self.stated[name] for name in names if name in self.stated), None)
        return None if word is None else value_of(word.text or "")

    def _member(self, name: str, names: Sequence[str], usual: Any, value: Any = None) -> Member:
        word = next((self.stated[one] for one in names if one in self.stated), self.script)
        stated = self._value(names) if value is None else value
        scalar = usual if stated is None else stated
        return Member(name, word.start, word.end, ValueNode(word.start, word.end, scalar=scalar))

    def _section(self, name: str, members: list[Member]) -> Member:
        start, end = members[0].start, members[-1].end
        return Member(name, start, end, ValueNode(start, end, members=members))
