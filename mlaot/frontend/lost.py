"""What the tracing of scalars loses without a word is said: numbers that became constants, parameters not trained.

    x = [Value(0.0), Value(0.0)]
    y = x[0] * x[1]
    declare(y, inputs={"x": [x[0]]})    model.py:1: 1 Value made here is neither an input nor a parameter ..

A leaf that was made by ``Value(..)`` may be meant as a constant. It is taken for a forgotten one where the same line
made one that is declared, where a loss trains around it, or where it is 0 and no mere start of a sum; but not where the
line only makes it inside an expression, as ``Value(2.0) * x`` does. Values of the micrograd package do not know their
lines, and pass.
"""

from __future__ import annotations

import ast
import linecache
import warnings
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from mlaot.errors import MlaotWarning

Line = tuple[str, int]  # of a file
KEEPING = (ast.Tuple, ast.List, ast.ListComp, ast.Dict, ast.DictComp, ast.Starred, ast.GeneratorExp)
STORES = ("append", "extend", "list", "tuple", "dict", "zip")  # calls that keep what they are given
NUMBERS = (ast.BinOp, ast.UnaryOp, ast.Compare)
REPORTS = (ast.JoinedStr, ast.Assert)


def warn(line: Line, message: str) -> None:
    """Warn of a line of the user's code."""
    warnings.warn_explicit(message, MlaotWarning, *line)


def warn_of_constants(order: Sequence[Any], declared: Collection[Any], *, trains: bool) -> None:
    """Leaves of the graph ``order`` that were probably to be declared, and became constants."""
    known = set(map(id, declared))
    lines = {getattr(leaf, "_made", None) for leaf in declared}
    uses: dict[int, set[str]] = defaultdict(set)
    for value in order:
        for argument in value._prev:
            uses[id(argument)].add(value._op)
    forgotten: dict[Line, list[Any]] = defaultdict(list)
    for value in order:
        line = getattr(value, "_made", None)
        if value._prev or line is None or id(value) in known:
            continue
        if line in lines or ((value.data != 0 and trains) or (value.data == 0 and uses[id(value)] - {"+"})):
            if is_kept(line):
                forgotten[line].append(value)
    for line, values in forgotten.items():
        many = len(values) > 1
        warn(
            line,
            f"{len(values)} Value{'s' * many} made here {'are' if many else 'is'} neither input nor parameter: the "
            f"constant{'s' * many} {', '.join(repr(v.data) for v in values[:3])}{', ..' * (len(values) > 3)}; name "
            f"{'them' if many else 'it'} in declare(inputs=.., parameters=..), or write the number where a constant is "
            "meant",
        )


def warn_of_untrained(line: Line, order: Sequence[Any], trained: Sequence[Any], named: Mapping[str, Any]) -> None:
    """Parameters that the loss does not reach; ``order`` is the loss's graph, ``line`` that of the declaration."""
    reached = set(map(id, order))
    reaches = np.array([id(value) in reached for value in trained])
    if not reaches.any():
        warn(line, "the loss depends on no parameter: training changes nothing")
        return
    for name, ids in named.items():
        left = np.argwhere(~reaches[ids])
        if len(left) == ids.size:
            warn(line, f"the loss does not depend on the parameter {name!r}: training leaves it as it is")
        elif len(left):
            at = ", ".join(map(str, left[0].tolist()))
            warn(
                line,
                f"the loss does not depend on {len(left)} of the {ids.size} numbers of the parameter {name!r}, "
                f"{name}[{at}] first: training leaves them as they are",
            )


def warn_of_reads(order: Sequence[Any], inputs: Mapping[int, str], named: Mapping[int, str], roots: Collection[int]) -> None:
    """Numbers that were read while the graph was built, as ``x.data * 2``: the graph has not heard of it.

    ``inputs`` and ``named``: the names of inputs and parameters by the ids of their leaves; ``roots``: the outputs and
    the loss, which many a program prints.
    """
    depends: dict[int, str] = dict(inputs)
    said: set[tuple[Line, str]] = set()
    for value in order:
        name = depends.get(id(value)) or next((depends[id(v)] for v in value._prev if id(v) in depends), "")
        if name:
            depends[id(value)] = name
        leaf = not value._prev
        what = f"the input {name!r}" if name else f"the parameter {named[id(value)]!r}" if id(value) in named else ""
        if not what or id(value) in roots:
            continue
        what = what if leaf else f"a Value that depends on {what}"
        for line in getattr(value, "_read", ()):
            if (line, what) not in said and is_computed_with(line, leaf and bool(name)):
                said.add((line, what))
                warn(line, f".data of {what} is read while the graph is built: its number of now, {value.data!r}, becomes a constant; compute with the Value")


def is_kept(line: Line) -> bool:
    """Whether a line keeps what a call in it makes, in a variable or a list: not where it is a part of an expression."""
    calls = [above for node, above in _nodes(line) if isinstance(node, ast.Call)]
    return not calls or any(_is_kept(above) for above in calls)


def _is_kept(above: Sequence[ast.AST]) -> bool:
    for node in above:
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr | ast.keyword):
            return True
        stores = isinstance(node, ast.Call) and _name(node.func) in STORES
        if not (isinstance(node, KEEPING) or stores):
            return False
    return False


def is_computed_with(line: Line, placeholder: bool) -> bool:
    """Whether a line computes with ``.data``, and does not print it or set other data by it.

    A ``placeholder``, which an input is, need only be read.
    """
    return any(
        _is_computed_with(above, placeholder)
        for node, above in _nodes(line)
        if isinstance(node, ast.Attribute) and node.attr == "data" and isinstance(node.ctx, ast.Load)
    )


def _is_computed_with(above: Sequence[ast.AST], placeholder: bool) -> bool:
    computed = placeholder
    for node in above:
        if isinstance(node, REPORTS) or (isinstance(node, ast.Call) and _name(node.func) in ("print", "append", "format", "round")):
            return False
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AugAssign) else []
        if any(isinstance(target, ast.Attribute) for target in targets):
            return False
        computed = computed or isinstance(node, NUMBERS) or (isinstance(node, ast.Call) and _name(node.func)[:1].isupper())
    return computed


def _name(function: ast.AST) -> str:
    """The last part of a called name."""
    return function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""


def _nodes(line: Line) -> Iterator[tuple[ast.AST, list[ast.AST]]]:
    """The nodes of the syntax tree that begin on a line, with what is around them, inside out."""
    for node, above in _tree(line[0]):
        if getattr(node, "lineno", None) == line[1]:
            yield node, above


@lru_cache(maxsize=32)
def _tree(file: str) -> list[tuple[ast.AST, list[ast.AST]]]:
    """The nodes of a file with what is around each, up to its statement; none where there is no source."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return []
    found: list[tuple[ast.AST, list[ast.AST]]] = []
    stack: list[tuple[ast.AST, list[ast.AST]]] = [(tree, [])]
    while stack:
        node, above = stack.pop()
        found.append((node, above))
        around = [node, *above] if isinstance(node, ast.expr | ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Assert | ast.keyword | ast.comprehension) else []
        stack += [(child, around) for child in ast.iter_child_nodes(node)]
    return found
