"""Estimators in skops files, which hold data of trusted types, and no code."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from mlaot.errors import MlaotError

Array = np.ndarray[Any, Any]
PICKLES = (".pkl", ".pickle", ".joblib", ".dill", ".cloudpickle")
DISTANCES = "BrayCurtis Canberra Chebyshev Euclidean Hamming Mahalanobis Manhattan Minkowski SEuclidean"
METRICS = [f"{name}Distance{bits}" for name in DISTANCES.split() for bits in (32, 64)]
# Types in fitted estimators besides those that skops trusts by default: data only, and functions of arrays.
TRUSTED = {
    f"{module}.{name}"
    for module, names in {
        "collections": "OrderedDict",
        "numpy": "dtype max mean median min",
        "scipy._lib.array_api_compat.numpy._aliases": "asarray",
        "scipy.interpolate._bsplines": "BSpline",
        "scipy.sparse._csc": "csc_array csc_matrix",
        "scipy.sparse._csr": "csr_array csr_matrix",
        "sklearn._loss.loss": "HalfTweedieLoss HalfTweedieLossIdentity",
        "sklearn.calibration": "_CalibratedClassifier _SigmoidCalibration _TemperatureScaling",
        "sklearn.cluster._bisect_k_means": "_BisectingTree",
        "sklearn.ensemble._hist_gradient_boosting.predictor": "TreePredictor",
        "sklearn.feature_selection._univariate_selection": "chi2 f_classif f_regression",
        "sklearn.feature_selection._mutual_info": "mutual_info_classif mutual_info_regression",
        "sklearn.gaussian_process._gpc": "_BinaryGaussianProcessClassifierLaplace",
        "sklearn.gaussian_process.kernels": "CompoundKernel ConstantKernel DotProduct ExpSineSquared Exponentiation "
        "Matern PairwiseKernel Product RBF RationalQuadratic Sum WhiteKernel",
        "sklearn.impute._iterative": "IterativeImputer _ImputerTriplet",
        "sklearn.metrics._classification": "balanced_accuracy_score",
        "sklearn.metrics._dist_metrics": " ".join(METRICS),
        "sklearn.metrics._scorer": "_CurveScorer _PassthroughScorer _Scorer",
        "sklearn.model_selection._split": "GroupKFold KFold ShuffleSplit StratifiedKFold StratifiedShuffleSplit",
        "sklearn.multiclass": "_ConstantPredictor",
        "sklearn.neighbors._ball_tree": "BallTree",
        "sklearn.neighbors._kd_tree": "KDTree",
        "sklearn.neural_network._stochastic_optimizers": "AdamOptimizer SGDOptimizer",
        "sklearn.tree._tree": "Tree",
        "sklearn.utils._bunch": "Bunch",
        "sklearn.utils._metadata_requests": "MetadataRequest MethodMetadataRequest",
    }.items()
    for name in names.split()
}


def read(path: Path) -> tuple[Any, bool]:
    """Read the estimator of a skops file; return it, and whether all its parts are scikit-learn's own."""
    if path.suffix in PICKLES:
        raise MlaotError(
            f"{path.name}: a pickle runs code where it is read; store the estimator by skops.io.dump, "
            'or load it in a model.py and name that: sklearn = "model:pipeline"'
        )
    if not path.is_file():
        raise MlaotError(f"no file {path.name} in {path.resolve().parent}; expected one that skops.io.dump wrote")
    try:
        skops = importlib.import_module("skops.io")
    except ModuleNotFoundError:
        raise MlaotError(f"{path.name}: reading it needs the package skops: pip install skops") from None
    with undamaged(path.name):
        unknown = skops.get_untrusted_types(file=path)
        if TRUSTED.issuperset(unknown):
            with as_data():
                return skops.load(path, trusted=unknown), not unknown
    others = ", ".join(sorted(set(unknown) - TRUSTED))
    raise MlaotError(f"{path.name} holds {others}, which is not trusted; name the estimator in a module instead")


@contextmanager
def undamaged(name: str) -> Iterator[None]:
    """In the context, convert any error to one that says that the file is damaged."""
    try:
        yield
    except MlaotError:
        raise
    except Exception as error:  # of zip, JSON, NumPy, or what a type or a rule makes of its state
        text = " ".join(f"{type(error).__name__}: {error}".split())
        raise MlaotError(f"{name} is no skops file, or it is damaged: {text:.300}") from None


class Tree:
    """The nodes of a tree as data. scikit-learn's own class would follow the links of a file without a check."""

    def __init__(self, features: int, classes: Array, outputs: int) -> None:
        pass

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        nodes, self.value = np.asarray(state["nodes"]), np.asarray(state["values"], np.float64)
        if nodes.ndim != 1 or self.value.ndim != 3 or len(nodes) != len(self.value):
            raise ValueError(f"{nodes.shape} nodes of a tree with values {self.value.shape}")
        self.children_left, self.children_right = nodes["left_child"], nodes["right_child"]
        self.feature, self.threshold, self.node_count = nodes["feature"], nodes["threshold"], len(nodes)
        if "missing_go_to_left" in (nodes.dtype.names or ()):
            self.missing_go_to_left = nodes["missing_go_to_left"]


class Points:
    """The points of a tree of neighbours, as data."""

    def __init__(self, *args: Any) -> None:
        pass

    def __setstate__(self, state: Sequence[Any]) -> None:
        self.data, self.sample_weight = state[0], state[12]


class Metric:
    """A distance by name, as scikit-learn's own class crashes for an unexpected state."""

    def __setstate__(self, state: object) -> None:
        pass


STAND_INS = (
    ("sklearn.tree._tree", "Tree", Tree),
    ("sklearn.neighbors._kd_tree", "KDTree", Points),
    ("sklearn.neighbors._ball_tree", "BallTree", Points),
    *(("sklearn.metrics._dist_metrics", name, Metric) for name in METRICS),
)


@contextmanager
def as_data() -> Iterator[None]:
    """In the context, replace classes of compiled code by classes of data."""
    with ExitStack() as stack:
        for module, name, kind in STAND_INS:
            stack.enter_context(patch.object(importlib.import_module(module), name, kind))
        yield
