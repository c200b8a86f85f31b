"""Sequences and optionals, which are lists and None of Python while importing, and not part of the module."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.onnx.importer import Use
from mlaot.onnx.registry import operator
from mlaot.onnx.texts import is_text, move_texts
from mlaot.onnx.values import Computed, Strings, Unsupported, constant_value, integers, lift, require_constant


@operator("SequenceConstruct", symbolic=True, labels=True)
def sequence_construct(*values: Any) -> Any:
    return list(values)


@operator("SequenceEmpty")
def sequence_empty() -> Any:
    return []


@operator("SequenceLength")
def sequence_length(values: Any) -> Any:
    return np.array(len(values), np.int64)


@operator("SequenceAt", symbolic=True, labels=True)
def sequence_at(values: Any, position: Any) -> Any:
    place = _place(position, len(values), len(values))
    if isinstance(place, int):
        return values[place]
    return np.take(np.stack(_of_one_type(values)), place, axis=0)


@operator("SequenceInsert", symbolic=True, labels=True)
def sequence_insert(values: Any, new: Any, position: Any = None) -> Any:
    place = len(values) if position is None else _place(position, len(values), len(values) + 1)
    if isinstance(place, int):
        return [*values[:place], new, *values[place:]]
    *old, new = _of_one_type([*values, new])
    before, after = [*old, new], [new, *old]  # where nothing is inserted yet, and where something was
    shifted = [np.where(i < place, a, b) for i, (a, b) in enumerate(zip(before, after, strict=True))]
    return [np.where(i == place, new, value) for i, value in enumerate(shifted)]


@operator("SequenceErase", symbolic=True)
def sequence_erase(values: Any, position: Any = None) -> Any:
    place = len(values) - 1 if position is None else _place(position, len(values), len(values))
    if isinstance(place, int):
        if place < 0:
            raise MlaotError("nothing can be taken from an empty sequence")
        return [*values[:place], *values[place + 1 :]]
    old = _of_one_type(values)
    return [np.where(i < place, a, b) for i, (a, b) in enumerate(pairwise(old))]


def _place(position: Any, length: int, places: int) -> Any:
    """Return a position as an index; a negative position counts from the end."""
    if constant_value(position) is None:
        at = np.reshape(position, ()).astype(np.int64)
        return np.where(at < 0, at + length, at)
    (at,) = integers(position, "the position")
    if not isinstance(at, int):
        raise Unsupported(f"the position {at} depends on open dimensions; pin them in [..dims]")
    if not -length <= at < places:
        raise MlaotError(f"there is no position {at} in a sequence of {length}")
    return at + length if at < 0 else at


def _of_one_type(values: Any) -> list[Any]:
    """Return elements of one type, between which a computed position can select."""
    if any(map(is_text, values)):
        raise Unsupported("the position is computed when the model runs, but the elements are strings")
    elements = [lift(value) for value in values]
    kinds = dict.fromkeys(f"{value.dtype}[{', '.join(map(str, value.shape))}]" for value in elements)
    if len(kinds) > 1:
        raise Computed(f"the position is computed when the model runs, but the elements are {' and '.join(kinds)}")
    if not kinds:
        raise MlaotError("there is nothing in an empty sequence")
    return elements


@operator("ConcatFromSequence", symbolic=True)
def concat_from_sequence(use: Use, values: Any, *, new_axis: bool = False, axis: Any = None) -> Any:
    if not values:
        raise MlaotError("an empty sequence cannot be joined")
    if any(map(is_text, values)):
        return move_texts(use, lambda *places: _joined(places, new_axis, axis), values)
    return _joined(values, new_axis, axis)


def _joined(values: Any, new_axis: bool, axis: Any) -> Any:
    together = any(constant_value(value) is None for value in values)
    values = [lift(value) for value in values] if together else list(values)
    join: Any = np.stack if new_axis else np.concatenate
    return join(values, axis=axis)


@operator("SplitToSequence", labels=True)
def split_to_sequence(use: Use, x: Any, sizes: Any = None, *, keepdims: bool = True) -> Any:
    axis = use.attribute("axis", 0) % x.ndim
    length = x.shape[axis]
    lengths = np.array(1) if sizes is None else require_constant(sizes, "its second input, the sizes,")
    if not isinstance(length, int):
        raise Unsupported(f"an axis of {length} elements cannot be split; pin the dimension in [..dims]")
    if lengths.ndim:
        parts = [int(size) for size in lengths]
        if sum(parts) != length or min(parts, default=0) < 0:
            raise MlaotError(f"parts of {parts} do not make {length}")
    else:
        part = int(lengths)
        if part < 1:
            raise MlaotError(f"parts of {part} elements")
        parts = [min(part, length - start) for start in range(0, length, part)]
    ends = [int(end) for end in np.cumsum(parts)[:-1]]
    keep = sizes is not None or keepdims

    def split(values: Any) -> tuple[Any, ...]:
        arrays = tuple(np.split(values, ends, axis=axis)) if parts else ()
        return arrays if keep else tuple(np.squeeze(array, axis=axis) for array in arrays)

    return list(move_texts(use, split, [x]) if isinstance(x, Strings) else split(x))


@operator("Optional", "OptionalGetElement", symbolic=True, labels=True)
def optional(use: Use, value: Any = None) -> Any:
    if value is None and use.op == "OptionalGetElement":
        raise MlaotError("there is nothing in an empty optional")
    return value


@operator("OptionalHasElement", symbolic=True)
def optional_has_element(value: Any = None) -> Any:
    return np.array(value is not None)
