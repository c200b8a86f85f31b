"""Eager tensors that remember how they were computed: ``Tensor`` with ``backward()``, and the ``Trace`` under it.

For programs that build their graph as they run. ``Tensor`` and the scalar ``Value`` have the API of ndesmic/mljs
(https://github.com/ndesmic/mljs, MIT) under Python's names, ``Trace`` and ``Node`` that of the Rust page "Autodiff
graphs". An op is one of mlaot's: its value is the reference's, its vector-Jacobian product the op's own, and
``Trace.declare`` hands the same graph to the compiler. A model that is meant to be compiled is written as a function,
with ``mlaot.model``.

mljs writes shapes column-major: ``shape=[4, 3]`` are 3 rows of 4 values, the first dimension runs fastest. The same
numbers as a NumPy array, ``tensor.array``, have the axes in reverse: 3 by 4.
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
