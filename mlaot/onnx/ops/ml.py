"""The operators of classical machine learning: features, labels, linear models and support vector machines.

Labels that are strings are traced as their indices (``Strings``); what maps them to numbers is compiled, but a module
cannot give them. What the operators leave open of scores and labels of two classes is as ONNX Runtime has it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend import numpy as F
from mlaot.frontend.numpy.indexing import take as traced_take
from mlaot.frontend.trace.control import scan, while_loop
from mlaot.frontend.trace.protocols import any_traced
from mlaot.frontend.trace.tensor import Parameter
from mlaot.onnx.importer import Use
from mlaot.onnx.registry import ML, operator
from mlaot.onnx.values import Array, Maps, Strings, Unsupported, known

DOUBLE = ("f64", "float64")  # traced, and known
FEW = 64  # keys that are compared with one by one, all at once


def real(x: Any) -> Any:
    """``x`` in the dtype that it is computed in: doubles stay, all else becomes float32."""
    return x if str(x.dtype) in DOUBLE else F.astype(x, np.float32)


def single(x: Any) -> Any:
    """``x`` as float32, which most results are."""
    return F.astype(x, np.float32)


def result(use: Use, x: Any) -> Any:
    """``x`` as float32, as ONNX has it, unless doubles are wanted throughout."""
    return x if use.importer.wide and str(x.dtype) in DOUBLE else single(x)


def like(values: Any, x: Any) -> Array:
    """Numbers of an attribute in the dtype of ``x``."""
    return np.asarray(values, np.float64 if str(x.dtype) in DOUBLE else np.float32)


def take(x: Any, index: Any, axis: int = 0) -> Any:
    """Elements of an array by indices of which either may be known."""
    return traced_take(x, index, axis) if any_traced(x, index) else np.take(x, index, axis)


def rows(x: Any) -> Any:
    """A vector of features is one row."""
    return np.reshape(x, (1, -1)) if x.ndim == 1 else x


def weight(use: Use, name: str, values: Any) -> Any:
    """Numbers of an attribute as a parameter of the model."""
    array = np.asarray(values, np.float32)
    called = f"{use.node.name or use.node.output[0]}_{name}"
    return Parameter(use.importer.new_name(called), array) if array.size > 1 else array


def class_labels(use: Use) -> list[Any]:
    """The labels of a classifier; integers or texts."""
    texts = use.attribute("classlabels_strings")
    if texts:
        return [text.decode("utf-8", "replace") for text in texts]
    return use.attribute("classlabels_int64s") or use.attribute("classlabels_ints") or []


def chosen(labels: Sequence[Any], index: Any) -> Any:
    """The labels that ``index`` names."""
    if labels and isinstance(labels[0], str):
        return Strings(index, np.array(labels, np.str_))
    if list(labels) == list(range(len(labels))):
        return F.astype(index, np.int64)
    return take(np.array(labels, np.int64), index)


def scores_of_two(score: Any, kind: str) -> Any:
    """[N, 2] of [N, 1], the score of the second class."""
    if kind in ("NONE", "PROBIT"):
        return transformed(np.concatenate([1 - score, score], axis=-1), kind)
    return transformed(np.concatenate([-score, score], axis=-1), kind)


def transformed(scores: Any, kind: str) -> Any:
    """The ``post_transform`` of scores [.., classes]."""
    if kind not in TRANSFORMS:
        raise MlaotError(f"there is no post_transform {kind!r}")
    return TRANSFORMS[kind](scores)


def _softmax_zero(scores: Any) -> Any:
    """A softmax that leaves zeros zero."""
    most = np.max(scores, axis=-1, keepdims=True)
    is_zero = np.abs(scores) <= 1e-7
    powers = np.where(is_zero, scores * np.exp(-most), np.exp(scores - most))
    total = np.sum(powers, axis=-1, keepdims=True)
    return np.where(total == 0, F.astype(np.full((), 0.5), scores.dtype), powers / np.where(total == 0, 1, total))


def _probit(scores: Any) -> Any:
    """The quantile of the normal distribution, by Winitzki's approximation of the inverse error function."""
    x = 2 * scores - 1
    log = np.log((1 - x) * (1 + x))
    half = 2 / (np.pi * 0.147) + 0.5 * log
    root = np.sqrt(np.sqrt(half * half - log / 0.147) - half)
    return F.astype(1.41421356 * np.where(x < 0, -root, root), scores.dtype)


TRANSFORMS: dict[str, Callable[[Any], Any]] = {
    "NONE": lambda scores: scores,
    "SOFTMAX": lambda scores: F.softmax(scores, axis=-1),
    "LOGISTIC": F.sigmoid,
    "SOFTMAX_ZERO": _softmax_zero,
    "PROBIT": _probit,
}


@operator("Scaler", domain=ML)
def scaler(use: Use, x: Any) -> Any:
    x = real(x)
    offset, scale = (like(use.attribute(name, [v]), x) for name, v in (("offset", 0.0), ("scale", 1.0)))
    return result(use, (x - offset) * scale)


@operator("Normalizer", domain=ML)
def normalizer(use: Use, x: Any) -> Any:
    """``MAX`` takes magnitudes. Rows of very large or small numbers are scaled by a power of two first: exactly."""
    x, norm = real(x), use.string("norm", "MAX")
    far, power = (1e100, 2.0**700) if str(x.dtype) in DOUBLE else (1e12, 2.0**100)
    largest = np.max(np.abs(x), axis=-1, keepdims=True)
    y = x * F.astype(np.where(largest < 1 / far, power, np.where(largest > far, 1 / power, 1.0)), x.dtype)
    if norm == "MAX":
        length = np.max(np.abs(y), axis=-1, keepdims=True)
    elif norm == "L1":
        length = np.sum(np.abs(y), axis=-1, keepdims=True)
    elif norm == "L2":
        length = np.sqrt(np.sum(y * y, axis=-1, keepdims=True))
    else:
        raise MlaotError(f"there is no norm {norm!r}")
    return result(use, y / np.where(length == 0, 1, length))


@operator("Imputer", domain=ML)
def imputer(use: Use, x: Any) -> Any:
    is_float = str(x.dtype).startswith("f")
    kind = "float" if is_float else "int64"
    values = use.attribute(f"imputed_value_{kind}s")
    if not values:
        raise MlaotError(f"it has no imputed_value_{kind}s")
    replaced = use.attribute(f"replaced_value_{kind}", 0)
    old = np.isnan(x) if replaced != replaced else x == np.asarray(replaced, np.float32 if is_float else np.int64)
    return F.astype(np.where(old, F.astype(np.asarray(values), x.dtype), x), x.dtype)


@operator("Binarizer", domain=ML)
def binarizer(use: Use, x: Any) -> Any:
    return F.astype(x > np.float32(use.attribute("threshold", 0.0)), x.dtype)


@operator("ArrayFeatureExtractor", domain=ML, labels=True)
def array_feature_extractor(use: Use, x: Any, index: Any) -> Any:
    """Columns of the last axis; of texts that are known, by indices that may be traced."""
    at = np.ravel(index) if known(index) is None else known(index).ravel()  # type: ignore[union-attr]
    if isinstance(x, Strings):
        return Strings(_columns(x.index, at), x.table)
    if known(x) is not None and x.dtype.kind == "U":
        if known(at) is not None:
            return _columns(x, at)
        if x.size != x.shape[-1]:
            raise Unsupported("it takes a matrix of strings by indices that are computed; use integers")
        return Strings(np.reshape(at, (*x.shape[:-1], -1) if x.ndim > 1 else (1, -1)), x.ravel())
    return _columns(x, at)


def _columns(x: Any, at: Any) -> Any:
    found = take(x, at, axis=-1)
    return np.reshape(found, (1, -1)) if x.ndim == 1 else found


@operator("FeatureVectorizer", domain=ML)
def feature_vectorizer(use: Use, *values: Any) -> Any:
    sizes = use.attribute("inputdimensions") or [None] * len(values)
    parts = []
    for value, size in zip(values, sizes, strict=True):
        x = rows(result(use, value))
        if x.ndim != 2:
            raise MlaotError(f"its inputs have 1 or 2 axes, got {x.ndim}")
        if size is not None and size > x.shape[1]:
            x = np.pad(x, ((0, 0), (0, size - x.shape[1])))
        parts.append(x if size is None else x[:, :size])
    return np.concatenate(parts, axis=1)


@operator("ZipMap", domain=ML)
def zip_map(use: Use, x: Any) -> Any:
    """A list of maps of labels to probabilities: the module gives the probabilities, a column for each label."""
    return Maps(x)


@operator("OneHotEncoder", domain=ML, labels=True)
def one_hot_encoder(use: Use, x: Any) -> Any:
    """A category that is not known gives zeros, also with ``zeros=0``, where a runtime would raise."""
    numbers, texts = use.attribute("cats_int64s"), use.attribute("cats_strings")
    categories = np.array(numbers, np.int64) if numbers else np.array([t.decode() for t in texts or []], np.str_)
    if isinstance(x, Strings):
        return take(np.float32(x.table[:, None] == categories), x.index, axis=0)
    if known(x) is not None and x.dtype.kind == "U":
        return np.float32(np.asarray(x)[..., None] == categories)
    found = np.trunc(x) if str(x.dtype).startswith("f") else x
    return single(np.expand_dims(found, -1) == F.astype(categories, x.dtype))


def _texts(values: Any) -> list[str]:
    return [value.decode("utf-8", "replace") for value in values]


@operator("LabelEncoder", domain=ML, labels=True)
def label_encoder_1(use: Use, x: Any) -> Any:
    table = _texts(use.attribute("classes_strings", []))
    if _is_text(x):
        return _mapped(x, table, np.arange(len(table)), np.int64(use.attribute("default_int64", -1)))
    default = use.string("default_string", "_Unused")
    return _mapped(x, np.arange(len(table)), np.array(table, np.str_), np.str_(default))


@operator("CategoryMapper", domain=ML, labels=True)
def category_mapper(use: Use, x: Any) -> Any:
    texts = _texts(use.attribute("cats_strings", []))
    numbers = np.array(use.attribute("cats_int64s", []), np.int64)
    if _is_text(x):
        return _mapped(x, texts, numbers, np.int64(use.attribute("default_int64", -1)))
    default = use.string("default_string", "_Unused")
    return _mapped(x, numbers, np.array(texts, np.str_), np.str_(default))


@operator("LabelEncoder", domain=ML, since=2, labels=True)
def label_encoder(use: Use, x: Any) -> Any:
    keys, values = (_column(use, which) for which in ("keys", "values"))
    if len(keys) != len(values):
        raise MlaotError(f"{len(keys)} keys, {len(values)} values")
    given = use.attribute("default_tensor")
    name, none = {"U": ("default_string", "_Unused"), "f": ("default_float", -0.0)}.get(
        values.dtype.kind, ("default_int64", -1)
    )
    default = use.attribute(name, none) if given is None else given.ravel()[0]
    default = default.decode() if isinstance(default, bytes) else default
    return _mapped(x, keys, values, np.asarray(default, values.dtype if values.dtype.kind != "U" else np.str_))


def _column(use: Use, which: str) -> Array:
    """The keys or the values, of whichever type."""
    for kind, dtype in (("floats", np.float32), ("int64s", np.int64), ("strings", np.str_)):
        found = use.attribute(f"{which}_{kind}")
        if found:
            return np.array(_texts(found) if kind == "strings" else found, dtype)
    return np.ravel(use.attribute(f"{which}_tensor", np.zeros(0, np.int64)))


def _is_text(x: Any) -> bool:
    array = known(x) if not isinstance(x, Strings) else None
    return isinstance(x, Strings) or (array is not None and array.dtype.kind == "U")


def _mapped(x: Any, keys: Any, values: Array, default: Any) -> Any:
    """``values`` of the keys that ``x`` holds; of keys that are equal the last counts."""
    place = {("nan" if key != key else key): i for i, key in enumerate(np.asarray(keys).tolist())}
    table = np.concatenate([values, np.reshape(default, (1,))])
    if isinstance(x, Strings):
        index = take(np.array([place.get(text, -1) for text in x.table.tolist()], np.int64) % len(table), x.index)
    elif known(x) is not None:
        array = np.asarray(known(x))
        found = [place.get("nan" if v != v else v, -1) for v in array.ravel().tolist()]
        return table[np.array(found, np.int64).reshape(array.shape)]
    elif np.asarray(keys).dtype.kind == "U":
        raise Unsupported("it looks up strings, but its input holds numbers")
    else:
        index = _looked_up(x, place, len(table) - 1)
    return Strings(index, table) if table.dtype.kind == "U" else take(table, index)


def _looked_up(x: Any, place: dict[Any, int], other: int) -> Any:
    """The place of each element among numbers, ``other`` where it is none of them."""
    numbers = sorted((key, i) for key, i in place.items() if key != "nan")
    places = np.array([i for _, i in numbers] + [other], np.int64)
    keys = np.array([key for key, _ in numbers], np.dtype(x.dtype) if str(x.dtype).startswith("f") else np.int64)
    if not len(keys):
        at = np.zeros_like(x, np.int64)
    elif len(keys) <= FEW:
        equal = np.expand_dims(x, -1) == keys
        at = np.where(np.any(equal, axis=-1), np.argmax(equal, axis=-1), len(keys))
    else:
        near = np.clip(np.digitize(x, keys) - 1, 0, len(keys) - 1)
        at = np.where(take(keys, near) == x, near, len(keys))
    index = take(places, at)
    return np.where(np.isnan(x), place["nan"], index) if "nan" in place else index


@operator("LinearRegressor", domain=ML)
def linear_regressor(use: Use, x: Any) -> Any:
    x, targets = rows(real(x)), use.attribute("targets", 1)
    y = x @ np.transpose(F.astype(weight(use, "coefficients", _matrix(use, targets)), x.dtype))
    y = y + like(use.attribute("intercepts", [0.0]), x)
    return result(use, transformed(y, use.string("post_transform", "NONE")))


def _matrix(use: Use, rows: int) -> Array:
    given = np.asarray(use.attribute("coefficients", []), np.float32)
    if rows < 1 or not given.size or given.size % rows:
        raise MlaotError(f"{given.size} coefficients for {rows} rows of them")
    return given.reshape(rows, -1)


@operator("LinearClassifier", domain=ML)
def linear_classifier(use: Use, x: Any) -> Any:
    x, labels, kind = rows(real(x)), class_labels(use), use.string("post_transform", "NONE")
    intercepts = use.attribute("intercepts") or [0.0]
    given = np.asarray(use.attribute("coefficients", []), np.float32)
    matrix = _matrix(use, given.size // x.shape[1])
    scores = x @ np.transpose(F.astype(weight(use, "coefficients", matrix), x.dtype)) + like(intercepts, x)
    if len(matrix) == 1:
        if len(labels) != 2:
            raise Unsupported(f"one row of coefficients for {len(labels)} labels; give it two labels")
        return chosen(labels, F.astype(scores[:, 0] > 0, np.int64)), result(use, scores_of_two(scores, kind))
    labels = labels or list(range(len(matrix)))
    return chosen(labels, np.argmax(scores, axis=-1)), result(use, transformed(scores, kind))


def _kernels(use: Use, x: Any, vectors: Any) -> Any:
    """The kernel of each row and each support vector."""
    gamma, zero, degree = [*use.attribute("kernel_params", []), 0.0, 0.0, 0.0][:3]
    kind = use.string("kernel_type", "LINEAR")
    if kind == "RBF":  # as differences: squares of large features would cancel
        apart = np.expand_dims(x, -2) - vectors
        return np.exp(-gamma * np.sum(apart * apart, axis=-1))
    product = x @ np.transpose(vectors)
    if kind == "LINEAR":
        return product
    if kind == "SIGMOID":
        return np.tanh(gamma * product + zero)
    if kind == "POLY":
        return np.power(gamma * product + zero, int(degree))
    raise MlaotError(f"there is no kernel {kind!r}")


@operator("SVMRegressor", domain=ML)
def svm_regressor(use: Use, x: Any) -> Any:
    x, count = rows(real(x)), use.attribute("n_supports", 0)
    coefficients = F.astype(weight(use, "coefficients", use.attribute("coefficients")), x.dtype)
    if count:
        vectors = np.asarray(use.attribute("support_vectors"), np.float32).reshape(count, -1)
        x = _kernels(use, x, F.astype(weight(use, "support_vectors", vectors), x.dtype))
    y = x @ np.reshape(coefficients, (-1, 1)) + like(use.attribute("rho", [0.0])[:1], x)
    if use.attribute("one_class", 0):
        return result(use, np.where(y > 0, 1, -1))
    return result(use, transformed(y, use.string("post_transform", "NONE")))


@operator("SVMClassifier", domain=ML)
def svm_classifier(use: Use, x: Any) -> Any:
    """One against one by votes, with probabilities where the file has Platt's coefficients; or linear scores."""
    x, labels, kind = rows(real(x)), class_labels(use), use.string("post_transform", "NONE")
    counts = use.attribute("vectors_per_class") or []
    coefficients = np.asarray(use.attribute("coefficients"), np.float32)
    rho = use.attribute("rho") or [0.0]
    if not counts:
        scores = x @ np.transpose(F.astype(_matrix(use, max(len(labels), 1)), x.dtype)) + like(rho[:1], x)
        return chosen(labels or [0], np.argmax(scores, axis=-1)), result(use, transformed(scores, kind))
    vectors = np.asarray(use.attribute("support_vectors"), np.float32).reshape(sum(counts), -1)
    kernels = _kernels(use, x, F.astype(weight(use, "support_vectors", vectors), x.dtype))
    pairs = _pairs(coefficients.reshape(-1, sum(counts)), counts)
    scores = kernels @ np.transpose(F.astype(weight(use, "coefficients", pairs), x.dtype)) + like(rho, x)
    classes = len(counts)
    labels = labels or list(range(classes))
    index = np.argmax(_votes(scores, classes), axis=-1)
    platt = use.attribute("prob_a")
    if platt:
        odds = scores * like(platt, x) + like(use.attribute("prob_b"), x)
        return chosen(labels, index), result(use, transformed(_coupled(F.sigmoid(-odds), classes), kind))
    if classes == 2:  # of the pair, seen from the second
        scores = np.concatenate([-scores, scores], axis=-1)
    return chosen(labels, index), result(use, transformed(scores, kind))


def _pairs(coefficients: Array, counts: Sequence[int]) -> Array:
    """The coefficients of every pair of classes, over all support vectors."""
    ends, found = np.cumsum([0, *counts]), []
    for i in range(len(counts)):
        for j in range(i + 1, len(counts)):
            row = np.zeros(coefficients.shape[1], np.float32)
            mine, theirs = slice(ends[i], ends[i + 1]), slice(ends[j], ends[j + 1])
            row[mine], row[theirs] = coefficients[j - 1, mine], coefficients[i, theirs]
            found.append(row)
    return np.array(found)


def _votes(scores: Any, classes: int) -> Any:
    """How many of its pairs each class wins."""
    first, second = np.triu_indices(classes, 1)
    wins, losses = (np.float32(np.arange(classes) == np.reshape(side, (-1, 1))) for side in (first, second))
    won = single(scores > 0)
    return won @ wins + (1 - won) @ losses


def _coupled(pairwise: Any, classes: int) -> Any:
    """Probabilities of the classes from those of pairs: Wu, Lin and Weng (2004), the second method, as in LIBSVM."""
    first, second = np.triu_indices(classes, 1)
    place = np.zeros((classes, classes), np.int64)
    place[first, second], place[second, first] = np.arange(len(first)), len(first) + np.arange(len(first))
    p = F.astype(np.clip(pairwise, 1e-7, 1 - 1e-7), np.float64)
    r = take(np.concatenate([p, 1 - p], axis=-1), place, axis=-1) * (1 - np.eye(classes))  # [N, classes, classes]
    across = np.swapaxes(r, -1, -2)
    q = np.sum(across * across, axis=-1, keepdims=True) * np.eye(classes) - across * r
    diagonal = np.sum(across * across, axis=-1)

    def errors(at: Any) -> tuple[Any, Any]:
        qp = np.sum(q * np.expand_dims(at, -2), axis=-1)
        return qp, np.sum(at * qp, axis=-1, keepdims=True)

    def wrong(carry: Any) -> Any:
        qp, pqp = errors(carry)
        return np.max(np.abs(qp - pqp), axis=-1, keepdims=True) >= 0.005 / classes

    def turn(carry: Any, t: Any) -> Any:
        at, qp, pqp = carry
        own = F.astype(np.arange(classes) == t, np.float64)
        row, mine, qt = (
            np.sum(q * np.expand_dims(own, -1), axis=-2),
            np.sum(diagonal * own, axis=-1, keepdims=True),
            np.sum(qp * own, axis=-1, keepdims=True),
        )
        step = (pqp - qt) / mine
        pqp = (pqp + step * (step * mine + 2 * qt)) / (1 + step) ** 2
        return ((at + step * own) / (1 + step), (qp + step * row) / (1 + step), pqp), ()

    def body(carry: Any) -> Any:
        qp, pqp = errors(carry)
        (moved, _, _), _ = scan(turn, (carry, qp, pqp), np.arange(classes))
        return np.where(wrong(carry), moved, carry)

    start = np.zeros_like(p[:, :1]) + np.full((classes,), 1 / classes)
    return while_loop(lambda carry: np.any(wrong(carry)), body, start, bound=max(100, classes))
