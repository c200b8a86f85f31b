"""Every op, defined once: type rule, NumPy reference, VJP, batching rule, C. ``OPS`` holds them by name."""

from mlaot.ops import elementwise, reduction, structure
from mlaot.ops.base import OPS, Op

__all__ = ["OPS", "Op", "elementwise", "reduction", "structure"]
