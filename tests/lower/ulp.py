"""How exact the vector functions of the generated C are: the largest error of each, in units of the last place (ulp).

    python -m tests.lower.ulp                                     # all of them, some minutes each
    python -m tests.lower.ulp --function tanh                     # one
    python -m tests.lower.ulp --function tanh --points 1000000    # in a hurry: random float32 instead of every one

The helpers are compiled for every instruction set that this CPU has. Functions of one float32 are compared at
every float32 there is, with double; the others at random points (10^7 if ``--points`` does not say otherwise), float64
in 128 bits. The table that is printed names the point with the largest error; ``--write`` keeps the errors in
``tests/lower/accuracy.py``, which the documentation shows and ``test_vectors.py`` holds the functions to.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import platform
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from mlaot.printing.cmake import contraction
from mlaot.printing.helpers import preamble
from mlaot.printing.vectors import FAST
from mlaot.schedule.machine import MACHINES, Machine
from tests.compiled import AVAILABLE, CC

from . import accuracy

FLOATS = {"f32": ("float", np.float32), "f64": ("double", np.float64)}
# Columns of the table: the dtype, and whether results must not depend on the machine. Then some functions are others.
GRADES = {"f32": ("f32", False), "f64": ("f64", False), "deterministic": ("f32", True)}
BLOCK = 1 << 20  # points at a time
Array = np.ndarray[Any, Any]

# Where a quarter of the random points lie, for f32 and f64.
UNARY: dict[str, tuple[tuple[float, float], tuple[float, float]]] = {
    "exp": ((-110, 100), (-760, 720)),
    "exp2": ((-155, 130), (-1080, 1030)),
    "expm1": ((-20, 100), (-50, 720)),
    "log": ((0, 10), (0, 10)),
    "log2": ((0, 10), (0, 10)),
    "log10": ((0, 10), (0, 10)),
    "log1p": ((-1, 10), (-1, 10)),
    "sin": ((-2000, 2000), (-1e5, 1e5)),
    "cos": ((-2000, 2000), (-1e5, 1e5)),
    "tan": ((-2000, 2000), (-1e5, 1e5)),
    "asin": ((-1, 1), (-1, 1)),
    "acos": ((-1, 1), (-1, 1)),
    "atan": ((-10, 10), (-10, 10)),
    "sinh": ((-90, 90), (-711, 711)),
    "cosh": ((-90, 90), (-711, 711)),
    "tanh": ((-10, 10), (-20, 20)),
    "asinh": ((-10, 10), (-10, 10)),
    "acosh": ((1, 10), (1, 10)),
    "atanh": ((-1, 1), (-1, 1)),
    "sigmoid": ((-110, 50), (-750, 50)),
    "softplus": ((-110, 50), (-750, 50)),
    "erf": ((-4, 4), (-6, 6)),
    "erfc": ((-5, 11), (-6, 28)),
    "erfinv": ((-1, 1), (-1, 1)),
    "sqrt": ((0, 10), (0, 10)),
}
BINARY = ("pow", "atan2", "hypot")
FUNCTIONS = (*UNARY, *BINARY)


@dataclass(frozen=True)
class Worst:
    """The largest error of a function, and the arguments that gave it."""

    error: float
    isa: str
    arguments: tuple[Any, ...]

    def __str__(self) -> str:
        where = ", ".join(f"{x!s} = {float(x).hex()}" for x in self.arguments)
        return f"{self.error:9.4f}  {self.isa:4}  {where}"


def source(isa: Machine) -> str:
    """``map_<function>_<dtype>(n, x, y, out)`` over arrays, for every function."""
    text = []
    for name in FUNCTIONS:
        for dtype, (c, numpy) in FLOATS.items():
            arguments = ", ".join(f"load_{dtype}v({x} + i)" for x in inputs(name))
            lanes = isa.bytes // np.dtype(numpy).itemsize
            text.append(
                f"void map_{name}_{dtype}(ptrdiff_t n, const {c} *x, const {c} *y, {c} *out)\n"
                f"{{\n    (void)y;\n    for (ptrdiff_t i = 0; i < n; i += {lanes}) {{\n"
                f"        store_{dtype}v(out + i, {name}_{dtype}v({arguments}));\n    }}\n}}\n"
            )
    body = "\n".join(text)
    return f"{preamble(body, isa)}\n{body}"


def inputs(name: str) -> str:
    return "xy" if name in BINARY else "x"


def compile_c(folder: Path, name: str, text: str, *flags: str) -> ctypes.CDLL:
    """``text`` as a loaded shared library."""
    file = folder / f"{name}.c"
    file.write_text(text)
    library = file.with_suffix(".so")
    command = [CC, "-std=gnu11", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC", str(file)]
    subprocess.run([*command, "-o", str(library), *flags], check=True)
    return ctypes.CDLL(str(library))


def compiled(folder: Path, *, deterministic: bool) -> dict[str, ctypes.CDLL]:
    """The helpers for every instruction set of this CPU."""
    built = {}
    for name in AVAILABLE:
        machine = replace(MACHINES[name], deterministic=deterministic)
        flags = ("-O2", contraction(deterministic), *machine.flags)
        built[name] = compile_c(folder, f"{name}{'_deterministic' * deterministic}", source(machine), *flags)
    return built


def oracle(folder: Path) -> ctypes.CDLL:
    """The true values, and the distances from them."""
    text = Path(__file__).with_suffix(".c").read_text()
    # With OpenMP allowed, the C library declares its vector functions.
    quad = ["-lquadmath"] if platform.machine() == "x86_64" else []
    flags = ["-O2", "-ftree-vectorize", "-fopenmp", *MACHINES[AVAILABLE[-1]].flags, *quad, "-lm"]
    library = compile_c(folder, "oracle", text, *flags)
    library.farthest_f32.restype = library.farthest_f64.restype = ctypes.c_double
    return library


def any_bits(rng: np.random.Generator, dtype: str, n: int) -> Array:
    unsigned: type[Any] = np.uint32 if dtype == "f32" else np.uint64
    return rng.integers(0, np.iinfo(unsigned).max, n, dtype=unsigned, endpoint=True).view(FLOATS[dtype][1])


def random_points(name: str, dtype: str, n: int, seed: int) -> tuple[Array, Array]:
    """Quarters: of an interval, near zero, near 1 or quarter turns, of all numbers; ``pairs`` for two arguments."""
    rng, kind = np.random.default_rng(seed), FLOATS[dtype][1]
    if name in BINARY:
        return pairs(rng, dtype, n)
    quarter = n // 4 + 1
    inside = rng.uniform(*UNARY[name][list(FLOATS).index(dtype)], quarter)
    near = rng.uniform(-1, 1, quarter) * 10.0 ** rng.integers(-9, 1, quarter)
    beside = (1 + near) * rng.choice([-1, 1], quarter)
    if name in ("sin", "cos", "tan"):
        beside = np.pi / 2 * rng.integers(-(2**30), 2**30, quarter)
    x = np.concatenate([*(a.astype(kind) for a in (inside, near, beside)), any_bits(rng, dtype, quarter)])[:n]
    return x, x


def pairs(rng: np.random.Generator, dtype: str, n: int) -> tuple[Array, Array]:
    """Fifths: ordinary numbers, alike ones, all numbers; any numbers and ones near 1, with powers of any size."""
    n, kind, low, high, bits = n // 5 + 1, FLOATS[dtype][1], *{"f32": (-155, 130, 23), "f64": (-1080, 1030, 52)}[dtype]
    x = [10 ** rng.uniform(-2, 2, n), rng.uniform(-4, 4, n), any_bits(rng, dtype, n)]
    y = [rng.uniform(-20, 20, n), rng.uniform(-4, 4, n), any_bits(rng, dtype, n)]
    near_one = 1 + rng.uniform(-1, 1, n) * 2.0 ** rng.integers(-bits, 0, n)
    with np.errstate(all="ignore"):
        for base in (np.abs(any_bits(rng, dtype, n)), near_one.astype(kind)):
            x.append(base)
            y.append(rng.uniform(low, high, n) / np.log2(base.astype(np.float64)))
        return np.concatenate([a.astype(kind) for a in x]), np.concatenate([a.astype(kind) for a in y])


def blocks(name: str, dtype: str, points: int | None) -> Iterator[tuple[Array, Array]]:
    """The points of a function, some at a time."""
    if dtype == "f32" and name not in BINARY and points is None:
        for start in range(0, 1 << 32, BLOCK):
            x = np.arange(start, start + BLOCK, dtype=np.uint32).view(np.float32)
            yield x, x
        return
    points = points or 10_000_000
    for seed, start in enumerate(range(0, points, BLOCK)):
        size = min(BLOCK, points - start) // 16 * 16
        x, y = random_points(name, dtype, size, seed)
        yield x[:size], y[:size]


def worst(name: str, dtype: str, points: int | None, true: ctypes.CDLL, built: dict[str, ctypes.CDLL]) -> Worst:
    """The largest error of ``name`` over its points and all instruction sets."""
    result = Worst(-1.0, "", ())
    got = np.empty(BLOCK, FLOATS[dtype][1])
    for x, y in blocks(name, dtype, points):
        want = true_values(true, name, dtype, x, y)
        for isa, library in built.items():
            library[f"map_{name}_{dtype}"](ctypes.c_ssize_t(len(x)), pointer(x), pointer(y), pointer(got))
            error, at = farthest(true, dtype, got[: len(x)], want, result.error)
            if error > result.error:
                result = Worst(error, isa, tuple(a[at] for a in (x, y)[: len(inputs(name))]))
    return result


def true_values(true: ctypes.CDLL, name: str, dtype: str, x: Array, y: Array | None = None) -> Array:
    """The images of points: doubles for f32; for f64 16 bytes each, of which only ``farthest`` makes sense."""
    want = np.empty(len(x), np.float64 if dtype == "f32" else np.complex128)
    true[f"{name}_{dtype}"](ctypes.c_ssize_t(len(x)), pointer(x), pointer(x if y is None else y), pointer(want))
    return want


def farthest(true: ctypes.CDLL, dtype: str, got: Array, want: Array, beat: float = -1.0) -> tuple[float, int]:
    """The largest distance of values from the true ones, in ulp, and where it is if that is more than ``beat``."""
    at = ctypes.c_ssize_t()
    measure = true.farthest_f32 if dtype == "f32" else true.farthest_f64
    error = measure(ctypes.c_ssize_t(len(got)), pointer(got), pointer(want), ctypes.c_double(beat), ctypes.byref(at))
    return float(error), at.value


def pointer(array: Array) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def write(errors: Mapping[str, Mapping[str, float]]) -> None:
    """Keep the errors, rounded up to hundredths."""
    lines = [
        '"""Largest errors of the vector functions, in ulp: ``python -m tests.lower.ulp --write``."""',
        "",
        "ULP = {",
    ]
    for name in FUNCTIONS:
        rounded = {grade: math.ceil(round(error * 100, 6)) / 100 for grade, error in errors[name].items()}
        pairs = ", ".join(f'"{grade}": {error}' for grade, error in rounded.items())
        lines.append(f'    "{name}": {{{pairs}}},')
    Path(accuracy.__file__).write_text("\n".join([*lines, "}", ""]))


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.lower.ulp", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--function", choices=FUNCTIONS, metavar="NAME", help=f"one of {', '.join(FUNCTIONS)}")
    parser.add_argument("--points", type=int, metavar="N", help="random points instead of every float32, or of 10^7")
    parser.add_argument("--write", action="store_true", help="keep the errors in tests/lower/accuracy.py")
    arguments = parser.parse_args()
    errors = {name: dict(by_dtype) for name, by_dtype in accuracy.ULP.items()}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        true, built = oracle(folder), {grade: compiled(folder, deterministic=grade) for grade in (False, True)}
        print(f"{'function':12} {'largest':>9}  isa   where", flush=True)
        for name in [arguments.function] if arguments.function else FUNCTIONS:
            for grade, (dtype, deterministic) in GRADES.items():
                if deterministic and name not in FAST:
                    continue
                found = worst(name, dtype, arguments.points, true, built[deterministic])
                errors.setdefault(name, {})[grade] = found.error
                print(f"{name + '_' + grade:12} {found}", flush=True)
    if arguments.write:
        write(errors)


if __name__ == "__main__":
    main()
