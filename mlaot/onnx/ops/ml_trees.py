"""Ensembles of decision trees: the three operators as ``mlaot.tree_ensemble``.

What they leave open of scores and labels of two classes is as ONNX Runtime has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlaot.errors import MlaotError
from mlaot.frontend import numpy as F
from mlaot.frontend.numpy.trees import tree_ensemble
from mlaot.onnx.importer import Use
from mlaot.onnx.ops.ml import chosen, class_labels, real, result, rows, scores_of_two, transformed
from mlaot.onnx.registry import ML, operator
from mlaot.onnx.values import Array, Unsupported

MODES = {
    "BRANCH_LEQ": "<=",
    "BRANCH_LT": "<",
    "BRANCH_GTE": ">=",
    "BRANCH_GT": ">",
    "BRANCH_EQ": "==",
    "BRANCH_NEQ": "!=",
}
MEMBER = 6
AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


@dataclass
class Nodes:
    """Inner nodes of all trees; a child is the number of one, or ``~leaf``."""

    feature: Array
    threshold: Array
    mode: Array
    true: Array
    false: Array
    nan_is_true: Array
    roots: Array


def _numbers(use: Use, name: str) -> Array:
    """Numbers of an attribute, which doubles have as a tensor."""
    tensor = use.attribute(f"{name}_as_tensor")
    return np.asarray(use.attribute(name, []), np.float32) if tensor is None else np.ravel(tensor)


def _integers(use: Use, name: str, count: int | None = None) -> Array:
    found = np.asarray(use.attribute(name) or [0] * (count or 0), np.int64)
    if count is not None and len(found) != count:
        raise MlaotError(f"{name} has {len(found)} entries, expected {count}")
    return found


def _places(tree: Array, node: Array) -> dict[tuple[int, int], int]:
    return {key: i for i, key in enumerate(zip(tree.tolist(), node.tolist(), strict=True))}


def _trees(use: Use) -> tuple[Nodes, dict[tuple[int, int], int]]:
    """The nodes of the older operators, whose leaves are nodes too; leaves are numbered as the nodes are."""
    tree = _integers(use, "nodes_treeids")
    count = len(tree)
    if not count:
        raise MlaotError("it has no trees")
    node, feature, true, false = (
        _integers(use, f"nodes_{what}ids", count) for what in ("node", "feature", "truenode", "falsenode")
    )
    modes = np.array([mode.decode() for mode in use.attribute("nodes_modes", [])])
    values = _numbers(use, "nodes_values").astype(np.float64)
    if len(modes) != count or len(values) != count:
        raise MlaotError(f"{count} nodes have {len(modes)} modes and {len(values)} values")
    unknown = sorted({str(m) for m in np.unique(modes)} - {*MODES, "LEAF"})
    if unknown:
        raise Unsupported(f"nodes of the mode {unknown[0]} cannot be compiled")
    places = _places(tree, node)
    inner = modes != "LEAF"
    number = np.where(inner, np.cumsum(inner) - 1, ~np.arange(count))

    def child(ids: Array) -> Array:
        keys = zip(tree[inner].tolist(), ids[inner].tolist(), strict=True)
        try:
            return number[np.array([places[key] for key in keys], np.int64)]
        except KeyError as error:
            raise MlaotError(f"tree {error.args[0][0]} has no node {error.args[0][1]}") from None

    _, roots = np.unique(tree, return_index=True)  # the first node of each
    found = Nodes(
        feature[inner],
        values[inner],
        np.array([MODES[mode] for mode in modes[inner]], "U2"),
        child(true),
        child(false),
        _integers(use, "nodes_missing_value_tracks_true", count)[inner] > 0,
        number[roots],
    )
    return found, places


def _leaves(use: Use, what: str, places: dict[tuple[int, int], int], targets: int, fill: float) -> Array:
    """What each node, as a leaf, gives to each target."""
    target, tree, node = (_integers(use, f"{what}_{kind}ids") for kind in ("", "tree", "node"))
    weights = _numbers(use, f"{what}_weights")
    if len({len(a) for a in (target, tree, node, weights)}) > 1:
        raise MlaotError(
            f"the attributes {what}_ids, {what}_treeids, {what}_nodeids and {what}_weights differ in length"
        )
    if len(target) and not 0 <= target.min() <= target.max() < targets:
        raise MlaotError(f"{what}_ids are {target.min()}..{target.max()}, of {targets}")
    at = np.array([places.get(key, -1) for key in zip(tree.tolist(), node.tolist(), strict=True)], np.int64)
    if len(at) and at.min() < 0:
        raise MlaotError(f"{what}_nodeids name a node that is none of the tree's")
    found = np.full((len(places), targets), fill, np.float64)
    if fill == 0:
        np.add.at(found, (at, target), weights)
    elif fill > 0:
        np.minimum.at(found, (at, target), weights)
    else:
        np.maximum.at(found, (at, target), weights)
    return found


def _neutral(aggregate: str) -> float:
    """What a tree gives to a target that none of its leaves names."""
    if aggregate not in AGGREGATES:
        raise MlaotError(f"there is no aggregate_function {aggregate!r}")
    most = float(np.finfo(np.float32).max)
    return {"MIN": most, "MAX": -most}.get(aggregate, 0.0)


def _evaluated(x: Any, nodes: Nodes, leaves: Array, aggregate: str = "SUM") -> Any:
    """[N, targets]."""
    names = {"SUM": "sum", "AVERAGE": "mean", "MIN": "min", "MAX": "max"}
    used = _used(nodes, len(leaves))
    number = np.cumsum(used) - 1  # of the leaves that a tree has

    def renumbered(child: Array) -> Array:
        return np.where(child >= 0, child, ~number[np.where(child >= 0, 0, ~child)])

    table = leaves[used]
    modes = np.unique(nodes.mode)
    found = tree_ensemble(
        x,
        nodes.feature,
        nodes.threshold,
        renumbered(nodes.true),
        renumbered(nodes.false),
        renumbered(nodes.roots),
        table[:, 0] if table.shape[1] == 1 else table,
        mode=str(modes[0]) if len(modes) == 1 else nodes.mode.tolist(),
        nan_is_true=nodes.nan_is_true,
        aggregate=names[aggregate],
    )
    return np.expand_dims(found, -1) if table.shape[1] == 1 else found


def _used(nodes: Nodes, leaves: int) -> Array:
    links = np.concatenate([nodes.true, nodes.false, nodes.roots])
    found = np.zeros(leaves, bool)
    found[~links[links < 0]] = True
    return found


def _with_base(use: Use, scores: Any, targets: int) -> Any:
    base = _numbers(use, "base_values")
    if not base.size:
        return scores
    if base.size not in (1, targets):
        raise MlaotError(f"{base.size} base_values for {targets} targets")
    return scores + F.astype(base, scores.dtype)


@operator("TreeEnsembleRegressor", domain=ML)
def tree_ensemble_regressor(use: Use, x: Any) -> Any:
    x, targets, aggregate = rows(real(x)), use.attribute("n_targets", 1), use.string("aggregate_function", "SUM")
    nodes, places = _trees(use)
    leaves = _leaves(use, "target", places, targets, _neutral(aggregate))
    y = _with_base(use, _evaluated(x, nodes, leaves, aggregate), targets)
    return result(use, transformed(y, use.string("post_transform", "NONE")))


@operator("TreeEnsembleClassifier", domain=ML)
def tree_ensemble_classifier(use: Use, x: Any) -> Any:
    x, labels, kind = rows(real(x)), class_labels(use), use.string("post_transform", "NONE")
    if len(labels) < 2:
        raise Unsupported(f"a classifier of {len(labels)} labels; give it two or more")
    nodes, places = _trees(use)
    leaves = _leaves(use, "class", places, len(labels), 0.0)
    ids = np.unique(_integers(use, "class_ids"))
    if len(labels) > 2 or len(ids) != 1:
        scores = _with_base(use, _evaluated(x, nodes, leaves), len(labels))
        return chosen(labels, np.argmax(scores, axis=-1)), result(use, transformed(scores, kind))
    base = _numbers(use, "base_values")
    score = _evaluated(x, nodes, leaves[:, ids])
    score = score + F.astype(base[min(int(ids[0]), base.size - 1)], score.dtype) if base.size else score
    all_positive = bool((_numbers(use, "class_weights") >= 0).all())
    label = chosen(labels, F.astype(score[:, 0] > (0.5 if all_positive else 0.0), np.int64))
    if ids[0] == 1:
        return label, result(use, transformed(np.concatenate([np.zeros_like(score), score], axis=-1), kind))
    if kind == "NONE" and not all_positive:
        return label, result(use, np.concatenate([-score, score], axis=-1))
    return label, result(use, scores_of_two(score, kind))


@operator("TreeEnsemble", domain=ML, since=5)
def tree_ensemble_5(use: Use, x: Any) -> Any:
    x = rows(x)
    aggregate, kind = use.attribute("aggregate_function", 1), use.attribute("post_transform", 0)
    if aggregate not in range(len(AGGREGATES)) or kind not in range(len(TRANSFORMS)):
        raise MlaotError(f"there is no aggregate_function {aggregate}, or no post_transform {kind}")
    weights, target = np.ravel(use.attribute("leaf_weights")), _integers(use, "leaf_targetids", None)
    if len(weights) != len(target):
        raise MlaotError(f"{len(weights)} leaf_weights, {len(target)} leaf_targetids")
    targets = use.attribute("n_targets", int(target.max(initial=0)) + 1)
    if len(target) and not 0 <= target.min() <= target.max() < targets:
        raise MlaotError(f"leaf_targetids are {target.min()}..{target.max()}, of {targets}")
    leaves = np.full((len(target), targets), _neutral(AGGREGATES[aggregate]))
    leaves[np.arange(len(target)), target] = weights
    y = _evaluated(x, _trees_5(use), leaves, AGGREGATES[aggregate])
    return F.astype(transformed(y, TRANSFORMS[kind]), x.dtype)


def _trees_5(use: Use) -> Nodes:
    modes = np.ravel(use.attribute("nodes_modes")).astype(np.int64)
    count = len(modes)
    feature, missing = (_integers(use, f"nodes_{w}", count) for w in ("featureids", "missing_value_tracks_true"))
    sides = []
    for side in ("true", "false"):
        ids, is_leaf = _integers(use, f"nodes_{side}nodeids", count), _integers(use, f"nodes_{side}leafs", count)
        sides.append(np.where(is_leaf > 0, ~ids, ids))
    true, false = sides
    if count and not 0 <= modes.min() <= modes.max() <= MEMBER:
        raise Unsupported(f"nodes of the mode {modes.max()} cannot be compiled")
    splits = np.ravel(use.attribute("nodes_splits")).astype(np.float64)
    if len(splits) != count:
        raise MlaotError(f"nodes_splits has {len(splits)} entries, expected {count}")
    names = np.array([*MODES.values(), "=="], "U2")
    found = Nodes(feature, splits, names[modes], true, false, missing > 0, _integers(use, "tree_roots"))
    members = np.flatnonzero(modes == MEMBER)
    return _with_members(found, members, _sets(use, len(members))) if len(members) else found


def _sets(use: Use, count: int) -> list[Array]:
    """The values of each set; nan ends one."""
    values = np.ravel(use.attribute("membership_values", np.zeros(0))).astype(np.float64)
    ends = np.flatnonzero(np.isnan(values))
    if len(ends) != count:
        raise MlaotError(f"membership_values holds {len(ends)} sets, for {count} nodes")
    return [np.unique(part[~np.isnan(part)]) for part in np.split(values, ends + 1)[:count]]


def _with_members(nodes: Nodes, members: Sequence[int] | Array, sets: Sequence[Array]) -> Nodes:
    """A question for a set as a chain of questions for its elements."""
    feature, threshold, mode, true, false, missing = (
        a.tolist() for a in (nodes.feature, nodes.threshold, nodes.mode, nodes.true, nodes.false, nodes.nan_is_true)
    )
    for node, values in zip(members, sets, strict=True):
        at = int(node)
        if not len(values):
            mode[at], threshold[at] = "<", -np.inf  # nothing is a member
            continue
        last = false[at]
        threshold[at] = values[0]
        for value in values[1:]:
            false[at] = len(feature)
            at = len(feature)
            feature.append(feature[node])
            threshold.append(value)
            mode.append("==")
            true.append(true[node])
            false.append(last)
            missing.append(missing[node])
    return Nodes(
        np.array(feature, np.int64),
        np.array(threshold, np.float64),
        np.array(mode, "U2"),
        np.array(true, np.int64),
        np.array(false, np.int64),
        np.array(missing, bool),
        nodes.roots,
    )
