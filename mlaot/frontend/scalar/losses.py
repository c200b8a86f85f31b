"""Softmax and cross entropy of scalars, as in "Compiling ML models to C for fun" (Max Bernstein)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import cast

from mlaot.frontend.scalar.engine import Max, Number, Value


def stable_softmax(outputs: Sequence[Value]) -> list[Value]:
    """Compute the softmax. The largest output is subtracted first, so that no exponential overflows."""
    largest = reduce(Max, outputs)
    exps = [(output - largest).exp() for output in outputs]
    total = cast(Value, sum(exps))
    return [e / total for e in exps]


def cross_entropy(outputs: Sequence[Value], onehot: Sequence[Value | Number], eps: float = 0.0001) -> Value:
    """Compute ``-sum(onehot[i] * log(softmax(outputs)[i] + eps))``.

    ``onehot`` is 1 at the expected class and 0 elsewhere. Use values for it if the graph must work for any label.
    ``eps`` keeps the logarithm of a probability of 0 finite.
    """
    probabilities = stable_softmax(outputs)
    terms = (expected * (p + eps).log() for expected, p in zip(onehot, probabilities, strict=True))
    return -cast(Value, sum(terms))
