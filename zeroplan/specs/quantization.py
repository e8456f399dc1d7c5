"""Weights that bitsandbytes holds in 4 or 8 bit, as transformers' BitsAndBytesConfig asks for them."""

from typing import NamedTuple

NF4, FP4, INT8 = "nf4", "fp4", "int8"
KINDS = (NF4, FP4, INT8)
STORAGES = {"uint8": 1, "bf16": 2, "fp16": 2, "fp32": 4}
"""Bytes of an element of the tensors that hold packed weights (bnb_4bit_quant_storage)."""
BLOCK, OUTER_BLOCK = 64, 256
"""Weights that share a scale, and scales that share one where these are quantized again (bitsandbytes 0.50.2)."""


class Quantization(NamedTuple):
    """Fields of transformers.BitsAndBytesConfig, as far as they change a number."""

    kind: str = NF4
    """bnb_4bit_quant_type, or int8 for load_in_8bit."""
    double: bool = False
    """bnb_4bit_use_double_quant: scales are quantized too."""
    storage: str = ""
    """bnb_4bit_quant_storage: one of STORAGES; empty for the training's own precision, of 16 bit."""
    compute: str = ""
    """bnb_4bit_compute_dtype as a precision; empty for the training's own."""
    skipped: tuple[str, ...] = ()
    """llm_int8_skip_modules: ends of names that stay, in place of the output's and tied ones."""

    @property
    def storage_bytes(self) -> int:
        return 1 if self.kind == INT8 else STORAGES[self.storage or "bf16"]

    @property
    def stored_dtype(self) -> str:
        """Dtype of the tensors that hold packed weights, as torch names it; empty for the training precision's."""
        return "int8" if self.kind == INT8 else {"uint8": "uint8", "fp32": "float32"}.get(self.storage, "")
