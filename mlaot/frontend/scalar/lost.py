"""Warnings of silent losses in the tracing of scalars: numbers that became constants, and parameters not trained.

    x = [Value(0.0), Value(0.0)]
    y = x[0] * x[1]
    declare(y, inputs={"x": [x[0]]})    model.py:1: warning: a Value made here is neither input nor parameter ..

A leaf that ``Value(..)`` made may be meant as a constant. There is a warning if its line also made an input with the
same number, if a loss trains other values, or if it is 0 and not the start of a sum. There is none if the leaf is made
inside of an expression, as in ``Value(2.0) * x``. Values of the micrograd package do not know their lines, so there is
no warning of these.
"""

from __future__ import annotations

import ast
import linecache
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from types import FrameType
from typing import Any

import numpy as np

from mlaot.errors import MlaotError, line_of, warn
from mlaot.frontend.scalar.parameters import Ids

Line = tuple[str, int]  # of a file
Path = list[ast.AST]  # a node of a syntax tree, then what is around it, up to the statement

PARTS = (ast.expr, ast.keyword, ast.comprehension, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.Assert)
ROWS = (ast.Tuple, ast.List, ast.ListComp, ast.Dict, ast.DictComp, ast.Starred, ast.GeneratorExp)
KEEPS = (ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.keyword, ast.Return)
ROW_FUNCTIONS = ("list", "tuple", "dict", "zip")
MANY = 64  # values that one line reads
REPORTS = ("print", "append", "format", "round", "str", "repr", "info", "debug")


def warn_of_constants(
    order: Sequence[Any], inputs: Mapping[str, Iterable[Any]], trained: Sequence[Any], *, trains: bool
) -> None:
    """Warn of leaves of the graph ``order`` that became constants, but should probably have been declared."""
    leaves_of_inputs = [leaf for leaves in inputs.values() for leaf in leaves]
    declared = {id(leaf) for leaf in (*leaves_of_inputs, *trained)}
    alike = {(getattr(leaf, "_made", None), leaf.data) for leaf in leaves_of_inputs}
    used: dict[int, set[str]] = defaultdict(set)
    for value in order:
        for argument in value._prev:
            used[id(argument)].add(value._op)
    forgotten: dict[Line, list[Any]] = defaultdict(list)
    for value in order:
        line = getattr(value, "_made", None)
        if line is not None and not value._prev and id(value) not in declared:
            counts = trains if value.data != 0 else used[id(value)] - {"+"}
            if counts or (line, value.data) in alike:
                forgotten[line].append(value)
    for line, values in forgotten.items():
        if any(map(_is_kept, _calls(line))):
            numbers = ", ".join(f"{v.data:.6g}" for v in values[:3]) + ", .." * (len(values) > 3)
            what, them = ("a Value", "it") if len(values) == 1 else (f"{len(values)} Values", "them")
            are = f"{'is' if len(values) == 1 else 'are'} neither input nor parameter, and constant: {numbers}"
            warn(
                f"{what} made here {are}; name {them} in the inputs or parameters of declare, or compute with the "
                "number where a constant is meant",
                line_of(*line),
            )


def warn_of_untrained(place: str, order: Sequence[Any], trained: Sequence[Any], named: Mapping[str, Ids]) -> None:
    """Warn of parameters that the loss does not depend on.

    ``order`` is the graph of the loss, and ``place`` the line of the declaration.
    """
    reached = set(map(id, order))
    reaches = np.array([id(value) in reached for value in trained])
    if not reaches.any():
        warn("the loss does not depend on any parameter: training changes nothing", place)
        return
    for name, ids in named.items():
        left = np.argwhere(~reaches[ids]).tolist()
        if len(left) == ids.size:
            warn(f"the loss does not depend on the parameter {name!r}, which is never trained", place)
        elif left:
            part = f"{len(left)} of the {ids.size} numbers of the parameter {name!r}"
            first = f"{', first' if len(left) > 1 else ''} {left[0] if len(left[0]) > 1 else left[0][0]}"
            warn(f"the loss does not depend on {part}{first}, which are never trained", place)


def warn_of_reads(
    inputs: Mapping[str, Iterable[Any]], trained: Sequence[Any], named: Mapping[str, Ids], roots: Collection[int]
) -> None:
    """Warn of code that computes with numbers read from values, such as ``x.data * 2``, which no graph contains.

    ``roots`` are the ids of the outputs and the loss; many programs read their numbers for other purposes.
    """
    input_names = _names(inputs)
    parameters = {
        id(trained[i]): f"the parameter {name!r}" for name, ids in named.items() for i in ids.reshape(-1).tolist()
    }
    elsewhere: set[int] = set()  # what depends on no input
    for line, values in _reads.items():
        paths = _reads_on(line)
        for value in values:
            source = None if id(value) in roots else _source(value, input_names, elsewhere)
            what = parameters.get(id(value)) if source is None else input_names[source]
            if what is not None and any(_computes(path, is_input=id(value) == source) for path in paths):
                advice = "its number of this moment becomes a constant; compute with the Value itself"
                warn(f".data of {_origin(value, what)} is read while the graph is built: {advice}", line_of(*line))


def refuse_computed(order: Iterable[Any], inputs: Mapping[str, Iterable[Any]]) -> None:
    """Raise ``MlaotError`` for a constant of the graph ``order`` that was computed from the current number of an input.

    The error names the line that read the number.
    """
    input_names, elsewhere = _names(inputs), set[int]()
    for leaf in filter(_computed.__contains__, order):
        value, line = _computed[leaf]
        source = _source(value, input_names, elsewhere)
        if source is not None:
            error = MlaotError(
                f".data of {_origin(value, input_names[source])} is computed with, and the result, {leaf.data:.6g}, "
                "is combined with a Value: it would be a constant for every input; compute with the Value itself"
            )
            error.place = line_of(*line)
            raise error


def _names(inputs: Mapping[str, Iterable[Any]]) -> dict[int, str]:
    """Return the name of each leaf of the inputs by its id."""
    return {id(leaf): f"the input {name!r}" for name, leaves in inputs.items() for leaf in leaves}


def _origin(value: Any, name: str) -> str:
    """Describe a value that has this name or depends on the value with this name."""
    return f"a Value that depends on {name}" if value._prev else name


def _source(value: Any, inputs: Collection[int], elsewhere: set[int]) -> int | None:
    """Return the id of an input that a value depends on. Values that depend on none are added to ``elsewhere``."""
    seen: set[int] = set()
    stack = [value]
    while stack:
        top = stack.pop()
        if id(top) in inputs:
            return id(top)
        if id(top) not in elsewhere and id(top) not in seen:
            seen.add(id(top))
            stack.extend(top._prev)
    elsewhere |= seen
    return None


def users_line(frame: FrameType | None) -> Line | None:
    """Return the line of the user's code that called a frame."""
    while frame is not None and frame.f_globals.get("__name__", "").startswith("mlaot."):
        frame = frame.f_back
    return None if frame is None else (frame.f_code.co_filename, frame.f_lineno)


def note_read(value: Any, frame: FrameType) -> Line:
    """Record, in a build, that the user's code has read a value's number; return the line."""
    line = frame.f_code.co_filename, frame.f_lineno
    if not frame.f_globals.get("__name__", "").startswith("mlaot."):
        values = _reads.setdefault(line, [])
        if len(values) < MANY and value not in values:
            values.append(value)
    return line


def forget_read(value: Any, line: Line) -> None:
    """Drop the record that a line has read a value's number, as the graph has the value itself."""
    values = _reads.get(line, [])
    if value in values:
        values.remove(value)


def note_computed(leaf: Any, value: Any, line: Line) -> None:
    """Record that a constant was computed from a value's number."""
    _computed[leaf] = value, line


_reads: dict[Line, list[Any]] = {}
_computed: dict[Any, tuple[Any, Line]] = {}


def _calls(line: Line) -> list[Path]:
    """Return the calls of classes on a line, which may have made a leaf."""
    calls = [path for path in _paths(*line) if isinstance(path[0], ast.Call)]
    return [path for path in calls if _name(path[0].func)[:1].isupper()] or calls  # type: ignore[attr-defined]


def _reads_on(line: Line) -> list[Path]:
    attributes = [path for path in _paths(*line) if isinstance(path[0], ast.Attribute)]
    return [p for p in attributes if p[0].attr == "data" and isinstance(p[0].ctx, ast.Load)]  # type: ignore[attr-defined]


def _is_kept(call: Path) -> bool:
    """Tell whether the result of a call is stored in a variable or a list, and is not part of an expression."""
    for node in call[1:]:
        called = _name(node.func) if isinstance(node, ast.Call) else ""
        if isinstance(node, KEEPS) or called in ("append", "extend"):
            return True
        if not (isinstance(node, ROWS) or called in ROW_FUNCTIONS):
            return False
    return False


def _computes(read: Path, *, is_input: bool) -> bool:
    """Tell whether code computes with a number that it reads, and does not print it or assign it to ``data``.

    The number of an input means nothing while a graph is built, so any use of it counts.
    """
    computes = is_input
    for node in read[1:]:
        called = _name(node.func) if isinstance(node, ast.Call) else ""
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        sets = isinstance(node, ast.Assign | ast.AugAssign) and any(isinstance(t, ast.Attribute) for t in targets)
        if sets or called in REPORTS or isinstance(node, ast.JoinedStr | ast.Assert):
            return False
        # A class is called, as Value(x.data), or a function of a module, as math.exp(x.data).
        makes = called[:1].isupper() or (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute))
        computes = computes or makes or isinstance(node, ast.BinOp | ast.UnaryOp | ast.Compare)
    return computes


def _name(function: ast.AST) -> str:
    """Return the last part of the called function's name."""
    return getattr(function, "attr", getattr(function, "id", ""))


@lru_cache(maxsize=1024)
def _paths(file: str, number: int) -> list[Path]:
    """Return the nodes of the syntax tree that begin on a line."""
    return [path for path in _tree(file) if getattr(path[0], "lineno", None) == number]


@lru_cache(maxsize=32)
def _tree(file: str) -> list[Path]:
    """Return the nodes of the syntax tree of a file, or none without source."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return []
    paths: list[Path] = []
    stack: list[Path] = [[tree]]
    while stack:
        path = stack.pop()
        paths.append(path)
        around = path if isinstance(path[0], PARTS) else []
        stack += [[child, *around] for child in ast.iter_child_nodes(path[0])]
    return paths
