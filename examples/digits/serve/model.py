"""The trained network as a function of arrays, with the weights that train.py saved. They end up inside the module."""

import numpy as np

import mlaot

w = mlaot.load("weights.safetensors")


@mlaot.model
def digits(x: mlaot.f32[64]):
    """Probabilities of the ten digits for 64 pixels from 0 to 16."""
    hidden = np.maximum(w["layers.0.neurons.w"] @ (x / 16) + w["layers.0.neurons.b"], 0)
    return mlaot.softmax(w["layers.1.neurons.w"] @ hidden + w["layers.1.neurons.b"])
