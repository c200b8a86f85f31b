"""Estimators as models: what goes in, what comes out, what is refused. tests/sklearn/estimators.py has more of them."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlaot.errors import MlaotError
from mlaot.evaluate import evaluate
from mlaot.settings import ModelSettings, Settings

pytestmark = pytest.mark.filterwarnings("ignore")

# ruff: noqa: E402
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.ensemble import (
    BaggingRegressor,
    HistGradientBoostingClassifier,
    IsolationForest,
    RandomForestClassifier,
    VotingClassifier,
)
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier, SGDClassifier
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor, RadiusNeighborsRegressor
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    LabelBinarizer,
    LabelEncoder,
    OneHotEncoder,
    PolynomialFeatures,
    StandardScaler,
)

import mlaot.sklearn
from mlaot.ir.types import f64
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.sklearn.declare import columns_of
from tests import projects
from tests.sklearn import estimators

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 3))
Y = np.digitize(X @ [1.0, -2.0, 0.5], [-1, 1])
NAMES = np.array(["low", "mid", "top"])


def called(declared: Any, method: str, **inputs: Any) -> Array:
    """What a method gives."""
    traced = declared.trace()
    (batch,) = {len(x) for x in inputs.values()}
    (found,) = evaluate(traced.entries[method], {**traced.parameters, **inputs}, dims={"batch": batch}).values()
    return np.asarray(found)


@pytest.mark.parametrize(
    "last",
    [
        LogisticRegression(),
        HistGradientBoostingClassifier(max_iter=3),
        RandomForestClassifier(4, random_state=0),
        VotingClassifier(
            [("a", LogisticRegression()), ("b", HistGradientBoostingClassifier(max_iter=3))], voting="soft"
        ),
    ],
)
@pytest.mark.parametrize("labels", [Y, NAMES[Y]], ids=["integers", "strings"])
def test_pipelines(last: Any, labels: Array) -> None:
    fitted = make_pipeline(StandardScaler(), last).fit(X, labels)
    declared = mlaot.sklearn.load(fitted, X)
    traced = declared.trace()
    methods = [name for name in estimators.METHODS if hasattr(fitted, name)]
    assert list(traced.entries) == list(traced.graph.outputs) == methods
    assert traced.info == {"classes": fitted.classes_.tolist()}
    index = called(declared, "predict", X=X)
    assert index.dtype == np.int64
    np.testing.assert_array_equal(fitted.classes_[index], fitted.predict(X))
    for method in methods[1:]:
        np.testing.assert_allclose(called(declared, method, X=X), getattr(fitted, method)(X), rtol=1e-11)


@pytest.mark.parametrize(
    "estimator",
    [
        LinearRegression(),
        LogisticRegression(),
        LogisticRegression(solver="newton-cg"),
        SGDClassifier(random_state=0),
        RidgeClassifier(),
        MLPClassifier((5,), max_iter=20, random_state=0),
    ],
    ids=repr,
)
def test_what_was_fitted_on_float32_is_computed_in_it(estimator: Any) -> None:
    """As scikit-learn does; what was fitted on float64, or is given float64, is computed in that."""
    single = X.astype(np.float32)
    for classes in (Y, Y > 0):
        for rows, given in ((single, single), (single, X), (X, single)):
            fitted = clone(estimator).fit(rows, classes)
            declared, is_single = mlaot.sklearn.load(fitted, given), rows.dtype == given.dtype
            nodes = declared.trace().graph.nodes()
            assert any(node.op is red.contract for node in nodes)
            assert (
                not any(node.type.dtype is f64 for node in nodes)
                if is_single
                else any(node.op is red.contract and node.type.dtype is f64 for node in nodes)
            )
            method = next(m for m in ("predict_proba", "decision_function", "predict") if hasattr(fitted, m))
            expected = getattr(fitted, method)(given)
            np.testing.assert_allclose(called(declared, method, X=given), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("classes", [Y, Y > 0], ids=["several", "two"])
def test_one_logistic_regression_against_the_rest(classes: Array) -> None:
    inner = LogisticRegression(solver="liblinear")
    fitted = inner.fit(X, classes) if len(set(classes)) == 2 else OneVsRestClassifier(inner).fit(X, classes)
    found = called(mlaot.sklearn.load(fitted, X), "predict_proba", X=X)
    np.testing.assert_allclose(found, fitted.predict_proba(X), rtol=1e-12)


@pytest.mark.parametrize("interaction_only", [False, True])
@pytest.mark.parametrize("include_bias", [False, True])
@pytest.mark.parametrize("degree", [1, 2, 4, (2, 3)])
def test_polynomials(degree: Any, include_bias: bool, interaction_only: bool) -> None:
    """Without a product for each column: a feature times a run of others is one."""
    rows = RNG.normal(size=(9, 5))
    fitted = PolynomialFeatures(degree, include_bias=include_bias, interaction_only=interaction_only).fit(rows)
    declared = mlaot.sklearn.load(fitted, rows)
    np.testing.assert_allclose(called(declared, "transform", X=rows), fitted.transform(rows), rtol=1e-12)
    assert sum(node.op is ew.mul for node in declared.trace().graph.nodes()) <= 3 * rows.shape[1]


@pytest.mark.parametrize("how", [{}, {"weights": "distance"}, {"p": 1}, {"metric": "chebyshev", "weights": "distance"}])
@pytest.mark.parametrize("whole", [False, True])
def test_neighbours_within_a_radius(how: dict[str, Any], whole: bool) -> None:
    """Those on the radius, too; rows that are among the points; nan where there are none."""
    points = RNG.integers(0, 5, (200, 3)).astype(float) if whole else RNG.normal(size=(200, 3))
    fitted = RadiusNeighborsRegressor(2.0, **how).fit(points, points[:, :2])
    rows = np.concatenate([points[:20], RNG.normal(size=(20, 3)), np.full((1, 3), 90.0)])
    found = called(mlaot.sklearn.load(fitted, rows), "predict", X=rows)
    assert np.isnan(found[-1]).all()
    np.testing.assert_allclose(found, fitted.predict(rows), rtol=1e-9, atol=1e-9)


def test_methods_of_others() -> None:
    single = X.astype(np.float32)
    linear = LinearRegression().fit(X, X[:, 0] + 1)
    assert called(mlaot.sklearn.load(linear), "predict", X=single).dtype == np.float32
    np.testing.assert_allclose(called(mlaot.sklearn.load(linear), "predict", X=single), linear.predict(X), rtol=1e-5)
    scaler = mlaot.sklearn.load(StandardScaler().fit(X))
    assert list(scaler.trace().entries) == ["transform"]
    clusters = KMeans(2, random_state=0, n_init=1).fit(X)
    assert list(mlaot.sklearn.load(clusters).trace().entries) == ["predict", "transform"]
    outliers = IsolationForest(n_estimators=3, random_state=0).fit(X)
    found = called(mlaot.sklearn.load(outliers, X), "decision_function", X=X)
    np.testing.assert_allclose(found, outliers.decision_function(X), rtol=1e-12)


@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_neighbours(shift: float) -> None:
    """A row that was learnt is its own neighbour at no distance; rows far from the origin have theirs, too."""
    rows, near = X + shift, X[:9] + shift + 1e-3
    weights = {"w": np.array([1.0, 3.0, 0.5])}
    for more in ({"p": 1}, {"p": 2}, {"p": 3}, {"p": 1.5, "metric_params": weights}, {"metric": "chebyshev"}):
        classifier = KNeighborsClassifier(4, weights="distance", **more).fit(rows, Y)
        declared = mlaot.sklearn.load(classifier, rows)
        np.testing.assert_array_equal(called(declared, "predict_proba", X=rows), classifier.predict_proba(rows))
        expected = classifier.predict_proba(near)
        np.testing.assert_allclose(called(declared, "predict_proba", X=near), expected, rtol=1e-6)
    whole = np.round(3 * X)
    for columns in (whole, whole + 7):  # many equal distances, which float64 holds exactly
        regressor = KNeighborsRegressor(5, algorithm="brute").fit(columns, X[:, 0])
        distances = np.sum((columns[:, None] - columns) ** 2, -1)
        nearest = np.argsort(distances, axis=1, kind="stable")[:, :5]
        found = called(mlaot.sklearn.load(regressor, columns), "predict", X=columns)
        np.testing.assert_allclose(found, X[nearest, 0].mean(1), rtol=1e-12)


def test_votes_that_cannot_be_converted() -> None:
    classifier = KNeighborsClassifier(weights="distance", metric="dice").fit(X > 0, Y)
    with pytest.raises(MlaotError, match="the metric 'dice' cannot be converted; known are braycurtis"):
        mlaot.sklearn.load(classifier).trace()


def test_columns() -> None:
    """Inputs of several dtypes; strings are places in what the encoder has learnt, other numbers are unknown to it."""
    pandas = pytest.importorskip("pandas")
    from sklearn.compose import make_column_transformer

    frame = pandas.DataFrame(
        {"the age": X[:, 0].astype(np.float32), "port": np.array(["B", "A", "C", "A"] * 20), "n": Y}
    )
    encoder = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["port"]), remainder="passthrough")
    fitted = make_pipeline(encoder, LogisticRegression()).fit(frame, X[:, 1] > 0)
    declared = mlaot.sklearn.load(fitted, frame)
    traced = declared.trace()
    assert {name: str(node.type) for name, node in traced.graph.inputs.items() if name in traced.arguments} == {
        "the_age": "f32[batch]",
        "port": "i64[batch]",
        "n": "i64[batch]",
    }
    assert traced.info == {"classes": [False, True], "categories": {"port": ("A", "B", "C")}}
    places = np.array(["A", "B", "C"]).searchsorted(frame["port"])
    assert declared.sample is not None
    np.testing.assert_array_equal(declared.sample["port"], places)
    places[:2] = [-1, 3]
    frame.loc[:1, "port"] = "elsewhere"
    given = {"the_age": frame["the age"].to_numpy(), "port": places, "n": Y}
    np.testing.assert_allclose(
        called(declared, "predict_proba", **given), fitted.predict_proba(frame), rtol=1e-6, atol=1e-7
    )
    (reference,) = declared.references.values()
    np.testing.assert_array_equal(reference(given)["predict"], fitted.predict(frame))


@pytest.mark.parametrize("kind", ["compiled", "plain"])
def test_strings_in_and_out(kind: str, tmp_path: Path) -> None:
    """What an encoder does not know is none of its categories; classes come back as they are."""
    from sklearn.compose import ColumnTransformer

    rng = np.random.default_rng(2)
    ports, ages = rng.choice(["Cork", "Hull", "Åbo"], 60), rng.normal(size=60)
    rows = np.array([ports, ages], object).T
    encoder = ColumnTransformer([("o", OneHotEncoder(handle_unknown="ignore"), [0])], remainder="passthrough")
    wanted = np.where(ages + (ports == "Hull") > 0.3, "größer", "kleiner")
    fitted = make_pipeline(encoder, LogisticRegression()).fit(rows, wanted)
    declared = mlaot.sklearn.load(fitted, {"port": ports, "age": ages})
    if kind == "compiled":
        nn = projects.load(projects.build_module(declared, "columns", tmp_path, ("base",)))
    else:
        nn = projects.plain_module(declared, "columns", tmp_path)
    rows[:2, 0] = ["elsewhere", ""]
    assert nn.predict(rows[:, 0], ages) == nn.predict(rows[:, 0].tolist(), ages) == fitted.predict(rows).tolist()
    np.testing.assert_allclose(np.asarray(nn.predict_proba(rows[:, 0], ages)), fitted.predict_proba(rows), rtol=1e-9)
    assert nn.predict("Hull", 0.1) == "größer"
    feed = dict(zip((port.name for port in nn.get_inputs()), (rows[:3, 0], ages[:3]), strict=True))
    assert list(nn.run(["predict"], feed)[0]) == fitted.predict(rows[:3]).tolist()


def test_arrays_of_other_numbers(tmp_path: Path) -> None:
    """A compiled pipeline takes what scikit-learn takes for it: other floats, integers, frames; and lists."""
    fitted = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, Y)
    library = projects.build_module(mlaot.sklearn.load(fitted), "pipeline", tmp_path, ("base",))
    module = projects.load(library)
    whole = np.round(3 * X)
    forms = [X, X.astype(np.float32), X.tolist(), X[::-1][::-1], X.T.copy().T, np.float16(X)]
    forms += [whole.astype(kind) for kind in (np.int8, np.int32, np.int64)]
    forms += [pandas.DataFrame(X)] if (pandas := sys.modules.get("pandas")) else []
    for form in forms:
        expected = fitted.predict_proba(np.asarray(form, np.float32))
        np.testing.assert_allclose(np.asarray(module.predict_proba(form)), expected, atol=1e-6)
    assert module.predict(X)[:5].tolist() == fitted.predict(X)[:5].tolist()
    with pytest.raises(ValueError, match=r"^predict: X: expected float32, got"):
        module.predict(X * 1e300)
    with pytest.raises(TypeError, match=r"^predict: X: expected float32\[batch, 3\], got a list of arrays; pass numpy"):
        module.predict(list(X))


def test_pinned_batch() -> None:
    settings = Settings(
        "p", ".", models=(ModelSettings("nn", sklearn="m:fitted", dims=(("batch", 1),)),), project=Path()
    )
    import sys
    from types import SimpleNamespace

    sys.modules["m"] = SimpleNamespace(fitted=StandardScaler().fit(X))  # type: ignore[assignment]
    try:
        traced = mlaot.sklearn.declare_from_settings(settings, settings.models[0]).trace()
    finally:
        del sys.modules["m"]
    assert str(traced.graph.inputs["X"].type) == "f32[1,3]"


@pytest.mark.parametrize(
    ("model", "sample", "message"),
    [
        (LogisticRegression(), None, "this LogisticRegression is not fitted; call its fit where it is made"),
        (LogisticRegression, None, "expected a fitted estimator of scikit-learn, got <class"),
        (3, None, "expected a fitted estimator of scikit-learn, got 3"),
        (StandardScaler().fit(X), X[0], r"the sample must be rows of features, got the shape \[3\]"),
        (PolynomialFeatures().fit(X), X[:, :2], "this PolynomialFeatures was fitted on 3 features, the sample has 2"),
        (StandardScaler().fit(X), {"a": np.array(["x"])}, "a is <U1, and no encoder of the pipeline tells all"),
    ],
)
def test_refusals(model: Any, sample: Any, message: str) -> None:
    with pytest.raises(MlaotError, match=message) as raised:
        mlaot.sklearn.load(model, sample).trace()
    assert "\n" not in str(raised.value)


def test_columns_by_name_need_a_sample() -> None:
    """What a fitted transformer remembers of a DataFrame is set here: tests do without pandas."""
    from sklearn.compose import make_column_transformer

    columns = make_column_transformer((StandardScaler(), [0, 2])).fit(X)
    assert columns_of(columns, None)["X"].features == 3
    columns.feature_names_in_ = np.array(["age", "port", "fare"], object)
    columns.transformers_ = [(name, step, ["age", "fare"]) for name, step, _ in columns.transformers_[:1]]
    with pytest.raises(MlaotError, match=r"takes columns by their names, age, port, fare; give a sample"):
        columns_of(columns, None)


def test_what_cannot_be_converted() -> None:
    from sklearn.cluster import DBSCAN
    from sklearn.decomposition import MiniBatchNMF

    with pytest.raises(MlaotError, match="this DBSCAN has no method for new rows; expected one of "):
        mlaot.sklearn.load(DBSCAN().fit(X), X).trace()
    with pytest.raises(MlaotError, match="a MiniBatchNMF is converted with beta_loss='frobenius'"):
        mlaot.sklearn.load(MiniBatchNMF(2, beta_loss="kullback-leibler").fit(np.abs(X)), X).trace()


@pytest.mark.parametrize("suffix", [".pkl", ".joblib"])
def test_pickles_are_refused(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(
        MlaotError, match=r"a pickle runs code where it is read; store .* by skops.io.dump, or load it in"
    ):
        mlaot.sklearn.load(tmp_path / f"model{suffix}")


def test_skops(tmp_path: Path) -> None:
    io = pytest.importorskip("skops.io")
    path = tmp_path / "model.skops"
    fitted = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, Y)
    io.dump(fitted, path)
    found = called(mlaot.sklearn.load(path, X), "predict", X=X)
    np.testing.assert_array_equal(found, fitted.predict(X))
    io.dump(make_pipeline(Own()), path)
    with pytest.raises(MlaotError, match=r"model.skops holds .*\.Own, which is not trusted; name"):
        mlaot.sklearn.load(path)
    path.write_bytes(b"PK nothing")
    with pytest.raises(MlaotError, match=r"model.skops is no skops file, or it is damaged: "):
        mlaot.sklearn.load(path)
    with pytest.raises(MlaotError, match=r"no file other.skops in "):
        mlaot.sklearn.load(tmp_path / "other.skops")


class Own(StandardScaler):  # type: ignore[misc]
    """A type that nobody trusts."""


COMPILED = ["SVC, two", "DecisionTreeClassifier", "GaussianNB", "PCA", "KNNImputer", "QuadraticDiscriminantAnalysis"]
# Of each rule with cases of its own.
INTERPRETED = """
AdaBoostClassifier; AdaBoostRegressor, reg; BaggingClassifier #2; BaggingRegressor, reg; StackingClassifier, two #2
VotingClassifier #3; VotingClassifier, two #4; RandomForestClassifier, multilabel; IsolationForest, outlier #2
CalibratedClassifierCV #3; CalibratedClassifierCV, two #3; CalibratedClassifierCV, two #8; CalibratedClassifierCV #7
OneVsRestClassifier, multilabel #2; OneVsOneClassifier #2; OutputCodeClassifier; ClassifierChain, multilabel #2
RegressorChain, many; TransformedTargetRegressor, reg #3; FixedThresholdClassifier, twotexts
FixedThresholdClassifier, twotexts #2; TunedThresholdClassifierCV, two; SVC; SVC #6; SVC #2; SVR, reg #2
OneClassSVM, outlier; KernelRidge, many #2; KernelPCA #3; Nystroem #4; PolynomialCountSketch #2
AdditiveChi2Sampler, positive-transform #2
GaussianProcessClassifier, texts; GaussianProcessRegressor, reg #3; GaussianProcessRegressor, reg #6; LabelSpreading #2
KNeighborsClassifier #5; RadiusNeighborsClassifier #3; KNeighborsRegressor, reg #4; LocalOutlierFactor, outlier
KernelDensity, density #3; NearestCentroid #3; KNeighborsTransformer; RadiusNeighborsTransformer
SplineTransformer #3; SplineTransformer #8; QuantileTransformer #2; QuantileTransformer, ints-transform
PowerTransformer; KBinsDiscretizer #2
OneHotEncoder, ints #4; OneHotEncoder, ints #5; OrdinalEncoder, ints #2; TargetEncoder, ints
IterativeImputer, missing-transform #3; IterativeImputer, missing-transform #4
SimpleImputer, missing-transform #2; MissingIndicator, missing-transform
LinearDiscriminantAnalysis, two; SGDClassifier #2; SGDOneClassSVM, outlier; MLPClassifier, multilabel
CategoricalNB, ints; BernoulliNB; DummyClassifier #2; CCA, many; PLSSVD, many; TweedieRegressor, positive
IsotonicRegression, reg #2; BisectingKMeans, cluster; Birch, cluster; BayesianGaussianMixture, mixture #2
EllipticEnvelope, outlier
FactorAnalysis; SparsePCA; SparseCoder; DictionaryLearning #2; Isomap; LocallyLinearEmbedding
FeatureAgglomeration #2; NMF, positive-transform #2; LatentDirichletAllocation, counts-transform
"""


@pytest.mark.parametrize("name", COMPILED)
def test_estimators(name: str) -> None:
    """Some of the list, compiled."""
    with np.errstate(all="ignore"):
        row = estimators.examined(name, estimators.table()[name])
    assert row.verdict == "equal", row
    assert name in estimators.passing()


@pytest.mark.parametrize("name", re.split("; |\n", INTERPRETED.strip()))
def test_rules(name: str) -> None:
    """Some of the list, interpreted."""
    with np.errstate(all="ignore"):
        row = estimators.examined(name, estimators.table()[name], compiles=False)
    assert row.verdict == "equal", row


class Renamed(StandardScaler):  # type: ignore[misc]
    """A class that changes no method."""


class Doubled(StandardScaler):  # type: ignore[misc]
    """A class that changes one."""

    def transform(self, X: Array, copy: Any = None) -> Array:
        return 2 * np.asarray(super().transform(X, copy))


def test_classes_of_ones_own() -> None:
    """They have the rules of the class that they are made of, unless they say otherwise."""
    own = Renamed().fit(X)
    np.testing.assert_allclose(called(mlaot.sklearn.load(own, X), "transform", X=X), own.transform(X))
    for estimator in (
        Doubled(),
        make_pipeline(Doubled(), LogisticRegression()),
        BaggingRegressor(make_pipeline(Doubled(), LinearRegression()), 2),
    ):
        with pytest.raises(MlaotError, match=r"skl2onnx cannot convert this |needs the package skl2onnx"):
            mlaot.sklearn.load(estimator.fit(X, Y), X).trace()


@pytest.mark.parametrize(
    "labels", [Y > 0, Y * 3 - 1, Y - 1.0, NAMES[Y].astype(object), np.array(["2020", "2021", "2022"], "M8[Y]")[Y]]
)
def test_classes_of_every_type(labels: Array) -> None:
    """Numbers come back as they are, dates as numbers; of other classes their places."""
    fitted = GaussianNB().fit(X, labels)
    found = called(mlaot.sklearn.load(fitted, X), "predict", X=X)
    if labels.dtype.kind in "bif":
        assert found.dtype == labels.dtype
        np.testing.assert_array_equal(found, fitted.predict(X))
    elif labels.dtype.kind == "M":
        np.testing.assert_array_equal(found.view(labels.dtype), fitted.predict(X))
    else:
        np.testing.assert_array_equal(fitted.classes_[found], fitted.predict(X))


def test_functions_of_ones_own() -> None:
    scaled = FunctionTransformer(lambda x, factor: np.sin(x) * factor, kw_args={"factor": 3.0}).fit(X)
    np.testing.assert_allclose(called(mlaot.sklearn.load(scaled, X), "transform", X=X), 3 * np.sin(X))
    for function, message in (
        (
            lambda x: x.to_numpy(),
            "the function <lambda> of a FunctionTransformer cannot be traced; use NumPy's functions",
        ),
        (lambda x: [row.tolist() for row in x], "iteration over the named dim batch"),
    ):
        with pytest.raises(MlaotError, match=message) as raised:
            mlaot.sklearn.load(FunctionTransformer(function).fit(X), X).trace()
        assert "\n" not in str(raised.value)


def test_several_outputs() -> None:
    """Labels in columns, and probabilities of each output."""
    targets = np.stack([Y, Y * 2 - 5], axis=1)
    for fitted in (RandomForestClassifier(4, random_state=0), KNeighborsClassifier(3)):
        fitted.fit(X, targets)
        traced = mlaot.sklearn.load(fitted, X).trace()
        found = evaluate(traced.graph, {**traced.parameters, "X": X}, dims={"batch": len(X)})
        np.testing.assert_array_equal(found["predict"], fitted.predict(X))
        for i, shares in enumerate(fitted.predict_proba(X)):
            np.testing.assert_allclose(found[f"predict_proba_{i}"], shares, rtol=1e-12)
    texts = KNeighborsClassifier(3).fit(X, NAMES[np.stack([Y, 2 - Y], axis=1)])
    with pytest.raises(MlaotError, match="several outputs whose classes are texts cannot be converted"):
        mlaot.sklearn.load(texts, X).trace()


@pytest.mark.parametrize("labels", [np.array([3, 1, 4, 1, 5]), np.array(["b", "a", "c", "a", "b"])])
def test_encoders_of_labels(labels: Array) -> None:
    """Their input is a vector, whose texts are places already."""
    for encoder in (LabelEncoder(), LabelBinarizer()):
        declared = mlaot.sklearn.load(encoder.fit(labels), labels)
        (reference,) = declared.references.values()
        assert declared.sample is not None
        y = declared.sample["y"]
        expected = encoder.transform(labels)
        np.testing.assert_array_equal(called(declared, "transform", y=y), expected)
        np.testing.assert_array_equal(reference({"y": y})["transform"], expected)


def test_every_estimator_is_in_the_list() -> None:
    """With methods that are equal, or a reason."""
    lines = estimators.LIST.read_text(encoding="utf-8").splitlines()
    named = {line.split(" ", 1)[1].partition(":")[0].split(",")[0].split(" #")[0] for line in lines}
    assert not [name for name, _ in estimators.uncovered(named)]
    others = [line for line in lines if not line.startswith("equal ")]
    assert all(line.partition(": ")[2] not in ("", "no case") for line in others)
    assert len(lines) - len(others) >= 531
