"""Random numbers: ``mlaot.random.normal(shape)`` and its like, the same on every machine.

The state is the buffer ``random``: two words of a key, and a counter. A draw is Threefry-2x32 of the key, the counter,
and the number of the draw in its entry; each entry that draws advances the counter by one. In plain NumPy use the
same numbers come: a call of a model is an entry, and so is a draw outside of one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.promotion import apply, as_node
from mlaot.frontend.shaping import a_shape
from mlaot.frontend.tensor import Buffer, Tensor, dtype_of, is_traced
from mlaot.frontend.trace import current
from mlaot.ir import Dim
from mlaot.ir.types import f32
from mlaot.ops import OPS

NAME = "random"
state = Buffer(np.array([0, 0, 0], np.uint32), NAME)
_site: ContextVar[list[int] | None] = ContextVar("site", default=None)
_folded: ContextVar[tuple[Any, ...]] = ContextVar("folded", default=())
GOLDEN = 0x9E3779B9


def seed(number: int) -> None:
    """Start from ``number``: in plain NumPy use from now on, in a module from its import on."""
    if not 0 <= int(number) < 1 << 64:
        raise MlaotError(f"a seed must be an integer in 0..2**64-1, got {number}")
    state.array = np.array([int(number) & 0xFFFFFFFF, int(number) >> 32, 0], np.uint32)


def bits(shape: Any = ()) -> Any:
    """Random 32-bit words."""
    return _bits(a_shape(shape))


def _bits(shape: tuple[Dim, ...]) -> Any:
    trace = current()
    if trace is not None:
        root = trace.root
        root.sites += 1
        return Tensor(apply("random_bits", as_node(_key()), shape=shape, site=root.sites - 1))
    if not all(isinstance(d, int) for d in shape):
        raise MlaotError(f"the shape {list(shape)} has named dims, which have no size outside of a model")
    site = _site.get()
    if site is None:
        with entry():
            return _bits(shape)
    site[0] += 1
    return OPS["random_bits"].reference(_key(), shape=shape, site=site[0] - 1)


def _key() -> Any:
    """The key of the draws of this entry: the state's key, with its counter and the rounds of loops mixed in."""
    words = state if current() is not None else state.array
    first, second = words[0], words[1] + words[2]
    for index in _folded.get():
        turn = np.uint32(GOLDEN)
        first = first * turn + index.astype(np.uint32) + np.uint32(1)
    return np.stack([first, second])


@contextmanager
def entry() -> Iterator[None]:
    """A call of a model in plain NumPy use: draws count from 0, and the counter advances if there were any."""
    if _site.get() is not None:
        yield
        return
    drawn = [0]
    token = _site.set(drawn)
    try:
        yield
    finally:
        _site.reset(token)
        if drawn[0]:
            advance()


def advance() -> None:
    """Count this entry, so that the next one draws other numbers."""
    state.assign(state + np.array([0, 0, 1], np.uint32) if current() is not None else _next(state.array))


def _next(words: Any) -> Any:
    with np.errstate(over="ignore"):
        return words + np.array([0, 0, 1], np.uint32)


def drawn() -> int:
    """How many draws this call has made so far, in plain NumPy use."""
    site = _site.get()
    return 0 if site is None else site[0]


@contextmanager
def folded(index: Any, start: int | None = None) -> Iterator[None]:
    """Draw other numbers in each round of a loop: mix the round's number into the key.

    In plain NumPy use every round counts its draws from ``start``, as the rounds of a traced loop do.
    """
    site = _site.get()
    before = drawn()
    if site is not None and start is not None:
        site[0] = start
    token = _folded.set((*_folded.get(), index))
    try:
        yield
    finally:
        _folded.reset(token)
        if site is not None:
            site[0] = max(site[0], before)


def uniform(shape: Any = (), low: Any = 0.0, high: Any = 1.0, dtype: Any = f32) -> Any:
    """Numbers in ``[low, high)``: multiples of 2**-24 from one word, or, for f64, of 2**-53 from two."""
    size, kind = a_shape(shape), dtype_of(dtype)
    if kind.kind != "f":
        raise MlaotError(f"uniform: expected a floating-point dtype, got {kind}; use mlaot.random.integers")
    unit = _unit64(size) if kind.name == "f64" else _unit32(size)
    if kind.name not in ("f32", "f64"):
        unit = _astype(unit, kind)
    if type(low) is float and type(high) is float and (low, high) == (0.0, 1.0):
        return unit
    return low + (high - low) * unit


def _astype(x: Any, kind: Any) -> Any:
    from mlaot.frontend.functions import astype

    return astype(x, kind)


def _unit32(shape: tuple[Dim, ...]) -> Any:
    return (_bits(shape) >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)


def _unit64(shape: tuple[Dim, ...]) -> Any:
    words = _bits((2, *shape))
    high, low = words[0] >> np.uint32(5), words[1] >> np.uint32(6)
    return (high.astype(np.float64) * 67108864.0 + low.astype(np.float64)) * 2.0**-53


def normal(shape: Any = (), mean: Any = 0.0, std: Any = 1.0, dtype: Any = f32) -> Any:
    """Normally distributed numbers, by the inverse of the distribution function: the same bits on every machine."""
    size, kind = a_shape(shape), dtype_of(dtype)
    if kind.name == "f64":
        found = _quantile(_unit64(size) + 2.0**-54)
    else:
        found = _astype(_quantile((_astype(_bits(size), "float64") + 0.5) * 2.0**-32), kind)
    if type(mean) is float and type(std) is float and (mean, std) == (0.0, 1.0):
        return found
    return mean + std * found


def _quantile(p: Any) -> Any:
    if isinstance(p, Tensor):
        return Tensor(apply("normal_quantile", as_node(p)))
    return OPS["normal_quantile"].reference(p)


def bernoulli(p: Any = 0.5, shape: Any = None) -> Any:
    """True with probability ``p``."""
    size = shape if shape is not None else np.shape(p)
    return uniform(size) < p


def integers(low: int, high: int, shape: Any = (), dtype: Any = "int64") -> Any:
    """Integers in ``low..high-1``; a range that is no power of two is even to within 2**-32 of its length."""
    if not 0 < high - low <= 1 << 32:
        raise MlaotError(f"integers: expected 0 < high - low <= 2**32, got low={low} and high={high}")
    words = _bits(a_shape(shape)).astype(np.uint64)
    return _astype(_astype(words * np.uint64(high - low) >> np.uint64(32), "int64") + low, dtype)


def dropout(x: Any, rate: float, training: bool | None = None) -> Any:
    """``x`` with elements set to 0 with probability ``rate`` and the rest scaled up; ``x`` itself unless training."""
    from mlaot.frontend.trace import is_training

    if not 0 <= rate < 1:
        raise MlaotError(f"dropout: expected a rate in [0, 1), got {rate}")
    if rate == 0 or not (is_training() if training is None else training):
        return x
    keep = uniform(np.shape(x)) >= rate
    return x * (_astype(keep, x.dtype) * (1.0 / (1.0 - rate)))


def permutation(n: Any) -> Any:
    """The numbers 0..n-1 in random order (or the rows of an array)."""
    from mlaot.frontend.functions import attribute

    size = n if not (is_traced(n) or isinstance(n, np.ndarray)) else n.shape[0]
    order = np.argsort(_bits((size,)), kind="stable")
    return order if size is n else attribute("take")(n, order, axis=0)


def choice(a: Any, shape: Any = ()) -> Any:
    """Elements of ``a`` (or of ``range(a)``), each as likely as the others."""
    from mlaot.frontend.functions import attribute

    size = a if isinstance(a, int) else a.shape[0]
    if not isinstance(size, int):
        raise MlaotError(f"choice from the named dim {size} cannot be traced")
    picked = integers(0, size, shape)
    return picked if isinstance(a, int) else attribute("take")(a, picked, axis=0)


__all__ = [
    "bernoulli",
    "bits",
    "choice",
    "dropout",
    "entry",
    "folded",
    "integers",
    "normal",
    "permutation",
    "seed",
    "uniform",
]
