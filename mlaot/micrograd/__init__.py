"""The scalar front door: micrograd's API, eager here and compiled by mlaot.

``from mlaot.micrograd import MLP, Value`` where a program said ``from micrograd...``; ``engine`` and ``nn`` are modules
of the same names. What the eager ops compute is the reference for what the compiler makes of the same graph.
"""

from mlaot.frontend.scalar import Bytes, Label, Sparse, declare
from mlaot.micrograd.data import images
from mlaot.micrograd.engine import Dot, Max, Value
from mlaot.micrograd.graph import count, draw_dot, pretty, trace
from mlaot.micrograd.losses import cross_entropy, stable_softmax
from mlaot.micrograd.nn import MLP, Layer, Module, Neuron

__all__ = [
    "MLP",
    "Bytes",
    "Dot",
    "Label",
    "Layer",
    "Max",
    "Module",
    "Neuron",
    "Sparse",
    "Value",
    "count",
    "cross_entropy",
    "declare",
    "draw_dot",
    "images",
    "pretty",
    "stable_softmax",
    "trace",
]
