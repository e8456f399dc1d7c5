"""activation_checkpointing as deepspeed.checkpointing.configure reads it (runtime/activation_checkpointing)."""

from __future__ import annotations

from zeroplan.deepspeed.facts import Facts
from zeroplan.specs.checkpointing import ActivationCheckpointing

SECTION = "activation_checkpointing"


def activation_checkpointing(facts: Facts) -> dict[str, ActivationCheckpointing]:
    """The field of `Strategy`: a switch is on for whatever Python takes for true.

    synchronize_checkpoint_boundary and profile hold and move nothing.
    """
    contiguous = bool(facts.stated(f"{SECTION}.contiguous_memory_optimization"))
    settings = ActivationCheckpointing(
        partitions=bool(facts.stated(f"{SECTION}.partition_activations")),
        on_host=bool(facts.stated(f"{SECTION}.cpu_checkpointing")),
        contiguous=contiguous,
        number=facts(f"{SECTION}.number_checkpoints") if contiguous else None,
    )
    return {SECTION: settings} if any(settings) else {}
