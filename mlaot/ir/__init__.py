"""The intermediate representation: types, dims, and hash-consed nodes with union-find."""

from mlaot.ir.dims import Dim, dim
from mlaot.ir.graph import Graph, Node, topological, users
from mlaot.ir.subgraph import Subgraph
from mlaot.ir.text import parse
from mlaot.ir.types import DTYPES, DType, Literal, TupleType, Type
from mlaot.ir.verify import verify

__all__ = [
    "DTYPES",
    "DType",
    "Dim",
    "Graph",
    "Literal",
    "Node",
    "Subgraph",
    "TupleType",
    "Type",
    "dim",
    "parse",
    "topological",
    "users",
    "verify",
]
