"""Ensembles of decision trees over rows of features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.trace.promotion import as_node, cast, numpy_dtype
from mlaot.frontend.trace.protocols import any_traced, plain
from mlaot.frontend.trace.tensor import Tensor
from mlaot.ir.types import f32, f64
from mlaot.ops.base import Array
from mlaot.ops.trees import Forest, forest, node_columns
from mlaot.ops.trees import tree_ensemble as _op

MODES = ("<=", "<", ">=", ">", "==", "!=")
AGGREGATES = ("sum", "mean", "min", "max")


def tree_ensemble(
    x: Any,
    feature: Any,
    threshold: Any,
    true: Any,
    false: Any,
    roots: Any,
    leaves: Any,
    *,
    mode: str | Sequence[str] = "<=",
    nan_is_true: Any = False,
    aggregate: str = "sum",
    base: Any = 0.0,
) -> Any:
    """Return the sum of ``base`` and the aggregated leaves that rows ``x`` [.., features] reach in decision trees.

    Node i compares ``x[.., feature[i]]`` with ``threshold[i]`` by ``mode[i]``, and goes on to ``true[i]`` or
    ``false[i]``. A nan is not compared, and goes on to ``true[i]`` if ``nan_is_true[i]``. ``true``, ``false`` and
    ``roots`` hold numbers of nodes, or ``~leaf`` for a row of ``leaves``. Leaves [leaves] give a result [..], and
    leaves [leaves, targets] a result [.., targets]. ``mode`` is one of ``<= < >= > == !=``. One ``mode`` and one
    ``nan_is_true`` may serve all nodes.

    Comparisons are exact: a float32 feature and a float64 threshold are compared as real numbers. ``aggregate`` is
    ``sum``, ``mean``, ``min`` or ``max``. The gradient is zero.
    """
    if aggregate not in AGGREGATES:
        raise MlaotError(f"tree_ensemble: aggregate must be one of {', '.join(AGGREGATES)}, got {aggregate!r}")
    feature, threshold, true, false = node_columns(feature, threshold, true, false)
    modes = _modes(mode, len(feature))
    missing = _each(nan_is_true, len(feature))
    equal = np.isin(modes, ("==", "!="))
    asked, column = np.unique(np.stack([feature, threshold], axis=1)[equal], axis=0, return_inverse=True)
    rows = _features(x, asked)
    if equal.any():
        modes = np.where(modes == "==", ">", np.where(modes == "!=", "<=", modes))
        feature, threshold = feature.copy(), threshold.copy()
        feature[equal], threshold[equal] = _width(x) + column.reshape(-1), 0.5
    trees = _normal(feature, threshold, true, false, missing, modes, roots, leaves)
    total = _apply(rows, trees, "sum" if aggregate == "mean" else aggregate)
    total = total / trees.trees if aggregate == "mean" else total
    return total if np.all(np.asarray(base) == 0) else total + np.asarray(base, numpy_dtype(total))


def _modes(mode: str | Sequence[str], nodes: int) -> Array:
    modes = np.broadcast_to(np.asarray(mode), (nodes,)) if isinstance(mode, str) else np.asarray(mode)
    wrong = [str(m) for m in np.unique(modes) if m not in MODES]
    if wrong or modes.shape != (nodes,):
        got = repr(wrong[0]) if wrong else f"{modes.size} of them for {nodes} nodes"
        raise MlaotError(f"tree_ensemble: mode must be one of {' '.join(MODES)}, for all nodes or for each, got {got}")
    return modes


def _each(flag: Any, nodes: int) -> Array:
    flags = np.asarray(flag)
    if flags.dtype.kind not in "biu" or flags.shape not in ((), (nodes,)):
        raise MlaotError(
            f"tree_ensemble: nan_is_true must be a bool, or one for each of {nodes} nodes, got {flag!r:.60}"
        )
    return np.broadcast_to(flags.astype(bool), (nodes,))


def _width(x: Any) -> int:
    shape = x.shape if any_traced(x) else np.shape(plain(x))
    if not shape or not isinstance(shape[-1], int):
        raise MlaotError(f"tree_ensemble: x must be rows of features, got shape {list(shape)}")
    return int(shape[-1])


def _features(x: Any, asked: Array) -> Any:
    """Return ``x`` as float32 or float64, with a further feature (1, 0 or nan) for each test of equality."""
    if any_traced(x):
        node = as_node(x)
        x = Tensor(cast(node, f32 if node.type.dtype.name in ("f16", "bf16", "f32") else f64))
    else:
        x = np.asarray(plain(x))
        x = x.astype(np.float32 if x.dtype in (np.float16, np.float32) else np.float64)
    if not len(asked):
        return x
    picked = x[..., asked[:, 0].astype(np.int64)]
    one = _exact(asked[:, 1], numpy_dtype(x))
    is_equal = np.where(picked == one, np.ones((), numpy_dtype(x)), np.zeros((), numpy_dtype(x)))
    return np.concatenate([x, np.where(np.isnan(picked), picked, is_equal)], axis=-1)


def _exact(values: Array, dtype: Any) -> Array:
    """Return ``values`` in ``dtype``, with nan for numbers that the dtype cannot hold exactly."""
    with np.errstate(over="ignore"):
        rounded = values.astype(dtype)
    return np.where(rounded == values, rounded, np.asarray(np.nan, dtype))


def _normal(
    feature: Array, threshold: Array, true: Array, false: Array, missing: Array, modes: Array, roots: Any, leaves: Any
) -> Forest:
    """Rewrite every comparison as ``<=``.

    ``x < t`` compares with the next smaller number, and the opposite comparisons swap the children.
    """
    below = np.isin(modes, ("<", ">="))
    never = below & (threshold == -np.inf)  # no number is less: all are at most inf, and the children swap
    swapped = np.isin(modes, (">", ">=")) ^ never
    threshold = np.where(below, np.where(never, np.inf, np.nextafter(threshold, -np.inf)), threshold)
    left, right = np.where(swapped, false, true), np.where(swapped, true, false)
    return forest(feature, threshold, left, right, missing ^ swapped, roots, leaves)


def _apply(x: Any, ensemble: Forest, aggregate: str) -> Any:
    if any_traced(x):
        return Tensor(_op(as_node(x), forest=ensemble, aggregate=aggregate))
    if x.ndim == 0 or x.shape[-1] < ensemble.features:
        raise MlaotError(
            f"tree_ensemble needs rows of at least {ensemble.features} features, got shape {list(x.shape)}"
        )
    return _op.reference(x, ensemble, aggregate)
