"""Search for the values of inputs that decide shapes, if the file does not declare the shapes in between.

Settings can give the value of such an input. Otherwise the importer searches for values with which the outputs have the
shapes that the file declares. First, elements of the inputs are named dims, and the declared shapes determine some of
them. Values of the others are tried one after another. Each call checks that its values are among those compiled, so
any other value is an error, and never a wrong answer. If several values fit, each call selects between their results.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import chain, islice
from math import prod
from typing import Any

import numpy as np
import onnx

from mlaot.errors import MlaotError
from mlaot.frontend.numpy import astype
from mlaot.ir import Dim
from mlaot.ir.dims import assign, dim, names
from mlaot.onnx.importer import Env, Importer, unify
from mlaot.onnx.protos import all_nodes, identifier
from mlaot.onnx.values import FEW, Computed, Refined, extent_value, lift, numpy_dtype, shape_vector

Numbers = dict[str, list[Dim]]  # the elements of inputs; a symbol of its own stands for one that decides nothing
Meant = dict[str, Dim]
NUMBERS = (onnx.TensorProto.INT64, onnx.TensorProto.INT32)
MOST = 8  # values between which calls choose
TRIALS = 512  # imports of a file, of which some values are sizes, or axes
WORK = 2**16  # nodes, and blocks of weights, that all imports have together
PROBES = (0, 1, 97)  # what elements that decide nothing may be, to see whether that is so
BLOCK = 2**16  # bytes of weights that take about as long as a node


class Exhausted(Exception):
    """A search would take too long."""


class Contradiction(MlaotError):
    """Outputs have other shapes than the file declares, for any named dims."""


def number_inputs(graph: onnx.GraphProto, kinds: Sequence[int] = NUMBERS) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the inputs of one or a few numbers that have no value in the file."""
    known, found = {tensor.name for tensor in graph.initializer}, {}
    for info in graph.input:
        kind = info.type.tensor_type
        shape = tuple(d.dim_value for d in kind.shape.dim)  # 0 where it is open
        is_small = kind.HasField("shape") and len(shape) < 2 and all(0 < extent <= FEW for extent in shape)
        if info.name not in known and kind.elem_type in kinds and is_small:
            found[info.name] = shape
    return found


def pins(name: str, shape: tuple[int, ...]) -> list[str]:
    """Return the names of an input's elements in settings: ``k``, or ``sizes_0`` and so on."""
    return [identifier(f"{name}_{i}" if shape else name) for i in range(prod(shape))]


def pinnable(graph: onnx.GraphProto) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the inputs that settings can pin."""
    return number_inputs(graph, (*NUMBERS, onnx.TensorProto.BOOL))


def pinned(graph: onnx.GraphProto, sizes: Mapping[str, int]) -> list[Numbers]:
    """Return the values of inputs that settings pin."""
    wanted = {name: pins(name, shape) for name, shape in pinnable(graph).items()}
    found: Numbers = {name: [sizes[p] for p in each] for name, each in wanted.items() if all(p in sizes for p in each)}
    return [found] if found else []


def run(importer: Importer, graph: onnx.GraphProto, env: Env, known: Sequence[Numbers], meant: Meant) -> list[Any]:
    """Return the outputs of a graph, given the possible values ``known`` of inputs."""
    if not known:
        return importer.run(graph, env)
    results, conditions, texts = [], [], []
    for numbers in known:
        assigned = {name: [assign(e, meant) for e in elements] for name, elements in numbers.items()}
        holds = reduce(np.logical_and, chain(*(_equal(name, env[name], each) for name, each in assigned.items())))
        values = {info.name: _array(info, assigned[info.name]) for info in graph.input if info.name in assigned}
        importer.branches += [holds] if len(known) > 1 else []
        results.append(importer.run(graph, ChainMap(values, env)))
        importer.branches.clear()
        conditions.append(holds)
        texts.append(" and ".join(f"{name} must be {_shown(name, env[name], each)}" for name, each in assigned.items()))
        _check_declared(importer, graph, results[-1])
    importer.conditions.append((reduce(np.logical_or, conditions), " or ".join(texts)))
    best = results[-1]
    for condition, outputs in zip(conditions[-2::-1], results[-2::-1], strict=True):
        best = [_choose(condition, a, b) for a, b in zip(outputs, best, strict=True)]
    return best


def _array(info: onnx.ValueInfoProto, elements: Sequence[Dim]) -> Any:
    """Return a possible value of an input as a known array."""
    kind = info.type.tensor_type
    value = np.reshape(shape_vector(list(elements)), [d.dim_value for d in kind.shape.dim])
    return value if value.dtype == object else value.astype(numpy_dtype(kind.elem_type))


def _equal(name: str, value: Any, elements: Sequence[Dim]) -> Iterator[Any]:
    """Yield the conditions that elements have their values; elements that decide no shape must not be negative."""
    flat = np.reshape(astype(value, np.int64), (-1,))
    for i, wanted in enumerate(elements):
        yield flat[i] >= 0 if wanted == _symbol(name, i) else np.equal(flat[i], extent_value(wanted))


def _choose(condition: Any, one: Any, other: Any) -> Any:
    kinds = [(value.shape, str(value.dtype)) if hasattr(value, "shape") else None for value in (one, other)]
    if kinds[0] != kinds[1] or kinds[0] is None:
        raise Computed("an input, which is computed when the model runs, decides the shape of an output")
    return np.where(condition, lift(one), lift(other))


def _shown(name: str, value: Any, elements: Sequence[Dim]) -> str:
    text = ", ".join("any" if e == _symbol(name, i) else str(e) for i, e in enumerate(elements))
    return f"[{text}]" if value.ndim else text


def _symbol(name: str, i: int) -> Dim:
    """Return the dim that stands for an element of an input."""
    return dim(f"number_{i}_of_{identifier(name)}")


def _check_declared(importer: Importer, graph: onnx.GraphProto, outputs: Sequence[Any]) -> None:
    """Raise ``Contradiction`` if outputs have other shapes than the file declares."""
    for info, value in zip(graph.output, outputs, strict=True):
        type_, shape = importer.types.get(info.name), getattr(value, "shape", None)
        if type_ is None or shape is None:
            continue
        message = f"the output {info.name!r} has the shape {list(shape)}, not {list(type_.shape)}"
        if len(shape) != type_.rank:
            raise Contradiction(message)
        pairs = [(e, wanted) for e, wanted in zip(shape, type_.shape, strict=True) if isinstance(wanted, int)]
        if any(isinstance(extent, int) and extent != wanted for extent, wanted in pairs):
            raise Contradiction(message)
        for extent, wanted in pairs:
            if extent != wanted:
                raise Refined(message, meant) if (meant := unify(extent, wanted)) else MlaotError(message)


def solve(model: onnx.ModelProto, attempt: Callable[[Numbers, Meant], str]) -> list[Numbers]:
    """Search for values of inputs that give the declared shapes: of one input, or else of all inputs.

    ``attempt`` imports the file with given values, and adds to the dims that are ``meant``; it returns the text of the
    graph. The result is None if there are no such values or too many, or if the shapes do not determine them.
    """
    graph, shapes = model.graph, number_inputs(model.graph)
    if not all(info.type.tensor_type.HasField("shape") for info in graph.output):
        return []
    domains = _domains(graph)
    if not domains[0]:
        return []
    weights = sum(len(tensor.raw_data) for tensor in graph.initializer)
    trials = iter(range(WORK // (sum(1 for _ in all_nodes(graph)) + weights // BLOCK + 1)))
    for group in [[name] for name in shapes] + ([list(shapes)] if len(shapes) > 1 else []):
        symbols = {name: [_symbol(name, i) for i in range(prod(shapes[name]))] for name in group}
        found: dict[str, Numbers] = {}
        for values in domains:
            found |= {str(numbers): numbers for numbers in _search(symbols, values, attempt, islice(trials, TRIALS))}
        if found:
            return list(found.values()) if len(found) <= MOST else []
    return []


def _domains(graph: onnx.GraphProto) -> list[list[int]]:
    """Return the values to try: declared sizes, if there are any, then axes, and last a value that is neither."""
    shapes = [[d.dim_value for d in info.type.tensor_type.shape.dim] for info in (*graph.output, *graph.input)]
    sizes = {extent for shape in shapes[: len(graph.output)] for extent in shape if extent > 0}
    rank = max(map(len, shapes), default=0)
    return [[*sorted(sizes), max(sizes) + 1] if sizes else [], list(range(-rank, rank + 1))]


def _search(
    symbols: Mapping[str, Sequence[Dim]],
    values: Sequence[int],
    attempt: Callable[[Numbers, Meant], str],
    trials: Iterator[int],
) -> list[Numbers]:
    """Return the possible values of the inputs, with elements among ``values`` or determined by shapes.

    The result is None if the last of the values fits, which is no meaningful one: the shapes then do not determine
    them.
    """
    every = list(chain(*symbols.values()))
    unknown = frozenset(map(str, every))
    found: list[Numbers] = []
    waiting: list[Meant] = [{}]

    def text(meant: Meant) -> str | None:
        """Return the text of the graph for values: empty if they do not fit, None if the shapes differ."""
        if next(trials, None) is None:
            raise Exhausted
        try:
            return attempt({name: list(each) for name, each in symbols.items()}, meant)
        except Contradiction:
            return None
        except (MlaotError, TypeError, ValueError, IndexError, ArithmeticError):  # of values that are not meant
            return ""

    try:
        while waiting:
            tried = waiting.pop()
            meant = dict(tried)
            graph = text(meant)
            if graph is None:
                continue
            elements = {symbol: assign(symbol, meant) for symbol in every}
            left = [symbol for symbol, element in elements.items() if not unknown.isdisjoint(names(element))]
            decide = [symbol for symbol in left if not graph or elements[symbol] != symbol or str(symbol) in graph]
            decide = decide or [s for s in left if not all(text(meant | {str(s): probe}) for probe in PROBES)]
            if decide:
                waiting += [{**tried, str(decide[0]): value} for value in values]
            elif graph and any(value == values[-1] for value in tried.values()):
                return []
            elif graph:
                found.append({name: [elements[symbol] for symbol in each] for name, each in symbols.items()})
    except Exhausted:
        return []
    return found
