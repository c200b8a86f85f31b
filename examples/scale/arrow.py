"""Arrow in, Arrow out: a column of lists is a matrix, which a model reads and writes where it lies."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

# Arrow's name of a type of numbers, and the letter of a buffer that holds them.
LETTERS: dict[str, Any] = {
    "halffloat": "e",
    "float": "f",
    "double": "d",
    "uint8": "B",
    "int8": "b",
    "int32": "i",
    "int64": "q",
}


def matrix(column: pa.Array, name: str, kind: str, shape: tuple[int, ...]) -> memoryview:
    """Return a column of lists as an array ``(rows, *shape)`` in Arrow's own memory; the column has rows.

    Raise a ValueError that names the column, and the row of the batch, for all that is no such array.
    """
    rows, width, place = len(column), math.prod(shape), f"column {name!r}"
    layout = str(column.type).partition("<")[0]
    if layout not in ("fixed_size_list", "large_list", "list") or str(column.type.value_type) != kind:
        raise ValueError(f"{place}: expected lists of {width} numbers of type {kind}, got {column.type}")
    if column.null_count:
        raise ValueError(f"{place}, row {_first_null(column)}: the list is null")
    if layout == "fixed_size_list":
        begin = column.offset * width
        if column.type.list_size != width:
            raise ValueError(f"{place}, row 0: expected {width} numbers, got {column.type.list_size}")
    else:
        letter = LETTERS["int32" if layout == "list" else "int64"]
        ends = memoryview(column.buffers()[1]).cast("B").cast(letter)[column.offset : column.offset + rows + 1].tolist()
        begin = ends[0]
        if ends != list(range(begin, begin + rows * width + 1, width)):
            sizes = [after - before for before, after in pairwise(ends)]
            row = next(i for i, size in enumerate(sizes) if size != width)
            raise ValueError(f"{place}, row {row}: expected {width} numbers, got {sizes[row]}")
    values = column.values.slice(begin, rows * width)  # `values` are those of the whole column, also of a slice
    if values.null_count:
        null = _first_null(values)
        raise ValueError(f"{place}, row {null // width}: number {null % width} is null")
    data, letter = memoryview(values.buffers()[1]).cast("B"), LETTERS[kind]
    size = data[:0].cast(letter).itemsize
    array: memoryview = data[values.offset * size : (values.offset + rows * width) * size].cast(letter, (rows, *shape))
    return array


def _first_null(array: pa.Array) -> int:
    """The place of the first null of an array that has one."""
    return int(array.is_valid().to_pylist().index(False))


def vectors(answers: Any) -> pa.FixedSizeListArray:
    """Return a model's answers, a matrix with the buffer protocol, as a column of lists in the same memory."""
    import pyarrow as pa

    view = memoryview(answers)
    rows, width = view.shape or ()
    kind = next(kind for kind, letter in LETTERS.items() if letter == view.format)
    flat = pa.Array.from_buffers(pa.type_for_alias(kind), rows * width, [None, pa.py_buffer(answers)])
    return pa.FixedSizeListArray.from_arrays(flat, width)


def score(
    batch: pa.RecordBatch,
    forward: Callable[[memoryview], Any],
    *,
    shape: tuple[int, ...],
    width: int,
    column: str = "x",
    kind: str = "float",
) -> pa.RecordBatch:
    """Return the ids of a batch and the ``width`` scores of each row: one call of the model, and no copy."""
    import pyarrow as pa

    if len(batch):
        scores = vectors(forward(matrix(batch[column], column, kind, shape)))
    else:
        scores = pa.array([], pa.list_(pa.float32(), width))
    return pa.record_batch([batch["id"], scores], ["id", "scores"])
