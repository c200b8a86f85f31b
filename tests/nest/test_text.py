"""Nests as text: what is printed is read back, and what is equal whatever it is called."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mlaot.ir.module import Module
from mlaot.ir.types import f32
from mlaot.lower.lower import lower
from mlaot.nest.canonical import canonical
from mlaot.nest.expressions import Array, Index, ValueType, Var
from mlaot.nest.statements import For, Let, eliminate_dead_code, free_variables, substitute_body, walk
from mlaot.nest.text import nest_text, parse_nest
from mlaot.passes.algebra.legalize import legalize

from ..ops.samples import samples
from ..ops.test_c import graph_of

NORM = """\
def norm(out: f32[64 * batch], x: f32[64 * batch]):
    # v0 = sum(x) : f32[batch]
    row = local(f32, 64)
    for i in parallel(0, batch):
        s: f32 = f32(0.0)
        for j in vector(0, 64):
            x0 = x[i * 64 + j]
            s = s + (x0 * x0)
            row[j, ...] = x0
        scale = f32(1.0) / sqrt(s)
        for j in vector(0, 64):
            out[i * 64 + j] = row[j, ...] * scale
"""
LANES = """\
def lanes(out: f32[n], flags: bool[n], x: f16[n], table: i32[8]):
    offsets = table(i32, 4, [3, 1, 4, 1])
    for j in parallel_vector(0, n + -7, 8):
        x0 = cast[f32](x[j:8])
        m = x0 > splat[8](f32(0.5))
        out[j:8] = select(m, x0, f32x8(nan))
        flags[j:8:2, n + -1 * j] = m
    while n > 0:
        if (n < 3) | (n > 5):
            break
        else:
            prefetch(out[4 * n])
            with block:
                out[0] = cast[f32](offsets[n])
    for k in down(0, n):
        e = mod(k, 3)
        out[e] = -1
"""


@pytest.mark.parametrize("text", [NORM, LANES.replace("        out[e] = -1\n", "        out[e] = f32(-inf)\n")])
def test_text_is_read_back(text: str) -> None:
    nest = parse_nest(text)
    printed = nest_text(nest)
    assert parse_nest(printed) == nest
    assert nest_text(parse_nest(printed)) == printed


def test_text_that_is_no_nest() -> None:
    for text, message in (
        ("x = 1", "line 1: expected def"),
        ("def f(x: f32[4]):\n    return x", "line 2: return x is no statement"),
        ("def f(x: f32[4]):\n    y[0] = x[0]", "line 2: y is no array"),
        ("def f(x):\n    pass", "expected x: dtype"),
        ("def f(:\n", "line 1: invalid syntax"),
    ):
        with pytest.raises(ValueError, match=message):
            parse_nest(text)


@pytest.mark.parametrize(
    "name",
    [
        "take",
        "reshape",
        "pad",
        "fold",
        "gather",
        "scatter",
        "sum",
        "argmax",
        "cumsum",
        "argsort",
        "sort",
        "random_bits",
    ],
)
def test_kernels_of_one_node_are_read_back(name: str) -> None:
    """Loops down, tables, conditions, variables of type index that are assigned to."""
    for sample in samples(name)[:12]:
        made = graph_of(name, sample, f32)
        if made is None:
            continue
        legalize(made[0])
        program = lower(Module("ops", {"forward": made[0]}, {}, False))
        for kernel in program.procedures[0].kernels:
            assert parse_nest(nest_text(kernel.nest)) == kernel.nest


def test_nests_are_equal_whatever_they_call_things() -> None:
    other = NORM.replace("batch", "n").replace("row", "kept").replace("scale", "c").replace("x0", "value")
    assert canonical(parse_nest(NORM))[0] == canonical(parse_nest(other))[0]
    assert canonical(parse_nest(NORM))[1] == ("batch",) and canonical(parse_nest(other))[1] == ("n",)
    for old, new in (("i * 64 + j", "i * 65 + j"), ("sqrt", "exp"), ("parallel", "range"), ("f32(1.0)", "f32(-1.0)")):
        assert canonical(parse_nest(NORM.replace(old, new)))[0] != canonical(parse_nest(NORM))[0], old


def test_numbers_are_told_apart_by_their_bits() -> None:
    zeros = [parse_nest(f"def f(x: f32[1]):\n    x[0] = f32({zero})\n") for zero in ("0.0", "-0.0", "nan", "nan")]
    assert zeros[0] != zeros[1] and zeros[2] == zeros[3]


def test_free_variables_and_substitution() -> None:
    nest = parse_nest(NORM)
    assert nest.dims == ("batch",) and nest.written_arrays == {"out", "row"}
    (loop,) = (s for s in nest.body if isinstance(s, For))
    assert free_variables(loop.body) == {"i"}
    moved = substitute_body(loop.body, {"i": Index(3)})
    assert free_variables(moved) == set() and "x[j + 192]" in nest_text(replace(nest, body=moved))


def test_what_nothing_reads_goes() -> None:
    x = Array("x", "f32", 4)
    unused = Let(Var("y", ValueType("f32")), x[Index(0)])
    used = Let(Var("z", ValueType("f32")), x[Index(1)])
    store = parse_nest("def f(x: f32[4]):\n    z = x[1]\n    x[0] = z\n").body[1]
    assert [*walk(eliminate_dead_code((unused, used, store)))] == [used, store]
