"""The scalar front end: micrograd's API, evaluated eagerly, and compiled by mlaot.

Write ``from mlaot.micrograd import MLP, Value`` in place of ``from micrograd...``. ``engine`` and ``nn`` are modules of
the same names. The results of the eager ops are the reference for the compiled graph.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mlaot.frontend.scalar.data import images
from mlaot.frontend.scalar.declare import Bytes, Label, Sparse, declare
from mlaot.frontend.scalar.engine import Array, Dot, Max, Min, Value, where
from mlaot.frontend.scalar.equal import find, make_equal_to
from mlaot.frontend.scalar.graph import count, draw_dot, fma_chances, pretty, trace
from mlaot.frontend.scalar.losses import cross_entropy, stable_softmax
from mlaot.frontend.scalar.nn import MLP, Layer, Module, Neuron
from mlaot.frontend.scalar.tables import Index, Length, Table
from mlaot.frontend.scalar.vectorize import optimize

if TYPE_CHECKING:
    from mlaot.micrograd.compiled import compile as compile

__all__ = [
    "MLP",
    "Array",
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
    "find",
    "fma_chances",
    "images",
    "make_equal_to",
    "optimize",
    "pretty",
    "stable_softmax",
    "trace",
    "where",
]


def __getattr__(name: str) -> Any:
    """Return ``compile``, which loads the compiler, when it is asked for: building a graph needs none.

    It is not in ``__all__``, as it would hide Python's own.
    """
    if name == "compile":
        return import_module("mlaot.micrograd.compiled").compile
    raise AttributeError(f"module 'mlaot.micrograd' has no attribute {name!r}")
