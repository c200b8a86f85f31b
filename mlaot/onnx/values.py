"""The values of an ONNX graph while it is imported.

* ``numpy.ndarray``: known while importing. Of dtype object: integers of which some are expressions of named dims, such
  as what ``Shape`` gives of an input whose batch is open. Strings have NumPy's own dtype ``U``.
* ``Tensor``: traced. ``Parameter``: a weight of the file, whose numbers are known as well.
* ``Coded``: traced, of a dtype that only ONNX has, such as FLOAT8E5M2 or INT4. Known arrays of these have the dtypes of
  ``ml_dtypes``.
* ``list``: a sequence. ``None``: an input that is left out, or an optional without a value.
* ``Entries``: a map among the inputs.
* ``Strings``, ``Maps``: labels that are selected when the model runs, and maps of labels to numbers.
* ``MadeStrings``: strings that are made of such labels or of numbers, which a model gives and cannot look at.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import Any

import numpy as np
import onnx

from mlaot.errors import MlaotError
from mlaot.frontend.trace.promotion import as_node
from mlaot.frontend.trace.tensor import Parameter, Tensor
from mlaot.ir import Dim, DType, Node
from mlaot.ir.dims import Expr, nonnegative
from mlaot.ir.types import BY_NUMPY, bf16
from mlaot.tokenizers.text_steps import TextStep

Array = np.ndarray[Any, Any]


class Unsupported(MlaotError):
    """A valid model of a kind that cannot be compiled. The message says what, and what to do."""


class Refined(Exception):
    """Request a new import of a file, with the dims ``meant``, or with further ``texts``."""

    def __init__(self, message: str, meant: dict[str, Dim], texts: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.meant = meant
        self.texts = texts


class Computed(Unsupported):
    """A node that could be compiled if a computed value were known."""


MOST_STEPS = 256  # that make one column, each counted as often as it is taken


def limited(step: TextStep) -> TextStep:
    """Return a step, unless it is composed of too many others."""
    if step.size > MOST_STEPS:
        raise Unsupported("strings are made in too many steps, one after the other")
    return step


class Coded:
    """A traced array of a dtype that mlaot lacks: its numbers as codes of one byte each (see ``codes.py``)."""

    def __init__(self, codes: Any, elem_type: int) -> None:
        self.codes = codes
        self.elem_type = elem_type

    @property
    def shape(self) -> Any:
        return self.codes.shape

    @property
    def ndim(self) -> int:
        return int(self.codes.ndim)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of ``ml_dtypes``."""
        return numpy_dtype(self.elem_type)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        name = onnx.TensorProto.DataType.Name(self.elem_type)
        raise Unsupported(f"arrays of {name} are only moved, quantized and cast here; cast to FLOAT before it")


@dataclass(frozen=True)
class Source:
    """The source of selected strings, an input by its name or the result of a step, and its shape.

    ``at`` has the index in the source of each string, or None if they are the source itself.
    """

    of: TextStep | str
    shape: tuple[Dim, ...]
    at: Any = None


@dataclass(frozen=True)
class Strings:
    """Texts that are selected when the model runs: the traced ``index`` is the index of each in ``table``.

    With ``is_open`` callers may pass other texts, which have an index after the last one. ``source`` is the source of
    the texts, if that is a single column.
    """

    index: Any
    table: Array
    is_open: bool = False
    source: Source | None = None
    dtype = "str"

    @property
    def shape(self) -> Any:
        return self.index.shape

    @property
    def ndim(self) -> int:
        return int(self.index.ndim)


@dataclass(frozen=True)
class MadeStrings:
    """Strings that ``step`` makes from columns of an output, ``operands``, after the model has computed these."""

    step: TextStep
    operands: tuple[Any, ...]
    shape: tuple[Dim, ...]
    dtype = "str"

    @property
    def ndim(self) -> int:
        return len(self.shape)


@dataclass(frozen=True)
class Entries:
    """A map that callers pass: its keys, which are labels or integers, and its values, both along one axis."""

    keys: Any
    values: Any
    dtype = "map"

    @property
    def shape(self) -> Any:
        return self.values.shape


@dataclass(frozen=True)
class Maps:
    """A map of labels to numbers for each row of ``values``; its columns are in the order of the labels."""

    values: Any
    dtype = "map"

    @property
    def shape(self) -> Any:
        return self.values.shape


def constant_value(value: Any) -> Array | None:
    """Return the numbers or strings of a value that is known while importing."""
    if isinstance(value, Parameter):
        return value.array
    return value if isinstance(value, np.ndarray) else None


def is_constant(*values: Any) -> bool:
    """Tell whether all values are known, or left out."""
    return all(value is None or constant_value(value) is not None for value in values)


def is_fixed(*extents: Any) -> bool:
    """Tell whether all extents are numbers, and none is open."""
    return all(isinstance(extent, int) for extent in extents)


def is_symbolic(value: Any) -> bool:
    """Tell whether ``value`` holds expressions of named dims."""
    return isinstance(value, np.ndarray) and value.dtype == object


def require_constant(value: Any, what: str) -> Array:
    """Return the numbers of a value that must be known while importing."""
    numbers = constant_value(value)
    if numbers is None:
        raise Computed(f"{what} is computed when the model runs; it must be constant")
    return numbers


def integers(value: Any, what: str) -> list[Any]:
    """Return a known vector of integers, or of expressions of named dims."""
    return [e if isinstance(e, Expr) else int(e) for e in np.ravel(require_constant(value, what))]


def lift(value: Any) -> Any:
    """Convert integers with expressions of named dims to a traced array; return anything else unchanged."""
    if not is_symbolic(value):
        return value
    nodes = [as_traced(np.int64(e) if isinstance(e, int) else e) for e in value.ravel()]
    return np.reshape(np.stack(nodes), value.shape) if value.ndim else nodes[0]


def as_traced(value: Any) -> Any:
    """Convert a number, an array or an expression of named dims to a traced array."""
    return Tensor(as_node(value))


def extents(value: Any) -> Array | None:
    """Return the elements of a small array as integers and expressions of named dims, if all are such.

    This includes expressions that a file computes in floats, as in ``floor(height * 0.5)``.
    """
    if is_symbolic(value):
        return np.asarray(value)
    fractions = _fractions(as_node(value)) if isinstance(value, Tensor | np.ndarray) else None
    if fractions is None or any(factor.denominator > 1 for e in fractions.ravel() for factor in _factors(e)):
        return None
    return concrete(_whole(fractions))  # type: ignore[no-any-return]


def _fractions(node: Node) -> Array | None:
    """Return the elements of a small array as sums of named dims with fractions as factors, if they are such."""
    if node.op.name == "size":
        return np.array(node.attrs["dim"], object)
    if node.op.name == "const":
        array = node.attrs["value"].array
        if array.size > FEW or array.dtype.kind not in "iuf" or not np.isfinite(array).all():
            return None
        return np.array([Fraction(e) for e in array.ravel().tolist()], object).reshape(array.shape)
    compute = ARITHMETIC.get(node.op.name)
    if compute is None:
        return None
    operands = []
    for argument in node.args:
        operand = _fractions(argument)
        if operand is None:
            return None
        operands.append(operand)
    try:
        return np.asarray(compute(*operands, **node.attrs), object)
    except (MlaotError, ZeroDivisionError):  # by a named dim, or by 0
        return None


def _factors(value: Any) -> list[Any]:
    return [factor for _, factor in value.terms] if isinstance(value, Expr) else [value]


def _floor(value: Any) -> Any:
    below = lcm(*[factor.denominator for factor in _factors(value)])
    return value * below // 1 // below  # the first makes integers of fractions


_whole = np.frompyfunc(_floor, 1, 1)


def _truncated(values: Any, dtype: DType) -> Any:
    """Cast towards zero, which rounds down as nothing is below zero."""
    if dtype.kind == "f":
        return values
    if dtype.kind not in "iu" or not all(nonnegative(value) for value in np.ravel(values)):
        raise MlaotError("not a number of elements")
    return _whole(values)


FEW = 16  # numbers of an array that is a shape
ARITHMETIC: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": lambda x, y: x * (1 / y),
    "floor": _whole,
    "ceil": lambda x: -_whole(-x),
    "cast": _truncated,
    "reshape": lambda x, shape: np.reshape(x, shape),
    "stack": lambda *values, axis: np.stack(values, axis),
}


def shape_vector(values: list[Any]) -> Array:
    """Return extents as a known vector."""
    if is_fixed(*values):
        return np.array(values, np.int64)
    result = np.empty(len(values), object)
    result[:] = values
    return result


def extent_value(extent: Dim) -> Any:
    """Return an extent as a number for computation."""
    return lift(shape_vector([extent]))[0]


def concrete(value: Any) -> Any:
    """Return a known array with only numbers as int64; return anything else unchanged."""
    if isinstance(value, np.generic | int | float | bool):
        value = np.asarray(value)
    if isinstance(value, Expr):
        result = np.empty((), object)
        result[()] = value
        return result
    if is_symbolic(value) and all(isinstance(e, int | np.integer) for e in value.ravel()):
        return value.astype(np.int64)
    return value


def kind_of(value: Any) -> str:
    """Return NumPy's letter for the kind of an array's dtype, which is "f" for bfloat16."""
    name = str(value.dtype)
    return "f" if name in ("bf16", "bfloat16") else "V" if name.startswith("float8") else np.dtype(value.dtype).kind


def numpy_dtype(elem_type: int) -> np.dtype[Any]:
    """Return NumPy's dtype of one of ONNX."""
    if elem_type == onnx.TensorProto.STRING:
        return np.dtype(np.str_)
    try:
        return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(elem_type))
    except KeyError:
        raise MlaotError(f"there is no element type {elem_type} in ONNX") from None


def dtype_of(elem_type: int) -> DType:
    """Return mlaot's dtype of one of ONNX."""
    name = str(numpy_dtype(elem_type))
    dtype = bf16 if name == "bfloat16" else BY_NUMPY.get(name)
    if dtype is None:
        kind = onnx.TensorProto.DataType.Name(elem_type) if elem_type else "UNDEFINED"
        raise Unsupported(f"arrays of {kind} cannot be compiled")
    return dtype


def along(values: Any, axis: int, rank: int) -> Any:
    """Return a vector along one axis of an array of some rank."""
    return np.reshape(values, [-1 if i == axis % rank else 1 for i in range(rank)])


def limits(dtype: Any) -> tuple[Any, Any]:
    """Return the smallest and the largest value of a dtype."""
    kind = np.dtype(dtype).kind
    if kind in "fb":
        return (-np.inf, np.inf) if kind == "f" else (False, True)
    return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
