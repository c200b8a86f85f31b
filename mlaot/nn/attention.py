"""Multi-head attention, with the projections of query, key, value and output."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.nn import functional as F
from mlaot.nn import init
from mlaot.nn.arguments import Array, as_like
from mlaot.nn.functional.attention import attend, attention_weights
from mlaot.nn.module import Layer, Parameter
from mlaot.nn.parametric import Linear

__all__ = ["MultiheadAttention"]


class MultiheadAttention(Layer):
    """Multi-head attention (Vaswani et al., 2017): query [l, n, e], key [s, n, kdim], value [s, n, vdim].

    With ``batch_first`` the shapes are [n, l, e], [n, s, kdim] and [n, s, vdim]. Without the axis n, all three are
    those of a single example. ``num_kv_heads`` gives key and value fewer heads than the query; neighbouring heads of
    the query then share one (Ainslie et al., 2023). As in PyTorch, True in a boolean mask bars a query from a key.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        *,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        num_kv_heads: int | None = None,
        dtype: Any = None,
        rng: init.Random = None,
    ) -> None:
        shared = num_kv_heads or num_heads
        if embed_dim % num_heads or num_heads % shared:
            raise MlaotError(
                f"MultiheadAttention: {embed_dim} features, {num_heads} heads and {shared} heads of key and value "
                "must divide one another"
            )
        self.embed_dim, self.num_heads, self.num_kv_heads = embed_dim, num_heads, shared
        self.dropout, self.batch_first = dropout, batch_first
        source = init.generator(rng)
        width = embed_dim // num_heads * shared
        inputs = (embed_dim, kdim or embed_dim, vdim or embed_dim)
        self.widths = (embed_dim, width, width)

        def weight(*shape: int) -> Any:
            return Parameter(init.xavier_uniform_(shape, rng=source, dtype=dtype))

        self.in_proj_weight = self.q_proj_weight = self.k_proj_weight = self.v_proj_weight = None
        if set(inputs) == {embed_dim}:
            self.in_proj_weight = weight(sum(self.widths), embed_dim)
        else:
            shapes = zip(self.widths, inputs, strict=True)
            self.q_proj_weight, self.k_proj_weight, self.v_proj_weight = [weight(*shape) for shape in shapes]
        self.in_proj_bias = Parameter(init.zeros_(sum(self.widths), dtype)) if bias else None
        self.out_proj = Linear(embed_dim, embed_dim, bias, dtype=dtype, rng=source)
        if bias:
            self.out_proj.bias = Parameter(init.zeros_(embed_dim, dtype))

    def forward(
        self,
        query: Array,
        key: Array,
        value: Array,
        key_padding_mask: Array | None = None,
        need_weights: bool = True,
        attn_mask: Array | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Array, Array | None]:
        """Return the outputs [l, n, e], and the attention weights or None.

        The weights are averaged over the heads, [n, l, s], unless ``average_attn_weights`` is False: [n, heads, l, s].
        Without ``need_weights`` they are None. ``key_padding_mask`` is [n, s], ``attn_mask`` [l, s] or [n * heads, l,
        s]; a mask of floating-point numbers is added to the scores.
        """
        swapped = query.ndim == 3 and not self.batch_first
        q, k, v = [np.swapaxes(x, 0, 1) if swapped else x for x in self._projected(query, key, value)]
        heads = (self.num_heads, self.num_kv_heads, self.num_kv_heads)
        q, k, v = [_split(x, count) for x, count in zip((q, k, v), heads, strict=True)]
        shared = self.num_kv_heads != self.num_heads
        mask = self._mask(attn_mask, key_padding_mask, q)
        weights = attention_weights(q, k, mask, is_causal and attn_mask is None, None, shared)
        weights = F.dropout(weights, self.dropout, self.training)
        mixed = np.swapaxes(attend(weights, v, shared), -3, -2)
        output = self.out_proj(np.reshape(mixed, (*mixed.shape[:-2], self.embed_dim)))
        output = np.swapaxes(output, 0, 1) if swapped else output
        if not need_weights:
            return output, None
        return output, np.mean(weights, axis=-3) if average_attn_weights else weights

    def _projected(self, query: Array, key: Array, value: Array) -> list[Array]:
        ends = [sum(self.widths[: i + 1]) for i in range(3)]
        rows = [slice(end - width, end) for end, width in zip(ends, self.widths, strict=True)]
        if self.in_proj_weight is not None and query is key and key is value:
            together = F.linear(query, self.in_proj_weight, self.in_proj_bias)
            return [together[..., row] for row in rows]
        if self.in_proj_weight is not None:
            matrices = [self.in_proj_weight[row] for row in rows]
        else:
            matrices = [self.q_proj_weight, self.k_proj_weight, self.v_proj_weight]
        biases = [None if self.in_proj_bias is None else self.in_proj_bias[row] for row in rows]
        return [F.linear(x, w, b) for x, w, b in zip((query, key, value), matrices, biases, strict=True)]

    def _mask(self, attn_mask: Array | None, key_padding_mask: Array | None, q: Array) -> Array | None:
        """Return both masks as one that is added to the scores [(n,) heads, l, s]."""
        total = None
        if attn_mask is not None:
            total = _additive(attn_mask, q)
            if attn_mask.ndim == 3 and q.ndim == 4:
                total = np.reshape(total, (q.shape[0], self.num_heads, *attn_mask.shape[1:]))
        if key_padding_mask is not None:
            padding = np.expand_dims(np.expand_dims(_additive(key_padding_mask, q), -2), -2)
            total = padding if total is None else total + padding
        return total


def _additive(mask: Array, like: Array) -> Array:
    return as_like(np.where(mask, -math.inf, 0.0) if mask.dtype == np.bool_ else mask, like)


def _split(x: Array, heads: int) -> Array:
    """Reshape [.., t, heads * d] to [.., heads, t, d]."""
    return np.swapaxes(np.reshape(x, (*x.shape[:-1], heads, x.shape[-1] // heads)), -3, -2)
