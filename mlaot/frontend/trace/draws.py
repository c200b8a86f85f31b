"""The state of random numbers and the counting of draws, which give the same numbers on every machine.

The state is the buffer ``random``: a key of two words, and a counter. A draw is Threefry-2x32 (Salmon et al., 2011) of
the key, the counter, and the number of the draw in its entry. Each entry that draws advances the counter by one. Plain
NumPy use gives the same numbers. There, a call of a model counts as an entry, and a draw outside of a call as one too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.trace.context import current
from mlaot.frontend.trace.promotion import apply, as_node
from mlaot.frontend.trace.tensor import Buffer, Tensor
from mlaot.ir import Dim
from mlaot.ir.module import RANDOM
from mlaot.ops.random import random_bits

NAME = RANDOM
state = Buffer(np.array([0, 0, 0], np.uint32), NAME)
_site: ContextVar[list[int] | None] = ContextVar("site", default=None)
_folded: ContextVar[tuple[Any, ...]] = ContextVar("folded", default=())
GOLDEN = 0x9E3779B9


def draw_words(shape: tuple[Dim, ...]) -> Any:
    """Draw random 32-bit words."""
    trace = current()
    if trace is not None:
        root = trace.root
        root.sites += 1
        return Tensor(apply(random_bits, as_node(_key()), shape=shape, site=root.sites - 1))
    if not all(isinstance(d, int) for d in shape):
        raise MlaotError(f"the shape {list(shape)} has named dims, which have no size outside of a model")
    site = _site.get()
    if site is None:
        with entry():
            return draw_words(shape)
    site[0] += 1
    return random_bits.reference(_key(), shape=shape, site=site[0] - 1)


def _key() -> Any:
    """Compute the key of this entry's draws, which mixes the state's key, its counter and the rounds of loops."""
    words = state if current() is not None else state.array
    first, second = words[0], words[1] + words[2]
    for index in _folded.get():
        turn = np.uint32(GOLDEN)
        first = first * turn + index.astype(np.uint32) + np.uint32(1)
    return np.stack([first, second])


@contextmanager
def entry() -> Iterator[None]:
    """Count the draws of a call of a model from 0, in plain NumPy use.

    Advance the counter after a call with draws.
    """
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
    """Advance the counter, so that the next entry draws other numbers."""
    state.assign(state + np.array([0, 0, 1], np.uint32) if current() is not None else _next(state.array))


def _next(words: Any) -> Any:
    with np.errstate(over="ignore"):
        return words + np.array([0, 0, 1], np.uint32)


def drawn() -> int:
    """Return the number of draws of this call so far, in plain NumPy use."""
    site = _site.get()
    return 0 if site is None else site[0]


@contextmanager
def folded(index: Any, start: int | None = None) -> Iterator[None]:
    """Mix the number of a loop's round into the key, so that each round draws other numbers.

    In plain NumPy use every round counts its draws from ``start``, as in a traced loop.
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
