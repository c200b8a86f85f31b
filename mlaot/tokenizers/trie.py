"""A trie as a double array, which C walks in place: the child of a node by a byte is at the node's base plus the byte.

A node is 64 bits: its base times 512 plus the byte that leads to it, or ``FREE``, and its value, or ``NONE``. No two
sets of children have the same base, so the byte tells whether a node is a child. Nodes with equal sets of children
share them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mlaot.errors import MlaotError

NONE, FREE, LABELS = 0xFFFFFFFF, 511, 512
WINDOW = 1 << 12  # so many places are looked at for children
MAX_BASE = (1 << 23) - WINDOW
Node = dict[int, Any]  # children by byte; -1: the value
Children = tuple[tuple[int, int, int], ...]  # of each child its byte, its value, and which children it has in turn


def double_array(values: Mapping[bytes, int]) -> bytes:
    """Return the nodes; the root is the first, and is not the child of any."""
    root: Node = {}
    for key, value in values.items():
        node = root
        for byte in key:
            node = node.setdefault(byte, {})
        node[-1] = value
    sets = _children(root)
    bases = _bases(sets)
    rows = np.full((max(bases) + LABELS, 2), (FREE, NONE), "<u4")
    rows[0] = bases[-1] * LABELS + 1, root.get(-1, NONE)
    for children, base in zip(sets, bases, strict=True):
        for byte, value, its in children:
            rows[base + byte] = bases[its] * LABELS + byte, value
    return rows.tobytes()


def _children(root: Node) -> list[Children]:
    """Return all different sets of children: the empty set first, and the root's last."""
    known: dict[Children, int] = {(): 0}
    done: dict[int, int] = {}
    waiting = [(root, False)]
    while waiting:
        node, is_open = waiting.pop()
        inner = [(byte, child) for byte, child in node.items() if byte >= 0]
        if not is_open and inner:
            waiting += [(node, True), *((child, False) for _, child in inner)]
            continue
        children = tuple(sorted((byte, child.get(-1, NONE), done[id(child)]) for byte, child in inner))
        done[id(node)] = known.setdefault(children, len(known))
    return [*known]


def _bases(sets: list[Children]) -> list[int]:
    """Return a base for each set at which the places of all its bytes are free; 0 for the empty set."""
    bases = [0] * len(sets)
    begin, end, free, bare = 1, 1, 0, 0  # bits of the places from `begin` to `end`: those free, those no base yet
    for i in range(len(sets) - 1, 0, -1):
        labels = [byte for byte, _, _ in sets[i]]
        while True:
            fits = free & bare
            for label in labels:
                fits &= free >> label
            if fits:
                break
            kept = max(begin, end - WINDOW)
            free, bare = (bits >> (kept - begin) | ((1 << WINDOW) - 1) << (end - kept) for bits in (free, bare))
            begin, end = kept, end + WINDOW
            if end > MAX_BASE:
                raise MlaotError("the tokenizer has too many pieces, or too long ones")
        bases[i] = begin + (fits & -fits).bit_length() - 1
        bare &= ~(1 << (bases[i] - begin))
        for label in labels:
            free &= ~(1 << (bases[i] + label - begin))
    return bases
