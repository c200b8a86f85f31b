"""Make ``trees.npz``: estimators that scikit-learn fitted, as arrays, and what they predict.

pip install scikit-learn==1.9.1 && python -m tests.reference.make_trees
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from sklearn import ensemble, tree

from .trees import ESTIMATORS, OUTPUTS, TREE, Array, data


def arrays_of(made: Any) -> dict[str, Any]:
    """The attributes that ``stand_in`` makes an estimator of."""
    found = {k: getattr(made, k) for k in ("classes_", "learning_rate", "n_outputs_") if hasattr(made, k)}
    if hasattr(made, "_loss"):
        found["link"] = type(made._loss.link).__name__
    if hasattr(made, "_predictors"):
        nodes = [predictor.nodes for stage in made._predictors for predictor in stage]
        sizes = {"sizes": [len(n) for n in nodes], "outputs": made.n_trees_per_iteration_}
        return found | sizes | {"nodes": np.concatenate(nodes), "base": made._baseline_prediction}
    fitted = np.ravel(getattr(made, "estimators_", [made]))
    found["sizes"] = [each.tree_.node_count for each in fitted]
    found |= {field: np.concatenate([getattr(each.tree_, field) for each in fitted]) for field in TREE}
    if hasattr(made, "init_"):
        init = made.init_ if isinstance(made.init_, str) else type(made.init_).__name__
        base = made._raw_predict_init(np.zeros((1, 4), np.float32))
        found |= {"init": init, "base": base, "outputs": made.estimators_.shape[1]}
    return found


def main() -> None:
    stored: dict[str, Array] = {}
    for name, (kind, options, target, nan) in ESTIMATORS.items():
        x, targets = data(nan)
        seed = {"random_state": 0}
        made = getattr(tree if hasattr(tree, kind) else ensemble, kind)(**options, **seed).fit(x, targets[target])
        found = arrays_of(made) | {f"out {o}": getattr(made, o)(x) for o in OUTPUTS if hasattr(made, o)}
        stored |= {f"{name}/{key}": np.asarray(value) for key, value in found.items()}
    np.savez_compressed(Path(__file__).with_name("trees.npz"), **stored)


if __name__ == "__main__":
    main()
