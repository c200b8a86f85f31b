"""The functions of ONNX's operators, by family; importing them fills the registry."""

from mlaot.onnx.ops import (
    attention,
    control,
    elementwise,
    normalization,
    products,
    quantization,
    recurrent,
    reductions,
    sequences,
    shaping,
    windows,
)

__all__ = [
    "attention",
    "control",
    "elementwise",
    "normalization",
    "products",
    "quantization",
    "recurrent",
    "reductions",
    "sequences",
    "shaping",
    "windows",
]
