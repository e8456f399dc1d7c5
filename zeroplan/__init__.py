"""zeroplan: plan a DeepSpeed training run before it starts."""

__version__ = "0.1.0"
