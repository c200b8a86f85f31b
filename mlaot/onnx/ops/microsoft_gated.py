"""Operators of onnxruntime's own domain for newer language models: gates, linear attention, mixtures of experts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend import numpy as F
from mlaot.onnx.importer import Use
from mlaot.onnx.ops.attention import causal_convolution, linear_attention, wide
from mlaot.onnx.ops.microsoft_layers import by_root, halves, swiglu
from mlaot.onnx.registry import MICROSOFT, Function, operator, operators
from mlaot.onnx.values import Unsupported

GATES = {"silu": F.silu, "swish": F.silu, "sigmoid": F.sigmoid}


@operator("GatedRMSNorm", domain=MICROSOFT)
def gated_rms_norm(x: Any, scale: Any, gate: Any, *, activation: str = "silu", epsilon: float = 1e-5) -> Any:
    """Normalize parts of the last axis that are as long as the scale, and multiply by the gate."""
    if activation not in GATES:
        raise MlaotError(f"unknown activation {activation!r}; known are {', '.join(GATES)}")
    return F.astype(
        _of_parts(x, scale, x.shape[-1] // scale.shape[0], epsilon) * GATES[activation](wide(gate)), x.dtype
    )


def _of_parts(x: Any, scale: Any, count: int, epsilon: float) -> Any:
    """Normalize each of the parts of the last axis."""
    if count < 1 or x.shape[-1] % count:
        raise MlaotError(f"{x.shape[-1]} numbers are not {count} equal parts")
    parts = np.reshape(wide(x), (*x.shape[:-1], count, x.shape[-1] // count))
    y, _ = by_root(parts, (parts.ndim - 1,), epsilon)
    if scale is not None:
        shape = scale.shape if math.prod(scale.shape) == parts.shape[-1] else parts.shape[-2:]
        y = y * np.reshape(wide(scale), shape)
    return np.reshape(y, x.shape)


@operator("BranchwiseRMSNorm", domain=MICROSOFT)
def branchwise_rms_norm(x: Any, scale: Any = None, *, num_branches: int = 0, epsilon: float = 1e-5) -> Any:
    if num_branches:
        return F.astype(_of_parts(x, scale, num_branches, epsilon), x.dtype)
    flat = np.reshape(x, (*x.shape[:-2], x.shape[-2] * x.shape[-1]))
    return np.reshape(F.astype(_of_parts(flat, scale, x.shape[-2], epsilon), x.dtype), x.shape)


def _gated_add(x: Any, y: Any, gate: Any, weight: Any = None) -> Any:
    if weight is not None:
        raise Unsupported("a gate that is computed of a weight; onnxruntime has it on CUDA only")
    return x + y * gate


def _decay(a: Any, bias: Any, scale: Any, b: Any = None) -> Any:
    """Return the decay of a state, as a logarithm, and the rate of its update."""
    return F.astype(scale * F.softplus(wide(a) + bias), a.dtype), None if b is None else F.sigmoid(b)


operators({"GatedAdd": _gated_add, "LinearAttentionGate": _decay}, domain=MICROSOFT)


def _only(use: Use, **defaults: Any) -> None:
    """Raise an error for attributes beyond onnxruntime's first version of an operator."""
    for name, value in defaults.items():
        if use.attribute(name, value) != value:
            raise Unsupported(f"its attribute {name} is {use.attribute(name)}; {value} can be compiled")


@operator("LinearAttention", domain=MICROSOFT)
def linear_attention_of(use: Use, *inputs: Any) -> Any:
    _only(use, state_window=0)
    if use.attribute("kv_num_heads", 1) > use.attribute("q_num_heads", 1):
        raise Unsupported("heads of keys that share one of queries; repeat the queries")
    return use.call(linear_attention, *inputs)


@operator("CausalConvWithState", domain=MICROSOFT)
def causal_convolution_of(use: Use, *inputs: Any) -> Any:
    _only(use, ndim=1, dilation=1, channels_last=0, state_window=0, state_length=0, input_channels=0)
    return use.call(causal_convolution, *inputs)


@operator("MoE", domain=MICROSOFT)
def mixture_of_experts(
    use: Use,
    x: Any,
    router: Any,
    first: Any,
    first_bias: Any,
    second: Any,
    second_bias: Any = None,
    third: Any = None,
    third_bias: Any = None,
    *,
    k: int = 1,
    normalize_routing_weights: bool = False,
    activation_type: str = "relu",
) -> Any:
    """Return the weighted sum of the ``k`` likeliest experts of each row.

    All experts are computed; others have weight 0.
    """
    _only(use, use_sparse_mixer=0, swiglu_limit_after_activation=0)
    rows = np.reshape(x, (1, router.shape[0], x.shape[-1]))
    share, which = F.top_k(F.softmax(router), k)
    share = share / np.sum(share, axis=-1, keepdims=True) if normalize_routing_weights else share
    weights = np.sum(F.one_hot(which, router.shape[1], dtype=np.float32) * np.expand_dims(share, -1), axis=1)
    hidden = _layer(rows, first, first_bias)
    y = _layer(_expert(use, hidden, rows, third, third_bias, activation_type), second, second_bias)
    return np.reshape(np.sum(y * np.expand_dims(np.transpose(weights), -1), axis=0), x.shape)


def _layer(x: Any, weight: Any, bias: Any) -> Any:
    """Multiply rows of each expert, [experts, rows, ..], with its weight."""
    y = np.matmul(x, np.swapaxes(weight, -1, -2))
    return y if bias is None else y + np.expand_dims(bias, 1)


EXPERTS: dict[str, Function] = {
    "relu": F.relu,
    "gelu": lambda x: F.gelu(x, True),
    "silu": F.silu,
    "identity": lambda x: x,
}


def _expert(use: Use, hidden: Any, x: Any, third: Any, third_bias: Any, kind: str) -> Any:
    """Compute the activation of experts; a gated one has its halves in one weight or in two."""
    if kind != "swiglu":
        if kind not in EXPERTS or third is not None:
            raise Unsupported(f"experts with {kind!r}; there are {', '.join(EXPERTS)} of one weight, and swiglu")
        return EXPERTS[kind](hidden)
    fusion = use.attribute("swiglu_fusion", 0)
    if fusion == 1:
        gate, up = hidden[..., 0::2], hidden[..., 1::2]
    elif fusion == 2:
        gate, up = halves(hidden)
    elif third is None:
        raise MlaotError("swiglu_fusion is 0, and there is no third weight")
    else:
        gate, up = hidden, _layer(x, third, third_bias)
    limit = use.attribute("swiglu_limit")
    if limit is not None:
        gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
    return use.call(swiglu, gate, up)
