"""The names that programs of PyTorch, NumPy and SciPy use: that they are there, or that the error says what to use.

What each computes is compared elsewhere; here a name that gets lost is missed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special

import mlaot
from mlaot import MlaotError, nn, optim
from mlaot.frontend.numpy.scipy_functions import STANDING_IN
from mlaot.frontend.trace.protocols import FUNCTIONS, UFUNC_METHODS, UFUNCS, hint
from mlaot.nn.absent import ADVICE

from .frontend.tracing import run

LAYERS = """
Bilinear Buffer ChannelShuffle Conv1d Conv2d Conv3d ConvTranspose2d CosineSimilarity Dropout AlphaDropout Embedding
EmbeddingBag Flatten Fold GRU GRUCell GroupNorm Identity InstanceNorm2d LSTM LSTMCell LayerNorm Linear
LocalResponseNorm MaxPool2d AvgPool2d AdaptiveAvgPool2d Module ModuleDict ModuleList MultiheadAttention PairwiseDistance
Parameter ParameterList PixelShuffle RMSNorm RNN Sequential Softmax2d Transformer TransformerDecoder
TransformerDecoderLayer TransformerEncoder TransformerEncoderLayer Unflatten Unfold Upsample UpsamplingNearest2d
ConstantPad2d ReflectionPad2d ReplicationPad2d ZeroPad2d BatchNorm1d BatchNorm2d PReLU RReLU Softmin Softshrink
Tanhshrink Threshold ReLU GELU SiLU Mish ELU CrossEntropyLoss NLLLoss MSELoss L1Loss SmoothL1Loss HuberLoss BCELoss
KLDivLoss BCEWithLogitsLoss PoissonNLLLoss GaussianNLLLoss SoftMarginLoss HingeEmbeddingLoss MultiLabelSoftMarginLoss
MultiLabelMarginLoss MultiMarginLoss TripletMarginLoss CosineEmbeddingLoss MarginRankingLoss
"""
METHODS = """
parameters named_parameters buffers named_buffers modules named_modules children named_children apply train eval to
double half float zero_grad requires_grad_ register_buffer register_parameter add_module state_dict load_state_dict
"""
OPTIMIZERS = "SGD Adam AdamW RMSprop Adagrad Lion Adadelta Adamax NAdam RAdam ASGD Rprop"
NUMPY = """
nanstd nanvar nanmedian nanargmax nanargmin nancumsum nancumprod nanquantile nanpercentile histogram ediff1d angle imag
i0 unwrap lexsort partition apply_along_axis apply_over_axes piecewise allclose array_equal sliding_window_view
"""
SCIPY = "erf erfc erfinv expit logit gamma gammaln psi digamma i0 ndtr ndtri xlogy entr rel_entr"


def test_names_of_pytorch() -> None:
    assert [name for name in LAYERS.split() if not hasattr(nn, name)] == []
    assert [name for name in METHODS.split() if not hasattr(nn.Module, name)] == []
    assert [name for name in OPTIMIZERS.split() if not hasattr(optim, name)] == []
    assert nn.Linear(2, 2).requires_grad_(False).eval().double().training is False


def test_names_of_numpy() -> None:
    assert [name for name in NUMPY.split() if name not in FUNCTIONS] == []
    assert [name for name in (*SCIPY.split(), "frexp", "spacing") if name not in UFUNCS] == []
    accumulated = ("add", "multiply", "maximum", "minimum", "logical_or")
    assert [name for name in accumulated if (name, "accumulate") not in UFUNC_METHODS] == []
    assert {"cdf", "pdf", "ppf", "cdist", "softmax"} <= set(STANDING_IN)


@pytest.mark.parametrize("name", ADVICE)
def test_advice(name: str) -> None:
    """It is about a name that there is not, and names such as there are."""
    assert not any(hasattr(module, name) for module in (nn, nn.functional, optim, optim.lr_scheduler))
    with pytest.raises(AttributeError, match="has no attribute") as raised:
        getattr(nn, name)
    message = str(raised.value)
    assert message.endswith(ADVICE[name]) and "\n" not in message and len(message) < 200


X, SQUARE = np.ones((3, 4)), np.ones((3, 3))
REFUSED: list[tuple[Callable[..., Any], Any, str]] = [
    (np.linalg.cholesky, SQUARE, "models have no decompositions and no solvers"),
    (np.linalg.svd, SQUARE, "compute it with NumPy where the matrix is constant, or pass it in"),
    (np.linalg.eigh, SQUARE, "models have no decompositions"),
    (np.linalg.qr, SQUARE, "models have no decompositions"),
    (lambda x: np.linalg.solve(x, x), SQUARE, "models have no decompositions and no solvers"),
    (np.fft.fft, X, "models have no FFT"),
    (lambda x: np.polyfit(x[0], x[0], 1), X, "np.linalg.pinv"),
    (lambda x: np.multiply.reduceat(x, [0, 1]), X, "use mlaot.scatter with a mode"),
    (lambda x: np.hypot.accumulate(x), X, "use mlaot.scan"),
    (lambda x: scipy.special.betaln(x, x), X, "use gammaln"),
    (lambda x: mlaot.histogram(x, "auto"), X, "the number of bins depends on the data"),
]


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_what_cannot_be_traced(number: int) -> None:
    function, array, message = REFUSED[number]
    with pytest.raises(MlaotError, match=message) as raised:
        run(function, array)
    assert "\n" not in str(raised.value)


def test_products_in_place_of_what_cannot_be_traced() -> None:
    """What the errors say of FFT and of fitted polynomials."""
    x = np.random.default_rng(0).normal(size=8)
    wave = np.fft.fft(np.eye(8))
    expected = np.fft.fft(x)
    np.testing.assert_allclose(run(lambda v: wave.real @ v, x), expected.real, atol=1e-12)
    np.testing.assert_allclose(run(lambda v: wave.imag @ v, x), expected.imag, atol=1e-12)
    places = np.arange(8.0)
    fitted = run(lambda y: np.linalg.pinv(np.vander(places, 3)) @ y, x)
    np.testing.assert_allclose(fitted, np.polyfit(places, x, 2), atol=1e-10)
    assert "np.eye(n)" in hint("np.fft.fft") and "np.vander" in hint("np.polyfit")
