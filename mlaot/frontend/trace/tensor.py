"""Traced arrays, parameters and buffers, which support operators, NumPy's functions and the methods of arrays.

A ``Tensor`` is a node of the current graph. A ``Parameter`` (trained) and a ``Buffer`` (state that the model writes)
are named arrays. They become inputs of the graph when the traced function uses them. Outside of tracing both behave as
the NumPy arrays that they hold, so that the function still runs on plain arrays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.trace.context import Trace, current, needed
from mlaot.frontend.trace.promotion import apply, as_node, cast, strong_type
from mlaot.frontend.trace.protocols import Operators, any_traced, plain, refuse_array, run
from mlaot.ir import Dim, Node, Type
from mlaot.ir import dims as dims_
from mlaot.ir.names import printable
from mlaot.ir.types import BY_NUMPY, bf16
from mlaot.ops import Op

UNKNOWN = "the value of a traced array is not known while tracing"


class Tensor(Operators):
    """A traced array: a node of the graph."""

    def __init__(self, node: Node) -> None:
        self.node = node.find()

    @property
    def type(self) -> Type:
        return self.node.type

    @property
    def is_traced(self) -> bool:
        return True

    def local_node(self) -> Node:
        return needed().local(self.node)

    def plain(self) -> Tensor:
        return self

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
        """The NumPy dtype, or ``mlaot.bf16`` for bfloat16, which NumPy does not have."""
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
    """A named array, which is an input of the graph inside of a model."""

    kind = ""

    def __init__(self, name: str | None, array: Any) -> None:
        self.name = None if name is None else printable(name, f"a {self.kind}")
        numbers = np.asarray(array)
        self.dtype_ = bf16 if str(numbers.dtype) == "bfloat16" else BY_NUMPY.get(str(numbers.dtype))
        if self.dtype_ is None:
            raise MlaotError(f"{self.kind} {name!r}: expected an array of numbers, got {numbers.dtype}")
        self.array = self.dtype_.array(numbers)

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
        return self.array if current() is None else Tensor(self.local_node())

    @property
    def is_traced(self) -> bool:
        return current() is not None

    def plain(self) -> Any:
        return self.array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        if current() is not None:
            refuse_array(self)
        return np.array(self.array, dtype=dtype) if copy else np.asarray(self.array, dtype=dtype)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.array.dtype}{list(self.array.shape)})"

    def local_node(self) -> Node:
        """Return this array as a node of the current graph."""
        trace = needed()
        root = trace.root
        return trace.local(root.graph.input(self.input_name(root), self.type, parameter=True))

    def input_name(self, root: Trace) -> str:
        """Register this array as an input, and return the input's name."""
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
        input_ = root.graph.inputs.get(name)
        if input_ is not None and not input_.attrs.get("parameter"):
            raise MlaotError(f"a {self.kind} is called {name!r}, and so is an argument; rename one of them")
        return name


class Parameter(Held):
    """A weight, which training changes unless ``requires_grad`` is False."""

    kind = "parameter"
    requires_grad = True

    def __init__(self, name: str | None, array: Any) -> None:
        super().__init__(name, array)
        assert self.dtype_ is not None
        if self.dtype_.kind != "f":
            raise MlaotError(
                f"parameter {name!r}: expected floating-point numbers, got {self.array.dtype}; "
                "an array that is not trained is a mlaot.Buffer or a plain array"
            )

    def requires_grad_(self, requires_grad: bool = True) -> Parameter:
        """Set whether training changes the parameter."""
        self.requires_grad = requires_grad
        return self


class Buffer(Held):
    """State that is not a parameter, such as a running statistic or a cache. ``assign`` sets a new value."""

    kind = "buffer"

    def __init__(self, array: Any, name: str | None = None) -> None:
        super().__init__(name, array)

    def local_node(self) -> Node:
        """Return the last assigned value, or the initial value."""
        trace = needed()
        name = self.input_name(trace.root)
        seen: Trace | None = trace
        while seen is not None:
            if name in seen.writes:
                return trace.local(seen.writes[name])
            seen = seen.parent
        return super().local_node()

    def assign(self, value: Any) -> None:
        """Set the buffer to ``value``, for all later reads and for the next call of the module."""
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
        Held.local_node(self)
        node = as_node(value)
        self._check(node.type)
        trace.writes[name] = cast(node, self.type.dtype)

    def _check(self, type_: Type) -> None:
        if type_.shape != self.shape:
            got = list(type_.shape)
            raise MlaotError(f"buffer {self.name!r}: expected a value of shape {list(self.shape)}, got {got}")
        assert self.dtype_ is not None
        if self.dtype_.kind != "f" and type_.dtype.kind == "f":
            raise MlaotError(f"buffer {self.name!r}: expected {self.type}, got {type_}; cast it with x.astype(...)")


def parameters(values: Mapping[str, Any]) -> dict[str, Parameter]:
    """Convert named arrays to parameters of a model."""
    return {name: Parameter(name, array) for name, array in values.items()}


def compute(op: Op, *args: Any, **attrs: Any) -> Any:
    """Compute an op of arrays: as a node if one of them is traced, and else at once."""
    if not any_traced(*args):
        return op.reference(*[np.asarray(plain(a)) for a in args], **attrs)
    return run(op.name, lambda: Tensor(apply(op, *map(as_node, args), **attrs)), (), {})


def as_tensor(value: Any) -> Any:
    """Return ``value`` as a traced array, with the type ``Any``, as type checkers do not know that NumPy accepts it."""
    return Tensor(as_node(value))
