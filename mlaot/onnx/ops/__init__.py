"""The functions of ONNX's operators, by family; importing them fills the registry."""

from mlaot.onnx.ops import (
    elementwise,
    normalization,
    products,
    quantization,
    recurrent,
    reductions,
    resize,
    sampling,
    search,
    shaping,
    signal,
    text,
    windows,
)

__all__ = [
    "elementwise",
    "normalization",
    "products",
    "quantization",
    "recurrent",
    "reductions",
    "resize",
    "sampling",
    "search",
    "shaping",
    "signal",
    "text",
    "windows",
]
