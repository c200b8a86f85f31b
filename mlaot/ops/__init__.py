"""Every op, defined once: type rule, NumPy reference, VJP, batching rule, C. ``OPS`` holds them by name."""

from mlaot.ops import (
    barrier,
    bits,
    comparison,
    control,
    cumulative,
    elementwise,
    indexing,
    quantized,
    random,
    reduction,
    rounding,
    sorting,
    sparse,
    structure,
    transcendental,
    trees,
    winograd,
)
from mlaot.ops.base import OPS, Op

__all__ = [
    "OPS",
    "Op",
    "barrier",
    "bits",
    "comparison",
    "control",
    "cumulative",
    "elementwise",
    "indexing",
    "quantized",
    "random",
    "reduction",
    "rounding",
    "sorting",
    "sparse",
    "structure",
    "transcendental",
    "trees",
    "winograd",
]
