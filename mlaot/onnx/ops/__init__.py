"""The functions of ONNX's operators, by family; importing them fills the registry."""

from mlaot.onnx.ops import (
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
