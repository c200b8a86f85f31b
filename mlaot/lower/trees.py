"""Decision trees: the kernel of an ensemble, over blocks of rows.

Perfect trees are walked in one of two ways, which ``mlaot/schedule/blocks.py`` chooses for each machine. For many rows,
a block of rows is transposed to [feature][row], and every node is evaluated from the leaves up, in vectors of rows,
without a branch:

    for i in vector(0, 32):
        v3 = select(h3 >= columns[e3 * 32 + i], leaves[..], leaves[..])
        v1 = select(h1 >= columns[e1 * 32 + i], v2, v3)

For few rows, each row walks down 16 trees in step. In trees with links, 8 rows walk down one tree in step, or one row
walks down 8 trees, until all are at leaves, where rows stay:

    w0 = nodes[a0 * 2 + 1]
    a0 = (w0 >> 6) + (row0[w0 & 31] <= thresholds[a0 * 2])

The result of a row is the same in all ways: a tree block adds its trees into ``width`` sums, and then adds these sums
by halves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from mlaot.ir import Dim
from mlaot.ir.types import DTYPES, Type
from mlaot.lower.builder import Accesses, Builder, Stores
from mlaot.lower.forests import LEAF_BITS, Links, Packed, TreeBlock
from mlaot.lower.fuse import Group
from mlaot.lower.layout import work_buffer
from mlaot.lower.program import Kernel
from mlaot.lower.storage import Storage
from mlaot.nest.expressions import (
    BOOL,
    INDEX,
    Array,
    Call,
    Expr,
    Index,
    Load,
    ValueType,
    Var,
    as_index,
    cast,
    compare,
    const,
    least,
    select,
)
from mlaot.nest.reductions import combine, identity
from mlaot.nest.statements import (
    Assign,
    Body,
    For,
    If,
    Let,
    Mutable,
    Slice,
    Statement,
    Store,
    While,
    around,
    index_var,
    loop,
)
from mlaot.ops.nests.target import ZERO, place
from mlaot.schedule.blocks import in_lanes
from mlaot.schedule.tuning import (
    FEATURE_BLOCK_BYTES,
    LINKED_BLOCK,
    LINKED_BLOCK_BYTES,
    PERFECT_LEVELS,
    ROWS_IN_STEP,
    SUBTREE_LEVELS,
    TREES_IN_STEP,
)

I, J, ROOT = (as_index(index_var(name)) for name in ("i", "j", "root"))
E = as_index(index_var("e"))
START, END = (as_index(index_var(name)) for name in ("start", "end"))
WORD = ValueType("u32")


def trees_kernel(group: Group, accesses: Accesses, stores: Stores, storage: Storage) -> Kernel:
    """Return the kernel of a node ``tree_ensemble``, which writes the first of its buffers."""
    return _TreeBuilder(group, accesses, stores, storage).build()


class _TreeBuilder(Builder):
    """Build the loops over blocks of rows, and over the trees of each layout."""

    def __init__(self, group: Group, accesses: Accesses, stores: Stores, storage: Storage) -> None:
        super().__init__(group, accesses, stores)
        (node,) = group.nodes
        x = node.arg(0)
        self.source, self.out = self.access(x), stores[node][0]
        self.type, self.aggregate = ValueType(node.type.dtype.name), node.attrs["aggregate"]
        width = x.type.shape[-1]
        assert isinstance(width, int), "bug in mlaot: rows of trees have no fixed size"
        is_row, dtypes = self.source.strides[-1] == 1, (x.type.dtype.name, self.type.dtype)
        self.forest = Packed(node.attrs["forest"], dtypes, self.aggregate, width, is_row)
        self.compared = ValueType(self.forest.compared)
        self.block_rows = self._block_rows()
        self.storage = storage
        self.array(self.out)  # the first of the kernel's
        lead = x.type.shape[:-2]
        self.loops = [("" if extent == 1 else f"i{i}", extent) for i, extent in enumerate(lead)]
        self.lead = [as_index(index_var(name)) if name else ZERO for name, _ in self.loops]
        self.rank = x.type.rank
        self.rows: Dim = x.type.shape[-2] if x.type.rank > 1 else 1
        self.is_one_block = isinstance(self.rows, int) and self.rows <= self.block_rows
        self.start, self.end = (ZERO, Index(self.rows)) if self.is_one_block else (START, END)
        self.identity = identity(self.aggregate, self.type.dtype)
        self._make_tables()
        self._make_scratch()

    def _block_rows(self) -> int:
        """Return the number of rows that go down all trees before the next rows do."""
        size = DTYPES[self.compared.dtype].itemsize
        if self.forest.tree_blocks:
            return FEATURE_BLOCK_BYTES // size
        fit = LINKED_BLOCK_BYTES // (self.forest.columns * size) // ROWS_IN_STEP * ROWS_IN_STEP
        return min(max(ROWS_IN_STEP, fit), LINKED_BLOCK)

    def _make_tables(self) -> None:
        """Make the arrays of constants; nodes have numbers of several types."""
        forest, dtype = self.forest, self.type.dtype
        buffers = {name: self.storage.constant(literal) for name, literal in forest.literals().items()}

        def table(name: str, dtype: str, what: str = "") -> Array:
            return self.view(buffers[name], f"tree_{what or name}", dtype)

        if forest.tree_blocks:
            self.splits = _Nodes(
                table("splits", dtype, "thresholds"), table("splits", "u32", "features"), forest.splits.itemsize
            )
            self.leaves = table("leaves", dtype)
        if forest.branching:
            thresholds = table("branches", forest.links.threshold, "branch_thresholds")
            self.branches = _Branches(thresholds, table("branches", "u32", "branches"), forest.links)
            self.branch_leaves = table("branch_leaves", dtype)
        if forest.leaf == "own":
            self.targets = table("targets", "i32")
        if forest.lists_features:
            self.features = table("features", "i32", "columns")

    def _make_scratch(self) -> None:
        """Make memory for a block of rows."""

        def scratch(rows: int, dtype: str = self.type.dtype) -> Array:
            return self.array(work_buffer("scratch", Type(DTYPES[dtype], (self.block_rows * rows,))))

        forest = self.forest
        if forest.gathers:
            self.gathered = scratch(forest.columns, forest.compared)
        if forest.tree_blocks:
            self.columns = scratch(forest.columns)
            self.sums = scratch({"one": TREES_IN_STEP, "own": forest.targets, "all": 1}[forest.leaf])
            self.subtree_values = scratch(1 << (PERFECT_LEVELS - SUBTREE_LEVELS))

    def build(self) -> Kernel:
        """Build the nest: for each block of rows, gather them, then evaluate tree blocks and linked trees."""
        forest = self.forest
        body: list[Statement] = [*self._gather(), *self._begin(), *self._transpose()]
        for i, block in enumerate(forest.tree_blocks):
            blocked, walk = self._rows_in_lanes(block, i == 0), self._walk(block, i == 0)
            body.append(If(self._in_lanes(block), blocked, (self._each_row(walk),)))
        if forest.branching:
            body += self._walk_linked()
        return self.kernel(around(self.loops, self._blocks(tuple(body))), "trees")

    def _blocks(self, body: Body) -> Body:
        """Run ``body`` for each block of rows."""
        if self.is_one_block:
            return body
        left = Index(self.rows) - START
        end = Let(index_var("end"), least(left, self.block_rows))
        return (For(index_var("start"), ZERO, Index(self.rows), (end, *body), step=self.block_rows),)

    def _each_row(self, body: Body, low: Expr = ZERO) -> Statement:
        return For(index_var("i"), low, self.end, body)

    def _in_lanes(self, block: TreeBlock) -> Expr:
        return in_lanes(self.end, (1 << block.depth) - 1, block.depth, self.block_rows)

    # Rows as the trees read them.

    def _at(self, row: Expr) -> list[Expr]:
        """Return the indices of a row of the block."""
        return [*self.lead, *([self.start + row] if self.rank > 1 else [])]

    def _row(self, row: Expr, number: int | str = "") -> Slice:
        """Return the columns of a row of the block."""
        if self.forest.gathers:
            return _slice(f"tree_row{number}", self.gathered, row * self.forest.columns)
        first_element = self.element(self.source, [*self._at(row), ZERO])
        return _slice(f"tree_row{number}", first_element.array, first_element.index)

    def _gather(self) -> Body:
        """Copy the features that trees read; where nan goes to the left, it becomes -inf."""
        if not self.forest.gathers:
            return ()
        low, columns = self.forest.low, self.forest.columns
        x = Var("x0", self.compared)
        to_left = select(compare("eq", x, x), x, const(-float("inf"), self.compared))
        feature = index_var("e0")
        body: list[Statement] = []
        for first, end, sends_nan_left in ((0, low, False), (low, columns, True)):
            if first == end:
                continue
            begin, column = self.forest.features_from(first, end), J + first
            lets: list[Statement] = [] if begin is not None else [Let(feature, cast(self.features[column], "index"))]
            source = as_index(feature) if begin is None else J + begin
            read = self.element(self.source, [*self._at(I), source])
            read = replace(read, padded=read.padded and begin == 0)  # or vectors would end behind the row's padding
            element = cast(read, self.compared.dtype)
            if sends_nan_left:
                lets.append(Let(x, element))
            copy = Store(self.gathered, I * columns + column, to_left if sends_nan_left else element)
            is_run = begin is not None and self.source.strides[-1] == 1
            body.append(loop("j", end - first, (*lets, copy), vector=is_run))
        return (self._each_row(tuple(body)),)

    def _transpose(self) -> Body:
        """Transpose a block to [column][row] if its rows are in lanes; copies of the last row fill it."""
        if not self.forest.tree_blocks:
            return ()
        number = index_var("row")
        last = Let(number, least(I, self.end - 1))
        row = self._row(as_index(number))
        copy = Store(self.columns, J * self.block_rows + I, row.array[J])
        rows = loop("i", self.block_rows, (last, row, loop("j", self.forest.columns, (copy,))))
        return (If(self._in_lanes(self.forest.tree_blocks[0]), (rows,)),)

    # Results.

    def _result(self, row: Expr, target: Expr = ZERO) -> Load:
        at = self._at(row)
        at += [target] * (len(self.out.strides) - len(at))
        return self.array(self.out)[place(at, self.out.strides)]

    def _put(self, row: Expr, value: Expr, target: Expr = ZERO, *, first: bool = False) -> Statement:
        """Store a value as a result, or combine it with the result so far."""
        result = self._result(row, target)
        return Store(result.array, result.index, value if first else combine(self.aggregate, result, value))

    def _each_target(self, statement: Statement) -> Body:
        return (loop("e", self.forest.targets, (statement,)),) if self.forest.targets > 1 else (statement,)

    @property
    def target(self) -> Expr:
        """The variable of a loop over targets."""
        return E if self.forest.targets > 1 else ZERO

    def _begin(self) -> Body:
        """Set results to the identity element, if trees are added to them one by one."""
        if self.forest.leaf == "one" and self.forest.tree_blocks:
            return ()
        return (self._each_row(self._each_target(self._put(I, self.identity, self.target, first=True))),)

    def _add(self, row: Expr, leaves: Array, at: Expr, tree: Expr, k: int = 0) -> Body:
        """Add a leaf of the tree number ``tree``, the ``k``-th of the trees in step, to the result of a row."""
        targets = self.forest.targets
        if self.forest.leaf == "all":
            place = index_var(f"r{k}")
            added = self._put(row, leaves[as_index(place) + self.target], self.target)
            return Let(place, at * targets), *self._each_target(added)
        if self.forest.leaf == "one":
            return (self._put(row, leaves[at]),)
        target = index_var(f"r{k}")
        return Let(target, cast(self.targets[tree], "index")), self._put(row, leaves[at], as_index(target))

    def _halve(self, names: str, width: int) -> Body:
        """Combine the variables of a block's trees into the first one, by halves."""
        sums = [Var(f"{names}{k}", self.type) for k in range(width)]
        halves = [width >> i for i in range(1, width.bit_length())]
        return tuple(
            Assign(sums[k], combine(self.aggregate, sums[k], sums[k + half])) for half in halves for k in range(half)
        )

    # Perfect trees, a row at a time.

    def _walk(self, block: TreeBlock, is_first: bool) -> Body:
        """Walk one row down ``width`` trees in step."""
        width, one = block.width, self.forest.leaf == "one"
        at = [Var(f"a{k}", INDEX) for k in range(width)]
        sums = [Var(f"c{k}", self.type) for k in range(width)]
        row, (bases, splits, leaves) = self._row(I), self._side_by_side(block, J * block.size)
        down: list[Statement] = []
        for k, a in enumerate(at):
            decided, right = _decide(k, row.array, splits, as_index(a) + k)
            down += [*decided, Assign(a, as_index(a) * 2 + right * width)]
        ends: list[Statement] = []
        for k, a in enumerate(at):
            leaf = as_index(a) + (k - block.size)
            if one:
                ends.append(Assign(sums[k], combine(self.aggregate, sums[k], leaves[leaf])))
            else:
                ends += self._add(I, leaves, leaf, J * width + (block.first + k), k)
        starts = [Mutable(a, Index(width)) for a in at]
        trees = loop("j", block.groups, (*bases, *starts, loop("k", block.depth, down), *ends))
        if not one:
            return row, trees
        total = self._put(I, sums[0], first=is_first)
        return (row, *[Mutable(c, self.identity) for c in sums], trees, *self._halve("c", width), total)

    def _side_by_side(self, block: TreeBlock, first: Expr) -> tuple[Body, _Nodes, Array]:
        """Return the splits and leaves of a tree block from one on, and the statements that name them."""
        each = self.forest.targets if self.forest.leaf == "all" else 1
        slices, splits = self.splits.from_node(first + block.splits)
        leaves = _slice("tree_leaf", self.leaves, first * each + block.leaves)
        return (*slices, leaves), splits, leaves.array

    # Perfect trees, a block of rows in lanes.

    def _rows_in_lanes(self, block: TreeBlock, is_first: bool) -> Body:
        """Evaluate every node of every tree for a block of rows, and sum the leaves that the rows reach."""
        group = index_var("tree_group")
        behind = as_index(group) * (block.size - block.width)
        group_of = Let(group, Index(J.value // block.width) if isinstance(J, Index) else J)
        trees = loop("j", block.trees, (group_of, *self._evaluate(block, J + behind, as_index(group))))
        one_each = self.forest.leaf == "one"
        if self.forest.leaf == "all":
            return (trees,)
        if one_each:
            clear = loop("i", block.width * self.block_rows, (Store(self.sums, I, self.identity),))
            sums = [Let(Var(f"c{k}", self.type), self.sums[I + k * self.block_rows]) for k in range(block.width)]
            total = Store(self.sums, I, self._sum_in_halves(block))
            rows = self._each_row((self._put(I, self.sums[I], first=is_first),))
            return clear, trees, loop("i", self.block_rows, (*sums, total), vector=True), rows
        place = self.target * self.block_rows + I
        start = self._each_target(Store(self.sums, place, self._result(I, self.target)))
        end = self._each_target(self._put(I, self.sums[place], self.target, first=True))
        return self._each_row(start), trees, self._each_row(end)

    def _sum_in_halves(self, block: TreeBlock) -> Expr:
        """Return the sum of a block's trees, added by halves."""
        sums: list[Expr] = [Var(f"c{k}", self.type) for k in range(block.width)]
        while len(sums) > 1:
            half = len(sums) // 2
            sums = [combine(self.aggregate, a, b) for a, b in zip(sums[:half], sums[half:], strict=True)]
        return sums[0]

    def _evaluate(self, block: TreeBlock, at: Expr, group: Expr) -> Body:
        """Evaluate one tree, whose splits begin at ``at``, for a block of rows."""
        levels = min(block.depth, SUBTREE_LEVELS)
        first = 1 << (block.depth - levels)
        bases, splits, leaves = self._side_by_side(block, at)
        subtree = self._subtree(block, splits, leaves, levels)
        store = Store(self.subtree_values, (ROOT - first) * self.block_rows + I, Var("v1", self.type))
        if self.forest.leaf == "all":
            number = cast(ROOT * (1 << levels) - (1 << block.depth), self.type.dtype)
            store = Store(self.subtree_values, store.index, Var("v1", self.type) + number)
        subtrees = For(index_var("root"), Index(first), Index(2 * first), (*subtree, store))
        top: list[Statement] = []
        values: dict[int, Expr] = {first + i: self.subtree_values[I + i * self.block_rows] for i in range(first)}
        for node in _bottom_up(1, block.depth - levels):
            values[node] = value = Var(f"c{node}", self.type)
            top += self._node(value, splits, Index(node * block.width), (values[2 * node], values[2 * node + 1]))
        target, put = self._in_sums(block, group, values[1])
        rows = loop("i", self.block_rows, (subtrees, *top, put), vector=True)
        if self.forest.leaf != "all":
            return *bases, *target, rows
        leaf = index_var("child")
        leaf_number = Let(leaf, cast(self.sums[I], "index"))
        added = self._add(I, leaves, as_index(leaf) * block.width, ZERO)
        return *bases, rows, self._each_row((leaf_number, *added))

    def _in_sums(self, block: TreeBlock, group: Expr, value: Expr) -> tuple[Body, Store]:
        """Return the statements that store the value of a tree for a block of rows."""
        if self.forest.leaf == "all":
            return (), Store(self.sums, I, value)
        body: Body = ()
        column = J - group * block.width
        if self.forest.leaf == "own":
            column = as_index(index_var("column"))
            body = (Let(index_var("column"), cast(self.targets[J + block.first], "index")),)
        place = column * self.block_rows + I
        return body, Store(self.sums, place, combine(self.aggregate, self.sums[place], value))

    def _subtree(self, block: TreeBlock, splits: _Nodes, leaves: Array, levels: int) -> Body:
        """Evaluate the nodes below a root, children first."""
        body: list[Statement] = []
        for node in _bottom_up(1, levels):
            level = node.bit_length() - 1
            number = ROOT * (1 << level) + (node - (1 << level))
            left, right = (self._child(2 * node + side, block, leaves, levels) for side in (0, 1))
            body += self._node(Var(f"v{node}", self.type), splits, number * block.width, (left, right))
        return tuple(body)

    def _child(self, node: int, block: TreeBlock, leaves: Array, levels: int) -> Expr:
        """Return the value of a node of a subtree or of its leaf: the leaf's number, or its addend."""
        if node < 1 << levels:
            return Var(f"v{node}", self.type)
        number = node - (1 << levels)
        if self.forest.leaf == "all":
            return const(number, self.type)
        return leaves[(ROOT * (1 << levels) + number) * block.width - block.size]

    def _node(self, value: Var, splits: _Nodes, at: Expr, children: tuple[Expr, Expr]) -> Body:
        """Select the value of a node from those of its children, for a block of rows."""
        number = value.name[1:]
        feature, threshold = index_var(f"e{number}"), Var(f"h{number}", self.type)
        is_left = compare("ge", threshold, self.columns[as_index(feature) * self.block_rows + I])
        return (
            Let(feature, cast(splits.feature(at), "index")),
            Let(threshold, splits.threshold(at)),
            Let(value, select(is_left, *children)),
        )

    # Trees with links.

    def _walk_linked(self) -> Body:
        """Walk full rounds of rows down one tree in step, and each remaining row down several trees in step."""
        first = sum(g.groups * g.width for g in self.forest.tree_blocks)
        branching, step = self.forest.branching, ROWS_IN_STEP
        below = [self._row(I + k, k) for k in range(step)]
        together = (*below, *self._descend(first, [row.array for row in below]))
        rows = For(index_var("i"), ZERO, self.end - (step - 1), together, step=step)
        trees = loop("j", branching, (rows,))
        several: Body = (trees,) if self.is_one_block else (If(compare("ge", self.end, Index(step)), (trees,)),)
        assert isinstance(self.end, Index)
        row = self._row(I)
        one_row = For(index_var("j"), ZERO, Index(branching), self._descend(first, [row.array]), step=step)
        return *several, self._each_row((row, one_row), Index(self.end.value // step * step))

    def _descend(self, first: int, several: Sequence[Array]) -> Body:
        """Walk several rows, or one row in several trees, until all are at leaves."""
        rows, branches = len(several) > 1, self.branches
        at = [Var(f"a{k}", INDEX) for k in range(ROWS_IN_STEP)]
        words, flags = [Var(f"w{k}", WORD) for k in range(ROWS_IN_STEP)], Var("flags", WORD)
        starts = [Mutable(a, J if rows else J + k) for k, a in enumerate(at)]
        steps: list[Statement] = []
        for k, (a, word) in enumerate(zip(at, words, strict=True)):
            node, row, feature = as_index(a), several[k if rows else 0], index_var(f"e{k}")
            is_left = branches.is_at_most(row[as_index(feature)], node)
            steps += [
                Let(word, branches.word(node)),
                Let(feature, cast(branches.feature(word), "index")),
                Assign(a, cast(branches.children(node, word), "index") + cast(is_left, "index")),
            ]
        everywhere: Expr = words[0]
        for word in words[1:]:
            everywhere = _and(everywhere, word)
        steps.append(Assign(flags, everywhere))
        is_one_inside = compare("eq", _and(flags, const(branches.links.flag, WORD)), const(0, WORD))
        ends: list[Statement] = []
        for k, a in enumerate(at):
            leaf = index_var(f"p{k}")
            ends.append(Let(leaf, cast(branches.leaf(as_index(a)), "index")))
            row_at, tree = (I + k, J + first) if rows else (I, J + (first + k))
            ends += self._add(row_at, self.branch_leaves, as_index(leaf), tree, k)
        return *starts, Mutable(flags, const(0, WORD)), While(is_one_inside, tuple(steps)), *ends


class _Branches:
    """Nodes with links (``mlaot/lower/forests.py``); ``words`` are the same memory as ``thresholds``.

    Words are unsigned, as sign extension of signed words would make a walk 10 % slower.
    """

    def __init__(self, thresholds: Array, words: Array, links: Links) -> None:
        self.thresholds, self.words, self.links = thresholds, words, links

    def word(self, node: Expr) -> Expr:
        """Return the word that has the feature, and the flag of leaves."""
        return self.words[node * self.links.words + self.links.words // 2]

    def feature(self, word: Expr) -> Expr:
        return _and(word, const(self.links.flag - 1, WORD))

    def children(self, node: Expr, word: Expr) -> Expr:
        """Return the place of the children, or of the leaf itself."""
        if self.links.is_narrow:
            return Call("right_shift", (word, const(self.links.bits + 1, WORD)), WORD)
        return self.words[node * self.links.words + 3]

    def is_at_most(self, x: Expr, node: Expr) -> Expr:
        """Return whether a feature is at most the threshold of a node."""
        return compare("le", cast(x, self.thresholds.dtype), self.thresholds[node * 2])

    def leaf(self, node: Expr) -> Expr:
        """Return the number of a leaf."""
        word = self.words[node * self.links.words]
        return _and(word, const((1 << LEAF_BITS) - 1, WORD)) if self.links.is_narrow else word


class _Nodes:
    """Nodes of ``size`` bytes without links: a threshold and a feature.

    The arrays are the same memory as elements of different types.
    """

    def __init__(self, thresholds: Array, features: Array, size: int) -> None:
        self.thresholds, self.features, self.size = thresholds, features, size
        self.words, self.first = size // 4, DTYPES[thresholds.dtype].itemsize // 4

    def threshold(self, node: Expr) -> Expr:
        return self.thresholds[node * (self.words // self.first)]

    def feature(self, node: Expr) -> Expr:
        return self.features[node * self.words + self.first]

    def from_node(self, node: Expr) -> tuple[Body, _Nodes]:
        """Return the nodes from one on, and the statements that name them."""
        thresholds = _slice("tree_threshold", self.thresholds, node * (self.words // self.first))
        features = _slice("tree_feature", self.features, node * self.words)
        return (thresholds, features), _Nodes(thresholds.array, features.array, self.size)


def _slice(name: str, source: Array, index: Expr) -> Slice:
    return Slice(Array(name, source.dtype, source.size, "slice"), source, index)


def _decide(k: int, row: Array, nodes: _Nodes, node: Expr) -> tuple[Body, Expr]:
    """Return 1 if a row goes to the right of a node, as it does for nan, and else 0, with the statements for it."""
    feature, right = index_var(f"e{k}"), index_var(f"b{k}")
    is_left = compare("le", row[as_index(feature)], nodes.threshold(node))
    is_right = cast(Call("not", (is_left,), BOOL), "index")
    return (Let(feature, cast(nodes.feature(node), "index")), Let(right, is_right)), as_index(right)


def _and(a: Expr, b: Expr) -> Expr:
    return Call("and", (a, b), a.type)


def _bottom_up(root: int, levels: int) -> Iterator[int]:
    """Yield the nodes of a perfect tree, children first."""
    if levels > 0:
        yield from _bottom_up(2 * root, levels - 1)
        yield from _bottom_up(2 * root + 1, levels - 1)
        yield root
