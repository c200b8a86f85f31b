"""The rules of scikit-learn's estimators: the function of rows that a method of a fitted estimator computes.

A rule is a function of an estimator and of rows, registered under the name of a class and a method. The rule of a base
class applies to a family. Rows are features [batch, n] of floats, or columns (``Frame``) for rules that need them
separately. ``class_index`` is also a method: the index in ``classes_`` of a classifier's prediction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.numpy import astype, zeros
from mlaot.ir.types import f32, f64
from mlaot.onnx.ops.ml import take
from mlaot.onnx.values import Strings
from mlaot.sklearn.words import is_sparse
from mlaot.tokenizers.vectorizer import Vectorizer

Array = np.ndarray[Any, Any]
Rule = Callable[[Any, Any], Any]
METHODS = ("predict", "predict_proba", "predict_log_proba", "decision_function", "transform", "score_samples")
SECOND = ("predict_proba", "decision_function", "transform")
LIBRARIES = ("sklearn", "lightgbm", "xgboost")
RULES: dict[tuple[str, str], Rule] = {}


class Unknown(MlaotError):
    """There is no rule, but skl2onnx may have one."""


@dataclass(frozen=True)
class Dates:
    """Dates, as numbers since 1970 in the unit of a ``dtype`` of NumPy's."""

    numbers: Any
    dtype: str


@dataclass(frozen=True)
class Frame:
    """Columns [batch, 1], some of which may be texts or dates."""

    columns: Sequence[Any]

    def pick(self, places: Any) -> Frame:
        """Return some of the columns."""
        return Frame([self.columns[int(i)] for i in places])


@dataclass
class Texts:
    """Texts, as numbers of their terms [batch, words], which ``vectorizers`` count, by the ids of estimators.

    The places of each vectorizer begin at its number, and end where those of the next one begin, or at ``size``.
    """

    numbers: Any
    vectorizers: dict[int, tuple[int, Vectorizer]] = field(default_factory=dict)
    size: int = 0


def join(x: Any, sparse: bool = False) -> Any:
    """Join columns to rows of features, in float64 unless all are float32; without ``sparse``, with all features.

    Dates become numbers, as in scikit-learn.
    """
    if is_sparse(x):
        return x if sparse else x.toarray()
    if isinstance(x, Texts):
        raise MlaotError("texts go into an estimator that takes numbers")
    if not isinstance(x, Frame):
        return x
    if any(column is None for column in x.columns):
        raise MlaotError("the sample lacks a column that the estimator was fitted on")
    if any(isinstance(column, Strings | Texts) for column in x.columns):
        raise Unknown("there are texts among the features")
    columns = [column.numbers if isinstance(column, Dates) else column for column in x.columns]
    dtype = f32 if all(column.dtype in (f32, np.float32) for column in columns) else f64
    return np.concatenate([astype(column, dtype) for column in columns], axis=-1)


def rule(methods: str, kinds: str, frames: bool = False, sparse: bool = False) -> Callable[[Rule], Rule]:
    """Register a function as the rule of methods of classes.

    With ``frames`` it gets columns unchanged. With ``sparse`` it only multiplies or divides rows, or selects features,
    which ``Words`` also support.
    """

    def enter(function: Rule) -> Rule:
        for kind in kinds.split():
            for method in methods.split():
                RULES[kind, method] = function if frames else lambda estimator, x: function(estimator, join(x, sparse))
        return function

    return enter


def find(estimator: Any, method: str) -> Rule:
    """Return the rule of a method of an estimator. A user's class that overrides the method has none."""
    kinds = type(estimator).__mro__
    for i, kind in enumerate(kinds):
        if (kind.__name__, method) in RULES and is_known(kind):
            if not any(name in vars(own) for own in kinds[:i] if not is_known(own) for name in METHODS):
                return RULES[kind.__name__, method]
            break
    raise Unknown(f"the {method} of this {type(estimator).__name__} cannot be converted")


def knows(estimator: Any) -> bool:
    """Tell whether there are rules for some method of an estimator, and for the estimators inside of it."""
    inside = [value for name, value in vars(estimator).items() if not name.startswith("_")]
    while inside:
        value = inside.pop()
        if isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.dtype == object):
            inside += value.ravel().tolist() if isinstance(value, np.ndarray) else value
        elif hasattr(value, "get_params") and not isinstance(value, type) and _has_methods(value) and not knows(value):
            return False
    return bool(methods_of(estimator))


def _has_methods(estimator: Any) -> bool:
    return any(hasattr(estimator, name) for name in METHODS)


def methods_of(estimator: Any) -> list[str]:
    """Return the methods of an estimator with rules, in the order of the module."""
    return [name for name in (*METHODS, "kneighbors") if hasattr(estimator, name) and has_rule(estimator, name)]


def has_rule(estimator: Any, method: str) -> bool:
    """Tell whether a method has a rule."""
    try:
        return bool(find(estimator, method))
    except Unknown:
        return False


def second_method(estimator: Any) -> str:
    """Return the method with the second result of a converter, besides the prediction."""
    return next((name for name in SECOND if hasattr(estimator, name)), "")


def is_known(kind: type) -> bool:
    """Tell whether a class belongs to a library whose estimators have rules."""
    return kind.__module__.partition(".")[0] in LIBRARIES


def compute(estimator: Any, method: str, x: Any) -> Any:
    """Compute the result of a method on rows; for classes that are texts, ``Strings``."""
    return find(estimator, method)(estimator, x)


def pick(classes: Any, index: Any) -> Any:
    """Return the classes at indices: numbers, numbers of dates, or ``Strings``; for other types the indices."""
    values = numbers_of(classes)
    if values.dtype.kind in "OU" and all(isinstance(value, str) for value in values.tolist()):
        return Strings(index, values.astype(np.str_))
    if values.dtype.kind not in "biuf":
        return astype(index, np.int64)
    values = values.astype(np.int64) if values.dtype.kind in "iu" else values
    is_place = values.dtype.kind == "i" and values.tolist() == list(range(len(values)))
    return astype(index, np.int64) if is_place else take(values, index)


def numbers_of(values: Any) -> Array:
    """Return an array, with dates as numbers."""
    array = np.asarray(values)
    return array.astype(array.dtype.newbyteorder("=")).view(np.int64) if array.dtype.kind == "M" else array


def constant(x: Any, values: Any) -> Any:
    """Repeat values, a number or an array, for each of the rows."""
    values = np.asarray(values)
    return zeros((x.shape[0], *values.shape), values.dtype) + values


def dense(matrix: Any) -> Array:
    """Return a matrix of weights, which may be sparse, as an array."""
    return np.asarray(matrix.toarray() if hasattr(matrix, "toarray") else matrix)


def sign(is_inside: Any) -> Any:
    """Return 1 for inliers and -1 for outliers."""
    return astype(np.where(is_inside, 1, -1), np.int64)


def is_one_label(estimator: Any) -> bool:
    """Tell whether a classifier has a single array of classes."""
    return not isinstance(getattr(estimator, "classes_", None), list)


@rule("predict", "ClassifierMixin", frames=True)
def predicted_class(estimator: Any, x: Any) -> Any:
    return pick(estimator.classes_, compute(estimator, "class_index", x))


@rule("class_index", "ClassifierMixin", frames=True)
def likeliest_class(estimator: Any, x: Any) -> Any:
    return np.argmax(compute(estimator, "predict_proba", x), axis=-1)


@rule("predict_log_proba", "ClassifierMixin", frames=True)
def log_of_probabilities(estimator: Any, x: Any) -> Any:
    found = compute(estimator, "predict_proba", x)
    return [np.log(each) for each in found] if isinstance(found, list) else np.log(found)
