"""Reshapes that are views, those that must be copies, and values that are computed inside of their padding."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import passes
from mlaot.evaluate import evaluate
from mlaot.interpret import Interpreter, instance
from mlaot.ir import Type, parse
from mlaot.lower.lower import lower
from mlaot.nest.verify import verify
from mlaot.passes import module_of
from mlaot.schedule.machine import MACHINES
from tests.compiled import AVAILABLE, Library

N = mlaot.dim("n")
F32, F64 = mlaot.f32, mlaot.f64


def total(x: Any) -> Any:
    """Something that keeps what follows from being one kernel with what is before."""
    return mlaot.cumsum(x, x.ndim - 1)


# name: the input's type, the function, how many kernels move elements (a root's copy and views do not count)
RESHAPES: dict[str, tuple[Type, Callable[[Any], Any], int]] = {
    "split": (F32[N, 30], lambda x: np.max(total(x).reshape(N, 3, 10), axis=1), 0),
    "split of the last axis of an input": (F32[N, 6], lambda x: np.exp(x.reshape(N, 2, 3)), 0),
    "merge of whole rows": (F32[N, 3, 16], lambda x: np.exp(total(x).reshape(N, 48)), 0),
    "merge of rows of a page": (F32[N, 3, 1024], lambda x: np.exp(total(x).reshape(N, 3072)), 0),
    "merge of padded rows": (F32[N, 3, 10], lambda x: np.exp(total(x).reshape(N, 30)), 0),
    "merge of short rows": (F32[N, 3, 5], lambda x: np.exp(total(x).reshape(N, 15)), 0),
    "merge before the rows": (F64[N, 3, 10], lambda x: np.exp(total(x).reshape(N * 3, 10)), 0),
    "merge of an input": (F32[N, 3, 16], lambda x: np.exp(x.reshape(N, 48)), 0),
    "merge of a transpose": (F32[N, 16, 16], lambda x: np.exp(total(x).transpose(0, 2, 1).reshape(N, 256)), 0),
    "other groups": (F32[N, 4, 48], lambda x: np.exp(total(x).reshape(N, 6, 32)), 0),
    "split and merge": (F32[N, 2, 3, 20], lambda x: np.exp(total(x).reshape(N, 6, 4, 5)), 0),
    "axes of one element": (F32[N, 1, 20], lambda x: np.exp(total(x).reshape(N, 20, 1)), 0),
}


def programs_of(cases: dict[str, tuple[Type, Callable[[Any], Any], int]], isa: str) -> dict[str, tuple[Any, Any]]:
    found = {}
    for name, (type_, function, _) in cases.items():
        declared = mlaot.model(_one_argument(function, type_))
        found[name] = lower(passes.run("m", declared.trace())), declared.trace().graph
    return found


def _one_argument(function: Callable[[Any], Any], type_: Type) -> Callable[[Any], Any]:
    def model(x: Any) -> Any:
        return function(x)

    model.__annotations__ = {"x": type_}
    return model


def test_which_reshapes_are_copies() -> None:
    for name, (program, _) in programs_of(RESHAPES, "base").items():
        moves = len(re.findall(r" = reshape\(", str(program)))
        assert moves == RESHAPES[name][2], name


@pytest.mark.parametrize("isa", AVAILABLE)
def test_values(isa: str, tmp_path: Path) -> None:
    found = programs_of(RESHAPES, isa)
    stems = {f"case{i}": name for i, name in enumerate(found)}
    library = Library({stem: found[name][0] for stem, name in stems.items()}, isa, tmp_path)
    for stem, name in stems.items():
        type_, graph = RESHAPES[name][0], found[name][1]
        shape = [3 if d is N else int(d) for d in type_.shape]
        x = np.random.default_rng(0).normal(size=shape).astype(type_.dtype.numpy)
        expected = evaluate(graph, {"x": x})["out"]
        got = library.call(stem, "forward", {"x": x}, {"n": 3})["out"]
        np.testing.assert_allclose(got, expected, rtol=2e-5, atol=1e-5, err_msg=name)


def test_what_is_read_without_gaps_stays_whole() -> None:
    """Neither a part of a concatenation nor the middle of a padded value could be read as one row."""

    @mlaot.model
    def model(x: F32[N, 3, 16], z: F32[N, 3, 16]):  # type: ignore[no-untyped-def,valid-type]
        y = np.exp(x)
        joined = total(np.concatenate([y, z], axis=2))
        padded = np.max(mlaot.window(np.pad(y, ((0, 0), (0, 0), (1, 1))), (2,), (3,)), axis=-1)
        return joined, padded, total(y.reshape(N, 48))

    text = str(lower(passes.run("m", model.trace())))
    assert " = reshape(" not in text and " = concat(" in text


CHEAP = """\
graph forward:
  v0 = input(name=x) : f32[batch,20]
  v1 = input(name=c, parameter=True) : f32[20]
  v2 = input(name=w, parameter=True) : f32[20]
  v3 = mul(v1, v2) : f32[20]
  v4 = broadcast(v3, shape=(batch, 20), axes=(1,)) : f32[batch,20]
  v5 = is_equal(v4, v0) : f32[batch,20]
  v6 = tanh(v5) : f32[batch,20]
  v7 = sum(v6, axes=(1,)) : f32[batch]
  return y=v7
"""


def test_what_is_cheap_is_not_read_across_its_shape() -> None:
    """A value of each column, behind a comparison that is computed again: not the value of a row."""
    module, _ = module_of(parse(CHEAP), "forward")
    program = lower(module)
    for kernel in program.procedures[0].kernels:
        verify(kernel.nest)
    c, w = (module.parameters[name] for name in "cw")
    x = np.tile(c * w, (64, 1)).astype(np.float32)
    x[1::2, ::3] = 0
    expected = evaluate(module.graphs["forward"], {"x": x, "c": c, "w": w})["y"]
    found = Interpreter(program, MACHINES["v3"]).call("forward", {"x": x}, {"batch": 64}, instance(program.module))["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert len(set(expected)) == 2


# name: what is copied of the parts y and z, [n, 24], that others read as well
COPIES: dict[str, Callable[[Any, Any], Any]] = {
    "first rows": lambda y, z: np.concatenate([y, z]),
    "last rows": lambda y, z: np.concatenate([z, y]),
    "the same rows twice": lambda y, z: np.concatenate([y, y]) + 0 * z[:1],
    "nothing but the same rows": lambda y, z: np.concatenate([y, y]),
    "columns": lambda y, z: np.concatenate([y, z], axis=1),
    "stack": lambda y, z: np.stack([y, z]),
    "padded": lambda y, z: np.pad(y, ((1, 2), (0, 0))) + 0 * z[:1],
    "with an axis of one element": lambda y, z: np.concatenate([y[:, None], z[:, None]], axis=1),
    "transposed": lambda y, z: np.concatenate([y.T, z.T]),
    "of merged axes": lambda y, z: np.concatenate([turned(y).reshape(-1, 24), z], axis=1),
    "of split axes": lambda y, z: np.concatenate([turned(y), turned(z)], axis=1),
    "of rows cut in two": lambda y, z: np.concatenate([y.reshape(-1, 12), z.reshape(-1, 12)], axis=1),
}


def turned(x: Any) -> Any:
    """Rows of 24 as matrices of 4 by 6, transposed."""
    return x.reshape(-1, 4, 6).swapaxes(1, 2)


@pytest.mark.parametrize("name", COPIES)
@pytest.mark.parametrize("is_fused", [True, False])
@pytest.mark.parametrize("isa", ["base", "v3", "v4"])
def test_parts_lie_where_the_copy_has_them(name: str, isa: str, is_fused: bool) -> None:
    """Not more of the copy than the part, whoever else reads it."""

    @mlaot.model
    def model(x: F32[N, 24]):  # type: ignore[no-untyped-def,valid-type]
        y, z = np.exp(x) if is_fused else total(x), np.tanh(total(x))
        return COPIES[name](y, z), total(y), total(z)

    module = passes.run("m", model.trace())
    program = lower(module)
    for kernel in program.procedures[0].kernels:
        verify(kernel.nest)
    x = np.random.default_rng(0).normal(size=(4, 24)).astype(np.float32)
    expected = evaluate(module.declared["forward"], {"x": x})
    results = Interpreter(program, MACHINES[isa]).call("forward", {"x": x}, {"n": 4}, instance(program.module))
    for key, value in expected.items():
        np.testing.assert_allclose(results[key], value, rtol=1e-5, atol=1e-6, err_msg=key)
