"""Names of users in C: none meets a name of C, of its headers, or of the C around it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlaot
from mlaot import passes
from mlaot.generate import compile_model
from mlaot.ir import Graph, dim
from mlaot.ir.dims import names, parse
from mlaot.ir.module import Module
from mlaot.ir.types import f32
from mlaot.lower.identifiers import KEYWORDS, array_name, c_expression, dim_name, is_taken, with_c_dims
from mlaot.lower.lower import lower
from mlaot.lower.program import Program
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.passes.algebra.legalize import legalize
from mlaot.passes.algebra.upcast import upcast
from mlaot.printing.file import kernels_file
from mlaot.schedule.machine import MACHINES
from mlaot.settings.options import Options

from ..compiled import CC, Library
from ..fuzz.names import WORDS
from ..fuzz.random_graphs import compile_case, make_case
from ..ops.samples import SAMPLES, samples
from ..ops.test_c import graph_of

HEADERS = ("stdbool", "stddef", "stdint", "stdio", "stdlib", "string", "limits", "float", "math", "errno", "complex")
WITHOUT_NAMES = re.compile(r"//.*|\"[^\"]*\"|\b[\d.]\w*(\.\w+)?([-+]\d+[fuUlL]*)?")
KERNEL = re.compile(
    r"^static void \w+\((?!char \*const|void \*threads)([^)]*)\)\n\{\n(.*?)^\}", re.MULTILINE | re.DOTALL
)
identifiers = st.text(min_size=1, max_size=8).filter(str.isidentifier) | st.sampled_from(WORDS)


def test_names_stay_as_they_are_where_they_can() -> None:
    assert [array_name(n) for n in ("x", "weights.0", "für", "0a", "int", "x1", "v3", "n", "W", "W1", "NULL", "I")] == [
        *("x", "weights_0", "f_r", "x_0a", "x_int", "x_x1", "x_v3", "n", "W", "W1", "x_NULL", "x_I"),
    ]
    assert [dim_name(n) for n in ("batch", "tokens", "out", "é", "aé", "名前")] == [
        *("batch", "n_tokens", "n_out", "u_9ca", "u_a_bga", "u_ldr85b"),
    ]


@given(st.lists(identifiers, unique=True, min_size=2, max_size=6))
def test_dims_have_names_of_their_own(found: list[str]) -> None:
    """In ASCII, each another, and none that an array can have."""
    made = [dim_name(name) for name in found]
    assert len(set(made)) == len(made)
    assert all(name.isascii() and name.isidentifier() for name in made)
    assert not set(made) & {array_name(name) for name in (*found, *made)}


@given(st.lists(identifiers, min_size=1, max_size=3), st.integers(-9, 9), st.integers(2, 9))
def test_what_is_written_is_parsed(found: list[str], factor: int, divisor: int) -> None:
    extent = dim(found[0])
    for name in found[1:]:
        extent = (extent * factor + dim(name) * extent) // divisor - 3
    assert parse(str(extent)) == extent
    assert all(name == "batch" or name[:2] in ("n_", "u_") for name in names(parse(c_expression(extent))))


@pytest.mark.parametrize(
    "text", ["", "n +", "(n", "n)", "n // m", "n / 0", "n ** 2", "n.real", "f(n)", "n,", "²", "[n]"]
)
def test_what_is_no_extent_is_not_parsed(text: str) -> None:
    with pytest.raises(ValueError, match="dimension"):
        parse(text)


def kernels(program: Program) -> Iterator[tuple[set[str], set[str]]]:
    """For each kernel on each instruction set: its parameters, and the other names in it."""
    for isa in MACHINES.values():
        text = WITHOUT_NAMES.sub(" ", kernels_file(program, "m", isa))
        for signature, body in KERNEL.findall(text):
            parameters = {part.split()[-1].lstrip("*") for part in signature.split(",")}
            yield parameters, set(re.findall(r"(?<!\.)\b[A-Za-z_]\w*", body)) - parameters


def one_of_each_op() -> Iterator[Program]:
    for name in sorted(set(SAMPLES) - {"size"}):
        for sample in samples(name)[::8]:
            made = graph_of(name, sample, f32)
            if made is not None:
                upcast(made[0])
                legalize(made[0])
                yield lower(Module("m", {"forward": made[0]}, {}, False))


@mlaot.model
def far_rows(x: mlaot.f32[2048, 600], y: mlaot.f32[2048, 1024], z: mlaot.f32[200, 2048]) -> Any:
    """Products in panels, of packed copies."""
    return x.T @ y, z @ y


def test_an_array_is_called_as_nothing_in_a_kernel() -> None:
    """Whatever name a kernel uses, an array that is called so gets another."""
    large = compile_model(far_rows, "m", Options())
    programs = [*one_of_each_op(), large, *(compile_case(make_case(seed), passes.PIPELINE, "m") for seed in range(6))]
    found = [kernel for program in programs for kernel in kernels(program)]
    assert len(found) > 400
    clashes = {name for _, others in found for name in others if not is_taken(name)}
    assert not clashes, "mlaot.lower.identifiers does not know these names of our own"


def test_an_array_is_called_as_no_macro(tmp_path: Path) -> None:
    """Neither one that the compiler has, nor one of the C library's headers."""
    source = tmp_path / "macros.c"
    source.write_text("".join(f"#include <{name}.h>\n" for name in HEADERS))
    done = subprocess.run([*CC.split(), "-dM", "-E", str(source)], capture_output=True, text=True, check=True)
    macros = re.findall(r"^#define (\w+) ", done.stdout, re.MULTILINE)
    assert len(macros) > 300 and "INT_MAX" in macros
    assert [name for name in macros if array_name(name) == name] == []


def test_an_array_is_called_as_no_keyword() -> None:
    words = [word for word in KEYWORDS.pattern.split("|") if word.isidentifier()]
    assert len(words) > 100 and all(array_name(word) == f"x_{word}" for word in words)


def test_graphs_are_copied_only_for_the_names_of_dims() -> None:
    graph = Graph("forward")
    graph.outputs["y"] = ew.neg(graph.input("x", f32[dim("batch"), 3]))
    assert with_c_dims(graph) is graph
    graph = Graph("forward")
    x = graph.input("x", f32[dim("class") * 2, 3])
    graph.outputs["y"] = ew.neg(x)
    assert "v1 = neg(v0) : f32[n_class * 2,3]" in str(with_c_dims(graph))


def test_everything_may_be_called_anything(tmp_path: Path) -> None:
    """An input, its dim and the outputs, each with a word that C, Python or mlaot uses; they are computed, too."""
    x = np.arange(1, 7, dtype=np.float32).reshape(2, 3)
    programs, calls = {}, {}
    for i, (word, other) in enumerate(pairwise(WORDS[::4])):
        graph = Graph("forward")
        given = graph.input(word, f32[dim(word), dim(f"{other}2")])
        total = red.sum_(ew.exp(given), axes=(1,))
        graph.outputs = {other: ew.neg(given), f"{other}_": total}
        legalize(graph)
        programs[f"g_{i}"] = lower(Module("m", {"forward": graph}, {}, False))
        calls[f"g_{i}"] = {word: x}, {word: 2, f"{other}2": 3}
    library = Library(programs, "base", tmp_path)
    for stem, (arrays, sizes) in calls.items():
        found = library.call(stem, "forward", arrays, sizes).values()
        for one, expected in zip(found, (-x, np.exp(x).sum(axis=1)), strict=True):
            np.testing.assert_allclose(one, expected, rtol=1e-5, err_msg=str(arrays.keys()))
