"""A GPT of letters: nanoGPT's form, with a normalization before each part and one table for letters in and out.

Runs at build time only. The wheel that trains calls ``forward`` with whole texts. The wheel that speaks calls ``read``
with the next letters, and keeps the keys and values of those before them.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import mlaot
import mlaot.nn.functional as F
from mlaot import nn
from mlaot.nn import init

SETTINGS = json.loads((Path(__file__).parent / "settings.json").read_text())
WIDTH, LAYERS, HEADS, CONTEXT = (SETTINGS[key] for key in ("width", "layers", "heads", "context"))
LETTERS = len(SETTINGS["letters"])
SPREAD = 0.05  # of the random numbers of letters and positions at the start

Array = Any  # a NumPy array, or a traced one
Cache = tuple[mlaot.Buffer, mlaot.Buffer]  # keys and values [heads, context, width / heads]
rng = np.random.default_rng(1337)


def linear(inputs: int, outputs: int, share: float = 1.0) -> nn.Linear:
    """A layer without bias, whose results spread at the start as its inputs do, or a share of that."""
    layer = nn.Linear(inputs, outputs, bias=False)
    layer.weight = init.normal_((outputs, inputs), std=share * inputs**-0.5, rng=rng)
    return layer


class Block(nn.Module):
    """Attention and a network of two layers, each added to what goes by."""

    def __init__(self) -> None:
        last = (2 * LAYERS) ** -0.5  # so that the sum of all blocks has one spread, whatever their number
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = linear(WIDTH, 3 * WIDTH)
        self.attended = linear(WIDTH, WIDTH, last)
        self.up = linear(WIDTH, 4 * WIDTH)
        self.down = linear(4 * WIDTH, WIDTH, last)
        self.drop = nn.Dropout(SETTINGS["dropout"])

    def queries_keys_values(self, x: Array) -> list[Array]:
        """Return what the attention multiplies, of each position."""
        return np.split(self.attention(self.norm1(x)), 3, axis=-1)

    def forward(self, x: Array) -> Array:
        """Compute texts [batch, length, width]; each position sees those before it."""
        dropout = SETTINGS["dropout"] if self.training else 0.0
        parts = map(split_heads, self.queries_keys_values(x))
        return self.rest(x, F.scaled_dot_product_attention(*parts, dropout_p=dropout, is_causal=True))

    def read(self, x: Array, cache: Cache, places: Array, seen: Any) -> Array:
        """Compute the next positions [n, width] of a text, and keep their keys and values at their ``places`` [n].

        They and those before them are all that is ``seen``.
        """
        query, key, value = map(split_heads, self.queries_keys_values(x))
        for kept, new in zip(cache, (key, value), strict=True):
            kept.assign(kept.at[:, places].set(new))
        keys, values = (kept[:, :seen] for kept in cache)
        mask = mlaot.arange(seen) <= places[:, None]
        return self.rest(x, F.scaled_dot_product_attention(query, keys, values, attn_mask=mask))

    def rest(self, x: Array, found: Array) -> Array:
        """Compute everything behind the attention."""
        x = x + self.drop(self.attended(found.swapaxes(-3, -2).reshape(x.shape)))
        return x + self.drop(self.down(F.gelu(self.up(self.norm2(x)))))


def split_heads(x: Array) -> Array:
    """[.., length, width] to [.., heads, length, width / heads]."""
    return x.reshape((*x.shape[:-1], HEADS, WIDTH // HEADS)).swapaxes(-3, -2)


class GPT(nn.Module):
    """Scores of what comes next."""

    def __init__(self) -> None:
        self.letters = nn.Embedding(LETTERS, WIDTH)
        self.letters.weight = init.normal_((LETTERS, WIDTH), std=SPREAD, rng=rng)
        self.positions = nn.Embedding(CONTEXT, WIDTH)
        self.positions.weight = init.normal_((CONTEXT, WIDTH), std=SPREAD, rng=rng)
        self.drop = nn.Dropout(SETTINGS["dropout"])
        self.blocks = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, tokens: Array) -> Array:
        """Return the scores [batch, length, letters] of what follows each of the tokens [batch, length]."""
        x = self.drop(self.letters(tokens) + self.positions.weight[: tokens.shape[-1]])
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.letters.weight)

    def read(self, tokens: Array, caches: Sequence[Cache], text: mlaot.Text) -> Array:
        """Read the next tokens [n] of a text; return the scores [letters] of what follows them."""
        places = text.place + mlaot.arange(tokens.shape[0])
        x = self.letters(tokens) + self.positions.weight[places]
        for block, cache in zip(self.blocks, caches, strict=True):
            x = block.read(x, cache, places, text.seen(tokens))
        return F.linear(self.norm(x[-1]), self.letters.weight)
