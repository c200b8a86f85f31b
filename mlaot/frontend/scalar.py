"""The scalar front door: graphs of ``Value``s, mlaot's own or those of the micrograd package, become IR.

A value is told by what it is: a leaf that was named as an input is an item of that input, a leaf that belongs to the
parameters is an item of the flat parameter vector, any other leaf is a constant. Nothing is known of neurons or layers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.declaration import PARAMETERS, Declaration, Traced
from mlaot.ir import DType, Graph, Node, Type
from mlaot.ir.types import BY_NUMPY, i64, u8
from mlaot.ops import elementwise as ew
from mlaot.ops import structure as st
from mlaot.ops.sparse import sparse

UNARY = {"ReLU": ew.relu, "exp": ew.exp, "log": ew.log, "tanh": ew.tanh}
Values = Sequence[Any]


@dataclass(frozen=True)
class Bytes:
    """Inputs that the module takes as unsigned bytes and divides by ``scale``: pixels."""

    values: Values
    scale: float = 255.0


@dataclass(frozen=True)
class Sparse:
    """Inputs of which most are zero, a list of values or ``Bytes``: products pass over the zeros."""

    values: Values | Bytes


@dataclass(frozen=True)
class Label:
    """Inputs that hold a class label one-hot; the module takes the label itself, an integer."""

    values: Values


Input = Values | Bytes | Sparse | Label | Any


def declare(
    outputs: Any,
    *,
    inputs: Mapping[str, Input],
    parameters: Any = (),
    loss: Any = None,
    dtype: str = "float64",
    learning_rate: float = 0.1,
) -> Declaration:
    """Declare a model from a graph of ``Value``s, of ``mlaot.micrograd`` or of the micrograd package.

    ``outputs``: a value or a list of them. ``inputs``: name -> the leaves to be set at run time, in order (a value or a
    list; ``Bytes(values)`` for pixels, ``Sparse(values)`` for what is mostly zero, ``Label(values)`` for a one-hot
    label). ``parameters``: a module, a list of values, or a dict of names to values. With a ``loss`` the module trains
    by stochastic gradient descent and ``learning_rate`` is the default step; without one the parameters are frozen into
    it.
    """
    return Declaration(lambda: trace(outputs, inputs, parameters, loss, dtype, learning_rate))


def declare_graph(outputs: Any) -> Declaration:
    """A bare graph as a model: its leaves labelled ``'input'``, in order of their use, are the vector x."""
    roots = outputs if isinstance(outputs, list | tuple) else [outputs]
    leaves = [v for v in topological(roots) if not v._prev and v._op == "input"]
    if not leaves:
        raise MlaotError(
            "a bare graph of Values has no inputs; expected leaves made by Value(0.0, (), 'input'), "
            "or a declaration by mlaot.micrograd.declare"
        )
    return declare(outputs, inputs={"x": leaves})


def declare_module(net: Any) -> Declaration:
    """A network object as a model: its input vector in, its outputs out, its parameters frozen."""
    from mlaot.micrograd.engine import Value

    try:
        width = len(net.layers[0].neurons[0].w)
    except (AttributeError, IndexError, TypeError):
        raise MlaotError(
            f"a {type(net).__name__} is no model; expected a function marked by mlaot.model, a declaration by "
            "mlaot.micrograd.declare, or a micrograd MLP"
        ) from None
    weight = net.layers[0].neurons[0].w[0]
    x = [(type(weight) if hasattr(weight, "_prev") else Value)(0.0) for _ in range(width)]
    return declare(net(x), inputs={"x": x}, parameters=net)


def trace(outputs: Any, inputs: Mapping[str, Input], parameters: Any, loss: Any, dtype: str, rate: float) -> Traced:
    """The graph of one example. Raises ``MlaotError`` for values that cannot be compiled."""
    if dtype not in ("float32", "float64"):
        raise MlaotError(f"dtype must be 'float32' or 'float64', got {dtype!r}")
    kind = BY_NUMPY[dtype]
    graph = Graph("model")
    nodes: dict[int, Node] = {}
    names = parameter_names(parameters)
    flat = graph.input(PARAMETERS, Type(kind, (len(names),)), parameter=True) if names else None
    for i, value in enumerate(names.values()):
        assert flat is not None
        nodes[id(value)] = graph.add(st.item, (flat,), {"index": i})
    for name, given in inputs.items():
        _input(graph, name, given, kind, nodes)
    roots = list(outputs) if isinstance(outputs, list | tuple) else [outputs]
    single = not isinstance(outputs, list | tuple)
    order = topological([*roots, *([] if loss is None else [loss])])
    for value in order:
        if id(value) not in nodes:
            nodes[id(value)] = _node(graph, value, nodes, kind)
    found = [nodes[id(r)] for r in roots]
    graph.outputs["out"] = found[0] if single else graph.add(st.stack, found)
    if loss is not None:
        graph.outputs["loss"] = nodes[id(loss)]
    start = np.array([float(v.data) for v in names.values()], dtype)
    counts = Counter(v._op for v in order)
    arguments = tuple(inputs) if loss is None else ()
    return Traced(graph, {PARAMETERS: start} if names else {}, list(names), True, rate, dict(counts), arguments)


def _input(graph: Graph, name: str, given: Input, kind: DType, nodes: dict[int, Node]) -> None:
    if not name.isidentifier():
        raise MlaotError(f"an input's name must be an identifier, got {name!r}")
    is_sparse = isinstance(given, Sparse)
    given = given.values if isinstance(given, Sparse) else given
    values = given.values if isinstance(given, Bytes | Label) else given
    if isinstance(values, list | tuple):
        leaves = list(values)
        shape: tuple[int, ...] = (len(leaves),)
    else:
        leaves, shape = [values], ()
    for leaf in leaves:
        if not hasattr(leaf, "_prev"):
            raise MlaotError(f"input {name!r}: expected Values, got {type(leaf).__name__}")
        if leaf._prev:
            raise MlaotError(
                f"input {name!r}: expected Values that nothing was computed for, got the result of '{leaf._op}'"
            )
    if isinstance(given, Bytes):
        raw = graph.input(name, Type(u8, shape))
        scaled = ew.cast(raw, dtype=kind)
        source = ew.div(scaled, st.broadcast(graph.constant(given.scale, kind), shape=shape, axes=()))
    elif isinstance(given, Label):
        raw = graph.input(name, Type(i64))
        source = st.one_hot(raw, classes=len(leaves), dtype=kind)
    else:
        source = graph.input(name, Type(kind, shape))
    source = sparse(source) if is_sparse else source
    for i, leaf in enumerate(leaves):
        if id(leaf) in nodes:
            raise MlaotError(f"input {name!r}: element {i} is another input or a parameter too")
        nodes[id(leaf)] = source if shape == () else graph.add(st.item, (source,), {"index": i})


def topological(roots: Sequence[Any]) -> list[Any]:
    """Values reachable from ``roots``, arguments first; iterative."""
    for root in roots:
        if not hasattr(root, "_prev"):
            raise MlaotError(f"expected a Value, got {type(root).__name__}")
    order: list[Any] = []
    seen: set[int] = set()
    stack: list[tuple[Any, bool]] = [(root, False) for root in reversed(list(roots))]
    while stack:
        value, ready = stack.pop()
        if ready:
            order.append(value)
        elif id(value) not in seen:
            seen.add(id(value))
            stack.append((value, True))
            stack.extend((child, False) for child in reversed(tuple(value._prev)) if id(child) not in seen)
    return order


def _node(graph: Graph, value: Any, nodes: Mapping[int, Node], kind: DType) -> Node:
    if not hasattr(value, "_prev"):
        raise MlaotError(f"expected a Value, got {type(value).__name__}")
    if not value._prev:
        if value._op == "input":
            raise MlaotError("a leaf labelled 'input' is not among the declared inputs; name it in inputs={...}")
        return graph.constant(float(value.data), kind)
    if getattr(value, "_custom", None):
        raise MlaotError(f"a Value ('{value._op}') with a _forward or _backward of its own cannot be compiled")
    args = [nodes[id(child)] for child in value._prev]
    op = value._op
    if op in ("+", "*"):
        if len(args) == 1:  # the set of x + x and x * x has one element
            args *= 2
        result = args[0]
        for a in args[1:]:
            result = graph.add(ew.add if op == "+" else ew.mul, (result, a))
        return result
    if op in UNARY and len(args) == 1:
        return graph.add(UNARY[op], args)
    if op == "max" and len(args) == 2:
        return graph.add(ew.maximum, args)
    if op == "dot":
        half = len(args) // 2
        products = [graph.add(ew.mul, pair) for pair in zip(args[:half], args[half:], strict=True)]
        return graph.add(ew.add, products) if len(products) > 1 else products[0]
    if op.startswith("**") and len(args) == 1:
        return graph.add(ew.pow_, args, {"exponent": _exponent(op[2:])})
    raise MlaotError(
        f"op '{op}' of a Value with {len(args)} arguments has no rule; known are + * ** ReLU exp log tanh max dot"
    )


def _exponent(text: str) -> float:
    return 1.0 if text == "True" else 0.0 if text == "False" else float(text)


def parameter_names(parameters: Any) -> dict[str, Any]:
    """The parameters with a dotted name each: by attribute path for a module, by position for a list."""
    if isinstance(parameters, Mapping):
        found = dict(_leaves(parameters, ""))
    elif hasattr(parameters, "parameters"):
        wanted = list(parameters.parameters())
        paths = {id(value): path for path, value in _leaves(parameters, "")}
        found = {paths.get(id(value), f"p.{i}"): value for i, value in enumerate(wanted)}
        if len(found) != len(wanted):
            found = {f"p.{i}": value for i, value in enumerate(wanted)}
    else:
        found = {f"p.{i}": value for i, value in enumerate(parameters)}
    for name, value in found.items():
        if not hasattr(value, "_prev") or value._prev:
            raise MlaotError(f"parameter {name}: expected a leaf Value, got {value!r}")
    if len({id(value) for value in found.values()}) != len(found):
        raise MlaotError("a parameter is listed twice")
    return found


def _leaves(thing: Any, path: str) -> Iterable[tuple[str, Any]]:
    """Values below an object, by attribute, key and position."""
    if hasattr(thing, "_prev"):
        yield path or "p", thing
        return
    if isinstance(thing, Mapping):
        parts: Iterable[tuple[Any, Any]] = thing.items()
    elif isinstance(thing, list | tuple):
        parts = enumerate(thing)
    elif hasattr(thing, "__dict__"):
        parts = vars(thing).items()
    else:
        return
    for key, part in parts:
        yield from _leaves(part, f"{path}.{key}" if path else str(key))
