"""Tables of the regular expressions of Python that can be matched without backtracking."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache, reduce
from importlib import import_module
from typing import Any as Anything

import numpy as np

from mlaot.tokenizers import unicode
from mlaot.tokenizers.automaton import Automaton
from mlaot.tokenizers.pattern_syntax import All, Any, Next, Node, One, PatternError, Set, Times, characters, empty
from mlaot.tokenizers.patterns import automaton

PARSER = import_module("re._parser")
MAX_TIMES = 1000


@cache
def known(name: str) -> Set:
    """Return the characters of a category in the Unicode version of the Python that builds."""
    tests = {"word": lambda c: c.isalnum() or c == "_", "digit": str.isdecimal, "space": str.isspace}
    return np.fromiter((tests[name](chr(code)) for code in range(unicode.CODES)), np.bool_, unicode.CODES)


def words(pattern: str) -> tuple[Automaton, bool]:
    r"""Return the table of a pattern, and whether a match begins behind no word's character only, as ``\b`` says."""
    try:
        tree = PARSER.parse(pattern)
    except re.error as error:
        raise PatternError(f"{pattern}: {error}") from None
    flags = tree.state.flags & ~re.UNICODE.value
    if flags & ~(re.ASCII | re.DOTALL).value:
        raise PatternError("flags in (?...)")
    nodes, whole = list(tree), tree.state.groups > 1
    begins = bool(nodes) and is_boundary(nodes[0])
    nodes = nodes[begins:]
    if whole:  # what a group matches is a word
        ends = len(nodes) > 1 and is_boundary(nodes[-1])
        if len(nodes) != 1 + ends or kind_of(nodes[0]) != "SUBPATTERN" or nodes[0][1][0] is None:
            raise PatternError("a group that is not all of it")
        nodes[:1] = nodes[0][1][3]
    if not begins and nodes and is_boundary(nodes[0]):
        begins, nodes = True, nodes[1:]
    reader = _Reader(flags)
    found = reader.all(nodes)
    first = first_of(found)
    if begins and (first is None or (first & ~reader.category("word")).any()):
        raise PatternError(r"\b before what may be no word's character")
    return automaton(found), begins


def kind_of(node: Anything) -> str:
    """Return the name of what a node of Python's parser is."""
    return str(node[0])


def is_boundary(node: Anything) -> bool:
    """Tell whether a node is ``\\b``."""
    return kind_of(node) == "AT" and str(node[1]) == "AT_BOUNDARY"


def first_of(node: Node) -> Set | None:
    """Return the characters that a match may begin with; None: unknown, or it may have none."""
    return _edge(node, False)


def last_of(node: Node) -> Set | None:
    """Return the characters that a match may end with."""
    return _edge(node, True)


def _edge(node: Node, last: bool) -> Set | None:
    match node:
        case One():
            return node.of
        case Times():
            return _edge(node.of, last) if node.least > 0 else None
        case Any():
            edges = [found for one in node.of if (found := _edge(one, last)) is not None]
            return reduce(np.logical_or, edges) if len(edges) == len(node.of) else None
        case All():
            parts = [one for one in node.of if not isinstance(one, Next)]
            return _edge(parts[-1 if last else 0], last) if parts else None
        case _:
            return None


class _Reader:
    """What turns nodes of Python's parser into those of tables, under some flags."""

    def __init__(self, flags: int) -> None:
        self.flags = flags

    def category(self, name: str) -> Set:
        found = known(name)
        if self.flags & re.ASCII.value:
            found = found.copy()
            found[128:] = False
        return found

    def all(self, nodes: Iterable[Anything]) -> Node:
        found = list[Node]()
        for node in nodes:
            found.append(self.boundary(All((*found,))) if is_boundary(node) else self.one(node))
        return found[0] if len(found) == 1 else All((*found,))

    def boundary(self, before: Node) -> Node:
        r"""Return what ``\b`` is behind other nodes: it looks at the next character alone."""
        last, word = last_of(before), self.category("word")
        if last is not None and not (last & ~word).any():
            return Next(~word, True)
        if last is not None and not (last & word).any():
            return Next(word, False)
        raise PatternError(r"\b behind what may be a word's character or another")

    def one(self, node: Anything) -> Node:
        kind, value = kind_of(node), node[1]
        if kind in ("LITERAL", "NOT_LITERAL", "IN", "ANY", "CATEGORY"):
            return One(self.set(kind, value))
        if kind in ("MAX_REPEAT", "MIN_REPEAT"):
            least, most, inner = int(value[0]), int(value[1]), self.all(value[2])
            unbounded = value[1] == PARSER.MAXREPEAT
            if max(least, 0 if unbounded else most) > MAX_TIMES or first_of(inner) is None:
                raise PatternError("a repetition of so many, or of what may be nothing")
            return Times(inner, least, None if unbounded else most, kind == "MAX_REPEAT")
        if kind == "BRANCH":
            return Any(tuple(self.all(nodes) for nodes in value[1]))
        if kind == "SUBPATTERN" and value[0] is None and not value[1] and not value[2]:
            return self.all(value[3])
        if kind in ("ASSERT", "ASSERT_NOT") and value[0] == 1:
            inner = self.all(value[1])
            if isinstance(inner, One):
                return Next(~inner.of, True) if kind == "ASSERT_NOT" else Next(inner.of, False)
        raise PatternError(f"{kind.lower().replace('_', ' ')} in it")

    def set(self, kind: str, value: Anything) -> Set:
        if kind == "LITERAL":
            return characters([chr(value)])
        if kind == "NOT_LITERAL":
            return ~characters([chr(value)])
        if kind == "ANY":
            return ~(empty() if self.flags & re.DOTALL.value else characters("\n"))
        if kind == "CATEGORY":
            _, *negated, name = str(value).lower().split("_")
            found = self.category(name)
            return ~found if negated else found
        found, is_negated = empty(), False
        for part, content in value:
            if str(part) == "NEGATE":
                is_negated = True
            elif str(part) == "RANGE":
                found[content[0] : content[1] + 1] = True
            else:
                found |= self.set(str(part), content)
        return ~found if is_negated else found
