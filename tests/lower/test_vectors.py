"""Every vector helper, on every instruction set that this machine has, against NumPy in higher precision."""

from __future__ import annotations

import ctypes
import fcntl
import math
import mmap
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlaot.ir.types import round_bf16
from mlaot.printing.helpers import preamble
from mlaot.printing.spelling import MEMORY
from mlaot.printing.vectors import FAST
from mlaot.schedule.machine import MACHINES, Machine

from ..compiled import AVAILABLE, CC
from .accuracy import ULP
from .ulp import BINARY, FUNCTIONS, UNARY, farthest, oracle, random_points, true_values

FLAGS = (
    *("-std=gnu11", "-O2", "-fno-math-errno", "-fno-trapping-math"),
    *("-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"),
)
CONTRACT = ("fast", "off")
FLOATS = ("f32", "f64")
NUMBERS = (*FLOATS, "i32", "i64")
NUMPY: dict[str, Any] = {
    "f32": np.float32,
    "f64": np.float64,
    "i32": np.int32,
    "i64": np.int64,
    "i8": np.int8,
    "u8": np.uint8,
    "bool": np.uint8,
}
WIDE: dict[str, Any] = {"f32": np.float64, "f64": np.longdouble}
POINTS = 60_000

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # overflow, nan, .. are what is tested

Array = np.ndarray[Any, Any]
C = Callable[..., Any]

# The special values of what NumPy does not have.
OWN: dict[str, C] = {
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "softplus": lambda x: np.logaddexp(x, 0),
    "erf": np.vectorize(math.erf),
    "erfc": np.vectorize(math.erfc),
    "erfinv": lambda x: np.where(np.abs(x) < 1, x, np.where(np.abs(x) == 1, x * np.inf, np.nan)),
}
EXACT: dict[str, C] = {
    "relu": lambda x: np.where(x < 0, np.zeros_like(x), x),
    "step": lambda x: (x > 0).astype(x.dtype),
    "abs": np.abs,
    "sign": np.sign,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "round": np.rint,
    "isnan": lambda x: np.isnan(x).astype(x.dtype),
}
HALVES: dict[str, C] = {
    "round_f16": lambda x: x.astype(np.float16).astype(x.dtype),
    "round_bf16": lambda x: round_bf16(x.astype(np.float32)).astype(x.dtype),
}
EXACT_BINARY: dict[str, C] = {
    "max": np.maximum,
    "min": np.minimum,
    "copysign": np.copysign,
    "nextafter": np.nextafter,
    "fmod": np.fmod,
    "remainder": np.remainder,
    "floor_divide": np.floor_divide,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
COMBINE: dict[str, C] = {"sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min}
CONVERTED = [(a, b) for a in ("i8", "u8", "bool", "i32", "i64", *FLOATS) for b in FLOATS if a != b]


def lanes(isa: Machine, dtype: str) -> int:
    return isa.bytes // int(np.dtype(NUMPY[dtype]).itemsize)


def source(isa: Machine) -> str:
    """Exported functions over arrays, for every helper."""
    text = []

    def function(name: str, parameters: str, body: str, result: str = "void") -> None:
        text.append(f"{result} test_{name}({parameters});\n{result} test_{name}({parameters})\n{{\n    {body}\n}}\n")

    def loop(name: str, parameters: str, body: str, by: int) -> None:
        function(name, f"ptrdiff_t n, {parameters}", f"for (ptrdiff_t i = 0; i < n; i += {by}) {{ {body}; }}")

    for dtype in FLOATS:
        c, v, m = MEMORY[dtype], f"{dtype}v", f"i{dtype[1:]}v"
        for f in [*UNARY, *EXACT, *HALVES]:
            loop(f"{f}_{v}", f"const {c} *x, {c} *y", f"store_{v}(y + i, {f}_{v}(load_{v}(x + i)))", lanes(isa, dtype))
            loop(f"{f}_{dtype}", f"const {c} *x, {c} *y", f"y[i] = {f}_{dtype}(x[i])", 1)
        for f in [*BINARY, *EXACT_BINARY]:
            parameters = f"const {c} *a, const {c} *b, {c} *y"
            body = f"store_{v}(y + i, {f}_{v}(load_{v}(a + i), load_{v}(b + i)))"
            loop(f"{f}_{v}", parameters, body, lanes(isa, dtype))
            loop(f"{f}_{dtype}", parameters, f"y[i] = {f}_{dtype}(a[i], b[i])", 1)
        for f in COMBINE:
            function(f"{f}_lanes_{v}", f"const {c} *x, {c} *y", f"*y = {f}_lanes_{v}(load_{v}(x));")
        for form, t in ((v, v), (c, dtype)):
            value = f"load_{v}(x)" if form == v else "*x"
            store = f"store_{v}(y, {{}});".format if form == v else "*y = {};".format
            parameters = f"ptrdiff_t n, const {c} *x, {c} *y"
            function(f"first_{t}", parameters, store(f"first_{t}({value}, n, 7)"))
            function(f"select_{t}", parameters, "(void)n; " + store(f"select_{t}({value} > 0, {value}, splat_{t}(9))"))
        function(f"lane_{v}", f"ptrdiff_t n, {c} *y", f"store_{v}(y, lane_{v}(n));")
        function(f"any_{v}", f"const {c} *x", f"const {m} mask = load_{v}(x) > 0; return any_{v}(mask);", "int")
        n = lanes(isa, dtype)
        body = " ".join(f"square[{i}] = load_{v}(x + {i * n});" for i in range(n))
        body = f"{v} square[{n}]; {body} transpose_{v}(square); "
        body += " ".join(f"store_{v}(y + {i * n}, square[{i}]);" for i in range(n))
        function(f"transpose_{v}", f"const {c} *x, {c} *y", body)
    for dtype in NUMBERS:
        c, v = MEMORY[dtype], f"{dtype}v"
        copy = f"ptrdiff_t n, ptrdiff_t stride, const {c} *x, {c} *y"
        function(f"copy_{v}", copy, f"(void)n; (void)stride; store_{v}(y, load_{v}(x));")
        function(f"copy_part_{v}", copy, f"(void)stride; store_part_{v}(y, n, load_part_{v}(x, n));")
        function(f"copy_three_{v}", copy, f"(void)n; (void)stride; store_part_{v}(y, 3, load_part_{v}(x, 3));")
        function(f"copy_strided_{v}", copy, f"(void)n; scatter_{v}(y, stride, gather_{v}(x, stride));")
        function(f"copy_strided_part_{v}", copy, f"scatter_part_{v}(y, stride, n, gather_part_{v}(x, stride, n));")
        function(f"load_part_{v}", f"ptrdiff_t n, const {c} *x, {c} *y", f"store_{v}(y, load_part_{v}(x, n));")
        function(f"splat_{v}", f"const {c} *x, {c} *y", f"store_{v}(y, splat_{v}(*x));")
    for a, b in CONVERTED:
        convert = f"ptrdiff_t n, ptrdiff_t stride, const {MEMORY[a]} *x, {MEMORY[b]} *y"
        arguments = {"load": "", "load_part": ", n", "gather": ", stride", "gather_part": ", stride, n"}
        for f, more in arguments.items():
            body = f"(void)n; (void)stride; store_{b}v(y, {f}_{a}_as_{b}v(x{more}));"
            function(f"{f}_{a}_as_{b}v", convert, body)
    body = "\n".join(text)
    return f"{preamble(body, isa)}\n{body}"


class Library:
    """The helpers compiled for one instruction set."""

    def __init__(self, isa: Machine, contract: str, folder: Path) -> None:
        self.isa, self.contract = isa, contract
        file = folder / f"vectors_{isa.name}_{contract}.c"
        self.path = file.with_suffix(".so")
        with open(folder / "lock", "w") as lock:  # several test processes share the folder: the first one compiles
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not self.path.exists():
                # Modules that are deterministic are compiled so, and have functions of their own.
                file.write_text(source(replace(isa, deterministic=contract == "off")))
                command = [CC, *FLAGS, f"-ffp-contract={contract}", *isa.flags, str(file), "-o", str(self.path)]
                subprocess.run(command, check=True)
        self.handle = ctypes.CDLL(str(self.path))

    def call(self, name: str, *arguments: int | Array) -> int:
        """Integers as ``ptrdiff_t``, arrays as pointers."""
        values = [ctypes.c_ssize_t(a) if isinstance(a, int) else ctypes.c_void_p(a.ctypes.data) for a in arguments]
        return int(self.handle[f"test_{name}"](*values))

    def map(self, name: str, *arrays: Array) -> Array:
        out = np.empty_like(arrays[0])
        assert len(out) % 16 == 0
        self.call(name, len(out), *arrays, out)
        return out


@pytest.fixture(scope="session")
def libraries(shared_folder: Path) -> Mapping[tuple[str, str], Library]:
    folder = shared_folder / "vectors"
    folder.mkdir(exist_ok=True)
    return {(n, c): Library(MACHINES[n], c, folder) for n in AVAILABLE for c in CONTRACT}


@pytest.fixture(params=[(n, c) for n in AVAILABLE for c in CONTRACT], ids="-".join)
def library(request: pytest.FixtureRequest, libraries: Mapping[tuple[str, str], Library]) -> Library:
    return libraries[request.param]


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return oracle(tmp_path_factory.mktemp("oracle"))


def special(dtype: str) -> Array:
    info = np.finfo(NUMPY[dtype])
    values = [0, 1, 0.5, 2, 3, 1e-30, 1e30, 33, 1.5, 0.1, 1e-3, 80, 700, 2.0**20, 2.0**24, 2.0**24 - 1, 2.0**53]
    values += [2.0**53 + 2, np.inf, np.nan, info.max, 1 - info.epsneg, 1 + info.eps]
    values += [info.tiny, info.tiny / 3, info.smallest_subnormal]
    return np.array([*values, *[-x for x in values]]).astype(NUMPY[dtype])


def points(name: str, dtype: str) -> tuple[Array, ...]:
    """Special values (with each other, of two arguments), then random ones."""
    x, y = random_points(name, dtype, POINTS, 7)
    if name not in BINARY:
        return (whole(special(dtype), x),)
    a, b = np.meshgrid(special(dtype), special(dtype))
    return whole(a.ravel(), x), whole(b.ravel(), y)


def whole(*parts: Array) -> Array:
    """As one array of a length that every vector divides."""
    x = np.concatenate(parts)
    return x[: len(x) // 16 * 16].copy()


def assert_same(got: Array, expected: Array) -> None:
    """Equal, with the same nans, infinities and signs of zeros."""
    np.testing.assert_array_equal(got, expected)
    number = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(got)[number], np.signbit(expected)[number])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_accuracy(library: Library, truth: ctypes.CDLL, name: str, dtype: str) -> None:
    x = points(name, dtype)
    want = true_values(truth, name, dtype, *x)
    error, at = farthest(truth, dtype, library.map(f"{name}_{dtype}v", *x), want)
    deterministic = dtype == "f32" and library.contract == "off" and name in FAST
    # Random points may be a little worse than those that the table comes from.
    assert error <= ULP[name]["deterministic" if deterministic else dtype] + 0.1, (error, *[a[at] for a in x])


def test_the_fast_grade_is_within_its_bound() -> None:
    assert max(ULP[name]["f32"] for name in FAST) <= 4


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_values_are_numpys(library: Library, name: str, dtype: str) -> None:
    """Where NumPy gives nan, an infinity or a zero; the sign of a zero, too."""
    x = points(name, dtype)
    numpy = OWN.get(name) or getattr(np, name)
    expected = numpy(*[a.astype(WIDE[dtype]) for a in x]).astype(NUMPY[dtype])
    edge = ~np.isfinite(expected) | (expected == 0)
    got = library.map(f"{name}_{dtype}v", *x)
    # Where the rounded reference overflows or vanishes, the numbers beside are as close.
    info = np.finfo(NUMPY[dtype])
    close = (np.abs(got) == info.max) | (np.abs(got) == info.smallest_subnormal)
    arguments_finite = np.logical_and.reduce([np.isfinite(a) & (a != 0) for a in x])
    edge &= ~(close & arguments_finite)
    assert_same(got[edge], expected[edge])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_scalar_form_gives_the_bits_of_the_vector_form(library: Library, name: str, dtype: str) -> None:
    x = [a[: POINTS // 4 // 16 * 16].copy() for a in points(name, dtype)]
    assert_same(library.map(f"{name}_{dtype}", *x), library.map(f"{name}_{dtype}v", *x))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_without_contraction_every_instruction_set_gives_the_same_bits(
    libraries: Mapping[tuple[str, str], Library], name: str, dtype: str
) -> None:
    x = points(name, dtype)
    base, *others = [library.map(f"{name}_{dtype}v", *x) for (_, c), library in libraries.items() if c == "off"]
    for other in others:
        assert_same(other, base)


@pytest.mark.parametrize("dtype", FLOATS)
def test_pow_of_integers_is_exact_where_it_can_be(library: Library, dtype: str) -> None:
    x, y = (a.ravel().astype(NUMPY[dtype]) for a in np.meshgrid(np.arange(-32.0, 32.0), np.arange(0.0, 4.0)))
    np.testing.assert_array_equal(library.map(f"pow_{dtype}v", x, y), x**y)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", EXACT)
def test_exact(library: Library, name: str, dtype: str) -> None:
    (x,) = points("sinh", dtype)
    expected = EXACT[name](x)
    assert_same(library.map(f"{name}_{dtype}v", x), expected)
    assert_same(library.map(f"{name}_{dtype}", x), expected)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", HALVES)
def test_rounding_to_halves(library: Library, name: str, dtype: str) -> None:
    """Every number of 16 bits, the middle between neighbours, and what is next to it."""
    upper = (np.arange(2**16, dtype=np.uint32) << np.uint32(16)).view(np.float32)
    halves = np.concatenate([upper, np.arange(2**16).astype(np.uint16).view(np.float16).astype(np.float32)])
    halves = np.unique(halves[np.isfinite(halves)])
    middles = ((halves[1:].astype(np.float64) + halves[:-1]) / 2).astype(np.float32)
    ends = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 65519.99, 65520.0, 3.4e38], np.float32)
    near = [middles, np.nextafter(middles, np.float32(np.inf)), np.nextafter(middles, np.float32(-np.inf))]
    x = np.concatenate([ends, halves, *near])
    x = x[: len(x) // 16 * 16].astype(NUMPY[dtype])
    expected = HALVES[name](x)
    assert_same(library.map(f"{name}_{dtype}v", x), expected)
    assert_same(library.map(f"{name}_{dtype}", x), expected)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", EXACT_BINARY)
def test_exact_of_two(library: Library, name: str, dtype: str) -> None:
    a, b = points("pow", dtype)
    expected = EXACT_BINARY[name](a, b).astype(a.dtype)
    for form in ("v", ""):
        got = library.map(f"{name}_{dtype}{form}", a, b)
        if name in ("max", "min"):  # of which zero is left open
            np.testing.assert_array_equal(got, expected)
        else:
            assert_same(got, expected)


@pytest.mark.parametrize("dtype", FLOATS)
def test_lanes(library: Library, dtype: str) -> None:
    n = lanes(library.isa, dtype)
    x = np.random.default_rng(1).integers(1, 4, n).astype(NUMPY[dtype])
    out = np.empty_like(x)
    for at in range(n):
        for value in (-5, 7, np.nan):
            x[at] = value
            for name, combine in COMBINE.items():
                library.call(f"{name}_lanes_{dtype}v", x, out)
                np.testing.assert_array_equal(out[0], combine(x))
        x[at] = 2
    for at in range(n):
        alone = np.zeros(n, NUMPY[dtype])
        assert library.call(f"any_{dtype}v", alone) == 0
        alone[at] = 1
        assert library.call(f"any_{dtype}v", alone) != 0
    library.call(f"lane_{dtype}v", 5, out)
    np.testing.assert_array_equal(out, np.arange(5, 5 + n))


@pytest.mark.parametrize("dtype", FLOATS)
def test_transpose(library: Library, dtype: str) -> None:
    n = lanes(library.isa, dtype)
    x = np.arange(n * n, dtype=NUMPY[dtype]).reshape(n, n)
    out = np.empty_like(x)
    library.call(f"transpose_{dtype}v", x, out)
    np.testing.assert_array_equal(out, x.T)


@pytest.mark.parametrize("dtype", FLOATS)
def test_first_and_select(library: Library, dtype: str) -> None:
    n = lanes(library.isa, dtype)
    x = np.linspace(-1, 2, n, dtype=NUMPY[dtype])
    x[0] = np.nan
    out = np.empty_like(x)
    for count in range(n + 1):
        library.call(f"first_{dtype}v", count, x, out)
        np.testing.assert_array_equal(out, np.where(np.arange(n) < count, x, 7))
        library.call(f"first_{dtype}", count, x[1:], out)
        assert out[0] == (x[1] if count else 7)
    library.call(f"select_{dtype}v", 0, x, out)
    np.testing.assert_array_equal(out, np.where(x > 0, x, 9))
    for value in (-1, 1):
        library.call(f"select_{dtype}", 0, np.array([value], x.dtype), out)
        assert out[0] == (1 if value > 0 else 9)


@pytest.mark.parametrize("dtype", NUMBERS)
def test_memory(library: Library, dtype: str) -> None:
    n = lanes(library.isa, dtype)
    x = np.arange(100, 100 + 3 * n + 1).astype(NUMPY[dtype])

    def check(name: str, count: int, stride: int) -> None:
        out = np.zeros(3 * n + 1, x.dtype)
        library.call(name, count, stride, x[1:], out[1:])
        expected = np.zeros_like(out)
        at = 1 + stride * np.arange(min(count, n))
        expected[at] = x[at]
        np.testing.assert_array_equal(out, expected)

    check(f"copy_{dtype}v", n, 1)
    check(f"copy_three_{dtype}v", 3, 1)
    check(f"copy_strided_{dtype}v", n, 3)
    for count in range(n + 1):
        check(f"copy_part_{dtype}v", count, 1)
        check(f"copy_strided_part_{dtype}v", count, 2)
        out = np.ones(n, x.dtype)
        library.call(f"load_part_{dtype}v", count, x, out)
        np.testing.assert_array_equal(out, np.where(np.arange(n) < count, x[:n], 0))
    out = np.zeros(n, x.dtype)
    library.call(f"splat_{dtype}v", x[5:], out)
    assert (out == x[5]).all()


@pytest.mark.parametrize("dtype", NUMBERS)
def test_parts_touch_nothing_behind_them(library: Library, dtype: str) -> None:
    """The elements end where a page without access starts."""
    page = mmap.PAGESIZE
    pages = mmap.mmap(-1, 2 * page)
    memory = np.frombuffer(pages, np.uint8)
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(memory.ctypes.data + page), ctypes.c_size_t(page), 0) == 0
    all_ = memory[:page].view(NUMPY[dtype])
    for count in range(lanes(library.isa, dtype) + 1):
        end = all_[len(all_) - count :]
        out = np.zeros(64, NUMPY[dtype])
        for name in ("copy_part", "copy_strided_part"):
            library.call(f"{name}_{dtype}v", count, 1, end, out)
            library.call(f"{name}_{dtype}v", count, 1, out, end)


@pytest.mark.parametrize(("a", "b"), CONVERTED)
def test_conversions(library: Library, a: str, b: str) -> None:
    n = lanes(library.isa, b)
    rng = np.random.default_rng(3)
    low, high = {np.uint8: (0.0, 256.0), np.int8: (-128.0, 128.0)}.get(NUMPY[a], (-1e9, 1e9))
    x = rng.uniform(low, high, 3 * n + 1).astype(NUMPY[a])
    if a == "i64":
        x[::2] *= 2**31

    def check(f: str, count: int, stride: int) -> None:
        out = np.ones(n, NUMPY[b])
        library.call(f"{f}_{a}_as_{b}v", count, stride, x[1:], out)
        expected = np.zeros(n, NUMPY[b])
        expected[:count] = x[1 : 1 + count * stride : stride].astype(NUMPY[b])
        np.testing.assert_array_equal(out, expected)

    check("load", n, 1)
    check("gather", n, 3)
    for count in range(n + 1):
        check("load_part", count, 1)
        check("gather_part", count, 2)


def test_no_symbol_is_needed_but_those_of_every_shared_library(library: Library) -> None:
    listing = subprocess.check_output(["nm", "-D", "--undefined-only", str(library.path)], text=True)
    names = {line.split()[-1] for line in listing.splitlines()}
    assert {n for n in names if not n.startswith(("_ITM_", "__cxa_finalize", "__gmon_start__"))} == set()


def test_only_what_is_called_is_written() -> None:
    nothing = preamble("", MACHINES["v3"])
    assert (
        preamble("nn_forward_f64(x); load_u9_as_f64v(p); exp_f128v(x); exp_f64v; exp_i64v(x);", MACHINES["v3"])
        == nothing
    )
    text = preamble("y = sigmoid_f64v(x);", MACHINES["v3"]).removeprefix(nothing)
    order = [text.index(f" {name}_f64v(") for name in ("select", "exp_parts", "sigmoid")]
    assert order == sorted(order)
    assert "log_" not in text and "f32v" not in text


UNDERFLOW = 16  # FE_UNDERFLOW of x86


@pytest.mark.skipif("base" not in AVAILABLE, reason="the number of the flag is that of x86")
@pytest.mark.parametrize("dtype", FLOATS)
def test_what_is_masked_underflows_nowhere(library: Library, dtype: str) -> None:
    """Processors take 100 cycles for products that are too small: exp(-inf), of what a mask hides, makes none."""
    c = ctypes.CDLL(None)

    def underflows(name: str, value: float) -> bool:
        x, y = np.full(16, value, NUMPY[dtype]), np.empty(16, NUMPY[dtype])
        c.feclearexcept(UNDERFLOW)
        library.call(f"{name}_{dtype}v", 16, x, y)
        return bool(c.fetestexcept(UNDERFLOW))

    assert underflows("exp", -100 if dtype == "f32" else -740), "these are subnormal"
    names = ("exp", "exp2", "sigmoid", "softplus")
    assert not [(name, x) for name in names for x in (-np.inf, -1e30, -3000.0) if underflows(name, x)]
