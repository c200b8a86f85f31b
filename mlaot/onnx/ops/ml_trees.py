"""Ensembles of decision trees: the three operators as ``mlaot.tree_ensemble``.

Inner nodes of all trees are the rows of one table (``NODE``), whose columns are arguments of ``tree_ensemble``; a child
is the number of a row, or ``~leaf``. Where the specification leaves the scores and labels of two classes open, they are
those of ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend import numpy as F
from mlaot.frontend.numpy.trees import tree_ensemble
from mlaot.onnx.importer import Use
from mlaot.onnx.ops.ml import as_real, as_result, as_rows, class_labels, classify, scores_of_two, transform
from mlaot.onnx.registry import ML, operator
from mlaot.onnx.values import Array, Unsupported

NODE = np.dtype(
    [
        ("feature", np.int64),
        ("threshold", np.float64),
        ("mode", "U2"),
        ("true", np.int64),
        ("false", np.int64),
        ("nan_is_true", bool),
    ]
)
MODES = {
    "BRANCH_LEQ": "<=",
    "BRANCH_LT": "<",
    "BRANCH_GTE": ">=",
    "BRANCH_GT": ">",
    "BRANCH_EQ": "==",
    "BRANCH_NEQ": "!=",
}
MEMBER = 6
LARGEST = float(np.finfo(np.float32).max)
# The aggregate of tree_ensemble, the same for two numbers, and the value of a tree for a target that none of its leaves
# names.
AGGREGATES: dict[str, tuple[str, Any, float]] = {
    "AVERAGE": ("mean", np.add, 0.0),
    "SUM": ("sum", np.add, 0.0),
    "MIN": ("min", np.minimum, LARGEST),
    "MAX": ("max", np.maximum, -LARGEST),
}
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
Key = tuple[int, int]  # a tree's number and a node's in it


def _numbers(use: Use, name: str) -> Array:
    """Return the numbers of an attribute; for doubles the attribute is a tensor."""
    tensor = use.attribute(f"{name}_as_tensor")
    return np.asarray(use.attribute(name, []), np.float32) if tensor is None else np.ravel(tensor)


def _integers(use: Use, name: str, count: int | None = None) -> Array:
    numbers = np.asarray(use.attribute(name) or [0] * (count or 0), np.int64)
    if count is not None and len(numbers) != count:
        raise MlaotError(f"{name} has {len(numbers)} entries, expected {count}")
    return numbers


def _keys(tree: Array, node: Array) -> list[Key]:
    return list(zip(tree.tolist(), node.tolist(), strict=True))


def _trees(use: Use) -> tuple[Array, Array, dict[Key, int]]:
    """Read the older operators, whose leaves are nodes too. Return the inner nodes, the roots, and each node's number
    as a leaf.
    """
    tree = _integers(use, "nodes_treeids")
    count = len(tree)
    if not count:
        raise MlaotError("it has no trees")
    node, feature, true, false = (
        _integers(use, f"nodes_{what}ids", count) for what in ("node", "feature", "truenode", "falsenode")
    )
    modes = np.array(use.attribute("nodes_modes", []))
    values = _numbers(use, "nodes_values")
    if len(modes) != count or len(values) != count:
        raise MlaotError(f"{count} nodes have {len(modes)} modes and {len(values)} values")
    unknown = sorted({str(m) for m in np.unique(modes)} - {*MODES, "LEAF"})
    if unknown:
        raise Unsupported(f"nodes of the mode {unknown[0]} cannot be compiled")
    places = {key: i for i, key in enumerate(_keys(tree, node))}
    inner = modes != "LEAF"
    number = np.where(inner, np.cumsum(inner) - 1, ~np.arange(count))

    def child(ids: Array) -> Array:
        try:
            return number[np.array([places[key] for key in _keys(tree[inner], ids[inner])], np.int64)]
        except KeyError as error:
            raise MlaotError(f"tree {error.args[0][0]} has no node {error.args[0][1]}") from None

    nodes = np.empty(inner.sum(), NODE)
    nodes["feature"], nodes["threshold"] = feature[inner], values[inner]
    nodes["mode"] = [MODES[mode] for mode in modes[inner]]
    nodes["true"], nodes["false"] = child(true), child(false)
    nodes["nan_is_true"] = _integers(use, "nodes_missing_value_tracks_true", count)[inner] > 0
    _, roots = np.unique(tree, return_index=True)  # the first node of each
    return nodes, number[roots], places


def _leaves(use: Use, what: str, places: dict[Key, int], targets: int, aggregate: str) -> Array:
    """Return the values that each node, as a leaf, adds to the targets."""
    target, tree, node = (_integers(use, f"{what}_{kind}ids") for kind in ("", "tree", "node"))
    weights = _numbers(use, f"{what}_weights")
    if len({len(a) for a in (target, tree, node, weights)}) > 1:
        raise MlaotError(
            f"the attributes {what}_ids, {what}_treeids, {what}_nodeids and {what}_weights differ in length"
        )
    _check_targets(f"{what}_ids", target, targets)
    at = np.array([places.get(key, -1) for key in _keys(tree, node)], np.int64)
    if len(at) and at.min() < 0:
        raise MlaotError(f"{what}_nodeids name a node that the tree does not have")
    _, combine, neutral = AGGREGATES[aggregate]
    leaves = np.full((len(places), targets), neutral, np.float64)
    combine.at(leaves, (at, target), weights)
    return leaves


def _check_targets(name: str, target: Array, targets: int) -> None:
    if len(target) and not 0 <= target.min() <= target.max() < targets:
        raise MlaotError(f"{name} are {target.min()}..{target.max()}, of {targets}")


def _evaluate(x: Any, nodes: Array, roots: Array, leaves: Array, aggregate: str = "SUM") -> Any:
    """Return the sums of the trees, [N, targets]; leaves that belong to no tree are left out."""
    links = np.concatenate([nodes["true"], nodes["false"], roots])
    used = np.unique(~links[links < 0])

    def renumber(link: Array) -> Array:
        return np.where(link >= 0, link, ~np.searchsorted(used, ~link))

    table = leaves[used]
    y = tree_ensemble(
        x,
        nodes["feature"],
        nodes["threshold"],
        renumber(nodes["true"]),
        renumber(nodes["false"]),
        renumber(roots),
        table[:, 0] if table.shape[1] == 1 else table,
        mode=nodes["mode"].tolist(),
        nan_is_true=nodes["nan_is_true"],
        aggregate=AGGREGATES[aggregate][0],
    )
    return np.expand_dims(y, -1) if table.shape[1] == 1 else y


def _with_base(use: Use, scores: Any, targets: int) -> Any:
    base = _numbers(use, "base_values")
    if not base.size:
        return scores
    if base.size not in (1, targets):
        raise MlaotError(f"{base.size} base_values for {targets} targets")
    return scores + F.astype(base, scores.dtype)


@operator("TreeEnsembleRegressor", domain=ML)
def tree_ensemble_regressor(
    use: Use, x: Any, *, n_targets: int = 1, aggregate_function: str = "SUM", post_transform: str = "NONE"
) -> Any:
    x = as_rows(as_real(x))
    nodes, roots, places = _trees(use)
    if aggregate_function not in AGGREGATES:
        raise MlaotError(f"there is no aggregate_function {aggregate_function!r}")
    leaves = _leaves(use, "target", places, n_targets, aggregate_function)
    y = _with_base(use, _evaluate(x, nodes, roots, leaves, aggregate_function), n_targets)
    return as_result(use, transform(y, post_transform))


@operator("TreeEnsembleClassifier", domain=ML)
def tree_ensemble_classifier(use: Use, x: Any, *, post_transform: str = "NONE") -> Any:
    x, labels = as_rows(as_real(x)), class_labels(use)
    if len(labels) < 2:
        raise Unsupported(f"a classifier of {len(labels)} labels; give it two or more")
    nodes, roots, places = _trees(use)
    leaves = _leaves(use, "class", places, len(labels), "SUM")
    ids = np.unique(_integers(use, "class_ids"))
    if len(labels) > 2 or len(ids) != 1:
        scores = _with_base(use, _evaluate(x, nodes, roots, leaves), len(labels))
        return classify(use, labels, np.argmax(scores, axis=-1), scores, post_transform)
    base = _numbers(use, "base_values")
    score = _evaluate(x, nodes, roots, leaves[:, ids])
    score = score + F.astype(base[min(int(ids[0]), base.size - 1)], score.dtype) if base.size else score
    all_positive = bool((_numbers(use, "class_weights") >= 0).all())
    index = F.astype(score[:, 0] > (0.5 if all_positive else 0.0), np.int64)
    if ids[0] == 1:
        scores = np.concatenate([np.zeros_like(score), score], axis=-1)
    elif post_transform == "NONE" and not all_positive:
        scores = np.concatenate([-score, score], axis=-1)
    else:
        scores = scores_of_two(score, post_transform)
    return classify(use, labels, index, scores, post_transform)


@operator("TreeEnsemble", domain=ML, since=5)
def tree_ensemble_5(
    use: Use, x: Any, *, aggregate_function: int = 1, post_transform: int = 0, leaf_weights: Any = None
) -> Any:
    x = as_rows(x)
    if aggregate_function not in range(len(AGGREGATES)) or post_transform not in range(len(TRANSFORMS)):
        raise MlaotError(f"there is no aggregate_function {aggregate_function}, or no post_transform {post_transform}")
    aggregate = list(AGGREGATES)[aggregate_function]
    weights, target = np.ravel(leaf_weights), _integers(use, "leaf_targetids")
    if len(weights) != len(target):
        raise MlaotError(f"{len(weights)} leaf_weights, {len(target)} leaf_targetids")
    targets = use.attribute("n_targets", int(target.max(initial=0)) + 1)
    _check_targets("leaf_targetids", target, targets)
    leaves = np.full((len(target), targets), AGGREGATES[aggregate][2])
    leaves[np.arange(len(target)), target] = weights
    y = _evaluate(x, _nodes_5(use), _integers(use, "tree_roots"), leaves, aggregate)
    return F.astype(transform(y, TRANSFORMS[post_transform]), x.dtype)


def _nodes_5(use: Use) -> Array:
    modes = np.ravel(use.attribute("nodes_modes")).astype(np.int64)
    count = len(modes)
    nodes = np.empty(count, NODE)
    nodes["feature"] = _integers(use, "nodes_featureids", count)
    nodes["nan_is_true"] = _integers(use, "nodes_missing_value_tracks_true", count) > 0
    for side in ("true", "false"):
        ids, is_leaf = _integers(use, f"nodes_{side}nodeids", count), _integers(use, f"nodes_{side}leafs", count)
        nodes[side] = np.where(is_leaf > 0, ~ids, ids)
    if count and not 0 <= modes.min() <= modes.max() <= MEMBER:
        raise Unsupported(f"nodes of the mode {modes.max()} cannot be compiled")
    splits = np.ravel(use.attribute("nodes_splits"))
    if len(splits) != count:
        raise MlaotError(f"nodes_splits has {len(splits)} entries, expected {count}")
    nodes["threshold"], nodes["mode"] = splits, np.array([*MODES.values(), "=="])[modes]
    members = np.flatnonzero(modes == MEMBER)
    return _with_members(nodes, members, _sets(use, len(members))) if len(members) else nodes


def _sets(use: Use, count: int) -> list[Array]:
    """Return the values of each set; a nan ends a set."""
    values = np.ravel(use.attribute("membership_values", np.zeros(0))).astype(np.float64)
    ends = np.flatnonzero(np.isnan(values))
    if len(ends) != count:
        raise MlaotError(f"membership_values holds {len(ends)} sets, for {count} nodes")
    return [np.unique(part[~np.isnan(part)]) for part in np.split(values, ends + 1)[:count]]


def _with_members(nodes: Array, members: Array, sets: Sequence[Array]) -> Array:
    """Replace each test for a set by a chain of tests for its elements: a failed test leads to the next one."""
    parts, count = [nodes], len(nodes)
    for node, values in zip(members, sets, strict=True):
        if not len(values):
            nodes["mode"][node], nodes["threshold"][node] = "<", -np.inf  # nothing is a member
            continue
        nodes["threshold"][node] = values[0]
        more = np.repeat(nodes[node : node + 1], len(values) - 1)
        if len(more):
            more["threshold"] = values[1:]
            more["false"][:-1] = count + 1 + np.arange(len(more) - 1)
            nodes["false"][node] = count
        parts.append(more)
        count += len(more)
    return np.concatenate(parts)
