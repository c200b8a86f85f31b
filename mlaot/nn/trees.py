"""Decision trees as a layer, and those that scikit-learn has fitted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.numpy import astype, sigmoid, softmax
from mlaot.frontend.numpy.indexing import take
from mlaot.frontend.numpy.trees import tree_ensemble
from mlaot.frontend.trace.protocols import any_traced
from mlaot.ir.types import f32, f64
from mlaot.nn.arguments import Array
from mlaot.nn.module import Module

LINKS: dict[str, Callable[[Array], Array]] = {
    "IdentityLink": lambda raw: raw,
    "LogLink": np.exp,
    "LogitLink": sigmoid,
    "HalfLogitLink": lambda raw: sigmoid(2 * raw),
    "MultinomialLogit": softmax,
}
OUTPUTS = ("predict", "predict_proba", "decision_function", "class_index", "transform")


class TreeEnsemble(Module):
    """Decision trees over ``x`` [.., features]: ``mlaot.tree_ensemble`` with its arrays, which are no parameters."""

    def __init__(
        self,
        feature: Any,
        threshold: Any,
        true: Any,
        false: Any,
        roots: Any,
        leaves: Any,
        *,
        mode: str | Sequence[str] = "<=",
        nan_is_true: Any = False,
        aggregate: str = "sum",
        base: Any = 0.0,
    ) -> None:
        self._arrays = feature, threshold, true, false, roots, leaves
        self._options = {"mode": mode, "nan_is_true": nan_is_true, "aggregate": aggregate, "base": base}
        self._single = False
        self._missing = np.nan  # the number that stands for a missing value
        self._finish: Callable[[Array], Array] = lambda raw: raw

    def forward(self, x: Array) -> Array:
        if self._missing == self._missing:
            x = np.where(x == self._missing, np.asarray(np.nan, np.float32), x)
        if not self._single:
            return self._finish(tree_ensemble(x, *self._arrays, **self._options))
        wide = x.dtype not in (f32, np.float32)  # features are rounded to float32, results are not
        rounded = astype(x, f32)
        return self._finish(tree_ensemble(astype(rounded, f64) if wide else rounded, *self._arrays, **self._options))

    @classmethod
    def from_sklearn(cls, estimator: Any, output: str | None = None) -> TreeEnsemble:
        """The trees of a fitted scikit-learn estimator: a decision tree, a random forest, extra trees, or gradient
        boosting (also by histograms), an isolation forest, an embedding by random trees; or of one of LightGBM or
        XGBoost.

        ``output`` is the method whose result ``forward`` gives: ``predict`` (for regressors the default),
        ``predict_proba`` (for classifiers), ``decision_function`` or ``transform``; ``class_index`` is the place in
        ``classes_`` of what ``predict`` gives. As there, features are compared as float32, those of histogram gradient
        boosting and of LightGBM as what they are; results have the dtype of ``x``.
        """
        name = type(estimator).__name__
        is_classifier = hasattr(estimator, "classes_")
        output = output or ("predict_proba" if is_classifier else "predict")
        if hasattr(estimator, "_decision_path_lengths") and output in ("predict", "decision_function"):
            return _isolated(cls, estimator, output)
        if hasattr(estimator, "one_hot_encoder_") and output == "transform":
            return _embedded(cls, estimator)
        if output not in OUTPUTS or (not is_classifier and output != "predict"):
            raise MlaotError(f"from_sklearn: {name} has no output {output!r}")
        library = type(estimator).__module__.partition(".")[0]
        if library in ("lightgbm", "xgboost"):
            from mlaot.nn import boosters

            made: TreeEnsemble = getattr(boosters, f"from_{library}")(estimator, output)
            return made
        if getattr(estimator, "n_outputs_", 1) > 1 and is_classifier:
            raise MlaotError(f"from_sklearn: {name} has several outputs, each with classes of its own")
        if hasattr(estimator, "_predictors"):
            return _boosted_histograms(cls, estimator, output)
        fitted = getattr(estimator, "estimators_", None)
        if isinstance(fitted, np.ndarray) and hasattr(estimator, "init_"):
            return _boosted(cls, estimator, output)
        trees = [estimator] if hasattr(estimator, "tree_") else list(fitted) if fitted is not None else []
        is_other = hasattr(estimator, "estimator_weights_") or hasattr(estimator, "estimators_features_")
        if is_other or not trees or not all(hasattr(tree, "tree_") for tree in trees):
            raise MlaotError(f"from_sklearn: {name} is not a fitted ensemble of decision trees that is known here")
        return _averaged(cls, estimator, trees, output)


def _averaged(cls: type[TreeEnsemble], estimator: Any, trees: list[Any], output: str) -> TreeEnsemble:
    """Random forests, extra trees and single trees: the mean of values or of class frequencies."""
    if output == "decision_function":
        raise MlaotError(f"from_sklearn: {type(estimator).__name__} has no output 'decision_function'")
    parts = []
    for tree in trees:
        value = tree.tree_.value  # [nodes, outputs, 1] or [nodes, 1, classes]
        if hasattr(estimator, "classes_"):
            value = value[:, 0] / value[:, 0].sum(axis=1, keepdims=True)
        else:
            value = value[:, 0, 0] if value.shape[1] == 1 else value[:, :, 0]
        parts.append(_tree(tree.tree_, value))
    made = cls(*_joined(parts), nan_is_true=_nan_is_true(parts), aggregate="mean" if len(trees) > 1 else "sum")
    made._single = True
    if hasattr(estimator, "classes_") and output != "predict_proba":
        label = labels(estimator, output)
        made._finish = lambda proba: label(np.argmax(proba, axis=-1))
    return made


def _average_path(samples: int) -> float:
    """The mean depth of a leaf in a tree that isolates each of some samples."""
    return 2 * (np.log(samples - 1) + np.euler_gamma) - 2 * (samples - 1) / samples if samples > 2 else samples - 1.0


def _isolated(cls: type[TreeEnsemble], estimator: Any, output: str) -> TreeEnsemble:
    """Isolation forests: how deep a row gets on average, and would get in the rows of a leaf."""
    if estimator._max_samples < 2:
        raise MlaotError("from_sklearn: an IsolationForest of trees of one sample isolates nothing")
    parts, lengths = [], zip(estimator._decision_path_lengths, estimator._average_path_length_per_tree, strict=True)
    for tree, used, (depth, rest) in zip(estimator.estimators_, estimator.estimators_features_, lengths, strict=True):
        feature, *others = _tree(tree.tree_, np.asarray(depth + rest - 1.0))
        parts.append((np.asarray(used)[feature], *others))
    made = cls(*_joined(parts), nan_is_true=_nan_is_true(parts), aggregate="mean")
    made._single = True
    scale = np.log(2) / _average_path(estimator._max_samples)

    def decision(depth: Array) -> Array:
        return -np.exp(-scale * depth) - estimator.offset_

    made._finish = decision if output == "decision_function" else lambda depth: np.where(decision(depth) < 0, -1, 1)
    return made


def _embedded(cls: type[TreeEnsemble], estimator: Any) -> TreeEnsemble:
    """Random trees that embed: a column for each leaf of each tree, of ones where it is reached and of zeros."""
    parts, columns, start = [], estimator.one_hot_encoder_.categories_, 0
    width = sum(map(len, columns))
    for tree, leaves in zip(estimator.estimators_, columns, strict=True):
        value = np.zeros((tree.tree_.node_count, width))
        value[leaves.astype(int), start + np.arange(len(leaves))] = 1
        start += len(leaves)
        parts.append(_tree(tree.tree_, value))
    made = cls(*_joined(parts), nan_is_true=_nan_is_true(parts))
    made._single = True
    return made


def _boosted(cls: type[TreeEnsemble], estimator: Any, output: str) -> TreeEnsemble:
    """Gradient boosting: a tree a stage and class, times the learning rate, added to a constant."""
    init, (_, outputs) = estimator.init_, estimator.estimators_.shape
    if init != "zero" and not type(init).__name__.startswith("Dummy"):
        raise MlaotError(
            f"from_sklearn: the estimator {type(init).__name__} that gradient boosting starts from is unknown"
        )
    base = estimator._raw_predict_init(np.zeros((1, estimator.n_features_in_), np.float32))[0]
    parts = []
    for stage in estimator.estimators_:
        for k, tree in enumerate(stage):
            value = tree.tree_.value[:, 0, 0] * estimator.learning_rate
            parts.append(_tree(tree.tree_, _of_class(value, k, outputs)))
    made = cls(*_joined(parts), base=base if outputs > 1 else base[0])  # nan is refused there
    made._single = True
    made._finish = _finish(estimator, output, ties=True)
    return made


def _boosted_histograms(cls: type[TreeEnsemble], estimator: Any, output: str) -> TreeEnsemble:
    """Gradient boosting by histograms: as above, with a side for nan at each node."""
    outputs, parts = estimator.n_trees_per_iteration_, []
    for stage in estimator._predictors:
        for k, predictor in enumerate(stage):
            nodes = predictor.nodes
            if nodes["is_categorical"].any():
                raise MlaotError("from_sklearn: splits by sets of categories are not known here; encode them one-hot")
            inner = nodes["is_leaf"] == 0
            left, right = (np.where(inner, nodes[side].astype(np.int64), -1) for side in ("left", "right"))
            nan = nodes["missing_go_to_left"].astype(bool)
            value = _of_class(nodes["value"], k, outputs)
            parts.append(_part(nodes["feature_idx"], nodes["num_threshold"], left, right, nan, value))
    base = np.ravel(estimator._baseline_prediction)
    made = cls(*_joined(parts), nan_is_true=_nan_is_true(parts), base=base if outputs > 1 else base[0])
    made._finish = _finish(estimator, output, ties=False)
    return made


def _of_class(value: Array, k: int, classes: int) -> Array:
    """Values of the class ``k`` alone."""
    if classes == 1:
        return value
    found = np.zeros((len(value), classes))
    found[:, k] = value
    return found


def _finish(estimator: Any, output: str, ties: bool) -> Callable[[Array], Array]:
    """From raw values of gradient boosting to an output; ``ties``: the raw value 0 is of the second class."""
    if output == "decision_function":
        return lambda raw: raw
    link = type(estimator._loss.link).__name__
    if link not in LINKS:
        raise MlaotError(f"from_sklearn: the link {link} of a loss is not known here")
    inverse = LINKS[link]
    if not hasattr(estimator, "classes_"):
        return inverse
    if output == "predict_proba":
        if link == "MultinomialLogit":
            return inverse
        return lambda raw: np.stack([1 - inverse(raw), inverse(raw)], axis=-1)
    label = labels(estimator, output)
    if link == "MultinomialLogit":
        return lambda raw: label(np.argmax(raw, axis=-1))
    return lambda raw: label(astype(raw >= 0 if ties else raw > 0, np.int64))


def labels(estimator: Any, output: str) -> Callable[[Array], Array]:
    """From places in ``classes_`` to what ``output`` gives."""
    if output == "class_index":
        return lambda index: index
    classes = np.asarray(estimator.classes_)
    if classes.dtype.kind not in "biuf":
        raise MlaotError(
            f"from_sklearn: 'predict' gives classes that are numbers, got {classes.dtype}; use output='class_index'"
        )
    # NumPy asks the array alone whether it is traced.
    return lambda index: take(classes, index) if any_traced(index) else classes[index]


Part = tuple[Array, Array, Array, Array, Array, int, Array]  # a tree's nodes, its root, its leaves


def _tree(tree: Any, value: Array) -> Part:
    """A tree of scikit-learn's ``Tree``, with a value for every node."""
    nan = getattr(tree, "missing_go_to_left", np.zeros(tree.node_count))
    return _part(tree.feature, tree.threshold, tree.children_left, tree.children_right, np.asarray(nan, bool), value)


def _part(feature: Array, threshold: Array, left: Array, right: Array, nan: Array, value: Array) -> Part:
    """A tree whose leaves, nodes with the child -1, are numbered apart."""
    inner = left >= 0
    number = np.where(inner, np.cumsum(inner) - 1, ~(np.cumsum(~inner) - 1))
    links = [number[side[inner]] for side in (left, right)]
    return feature[inner], threshold[inner], links[0], links[1], nan[inner], int(number[0]), value[~inner]


def _joined(parts: Sequence[Part]) -> tuple[Array, Array, Array, Array, Array, Array]:
    """One numbering of the nodes and leaves of all trees: feature, threshold, children, roots, leaves."""
    nodes = np.cumsum([0, *[len(p[0]) for p in parts]])
    leaves = np.cumsum([0, *[len(p[6]) for p in parts]])

    def moved(link: Any, i: int) -> Array:
        return np.where(np.asarray(link) >= 0, np.asarray(link) + nodes[i], np.asarray(link) - leaves[i])

    left, right = (np.concatenate([moved(p[k], i) for i, p in enumerate(parts)]) for k in (2, 3))
    roots = np.array([int(moved(p[5], i)) for i, p in enumerate(parts)])
    feature, threshold, value = (np.concatenate([p[k] for p in parts]) for k in (0, 1, 6))
    return feature.astype(np.int64), threshold, left.astype(np.int64), right.astype(np.int64), roots, value


def _nan_is_true(parts: Sequence[Part]) -> Array:
    return np.concatenate([p[4] for p in parts])
