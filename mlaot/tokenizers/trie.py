"""A trie as a double array, which C walks in place: the child by a byte is at the node's base XOR the byte."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

NONE = 0xFFFFFFFF
BLOCK, TRIES = 256, 24  # children of a node lie in one block; so many free places are tried before a new block
Node = dict[int, Any]  # children by byte; -1: the value


def double_array(values: Mapping[bytes, int]) -> bytes:
    """Return the nodes, each its base, its parent and its value, 32 bits each; node 0 is the root."""
    root: Node = {}
    for key, value in values.items():
        node = root
        for byte in key:
            node = node.setdefault(byte, {})
        node[-1] = value
    return _Places().fill(root)


class _Places:
    """The places of nodes. Free ones are a list; a place leaves it when it is taken."""

    def __init__(self) -> None:
        self.base, self.parent, self.value = list[int](), list[int](), list[int]()
        self.free: dict[int, None] = {}
        self.grow()

    def grow(self) -> None:
        begin = len(self.base)
        self.free |= dict.fromkeys(range(begin, begin + BLOCK))
        for column, initial in ((self.base, 0), (self.parent, NONE), (self.value, NONE)):
            column += [initial] * BLOCK

    def base_for(self, labels: list[int]) -> int:
        """Return a base where the places of all labels are free."""
        for tries, place in enumerate(self.free):
            base = place ^ labels[0]
            if all(base ^ label in self.free for label in labels):
                return base
            if tries == TRIES:
                break
        self.grow()
        return len(self.base) - BLOCK

    def fill(self, root: Node) -> bytes:
        del self.free[0]
        waiting = [(0, root)]
        while waiting:
            place, node = waiting.pop()
            self.value[place] = node.get(-1, NONE)
            labels = sorted(label for label in node if label >= 0)
            if not labels:
                continue
            base = self.base[place] = self.base_for(labels)
            for label in labels:
                del self.free[base ^ label]
                self.parent[base ^ label] = place
                waiting.append((base ^ label, node[label]))
        return np.array([self.base, self.parent, self.value], "<u4").T.tobytes()
