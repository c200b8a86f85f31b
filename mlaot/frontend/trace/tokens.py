"""Texts as inputs of a model, which computes with rows of their tokens."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.ir.types import Type, i64
from mlaot.tokenizers import Tokenizer, load
from mlaot.tokenizers.frames import PART, TYPE, Frame
from mlaot.tokenizers.rows import Rows

MOST = 1 << 20  # tokens of a row


class Tokens:
    """A tokenization of texts by a tokenizer, or by its file or folder, such as ``tokenizer.json``.

    ``Tokens("tokenizer.json")[batch, n]`` annotates an argument for which callers pass texts: a str, bytes in UTF-8, or
    a list, array or column of these. A tuple of two texts in a list is a pair, if the file has a frame for pairs. The
    function gets ``i64[batch, n]``, a row for each text, which ``ids``, ``mask`` and ``types`` convert to the inputs of
    models. ``longest`` limits the tokens of a row, those of the frame included. By default the file's truncation does.
    """

    def __init__(self, tokenizer: Tokenizer | str | Path, *, longest: int | None = None) -> None:
        if not isinstance(tokenizer, Tokenizer):
            beside = Path(sys._getframe(1).f_code.co_filename).parent / tokenizer
            path = beside if beside.exists() else Path(tokenizer)
            if not path.exists():
                raise MlaotError(f"no file or folder {tokenizer}; expected a tokenizer, such as tokenizer.json")
            tokenizer = load(path)
        self.made = rows_of(tokenizer, longest)

    def __len__(self) -> int:
        return len(self.made.tokenizer.tokens)

    def __getitem__(self, shape: Any) -> TokensType:
        type_ = i64[shape]
        if type_.rank != 2 or any(isinstance(extent, int) for extent in type_.shape):
            raise MlaotError(f"Tokens: expected two named dims such as [batch, n], got {list(type_.shape)}")
        return TokensType(self.made, type_)

    def rows(self, texts: Sequence[str | tuple[str, str]]) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Return the rows of texts, for a call of the function in Python."""
        found = self.made.filled([(text,) if isinstance(text, str) else text for text in texts])
        return np.array(found, np.int64).reshape(len(found), len(found[0]) if found else 1)

    def ids(self, rows: Any) -> Any:
        """Return the tokens of rows, and after the end of a row the file's padding token, or 0."""
        return np.where(rows < 0, self.made.frame.padding, rows & PART)

    def mask(self, rows: Any) -> Any:
        """Return a mask that is true for the tokens of rows and false after their ends."""
        return rows >= 0

    def types(self, rows: Any) -> Any:
        """Return the file's type of each token, such as 1 for the second text of a pair."""
        return np.maximum(rows, 0) >> TYPE


@dataclass(frozen=True)
class TokensType:
    """The annotation of an argument for which callers pass texts; ``type`` is the type of their rows."""

    rows: Rows
    type: Type


def rows_of(tokenizer: Tokenizer, longest: int | None = None) -> Rows:
    """Return the rows of a tokenizer, with at most ``longest`` tokens if that is given."""
    frame = tokenizer.frame or Frame((*tokenizer.begin, *Frame().single, *tokenizer.closing))
    if tokenizer.is_strict:
        raise MlaotError("Tokens: expected a tokenizer that has tokens for any text, got one of characters")
    if longest is not None and (type(longest) is not int or not 0 < longest <= MOST):
        raise MlaotError(f"Tokens: longest: expected a number of tokens from 1 to {MOST}, got {longest!r}")
    frame = replace(frame, most=longest or frame.most)
    if 0 < frame.most < len(frame.single):
        raise MlaotError(f"Tokens: expected rows longer than what stands around texts, got {frame.most} tokens")
    has_room = not frame.most or len(frame.pair) - 2 <= frame.most
    return Rows(tokenizer, replace(frame, pair=frame.pair if has_room else ()))
