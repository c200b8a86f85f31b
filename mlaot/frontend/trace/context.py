"""The current trace: the graph that traced arrays belong to, and what the trace has recorded so far.

A model is traced into a root graph. ``mlaot.grad``, ``mlaot.vmap`` and control flow trace functions into graphs inside
of it. A value of an enclosing graph that an inner function uses is *captured*: it becomes an input of the inner graph.
"""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from mlaot.errors import MlaotError, line_of
from mlaot.ir import Graph, Node
from mlaot.ir.graph import topological

_current: ContextVar[Trace | None] = ContextVar("trace", default=None)
_training: ContextVar[bool] = ContextVar("training", default=False)
# What each trace enters while it is under way: ``mlaot.frontend.numpy`` adds its stand-ins for functions of SciPy.
WHILE_TRACING: list[Callable[[], AbstractContextManager[None]]] = []

VMAP = "vmap"  # where buffers cannot be written, but values can be taken out
OUTSIDE = "a traced array is used outside of the function that it was traced in"


@dataclass(frozen=True)
class Tap:
    """A name for a value of a trace, and the line of the user's code that gave the name."""

    name: str
    place: str


@dataclass
class Trace:
    """A graph that is being traced.

    ``names`` holds the names of parameters and buffers by identity, and ``held`` those that the trace has used so far,
    by name. ``captured`` maps values of the enclosing graph to inputs of this one. ``writes`` are the new values of
    buffers, and ``read_only`` says why buffers cannot be written, if so. A ``temporary`` trace belongs to no module, so
    its parameters need no names. ``taps`` are the values that ``mlaot.tap`` named. ``in_layer`` is true inside of a
    layer, so that functions called there make no part of their own.
    """

    graph: Graph
    parent: Trace | None = None
    names: dict[int, str] = field(default_factory=dict)
    held: dict[str, Any] = field(default_factory=dict)
    captured: dict[Node, Node] = field(default_factory=dict)
    writes: dict[str, Node] = field(default_factory=dict)
    read_only: str = ""
    temporary: bool = False
    sites: int = 0
    in_layer: bool = False
    taps: dict[Tap, Node] = field(default_factory=dict)

    @property
    def entry(self) -> str:
        """The name of the traced function in the module."""
        return "forward" if self.graph.name == "model" else self.graph.name

    @property
    def root(self) -> Trace:
        trace = self
        while trace.parent is not None:
            trace = trace.parent
        return trace

    def local(self, node: Node) -> Node:
        """Return a node of this graph or of an enclosing one as a node of this graph."""
        node = node.find()
        if node.graph is self.graph:
            return node
        if self.parent is None:
            raise MlaotError(f"{OUTSIDE}: {node.type}; return it from there")
        outer = self.parent.local(node)
        if not outer.args and outer.op.name != "input":
            return self.graph.add(outer.op, (), outer.attrs)
        if outer not in self.captured:
            self.captured[outer] = self.graph.input(f"captured{len(self.captured)}", outer.type)
        return self.captured[outer]

    def outside(self, node: Node) -> Node | None:
        """Return a value in the root graph, or None if the value depends on nodes of an inner graph."""
        if self.parent is None:
            return node
        if node.find().graph is not self.graph:
            return self.parent.outside(node)
        met = {inner: outer for outer, inner in self.captured.items()}
        copies: dict[Node, Node] = {}
        for part in topological([node]):
            if part not in met and part.op.name == "input":
                return None
            args = [] if part in met else [copies[a.find()] for a in part.args]
            copies[part] = met.get(part) or self.parent.graph.copy(part, args)
        return self.parent.outside(copies[node.find()])


def current() -> Trace | None:
    """Return the current trace, or None."""
    return _current.get()


def needed() -> Trace:
    """Return the current trace; raise ``MlaotError`` if there is none."""
    trace = _current.get()
    if trace is None:
        raise MlaotError(OUTSIDE)
    return trace


@contextmanager
def tracing(trace: Trace | None) -> Iterator[None]:
    """Make ``trace`` the current trace in the context.

    Its errors name the line of the user's code that they come from.
    """
    token = _current.set(trace)
    try:
        with ExitStack() as entered:
            for scope in WHILE_TRACING:
                entered.enter_context(scope())
            yield
    except MlaotError as error:
        error.place = error.place or user_line(error.__traceback__)
        raise
    finally:
        _current.reset(token)
        if trace is not None:
            trace.graph.locate, trace.graph.line = None, ""


@contextmanager
def part(name: str, *, is_layer: bool = False, line: str = "") -> Iterator[None]:
    """Attribute nodes that are traced in the context to the part ``name`` of the model, and to a ``line``.

    The part names the kernels of these nodes.
    """
    trace = _current.get()
    if trace is None:
        yield
        return
    graph = trace.graph
    outer = graph.origin, graph.line, trace.in_layer
    graph.origin, graph.line, trace.in_layer = name, line or graph.line, is_layer
    try:
        yield
    finally:
        graph.origin, graph.line, trace.in_layer = outer


def inner_part(name: str) -> str:
    """Return the name of a part inside of the current part."""
    trace = _current.get()
    return ".".join(filter(None, (trace.graph.origin if trace else "", name)))


def is_training() -> bool:
    """Tell whether the training step is being traced.

    In plain NumPy use, whether ``with mlaot.training():`` is in force.
    """
    return _training.get()


@contextmanager
def training(on: bool = True) -> Iterator[None]:
    """Make dropout and normalization behave as in the training step: ``with mlaot.training():``."""
    token = _training.set(on)
    try:
        yield
    finally:
        _training.reset(token)


def place_of(function: Any) -> str:
    """Return the line where a function is defined, as ``model.py:12: ``."""
    code = getattr(function, "__code__", None)
    return line_of(code.co_filename, code.co_firstlineno) if code is not None else ""


@contextmanager
def located(function: Any) -> Iterator[None]:
    """In the context, let errors without a line of the user's code name the line where ``function`` is defined."""
    try:
        yield
    except MlaotError as error:
        error.place = error.place or place_of(function)
        raise


LIBRARIES = ("numpy", "scipy", "torch")
HERE = Path(__file__).parents[2]
PYTHON = Path(sysconfig.get_path("stdlib"))
SCRIPTS = Path(sysconfig.get_path("scripts"))


def user_line(traceback: TracebackType | None) -> str:
    """Return the innermost line of the user's code in a traceback, as ``model.py:12: ``, or an empty string."""
    line = ""
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        if is_users(traceback.tb_frame.f_globals.get("__name__", ""), file):
            line = line_of(file, traceback.tb_lineno)
        traceback = traceback.tb_next
    return line


def calling_line() -> str:
    """Return the innermost line of the user's code among the callers, as ``model.py:12: ``, or an empty string."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        file = frame.f_code.co_filename
        if is_users(frame.f_globals.get("__name__", ""), file):
            return line_of(file, frame.f_lineno)
        frame = frame.f_back
    return ""


def locate_node() -> str:
    """Say which line of the user's makes a node, as ``model.py:12``, for ``Graph.locate``."""
    return calling_line().removesuffix(": ")


@cache
def is_users(module: str, file: str) -> bool:
    """Tell whether code is the user's: not that of mlaot, NumPy, SciPy, PyTorch or Python."""
    is_hidden = file.startswith("<") or Path(file).is_relative_to(HERE) or Path(file).parent == SCRIPTS
    if module.partition(".")[0] in LIBRARIES or is_hidden:
        return False
    return "site-packages" in file or not Path(file).is_relative_to(PYTHON)
