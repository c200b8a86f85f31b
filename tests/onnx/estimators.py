"""scikit-learn's estimators through skl2onnx, compiled, against scikit-learn itself.

    python -m tests.onnx.estimators                   # all that skl2onnx converts
    python -m tests.onnx.estimators --select 'SV'     # those whose name matches

Each is fitted on small seeded data, converted, compiled, and asked 1,000 rows, of which the first hold very large and
very small numbers, or nan where the estimator takes it. Labels must be equal, numbers within 1e-5 of the largest. Where
a row differs from scikit-learn, which computes in float64, it may still be what ONNX Runtime (where it is installed),
or else ONNX's reference, makes of the same file: such rows count as skl2onnx's. The last lines of the table are trees
that ``mlaot.nn.TreeEnsemble.from_sklearn`` takes without ONNX.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]
FEATURES = 4
TOLERANCE = 1e-5
EXTREMES = (1e30, -1e30, 0.0, -0.0, 1e-42, -1e-42, 1e30, 1e-38)  # larger ones overflow in sums, in any order


class Case(NamedTuple):
    """How an estimator is made, what it is fitted on, and what is compared."""

    make: Callable[[], Any]
    kind: str = "cls"  # of the data, and where there is no estimator to tell, of what it gives
    extremes: bool = True
    nan: bool = False


class Row(NamedTuple):
    """A line of the table."""

    name: str
    converts: str
    compiles: str
    worst: float
    note: str


def data(kind: str) -> tuple[Array, Any]:
    """What an estimator is fitted on."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, FEATURES)).astype(np.float32)
    total = x @ np.array([1.0, -2.0, 0.5, 0.25], np.float32)
    if kind == "two":
        return x, (total + 0.3 * rng.normal(size=120) > 0).astype(np.int64)
    if kind == "reg":
        return x, (total + 0.1 * rng.normal(size=120)).astype(np.float32)
    if kind == "positive":
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


def asked(case: Case) -> Array:
    """1,000 rows to compare."""
    rng = np.random.default_rng(1)
    kind = case.kind
    if kind == "labels":
        return rng.integers(0, 5, size=1000).astype(np.int64)
    if kind in ("ints", "twoints"):
        return rng.integers(0, 4, size=(1000, FEATURES)).astype(np.int64)
    if kind.startswith("counts"):
        return rng.integers(0, 6, size=(1000, FEATURES)).astype(np.float32)
    x = rng.normal(size=(1000, FEATURES)).astype(np.float32)
    x = np.abs(x) if kind == "positive" else x
    if case.extremes:
        for i, value in enumerate(EXTREMES):
            x[i] = abs(value) if kind == "positive" else value
            x[i + 10, i % FEATURES] = abs(value) if kind == "positive" else value
    if case.nan:
        x[30:60][rng.random(size=(30, FEATURES)) < 0.4] = np.nan
    return x


def table() -> dict[str, Case]:
    """Every estimator of skl2onnx's that works on numbers."""
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
        add(kind, seeded(DecisionTreeClassifier, max_depth=5), seeded(ExtraTreeClassifier), nan=True)
        add(kind, seeded(RandomForestClassifier, **few), seeded(ExtraTreesClassifier, **few), nan=True)
        add(kind, seeded(GradientBoostingClassifier, **few), seeded(AdaBoostClassifier, **few))
        add(kind, seeded(HistGradientBoostingClassifier, max_iter=8), nan=True)
        add(kind, seeded(BaggingClassifier, **few), bayes.GaussianNB, bayes.BernoulliNB)
        add(kind, seeded(MLPClassifier, hidden_layer_sizes=(5,), max_iter=50), discriminant.LinearDiscriminantAnalysis)
        add(kind, discriminant.QuadraticDiscriminantAnalysis, neighbors.KNeighborsClassifier)
        add(kind, lambda: neighbors.RadiusNeighborsClassifier(radius=9.0), extremes=False)
        add(kind, seeded(gaussian.GaussianProcessClassifier), extremes=False)
        add(kind, lambda: CalibratedClassifierCV(logistic(), cv=2), lambda: multiclass.OneVsRestClassifier(logistic()))
        add(kind, lambda: CalibratedClassifierCV(logistic(), cv=2, method="isotonic"))
        add(kind, lambda: multiclass.OneVsOneClassifier(linear.LogisticRegression()))
        trees = [("a", logistic()), ("b", DecisionTreeClassifier(max_depth=3, random_state=0))]
        add(kind, lambda t=trees: VotingClassifier(t, flatten_transform=False))
        add(kind, lambda t=trees: VotingClassifier(t, voting="soft", flatten_transform=False))
        add(kind, lambda t=trees: StackingClassifier(t, cv=2), lambda: GridSearchCV(logistic(), {"C": [1, 2]}, cv=2))
        add(kind, lambda: Pipeline([("a", preprocessing.StandardScaler()), ("b", logistic())]))
    add("two", lambda: TunedThresholdClassifierCV(logistic(), cv=2))
    add("counts", bayes.MultinomialNB, bayes.ComplementNB)
    add("ints", bayes.CategoricalNB)
    add("multilabel", lambda: MultiOutputClassifier(logistic()))
    add("multilabel", seeded(MLPClassifier, max_iter=50), neighbors.KNeighborsClassifier)
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
    add("many", linear.MultiTaskLasso, linear.MultiTaskLassoCV, PLSRegression, neighbors.KNeighborsRegressor)
    add(
        "many",
        lambda: MultiOutputRegressor(ridge()),
        seeded(DecisionTreeRegressor),
        seeded(RandomForestRegressor, **few),
    )
    add("positive", linear.PoissonRegressor, linear.GammaRegressor, extremes=False)
    add("positive", lambda: linear.TweedieRegressor(power=1.5), extremes=False)
    add("reg", seeded(DecisionTreeRegressor), seeded(ExtraTreeRegressor), nan=True)
    add("reg", seeded(RandomForestRegressor, **few), seeded(ExtraTreesRegressor, **few), nan=True)
    add("reg", seeded(GradientBoostingRegressor, **few), seeded(AdaBoostRegressor, **few))
    add("reg", seeded(HistGradientBoostingRegressor, max_iter=8), nan=True)
    add("reg", seeded(BaggingRegressor, **few), seeded(MLPRegressor, hidden_layer_sizes=(5,), max_iter=50))
    add("reg", neighbors.KNeighborsRegressor, lambda: neighbors.RadiusNeighborsRegressor(radius=9.0), extremes=False)
    add("reg", seeded(gaussian.GaussianProcessRegressor), extremes=False)
    pair = [("a", ridge()), ("b", DecisionTreeRegressor(max_depth=3, random_state=0))]
    add("reg", lambda: VotingRegressor(pair), lambda: StackingRegressor(pair, cv=2))
    add("outlier", seeded(IsolationForest, **few), svm.OneClassSVM, seeded(linear.SGDOneClassSVM))
    add("outlier", lambda: neighbors.LocalOutlierFactor(novelty=True), extremes=False)
    add("cluster", seeded(KMeans, n_clusters=3), seeded(MiniBatchKMeans, n_clusters=3), extremes=False)
    add("mixture", seeded(GaussianMixture, n_components=2), seeded(BayesianGaussianMixture, n_components=2))
    for covariance in ("tied", "diag", "spherical"):
        add("mixture", seeded(GaussianMixture, n_components=2, covariance_type=covariance), extremes=False)
    simple = (preprocessing.StandardScaler, preprocessing.MinMaxScaler, preprocessing.MaxAbsScaler)
    add("transform", *simple, preprocessing.RobustScaler, preprocessing.Binarizer)
    for norm in ("l2", "l1", "max"):  # scikit-learn takes very small rows for zeros, and overflows
        add("transform", lambda norm=norm: preprocessing.Normalizer(norm), extremes=False)
    add("transform", preprocessing.PolynomialFeatures, preprocessing.PowerTransformer, extremes=False)
    add("transform", seeded(preprocessing.QuantileTransformer, n_quantiles=50), extremes=False)
    add("transform", lambda: preprocessing.KBinsDiscretizer(encode="ordinal"))
    add("transform", lambda: preprocessing.KBinsDiscretizer(encode="onehot-dense"), preprocessing.FunctionTransformer)
    add("transform", PCA, IncrementalPCA, TruncatedSVD, lambda: KernelPCA(3), extremes=False)
    add("transform", lambda: KernelPCA(3, kernel="rbf"), extremes=False)
    add("transform", seeded(GaussianRandomProjection, n_components=2), extremes=False)
    add("transform", seeded(neighbors.NeighborhoodComponentsAnalysis), extremes=False)
    add("transform", selection.SelectKBest, selection.SelectPercentile, selection.SelectFdr, selection.SelectFpr)
    found["SelectKBest"] = found["SelectKBest"]._replace(make=lambda: selection.SelectKBest(k=2))
    add("transform", selection.SelectFwe, selection.VarianceThreshold, selection.GenericUnivariateSelect)
    add("transform", lambda: selection.SelectFromModel(linear.LogisticRegression()))
    add("transform", lambda: selection.RFE(logistic(), n_features_to_select=2), lambda: selection.RFECV(logistic()))
    add("transform", SimpleImputer, nan=True)
    add("transform", KNNImputer, nan=True, extremes=False)
    add("transform", seeded(RandomTreesEmbedding, n_estimators=3, max_depth=3, sparse_output=False))
    add("transform", lambda: FeatureUnion([("a", preprocessing.StandardScaler()), ("b", PCA(2))]), extremes=False)
    columns = [("a", preprocessing.StandardScaler(), [0, 2]), ("b", preprocessing.MinMaxScaler(), [1])]
    add("transform", lambda: ColumnTransformer(columns, remainder="passthrough"))
    add("transform", preprocessing.KernelCenterer, neighbors.KNeighborsTransformer)
    add("neighbors", lambda: neighbors.NearestNeighbors(n_neighbors=3, radius=None), extremes=False)
    add("counts-transform", TfidfTransformer)
    add("ints", lambda: preprocessing.OneHotEncoder(sparse_output=False), preprocessing.OrdinalEncoder)
    add("twoints", lambda: preprocessing.TargetEncoder(random_state=0))
    add("labels", preprocessing.LabelEncoder, preprocessing.LabelBinarizer)
    return found


def fitted(case: Case) -> Any:
    """The estimator, fitted."""
    x, y = data(case.kind.removesuffix("-transform"))
    estimator = case.make()
    name = type(estimator).__name__
    if case.kind == "labels":
        return estimator.fit(x)
    if name == "KernelCenterer":
        return estimator.fit(x[:FEATURES] @ x[:FEATURES].T)
    return estimator.fit(x) if y is None else estimator.fit(x, y)


def expected(estimator: Any, case: Case, x: Array) -> list[Array]:
    """What scikit-learn says, in the order of the file's outputs."""
    if case.kind == "outlier":
        return [estimator.predict(x), np.asarray(estimator.decision_function(x))]
    if case.kind == "cluster":
        return [estimator.predict(x), np.asarray(estimator.transform(x))]
    if case.kind == "mixture":
        return [estimator.predict(x), np.asarray(estimator.predict_proba(x))]
    if type(estimator).__name__ == "NearestNeighbors":
        distance, index = estimator.kneighbors(x)
        return [index, distance]
    if not hasattr(estimator, "predict") or case.kind.endswith("transform"):
        y = estimator.transform(x)
        return [np.asarray(y.toarray() if hasattr(y, "toarray") else y)]
    if not hasattr(estimator, "classes_"):
        return [np.asarray(estimator.predict(x))]
    for method in ("predict_proba", "decision_function"):
        if hasattr(estimator, method):
            found = getattr(estimator, method)(x)
            return [estimator.predict(x), np.stack(found) if isinstance(found, list) else np.asarray(found)]
    return [np.asarray(estimator.predict(x))]


def converted(estimator: Any, x: Array) -> Any:
    """The ONNX file."""
    import onnx
    from skl2onnx import __max_supported_opset__, to_onnx

    is_classifier = hasattr(estimator, "classes_") and hasattr(estimator, "predict")
    options = {id(estimator): {"zipmap": False}} if is_classifier else None
    opset: Any = min(__max_supported_opset__, onnx.defs.onnx_opset_version())
    opset = {"": opset, "ai.onnx.ml": 3} if type(estimator).__name__ == "IsolationForest" else opset
    try:
        return to_onnx(estimator, x[:1], options=options, target_opset=opset)
    except NameError:  # the estimator has no such option
        return to_onnx(estimator, x[:1], target_opset=opset)


def apart(got: Array, wanted: Array) -> tuple[float, Array]:
    """The largest difference relative to the largest value, by row; not a number equals itself."""
    wanted = np.asarray(wanted)
    if got.size != wanted.size:
        if wanted.ndim == 1 and got.shape == (len(wanted), 2):  # a decision function of two classes
            got = got[:, 1]
        else:
            return np.inf, np.ones(len(got), bool)
    a, b = (np.asarray(v, np.float64).reshape(len(wanted), -1) for v in (got, wanted))
    finite = np.isfinite(b)
    with np.errstate(all="ignore"):
        scale = np.maximum(np.abs(np.where(finite, b, 0)).max(axis=-1, keepdims=True), 1e-30)
        usual = np.quantile(scale, 0.9)
        wrong = np.abs(a - b) / np.maximum(scale, usual)
    wrong = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.where(np.isnan(wrong), np.inf, wrong))
    each = wrong.max(axis=-1, initial=0.0)
    return float(each.max(initial=0.0)), each > (0 if got.dtype.kind in "iu" else TOLERANCE)


def runtime(model: Any, x: Array) -> list[Any] | None:
    """What a runtime makes of the file."""
    try:
        import onnxruntime

        onnxruntime.set_default_logger_severity(4)
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        found: list[Any] = session.run(None, {session.get_inputs()[0].name: x})
    except ImportError:
        from onnx.reference import ReferenceEvaluator

        found = ReferenceEvaluator(model).run(None, {model.graph.input[0].name: x})  # type: ignore[assignment]
    except Exception:
        return None
    return found


def examined(name: str, case: Case) -> Row:
    """One estimator."""
    from mlaot.onnx import Backend

    try:
        estimator = fitted(case)
        x = asked(case)
        if case.kind == "labels" and type(estimator).__name__ == "LabelBinarizer":
            x = x.reshape(-1, 1)
        if type(estimator).__name__ == "KernelCenterer":
            x = x[30:]
        wanted = expected(estimator, case, x.ravel() if case.kind == "labels" else x)
    except Exception as error:
        return Row(name, "not fitted", "", np.nan, _short(error))
    try:
        model = converted(estimator, x)
    except Exception as error:
        return Row(name, "no", "", np.nan, _short(error))
    try:
        got = [np.stack(v) if isinstance(v, list) else v for v in Backend.prepare(model).run([x])]
    except NotImplementedError as error:
        return Row(name, "yes", "unsupported", np.nan, _short(error))
    except Exception as error:
        return Row(name, "yes", "ERROR", np.nan, f"{type(error).__name__}: {_short(error)}")
    note, worst, other = "", 0.0, None
    for i, value in enumerate(wanted[: len(got)]):
        difference, rows = apart(got[i], value)
        if not rows.any():
            worst = max(worst, difference)
            continue
        other = other or runtime(model, x)
        if other is None:
            worst, note = max(worst, difference), f"{note} output {i} differs in {rows.sum()} rows, no runtime;"
            continue
        again, still = apart(got[i], np.asarray(other[i]))
        if still.any():
            theirs = apart(np.asarray(other[i]), value)[1]
            wrong = rows & (still if len(still) == len(rows) else True)
            what = f"{int(wrong.sum())} rows from both scikit-learn and the runtime (itself {int(theirs.sum())} rows)"
            worst, note = max(worst, difference), f"{note} output {i} WRONG: {difference:.1g}, {what};"
        else:
            worst = max(worst, again)
            note = f"{note} output {i}: {int(rows.sum())} rows as the runtime, {difference:.1g} from scikit-learn;"
    return Row(name, "yes", "WRONG" if "WRONG" in note else "yes", worst, note.strip())


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def _of_rows(trees: Any, kind: Any) -> Callable[[Any], Any]:
    def forward(x: Any) -> Any:
        return trees(x)

    forward.__annotations__ = {"x": kind}
    return forward


def direct() -> Iterator[Row]:
    """Trees without ONNX."""
    import sklearn.ensemble as ensemble

    import mlaot
    from mlaot import passes
    from mlaot.lower.lower import lower
    from mlaot.nn import TreeEnsemble
    from tests.compiled import AVAILABLE, Library

    rows = mlaot.dim("rows")
    made = {"cls": "Classifier", "two": "Classifier", "reg": "Regressor"}
    for kind, suffix in made.items():
        case = Case(
            lambda s=suffix: getattr(ensemble, f"HistGradientBoosting{s}")(max_iter=8, random_state=0), kind, nan=True
        )
        estimator, x = fitted(case), asked(case)
        for output, value in zip(("predict", "predict_proba"), expected(estimator, case, x), strict=False):
            name = f"{type(estimator).__name__} {kind} {output}"
            try:
                trees = TreeEnsemble.from_sklearn(estimator, output)
                declared = mlaot.model(_of_rows(trees, mlaot.f32[rows, FEATURES]))
                program = lower(passes.run("trees", declared.trace()), ("base",))
                with tempfile.TemporaryDirectory() as folder:
                    library = Library({"trees": program}, AVAILABLE[-1], Path(folder))
                    (got,) = library.call("trees", "forward", {"x": x}, {"rows": len(x)}).values()
                difference, differing = apart(got, value)
                yield Row(name, "directly", "WRONG" if differing.any() else "yes", difference, "")
            except Exception as error:
                yield Row(name, "directly", "ERROR", np.nan, _short(error))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--select", default="", help="a regular expression that names must match")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    rows = []

    def report(row: Row, seconds: float = 0.0) -> None:
        rows.append(row)
        worst = "" if np.isnan(row.worst) else f"{row.worst:.1e}"
        print(f"{row.name:34} {row.converts:10} {row.compiles:12} {worst:8} {seconds:5.1f}s {row.note}", flush=True)

    for name, case in table().items():
        if re.search(options.select, name):
            begun = time.monotonic()
            report(examined(name, case), time.monotonic() - begun)
    if re.search(options.select, "HistGradientBoosting, from_sklearn"):
        for row in direct():
            report(row)
    good = sum(row.compiles == "yes" for row in rows)
    bad = [row.name for row in rows if row.compiles in ("WRONG", "ERROR")]
    print(f"{good} of {len(rows)} right, {len(bad)} wrong: {', '.join(bad)}")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
