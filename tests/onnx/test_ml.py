"""ONNX's operators of classical machine learning, compiled, against what they mean in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from mlaot.errors import MlaotError
from mlaot.generate import compile_model
from mlaot.onnx import Backend, load
from mlaot.settings.options import Options

ML = "ai.onnx.ml"
F = np.float32
RNG = np.random.default_rng(0)
X = np.concatenate([RNG.normal(size=(20, 3)), [[1e30, -1e30, 0.0], [-0.0, 1e-42, 1.0]]]).astype(F)
FLOAT, INT64, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    return helper.make_node(op, inputs.split(), outputs.split(), domain=ML, **attributes)


def run(nodes: Any, kinds: dict[str, int], *, opset: int = 3, held: dict[str, Any] | None = None, **inputs: Any) -> Any:
    """The outputs ``kinds``, of their element types, with an open number of rows."""
    nodes = nodes if isinstance(nodes, list) else [nodes]
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), ["N", *a.shape[1:]])
        for name, a in inputs.items()
    ]
    made = []
    for name, kind in kinds.items():
        made.append(helper.make_tensor_value_info(name, kind, None))
        made[-1].type.tensor_type.shape.SetInParent()
    constants = [numpy_helper.from_array(value, name) for name, value in (held or {}).items()]
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(ML, opset)]
    model = helper.make_model(
        helper.make_graph(nodes, "g", infos, made, constants), opset_imports=opsets, ir_version=10
    )
    found = Backend.prepare(model).run(list(inputs.values()))
    return found[0] if len(kinds) == 1 else found


def same(got: Any, wanted: Any, tolerance: float = 1e-6) -> None:
    wanted = np.asarray(wanted)
    assert got.shape == wanted.shape
    np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance)


# Features


@pytest.mark.parametrize("dtype", [F, np.float64, np.int32, np.int64])
def test_scaler(dtype: Any) -> None:
    x = np.array([[1, 2], [3, -4]], dtype)
    y = run(node("Scaler", "x", "y", offset=[1.0, 2.0], scale=[0.5, 0.25]), {"y": FLOAT}, x=x)
    assert y.dtype == F
    same(y, (x - [1, 2]) * [0.5, 0.25])


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_normalizer_keeps_zeros_and_does_not_overflow(norm: str) -> None:
    x = np.array([[3, -4, 0], [0, 0, 0], [1e30, -1e30, 1e30], [1e-42, 0, 0], [-1, -2, -2]], F)
    wide = x.astype(np.float64)
    order = {"MAX": np.inf, "L1": 1, "L2": 2}[norm]
    length = np.linalg.norm(wide, order, axis=1, keepdims=True)
    same(run(node("Normalizer", "x", "y", norm=norm), {"y": FLOAT}, x=x), wide / np.where(length == 0, 1, length))


def test_imputer() -> None:
    x = np.array([[np.nan, 1], [2, np.nan]], F)
    nan = {"replaced_value_float": float("nan")}
    same(run(node("Imputer", "x", "y", imputed_value_floats=[5.0, 7.0], **nan), {"y": FLOAT}, x=x), [[5, 1], [2, 7]])
    n = np.array([[-1, 2], [3, -1]])
    same(
        run(node("Imputer", "x", "y", imputed_value_int64s=[9], replaced_value_int64=-1), {"y": INT64}, x=n),
        [[9, 2], [3, 9]],
    )


def test_binarizer_takes_nan_for_no() -> None:
    x = np.array([[0.5, 0.7, np.nan]], F)
    same(run(node("Binarizer", "x", "y", threshold=0.5), {"y": FLOAT}, x=x), [[0, 1, 0]])


def test_array_feature_extractor() -> None:
    at = np.array([2, 0, 2])
    same(run(node("ArrayFeatureExtractor", "x i", "y"), {"y": FLOAT}, x=X, held={"i": at}), X[:, at])
    # of a vector, by indices that are computed
    found = run(
        node("ArrayFeatureExtractor", "t i", "y"), {"y": INT64}, i=np.array([1, 0, 1]), held={"t": np.array([7, 9])}
    )
    same(found, [[9, 7, 9]])


def test_gather_of_a_constant_by_computed_indices() -> None:
    made = helper.make_node("Gather", ["t", "i"], ["y"])
    same(run(made, {"y": INT64}, i=np.array([2, 0]), held={"t": np.array([5, 7, 9])}), [9, 5])


def test_feature_vectorizer_cuts_and_fills() -> None:
    x, n = X[:2], np.array([[1, 2], [3, 4]])
    made = node("FeatureVectorizer", "x n", "y", inputdimensions=[2, 3])
    same(run(made, {"y": FLOAT}, x=x, n=n), np.concatenate([x[:, :2], n, np.zeros((2, 1))], axis=1))


def test_one_hot_encoder() -> None:
    made = node("OneHotEncoder", "x", "y", cats_int64s=[3, 5, 1])
    same(run(made, {"y": FLOAT}, x=np.array([5, 1, 4])), [[0, 1, 0], [0, 0, 1], [0, 0, 0]])
    same(run(made, {"y": FLOAT}, x=np.array([[5.9], [-0.5]], F)), [[[0, 1, 0]], [[0, 0, 0]]])


# Labels


def test_label_encoder_of_floats_with_nan_and_repeated_keys() -> None:
    keys = {"keys_floats": [1.5, float("nan"), 1.5], "values_int64s": [1, 2, 3], "default_int64": -7}
    x = np.array([1.5, np.nan, 0], F)
    same(run(node("LabelEncoder", "x", "y", **keys), {"y": INT64}, x=x, opset=2), [3, 2, -7])


def test_label_encoder_of_many_keys() -> None:
    keys = list(range(0, 900, 3))
    made = node("LabelEncoder", "x", "y", keys_int64s=keys, values_floats=[k / 2 for k in keys])
    x = np.array([0, 1, 897, 898, 900, -3, 300])
    same(run(made, {"y": FLOAT}, x=x, opset=2), [0, 0, 448.5, 0, 0, 0, 150])


def test_label_encoder_of_tensors() -> None:
    tensors = {
        "keys_tensor": numpy_helper.from_array(np.array([1, 2], np.int64)),
        "values_tensor": numpy_helper.from_array(np.array([0.1, 0.2])),
        "default_tensor": numpy_helper.from_array(np.array([9.0])),
    }
    y = run(node("LabelEncoder", "x", "y", **tensors), {"y": TensorProto.DOUBLE}, x=np.array([2, 3]), opset=4)
    same(y, [0.2, 9.0])


def linear(**options: Any) -> Any:
    return node("LinearClassifier", "x", "l z", coefficients=W.ravel().tolist(), intercepts=[0.5, -0.5, 0.0], **options)


W = np.array([[1, -1, 0.5], [0.25, 1, -1], [-1, 0.5, 0.25]], F)
SCORES = X[:20] @ W.T + np.array([0.5, -0.5, 0], F)


def test_labels_that_are_strings_can_be_mapped_to_numbers() -> None:
    nodes = [linear(classlabels_strings=["no", "maybe", "yes"])]
    nodes.append(node("LabelEncoder", "l", "y", keys_strings=["yes", "no"], values_int64s=[1, 0], default_int64=5))
    wanted = np.array([0, 5, 1])[SCORES.argmax(axis=1)]
    same(run(nodes, {"y": INT64}, x=X[:20], opset=2), wanted)
    nodes[1] = node("CategoryMapper", "l", "y", cats_strings=["yes", "no"], cats_int64s=[4, 2])
    same(run(nodes, {"y": INT64}, x=X[:20]), np.array([2, -1, 4])[SCORES.argmax(axis=1)])
    nodes[1] = node("LabelEncoder", "l", "y", classes_strings=["maybe", "no", "yes"])
    same(run(nodes, {"y": INT64}, x=X[:20], opset=1), np.array([1, 0, 2])[SCORES.argmax(axis=1)])
    nodes[1] = node("OneHotEncoder", "l", "y", cats_strings=["yes", "no"])
    same(run(nodes, {"y": FLOAT}, x=X[:20]), np.array([[0, 1], [0, 0], [1, 0]])[SCORES.argmax(axis=1)])


def test_labels_that_are_strings_are_outputs() -> None:
    labels, scores = run(linear(classlabels_strings=["a", "b", "c"]), {"l": STRING, "z": FLOAT}, x=X[:20])
    assert labels.tolist() == ["abc"[i] for i in scores.argmax(axis=1)]
    nodes = [linear(classlabels_strings=["a", "b", "c"]), helper.make_node("Pad", ["l", "s"], ["y"])]
    with pytest.raises(NotImplementedError, match="strings or maps that are computed"):
        run(nodes, {"y": STRING}, x=X, held={"s": np.array([2, 0])})


def test_labels_that_are_strings_are_moved() -> None:
    """Their places are: here into a column, and behind those of another classifier, whose labels are others."""
    other = helper.make_node(
        "LabelEncoder", ["l"], ["m"], domain=ML, keys_strings=["a", "b"], values_strings=["x", "y"]
    )
    nodes = [linear(classlabels_strings=["a", "b", "c"]), other]
    nodes.append(helper.make_node("Concat", ["l", "m"], ["both"], axis=0))
    nodes.append(helper.make_node("Reshape", ["both", "s"], ["column"]))
    nodes.append(node("LabelEncoder", "column", "y", keys_strings=["a", "x", "y"], values_int64s=[1, 2, 3]))
    index = SCORES.argmax(axis=1)
    wanted = np.concatenate([np.array([1, -1, -1])[index], np.array([2, 3, -1])[index]])[:, None]
    same(run(nodes, {"y": INT64}, x=X[:20], opset=2, held={"s": np.array([-1, 1])}), wanted)


def test_zip_map_gives_its_array() -> None:
    nodes = [linear(classlabels_ints=[4, 5, 6]), node("ZipMap", "z", "m", classlabels_int64s=[4, 5, 6])]
    maps = helper.make_map_type_proto(INT64, helper.make_tensor_type_proto(FLOAT, []))
    made = helper.make_value_info("m", helper.make_sequence_type_proto(maps))
    infos = [helper.make_tensor_value_info("x", FLOAT, ["N", 3])]
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(ML, 3)]
    model = helper.make_model(helper.make_graph(nodes, "g", infos, [made]), opset_imports=opsets, ir_version=10)
    same(Backend.prepare(model).run([X[:20]])[0], SCORES)


# Linear models and support vectors


def softmax(scores: Any) -> Any:
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def test_linear_classifier() -> None:
    made = linear(classlabels_ints=[10, 20, 30], post_transform="SOFTMAX")
    label, scores = run(made, {"l": INT64, "z": FLOAT}, x=X[:20])
    same(label, np.array([10, 20, 30])[SCORES.argmax(axis=1)])
    same(scores, softmax(SCORES))


@pytest.mark.parametrize("kind", ["NONE", "LOGISTIC", "SOFTMAX", "PROBIT"])
def test_linear_classifier_of_two_classes_by_one_score(kind: str) -> None:
    x = np.array([[-3], [-0.5], [0.0], [0.25], [0.75]], F)
    made = node(
        "LinearClassifier",
        "x",
        "l z",
        coefficients=[1.0],
        intercepts=[0.0],
        classlabels_ints=[5, 7],
        post_transform=kind,
    )
    label, scores = run(made, {"l": INT64, "z": FLOAT}, x=x)
    same(label, [5, 5, 5, 7, 7])
    pair = np.concatenate([-x, x], axis=1)
    if kind == "PROBIT":  # of numbers between 0 and 1
        np.testing.assert_allclose(scores[3:], [[0.6745, -0.6745], [-0.6745, 0.6745]], atol=2e-3)
    else:
        wanted = {
            "NONE": np.concatenate([1 - x, x], axis=1),
            "LOGISTIC": 1 / (1 + np.exp(-pair)),
            "SOFTMAX": softmax(pair),
        }
        same(scores, wanted[kind])


def test_linear_regressor_in_double() -> None:
    x = X[:20].astype(np.float64)
    made = node("LinearRegressor", "x", "y", coefficients=W[:2].ravel().tolist(), intercepts=[1.0, 2.0], targets=2)
    y = run(made, {"y": FLOAT}, x=x)
    assert y.dtype == F
    same(y, x @ W[:2].T + [1, 2])


VECTORS = np.random.default_rng(5).normal(size=(7, 3)).astype(F)


def kernels(kind: str, x: Any) -> Any:
    x, v = x.astype(np.float64), VECTORS.astype(np.float64)
    product = 0.5 * (x @ v.T) + 0.25
    apart = ((x[:, None] - v) ** 2).sum(axis=-1)
    return {"LINEAR": x @ v.T, "POLY": product**3, "SIGMOID": np.tanh(product), "RBF": np.exp(-0.5 * apart)}[kind]


def svm(op: str, outputs: str, kind: str, **options: Any) -> Any:
    vectors = VECTORS.ravel().tolist()
    return node(op, "x", outputs, kernel_type=kind, kernel_params=[0.5, 0.25, 3.0], support_vectors=vectors, **options)


@pytest.mark.parametrize("kind", ["LINEAR", "POLY", "SIGMOID", "RBF"])
def test_svm_regressor(kind: str) -> None:
    weights = np.linspace(-1, 1, 7)
    x = X if kind == "RBF" else X[:20]
    wanted = kernels(kind, x) @ weights + 0.1
    made = svm("SVMRegressor", "y", kind, coefficients=weights.tolist(), n_supports=7, rho=[0.1])
    same(run(made, {"y": FLOAT}, x=x), wanted[:, None], 1e-4)
    made = svm("SVMRegressor", "y", kind, coefficients=weights.tolist(), n_supports=7, rho=[0.1], one_class=1)
    same(run(made, {"y": FLOAT}, x=x), np.where(wanted > 0, 1, -1)[:, None])


def test_a_linear_svm_is_one_product() -> None:
    """Support vectors times their coefficients are one row for each score."""
    made = svm("SVMRegressor", "y", "LINEAR", coefficients=[1.0] * 7, n_supports=7)
    inputs = [helper.make_tensor_value_info("x", FLOAT, ["N", 3])]
    outputs = [helper.make_tensor_value_info("y", FLOAT, ["N", 1])]
    parts = helper.make_graph([made], "net", inputs, outputs)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(ML, 3)]
    program = compile_model(load(helper.make_model(parts, opset_imports=opsets)), "nn.nn", Options(isas=("base",)))
    (contraction,) = [c for kernel in program.procedures[0].kernels if (c := kernel.contraction) is not None]
    assert [axis.size for axis in contraction.summed] == [3]


def test_svm_classifier_with_probabilities() -> None:
    """Of three classes: votes for labels; the probabilities solve the coupled equations to LIBSVM's tolerance."""
    counts, starts = [3, 2, 2], [0, 3, 5, 7]
    rng = np.random.default_rng(2)
    weights, rho, a, b = rng.normal(size=(2, 7)), rng.normal(size=3) / 4, [-1.0, -2.0, -1.5], [0.1, -0.2, 0.3]
    k, scores, pairs = kernels("RBF", X[:20]), [], [(0, 1), (0, 2), (1, 2)]
    for n, (i, j) in enumerate(pairs):
        mine, theirs = slice(starts[i], starts[i + 1]), slice(starts[j], starts[j + 1])
        scores.append(k[:, mine] @ weights[j - 1, mine] + k[:, theirs] @ weights[i, theirs] + rho[n])
    votes, r = np.zeros((20, 3)), np.zeros((20, 3, 3))
    for n, (i, j) in enumerate(pairs):
        votes[:, i] += scores[n] > 0
        votes[:, j] += scores[n] <= 0
        r[:, i, j] = 1 / (1 + np.exp(a[n] * scores[n] + b[n]))
        r[:, j, i] = 1 - r[:, i, j]
    options = {"coefficients": weights.ravel().tolist(), "rho": rho.tolist(), "prob_a": a, "prob_b": b}
    made = svm("SVMClassifier", "l z", "RBF", vectors_per_class=counts, classlabels_ints=[1, 3, 5], **options)
    label, found = run(made, {"l": INT64, "z": FLOAT}, x=X[:20])
    same(label, np.array([1, 3, 5])[votes.argmax(axis=1)])
    q = -np.swapaxes(r, 1, 2) * r + np.eye(3) * (r**2).sum(axis=1)[:, None]
    force = (q @ found[..., None])[..., 0]
    assert np.abs(force - (found * force).sum(axis=1, keepdims=True)).max() < 0.005 / 3 + 1e-6
    same(found.sum(axis=1), np.ones(20))


# Trees


def tree(modes: Sequence[str], values: Sequence[float], **options: Any) -> dict[str, Any]:
    """A chain: node i asks feature i % 3; what is true goes to leaf i, what is never true to the last."""
    n = len(modes)
    return {
        "nodes_treeids": [0] * (2 * n + 1),
        "nodes_nodeids": list(range(2 * n + 1)),
        "nodes_featureids": [i % 3 for i in range(n)] + [0] * (n + 1),
        "nodes_modes": [f"BRANCH_{mode}" for mode in modes] + ["LEAF"] * (n + 1),
        "nodes_values": [*values, *[0.0] * (n + 1)],
        "nodes_truenodeids": [n + i for i in range(n)] + [0] * (n + 1),
        "nodes_falsenodeids": [i + 1 if i + 1 < n else 2 * n for i in range(n)] + [0] * (n + 1),
        **options,
    }


def leaves(what: str, count: int, **options: Any) -> dict[str, Any]:
    nodes = list(range(count, 2 * count + 1))
    return {f"{what}_treeids": [0] * len(nodes), f"{what}_nodeids": nodes, f"{what}_ids": [0] * len(nodes), **options}


ASK = {
    "LEQ": np.less_equal,
    "LT": np.less,
    "GTE": np.greater_equal,
    "GT": np.greater,
    "EQ": np.equal,
    "NEQ": np.not_equal,
}
GRID = np.stack(np.meshgrid(*[np.array([-1e30, -1, -0.0, 1e-42, 1, np.nan], F)] * 3), axis=-1).reshape(-1, 3)


@pytest.mark.parametrize("follows", [0, 1])
def test_tree_modes(follows: int) -> None:
    modes, values = ["LEQ", "GT", "EQ", "LT", "NEQ", "GTE"], [-1.0, 0.5, 0.0, 0.0, 1.0, 1e-42]
    missing = [follows] * 6 + [0] * 7
    made = tree(modes, values, nodes_missing_value_tracks_true=missing) | leaves(
        "target", 6, target_weights=[float(i) for i in range(7)]
    )
    wanted = np.full(len(GRID), 6)
    for i in reversed(range(6)):
        column = GRID[:, i % 3]
        wanted = np.where(np.where(np.isnan(column), bool(follows), ASK[modes[i]](column, F(values[i]))), i, wanted)
    found = run(node("TreeEnsembleRegressor", "x", "y", n_targets=1, **made), {"y": FLOAT}, x=GRID)
    same(found[:, 0], wanted)


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_trees_of_several_targets(aggregate: str) -> None:
    """Two stumps, and a third tree that is a leaf; the base is added after all else."""
    made = {
        "nodes_treeids": [0, 0, 0, 4, 4, 4, 9],
        "nodes_nodeids": [0, 1, 2, 0, 1, 2, 0],
        "nodes_featureids": [0, 0, 0, 2, 0, 0, 0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF", "BRANCH_LEQ", "LEAF", "LEAF", "LEAF"],
        "nodes_values": [0.0] * 7,
        "nodes_truenodeids": [1, 0, 0, 1, 0, 0, 0],
        "nodes_falsenodeids": [2, 0, 0, 2, 0, 0, 0],
        "target_treeids": [0, 0, 0, 0, 4, 4, 9, 9],
        "target_nodeids": [1, 1, 2, 2, 1, 2, 0, 0],
        "target_ids": [0, 1, 0, 1, 1, 1, 0, 1],
        "target_weights": [1.0, -2.0, 3.0, -4.0, 5.0, -6.0, 0.5, 0.25],
    }
    options = {"n_targets": 2, "aggregate_function": aggregate, "base_values": [10.0, 20.0]}
    found = run(node("TreeEnsembleRegressor", "x", "y", **made, **options), {"y": FLOAT}, x=X)
    first = np.where(X[:, :1] <= 0, [[1, -2]], [[3, -4]])
    second = np.where(X[:, 2:] <= 0, [[np.nan, 5]], [[np.nan, -6]])
    all_ = np.stack([first, second, np.broadcast_to([0.5, 0.25], first.shape)])
    how = {"SUM": np.nansum, "AVERAGE": lambda a, axis: np.nansum(a, axis) / 3, "MIN": np.nanmin, "MAX": np.nanmax}
    same(found, np.add(how[aggregate](all_, axis=0), [10, 20]))


def test_double_thresholds_are_exact() -> None:
    x = np.array([[0.1, 0, 0], [np.float64(F(0.1)), 0, 0]])
    thresholds = numpy_helper.from_array(np.array([0.1, 0.0, 0.0]))
    made = tree(["LEQ"], [0.0]) | leaves("target", 1, target_weights=[1.0, 2.0])
    del made["nodes_values"]
    made["nodes_values_as_tensor"] = thresholds
    same(run(node("TreeEnsembleRegressor", "x", "y", n_targets=1, **made), {"y": FLOAT}, x=x), [[1], [2]])


@pytest.mark.parametrize(
    ("weights", "kind", "labels", "second"),
    [
        ([-1.0, 0.25, 2.0], "NONE", [5, 7, 7], [-1.0, 0.25, 2.0]),
        ([0.1, 0.5, 0.75], "NONE", [5, 5, 7], [0.1, 0.5, 0.75]),  # of a positive weight, a half decides
        ([-1.0, 0.0, 2.0], "LOGISTIC", [5, 5, 7], [0.26894143, 0.5, 0.880797]),
    ],
)
def test_tree_classifier_of_two_classes_by_one_score(weights: Any, kind: str, labels: Any, second: Any) -> None:
    x = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0]], F)
    made = tree(["LEQ", "LEQ"], [0.5, 0.5]) | leaves("class", 2, class_weights=weights)
    made = node("TreeEnsembleClassifier", "x", "l z", classlabels_int64s=[5, 7], post_transform=kind, **made)
    label, scores = run(made, {"l": INT64, "z": FLOAT}, x=x)
    same(label, labels)
    same(scores[:, 1], second)


def test_damaged_trees_say_what_is_wrong() -> None:
    made = tree(["LEQ"], [0.0]) | leaves("target", 1, target_weights=[1.0, 2.0])
    with pytest.raises(MlaotError, match="tree 0 has no node 77"):
        run(node("TreeEnsembleRegressor", "x", "y", **(made | {"nodes_truenodeids": [77, 0, 0]})), {"y": FLOAT}, x=X)
    with pytest.raises(MlaotError, match="is below itself"):
        run(node("TreeEnsembleRegressor", "x", "y", **(made | {"nodes_truenodeids": [0, 0, 0]})), {"y": FLOAT}, x=X)
    with pytest.raises(MlaotError, match="a node that the tree does not have"):
        run(node("TreeEnsembleRegressor", "x", "y", **(made | {"target_nodeids": [1, 5]})), {"y": FLOAT}, x=X)
    with pytest.raises(NotImplementedError, match="BRANCH_MEMBER cannot be compiled"):
        modes = {"nodes_modes": ["BRANCH_MEMBER", "LEAF", "LEAF"]}
        run(node("TreeEnsembleRegressor", "x", "y", **(made | modes)), {"y": FLOAT}, x=X)


@pytest.mark.parametrize("dtype", [F, np.float64, np.float16])
def test_sets_of_members(dtype: Any) -> None:
    """The second set is empty; nan is a member only where the node says so."""
    x = np.array([[1, 0], [2, 0], [3, 0], [np.nan, 0], [0, 1], [0, np.nan]], dtype)
    made = {
        "nodes_modes": numpy_helper.from_array(np.array([6, 6], np.uint8)),
        "nodes_splits": numpy_helper.from_array(np.zeros(2, dtype)),
        "membership_values": numpy_helper.from_array(np.array([1, 3, np.nan, np.nan], dtype)),
        "nodes_featureids": [0, 1],
        "nodes_truenodeids": [0, 1],
        "nodes_trueleafs": [1, 1],
        "nodes_falsenodeids": [1, 2],
        "nodes_falseleafs": [0, 1],
        "nodes_missing_value_tracks_true": [0, 1],
        "leaf_targetids": [0, 0, 0],
        "leaf_weights": numpy_helper.from_array(np.array([10, 20, 30], dtype)),
        "tree_roots": [0],
        "n_targets": 1,
    }
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    found = run(node("TreeEnsemble", "x", "y", **made), {"y": kind}, x=x, opset=5)
    assert found.dtype == dtype
    same(found[:, 0], [10, 30, 10, 30, 30, 20])
