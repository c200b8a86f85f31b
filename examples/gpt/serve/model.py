"""The GPT as it speaks, letter by letter, with the weights that train.py saved. They end up inside the module."""

from typing import Any

from network import GPT, LAYERS, WIDTH

import mlaot

seen = mlaot.dim("seen")
net = GPT()
net.load_state_dict(mlaot.load("weights.safetensors"))


@mlaot.model(parameters=net)
def gpt(
    token: mlaot.i64, keys: mlaot.f32[seen + 1, LAYERS, WIDTH], values: mlaot.f32[seen + 1, LAYERS, WIDTH]
) -> dict[str, Any]:
    """Scores of the letter after a token; its key and value, for the last row of what the next letter is given."""
    return net.step(token, keys, values)
