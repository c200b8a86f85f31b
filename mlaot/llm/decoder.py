"""The network of a language model, from the next tokens to the scores of the tokens that may follow.

The keys and values of earlier tokens are in buffers, so a ``Model`` of the compiled module is one text. A prompt of any
length is one call, and so is each token after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

import mlaot.nn.functional as F
from mlaot.frontend.numpy.creation import arange
from mlaot.frontend.numpy.indexing import take
from mlaot.frontend.trace.tensor import Buffer, Parameter, as_tensor
from mlaot.frontend.trace.text import Text
from mlaot.llm import rotary

Array = Any  # a NumPy array, or a traced one
Arrays = Mapping[str, "np.ndarray[Any, Any]"]
Shape = tuple[int, ...]
Remember = Callable[[int, Array, Array], tuple[Array, Array]]
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
}
MOST = 2**31 - 1  # of anything but these; the names of a layer's weights are made before any is read
MOST_OF = {"layers": 10_000, "size": rotary.MOST}
NOUNS = {"groups": "heads of keys", "size": "numbers of a head", "hidden": "hidden numbers", "context": "positions"}


@dataclass(frozen=True)
class Config:
    """The configuration of a decoder, in which GPT-2, Llama and similar models differ.

    ``hidden`` is the width between the two layers of the feed-forward network. If it is ``gated``, the output of a
    third layer multiplies the hidden values. ``waves`` are the frequencies of rotary positions (``rotary.py``), one for
    each pair of numbers of a head; without any, positions are a table. ``magnitude`` multiplies rotated numbers, and
    ``scale`` the embeddings of tokens. With ``normalizes_heads`` each head of queries and keys is normalized. With
    ``tied`` the table of tokens is also the last layer. ``biases`` are the parts of a block that have a bias.
    """

    tokens: int
    width: int
    layers: int
    heads: int
    groups: int  # heads of keys and values, each for ``heads / groups`` queries
    size: int  # of a head
    hidden: int
    context: int
    epsilon: float
    waves: tuple[float, ...] = ()
    magnitude: float = 1.0
    scale: float = 1.0
    activation: str = "silu"
    by_root_mean_square: bool = True  # else layers are normalized by mean and variance
    gated: bool = True
    tied: bool = False
    normalizes_heads: bool = False
    biases: frozenset[str] = frozenset()

    def problem(self) -> str:
        """Describe an inconsistency of the numbers, which come from a file; return an empty string if there is none."""
        for name in ("tokens", "width", "layers", "heads", "groups", "size", "hidden", "context"):
            value, most = getattr(self, name), MOST_OF.get(name, MOST)
            if not 1 <= value <= most:
                return f"expected a number of {NOUNS.get(name, name)} from 1 to {most:,}, got {value:,}"
        if self.heads % self.groups:
            return f"expected heads of queries in equal groups for {self.groups} of keys, got {self.heads}"
        if (turned := 2 * len(self.waves)) > self.size:
            return f"rotary positions turn pairs of {turned} numbers: expected heads of an even size, got {self.size}"
        if not all(0 <= number < inf for number in (self.epsilon, self.magnitude, *self.waves)):
            ends = f"{self.waves[0]} to {self.waves[-1]}" if self.waves else "none"
            numbers = f"{self.epsilon} for epsilon, {ends} for waves of rotary positions and {self.magnitude} for"
            return f"expected finite numbers, got {numbers} their scale"
        return ""

    def shapes(self) -> dict[str, Shape]:
        """Return the shape of each weight by its name."""
        norms = ["weight"] if self.by_root_mean_square else ["weight", "bias"]
        found: dict[str, Shape] = {"embedding": (self.tokens, self.width)}
        if not self.waves:
            found["positions"] = (self.context, self.width)
        for i in range(self.layers):
            block = f"blocks.{i}."
            for part, shape in self._parts().items():
                found[f"{block}{part}.weight"] = shape
                if part in self.biases:
                    found[f"{block}{part}.bias"] = shape[:1]
            found |= {f"{block}{norm}.{name}": (self.width,) for norm in ("norm1", "norm2") for name in norms}
            if self.normalizes_heads:
                found |= {f"{block}{norm}.weight": (self.size,) for norm in ("query_norm", "key_norm")}
        found |= {f"norm.{name}": (self.width,) for name in norms}
        return found if self.tied else found | {"head": (self.tokens, self.width)}

    def rows(self, name: str, shape: Shape, fused: Iterable[tuple[str, ...]]) -> tuple[slice, Shape]:
        """Return the rows of a tensor that are a weight, and the tensor's shape; ``fused`` parts share one tensor."""
        part = name.split(".")[-2] if name.startswith("blocks.") else ""
        for parts in fused:
            if part in parts:
                counts = [self._parts()[other][0] for other in parts]
                first = sum(counts[: parts.index(part)])
                return slice(first, first + shape[0]), (sum(counts), *shape[1:])
        return slice(None), shape

    def _parts(self) -> dict[str, Shape]:
        """Return the shape of each product of a block."""
        rows, keys = self.heads * self.size, self.groups * self.size
        parts: dict[str, Shape] = {"query": (rows, self.width), "key": (keys, self.width), "value": (keys, self.width)}
        parts |= {"attended": (self.width, rows), "up": (self.hidden, self.width), "down": (self.width, self.hidden)}
        return parts | ({"gate": (self.hidden, self.width)} if self.gated else {})


class Decoder:
    """The function to compile, with weights by the names of ``Config.shapes``. It reads a text."""

    def __init__(self, config: Config, weights: Arrays, text: Text) -> None:
        self.config, self.text = config, text
        self.weights = {name: Parameter(name, array) for name, array in weights.items()}
        empty = np.zeros((config.groups, text.context, config.size), np.float32)
        names = [f"{what}.{i}" for i in range(config.layers) for what in ("keys", "values")]
        self.kept = {name: Buffer(empty, name) for name in names}

    def __call__(self, tokens: Array) -> Array:
        """Read the next tokens [n] of a text; return the scores [tokens] of the token after the last one."""
        config = self.config
        places = self.text.place + arange(tokens.shape[0])
        x = self._embedded(tokens)
        if not config.waves:
            x = x + take(self.weights["positions"], places, axis=0)
        waves = [take(table, places, axis=0) for table in self._waves()]
        read = self.text.seen(tokens)
        seen = arange(read) <= places[:, None]

        def remember(i: int, key: Array, value: Array) -> tuple[Array, Array]:
            """Store the new keys and values [groups, n, size] of a block; return those of the whole text."""
            keys, values = (self.kept[f"{what}.{i}"] for what in ("keys", "values"))
            keys.assign(keys.at[:, places].set(key))
            values.assign(values.at[:, places].set(value))
            return keys[:, :read], values[:, :read]

        for i in range(config.layers):
            x = self._block(x, i, waves, remember, attn_mask=seen)
        return self._scores(x[-1])

    def whole(self, texts: Array) -> Array:
        """Return the scores [batch, n, tokens] of the token after each token of whole texts [batch, n]."""
        length = texts.shape[1]
        x = self._embedded(texts)
        if not self.config.waves:
            x = x + self.weights["positions"][: self.text.context][:length]
        waves = [as_tensor(table)[:length] for table in self._waves()]
        for i in range(self.config.layers):
            x = self._block(x, i, waves, lambda i, key, value: (key, value), is_causal=True)
        return self._scores(x)

    def _embedded(self, tokens: Array) -> Array:
        x = take(self.weights["embedding"], tokens, axis=0)
        return x if self.config.scale == 1 else x * self.config.scale

    def _scores(self, x: Array) -> Array:
        return F.linear(self._normalized(x, "norm"), self.weights["embedding" if self.config.tied else "head"])

    def _block(self, x: Array, i: int, waves: list[Array], remember: Remember, **seen: Any) -> Array:
        """Add the attention's output, and then that of the feed-forward network, to positions [.., n, width]."""
        config, block = self.config, f"blocks.{i}."
        y = self._normalized(x, f"{block}norm1")
        query = self._turned(self._heads(y, f"{block}query", config.heads), f"{block}query_norm", waves)
        key = self._turned(self._heads(y, f"{block}key", config.groups), f"{block}key_norm", waves)
        value = self._heads(y, f"{block}value", config.groups)
        shared = config.groups < config.heads
        found = F.scaled_dot_product_attention(query, *remember(i, key, value), enable_gqa=shared, **seen)
        together = found.swapaxes(-3, -2).reshape((*x.shape[:-1], config.heads * config.size))
        x = x + self._linear(together, f"{block}attended")
        y = self._normalized(x, f"{block}norm2")
        activation, up = ACTIVATIONS[config.activation], self._linear(y, f"{block}up")
        hidden = activation(self._linear(y, f"{block}gate")) * up if config.gated else activation(up)
        return x + self._linear(hidden, f"{block}down")

    def _linear(self, x: Array, name: str) -> Array:
        return F.linear(x, self.weights[f"{name}.weight"], self.weights.get(f"{name}.bias"))

    def _heads(self, x: Array, name: str, count: int) -> Array:
        """Return [.., count, n, size] of a product of [.., n, width]."""
        return self._linear(x, name).reshape((*x.shape[:-1], count, self.config.size)).swapaxes(-3, -2)

    def _normalized(self, x: Array, name: str) -> Array:
        """Normalize along the last axis."""
        weight, bias = self.weights[f"{name}.weight"], self.weights.get(f"{name}.bias")
        if self.config.by_root_mean_square:
            return F.rms_norm(x, x.shape[-1:], weight, self.config.epsilon)
        return F.layer_norm(x, x.shape[-1:], weight, bias, self.config.epsilon)

    def _turned(self, x: Array, norm: str, waves: list[Array]) -> Array:
        """Rotate pairs of numbers of heads [.., n, size] by angles that grow with the position.

        The distance of the numbers of a pair is the number of pairs: half a head, if all of its numbers rotate.
        """
        if self.config.normalizes_heads:
            x = F.rms_norm(x, x.shape[-1:], self.weights[f"{norm}.weight"], self.config.epsilon)
        if not waves:
            return x
        (cosine, sine), half = waves, len(self.config.waves)
        a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
        turned = [a * cosine - b * sine, b * cosine + a * sine]
        return np.concatenate(turned + [rest] * (2 * half < self.config.size), axis=-1)

    def _waves(self) -> Iterator[np.ndarray[Any, Any]]:
        """Yield cosines and sines [context, pairs] of rotary positions, if the model has some."""
        if self.config.waves:
            angles = np.arange(self.text.context)[:, None] * np.array(self.config.waves)
            yield from ((wave(angles) * self.config.magnitude).astype(np.float32) for wave in (np.cos, np.sin))
