"""The functions of ONNX's operators, by family; importing them fills the registry."""

from mlaot.onnx.ops import (
    attention,
    control,
    elementwise,
    ml,
    ml_trees,
    normalization,
    products,
    quantization,
    recurrent,
    reductions,
    sequences,
    shaping,
    training,
    windows,
)

__all__ = [
    "attention",
    "control",
    "elementwise",
    "ml",
    "ml_trees",
    "normalization",
    "products",
    "quantization",
    "recurrent",
    "reductions",
    "sequences",
    "shaping",
    "training",
    "windows",
]
