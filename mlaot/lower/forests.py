"""Decision trees in the layout that kernels walk; every tree is in memory once.

* If most trees are shallow, these are padded to perfect trees of one depth without links, ``{threshold, feature}`` for
  each node: tree blocks.
* All other trees keep their links. The roots come first, then the two children of each node side by side, the right one
  before the left one, so that a step is ``node = children + (x[feature] <= threshold)``. A leaf is a node too. Its
  ``children`` is the leaf itself and its threshold is nan. Nothing is at most nan, so a row stays at the leaf. The bits
  of that nan hold the number of the leaf.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mlaot.ir.types import DTYPES, Literal, i32, u32
from mlaot.ops.trees import Forest
from mlaot.schedule.tuning import BUSHY_LEVELS, PADDED_LEAVES, PERFECT_LEVELS, ROWS_IN_STEP, TREES_IN_STEP

Array = np.ndarray[Any, Any]
NAN32, NAN64 = 0x7FC00000, 0x7FF80000  # the first word of a quiet nan, whose other bits are free


LEAF_BITS = 22  # of a float32 that is nan, so many are free


@dataclass(frozen=True)
class Links:
    """The layout of nodes with links in words of 32 bits.

    A narrow node has a float32 threshold in one word, and ``{children, is leaf, feature}`` in the next word, of which
    ``bits`` are the feature's. Any other node has a float64 threshold in two words, then ``{is leaf, feature}``, then
    ``children``.
    """

    is_narrow: bool
    bits: int

    @property
    def words(self) -> int:
        return 2 if self.is_narrow else 4

    @property
    def threshold(self) -> str:
        """The dtype of thresholds."""
        return "f32" if self.is_narrow else "f64"

    @property
    def flag(self) -> int:
        """The bit that says that a node is a leaf."""
        return 1 << self.bits


@dataclass(frozen=True)
class TreeBlock:
    """A tree block: trees padded to perfect ones of one depth, interleaved ``width`` at a time.

    Node i of a perfect tree has the children 2 i and 2 i + 1; the root is 1. Node i of ``width`` trees side by side
    lies at ``i * width``, one element for each tree. ``splits`` and ``leaves`` are the starts of the block's splits and
    leaves, and ``first`` is the number of its first tree.
    """

    trees: int
    depth: int
    width: int
    splits: int
    leaves: int
    first: int

    @property
    def size(self) -> int:
        """The nodes, or leaves, of ``width`` trees."""
        return self.width << self.depth

    @property
    def groups(self) -> int:
        """The number of groups of ``width`` trees."""
        return -(-self.trees // self.width)


class Packed:
    """A forest in the layout that kernels walk.

    ``columns`` is the number of columns of a row as the trees read it. A comparison sends nan to the right. If a node
    sends it to the left, rows are gathered first: the features, and a second copy, with -inf for nan, of the features
    of such nodes. ``dtypes`` are those of the rows and of the result, and ``compared`` is the dtype of comparisons.
    """

    def __init__(self, forest: Forest, dtypes: tuple[str, str], aggregate: str, width: int, is_row: bool) -> None:
        rows, result = dtypes
        self.forest = forest
        self.identity = {"sum": 0.0, "min": np.inf, "max": -np.inf}[aggregate]
        self.targets = int(np.prod(forest.targets, dtype=np.int64))
        leaves = forest.leaves.array.reshape(-1, self.targets)
        depths, counts, own = self._measure(leaves)
        self.leaf = "one" if self.targets == 1 else "own" if own is not None and aggregate == "sum" else "all"
        self.target = np.zeros(0, np.int64) if own is None else own
        if self.leaf == "own":
            leaves = leaves.sum(axis=1, keepdims=True)  # each leaf has one number that is not zero
        self.kind = DTYPES[result]
        self.leaves = leaves.astype(self.kind.numpy)
        shallow = (depths <= BUSHY_LEVELS) | ((depths <= PERFECT_LEVELS) & (2**depths <= PADDED_LEAVES * counts))
        if shallow.mean() < 0.5:
            shallow[:] = False  # a few do not pay for what all rows need to be in lanes
        self.compared = result if shallow.any() else rows  # rows in lanes select leaves by masks of their own width
        self.dtype = np.dtype(DTYPES[self.compared].numpy)
        self.threshold = round_down(forest.threshold.array, self.dtype)
        self._choose_columns(width, is_row and rows == self.compared, bool(shallow.any()))
        self._make_blocks(depths, np.flatnonzero(shallow))
        self._link(np.flatnonzero(~shallow))

    def _measure(self, leaves: Array) -> tuple[Array, Array, Array | None]:
        """Return the depth and number of leaves of each tree, and its only target if each tree has one."""
        depths, counts = np.zeros((2, self.forest.trees), np.int64)
        adds = np.zeros((self.forest.trees, self.targets), bool)
        for depth, (tree, at) in enumerate(self.forest.levels()):
            depths[tree] = depth
            np.add.at(counts, tree[at < 0], 1)
            np.logical_or.at(adds, tree[at < 0], leaves[~at[at < 0]] != 0)
        own = adds.argmax(axis=1) if self.targets > 1 and (adds.sum(axis=1) <= 1).all() else None
        return depths, counts, own

    def _choose_columns(self, width: int, is_row: bool, is_shallow: bool) -> None:
        """Decide whether rows are gathered, and from which features; choose the column that each node reads."""
        feature, nan_left = self.forest.feature.array, self.forest.nan_left.array
        high, low = np.unique(feature[~nan_left]), np.unique(feature[nan_left])
        many = is_shallow and width > 2 * len(high) + 64
        self.gathers = bool(len(low)) or many or not is_row
        used = np.concatenate([high, low]).astype(np.int64)
        self.features = used if len(used) else np.zeros(1, np.int64)  # leaves alone read none
        self.low = len(high)
        self.columns = len(self.features) if self.gathers else width
        if self.gathers:
            place = np.searchsorted(high, feature), self.low + np.searchsorted(low, feature)
            self.column = np.where(nan_left, place[1], place[0])
        else:
            self.column = feature.astype(np.int64)

    @property
    def lists_features(self) -> bool:
        """Whether a table lists the gathered columns, as these are not only consecutive features."""
        parts = ((0, self.low), (self.low, len(self.features)))
        return self.gathers and any(first < end and self.features_from(first, end) is None for first, end in parts)

    def features_from(self, first: int, end: int) -> int | None:
        """Return the feature of the column ``first``, if the columns up to ``end`` are consecutive features."""
        begin = int(self.features[first])
        is_run = np.array_equal(self.features[first:end], begin + np.arange(end - first))
        return begin if is_run else None

    def _make_blocks(self, depths: Array, shallow: Array) -> None:
        """Make the tree blocks with their splits and leaves. Trees of a rare depth join the next depth."""
        splits, leaves, tree_blocks = list[Array](), list[Array](), list[TreeBlock]()
        self.order: list[Array] = []
        waiting = np.zeros(0, np.int64)
        levels = np.maximum(depths[shallow], 1)
        for depth in np.unique(levels):
            waiting = np.union1d(waiting, shallow[levels == depth])
            if len(waiting) < TREES_IN_STEP and depth < levels.max():
                continue
            width = min(TREES_IN_STEP, 1 << (len(waiting) - 1).bit_length())
            first = sum(len(order) for order in self.order)
            at = sum(part.size for part in splits), sum(part.size for part in leaves)
            tree_blocks.append(TreeBlock(len(waiting), int(depth), width, *at, first))
            for parts, part in zip((splits, leaves), self._perfect(waiting, int(depth), width), strict=True):
                parts.append(part)
            self.order.append(np.pad(waiting, (0, -len(waiting) % width), mode="edge"))
            waiting = waiting[:0]
        self.tree_blocks = tuple(tree_blocks)
        self.splits = np.concatenate(splits) if splits else np.zeros(0, self._record())
        self.block_leaves = np.concatenate([part.reshape(-1) for part in leaves]) if leaves else np.zeros(0, self.dtype)

    def _record(self) -> np.dtype[Any]:
        """Return the dtype of a node of a perfect tree in memory: a C struct of the same fields."""
        padding = [("padding", "<u4")] * (self.dtype.itemsize == 8)
        return np.dtype([("threshold", self.dtype), ("feature", "<u4"), *padding])

    def _perfect(self, trees: Array, depth: int, width: int) -> tuple[Array, Array]:
        """Return the splits and leaves of perfect trees.

        Splits are [groups, 2^depth, width], and the first one of each tree is unused. Leaves are [groups, 2^depth,
        width, targets]. A leaf above the last level becomes a subtree of equal leaves.
        """
        groups = -(-len(trees) // width)
        splits = np.zeros((groups * width, 1 << depth), self._record())
        splits["threshold"] = np.inf
        leaves = np.full((groups * width, 1 << depth, self.leaves.shape[1]), self.identity, self.leaves.dtype)
        at = self.forest.roots.array[trees][:, None].astype(np.int64)
        left, right = self.forest.left.array, self.forest.right.array
        for level in range(depth):
            node, inner = np.maximum(at, 0), at >= 0
            if inner.any():
                place = splits[: len(trees), 1 << level : 2 << level]
                place["threshold"] = np.where(inner, self.threshold[node], np.inf)
                place["feature"] = np.where(inner, self.column[node], 0)
                children = np.where(inner, left[node], at), np.where(inner, right[node], at)
            else:
                children = at, at
            at = np.stack(children, axis=2).reshape(len(trees), -1)
        leaves[: len(trees)] = self.leaves[~at]
        ordered = [a.reshape(groups, width, *a.shape[1:]).swapaxes(1, 2) for a in (splits, leaves)]
        return ordered[0].reshape(-1), ordered[1]

    def _link(self, deep: Array) -> None:
        """Make the nodes and leaves of trees that keep their links.

        Trees of a single leaf, the identity element, fill up the roots. A node of several trees is stored once.
        """
        self.branching = len(deep)
        used, reached = np.zeros(len(self.threshold), bool), np.zeros(len(self.leaves), bool)
        for tree, at in self.forest.levels():
            mine = at[np.isin(tree, deep)]
            used[mine[mine >= 0]] = True
            reached[~mine[mine < 0]] = True
        neutral_leaf = np.full((1, self.leaves.shape[1]), self.identity, self.leaves.dtype)
        self.branch_leaves = np.concatenate([self.leaves[reached], neutral_leaf])
        roots = self.forest.roots.array[deep]
        filling = np.full(-len(deep) % ROWS_IN_STEP, ~len(self.leaves))
        children = np.stack([self.forest.right.array[used], self.forest.left.array[used]], axis=1)
        link = np.concatenate([roots, filling, children.reshape(-1)]).astype(np.int64)  # of each place in memory
        inner, place = link >= 0, np.arange(len(link))
        node = link[inner]
        first_child = len(roots) + len(filling) + 2 * (np.cumsum(used) - 1)
        below, feature, leaf = place.copy(), np.zeros(len(link), np.int64), np.zeros(len(link), np.int64)
        below[inner], feature[inner] = first_child[node], self.column[node]
        leaf[~inner] = np.append(np.cumsum(reached) - 1, len(self.branch_leaves) - 1)[~link[~inner]]
        self.links = self._choose_links(len(link))
        flagged = feature | np.where(inner, 0, self.links.flag)
        self.branches = np.zeros((len(link), self.links.words), np.uint32)
        if self.links.is_narrow:
            self.branches[:, 0] = np.where(inner, 0, NAN32 | leaf)
            self.branches[inner, 0] = self.threshold[node].view(np.uint32)
            self.branches[:, 1] = below << (self.links.bits + 1) | flagged
        else:
            self.branches[:, 0], self.branches[:, 1] = leaf, NAN64
            self.branches[inner, :2] = self.forest.threshold.array[node].view(np.uint32).reshape(-1, 2)
            self.branches[:, 2], self.branches[:, 3] = flagged, below
        if len(deep):
            self.order.append(np.pad(deep, (0, len(filling)), mode="edge"))

    def _choose_links(self, places: int) -> Links:
        """Choose the layout of nodes: a narrow one if all values fit into it."""
        bits = max(1, (self.columns - 1).bit_length())
        fits = places << (bits + 1) <= 1 << 32 and len(self.branch_leaves) <= 1 << LEAF_BITS
        is_narrow = self.dtype == np.float32 and fits
        return Links(is_narrow, bits if is_narrow else 31)

    def literals(self) -> dict[str, Literal]:
        """Return the arrays that the kernel reads, by name."""
        literals: dict[str, Literal] = {}
        if self.tree_blocks:
            literals["splits"] = Literal(np.frombuffer(self.splits.tobytes(), np.uint32), u32)
            literals["leaves"] = Literal(self.block_leaves, self.kind)
        if self.branching:
            literals["branches"] = Literal(self.branches.reshape(-1), u32)
            literals["branch_leaves"] = Literal(self.branch_leaves.reshape(-1), self.kind)
        if self.leaf == "own":
            literals["targets"] = Literal(self.target[np.concatenate(self.order)], i32)
        if self.lists_features:
            literals["features"] = Literal(self.features, i32)
        return literals


def round_down(values: Array, dtype: np.dtype[Any]) -> Array:
    """Return the largest numbers of ``dtype`` that are at most ``values``.

    For x of ``dtype``, x <= value and x <= rounded agree.
    """
    with np.errstate(over="ignore"):
        near = values.astype(dtype)
    with np.errstate(under="ignore"):
        return np.where(near > values, np.nextafter(near, dtype.type(-np.inf)), near)
