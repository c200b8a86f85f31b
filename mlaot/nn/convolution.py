"""Convolution layers and transposed convolution layers over one, two or three spatial axes; each holds its kernels."""

from __future__ import annotations

from typing import Any

from mlaot.errors import MlaotError
from mlaot.frontend.trace.tensor import Parameter
from mlaot.nn import functional as F
from mlaot.nn import init
from mlaot.nn.arguments import Array, check_choice, check_spatial, tuple_of
from mlaot.nn.functional.convolution import padding_amounts
from mlaot.nn.module import Layer
from mlaot.nn.parametric import weight_and_bias

__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]


class _Conv(Layer):
    n = 0  # spatial axes
    transposed = False

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        *,
        dtype: Any = None,
        rng: init.Random = None,
    ) -> None:
        check_choice(padding_mode, ("zeros", "reflect", "replicate", "circular"), "padding_mode")
        self.stride, self.padding, self.dilation, self.groups = stride, padding, dilation, groups
        self.padding_mode, self.kernel_size = padding_mode, tuple_of(kernel_size, self.n, "kernel_size")
        self.weight, self.bias = self._parameters(in_channels, out_channels, bias, rng, dtype)

    def _parameters(
        self, inputs: int, outputs: int, bias: bool, rng: init.Random, dtype: Any
    ) -> tuple[Parameter, Parameter | None]:
        if inputs % self.groups or outputs % self.groups:
            raise MlaotError(f"{inputs} and {outputs} channels do not divide into {self.groups} groups")
        first, second = (inputs, outputs) if self.transposed else (outputs, inputs)
        shape = (first, second // self.groups, *self.kernel_size)
        return weight_and_bias(shape, outputs if bias else None, rng, dtype)

    def forward(self, input: Array) -> Array:
        check_spatial(input, self.n, type(self).__name__)
        convolve = (F.conv1d, F.conv2d, F.conv3d)[self.n - 1]
        padding = self.padding
        if self.padding_mode != "zeros":
            amounts = padding_amounts(padding, self.kernel_size, self.dilation, "padding")
            last_first = [side for pair in reversed(amounts) for side in pair]
            input, padding = F.pad(input, last_first, self.padding_mode), 0
        return convolve(input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)


class Conv1d(_Conv, n=1):
    """Convolution of an input [(n,) c, l] with kernels [out, c / groups, k]: [(n,) out, positions]."""


class Conv2d(_Conv, n=2):
    """Convolution of an input [(n,) c, h, w] with kernels [out, c / groups, kh, kw]: [(n,) out, rows, columns]."""


class Conv3d(_Conv, n=3):
    """Convolution of an input [(n,) c, d, h, w] with kernels [out, c / groups, kd, kh, kw]."""


class _ConvTranspose(_Conv):
    transposed = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Any = 1,
        *,
        dtype: Any = None,
        rng: init.Random = None,
    ) -> None:
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, dtype=dtype, rng=rng
        )
        self.output_padding = output_padding

    def forward(self, input: Array) -> Array:
        convolve = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[self.n - 1]
        options = (self.stride, self.padding, self.output_padding, self.groups, self.dilation)
        return convolve(input, self.weight, self.bias, *options)


class ConvTranspose1d(_ConvTranspose, n=1):
    """Transposed convolution of an input [(n,) c, l] with kernels [c, out / groups, k]."""


class ConvTranspose2d(_ConvTranspose, n=2):
    """Transposed convolution of an input [(n,) c, h, w] with kernels [c, out / groups, kh, kw]."""


class ConvTranspose3d(_ConvTranspose, n=3):
    """Transposed convolution of an input [(n,) c, d, h, w] with kernels [c, out / groups, kd, kh, kw]."""
