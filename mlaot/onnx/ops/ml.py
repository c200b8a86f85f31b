"""The operators of classical machine learning: features, labels, linear models and support vector machines.

Labels that are strings are traced as their indices (``Strings``). Where the operators do not define scores and labels
of two classes, these are as in ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend import numpy as F
from mlaot.frontend.numpy.indexing import take as traced_take
from mlaot.frontend.trace.control import scan, while_loop
from mlaot.frontend.trace.protocols import any_traced
from mlaot.frontend.trace.tensor import Parameter
from mlaot.onnx.columns import make
from mlaot.onnx.importer import Use
from mlaot.onnx.registry import ML, operator, operators
from mlaot.onnx.texts import integers_of, is_plain, is_text, look_up, positions
from mlaot.onnx.values import Array, Entries, MadeStrings, Maps, Strings, Unsupported, constant_value
from mlaot.tokenizers.text_steps import TextStep

DOUBLE = ("f64", "float64")  # traced, and known
FEW = 64  # keys that are compared with one by one, all at once


def as_real(x: Any) -> Any:
    """Return ``x`` in the dtype of computation: doubles are kept, and all else becomes float32."""
    return x if str(x.dtype) in DOUBLE else F.astype(x, np.float32)


def as_float32(x: Any) -> Any:
    """Return ``x`` as float32, the dtype of most results."""
    return F.astype(x, np.float32)


def as_result(use: Use, x: Any) -> Any:
    """Return ``x`` as float32, as ONNX defines, unless the importer keeps doubles."""
    return x if use.importer.wide and str(x.dtype) in DOUBLE else as_float32(x)


def like(values: Any, x: Any) -> Array:
    """Return an attribute's numbers in the dtype of ``x``."""
    return np.asarray(values, np.float64 if str(x.dtype) in DOUBLE else np.float32)


def take(x: Any, index: Any, axis: int = 0) -> Any:
    """Return elements of an array by indices; either may be known or traced."""
    return traced_take(x, index, axis) if any_traced(x, index) else np.take(x, index, axis)


def as_rows(x: Any) -> Any:
    """Reshape a vector of features to one row."""
    return np.reshape(x, (1, -1)) if x.ndim == 1 else x


def weight(use: Use, name: str, values: Any) -> Any:
    """Return numbers of an attribute as a parameter of the model."""
    array = np.asarray(values, np.float32)
    called = f"{use.node.name or use.node.output[0]}_{name}"
    return Parameter(use.importer.new_name(called), array) if array.size > 1 else array


def class_labels(use: Use) -> list[Any]:
    """Return the labels of a classifier, integers or texts."""
    texts = use.attribute("classlabels_strings")
    if texts:
        return list(texts)
    return use.attribute("classlabels_int64s") or use.attribute("classlabels_ints") or []


def pick_labels(labels: Sequence[Any], index: Any) -> Any:
    """Return the labels that ``index`` names."""
    if labels and isinstance(labels[0], str):
        return Strings(index, np.array(labels, np.str_))
    if list(labels) == list(range(len(labels))):
        return F.astype(index, np.int64)
    return take(np.array(labels, np.int64), index)


def scores_of_two(score: Any, kind: str) -> Any:
    """Make [N, 2] of [N, 1], the score of the second class, before it is transformed."""
    return np.concatenate([1 - score if kind in ("NONE", "PROBIT") else -score, score], axis=-1)


def classify(use: Use, labels: Sequence[Any], index: Any, scores: Any, kind: str) -> tuple[Any, Any]:
    """Return the results of a classifier: the labels at ``index``, and the transformed scores."""
    return pick_labels(labels, index), as_result(use, transform(scores, kind))


def transform(scores: Any, kind: str) -> Any:
    """Return the ``post_transform`` of scores [.., classes]."""
    if kind not in TRANSFORMS:
        raise MlaotError(f"there is no post_transform {kind!r}")
    return TRANSFORMS[kind](scores)


def _softmax_zero(scores: Any) -> Any:
    """Compute a softmax that leaves zeros zero."""
    most = np.max(scores, axis=-1, keepdims=True)
    is_zero = np.abs(scores) <= 1e-7
    powers = np.where(is_zero, scores * np.exp(-most), np.exp(scores - most))
    total = np.sum(powers, axis=-1, keepdims=True)
    return np.where(total == 0, F.astype(np.full((), 0.5), scores.dtype), powers / np.where(total == 0, 1, total))


def _probit(scores: Any) -> Any:
    """Compute the quantile of the normal distribution, by Winitzki's approximation of the inverse error function."""
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
def scaler(use: Use, x: Any, *, offset: Any = (0.0,), scale: Any = (1.0,)) -> Any:
    x = as_real(x)
    return as_result(use, (x - like(offset, x)) * like(scale, x))


# The lengths of rows.
NORMS: dict[str, Callable[[Any], Any]] = {
    "MAX": lambda x: np.max(np.abs(x), axis=-1, keepdims=True),
    "L1": lambda x: np.sum(np.abs(x), axis=-1, keepdims=True),
    "L2": lambda x: np.sqrt(np.sum(x * x, axis=-1, keepdims=True)),
}


@operator("Normalizer", domain=ML)
def normalizer(use: Use, x: Any, *, norm: str = "MAX") -> Any:
    """Return ``MAX`` takes magnitudes.

    Rows of huge or tiny numbers are first scaled by a power of two, which is exact.
    """
    x = as_real(x)
    far, power = (1e100, 2.0**700) if str(x.dtype) in DOUBLE else (1e12, 2.0**100)
    largest = np.max(np.abs(x), axis=-1, keepdims=True)
    y = x * F.astype(np.where(largest < 1 / far, power, np.where(largest > far, 1 / power, 1.0)), x.dtype)
    if norm not in NORMS:
        raise MlaotError(f"there is no norm {norm!r}")
    length = NORMS[norm](y)
    return as_result(use, y / np.where(length == 0, 1, length))


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
def binarizer(x: Any, *, threshold: float = 0.0) -> Any:
    return F.astype(x > np.float32(threshold), x.dtype)


@operator("ArrayFeatureExtractor", domain=ML, labels=True)
def array_feature_extractor(x: Any, index: Any) -> Any:
    """Select columns of the last axis, also of known texts by traced indices."""
    at = np.ravel(index) if constant_value(index) is None else constant_value(index).ravel()  # type: ignore[union-attr]
    if isinstance(x, Strings):
        source = x.source and replace(x.source, at=_columns(positions(x.source, x.shape), at))
        return replace(x, index=_columns(x.index, at), source=source)
    if constant_value(x) is not None and x.dtype.kind == "U":
        if constant_value(at) is not None:
            return _columns(x, at)
        if x.size != x.shape[-1]:
            raise Unsupported("it takes a matrix of strings by indices that are computed; use integers")
        return Strings(np.reshape(at, (*x.shape[:-1], -1) if x.ndim > 1 else (1, -1)), x.ravel())
    return _columns(x, at)


def _columns(x: Any, at: Any) -> Any:
    columns = take(x, at, axis=-1)
    return np.reshape(columns, (1, -1)) if x.ndim == 1 else columns


@operator("FeatureVectorizer", domain=ML)
def feature_vectorizer(use: Use, *values: Any, inputdimensions: Any = None) -> Any:
    sizes = inputdimensions or [None] * len(values)
    parts = []
    for value, size in zip(values, sizes, strict=True):
        x = as_rows(as_result(use, value))
        if x.ndim != 2:
            raise MlaotError(f"its inputs have 1 or 2 axes, got {x.ndim}")
        if size is not None and size > x.shape[1]:
            x = np.pad(x, ((0, 0), (0, size - x.shape[1])))
        parts.append(x if size is None else x[:, :size])
    return np.concatenate(parts, axis=1)


# A list of maps of labels to probabilities: the module gives the probabilities, a column for each label.
operators({"ZipMap": Maps}, domain=ML)


@operator("DictVectorizer", domain=ML, labels=True)
def dict_vectorizer(x: Any, *, string_vocabulary: Any = (), int64_vocabulary: Any = ()) -> Any:
    if not isinstance(x, Entries):
        raise Unsupported("its map is computed; let callers pass it")
    if is_text(x.keys) != bool(string_vocabulary) or bool(string_vocabulary) == bool(int64_vocabulary):
        raise MlaotError("it needs a vocabulary of what the keys of its map are")
    places = {key: i for i, key in enumerate(string_vocabulary or int64_vocabulary)}
    index = look_up(x.keys, places, len(places)) if string_vocabulary else _places_of(x.keys, places, len(places))
    return _row(index, x.values, len(places))


@operator("CastMap", domain=ML, labels=True)
def cast_map(use: Use, x: Any, *, cast_to: str = "TO_FLOAT", map_form: str = "DENSE", max_map: int = 1) -> Any:
    if not isinstance(x, Entries) or is_text(x.keys):
        raise Unsupported("it takes a map of int64 that callers pass")
    if map_form == "SPARSE":
        row = _row(x.keys, x.values, max_map)
    else:
        row = np.expand_dims(take(x.values, np.argsort(x.keys)), 0)
    if cast_to == "TO_STRING":
        return make(use, TextStep("text", (), dtype=str(row.dtype)), row)
    return F.astype(row, np.int64 if cast_to == "TO_INT64" else np.float32)


def _row(index: Any, values: Any, size: int) -> Any:
    """Return a row of numbers at their places, without those that have no place."""
    at = np.equal(np.expand_dims(index, 1), np.arange(size))
    zero = F.astype(np.zeros((1, 1)), values.dtype)
    return F.astype(np.sum(np.where(at, np.expand_dims(values, 1), zero), axis=0, keepdims=True), values.dtype)


@operator("OneHotEncoder", domain=ML, labels=True)
def one_hot_encoder(x: Any, *, cats_int64s: Any = None, cats_strings: Any = None) -> Any:
    """Encode categories as one-hot rows.

    An unknown category gives zeros, even with ``zeros=0``, for which runtimes fail.
    """
    if is_text(x):
        texts = list(cats_strings or [])
        places = look_up(x, {text: i for i, text in enumerate(texts)}, len(texts))
        return as_float32(np.expand_dims(places, -1) == np.arange(len(texts)))
    values = np.trunc(x) if str(x.dtype).startswith("f") else x
    return as_float32(np.expand_dims(values, -1) == F.astype(np.array(cats_int64s or [], np.int64), x.dtype))


def _by_texts(x: Any, texts: Any, numbers: Array, default_int64: int, default_string: str) -> Any:
    """Return the numbers of texts, or the texts of numbers."""
    if is_text(x):
        return _look_up(x, texts, numbers, np.int64(default_int64))
    return _look_up(x, numbers, np.array(texts, np.str_), np.str_(default_string))


@operator("LabelEncoder", domain=ML, labels=True)
def label_encoder_1(
    x: Any, *, classes_strings: Any = (), default_int64: int = -1, default_string: str = "_Unused"
) -> Any:
    return _by_texts(x, classes_strings, np.arange(len(classes_strings)), default_int64, default_string)


@operator("CategoryMapper", domain=ML, labels=True)
def category_mapper(
    x: Any, *, cats_strings: Any = (), cats_int64s: Any = (), default_int64: int = -1, default_string: str = "_Unused"
) -> Any:
    return _by_texts(x, cats_strings, np.array(cats_int64s, np.int64), default_int64, default_string)


@operator("LabelEncoder", domain=ML, since=2, labels=True)
def label_encoder(use: Use, x: Any, *, default_tensor: Any = None) -> Any:
    keys, values = (_column(use, which) for which in ("keys", "values"))
    if len(keys) != len(values):
        raise MlaotError(f"{len(keys)} keys, {len(values)} values")
    name, none = {"U": ("default_string", "_Unused"), "f": ("default_float", -0.0)}.get(
        values.dtype.kind, ("default_int64", -1)
    )
    default = use.attribute(name, none) if default_tensor is None else default_tensor.ravel()[0]
    return _look_up(x, keys, values, np.asarray(default, values.dtype if values.dtype.kind != "U" else np.str_))


def _column(use: Use, which: str) -> Array:
    """Return the keys or the values of the type that the node has."""
    for kind, dtype in (("floats", np.float32), ("int64s", np.int64), ("strings", np.str_)):
        values = use.attribute(f"{which}_{kind}")
        if values:
            return np.array(values, dtype)
    return np.ravel(use.attribute(f"{which}_tensor", np.zeros(0, np.int64)))


def _look_up(x: Any, keys: Any, values: Array, default: Any) -> Any:
    """Look up the values of the keys in ``x``. Of equal keys the last one counts."""
    place = {("nan" if key != key else key): i for i, key in enumerate(np.asarray(keys).tolist())}
    table = np.concatenate([values, np.reshape(default, (1,))])
    if isinstance(x, MadeStrings) and (numbers := integers_of(x)) is not None:
        index = _places_of(numbers, {int(key): i for key, i in place.items() if is_plain(key)}, len(table) - 1)
    elif is_text(x):
        index = look_up(x, place, len(table) - 1)
        if not isinstance(x, Strings):
            return table[index]
    elif constant_value(x) is not None:
        array = np.asarray(constant_value(x))
        places = [place.get("nan" if v != v else v, -1) for v in array.ravel().tolist()]
        return table[np.array(places, np.int64).reshape(array.shape)]
    elif np.asarray(keys).dtype.kind == "U":
        raise Unsupported("it looks up strings, but its input holds numbers")
    else:
        index = _places_of(x, place, len(table) - 1)
    return Strings(index, table) if table.dtype.kind == "U" else take(table, index)


def _places_of(x: Any, place: dict[Any, int], other: int) -> Any:
    """Return the index of each element in numbers, or ``other`` if it is none of them."""
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
def linear_regressor(
    use: Use,
    x: Any,
    *,
    coefficients: Any = (),
    intercepts: Any = (0.0,),
    targets: int = 1,
    post_transform: str = "NONE",
) -> Any:
    x = as_rows(as_real(x))
    y = x @ np.transpose(F.astype(weight(use, "coefficients", _matrix(coefficients, targets)), x.dtype))
    return as_result(use, transform(y + like(intercepts, x), post_transform))


def _matrix(coefficients: Any, rows: int) -> Array:
    if rows < 1 or not len(coefficients) or len(coefficients) % rows:
        raise MlaotError(f"{len(coefficients)} coefficients for {rows} rows of them")
    return np.asarray(coefficients, np.float32).reshape(rows, -1)


@operator("LinearClassifier", domain=ML)
def linear_classifier(
    use: Use, x: Any, *, coefficients: Any = (), intercepts: Any = None, post_transform: str = "NONE"
) -> Any:
    x, labels = as_rows(as_real(x)), class_labels(use)
    matrix = _matrix(coefficients, len(coefficients) // x.shape[1])
    scores = x @ np.transpose(F.astype(weight(use, "coefficients", matrix), x.dtype)) + like(intercepts or [0.0], x)
    if len(matrix) == 1:
        if len(labels) != 2:
            raise Unsupported(f"one row of coefficients for {len(labels)} labels; give it two labels")
        index = F.astype(scores[:, 0] > 0, np.int64)
        return classify(use, labels, index, scores_of_two(scores, post_transform), post_transform)
    labels = labels or list(range(len(matrix)))
    return classify(use, labels, np.argmax(scores, axis=-1), scores, post_transform)


def _machine(use: Use, x: Any, coefficients: Array, supports: int) -> Any:
    """Multiply the kernels of each row and each support vector, or the row itself, by rows of coefficients."""
    kind = use.attribute("kernel_type", "LINEAR")
    if supports:
        table = np.asarray(use.attribute("support_vectors"), np.float32).reshape(supports, -1)
        if kind == "LINEAR":  # the sum of all support vectors, instead of the products with each
            coefficients = np.float64(coefficients) @ table
        else:
            x = _kernels(use, x, kind, table)
    return x @ np.transpose(F.astype(weight(use, "coefficients", coefficients), x.dtype))


def _kernels(use: Use, x: Any, kind: str, table: Array) -> Any:
    """Return the kernel of each row and each support vector."""
    vectors = F.astype(weight(use, "support_vectors", table), x.dtype)
    gamma, zero, degree = [*use.attribute("kernel_params", []), 0.0, 0.0, 0.0][:3]
    if kind == "RBF":  # as differences: squares of large features would cancel
        differences = np.expand_dims(x, -2) - vectors
        return np.exp(-gamma * np.sum(differences * differences, axis=-1))
    product = gamma * (x @ np.transpose(vectors)) + zero
    if kind == "SIGMOID":
        return np.tanh(product)
    if kind == "POLY":
        return np.power(product, int(degree))
    raise MlaotError(f"there is no kernel {kind!r}")


@operator("SVMRegressor", domain=ML)
def svm_regressor(
    use: Use, x: Any, *, n_supports: int = 0, rho: Any = (0.0,), one_class: bool = False, post_transform: str = "NONE"
) -> Any:
    x = as_rows(as_real(x))
    coefficients = np.float32(use.attribute("coefficients")).reshape(1, -1)
    y = _machine(use, x, coefficients, n_supports) + like(rho[:1], x)
    return as_result(use, np.where(y > 0, 1, -1) if one_class else transform(y, post_transform))


@operator("SVMClassifier", domain=ML)
def svm_classifier(
    use: Use, x: Any, *, coefficients: Any = (), vectors_per_class: Any = None, post_transform: str = "NONE"
) -> Any:
    """Classify by linear scores, or one against one by votes, with probabilities if the file has coefficients.

    The coefficients of probabilities are Platt's.
    """
    x, labels, rho = as_rows(as_real(x)), class_labels(use), use.attribute("rho") or [0.0]
    if not vectors_per_class:
        matrix = _matrix(coefficients, max(len(labels), 1))
        scores = x @ np.transpose(F.astype(matrix, x.dtype)) + like(rho[:1], x)
        return classify(use, labels or [0], np.argmax(scores, axis=-1), scores, post_transform)
    classes, supports = len(vectors_per_class), sum(vectors_per_class)
    pairs = _pairs(np.asarray(coefficients, np.float32).reshape(-1, supports), vectors_per_class)
    scores = _machine(use, x, pairs, supports) + like(rho, x)
    index = np.argmax(votes(scores, classes), axis=-1)
    if use.attribute("prob_a"):
        odds = scores * like(use.attribute("prob_a"), x) + like(use.attribute("prob_b"), x)
        scores = couple(F.sigmoid(-odds), classes)
    elif classes == 2:  # of the pair, seen from the second
        scores = np.concatenate([-scores, scores], axis=-1)
    return classify(use, labels or list(range(classes)), index, scores, post_transform)


def _pairs(coefficients: Array, counts: Sequence[int]) -> Array:
    """Return the coefficients of every pair of classes, over all support vectors."""
    ends, table = np.cumsum([0, *counts]), []
    for i in range(len(counts)):
        for j in range(i + 1, len(counts)):
            row = np.zeros(coefficients.shape[1], np.float32)
            mine, theirs = slice(ends[i], ends[i + 1]), slice(ends[j], ends[j + 1])
            row[mine], row[theirs] = coefficients[j - 1, mine], coefficients[i, theirs]
            table.append(row)
    return np.array(table)


def votes(scores: Any, classes: int) -> Any:
    """Count how many of its pairs each class wins."""
    first, second = np.triu_indices(classes, 1)
    wins, losses = (np.float32(np.arange(classes) == np.reshape(side, (-1, 1))) for side in (first, second))
    won = as_float32(scores > 0)
    return won @ wins + (1 - won) @ losses


def couple(pairwise: Any, classes: int) -> Any:
    """Compute probabilities of classes from those of pairs, by the second method of Wu, Lin and Weng (2004).

    LIBSVM uses the same method.
    """
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
        (turned, _, _), _ = scan(turn, (carry, qp, pqp), np.arange(classes))
        return np.where(wrong(carry), turned, carry)

    start = np.zeros_like(p[:, :1]) + np.full((classes,), 1 / classes)
    return while_loop(lambda carry: np.any(wrong(carry)), body, start, bound=max(100, classes))
