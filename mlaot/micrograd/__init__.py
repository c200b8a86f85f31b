"""The scalar front door: micrograd's API, eager here and compiled by mlaot.

``from mlaot.micrograd import MLP, Value`` where a program said ``from micrograd...``; ``engine`` and ``nn`` are modules
of the same names. What the eager ops compute is the reference for what the compiler makes of the same graph.
"""

from mlaot.frontend.scalar.data import images
from mlaot.frontend.scalar.declare import Bytes, Label, Sparse, declare
from mlaot.frontend.scalar.engine import Dot, Max, Min, Value, where
from mlaot.frontend.scalar.graph import count, draw_dot, pretty, trace
from mlaot.frontend.scalar.losses import cross_entropy, stable_softmax
from mlaot.frontend.scalar.nn import MLP, Layer, Module, Neuron
from mlaot.frontend.scalar.tables import Index, Length, Table

__all__ = [
    "MLP",
    "Bytes",
    "Dot",
    "Index",
    "Label",
    "Layer",
    "Length",
    "Max",
    "Min",
    "Module",
    "Neuron",
    "Sparse",
    "Table",
    "Value",
    "count",
    "cross_entropy",
    "declare",
    "draw_dot",
    "images",
    "pretty",
    "stable_softmax",
    "trace",
    "where",
]
