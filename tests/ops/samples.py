"""Arguments and attributes for every op of the registry, in many shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlaot.ir.types import Literal, f32, i8, i16, i64, u8
from mlaot.ops import structure as st
from mlaot.ops.axes import parse_spec

from . import samples_structure

Array = np.ndarray[Any, Any]

SHAPES: tuple[tuple[int, ...], ...] = (
    *((), (1,), (2,), (3,), (4,), (7,), (8,), (9,), (16,), (17,), (33,)),
    *((1, 1), (1, 5), (5, 1), (2, 3), (3, 8), (4, 16), (7, 9), (16, 17)),
    *((2, 3, 4), (1, 2, 9), (3, 1, 1), (2, 2, 2, 3), (1, 3, 1, 2)),
)
EXPONENTS = (0.0, 1.0, 2.0, 3.0, 4.0, 5.0, -1.0, -2.0, -3.0, -4.0, 0.5, -0.5, 1.5, 2.5)


@dataclass(frozen=True)
class Sample:
    """``args`` in float64 (labels and bits as int64, conditions as bool) and ``attrs`` of one use of an op."""

    args: tuple[Array, ...]
    attrs: dict[str, Any]


Make = Callable[[np.random.Generator], Iterator[Sample]]


def _unary(domain: Callable[[Array], Array]) -> Make:
    def make(rng: np.random.Generator) -> Iterator[Sample]:
        for shape in SHAPES:
            yield Sample((np.asarray(domain(rng.normal(size=shape))),), {})

    return make


def _many(*counts: int, positive: bool = False) -> Make:
    def make(rng: np.random.Generator) -> Iterator[Sample]:
        for i, shape in enumerate(SHAPES):
            args = [np.asarray(rng.normal(size=shape)) for _ in range(counts[i % len(counts)])]
            yield Sample(tuple([_apart(a) for a in args] if positive else args), {})

    return make


def _apart(x: Array) -> Array:
    """Away from 0, where poles and kinks are."""
    return np.asarray(x + np.where(x < 0, -0.3, 0.3))


def _positive(x: Array) -> Array:
    return np.asarray(np.abs(x) + 0.3)


def _inside(x: Array) -> Array:
    """Between -1 and 1, ends left out."""
    return np.asarray(0.95 * np.tanh(x))


def _above_one(x: Array) -> Array:
    return np.asarray(np.abs(x) + 1.3)


def _close(rng: np.random.Generator) -> Iterator[Sample]:
    """Numbers of which many are equal."""
    for shape in SHAPES:
        yield Sample(tuple(np.asarray(np.round(rng.normal(size=shape))) for _ in range(2)), {})


def _bases(rng: np.random.Generator) -> Iterator[Sample]:
    for shape in SHAPES:
        yield Sample((_positive(rng.normal(size=shape)), np.asarray(rng.normal(size=shape))), {})


def _discrete(count: int, *kinds: str) -> Make:
    """Integers and bools in turn, or one of them."""

    def make(rng: np.random.Generator) -> Iterator[Sample]:
        for i, shape in enumerate(SHAPES):
            low, high = (0, 2) if kinds[i % len(kinds)] == "bool" else (-70, 70)
            args = [np.asarray(rng.integers(low, high, shape)) for _ in range(count)]
            yield Sample(tuple(a.astype(kinds[i % len(kinds)]) for a in args), {})

    return make


def _choice(rng: np.random.Generator) -> Iterator[Sample]:
    for shape in SHAPES:
        values = [np.asarray(rng.normal(size=shape)) for _ in range(2)]
        yield Sample((np.asarray(rng.normal(size=shape) > 0), *values), {})


def _power(rng: np.random.Generator) -> Iterator[Sample]:
    for i, shape in enumerate(SHAPES * 2):
        exponent = EXPONENTS[i % len(EXPONENTS)]
        x = rng.normal(size=shape)
        yield Sample((_apart(x) if exponent == int(exponent) else _positive(x),), {"exponent": exponent})


def _cast(rng: np.random.Generator) -> Iterator[Sample]:
    for shape in SHAPES:
        yield Sample((np.asarray(rng.normal(size=shape)),), {"dtype": f32})


def _rounded(rng: np.random.Generator) -> Iterator[Sample]:
    for i, shape in enumerate(SHAPES):
        yield Sample((np.asarray(90 + 90 * rng.normal(size=shape)),), {"dtype": (u8, i8, i16)[i % 3]})


def _bytes(rng: np.random.Generator) -> Iterator[Sample]:
    """Bytes with each of whole, of several rows and windows, and words of signed ones."""
    shapes = (((3, 5), (5, 7), "ac,cb->ab"), ((5,), (5, 33), "c,cb->b"), ((2, 3, 4), (5, 3, 4, 16), "abc,dbce->ade"))
    for x, w, spec in (*shapes, ((4, 9), (9, 3), "ac,cb->ab"), ((7, 130), (130, 20), "ac,cb->ba")):
        words = rng.integers(-(2**31), 2**31, w, np.int32)
        small = rng.integers(-64, 65, (*w, 4), np.int8).view("<i4")[..., 0]
        for weights, pairs in ((words, False), (small, True)):
            yield Sample((rng.integers(0, 256, (*x, 4), np.uint8), weights), {"spec": spec, "pairs": pairs})


def _entries(rng: np.random.Generator) -> Iterator[Sample]:
    """Bytes with tensors of words, of which few bytes are listed."""
    shapes = (((3, 5), (5, 7), "ac,cb->ab"), ((5,), (5, 33), "c,cb->b"), ((2, 3, 4), (5, 3, 4, 16), "abc,dbce->ade"))
    for x, w, spec in (*shapes, ((4, 5), (3, 4, 5, 2), "cb,acbd->acd"), ((7, 130), (130, 20), "ac,cb->ba")):
        at = np.unravel_index(rng.choice(np.prod(w) * 4, 9, replace=False), (*w, 4))
        entries = np.column_stack([*at, rng.integers(-128, 128, 9)])
        attrs = {"spec": spec, "sizes": w, "entries": tuple(entries.reshape(-1).tolist())}
        yield Sample((rng.integers(0, 256, (*x, 4), np.uint8),), attrs)


def _groups(rng: np.random.Generator) -> Iterator[Sample]:
    """Numbers of no, one and two axes of rows, and words of fields of 8 and 4 bits, in one or several groups."""
    for rows, groups, words, columns, bits in (
        *(((), 2, 8, 33, 8), ((3,), 1, 8, 16, 8), ((2, 5), 3, 4, 20, 4), ((7,), 2, 4, 130, 4)),
        *(((4,), 5, 3, 3, 8), ((17,), 2, 1, 40, 4)),
    ):
        limit, dtype = (2**7, np.int8) if bits == 4 else (2**15, np.int16)
        x = rng.integers(-limit, limit, (*rows, groups, words, 32 // bits), dtype)
        y = rng.integers(-(2**31), 2**31, (groups, words, columns), np.int32)
        scales = (rng.normal(size=shape).astype(np.float32) for shape in ((groups, columns), (*rows, groups)))
        starts = [-8 * x.sum(axis=(-2, -1), dtype=np.int32)] if bits == 4 else []
        yield Sample((x, y, *scales, *starts), {"bits": bits})


def _columns(rng: np.random.Generator) -> Iterator[Sample]:
    """Columns of words of fields of 8 and 4 bits: one, some, and some twice or from the end."""
    for shape, groups, words, columns, bits in (
        *(((), 2, 8, 33, 8), ((5,), 1, 4, 16, 4), ((2, 3), 3, 4, 20, 4)),
        *(((0,), 2, 8, 3, 8), ((40,), 1, 1, 1, 4), ((9,), 5, 8, 300, 8)),
    ):
        x = rng.integers(-(2**31), 2**31, (groups, words, columns), np.int32)
        scales = rng.normal(size=(groups, columns)).astype(np.float32)
        yield Sample((x, scales, rng.integers(-columns, columns, shape)), {"bits": bits})


def _rows_of_float32(rng: np.random.Generator) -> Iterator[Sample]:
    yield from (s for s in _unary(lambda x: x.astype(np.float32))(rng) if s.args[0].ndim)


def _bitcast(rng: np.random.Generator) -> Iterator[Sample]:
    for shape in SHAPES:
        yield Sample((np.asarray(rng.normal(size=shape)),), {"dtype": i64})


def _reduction(rng: np.random.Generator) -> Iterator[Sample]:
    for shape in SHAPES:
        rank = len(shape)
        for axes in {(rank - 1,), (0,), tuple(range(rank)), (0, rank - 1)}:
            if rank and list(axes) == sorted(set(axes)):
                yield Sample((rng.normal(size=shape),), {"axes": axes})


SPECS = (
    *("a,a->", "a,b->ab", "ab,b->a", "ab,a->b", "ba,b->a", "ab,cb->ac", "ab,bc->ac", "ab,bc->ca", "ab,ab->"),
    *("ab,ab->a", "ab,ab->ab", "ab,b->ab", "abc,c->ab", "abc,dc->abd", "abc,adc->abd", "ab,cd->abcd"),
    *("abc,bad->cd", "a,->a", ",->", "ab,b->", "ab,c->ac", "abcd,cd->ba"),
)


def _contract(rng: np.random.Generator) -> Iterator[Sample]:
    for i, spec in enumerate(SPECS):
        first, second = spec.split("->")[0].split(",")
        for sizes in ((3, 4, 5, 2), (8, 16, 7, 3), (1, 9, 17, 5)):
            size = {c: sizes[(k + i) % 4] for k, c in enumerate("abcd")}
            args = tuple(np.asarray(rng.normal(size=[size[c] for c in labels])) for labels in (first, second))
            yield Sample(args, {"spec": spec})


def _differences(rng: np.random.Generator) -> Iterator[Sample]:
    for sample in _contract(rng):
        first, second, out = parse_spec(sample.attrs["spec"])
        if {*first, *second} - {*out} <= {*first} & {*second}:
            yield from (Sample(sample.args, {**sample.attrs, "power": power}) for power in (1, 2))


def _broadcast(rng: np.random.Generator) -> Iterator[Sample]:
    for shape in SHAPES:
        if len(shape) > 3:
            continue
        for at in range(len(shape) + 1):
            new = (*shape[:at], 3, *shape[at:])
            axes = tuple(i for i in range(len(new)) if i != at)
            yield Sample((np.asarray(rng.normal(size=shape)),), {"shape": new, "axes": axes})


def _transpose(rng: np.random.Generator) -> Iterator[Sample]:
    for shape in SHAPES:
        perm = tuple(int(i) for i in rng.permutation(len(shape)))
        yield Sample((np.asarray(rng.normal(size=shape)),), {"perm": perm})


def _reshape(rng: np.random.Generator) -> Iterator[Sample]:
    for shape in SHAPES:
        size = int(np.prod(shape, dtype=np.int64))
        for new in {(size,), (1, size), (size, 1), shape[::-1], shape}:
            yield Sample((np.asarray(rng.normal(size=shape)),), {"shape": new})


def _take(rng: np.random.Generator) -> Iterator[Sample]:
    for shape in SHAPES:
        for lead in {0, len(shape) // 2, len(shape)}:
            size = int(np.prod(shape[lead:], dtype=np.int64))
            for index in ((), (1,), (3,), (2, 4)):
                indices = st.indices(rng.integers(0, size, index))
                yield Sample((np.asarray(rng.normal(size=shape)),), {"indices": indices, "lead": lead})


def _put_add(rng: np.random.Generator) -> Iterator[Sample]:
    for shape in SHAPES:
        for lead in {0, len(shape) // 2, len(shape)}:
            for target in ((4,), (2, 3), ()):
                indices = st.indices(rng.integers(0, int(np.prod(target, dtype=np.int64)), shape[lead:]))
                x = np.asarray(rng.normal(size=shape))
                yield Sample((x,), {"indices": indices, "lead": lead, "shape": target})


def _item(rng: np.random.Generator) -> Iterator[Sample]:
    for shape in SHAPES:
        index = int(rng.integers(0, int(np.prod(shape, dtype=np.int64))))
        yield Sample((np.asarray(rng.normal(size=shape)),), {"index": index})


def _stack(rng: np.random.Generator) -> Iterator[Sample]:
    for i, shape in enumerate(SHAPES):
        if len(shape) < 4:
            args = tuple(np.asarray(rng.normal(size=shape)) for _ in range(1 + i % 4))
            yield Sample(args, {"axis": len(shape)})


def _concat(rng: np.random.Generator) -> Iterator[Sample]:
    for i, shape in enumerate(SHAPES):
        if shape:
            args = tuple(rng.normal(size=(*shape[:-1], shape[-1] + k)) for k in range(1 + i % 3))
            yield Sample(args, {"axis": len(shape) - 1})


def _one_hot(rng: np.random.Generator) -> Iterator[Sample]:
    for shape in SHAPES:
        if len(shape) < 4:
            yield Sample((np.asarray(rng.integers(0, 5, shape)),), {"classes": 5, "dtype": f32})


def _index(rng: np.random.Generator) -> Iterator[Sample]:
    for shape in SHAPES:
        yield Sample((np.asarray(rng.integers(-5, 5, shape)),), {"size": 5, "wraps": True, "ignored": None})


def _const(rng: np.random.Generator) -> Iterator[Sample]:
    for shape in SHAPES:
        yield Sample((), {"value": Literal(rng.normal(size=shape), f32)})
    yield Sample((), {"value": Literal(rng.integers(0, 5, (3,)), i64)})


def _size(rng: np.random.Generator) -> Iterator[Sample]:
    for n in (0, 1, 7):
        yield Sample((), {"dim": n, "dtype": f32})


SAMPLES: dict[str, Make] = {
    "add": _many(2, 3, 5),
    "sub": _many(2),
    "mul": _many(2),
    "div": _many(2, positive=True),
    "is_equal": _many(2),
    "maximum": _many(2, 3),
    "minimum": _many(2, 4),
    "copy": _unary(np.asarray),
    "stop_gradient": _unary(np.asarray),
    "sparse": _unary(np.asarray),
    "neg": _unary(np.asarray),
    "exp": _unary(np.asarray),
    "tanh": _unary(np.asarray),
    "log": _unary(_positive),
    "sqrt": _unary(_positive),
    "abs": _unary(_apart),
    "sign": _unary(_apart),
    "relu": _unary(_apart),
    "step": _unary(_apart),
    "pow": _power,
    "cast": _cast,
    "widen": _rows_of_float32,
    "bitcast": _bitcast,
    "quantize": _rounded,
    "contract_bytes": _bytes,
    "contract_entries": _entries,
    "contract_groups": _groups,
    "gather_groups": _columns,
    **dict.fromkeys(("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"), _close),
    **dict.fromkeys(("isnan", "isinf", "isfinite", "signbit"), _unary(np.asarray)),
    "where": _choice,
    **dict.fromkeys(("bitwise_and", "bitwise_or", "bitwise_xor"), _discrete(2, "int64", "bool")),
    "bitwise_not": _discrete(1, "int64", "bool"),
    **dict.fromkeys(("left_shift", "right_shift"), _discrete(2, "int64")),
    **dict.fromkeys(("floor", "ceil", "trunc", "round", "rounded"), _unary(np.asarray)),
    **dict.fromkeys(("round_f16", "round_bf16"), _unary(lambda x: (np.round(x * 16) + 0.5) / 16)),  # far from a jump
    **dict.fromkeys(("floor_divide", "remainder", "fmod", "copysign", "hypot", "atan2"), _many(2, positive=True)),
    "nextafter": _many(2),
    "power": _bases,
    "normal_quantile": _unary(lambda x: np.asarray(0.5 + 0.45 * np.tanh(x))),
    **dict.fromkeys(("exp2", "expm1", "sin", "cos", "sinh", "cosh", "asinh", "atan", "sigmoid"), _unary(np.asarray)),
    **dict.fromkeys(("tan", "asin", "acos", "atanh", "erfinv"), _unary(_inside)),
    **dict.fromkeys(("log2", "log10", "log1p"), _unary(_positive)),
    "acosh": _unary(_above_one),
    **dict.fromkeys(("softplus", "erf", "erfc"), _unary(np.asarray)),
    "sum": _reduction,
    "max": _reduction,
    "min": _reduction,
    "contract": _contract,
    "contract_differences": _differences,
    "broadcast": _broadcast,
    "transpose": _transpose,
    "reshape": _reshape,
    "take": _take,
    "put_add": _put_add,
    "item": _item,
    "stack": _stack,
    "concat": _concat,
    "one_hot": _one_hot,
    "index": _index,
    "const": _const,
    "size": _size,
}


SAMPLES |= samples_structure.SAMPLES

# Passes make them of float32, when gradients, batches and layouts are there.
LATE = ("contract_entries", "contract_groups", "gather_groups", "widen")


def samples(name: str) -> list[Sample]:
    """The samples of an op, the same on every run."""
    return list(SAMPLES[name](np.random.default_rng(sum(name.encode()))))
