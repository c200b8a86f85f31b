"""Encoders of categories and labels as numbers. Categories may be texts or dates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.numpy import astype
from mlaot.ir.types import f64
from mlaot.onnx.ops.ml import take
from mlaot.onnx.values import Strings
from mlaot.sklearn.rules import Dates, Frame, Unknown, rule


def places(column: Any, categories: Any) -> Any:
    """Return the index of each element of a column [batch, 1] in categories, or their number for any other."""
    count = len(categories)
    if isinstance(column, Strings):
        known = {category: i for i, category in enumerate(categories)}
        table = np.array([known.get(text, count) for text in column.table.tolist()], np.int64)
        return take(table, column.index[:, 0])
    kind = np.asarray(categories).dtype.kind
    if isinstance(column, Dates) and kind == "M":
        values, are_held = _in_unit(np.asarray(categories), column.dtype)
        equal = column.numbers == values
        return _place(equal if are_held.all() else equal & are_held)
    if isinstance(column, Dates) or kind == "M":
        raise MlaotError("a column holds dates where categories are something else, or the other way round")
    if not all(isinstance(category, int | float | np.number | np.bool) for category in categories):
        raise Unknown("there are categories that are no numbers, and the column holds numbers")
    values = np.asarray(categories, np.float64)
    column = astype(column, f64)
    equal = column == values
    if np.isnan(values).any():
        equal = equal | (np.isnan(column) & np.isnan(values))
    return _place(equal)


def _place(equal: Any) -> Any:
    """Return the index of the first category that each row equals, or the number of categories."""
    return np.where(np.any(equal, axis=-1), np.argmax(equal, axis=-1), equal.shape[-1])


def _in_unit(categories: Any, dtype: str) -> tuple[Any, Any]:
    """Return the numbers of dates in a unit, and a mask of exact ones. What is no date equals no date."""
    own = categories.astype(dtype)
    return own.view(np.int64), ~np.isnat(own) & (own.astype(categories.dtype) == categories)


def columns_of(x: Any) -> Sequence[Any]:
    """Return the columns of a frame, or of rows of features."""
    return x.columns if isinstance(x, Frame) else [x[:, i : i + 1] for i in range(x.shape[1])]


def grouped(estimator: Any, i: int, kept: Any = None) -> Any:
    """Return the code of each category of a feature, and last the code of unknown categories (-1 for none).

    Infrequent categories share one code; ``kept`` is a category with its own code.
    """
    count = len(estimator.categories_[i])
    codes = np.arange(count + 1)
    codes[count] = -1
    if not estimator._infrequent_enabled:
        return codes
    mapping, infrequent = estimator._default_to_infrequent_mappings[i], estimator._infrequent_indices[i]
    if mapping is not None:
        codes[:count] = [k if k == kept else mapping[k] for k in range(count)]
        if infrequent is not None and estimator.handle_unknown in ("infrequent_if_exist", "warn"):
            codes[count] = mapping[infrequent[0]]
    return codes


@rule("transform", "OneHotEncoder", frames=True)
def one_hot(estimator: Any, x: Any) -> Any:
    """Return a column for each category, with zeros for unknown and for dropped categories."""
    dropped, parts = estimator._drop_idx_after_grouping, []
    for i, column in enumerate(columns_of(x)):
        codes = grouped(estimator, i)
        drop = None if dropped is None else dropped[i]
        ones = [code for code in range(int(codes.max()) + 1) if code != drop]
        index = take(codes, places(column, estimator.categories_[i]))
        parts.append(astype(np.expand_dims(index, -1) == np.array(ones), f64))
    return np.concatenate(parts, axis=-1)


@rule("transform", "OrdinalEncoder", frames=True)
def ordinal(estimator: Any, x: Any) -> Any:
    parts = []
    for i, column in enumerate(columns_of(x)):
        missing = estimator._missing_indices.get(i)
        codes = grouped(estimator, i, missing).astype(np.float64)
        if missing is not None:
            codes[missing] = estimator.encoded_missing_value
        if estimator.handle_unknown == "use_encoded_value":
            codes[-1] = estimator.unknown_value
        parts.append(take(codes, places(column, estimator.categories_[i])))
    return np.stack(parts, axis=-1)


@rule("transform", "TargetEncoder", frames=True)
def by_targets(estimator: Any, x: Any) -> Any:
    """Return the mean target of each category, for each class if there are several.

    An unknown category gets the mean of all.
    """
    means = np.atleast_1d(estimator.target_mean_)
    columns, parts = columns_of(x), []
    for i, encoding in enumerate(estimator.encodings_):
        feature = i // len(means)
        table = np.append(encoding, means[i % len(means)])
        parts.append(take(table, places(columns[feature], estimator.categories_[feature])))
    return np.stack(parts, axis=-1)


@rule("transform", "LabelEncoder", frames=True)
def label_place(estimator: Any, y: Frame) -> Any:
    """Return the index of each label in the classes, or their number for an unknown label.

    scikit-learn raises an error for an unknown label.
    """
    return places(y.columns[0], estimator.classes_)


@rule("transform", "LabelBinarizer", frames=True)
def label_columns(estimator: Any, y: Frame) -> Any:
    if estimator.y_type_.startswith("multilabel") or estimator.sparse_input_:
        raise MlaotError("a LabelBinarizer of several labels at a time cannot be converted")
    low, high, classes = estimator.neg_label, estimator.pos_label, estimator.classes_
    place = np.expand_dims(places(y.columns[0], classes), -1)
    if len(classes) == 1:
        return np.full_like(place, low)
    chosen = place == np.arange(len(classes))
    return astype(np.where(chosen[:, 1:] if len(classes) == 2 else chosen, high, low), np.int64)
