"""Functions of strings while a file is imported, and numbers that are computed from strings or images.

For known strings the result is known too. For strings that callers pass, steps compute it before the model runs: the
result is a further input, which the runtime fills. For strings that the model selects, the runtime computes it from an
output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

import mlaot.frontend.numpy as F
from mlaot.errors import MlaotError
from mlaot.frontend.numpy.indexing import take
from mlaot.frontend.trace.context import needed
from mlaot.frontend.trace.promotion import broadcast_shape
from mlaot.frontend.trace.protocols import is_traced
from mlaot.frontend.trace.tensor import Tensor
from mlaot.ir import Dim, Type
from mlaot.ir.dims import dim
from mlaot.ir.types import DTYPES, i64
from mlaot.onnx.importer import Use
from mlaot.onnx.protos import identifier
from mlaot.onnx.texts import is_text, places_in, positions, source_of_texts, table_of
from mlaot.onnx.values import Array, MadeStrings, Source, Strings, Unsupported, as_traced, constant_value, limited
from mlaot.tokenizers.text_steps import MAKERS, PIXELS, Column, TextStep

MOST = 1 << 22  # characters of all strings that two inputs may make
Shape = tuple[Dim, ...]


def make(use: Use, step: TextStep, *operands: Any, wide: bool = False) -> Any:
    """Return the result of a step on strings, or on an array of numbers.

    With ``wide`` the result has a further axis, whose extent is the last of the step's numbers.
    """
    if all(constant_value(x) is not None for x in operands):
        return _of_known(step, [np.asarray(constant_value(x)) for x in operands])
    if not wide and all(constant_value(x) is not None or (isinstance(x, Strings) and not x.is_open) for x in operands):
        return _of_chosen(step, operands)
    width: Shape = (extent_of(use, operands[0].ndim),) if wide else ()
    if wide and isinstance(width[0], int):
        step = replace(step, numbers=(*step.numbers[:-1], width[0]))
    found = _before(use, step, operands, width)
    if found is not None:
        return found
    if wide or (step.dtype and step.kind != "text"):
        raise Unsupported("it takes strings from several inputs, or computed ones; give it the strings of one input")
    return _behind(step, operands)


def extent_of(use: Use, axis: int) -> Dim:
    """Return the extent of an axis of strings or images: that of the file or the settings, or an open dim."""
    type_ = use.declared()
    declared = use.declared_strings() if type_ is None else type_.shape
    if declared is not None and len(declared) > axis:
        return declared[axis]
    name = identifier(f"{use.node.output[0]}_{axis}")
    return use.importer.pinned.get(name) or use.importer.meant.get(name, dim(name))


def _column(array: Array) -> Column:
    if array.dtype.kind not in "UO":
        return Column(array.shape, array.ravel().tolist())
    return Column(array.shape, [str(text).encode(errors="surrogatepass") for text in array.ravel()])


def _of_known(step: TextStep, arrays: Sequence[Array]) -> Array:
    size, longest = prod(np.broadcast_shapes(*[a.shape for a in arrays])), sum(a.dtype.itemsize // 4 for a in arrays)
    if step.kind == "concat" and size * longest > MOST:
        raise Unsupported(f"it makes {size} different strings, which are too many")
    try:
        column = MAKERS[step.kind](step, *map(_column, arrays))
    except ValueError as error:
        raise MlaotError(str(error)) from None
    if step.dtype and step.kind != "text":
        return np.array(column.values, DTYPES[step.dtype].numpy).reshape(column.shape)
    texts: Array = np.array([value.decode(errors="surrogatepass") for value in column.values], np.str_)
    return texts.reshape(column.shape)


def _of_chosen(step: TextStep, operands: Sequence[Any]) -> Any:
    """Return the step's results on each known string that the model selects from; for two operands, on all pairs."""
    tables: list[Array] = [np.array([*dict.fromkeys(table_of(x))], np.str_) for x in operands]
    places = [places_in(table.tolist(), x) for table, x in zip(tables, operands, strict=True)]
    if len(tables) == 1:
        found, index = _of_known(step, tables), places[0]
    else:
        found = _of_known(step, [tables[0][:, None], tables[1][None]]).ravel()
        index = places[0] * len(tables[1]) + places[1]
    return Strings(index, found.astype(object)) if found.dtype.kind == "U" else take(found, index)


def _before(use: Use, step: TextStep, operands: Sequence[Any], width: Shape) -> Any:
    """Return a step's result on inputs, computed before the model runs; None if that is not possible."""
    sources = [_source_of(x) for x in operands]
    if any(source is None for source in sources):
        return None
    kept = [source for source, x in zip(sources, operands, strict=True) if source is not None and is_traced(_index(x))]
    is_whole = all(
        s is not None and s.at is None and s.shape == tuple(x.shape) for s, x in zip(sources, operands, strict=True)
    )
    open_ones = [x for x in operands if constant_value(x) is None]
    if not is_whole and any(np.size(x) != 1 for x in operands if constant_value(x) is not None):
        return None
    alike = {(s.shape, id(s.at), tuple(x.shape)) for s, x in zip(kept, open_ones, strict=True)}
    if not is_whole and len(alike) != 1:  # strings that were moved apart
        return None
    if step.kind == "number" and use.importer.branches:
        raise Unsupported("it makes numbers of strings in a branch; let the model do it before")
    of, shapes = list[TextStep | str](), list[Shape]()
    for source in sources:
        assert source is not None
        is_scalar = not is_whole and isinstance(source.of, TextStep) and source.of.kind == "constant"
        of.append(replace(source.of, numbers=()) if is_scalar and isinstance(source.of, TextStep) else source.of)
        shapes.append(() if is_scalar else source.shape)
    shape = broadcast_shape(shapes)
    found = _input(use, limited(replace(step, of=tuple(of))), (*shape, *width))
    if is_whole:
        return found
    return _moved(found, open_ones[0], kept[0], width)


def _index(value: Any) -> Any:
    return value.index if isinstance(value, Strings) else value


def _source_of(value: Any) -> Source | None:
    """Return the source of strings, or an input of numbers."""
    if isinstance(value, Strings) or constant_value(value) is not None:
        return source_of_texts(value)
    node = value.node.find() if isinstance(value, Tensor) else None
    if node is None or node.op.name != "input" or node.graph is not needed().root.graph or "made" in node.attrs:
        return None
    return Source(node.attrs["name"], tuple(value.shape))


def _input(use: Use, step: TextStep, shape: Shape) -> Any:
    """Return an input that a step makes."""
    is_number = step.dtype != "" and step.kind != "text"
    type_ = Type(DTYPES[step.dtype] if is_number else i64, shape)
    made = use.importer.made_input(use.node.output[0], step, type_, strings=not is_number)
    known: Array = np.array(use.importer.known, object)
    return made if is_number else Strings(made, known, is_open=True, source=Source(step, shape))


def _moved(found: Any, value: Strings, source: Source, width: Shape) -> Any:
    """Return the results on a source at the indices of a value that was selected from it."""
    if source.at is None:
        shape = (*value.shape, *width)
        return replace(found, index=np.reshape(found.index, shape)) if is_text(found) else np.reshape(found, shape)
    at = positions(source, value.shape)
    array = _index(found)
    moved = take(np.reshape(array, (-1, *width)), at, 0)
    if not is_text(found):
        return moved
    if width:
        at = np.expand_dims(at, -1) * as_traced(np.int64(1)) * width[0] + F.arange(width[0])
    return replace(found, index=moved, source=replace(found.source, at=at))


def _behind(step: TextStep, operands: Sequence[Any]) -> MadeStrings:
    """Return strings that a step makes from the model's results."""
    parts, leaves = list[TextStep | str | int](), list[Any]()
    for x in operands:
        array = constant_value(x)
        if isinstance(x, MadeStrings):
            parts.append(_renumbered(x.step, len(leaves)))
            leaves += x.operands
        elif array is not None and array.size == 1:
            parts.append(TextStep("constant", (), (str(array.ravel()[0]),), ()))
        else:
            parts.append(len(leaves))
            leaves.append(x)
    return MadeStrings(
        limited(replace(step, of=tuple(parts))), tuple(leaves), broadcast_shape([tuple(x.shape) for x in operands])
    )


def _renumbered(step: TextStep, first: int) -> TextStep:
    of = (_renumbered(o, first) if isinstance(o, TextStep) else o + first if isinstance(o, int) else o for o in step.of)
    return replace(step, of=tuple(of))


def stacked(known: tuple[str, ...], value: MadeStrings) -> Any:
    """Return the columns that strings are made from, stacked along a last axis if there are several."""
    columns = [places_in(known, x) if is_text(x) else x for x in value.operands]
    if len(columns) == 1:
        return as_traced(columns[0])
    if any(str(column.dtype)[0] not in "iu" for column in columns):
        raise Unsupported("strings are made of several outputs of numbers; let it take one")
    shape: Any = value.shape
    return np.stack([np.broadcast_to(F.astype(as_traced(c), np.int64), shape) for c in columns], axis=-1)


def without(use: Use, x: Any, compared: Any, stopwords: Sequence[str]) -> Any:
    """Return the strings of a row without those whose ``compared`` form is listed; one empty string if none is left."""
    step, operands = TextStep("without", (), tuple(stopwords), (x.ndim,)), (x, compared)
    if all(constant_value(value) is not None for value in operands):
        return _of_known(step, [np.asarray(constant_value(value)) for value in operands])
    sources = [_source_of(value) for value in operands]
    if any(source is None or source.at is not None for source in sources):
        raise Unsupported("how many strings are left is computed when the model runs; let callers pass them in order")
    shape = (*([1] * (x.ndim - 1)), extent_of(use, x.ndim - 1))
    step = replace(step, of=tuple(source.of for source in sources if source is not None))
    return _input(use, limited(step), shape)


def decoded(use: Use, x: Any, pixels: str) -> Any:
    """Return the pixels [height, width, channels] of an image that callers pass as the bytes of a file."""
    source = None if constant_value(x) is not None else _source_of(x)
    if source is None:
        raise Unsupported("an image is decoded before the model computes; let callers pass its bytes as an input")
    if use.importer.branches:
        raise Unsupported("it decodes an image in a branch; let the model do it before")
    step = TextStep("image", (source.of,), numbers=([*PIXELS].index(pixels),), dtype="u8")
    return _input(use, step, (extent_of(use, 0), extent_of(use, 1), len(PIXELS[pixels][0])))
