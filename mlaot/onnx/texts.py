"""Texts while a file is imported: the known texts of the file, and indices of these."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import onnx

from mlaot.frontend.numpy.creation import arange
from mlaot.frontend.numpy.indexing import take
from mlaot.ir.dims import product
from mlaot.onnx.codes import MOVES, SHAPES
from mlaot.onnx.protos import all_nodes, attribute_value, constant, inner_graphs
from mlaot.onnx.values import (
    MOST_STEPS,
    Array,
    Entries,
    MadeStrings,
    Maps,
    Refined,
    Source,
    Strings,
    Unsupported,
    constant_value,
    extent_value,
)
from mlaot.tokenizers.text_steps import TextStep

TEXTS = ("strings", "string_vocabulary")  # how the names of attributes end that are texts to compute with
ALONE = ("value_string", "default_string")  # attributes that are one text to compute with, and no setting
IN_ORDER = ("Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze")  # operators that change the shape at most
MOST_AXES = 7  # of a constant that a step takes
MADE = "it takes strings that are made of what the model computes; only callers can get these"
FILLING = ("Pad", "Trilu")  # operators that move values, and put zeros between them


def known_texts(model: onnx.ModelProto) -> tuple[str, ...]:
    """Return every text that the file may compare with or return, each once, and at least one."""
    nodes = [*all_nodes(model.graph), *(node for f in model.functions for outer in f.node for node in _within(outer))]
    graphs = [model.graph, *(graph for node in nodes for graph in inner_graphs(node))]
    arrays = [_texts_of(tensor) for graph in graphs for tensor in graph.initializer]
    arrays += [_texts_of(sparse.values) for graph in graphs for sparse in graph.sparse_initializer]
    attributes = [a for node in nodes for a in node.attribute]
    attributes += [a for f in model.functions for a in f.attribute_proto]
    texts = [text for attribute in attributes for text in _of_attribute(attribute)]
    return tuple(dict.fromkeys([*(text for array in arrays for text in array), *texts])) or ("",)


def _within(node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    """Yield a node and those of graphs inside of it."""
    yield node
    for graph in inner_graphs(node):
        yield from all_nodes(graph)


def _texts_of(tensor: onnx.TensorProto) -> list[str]:
    return constant(tensor).ravel().tolist() if tensor.data_type == onnx.TensorProto.STRING else []


def _of_attribute(attribute: onnx.AttributeProto) -> list[str]:
    """Return the texts of an attribute. Other string attributes are settings, such as the modes of a tree's nodes."""
    if attribute.type == attribute.TENSOR:
        return _texts_of(attribute.t)
    is_texts = attribute.type == attribute.STRINGS and attribute.name.endswith(TEXTS)
    is_text = attribute.type == attribute.STRING and attribute.name in ALONE
    found = attribute_value(attribute) if is_texts or is_text else []
    return [found] if isinstance(found, str) else list(found)


def is_text(value: Any) -> bool:
    """Tell whether a value holds texts, known or selected when the model runs."""
    if isinstance(value, Strings | MadeStrings):
        return True
    array = constant_value(value)
    return array is not None and array.dtype.kind == "U"


def table_of(value: Any) -> list[str]:
    """Return the texts that a value selects from, or all that it holds."""
    if isinstance(value, MadeStrings):
        raise Unsupported(MADE)
    return [str(text) for text in np.ravel(value.table if isinstance(value, Strings) else np.asarray(value))]


def integers_of(value: MadeStrings) -> Any:
    """Return the integers that strings are made from, if there is nothing else in them."""
    is_integer = value.step.kind == "text" and value.step.of == (0,) and value.step.dtype[0] in "iu"
    return value.operands[0] if is_integer else None


def is_plain(text: str) -> bool:
    """Tell whether a string is the plain form of an integer."""
    return text.removeprefix("-").isdecimal() and text.isascii() and str(int(text)) == text


def places_in(table: Sequence[str], value: Any) -> Any:
    """Return the indices of texts in a table that has them all. Texts that callers pass are in the importer's table."""
    own = table_of(value)
    if isinstance(value, Strings) and own == list(table):
        return value.index
    place = {text: i for i, text in enumerate(table)}
    if missing := [text for text in own if text not in place]:
        raise Refined("texts that are computed are compared with others that are too", {}, tuple(missing))
    return look_up(value, place, len(table))


def look_up(value: Any, numbers: Mapping[str, int], other: int) -> Any:
    """Return the number of each text, or ``other`` for texts without a number."""
    found = np.array([numbers.get(text, other) for text in table_of(value)], np.int64)
    if not isinstance(value, Strings):
        return found.reshape(value.shape)
    return pick(value, np.append(found, other))


def pick(value: Strings, values: Array) -> Any:
    """Return the element of ``values`` for each text of a table, and the last element for other texts."""
    return take(values, np.minimum(value.index, len(values) - 1) if value.is_open else value.index)


def common_table(known: tuple[str, ...], values: Sequence[Any]) -> tuple[str, ...]:
    """Return a table for several texts: ``known`` if callers pass some, or else all texts that they hold."""
    if any(isinstance(value, Strings) and value.is_open for value in values):
        return known
    return tuple(dict.fromkeys(text for value in values for text in table_of(value)))


def as_strings(table: Sequence[str], index: Any, values: Sequence[Any]) -> Strings:
    """Return texts by their indices in a table. Like those of ``values``, they may be unknown."""
    is_open = any(isinstance(value, Strings) and value.is_open for value in values)
    return Strings(index, np.array(table, object), is_open)


def text_function(node: onnx.NodeProto, function: Callable[..., Any], inputs: Sequence[Any]) -> Callable[..., Any]:
    """Return the function of an operator on texts that are selected when the model runs; it computes with indices."""
    is_own = node.domain not in ("", "ai.onnx")
    places = () if is_own or node.op_type in FILLING else MOVES.get(node.op_type, ())
    moves = places != ()
    if not is_own and node.op_type in ("Equal", *SHAPES):
        places = None
    at = range(len(inputs)) if places is None else places
    if any(isinstance(value, Maps | Entries) or (is_text(value) and i not in at) for i, value in enumerate(inputs)):
        raise Unsupported("it takes strings or maps that are computed when the model runs; use integer labels")

    return lambda use, *operands: move_texts(use, function, operands, moves=moves)


def move_texts(use: Any, function: Callable[..., Any], operands: Sequence[Any], *, moves: bool = True) -> Any:
    """Call a function of texts with their indices in one table; if it ``moves`` texts, the results are texts."""
    if use.attribute("reduction", "none") != "none":
        raise Unsupported("strings have no sum, no product, and no order")
    texts = [value for value in operands if is_text(value)]
    if moves and len(texts) == 1 and isinstance(texts[0], MadeStrings):
        return move_made(use, function, operands, texts[0])
    if len(texts) == 1 and isinstance(texts[0], Strings):
        table = tuple(table_of(texts[0]))
    else:
        table = common_table(use.importer.known, texts)
    result = use.call(function, *[places_in(table, value) if is_text(value) else value for value in operands])
    if not moves:
        return result
    moved = moved_source(use, function, operands, texts)
    results = result if isinstance(result, tuple) else (result,)
    sources: Sequence[Source | None] = moved or [None] * len(results)
    found = tuple(replace(as_strings(table, r, texts), source=s) for r, s in zip(results, sources, strict=True))
    return found if isinstance(result, tuple) else found[0]


def move_made(use: Any, function: Callable[..., Any], operands: Sequence[Any], made: MadeStrings) -> Any:
    """Move the operands that strings are made from in place of the strings."""

    def moved(value: Any) -> Any:
        call = partial(move_texts, use, function) if is_text(value) else partial(use.call, function)
        given = [value if operand is made else operand for operand in operands]
        return call(given) if is_text(value) else call(*given)

    if any(tuple(value.shape) != made.shape for value in made.operands):
        raise Unsupported(MADE)
    parts = [moved(value) for value in made.operands]
    if isinstance(parts[0], tuple):
        return tuple(MadeStrings(made.step, each, tuple(each[0].shape)) for each in zip(*parts, strict=True))
    return MadeStrings(made.step, tuple(parts), tuple(parts[0].shape))


def moved_source(
    use: Any, function: Callable[..., Any], operands: Sequence[Any], texts: Sequence[Any]
) -> list[Source] | None:
    """Return the source of texts after an operator that moves them; for several inputs their concatenated sources."""
    sources = [source_of_texts(text) for text in texts]
    if any(source is None for source in sources) or not any(isinstance(text, Strings) for text in texts):
        return None
    whole = sources[0]
    assert whole is not None, "bug in mlaot: texts without a source"
    if len(texts) == 1 and use.op in IN_ORDER and whole.at is None:
        return [whole]
    begins: list[Any] = [0]
    for source in sources[1:]:
        assert source is not None, "bug in mlaot: texts without a source"
        begins.append(product(whole.shape))
        join = TextStep("join", (whole.of, source.of))
        if join.size > MOST_STEPS:
            return None
        whole = Source(join, (product(whole.shape) + product(source.shape),))
    placed = {
        id(text): positions(source, text.shape) + (begin if isinstance(begin, int) else extent_value(begin))
        for text, source, begin in zip(texts, sources, begins, strict=True)
        if source is not None
    }
    at = use.call(function, *[placed.get(id(value), value) for value in operands])
    return [replace(whole, at=each) for each in (at if isinstance(at, tuple) else (at,))]


def source_of_texts(value: Any) -> Source | None:
    """Return the source of texts; known texts are their own source."""
    if isinstance(value, Strings):
        return value.source
    array = constant_value(value)
    if array is None or array.ndim > MOST_AXES:
        return None
    return Source(TextStep("constant", (), tuple(map(str, array.ravel())), tuple(array.shape)), tuple(array.shape))


def positions(source: Source, shape: Any) -> Any:
    """Return the positions in their source of strings of a shape."""
    return arange(product(source.shape)).reshape(shape) if source.at is None else source.at
