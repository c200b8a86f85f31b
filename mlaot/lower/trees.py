"""Decision trees: their arrays in the layout that kernels walk, and the kernel of an ensemble.

Two kinds of trees, each walked in two ways; every tree is in memory once.

* Shallow ones are padded to perfect trees of one depth, ``{threshold, feature}`` per node, without links. Many rows: a
  block of rows lies as [feature][row], and every node is evaluated from the leaves up, ``x <= t ? left : right`` in
  vectors of rows, without a branch. Few rows: each walks down 16 trees in step.
* The others keep their links: 8 rows walk down one tree in step, or one row 8 trees.

What a row gives does not depend on how it was computed: a grove adds its trees into ``width`` sums and these by halves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from mlaot.ir import Node
from mlaot.ir.types import DTYPES, Literal, i32, u32
from mlaot.lower.emit import C_TYPES, Emitter, neutral
from mlaot.lower.fuse import Group
from mlaot.lower.layout import Access, atom, linear, work_buffer
from mlaot.lower.plain import loop
from mlaot.lower.program import Buffer, Grove, Trees
from mlaot.lower.storage import Storage
from mlaot.ops.trees import Forest
from mlaot.schedule.contraction import lanes_of
from mlaot.schedule.machine import LINE
from mlaot.schedule.machine import Machine as Isa
from mlaot.schedule.tuning import (
    BUSHY_LEVELS,
    FEATURE_BLOCK_BYTES,
    NODE_BY_VECTOR,
    PADDED_LEAVES,
    PERFECT_LEVELS,
    ROWS_IN_STEP,
    SUBTREE_LEVELS,
    TREES_IN_STEP,
)

Array = np.ndarray[Any, Any]


def trees_kernel(
    group: Group, accesses: Mapping[Node, Access], stores: Mapping[Node, Sequence[Buffer]], storage: Storage
) -> Trees:
    """The kernel of a node ``tree_ensemble``, which writes the first of its buffers."""
    emit = Emitter(group, accesses, stores)
    (node,) = group.nodes
    out, access, x = stores[node][0], emit.access(node.arg(0)), node.arg(0)
    forest: Forest = node.attrs["forest"]
    dtype, aggregate = node.type.dtype.name, node.attrs["aggregate"]
    packed = Packed(forest, dtype, aggregate, _features(x), access.strides[-1] == 1)
    at = [f"i{i}" for i in range(x.type.rank - 1)]
    lead = at[:-1]
    given, names = emit.buffer(access.buffer), {"y": emit.buffer(out, written=True)}
    for name, literal in packed.literals().items():
        names[name] = emit.buffer(storage.constant(literal))
    block = FEATURE_BLOCK_BYTES // DTYPES[dtype].itemsize
    rows = packed.columns * packed.gathers  # gathered, then transposed; then sums, and what subtrees gave
    if packed.groves:
        rows += packed.columns + _sums(packed.leaf, packed.targets) + (1 << (PERFECT_LEVELS - SUBTREE_LEVELS))
    if rows:
        type_ = node.type.with_shape((block * rows,))
        names["scratch"] = emit.buffer(work_buffer("scratch", type_), written=True)
    gather = ""
    if packed.gathers:
        place = access.index([*lead, *(["{i}"] if at else []), f"{names['features']}[{{j}}]"])
        gather = f"{given}[{place}]"
    rank = x.type.rank - 1
    return Trees(
        dtype,
        emit.params,
        tuple((v, str(d)) for v, d in zip(lead, x.type.shape[:-2], strict=False)),
        str(x.type.shape[-2]) if at else "1",
        packed.columns,
        packed.targets,
        _start(given, lead, access.strides[:-1], access.offset),
        _start(names["y"], lead, out.strides[:rank], 0),
        atom(out.strides[-1]) if packed.targets > 1 else "0",
        gather,
        packed.low,
        packed.leaf,
        aggregate,
        packed.groves,
        packed.branching,
        names,
        emit.doc(),
    )


def _features(x: Node) -> int:
    """How many features the rows of a value have."""
    width = x.type.shape[-1]
    assert isinstance(width, int), "bug in mlaot: rows of trees have no fixed size"
    return width


def _start(name: str, lead: Sequence[str], strides: Sequence[Any], offset: Any) -> tuple[str, str]:
    """The pointer to the first row, and the distance from one row to the next."""
    place = linear([*zip(lead, strides[:-1], strict=True)] if strides else [], offset)
    return name if place == "0" else f"{name} + {place}", atom(strides[-1]) if strides else "0"


def _sums(leaf: str, targets: int) -> int:
    """How many numbers a row of a block needs while its trees are added."""
    return {"one": TREES_IN_STEP, "own": targets, "all": 1}[leaf]


class Packed:
    """A forest in the layout that kernels walk.

    ``columns``: of a row as the trees read it. Unless every node sends nan to the right, as the comparison does, a row
    is gathered first: the features, and again those of nodes that send nan to the left, with -inf for nan.
    """

    def __init__(self, forest: Forest, dtype: str, aggregate: str, width: int, is_row: bool) -> None:
        self.forest = forest
        self.dtype = np.dtype(DTYPES[dtype].numpy)
        self.kind = DTYPES[dtype]
        self.identity = {"sum": 0.0, "min": np.inf, "max": -np.inf}[aggregate]
        self.targets = int(np.prod(forest.targets, dtype=np.int64))
        leaves = forest.leaves.array.reshape(-1, self.targets)
        self.threshold = round_down(forest.threshold.array, self.dtype)
        depths, counts, own = self._measure(leaves)
        self.leaf = "one" if self.targets == 1 else "own" if own is not None and aggregate == "sum" else "all"
        self.target = np.zeros(0, np.int64) if own is None else own
        if self.leaf == "own":
            leaves = leaves.sum(axis=1, keepdims=True)  # of one number and zeros
        self.leaves = leaves.astype(self.dtype)
        shallow = (depths <= BUSHY_LEVELS) | ((depths <= PERFECT_LEVELS) & (2**depths <= PADDED_LEAVES * counts))
        self._choose_columns(width, is_row, bool(shallow.any()))
        self._plant(depths, np.flatnonzero(shallow))
        self._link(np.flatnonzero(~shallow))

    def _measure(self, leaves: Array) -> tuple[Array, Array, Array | None]:
        """Of each tree: its depth, how many leaves it has, and the one target that it adds to, if all have one."""
        depths, counts = np.zeros((2, self.forest.trees), np.int64)
        adds = np.zeros((self.forest.trees, self.targets), bool)
        for depth, (tree, at) in enumerate(self.forest.levels()):
            depths[tree] = depth
            np.add.at(counts, tree[at < 0], 1)
            np.logical_or.at(adds, tree[at < 0], leaves[~at[at < 0]] != 0)
        own = adds.argmax(axis=1) if self.targets > 1 and (adds.sum(axis=1) <= 1).all() else None
        return depths, counts, own

    def _choose_columns(self, width: int, is_row: bool, is_shallow: bool) -> None:
        """Whether rows are gathered, from which features; and the column that each node reads."""
        feature, nan_left = self.forest.feature.array, self.forest.nan_left.array
        high, low = np.unique(feature[~nan_left]), np.unique(feature[nan_left])
        many = is_shallow and width > 2 * len(high) + 64
        self.gathers = bool(len(low)) or many or not is_row
        self.features = np.concatenate([high, low]).astype(np.int64) if self.gathers else np.arange(0)
        self.low = len(high)
        self.columns = max(len(self.features), 1) if self.gathers else width
        if self.gathers:
            place = np.searchsorted(high, feature), self.low + np.searchsorted(low, feature)
            self.column = np.where(nan_left, place[1], place[0])
        else:
            self.column = feature.astype(np.int64)

    def _plant(self, depths: Array, shallow: Array) -> None:
        """The groves, and their splits and leaves; a depth of few trees joins the next one."""
        splits, leaves, groves = list[Array](), list[Array](), list[Grove]()
        self.order: list[Array] = []
        waiting = np.zeros(0, np.int64)
        levels = np.maximum(depths[shallow], 1)
        for depth in np.unique(levels):
            waiting = np.union1d(waiting, shallow[levels == depth])
            if len(waiting) < TREES_IN_STEP and depth < levels.max():
                continue
            side = min(TREES_IN_STEP, 1 << (len(waiting) - 1).bit_length())
            first = sum(len(order) for order in self.order)
            at = sum(part.size for part in splits), sum(part.size for part in leaves)
            groves.append(Grove(len(waiting), int(depth), side, *at, first))
            for parts, part in zip((splits, leaves), self._perfect(waiting, int(depth), side), strict=True):
                parts.append(part)
            self.order.append(np.pad(waiting, (0, -len(waiting) % side), mode="edge"))
            waiting = waiting[:0]
        self.groves = tuple(groves)
        self.splits = np.concatenate(splits) if splits else np.zeros(0, self._record())
        self.grove_leaves = np.concatenate([part.reshape(-1) for part in leaves]) if leaves else np.zeros(0, self.dtype)

    def _record(self, *more: tuple[str, str]) -> np.dtype[Any]:
        """A node in memory, as a C struct of the same fields."""
        size = self.dtype.itemsize + 4 + 4 * len(more)
        padding = [("padding", "<u4")] * (size % self.dtype.itemsize // 4)
        return np.dtype([("threshold", self.dtype), ("feature", "<u4"), *more, *padding])

    def _perfect(self, trees: Array, depth: int, side: int) -> tuple[Array, Array]:
        """Splits [groups, 2^depth, side] (the first of each tree is no node) and leaves [groups, 2^depth, side, ..].

        A leaf above the last level is one subtree of equal leaves.
        """
        groups = -(-len(trees) // side)
        splits = np.zeros((groups * side, 1 << depth), self._record())
        splits["threshold"] = np.inf
        leaves = np.full((groups * side, 1 << depth, self.leaves.shape[1]), self.identity, self.dtype)
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
        ordered = [a.reshape(groups, side, *a.shape[1:]).swapaxes(1, 2) for a in (splits, leaves)]
        return ordered[0].reshape(-1), ordered[1]

    def _link(self, deep: Array) -> None:
        """The nodes and leaves of trees that keep their links, and roots, which a tree of one neutral leaf fills up."""
        self.branching = len(deep)
        used, reached = np.zeros(len(self.threshold), bool), np.zeros(len(self.leaves), bool)
        for tree, at in self.forest.levels():
            mine = at[np.isin(tree, deep)]
            used[mine[mine >= 0]] = True
            reached[~mine[mine < 0]] = True
        number, leaf = np.cumsum(used) - 1, np.cumsum(reached) - 1

        def renumbered(at: Array) -> Array:
            return np.where(at >= 0, number[np.maximum(at, 0)] if len(number) else 0, ~leaf[np.maximum(~at, 0)])

        self.branches = np.zeros(used.sum(), self._record(("left", "<i4"), ("right", "<i4")))
        self.branches["threshold"] = self.threshold[used]
        self.branches["feature"] = self.column[used]
        for name, child in (("left", self.forest.left.array), ("right", self.forest.right.array)):
            self.branches[name] = renumbered(child.astype(np.int64))[used]
        neutral_leaf = np.full((1, self.leaves.shape[1]), self.identity, self.dtype)
        self.branch_leaves = np.concatenate([self.leaves[reached], neutral_leaf])
        roots = renumbered(self.forest.roots.array.astype(np.int64))[deep]
        self.roots = np.pad(roots, (0, -len(deep) % ROWS_IN_STEP), constant_values=~int(reached.sum()))
        if len(deep):
            self.order.append(np.pad(deep, (0, -len(deep) % ROWS_IN_STEP), mode="edge"))

    def literals(self) -> dict[str, Literal]:
        """The arrays that the kernel reads, by name."""
        found: dict[str, Literal] = {}
        if self.groves:
            found["splits"] = Literal(np.frombuffer(self.splits.tobytes(), np.uint32), u32)
            found["leaves"] = Literal(self.grove_leaves, self.kind)
        if self.branching:
            found["branches"] = Literal(np.frombuffer(self.branches.tobytes(), np.uint32), u32)
            found["branch_leaves"] = Literal(self.branch_leaves.reshape(-1), self.kind)
            found["roots"] = Literal(self.roots, i32)
        if self.leaf == "own":
            found["targets"] = Literal(self.target[np.concatenate(self.order)], i32)
        if self.gathers:
            found["features"] = Literal(self.features if len(self.features) else np.zeros(1, np.int64), i32)
        return found


def round_down(values: Array, dtype: np.dtype[Any]) -> Array:
    """The largest numbers of ``dtype`` not above ``values``: x <= value and x <= rounded agree for x of ``dtype``."""
    with np.errstate(over="ignore"):
        near = values.astype(dtype)
    with np.errstate(under="ignore"):
        return np.where(near > values, np.nextafter(near, dtype.type(-np.inf)), near)


def tree_text(kernel: Trees, isa: Isa) -> dict[str, Any]:
    """What the template needs beside the kernel, for one instruction set."""
    lanes = lanes_of(kernel.dtype, isa)
    block = FEATURE_BLOCK_BYTES // DTYPES[kernel.dtype].itemsize
    vectors = min(block // lanes, 2 if isa.bytes == LINE else 4)
    groves = [_grove_text(kernel, grove, vectors, lanes) for grove in kernel.groves]
    blocked = [g["least"] for g in groves if g["is_blocked"]]
    first = next(iter(kernel.groves), None)
    linked_first = sum(-(-g.trees // g.width) * g.width for g in kernel.groves)
    return {
        "lanes": lanes,
        "block": block,
        "vectors": vectors,
        "part": lanes * vectors,
        "ctype": C_TYPES[kernel.dtype],
        "infinity": "__builtin_inf()" if kernel.dtype == "f64" else "__builtin_inff()",
        "neutral": neutral(kernel.aggregate, kernel.dtype),
        "stride": str(kernel.columns) if kernel.gather else kernel.source[1],
        "gathers": bool(kernel.gather),
        "element": kernel.gather.replace("{i}", "(start + i)").replace("{j}", "j"),
        "starts": kernel.leaf != "one" or first is None,
        "groves": groves,
        "is_blocked": bool(blocked),
        "least": min(blocked, default=0),
        "sums": _sums(kernel.leaf, kernel.targets),
        "each": kernel.targets if kernel.leaf == "all" else 1,
        "in_step": ROWS_IN_STEP,
        "linked_first": linked_first,
        **_lines(kernel),
    }


def _grove_text(kernel: Trees, grove: Grove, vectors: int, lanes: int) -> dict[str, Any]:
    """A grove's loops; ``least``: the rows from which on it is faster to evaluate every node for a block of them."""
    least = max(2, math.ceil(((1 << grove.depth) - 1) * vectors * NODE_BY_VECTOR / grove.depth))
    levels = min(grove.depth, SUBTREE_LEVELS)
    first_root = 1 << (grove.depth - levels)
    part = vectors * lanes

    def found(node: int, vector: int) -> str:
        """The value of a node at the top, or of the subtree that is rooted there."""
        if node < first_root:
            return f"v{node}_{vector}"
        return f"load_{kernel.dtype}v({linear([('tree_found', 1)], (node - first_root) * part + vector * lanes)})"

    return {
        "grove": grove,
        "size": grove.width << grove.depth,
        "groups": -(-grove.trees // grove.width),
        "is_blocked": least <= 0.8 * part and not (kernel.rows.isdigit() and int(kernel.rows) < least),
        "least": least,
        "levels": levels,
        "first_root": first_root,
        "subtree": [_Inline(n, levels, grove.width, kernel.leaf) for n in _bottom_up(1, levels)],
        "top": list(_bottom_up(1, grove.depth - levels)),
        "found": found,
        "halves": [grove.width >> i for i in range(1, grove.width.bit_length())],
    }


def _bottom_up(root: int, levels: int) -> Iterator[int]:
    """The nodes of a perfect tree, children first."""
    if levels > 0:
        yield from _bottom_up(2 * root, levels - 1)
        yield from _bottom_up(2 * root + 1, levels - 1)
        yield root


class _Inline:
    """A node of a subtree: its number there, and where it is among the nodes of its level; its ``leaves`` as C text."""

    def __init__(self, number: int, levels: int, width: int, leaf: str) -> None:
        self.number = number
        self.level = number.bit_length() - 1
        self.place = (number - (1 << self.level)) * width
        first = 2 * number - (1 << levels)
        self.leaves: tuple[str, ...] = ()
        if self.level == levels - 1:
            places = first, first + 1
            self.leaves = tuple(str(p) if leaf == "all" else f"p{levels}[{p * width}]" for p in places)


def _lines(kernel: Trees) -> dict[str, Callable[..., Any]]:
    """Statements that depend on how many targets there are and how leaves are combined."""
    names, step, targets = kernel.names, kernel.result[1], kernel.targets

    def y(row: str, target: str = "0") -> str:
        terms = [(row, step), (target, kernel.next)]
        parts = [i if d == "1" else f"{i} * {d}" for i, d in terms if i != "0" and d != "0"]
        return f"tree_y[{' + '.join(parts) or '0'}]"

    def combine(a: str, b: str, vector: str = "") -> str:
        return f"{a} + {b}" if kernel.aggregate == "sum" else f"{kernel.aggregate}_{kernel.dtype}{vector}({a}, {b})"

    def each_target(statement: str, row: str) -> list[str]:
        """``statement``, where @ is the result, for every target."""
        return (
            loop("e", targets, [statement.replace("@", y(row, "e"))])
            if targets > 1
            else [statement.replace("@", y(row))]
        )

    def add(row: str, leaves: str, at: str, number: str) -> list[str]:
        """A leaf of the tree ``number`` added to the result of a row."""
        if kernel.leaf == "all":
            leaf = f"{leaves}[{linear([(at, targets), ('e', 1)])}]"
            return each_target(f"@ = {combine('@', leaf)};", row)
        result = y(row, f"{names['targets']}[{number}]") if kernel.leaf == "own" else y(row)
        return [f"{result} = {combine(result, f'{leaves}[{at}]')};"]

    def total(row: str, value: str, is_first: bool) -> list[str]:
        """The result of the first grove, or that of a further one added."""
        return [f"{y(row)} = {value if is_first else combine(y(row), value)};"]

    def walk(rows: str) -> list[str]:
        """Walks down until all are at leaves; who is there stays."""
        lines = [f"while (({' & '.join(f'a{k}' for k in range(ROWS_IN_STEP))}) >= 0) {{"]
        for k in range(ROWS_IN_STEP):
            row = rows if rows == "row" else f"{rows}{k}"
            lines += [
                f"    const int32_t s{k} = a{k} >> 31;",
                f"    const branch_t *const b{k} = tree_branches + (a{k} & ~s{k});",
                f"    a{k} = (a{k} & s{k}) | (b{k}->child[!({row}[b{k}->feature] <= b{k}->threshold)] & ~s{k});",
            ]
        return [*lines, "}"]

    return {"combine": combine, "each_target": each_target, "add": add, "total": total, "walk": walk}
