"""Functions of ``functional`` as layers, for use in ``Sequential`` and wherever a layer is passed around."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ClassVar

from mlaot.errors import MlaotError
from mlaot.nn import functional as F
from mlaot.nn.arguments import Array, bound
from mlaot.nn.module import Layer


class Function(Layer):
    """A function whose options, all but the ``inputs`` first arguments, are given when the layer is made."""

    function: ClassVar[Callable[..., Any]]
    inputs = 1

    def __init__(self, *args: Any, **options: Any) -> None:
        bound(type(self).__name__, inspect.signature(self.function), [None] * self.inputs + list(args), options)
        self.args, self.options = args, options

    def forward(self, *inputs: Array) -> Array:
        return type(self).function(*inputs, *self.args, **self.options)


class Identity(Layer):
    """Gives back what it is given; takes any arguments, as a stand-in for another layer."""

    def __init__(self, *args: Any, **options: Any) -> None:
        pass

    def forward(self, input: Array) -> Array:
        return input


class _Dropout(Layer):
    function: ClassVar[Callable[..., Any]]

    def __init__(self, p: float = 0.5) -> None:
        if not 0 <= p <= 1:
            raise MlaotError(f"{type(self).__name__}: expected a probability from 0 to 1, got {p}")
        self.p = p

    def forward(self, input: Array) -> Array:
        return type(self).function(input, self.p, self.training)


class Flatten(Layer):
    """The axes from ``start_dim`` on as one; the first is the batch's unless told otherwise."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, input: Array) -> Array:
        return F.flatten(input, self.start_dim, self.end_dim)


class Dropout(_Dropout):
    function = staticmethod(F.dropout)


class Dropout1d(_Dropout):
    function = staticmethod(F.dropout1d)


class Dropout2d(_Dropout):
    function = staticmethod(F.dropout2d)


class Dropout3d(_Dropout):
    function = staticmethod(F.dropout3d)


class ReLU(Function):
    function = staticmethod(F.relu)


class LeakyReLU(Function):
    function = staticmethod(F.leaky_relu)


class ELU(Function):
    function = staticmethod(F.elu)


class SELU(Function):
    function = staticmethod(F.selu)


class CELU(Function):
    function = staticmethod(F.celu)


class GELU(Function):
    function = staticmethod(F.gelu)


class SiLU(Function):
    function = staticmethod(F.silu)


class Mish(Function):
    function = staticmethod(F.mish)


class Softplus(Function):
    function = staticmethod(F.softplus)


class Softsign(Function):
    function = staticmethod(F.softsign)


class Tanh(Function):
    function = staticmethod(F.tanh)


class Sigmoid(Function):
    function = staticmethod(F.sigmoid)


class Hardtanh(Function):
    function = staticmethod(F.hardtanh)


class Hardsigmoid(Function):
    function = staticmethod(F.hardsigmoid)


class Hardswish(Function):
    function = staticmethod(F.hardswish)


class ReLU6(Function):
    function = staticmethod(F.relu6)


class LogSigmoid(Function):
    function = staticmethod(F.logsigmoid)


class GLU(Function):
    function = staticmethod(F.glu)


class Softmax(Function):
    function = staticmethod(F.softmax)


class LogSoftmax(Function):
    function = staticmethod(F.log_softmax)


class CosineSimilarity(Function):
    function = staticmethod(F.cosine_similarity)
    inputs = 2


class Upsample(Function):
    function = staticmethod(F.interpolate)


class MaxPool1d(Function):
    function = staticmethod(F.max_pool1d)


class MaxPool2d(Function):
    function = staticmethod(F.max_pool2d)


class MaxPool3d(Function):
    function = staticmethod(F.max_pool3d)


class AvgPool1d(Function):
    function = staticmethod(F.avg_pool1d)


class AvgPool2d(Function):
    function = staticmethod(F.avg_pool2d)


class AvgPool3d(Function):
    function = staticmethod(F.avg_pool3d)


class LPPool1d(Function):
    function = staticmethod(F.lp_pool1d)


class LPPool2d(Function):
    function = staticmethod(F.lp_pool2d)


class LPPool3d(Function):
    function = staticmethod(F.lp_pool3d)


class AdaptiveAvgPool1d(Function):
    function = staticmethod(F.adaptive_avg_pool1d)


class AdaptiveAvgPool2d(Function):
    function = staticmethod(F.adaptive_avg_pool2d)


class AdaptiveAvgPool3d(Function):
    function = staticmethod(F.adaptive_avg_pool3d)


class AdaptiveMaxPool1d(Function):
    function = staticmethod(F.adaptive_max_pool1d)


class AdaptiveMaxPool2d(Function):
    function = staticmethod(F.adaptive_max_pool2d)


class AdaptiveMaxPool3d(Function):
    function = staticmethod(F.adaptive_max_pool3d)


class MSELoss(Function):
    function = staticmethod(F.mse_loss)
    inputs = 2


class L1Loss(Function):
    function = staticmethod(F.l1_loss)
    inputs = 2


class HuberLoss(Function):
    function = staticmethod(F.huber_loss)
    inputs = 2


class SmoothL1Loss(Function):
    function = staticmethod(F.smooth_l1_loss)
    inputs = 2


class HingeEmbeddingLoss(Function):
    function = staticmethod(F.hinge_embedding_loss)
    inputs = 2


class BCELoss(Function):
    function = staticmethod(F.binary_cross_entropy)
    inputs = 2


class BCEWithLogitsLoss(Function):
    function = staticmethod(F.binary_cross_entropy_with_logits)
    inputs = 2


class CrossEntropyLoss(Function):
    function = staticmethod(F.cross_entropy)
    inputs = 2


class NLLLoss(Function):
    function = staticmethod(F.nll_loss)
    inputs = 2


class KLDivLoss(Function):
    function = staticmethod(F.kl_div)
    inputs = 2
