"""NumPy's functions for traced arrays, with a file for each family, and further functions of mlaot.

Importing the package fills the tables of ``mlaot.frontend.trace.protocols``. The names here are functions that take
plain arrays, parameters and traced arrays alike. A function that NumPy also has calls NumPy's for plain arrays:
``mlaot.where`` is ``np.where``.
"""

from mlaot.frontend.numpy import namespace, scipy_functions
from mlaot.frontend.numpy.activations import (
    erf,
    erfc,
    erfinv,
    gelu,
    log_softmax,
    logsumexp,
    relu,
    sigmoid,
    silu,
    softmax,
    softplus,
)
from mlaot.frontend.numpy.conversion import astype, quantize, sparse, stop_gradient
from mlaot.frontend.numpy.creation import arange, eye, filled, one_hot, ones, zeros
from mlaot.frontend.numpy.indexing import gather, put_along_axis, scatter
from mlaot.frontend.numpy.padding import pad
from mlaot.frontend.numpy.sorting import top_k
from mlaot.frontend.numpy.trees import tree_ensemble
from mlaot.frontend.numpy.windows import fold, window
from mlaot.frontend.trace.control import scan

__all__ = [
    "arange",
    "astype",
    "erf",
    "erfc",
    "erfinv",
    "eye",
    "filled",
    "fold",
    "gather",
    "gelu",
    "log_softmax",
    "logsumexp",
    "namespace",
    "one_hot",
    "ones",
    "pad",
    "put_along_axis",
    "quantize",
    "relu",
    "scan",
    "scatter",
    "scipy_functions",
    "sigmoid",
    "silu",
    "softmax",
    "softplus",
    "sparse",
    "stop_gradient",
    "top_k",
    "tree_ensemble",
    "window",
    "zeros",
]
