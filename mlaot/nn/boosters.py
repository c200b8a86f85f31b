"""The trees that LightGBM and XGBoost have fitted, read from the text form in which these libraries dump a model.

A node is a nested tuple ``(feature, mode, threshold, true, false, nan_is_true)``, and a leaf is a number. A node that
two branches lead to, as behind a test for a set of categories, stays one node.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.numpy import sigmoid, softmax, softplus
from mlaot.nn.arguments import Array
from mlaot.nn.fitted_trees import Finish, FittedTrees, check_output, identity, labels

Node = Any  # a tuple as above, or a float
ZERO = float(np.float32(1e-35))  # LightGBM's: what is smaller is zero


def from_lightgbm(estimator: Any, output: str) -> FittedTrees:
    """Read ``LGBMClassifier``, ``LGBMRegressor`` or ``LGBMRanker``, which compare and add in float64."""
    check_output(estimator, output)
    model = estimator.booster_.dump_model()
    objective, *words = str(model.get("objective") or "none").split()
    parameters = dict(word.split(":") for word in words if ":" in word)
    slope = float(parameters.get("sigmoid", 1.0))
    trees = [_lightgbm_node(tree["tree_structure"]) for tree in model["tree_info"]]
    outputs = model["num_tree_per_iteration"]
    links: dict[str, Finish] = {
        "binary": lambda raw: sigmoid(slope * raw),
        "multiclass": softmax,
        "multiclassova": lambda raw: sigmoid(slope * raw),
        "cross_entropy": sigmoid,
        "cross_entropy_lambda": softplus,
        **dict.fromkeys(("poisson", "gamma", "tweedie"), np.exp),
    }
    link = links.get(objective, identity)
    if "sqrt" in words:
        link = lambda raw: np.sign(raw) * raw * raw  # noqa: E731
    scale = outputs / len(trees) if model.get("average_output") else 1.0
    arrays, options = _flat(trees, [i % outputs for i in range(len(trees))], outputs, [scale] * len(trees))
    return FittedTrees(arrays, options, _finish(estimator, link, output))


def _lightgbm_node(node: dict[str, Any]) -> Node:
    if "leaf_value" in node:
        if "leaf_coeff" in node:
            raise MlaotError("from_sklearn: trees with linear models in their leaves are not supported")
        return float(node["leaf_value"])
    feature, kind = int(node["split_feature"]), node["missing_type"]
    left, right = (_lightgbm_node(node[f"{side}_child"]) for side in ("left", "right"))
    if node["decision_type"] == "==":
        return _member(feature, map(int, node["threshold"].split("||")), left, right, truncated=True)
    threshold, default = float(node["threshold"]), bool(node["default_left"])
    if kind == "NaN":
        return feature, "<=", threshold, left, right, default
    asked = (feature, "<=", threshold, left, right, threshold >= 0)  # nan is a zero
    if kind == "None":
        return asked
    return feature, "<", -ZERO, asked, (feature, "<=", ZERO, left if default else right, asked, True), False


def from_xgboost(estimator: Any, output: str) -> FittedTrees:
    """Read ``XGBClassifier``, ``XGBRegressor`` or ``XGBRanker``, which compare float32 features."""
    check_output(estimator, output)
    booster = estimator.get_booster()
    best = booster.attr("best_iteration")
    learner = json.loads((booster if best is None else booster[: int(best) + 1]).save_raw("json"))["learner"]
    gbtree, weights = learner["gradient_booster"], None
    if gbtree["name"] == "dart":
        gbtree, weights = gbtree["gbtree"], gbtree["weight_drop"]
    if "model" not in gbtree or "trees" not in gbtree["model"]:
        raise MlaotError(f"from_sklearn: XGBoost's booster {gbtree['name']!r} has no trees")
    trees, groups = [_xgboost_node(tree) for tree in gbtree["model"]["trees"]], gbtree["model"]["tree_info"]
    objective, outputs = learner["objective"]["name"], max(groups, default=0) + 1
    positive = ("count:poisson", "reg:gamma", "reg:tweedie", "survival:cox", "survival:aft")
    links: dict[str, Finish] = {
        **dict.fromkeys(("binary:logistic", "reg:logistic"), sigmoid),
        **dict.fromkeys(("multi:softprob", "multi:softmax"), softmax),
        **dict.fromkeys(positive, np.exp),
        "binary:hinge": lambda raw: np.where(raw > 0, 1.0, 0.0),
    }
    base = np.array(json.loads(learner["learner_model_param"]["base_score"]), np.float64)
    if objective in ("binary:logistic", "reg:logistic"):
        base = np.log(base / (1 - base))
    elif objective in positive:
        base = np.log(base)
    arrays, options = _flat(trees, groups, outputs, [1.0] * len(trees) if weights is None else weights)
    options["base"] = np.broadcast_to(base.ravel(), (outputs,)) if outputs > 1 else float(base.ravel()[0])
    finish = _finish(estimator, links.get(objective, identity), output)
    return FittedTrees(arrays, options, finish, is_single=True, missing=float(estimator.missing))


def _xgboost_node(tree: dict[str, Any]) -> Node:
    if int(tree["tree_param"].get("size_leaf_vector", 0)) > 1:
        raise MlaotError("from_sklearn: XGBoost's trees of several targets are not supported; fit one tree per output")
    starts, sizes = tree["categories_segments"], tree["categories_sizes"]
    sets = {
        node: tree["categories"][start : start + size]
        for node, start, size in zip(tree["categories_nodes"], starts, sizes, strict=True)
    }

    def node(i: int) -> Node:
        left, right = tree["left_children"][i], tree["right_children"][i]
        value, feature = float(tree["split_conditions"][i]), int(tree["split_indices"][i])
        if left < 0:
            return value
        default = bool(tree["default_left"][i])
        if i in sets:
            return _member(feature, sets[i], node(right), node(left), nan_is_member=not default)
        return feature, "<", value, node(left), node(right), default

    return node(0)


def _member(
    feature: int,
    members: Iterable[int],
    inside: Node,
    outside: Node,
    *,
    truncated: bool = False,
    nan_is_member: bool = False,
) -> Node:
    """Return nodes that test whether the integer part of a feature is in ``members``.

    ``truncated`` counts -0.5 as 0.
    """
    ordered = sorted(members)
    gaps = [i for i, (a, b) in enumerate(pairwise(ordered), 1) if b > a + 1]
    question = outside
    for begin, end in reversed([*zip([0, *gaps], [*gaps, len(ordered)], strict=True)]):
        first, last = ordered[begin], ordered[end - 1]
        mode, least = (">", -1.0) if truncated and first == 0 else (">=", float(first))
        within = (feature, mode, least, inside, outside, nan_is_member)
        question = (feature, "<", float(last + 1), within, question, nan_is_member)
    return question


def _flat(
    trees: Sequence[Node], groups: Sequence[int], outputs: int, weights: Sequence[float]
) -> tuple[tuple[Array, ...], dict[str, Any]]:
    """Return the arrays and options of ``tree_ensemble`` for trees, each with its weight and its output."""
    nodes: list[Any] = []
    leaves: list[Any] = []
    roots = []
    for tree, group, weight in zip(trees, groups, weights, strict=True):
        places: dict[int, int] = {}
        todo = [tree]
        while todo:  # a node is numbered before what is below it
            at = todo.pop()
            if id(at) in places:
                continue
            if isinstance(at, tuple):
                places[id(at)] = len(nodes)
                nodes.append([at, places])
                todo += [at[4], at[3]]
            else:
                places[id(at)] = ~len(leaves)
                leaves.append(np.where(np.arange(outputs) == group, at * weight, 0.0) if outputs > 1 else at * weight)
        roots.append(places[id(tree)])
    rows = [(f, mode, value, places[id(a)], places[id(b)], nan) for (f, mode, value, a, b, nan), places in nodes]
    feature, modes, threshold, true, false, nan = ([row[k] for row in rows] for k in range(6))
    arrays = (
        np.array(feature, np.int64),
        np.array(threshold, np.float64),
        np.array(true, np.int64),
        np.array(false, np.int64),
        np.array(roots, np.int64),
        np.array(leaves, np.float64),
    )
    return arrays, {"mode": modes, "nan_is_true": np.array(nan, bool)}


def _finish(estimator: Any, link: Finish, output: str) -> Finish:
    """Return the function that computes an output from the sums of the leaves."""
    if output == "decision_function":
        return identity
    if not hasattr(estimator, "classes_"):
        return link

    def probabilities(raw: Array) -> Array:
        linked = link(raw)
        return linked if len(estimator.classes_) > 2 else np.stack([1 - linked, linked], axis=-1)

    if output == "predict_proba":
        return probabilities
    label = labels(estimator, output)
    return lambda raw: label(np.argmax(probabilities(raw), axis=-1))
