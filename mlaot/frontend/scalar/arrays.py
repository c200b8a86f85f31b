"""``Tensor`` and the scalar ``Value`` of ``mlaot.eager``; flat indices, seeded random numbers, rounding."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, ClassVar, Self

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.scalar.tape import Array, Tape, reference, topological_sort

MODULUS, FACTOR = 2**31 - 1, 16807  # Park and Miller's minimal standard generator
RULES = {"+": "add", "-": "sub", "*": "mul", "/": "div", "pow": "power"}  # ops that mljs calls otherwise


def _binary(op: str) -> Callable[[Any, Any], Any]:
    def method(self: Any, other: Any) -> Any:
        return self._apply(op, other)

    method.__doc__ = f"Compute ``{op}`` of this tensor and another one, element by element."
    return method


def _unary(op: str) -> Callable[[Any], Any]:
    def method(self: Any) -> Any:
        return self._apply(op)

    method.__doc__ = f"Compute ``{op}`` of each element."
    return method


class EagerTensor:
    """Flat ``values`` of a ``shape``, the ``gradient`` that ``backward`` sets, and the ``op`` and its ``children``.

    Without values it is filled with zeros. An array of float32 is not copied.
    """

    dtype: ClassVar[type[np.floating[Any]]] = np.float32

    def __init__(
        self,
        values: Any = None,
        *,
        shape: Sequence[int],
        children: Iterable[EagerTensor] = (),
        op: str = "",
        label: str = "",
    ) -> None:
        self.shape = tuple(shape)
        length = math.prod(self.shape)
        self.values: Array = np.zeros(length, self.dtype) if values is None else np.asarray(values, self.dtype)
        if self.values.shape != (length,):
            raise MlaotError(
                f"expected {length} values for the shape {list(self.shape)}, got {list(self.values.shape)}"
            )
        self.gradients: Array = np.zeros(length, self.dtype)
        self.children = tuple(children)
        self.op = op
        self.label = label
        self._attrs: dict[str, Any] = {}

    @property
    def total_length(self) -> int:
        """Return how many values there are."""
        return len(self.values)

    @property
    def gradient(self) -> Any:
        """Return the gradient, flat as the values are."""
        return self.gradients

    @property
    def array(self) -> Array:
        """Return the values as a NumPy array, with the axes in reverse order."""
        return self.values.reshape(self.shape[::-1])

    add, sub, mul, div = map(_binary, ("+", "-", "*", "/"))
    pow = _binary("pow")  # the powers get a gradient too
    neg, exp, tanh = map(_unary, ("neg", "exp", "tanh"))

    def sum(self, dimension: int, keep_dims: bool = False) -> Self:
        """Sum over one dimension. The dimension is dropped, or with ``keep_dims`` has the size 1."""
        if not 0 <= dimension < len(self.shape):
            raise MlaotError(f"sum: there is no dimension {dimension} in a tensor of shape {list(self.shape)}")
        kept = (1,) if keep_dims else ()
        shape = (*self.shape[:dimension], *kept, *self.shape[dimension + 1 :])
        return self._apply("sum", shape=shape, axes=(len(self.shape) - 1 - dimension,))

    __add__, __sub__, __mul__, __truediv__, __pow__, __neg__ = add, sub, mul, div, pow, neg

    def _apply(self, op: str, *operands: Any, shape: tuple[int, ...] | None = None, **attrs: Any) -> Self:
        children: tuple[EagerTensor, ...] = (self, *map(self._operand, operands))
        for other in children[1:]:
            if other.total_length != self.total_length:
                raise MlaotError(f"{op}: expected a tensor of {self.total_length} values, got {other.total_length}")
        values = reference(RULES.get(op, op), [c.values.reshape(self.array.shape) for c in children], attrs)
        result = self._of(values.reshape(-1), self.shape if shape is None else shape)
        result.children, result.op, result._attrs = children, op, attrs
        return result

    def _operand(self, other: Any) -> EagerTensor:
        if not isinstance(other, EagerTensor):
            raise MlaotError(f"expected a Tensor, got {type(other).__name__}; Tensor.filled(..) makes one of a number")
        return other

    @classmethod
    def _of(cls, values: Array, shape: Sequence[int]) -> Self:
        return cls(values, shape=shape)

    def trace(self, parameters: Iterable[EagerTensor] = ()) -> tuple[Tape, dict[EagerTensor, int]]:
        """Return the computation of this tensor as a trace, and the node of every tensor in it."""
        trace, ids, trained = Tape(), dict[EagerTensor, int](), set(parameters)
        for tensor in topological_sort(self, lambda t: t.children):
            if not tensor.op:
                ids[tensor] = (trace.param if tensor in trained else trace.input)(tensor.array)
                continue
            size = tensor.children[0].array.shape
            parents = [_shaped(trace, ids[child], size) for child in tensor.children]
            node = trace.apply(RULES.get(tensor.op, tensor.op), *parents, **tensor._attrs)
            ids[tensor] = _shaped(trace, node, tensor.array.shape)
        return trace, ids

    def backward(self) -> None:
        """Set this gradient to ones, and add to each gradient below the derivative of the sum of the values."""
        trace, ids = self.trace()
        gradients = trace.backward(ids[self])
        for tensor, node in ids.items():
            if tensor is self:
                tensor.gradients[:] = 1
            else:
                tensor.gradients += gradients[node].reshape(-1)

    def __str__(self) -> str:
        numbers = ", ".join(np.format_float_positional(v, trim="-") for v in self.values)
        return f"<{self.label}{':' if self.label else ''}{numbers}>"

    __repr__ = __str__

    @classmethod
    def filled(cls, value: float, shape: Sequence[int]) -> Self:
        """Make a tensor of which each element is ``value``."""
        return cls._of(np.full(math.prod(shape), value, cls.dtype), shape)

    @classmethod
    def random(
        cls,
        shape: Sequence[int],
        *,
        min: float = 0,
        max: float = 1,
        seed: int | None = None,
        generator: Iterable[float] | None = None,
    ) -> Self:
        """Draw numbers from ``generator``, by default from ``get_random(min, max, seed)``."""
        numbers = get_random(min, max, seed) if generator is None else generator
        return cls._of(np.array(list(islice(numbers, math.prod(shape))), cls.dtype), shape)

    @classmethod
    def linear_space(cls, start: float, end: float, steps: int) -> Self:
        """Make ``steps`` numbers from ``start`` to ``end``, both included."""
        return cls._of(np.linspace(start, end, steps, dtype=cls.dtype), [steps])


def _shaped(tape: Tape, node: int, shape: tuple[int, ...]) -> int:
    return node if tape.get_tensor(node).shape == shape else tape.apply("reshape", node, shape=shape)


class EagerValue(EagerTensor):
    """One number in double precision. Arguments may also be numbers of Python."""

    dtype = np.float64

    def __init__(self, value: float = 0.0, label: str = "") -> None:
        super().__init__([value], shape=(), label=label)

    @property
    def value(self) -> float:
        """Return the number."""
        return float(self.values[0])

    @property
    def gradient(self) -> float:
        """Return the gradient, a number."""
        return float(self.gradients[0])

    def _operand(self, other: Any) -> EagerTensor:
        return other if isinstance(other, EagerValue) else EagerValue(other)

    @classmethod
    def _of(cls, values: Array, shape: Sequence[int]) -> Self:
        return cls(values.item())


def as_values(numbers: Iterable[float]) -> list[EagerValue]:
    """Convert numbers to values."""
    return [EagerValue(number) for number in numbers]


def get_flat_index(indices: Sequence[int], shape: Sequence[int]) -> int:
    """Return the position in the flat values of the element at ``indices``."""
    if len(indices) != len(shape):
        raise MlaotError(f"expected an index for each of {len(shape)} dimensions, got {len(indices)}")
    return int(np.ravel_multi_index(tuple(indices), tuple(shape), order="F"))


def get_dimensional_indices(index: int, shape: Sequence[int]) -> list[int]:
    """Return the indices of the element at position ``index`` of the flat values."""
    return [int(i) for i in np.unravel_index(index, tuple(shape), order="F")]


def get_random(min: float = 0, max: float = 1, seed: int | None = None) -> Iterator[float]:
    """Yield an endless sequence of numbers between ``min`` and ``max``: the same for a seed on every machine."""
    state = (random.randrange(MODULUS) if seed is None else seed) % MODULUS or 1
    scale = (max - min) / MODULUS
    while True:
        state = FACTOR * state % MODULUS
        yield scale * state + min


def round_to_multiple(number: float, multiple: float) -> float:
    """Return the multiple nearest to ``number``; of two equally near, the larger one."""
    return math.floor(number / multiple + 0.5) * multiple
