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
from mlaot.onnx.ops.products import gemm
from mlaot.onnx.ops.quantization import dequantize_linear, matmul_integer, qlinear_conv, quantize, quantize_linear
from mlaot.onnx.ops.recurrent import lstm_by
from mlaot.onnx.ops.windows import average_pool, conv
from mlaot.onnx.registry import MICROSOFT, Function, operator, operators

operator("QuantizeLinear", domain=MICROSOFT, coded=True)(quantize_linear)
operator("DequantizeLinear", domain=MICROSOFT, coded=True)(dequantize_linear)


# Products of quantized arrays.


@operator("DynamicQuantizeLSTM", domain=MICROSOFT)
def dynamic_quantize_lstm(use: Use, *inputs: Any) -> Any:
    inputs = (*inputs, *[None] * (12 - len(inputs)))
    quantization = {id(inputs[1]): inputs[8:10], id(inputs[2]): inputs[10:12]}

    def products(weights: Any, i: int) -> Callable[[Any], Any]:
        scale, zero = (None if each is None else each[i] for each in quantization[id(weights)])
        return lambda x: dynamic_quantize_matmul(x, weights[i], scale, zero)

    return lstm_by(products, use, inputs[:8])


@operator("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_quantize_matmul(x: Any, weights: Any, scale: Any, zero: Any = None, bias: Any = None) -> Any:
    """Multiply ``x`` by quantized weights. ``x`` is quantized to 8 bits by its own range."""
    low, high = np.minimum(np.min(x), np.float32(0)), np.maximum(np.max(x), np.float32(0))
    own = (high - low) / np.float32(255)
    own = np.where(np.equal(own, 0), np.float32(1), own)
    shift = F.astype(np.rint(np.clip(-low / own, 0, 255)), np.uint8)
    codes = quantize(x / own, shift, onnx.TensorProto.UINT8)
    return plus(F.astype(matmul_integer(codes, weights, shift, zero), np.float32) * (own * scale), bias)


@operator("MatMulIntegerToFloat", domain=MICROSOFT)
def matmul_integer_to_float(
    a: Any, b: Any, a_scale: Any, b_scale: Any, a_zero: Any = None, b_zero: Any = None, bias: Any = None
) -> Any:
    return plus(F.astype(matmul_integer(a, b, a_zero, b_zero), np.float32) * (a_scale * b_scale), bias)


@operator("QGemm", domain=MICROSOFT)
def qgemm(
    a: Any,
    a_scale: Any,
    a_zero: Any,
    b: Any,
    b_scale: Any,
    b_zero: Any,
    c: Any = None,
    y_scale: Any = None,
    y_zero: Any = None,
    *,
    alpha: float = 1.0,
    transA: bool = False,
    transB: bool = False,
) -> Any:
    a = np.transpose(a) if transA else a
    b = np.transpose(b) if transB else b
    total = F.astype(plus(matmul_integer(a, b, a_zero, b_zero), c), np.float32)
    scale = np.float32(alpha) * a_scale * b_scale
    return total * scale if y_scale is None else quantize(total * (scale / y_scale), y_zero, elem_type_of(y_zero))


def plus(x: Any, bias: Any) -> Any:
    """Add a bias, if there is one."""
    return x if bias is None else x + bias


# Functions of quantized arrays: of the numbers that they stand for.


def _requantize(x: Any, scale: Any, zero: Any) -> Any:
    return quantize(x / scale, zero, elem_type_of(zero))


def _numbers(operands: Any) -> list[Any]:
    """Dequantize arrays, each of which comes with its scale and its zero point."""
    triples = zip(operands[::3], operands[1::3], operands[2::3], strict=True)
    return [
        (F.astype(x, np.float32) if zero is None else F.astype(x, np.float32) - F.astype(zero, np.float32)) * scale
        for x, scale, zero in triples
    ]


def _of_numbers(function: Function) -> Function:
    """Return the operator of quantized arrays, given the function of dequantized numbers."""

    def run(use: Use, *inputs: Any) -> Any:
        inputs = (*inputs, *[None] * (-(len(inputs) - 2) % 3))  # zero points at the end may be left out
        zero = inputs[-1] if inputs[-1] is not None else np.zeros((), inputs[0].dtype)
        return _requantize(use.call(function, *_numbers(inputs[:-2])), inputs[-2], zero)

    return run


def _spatial_mean(x: Any, *, channels_last: bool = False) -> Any:
    return np.mean(x, axis=tuple(range(1, x.ndim - 1) if channels_last else range(2, x.ndim)), keepdims=True)


def _mean_pool(use: Use, x: Any, *, channels_last: bool = False) -> Any:
    y = use.call(average_pool, np.moveaxis(x, -1, 1) if channels_last else x)
    return np.moveaxis(y, 1, -1) if channels_last else y


def _quantized_softmax(use: Use, x: Any, *, axis: int = -1) -> Any:
    """Compute a softmax by the opset that the node names: before 13 over all axes from one on."""
    return F.softmax(x, axis if use.attribute("opset", 13) >= 13 else tuple(range(axis % x.ndim, x.ndim)))


QUANTIZED: dict[str, Function] = {
    "QLinearAdd": np.add,
    "QLinearAveragePool": _mean_pool,
    "QLinearGlobalAveragePool": _spatial_mean,
    "QLinearLeakyRelu": lambda x, *, alpha=0.01: A.leaky_relu(x, alpha),
    "QLinearMul": np.multiply,
    "QLinearReduceMean": lambda x, *, axes=None, keepdims=True: np.mean(x, axis=tuple(axes), keepdims=keepdims),
    "QLinearSigmoid": F.sigmoid,
    "QLinearSoftmax": _quantized_softmax,
}
operators({name: _of_numbers(function) for name, function in QUANTIZED.items()}, domain=MICROSOFT)


@operator("QLinearConcat", domain=MICROSOFT)
def qlinear_concat(scale: Any, zero: Any, *inputs: Any, axis: Any = None) -> Any:
    return _requantize(np.concatenate(_numbers(inputs), axis=axis), scale, zero)


@operator("QLinearWhere", domain=MICROSOFT)
def qlinear_where(condition: Any, *inputs: Any) -> Any:
    return _requantize(np.where(condition, *_numbers(inputs[:6])), *inputs[6:])


@operator("QLinearConv", domain=MICROSOFT)
def qlinear_conv_of(use: Use, x: Any, *inputs: Any, channels_last: bool = False) -> Any:
    y = use.call(qlinear_conv, np.moveaxis(x, -1, 1) if channels_last else x, *inputs)
    return np.moveaxis(y, 1, -1) if channels_last else y


@operator("MatMulInteger16", domain=MICROSOFT)
def matmul_integer16(a: Any, b: Any) -> Any:
    return np.matmul(F.astype(a, np.int32), F.astype(b, np.int32))


def _whole(x: Any, zero: Any) -> Any:
    return F.astype(x, np.int32) if zero is None else F.astype(x, np.int32) - F.astype(zero, np.int32)


@operator("MulInteger", domain=MICROSOFT)
def mul_integer(a: Any, a_zero: Any, b: Any, b_zero: Any = None) -> Any:
    return _whole(a, a_zero) * _whole(b, b_zero)


@operator("ReduceSumInteger", domain=MICROSOFT)
def reduce_sum_integer(x: Any, *, axes: Any = None, keepdims: bool = True) -> Any:
    return F.astype(np.sum(F.astype(x, np.int32), axis=tuple(axes), keepdims=keepdims), np.int32)


# What the optimizer makes one operator of.


def _gelu(x: Any, bias: Any = None) -> Any:
    return F.gelu(plus(x, bias))


FUSED: dict[str, Function] = {
    "BiasGelu": _gelu,
    "FastGelu": lambda x, bias=None: F.gelu(plus(x, bias), True),
    "Gelu": _gelu,
    "QuickGelu": lambda x, *, alpha=1.702: x * F.sigmoid(x * alpha),
}
operators(FUSED, domain=MICROSOFT)


@operator("FusedMatMul", "TransposeMatMul", domain=MICROSOFT)
def fused_matmul(
    a: Any,
    b: Any,
    *,
    transA: bool = False,
    transB: bool = False,
    transBatchA: bool = False,
    transBatchB: bool = False,
    alpha: float = 1.0,
) -> Any:
    a, b = _turned(a, transA, transBatchA), _turned(b, transB, transBatchB)
    y = np.matmul(a, b)
    return y if alpha == 1.0 else y * alpha


def _turned(x: Any, is_transposed: bool, is_batch_behind: bool) -> Any:
    """Return matrices. Their rows may come as the first axis, before the batch, or as the columns."""
    if x.ndim < 2:
        return x
    x = np.moveaxis(x, 0, -2) if is_batch_behind else x
    return np.swapaxes(x, -1, -2) if is_transposed else x


@operator("FusedMatMulActivation", domain=MICROSOFT)
def fused_matmul_activation(use: Use, a: Any, b: Any, *, activation: str = "") -> Any:
    return _activate(use.call(fused_matmul, a, b), activation, _activation_numbers(use))


def _activation_numbers(use: Use) -> list[float]:
    values = [use.attribute(f"activation_{name}") for name in ("alpha", "beta", "gamma")]
    return [value for value in values if value is not None]


@operator("GemmFastGelu", domain=MICROSOFT)
def gemm_fast_gelu(x: Any, w: Any, bias: Any = None) -> Any:
    return F.gelu(plus(np.matmul(x, w), bias), True)


@operator("FusedConv", domain=MICROSOFT)
def fused_conv(use: Use, x: Any, w: Any, bias: Any = None, other: Any = None, *, activation: str = "") -> Any:
    return _activate(plus(use.call(conv, x, w, bias), other), activation, use.attribute("activation_params", []))


@operator("FusedGemm", domain=MICROSOFT)
def fused_gemm(use: Use, a: Any, b: Any, c: Any = None, *, activation: str = "") -> Any:
    return _activate(use.call(gemm, a, b, c), activation, _activation_numbers(use))


ACTIVATIONS: dict[str, Function] = {
    "": lambda x: x,
    "Relu": F.relu,
    "Tanh": np.tanh,
    "Sigmoid": F.sigmoid,
    "Softplus": F.softplus,
    "LeakyRelu": A.leaky_relu,
    "Clip": np.clip,
    "HardSigmoid": lambda x, alpha=0.2, beta=0.5: np.clip(alpha * x + beta, 0, 1),
}


def _activate(x: Any, name: str, values: Any) -> Any:
    """Compute the activation that an operator names, with its parameters."""
    if name not in ACTIVATIONS:
        raise MlaotError(f"unknown activation {name!r}; known are {', '.join(filter(None, ACTIVATIONS))}")
    return ACTIVATIONS[name](x, *values)
