"""Large graphs: no recursion over nodes, time in proportion to their number, C that a compiler gets through.

Work is counted in calls of Python's functions, which are the same on every machine.
"""

from __future__ import annotations

import cProfile
import re
import sys
from collections.abc import Callable, Iterator
from functools import _lru_cache_wrapper
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot.files import program_files
from mlaot.generate import compile_model
from mlaot.micrograd import Value, declare
from mlaot.printing import file
from mlaot.printing.file import kernels_file
from mlaot.report.build import long_files
from mlaot.schedule import tuning
from mlaot.schedule.machine import MACHINES
from mlaot.settings.options import Options

from .. import verified

B = mlaot.dim("b")
EYE = np.eye(4)


def repeated(step: Callable[[Any, Any, int], Any], *shape: Any, last: Callable[[Any], Any] = lambda y: y) -> Any:
    """``build(n)`` declares a chain of n steps; a step has the chain so far, the input, and its number."""

    def build(n: int) -> Any:
        def model(x: Any) -> Any:
            y = x
            for i in range(n):
                y = step(y, x, i)
            return last(y)

        model.__annotations__ = {"x": mlaot.f64[shape]}
        return mlaot.model(model)

    return build


def many(make: Callable[[Any, int], Any], join: Callable[[list[Any]], Any], *shape: Any) -> Any:
    """``build(n)`` declares n values of the input, joined."""

    def build(n: int) -> Any:
        def model(x: Any) -> Any:
            return join([make(x, i) for i in range(n)])

        model.__annotations__ = {"x": mlaot.f64[shape]}
        return mlaot.model(model)

    return build


def micrograd(n: int) -> Any:
    x, w, b, target = Value(0.0), Value(0.5), Value(0.1), Value(0.0)
    out = x
    for _ in range(n):
        out = (out * w + b).tanh()
    return declare(out, inputs={"x": [x], "y": target}, parameters={"w": w, "b": b}, loss=(out - target) ** 2)


GRAPHS: dict[str, Callable[[int], Any]] = {
    "affine": repeated(lambda y, x, i: y * 0.999 + (0.001 if i % 2 else -0.001), 3),
    "skips": repeated(lambda y, x, i: y + 1.5 * x, 3),
    "functions": repeated(lambda y, x, i: np.sin(y), B, 5),
    "scalars": repeated(lambda y, x, i: np.sin(y) + 0.1 * i),
    "divisions": repeated(lambda y, x, i: y / (np.max(x) + i), 7),
    "reductions": repeated(lambda y, x, i: y - np.max(y, axis=1, keepdims=True) * 0.1, 8, 16),
    "products": repeated(lambda y, x, i: np.tanh(y @ (EYE * (i + 1))), B, 4),
    "moves": repeated(lambda y, x, i: np.transpose(y).reshape(2, 8).reshape(4, 4) + 1.0, 4, 4),
    "gathers": repeated(lambda y, x, i: y[:, [1, 0, 3, 2]] + 1.0, B, 4),
    "integers": repeated(lambda y, x, i: (y + i).astype(np.int64) % 7 * 1.5, B, 4),
    "choices": repeated(lambda y, x, i: np.where(y > i, x, y * 2), B, 4),
    "affine of a product": repeated(lambda y, x, i: y * 1.01 + 0.5 if i else y @ EYE, B, 4),
    "terms": many(lambda x, i: np.tanh(x * (1 + i * 1e-3)), sum, 3),
    "open terms": many(lambda x, i: np.tanh(x * (1 + i * 1e-3)), sum, B, 3),
    "outputs": many(lambda x, i: np.sin(x * (i + 1)), tuple, 3),
    "parts": many(lambda x, i: x * (i + 1.0), np.concatenate, 3),
    "stacked products": many(lambda x, i: x @ (EYE * (i + 1)), np.stack, B, 4),
    "micrograd": micrograd,
}
LIMIT = 120  # frames that the compiler may have on the stack


def compiled(model: Any) -> str:
    program = compile_model(model, "m", Options(isas=("base",)))
    return kernels_file(program, "m", MACHINES["base"])


@pytest.mark.parametrize("name", GRAPHS)
def test_chains_are_no_recursion(name: str) -> None:
    """Neither passes nor lowering go down a chain by calls: each would take a frame of Python's stack."""
    frame, depth = sys._getframe(), 0
    while frame is not None:
        frame, depth = frame.f_back, depth + 1  # type: ignore[assignment]
    compiled(GRAPHS[name](3))  # modules are imported and templates read
    declared = GRAPHS[name](2 * LIMIT)
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(depth + LIMIT)
    try:
        compiled(declared)
    finally:
        sys.setrecursionlimit(before)


@pytest.fixture(autouse=True)
def _unverified() -> Iterator[None]:
    """Verifying is no part of the work."""
    verified.uninstall()
    yield
    verified.install()


def calls_of(model: Any) -> int:
    """Python calls of a compilation that starts with empty caches, whatever was compiled before it."""
    for module in [module for name, module in sys.modules.items() if name.startswith("mlaot.")]:
        for value in vars(module).values():
            if isinstance(value, _lru_cache_wrapper):
                value.cache_clear()
    profile = cProfile.Profile(builtins=False, subcalls=False)
    profile.runcall(compiled, model)
    return sum(entry.callcount for entry in profile.getstats())


@pytest.mark.parametrize("name", GRAPHS)
def test_work_grows_with_the_nodes(name: str) -> None:
    """Twice the nodes, hardly more than twice the work; quadratic steps would show as four times theirs."""
    small, large = 80, 160
    compiled(GRAPHS[name](2))
    assert calls_of(GRAPHS[name](large)) < 2.3 * calls_of(GRAPHS[name](small))


def test_functions_have_bounded_length() -> None:
    """Compilers take more than proportionally long for long functions."""
    for name in ("affine", "skips", "functions", "choices", "open terms"):
        text = compiled(GRAPHS[name](1500))
        longest = max(len(part.splitlines()) for part in re.split(r"^}\n", text, flags=re.MULTILINE))
        assert longest < 1500, f"{name}: {longest} lines"


def test_what_compilers_cannot_get_through_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "KERNELS_SECONDS", tuning.KERNELS_SECONDS / 10)
    model = GRAPHS["terms"](450)
    files = program_files(compile_model(model, "pkg.m", Options(isas=("base",))))
    kernels = files["m_base.c"]
    assert isinstance(kernels, str) and '#pragma GCC optimize("O1")' in kernels and "always_inline" not in kernels
    (line,) = long_files("pkg.m", files)
    assert line.startswith("pkg.m: ") and "lines of C an instruction set, compiled with -O1" in line
    files = program_files(compile_model(GRAPHS["terms"](45), "pkg.m", Options(isas=("base",))))
    assert 'optimize("O1")' not in str(files["m_base.c"]) and not long_files("pkg.m", files)
