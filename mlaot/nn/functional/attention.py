"""Scaled dot-product attention (Vaswani et al., 2017).

Query [.., heads, l, e], key [.., heads, s, e], value [.., heads, s, v]. A query that may attend to no key gets zeros. A
key that ``is_causal`` or a boolean mask bars has the weight 0, whatever its score is; in PyTorch a score of nan stays
nan. As in PyTorch, a barred value that is infinite or nan may make the result nan.
"""

from __future__ import annotations

import math

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.numpy import arange, stop_gradient
from mlaot.nn.arguments import Array, as_like, check_broadcast, static
from mlaot.nn.functional.drawing import dropout

__all__ = ["scaled_dot_product_attention"]


def scaled_dot_product_attention(
    query: Array,
    key: Array,
    value: Array,
    attn_mask: Array | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Array:
    """Compute ``softmax(q k^T * scale + mask) v``: [.., heads, l, v].

    ``scale`` is ``1 / sqrt(e)`` by default. ``attn_mask`` must be broadcastable to [.., heads, l, s]. A boolean mask is
    True where a query may attend, and any other mask is added to the scores. With ``is_causal`` query i attends to keys
    0 to i. With ``enable_gqa`` key and value have fewer heads than the query, and neighbouring heads of the query share
    one.
    """
    if attn_mask is not None and is_causal:
        raise MlaotError("scaled_dot_product_attention: give attn_mask or is_causal=True, not both")
    weights = attention_weights(query, key, attn_mask, is_causal, scale, enable_gqa)
    return attend(dropout(weights, dropout_p), value, enable_gqa)


def attention_weights(
    query: Array,
    key: Array,
    attn_mask: Array | None,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
) -> Array:
    """Return the weight of each key for each query, after the softmax: [.., heads, l, s]."""
    factor = 1.0 / math.sqrt(static(query.shape[-1], "attention")) if scale is None else scale
    folded = _fold_heads(query, key, enable_gqa) * factor
    scores = folded @ np.swapaxes(key, -1, -2)
    scores = np.reshape(scores, (*query.shape[:-1], key.shape[-2]))
    if is_causal:
        scores = np.where(causal_mask(scores), scores, -math.inf)
    if attn_mask is None:
        return _softmax(scores)
    check_broadcast(attn_mask, scores.shape, "attn_mask")
    if attn_mask.dtype == np.bool_:
        return _softmax(np.where(attn_mask, scores, -math.inf))
    return _softmax(scores + as_like(attn_mask, scores))


def attend(weights: Array, value: Array, enable_gqa: bool) -> Array:
    """Return the weighted sums of the values: [.., heads, l, v]."""
    mixed = _fold_heads(weights, value, enable_gqa) @ value
    return np.reshape(mixed, (*weights.shape[:-1], value.shape[-1]))


def causal_mask(scores: Array) -> Array:
    """Return a mask [l, s] that is True where the key does not come after the query."""
    rows, columns = scores.shape[-2:]
    return np.expand_dims(arange(rows), 1) >= arange(columns)


def _fold_heads(x: Array, shared: Array, enable_gqa: bool) -> Array:
    """Stack the rows of the r heads that share a key and value: [.., shared heads, r * l, e]."""
    if not enable_gqa:
        return x
    heads, groups = static(x.shape[-3], "attention"), static(shared.shape[-3], "attention")
    if heads % groups:
        raise MlaotError(f"attention: {heads} heads of the query cannot share {groups} of key and value evenly")
    return np.reshape(x, (*x.shape[:-3], groups, heads // groups * x.shape[-2], x.shape[-1]))


def _softmax(scores: Array) -> Array:
    """Compute the softmax of the last axis; a row of nothing but ``-inf`` gives zeros."""
    largest = stop_gradient(np.max(scores, axis=-1, keepdims=True))
    e = np.exp(scores - np.where(largest == -math.inf, 0.0, largest))
    total = np.sum(e, axis=-1, keepdims=True)
    return e * (1.0 / np.where(total == 0, 1.0, total))
