"""Norms as the families write them: what is cast when decides which copies are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from zeroplan.architectures.module import FLOAT, Parameter, Unary
from zeroplan.autograd.elementwise import add_scalar, mul, pow_scalar, rsqrt, to
from zeroplan.autograd.norms import layer_norm
from zeroplan.autograd.reductions import mean
from zeroplan.autograd.tensor import Tensor

if TYPE_CHECKING:
    from zeroplan.architectures.forward_run import ForwardRun


class RMSNorm(Unary):
    transformers_class = "RMSNorm"
    saves_last = True
    liger_patches: ClassVar[bool] = True
    """Liger's kernel runs in its place, if Liger is asked for."""
    liger_in_place: ClassVar[bool] = True
    """And writes its input's gradient over its result's."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = Parameter(width)

    def forward(self, run: ForwardRun, x: Tensor) -> Tensor:
        if run.liger and self.liger_patches:
            from zeroplan.autograd import liger

            weight = run.parameter(self.weight)
            return liger.rms_norm(x, weight, in_place=self.liger_in_place, programs=run.programs)
        return self.written_out(run, x)

    def written_out(self, run: ForwardRun, x: Tensor) -> Tensor:
        """In fp32 over the root of the mean square, back in the model's dtype, times the weight."""
        wide = to(x, FLOAT)
        variance = mean(pow_scalar(wide))
        wide = mul(wide, rsqrt(add_scalar(variance)))
        return mul(run.parameter(self.weight), to(wide, x.width))


class LateCastNorm(RMSNorm):
    """The weight is applied in fp32, the cast comes last."""

    def written_out(self, run: ForwardRun, x: Tensor) -> Tensor:
        wide = to(x, FLOAT)
        variance = mean(pow_scalar(wide))
        wide = mul(wide, rsqrt(add_scalar(variance)))
        return to(mul(run.parameter(self.weight), wide), x.width)


class UnitOffsetNorm(RMSNorm):
    """The weight is one more than the parameter, all of it in fp32."""

    def written_out(self, run: ForwardRun, x: Tensor) -> Tensor:
        out = self.normed(to(x, FLOAT))
        out = mul(out, add_scalar(to(run.parameter(self.weight), FLOAT)))
        return to(out, x.width)

    def normed(self, x: Tensor) -> Tensor:
        return mul(x, rsqrt(add_scalar(mean(pow_scalar(x)))))


class SeparateUnitOffsetNorm(UnitOffsetNorm):
    """Between two norms a residual needs the result's gradient (Gemma 2 and 3)."""

    liger_in_place = False


class LayerNorm(Unary):
    """LayerNorm with its affine weight and bias, or without either (`affine=False`)."""

    transformers_class = "torch.nn.modules.normalization.LayerNorm"
    forward_order = ("bias", "weight")
    saves_last = True

    def __init__(self, width: int, *, affine: bool = True, bias: bool = True) -> None:
        super().__init__()
        if affine:
            self.weight = Parameter(width)
            if bias:
                self.bias = Parameter(width)

    def forward(self, run: ForwardRun, x: Tensor) -> Tensor:
        parts = [run.parameter(p) for p in self.parameters.values()]
        return layer_norm(x, *parts, on_cpu=run.on_cpu)
