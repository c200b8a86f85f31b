"""The trees that scikit-learn has fitted, as the arrays of ``mlaot.tree_ensemble``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.numpy import astype, sigmoid, softmax
from mlaot.frontend.numpy.indexing import take
from mlaot.frontend.trace.protocols import any_traced
from mlaot.nn.arguments import Array

Finish = Callable[[Array], Array]  # from aggregated leaves to an output
OUTPUTS = ("predict", "predict_proba", "decision_function", "class_index", "transform")


def identity(raw: Array) -> Array:
    """Return the aggregated leaves as they are."""
    return raw


LINKS: dict[str, Finish] = {
    "IdentityLink": identity,
    "LogLink": np.exp,
    "LogitLink": sigmoid,
    "HalfLogitLink": lambda raw: sigmoid(2 * raw),
    "MultinomialLogit": softmax,
}


@dataclass(frozen=True)
class FittedTrees:
    """The arguments of ``tree_ensemble`` besides ``x``, and the steps before and after it.

    With ``is_single``, features are rounded to float32 and results are not. ``missing`` is the number that stands for
    nan.
    """

    arrays: tuple[Any, ...]
    options: dict[str, Any]
    finish: Finish = identity
    is_single: bool = False
    missing: float = math.nan


class Tree(NamedTuple):
    """One tree. The root and each child are the number of a node, or ``~leaf``, the complement of a leaf's number."""

    feature: Array
    threshold: Array
    left: Array
    right: Array
    nan_left: Array
    root: int
    leaves: Array


def from_sklearn(estimator: Any, output: str) -> FittedTrees:
    """Read the trees of an estimator of scikit-learn."""
    name = type(estimator).__name__
    if hasattr(estimator, "_decision_path_lengths") and output in ("predict", "decision_function"):
        return _isolation_forest(estimator, output)
    if hasattr(estimator, "one_hot_encoder_") and output == "transform":
        return _embedding(estimator)
    check_output(estimator, output)
    if getattr(estimator, "n_outputs_", 1) > 1 and hasattr(estimator, "classes_") and output != "predict_proba":
        raise MlaotError(f"from_sklearn: {name} has several outputs, each with classes of its own")
    if hasattr(estimator, "_predictors"):
        return _histogram_boosting(estimator, output)
    fitted = getattr(estimator, "estimators_", None)
    if isinstance(fitted, np.ndarray) and hasattr(estimator, "init_"):
        return _gradient_boosting(estimator, output)
    trees = [estimator] if hasattr(estimator, "tree_") else list(fitted) if fitted is not None else []
    is_weighted = hasattr(estimator, "estimator_weights_") or hasattr(estimator, "estimators_features_")
    if is_weighted or not trees or not all(hasattr(tree, "tree_") for tree in trees):
        raise MlaotError(f"from_sklearn: {name} is not a fitted ensemble of decision trees that mlaot supports")
    return _forest(estimator, trees, output)


def check_output(estimator: Any, output: str) -> None:
    """Raise ``MlaotError`` for an output that a classifier or a regressor does not have."""
    if output not in OUTPUTS or (not hasattr(estimator, "classes_") and output != "predict"):
        raise MlaotError(f"from_sklearn: {type(estimator).__name__} has no output {output!r}")


def _forest(estimator: Any, estimators: list[Any], output: str) -> FittedTrees:
    """Read random forests, extra trees and single trees: the mean of values or of class frequencies."""
    if output == "decision_function":
        raise MlaotError(f"from_sklearn: {type(estimator).__name__} has no output 'decision_function'")
    trees: list[Tree] = []
    finish: Finish = identity
    for fitted in estimators:
        value = fitted.tree_.value  # [nodes, outputs, 1] or [nodes, 1, classes]
        if hasattr(estimator, "classes_"):  # of several outputs one after another
            classes = estimator.classes_ if isinstance(estimator.classes_, list) else [estimator.classes_]
            each = [value[:, i, : len(own)] for i, own in enumerate(classes)]
            value = np.concatenate([one / one.sum(axis=1, keepdims=True) for one in each], axis=1)
        else:
            value = value[:, 0, 0] if value.shape[1] == 1 else value[:, :, 0]
        trees.append(_tree(fitted.tree_, value))
    if hasattr(estimator, "classes_") and output != "predict_proba":
        label = labels(estimator, output)
        finish = lambda proba: label(np.argmax(proba, axis=-1))  # noqa: E731
    return _joined(trees, finish, is_single=True, aggregate="mean" if len(trees) > 1 else "sum")


def _average_path(samples: int) -> float:
    """Return the mean depth of a leaf in a tree that isolates each of ``samples`` samples (Liu et al., 2008)."""
    return 2 * (np.log(samples - 1) + np.euler_gamma) - 2 * (samples - 1) / samples if samples > 2 else samples - 1.0


def _isolation_forest(estimator: Any, output: str) -> FittedTrees:
    """Read isolation forests (Liu et al., 2008): a row's mean depth plus the average depth expected within its leaf."""
    if estimator._max_samples < 2:
        raise MlaotError("from_sklearn: an IsolationForest of trees of one sample isolates nothing")
    trees, lengths = [], zip(estimator._decision_path_lengths, estimator._average_path_length_per_tree, strict=True)
    for fitted, columns, (depth, rest) in zip(
        estimator.estimators_, estimator.estimators_features_, lengths, strict=True
    ):
        tree = _tree(fitted.tree_, np.asarray(depth + rest - 1.0))
        trees.append(tree._replace(feature=np.asarray(columns)[tree.feature]))
    scale = np.log(2) / _average_path(estimator._max_samples)

    def decision(depth: Array) -> Array:
        return -np.exp(-scale * depth) - estimator.offset_

    finish = decision if output == "decision_function" else lambda depth: np.where(decision(depth) < 0, -1, 1)
    return _joined(trees, finish, is_single=True, aggregate="mean")


def _embedding(estimator: Any) -> FittedTrees:
    """Read totally random trees: a column for each leaf of each tree, 1 if the row reaches the leaf and 0 if not."""
    trees, columns, start = [], estimator.one_hot_encoder_.categories_, 0
    width = sum(map(len, columns))
    for fitted, leaves in zip(estimator.estimators_, columns, strict=True):
        value = np.zeros((fitted.tree_.node_count, width))
        value[leaves.astype(int), start + np.arange(len(leaves))] = 1
        start += len(leaves)
        trees.append(_tree(fitted.tree_, value))
    return _joined(trees, identity, is_single=True)


def _gradient_boosting(estimator: Any, output: str) -> FittedTrees:
    """Read gradient boosting: a constant plus a tree for each stage and class, times the learning rate."""
    init, (_, outputs) = estimator.init_, estimator.estimators_.shape
    if init != "zero" and not type(init).__name__.startswith("Dummy"):
        raise MlaotError(
            f"from_sklearn: the estimator {type(init).__name__} that gradient boosting starts from is unknown"
        )
    base = estimator._raw_predict_init(np.zeros((1, estimator.n_features_in_), np.float32))[0]
    trees = [
        _tree(fitted.tree_, _of_class(fitted.tree_.value[:, 0, 0] * estimator.learning_rate, k, outputs))
        for stage in estimator.estimators_
        for k, fitted in enumerate(stage)
    ]
    finish = _finish(estimator, output, ties=True)
    # scikit-learn refuses nan here, so its side does not matter.
    return _joined(trees, finish, is_single=True, nan_is_true=False, base=base if outputs > 1 else base[0])


def _histogram_boosting(estimator: Any, output: str) -> FittedTrees:
    """Read histogram gradient boosting, whose nodes each send nan to one side."""
    outputs, trees = estimator.n_trees_per_iteration_, []
    for stage in estimator._predictors:
        for k, predictor in enumerate(stage):
            nodes = predictor.nodes
            if nodes["is_categorical"].any():
                raise MlaotError("from_sklearn: splits by sets of categories are not supported; encode them one-hot")
            inner = nodes["is_leaf"] == 0
            left, right = (np.where(inner, nodes[side].astype(np.int64), -1) for side in ("left", "right"))
            nan_left = nodes["missing_go_to_left"].astype(bool)
            value = _of_class(nodes["value"], k, outputs)
            trees.append(_numbered(nodes["feature_idx"], nodes["num_threshold"], left, right, nan_left, value))
    base = np.ravel(estimator._baseline_prediction)
    finish = _finish(estimator, output, ties=False)
    return _joined(trees, finish, is_single=False, base=base if outputs > 1 else base[0])


def _of_class(value: Array, k: int, classes: int) -> Array:
    """Return the leaves' values as those of class ``k``, with zero for all other classes."""
    return value if classes == 1 else np.where(np.arange(classes) == k, np.expand_dims(value, -1), 0.0)


def _finish(estimator: Any, output: str, ties: bool) -> Finish:
    """Return the function that computes an output from the raw values; with ``ties``, 0 is in the second class."""
    if output == "decision_function":
        return identity
    link = type(estimator._loss.link).__name__
    if link not in LINKS:
        raise MlaotError(f"from_sklearn: the link {link} of a loss is not supported")
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


def labels(estimator: Any, output: str) -> Finish:
    """Return the function that maps indices into ``classes_`` to the result of ``output``."""
    if output == "class_index":
        return identity
    classes = np.asarray(estimator.classes_)
    if classes.dtype.kind not in "biuf":
        raise MlaotError(
            f"from_sklearn: 'predict' gives classes that are numbers, got {classes.dtype}; use output='class_index'"
        )
    # NumPy asks the array alone whether it is traced.
    return lambda index: take(classes, index) if any_traced(index) else classes[index]


def _tree(tree: Any, value: Array) -> Tree:
    """Read a tree of scikit-learn's ``Tree``, with a value for every node."""
    nan_left = np.asarray(getattr(tree, "missing_go_to_left", np.zeros(tree.node_count)), bool)
    return _numbered(tree.feature, tree.threshold, tree.children_left, tree.children_right, nan_left, value)


def _numbered(feature: Array, threshold: Array, left: Array, right: Array, nan_left: Array, value: Array) -> Tree:
    """Number the inner nodes from 0 and the leaves from 0; a leaf has the child -1."""
    inner = left >= 0
    number = np.where(inner, np.cumsum(inner) - 1, ~(np.cumsum(~inner) - 1))
    left, right = number[left[inner]], number[right[inner]]
    return Tree(feature[inner], threshold[inner], left, right, nan_left[inner], int(number[0]), value[~inner])


def _joined(trees: Sequence[Tree], finish: Finish, *, is_single: bool, **options: Any) -> FittedTrees:
    """Concatenate trees, and renumber their nodes and leaves consecutively."""
    first_node = np.cumsum([0, *[len(tree.feature) for tree in trees]])
    first_leaf = np.cumsum([0, *[len(tree.leaves) for tree in trees]])

    def shifted(link: Any, i: int) -> Array:
        return np.where(np.asarray(link) >= 0, np.asarray(link) + first_node[i], np.asarray(link) - first_leaf[i])

    left = np.concatenate([shifted(tree.left, i) for i, tree in enumerate(trees)]).astype(np.int64)
    right = np.concatenate([shifted(tree.right, i) for i, tree in enumerate(trees)]).astype(np.int64)
    roots = np.array([int(shifted(tree.root, i)) for i, tree in enumerate(trees)])
    feature = np.concatenate([tree.feature for tree in trees]).astype(np.int64)
    threshold = np.concatenate([tree.threshold for tree in trees])
    leaves = np.concatenate([tree.leaves for tree in trees])
    options = {"nan_is_true": np.concatenate([tree.nan_left for tree in trees]), **options}
    return FittedTrees((feature, threshold, left, right, roots, leaves), options, finish, is_single)
