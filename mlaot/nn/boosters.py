"""The trees that LightGBM and XGBoost have fitted, from what these libraries themselves write of them.

A node is nested: ``(feature, mode, threshold, true, false, nan_is_true)``, a leaf a number. Nodes that are met twice,
as behind a question for a set of categories, stay one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend.numpy import sigmoid, softmax
from mlaot.nn.arguments import Array
from mlaot.nn.trees import TreeEnsemble, labels

Node = Any  # a tuple as above, or a float
Link = Callable[[Array], Array]
ZERO = float(np.float32(1e-35))  # LightGBM's: what is smaller is zero


def from_lightgbm(estimator: Any, output: str) -> TreeEnsemble:
    """The trees of ``LGBMClassifier``, ``LGBMRegressor`` or ``LGBMRanker``, which compare and add in float64."""
    model = estimator.booster_.dump_model()
    kind, *options = str(model.get("objective") or "none").split()
    given = dict(option.split(":") for option in options if ":" in option)
    slope = float(given.get("sigmoid", 1.0))
    trees = [_lightgbm_node(tree["tree_structure"]) for tree in model["tree_info"]]
    groups = model["num_tree_per_iteration"]
    links: dict[str, Link] = {
        "binary": lambda raw: sigmoid(slope * raw),
        "multiclass": softmax,
        "multiclassova": lambda raw: sigmoid(slope * raw),
        "cross_entropy": sigmoid,
        "cross_entropy_lambda": lambda raw: np.log1p(np.exp(raw)),
        **dict.fromkeys(("poisson", "gamma", "tweedie"), np.exp),
    }
    link = links.get(kind, _itself)
    if "sqrt" in options:
        link = lambda raw: np.sign(raw) * raw * raw  # noqa: E731
    scale = groups / len(trees) if model.get("average_output") else 1.0
    made = _ensemble(trees, [i % groups for i in range(len(trees))], groups, np.full(len(trees), scale))
    made._finish = _finish(estimator, link, output)
    return made


def _lightgbm_node(node: dict[str, Any]) -> Node:
    if "leaf_value" in node:
        if "leaf_coeff" in node:
            raise MlaotError("from_sklearn: trees with linear models in their leaves are not known here")
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


def from_xgboost(estimator: Any, output: str) -> TreeEnsemble:
    """The trees of ``XGBClassifier``, ``XGBRegressor`` or ``XGBRanker``, which compare float32 features."""
    booster = estimator.get_booster()
    best = booster.attr("best_iteration")
    learner = json.loads((booster if best is None else booster[: int(best) + 1]).save_raw("json"))["learner"]
    found, weights = learner["gradient_booster"], None
    if found["name"] == "dart":
        found, weights = found["gbtree"], found["weight_drop"]
    if "model" not in found or "trees" not in found["model"]:
        raise MlaotError(f"from_sklearn: XGBoost's booster {found['name']!r} has no trees")
    trees, groups = [_xgboost_node(tree) for tree in found["model"]["trees"]], found["model"]["tree_info"]
    kind, outputs = learner["objective"]["name"], max(groups, default=0) + 1
    positive = ("count:poisson", "reg:gamma", "reg:tweedie", "survival:cox", "survival:aft")
    links: dict[str, Link] = {
        **dict.fromkeys(("binary:logistic", "reg:logistic"), sigmoid),
        **dict.fromkeys(("multi:softprob", "multi:softmax"), softmax),
        **dict.fromkeys(positive, np.exp),
        "binary:hinge": lambda raw: np.where(raw > 0, 1.0, 0.0),
    }
    base = np.array(json.loads(learner["learner_model_param"]["base_score"]), np.float64)
    if kind in ("binary:logistic", "reg:logistic"):
        base = np.log(base / (1 - base))
    elif kind in positive:
        base = np.log(base)
    made = _ensemble(trees, groups, outputs, np.ones(len(trees)) if weights is None else np.array(weights))
    made._options["base"] = np.broadcast_to(base.ravel(), (outputs,)) if outputs > 1 else float(base.ravel()[0])
    made._single = True
    made._missing = float(estimator.missing)
    made._finish = _finish(estimator, links.get(kind, _itself), output)
    return made


def _xgboost_node(tree: dict[str, Any]) -> Node:
    if int(tree["tree_param"].get("size_leaf_vector", 0)) > 1:
        raise MlaotError("from_sklearn: XGBoost's trees of several targets are not known here; fit one output a tree")
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
    """Whether the whole part of a feature is one of ``members``; ``truncated``: -0.5 is 0."""
    ordered = sorted(members)
    gaps = [i for i, (a, b) in enumerate(pairwise(ordered), 1) if b > a + 1]
    found = outside
    for begin, end in reversed([*zip([0, *gaps], [*gaps, len(ordered)], strict=True)]):
        first, last = ordered[begin], ordered[end - 1]
        mode, least = (">", -1.0) if truncated and first == 0 else (">=", float(first))
        within = (feature, mode, least, inside, outside, nan_is_member)
        found = (feature, "<", float(last + 1), within, found, nan_is_member)
    return found


def _ensemble(trees: Sequence[Node], groups: Sequence[int], outputs: int, weights: Array) -> TreeEnsemble:
    """The sum of trees, each times its weight and for its own output."""
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
    return TreeEnsemble(
        np.array(feature, np.int64),
        np.array(threshold, np.float64),
        np.array(true, np.int64),
        np.array(false, np.int64),
        np.array(roots, np.int64),
        np.array(leaves, np.float64),
        mode=modes,
        nan_is_true=np.array(nan, bool),
    )


def _itself(raw: Array) -> Array:
    return raw


def _finish(estimator: Any, link: Link, output: str) -> Link:
    """From sums of leaves to an output."""
    if output == "decision_function":
        return _itself
    if not hasattr(estimator, "classes_"):
        return link

    def probabilities(raw: Array) -> Array:
        found = link(raw)
        return found if len(estimator.classes_) > 2 else np.stack([1 - found, found], axis=-1)

    if output == "predict_proba":
        return probabilities
    label = labels(estimator, output)
    return lambda raw: label(np.argmax(probabilities(raw), axis=-1))
