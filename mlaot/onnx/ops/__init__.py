"""The functions of ONNX's operators, by family; importing them fills the registry."""

from mlaot.onnx.ops import (
    elementwise,
    ml,
    ml_trees,
    normalization,
    products,
    quantization,
    recurrent,
    reductions,
    shaping,
    training,
    windows,
)

__all__ = [
    "elementwise",
    "ml",
    "ml_trees",
    "normalization",
    "products",
    "quantization",
    "recurrent",
    "reductions",
    "shaping",
    "training",
    "windows",
]
