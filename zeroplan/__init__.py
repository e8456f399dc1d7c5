"""zeroplan: plan a DeepSpeed training run before it starts.

>>> import zeroplan
>>> print(zeroplan.estimate(params="7B", gpus=8, stage=3).answer)
7B on 8 GPUs: each GPU needs ZeRO-3 29.55 GiB.
"""

__version__ = "0.1.0"

_API = {
    **dict.fromkeys(("diff", "estimate", "matrix", "recommend"), "zeroplan.api"), "Report": "zeroplan.results.report",
    "ZeroplanError": "zeroplan.errors",
}  # fmt: skip
"""Names that are imported when they are first used: `import zeroplan` stays as fast as an empty module."""
__all__ = ["Report", "ZeroplanError", "__version__", "diff", "estimate", "matrix", "recommend"]


def __getattr__(name: str) -> object:
    if name not in _API:
        raise AttributeError(f"module 'zeroplan' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_API[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *_API]
