"""Attention of onnxruntime's own domain, which its optimizer and its builders of language models write.

Axes are [batch, heads, time, size]. As in onnxruntime, ``mask_filter_value`` is added to masked scores, so that a query
that may attend to no key attends to all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

import mlaot.frontend.numpy as F
from mlaot.errors import MlaotError
from mlaot.onnx.importer import Use
from mlaot.onnx.ops.attention import attend, merge_heads, rotary_embedding, rotate, scores, split_heads
from mlaot.onnx.ops.microsoft import plus
from mlaot.onnx.ops.quantization import matmul_integer
from mlaot.onnx.registry import MICROSOFT, operator
from mlaot.onnx.values import Unsupported, extent_value, extents, is_fixed

FILTER = -10000.0  # what is added to the scores of what a mask hides, unless the node says
LOWEST = float(np.finfo(np.float32).min)


@operator("Attention", domain=MICROSOFT)
def attention(
    use: Use,
    x: Any,
    weights: Any,
    bias: Any = None,
    mask: Any = None,
    past: Any = None,
    added: Any = None,
    past_length: Any = None,
) -> Any:
    return _self_attention(use, plus(np.matmul(x, weights), bias), mask, past, added)


@operator("QAttention", domain=MICROSOFT)
def quantized_attention(
    use: Use,
    x: Any,
    weights: Any,
    bias: Any,
    scale: Any,
    weight_scale: Any,
    mask: Any = None,
    zero: Any = None,
    weight_zero: Any = None,
    past: Any = None,
) -> Any:
    product = F.astype(matmul_integer(x, weights, zero, weight_zero), np.float32) * (scale * weight_scale)
    return _self_attention(use, plus(product, bias), mask, past, None)


def _self_attention(use: Use, rows: Any, mask: Any, past: Any, added: Any) -> Any:
    """Compute self-attention of rows with queries, keys and values side by side."""
    _refuse(use, "past_present_share_buffer", "do_rotary")
    sizes = use.attribute("qkv_hidden_sizes") or [rows.shape[2] // 3] * 3
    q, k, v = (split_heads(part, _heads(use)) for part in _parts(rows, sizes, 2))
    k, v = _behind(past[0], k) if past is not None else k, _behind(past[1], v) if past is not None else v
    y, _ = _attention(use, q, k, v, mask, added)
    return y, np.stack([k, v]) if use.has(1) else None


def _refuse(use: Use, *names: str) -> None:
    """Raise an error for attributes that cannot be compiled."""
    wrong = [name for name in names if use.attribute(name, 0)]
    if wrong:
        raise Unsupported(f"it has the attribute {wrong[0]}; export the model without it")


def _heads(use: Use, name: str = "num_heads") -> int:
    heads: int = use.attribute(name, 0)
    if heads < 1:
        raise MlaotError(f"{name} must be positive, got {heads}")
    return heads


def _parts(x: Any, sizes: Sequence[int], axis: int) -> list[Any]:
    """Split an array of rows into parts of given sizes along an axis."""
    ends = list(accumulate(sizes))
    if x.shape[axis] != ends[-1]:
        raise MlaotError(f"{x.shape[axis]} columns are not parts of {list(sizes)}")
    before = (slice(None),) * axis
    return [x[(*before, slice(end - size, end))] for size, end in zip(sizes, ends, strict=True)]


def _behind(past: Any, new: Any) -> Any:
    """Append new values to earlier ones along the axis of time."""
    return np.concatenate([past, new], axis=2)


def _attention(use: Use, q: Any, k: Any, v: Any, mask: Any, added: Any) -> tuple[Any, Any]:
    """Return the heads' results side by side, and the scores."""
    x = plus(scores(q, k, use.attribute("scale", 0.0) or None), added)
    batch, _, rows, columns = x.shape
    hidden: Any = None
    if mask is not None:
        filler = np.float32(use.attribute("mask_filter_value", FILTER))
        hidden = np.where(_allowed(use, mask, batch, columns), np.float32(0), filler)
    if use.attribute("unidirectional", 0):
        place = np.expand_dims(F.arange(rows), 1) + (columns - rows)
        hidden = np.where(place >= F.arange(columns), np.float32(0) if hidden is None else hidden, LOWEST)
    x = plus(x, hidden)
    y = merge_heads(np.transpose(attend(F.softmax(x), v), (0, 2, 1, 3)))
    return F.astype(y, q.dtype), F.astype(x, q.dtype)


def _allowed(use: Use, mask: Any, batch: Any, columns: Any) -> Any:
    """Return a mask of the allowed keys from a mask of numbers, or from the ends and starts of keys."""
    if mask.ndim == 1:
        place = F.arange(columns)
        if mask.shape[0] == 2 * batch:
            end, start = np.reshape(mask[:batch], (-1, 1, 1, 1)), np.reshape(mask[batch:], (-1, 1, 1, 1))
            return (place < end) & (place >= start)
        use.settle(mask.shape[0], batch, "the number of ends of the mask")
        return place < np.reshape(mask, (-1, 1, 1, 1))
    if mask.ndim not in (2, 3):
        raise Unsupported(f"a mask of {mask.ndim} axes; those of 1, 2 and 3 can be compiled")
    return np.expand_dims(mask, 1 if mask.ndim == 3 else (1, 2)) > 0


@operator("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(
    use: Use,
    q: Any,
    k: Any = None,
    v: Any = None,
    bias: Any = None,
    mask: Any = None,
    added: Any = None,
    past_k: Any = None,
    past_v: Any = None,
    past_length: Any = None,
    indirection: Any = None,
) -> Any:
    if past_length is not None or indirection is not None:
        raise Unsupported("its keys and values lie in a shared buffer; export the model without it")
    heads = _heads(use)
    if q.ndim == 5:  # [batch, time, heads, 3, size]
        q, k, v = (_flat(q[:, :, :, i]) for i in range(3))
    elif k is not None and k.ndim == 5:
        k, v = (_flat(k[:, :, :, i]) for i in range(2))
    if k is None or v is None:
        raise MlaotError("it needs keys and values, or queries with them")
    is_split = k.ndim == 4  # keys and values of a cache, with axes of their own
    if bias is not None:
        sizes = [q.shape[2]] * 2
        own = _parts(bias, [*sizes, bias.shape[0] - sum(sizes)], 0)
        q, k, v = (x if is_split and i else x + part for i, (x, part) in enumerate(zip((q, k, v), own, strict=True)))
    q = split_heads(q, heads)
    k, v = (k, v) if is_split else (split_heads(k, heads), split_heads(v, heads))
    k, v = k if past_k is None else _behind(past_k, k), v if past_v is None else _behind(past_v, v)
    y, x = _attention(use, q, k, v, mask, added)
    return y, k, v, x


def _flat(x: Any) -> Any:
    return np.reshape(x, (*x.shape[:2], x.shape[2] * x.shape[3]))


@operator("RotaryEmbedding", domain=MICROSOFT)
def rotary_embedding_at(
    use: Use, x: Any, positions: Any, cos: Any, sin: Any, *, num_heads: int = 0, interleaved: bool = False
) -> Any:
    """Rotate by rows of the caches: those of ``positions``, or those after one position."""
    if positions.ndim == 1:
        positions = np.reshape(positions, (1, 1)) + F.arange(x.shape[-2] if x.ndim == 4 else x.shape[1])
    heads = num_heads or x.shape[2] // (2 * cos.shape[1])
    return rotary_embedding(use, x, cos, sin, positions, num_heads=heads, interleaved=interleaved)


@operator("MRotaryEmbedding", domain=MICROSOFT)
def rotary_embedding_of_three(
    use: Use, x: Any, positions: Any, cos: Any, sin: Any, *, num_heads: int = 0, interleaved: bool = False
) -> Any:
    """Rotate by rows of the caches, whose columns belong to three positions: in time, in height and in width."""
    sections = use.attribute("mrope_section", [])
    pairs = cos.shape[1]
    if len(sections) != 3 or sum(sections) != pairs:
        raise MlaotError(f"mrope_section must be three numbers whose sum is {pairs}, got {list(sections)}")
    which = np.repeat(np.arange(3), sections)
    if use.attribute("mrope_layout", 0):
        which = np.zeros(pairs, np.int64)
        for i in (1, 2):
            which[i : 3 * sections[i] : 3] = i

    def rows(cache: Any) -> Any:
        """Return [batch, time, pairs] of a cache, with each column at its position."""
        found = np.take(cache, positions, axis=0)
        return np.where(which == 0, found[0], np.where(which == 1, found[1], found[2]))

    heads = num_heads or x.shape[2] // (2 * pairs)
    split = _by_heads(x, heads) if x.ndim == 3 else np.transpose(x, (0, 2, 1, 3))
    y = rotate(split, rows(cos), rows(sin), interleaved)
    return merge_heads(y) if x.ndim == 3 else np.transpose(y, (0, 2, 1, 3))


REFUSED = ("sliding_window_cache", "kv_cache_bit_width")


@operator("GroupQueryAttention", domain=MICROSOFT)
def group_query_attention(
    use: Use,
    q: Any,
    k: Any,
    v: Any,
    past_k: Any,
    past_v: Any,
    lengths: Any,
    total: Any,
    cos: Any = None,
    sin: Any = None,
    positions: Any = None,
    added: Any = None,
    sink: Any = None,
    *others: Any,
) -> Any:
    """Compute attention with a cache of shared heads.

    ``lengths`` are the lengths of texts with the new tokens, minus 1, and ``total`` is the longest length.
    """
    _refuse(use, *REFUSED)
    if any(value is not None for value in others):
        raise Unsupported("its keys and values are quantized or normalized, or its queries padded; export it without")
    heads, groups = _heads(use), _heads(use, "kv_num_heads")
    if k is None:
        size = q.shape[2] // (heads + 2 * groups)
        q, k, v = _parts(q, [heads * size, groups * size, groups * size], 2)
    rows = q.shape[1]
    ends = np.reshape(F.astype(lengths, np.int64), (-1, 1)) + 1
    starts = np.maximum(ends - rows, 0)
    if use.attribute("do_rotary", 0):
        at = starts + F.arange(rows) if positions is None else positions
        waves = np.take(cos, at, axis=0), np.take(sin, at, axis=0), bool(use.attribute("rotary_interleaved", 0))
        q, k = (_flat(rotate(_by_heads(x, n), *waves)) for x, n in ((q, heads), (k, groups)))
    q, k, v = split_heads(q, heads), split_heads(k, groups), split_heads(v, groups)
    columns, capacity = _columns(use, past_k, rows, total)
    k, v = _placed(past_k, k, starts, capacity), _placed(past_v, v, starts, capacity)
    x = _capped(scores(q, k[:, :, :columns], use.attribute("scale", 0.0) or None), use.attribute("softcap", 0.0))
    x = plus(x, added)
    allowed = _window(use, np.expand_dims(starts, 1), np.expand_dims(ends, 1), rows, columns)
    weights = _softmax(np.where(allowed, x, -np.inf), sink, bool(use.attribute("smooth_softmax", 0) == 1))
    y = merge_heads(np.transpose(attend(weights, v[:, :, :columns]), (0, 2, 1, 3)))
    return F.astype(y, q.dtype), k, v, np.where(allowed, x, 0.0) if use.attribute("qk_output", 0) == 1 else weights


def _by_heads(x: Any, heads: int) -> Any:
    return np.reshape(x, (*x.shape[:2], heads, x.shape[2] // heads))


def _columns(use: Use, past: Any, rows: Any, total: Any) -> tuple[Any, Any]:
    """Return the number of keys that are read, and the room for keys: as the file declares, or both in sequence."""
    before, known, made = 0 if past is None else past.shape[2], extents(total), use.declared(1)
    longest = None if known is None else known.reshape(-1)[0]
    if longest is not None and is_fixed(int(longest) if isinstance(longest, np.integer) else longest, before):
        return int(longest), max(int(longest), before)
    if made is not None and past is not None and made.shape[2] == before:  # a buffer that is filled
        use.require(np.all(total <= extent_value(before)), f"the longest text must have at most {before} tokens")
        return before, before
    if longest is not None:
        use.settle(longest, before + rows, "the length of the longest text")
    else:
        use.require(
            np.all(np.equal(total, extent_value(before + rows))), f"the longest text must have {before + rows} tokens"
        )
    return before + rows, before + rows


def _placed(past: Any, new: Any, starts: Any, capacity: Any) -> Any:
    """Place new keys or values after the earlier ones of each text, and zeros after both."""
    batch, groups, rows, size = new.shape
    at = F.arange(capacity) - starts  # [batch, capacity]
    place = np.broadcast_to(
        np.reshape(np.clip(at, 0, rows - 1), (batch, 1, capacity, 1)), (batch, groups, capacity, size)
    )
    y = np.take_along_axis(new, place, axis=2)
    at = np.reshape(at, (batch, 1, capacity, 1))
    y = np.where(at < rows, y, F.astype(F.zeros((), dtype=np.float32), new.dtype))
    if past is None:
        return y
    rest = capacity - past.shape[2]
    if rest != 0:
        past = np.concatenate(
            [past, F.astype(F.zeros((batch, groups, rest, size), dtype=np.float32), past.dtype)], axis=2
        )
    return np.where(at < 0, past, y)


def _capped(x: Any, most: float) -> Any:
    return most * np.tanh(x / most) if most else x


def _window(use: Use, starts: Any, ends: Any, rows: Any, columns: Any) -> Any:
    """Return a mask of the keys that a query may attend to: [batch, 1, rows, columns]."""
    column = F.arange(columns)
    starts, ends = np.expand_dims(starts, -1), np.expand_dims(ends, -1)
    if not use.attribute("causal", 1):
        return column < ends
    row = starts + np.expand_dims(F.arange(rows), 1)
    size = use.attribute("local_window_size", -1)
    return (column <= row) & (column > row - size) if size > 0 else column <= row


def _softmax(x: Any, sink: Any, is_smooth: bool) -> Any:
    """Compute the softmax of the last axis. A sink is a further score of each head, without a value."""
    if sink is None and not is_smooth:
        return F.softmax(x)
    more = np.reshape(sink, (-1, 1, 1)) if sink is not None else np.float32(0)
    largest = np.maximum(np.max(x, axis=-1, keepdims=True), more)
    e = np.exp(x - largest)
    return e / (np.sum(e, axis=-1, keepdims=True) + np.exp(more - largest))
