"""The GPT as it speaks, with the weights that train.py saved. They end up inside the module, once for all its texts.

A ``Model`` of the module is one text: its buffers hold the letters, and the keys and values of those that were read.
"""

from typing import Any

import numpy as np
from network import CONTEXT, GPT, HEADS, LAYERS, SETTINGS, WIDTH

import mlaot
from mlaot import tokenizers

n = mlaot.dim("n")
net = GPT()
net.load_state_dict(mlaot.load("weights.safetensors"))
empty = np.zeros((HEADS, CONTEXT, WIDTH // HEADS), np.float32)
caches = [(mlaot.Buffer(empty, f"keys.{i}"), mlaot.Buffer(empty, f"values.{i}")) for i in range(LAYERS)]
text = mlaot.Text(CONTEXT, tokenizers.characters(SETTINGS["letters"]), slides=True)


@mlaot.model(parameters=net, text=text)
def gpt(tokens: mlaot.i64[n]) -> Any:
    """Read the next letters of the text; the scores of all that may follow them."""
    return net.read(tokens, caches, text)
