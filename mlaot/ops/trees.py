"""Ensembles of decision trees: each row of features walks down every tree, and its leaves are combined."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.ir import Type
from mlaot.ir.text import RECORDS
from mlaot.ir.types import DType, Literal, boolean, f64, i32
from mlaot.ops.axes import last_axes
from mlaot.ops.base import Array, Op, no_gradient

AGGREGATES: dict[str, Callable[..., Any]] = {"sum": np.sum, "min": np.min, "max": np.max}


@dataclass(frozen=True, repr=False)
class Forest:
    """Trees as flat arrays.

    At a node, a row goes to ``left`` if its ``feature`` is at most ``threshold``, else to ``right``.

    nan goes to the left if ``nan_left``, and else to the right. A child or a root is the number of a node, or ``~leaf``
    for a row of ``leaves`` ([leaves] or [leaves, targets]). Thresholds are float64. A float32 value is compared as a
    real number.
    """

    feature: Literal
    threshold: Literal
    left: Literal
    right: Literal
    nan_left: Literal
    roots: Literal
    leaves: Literal

    @property
    def trees(self) -> int:
        return len(self.roots.array)

    @property
    def features(self) -> int:
        """The number of features that a row must have."""
        return int(self.feature.array.max(initial=-1)) + 1

    @property
    def targets(self) -> tuple[int, ...]:
        return tuple(self.leaves.array.shape[1:])

    def levels(self) -> Iterator[tuple[Array, Array]]:
        """Yield, level by level, the numbers of trees and of the nodes (or ``~leaf``) in that level."""
        tree, at = np.arange(self.trees), self.roots.array.astype(np.int64)
        while len(at):
            yield tree, at
            tree, at = tree[at >= 0], at[at >= 0]
            children = np.concatenate([self.left.array[at], self.right.array[at]]).astype(np.int64)
            pairs = np.unique(np.stack([np.tile(tree, 2), children]), axis=1)
            tree, at = pairs[0], pairs[1]

    def __repr__(self) -> str:
        return f"<{self.trees} trees of {len(self.feature.array)} nodes>"


RECORDS["forest"] = Forest


def forest(feature: Any, threshold: Any, left: Any, right: Any, nan_left: Any, roots: Any, leaves: Any) -> Forest:
    """Return a checked ``Forest``; ``nan_left`` may be one truth value for all nodes."""
    feature, threshold, left, right = node_columns(feature, threshold, left, right)
    roots, leaves = _numbers("roots", roots, "iu"), _numbers("leaves", leaves, "iuf", (1, 2))
    nodes, count = len(feature), len(leaves)
    if not len(roots):
        raise MlaotError("trees: an ensemble has at least one tree, got no roots")
    links = np.concatenate([left, right, roots])
    if not (-count <= links.min() and links.max() < nodes):
        raise MlaotError(
            f"trees: roots and children must be numbers of {nodes} nodes, or ~leaf of {count} leaves, "
            f"got {int(links.min())}..{int(links.max())}"
        )
    if nodes and feature.min() < 0:
        raise MlaotError(f"trees: features are numbered from 0, got {int(feature.min())}")
    if np.isnan(threshold).any():
        raise MlaotError("trees: a threshold is nan")
    sides = np.broadcast_to(np.asarray(nan_left, bool), (nodes,))
    ensemble = Forest(
        Literal(feature, i32),
        Literal(threshold, f64),
        Literal(left, i32),
        Literal(right, i32),
        Literal(sides, boolean),
        Literal(roots, i32),
        Literal(leaves, f64),
    )
    for depth, _ in enumerate(ensemble.levels()):
        if depth > nodes:
            raise MlaotError("trees: a node is below itself")
    return ensemble


def node_columns(feature: Any, threshold: Any, left: Any, right: Any) -> tuple[Array, Array, Array, Array]:
    """Check the arrays with a value per node, and return them as vectors of one length."""
    columns = (
        _numbers("features", feature, "iu"),
        _numbers("thresholds", threshold, "iuf").astype(np.float64),
        _numbers("children", left, "iu"),
        _numbers("children", right, "iu"),
    )
    if len({len(a) for a in columns}) > 1:
        raise MlaotError(
            f"trees: every node has a feature, a threshold and two children, got {[len(a) for a in columns]}"
        )
    return columns


def _numbers(what: str, value: Any, kinds: str, ranks: tuple[int, ...] = (1,)) -> Array:
    array = np.asarray(value)
    if array.ndim not in ranks or (array.size and array.dtype.kind not in kinds):
        wanted = "integers" if kinds == "iu" else "numbers"
        raise MlaotError(f"trees: {what} must be a vector of {wanted}, got {array.dtype}{list(array.shape)}")
    return array if array.dtype.kind == "f" else array.astype(np.int64)


def _type(x: Type, forest: Forest, aggregate: str, dtype: DType | None = None) -> Type:
    if x.dtype.name not in ("f32", "f64"):
        raise MlaotError(f"tree_ensemble takes f32 or f64, got {x}; cast it first")
    if not x.rank or not isinstance(x.shape[-1], int) or x.shape[-1] < forest.features:
        raise MlaotError(f"tree_ensemble needs rows of at least {forest.features} features, got {x}")
    if aggregate not in AGGREGATES:
        raise MlaotError(f"tree_ensemble has the aggregates {', '.join(AGGREGATES)}, got {aggregate!r}")
    return Type(dtype or x.dtype, (*x.shape[:-1], *forest.targets))


def _reference(x: Array, forest: Forest, aggregate: str, dtype: DType | None = None) -> Array:
    rows = x.reshape(-1, x.shape[-1]) if x.size else x.reshape(int(np.prod(x.shape[:-1], dtype=np.int64)), x.shape[-1])
    at = np.tile(forest.roots.array.astype(np.int64), (len(rows), 1))
    while (at >= 0).any():
        row, tree = np.nonzero(at >= 0)
        node = at[row, tree]
        value = rows[row, forest.feature.array[node]]
        to_left = np.where(np.isnan(value), forest.nan_left.array[node], value <= forest.threshold.array[node])
        at[row, tree] = np.where(to_left, forest.left.array[node], forest.right.array[node])
    values = forest.leaves.array.astype(dtype.numpy if dtype else x.dtype)
    leaves = values[~at]  # [rows, trees] or [rows, trees, targets]
    return np.asarray(AGGREGATES[aggregate](leaves, axis=1)).reshape((*x.shape[:-1], *forest.targets))


tree_ensemble: Op = Op(
    "tree_ensemble",
    _type,
    _reference,
    no_gradient,
    last_axes(1, lambda node: len(node.attrs["forest"].targets)),
    doc="the sum, the smallest or the largest of the leaves that rows of features reach in decision trees",
)
