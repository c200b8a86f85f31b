"""Eager tensors that record how they were computed: ``Tensor`` with ``backward()``, and the ``Trace`` that it uses.

They are for programs that build their graph while they run. ``Tensor`` and the scalar ``Value`` have the API of
ndesmic/mljs (https://github.com/ndesmic/mljs, MIT) with Python's naming. ``Trace`` and ``Node`` have the API of the
Rust page "Autodiff graphs". Each op is an op of mlaot: the NumPy reference computes its value, its own vector-Jacobian
product its gradient, and ``Trace.declare`` passes the same graph to the compiler. To write a model for compilation, use
a function with ``mlaot.model`` instead.

Shapes are column-major, as in mljs: ``shape=[4, 3]`` has 3 rows of 4 values, and the first dimension runs fastest. The
NumPy array ``tensor.array`` of the same numbers has the axes in reverse order: 3 by 4.
"""

from mlaot.frontend.scalar.arrays import EagerTensor as Tensor
from mlaot.frontend.scalar.arrays import EagerValue as Value
from mlaot.frontend.scalar.arrays import (
    as_values,
    get_dimensional_indices,
    get_flat_index,
    get_random,
    round_to_multiple,
)
from mlaot.frontend.scalar.tape import Record as Node
from mlaot.frontend.scalar.tape import Tape as Trace
from mlaot.frontend.scalar.tape import topological_sort

__all__ = [
    "Node",
    "Tensor",
    "Trace",
    "Value",
    "as_values",
    "get_dimensional_indices",
    "get_flat_index",
    "get_random",
    "round_to_multiple",
    "topological_sort",
]
