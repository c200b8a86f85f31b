"""The array front door: a NumPy function, called with traced arrays, yields the graph.

A ``Tensor`` answers to operators, ``@``, NumPy's ufuncs and a few NumPy functions; a ``Parameter`` is a named array
that becomes an input of the graph when it meets one. Outside of tracing both behave as NumPy arrays do, so the
function still runs on plain arrays.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.declaration import Declaration, Traced
from mlaot.ir import Dim, Graph, Node, Type
from mlaot.ir.types import BY_NUMPY, DType, f64
from mlaot.ops import Op
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.ops import structure as st

_current: ContextVar[Graph | None] = ContextVar("graph", default=None)
UFUNCS: dict[str, Op] = {
    "add": ew.add,
    "subtract": ew.sub,
    "multiply": ew.mul,
    "divide": ew.div,
    "negative": ew.neg,
    "exp": ew.exp,
    "log": ew.log,
    "tanh": ew.tanh,
    "sqrt": ew.sqrt,
    "absolute": ew.abs_,
    "sign": ew.sign,
    "maximum": ew.maximum,
    "minimum": ew.minimum,
}


FLOATS_ONLY = "only floating-point numbers can be computed; multiply by 1.0 or np.float32(1) first"


class Operators:
    """Python's operators for tensors and parameters."""

    __array_priority__ = 1000

    def __add__(self, other: Any) -> Any:
        return elementwise(ew.add, self, other)

    def __radd__(self, other: Any) -> Any:
        return elementwise(ew.add, other, self)

    def __sub__(self, other: Any) -> Any:
        return elementwise(ew.sub, self, other)

    def __rsub__(self, other: Any) -> Any:
        return elementwise(ew.sub, other, self)

    def __mul__(self, other: Any) -> Any:
        return elementwise(ew.mul, self, other)

    def __rmul__(self, other: Any) -> Any:
        return elementwise(ew.mul, other, self)

    def __truediv__(self, other: Any) -> Any:
        return elementwise(ew.div, self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return elementwise(ew.div, other, self)

    def __neg__(self) -> Any:
        return elementwise(ew.neg, self)

    def __abs__(self) -> Any:
        return elementwise(ew.abs_, self)

    def __pow__(self, exponent: float) -> Any:
        return power(self, exponent)

    def __matmul__(self, other: Any) -> Any:
        return matmul(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return matmul(other, self)

    def __bool__(self) -> bool:
        raise MlaotError("the value of a traced array is not known while tracing; branch on it outside of the model")

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        if method != "__call__" or options:
            raise MlaotError(f"np.{ufunc.__name__}.{method} with {sorted(options)} cannot be traced")
        if ufunc is np.matmul:
            return matmul(*inputs)
        if ufunc is np.power:
            return power(*inputs)
        if ufunc is np.square:
            return power(inputs[0], 2)
        op = UFUNCS.get(ufunc.__name__)
        if op is None:
            raise MlaotError(
                f"np.{ufunc.__name__} has no rule; known are {', '.join(sorted(UFUNCS))}, matmul, power, square"
            )
        return elementwise(op, *inputs)

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        known = {np.sum: "sum", np.max: "max", np.min: "min", np.amax: "max", np.amin: "min", np.mean: "mean"}
        known |= {np.transpose: "transpose", np.reshape: "reshape"}
        if function not in known:
            raise MlaotError(f"np.{function.__name__} cannot be traced; known are {sorted(set(known.values()))}")
        return getattr(args[0], known[function])(*args[1:], **options)

    def sum(self, axis: Any = None, keepdims: bool = False) -> Any:
        return reduce(red.sum_, self, axis, keepdims)

    def max(self, axis: Any = None, keepdims: bool = False) -> Any:
        return reduce(red.max_, self, axis, keepdims)

    def min(self, axis: Any = None, keepdims: bool = False) -> Any:
        return reduce(red.min_, self, axis, keepdims)

    def mean(self, axis: Any = None, keepdims: bool = False) -> Any:
        if _plain(self):
            return np.asarray(self).mean(axis=axis, keepdims=keepdims)
        x = _tensor(self)
        count: Any = 1
        for i in _axes(axis, x.node.type.rank):
            extent: Any = x.node.type.shape[i]
            if not isinstance(extent, int):
                extent = Tensor(x.node.graph.add(st.size, (), {"dim": extent, "dtype": x.node.type.dtype}))
            count = extent * count
        return reduce(red.sum_, x, axis, keepdims) / count

    def transpose(self, *axes: Any) -> Any:
        if _plain(self):
            return np.asarray(self).transpose(*axes)
        x = _tensor(self).node
        given = tuple(axes[0]) if len(axes) == 1 and isinstance(axes[0], tuple | list) else axes
        perm = tuple(_axis(a, x.type.rank) for a in given if a is not None) or tuple(reversed(range(x.type.rank)))
        if sorted(perm) != list(range(x.type.rank)):
            raise MlaotError(f"cannot transpose {x.type} by the axes {list(given)}")
        return Tensor(st.transpose(x, perm=perm))

    def reshape(self, *shape: Any) -> Any:
        if _plain(self):
            return np.asarray(self).reshape(*shape)
        new = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], tuple | list) else shape
        return Tensor(st.reshape(_tensor(self).node, shape=new))

    @property
    def T(self) -> Any:
        return self.transpose()


class Tensor(Operators):
    """A traced array: a node of the graph."""

    def __init__(self, node: Node) -> None:
        self.node = node.find()

    @property
    def shape(self) -> tuple[Dim, ...]:
        return self.node.type.shape

    @property
    def ndim(self) -> int:
        return self.node.type.rank

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.node.type.dtype.numpy)

    def __repr__(self) -> str:
        return f"Tensor({self.node.type})"


class Parameter(Operators):
    """A named weight: an array outside of a model, an input of the graph inside."""

    def __init__(self, name: str, array: Any) -> None:
        self.name = name
        self.array = np.asarray(array)
        if str(self.array.dtype) not in ("float32", "float64"):
            raise MlaotError(f"parameter {name!r}: expected float32 or float64, got {self.array.dtype}")

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.array(self.array, dtype=dtype) if copy else np.asarray(self.array, dtype=dtype)

    def __repr__(self) -> str:
        return f"Parameter({self.name!r}, {self.array.dtype}{list(self.array.shape)})"


def parameters(values: Mapping[str, Any]) -> dict[str, Parameter]:
    """Named arrays as parameters of a model."""
    return {name: Parameter(name, array) for name, array in values.items()}


def load(path: str | Path) -> dict[str, Parameter]:
    """The arrays of a safetensors file as parameters; a relative path is looked for beside the calling module first."""
    import safetensors.numpy

    caller = inspect.stack()[1].filename
    beside = Path(caller).parent / path
    found = beside if beside.exists() else Path(path)
    if not found.exists():
        raise MlaotError(f"no file {path}; looked in {Path(caller).parent} and {Path.cwd()}")
    return parameters(safetensors.numpy.load_file(found))


def model(
    function: Callable[..., Any] | None = None,
    *,
    loss: Callable[..., Any] | None = None,
    parameters: Mapping[str, Any] | None = None,
    learning_rate: float = 0.1,
) -> Any:
    """Mark a function of annotated arrays as a model: ``def net(x: mlaot.f32[64]): ...``.

    Without a named dim in the annotations the function is for one example and the module serves any batch. ``loss`` is
    a function of the outputs and further annotated inputs; with it the module trains ``parameters`` (all it meets,
    unless given) by stochastic gradient descent.
    """
    if function is None:
        return lambda f: model(f, loss=loss, parameters=parameters, learning_rate=learning_rate)
    return Model(function, loss, parameters, learning_rate)


class Model(Declaration):
    """A function that can be compiled, and still called."""

    def __init__(
        self,
        function: Callable[..., Any],
        loss: Callable[..., Any] | None,
        given: Mapping[str, Any] | None,
        learning_rate: float,
    ) -> None:
        super().__init__(lambda: _trace(function, loss, given, learning_rate))
        object.__setattr__(self, "function", function)

    function: Callable[..., Any]

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self.function(*args, **options)


def _trace(
    function: Callable[..., Any], loss: Callable[..., Any] | None, given: Mapping[str, Any] | None, learning_rate: float
) -> Traced:
    graph = Graph("model")
    with _tracing(graph):
        for name, value in (given or {}).items():
            _parameter_node(graph, value if isinstance(value, Parameter) else Parameter(name, value))
        arguments = _arguments(graph, function, 0)
        names = tuple(argument.node.attrs["name"] for argument in arguments)
        outputs = function(*arguments)
        named = _named(outputs)
        graph.outputs = {k: _tensor(v).node for k, v in named.items()}
        _check_outputs(graph)
        if loss is not None:
            results = outputs if isinstance(outputs, tuple) else (outputs,)
            graph.outputs["loss"] = _tensor(loss(*results, *_arguments(graph, loss, len(results)))).node
    arrays = {n.attrs["name"]: n.attrs["value"].array for n in graph.inputs.values() if n.attrs.get("parameter")}
    for node in list(graph.inputs.values()):
        node.attrs.pop("value", None)
    named_dims = any(not isinstance(d, int) for n in graph.inputs.values() for d in n.type.shape)
    return Traced(graph, arrays, [], not named_dims, learning_rate, arguments=names)


@contextmanager
def _tracing(graph: Graph) -> Iterator[None]:
    token = _current.set(graph)
    try:
        yield
    finally:
        _current.reset(token)


def _arguments(graph: Graph, function: Callable[..., Any], skip: int) -> list[Tensor]:
    """A traced array for each annotated argument behind the first ``skip``."""
    found = []
    hints = inspect.get_annotations(function, eval_str=True)
    for argument in list(inspect.signature(function).parameters)[skip:]:
        hint = hints.get(argument)
        if isinstance(hint, DType):
            hint = Type(hint)
        if not isinstance(hint, Type):
            raise MlaotError(
                f"argument {argument!r} of {function.__name__}: "
                f"expected an annotation such as mlaot.f32[64], got {hint!r}"
            )
        if argument in graph.inputs:
            raise MlaotError(f"argument {argument!r} of {function.__name__} is the name of another input or parameter")
        found.append(Tensor(graph.input(argument, hint)))
    return found


def _named(outputs: Any) -> dict[str, Any]:
    if isinstance(outputs, Mapping):
        return dict(outputs)
    if isinstance(outputs, tuple):
        return {f"out{i}": value for i, value in enumerate(outputs)}
    return {"out": outputs}


def _check_outputs(graph: Graph) -> None:
    if not graph.outputs:
        raise MlaotError("the model has no output")
    if "loss" in graph.outputs:
        raise MlaotError("an output cannot be called 'loss'; to train, give the decorator a function loss=")
    for name, node in graph.outputs.items():
        if node.type.dtype.kind != "f":
            raise MlaotError(f"output {name!r} is {node.type}; {FLOATS_ONLY}")


def _parameter_node(graph: Graph, parameter: Parameter) -> Node:
    known = graph.inputs.get(parameter.name)
    if known is None:
        from mlaot.ir import Literal

        kind = BY_NUMPY[str(parameter.array.dtype)]
        literal = Literal(parameter.array, kind)
        known = graph.input(parameter.name, Type(kind, parameter.array.shape), parameter=True)
        known.attrs["value"] = literal
    return known


def _tensor(value: Any, like: Node | None = None) -> Tensor:
    """Anything as a traced array of the graph being traced; numbers take the dtype of ``like``."""
    if isinstance(value, Tensor):
        return value
    graph = _current.get()
    if graph is None:
        raise MlaotError("a traced array is used outside of the model that it belongs to")
    if isinstance(value, Parameter):
        return Tensor(_parameter_node(graph, value))
    array = np.asarray(value)
    if isinstance(value, int | float) and like is not None:
        kind = like.type.dtype if like.type.dtype.kind == "f" else f64
    elif str(array.dtype) in BY_NUMPY:
        kind = BY_NUMPY[str(array.dtype)]
    else:
        raise MlaotError(f"a {type(value).__name__} cannot be part of a model")
    return Tensor(graph.constant(array, kind))


def _plain(*args: Any) -> bool:
    """Whether an expression is to be computed now: nothing in it is traced."""
    return _current.get() is None and not any(isinstance(a, Tensor) for a in args)


def _promoted(args: tuple[Any, ...]) -> list[Node]:
    like = next((a.node for a in args if isinstance(a, Tensor)), None)
    nodes = [_tensor(a, like).node for a in args]
    kind = BY_NUMPY.get(str(np.result_type(*[n.type.dtype.numpy for n in nodes])), f64)
    return [n if n.type.dtype is kind else ew.cast(n, dtype=kind) for n in nodes]


def elementwise(op: Op, *args: Any) -> Any:
    """``op`` with NumPy's broadcasting and promotion."""
    if _plain(*args):
        return op.reference(*[np.asarray(a) for a in args])
    nodes = _promoted(args)
    if op in (ew.div, ew.exp, ew.log, ew.tanh, ew.sqrt) and nodes[0].type.dtype.kind != "f":
        nodes = [ew.cast(n, dtype=f64) for n in nodes]
    _check_floats(op.name, *nodes)
    shape = _broadcast_shape([n.type.shape for n in nodes])
    return Tensor(op(*[_spread(n, shape) for n in nodes]))


def power(x: Any, exponent: Any) -> Any:
    """``x ** exponent`` for a constant exponent."""
    if _plain(x, exponent):
        return np.power(np.asarray(x), exponent)
    if not isinstance(exponent, int | float):
        raise MlaotError("the exponent of ** must be a number")
    _check_floats("power", _tensor(x).node)
    return Tensor(ew.pow_(_tensor(x).node, exponent=float(exponent)))


def _check_floats(name: str, *nodes: Node) -> None:
    for node in nodes:
        if node.type.dtype.kind != "f":
            raise MlaotError(f"{name} of {node.type}: {FLOATS_ONLY}")


def _broadcast_shape(shapes: list[tuple[Dim, ...]]) -> tuple[Dim, ...]:
    rank = max(map(len, shapes))
    result: list[Dim] = []
    for i in range(-rank, 0):
        sizes = {s[i] for s in shapes if len(s) >= -i and s[i] != 1}
        if len(sizes) > 1:
            raise MlaotError(f"shapes {' and '.join(str(list(s)) for s in shapes)} do not broadcast")
        result.append(sizes.pop() if sizes else 1)
    return tuple(result)


def _spread(node: Node, shape: tuple[Dim, ...]) -> Node:
    if node.type.shape == shape:
        return node
    lead = len(shape) - node.type.rank
    kept = [i for i, d in enumerate(node.type.shape) if d == shape[lead + i]]
    if len(kept) < node.type.rank:
        node = st.reshape(node, shape=tuple(node.type.shape[i] for i in kept))
    return st.broadcast(node, shape=shape, axes=tuple(lead + i for i in kept))


def _axes(axis: Any, rank: int) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(rank))
    return tuple(sorted(_axis(a, rank) for a in (axis if isinstance(axis, tuple) else (axis,))))


def _axis(axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise MlaotError(f"there is no axis {axis} in an array of {rank} dimensions")
    return axis % rank


def reduce(op: Op, x: Any, axis: Any, keepdims: bool) -> Any:
    """A reduction over ``axis`` (all where None)."""
    if _plain(x):
        return getattr(np.asarray(x), op.name)(axis=axis, keepdims=keepdims)
    node = _tensor(x).node
    _check_floats(op.name, node)
    axes = _axes(axis, node.type.rank)
    result = op(node, axes=axes)
    if keepdims:
        result = st.reshape(result, shape=tuple(1 if i in axes else d for i, d in enumerate(node.type.shape)))
    return Tensor(result)


def matmul(a: Any, b: Any) -> Any:
    """``a @ b``: vectors, matrices, and stacks of matrices with equal leading dims."""
    if _plain(a, b):
        return np.matmul(np.asarray(a), np.asarray(b))
    x, y = _promoted((a, b))
    _check_floats("matmul", x, y)
    if not x.type.rank or not y.type.rank:
        raise MlaotError(f"matmul needs arrays, got {x.type} and {y.type}")
    inner = (x.type.shape[-1], y.type.shape[-2 if y.type.rank > 1 else 0])
    if inner[0] != inner[1]:
        raise MlaotError(f"matmul needs (m,k) and (k,n), got {x.type} and {y.type}")
    letters = "abcdefghijklmnop"
    lead = letters[: max(x.type.rank, y.type.rank) - 2] if max(x.type.rank, y.type.rank) > 2 else ""
    left = lead[len(lead) - max(x.type.rank - 2, 0) :] + ("y" if x.type.rank > 1 else "") + "z"
    right = lead[len(lead) - max(y.type.rank - 2, 0) :] + "z" + ("x" if y.type.rank > 1 else "")
    out = lead + ("y" if x.type.rank > 1 else "") + ("x" if y.type.rank > 1 else "")
    return Tensor(red.contract(x, y, spec=f"{left},{right}->{out}"))


def relu(x: Any) -> Any:
    """``max(x, 0)``."""
    return elementwise(ew.relu, x)


def softmax(x: Any, axis: int = -1) -> Any:
    """``exp(x - max) / sum(exp(x - max))`` along ``axis``."""
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def one_hot(label: Any, classes: int, dtype: DType = f64) -> Any:
    """1 where the class is ``label``, else 0, along a new last axis; labels outside ``0..classes-1`` are refused."""
    if _plain(label):
        return (np.asarray(label)[..., None] == np.arange(classes)).astype(dtype.numpy)
    return Tensor(st.one_hot(_tensor(label).node, classes=classes, dtype=dtype))
