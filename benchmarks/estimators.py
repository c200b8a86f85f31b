"""Estimators of scikit-learn as modules, beside scikit-learn itself, onnxruntime, and tl2cgen for trees.

    MLAOT_ISA=v3 python benchmarks/estimators.py
    python benchmarks/estimators.py --only 'KNeighbors|SVC' --rows 1,20,1000

Each estimator is fitted on made-up data and predicts some rows: probabilities where it has them, otherwise what
``predict`` gives. mlaot and onnxruntime get it as ``skl2onnx`` writes it. All answers are compared with scikit-learn's
first. One core and one thread for all; they take turns, and the best of their short rounds counts. Rows are float32, as
the others take them, and scikit-learn's trees, too.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import tempfile
import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from common import chosen_isas, compile_program, load, one_core, out, table
from sweep import first_line, times

import mlaot.sklearn
from mlaot.generate import compile_model
from mlaot.settings.options import Options

TOLERANCE = 1e-4
FITTED, FEATURES, CLASSES = 2000, 30, 4
Array = np.ndarray[Any, Any]
Call = Callable[[], Any]


def estimators() -> Iterator[Any]:
    """One estimator after another, not yet fitted; those of trees with up to 100 of them."""
    from sklearn import (
        cluster,
        decomposition,
        ensemble,
        linear_model,
        naive_bayes,
        neighbors,
        neural_network,
        svm,
        tree,
    )
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    yield linear_model.LinearRegression()
    yield linear_model.Lasso(alpha=0.1)
    yield linear_model.LogisticRegression()
    yield linear_model.SGDClassifier(random_state=0)
    yield linear_model.RidgeClassifier()
    yield svm.LinearSVC()
    yield svm.SVC()
    yield svm.SVC(kernel="poly")
    yield svm.SVC(kernel="linear")
    yield svm.SVR()
    yield svm.OneClassSVM()
    yield neighbors.KNeighborsClassifier()
    yield neighbors.KNeighborsClassifier(30, weights="distance")
    yield neighbors.KNeighborsRegressor()
    yield neighbors.KNeighborsRegressor(3, p=1)
    yield tree.DecisionTreeClassifier(random_state=0)
    yield ensemble.RandomForestClassifier(random_state=0)
    yield ensemble.RandomForestRegressor(random_state=0)
    yield ensemble.ExtraTreesClassifier(random_state=0, max_depth=8)
    yield ensemble.GradientBoostingRegressor(random_state=0, max_depth=6)
    yield ensemble.GradientBoostingClassifier(random_state=0, n_estimators=50)
    yield ensemble.HistGradientBoostingClassifier(random_state=0)
    yield ensemble.IsolationForest(random_state=0)
    yield ensemble.AdaBoostClassifier(random_state=0)
    yield naive_bayes.GaussianNB()
    yield neural_network.MLPClassifier(random_state=0, max_iter=30)
    yield cluster.KMeans(8, random_state=0, n_init=1)
    yield make_pipeline(StandardScaler(), decomposition.PCA(10), linear_model.LogisticRegression())
    yield make_pipeline(StandardScaler(), svm.SVC())


def name_of(estimator: Any) -> str:
    """``SVC(kernel='poly')``, or the steps of a pipeline."""
    steps = [step for _, step in getattr(estimator, "steps", [("", estimator)])]
    return " + ".join(re.sub(r"\s+", " ", re.sub(r",? ?random_state=0|,? ?n_init=1", "", repr(s))) for s in steps)


def rows_of(count: int, seed: int) -> Array:
    return np.random.default_rng(seed).normal(size=(count, FEATURES)).astype(np.float32)


def fitted_on(regression: bool) -> tuple[Array, Array]:
    """Rows of normal numbers, and the class of each, or a smooth function of it with noise."""
    rng, rows = np.random.default_rng(0), rows_of(FITTED, 1)
    scores = np.tanh(rows @ rng.normal(size=(FEATURES, CLASSES)) / 3) + rng.normal(size=(FITTED, CLASSES)) / 10
    return rows, scores[:, 0] if regression else scores.argmax(1)


def fit(estimator: Any) -> str:
    """Fit it, and say which of its methods is timed."""
    from sklearn.base import is_regressor

    rows, targets = fitted_on(is_regressor(estimator))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some do not converge, which does not change how fast they predict
        estimator.fit(rows, targets)
    return "predict_proba" if hasattr(estimator, "predict_proba") else "predict"


def module_of(estimator: Any, folder: Path) -> Any:
    """The extension module."""
    program = compile_model(mlaot.sklearn.load(estimator), "nn.nn", Options(isas=chosen_isas()))
    return load(compile_program(program, "nn", folder))


def session_of(estimator: Any, method: str) -> Callable[[Array], Any]:
    """Onnxruntime, asked for what ``method`` gives."""
    import onnxruntime
    from skl2onnx import to_onnx

    more = {"options": {id(estimator): {"zipmap": False}}} if method == "predict_proba" else {}
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    model = to_onnx(estimator, np.zeros((1, FEATURES), np.float32), **more)
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    source, wanted = session.get_inputs()[0].name, [session.get_outputs()[method == "predict_proba"].name]
    return lambda rows: session.run(wanted, {source: rows})[0]


def trees_of(estimator: Any, folder: Path) -> Callable[[Array], Any]:
    """The C of tl2cgen."""
    import tl2cgen
    import treelite

    library = folder / "trees.so"
    model = treelite.sklearn.import_model(estimator)
    tl2cgen.export_lib(model, toolchain="gcc", libpath=library, params={"quantize": 0}, verbose=False)
    predictor = tl2cgen.Predictor(library, nthread=1)
    return lambda rows: predictor.predict(tl2cgen.DMatrix(rows))


def compare(estimator: Any, counts: list[int]) -> list[tuple[str, int, dict[str, float]]]:
    """Microseconds by runtime, for each number of rows."""
    name, method = name_of(estimator), fit(estimator)
    answers: dict[str, Callable[[Array], Any]] = {"scikit-learn": getattr(estimator, method)}
    with tempfile.TemporaryDirectory() as given:
        folder = Path(given)
        makers: dict[str, Callable[[], Callable[[Array], Any]]] = {
            "mlaot": lambda: getattr(module_of(estimator, folder), method),
            "onnxruntime": lambda: session_of(estimator, method),
        }
        if find_spec("tl2cgen") and getattr(estimator, "max_depth", None):  # gcc takes minutes for deep ones
            makers["tl2cgen"] = lambda: trees_of(estimator, folder)
        sample = rows_of(50, 2)
        expected = np.asarray(answers["scikit-learn"](sample))
        for runtime, make in makers.items():
            try:
                answer = make()
                found = np.asarray(answer(sample)).reshape(expected.shape)
                if found.dtype.kind in "iu":
                    np.testing.assert_array_equal(found, expected)
                np.testing.assert_allclose(found, expected, rtol=TOLERANCE, atol=TOLERANCE)
                answers[runtime] = answer
            except Exception as error:
                out(f"  {name}: {runtime} is left out: {first_line(error)}")
        found = []
        for count in counts:
            rows = rows_of(count, 2)
            us = times({runtime: lambda f=answer, x=rows: f(x) for runtime, answer in answers.items()})
            found.append((name, count, us))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="REGEX", help="the estimators whose names match")
    parser.add_argument("--rows", default="1,1000", help="how many rows a call predicts, several with commas between")
    options = parser.parse_args()
    one_core()
    counts = [int(word) for word in options.rows.split(",")]
    peers, lines, ratios = ["scikit-learn", "onnxruntime", "tl2cgen"], [], []
    for estimator in estimators():
        if not re.search(options.only, name_of(estimator)):
            continue
        for name, count, us in compare(estimator, counts):
            own, best = us.pop("mlaot", float("nan")), min(us.values())
            ratios.append(own / best)
            cells = [f"{us[peer]:,.1f}" if peer in us else "-" for peer in peers]
            lines.append([name, str(count), f"{own:,.2f}", *cells, f"{own / best:.2f}"])
            out("  ".join(lines[-1]))
    table(["us a call", "rows", "mlaot", *peers, "mlaot by the best"], sorted(lines, key=lambda line: -float(line[-1])))
    known = [ratio for ratio in ratios if ratio == ratio]
    if known:
        out(f"{len(known)} rows: geometric mean {statistics.geometric_mean(known):.2f}, worst {max(known):.2f}")


if __name__ == "__main__":
    main()
