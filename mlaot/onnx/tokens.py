"""The inputs of a file for which callers pass texts, by the names that exporters of encoders use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import onnx

from mlaot.errors import MlaotError
from mlaot.frontend.trace.tokens import Tokens
from mlaot.ir import Type
from mlaot.ir.types import i64

TEXTS = "texts"  # what the one input is called then
IDS, MASK, TYPES = "input_ids", "attention_mask", "token_type_ids"


def read_by(tokens: Tokens, rows: Any) -> dict[str, Any]:
    """Return for each of the inputs the function of rows of tokens that computes it."""
    return {IDS: tokens.ids(rows), MASK: tokens.mask(rows), TYPES: tokens.types(rows)}


def check_tokens(graph: onnx.GraphProto, inputs: Iterable[str], tokens: Tokens) -> None:
    """Raise ``MlaotError`` for a file that takes no tokens, or fewer different ones."""
    names = list(inputs)
    if IDS not in names or TEXTS in names:
        raise MlaotError(f"a tokenizer is for files with an input {IDS!r}, and none {TEXTS!r}, got {', '.join(names)}")
    tables = {tensor.name: tensor.dims[0] for tensor in graph.initializer if tensor.dims}
    for node in graph.node:
        if node.op_type == "Gather" and node.input[1] == IDS and tables.get(node.input[0], len(tokens)) < len(tokens):
            raise MlaotError(
                f"{node.input[0]} has rows for {tables[node.input[0]]} tokens, but the tokenizer has {len(tokens)};"
                " it is another model's"
            )


def text_type(types: Mapping[str, Type]) -> Type:
    """Return the type of rows of tokens, which is that of their input."""
    found = types[IDS]
    if found.rank != 2 or any(isinstance(extent, int) for extent in found.shape) or found.shape[0] == found.shape[1]:
        raise MlaotError(
            f"a tokenizer is for files whose {IDS} have open dims [batch, sequence], got {list(found.shape)}"
        )
    return Type(i64, found.shape)
