"""Every function of NumPy and SciPy that the front end maps, alone, on special values, each argument in each form.

A function's forms are calls of NumPy; the names of a form's arguments say which arrays it gets:

* ``s``: every special value of the dtype, ``p``: every pair of them as rows of two, ``a`` and ``b``: its columns
* ``m``: small numbers [3, 4], ``k``: others [4, 3], ``v``: four numbers, ``e``: none, [0, 3]
* ``i``: places 0 to 2, int64 [3], ``j``: places [3, 4], ``c``: a condition [3, 4]

What NumPy itself gives for these arrays is the reference.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import scipy.special

import mlaot
from mlaot.frontend.numpy.ufuncs import UFUNCS
from mlaot.frontend.trace import tree

from . import counting_forms
from .values import Array, differences, pairs, special

Form = Callable[..., Any]

NUMBERS = {
    "m": [[0, 1, 3, 2], [5, 2, 2, 7], [1, 4, 0, 6]],
    "k": [[2, 1, 0], [3, 3, 5], [1, 0, 4], [2, 6, 1]],
    "v": [1, 3, 0, 2],
}
OTHERS = {
    "e": lambda dtype: np.zeros((0, 3), dtype),
    "i": lambda dtype: np.array([2, 0, 1]),
    "j": lambda dtype: np.array([[2, 0, 1, 3], [0, 0, 1, 1], [3, 2, 2, 0]]),
    "c": lambda dtype: np.array([[1, 0, 0, 1], [0, 1, 1, 0], [1, 1, 0, 0]], bool),
    "s": special,
    "p": lambda dtype: np.stack(pairs(dtype), axis=1),
    "a": lambda dtype: pairs(dtype)[0],
    "b": lambda dtype: pairs(dtype)[1],
}


@cache
def array(name: str, dtype: str) -> Array:
    """The array that the argument ``name`` of a form gets."""
    if name in OTHERS:
        return OTHERS[name](dtype)
    numbers = np.array(NUMBERS[name]) % (2 if dtype == "bool" else 100)
    halves = numbers * 1.5 - 2 if np.dtype(dtype).kind == "f" else numbers
    return (-halves if name == "k" and np.dtype(dtype).kind == "i" else halves).astype(dtype)


def letters(form: Form) -> list[str]:
    return [p.name for p in inspect.signature(form).parameters.values() if p.default is p.empty]


def arrays(form: Form, dtype: str) -> list[Array]:
    return [array(name, dtype) for name in letters(form)]


# Ufuncs.


def ufunc(name: str) -> np.ufunc:
    """The ufunc of NumPy or SciPy that the table calls ``name``."""
    found = getattr(np, name, None)
    return found if isinstance(found, np.ufunc) else inspect.unwrap(getattr(scipy.special, name))


def distinct_ufuncs() -> list[str]:
    """One name of each ufunc of the table."""
    found = {id(ufunc(name)): name for name in reversed(UFUNCS)}
    return sorted(found.values())


def exponent(x: Any) -> Any:
    """Integers to the power of integers below 0 are not defined."""
    return x & 15 if x.dtype.kind in "iu" else x


def moderate(x: Any) -> Any:
    """Numbers whose quotients and squares stay in the range: SciPy computes float32 in float64 here."""
    if x.dtype.kind == "b":
        return x
    size = np.abs(x)
    return np.where((size > 1e-2) & (size < 100), x, np.ones((), x.dtype))


def sound(x: Any) -> Any:
    """Without the smallest numbers, and the neighbours of 1 and -1."""
    if x.dtype.kind != "f":
        return x
    size = np.abs(x)
    apart = (size == 1) | (np.abs(size - 1) > 0.01)
    return np.where(apart & ((size == 0) | (size >= np.finfo(x.dtype).tiny)), x, np.full((), 3, x.dtype))


OVER: dict[str, Callable[..., Any]] = {
    "kl_div": lambda x, y: scipy.special.kl_div(moderate(np.add(x, 0)), moderate(np.add(y, 0))),
    "pseudo_huber": lambda x, y: scipy.special.pseudo_huber(moderate(np.add(x, 0)), moderate(np.add(y, 0))),
    # SciPy's own are far off next to their zeros and poles, and infinite for the smallest numbers.
    "gammaln": lambda x: scipy.special.gammaln(sound(x)),
    "psi": lambda x: scipy.special.psi(sound(x)),
    # 1 / 0 of integers is 0, where NumPy leaves it to the machine.
    "reciprocal": lambda x: np.reciprocal(np.where(x == 0, np.ones((), x.dtype), x) if x.dtype.kind in "iu" else x),
}


def ufunc_forms(name: str) -> list[Form]:
    """Of special values, in all pairs; with one argument constant: an array, a list, NumPy's numbers, Python's."""
    f: Any = OVER.get(name) or ufunc(name)
    if ufunc(name).nin == 1:
        return [lambda s: f(s), lambda v: f(v[1])]
    power = exponent if name in ("power", "float_power") else lambda x: x
    return [
        lambda a, b: f(a, power(b)),
        lambda a: f(a, power(pairs(str(a.dtype))[1])),
        lambda b: f(pairs(str(b.dtype))[0], power(b)),
        lambda m, v: (f(m, power(v)), f(m[:, :1], power(v))),
        lambda m: f(m, [1, 2, 3, 1]),
        lambda m: f([1, 2, 3, 1], power(m)),
        *[lambda s, c=c: f(s, c) for c in (1, 2, 1.5, True, np.float32(2.5), np.int8(3))],
        *[lambda s, c=c: f(c, power(s)) for c in (1, 2, 0.5, np.float64(2.5))],
    ]


def scalar_forms(name: str) -> list[Form]:
    """With each special value as a constant of its own: the passes know rules for numbers."""
    f, power = ufunc(name), exponent if name in ("power", "float_power") else lambda x: x
    left_out = 0.5 if name == "power" else None  # as one number it is a root to NumPy: -inf ** 0.5 is nan, else inf
    return [
        lambda s: [f(s, c) for c in power(special(str(s.dtype))) if c != left_out],
        lambda s: [f(c, power(s)) for c in special(str(s.dtype))],
    ]


# All others.


def reduction(function: Callable[..., Any], **more: Any) -> list[Form]:
    """Over all, over an axis in each form, keeping dimensions, of pairs."""
    return [
        lambda p: function(p, axis=1, **more),
        lambda m: function(m, **more),
        lambda m: [function(m, axis=axis, **more) for axis in (0, 1, -1, -2)],
        lambda m: function(m, axis=None, keepdims=True, **more),
        lambda m: [function(m, axis, keepdims=True, **more) for axis in (0, -1)],
    ]


def several(function: Callable[..., Any]) -> list[Form]:
    """Over several axes, and none."""
    return [
        lambda m: [function(m, axis=axis) for axis in ((0, 1), (-1, 0), (1,))],
        lambda m: function(m, axis=(), keepdims=True),
        lambda p: function(p, axis=()),
    ]


def from_value(function: Callable[..., Any]) -> list[Form]:
    """With ``initial`` as numbers, NumPy's and traced ones."""
    return [
        lambda m: [function(m, axis=0, initial=value) for value in (0, 1, 4, 2.5, True)],
        lambda m: function(m, initial=np.zeros((), m.dtype)),
        lambda m, v: function(m, axis=1, initial=v[1]),
        lambda m: function(m, axis=1, initial=np.float32(2), keepdims=True),
        lambda e: [function(e, axis=axis, initial=1) for axis in (0, 1, None)],
    ]


def halved(x: Any) -> Any:
    """Integers whose differences stay in the range: NumPy's quantile wraps around."""
    return x // 2 if x.dtype.kind == "i" else x


FORMS: dict[str, Sequence[Form]] = {
    # Sums, extremes, means.
    "sum": [
        *reduction(np.sum),
        *several(np.sum),
        *from_value(np.sum),
        lambda m: [np.sum(m, axis=1, dtype=d) for d in (np.float64, "float32", int)],
        lambda e: [np.sum(e, axis=axis) for axis in (None, 0, 1)],
        lambda m: (m.sum(), m.sum(0), m.sum(axis=-1, keepdims=True)),
    ],
    "prod": [
        *reduction(np.prod),
        *several(np.prod),
        *from_value(np.prod),
        lambda m: [np.prod(m, axis=1, dtype=d) for d in (np.float64, "float32", int)],
        lambda e: [np.prod(e, axis=axis) for axis in (None, 0, 1)],
        lambda m: (m.prod(), m.prod(0)),
    ],
    "max": [*reduction(np.max), *several(np.max), *from_value(np.max), lambda e: np.max(e, axis=1), lambda m: m.max(0)],
    "min": [*reduction(np.min), *several(np.min), *from_value(np.min), lambda e: np.min(e, axis=1), lambda m: m.min(0)],
    "ptp": [*reduction(np.ptp)],
    "all": [
        *reduction(np.all),
        *several(np.all),
        lambda e: [np.all(e, axis=x) for x in (None, 0, 1)],
        lambda m: m.all(0),
    ],
    "any": [
        *reduction(np.any),
        *several(np.any),
        lambda e: [np.any(e, axis=x) for x in (None, 0, 1)],
        lambda m: m.any(0),
    ],
    "count_nonzero": [
        lambda p: np.count_nonzero(p, axis=1),
        lambda m: np.count_nonzero(m, axis=(0, 1), keepdims=True),
        lambda m: [np.count_nonzero(m, axis=axis) for axis in (0, -1, (0, 1))],
        lambda e: np.count_nonzero(e, axis=0),
    ],
    "mean": [
        *reduction(np.mean),
        *several(np.mean),
        lambda m: np.mean(m, axis=0, dtype=np.float64),
        lambda m: np.mean(m, dtype="float32"),
        lambda m: m.mean(1),
        lambda e: np.mean(e, axis=0),
    ],
    "var": [
        *reduction(np.var),
        lambda m: [np.var(m, axis=0, ddof=d) for d in (0, 1, 3, 5, 0.5)],
        lambda m: np.var(m, axis=(0, 1), correction=1),
        lambda m: np.var(m, axis=1, dtype=np.float64),
        lambda m: np.var(m, axis=1, mean=np.mean(m, axis=1, keepdims=True)),
        lambda m: m.var(0),
        lambda e: np.var(e, axis=0),
    ],
    "std": [
        *reduction(np.std),
        lambda m: [np.std(m, axis=0, ddof=d) for d in (0, 1)],
        lambda m: np.std(m, correction=1),
        lambda m: np.std(m, 0, np.float64),
        lambda m: m.std(1),
        lambda m: np.std(m, axis=1, mean=np.mean(m, axis=1, keepdims=True)),
    ],
    "average": [
        *reduction(np.average),
        lambda m: np.average(m, axis=1, weights=[1, 2, 3, 4]),
        lambda m: np.average(m, weights=m + 9),
        lambda m, v: np.average(m, axis=-1, weights=v + 1, keepdims=True),
        lambda m: np.average(m, axis=0, weights=np.array([1.0, 2.0, 3.0])),
    ],
    "argmax": [*reduction(np.argmax), lambda m: m.argmax(1), lambda s: np.argmax(s)],
    "argmin": [*reduction(np.argmin), lambda m: m.argmin(1), lambda s: np.argmin(s)],
    "nansum": [*reduction(np.nansum), *several(np.nansum), lambda m: np.nansum(m, axis=0, dtype=np.float64)],
    "nanprod": [*reduction(np.nanprod), *several(np.nanprod), lambda m: np.nanprod(m, axis=0, dtype=np.float64)],
    "nanmax": [*reduction(np.nanmax), *several(np.nanmax)],
    "nanmin": [*reduction(np.nanmin), *several(np.nanmin)],
    "nanmean": [*reduction(np.nanmean), *several(np.nanmean), lambda m: np.nanmean(m, axis=0, dtype=np.float64)],
    "cumsum": [
        lambda p: np.cumsum(p, axis=1),
        lambda m: [np.cumsum(m, axis=x) for x in (None, 0, -1)],
        lambda m: np.cumsum(m, axis=0, dtype="float32"),
        lambda m: m.cumsum(1),
        lambda e: np.cumsum(e, 0),
    ],
    "cumprod": [
        lambda p: np.cumprod(p, axis=1),
        lambda m: [np.cumprod(m, axis=x) for x in (None, 0, -1)],
        lambda m: np.cumprod(m, axis=0, dtype="float32"),
        lambda m: m.cumprod(1),
    ],
    "cumulative_sum": [
        lambda p: np.cumulative_sum(p, axis=1, include_initial=True),
        lambda v: np.cumulative_sum(v, dtype=np.float64),
        lambda m: np.cumulative_sum(m, axis=-2),
    ],
    "cumulative_prod": [
        lambda p: np.cumulative_prod(p, axis=1, include_initial=True),
        lambda v: np.cumulative_prod(v, dtype=np.float64),
        lambda m: np.cumulative_prod(m, axis=-2),
    ],
    "diff": [
        lambda p: np.diff(p),
        lambda m: [np.diff(m, axis=x) for x in (0, 1, -2)],
        lambda m: [np.diff(m, n=n) for n in (0, 1, 2, 3)],
        lambda s: np.diff(s),
    ],
    # Sorting.
    "sort": [
        lambda p: np.sort(p),
        lambda s: np.sort(s),
        lambda m: [np.sort(m, axis=x) for x in (None, 0, -1)],
        lambda m: (np.sort(m, kind="stable"), np.sort(m, stable=True), np.sort(m, order=None)),
    ],
    "argsort": [
        lambda p: np.argsort(p, kind="stable"),
        lambda s: np.argsort(s, stable=True),
        lambda m: m.argsort(0, "stable"),
        lambda m: [np.argsort(m, axis=x, kind="stable", order=None) for x in (None, 0, -1)],
    ],
    "median": [
        *reduction(np.median),
        lambda m: np.median(m, axis=(0, 1)),
        lambda s: np.median(s),
        lambda m: np.median(m, overwrite_input=False),
        lambda e: np.median(e, axis=0),
    ],
    "quantile": [
        lambda p: [np.quantile(halved(p), q, axis=1) for q in (0, 0.25, 0.5, 0.7, 1)],
        lambda m: np.quantile(m, [0.1, 0.5, 0.9], axis=1),
        lambda m: np.quantile(m, np.array([[0.2], [0.6]]), axis=(0, 1)),
        lambda m: np.quantile(m, 0.4, method="linear", keepdims=True),
        lambda m: np.quantile(m, [0.5], axis=-1, keepdims=True),
    ],
    "percentile": [
        lambda p: [np.percentile(halved(p), q, axis=1) for q in (0, 25, 50, 100)],
        lambda m: np.percentile(m, [10, 50.0], axis=0),
        lambda m: np.percentile(m, 40, keepdims=True, method="linear"),
    ],
    "partition": [
        lambda m: [np.partition(m, k, axis=1)[:, k] for k in (0, 2, -1)],
        lambda m: (np.sort(np.partition(m, 4, None)[:4]), np.sort(np.partition(m, -3, axis=None)[-3:])),
        lambda m: np.partition(m, (1, -2), kind="introselect", order=None)[..., [1, -2]],
    ],
    "argpartition": [
        lambda m: [np.take_along_axis(m, np.argpartition(m, k, axis=0), 0)[k] for k in (0, 1, -1)],
        lambda m: np.take_along_axis(m, m.argpartition(1, 1), 1)[:, 1],
        lambda m: np.sort(np.ravel(m)[np.argpartition(m, 4, axis=None, kind="introselect")[:4]]),
    ],
    "searchsorted": [
        lambda s, v: [np.searchsorted(np.sort(v), s, side=side) for side in ("left", "right")],
        lambda v: np.searchsorted([0, 1, 2], v),
        lambda v: np.searchsorted(np.sort(v), 1),
        lambda v: np.searchsorted(np.sort(v), [[1, 2]]),
    ],
    "digitize": [
        lambda s: [np.digitize(s, [0, 1, 2, 50], right=r) for r in (False, True)],
        lambda s, v: np.digitize(s, np.sort(v)),
    ],
    # Shapes.
    "reshape": [
        lambda m: [np.reshape(m, x) for x in (-1, (2, -1), (4, 3), [12], (1, 3, 1, 4))],
        lambda m: (m.reshape(2, 6), m.reshape((6, 2)), np.reshape(m, (2, 6), order="C")),
    ],
    "ravel": [lambda m: (np.ravel(m), m.ravel(), m.flatten(), np.ravel(m, order="C"))],
    "transpose": [
        lambda m: (np.transpose(m), np.transpose(m, (1, 0)), np.transpose(m, [-1, 0]), m.T, m.transpose(1, 0))
    ],
    "matrix_transpose": [lambda m: np.matrix_transpose(m), lambda m: m.mT],
    "swapaxes": [lambda m: (np.swapaxes(m, 0, -1), m.swapaxes(0, 1))],
    "moveaxis": [lambda m: (np.moveaxis(m, 0, -1), np.moveaxis(m[None], (0, 2), (2, 0)), np.moveaxis(m, [0], [1]))],
    "rollaxis": [lambda m: (np.rollaxis(m, 1), np.rollaxis(m[None], 2, 1), np.rollaxis(m, -1, 0))],
    "expand_dims": [lambda m: [np.expand_dims(m, x) for x in (0, -1, 1, (0, 2), (-1, 0))]],
    "squeeze": [
        lambda m: [np.squeeze(m[None, :, None], x) for x in (None, 0, (0, 2), -2)],
        lambda m: m[None].squeeze(),
    ],
    "broadcast_to": [
        lambda v: [np.broadcast_to(v, x) for x in ((3, 4), [2, 1, 4], (4,))],
        lambda v: np.broadcast_to(v[:1], 5),
    ],
    "broadcast_arrays": [
        lambda m, v: np.broadcast_arrays(m, v, 1),
        lambda m: np.broadcast_arrays(m, np.ones(4), [[1], [2], [3]]),
    ],
    "atleast_1d": [lambda m: (np.atleast_1d(m[0, 0]), np.atleast_1d(m), np.atleast_1d(m[0], m))],
    "atleast_2d": [lambda m: (np.atleast_2d(m[0, 0]), np.atleast_2d(m[0]), np.atleast_2d(m))],
    "atleast_3d": [lambda m: (np.atleast_3d(m[0, 0]), np.atleast_3d(m[0]), np.atleast_3d(m), np.atleast_3d(m[None]))],
    "concatenate": [
        lambda m: (np.concatenate([m, m]), np.concatenate((m, m), 1), np.concatenate([m, m[0]], axis=None)),
        lambda m: (np.concatenate([m, np.ones((1, 4))]), np.concatenate([m, [[1, 2, 3, 4]]]), np.concat([m, m])),
        lambda m: np.concatenate([m, m], dtype=np.float64),
    ],
    "stack": [
        lambda m: [np.stack([m, m], axis=x) for x in (0, 1, -1)],
        lambda v: np.stack([v, [1, 2, 3, 4]]),
        lambda v: np.stack([v, v], dtype=np.float32),
    ],
    "hstack": [lambda m, v: (np.hstack([m, m]), np.hstack((v, v, [1])), np.hstack([v, v], dtype=np.float64))],
    "vstack": [lambda m, v: (np.vstack([m, v]), np.vstack((m, np.ones(4))), np.vstack([m, v], dtype=np.float64))],
    "dstack": [lambda m, v: (np.dstack([m, m]), np.dstack([v, v]))],
    "column_stack": [lambda m, v: (np.column_stack([v, v]), np.column_stack([m, m[:, 0]]))],
    "append": [lambda m, v: (np.append(m, v), np.append(m, m, axis=0), np.append(v, [1, 2]), np.append(v, 2.5))],
    "block": [lambda m: (np.block([[m, m], [m, m]]), np.block([m, m]), np.block(m))],
    "split": [
        lambda m: (*np.split(m, 2, axis=1), *np.split(m, [1, 2]), *np.split(m, np.array([1]), -1), *np.split(m, 3))
    ],
    "array_split": [
        lambda m: (*np.array_split(m, 3, axis=1), *np.array_split(m, 2), *np.array_split(m, [1, 3], axis=-1))
    ],
    "hsplit": [lambda m, v: (*np.hsplit(m, 2), *np.hsplit(v, [1]))],
    "vsplit": [lambda m: (*np.vsplit(m, 3), *np.vsplit(m, [1]))],
    "dsplit": [lambda m: (*np.dsplit(m[None], 2), *np.dsplit(m[None], [1]))],
    "unstack": [lambda m: (*np.unstack(m), *np.unstack(m, axis=-1))],
    "flip": [lambda m: [np.flip(m, x) for x in (None, 0, -1, (0, 1))]],
    "flipud": [lambda m: np.flipud(m)],
    "fliplr": [lambda m: np.fliplr(m)],
    "rot90": [
        lambda m: [np.rot90(m, n) for n in (-1, 0, 1, 2, 3, 5)],
        lambda m: np.rot90(m[None], axes=(1, 2)),
        lambda m: np.rot90(m, 1, (1, 0)),
    ],
    "roll": [
        lambda m: [np.roll(m, n) for n in (0, 1, -5, 13)],
        lambda m: [np.roll(m, n, axis=x) for n, x in ((1, 0), (-7, 1), (9, -1))],
        lambda m: (np.roll(m, (1, 2), axis=(0, 1)), np.roll(m, 2, axis=(0, 1)), np.roll(m, [1, 1], [0, 0])),
    ],
    "repeat": [
        lambda m: (np.repeat(m, 2), np.repeat(m, 3, axis=1), np.repeat(m, [1, 0, 2], axis=0), m.repeat(2, -1)),
        lambda v: (np.repeat(v, np.array([0, 1, 2, 3])), np.repeat(v, 0), np.repeat(v, [2])),
    ],
    "tile": [lambda m: [np.tile(m, x) for x in (2, (2, 1), (2, 1, 3), [1, 2], 1, (0, 1))]],
    "resize": [lambda m: [np.resize(m, x) for x in ((4, 5), 7, (2, 2), (3, 0))]],
    "tril": [lambda m: [np.tril(m, x) for x in (-4, -1, 0, 1, 9)], lambda m: np.tril(m[None]), lambda v: np.tril(v)],
    "triu": [lambda m: [np.triu(m, x) for x in (-4, -1, 0, 1, 9)], lambda m: np.triu(m[None]), lambda v: np.triu(v)],
    "diagonal": [
        lambda m: [np.diagonal(m, x) for x in (-2, -1, 0, 1, 3)],
        lambda m: np.diagonal(m[None], 0, 1, 2),
        lambda m: m.diagonal(1),
        lambda m: np.diagonal(m[None], axis1=-1, axis2=1),
    ],
    "diag": [lambda m: [np.diag(m, x) for x in (-1, 0, 2)], lambda v: [np.diag(v, x) for x in (-1, 0, 2)]],
    "diagflat": [lambda m: [np.diagflat(m, x) for x in (-1, 0, 2)]],
    "trace": [
        lambda m: [np.trace(m, x) for x in (-1, 0, 1)],
        lambda m: np.trace(m[None], axis1=1, axis2=2),
        lambda m: m.trace(),
        lambda m: np.trace(m, dtype=np.float64),
    ],
    "copy": [lambda m: (np.copy(m), m.copy())],
    "astype": [
        lambda m: [np.astype(m, x) for x in (np.float64, np.float32, np.int16, bool)],
        lambda m: np.abs(m).astype("uint8"),
        lambda s: s.astype(bool),
        lambda s: [s.astype(x) for x in ("float64", "float32", "float16")],
        lambda m: np.astype(m, "int8", copy=False),
    ],
    "shape": [lambda m: np.zeros(np.shape(m))],
    "ndim": [lambda m: np.zeros(np.ndim(m))],
    "size": [lambda m: (np.zeros(np.size(m)), np.zeros(np.size(m, 1)), np.zeros(np.size(m, axis=-2)))],
    "zeros_like": [
        lambda m: (
            np.zeros_like(m),
            np.zeros_like(m, dtype="int16"),
            np.zeros_like(m, shape=(2, 2)),
            np.zeros_like(m, float),
        )
    ],
    "ones_like": [lambda m: (np.ones_like(m), np.ones_like(m, dtype=np.float32), np.ones_like(m, shape=2))],
    "empty_like": [lambda m: (np.zeros_like(np.empty_like(m)), np.empty_like(m, dtype=bool, shape=()) & False)],
    "full_like": [
        lambda m: (np.full_like(m, 1), np.full_like(m, 2.5, dtype=np.float64), np.full_like(m, [1, 2], shape=(3, 2))),
        lambda m, v: np.full_like(m, v),
    ],
    "result_type": [
        lambda m: np.zeros(2, np.result_type(m, np.float32)),
        lambda m: np.zeros(2, np.result_type(m, 2.5)),
    ],
    "iscomplexobj": [lambda m: np.zeros(int(np.iscomplexobj(m)))],
    "isrealobj": [lambda m: np.zeros(int(np.isrealobj(m)))],
    "real": [lambda s: (np.real(s), s.real)],
    "real_if_close": [lambda s: (np.real_if_close(s), np.real_if_close(s, tol=10))],
    "isreal": [lambda s: np.isreal(s)],
    # Choosing, indexing.
    "where": [
        lambda c, m: (np.where(c, m, 0), np.where(c, m, m + 1), np.where(c, 2.5, m), np.where(c, m, np.ones(4))),
        lambda a, b: np.where(a, a, b),
        lambda c, m: np.where(c, m, [1, 2, 3, 4]),
        lambda c, m: np.where([1, 0, 0, 1], m, True),
    ],
    "select": [
        lambda c, m: np.select([c, m > 1], [m, m + m], default=1),
        lambda c, m: np.select([c], [m]),
        lambda c, m: np.select([c, ~c], [m, np.ones(4)], 2.5),
    ],
    "choose": [
        lambda i, k: np.choose(i, [k[0], k[1], k[2]]),
        lambda i, k: np.choose(i, k[:3], mode="raise"),
        lambda i, k: [np.choose(i - 1, k[:2], mode=mode) for mode in ("clip", "wrap")],
    ],
    "meshgrid": [
        lambda v, i: (*np.meshgrid(v, i), *np.meshgrid(v, i, indexing="ij"), *np.meshgrid(v, [1, 2], sparse=True)),
        lambda v: np.meshgrid(v, v, copy=False),
    ],
    "take": [
        lambda m, i: (np.take(m, i), np.take(m, i, axis=1), m.take(i, 0), np.take(m, [[0, 1], [2, -1]], axis=-1)),
        lambda m: [np.take(m, [0, 5, -7, 11], axis=1, mode=mode) for mode in ("wrap", "clip")],
        lambda m: np.take(m, 1, 0),
        lambda m, i: [np.take(m, i + 2, axis=0, mode=mode) for mode in ("wrap", "clip")],
    ],
    "take_along_axis": [
        lambda m, j: np.take_along_axis(m, j, 1),
        lambda m, j: np.take_along_axis(m, j[:2] % 3, axis=0),
        lambda m: np.take_along_axis(m, np.array([[0], [-1], [2]]), axis=-1),
        lambda m, i: np.take_along_axis(m, i, None),
    ],
    "put_along_axis": [
        lambda m, j: mlaot.put_along_axis(m, j[:, :1], 1, 1),
        lambda m, j: mlaot.put_along_axis(m, j[:1] % 3, m[1:2], axis=0),
    ],
    "delete": [
        lambda m: (
            np.delete(m, 1, axis=0),
            np.delete(m, [0, 2], axis=1),
            np.delete(m, 3),
            np.delete(m, slice(1, 3), -1),
            np.delete(m, np.array([True, False, True]), 0),
            np.delete(m, -1, 1),
        )
    ],
    "insert": [
        lambda m, v: (
            np.insert(m, 1, v, axis=0),
            np.insert(m, 2, 1, axis=-1),
            np.insert(m, 0, [1, 2, 3], axis=1),
            np.insert(m, -1, 2, axis=1),
            np.insert(v, 4, 1),
            np.insert(v, 1, [5, 6]),
        )
    ],
    "clip": [
        lambda a, b: (np.clip(a, b, None), np.clip(a, None, b), np.clip(a, b, b)),
        lambda s: np.clip(s, 1, 3),
        lambda s: (s.clip(1, 5), np.clip(s, min=1), np.clip(s, max=2)),
        lambda m: np.clip(m, [0, 1, 2, 3], np.array([4, 4, 4, 1])),
        lambda m: np.clip(m, a_min=1, a_max=2),
        lambda m: np.clip(m),
    ],
    "isin": [
        lambda a, b: np.isin(a, b),
        lambda s: (np.isin(s, [0, 1, 3]), np.isin(s, 1, invert=True), np.isin(s, np.array([2, 7]), assume_unique=True)),
    ],
    # Rounding and comparing.
    "round": [
        lambda s: np.round(s),
        lambda s: [np.round(s, d) for d in (1, 2, 3, 5, 15, 22, 30, 300)],
        lambda m: [np.round(m, decimals=-d) for d in (1, 2)],
        lambda m: (m.round(), m.round(1), np.around(m, 2)),
    ],
    "fix": [lambda s: np.fix(s)],
    "nan_to_num": [
        lambda s: np.nan_to_num(s),
        lambda s: np.nan_to_num(s, nan=1, posinf=2, neginf=3),
        lambda s: np.nan_to_num(s, True, 7.0),
        lambda s: np.nan_to_num(s, nan=s[0], posinf=np.array(4)),
    ],
    "isclose": [
        lambda a, b: np.isclose(a, b),
        lambda a, b: np.isclose(a, b, equal_nan=True),
        lambda s: np.isclose(s, 1.5, rtol=0.5, atol=0.1),
        lambda m, v: np.isclose(m, v, rtol=v * 0.25, atol=np.float64(0.5)),
        lambda s: np.isclose(1, s),
        lambda v: np.isclose(v, [1, 2, 0, 2.00000001]),
    ],
    "isneginf": [lambda s: np.isneginf(s)],
    "isposinf": [lambda s: np.isposinf(s)],
    "sinc": [lambda s: np.sinc(s)],
    # Numerics.
    "interp": [
        lambda s: np.interp(s, [-1.0, 0.0, 2.0, 3.0], [3.0, 1.0, -4.0, 0.0]),
        lambda s: np.interp(s, [0, 1, 2], [5, 7, 4], left=-1, right=9),
        lambda m: np.interp(m, np.array([0.0, 2.0]), np.array([1.0, 5.0])),
        lambda v, m: np.interp(m, [0.0, 1.0, 2.0, 3.0], v),
    ],
    "convolve": [
        lambda s, v: [np.convolve(s[-6:], s[-4:], mode) for mode in ("full", "same", "valid")],
        lambda v, m: [np.convolve(v, m[1, :3], mode) for mode in ("full", "same", "valid")],
        lambda v: np.convolve(v, [1, 2]),
        lambda v, m: np.convolve(m[0, :2], v, mode="same"),
    ],
    "correlate": [
        lambda s, v: [np.correlate(s[-6:], s[-3:], mode) for mode in ("full", "same", "valid")],
        lambda v, m: [np.correlate(v, m[1, :3], mode) for mode in ("full", "same", "valid")],
        lambda v: np.correlate([1, 2], v),
        lambda v, m: np.correlate(m[0, :2], v, mode="full"),
    ],
    "trapezoid": [
        lambda m, v: (
            np.trapezoid(m),
            np.trapezoid(m, dx=0.5, axis=0),
            np.trapezoid(m, v),
            np.trapezoid(m, [0, 1, 3, 6]),
        ),
        lambda m: np.trapezoid(m, m),
        lambda p: np.trapezoid(p, axis=-1),
    ],
    "gradient": [
        lambda m: (
            *np.gradient(m),
            np.gradient(m, axis=1),
            np.gradient(m, 2.0, axis=0),
            *np.gradient(m, 0.5, 2, axis=(0, 1)),
        ),
        lambda s: np.gradient(s),
        lambda v: np.gradient(v, edge_order=1),
    ],
    "polyval": [
        lambda s: np.polyval([1.0, 2.0, 3.0], s),
        lambda v, m: np.polyval(v, m),
        lambda s: np.polyval(np.array([2, 1]), s),
    ],
    "vander": [lambda v: (np.vander(v), np.vander(v, 2), np.vander(v, 3, True), np.vander(v, N=1))],
    "cov": [
        lambda m: (
            np.cov(m),
            np.cov(m, rowvar=False),
            np.cov(m, bias=True),
            np.cov(m, ddof=0),
            np.cov(m[0]),
            np.cov(m[0], m[1]),
            np.cov(m, m + m[:1]),
        )
    ],
    "corrcoef": [lambda m: (np.corrcoef(m), np.corrcoef(m, rowvar=False), np.corrcoef(m[0], m[1]))],
    "pad": [
        lambda m: (
            np.pad(m, 1),
            np.pad(m, ((0, 2), (1, 0))),
            np.pad(m, (1, 2), constant_values=1),
            np.pad(m, [[1], [2]]),
            np.pad(m, {1: 2}),
        ),
        lambda m: (np.pad(m, 1, constant_values=((1, 0), (1, 1))), np.pad(m, 2, "constant", constant_values=(0, 1))),
        lambda m, v: np.pad(m, 1, constant_values=v[1]),
        *[
            lambda m, mode=mode: (np.pad(m, ((1, 2), (3, 0)), mode), np.pad(m, 5, mode=mode))
            for mode in ("edge", "reflect", "symmetric", "wrap")
        ],
        lambda m: [np.pad(m, 5, mode, reflect_type="odd") for mode in ("reflect", "symmetric")],
        *[
            lambda m, mode=mode: (
                np.pad(m, (1, 2), mode),
                np.pad(m, 2, mode, stat_length=2),
                np.pad(m, 1, mode, stat_length=((1, 2), (3, 1))),
            )
            for mode in ("maximum", "minimum", "mean", "median")
        ],
        lambda m: (
            np.pad(m, 3, "linear_ramp"),
            np.pad(m, 2, "linear_ramp", end_values=1),
            np.pad(m, ((5, 0), (3, 4)), "linear_ramp", end_values=((0, 1), (1, 0))),
        ),
        lambda m: np.pad(m, 1, "empty")[1:-1, 1:-1],
        lambda s: (np.pad(s, 3, "linear_ramp"), np.pad(s, 2, "edge")),
        lambda m: np.pad(m[:1, :1], 3, "reflect"),
    ],
    # Products.
    "matmul": [
        lambda m, k: (
            m @ k,
            np.matmul(m, k),
            m[0] @ k,
            m @ k[:, 0],
            m[0] @ k[:, 0],
            m[None] @ k,
            m @ [[1, 2], [0, 1], [1, 1], [2, 0]],
        ),
        lambda a, b: a[:, None, None] @ b[:, None, None],
    ],
    "dot": [
        lambda m, k: (
            np.dot(m, k),
            m.dot(k),
            np.dot(m[0], k[:, 0]),
            np.dot(m, 2),
            np.dot(3, m),
            np.dot(m[None], k),
            np.dot(m, np.ones(4)),
        )
    ],
    "vdot": [lambda m, k: np.vdot(m, k), lambda v: np.vdot(v, [1, 2, 3, 4])],
    "inner": [lambda m, v: (np.inner(m, m), np.inner(v, v), np.inner(m, v), np.inner(m, 2))],
    "outer": [lambda s, v: (np.outer(s, v), np.outer(v, [1, 2]))],
    "vecdot": [lambda m, v: (np.vecdot(m, v), np.vecdot(m, m, axis=0))],
    "matvec": [lambda m, v: np.matvec(m, v)],
    "vecmat": [lambda m, i: np.vecmat(m[:, 0], m)],
    "tensordot": [
        lambda m, k: (
            np.tensordot(m, k, 1),
            np.tensordot(m, m, 2),
            np.tensordot(m, k, ((0, 1), (1, 0))),
            np.tensordot(m, m, 0),
            np.tensordot(m, m, [0, 0]),
        )
    ],
    "kron": [lambda m, v: (np.kron(m, m[:2]), np.kron(m, v), np.kron(v, [1, 2]))],
    "cross": [
        lambda m, k: (
            np.cross(m[:, :3], k[1:]),
            np.cross(m[:, 0], k[0]),
            np.cross(m[:, :3], k[1:], axis=0),
            np.cross(m[:, :3], k[1:], axisa=0, axisb=1, axisc=0),
        )
    ],
    "einsum": [
        lambda m, k: (
            np.einsum("ij,jk", m, k),
            np.einsum("ij->ji", m),
            np.einsum("ij->", m),
            np.einsum("...j,jk->...k", m, k),
        ),
        lambda m: (np.einsum(m, [0, 1], m, [0, 1], [0]), np.einsum("ii->i", m[:, :3]), np.einsum("ij,ij->ij", m, m)),
        lambda m: np.einsum("ij->i", m, optimize=True, order="C", casting="safe"),
        lambda m: np.einsum("ij->i", m, dtype=np.float64),
    ],
    "linalg.norm": [
        lambda m, v: (
            np.linalg.norm(m),
            np.linalg.norm(v),
            np.linalg.norm(m, axis=1),
            np.linalg.norm(m, axis=(0, 1), keepdims=True),
        ),
        lambda m: [np.linalg.norm(m, o, axis=0) for o in (None, 0, 1, 2, 3, -1, 0.5, np.inf, -np.inf)],
        lambda m: [np.linalg.norm(m, ord=o, keepdims=True) for o in ("fro", 1, -1, np.inf, -np.inf)],
    ],
    "linalg.vector_norm": [
        lambda m: (
            np.linalg.vector_norm(m, axis=1),
            np.linalg.vector_norm(m),
            np.linalg.vector_norm(m, axis=(0, 1), ord=1, keepdims=True),
        )
    ],
    "linalg.matrix_norm": [
        lambda m: [np.linalg.matrix_norm(m, ord=o, keepdims=True) for o in ("fro", 1, np.inf)],
        lambda m: np.linalg.matrix_norm(m[None]),
    ],
    "linalg.multi_dot": [lambda m, k: np.linalg.multi_dot([m, k, m])],
    "linalg.matrix_power": [lambda m: [np.linalg.matrix_power(m[:, :3], n) for n in (0, 1, 2, 3)]],
    "linalg.matmul": [lambda m, k: np.linalg.matmul(m, k)],
    "linalg.outer": [lambda v: np.linalg.outer(v, v)],
    "linalg.tensordot": [lambda m, k: np.linalg.tensordot(m, k, axes=1)],
    "linalg.trace": [lambda m: (np.linalg.trace(m), np.linalg.trace(m, offset=1, dtype=np.float64))],
    "linalg.diagonal": [lambda m: (np.linalg.diagonal(m), np.linalg.diagonal(m, offset=-1))],
    "linalg.cross": [lambda m, k: (np.linalg.cross(m[:, :3], k[1:]), np.linalg.cross(m[:, :3], k[1:], axis=0))],
    "linalg.vecdot": [lambda m: (np.linalg.vecdot(m, m), np.linalg.vecdot(m, m, axis=0))],
    "linalg.matrix_transpose": [lambda m: np.linalg.matrix_transpose(m)],
    # Methods of ufuncs.
    "add.reduce": [
        lambda m: (np.add.reduce(m), np.add.reduce(m, axis=1, keepdims=True), np.add.reduce(m, None, np.float64))
    ],
    "multiply.reduce": [lambda m: np.multiply.reduce(m, axis=(0, 1))],
    "maximum.reduce": [lambda m: np.maximum.reduce(m, axis=-1)],
    "minimum.reduce": [lambda m: np.minimum.reduce(m)],
    "logical_and.reduce": [lambda m: np.logical_and.reduce(m, axis=1)],
    "logical_or.reduce": [lambda m: np.logical_or.reduce(m, axis=None)],
    "add.accumulate": [lambda m: (np.add.accumulate(m), np.add.accumulate(m, 1, np.float64))],
    "multiply.accumulate": [lambda m: np.multiply.accumulate(m, axis=-1)],
    # SciPy's that are no ufuncs.
    "softmax": [
        lambda m: (scipy.special.softmax(m), scipy.special.softmax(m, axis=1), scipy.special.softmax(m, (0, 1))),
        lambda p: scipy.special.softmax(p, axis=1),
    ],
    "log_softmax": [
        lambda m: (scipy.special.log_softmax(m), scipy.special.log_softmax(m, axis=-1)),
        lambda p: scipy.special.log_softmax(p, axis=1),
    ],
    "logsumexp": [
        lambda m: (
            scipy.special.logsumexp(m),
            scipy.special.logsumexp(m, axis=1, keepdims=True),
            scipy.special.logsumexp(m, 0, np.array([1.0, 2.0, 3.0, 0.5])),
        ),
        lambda p: scipy.special.logsumexp(p, axis=1),
        lambda m: scipy.special.logsumexp(m, axis=1, b=[1, 2, 3, 4]),
    ],
}
FORMS |= counting_forms.FORMS
FORMS |= {name: [*FORMS[name], *forms] for name, forms in counting_forms.WHERE.items()}


# How near results are: exact, but for these, in units in the last place.
ULPS = {
    **dict.fromkeys(("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "sinh", "cosh"), 4),
    **dict.fromkeys(("arcsin", "arccos", "arctan", "arctan2", "tanh", "arcsinh", "arccosh", "arctanh", "hypot"), 4),
    **dict.fromkeys(("power", "float_power", "cbrt", "erf", "erfc", "erfinv", "expit", "logit", "log_expit"), 4),
    **dict.fromkeys(
        ("exp10", "entr", "xlogy", "xlog1py", "exprel", "ndtri", "sinc", "huber", "softmax", "rel_entr"), 8
    ),
    **dict.fromkeys(("logaddexp", "logaddexp2", "kl_div", "log_softmax", "logsumexp", "pseudo_huber"), 8),
    **dict.fromkeys(("deg2rad", "rad2deg", "radians", "degrees"), 1),
    **dict.fromkeys(("var", "std", "cov", "corrcoef", "average", "quantile", "percentile", "interp", "linalg.norm"), 4),
    **dict.fromkeys(("linalg.vector_norm", "linalg.matrix_norm", "polyval", "pad", "trapezoid"), 4),
    **dict.fromkeys(("gamma", "gammaln", "psi", "i0", "nanvar", "nanstd", "histogram", "unwrap", "cdist"), 8),
    **dict.fromkeys(("nanquantile", "nanpercentile", "pdf", "logpdf", "divide.accumulate", "logaddexp.accumulate"), 8),
    **dict.fromkeys(("cdf", "sf", "ppf"), 300),
    "ndtr": 300,  # z^2 times the rounding of z / sqrt(2), SciPy's too
}
# Units of the largest argument, and of 1, where a difference takes the leading digits away.
SCALED = {"logaddexp", "logaddexp2", "kl_div", "log_softmax", "logsumexp", "corrcoef", "interp", "polyval", "quantile"}
SCALED |= {"percentile", "nanquantile", "nanpercentile", "gammaln", "psi", "unwrap", "logpdf", "logaddexp.accumulate"}
# The sign of a zero is that of one of the arguments, of which one NumPy's own loops do not agree; and SciPy's
# erfinv(-0.0) is 0.
ZEROS = {
    "maximum",
    "minimum",
    "fmax",
    "fmin",
    "max",
    "min",
    "ptp",
    "nanmax",
    "nanmin",
    "clip",
    "sort",
    "median",
    "erfinv",
}
ZEROS |= {"nanmedian", "nanquantile", "nanpercentile", "maximum.accumulate", "minimum.accumulate", "fmax.accumulate"}
ZEROS |= {
    "gamma",
    "fmin.accumulate",
    "unwrap",
    "mean",
    "nanmean",
    "quantile",
    "percentile",
    "matmul",
    "kl_div",
    "trapezoid",
    "interp",
}
# NumPy adds up float16 in float16 here, mlaot in float32; mean does so in both.
IN_FLOAT32 = {"var", "std", "nanvar", "nanstd"}


def expected(name: str, form: Form, dtype: str) -> list[Array] | None:
    """What NumPy gives, None where it refuses."""
    wide = dtype == "float16" and name in IN_FLOAT32
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = tree.flatten(form(*[a.astype("float32") if wide else a for a in arrays(form, dtype)]))[0]
        except (TypeError, ValueError, IndexError, AttributeError, OverflowError):
            return None
        results = [np.asarray(x) for x in found]
        if wide and name.endswith("std"):  # the root of a variance that has been rounded
            return [np.sqrt(np.square(x).astype(dtype)) if x.dtype == np.float32 else x for x in results]
        return [x.astype(dtype) if wide and x.dtype == np.float32 else x for x in results]


def wrong(name: str, form: Form, dtype: str, found: Sequence[Array], wanted: Sequence[Array]) -> list[str]:
    """In what results differ."""
    if len(found) != len(wanted):
        return [f"{len(found)} results, expected {len(wanted)}"]
    lines = []
    for i, (f, w) in enumerate(zip(found, wanted, strict=True)):
        scale = _largest(arrays(form, dtype), w.shape) if name in SCALED else 0.0
        line = differences(f, w, ULPS.get(name, 0), zeros=name not in ZEROS, scale=scale)
        lines += [f"result {i}: {line}"] if line else []
    return lines


def _largest(given: Sequence[Array], shape: tuple[int, ...]) -> Any:
    """The largest size among the arguments of each result."""
    largest: Any = 10.0
    for x in given:
        size = np.abs(np.nan_to_num(np.asarray(x, np.float64), posinf=0, neginf=0))
        try:
            largest = np.maximum(largest, np.broadcast_to(size, shape))
        except ValueError:
            largest = np.maximum(largest, size.max(initial=0))
    return largest


@cache
def cases() -> dict[str, Sequence[Form]]:
    """The forms of every function, by the names of the front end's tables."""
    return {**{name: ufunc_forms(name) for name in distinct_ufuncs()}, **FORMS}
