"""What a model reads and writes on: a text of tokens, which its buffers hold as far as it has been read."""

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
    """Text of at most ``context`` tokens, which ``@mlaot.model(text=...)`` lets its function read on and on.

    The function, or the entry of the model that is named here, takes the next tokens, ``i64[n]`` with an open dim, and
    returns the scores ``f32[tokens]`` of all that may follow the last of them. ``place`` tells it how many were read
    before; what it wants to know of these it keeps in buffers of its own, in rows by their places, or, as a recurrent
    network does, in any form that starts anew where the place is 0. The module has ``generate`` then.

    With a ``tokenizer`` prompts and answers are strings. Tokens among ``ends`` (by default the tokenizer's) end an
    answer. A text that ``slides`` goes on behind its context: the latter half of it is read anew, as a text of its own.
    With ``texts`` over 1 the module has ``generate_all``, too, which writes so many texts at once: each weight is read
    once for a token of all of them.
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
        """Return how many tokens of the text there are with these: as far as what lies by places is to be read.

        A slice ``keys[:, :text.seen(tokens)]`` takes a time that grows with the text, not with the context.
        """
        if not is_traced(tokens):
            return int(self.place.array) + len(tokens)
        entry = needed().root.entry
        if entry != self.entry:
            raise MlaotError(f"Text.seen: expected a call in {self.entry}, which reads the text, got one in {entry}")
        return dim(SEEN)

    def advance(self, *inputs: Any) -> None:
        """Note the tokens that the function has read, at its end."""
        if len(inputs) != 1 or len(inputs[0].shape) != 1:
            raise MlaotError(f"{self.entry} reads a text: expected it to take tokens i64[n] and nothing else")
        (tokens,), (count,) = inputs, inputs[0].shape
        steps = Tensor(apply(st.iota, shape=(count,), axis=0, dtype=i64)) if is_traced(tokens) else np.arange(count)
        self.tokens.assign(self.tokens.at[self.place + steps].set(tokens))
        self.place.assign(self.place + count)
        self.length.assign(self.place)

    def facts(self, graph: Graph) -> Generation:
        """Return what the module has to know of its texts; refuse a ``graph`` that does not read one."""
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
        """Tell whether an entry writes rows of a buffer that has one for each place, and keeps the others."""
        old, new = graph.inputs[name], graph.writes[name].find()
        return new.op is scatter and new.arg(0) is old and self.context in old.type.shape
