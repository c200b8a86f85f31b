"""Normalization layers, with a scale and a shift, and with running statistics where PyTorch has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.trace.tensor import Buffer
from mlaot.nn import functional as F
from mlaot.nn import init
from mlaot.nn.arguments import Array
from mlaot.nn.module import Layer, Parameter

__all__ = ["BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d"]
__all__ += ["GroupNorm", "LayerNorm", "RMSNorm"]


class _ChannelNorm(Layer):
    """A normalization with a scale and a shift for each channel, and running statistics."""

    ranks: tuple[int, ...] = ()

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        *,
        bias: bool = True,
        dtype: Any = None,
    ) -> None:
        self.eps, self.momentum = eps, momentum
        self.weight = Parameter(init.ones_(num_features, dtype)) if affine else None
        self.bias = Parameter(init.zeros_(num_features, dtype)) if affine and bias else None
        self.running_mean = Buffer(init.zeros_(num_features, dtype)) if track_running_stats else None
        self.running_var = Buffer(init.ones_(num_features, dtype)) if track_running_stats else None
        self.num_batches_tracked = Buffer(np.array(0, np.int64)) if track_running_stats else None

    def _check(self, input: Array) -> None:
        if input.ndim not in self.ranks:
            ranks = " or ".join(map(str, self.ranks))
            raise MlaotError(f"{type(self).__name__}: expected {ranks} dimensions, got {list(input.shape)}")


class _BatchNorm(_ChannelNorm):
    def forward(self, input: Array) -> Array:
        self._check(input)
        by_batch = self.training or self.running_mean is None
        statistics = (self.running_mean, self.running_var)
        return F.batch_norm(input, *statistics, self.weight, self.bias, by_batch, self._rate(input), self.eps)

    def _rate(self, input: Array) -> Any:
        """Return the weight of a new value in a running statistic.

        With momentum None all values so far weigh the same.
        """
        if self.num_batches_tracked is None or not self.training:
            return self.momentum
        count = self.num_batches_tracked + 1
        self.num_batches_tracked.assign(count)
        return 1.0 / count.astype(input.dtype) if self.momentum is None else self.momentum


class BatchNorm1d(_BatchNorm, ranks=(2, 3)):
    """Batch normalization of [n, c] or [n, c, l]."""


class BatchNorm2d(_BatchNorm, ranks=(4,)):
    """Batch normalization of [n, c, h, w]."""


class BatchNorm3d(_BatchNorm, ranks=(5,)):
    """Batch normalization of [n, c, d, h, w]."""


class _InstanceNorm(_ChannelNorm):
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        *,
        bias: bool = True,
        dtype: Any = None,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, bias=bias, dtype=dtype)

    def forward(self, input: Array) -> Array:
        self._check(input)
        if input.ndim == self.ranks[0]:  # one example
            return self.forward(np.expand_dims(input, 0))[0]
        by_input = self.training or self.running_mean is None
        momentum = 0.0 if self.momentum is None else self.momentum
        statistics = (self.running_mean, self.running_var)
        return F.instance_norm(input, *statistics, self.weight, self.bias, by_input, momentum, self.eps)


class InstanceNorm1d(_InstanceNorm, ranks=(2, 3)):
    """Instance normalization of [(n,) c, l]."""


class InstanceNorm2d(_InstanceNorm, ranks=(3, 4)):
    """Instance normalization of [(n,) c, h, w]."""


class InstanceNorm3d(_InstanceNorm, ranks=(4, 5)):
    """Instance normalization of [(n,) c, d, h, w]."""


class LayerNorm(Layer):
    """Layer normalization over the last axes, whose sizes are ``normalized_shape`` (Ba et al., 2016)."""

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        *,
        dtype: Any = None,
    ) -> None:
        self.normalized_shape, self.eps = normalized_shape, eps
        self.weight = Parameter(init.ones_(normalized_shape, dtype)) if elementwise_affine else None
        self.bias = Parameter(init.zeros_(normalized_shape, dtype)) if elementwise_affine and bias else None

    def forward(self, input: Array) -> Array:
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)


class RMSNorm(Layer):
    """Division by the root of the mean square over the last axes (Zhang and Sennrich, 2019)."""

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        *,
        dtype: Any = None,
    ) -> None:
        self.normalized_shape, self.eps = normalized_shape, eps
        self.weight = Parameter(init.ones_(normalized_shape, dtype)) if elementwise_affine else None

    def forward(self, input: Array) -> Array:
        return F.rms_norm(input, self.normalized_shape, self.weight, self.eps)


class GroupNorm(Layer):
    """Normalization of ``num_groups`` groups of channels of [n, c, ..] (Wu and He, 2018)."""

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        *,
        bias: bool = True,
        dtype: Any = None,
    ) -> None:
        if num_channels % num_groups:
            raise MlaotError(f"GroupNorm: {num_channels} channels do not divide into {num_groups} groups")
        self.num_groups, self.eps = num_groups, eps
        self.weight = Parameter(init.ones_(num_channels, dtype)) if affine else None
        self.bias = Parameter(init.zeros_(num_channels, dtype)) if affine and bias else None

    def forward(self, input: Array) -> Array:
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)
