"""Transformers (Vaswani et al., 2017): layers of encoder and decoder, and stacks of layers.

A layer has attention and a feed-forward network, which works on each position. Shapes are those of
``MultiheadAttention``: [l, n, e], [n, l, e] with ``batch_first``, or [l, e] for one example. True in a boolean mask
bars a query from a key.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.nn import functional as F
from mlaot.nn import init
from mlaot.nn.arguments import Array, check_choice
from mlaot.nn.attention import MultiheadAttention
from mlaot.nn.module import Layer, ModuleList
from mlaot.nn.normalization import LayerNorm
from mlaot.nn.parametric import Linear

__all__ = ["Transformer", "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder"]
__all__ += ["TransformerEncoderLayer"]

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {"relu": F.relu, "gelu": F.gelu}


class _TransformerLayer(Layer):
    """Base of the layers of encoder and decoder: residual parts, each with a normalization before or after it."""

    norm_first: bool
    dropout: float

    def _make(
        self, norms: int, d_model: int, dim_feedforward: int, activation: Any, eps: float, bias: bool, **made: Any
    ) -> None:
        """Make the feed-forward network and the normalization layers."""
        if not callable(activation):
            check_choice(activation, tuple(ACTIVATIONS), f"{type(self).__name__}: activation")
        self.activation = activation if callable(activation) else ACTIVATIONS[activation]
        self.linear1 = Linear(d_model, dim_feedforward, bias, **made)
        self.linear2 = Linear(dim_feedforward, d_model, bias, **made)
        for number in range(1, norms + 1):
            setattr(self, f"norm{number}", LayerNorm(d_model, eps, bias=bias, dtype=made["dtype"]))

    def _residual(self, x: Array, number: int, part: Callable[[Array], Array]) -> Array:
        """Add the result of a part to ``x``. Normalize the part's input with ``norm_first``, otherwise the sum."""
        norm = getattr(self, f"norm{number}")
        if self.norm_first:
            return x + self._dropped(part(norm(x)))
        return norm(x + self._dropped(part(x)))

    def _feed_forward(self, x: Array) -> Array:
        return self.linear2(self._dropped(self.activation(self.linear1(x))))

    def _dropped(self, x: Array) -> Array:
        return F.dropout(x, self.dropout, self.training)


class TransformerEncoderLayer(_TransformerLayer):
    """Self-attention, then a feed-forward network."""

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Any = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        *,
        dtype: Any = None,
        rng: init.Random = None,
    ) -> None:
        source = init.generator(rng)
        self.self_attn = MultiheadAttention(
            d_model, nhead, dropout, bias, batch_first=batch_first, dtype=dtype, rng=source
        )
        self._make(2, d_model, dim_feedforward, activation, layer_norm_eps, bias, dtype=dtype, rng=source)
        self.norm_first, self.dropout = norm_first, dropout

    def forward(
        self,
        src: Array,
        src_mask: Array | None = None,
        src_key_padding_mask: Array | None = None,
        is_causal: bool = False,
    ) -> Array:
        """Encode [l, n, e]. Without a mask, ``is_causal`` bars each position from later positions."""

        def attend(x: Array) -> Array:
            return self.self_attn(x, x, x, src_key_padding_mask, False, src_mask, is_causal=is_causal)[0]

        return self._residual(self._residual(src, 1, attend), 2, self._feed_forward)


class TransformerDecoderLayer(_TransformerLayer):
    """Self-attention, attention to the encoder's output, then a feed-forward network."""

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Any = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        *,
        dtype: Any = None,
        rng: init.Random = None,
    ) -> None:
        source = init.generator(rng)
        self.self_attn, self.multihead_attn = (
            MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first, dtype=dtype, rng=source)
            for _ in range(2)
        )
        self._make(3, d_model, dim_feedforward, activation, layer_norm_eps, bias, dtype=dtype, rng=source)
        self.norm_first, self.dropout = norm_first, dropout

    def forward(
        self,
        tgt: Array,
        memory: Array,
        tgt_mask: Array | None = None,
        memory_mask: Array | None = None,
        tgt_key_padding_mask: Array | None = None,
        memory_key_padding_mask: Array | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Array:
        """Decode [l, n, e] with the encoder's output ``memory`` [s, n, e]."""

        def attend(x: Array) -> Array:
            return self.self_attn(x, x, x, tgt_key_padding_mask, False, tgt_mask, is_causal=tgt_is_causal)[0]

        def look_up(x: Array) -> Array:
            padding, causal = memory_key_padding_mask, memory_is_causal
            return self.multihead_attn(x, memory, memory, padding, False, memory_mask, is_causal=causal)[0]

        x = self._residual(self._residual(tgt, 1, attend), 2, look_up)
        return self._residual(x, 3, self._feed_forward)


class TransformerEncoder(Layer):
    """``num_layers`` copies of a layer, and a norm after them."""

    def __init__(self, encoder_layer: Any, num_layers: int, norm: Any = None) -> None:
        self.layers = ModuleList([deepcopy(encoder_layer) for _ in range(num_layers)])
        self.norm = norm

    def forward(
        self,
        src: Array,
        mask: Array | None = None,
        src_key_padding_mask: Array | None = None,
        is_causal: bool = False,
    ) -> Array:
        for layer in self.layers:
            src = layer(src, mask, src_key_padding_mask, is_causal)
        return src if self.norm is None else self.norm(src)


class TransformerDecoder(Layer):
    """``num_layers`` copies of a layer, and a norm after them."""

    def __init__(self, decoder_layer: Any, num_layers: int, norm: Any = None) -> None:
        self.layers = ModuleList([deepcopy(decoder_layer) for _ in range(num_layers)])
        self.norm = norm

    def forward(
        self,
        tgt: Array,
        memory: Array,
        tgt_mask: Array | None = None,
        memory_mask: Array | None = None,
        tgt_key_padding_mask: Array | None = None,
        memory_key_padding_mask: Array | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Array:
        masks = (tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask)
        for layer in self.layers:
            tgt = layer(tgt, memory, *masks, tgt_is_causal, memory_is_causal)
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Layer):
    """An encoder of the source and a decoder of the target, each followed by a normalization."""

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Any = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        *,
        dtype: Any = None,
        rng: init.Random = None,
    ) -> None:
        source = init.generator(rng)
        sizes = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias)
        encoding = TransformerEncoderLayer(*sizes, dtype=dtype, rng=source)
        decoding = TransformerDecoderLayer(*sizes, dtype=dtype, rng=source)
        norms = [LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype) for _ in range(2)]
        self.encoder = TransformerEncoder(encoding, num_encoder_layers, norms[0])
        self.decoder = TransformerDecoder(decoding, num_decoder_layers, norms[1])
        for parameter in self.parameters():
            if parameter.ndim > 1:
                parameter.array = init.xavier_uniform_(parameter.shape, rng=source, dtype=dtype)

    def forward(
        self,
        src: Array,
        tgt: Array,
        src_mask: Array | None = None,
        tgt_mask: Array | None = None,
        memory_mask: Array | None = None,
        src_key_padding_mask: Array | None = None,
        tgt_key_padding_mask: Array | None = None,
        memory_key_padding_mask: Array | None = None,
        src_is_causal: bool = False,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Array:
        if src.shape[-1] != tgt.shape[-1]:
            raise MlaotError(
                f"Transformer: expected source and target of equal width, got {list(src.shape)}, {list(tgt.shape)}"
            )
        memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
        masks = (tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask)
        return self.decoder(tgt, memory, *masks, tgt_is_causal, memory_is_causal)

    @staticmethod
    def generate_square_subsequent_mask(sz: int, dtype: Any = None) -> np.ndarray[Any, Any]:
        """Return a mask [sz, sz] that is -inf where the key comes after the query, and 0 elsewhere."""
        return np.triu(np.full((sz, sz), -math.inf, init.float_dtype(dtype)), 1)
