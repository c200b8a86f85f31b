"""Transformations of functions: ``grad``, ``value_and_grad``, ``jvp`` and ``vmap``.

They work on traced arrays inside of a model, and on plain arrays outside. A function is traced into a graph of its own,
which is transformed. The result is inserted into the enclosing graph, or evaluated at once if there is none. So
gradients of gradients and ``vmap`` of ``grad`` work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.trace import tree
from mlaot.frontend.trace.context import VMAP, tracing
from mlaot.frontend.trace.promotion import as_node, full, strong_type
from mlaot.frontend.trace.protocols import is_traced
from mlaot.frontend.trace.subtrace import Subtrace, call, subtrace
from mlaot.frontend.trace.tensor import Held, Tensor
from mlaot.ir import Dim, Node, Type
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.transforms.batch import batch
from mlaot.transforms.differentiate import differentiate

Function = Callable[..., Any]


def type_of(value: Any) -> Type:
    """Return the type that an argument is traced with."""
    if is_traced(value):
        return as_node(value).type
    array = np.asarray(value.array if isinstance(value, Held) else value)
    return Type(value.type.dtype if isinstance(value, Held) else strong_type(array), array.shape)


def value_and_grad(function: Function, argnums: int | Sequence[int] = 0) -> Function:
    """Return a function that returns the scalar value of ``function`` and its gradient.

    The gradient is with respect to the arguments ``argnums``.
    """
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    @wraps(function)
    def both(*args: Any, **options: Any) -> Any:
        _check_argnums(numbers, len(args))
        leaves, structure = tree.flatten(args)
        parts = [tree.flatten(a) for a in args]
        starts = np.cumsum([0, *[len(p) for p, _ in parts]]).tolist()
        places = [i for n in numbers for i in range(starts[n], starts[n + 1])]
        arrays = [i for i, leaf in enumerate(leaves) if i in places or is_array(leaf)]
        traced = _traced(function, leaves, structure, arrays, options)
        wanted = [traced.arguments[arrays.index(i)] for i in places]
        value, *gradients = call(_add_gradients(traced, wanted), [leaves[i] for i in arrays])
        slopes = dict(zip(places, gradients, strict=True))
        results = [tree.unflatten(parts[n][1], [slopes[i] for i in range(starts[n], starts[n + 1])]) for n in numbers]
        return value, results[0] if isinstance(argnums, int) else tuple(results)

    return both


def grad(function: Function, argnums: int | Sequence[int] = 0) -> Function:
    """Return a function that returns the gradient of ``function``, whose value must be a scalar.

    The gradient is with respect to the arguments ``argnums``.
    """
    both = value_and_grad(function, argnums)

    @wraps(function)
    def gradient(*args: Any, **options: Any) -> Any:
        return both(*args, **options)[1]

    return gradient


def _check_argnums(numbers: Sequence[int], count: int) -> None:
    for n in numbers:
        if not 0 <= n < count:
            raise MlaotError(f"argnums={n}: the function was called with {count} positional arguments")


def is_array(value: Any) -> bool:
    """Tell whether a value becomes an argument of a traced function.

    Numbers of Python and other objects are constants.
    """
    return isinstance(value, Tensor | Held | np.ndarray | np.generic)


def _traced(
    function: Function, leaves: list[Any], structure: Any, arrays: Sequence[int], options: dict[str, Any]
) -> Subtrace:
    """Trace ``function`` of the arguments ``structure`` as a function of the leaves that are ``arrays``."""

    def flat(*values: Any) -> Any:
        replaced = dict(zip(arrays, values, strict=True))
        return function(*tree.unflatten(structure, [replaced.get(i, leaf) for i, leaf in enumerate(leaves)]), **options)

    return subtrace(flat, [type_of(leaves[i]) for i in arrays])


def _add_gradients(traced: Subtrace, wanted: Sequence[Node]) -> Subtrace:
    """Insert the gradients of the first output after it. Writes and taps remain last."""
    if traced.structure is not tree.LEAF:
        raise MlaotError("grad needs a function that returns one scalar, got several values")
    for node in wanted:
        if node.type.dtype.kind != "f":
            raise MlaotError(f"grad by an argument {node.type}: only floating-point arguments have a gradient")
    outputs = traced.graph.outputs
    loss = outputs.pop("0").find()
    if loss.type.shape != () or loss.type.dtype.kind != "f":
        raise MlaotError(f"grad needs a function that returns a floating-point scalar, got {loss.type}")
    with tracing(traced.trace):
        gradients = differentiate(loss, wanted)
    traced.graph.outputs = {"0": loss, **{str(i + 1): g for i, g in enumerate(gradients)}, **outputs}
    return traced


def jvp(function: Function, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """Return the value of ``function`` and its directional derivative.

    The derivative is computed by reverse mode applied twice.
    """
    leaves, structure = tree.flatten(tuple(primals))
    directions = tree.flatten(tuple(tangents))[0]
    if len(leaves) != len(directions):
        raise MlaotError(f"jvp: expected a tangent for each of {len(leaves)} arrays, got {len(directions)}")
    types = [type_of(leaf) for leaf in leaves]

    def both(*values: Any) -> Any:
        points, along = list(values[: len(types)]), values[len(types) :]
        inner = _traced(function, points, structure, range(len(points)), {})
        outs = tree.flatten(call(inner, points))[0]
        slopes = _push_forward(inner, points, along)
        return tree.unflatten(inner.structure, outs), tree.unflatten(inner.structure, slopes)

    traced = subtrace(both, [*types, *types])
    results = call(traced, [*leaves, *directions])
    value, slope = tree.unflatten(traced.structure, results)
    return value, slope


def _push_forward(inner: Subtrace, points: list[Any], along: Sequence[Any]) -> list[Any]:
    """Compute ``J v`` as the gradient of ``(J^T u) . v`` with respect to ``u``, at any ``u``."""
    outputs = [node.find() for node in inner.graph.outputs.values()]
    pulls = [inner.graph.input(f"cotangent{i}", node.type) for i, node in enumerate(outputs)]
    total = None
    for node, pull in zip(outputs, pulls, strict=True):
        if node.type.dtype.kind != "f":
            raise MlaotError(f"jvp of a result {node.type}: only floating-point results have a derivative")
        term = red.sum_(ew.mul(node, pull), axes=tuple(range(node.type.rank)))
        total = term if total is None else ew.add(total, term)
    assert total is not None
    back = differentiate(total, inner.arguments)
    vs = [inner.graph.input(f"tangent{i}", a.type) for i, a in enumerate(inner.arguments)]
    dotted = None
    for cotangent, v in zip(back, vs, strict=True):
        term = red.sum_(ew.mul(cotangent, v), axes=tuple(range(v.type.rank)))
        dotted = term if dotted is None else ew.add(dotted, term)
    assert dotted is not None
    slopes = differentiate(dotted, pulls)
    inner.graph.outputs = {str(i): s for i, s in enumerate(slopes)}
    zeros = [Tensor(full(node.type.shape, 0.0, node.type.dtype)) for node in outputs]
    return call(replace(inner, writes=(), taps=()), [*points, *zeros, *along])


def vmap(function: Function, in_axes: Any = 0, out_axes: Any = 0) -> Function:
    """Return a function that applies ``function`` to each slice of its arguments along ``in_axes``.

    An argument whose axis is None is passed whole.
    """

    @wraps(function)
    def mapped(*args: Any) -> Any:
        axes = tuple(in_axes) if isinstance(in_axes, tuple | list) else (in_axes,) * len(args)
        if len(axes) != len(args):
            raise MlaotError(f"vmap: in_axes has {len(axes)} entries, the function was called with {len(args)}")
        leaves, structure = tree.flatten(args)
        each = [axis for a, axis in zip(args, axes, strict=True) for _ in tree.flatten(a)[0]]
        arrays = [v if axis is None else np.moveaxis(v, axis, 0) for v, axis in zip(leaves, each, strict=True)]
        dim = _extent(arrays, each)
        return _map(function, arrays, structure, each, dim, out_axes)

    return mapped


def _extent(leaves: list[Any], axes: list[Any]) -> Dim:
    sizes = {np.shape(v)[0] for v, axis in zip(leaves, axes, strict=True) if axis is not None}
    if len(sizes) != 1:
        raise MlaotError(f"vmap: expected one size along the mapped axes, got {' and '.join(sorted(map(str, sizes)))}")
    size: Dim = sizes.pop()
    return size


def _map(function: Function, leaves: list[Any], structure: Any, axes: list[Any], dim: Dim, out_axes: Any) -> Any:
    arrays = [i for i, axis in enumerate(axes) if axis is not None or is_array(leaves[i])]

    def flat(*values: Any) -> Any:
        replaced = dict(zip(arrays, values, strict=True))
        return function(*tree.unflatten(structure, [replaced.get(i, leaf) for i, leaf in enumerate(leaves)]))

    types = [type_of(leaves[i]) for i in arrays]
    types = [t if axes[i] is None else t.with_shape(t.shape[1:]) for t, i in zip(types, arrays, strict=True)]
    traced = subtrace(flat, types, read_only=VMAP)
    mapped = {n.attrs["name"] for n, i in zip(traced.arguments, arrays, strict=True) if axes[i] is not None}
    graph = batch(traced.graph, dim, set(traced.graph.inputs) - mapped)
    arguments = tuple(graph.inputs[n.attrs["name"]] for n in traced.arguments)
    batched = Subtrace(graph, traced.structure, traced.captured, arguments, traced.trace, (), traced.taps)
    results = tree.unflatten(traced.structure, call(batched, [leaves[i] for i in arrays]))
    return results if out_axes == 0 else tree.map_leaves(lambda v: np.moveaxis(v, 0, out_axes), results)
