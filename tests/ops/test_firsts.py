"""The first elements of an order, by insertion and by a heap, as machine code against Python."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlaot.ir import Graph, Type
from mlaot.ir.module import Module
from mlaot.ir.types import DTYPES, DType
from mlaot.lower.lower import lower
from mlaot.ops.sorting import argsort
from mlaot.schedule.tuning import INSERTED_KEYS, INSERTED_WORDS

from ..compiled import AVAILABLE, Library

Array = np.ndarray[Any, Any]
ROWS, EXTENT = 8, 203
COUNTS = (1, 7, 8, INSERTED_KEYS, INSERTED_KEYS + 1, INSERTED_WORDS, INSERTED_WORDS + 1)
SORTED = [d for d in DTYPES.values() if d.kind != "f" or d.itemsize >= 4]


def graph_of(dtype: DType, count: int, axis: int, descending: bool) -> Graph:
    graph = Graph("forward")
    x = graph.input("x", Type(dtype, (ROWS, EXTENT) if axis else (EXTENT, ROWS)))
    graph.outputs["y"] = argsort(x, axis=axis, descending=descending, count=count)
    return graph


def rows_of(dtype: DType) -> Array:
    """Rows of few values, with the ends of the dtype, nan and both zeros among them, some nearly all of one value."""
    rng = np.random.default_rng(0)
    if dtype.kind == "f":
        values = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -2.0], dtype.numpy)
    elif dtype.kind == "b":
        values = np.array([False, True])
    else:
        ends = np.iinfo(dtype.numpy)
        values = np.array([ends.max, ends.max - 1, ends.min, ends.min + 1, 3, 5], dtype.numpy)
    usual = rng.choice(values, (ROWS, EXTENT))
    for row in range(1, ROWS):
        usual[row, rng.random(EXTENT) < 0.98] = values[row % len(values)]
    return usual


def order_of(row: Array, descending: bool) -> list[int]:
    """The indices in order: stable, nan above all numbers."""

    def key(value: Any) -> tuple[bool, Any]:
        return (True, 0) if value != value else (False, value)

    values = [key(value) for value in row.tolist()]
    ranks = {value: rank for rank, value in enumerate(sorted(set(values), reverse=descending))}
    return sorted(range(len(row)), key=lambda i: ranks[values[i]])


@pytest.mark.parametrize("isa", AVAILABLE)
def test_first_elements_are_those_of_a_stable_sort(isa: str, tmp_path: Path) -> None:
    cases = {
        f"{dtype}_{count}_{axis}_{descending:d}": (dtype, count, axis, descending)
        for dtype, count, axis, descending in product(SORTED, COUNTS, (0, 1), (False, True))
        if count in (7, COUNTS[-1]) or (axis and dtype.kind == "f")
    }
    programs = {name: lower(Module("m", {"forward": graph_of(*case)}, {}, False)) for name, case in cases.items()}
    library = Library(programs, isa, tmp_path)
    for name, (dtype, count, axis, descending) in cases.items():
        x = rows_of(dtype)
        found = library.call(name, "forward", {"x": x if axis else x.T.copy()})["y"]
        expected = [order_of(row, descending)[:count] for row in x]
        assert (found if axis else found.T).tolist() == expected, name
