"""The oracle: evaluate a graph with the NumPy references of its ops, optionally in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.ir import DType, Graph, Node, Subgraph, TupleType, Type
from mlaot.ir import dims as dims_
from mlaot.ir.counts import COUNT, counts, levels
from mlaot.ir.module import SEEN
from mlaot.ir.types import f64
from mlaot.ops.base import Array, conditions

NOTHING: Mapping[str, int] = MappingProxyType({})


def evaluate(
    graph: Graph, inputs: Mapping[str, Any], *, wide: bool = False, dims: Mapping[str, int] = NOTHING
) -> dict[str, Array]:
    """Return every output and write of ``graph`` by name, for ``inputs`` by name.

    With ``wide`` every floating-point value is computed in float64 whatever its type is; errors are measured against
    these results. ``dims`` gives the named dims that no shape of an input determines.
    """
    arrays = {name: np.asarray(inputs[name]) for name in graph.inputs if name in inputs}
    for name, value in arrays.items():
        type_ = graph.inputs[name].type
        assert value.ndim == type_.rank, f"{name}: expected {type_}, got shape {value.shape}"
    values = learn_dims({name: (graph.inputs[name].type, value.shape) for name, value in arrays.items()}, dims)
    values |= _seen(graph, arrays) if SEEN not in values and "place" in arrays else {}
    for condition in conditions(graph) if values else ():
        if dims_.names(condition) <= values.keys() and dims_.substitute(condition, values) < 0:
            raise MlaotError(f"{graph.name}: {condition} must not be negative, got {values}")
    return _run(graph, arrays, values, wide)


def bind(body: Subgraph, dims: Mapping[str, int] = NOTHING, wide: bool = False) -> Callable[..., tuple[Array, ...]]:
    """Return a function of arrays that evaluates a subgraph, which the references call."""

    def call(*arrays: Array) -> tuple[Array, ...]:
        results = _run(body.graph, dict(zip(body.graph.inputs, arrays, strict=True)), dims, wide)
        return tuple(results[name] for name in body.graph.outputs)

    return call


def learn_dims(shapes: Mapping[str, tuple[Type, tuple[int, ...]]], dims: Mapping[str, int]) -> dict[str, int]:
    """Find the named dims from the shapes of inputs: first dims that are an axis, then dims in expressions of one dim.

    An expression must be linear in its dim n: with its values at 0 and 1 it is ``zero + n * (one - zero)``.
    """
    values = dict(dims)
    axes = [axis for type_, shape in shapes.values() for axis in zip(type_.shape, shape, strict=True)]
    values |= {name: extent for d, extent in axes for name in dims_.names(d) if d == dims_.dim(name)}
    for d, extent in axes:
        unknown = dims_.names(d) - set(values)
        if len(unknown) == 1:
            (name,) = unknown
            zero, one = (dims_.substitute(d, {**values, name: value}) for value in (0, 1))
            guess = (extent - zero) // (one - zero) if one != zero else 0
            if dims_.substitute(d, {**values, name: guess}) == extent:
                values[name] = guess
    return values


def _seen(graph: Graph, arrays: Mapping[str, Array]) -> dict[str, int]:
    """Return the length of a text after the tokens of this call, for the entry that reads texts; nothing for others."""
    inputs = [name for name, node in graph.inputs.items() if not node.attrs.get("parameter")]
    is_text = len(inputs) == 1 and arrays["place"].ndim == 0 and arrays[inputs[0]].ndim == 1
    return {SEEN: int(arrays["place"]) + len(arrays[inputs[0]])} if is_text else {}


def _run(graph: Graph, inputs: Mapping[str, Array], dims: Mapping[str, int], wide: bool) -> dict[str, Array]:
    input_values = {graph.inputs[k]: v for k, v in inputs.items()}
    values: dict[Node, Any] = {}
    nodes, dims = in_order(graph), dict(dims)
    last: dict[Node, Node | None] = {a.find(): node for node in nodes for a in node.args}
    last |= dict.fromkeys(graph.roots())  # all other values are deleted after their last use
    with np.errstate(all="ignore"):
        for node in nodes:
            if node in input_values:
                result = input_values[node]
            elif node.op.name == COUNT:
                result = values[node.arg(0)]
                dims |= _counted(node, int(result), dims)
            else:
                attrs = {k: concrete(v, dims, wide) for k, v in node.attrs.items()}
                result = node.op.reference(*[values[a.find()] for a in node.args], **attrs)
            values[node] = _to_dtype(result, node.type, wide)
            for a in {a.find() for a in node.args}:
                if last[a] is node:
                    del values[a]
    roots = {**graph.outputs, **{f"write {k}": v for k, v in graph.writes.items()}}
    return {name: values[node.find()] for name, node in roots.items()}


def in_order(graph: Graph) -> list[Node]:
    """Return the nodes of a graph, each after its arguments and the counts of its dims."""
    nodes, found = graph.nodes(), counts(graph)
    return sorted(nodes, key=levels(graph, found).__getitem__) if found else nodes


def _counted(node: Node, value: int, dims: Mapping[str, int]) -> dict[str, int]:
    """Return the dim that a node counts; raise an error if it is larger than its bound."""
    (name,), most = dims_.names(node.attrs["dim"]), dims_.substitute(node.attrs["most"], dims)
    if value > most:
        raise MlaotError(f"expected {name} of at most {most}, got {value}")
    return {name: value}


def _to_dtype(value: Any, type_: Type | TupleType, wide: bool) -> Any:
    if isinstance(type_, TupleType):
        return tuple(_to_dtype(item, each, wide) for item, each in zip(value, type_.items, strict=True))
    dtype = type_.dtype
    return f64.array(value) if wide and dtype.kind == "f" else dtype.array(value)


def concrete(value: Any, dims: Mapping[str, int], wide: bool = False) -> Any:
    """Convert an attribute for the references: dims to numbers, subgraphs to functions, if ``wide`` dtypes to f64."""
    if isinstance(value, dims_.Expr):
        return dims_.substitute(value, dims)
    if isinstance(value, tuple):
        return tuple([concrete(item, dims, wide) for item in value])
    if isinstance(value, Subgraph):
        return bind(value, dims, wide)
    return f64 if wide and isinstance(value, DType) and value.kind == "f" else value
