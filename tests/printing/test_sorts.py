"""Rows that C sorts or searches, on every instruction set that this machine has, against NumPy."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlaot.printing.helpers import preamble
from mlaot.printing.sorts import sort_helper
from mlaot.printing.spelling import MEMORY
from mlaot.schedule.machine import MACHINES
from mlaot.schedule.tuning import SORTED_VECTORS

from ..compiled import AVAILABLE, CC, guarded

Array = np.ndarray[Any, Any]
DTYPES = {name: np.dtype(name[0] + str(int(name[1:]) // 8)) for name in ("f32", "f64", "i32", "i64", "u32", "u64")}
FLAGS = (
    *("-std=gnu11", "-O2", "-fno-tree-vectorize", "-fno-math-errno", "-fno-trapping-math"),
    *("-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"),
)
LARGEST = 70
NETWORKS = [f"order_{size}_i32" for size in SORTED_VECTORS]


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], ctypes.CDLL]:
    """The functions of an instruction set, compiled when they are first wanted."""

    @cache
    def compiled(isa: str) -> ctypes.CDLL:
        folder = tmp_path_factory.mktemp(isa)
        text = "".join(map(wrapped, DTYPES))
        text += "".join(
            f"void parts_{t}({c} *p, {PARTS}) {{ order_parts_{t}(p, n, low, high, depth); }}\n" for t, c in SIGNED
        )
        Path(folder, "sorts.c").write_text(preamble(text, MACHINES[isa]) + text)
        library = folder / "sorts.so"
        subprocess.run([*CC.split(), *FLAGS, *MACHINES[isa].flags, folder / "sorts.c", "-o", library], check=True)
        return ctypes.CDLL(str(library))

    return compiled


PARTS = "ptrdiff_t n, ptrdiff_t low, ptrdiff_t high, int depth"
SIGNED = (("i32", "int32_t"), ("i64", "int64_t"))


def wrapped(dtype: str) -> str:
    """C of a function that others can call."""
    c, numbers = MEMORY[dtype], "ptrdiff_t step, ptrdiff_t n, ptrdiff_t low, ptrdiff_t high, int flip"
    body = f"sort_{dtype}(to, p, step, n, low, high, flip);"
    return f"void run_{dtype}({c} *to, const {c} *p, {numbers}) {{ {body} }}\n"


def order(x: Array, *, descending: bool = False) -> Array:
    """The indices that sort a row: stable, nan above all numbers."""
    ranks = np.unique(x, return_inverse=True)[1]
    return np.argsort(-ranks if descending else ranks, kind="stable")


def run(
    library: ctypes.CDLL, x: Array, low: int = 0, high: int | None = None, *, descending: bool = False, step: int = 1
) -> Array:
    """What C finds for the places from ``low`` on, in memory with guards at both ends."""
    dtype = next(name for name, each in DTYPES.items() if each == x.dtype)
    source = guarded(max(x.size * step - step + 1, 0) * x.itemsize).view(x.dtype)
    source[::step] = x
    target = guarded(x.nbytes).view(x.dtype)
    high = x.size if high is None else high
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in (target, source)]
    getattr(library, f"run_{dtype}")(*pointers, *map(ctypes.c_ssize_t, (step, x.size, low, high)), -int(descending))
    assert same(source[::step], x)
    return target[low:high]


def same(a: Array, b: Array) -> bool:
    """Whether arrays have the same bits."""
    return a.tobytes() == b.tobytes()


def orders(n: int, dtype: np.dtype[Any]) -> dict[str, Array]:
    """Rows in orders that a sort may be slow for, or wrong."""
    rng = np.random.default_rng(n)
    up = np.arange(n)
    killer = np.zeros(n, np.int64)  # of a quicksort by the median of the first, the middle and the last (Musser 1997)
    half = n // 2
    killer[: 2 * half : 2], killer[1 : 2 * half : 2] = 1 + up[:half], 1 + half + up[:half]
    rows = {
        "random": rng.permutation(n),
        "sorted": up,
        "reversed": up[::-1],
        "same": np.zeros(n),
        "two": rng.integers(0, 2, n),
        "few": rng.integers(0, 9, n),
        "organ pipe": np.minimum(up, up[::-1]),
        "sawtooth": up % 17,
        "killer": killer,
        "nearly": np.where(rng.random(n) < 0.02, rng.permutation(n), up),
    }
    ends = np.iinfo(dtype) if dtype.kind in "iu" else np.finfo(dtype)
    made = {name: row.astype(dtype) for name, row in rows.items()}
    made["extremes"] = rng.choice(np.array([ends.min, ends.max, 0, 1], dtype), n)
    if dtype.kind == "f":
        specials = np.array([np.nan, -np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0, -1.0], dtype)
        made["specials"] = rng.choice(specials, n)
        made["zeros"] = rng.choice(np.array([-0.0, 0.0], dtype), n)
        made["nan"] = np.full(n, np.nan, dtype)
        payloads = np.where(rng.random(n) < 0.5, made["random"], np.nan).astype(dtype)
        bits = payloads.view(f"u{dtype.itemsize}")
        bits[np.isnan(payloads)] += rng.integers(0, 99, np.isnan(payloads).sum()).astype(bits.dtype)
        made["payloads"] = payloads
    return made


SIZES = (*range(LARGEST + 1), 127, 128, 129, 255, 256, 257, 300, 511, 513, 1001, 4000)


@pytest.mark.parametrize("descending", [False, True], ids=["up", "down"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("isa", AVAILABLE)
def test_rows_have_the_bits_of_a_stable_sort(
    libraries: Callable[[str], ctypes.CDLL], isa: str, dtype: str, descending: bool
) -> None:
    for n in SIZES:
        for name, x in orders(n, DTYPES[dtype]).items():
            expected = x[order(x, descending=descending)]
            assert same(run(libraries(isa), x, descending=descending), expected), f"{name} {n}"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("isa", AVAILABLE)
def test_places_have_the_bits_of_a_stable_sort(libraries: Callable[[str], ctypes.CDLL], isa: str, dtype: str) -> None:
    for n in SIZES[1::3]:
        for name, x in orders(n, DTYPES[dtype]).items():
            for low, high in {(0, 1), (n // 2, n // 2 + 1), (n - 1, n), (n // 10, n - n // 10), (n // 3, n // 3 + 2)}:
                for descending in (False, True):
                    high = min(high, n)
                    expected = x[order(x, descending=descending)[low:high]]
                    found = run(libraries(isa), x, low, high, descending=descending)
                    assert same(found, expected), f"{name} {n} {low} {high}"


@pytest.mark.parametrize("isa", AVAILABLE)
@settings(deadline=None)
@given(
    values=st.lists(st.floats(width=32), max_size=300)
    | st.lists(st.sampled_from([0.0, -0.0, np.nan, 1.0]), max_size=300),
    step=st.integers(1, 3),
    descending=st.booleans(),
    ends=st.tuples(st.integers(0, 300), st.integers(0, 300)),
)
def test_any_floats_are_sorted(
    libraries: Callable[[str], ctypes.CDLL],
    isa: str,
    values: list[float],
    step: int,
    descending: bool,
    ends: tuple[int, int],
) -> None:
    x = np.array(values, np.float32)
    low, high = sorted(min(end, x.size) for end in ends)
    expected = x[order(x, descending=descending)]
    assert same(run(libraries(isa), x, descending=descending, step=step), expected)
    assert same(run(libraries(isa), x, low, high, descending=descending, step=step), expected[low:high])


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("isa", AVAILABLE)
def test_a_heap_sorts_what_splits_do_not(libraries: Callable[[str], ctypes.CDLL], isa: str, bits: int) -> None:
    """No row that is known makes splits so bad, so fewer are allowed here."""
    parts = getattr(libraries(isa), f"parts_i{bits}")
    for n, depth in product((300, 1001, 4000), (0, 1, 3)):
        for x in orders(n, np.dtype(f"i{bits // 8}")).values():
            for low, high in ((0, n), (n // 3, n // 3 + 2)):
                found = x.copy()
                parts(ctypes.c_void_p(found.ctypes.data), *map(ctypes.c_ssize_t, (n, low, high)), depth)
                assert same(found[low:high], np.sort(x)[low:high])


@pytest.mark.parametrize("isa", AVAILABLE)
def test_a_row_of_known_length_leaves_one_network(tmp_path: Path, isa: str) -> None:
    def symbols(n: int) -> set[str]:
        text = f"void run(float *to, const float *p) {{ sort_f32(to, p, 1, {n}, 0, {n}, 0); }}\n"
        Path(tmp_path, "sort.c").write_text(preamble(text, MACHINES[isa]) + text)
        command = [*CC.split(), *FLAGS, *MACHINES[isa].flags, tmp_path / "sort.c", "-o", tmp_path / "sort.so"]
        subprocess.run(command, check=True)
        data = (tmp_path / "sort.so").read_bytes()
        return {name for name in ("order_parts_i32", *NETWORKS) if f"\0{name}\0".encode() in data}

    lanes = MACHINES[isa].bytes // 4
    for size in SORTED_VECTORS:
        assert symbols(size * lanes) == {f"order_{size}_i32"}
    assert "order_parts_i32" in symbols(SORTED_VECTORS[-1] * lanes + 1)


@pytest.mark.parametrize("isa", MACHINES)
@pytest.mark.parametrize("bits", [32, 64])
def test_networks_are_of_all_sizes(isa: str, bits: int) -> None:
    text = sort_helper(f"order_i{bits}", MACHINES[isa])
    assert text is not None
    assert all(f"order_{size}_i{bits}(" in text for size in SORTED_VECTORS)
    assert sort_helper(f"order_u{bits}", MACHINES[isa]) is None
