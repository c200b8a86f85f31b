"""The scalar front end: graphs of ``Value``s, of mlaot or of the micrograd package, become IR.

A leaf that is declared as part of an input is an element of that input, and a leaf that is a parameter is an element of
the flat parameter vector. Any other leaf is a constant. The front end does not know neurons or layers.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from mlaot.errors import MlaotError, is_building
from mlaot.frontend.scalar import lost
from mlaot.frontend.scalar.engine import Value, halves, topological_order
from mlaot.frontend.scalar.equal import find, representatives
from mlaot.frontend.scalar.functions import FUNCTIONS
from mlaot.frontend.scalar.parameters import Ids, kind_of, parameter_arrays
from mlaot.frontend.scalar.parameters import is_value as is_value
from mlaot.frontend.scalar.tables import Index, Length
from mlaot.frontend.trace.context import calling_line
from mlaot.frontend.trace.declaration import PARAMETERS, Declaration, Optimizer, Traced
from mlaot.frontend.trace.model import check_optimizer
from mlaot.ir import DType, Graph, Node, Type
from mlaot.ir.names import argument, identifier
from mlaot.ir.types import BY_NUMPY, i64, u8
from mlaot.ops import OPS
from mlaot.ops import comparison as cmp
from mlaot.ops import elementwise as ew
from mlaot.ops import structure as st
from mlaot.ops.barrier import stop_gradient
from mlaot.ops.base import full_like
from mlaot.ops.indexing import index
from mlaot.ops.sparse import sparse

UNARY = {"ReLU": ew.relu, **{name: OPS[name] for name in FUNCTIONS}}
EXTREMES = {"max": ew.maximum, "min": ew.minimum}
ORDER = {"<": cmp.less, "<=": cmp.less_equal, ">": cmp.greater, ">=": cmp.greater_equal}
# Each starts from its identity, as a sum from 0: one value then has the form of many.
OF_DATA = {"max of data": (ew.maximum, -np.inf), "min of data": (ew.minimum, np.inf)}
Values = Sequence[Any]


@dataclass(frozen=True)
class Bytes:
    """Inputs such as pixels, a list or rows, which the module takes as unsigned bytes and divides by ``scale``."""

    values: Values
    scale: float = 255.0


@dataclass(frozen=True)
class Sparse:
    """Inputs that are mostly zero, a list of values or ``Bytes``. Products skip the zeros."""

    values: Values | Bytes


@dataclass(frozen=True)
class Label:
    """Inputs that hold a class label as one-hot values. The module takes the label itself, an integer."""

    values: Values


Input = Values | Bytes | Sparse | Label | Index | Length | Any


def declare(
    outputs: Any,
    *,
    inputs: Mapping[str, Input],
    parameters: Any = (),
    loss: Any = None,
    dtype: str = "float64",
    learning_rate: float = 0.1,
    optimizer: Optimizer | None = None,
) -> Declaration:
    """Declare a model from a graph of ``Value``s, of ``mlaot.micrograd`` or of the micrograd package.

    ``outputs`` is a value, a nested list of values, or a dict of names to either. ``inputs`` is a dict of names to the
    leaves that are set at run time, in order and shape: a value or a nested list of values. ``Bytes(values)`` stands
    for pixels, ``Sparse(values)`` for inputs that are mostly zero, and ``Label(values)`` for a one-hot label. An input
    may also be an ``Index``, a nested list of ``Index``, or a ``Length``. A model without inputs has no batch.

    ``parameters`` is a network, or a dict of names to values and nested lists of values. The module has arrays of these
    names and shapes, with the elements in this order. The values of a plain list are one vector ``p``. With a ``loss``
    the module trains by ``optimizer``, one of ``mlaot.optim``. The default is stochastic gradient descent with the step
    ``learning_rate``. Without a loss the parameters are constants of the module.

    Arguments of other types raise ``MlaotError``. A build warns of a leaf that was probably forgotten.
    """
    model = _Model(outputs, inputs, parameters, loss, dtype, learning_rate, optimizer)
    return _declaration(model, calling_line())


def _declaration(model: _Model, place: str = "") -> Declaration:
    _check(model)
    return Declaration(lambda: trace(model, place), place)


@dataclass(frozen=True)
class _Model:
    """A declared model: the arguments of ``declare``."""

    outputs: Any
    inputs: Mapping[str, Input]
    parameters: Any = ()
    loss: Any = None
    dtype: str = "float64"
    rate: float = 0.1
    optimizer: Optimizer | None = None

    @property
    def results(self) -> dict[str, Any]:
        """Return the outputs by name."""
        return dict(self.outputs) if isinstance(self.outputs, Mapping) else {"out": self.outputs}

    @property
    def roots(self) -> list[Any]:
        """Return the values that are outputs."""
        return values_of(self.outputs)


def values_of(outputs: Any) -> list[Any]:
    """Return the values of outputs, which are a value, nested lists, or a dict of these."""
    each = outputs.values() if isinstance(outputs, Mapping) else [outputs]
    return [value for output in each for value in np.asarray(output, object).flat]


def _check(model: _Model) -> None:
    """Raise ``MlaotError`` for an argument of a wrong type, with the name that the user knows."""
    if not isinstance(model.inputs, Mapping):
        raise MlaotError(
            f"inputs: expected a dict of names to Values, got {kind_of(model.inputs)}; write inputs={{'x': ..}}"
        )
    if not model.results:
        raise MlaotError("outputs: expected a Value, a list or a dict of Values, got an empty dict")
    for name, output in model.results.items():
        what = f"outputs[{name!r}]" if isinstance(model.outputs, Mapping) else "outputs"
        identifier(name, "an output")
        if name == "loss":
            raise MlaotError("an output cannot be called 'loss'; to train, pass the loss to declare as loss=")
        if output is None:
            raise MlaotError(f"{what} is None; is a `return` missing in the function that makes it?")
        expected = "a Value" if isinstance(output, list | tuple) else "a Value, a list or a dict of Values"
        _shape(what, output, partial(_check_value, expected=expected))
    if model.loss is not None:
        _check_value("loss", model.loss)
        if "lr" in model.inputs:
            raise MlaotError("an input of a model that trains cannot be called 'lr', train_step's learning rate")
    if model.dtype not in ("float32", "float64"):
        raise MlaotError(f"dtype must be 'float32' or 'float64', got {model.dtype!r}")
    if isinstance(model.rate, bool) or not isinstance(model.rate, int | float | np.number):
        raise MlaotError(f"learning_rate: expected a number, got {kind_of(model.rate)}")
    check_optimizer(model.optimizer, model.loss, "give declare a loss=")


def _shape(what: str, thing: Any, check: Callable[[str, Any], None]) -> tuple[int, ...]:
    """Return the shape of a nested list whose leaves pass ``check``. An empty or ragged list raises ``MlaotError``."""
    if not isinstance(thing, list | tuple):
        check(what, thing)
        return ()
    if not thing:
        raise MlaotError(f"{what}: expected at least one Value, got an empty {type(thing).__name__}")
    shapes = [_shape(f"{what}[{i}]", part, check) for i, part in enumerate(thing)]
    for i, shape in enumerate(shapes):
        if shape != shapes[0]:
            raise MlaotError(
                f"{what}[{i}]: expected Values in the shape of {what}[0], {[*shapes[0]]}, got {[*shape]}; a list of "
                "unequal parts is no array, so name each of them in a dict"
            )
    return (len(thing), *shapes[0])


def _check_value(what: str, value: Any, expected: str = "a Value") -> None:
    if not is_value(value):
        raise MlaotError(f"{what}: expected {expected}, got {kind_of(value)}")


def declare_graph(outputs: Any) -> Declaration:
    """Declare a graph without declared inputs.

    Its leaves labelled ``'input'``, in order of their use, are the vector x.
    """
    leaves = [v for v in topological(values_of(outputs)) if not v._prev and v._op == "input"]
    if not leaves:
        raise MlaotError(
            "a bare graph of Values has no inputs; expected leaves made by Value(0.0, (), 'input'), "
            "or a declaration by mlaot.micrograd.declare"
        )
    return _declaration(_Model(outputs, {"x": leaves}))


def declare_module(net: Any) -> Declaration:
    """Declare a network object: a module from its input vector to its outputs, with its parameters as constants."""
    try:
        inspect.getattr_static(net, "layers")
        width = len(net.layers[0].neurons[0].w)
    except (AttributeError, IndexError, TypeError, KeyError):
        raise MlaotError(
            f"expected a model, got {type(net).__name__}; a model is a function marked by mlaot.model, a declaration"
            " by mlaot.micrograd.declare, or a micrograd MLP"
        ) from None
    weight = net.layers[0].neurons[0].w[0]
    x = [(type(weight) if hasattr(weight, "_prev") else Value)(0.0) for _ in range(width)]
    return _declaration(_Model(net(x), {"x": x}, net))


def trace(model: _Model, place: str) -> Traced:
    """Trace the graph of one example, declared at ``place``.

    Raise ``MlaotError`` for a graph that cannot be compiled.
    """
    kind = BY_NUMPY[model.dtype]
    graph = Graph("model")
    nodes: dict[int, Node] = {}
    trained, named = parameter_arrays(model.parameters)
    if trained:
        flat = graph.input(PARAMETERS, Type(kind, (len(trained),)), parameter=True)
        nodes |= {id(value): graph.add(st.item, (flat,), {"index": i}) for i, value in enumerate(trained)}
    leaves = {name: _input(graph, name, value, kind, nodes) for name, value in model.inputs.items()}
    order = topological([*model.roots, *([] if model.loss is None else [model.loss])])
    for value in order:
        if id(value) not in nodes:
            nodes[id(value)] = _node(graph, value, nodes, kind)
    for name, output in model.results.items():
        array = np.asarray(output, object)
        values = [nodes[id(find(value))] for value in array.flat]
        result = graph.add(st.stack, values) if array.shape else values[0]
        graph.outputs[name] = st.reshape(result, shape=array.shape) if array.ndim > 1 else result
    if model.loss is not None:
        graph.outputs["loss"] = nodes[id(find(model.loss))]
    if is_building():
        _warn(model, place, order, leaves, trained, named)
    start = {PARAMETERS: np.array([float(v.data) for v in trained], model.dtype)} if trained else {}
    arguments = tuple(model.inputs) if model.loss is None else ()
    dicts = frozenset({"forward"} if isinstance(model.outputs, Mapping) else ())
    rate = float(model.rate if model.optimizer is None else model.optimizer.lr)
    counts = dict(Counter(v._op for v in order))
    return Traced(graph, start, named, True, rate, counts, arguments, optimizer=model.optimizer, dicts=dicts)


def _warn(
    model: _Model,
    place: str,
    order: list[Any],
    inputs: Mapping[str, list[Any]],
    trained: list[Any],
    named: Mapping[str, Ids],
) -> None:
    """Warn of probable mistakes in a declaration; ``order`` is the whole graph."""
    lost.refuse_computed(order, inputs)
    lost.warn_of_constants(order, inputs, trained, trains=model.loss is not None)
    lost.warn_of_reads(inputs, trained, named, {id(value) for value in (*model.roots, model.loss)})
    if model.loss is not None and trained:
        lost.warn_of_untrained(place, topological([model.loss]), trained, named)


def _input(graph: Graph, name: str, declared: Input, kind: DType, nodes: dict[int, Node]) -> list[Any]:
    """Make an input, and return its leaves."""
    argument(name, "an input")
    is_sparse = isinstance(declared, Sparse)
    source, leaves = _source(graph, name, declared.values if isinstance(declared, Sparse) else declared, kind)
    for leaf in leaves:
        if not is_value(leaf):
            raise MlaotError(f"input {name!r}: expected Values, got {type(leaf).__name__}")
        if leaf._prev:
            raise MlaotError(f"input {name!r}: expected leaf Values, got the result of '{leaf._op}'")
    source = sparse(source) if is_sparse else source
    if source.type.rank > 1:
        source = st.reshape(source, shape=(len(leaves),))
    for i, leaf in enumerate(leaves):
        if id(leaf) in nodes:
            raise MlaotError(f"input {name!r}: element {i} is also in another input or a parameter")
        nodes[id(leaf)] = source if source.type.shape == () else graph.add(st.item, (source,), {"index": i})
    return leaves


def _source(graph: Graph, name: str, declared: Input, kind: DType) -> tuple[Node, list[Any]]:
    """Make an argument of the module. Return the array whose elements the leaves are, and the leaves."""
    if isinstance(declared, Length):
        number = index(graph.input(name, Type(i64)), size=declared.bound + 1, wraps=False, ignored=None)
        return ew.cast(number, dtype=kind), [declared]
    if isinstance(declared, Label):
        if not isinstance(declared.values, list | tuple):
            got = kind_of(declared.values)
            raise MlaotError(f"input {name!r}: Label takes a list of Values, one for each class, got {got}")
        leaves = list(declared.values)
        return st.one_hot(graph.input(name, Type(i64)), classes=len(leaves), dtype=kind), leaves
    values = declared.values if isinstance(declared, Bytes) else declared
    shape, leaves = _shape(f"inputs[{name!r}]", values, lambda what, value: None), _leaves(values)
    if indices := _indices(name, leaves):
        number = st.one_hot(graph.input(name, Type(i64, shape)), classes=indices[0].classes, dtype=kind)
        items = [value for each in indices for value in each.values]
        return st.reshape(number, shape=(len(items),)), items
    if isinstance(declared, Bytes):
        scaled = ew.cast(graph.input(name, Type(u8, shape)), dtype=kind)
        scale = st.broadcast(graph.constant(declared.scale, kind), shape=shape, axes=())
        return ew.div(scaled, scale), leaves
    return graph.input(name, Type(kind, shape)), leaves


def _leaves(values: Any) -> list[Any]:
    """Return the elements of a nested list in row-major order."""
    return [leaf for part in values for leaf in _leaves(part)] if isinstance(values, list | tuple) else [values]


def _indices(name: str, leaves: Sequence[Any]) -> list[Index]:
    """Return the ``Index`` objects of an input, if it consists of such."""
    indices = [leaf for leaf in leaves if isinstance(leaf, Index)]
    if indices and len(indices) < len(leaves):
        raise MlaotError(f"input {name!r}: expected Values, or an Index for each place, got both")
    if len({index.classes for index in indices}) > 1:
        raise MlaotError(f"input {name!r}: expected indices with equally many classes; make an input of each")
    return indices


def topological(roots: Sequence[Any]) -> list[Any]:
    """Return the values reachable from ``roots``, arguments first.

    A representative stands for all values equal to it.
    """
    for root in roots:
        if not is_value(root):
            raise MlaotError(f"expected a Value, got {kind_of(root)}")
    return topological_order(*roots)


def _node(graph: Graph, value: Any, nodes: Mapping[int, Node], kind: DType) -> Node:
    _check_value("an argument of a Value", value)
    if not value._prev:
        if value._op == "input":
            raise MlaotError("a leaf labelled 'input' is not among the declared inputs; name it in inputs={...}")
        return graph.constant(float(value.data), kind)
    if getattr(value, "_custom", None):
        raise MlaotError(f"a Value ('{value._op}') with a _forward or _backward of its own cannot be compiled")
    children = representatives(value._prev)
    args = [nodes[id(child)] for child in children]
    op = value._op
    if op in ("+", "*"):
        if len(args) == 1 and isinstance(value._prev, set):  # that of x + x and x * x has one element
            args *= 2
        result = args[0]
        for a in args[1:]:
            result = graph.add(ew.add if op == "+" else ew.mul, (result, a))
        return result
    if op in UNARY and len(args) == 1:
        return graph.add(UNARY[op], args)
    if op in EXTREMES and len(args) == 2:
        return graph.add(EXTREMES[op], args)
    if op in ORDER and len(args) == 2:
        return ew.cast(graph.add(ORDER[op], args), dtype=kind)
    if op == "where" and len(args) == 3:
        is_compared = value._prev[0]._op in ORDER
        condition = args[0].arg(0) if is_compared else cmp.not_equal(args[0], full_like(args[0], 0))
        return graph.add(cmp.where, (condition, *args[1:]))
    if op in OF_DATA:
        extreme, identity = OF_DATA[op]
        return stop_gradient(graph.add(extreme, (graph.constant(identity, kind), *args)))
    if op == "dot":
        pairs = zip(*halves(children), strict=True)
        products = [graph.add(ew.mul, [nodes[id(factor)] for factor in pair]) for pair in pairs]
        return graph.add(ew.add, products) if len(products) > 1 else products[0]
    if op == "array":
        return graph.add(st.stack, args)
    if op.startswith("**") and len(args) == 1:
        return graph.add(ew.pow_, args, {"exponent": _exponent(op[2:])})
    raise MlaotError(
        f"op '{op}' of a Value with {len(args)} arguments has no rule; known are + * ** "
        f"dot where max min < <= > >= ReLU {' '.join(FUNCTIONS)}"
    )


def _exponent(text: str) -> float:
    return 1.0 if text == "True" else 0.0 if text == "False" else float(text)
