"""scikit-learn's estimators, and those of LightGBM and XGBoost, compiled, against these libraries themselves.

    python -m tests.sklearn.estimators                   # all, against the list of those that pass
    python -m tests.sklearn.estimators --select 'SV'     # those whose name matches
    python -m tests.sklearn.estimators --write           # all, and write the list anew

Each is fitted on small seeded data, compiled as ``mlaot.sklearn.load`` declares it for float64, and asked 1,000 rows,
some of which hold zeros of both signs, numbers up to 3e38 and down to 1e-42, and nan and inf where the estimator takes
them. All methods must give the same labels as scikit-learn's, and numbers within 1e-6 of the largest; what it declares
for float32, interpreted, numbers within 1e-5. The list in estimators.txt names every estimator of scikit-learn with the
methods that are equal, or why there are none; it may only grow.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import mlaot.sklearn
from mlaot import passes
from mlaot.evaluate import evaluate
from mlaot.lower.lower import lower
from mlaot.tokenizers.vectorizer import rows as rows_of_terms
from tests.compiled import AVAILABLE, Library
from tests.sklearn import more_cases, text_cases

Array = np.ndarray[Any, Any]
FEATURES = 4
TOLERANCES = {np.float32: 1e-5, np.float64: 1e-6}
EXTREMES = (3e38, -3e38, 0.0, -0.0, 1e-42, -1e-42, 1e30, 1e-38, 1e15, -1e15)
LIST = Path(__file__).with_name("estimators.txt")
METHODS = ("predict", "predict_proba", "predict_log_proba", "decision_function", "transform", "score_samples")
OUT = {  # what is not fitted here, and why
    "DictVectorizer": "takes dicts",
    "FeatureHasher": "takes dicts",
    "MultiLabelBinarizer": "takes sets of labels",
    "PatchExtractor": "draws patches of images, at random or all of them",
}


class Case(NamedTuple):
    """How an estimator is made, what it is fitted on, and what is compared."""

    make: Callable[[], Any]
    kind: str = "cls"  # of the data, and where there is no estimator to tell, of what it gives
    extremes: bool = True


class Row(NamedTuple):
    """A line of the table; ``verdict``: pass, wrong, unsupported, or not fitted."""

    name: str
    verdict: str
    worst: float
    note: str
    kind: str = ""  # the class


def data(kind: str) -> tuple[Array, Any]:
    """What an estimator is fitted on."""
    if kind.startswith("lines"):
        return text_cases.data(kind.removeprefix("lines").removeprefix("-"))
    if kind.startswith("missing"):
        x, y = data(kind.removeprefix("missing").removeprefix("-") or "cls")
        x[np.random.default_rng(2).random(x.shape) < 0.2] = np.nan
        return x, y
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, FEATURES)).astype(np.float32)
    total = x @ np.array([1.0, -2.0, 0.5, 0.25], np.float32)
    if kind == "two":
        return x, (total + 0.3 * rng.normal(size=120) > 0).astype(np.int64)
    if kind == "reg":
        return x, (total + 0.1 * rng.normal(size=120)).astype(np.float32)
    if kind in ("texts", "bools", "floats", "twotexts"):
        y = np.digitize(total, [0.0] if kind in ("bools", "twotexts") else [-1.0, 1.0])
        return x, np.array({"bools": [False, True], "floats": [-1.0, 2.0, 4.0]}.get(kind, ["a", "b", "c"]))[y]
    if kind.startswith("positive"):
        return np.abs(x), np.exp(0.3 * total).astype(np.float32) + np.float32(0.1)
    if kind == "many":
        return x, np.stack([total, x[:, 0] - x[:, 3]], axis=1).astype(np.float32)
    if kind == "counts":
        return rng.integers(0, 6, size=(120, FEATURES)).astype(np.float32), np.digitize(total, [-1.0, 1.0])
    if kind in ("ints", "twoints"):
        y = np.digitize(total, [-1.0, 1.0] if kind == "ints" else [0.0])
        return rng.integers(0, 4, size=(120, FEATURES)).astype(np.int64), y
    if kind == "labels":
        return rng.integers(0, 5, size=120).astype(np.int64), None
    if kind == "multilabel":
        return x, np.stack([total > 0, x[:, 1] > x[:, 2]], axis=1).astype(np.int64)
    return x, np.digitize(total, [-1.0, 1.0])


def asked(case: Case, estimator: Any) -> Array:
    """1,000 rows to compare."""
    rng = np.random.default_rng(1)
    kind = case.kind.removesuffix("-transform")
    if kind.startswith("lines"):
        return text_cases.asked()
    if kind == "labels":
        return rng.integers(0, 5, size=1000).astype(np.int64)
    if kind in ("ints", "twoints"):
        return rng.integers(0, 4, size=(1000, FEATURES)).astype(np.int64)
    if kind.startswith("counts"):
        return rng.integers(0, 6, size=(1000, FEATURES)).astype(np.float32)
    x = rng.normal(size=(1000, FEATURES)).astype(np.float32)
    is_positive = kind.startswith("positive")
    x = np.abs(x) if is_positive else x
    if case.extremes:
        for i, value in enumerate(EXTREMES):
            x[i] = abs(value) if is_positive else value
            x[i + 10, i % FEATURES] = abs(value) if is_positive else value
    for row, value in ((30, np.nan), (60, np.inf), (90, -np.inf)):
        if takes(estimator, value):
            x[row : row + 30][rng.random(size=(30, FEATURES)) < 0.4] = value
    return x


def takes(estimator: Any, value: float) -> bool:
    """Whether an estimator answers of nan or inf."""
    x = np.zeros((2, FEATURES))
    x[0, 0] = value
    try:
        getattr(estimator, next(name for name in METHODS if hasattr(estimator, name)))(x)
    except Exception:
        return False
    return True


@cache
def table() -> dict[str, Case]:
    """Every estimator that works on numbers, with the parameters that change what is computed."""
    import sklearn.discriminant_analysis as discriminant
    import sklearn.feature_selection as selection
    import sklearn.gaussian_process as gaussian
    import sklearn.linear_model as linear
    import sklearn.multiclass as multiclass
    import sklearn.naive_bayes as bayes
    import sklearn.neighbors as neighbors
    import sklearn.preprocessing as preprocessing
    import sklearn.svm as svm
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.cluster import KMeans, MiniBatchKMeans
    from sklearn.compose import ColumnTransformer
    from sklearn.cross_decomposition import PLSRegression
    from sklearn.decomposition import PCA, IncrementalPCA, KernelPCA, TruncatedSVD
    from sklearn.ensemble import (
        AdaBoostClassifier,
        AdaBoostRegressor,
        BaggingClassifier,
        BaggingRegressor,
        ExtraTreesClassifier,
        ExtraTreesRegressor,
        GradientBoostingClassifier,
        GradientBoostingRegressor,
        HistGradientBoostingClassifier,
        HistGradientBoostingRegressor,
        IsolationForest,
        RandomForestClassifier,
        RandomForestRegressor,
        RandomTreesEmbedding,
        StackingClassifier,
        StackingRegressor,
        VotingClassifier,
        VotingRegressor,
    )
    from sklearn.feature_extraction.text import TfidfTransformer
    from sklearn.impute import KNNImputer, SimpleImputer
    from sklearn.mixture import BayesianGaussianMixture, GaussianMixture
    from sklearn.model_selection import GridSearchCV, TunedThresholdClassifierCV
    from sklearn.multioutput import MultiOutputClassifier, MultiOutputRegressor
    from sklearn.neural_network import MLPClassifier, MLPRegressor
    from sklearn.pipeline import FeatureUnion, Pipeline
    from sklearn.random_projection import GaussianRandomProjection
    from sklearn.tree import (
        DecisionTreeClassifier,
        DecisionTreeRegressor,
        ExtraTreeClassifier,
        ExtraTreeRegressor,
    )

    logistic, ridge = linear.LogisticRegression, linear.Ridge
    found: dict[str, Case] = {}

    def add(kind: str, *makers: Any, **options: Any) -> None:
        for make in makers:
            name = type(make()).__name__
            name = name if kind in ("cls", "transform") else f"{name}, {kind}"
            same = [n for n in found if n == name or n.startswith(f"{name} #")]
            name = f"{name} #{len(same) + 1}" if same else name
            found[name] = Case(make, kind, **options)

    def seeded(cls: Any, **options: Any) -> Callable[[], Any]:
        def make() -> Any:
            return cls(random_state=0, **options)

        make.__name__ = cls.__name__
        return make

    few = {"n_estimators": 8}
    for kind in ("cls", "two"):
        add(kind, logistic, seeded(linear.LogisticRegressionCV, cv=2, Cs=2, use_legacy_attributes=False))
        add(kind, seeded(linear.SGDClassifier, loss="log_loss"), seeded(linear.Perceptron))
        add(kind, seeded(linear.PassiveAggressiveClassifier), linear.RidgeClassifier, linear.RidgeClassifierCV)
        add(kind, seeded(svm.LinearSVC), seeded(svm.SVC), seeded(svm.NuSVC, nu=0.2))
        add(kind, seeded(svm.SVC, probability=True), seeded(svm.NuSVC, nu=0.2, probability=True))
        add(kind, lambda: svm.SVC(kernel="poly"), lambda: svm.SVC(kernel="sigmoid"), lambda: svm.SVC(kernel="linear"))
        add(kind, seeded(DecisionTreeClassifier, max_depth=5), seeded(ExtraTreeClassifier))
        add(kind, seeded(RandomForestClassifier, **few), seeded(ExtraTreesClassifier, **few))
        add(kind, seeded(GradientBoostingClassifier, **few), seeded(AdaBoostClassifier, **few))
        add(kind, seeded(HistGradientBoostingClassifier, max_iter=8))
        add(kind, seeded(BaggingClassifier, **few), bayes.GaussianNB, bayes.BernoulliNB)
        add(kind, seeded(MLPClassifier, hidden_layer_sizes=(5,), max_iter=50), discriminant.LinearDiscriminantAnalysis)
        add(kind, discriminant.QuadraticDiscriminantAnalysis)
        add(kind, neighbors.KNeighborsClassifier, extremes=False)
        add(kind, lambda: neighbors.KNeighborsClassifier(30, weights="distance"), extremes=False)
        add(kind, lambda: neighbors.RadiusNeighborsClassifier(radius=9.0), extremes=False)
        add(kind, seeded(gaussian.GaussianProcessClassifier), extremes=False)
        add(kind, lambda: CalibratedClassifierCV(logistic(), cv=2), lambda: multiclass.OneVsRestClassifier(logistic()))
        add(kind, lambda: CalibratedClassifierCV(logistic(), cv=2, method="isotonic"))
        add(kind, lambda: multiclass.OneVsOneClassifier(linear.LogisticRegression()))
        trees = [("a", logistic()), ("b", DecisionTreeClassifier(max_depth=3, random_state=0))]
        add(kind, lambda t=trees: VotingClassifier(t))
        add(kind, lambda t=trees: VotingClassifier(t, voting="soft"))
        add(kind, lambda t=trees: StackingClassifier(t, cv=2), lambda: GridSearchCV(logistic(), {"C": [1, 2]}, cv=2))
        add(kind, lambda: Pipeline([("a", preprocessing.StandardScaler()), ("b", logistic())]))
    add("two", lambda: TunedThresholdClassifierCV(logistic(), cv=2))
    add("counts", bayes.MultinomialNB, bayes.ComplementNB)
    add("ints", bayes.CategoricalNB)
    add("multilabel", lambda: MultiOutputClassifier(logistic()))
    add("multilabel", seeded(MLPClassifier, max_iter=50))
    add("multilabel", neighbors.KNeighborsClassifier, extremes=False)
    for cls in (linear.LinearRegression, ridge, linear.Lasso, linear.ElasticNet, linear.BayesianRidge):
        add("reg", cls)
    for cls in (linear.ARDRegression, linear.HuberRegressor, linear.Lars, linear.LarsCV, linear.LassoLars):
        add("reg", cls)
    for cls in (linear.LassoCV, linear.ElasticNetCV, linear.LassoLarsCV, linear.LassoLarsIC, linear.RidgeCV):
        add("reg", cls)
    for cls in (linear.OrthogonalMatchingPursuit, linear.OrthogonalMatchingPursuitCV, linear.QuantileRegressor):
        add("reg", cls)
    for cls in (linear.PassiveAggressiveRegressor, linear.SGDRegressor, linear.RANSACRegressor):
        add("reg", seeded(cls))
    add("reg", seeded(linear.TheilSenRegressor), seeded(svm.LinearSVR), svm.SVR, svm.NuSVR)
    add("reg", lambda: svm.SVR(kernel="poly"), lambda: svm.SVR(kernel="linear"))
    add("many", linear.LinearRegression, linear.MultiTaskElasticNet, linear.MultiTaskElasticNetCV)
    add("many", linear.MultiTaskLasso, linear.MultiTaskLassoCV, PLSRegression)
    add("many", neighbors.KNeighborsRegressor, extremes=False)
    add(
        "many",
        lambda: MultiOutputRegressor(ridge()),
        seeded(DecisionTreeRegressor),
        seeded(RandomForestRegressor, **few),
    )
    add("positive", linear.PoissonRegressor, linear.GammaRegressor)
    add("positive", lambda: linear.TweedieRegressor(power=1.5))
    add("reg", seeded(DecisionTreeRegressor), seeded(ExtraTreeRegressor))
    add("reg", seeded(RandomForestRegressor, **few), seeded(ExtraTreesRegressor, **few))
    add("reg", seeded(GradientBoostingRegressor, **few), seeded(AdaBoostRegressor, **few))
    add("reg", seeded(HistGradientBoostingRegressor, max_iter=8))
    add("reg", seeded(BaggingRegressor, **few), seeded(MLPRegressor, hidden_layer_sizes=(5,), max_iter=50))
    add("reg", lambda: neighbors.KNeighborsRegressor(3, p=1, weights="distance"), extremes=False)
    add("reg", lambda: neighbors.KNeighborsRegressor(metric="chebyshev"), extremes=False)
    add("reg", neighbors.KNeighborsRegressor, lambda: neighbors.RadiusNeighborsRegressor(radius=9.0), extremes=False)
    add("reg", seeded(gaussian.GaussianProcessRegressor), extremes=False)
    pair = [("a", ridge()), ("b", DecisionTreeRegressor(max_depth=3, random_state=0))]
    add("reg", lambda: VotingRegressor(pair), lambda: StackingRegressor(pair, cv=2))
    add("outlier", seeded(IsolationForest, **few), svm.OneClassSVM, seeded(linear.SGDOneClassSVM))
    add("outlier", lambda: neighbors.LocalOutlierFactor(novelty=True), extremes=False)
    add("cluster", seeded(KMeans, n_clusters=3), seeded(MiniBatchKMeans, n_clusters=3), extremes=False)
    add("mixture", seeded(GaussianMixture, n_components=2), seeded(BayesianGaussianMixture, n_components=2))
    for covariance in ("tied", "diag", "spherical"):
        add("mixture", seeded(GaussianMixture, n_components=2, covariance_type=covariance))
    simple = (preprocessing.StandardScaler, preprocessing.MinMaxScaler, preprocessing.MaxAbsScaler)
    add("transform", *simple, preprocessing.RobustScaler, preprocessing.Binarizer)
    for norm in ("l2", "l1", "max"):  # scikit-learn takes very small rows for zeros, and overflows
        add("transform", lambda norm=norm: preprocessing.Normalizer(norm))
    add("transform", preprocessing.PolynomialFeatures, preprocessing.PowerTransformer)
    add("transform", lambda: preprocessing.PowerTransformer(standardize=False))
    add("transform", seeded(preprocessing.QuantileTransformer, n_quantiles=50))
    add("transform", lambda: preprocessing.KBinsDiscretizer(encode="ordinal"))
    add("transform", lambda: preprocessing.KBinsDiscretizer(encode="onehot-dense"), preprocessing.FunctionTransformer)
    add("transform", PCA, IncrementalPCA, TruncatedSVD, lambda: KernelPCA(3))
    add("transform", lambda: KernelPCA(3, kernel="rbf"))
    add("transform", seeded(GaussianRandomProjection, n_components=2))
    add("transform", seeded(neighbors.NeighborhoodComponentsAnalysis))
    add("transform", selection.SelectKBest, selection.SelectPercentile, selection.SelectFdr, selection.SelectFpr)
    found["SelectKBest"] = found["SelectKBest"]._replace(make=lambda: selection.SelectKBest(k=2))
    add("transform", selection.SelectFwe, selection.VarianceThreshold, selection.GenericUnivariateSelect)
    add("transform", lambda: selection.SelectFromModel(linear.LogisticRegression()))
    add("transform", lambda: selection.RFE(logistic(), n_features_to_select=2), lambda: selection.RFECV(logistic()))
    add("transform", SimpleImputer)
    embedding = seeded(RandomTreesEmbedding, n_estimators=3, max_depth=3, sparse_output=False)
    add("transform", embedding, seeded(RandomTreesEmbedding))
    add("transform", lambda: FeatureUnion([("a", preprocessing.StandardScaler()), ("b", PCA(2))]))
    columns = [("a", preprocessing.StandardScaler(), [0, 2]), ("b", preprocessing.MinMaxScaler(), [1])]
    add("transform", lambda: ColumnTransformer(columns, remainder="passthrough"))
    add("transform", preprocessing.KernelCenterer)
    add("transform", neighbors.KNeighborsTransformer, KNNImputer, extremes=False)
    add("neighbors", lambda: neighbors.NearestNeighbors(n_neighbors=3, radius=None), extremes=False)
    add("counts-transform", TfidfTransformer, lambda: TfidfTransformer(norm="l1", sublinear_tf=True))
    add("counts-transform", lambda: TfidfTransformer(norm=None), lambda: TfidfTransformer(use_idf=False))
    add("ints", lambda: preprocessing.OneHotEncoder(sparse_output=False), preprocessing.OrdinalEncoder)
    add("twoints", lambda: preprocessing.TargetEncoder(random_state=0))
    for library in ("lightgbm", "xgboost"):
        if importlib.util.find_spec(library) is not None:
            add_boosters(add, importlib.import_module(library))
    add("labels", preprocessing.LabelEncoder, preprocessing.LabelBinarizer)
    more_cases.add_cases(add, seeded)
    return found | {name: Case(make, f"lines-{kind}") for name, (make, kind) in text_cases.cases().items()}


def add_boosters(add: Callable[..., None], library: Any) -> None:
    """The estimators of LightGBM or XGBoost, which see missing values when they are fitted, too."""
    is_lightgbm = library.__name__ == "lightgbm"
    prefix, options = ("LGBM", {"verbose": -1}) if is_lightgbm else ("XGB", {})
    classifier, regressor = (getattr(library, f"{prefix}{kind}") for kind in ("Classifier", "Regressor"))
    dart = {"boosting_type": "dart"} if is_lightgbm else {"booster": "dart", "rate_drop": 0.3}
    for more in ({}, dart, {"reg_lambda": 3.0, "zero_as_missing": True} if is_lightgbm else {"max_delta_step": 1}):
        given = {"n_estimators": 20, "random_state": 0, **options, **more}
        add("cls", lambda given=given: classifier(**given))
        add("missing", lambda given=given: classifier(**given))
        add("missing-two", lambda given=given: classifier(**given))
        add("missing-reg", lambda given=given: regressor(**given))
    for objective in ("poisson", "tweedie", "huber") if is_lightgbm else ("count:poisson", "reg:tweedie", "reg:gamma"):
        add("positive", lambda o=objective: regressor(n_estimators=20, random_state=0, objective=o, **options))


def fitted(case: Case) -> Any:
    """The estimator, fitted."""
    x, y = data(case.kind.removesuffix("-transform"))
    estimator = case.make()
    name = type(estimator).__name__
    if case.kind == "labels":
        return estimator.fit(x)
    if name == "KernelCenterer":
        return estimator.fit(x[:FEATURES] @ x[:FEATURES].T)
    x = x.astype(np.float64) if x.dtype == np.float32 else x
    if name == "IsotonicRegression":
        x = x[:, :1]
    return estimator.fit(x) if y is None else estimator.fit(x, y)


def expected(estimator: Any, name: str, x: Array) -> list[Array]:
    """What a method gives, of numbers in float64 where they are in float32; of texts the places among the classes."""
    value = getattr(estimator, name)(x.astype(np.float64) if x.dtype == np.float32 else x)
    values = value if isinstance(value, list | tuple) else [value]
    arrays = [np.asarray(v.toarray() if hasattr(v, "toarray") else v) for v in values]
    return [np.searchsorted(estimator.classes_, v) if v.dtype.kind in "OU" else v for v in arrays]


def apart(got: Array, wanted: Array, tolerance: float, is_logarithm: bool = False) -> tuple[float, Array]:
    """The largest difference relative to the largest value, and whether it is too large, by row; nan equals itself.

    Logarithms of what is left of 1 less a probability that is 1 but for its last bits count as equal.
    """
    if got.shape != wanted.shape:
        return np.inf, np.ones(len(got), bool)
    if got.dtype == np.float32 and wanted.dtype.kind == "f":
        wanted = wanted.astype(np.float32)
    a, b = (np.asarray(v, np.float64).reshape(len(wanted), -1) for v in (got, wanted))
    finite = np.isfinite(b)
    with np.errstate(all="ignore"):
        scale = np.maximum(np.abs(np.where(finite, b, 0)).max(axis=-1, keepdims=True), 1e-30)
        usual = np.quantile(scale, 0.9)
        wrong = np.abs(a - b) / np.maximum(scale, usual)
    is_same = (a == b) | (np.isnan(a) & np.isnan(b))
    is_same |= is_logarithm & (np.abs(np.exp(a) - np.exp(b)) < 1e-15) & ((b > -38) | np.isinf(b))
    wrong = np.where(is_same, 0.0, np.where(np.isnan(wrong), np.inf, wrong))
    each = wrong.max(axis=-1, initial=0.0)
    return float(each.max(initial=0.0)), each > (0 if got.dtype.kind in "iub" else tolerance)


def examined(name: str, case: Case, compiles: bool = True) -> Row:
    """One estimator; ``compiles``: what is declared for float64 is."""
    try:
        estimator = fitted(case)
    except Exception as error:
        return Row(name, "not fitted", np.nan, _short(error), type(case.make()).__name__)
    kind = type(estimator).__name__
    x = asked(case, estimator)
    if kind == "IsotonicRegression":
        x = x[:, :1]
    note, worst, methods = "" if case.extremes else "without extremes; ", 0.0, []
    for dtype, tolerance in TOLERANCES.items():
        rows = x.astype(dtype) if x.dtype.kind == "f" else x
        try:
            traced = mlaot.sklearn.load(estimator, rows[:1]).trace()
            program = lower(passes.run("m", replace(traced, entries={})))
        except Exception as error:
            verdict = "unsupported" if isinstance(error, mlaot.MlaotError) else "wrong"
            return Row(name, verdict, np.nan, _short(error), kind)
        methods = list(traced.entries)
        lacking = [m for m in METHODS if hasattr(estimator, m) and m not in methods]
        try:
            wanted = {method: expected(estimator, method, rows) for method in methods}
        except ValueError as error:  # it overflows there itself
            calm = case._replace(extremes=False)
            return (
                examined(name, calm, compiles)
                if case.extremes
                else Row(name, "not fitted", np.nan, _short(error), kind)
            )
        found = iter(answers(program, traced, rows, compiles and dtype is np.float64))
        for method, values in wanted.items():
            for theirs in values:
                difference, wrong = apart(next(found), theirs, tolerance, method == "predict_log_proba")
                worst = max(worst, difference)
                if wrong.any():
                    where = f"{wrong.sum()} rows by {difference:.1g}, first in {np.flatnonzero(wrong)[0]}"
                    note += f"{method} differs in {where} ({np.dtype(dtype)}); "
    verdict = "wrong" if "differs" in note else "equal"
    return Row(name, verdict, worst, note + ", ".join(methods) + "".join(f"; no {m}" for m in lacking), kind)


def answers(program: Any, traced: Any, x: Array, compiles: bool) -> list[Array]:
    """What a module gives of rows, compiled or interpreted."""
    (port,) = traced.arguments
    dims = {"batch": len(x)}
    if vectorizers := traced.graph.inputs[port].attrs.get("vectorizers"):
        x = np.array(rows_of_terms(vectorizers, x.tolist()))
        dims[f"{port}_words"] = x.shape[1]
    if not compiles:
        found = evaluate(traced.graph, {**traced.parameters, port: x}, dims=dims)
        return [np.asarray(found[name]) for name in traced.graph.outputs]
    with tempfile.TemporaryDirectory() as folder:
        library = Library({"m": program}, AVAILABLE[-1], Path(folder))
        return list(library.call("m", "forward", {port: x}, dims).values())


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def passing() -> list[str]:
    """The names in the list that are equal."""
    lines = LIST.read_text(encoding="utf-8").splitlines() if LIST.exists() else []
    return [line.removeprefix("equal ").partition(":")[0] for line in lines if line.startswith("equal ")]


def uncovered(kinds: Collection[str]) -> Iterator[tuple[str, str]]:
    """The estimators of scikit-learn that none of ``kinds`` is, each with the reason."""
    from sklearn.utils import all_estimators

    for name, cls in all_estimators():
        if name not in kinds:
            has_methods = any(hasattr(cls, method) for method in METHODS)
            yield name, OUT.get(name, "no case" if has_methods else "has no method for new rows")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--select", default="", help="a regular expression that names must match")
    parser.add_argument("--write", action="store_true", help="write the list of those that pass")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    rows = []
    for name, case in table().items():
        if re.search(options.select, name):
            begun = time.monotonic()
            rows.append(row := examined(name, case))
            worst = "" if np.isnan(row.worst) else f"{row.worst:.1e}"
            print(f"{name:34} {row.verdict:11} {worst:8} {time.monotonic() - begun:5.1f}s {row.note}", flush=True)
    good = [row.name for row in rows if row.verdict == "equal"]
    print(f"{len(good)} of {len(rows)} are equal")
    lost = [row.name for row in rows if row.verdict != "equal" and row.name in passing()]
    if options.write:
        lines = [f"{'equal' if row.verdict == 'equal' else 'other'} {row.name}: {row.note}" for row in rows]
        lines += [f"other {name}: {why}" for name, why in uncovered({row.kind for row in rows})]
        LIST.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    print(f"{len(lost)} of the list do not: {', '.join(lost)}" if lost else "and all of the list")
    return int(bool(lost) or any(row.verdict == "wrong" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
