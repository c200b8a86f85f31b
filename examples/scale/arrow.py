"""Arrow in, Arrow out: a column of lists, or of bytes, is a matrix, which a model reads and writes where it lies."""

from __future__ import annotations

import math
import struct
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
# The layouts of rows: the attribute of their type with the size of each, or the letter of the buffer with their ends.
FIXED = {"fixed_size_list": "list_size", "fixed_size_binary": "byte_width"}
VARIABLE = {"list": "i", "large_list": "q", "binary": "i", "large_binary": "q"}


def matrix(column: pa.Array, name: str, kind: str, shape: tuple[int, ...]) -> memoryview:
    """Return a column of lists, or of bytes, as an array ``(rows, *shape)`` in Arrow's own memory; the column has rows.

    Raise a ValueError that names the column, and the row of the batch, for all that is no such array.
    """
    rows, width, letter = len(column), math.prod(shape), LETTERS[kind]
    place, type_, size = f"column {name!r}", str(column.type), struct.calcsize(letter)
    layout = type_.partition("<")[0].partition("[")[0]
    is_bytes = layout.endswith("binary")
    if not (is_bytes or (layout.endswith("list") and str(column.type.value_type) == kind)):
        raise ValueError(f"{place}: expected lists of {width} numbers of type {kind}, or their bytes, got {type_}")
    if column.null_count:
        raise ValueError(f"{place}, row {_first_null(column)}: the row is null")
    begin = _begin(column, layout, width * size if is_bytes else width, "bytes" if is_bytes else "numbers", place)
    if is_bytes:
        data = column.buffers()[-1]
    else:
        values = column.values.slice(begin, rows * width)  # `values` are those of the whole column, also of a slice
        if values.null_count:
            null = _first_null(values)
            raise ValueError(f"{place}, row {null // width}: number {null % width} is null")
        data, begin = values.buffers()[1], values.offset * size
    array: memoryview = memoryview(data).cast("B")[begin : begin + rows * width * size].cast(letter, (rows, *shape))
    return array


def _begin(column: pa.Array, layout: str, count: int, unit: str, place: str) -> int:
    """The place of the first element of the first row, if all rows have ``count``."""
    first, rows = int(column.offset), len(column)
    if layout in FIXED:
        size = getattr(column.type, FIXED[layout])
        if size != count:
            raise ValueError(f"{place}, row 0: expected {count} {unit}, got {size}")
        return first * count
    ends: Any = memoryview(column.buffers()[1]).cast("B")
    at = ends.cast(VARIABLE[layout])[first : first + rows + 1].tolist()
    if at != list(range(at[0], at[0] + rows * count + 1, count)):
        sizes = [after - before for before, after in pairwise(at)]
        row = next(i for i, size in enumerate(sizes) if size != count)
        raise ValueError(f"{place}, row {row}: expected {count} {unit}, got {sizes[row]}")
    return int(at[0])


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
