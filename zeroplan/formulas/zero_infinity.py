"""What section 3 of the ZeRO-Infinity paper counts of a transformer of L layers, trained in mixed precision."""

from __future__ import annotations

from zeroplan.arithmetic import ceil_div


def parameters(h: int, layers: int) -> int:
    """12·L·h^2 -- elements of the linear layers: 4·h^2 of attention and 8·h^2 of the MLP [ZeRO-Infinity Eq. 1]."""
    return 12 * layers * h**2


def model_states(h: int, layers: int) -> int:
    """240·L·h^2 -- at 20 bytes a parameter: itself and its gradient in 16 bit, gradient, master weight and Adam's two
    states in fp32 [ZeRO-Infinity Eq. 2].
    """
    return 240 * layers * h**2


def activation_checkpoints(b: int, s: int, h: int, layers: int, interval: int) -> int:
    """⌈2·b·s·h·L / ci⌉ -- the input of every ci-th layer, in 16 bit [ZeRO-Infinity Eq. 3]."""
    return ceil_div(2 * b * s * h * layers, interval)


def model_state_working_memory(h: int) -> int:
    """4·h·4·h -- the largest linear layer, from h to 4h, and its gradient, both in 16 bit [ZeRO-Infinity Eq. 4]."""
    return 4 * h * 4 * h


def activation_working_memory(b: int, s: int, h: int, a: int, interval: int) -> int:
    """b·s·ci·(16·h + 2·n·s) -- activations between two checkpoints, there before backward through them
    [ZeRO-Infinity Eq. 5].
    """
    return b * s * interval * (16 * h + 2 * a * s)
