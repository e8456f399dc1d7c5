"""Low-rank adapters as peft adds them to a model: the fields of its LoraConfig, under its names."""

from typing import NamedTuple

ALL_LINEAR = "all-linear"
NONE, ALL, LORA_ONLY = "none", "all", "lora_only"
BIASES = (NONE, ALL, LORA_ONLY)
"""Which biases of the model train beside the adapters."""
LARGEST_RANK = 1_000_000
"""No weight is as wide."""
CAUSAL_LM, SEQ_CLS, TOKEN_CLS = "CAUSAL_LM", "SEQ_CLS", "TOKEN_CLS"

LOW_RANK = (".lora_A.", ".lora_B.", ".lora_embedding_A.", ".lora_embedding_B.", ".lora_magnitude_vector.")
"""Parts of the names of the parameters of adapters."""
ADDED = (*LOW_RANK, ".modules_to_save.")
"""And of all that peft adds to a model."""


def is_added(name: str) -> bool:
    """Whether peft has added the parameter of this name; it trains then."""
    return any(part in name for part in ADDED)


class Adapter(NamedTuple):
    """peft.LoraConfig of peft 0.21.2, as far as it changes what is held, moved or computed; defaults are its own."""

    r: int = 8
    """Rank: of a weight [out, in] an adapter has [r, in] and [out, r]."""
    lora_alpha: float = 8
    """A product's scale times r, and no more than a number: but torch leaves out to multiply a gradient by 1."""
    target_modules: tuple[str, ...] | str = ALL_LINEAR
    """Modules by the ends of their names, or by a regular expression for whole names; ALL_LINEAR: every linear layer
    but the output's."""
    exclude_modules: tuple[str, ...] | str = ()
    """Of these, those that get no adapter."""
    target_parameters: tuple[str, ...] = ()
    """Parameters by the ends of their names, the module's among them: for what no linear layer holds, as experts."""
    layers_to_transform: tuple[int, ...] = ()
    """Numbers of the layers that alone get adapters; none: all."""
    layers_pattern: tuple[str, ...] = ()
    """Names of the lists of layers that these numbers are of."""
    rank_pattern: tuple[tuple[str, int], ...] = ()
    """Regular expressions for the ends of names, and the rank in place of r; the first that matches counts."""
    alpha_pattern: tuple[tuple[str, float], ...] = ()
    """The same for lora_alpha."""
    lora_dropout: float = 0.0
    bias: str = NONE
    lora_bias: bool = False
    """The second matrix of an adapter has a bias."""
    use_rslora: bool = False
    use_dora: bool = False
    """A magnitude for each row of the weight trains too (weight-decomposed adapters)."""
    modules_to_save: tuple[str, ...] = ()
    """Modules, by the ends of their names, of which a copy trains as a whole."""
    task_type: str | None = None
    autocast_adapter_dtype: bool = False
    """An argument of get_peft_model: adapters of a model in 16 bit are made in float32."""

    @property
    def targets_all_linear(self) -> bool:
        return isinstance(self.target_modules, str) and self.target_modules.lower() == ALL_LINEAR

    @property
    def saved_modules(self) -> tuple[str, ...]:
        """And those of a classifier's head, which its task adds (peft_model.py)."""
        heads = ("classifier", "score") if self.task_type in (SEQ_CLS, TOKEN_CLS) else ()
        return tuple(dict.fromkeys((*self.modules_to_save, *heads)))

    @property
    def method(self) -> str:
        """What people call it."""
        return "DoRA" if self.use_dora else "LoRA"
