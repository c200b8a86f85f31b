"""Roles of scalars in rounds that repeat, and cuts between two rounds.

The signature of a scalar describes the ops below it up to some depth. It is the same in every round but the first few
(Weisfeiler and Leman, 1968, number the nodes of a graph in this way). Scalars of one signature at equal distances in
height have one role. Several scalars at one height are distinguished by their order, such as the units of equal layers,
or parallel chains.

In a table, each cell depends on the cell above and on the one to the left, and the cells of one height are a diagonal.
Its rows are rounds too, if the height counts only steps from a cell to the one below.

Scalars are represented by numbers, arguments before their readers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from mlaot.ir import Node, TupleType
from mlaot.ops import structure as st
from mlaot.schedule.tuning import JOINED_NODES, ROLLED_ROUNDS, TRIED_PLACES, TRIED_TABLES

Hashes = np.ndarray[Any, np.dtype[np.uint64]]
Heights = np.ndarray[Any, np.dtype[np.int64]]
Roles = np.ndarray[Any, np.dtype[np.int64]]
Args = Sequence[list[int]]  # of each scalar; none of what is no computed scalar
Cut = tuple[list[int], list[int]]  # what crosses it, one round before the last and after the last
DEPTHS = (3, 6, 12)  # residual connections make rounds short, recurrent cells long
ODD = np.uint64(0x9E3779B97F4A7C15)


def is_computed(node: Node) -> bool:
    """Tell whether a node is a scalar that an op makes of others."""
    return bool(node.args) and not isinstance(node.type, TupleType) and node.type.rank == 0 and node.op is not st.item


def find_cuts(nodes: Sequence[Node]) -> Iterable[list[Cut]]:
    """Yield, for each family of roles that depend on each other, the cuts between its rounds, the likeliest first."""
    number = {node: i for i, node in enumerate(nodes)}
    args = [[number[a.find()] for a in node.args] if is_computed(node) else [] for node in nodes]
    height = np.zeros(len(nodes), np.int64)
    for i, below in enumerate(args):
        if below:
            height[i] = 1 + max(int(height[a]) for a in below)
    if height.max(initial=0) < ROLLED_ROUNDS:
        return
    for signatures in _signatures(nodes, args, height):
        groups = list(_groups(signatures, height))
        for rows in _heights_of_rows(groups, args, height):
            for period, found in _roles(_groups(signatures, rows), rows).items():
                yield list(_cuts(args, rows, period, _columns(found)))
        of_periods = _roles(groups, height)
        for period in sorted(of_periods, key=lambda period: -sum(members.size for members in of_periods[period])):
            for family in _families(args, of_periods[period]):
                yield list(_cuts(args, height, period, family))


# -------------------------------------------------------------------------------------------------------------- numbers


def _signatures(nodes: Sequence[Node], args: Args, height: Heights) -> Iterable[Hashes]:
    """Yield signatures of scalars as numbers, of ever fewer ops below them, with ever less exact leaves."""
    counts = np.array([len(below) for below in args])
    readers = np.flatnonzero(counts)
    flat = np.array([a for below in args for a in below], np.int64)
    starts = np.cumsum(counts[readers]) - counts[readers]
    places = [np.arange(counts[i], dtype=np.uint64) * (not nodes[i].op.commutative) for i in readers.tolist()]
    weights = (2 * np.concatenate(places) + np.uint64(1)) * ODD
    labels: dict[object, int] = {}
    exact, kind = (
        np.array([labels.setdefault(label, len(labels)) for label in of_all])
        for of_all in zip(*map(_labels, nodes), strict=True)
    )
    # Leaves that rounds have in common are read at as many heights.
    reads = np.unique(np.stack([exact[flat], np.repeat(height, counts)]), axis=1)[0]
    is_common = np.bincount(reads, minlength=len(labels))[exact] >= ROLLED_ROUNDS
    is_input = np.array([node.op is st.item and not node.arg(0).attrs.get("parameter") for node in nodes])
    for told in (is_common & ~is_input, is_common, np.zeros_like(is_common)):
        own = _mixed(np.where(told, exact, kind).astype(np.uint64) + np.uint64(1))
        signatures, of_depths = own.copy(), []
        for depth in range(1, max(DEPTHS) + 1):
            of_args = np.add.reduceat(_mixed(signatures[flat] * weights), starts)
            signatures[readers] = _mixed(own[readers] ^ of_args)
            if depth in DEPTHS:
                of_depths.append(signatures.copy())
        yield from reversed(of_depths)


def _labels(node: Node) -> tuple[object, object]:
    """Return a label of a scalar without its arguments; for a leaf, of its kind."""
    if node.op is st.item:
        kind = "item", id(node.arg(0))
        return (*kind, node.attrs["index"]), kind
    label = node.op.name, tuple(map(str, node.attrs.items()))
    return label, ("const", str(node.type)) if node.op is st.const else label


def _mixed(x: Hashes) -> Hashes:
    """Spread bits (Steele et al., 2014, "Fast splittable pseudorandom number generators", figure 17)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


# ---------------------------------------------------------------------------------------------------------------- roles


def _heights_of_rows(groups: Iterable[Roles], args: Args, height: Heights) -> Iterable[Heights]:
    """Yield heights that count the rows of a table: only steps from the cells of one row to those of the next.

    Each argument of a cell is tried as the one that leads to the row before.
    """
    large = (cells for cells in groups if len(cells) >= ROLLED_ROUNDS**2)
    tables = [cells for cells in large if _is_table(args, height, cells)]
    for cells in sorted(tables, key=len, reverse=True)[:TRIED_TABLES]:
        places = min(*(len(args[i]) for i in cells.tolist()), TRIED_PLACES)
        yield from (_steps(args, set(cells.tolist()), place) for place in range(places))


def _groups(signatures: Hashes, height: Heights) -> Iterable[Roles]:
    """Yield the computed scalars of one signature by their height, if there are enough for a chain."""
    order = np.lexsort((np.arange(len(height)), height, signatures))
    order = order[height[order] > 0]
    starts = np.flatnonzero(np.append(True, np.diff(signatures[order]) != 0))
    ends = np.append(starts[1:], len(order))
    is_large = (ends - starts >= ROLLED_ROUNDS) & (height[order[ends - 1]] > height[order[starts]])
    for start, end in zip(starts[is_large].tolist(), ends[is_large].tolist(), strict=True):
        yield order[start:end]


def _is_table(args: Args, height: Heights, cells: Roles) -> bool:
    """Tell whether scalars have about as many heights as a table of this size has diagonals, of different lengths."""
    counts = np.unique(height[cells], return_counts=True)[1]
    size = counts.sum() / np.gcd.reduce(counts)  # a cell may have several units
    least, most = 2 * size**0.5 - 2, size / 2
    return len(args[cells[0]]) > 1 and least <= len(counts) <= most and bool((counts != counts[0]).any())


def _steps(args: Args, cells: set[int], place: int) -> Heights:
    """Return heights that count the steps to the argument at ``place`` of a cell."""
    height = np.zeros(len(args), np.int64)
    for i, below in enumerate(args):
        if below:
            own = [int(height[a]) for a in below]
            if i in cells:
                own[place] += 1
            height[i] = max(own)
    return height


def _roles(groups: Iterable[Roles], height: Heights) -> dict[int, list[Roles]]:
    """Return, by their distance in height, the scalars of one signature, with a row for each round.

    A row has a column for each scalar of one height, in the order of the graph, which is the same in every round.
    """
    found: dict[int, list[Roles]] = defaultdict(list)
    for group in groups:
        heights, first, counts = np.unique(height[group], return_index=True, return_counts=True)
        steps = np.diff(heights)
        breaks = np.flatnonzero((np.diff(steps, prepend=steps[0]) != 0) | (np.diff(counts) != 0))
        # The longest run of equal steps and counts; the last of several.
        bounds = [0, *(breaks + 1).tolist(), len(heights)]
        start, end = max(pairwise(bounds), key=lambda run: (run[1] - run[0], run[1]))
        rounds, width = end - start, int(counts[start])
        if rounds >= ROLLED_ROUNDS:
            members = group[first[start] :][: rounds * width].reshape(rounds, width)
            found[int(steps[end - 2])].append(members)
    return found


def _columns(found: Sequence[Roles]) -> list[list[int]]:
    """Return roles, each as the scalars of all rounds."""
    return [column for members in found for column in members.T.tolist()]


def _families(args: Args, found: Sequence[Roles]) -> Iterable[list[list[int]]]:
    """Yield families of roles that depend on each other from round to round, the largest families first.

    Families of the same signatures that do not depend on each other are parallel chains, which are also tried together.
    So are small families if one reads another.
    """
    roles = _columns(found)
    signature = [k for k, members in enumerate(found) for _ in range(members.shape[1])]
    role = {i: r for r, members in enumerate(roles) for i in members}
    below: dict[int, set[int]] = {r: set() for r in range(len(roles))}
    above: dict[int, set[int]] = {r: set() for r in range(len(roles))}
    for i, r in role.items():
        for a in args[i]:
            if a in role:
                below[r].add(role[a])
                above[role[a]].add(r)
    families = list(_mutual(below, above))
    owner = {r: k for k, family in enumerate(families) for r in family}
    reads = {(owner[r], owner[a]) for r in owner for a in below[r] & owner.keys() if owner[a] != owner[r]}
    kinds: dict[tuple[int, ...], set[int]] = defaultdict(set)
    for k, family in enumerate(families):
        kinds[tuple(sorted(signature[r] for r in family))].add(k)
    for alike in kinds.values():
        if len(alike) > 1 and not any(k in alike and other in alike for k, other in reads):
            families.append(set().union(*(families[k] for k in alike)))
    joined = set[int]().union(*(families[k] for pair in reads for k in pair))
    lengths = [len(roles[r]) for r in joined]
    if joined and len(joined) <= JOINED_NODES and max(lengths) - min(lengths) <= max(DEPTHS):
        families.append(joined)
    for family in sorted(families, key=len, reverse=True):
        yield [roles[r] for r in sorted(family)]


def _mutual(below: Mapping[int, set[int]], above: Mapping[int, set[int]]) -> Iterable[set[int]]:
    """Yield the sets of roles that all depend on each other, in earlier rounds."""
    left = {r for r in below if below[r] and above[r]}
    while left:
        start = next(iter(left))
        family = _reached(start, below, left) & _reached(start, above, left)
        left -= family
        if len(family) > 1 or start in below[start]:
            yield family
        else:
            left = {r for r in left if below[r] & left and above[r] & left}


def _reached(start: int, edges: Mapping[int, set[int]], among: set[int]) -> set[int]:
    found, stack = {start}, [start]
    while stack:
        fresh = edges[stack.pop()] & among - found
        found |= fresh
        stack += fresh
    return found


# ----------------------------------------------------------------------------------------------------------------- cuts


def _cuts(args: Args, height: Heights, period: int, roles: Sequence[list[int]]) -> Iterable[Cut]:
    """Yield the values that cross a cut before and after the last round, for cuts at all heights.

    Cuts are made in the middle, where all values of earlier rounds that are read exist, and then moved up.
    """
    next_ = {i: after for members in roles for i, after in pairwise(members)}
    in_chain = {i for members in roles for i in members}
    top = max(int(height[members[-1]]) for members in roles)
    end = top - period * max(1, min(map(len, roles)) // 2)
    crossing: dict[int, dict[int, None]] = {cut: {} for cut in range(end - period, end)}
    for n in sorted(in_chain):
        for a in args[n]:
            if a in in_chain:
                for cut in range(max(int(height[a]), end - period), min(int(height[n]), end)):
                    crossing[cut][a] = None
    for values in crossing.values():
        needed = _needed(list(values), args)
        fewest = _fewest(needed, args)
        for start in filter(None, [needed] if fewest == needed else [needed, fewest]):
            rounds: list[list[int]] = [start]
            while next_.keys() >= set(rounds[-1]):
                rounds.append([next_[i] for i in rounds[-1]])
            if len(rounds) > 1:
                yield rounds[-2], rounds[-1]


def _needed(values: list[int], args: Args) -> list[int]:
    """Leave out values that a round can compute from others, such as the negative of one."""
    kept = dict.fromkeys(values)
    for i in sorted(values, reverse=True):
        if any(a in kept for a in args[i]) and all(a in kept or not args[a] for a in args[i]):
            del kept[i]
    return list(kept)


def _fewest(values: list[int], args: Args) -> list[int]:
    """Return the values, or fewer values below from which they are computed."""
    fewest, below = values, values
    for _ in range(max(DEPTHS)):
        below = list(dict.fromkeys(a for i in below for a in args[i] if args[a]))
        if not 0 < len(below) <= len(values):
            break
        if len(below) < len(fewest):
            fewest = below
    return fewest
