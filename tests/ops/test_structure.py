"""Structure, indexing, scans, sorting and random bits: references against plain loops, all dtypes, named dims."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest

from mlaot.errors import MlaotError
from mlaot.evaluate import evaluate
from mlaot.ir import DTYPES, Dim, DType, Graph, Node, Type, dim, verify
from mlaot.ir.dims import nonnegative, substitute
from mlaot.ir.types import BY_NUMPY, bf16, boolean, f16, f32, f64, i8, i64, u8, u32
from mlaot.ops import OPS
from mlaot.ops import cumulative as cum
from mlaot.ops import elementwise as ew
from mlaot.ops import indexing as ix
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.ops.base import conditions
from mlaot.ops.random import random_bits, threefry
from mlaot.transforms.batch import batch
from mlaot.transforms.differentiate import differentiate

from .samples import Sample
from .samples_structure import SAMPLES

Array = np.ndarray[Any, Any]
Loop = Callable[..., Array]
N, M = dim("n"), dim("m")
REDUCTIONS = ("sum", "prod", "max", "min")


def samples(name: str) -> list[Sample]:
    return list(SAMPLES[name](np.random.default_rng(sum(name.encode()))))


# -- references against loops --


def loop_slice(x: Array, start: Any, size: Any, step: Any) -> Array:
    out = np.zeros(size)
    for i in np.ndindex(*size):
        out[i] = x[tuple(a + k * s for a, k, s in zip(start, i, step, strict=True))]
    return out


def loop_pad(x: Array, value: Array, low: Any, high: Any, interior: Any) -> Array:
    axes = zip(x.shape, low, high, interior, strict=True)
    out = np.full([a + n + (n - 1) * k + b for n, a, b, k in axes], value)
    for i in np.ndindex(*x.shape):
        out[tuple(a + p * (k + 1) for p, a, k in zip(i, low, interior, strict=True))] = x[i]
    return out


def loop_window(x: Array, axes: Any, sizes: Any, strides: Any, dilations: Any) -> Array:
    shape = list(x.shape)
    for a, k, s, d in zip(axes, sizes, strides, dilations, strict=True):
        shape[a] = len([p for p in range(0, x.shape[a], s) if p + (k - 1) * d < x.shape[a]])
    out = np.zeros((*shape, *sizes))
    for i in np.ndindex(*out.shape):
        out[i] = x[_seen(i, x.ndim, axes, strides, dilations)]
    return out


def _seen(i: tuple[int, ...], rank: int, axes: Any, strides: Any, dilations: Any) -> tuple[int, ...]:
    place = list(i[:rank])
    for a, k, s, d in zip(axes, i[rank:], strides, dilations, strict=True):
        place[a] = place[a] * s + k * d
    return tuple(place)


def loop_fold(y: Array, axes: Any, sizes: Any, strides: Any, dilations: Any, shape: Any) -> Array:
    out = np.zeros(shape)
    for i in np.ndindex(*y.shape):
        out[_seen(i, len(shape), axes, strides, dilations)] += y[i]
    return out


def loop_gather(x: Array, indices: Array, lead: int) -> Array:
    n, rest = x.shape[lead], x.shape[lead + 1 :]
    out = np.zeros((*indices.shape, *rest))
    for i in np.ndindex(*indices.shape):
        at = int(indices[i])
        at = at + n if at < 0 else at
        for r in np.ndindex(*rest):
            out[(*i, *r)] = x[(*i[:lead], min(max(at, 0), n - 1), *r)] if n else 0
    return out


def loop_scatter(x: Array, indices: Array, updates: Array, lead: int, mode: str) -> Array:
    n, rest, out = x.shape[lead], x.shape[lead + 1 :], x.copy()
    modes: dict[str, Callable[..., Any]] = {
        "set": lambda old, new: new,
        "add": lambda a, b: a + b,
        "max": max,
        "min": min,
    }
    combine = modes[mode]
    for i in np.ndindex(*indices.shape):
        at = int(indices[i])
        at = at + n if at < 0 else at
        if 0 <= at < n:
            for r in np.ndindex(*rest):
                place = (*i[:lead], at, *r)
                out[place] = combine(out[place], updates[(*i, *r)])
    return out


def along(axis: int, reverse: bool, row: Callable[..., Sequence[float]], *arrays: Array) -> Array:
    """``row`` on every line along an axis."""
    moved = [np.moveaxis(a, axis, -1) for a in arrays]
    out = np.zeros(moved[0].shape)
    for i in np.ndindex(*out.shape[:-1]):
        lines = [list(m[i])[:: -1 if reverse else 1] for m in moved]
        out[i] = row(*lines)[:: -1 if reverse else 1]
    return np.moveaxis(out, -1, axis)


def loop_cumsum(x: Array, axis: int, reverse: bool, exclusive: bool) -> Array:
    def row(line: list[float]) -> list[float]:
        return [sum(line[: i + (not exclusive)]) for i in range(len(line))]

    return along(axis, reverse, row, x)


def loop_cumprod(x: Array, axis: int, reverse: bool, exclusive: bool) -> Array:
    def row(line: list[float]) -> list[float]:
        return [math.prod(line[: i + (not exclusive)]) for i in range(len(line))]

    return along(axis, reverse, row, x)


def loop_recurrence(a: Array, b: Array, axis: int, reverse: bool) -> Array:
    def row(factors: list[float], terms: list[float]) -> list[float]:
        found: list[float] = []
        for factor, term in zip(factors, terms, strict=True):
            found.append(term + (factor * found[-1] if found else 0))
        return found

    return along(axis, reverse, row, a, b)


def loop_argsort(
    x: Array, axis: int, descending: bool, count: int | None = None, places: tuple[int, int] | None = None
) -> Array:
    def row(line: list[float]) -> list[int]:
        def key(i: int) -> tuple[bool, float]:
            value = float(line[i])
            is_last = math.isnan(value) != descending
            return is_last, 0 if math.isnan(value) else -value if descending else value

        order = sorted(range(len(line)), key=key)
        return [i if places is None or k in range(*places) else 0 for k, i in enumerate(order)]

    return along(axis, False, row, x)[(*[slice(None)] * axis, slice(0, count))]


def loop_sort(x: Array, axis: int, descending: bool, places: tuple[int, int] | None = None) -> Array:
    order = loop_argsort(x, axis, descending).astype(np.int64)
    found, there = np.zeros_like(x), (*[slice(None)] * axis, slice(*(places or (0, None))))
    found[there] = np.take_along_axis(x, order, axis)[there]
    return found


def loop_prod(x: Array, axes: tuple[int, ...]) -> Array:
    kept = [i for i in range(x.ndim) if i not in axes]
    out = np.ones([x.shape[i] for i in kept])
    for i in np.ndindex(*x.shape):
        out[tuple(i[k] for k in kept)] *= x[i]
    return out


LOOPS: dict[str, Loop] = {
    "slice": loop_slice,
    "pad": loop_pad,
    "window": loop_window,
    "fold": loop_fold,
    "gather": loop_gather,
    "scatter": loop_scatter,
    "cumsum": loop_cumsum,
    "cumprod": loop_cumprod,
    "linear_recurrence": loop_recurrence,
    "argsort": loop_argsort,
    "sort": loop_sort,
    "prod": loop_prod,
}


@pytest.mark.parametrize("name", LOOPS)
def test_reference_is_the_loop(name: str) -> None:
    for s in samples(name):
        found = OPS[name].reference(*s.args, **s.attrs)
        expected = LOOPS[name](*s.args, **s.attrs)
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14, err_msg=f"{name} {s.attrs}")


FOR_VECTORS = ("tree_ensemble", "winograd_input", "winograd_output", "sparse_dot", "sparse_add")  # f32 and f64
NOT_FOR_BOOL = ("sum", "prod", "cumsum", "cumprod", "linear_recurrence", "fold", "contract")


def typed(name: str, s: Sample, dtype: DType) -> tuple[tuple[Type, ...], tuple[Array, ...]]:
    """A sample's arguments in another dtype; indices and keys as they are."""
    types, arrays = [], []
    for array in s.args:
        kind = dtype if array.dtype.kind == "f" else BY_NUMPY[str(array.dtype)]
        values = 3 * array if array.dtype.kind == "f" else array
        values = np.abs(values) if kind.kind == "u" else values
        types.append(Type(kind, array.shape))
        arrays.append(kind.array(values))
    return tuple(types), tuple(arrays)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_every_dtype(name: str, dtype: DType) -> None:
    """The type rule's dtype is the reference's, and where the loop is exact, so is the value."""
    for s in samples(name)[::5]:
        types, arrays = typed(name, s, dtype)
        refused_bool = dtype is boolean and (name in NOT_FOR_BOOL or s.attrs.get("mode") == "add")
        if refused_bool or (name in FOR_VECTORS and dtype not in (f32, f64)):
            with pytest.raises(MlaotError, match=r"cannot|takes f32 or f64"):
                OPS[name].type_rule(*types, **s.attrs)
            continue
        if dtype is bf16 and "dtype" in s.attrs:
            continue
        with np.errstate(all="ignore"):
            found = OPS[name].reference(*arrays, **s.attrs)
        expected = OPS[name].type_rule(*types, **s.attrs)
        assert (str(found.dtype), found.shape) == (expected.dtype.numpy, expected.shape), f"{name} {s.attrs}"


@pytest.mark.parametrize("dtype", [d for d in DTYPES.values() if d.kind in "iu"], ids=str)
def test_integers_wrap(dtype: DType) -> None:
    x = np.array([[100, 100, 100], [7, 11, 13]]).astype(dtype.numpy)
    modulus = 1 << 8 * dtype.itemsize

    def wrapped(values: list[int]) -> list[int]:
        low = -(modulus // 2) if dtype.kind == "i" else 0
        return [(v - low) % modulus + low for v in values]

    assert OPS["sum"].reference(x, axes=(1,)).tolist() == wrapped([300, 31])
    assert OPS["prod"].reference(x, axes=(1,)).tolist() == wrapped([100**3, 1001])
    assert OPS["cumsum"].reference(x, axis=1)[0].tolist() == wrapped([100, 200, 300])
    assert OPS["cumprod"].reference(x, axis=1)[0].tolist() == wrapped([100, 100**2, 100**3])
    assert OPS["linear_recurrence"].reference(x, x, axis=1)[0].tolist() == wrapped([100, 10100, 1010100])
    assert OPS["contract"].reference(x, x, spec="ab,ab->a").tolist() == wrapped([30000, 339])


def test_reductions_of_bools_and_nothing() -> None:
    x = np.array([[True, False], [True, True]])
    assert OPS["max"].reference(x, axes=(1,)).tolist() == [True, True]
    assert OPS["min"].reference(x, axes=(1,)).tolist() == [False, True]
    for dtype in DTYPES.values():
        none = np.zeros((2, 0), dtype.numpy)
        for name in REDUCTIONS if dtype is not boolean else ("max", "min"):
            found = OPS[name].reference(none, axes=(1,))
            assert (str(found.dtype), found.shape) == (dtype.numpy, (2,))
    assert OPS["sum"].reference(np.zeros((0, 2)), axes=(0,)).tolist() == [0, 0]
    assert OPS["prod"].reference(np.zeros((0, 2)), axes=(0,)).tolist() == [1, 1]
    assert OPS["max"].reference(np.zeros((0, 2)), axes=(0,)).tolist() == [-np.inf, -np.inf]
    refused("no elements", "max", f32[0, 2], axes=(0,))
    refused("no elements", "argmin", f32[2, 0], axis=1)
    assert OPS["max"].type_rule(f32[0, 2], axes=(1,)) == f32[0]


def test_special_values() -> None:
    nan, inf = np.nan, np.inf
    x = np.array([1.0, nan, -inf, inf, nan, 2.0, 1.0])
    assert OPS["argmax"].reference(x, axis=0) == 1 and OPS["argmin"].reference(x, axis=0) == 1
    assert OPS["argsort"].reference(x, axis=0).tolist() == [2, 0, 6, 5, 3, 1, 4]
    assert OPS["argsort"].reference(x, axis=0, descending=True).tolist() == [1, 4, 3, 5, 0, 6, 2]
    assert OPS["argsort"].reference(np.array([0.0, -0.0, 0.0]), axis=0, descending=True).tolist() == [0, 1, 2]
    small = np.array([-128, 127, 0], np.int8)
    assert OPS["argsort"].reference(small, axis=0, descending=True).tolist() == [1, 2, 0]
    # the first factor of a recurrence plays no part, whatever it is
    found = OPS["linear_recurrence"].reference(np.array([inf, 2.0]), np.array([1.0, 1.0]), axis=0)
    assert found.tolist() == [1.0, 3.0]
    assert np.signbit(OPS["sum"].reference(np.array([-0.0]), axes=())).all()
    assert OPS["sum"].reference(np.full(5000, 1, np.float16), axes=(0,)) == 5000
    assert OPS["scatter"].reference(np.zeros(2), np.array([0, 0]), np.array([nan, 1.0]), lead=0, mode="max")[0] != 0


def test_indices_of_every_integer_dtype() -> None:
    x = np.arange(300.0)
    for dtype in (d for d in DTYPES.values() if d.kind in "iu"):
        info = np.iinfo(dtype.numpy)
        indices = np.array([0, 5, info.max, info.min], dtype.numpy)
        expected = [0, 5, min(info.max, 299), max(info.min + 300, 0) if info.min else 0]
        assert OPS["gather"].reference(x, indices, lead=0).tolist() == expected, dtype
        graph = Graph("f")
        nodes = [graph.input("x", f64[300]), graph.input("i", dtype[4])]
        graph.outputs["d"] = differentiate(red.sum_(ix.gather(*nodes, lead=0), axes=(0,)), [nodes[0]])[0]
        found = evaluate(graph, {"x": x, "i": indices})["d"]
        counted = np.zeros(300)
        np.add.at(counted, np.array(expected, int), 1)
        assert found.tolist() == counted.tolist(), dtype


# -- gradients --


def gradients(make: Callable[..., Node], *arrays: Array, order: int = 1) -> list[Array]:
    """Of the sum of squares of ``make(*arrays)``; of order 2 the gradient of the gradients' sum of squares."""
    graph = Graph("f")
    nodes = [graph.input(f"x{i}", Type(f64, a.shape)) for i, a in enumerate(arrays)]
    values = [make(*nodes)]
    for _ in range(order):
        squares = [red.sum_(ew.mul(v, v), axes=tuple(range(v.type.rank))) for v in values]
        loss = ew.add(*squares) if len(squares) > 1 else squares[0]
        values = differentiate(loss, nodes)
    graph.outputs = {f"d{i}": v for i, v in enumerate(values)} | {"loss": loss}
    verify(graph, "differentiate")
    inputs = {f"x{i}": a for i, a in enumerate(arrays)}
    found = evaluate(graph, inputs)
    rng = np.random.default_rng(1)
    for key, value in inputs.items():
        way = rng.normal(size=value.shape)
        ahead, behind = (float(evaluate(graph, inputs | {key: value + h * way})["loss"]) for h in (1e-6, -1e-6))
        expected, actual = (ahead - behind) / 2e-6, float((found["d" + key[1:]] * way).sum())
        assert abs(expected - actual) < 1e-5 * max(1.0, abs(expected)), (key, expected, actual)
    return [found[f"d{i}"] for i in range(len(arrays))]


@pytest.mark.parametrize("zeros", [(), (2,), (1, 3), (0, 1, 4)], ids=str)
@pytest.mark.parametrize("order", [1, 2])
def test_products_are_differentiated_twice_with_zeros(zeros: tuple[int, ...], order: int) -> None:
    x = np.array([0.7, -1.2, 0.4, 1.5, -0.6])
    x[list(zeros)] = 0
    gradients(lambda v: red.prod(v, axes=(0,)), x, order=order)
    gradients(lambda v: red.prod(v, axes=(0, 2)), np.stack([x, x[::-1]]).reshape(2, 1, 5), order=order)
    for reverse, exclusive in product((False, True), repeat=2):
        gradients(lambda v, r=reverse, e=exclusive: cum.cumprod(v, axis=0, reverse=r, exclusive=e), x, order=order)
    for reverse in (False, True):
        gradients(lambda a, b, r=reverse: cum.linear_recurrence(a, b, axis=0, reverse=r), x, x[::-1] + 0.1, order=order)


def test_structure_is_differentiated_twice() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(4, 7)), rng.normal(size=())
    gradients(lambda v: st.slice_(ew.mul(v, v), start=(3, 1), size=(2, 3), step=(-2, 2)), x, order=2)
    gradients(lambda v, p: st.pad(ew.mul(v, v), p, low=(1, 0), high=(0, 2), interior=(1, 2)), x, y, order=2)
    attrs: dict[str, Any] = {"axes": (1,), "sizes": (3,), "strides": (2,), "dilations": (1,)}
    gradients(lambda v: st.window(ew.mul(v, v), **attrs), x, order=2)
    gradients(lambda v: st.fold(ew.mul(v, v), **attrs, shape=(4, 7)), rng.normal(size=(4, 3, 3)), order=2)

    def indexed(op: Callable[..., Node], **more: Any) -> Callable[..., Node]:
        return lambda v, *u: op(v, v.graph.constant([0, -1, 2, 2, 9, 0], i64), *u, lead=0, **more)

    gradients(indexed(ix.gather), x, order=2)
    for mode in ix.MODES:
        gradients(indexed(ix.scatter, mode=mode), x, rng.normal(size=(6, 7)), order=2)


def test_the_last_duplicate_alone_receives_the_cotangent() -> None:
    graph = Graph("f")
    x, u = graph.input("x", f64[3]), graph.input("u", f64[2, 2])
    indices = graph.constant([[1, -2], [1, 7]], i64)
    y = ix.scatter(x, indices, u, lead=0, mode="set")
    weighted = ew.mul(y, graph.constant([10.0, 20.0, 30.0], f64))
    dx, du = differentiate(red.sum_(weighted, axes=(0,)), [x, u])
    graph.outputs = {"y": y, "dx": dx, "du": du}
    found = evaluate(graph, {"x": np.arange(3.0), "u": [[5.0, 6.0], [7.0, 8.0]]})
    assert found["y"].tolist() == [0, 7, 2]
    assert found["dx"].tolist() == [10, 0, 30]
    assert found["du"].tolist() == [[0, 0], [20, 0]]


def test_equal_winners_share() -> None:
    graph = Graph("f")
    x, u = graph.input("x", f64[2]), graph.input("u", f64[4])
    for mode, sign in (("max", 1.0), ("min", -1.0)):
        y = ix.scatter(x, graph.constant([0, 0, 1, 5], i64), u, lead=0, mode=mode)
        dx, du = differentiate(red.sum_(y, axes=(0,)), [x, u])
        graph.outputs = {"dx": dx, "du": du}
        found = evaluate(graph, {"x": sign * np.array([3.0, 9.0]), "u": sign * np.array([3.0, 1.0, 2.0, 9.0])})
        assert found["dx"].tolist() == [0.5, 1.0] and found["du"].tolist() == [0.5, 0, 0, 0]


def static(shape: tuple[Dim, ...]) -> tuple[int, ...]:
    return tuple(substitute(d, {}) for d in shape)


def test_each_is_the_transpose_of_the_other() -> None:
    """<f(x), y> = <x, f'(y)> for windows and for strided slices, with random attributes."""
    for name in ("window", "slice"):
        for s in samples(name):
            graph = Graph("f")
            x = graph.input("x", Type(f64, s.args[0].shape))
            out = graph.add(OPS[name], [x], s.attrs)
            y = graph.input("y", out.type)
            (back,) = OPS[name].vjp(y, out, x, **s.attrs)  # type: ignore[misc]
            assert back is not None and back.op.name in ("fold", "pad") and back.type == x.type
            graph.outputs = {"out": out, "back": back}
            values = {"x": s.args[0], "y": np.random.default_rng(0).normal(size=static(out.type.shape))}
            found = evaluate(graph, values)
            np.testing.assert_allclose((found["out"] * values["y"]).sum(), (values["x"] * found["back"]).sum())


# -- named dims --


def refused(text: str, op: str, *types: Type, **attrs: Any) -> None:
    """The type rule refuses these arguments with these words."""
    with pytest.raises(MlaotError) as error:
        OPS[op].type_rule(*types, **attrs)
    assert text in str(error.value), str(error.value)


def shape_of(op: str, *types: Type, **attrs: Any) -> tuple[Dim, ...]:
    return OPS[op].type_rule(*types, **attrs).shape


def test_named_dims() -> None:
    one = {"low": (1,), "high": (M,), "interior": (1,)}
    assert shape_of("slice", f32[N, 3], start=(1, 0), size=(N - 1, 2), step=(1, 1)) == (N - 1, 2)
    assert shape_of("slice", f32[N], start=(N - 1,), size=(N,), step=(-1,)) == (N,)
    assert shape_of("slice", f32[N], start=(0,), size=((N + 1) // 2,), step=(2,)) == ((N + 1) // 2,)
    assert shape_of("pad", f32[N], f32[()], **one) == (2 * N + M,)
    window = {"axes": (1,), "sizes": (3,), "strides": (2,), "dilations": (1,)}
    assert shape_of("window", f32[2, N], **window) == (2, (N - 1) // 2, 3)
    assert shape_of("fold", f32[2, (N - 1) // 2, 3], **window, shape=(2, N)) == (2, N)
    assert shape_of("concat", f32[N, 2], f32[3, 2], f32[M, 2], axis=0) == (N + M + 3, 2)
    assert shape_of("stack", f32[N, 2], f32[N, 2], axis=1) == (N, 2, 2)
    assert shape_of("iota", shape=(N, 2), axis=0, dtype=f32) == (N, 2)
    assert shape_of("reshape", f32[N, M, 6], shape=(2 * N, 3, M)) == (2 * N, 3, M)
    assert shape_of("one_hot", i64[N], classes=M, dtype=f32) == (N, M)
    assert shape_of("gather", f32[N, M, 5], i64[N, 2], lead=1) == (N, 2, 5)
    assert shape_of("scatter", f32[N, 5], i64[M], f32[M, 5], lead=0, mode="add") == (N, 5)
    assert shape_of("cumsum", f32[N, 2], axis=0) == (N, 2)
    assert shape_of("argmax", f32[N, M], axis=0) == (M,)
    assert shape_of("random_bits", u32[2], shape=(N, 3), site=4) == (N, 3)
    assert shape_of("prod", f32[N, M], axes=(1,)) == (N,)


def test_windows_of_whole_strides() -> None:
    assert shape_of("window", f32[2 * N], axes=(0,), sizes=(2,), strides=(2,), dilations=(1,)) == (N, 2)
    assert shape_of("window", f32[N], axes=(0,), sizes=(3,), strides=(1,), dilations=(2,)) == (N - 4, 3)


def test_errors() -> None:
    runs = {"size": (3,), "step": (1,)}
    refused("cannot slice f32[4] from [2], [3] elements, in steps of [1]", "slice", f32[4], start=(2,), **runs)
    refused("cannot slice", "slice", f32[4], start=(-1,), **runs)
    refused("cannot slice", "slice", f32[4, 4], start=(0,), **runs)
    refused("cannot slice", "slice", f32[4], start=(0,), size=(2,), step=(0,))
    refused("cannot slice", "slice", f32[N], start=(1,), size=(N,), step=(1,))
    none = {"low": (0,), "high": (0,), "interior": (0,)}
    refused("scalar f32 as its value, got f64[]", "pad", f32[4], f64[()], **none)
    refused("cannot pad f32[4] by [-1] before", "pad", f32[4], f32[()], **{**none, "low": (-1,)})
    refused("between no elements", "pad", f32[0], f32[()], **{**none, "interior": (1,)})
    window = {"axes": (0,), "sizes": (3,), "strides": (1,), "dilations": (2,)}
    refused("(5,) elements along axes (0,) are larger than f32[4]; pad it first", "window", f32[4], **window)
    refused("cannot take windows", "window", f32[9], **{**window, "strides": (0,)})
    refused("cannot take windows", "window", f32[9], **{**window, "axes": (1,)})
    refused("cannot fold f32[4,3] to f32[9]", "fold", f32[4, 3], **window, shape=(9,))
    refused("integer indices, got f32[2]", "gather", f32[4], f32[2], lead=0)
    refused("the same 1 leading axes", "gather", f32[4, 3], i64[3, 2], lead=1)
    refused("the same 1 leading axes", "gather", f32[4], i64[4], lead=1)
    refused("which has no elements", "gather", f32[0], i64[4], lead=0)
    refused("needs updates f32[2,3]", "scatter", f32[4, 3], i64[2], f32[2], lead=0, mode="set")
    refused("modes set, add, max, min, got 'mul'", "scatter", f32[4], i64[2], f32[2], lead=0, mode="mul")
    refused("mode 'max' is a logical or", "scatter", boolean[4], i64[2], boolean[2], lead=0, mode="add")
    refused("any or all", "sum", boolean[4], axes=(0,))
    refused("cannot scan f32[4] along axis 1", "cumsum", f32[4], axis=1)
    refused("f32[4] and f32[5]", "linear_recurrence", f32[4], f32[5], axis=0)
    refused("cannot sort f32[4] along axis -1", "argsort", f32[4], axis=-1)
    for places in ((1, 1), (-1, 2), (3, 5)):
        refused("cannot find what comes at the places", "argsort", f32[4], axis=0, places=places)
    for count in (0, 5):
        refused(f"cannot choose the first {count} along axis 0 of f32[4]", "argsort", f32[4], axis=0, count=count)
    refused("cannot count", "iota", shape=(3,), axis=0, dtype=boolean)
    refused("a random key must be u32[2], got f32[2]", "random_bits", f32[2], shape=(), site=0)
    refused("at most 65536", "random_bits", u32[2], shape=(), site=1 << 16)
    refused("cannot stack f32[2] along axis 2", "stack", f32[2], f32[2], axis=2)
    refused("cannot concatenate", "concat", f32[2], f32[2], axis=1)


def conditions_of(op: str, *types: Type, **attrs: Any) -> list[Dim]:
    graph = Graph("f")
    graph.outputs["y"] = graph.add(OPS[op], [graph.input(f"x{i}", t) for i, t in enumerate(types)], attrs)
    return conditions(graph)


def test_conditions_are_those_that_are_not_certain() -> None:
    assert conditions_of("slice", f32[N], start=(0,), size=(1,), step=(1,)) == [N - 1]
    assert conditions_of("slice", f32[N], start=(N - 2,), size=(1,), step=(1,)) == [N - 2]
    assert conditions_of("slice", f32[N], start=(0,), size=(10,), step=(1,)) == [N - 10]
    assert conditions_of("slice", f32[N + 3], start=(1,), size=(N + 2,), step=(1,)) == []
    for first, step in product(range(4), range(1, 4)):
        attrs = {"start": (first,), "size": ((N + step - 1) // step,), "step": (step,)}
        assert conditions_of("slice", f32[N + first], **attrs) == [], attrs
    assert conditions_of("pad", f32[N], f32[()], low=(0,), high=(4 - N,), interior=(0,)) == [4 - N]
    window = {"axes": (0,), "sizes": (3,), "strides": (2,), "dilations": (1,)}
    assert conditions_of("window", f32[N], **window) == [(N - 1) // 2, N - 3]
    assert conditions_of("window", f32[N + 3], **window) == []


def test_gradients_in_named_dims() -> None:
    """What a rule makes for a named extent fits every extent, none too."""
    graph = Graph("f")
    x, y = graph.input("x", f64[N]), graph.input("y", f64[N, 2 * M])
    parts = [
        st.slice_(x, start=(0,), size=((N + 2) // 3,), step=(3,)),
        st.slice_(x, start=(N - 1,), size=(N,), step=(-1,)),
        cum.cumprod(x, axis=0),
        cum.cumsum(x, axis=0, exclusive=True),
        red.prod(y, axes=(0, 1)),
        st.concat(x, x, axis=0),
        st.reshape(st.window(y, axes=(1,), sizes=(2,), strides=(2,), dilations=(1,)), shape=(2 * N * M,)),
        ix.gather(x, graph.constant([0, -1], i64), lead=0),
    ]
    loss = ew.add(*[red.sum_(ew.mul(p, p), axes=tuple(range(p.type.rank))) for p in parts])
    graph.outputs = dict(zip(("dx", "dy"), differentiate(loss, [x, y]), strict=True)) | {"loss": loss}
    verify(graph, "differentiate")
    assert conditions(graph) == [2 * M - 2]
    rng = np.random.default_rng(0)
    for n, m in ((0, 1), (1, 1), (2, 2), (5, 1)):
        inputs = {"x": rng.normal(size=n), "y": rng.normal(size=(n, 2 * m))}
        found = evaluate(graph, inputs)
        for key in inputs:
            way = rng.normal(size=inputs[key].shape)
            ahead, behind = (evaluate(graph, inputs | {key: inputs[key] + h * way})["loss"] for h in (1e-6, -1e-6))
            np.testing.assert_allclose((found["d" + key] * way).sum(), (ahead - behind) / 2e-6, rtol=1e-5, atol=1e-8)


def test_quotients_of_dims() -> None:
    assert (N - 1) // 2 == (N + 1) // 2 - 1 and (2 * N + 3) // 2 == N + 1 and (2 * N) // 4 == N // 2
    assert nonnegative(N - 2 * (N // 2)) and nonnegative(2 * ((N + 1) // 2) - N) and not nonnegative(N - 1)
    assert not nonnegative(2 * (N // 2) - N)
    assert not nonnegative(N // 2 - N) and nonnegative(N * M) and nonnegative(N * M - 3 * (N // 3) * M)
    for n in range(6):
        assert substitute((3 - N) // 2, {"n": n}) == (3 - n) // 2


# -- random bits --


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
    ],
    ids=["zeros", "ones", "pi"],
)
def test_known_answers_of_random123(counter: tuple[int, int], key: tuple[int, int], expected: tuple[int, int]) -> None:
    words = [np.array([c], np.uint32) for c in counter]
    assert tuple(int(w[0]) for w in threefry(key, *words)) == expected


def test_random_bits() -> None:
    key = np.array([1, 2], np.uint32)
    bits = OPS["random_bits"].reference(key, shape=(400, 500), site=3)
    first, _ = threefry(key, np.array([0, 7], np.uint32), np.array([3, 3], np.uint32))
    assert bits.flat[0] == first[0] and bits.flat[7] == first[1]
    assert len(np.unique(bits)) > 199990
    ones = [int((bits >> np.uint32(b) & np.uint32(1)).sum()) for b in range(32)]
    assert all(abs(count - 100000) < 1200 for count in ones)
    assert (bits != OPS["random_bits"].reference(key, shape=(400, 500), site=4)).mean() > 0.999


def test_each_example_of_a_batch_draws_its_own() -> None:
    graph = Graph("f")
    key, x = graph.input("key", u32[2]), graph.input("x", f32[3])
    bits = random_bits(key, shape=(3,), site=1)
    graph.outputs = {"alone": bits, "used": ew.add(x, ew.cast(bits, dtype=f32))}
    batched = batch(graph, dim("batch"), ["key"])
    verify(batched, "batch")
    inputs = {"key": np.array([5, 6], np.uint32), "x": np.zeros((4, 3))}
    found = evaluate(batched, inputs)
    assert found["alone"].shape == (4, 3) and len(np.unique(found["alone"])) == 12
    assert (found["used"] == found["alone"].astype(np.float32)).all()
    assert (found["alone"][0] == evaluate(graph, {"key": inputs["key"], "x": np.zeros(3)})["alone"]).all()
    with pytest.raises(MlaotError, match="one key"):
        batch(graph, dim("batch"), ["x"])


def test_writes_of_a_batch() -> None:
    graph = Graph("f")
    x, count = graph.input("x", f32[3]), graph.input("count", f32[()])
    graph.writes["count"] = ew.add(count, graph.constant(1.0, f32))
    assert batch(graph, dim("batch"), ["count"]).writes["count"].type == f32[()]
    graph.writes["count"] = ew.add(count, red.sum_(x, axes=(0,)))
    with pytest.raises(MlaotError, match="'count' cannot be written by each example"):
        batch(graph, dim("batch"), ["count"])


# -- the oracle --


def test_oracle_dims_anywhere() -> None:
    graph = Graph("f")
    x = graph.input("x", f32[2 * N + 1, M])
    graph.input("y", f32[M, 3])
    graph.outputs["y"] = st.slice_(x, start=(N, 0), size=(N + 1, M), step=(1, 1))
    graph.outputs["n"] = graph.add(st.size, (), {"dim": N, "dtype": i64})
    graph.outputs["hot"] = st.one_hot(graph.constant([1], i64), classes=N + M, dtype=u8)
    value = np.arange(14, dtype=np.float32).reshape(7, 2)
    found = evaluate(graph, {"x": value, "y": np.zeros((2, 3))})
    assert found["y"].tolist() == value[3:].tolist() and found["n"] == 3
    assert found["hot"].tolist() == [[0, 1, 0, 0, 0]]


def test_oracle_refuses_what_a_call_refuses() -> None:
    graph = Graph("f")
    x = graph.input("x", f32[N])
    graph.outputs["y"] = st.slice_(x, start=(N - 2,), size=(1,), step=(1,))
    assert evaluate(graph, {"x": [5.0, 6.0, 7.0]})["y"].tolist() == [6.0]
    with pytest.raises(MlaotError, match="n \\+ -2 must not be negative"):
        evaluate(graph, {"x": [5.0]})


def test_oracle_rounds_bf16_but_not_wide() -> None:
    graph = Graph("f")
    x, y = graph.input("x", bf16[3]), graph.input("y", f16[3])
    graph.outputs["x"] = ew.add(x, graph.constant([0.00390625] * 3, bf16))
    graph.outputs["y"] = red.sum_(y, axes=(0,))
    graph.outputs["i"] = graph.add(st.iota, (), {"shape": (300,), "axis": 0, "dtype": bf16})
    inputs = {"x": [1.0, 1.001, 2.0], "y": [1000.25, 1.0, 1.0]}
    found = evaluate(graph, inputs)
    assert found["x"].dtype == np.float32 and found["x"].tolist() == [1.0, 1.0, 2.0]
    assert found["y"].dtype == np.float16 and found["i"][257] == 256
    wide = evaluate(graph, inputs, wide=True)
    assert wide["x"].tolist() == [1.00390625, 1.00490625, 2.00390625] and wide["y"] == 1002.25
    assert wide["i"].dtype == np.float64 and wide["i"][257] == 257


def test_oracle_keeps_integers_when_wide() -> None:
    graph = Graph("f")
    key, x = graph.input("key", u32[2]), graph.input("x", i8[2])
    graph.outputs = {"bits": random_bits(key, shape=(4,), site=0), "sum": red.sum_(x, axes=(0,))}
    inputs = {"key": np.array([1, 2], np.uint32), "x": np.array([100, 100])}
    found, wide = evaluate(graph, inputs), evaluate(graph, inputs, wide=True)
    assert (found["bits"] == wide["bits"]).all() and wide["bits"].dtype == np.uint32
    assert found["sum"] == wide["sum"] == -56
