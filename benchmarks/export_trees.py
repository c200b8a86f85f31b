"""The arrays of gradient boosting that scikit-learn has fitted, for the workloads ``w7_gbt``: ``weights_gb.npz``.

    PYTHONPATH=. python benchmarks/export_trees.py MODEL.joblib DATA/weights_gb.npz

Runs where scikit-learn is, from the root of the repository: of mlaot it needs the sources, and those need NumPy alone.
"""

import argparse
from pathlib import Path

import joblib
import numpy as np

from mlaot import nn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="a fitted GradientBoostingRegressor, by joblib")
    parser.add_argument("out", type=Path, help="file for the arrays")
    options = parser.parse_args()
    trees = nn.TreeEnsemble.from_sklearn(joblib.load(options.model))
    names = ("feature", "threshold", "true", "false", "roots", "leaves")
    arrays = dict(zip(names, trees._arrays, strict=True))
    np.savez(options.out, **arrays, base=trees._options["base"])


if __name__ == "__main__":
    main()
