"""Linear maps, tables of vectors and learned slopes. A class holds the parameters, and ``functional`` computes.

Arguments, names of parameters and initial values are PyTorch's. All layers with parameters also take ``dtype``, which
is float32 by default. Layers with random initial values also take ``rng``, a NumPy generator or a seed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.nn import functional as F
from mlaot.nn import init
from mlaot.nn.arguments import Array
from mlaot.nn.init import float_dtype
from mlaot.nn.module import Layer, Parameter

__all__ = ["Bilinear", "Embedding", "EmbeddingBag", "Linear", "PReLU"]


def weight_and_bias(
    shape: Sequence[int], outputs: int | None, rng: init.Random, dtype: Any
) -> tuple[Parameter, Parameter | None]:
    """Draw a weight and a bias uniformly from ``-1 / sqrt(inputs)`` to ``1 / sqrt(inputs)``, as PyTorch does."""
    source = init.generator(rng)
    bound = 1.0 / math.sqrt(init.fans(shape)[0])
    weight = Parameter(init.uniform_(shape, -bound, bound, source, dtype))
    return weight, None if outputs is None else Parameter(init.uniform_(outputs, -bound, bound, source, dtype))


class Linear(Layer):
    """Affine map ``x w^T + b`` of x [.., in_features]: [.., out_features]."""

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, *, dtype: Any = None, rng: init.Random = None
    ) -> None:
        self.weight, self.bias = weight_and_bias(
            (out_features, in_features), out_features if bias else None, rng, dtype
        )

    def forward(self, input: Array) -> Array:
        return F.linear(input, self.weight, self.bias)


class Bilinear(Layer):
    """Bilinear map ``x1^T w x2 + b`` of x1 [.., in1_features] and x2 [.., in2_features]: [.., out_features]."""

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        *,
        dtype: Any = None,
        rng: init.Random = None,
    ) -> None:
        source, bound = init.generator(rng), 1.0 / math.sqrt(in1_features)
        shape = (out_features, in1_features, in2_features)
        self.weight = Parameter(init.uniform_(shape, -bound, bound, source, dtype))
        self.bias = Parameter(init.uniform_(out_features, -bound, bound, source, dtype)) if bias else None

    def forward(self, input1: Array, input2: Array) -> Array:
        return F.bilinear(input1, input2, self.weight, self.bias)


class Embedding(Layer):
    """Table of vectors [num_embeddings, embedding_dim], looked up by index. The row ``padding_idx`` is and stays zeros.

    An index out of range is an error if a caller passes it, and is clamped if the model computes it.
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
        self.padding_idx, self.weight = padding_idx, Parameter(table)

    def forward(self, input: Array) -> Array:
        return F.embedding(input, self.weight, self.padding_idx)


class EmbeddingBag(Layer):
    """Rows of a table [num_embeddings, embedding_dim], looked up and reduced by ``functional.embedding_bag``."""

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        mode: str = "mean",
        *,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        dtype: Any = None,
        rng: init.Random = None,
    ) -> None:
        table = Embedding(num_embeddings, embedding_dim, padding_idx, dtype=dtype, rng=rng)
        self.mode, self.include_last_offset, self.padding_idx = mode, include_last_offset, padding_idx
        self.weight = table.weight

    def forward(self, input: Array, offsets: Array | None = None, per_sample_weights: Array | None = None) -> Array:
        return F.embedding_bag(
            input,
            self.weight,
            offsets,
            mode=self.mode,
            per_sample_weights=per_sample_weights,
            include_last_offset=self.include_last_offset,
            padding_idx=self.padding_idx,
        )


class PReLU(Layer):
    """``x``, or ``weight * x`` where x is negative: one slope, or one for each channel (He et al., 2015)."""

    def __init__(self, num_parameters: int = 1, init: float = 0.25, *, dtype: Any = None) -> None:
        self.weight = Parameter(np.full(num_parameters, init, float_dtype(dtype)))

    def forward(self, input: Array) -> Array:
        return F.prelu(input, self.weight)
