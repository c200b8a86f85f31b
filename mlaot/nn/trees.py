"""Decision trees as a layer, which can be read from fitted estimators of scikit-learn, LightGBM and XGBoost."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mlaot.frontend.numpy import astype
from mlaot.frontend.numpy.trees import tree_ensemble
from mlaot.ir.types import f32, f64
from mlaot.nn.arguments import Array
from mlaot.nn.boosters import from_lightgbm, from_xgboost
from mlaot.nn.fitted_trees import FittedTrees, from_sklearn
from mlaot.nn.module import Module

__all__ = ["TreeEnsemble"]

READERS: dict[str, Callable[[Any, str], FittedTrees]] = {"lightgbm": from_lightgbm, "xgboost": from_xgboost}


class TreeEnsemble(Module):
    """Decision trees over ``x`` [.., features]: ``mlaot.tree_ensemble`` and its arrays, which are not parameters."""

    def __init__(
        self,
        feature: Any,
        threshold: Any,
        true: Any,
        false: Any,
        roots: Any,
        leaves: Any,
        *,
        mode: str | Sequence[str] = "<=",
        nan_is_true: Any = False,
        aggregate: str = "sum",
        base: Any = 0.0,
    ) -> None:
        options = {"mode": mode, "nan_is_true": nan_is_true, "aggregate": aggregate, "base": base}
        self._trees = FittedTrees((feature, threshold, true, false, roots, leaves), options)

    def forward(self, x: Array) -> Array:
        trees = self._trees
        if not math.isnan(trees.missing):
            x = np.where(x == trees.missing, np.asarray(np.nan, np.float32), x)
        if trees.is_single:
            is_wide = x.dtype not in (f32, np.float32)
            x = astype(x, f32)
            x = astype(x, f64) if is_wide else x
        return trees.finish(tree_ensemble(x, *trees.arrays, **trees.options))

    @classmethod
    def from_sklearn(cls, estimator: Any, output: str | None = None) -> TreeEnsemble:
        """Read the trees of a fitted estimator of scikit-learn, LightGBM or XGBoost.

        The estimators of scikit-learn are decision trees, random forests, extra trees, gradient boosting, histogram
        gradient boosting, isolation forests and totally random trees embeddings.

        ``output`` is the method whose result ``forward`` computes. It is ``predict`` (the default for regressors),
        ``predict_proba`` (the default for classifiers), ``decision_function`` or ``transform``. ``class_index`` gives
        the index in ``classes_`` of the class that ``predict`` returns. As in the libraries, features are compared as
        float32, except that histogram gradient boosting and LightGBM compare them in their own dtype. Results have the
        dtype of ``x``.
        """
        output = output or ("predict_proba" if hasattr(estimator, "classes_") else "predict")
        read = READERS.get(type(estimator).__module__.partition(".")[0], from_sklearn)
        trees = read(estimator, output)
        ensemble = cls(*trees.arrays, **trees.options)
        ensemble._trees = trees
        return ensemble
