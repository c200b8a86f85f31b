"""Traced arrays, parameters and buffers: they answer to operators, NumPy's functions and the methods of arrays.

A ``Tensor`` is a node of the graph being traced. A ``Parameter`` (trained) and a ``Buffer`` (state that the model
writes) are named arrays that become inputs of the graph when it meets them. Outside of tracing both behave as the NumPy
arrays that they hold, so the function still runs on plain arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.trace import Trace, current, needed
from mlaot.ir import Dim, Node, Type
from mlaot.ir import dims as dims_
from mlaot.ir.names import printable
from mlaot.ir.types import BY_NUMPY, DType, bf16


def _binary(name: str) -> tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]:
    ufunc = getattr(np, name)
    return lambda self, other: ufunc(self, other), lambda self, other: ufunc(other, self)


def _unary(name: str) -> Callable[[Any], Any]:
    ufunc = getattr(np, name)
    return lambda self: ufunc(self)


_transpose, _reshape, _swapaxes = (cast(Any, f) for f in (np.transpose, np.reshape, np.swapaxes))


def _method(name: str) -> Callable[..., Any]:
    function = getattr(np, name)
    return lambda self, *args, **options: function(self, *args, **options)


class Operators:
    """Python's operators and the methods of NumPy's arrays, by NumPy's functions."""

    __array_priority__ = 1000
    __hash__ = object.__hash__

    __add__, __radd__ = _binary("add")
    __sub__, __rsub__ = _binary("subtract")
    __mul__, __rmul__ = _binary("multiply")
    __truediv__, __rtruediv__ = _binary("divide")
    __floordiv__, __rfloordiv__ = _binary("floor_divide")
    __mod__, __rmod__ = _binary("remainder")
    __divmod__, __rdivmod__ = _binary("divmod")
    __pow__, __rpow__ = _binary("power")
    __matmul__, __rmatmul__ = _binary("matmul")
    __and__, __rand__ = _binary("bitwise_and")
    __or__, __ror__ = _binary("bitwise_or")
    __xor__, __rxor__ = _binary("bitwise_xor")
    __lshift__, __rlshift__ = _binary("left_shift")
    __rshift__, __rrshift__ = _binary("right_shift")
    __lt__, _ = _binary("less")
    __le__, _ = _binary("less_equal")
    __gt__, _ = _binary("greater")
    __ge__, _ = _binary("greater_equal")
    __eq__, _ = _binary("equal")
    __ne__, _ = _binary("not_equal")
    del _
    __neg__ = _unary("negative")
    __pos__ = _unary("positive")
    __abs__ = _unary("absolute")
    __invert__ = _unary("invert")

    all = _method("all")
    any = _method("any")
    argmax = _method("argmax")
    argmin = _method("argmin")
    argsort = _method("argsort")
    clip = _method("clip")
    conj = conjugate = _method("conjugate")
    copy = _method("copy")
    cumprod = _method("cumprod")
    cumsum = _method("cumsum")
    diagonal = _method("diagonal")
    dot = _method("dot")
    flatten = _method("ravel")
    max = _method("max")
    mean = _method("mean")
    min = _method("min")
    prod = _method("prod")
    ravel = _method("ravel")
    repeat = _method("repeat")
    round = _method("round")
    squeeze = _method("squeeze")
    std = _method("std")
    sum = _method("sum")
    swapaxes = _method("swapaxes")
    take = _method("take")
    trace = _method("trace")
    var = _method("var")

    def astype(self, dtype: Any, copy: bool = True) -> Any:
        from mlaot.frontend.functions import astype

        return astype(self, dtype)

    def transpose(self, *axes: Any) -> Any:
        given = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes or None
        return _transpose(self, given)

    def reshape(self, *shape: Any, order: Any = "C") -> Any:
        return _reshape(self, shape[0] if len(shape) == 1 else shape, order=order)

    def item(self, *args: Any) -> Any:
        return np.asarray(self).item(*args)

    def tolist(self) -> Any:
        return np.asarray(self).tolist()

    def sort(self, *args: Any, **options: Any) -> None:
        raise MlaotError("sort: an array of a model cannot be sorted in place; use np.sort(x)")

    @property
    def T(self) -> Any:
        return _transpose(self)

    @property
    def mT(self) -> Any:
        return _swapaxes(self, -1, -2)

    @property
    def real(self) -> Any:
        return self

    @property
    def at(self) -> At:
        """``x.at[index].set(values)``, also ``add``, ``max``, ``min``: a copy in which elements are changed."""
        return At(self)

    def __getitem__(self, index: Any) -> Any:
        from mlaot.frontend.indexing import get

        return get(self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        from mlaot.frontend.protocols import library_caller, refuse_library

        refuse_library(library_caller())
        raise MlaotError(
            "x[...] = value: an array of a model cannot be written in place; use x = x.at[...].set(value), "
            "mlaot.where or np.concatenate"
        )

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        from mlaot.frontend.protocols import call_ufunc

        return call_ufunc(ufunc, method, inputs, options)

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        from mlaot.frontend.protocols import call_function

        return call_function(function, args, options)

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        import mlaot

        return mlaot


class At:
    """What ``x.at`` is; index it."""

    def __init__(self, array: Any, index: Any = None) -> None:
        self._array = array
        self._index = index

    def __getitem__(self, index: Any) -> At:
        return At(self._array, index)

    def set(self, values: Any) -> Any:
        return self._update(values, "set")

    def add(self, values: Any) -> Any:
        return self._update(values, "add")

    def max(self, values: Any) -> Any:
        return self._update(values, "max")

    def min(self, values: Any) -> Any:
        return self._update(values, "min")

    def _update(self, values: Any, mode: str) -> Any:
        from mlaot.frontend.indexing import update

        return update(self._array, self._index, values, mode)


UNKNOWN = "the value of a traced array is not known while tracing"


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
    def size(self) -> Dim:
        return dims_.product(self.shape)

    @property
    def dtype(self) -> Any:
        """NumPy's dtype; ``mlaot.bf16`` for bfloat16, which NumPy does not have."""
        dtype = self.node.type.dtype
        return dtype if dtype is bf16 else np.dtype(dtype.numpy)

    @property
    def device(self) -> str:
        return "cpu"

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        if not isinstance(self.shape[0], int):
            raise MlaotError(f"len(x) of {self.node.type}: the dim is named; use x.shape[0]")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        if not self.shape:
            raise TypeError("iteration over a 0-d array")
        if not isinstance(self.shape[0], int):
            raise MlaotError(f"iteration over the named dim {self.shape[0]} of {self.node.type}: use mlaot.scan")
        return (self[i] for i in range(self.shape[0]))

    def __bool__(self) -> bool:
        raise MlaotError(
            f"bool(x) of {self.node.type}: {UNKNOWN}; instead of `if x: ...` use mlaot.cond or mlaot.where, "
            "instead of `while x: ...` mlaot.while_loop, instead of `and`, `or`, `not` the operators & | ~"
        )

    def __float__(self) -> float:
        raise MlaotError(
            f"float(x) of {self.node.type}: {UNKNOWN}; compute with the array itself: instead of math.exp(x) use "
            "np.exp(x), instead of `a[i] = x` np.stack"
        )

    def __int__(self) -> int:
        raise MlaotError(f"int(x) of {self.node.type}: {UNKNOWN}; use x.astype(int)")

    def __index__(self) -> int:
        raise MlaotError(
            f"{self.node.type} as an index or a size: {UNKNOWN}; a traced index goes alone in x[i] or np.take, "
            "a window of fixed size is x[i + np.arange(size)]"
        )

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        from mlaot.frontend.protocols import refuse_array

        refuse_array(self)

    def item(self, *args: Any) -> Any:
        raise MlaotError(f"x.item() of {self.node.type}: {UNKNOWN}; compute with the array itself")

    def tolist(self) -> Any:
        raise MlaotError(f"x.tolist() of {self.node.type}: {UNKNOWN}; compute with the array itself")

    def __contains__(self, value: Any) -> bool:
        raise MlaotError(f"`value in x` of {self.node.type}: {UNKNOWN}; use (x == value).any()")

    def __repr__(self) -> str:
        return f"Tensor({self.node.type})"

    __hash__ = Operators.__hash__


class Held(Operators):
    """A named array outside of a model, an input of the graph inside."""

    kind = ""

    def __init__(self, name: str | None, array: Any) -> None:
        self.name = None if name is None else printable(name, f"a {self.kind}")
        given = np.asarray(array)
        self.dtype_ = bf16 if str(given.dtype) == "bfloat16" else BY_NUMPY.get(str(given.dtype))
        if self.dtype_ is None:
            raise MlaotError(f"{self.kind} {name!r}: expected an array of numbers, got {given.dtype}")
        self.array = self.dtype_.array(given)

    @property
    def type(self) -> Type:
        return Type(bf16 if self.dtype_ is bf16 else BY_NUMPY[str(self.array.dtype)], self.array.shape)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.array.shape)

    @property
    def ndim(self) -> int:
        return self.array.ndim

    @property
    def size(self) -> int:
        return self.array.size

    @property
    def dtype(self) -> Any:
        return bf16 if self.dtype_ is bf16 else self.array.dtype

    def __len__(self) -> int:
        return len(self.array)

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __bool__(self) -> bool:
        return bool(self._value())

    def __float__(self) -> float:
        return float(self._value())

    def __int__(self) -> int:
        return int(self._value())

    def _value(self) -> Any:
        return self.array if current() is None else Tensor(self.node())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        if current() is not None:
            from mlaot.frontend.protocols import refuse_array

            refuse_array(self)
        return np.array(self.array, dtype=dtype) if copy else np.asarray(self.array, dtype=dtype)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.array.dtype}{list(self.array.shape)})"

    def node(self) -> Node:
        """This array in the graph being traced."""
        trace = needed()
        root = trace.root
        return trace.local(root.graph.input(self.input_name(root), self.type, parameter=True))

    def input_name(self, root: Trace) -> str:
        """The name of this array's input; registers it there."""
        name = root.names.get(id(self), self.name)
        if name is None and root.temporary:
            name = f"{self.kind}{len(root.held)}"
            root.names[id(self)] = name
        if name is None:
            raise MlaotError(
                f"a {self.kind} of shape {list(self.shape)} has no name; give the object that holds it to "
                "@mlaot.model(parameters=...), or name it"
            )
        if root.held.setdefault(name, self) is not self:
            raise MlaotError(f"two parameters or buffers are called {name!r}; give one of them another name")
        known = root.graph.inputs.get(name)
        if known is not None and not known.attrs.get("parameter"):
            raise MlaotError(f"a {self.kind} is called {name!r}, and so is an argument; rename one of them")
        return name


class Parameter(Held):
    """A weight, trained where the model trains."""

    kind = "parameter"

    def __init__(self, name: str | None, array: Any) -> None:
        super().__init__(name, array)
        assert self.dtype_ is not None
        if self.dtype_.kind != "f":
            raise MlaotError(
                f"parameter {name!r}: expected floating-point numbers, got {self.array.dtype}; "
                "an array that is not trained is a mlaot.Buffer or a plain array"
            )


class Buffer(Held):
    """State that is no parameter: a running statistic, a cache. ``assign`` gives it a new value."""

    kind = "buffer"

    def __init__(self, array: Any, name: str | None = None) -> None:
        super().__init__(name, array)

    def node(self) -> Node:
        """The value assigned last, or that at the start."""
        trace = needed()
        name = self.input_name(trace.root)
        seen: Trace | None = trace
        while seen is not None:
            if name in seen.writes:
                return trace.local(seen.writes[name])
            seen = seen.parent
        return super().node()

    def assign(self, value: Any) -> None:
        """Make ``value`` the buffer's: for all that follows, and for the next call of the module."""
        from mlaot.frontend.functions import astype
        from mlaot.frontend.promotion import as_node, strong_type

        trace = current()
        if trace is None:
            new = np.asarray(value)
            self._check(Type(strong_type(new), new.shape))
            assert self.dtype_ is not None
            self.array = self.dtype_.array(new)
            return
        outer: Trace | None = trace
        while outer is not None:
            if outer.read_only:
                where = outer.read_only
                raise MlaotError(f"buffer {self.name!r} cannot be assigned in {where}; return the value from it")
            outer = outer.parent
        name = self.input_name(trace.root)
        Held.node(self)
        given = as_node(value)
        self._check(given.type)
        trace.writes[name] = as_node(astype(Tensor(given), self.dtype))

    def _check(self, given: Type) -> None:
        if given.shape != self.shape:
            got = list(given.shape)
            raise MlaotError(f"buffer {self.name!r}: expected a value of shape {list(self.shape)}, got {got}")
        assert self.dtype_ is not None
        if self.dtype_.kind != "f" and given.dtype.kind == "f":
            raise MlaotError(f"buffer {self.name!r}: expected {self.type}, got {given}; cast it with x.astype(...)")


def parameters(values: Mapping[str, Any]) -> dict[str, Parameter]:
    """Named arrays as parameters of a model."""
    return {name: Parameter(name, array) for name, array in values.items()}


def is_traced(value: Any) -> bool:
    """Whether ``value`` stands for a node of the graph being traced."""
    return isinstance(value, Tensor) or (isinstance(value, Held) and current() is not None)


def any_traced(*values: Any) -> bool:
    """Whether something in ``values``, or in their lists, is traced."""
    return any(any_traced(*v) if isinstance(v, list | tuple) else is_traced(v) for v in values)


def plain(value: Any) -> Any:
    """``value`` with parameters and buffers replaced by their arrays, also in lists, tuples and dicts."""
    if isinstance(value, Held):
        return value.array
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return type(value)(plain(v) for v in value)
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    return value


def dtype_of(dtype: Any) -> DType:
    """``mlaot.f32``, ``np.float32``, ``"float32"`` or ``float`` as a dtype of mlaot."""
    if isinstance(dtype, DType):
        return dtype
    try:
        name = "bfloat16" if str(dtype) == "bfloat16" else str(np.dtype(dtype))
    except TypeError:
        name = str(dtype)
    found = bf16 if name == "bfloat16" else BY_NUMPY.get(name)
    if found is None:
        raise MlaotError(f"there is no dtype {name}; known are {', '.join(sorted([*BY_NUMPY, 'bfloat16']))}")
    return found


def relu(x: Any) -> Any:
    """``max(x, 0)``."""
    from mlaot.frontend.functions import relu as function

    return function(x)
