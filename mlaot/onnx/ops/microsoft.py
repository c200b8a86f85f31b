"""Operators of onnxruntime's own domain: those that its quantizer and its optimizer put into files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx

from mlaot.errors import MlaotError
from mlaot.frontend import numpy as F
from mlaot.nn.functional import activations as A
from mlaot.onnx.codes import elem_type_of
from mlaot.onnx.importer import Use
from mlaot.onnx.ops.elementwise import gelu
from mlaot.onnx.ops.normalization import standard
from mlaot.onnx.ops.products import gemm
from mlaot.onnx.ops.quantization import dequantize_linear, matmul_integer, quantize_linear, quantized
from mlaot.onnx.ops.recurrent import lstm_by
from mlaot.onnx.ops.windows import conv
from mlaot.onnx.registry import operator
from mlaot.onnx.values import Unsupported

DOMAIN = "com.microsoft"

operator("QuantizeLinear", domain=DOMAIN, coded=True)(quantize_linear)
operator("DequantizeLinear", domain=DOMAIN, coded=True)(dequantize_linear)


# Products of quantized arrays.


@operator("DynamicQuantizeLSTM", domain=DOMAIN)
def dynamic_quantize_lstm(use: Use, *inputs: Any) -> Any:
    given = [*inputs, *[None] * (12 - len(inputs))]
    quantization = {id(given[1]): given[8:10], id(given[2]): given[10:12]}

    def products(weights: Any, i: int) -> Callable[[Any], Any]:
        scale, zero = (None if each is None else each[i] for each in quantization[id(weights)])
        return lambda x: dynamic_product(use, x, weights[i], scale, zero)

    return lstm_by(products, use, given[:8])


@operator("DynamicQuantizeMatMul", domain=DOMAIN)
def dynamic_quantize_matmul(use: Use, a: Any, b: Any, scale: Any, zero: Any = None, bias: Any = None) -> Any:
    return plus(dynamic_product(use, a, b, scale, zero), bias)


def dynamic_product(use: Use, x: Any, weights: Any, scale: Any, zero: Any) -> Any:
    """The product with quantized weights of ``x``, which is quantized to 8 bits by its own range."""
    low, high = np.minimum(np.min(x), np.float32(0)), np.maximum(np.max(x), np.float32(0))
    own = (high - low) / np.float32(255)
    own = np.where(np.equal(own, 0), np.float32(1), own)
    shift = F.astype(np.rint(np.clip(-low / own, 0, 255)), np.uint8)
    codes = quantized(x / own, shift, onnx.TensorProto.UINT8)
    return F.astype(matmul_integer(use, codes, weights, shift, zero), np.float32) * (own * scale)


@operator("MatMulIntegerToFloat", domain=DOMAIN)
def matmul_integer_to_float(
    use: Use,
    a: Any,
    b: Any,
    a_scale: Any,
    b_scale: Any,
    a_zero: Any = None,
    b_zero: Any = None,
    bias: Any = None,
) -> Any:
    return plus(F.astype(matmul_integer(use, a, b, a_zero, b_zero), np.float32) * (a_scale * b_scale), bias)


def plus(x: Any, bias: Any) -> Any:
    """``x`` and a bias, if there is one."""
    return x if bias is None else x + bias


# Functions of quantized arrays: of the numbers that they stand for.


def requantized(x: Any, scale: Any, zero: Any) -> Any:
    """Numbers as those of a quantized array."""
    return quantized(x / scale, zero, elem_type_of(zero))


def numbers(x: Any, scale: Any, zero: Any) -> Any:
    """What a quantized array stands for."""
    return (F.astype(x, np.float32) - F.astype(zero, np.float32)) * scale


@operator("QLinearAdd", "QLinearMul", domain=DOMAIN)
def qlinear_arithmetic(
    use: Use, a: Any, a_scale: Any, a_zero: Any, b: Any, b_scale: Any, b_zero: Any, scale: Any, zero: Any
) -> Any:
    function = np.add if use.node.op_type == "QLinearAdd" else np.multiply
    return requantized(function(numbers(a, a_scale, a_zero), numbers(b, b_scale, b_zero)), scale, zero)


@operator("QLinearSigmoid", "QLinearLeakyRelu", domain=DOMAIN)
def qlinear_activation(use: Use, x: Any, x_scale: Any, x_zero: Any, scale: Any, zero: Any) -> Any:
    given = numbers(x, x_scale, x_zero)
    is_sigmoid = use.node.op_type == "QLinearSigmoid"
    y = F.sigmoid(given) if is_sigmoid else A.leaky_relu(given, use.attribute("alpha", 0.01))
    return requantized(y, scale, zero)


@operator("QLinearGlobalAveragePool", domain=DOMAIN)
def qlinear_global_average_pool(use: Use, x: Any, x_scale: Any, x_zero: Any, scale: Any, zero: Any) -> Any:
    axes = tuple(range(1, x.ndim - 1)) if use.attribute("channels_last", 0) else tuple(range(2, x.ndim))
    return requantized(np.mean(numbers(x, x_scale, x_zero), axis=axes, keepdims=True), scale, zero)


@operator("QLinearConcat", domain=DOMAIN)
def qlinear_concat(use: Use, scale: Any, zero: Any, *inputs: Any) -> Any:
    triples = zip(inputs[::3], inputs[1::3], inputs[2::3], strict=True)
    joined = np.concatenate([numbers(*triple) for triple in triples], axis=use.attribute("axis"))
    return requantized(joined, scale, zero)


# What the optimizer makes one operator of.


@operator("FusedMatMul", domain=DOMAIN)
def fused_matmul(use: Use, a: Any, b: Any) -> Any:
    if use.attribute("transBatchA", 0) or use.attribute("transBatchB", 0):
        raise Unsupported("transBatchA and transBatchB; save the model without optimizing it")
    a = np.swapaxes(a, -1, -2) if use.attribute("transA", 0) else a
    b = np.swapaxes(b, -1, -2) if use.attribute("transB", 0) else b
    return np.matmul(a, b) * use.attribute("alpha", 1.0)


@operator("FusedConv", domain=DOMAIN)
def fused_conv(use: Use, x: Any, w: Any, bias: Any = None, other: Any = None) -> Any:
    return activated(use, plus(conv(use, x, w, bias), other), use.attribute("activation_params", []))


@operator("FusedGemm", domain=DOMAIN)
def fused_gemm(use: Use, a: Any, b: Any, c: Any = None) -> Any:
    values = [use.attribute(name) for name in ("activation_alpha", "activation_beta", "activation_gamma")]
    return activated(use, gemm(use, a, b, c), [value for value in values if value is not None])


def activated(use: Use, x: Any, values: Any) -> Any:
    """The activation that an operator names, with its numbers."""
    table: dict[str, Callable[..., Any]] = {
        "": lambda x: x,
        "Relu": F.relu,
        "Tanh": np.tanh,
        "Sigmoid": F.sigmoid,
        "Softplus": F.softplus,
        "LeakyRelu": A.leaky_relu,
        "Clip": np.clip,
        "HardSigmoid": lambda x, alpha=0.2, beta=0.5: np.clip(alpha * x + beta, 0, 1),
    }
    name = use.string("activation", "")
    if name not in table:
        raise MlaotError(f"there is no activation {name!r}; there are {', '.join(filter(None, table))}")
    return table[name](x, *values)


@operator("Gelu", "BiasGelu", domain=DOMAIN)
def bias_gelu(use: Use, x: Any, bias: Any = None) -> Any:
    return gelu(use, plus(x, bias))


@operator("FastGelu", domain=DOMAIN)
def fast_gelu(use: Use, x: Any, bias: Any = None) -> Any:
    return F.gelu(plus(x, bias), True)


@operator("QuickGelu", domain=DOMAIN)
def quick_gelu(use: Use, x: Any) -> Any:
    return x * F.sigmoid(x * use.attribute("alpha", 1.702))


@operator("SkipLayerNormalization", domain=DOMAIN)
def skip_layer_normalization(use: Use, x: Any, skip: Any, scale: Any, beta: Any = None, bias: Any = None) -> Any:
    total = plus(x + skip, bias)
    y, mean, inverse = standard(total, (total.ndim - 1,), use.attribute("epsilon", 1e-12))
    return plus(y * scale, beta), mean, inverse, total
