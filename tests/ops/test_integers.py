"""Integers, bools and conversions: the reference against Python's unbounded integers, and the C against the reference.

All of the C is one file, compiled with every warning about conversions and run under the undefined-behaviour sanitizer.
"""

from __future__ import annotations

import ctypes
import math
import operator
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlaot.errors import MlaotError
from mlaot.ir import Type
from mlaot.ir.types import DTYPES, DType, bf16, boolean, f16, f32, f64, round_bf16
from mlaot.nest.expressions import FULL_VECTOR, ValueType, Var
from mlaot.ops import OPS
from mlaot.printing.helpers import preamble
from mlaot.printing.spelling import C_NAMES, Speller, literal
from mlaot.schedule.machine import BASE

Array = np.ndarray[Any, Any]

INTEGERS = [d for d in DTYPES.values() if d.kind in "iu"]
FLAGS = (
    *("-std=gnu11", "-O1", "-fPIC", "-shared", "-Wall", "-Wextra", "-Wconversion", "-Werror"),
    *("-fsanitize=undefined,float-cast-overflow", "-fno-sanitize-recover=all"),
)
MEMORY = {**C_NAMES, "bool": "uint8_t", "f16": "uint16_t", "bf16": "uint16_t"}


def wrapped(value: int, dtype: DType) -> int:
    """The number of ``dtype`` with the same low bits."""
    bits = 8 * dtype.itemsize
    low = int(value % 2**bits)
    return low - 2**bits if dtype.kind == "i" and low >= 2 ** (bits - 1) else low


def cut(value: float, low: int, high: int) -> int:
    """A float without its fraction, between ``low`` and ``high``; 0 for nan."""
    if math.isnan(value):
        return 0
    return min(max(int(max(min(value, 1e300), -1e300)), low), high)


def _power(x: int, y: int, bits: int) -> int:
    if y >= 0:
        return int(pow(x, y, 2**bits))
    return {1: 1, -1: 1 if y % 2 == 0 else -1}.get(x, 0)


def _left(x: int, y: int, bits: int) -> int:
    return x << y if 0 <= y < bits else 0


def _right(x: int, y: int, bits: int) -> int:
    return x >> (y if 0 <= y < bits else bits)


MODELS: dict[str, Callable[..., int]] = {
    "add": lambda x, y, bits: x + y,
    "sub": lambda x, y, bits: x - y,
    "mul": lambda x, y, bits: x * y,
    "maximum": lambda x, y, bits: max(x, y),
    "minimum": lambda x, y, bits: min(x, y),
    "is_equal": lambda x, y, bits: x == y,
    "floor_divide": lambda x, y, bits: x // y if y else 0,
    "remainder": lambda x, y, bits: x % y if y else 0,
    "fmod": lambda x, y, bits: int(math.copysign(1, x)) * (abs(x) % abs(y)) if y else 0,
    "power": _power,
    "left_shift": _left,
    "right_shift": _right,
    "bitwise_and": lambda x, y, bits: x & y,
    "bitwise_or": lambda x, y, bits: x | y,
    "bitwise_xor": lambda x, y, bits: x ^ y,
    "bitwise_not": lambda x, bits: ~x,
    "neg": lambda x, bits: -x,
    "abs": lambda x, bits: abs(x),
    "sign": lambda x, bits: (x > 0) - (x < 0),
    "relu": lambda x, bits: max(x, 0),
    "step": lambda x, bits: x > 0,
    "copy": lambda x, bits: x,
}
COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "equal": operator.eq,
    "not_equal": operator.ne,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
}
LOGIC = ("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "equal", "not_equal", "copy")
EXPONENTS = (0, 1, 2, 3, 4, 5, 127)


def extremes(dtype: DType) -> Array:
    """Numbers at which integer arithmetic goes wrong; floats around the ends of integer types, and halves."""
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.kind in "iu":
        info = np.iinfo(dtype.numpy)
        bits = 8 * dtype.itemsize
        around = {s * n for s in (1, -1) for n in (0, 1, 2, 3, 5, 7, 10, 31, bits - 1, bits, bits + 1, 63, 64, 100)}
        ends = {info.min, info.min + 1, info.max, info.max - 1, info.max // 2, info.max // 2 + 1, info.min // 2}
        return np.array(sorted(n for n in around | ends if info.min <= n <= info.max), dtype.numpy)
    with np.errstate(over="ignore"):
        powers = np.array([2.0**b for b in (7, 8, 15, 16, 31, 32, 63, 64)], dtype.numpy)
        small = [0.0, 0.49, 0.5, 0.51, 1.0, 1.5, 2.5, 3.99, 1e-40, 6e-8, 2.9802322387695312e-08, 3e-8, 1e-5, 1e10]
        halves = [65504.0, 65519.0, 65520.0, 1 + 2.0**-11, 1 + 2.0**-11 + 2.0**-30, 1 + 3 * 2.0**-11, 1 + 2.0**-8]
        limits = [2.0**-14 * (1 - 2.0**-12), 3.3895314e38, 1e300, np.inf, np.nan]
        near = [e for end in powers for e in (end, np.nextafter(end, np.inf), np.nextafter(end, -np.inf))]
        positive = np.array([*near, *small, *halves, *limits], dtype.numpy)
        return dtype.array(np.concatenate([positive, -positive]))


def pairs(dtype: DType) -> tuple[Array, Array]:
    x, y = np.meshgrid(extremes(dtype), extremes(dtype))
    return x.reshape(-1), y.reshape(-1)


def reference(name: str, *args: Array, **attrs: Any) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(OPS[name].reference(*args, **attrs))


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_integers_are_the_model(name: str, dtype: DType) -> None:
    """Python's integers, wrapped around where the dtype ends; scalars as well as arrays."""
    model = MODELS[name]
    args = pairs(dtype) if model.__code__.co_argcount == 3 else (extremes(dtype),)
    expected = [wrapped(int(model(*map(int, a), 8 * dtype.itemsize)), dtype) for a in zip(*args, strict=True)]
    found = reference(name, *args)
    assert found.dtype == dtype.numpy and found.tolist() == expected
    at = range(0, len(expected), 17)
    single = [reference(name, *[np.asarray(a[i]) for a in args]) for i in at]
    assert [s.item() for s in single] == [expected[i] for i in at]
    assert {s.dtype.name for s in single} == {dtype.numpy}


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_comparisons_and_constant_powers_are_the_model(dtype: DType) -> None:
    x, y = pairs(dtype)
    for name, compare in COMPARISONS.items():
        found = reference(name, x, y)
        assert found.dtype == bool
        assert found.tolist() == [compare(int(a), int(b)) for a, b in zip(x, y, strict=True)]
    for exponent in EXPONENTS:
        expected = [wrapped(int(a) ** exponent, dtype) for a in extremes(dtype)]
        assert reference("pow", extremes(dtype), exponent=exponent).tolist() == expected


@pytest.mark.parametrize("target", INTEGERS, ids=str)
def test_conversion_to_integers_is_the_model(target: DType) -> None:
    """Integers wrap around; floats are cut to whole numbers, and end where the dtype ends."""
    info = np.iinfo(target.numpy)
    for source in DTYPES.values():
        values = extremes(source)
        if source.kind == "f":
            expected = [cut(float(v), info.min, info.max) for v in values]
        else:
            expected = [wrapped(int(v), target) for v in values]
        found = reference("cast", values, dtype=target)
        assert found.dtype == target.numpy and found.tolist() == expected, source


def test_conversion_to_bools_and_from_them() -> None:
    assert reference("cast", np.array([0.0, -0.0, 1e-40, np.nan]), dtype=boolean).tolist() == [False, False, True, True]
    assert reference("cast", np.array([0, -3, 256]), dtype=boolean).tolist() == [False, True, True]
    for dtype in DTYPES.values():
        found = reference("cast", np.array([False, True]), dtype=dtype)
        assert found.dtype == dtype.numpy and found.tolist() == [0, 1]


def test_conversion_between_floats_rounds_to_even() -> None:
    tie = np.array([1 + 2.0**-11, 1 + 2.0**-11 + 2.0**-40, 1 + 3 * 2.0**-11, 65519.9, 65520.0])
    assert reference("cast", tie, dtype=f16).tolist() == [1, 1 + 2.0**-10, 1 + 2.0**-9, 65504, np.inf]
    tie = np.array([1 + 2.0**-8, 1 + 3 * 2.0**-8, 3.4e38, np.nan])
    found = reference("cast", tie, dtype=DTYPES["bf16"])
    assert found.dtype == np.float32 and found[:3].tolist() == [1, 1 + 2.0**-6, np.inf] and np.isnan(found[3])


@dataclass
class Case:
    """One loop of the C file: an op, the dtypes of its arguments and result, and the numbers it is tried on."""

    name: str
    args: tuple[Array, ...]
    sources: tuple[DType, ...]
    target: DType
    attrs: dict[str, Any]

    @property
    def symbol(self) -> str:
        kinds = [s.name for s in self.sources]
        return "_".join(["test", self.name, *kinds, *(str(v).replace("-", "m") for v in self.attrs.values())])

    def c(self) -> str:
        """``y[i] = expression``, over arrays."""
        names = "abc"[: len(self.args)]
        pointers = [f"const {MEMORY[s.name]} *{n}_" for n, s in zip(names, self.sources, strict=True)]
        loads = [
            f"const {'int' if s is boolean else MEMORY[s.name]} {n} = {n}_[i];"
            for n, s in zip(names, self.sources, strict=True)
        ]
        expression = c_text(self.name, names, self.sources[-1].name, **self.attrs)
        value = f"({MEMORY['bool']})({expression})" if self.target is boolean else expression
        body = "\n        ".join([*loads, f"y[i] = {value};"])
        parameters = f"ptrdiff_t n, {', '.join(pointers)}, {MEMORY[self.target.name]} *y"
        head = f"void {self.symbol}({parameters})"
        return f"{head};\n{head}\n{{\n    for (ptrdiff_t i = 0; i < n; i++) {{\n        {body}\n    }}\n}}\n"


def case(name: str, source: DType, args: tuple[Array, ...], **attrs: Any) -> Case:
    sources = tuple(boolean if a.dtype == bool else source for a in args)
    target = OPS[name].type_rule(*[Type(s, a.shape) for s, a in zip(sources, args, strict=True)], **attrs).dtype
    return Case(name, args, sources, target, attrs)


def cases() -> dict[str, Case]:
    found = []
    for dtype in INTEGERS:
        both, one = pairs(dtype), (extremes(dtype),)
        found += [case(n, dtype, both if m.__code__.co_argcount == 3 else one) for n, m in MODELS.items()]
        found += [case("pow", dtype, one, exponent=e) for e in EXPONENTS]
    for dtype in [*INTEGERS, f32, f64]:
        found += [case(n, dtype, pairs(dtype)) for n in COMPARISONS]
    for dtype in [*INTEGERS, boolean]:
        x, y = pairs(dtype)
        found += [case("where", dtype, (np.arange(x.size) % 3 == 0, x, y))]
    found += [
        case(n, boolean, pairs(boolean) if n not in ("bitwise_not", "copy") else (extremes(boolean),)) for n in LOGIC
    ]
    found += [case("isnan", dtype, (extremes(dtype),)) for dtype in (f32, f64)]
    for source, target in product(DTYPES.values(), DTYPES.values()):
        found.append(case("cast", source, (extremes(source),), dtype=target))
        if source.itemsize == target.itemsize and target is not boolean:
            found.append(case("bitcast", source, (extremes(source),), dtype=target))
    return {c.symbol: c for c in found}


CASES = cases()


def stored(values: Array, dtype: DType) -> Array:
    """As they lie in memory."""
    if dtype.name == "bf16":
        return (round_bf16(values).view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    return values.astype(dtype.numpy)


def loaded(values: Array, dtype: DType) -> Array:
    if dtype.name == "bf16":
        return (values.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return values


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = Path(tmp_path_factory.mktemp("integers"))
    loops = "\n".join(c.c() for c in CASES.values())
    source = folder / "integers.c"
    source.write_text(f"#include <stddef.h>\n#include <stdint.h>\n\n{preamble(loops, BASE)}\n{loops}")
    command = ["gcc", *FLAGS, str(source), "-o", str(folder / "integers.so")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]
    return ctypes.CDLL(str(folder / "integers.so"))


def call(library: ctypes.CDLL, symbol: str, *arrays: Array) -> None:
    """Run one loop; the last array is its result."""
    pointers = [ctypes.c_void_p(np.ascontiguousarray(a).ctypes.data) for a in arrays]
    getattr(library, symbol)(ctypes.c_ssize_t(arrays[-1].size), *pointers)


@pytest.mark.parametrize("name", sorted({c.name for c in CASES.values()}))
def test_c_is_the_reference(name: str, library: ctypes.CDLL) -> None:
    for symbol, one in CASES.items():
        if one.name != name:
            continue
        arrays = [stored(a, s) for a, s in zip(one.args, one.sources, strict=True)]
        result = np.zeros(one.args[0].size, "uint16" if one.target.name == "bf16" else one.target.numpy)
        call(library, symbol, *arrays, result)
        expected, found = reference(name, *one.args, **one.attrs), loaded(result, one.target)
        np.testing.assert_array_equal(found, expected, err_msg=symbol)
        np.testing.assert_array_equal(np.signbit(found), np.signbit(expected), err_msg=symbol)


@pytest.mark.parametrize("dtype", (f16, bf16), ids=str)
def test_every_half_is_converted(dtype: DType, library: ctypes.CDLL) -> None:
    """All bit patterns to f32; back from there, and from the numbers halfway to the next and beside it."""
    bits = np.arange(2**16, dtype=np.uint16)
    wide = np.zeros(bits.size, np.float32)
    call(library, f"test_cast_{dtype}_f32", bits, wide)
    expected = bits.view(np.float16).astype(np.float32) if dtype is f16 else loaded(bits, dtype)
    np.testing.assert_array_equal(wide, expected)
    finite = wide[np.isfinite(wide)].astype(np.float64)
    between = (finite[:-1] + finite[1:]) / 2
    near = np.concatenate([finite, between, np.nextafter(between, np.inf), np.nextafter(between, -np.inf)])
    for source in (f32, f64):
        values = near.astype(source.numpy)
        back = np.zeros(values.size, np.uint16)
        call(library, f"test_cast_{source}_{dtype}", values, back)
        found = back.view(np.float16) if dtype is f16 else loaded(back, dtype)
        np.testing.assert_array_equal(found, reference("cast", values, dtype=dtype))


def test_literals_are_exact() -> None:
    """As text that C reads as the same number and, where it matters, type."""
    assert literal(-(2**31), "i32") == "(-2147483647 - 1)"
    assert literal(-(2**63), "i64") == "(-9223372036854775807ll - 1)"
    assert literal(2**63 - 1, "i64") == "9223372036854775807ll"
    assert literal(2**64 - 1, "u64") == "18446744073709551615ull"
    assert literal(2**32 - 1, "u32") == "4294967295u"
    assert [literal(v, "i8") for v in (-128, 127)] == ["-128", "127"]
    assert [literal(v, "bool") for v in (False, True)] == ["0", "1"]
    assert [literal(v, "f16") for v in (1.0, -2.0, np.inf, 2.0**-24)] == ["0x3C00", "0xC000", "0x7C00", "0x0001"]
    assert [literal(v, "bf16") for v in (1.0, -2.0, np.inf)] == ["0x3F80", "0xC000", "0x7F80"]


def test_helpers_are_those_that_are_called() -> None:
    text = preamble("const int8_t v0 = remainder_i8(a, b);\nv1 = unknown_i8(v0);", BASE)
    nothing = preamble("v1 = a + b;", BASE)
    assert text.count("\nINLINE ") == nothing.count("\nINLINE ") + 2
    assert text.index("fmod_i8(int8_t a") < text.index("remainder_i8(int8_t a")


def c_text(name: str, args: Sequence[str], t: str, **attrs: Any) -> str:
    c = OPS[name].c
    assert c is not None
    type_ = ValueType(t.removesuffix("v"), FULL_VECTOR if t.endswith("v") else 1)
    return Speller(0)(c([Var(name, type_) for name in args], **attrs))


def test_masks_and_truth_values() -> None:
    """Bools are 0 and 1 in scalar code, 0 and -1 in each lane of vectors."""
    assert [c_text("bitwise_not", "a", t) for t in ("bool", "m32v", "u8", "i32")] == ["!a", "~a", "(uint8_t)~a", "~a"]
    assert c_text("cast", "m", "m32v", dtype=f32) == "select_f32v(m, splat_f32v(1.0f), splat_f32v(0.0f))"
    assert c_text("cast", "x", "f32v", dtype=boolean) == "x != splat_f32v(0.0f)"
    assert c_text("cast", "m", "m64v", dtype=boolean) == "m"
    assert c_text("where", "mab", "f32v") == "select_f32v(m, a, b)"
    assert c_text("where", "mab", "m32v") == "(m & a) | (~m & b)"
    with pytest.raises(MlaotError):
        OPS["greater"].type_rule(boolean[3], boolean[3])
