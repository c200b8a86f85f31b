"""A function of JAX over weights, turned into ONNX in memory."""

import jax
import jax.numpy as jnp
from jax2onnx import to_onnx

import mlaot.onnx

keys = jax.random.split(jax.random.key(0))
first, second = (0.1 * jax.random.normal(keys[i], (64, n)) for i, n in enumerate((64, 10)))


def forward(x):
    """Probabilities of the ten digits for 64 pixels from 0 to 16."""
    return jax.nn.softmax(jnp.tanh(x / 16 @ first) @ second)


model = mlaot.onnx.load(to_onnx(forward, [("batch", 64)], input_names=["x"], output_names=["probabilities"]))
