"""Linear and convolution layers, tables: a class holds the parameters, ``functional`` computes.

Arguments, names of parameters and initial values are PyTorch's. Besides, each layer takes ``dtype`` (float32 unless
given) and ``rng``, a NumPy generator or a seed for its initial values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.trace.tensor import Parameter
from mlaot.nn import functional as F
from mlaot.nn import init
from mlaot.nn.arguments import Array, check_choice, check_spatial, tuple_of
from mlaot.nn.convolution import same_padding
from mlaot.nn.init import float_dtype
from mlaot.nn.module import Layer


def parameter(array: Any) -> Parameter:
    """A parameter that gets its name from where it is held."""
    return Parameter(None, array)


def _weight_and_bias(
    shape: Sequence[int], outputs: int | None, rng: init.Random, dtype: Any
) -> tuple[Parameter, Parameter | None]:
    """Uniform within ``1 / sqrt(inputs)``: what PyTorch gives linear and convolution layers."""
    source = init.generator(rng)
    bound = 1.0 / math.sqrt(init.fans(shape)[0])
    weight = parameter(init.uniform_(shape, -bound, bound, source, dtype))
    return weight, None if outputs is None else parameter(init.uniform_(outputs, -bound, bound, source, dtype))


class Linear(Layer):
    """``x w^T + b``."""

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, *, dtype: Any = None, rng: init.Random = None
    ) -> None:
        self.weight, self.bias = _weight_and_bias(
            (out_features, in_features), out_features if bias else None, rng, dtype
        )

    def forward(self, input: Array) -> Array:
        return F.linear(input, self.weight, self.bias)


class _Conv(Layer):
    n = 0
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
        return _weight_and_bias(shape, outputs if bias else None, rng, dtype)

    def forward(self, input: Array) -> Array:
        check_spatial(input, self.n, type(self).__name__)
        convolve = (F.conv1d, F.conv2d, F.conv3d)[self.n - 1]
        if self.padding_mode == "zeros":
            padding = self.padding
        else:
            input, padding = F.pad(input, self._around(), self.padding_mode), 0
        return convolve(input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)

    def _around(self) -> list[int]:
        """How far to pad each axis, in the order of ``functional.pad``."""
        if self.padding == "same":
            amounts = same_padding(self.kernel_size, tuple_of(self.dilation, self.n, "dilation"))
        elif self.padding == "valid":
            amounts = [(0, 0)] * self.n
        else:
            amounts = [(p, p) for p in tuple_of(self.padding, self.n, "padding")]
        return [side for pair in reversed(amounts) for side in pair]


class Conv1d(_Conv):
    """Convolution of [(n,) c, l]."""

    n = 1


class Conv2d(_Conv):
    """Convolution of [(n,) c, h, w]."""

    n = 2


class Conv3d(_Conv):
    """Convolution of [(n,) c, d, h, w]."""

    n = 3


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


class ConvTranspose1d(_ConvTranspose):
    """Transposed convolution of [(n,) c, l]."""

    n = 1


class ConvTranspose2d(_ConvTranspose):
    """Transposed convolution of [(n,) c, h, w]."""

    n = 2


class ConvTranspose3d(_ConvTranspose):
    """Transposed convolution of [(n,) c, d, h, w]."""

    n = 3


class Embedding(Layer):
    """A table of vectors, looked up by number; the row ``padding_idx`` is zeros and stays so.

    A number that is none of a row is an error where a caller gives it, and clamped where the model computes it.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        *,
        dtype: Any = None,
        rng: init.Random = None,
    ) -> None:
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise MlaotError(f"Embedding: padding_idx {padding_idx} is not the number of one of {num_embeddings} rows")
        table = init.normal_((num_embeddings, embedding_dim), rng=rng, dtype=dtype)
        if padding_idx is not None:
            table[padding_idx] = 0
        self.padding_idx, self.weight = padding_idx, parameter(table)

    def forward(self, input: Array) -> Array:
        return F.embedding(input, self.weight, self.padding_idx)


class PReLU(Layer):
    """``x``, or ``weight * x`` where negative: one slope, or one a channel."""

    def __init__(self, num_parameters: int = 1, init: float = 0.25, *, dtype: Any = None) -> None:
        self.weight = parameter(np.full(num_parameters, init, float_dtype(dtype)))

    def forward(self, input: Array) -> Array:
        return F.prelu(input, self.weight)
