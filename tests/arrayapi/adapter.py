"""mlaot as an eager array library of the array API standard, as far as the special cases of its test suite need one.

A call of a function traces it and runs it at once by ``use``'s engine. Creating, reading and writing arrays is NumPy's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import mlaot

from .engines import Engine, oracle

__array_api_version__ = "2024.12"
__version__ = mlaot.__version__

DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float32", "float64", "complex64", "complex128"),
)
CREATION = ("asarray", "empty", "zeros", "ones", "full", "arange", "linspace", "eye")
QUESTIONS = ("finfo", "iinfo", "isdtype", "can_cast", "result_type")
MOVES = ("reshape", "broadcast_to", "unique_values", "any", "all")  # what the suite makes its arrays and examples by
OPERATORS = {
    **{"add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "floordiv": "floor_divide"},
    **{"mod": "remainder", "pow": "pow", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor"},
    **{"lshift": "bitwise_left_shift", "rshift": "bitwise_right_shift"},
}
COMPARISONS = {
    **{"eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal"}
}
UNARY = {"abs": "abs", "neg": "negative", "pos": "positive", "invert": "bitwise_invert"}

_engine: Engine = oracle


def use(engine: Engine) -> None:
    """Run functions by ``engine`` from now on."""
    global _engine
    _engine = engine


class Array:
    """A NumPy array whose operators are mlaot's."""

    def __init__(self, value: Any) -> None:
        self.value = np.asarray(value)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.value.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    @property
    def ndim(self) -> int:
        return self.value.ndim

    @property
    def size(self) -> int:
        return self.value.size

    def __float__(self) -> float:
        return float(self.value)

    def __complex__(self) -> complex:
        return complex(self.value)

    def __int__(self) -> int:
        return int(self.value)

    def __index__(self) -> int:
        return self.value.__index__()

    def __bool__(self) -> bool:
        return bool(self.value)

    def __getitem__(self, index: Any) -> Array:
        return Array(self.value[_plain(index)])

    def __setitem__(self, index: Any, value: Any) -> None:
        self.value[_plain(index)] = _plain(value)

    def __repr__(self) -> str:
        return f"Array({self.value!r})"


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(map(_plain, value))
    return value.value if isinstance(value, Array) else value


def call(name: str, *args: Any) -> Array:
    """The function ``name`` of mlaot by the engine in use; what is no array is a constant to it."""
    places = [i for i, a in enumerate(args) if isinstance(a, Array)]

    def function(*arrays: Any) -> Any:
        given = dict(zip(places, arrays, strict=True))
        return getattr(mlaot, name)(*[given.get(i, a) for i, a in enumerate(args)])

    constants = [repr(a) for a in args if not isinstance(a, Array)]
    return Array(_engine(" ".join([name, *constants]), function, [args[i].value for i in places]))


def _by_numpy(name: str) -> Callable[..., Any]:
    def function(*args: Any, **options: Any) -> Any:
        found = getattr(np, name)(*_plain(args), **{k: _plain(v) for k, v in options.items()})
        return found if name in QUESTIONS else Array(found)

    return function


def _operator(name: str, swapped: bool = False) -> Callable[..., Array]:
    return lambda self, *other: call(name, *other, self) if swapped else call(name, self, *other)


for _word, _name in (OPERATORS | COMPARISONS | UNARY).items():
    setattr(Array, f"__{_word}__", _operator(_name))
for _word, _name in OPERATORS.items():
    setattr(Array, f"__i{_word}__", _operator(_name))
    setattr(Array, f"__r{_word}__", _operator(_name, swapped=True))


def __getattr__(name: str) -> Any:
    """Functions that mlaot has, and what the suite makes its arrays by."""
    if name in DTYPES:
        return np.dtype(name)
    if name in (*CREATION, *QUESTIONS, *MOVES):
        return _by_numpy(name)
    if name in ("pi", "e", "inf", "nan", "newaxis"):
        return getattr(np, name)
    if name.startswith("__") or not callable(getattr(mlaot, name, None)):
        raise AttributeError(f"mlaot has no function {name}")
    return partial(call, name)
