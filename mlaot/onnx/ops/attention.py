"""Attention of several kinds, and operators used with it: rotary embeddings, and causal convolutions with a state.

float16 and bfloat16 are computed in float32 from the products on, and rounded once at the end. The definitions round in
between, which costs accuracy and time.
"""

from __future__ import annotations

import math
from functools import reduce
from typing import Any

import numpy as np

import mlaot.frontend.numpy as F
from mlaot.errors import MlaotError
from mlaot.frontend.trace import control
from mlaot.nn.functional.attention import _softmax
from mlaot.onnx.importer import Use
from mlaot.onnx.ops.shaping import pad_by
from mlaot.onnx.registry import operator
from mlaot.onnx.values import Unsupported, as_traced, constant_value, numpy_dtype

PREVIEW = "ai.onnx.preview"
PLACES = 256  # of a kernel that is a sum, written out


@operator("Attention")
def attention(
    use: Use,
    q: Any,
    k: Any,
    v: Any,
    mask: Any = None,
    past_k: Any = None,
    past_v: Any = None,
    lengths: Any = None,
    *,
    q_num_heads: int = 0,
    kv_num_heads: int = 0,
    scale: Any = None,
    softcap: float = 0.0,
) -> Any:
    is_flat, kind = q.ndim == 3, q.dtype
    if is_flat:
        if not q_num_heads or not kv_num_heads:
            raise MlaotError("inputs of three axes need q_num_heads and kv_num_heads")
        q, k, v = split_heads(q, q_num_heads), split_heads(k, kv_num_heads), split_heads(v, kv_num_heads)
    if past_k is not None and past_v is not None:
        k, v = np.concatenate([past_k, k], axis=2), np.concatenate([past_v, v], axis=2)
    raw = scores(q, k, scale)
    capped = softcap * np.tanh(raw / softcap) if softcap else raw
    biased = _mask(use, capped, mask, 0 if past_k is None else past_k.shape[2], lengths)
    weights = F.astype(_softmax(_to_precision(use, biased)), raw.dtype)
    y = F.astype(attend(weights, v), kind)
    products = (raw, capped, biased, weights)[use.attribute("qk_matmul_output_mode", 0)]
    return merge_heads(np.transpose(y, (0, 2, 1, 3))) if is_flat else y, k, v, F.astype(products, kind)


def split_heads(x: Any, heads: int) -> Any:
    """Reshape [batch, time, heads * size] to [batch, heads, time, size]."""
    batch, steps, width = x.shape
    if width % heads:
        raise MlaotError(f"{width} columns are not {heads} heads")
    return np.transpose(np.reshape(x, (batch, steps, heads, width // heads)), (0, 2, 1, 3))


def merge_heads(x: Any) -> Any:
    """Reshape [batch, time, heads, size] to [batch, time, heads * size]."""
    return np.reshape(x, (*x.shape[:2], x.shape[2] * x.shape[3]))


def _to_precision(use: Use, x: Any) -> Any:
    """Return scores in the dtype that the softmax is to have."""
    precision = use.attribute("softmax_precision")
    return x if precision is None else F.astype(x, numpy_dtype(precision))


def is_narrow(x: Any) -> bool:
    """Tell whether ``x`` is of a dtype that is computed in float32."""
    return str(x.dtype) in ("float16", "f16", "bfloat16", "bf16")


def wide(x: Any) -> Any:
    """Return ``x`` in the dtype to compute in."""
    return F.astype(x, np.float32) if is_narrow(x) else x


def scores(q: Any, k: Any, scale: float | None) -> Any:
    """Multiply queries by keys: [batch, heads, rows, columns]. Several heads of q may share a head of ``k``."""
    scale = 1.0 / math.sqrt(q.shape[-1]) if scale is None else scale
    if is_narrow(q):  # the definition rounds its root
        scale = float(F.astype(np.array(math.sqrt(scale), np.float32), q.dtype)) ** 2
    products = np.matmul(_fold(wide(q) * scale, k), np.swapaxes(wide(k), -1, -2))
    return np.reshape(products, (*q.shape[:-1], k.shape[-2]))


def attend(weights: Any, v: Any) -> Any:
    """Return the weighted sums of values. Several heads of the weights may share a head of ``v``."""
    sums = np.matmul(_fold(weights, v), F.astype(v, weights.dtype))
    return np.reshape(sums, (*weights.shape[:-1], v.shape[-1]))


def _fold(x: Any, shared: Any) -> Any:
    """Stack the rows of heads that share a key and value."""
    batch, heads, rows, size = x.shape
    groups = shared.shape[1]
    if heads == groups:
        return x
    if heads % groups:
        raise MlaotError(f"{heads} heads of queries cannot share {groups} of keys and values evenly")
    return np.reshape(x, (batch, groups, heads // groups * rows, size))


def _mask(use: Use, x: Any, mask: Any, before: Any, lengths: Any) -> Any:
    """Return scores with -inf where a query may not attend, plus an additive mask."""
    rows, columns = x.shape[-2:]
    allowed: list[Any] = []
    added = None
    if mask is not None:
        mask = _lengthen(use, mask, columns)
        numbers = constant_value(mask)
        if mask.dtype == np.bool_:
            allowed.append(mask)
        elif numbers is not None and np.isin(numbers, (0, -np.inf)).all():
            allowed.append(numbers == 0)
        else:
            added = F.astype(mask, x.dtype)
            allowed.append(added > -np.inf)  # so that a row of nothing else gives zeros, whatever its scores
    if lengths is not None:
        lengths = np.reshape(lengths, (-1, 1, 1, 1))
        before = lengths - rows
        allowed.append(F.arange(columns) < lengths)
    left, right = use.attribute("left_window_size", -1), use.attribute("right_window_size", -1)
    row, column = np.expand_dims(F.arange(rows), 1) + before, F.arange(columns)
    if use.attribute("is_causal", 0):
        allowed.append(row >= column)
    if left >= 0:
        allowed.append(row - left <= column)
    if right >= 0:
        allowed.append(row + right >= column)
    y = x if added is None else x + added
    allowed[1:] = sorted(allowed[1:], key=lambda a: constant_value(a) is None)
    return np.where(reduce(np.logical_and, allowed), y, -math.inf) if allowed else y


def _lengthen(use: Use, mask: Any, columns: Any) -> Any:
    """Extend a mask by missing columns, to which no query may attend. Opset 23 had no such masks."""
    have = mask.shape[-1]
    if use.opset < 24 or have == columns:
        return mask
    more = columns - have
    if not isinstance(more, int):
        raise Unsupported(f"a mask of {have} columns for {columns} keys; pin the dimensions in [..dims]")
    low, high = [0] * mask.ndim, [*[0] * (mask.ndim - 1), more]
    if mask.dtype != np.bool_:
        return pad_by(mask, low, high, "constant", np.array(-math.inf))
    return np.not_equal(pad_by(F.astype(mask, np.int8), low, high, "constant"), 0)


@operator("FlexAttention", domain=PREVIEW)
def flex_attention(use: Use, q: Any, k: Any, v: Any, *, scale: Any = None) -> Any:
    def modify(name: str, x: Any) -> Any:
        return x if use.attribute(name) is None else use.body(name)([x])[0]

    products = modify("score_mod", _to_precision(use, scores(q, k, scale)))
    weights = modify("prob_mod", F.softmax(products, axis=-1))
    return F.astype(attend(weights, v), q.dtype)


@operator("RotaryEmbedding")
def rotary_embedding(
    use: Use, x: Any, cos: Any, sin: Any, positions: Any = None, *, num_heads: int = 0, interleaved: bool = False
) -> Any:
    is_flat = x.ndim == 3
    if is_flat:
        if not num_heads:
            raise MlaotError("an input of three axes needs num_heads")
        x = np.reshape(x, (*x.shape[:2], num_heads, x.shape[2] // num_heads))
    else:
        x = np.transpose(x, (0, 2, 1, 3))  # [batch, time, heads, size]
    turned = use.attribute("rotary_embedding_dim", 0) or x.shape[-1]
    cos, sin = (a if positions is None else np.take(a, positions, axis=0) for a in (cos, sin))
    if cos.shape[-1] * 2 != turned:
        raise MlaotError(f"caches of {cos.shape[-1]} columns do not turn {turned} elements")
    y = rotate(x, cos, sin, interleaved)
    return merge_heads(y) if is_flat else np.transpose(y, (0, 2, 1, 3))


def rotate(x: Any, cos: Any, sin: Any, is_interleaved: bool) -> Any:
    """Rotate the first elements of [batch, time, heads, size]: as many pairs as ``cos`` [batch, time, pairs] has."""
    turned = 2 * cos.shape[-1]
    c, s = np.expand_dims(wide(cos), 2), np.expand_dims(wide(sin), 2)
    part, rest = wide(x[..., :turned]), x[..., turned:]
    if is_interleaved:
        a, b = part[..., 0::2], part[..., 1::2]
        y = np.reshape(np.stack([c * a - s * b, s * a + c * b], axis=-1), part.shape)
    else:
        a, b = part[..., : turned // 2], part[..., turned // 2 :]
        y = np.concatenate([c * a - s * b, s * a + c * b], axis=-1)
    y = F.astype(y, x.dtype)
    return np.concatenate([y, rest], axis=-1) if rest.shape[-1] else y


@operator("LinearAttention")
def linear_attention(
    use: Use, q: Any, k: Any, v: Any, past: Any = None, decay: Any = None, beta: Any = None, *, kv_num_heads: int = 1
) -> Any:
    """Compute attention by a state [batch, shared heads, key, value], which each step updates and reads."""
    kind, state_kind = q.dtype, q.dtype if past is None else past.dtype
    batch, steps = q.shape[:2]
    heads, rule = use.attribute("q_num_heads"), use.attribute("update_rule", "gated_delta")
    corrects, fades = rule in ("delta", "gated_delta"), rule in ("gated", "gated_delta")
    if (decay is not None) != fades or (beta is not None) != corrects:
        raise MlaotError(f"the rule {rule!r} does not fit the inputs")

    def over_time(x: Any, n: int) -> Any:
        """Reshape [batch, time, n * size] to [time, batch, n, size]."""
        return np.transpose(np.reshape(wide(x), (batch, steps, n, x.shape[2] // n)), (1, 0, 2, 3))

    q, k, v = over_time(q, heads), over_time(k, kv_num_heads), over_time(v, kv_num_heads)
    size, width = k.shape[-1], v.shape[-1]
    scale = use.attribute("scale", 0.0) or 1.0 / math.sqrt(size)
    q = np.reshape(q * scale, (steps, batch, kv_num_heads, heads // kv_num_heads, size))
    items = [q, k, v]
    if fades:
        items.append(np.exp(over_time(decay, kv_num_heads)))
    if corrects:
        items.append(over_time(beta, beta.shape[-1]))
    state = F.zeros((batch, kv_num_heads, size, width), dtype=q.dtype) if past is None else wide(past)

    def step(state: Any, now: Any) -> Any:
        q, k, v, *factors = now
        state = state * np.expand_dims(factors[0], -1) if fades else state
        if corrects:
            seen = np.matmul(np.expand_dims(k, -2), state)[..., 0, :]
            v = factors[-1] * (v - seen)
        state = state + np.expand_dims(k, -1) * np.expand_dims(v, -2)
        return state, np.matmul(q, state)

    if isinstance(steps, int) and steps == 1:
        state, y = step(state, [x[0] for x in items])
        y = np.expand_dims(y, 0)
    else:
        state, y = control.scan(step, as_traced(state), tuple(map(as_traced, items)))
    y = np.reshape(np.transpose(y, (1, 0, 2, 3, 4)), (batch, steps, heads * width))
    return F.astype(y, kind), F.astype(state, state_kind)


@operator("CausalConvWithState")
def causal_convolution(x: Any, weight: Any, bias: Any = None, past: Any = None, *, activation: str = "none") -> Any:
    """Convolve each channel with its own kernel: a sum over the few places of the kernel."""
    batch, channels, _ = x.shape
    kernel = weight.shape[2]
    if not isinstance(kernel, int) or kernel > PLACES:
        raise Unsupported(f"a kernel of {kernel} places, each of which is a product; {PLACES} can be compiled")
    past = F.astype(F.zeros((batch, channels, kernel - 1), dtype=np.float32), x.dtype) if past is None else past
    extended = np.concatenate([past, x], axis=2) if kernel > 1 else x
    last = extended.shape[2] - (kernel - 1)
    y = reduce(np.add, [wide(extended[:, :, i : last + i]) * wide(weight[:, 0, i : i + 1]) for i in range(kernel)])
    y = y if bias is None else y + wide(np.reshape(bias, (-1, 1)))
    return F.astype(F.silu(y) if activation in ("silu", "swish") else y, x.dtype), extended[:, :, last:]
