"""The state of random numbers, and how draws are counted: the same numbers on every machine.

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
    """Compute the key of this entry's draws: the state's key, mixed with its counter and the rounds of loops."""
    words = state if current() is not None else state.array
    first, second = words[0], words[1] + words[2]
    for index in _folded.get():
        turn = np.uint32(GOLDEN)
        first = first * turn + index.astype(np.uint32) + np.uint32(1)
    return np.stack([first, second])


@contextmanager
def entry() -> Iterator[None]:
    """Make a call of a model in plain NumPy use: draws count from 0, and the counter advances if there were any."""
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
    """Return how many draws this call has made so far, in plain NumPy use."""
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
