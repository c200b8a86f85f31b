"""A text of tokens that a model reads and continues. Its buffers hold the part that was read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.trace.context import needed
from mlaot.frontend.trace.promotion import apply
from mlaot.frontend.trace.protocols import is_traced
from mlaot.frontend.trace.tensor import Buffer, Tensor
from mlaot.ir import Graph
from mlaot.ir.dims import Dim, dim, substitute
from mlaot.ir.module import SEEN, Generation
from mlaot.ir.types import f32, i64
from mlaot.ops import structure as st
from mlaot.ops.base import conditions
from mlaot.ops.indexing import scatter
from mlaot.tokenizers.packing import pack
from mlaot.tokenizers.tokenizer import Tokenizer

MOST_TEXTS = 1024  # at once


class Text:
    """A text of at most ``context`` tokens, which the function of ``@mlaot.model(text=...)`` reads and continues.

    The function, or the entry that is named here, takes the next tokens, ``i64[n]`` with an open dim. It returns the
    scores ``f32[tokens]`` of all tokens that may follow the last one. ``place`` is the number of tokens that were read
    before. The function stores what it needs of these in buffers of its own, in rows by their positions. A recurrent
    network may store them in any other form, if it starts anew where ``place`` is 0. The module then has ``generate``.

    With a ``tokenizer`` prompts and answers are strings. A token in ``ends`` (by default those of the tokenizer) ends
    an answer. If a text ``slides``, it continues after its context: its latter half is read again as a new text. With
    ``texts`` above 1 the module also has ``generate_all``, which writes this many texts at once, and reads each weight
    once for a token of all texts.
    """

    def __init__(
        self,
        context: int,
        tokenizer: Tokenizer | None = None,
        *,
        slides: bool = False,
        ends: Iterable[int] | None = None,
        entry: str = "forward",
        texts: int = 1,
    ) -> None:
        if not isinstance(context, int) or not 2 <= context < 2**31:
            raise MlaotError(f"Text: context: expected a number of tokens from 2 to 2**31 - 1, got {context!r}")
        if not isinstance(texts, int) or not 1 <= texts <= MOST_TEXTS:
            raise MlaotError(f"Text: texts: expected a number of texts from 1 to {MOST_TEXTS}, got {texts!r}")
        self.texts = texts
        self.context, self.tokenizer, self.slides, self.entry = context, tokenizer, slides, entry
        self.ends = tuple((() if tokenizer is None else tokenizer.end) if ends is None else ends)
        self.place = Buffer(np.array(0), "place")
        self.length = Buffer(np.array(0), "length")  # behind the place lie tokens that are to be read first
        self.tokens = Buffer(np.zeros(context, np.int32), "text")

    def seen(self, tokens: Any) -> Dim:
        """Return the length of the text including these tokens, up to which buffers with rows by position are read.

        The time of a slice ``keys[:, :text.seen(tokens)]`` grows with the text, not with the context.
        """
        if not is_traced(tokens):
            return int(self.place.array) + len(tokens)
        entry = needed().root.entry
        if entry != self.entry:
            raise MlaotError(f"Text.seen: expected a call in {self.entry}, which reads the text, got one in {entry}")
        return dim(SEEN)

    def advance(self, *inputs: Any) -> None:
        """Record, at the end of the function, that it has read the tokens."""
        if len(inputs) != 1 or len(inputs[0].shape) != 1:
            raise MlaotError(f"{self.entry} reads a text: expected it to take tokens i64[n] and nothing else")
        (tokens,), (count,) = inputs, inputs[0].shape
        steps = Tensor(apply(st.iota, shape=(count,), axis=0, dtype=i64)) if is_traced(tokens) else np.arange(count)
        self.tokens.assign(self.tokens.at[self.place + steps].set(tokens))
        self.place.assign(self.place + count)
        self.length.assign(self.place)

    def facts(self, graph: Graph) -> Generation:
        """Return the module's facts about its texts. A ``graph`` that does not read a text raises ``MlaotError``."""
        who = f"{self.entry} reads a text: expected it to"
        inputs = [node.type for node in graph.inputs.values() if not node.attrs.get("parameter")]
        if [(t.dtype, [isinstance(d, int) for d in t.shape]) for t in inputs] != [(i64, [False])]:
            got = ", ".join(map(str, inputs)) or "nothing"
            raise MlaotError(f"{who} take tokens mlaot.i64[n] and nothing else, with n = mlaot.dim('n'), got {got}")
        outputs = [node.find().type for node in graph.outputs.values()]
        if [(t.dtype, [isinstance(d, int) for d in t.shape]) for t in outputs] != [(f32, [True])]:
            got = ", ".join(map(str, outputs)) or "nothing"
            raise MlaotError(f"{who} return scores f32[tokens] of what may follow, and nothing else, got {got}")
        count = str(inputs[0].shape[0])
        if count == SEEN:
            raise MlaotError(f"{who} take tokens mlaot.i64[n] with a dim of another name than {SEEN!r}")
        for read, seen in ((1, 1), (1, self.context), (self.context, self.context)):
            values = {count: read, SEEN: seen}
            if bad := [extent for extent in conditions(graph) if substitute(extent, values) < 0]:
                got = f"an extent that is negative there: {bad[0]}"
                raise MlaotError(f"{who} read as few as 1 token and as many as {self.context}, got {got}")
        tokens = int(str(outputs[0].shape[0]))
        if self.ends and not 0 <= min(self.ends) <= max(self.ends) < tokens:
            raise MlaotError(f"Text: ends: expected tokens from 0 to {tokens - 1}, got {list(self.ends)}")
        packed = b"" if self.tokenizer is None else pack(self.tokenizer)
        kept = [self._is_by_place(graph, name) for name in graph.writes if name not in ("place", "length", "text")]
        rereads = not all(kept)
        return Generation(self.entry, self.context, tokens, self.slides, self.ends, packed, rereads, self.texts)

    def _is_by_place(self, graph: Graph, name: str) -> bool:
        """Tell whether a buffer has a row for each position, of which an entry writes some and keeps the others."""
        old, new = graph.inputs[name], graph.writes[name].find()
        return new.op is scatter and new.arg(0) is old and self.context in old.type.shape
