"""A GPT of letters: nanoGPT's form, with a normalization before each part and one table for letters in and out.

Runs at build time only. The wheel that trains calls ``forward`` with whole texts. The wheel that speaks calls ``step``
with one letter, and with the keys and values of those before it.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

import mlaot.nn.functional as F
from mlaot import nn
from mlaot.nn import init

SETTINGS = json.loads((Path(__file__).parent / "settings.json").read_text())
WIDTH, LAYERS, HEADS, CONTEXT = (SETTINGS[key] for key in ("width", "layers", "heads", "context"))
LETTERS = len(SETTINGS["letters"])
SPREAD = 0.02  # of the random weights at the start

Array = Any  # a NumPy array, or a traced one
rng = np.random.default_rng(1337)


def linear(inputs: int, outputs: int, spread: float = SPREAD) -> nn.Linear:
    """A layer without bias."""
    layer = nn.Linear(inputs, outputs, bias=False)
    layer.weight = init.normal_((outputs, inputs), std=spread, rng=rng)
    return layer


class Block(nn.Module):
    """Attention and a network of two layers, each added to what goes by."""

    def __init__(self) -> None:
        last = SPREAD / (2 * LAYERS) ** 0.5  # so that the sum of all blocks has one spread, whatever their number
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = linear(WIDTH, 3 * WIDTH)
        self.attended = linear(WIDTH, WIDTH, last)
        self.up = linear(WIDTH, 4 * WIDTH)
        self.down = linear(4 * WIDTH, WIDTH, last)
        self.drop = nn.Dropout(SETTINGS["dropout"])

    def queries_keys_values(self, x: Array) -> list[Array]:
        """Return what the attention multiplies, of each position."""
        return np.split(self.attention(self.norm1(x)), 3, axis=-1)

    def rest(self, x: Array, found: Array) -> Array:
        """Compute everything behind the attention."""
        x = x + self.drop(self.attended(found))
        return x + self.drop(self.down(F.gelu(self.up(self.norm2(x)))))

    def forward(self, x: Array) -> Array:
        """Texts [batch, length, width]; each position sees those before it."""
        parts = [heads(part) for part in self.queries_keys_values(x)]
        dropout = SETTINGS["dropout"] if self.training else 0.0
        found = F.scaled_dot_product_attention(*parts, dropout_p=dropout, is_causal=True)
        return self.rest(x, found.swapaxes(-3, -2).reshape(x.shape))

    def step(self, x: Array, keys: Array, values: Array) -> tuple[Array, Array, Array]:
        """Compute one position [width] behind those of ``keys`` and ``values`` [seen, width], and its own of both."""
        query, key, value = self.queries_keys_values(x)
        rows = [query[None], *(np.concatenate([old, new[None]]) for old, new in ((keys, key), (values, value)))]
        found = F.scaled_dot_product_attention(*map(heads, rows))
        return self.rest(x, found.reshape(WIDTH)), key, value


def heads(x: Array) -> Array:
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
        """Tokens [batch, length] to scores [batch, length, letters]."""
        x = self.drop(self.letters(tokens) + self.positions.weight[: tokens.shape[-1]])
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.letters.weight)

    def step(self, token: Array, keys: Array, values: Array) -> dict[str, Array]:
        """Return the scores [letters] of a token, and its key and value [layers, width].

        ``keys`` and ``values`` [seen + 1, layers, width] are those of the tokens before it, and a row for its own.
        """
        x = self.letters(token) + self.positions.weight[keys.shape[0] - 1]
        made = []
        for i, block in enumerate(self.blocks):
            x, *own = block.step(x, keys[:-1, i], values[:-1, i])
            made.append(own)
        key, value = (np.stack(rows) for rows in zip(*made, strict=True))
        return {"scores": F.linear(self.norm(x), self.letters.weight), "key": key, "value": value}
