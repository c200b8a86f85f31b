"""Weights of products in 16 bits: which ones, what becomes of them, and kernels that widen them."""

import os
import re
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlaot
import mlaot.nn as nn
from mlaot.errors import MlaotError
from mlaot.frontend.trace.tensor import parameters
from mlaot.generate import compile_model
from mlaot.ir.module import Module
from mlaot.ir.types import round_bf16
from mlaot.loading import trace
from mlaot.passes import run
from mlaot.settings.options import Options

from ...compiled import AVAILABLE, Library
from ...projects import build_module, load

ROUND = {"float16": lambda a: a.astype(np.float16).astype(np.float32), "bfloat16": round_bf16}
BATCH = mlaot.dim("batch")
draw = np.random.default_rng(0)
W, V, BIAS = (draw.standard_normal(shape, np.float32) for shape in ((5, 33), (33, 18), 18))


def passed(declared: Any, dtype: str) -> Module:
    return run("nn", trace(declared), Options(weights_dtype=dtype))


@mlaot.model
def dense(x: mlaot.f32[BATCH, 5]):
    return np.maximum(x @ W, 0) @ V + BIAS


@pytest.mark.parametrize("dtype", ROUND)
def test_weights_of_products_are_rounded_and_others_are_not(dtype: str) -> None:
    module = passed(dense, dtype)
    kept = {name: module.parameters[name] for name in module.graphs["forward"].inputs if name != "x"}
    assert sorted(kept) == sorted(module.narrow) and {str(d) for d in module.narrow.values()} == {
        {"float16": "f16", "bfloat16": "bf16"}[dtype]
    }
    found = {value.shape: value for value in kept.values()}
    assert found.keys() == {(5, 33), (33, 18)}
    np.testing.assert_array_equal(found[5, 33], ROUND[dtype](W))


HALF = W.astype(np.float16)
LARGE = draw.standard_normal((64, 64)).astype(np.float16)


def test_weights_that_16_bits_hold_are_stored_so_unasked() -> None:
    whole = np.rint(64 * V.repeat(2, axis=1)).astype(np.float32)

    @mlaot.model
    def halves(x: mlaot.f16[BATCH, 64], y: mlaot.f32[BATCH, 33], z: mlaot.f32[BATCH, 5]):
        return x @ LARGE, y @ whole, y @ V.repeat(2, axis=1), z @ HALF.astype(np.float32)

    module = run("nn", trace(halves))
    stored = {module.parameters[name].shape: str(dtype) for name, dtype in module.narrow.items()}
    assert stored == {(64, 64): "f16", (33, 36): "f16"}  # neither what would be rounded nor what is small
    (name,) = (name for name in module.narrow if module.parameters[name].shape == (33, 36))
    np.testing.assert_array_equal(module.parameters[name], whole)


TABLE = parameters({"table": V})


def test_what_something_else_reads_too_stays() -> None:
    @mlaot.model
    def tied(i: mlaot.i32[BATCH], x: mlaot.f32[BATCH, 18]):
        return np.take(TABLE["table"], i, axis=0) + x, x @ TABLE["table"].T

    assert passed(tied, "float16").narrow == {}
    assert passed(dense, "").narrow == {}


@mlaot.model
def rows(i: mlaot.i32[BATCH], j: mlaot.i32[BATCH]):
    return np.take(TABLE["table"], i, axis=0) + 2 * np.take(TABLE["table"], j, axis=0)


def test_rows_of_tables_are_gathered_narrow() -> None:
    module = passed(rows, "float16")
    lines = str(module.graphs["forward"]).splitlines()
    assert sum("= gather(" in line and line.endswith("f16[batch,18]") for line in lines) == 2
    assert [line.split("= ")[1] for line in lines if "name=table" in line] == [
        "input(name=table, parameter=True) : f16[33,18]"
    ]
    np.testing.assert_array_equal(module.parameters["table"], ROUND["float16"](V))


def test_training_is_refused() -> None:
    net = nn.Linear(3, 2)

    @mlaot.model(loss=np.sum, parameters=net)
    def trains(x: mlaot.f32[BATCH, 3]):
        return net(x)

    with pytest.raises(MlaotError, match="is for weights that are frozen, and this model trains; leave the key out"):
        passed(trains, "float16")


def test_numbers_beyond_float16_are_refused() -> None:
    large = np.full((4, 4), 1e5, np.float32)

    @mlaot.model
    def beyond(x: mlaot.f32[BATCH, 4]):
        return x @ large

    with pytest.raises(MlaotError, match="has numbers that float16 cannot hold; use bfloat16"):
        passed(beyond, "float16")
    assert passed(beyond, "bfloat16").narrow


def mlp(*sizes: int) -> Any:
    weights = [draw.standard_normal(shape, np.float32) for shape in pairwise(sizes)]

    @mlaot.model
    def model(x: mlaot.f32[BATCH, sizes[0]]):
        for w in weights:
            x = np.tanh(x @ w)
        return x

    return model


def of(net: Any, *shape: int) -> Any:
    @mlaot.model(parameters=net)
    def model(x: mlaot.f32[(BATCH, *shape)]):
        return net(x)

    return model


KINDS: dict[str, tuple[str, Callable[[], Any]]] = {
    "columns apart": ("float16", lambda: mlp(5, 33, 18)),
    "panels": ("bfloat16", lambda: mlp(19, 130)),
    "lanes along the sum": ("float16", lambda: mlp(77, 3)),
    "convolution": ("bfloat16", lambda: of(nn.Conv2d(3, 16, 5), 3, 9, 9)),
    "table": ("bfloat16", lambda: rows),
    "winograd": ("float16", lambda: of(nn.Conv2d(64, 64, 3, padding=1), 64, 8, 8)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_kernels_widen_them(kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The golden vectors are those of the rounded weights."""
    dtype, declared = KINDS[kind]
    library = build_module(declared(), "narrow", tmp_path / "site", AVAILABLE, golden=True, weights_dtype=dtype)
    said = rf"mlaot: narrow\.nn: weights as {dtype} save [\d,]+ bytes.*; they move forward by [\d.]+ % of the largest"
    assert re.search(said, capfd.readouterr().out)
    shares = load(library).selftest()
    assert set(shares) == set(AVAILABLE) and max(shares.values()) < 0.2
    short = {"float16": "f16", "bfloat16": "bf16"}[dtype]
    for isa in AVAILABLE:
        text = (tmp_path / "site-c" / "narrow.nn" / f"nn_{isa}.c").read_text()
        assert re.search(rf"(load_{short}_as_f32v|f32_from_{short})\(", text)


def all_numbers(dtype: str) -> tuple[Any, Any]:
    """A product with every number that is neither very large nor very small, but for subnormal ones of float16."""
    bits = np.arange(65536, dtype=np.uint16)
    values = bits.view(np.float16).astype(np.float32)
    if dtype == "bfloat16":
        values = (bits.astype(np.uint32) << 16).view(np.float32)
    finite = np.isfinite(values) & (np.abs(values) < 1e30) & ((values == 0) | (np.abs(values) > 1e-30))
    table = values[finite][: np.count_nonzero(finite) // 64 * 64].reshape(64, -1)

    @mlaot.model
    def row(x: mlaot.f32[64]):
        return x @ table

    return row, table


@pytest.mark.parametrize("compiler", [None, "zig"])
def test_every_number_is_widened_exactly(compiler: str | None, tmp_path: Path) -> None:
    """On every instruction set, by gcc's functions and by clang's conversion of vectors."""
    if compiler == "zig":
        pytest.importorskip("ziglang")
    zig = f"{sys.executable} -m ziglang cc -target {os.uname().machine}-linux-gnu -fno-sanitize=undefined"
    cc = {} if compiler is None else {"cc": zig}
    made = {dtype: all_numbers(dtype) for dtype in ROUND}
    programs = {
        dtype: compile_model(row, f"{dtype}.nn", Options(isas=AVAILABLE, weights_dtype=dtype))
        for dtype, (row, _) in made.items()
    }
    for isa in AVAILABLE:
        library = Library(programs, isa, tmp_path, **cc)
        for dtype, (_, table) in made.items():
            found = library.call(dtype, "forward", {"x": np.eye(64, dtype=np.float32)}, {"batch": 64})
            np.testing.assert_array_equal(*found.values(), table)


def test_half_as_many_bytes() -> None:
    model = mlp(64, 128)
    sizes = [
        len(compile_model(model, "nn.nn", Options(isas=("base",), weights_dtype=d)).module.constants)
        for d in ("", "float16")
    ]
    assert sizes == [64 * 128 * 4, 64 * 128 * 2]
