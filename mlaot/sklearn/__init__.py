"""Models of scikit-learn: ``mlaot.sklearn.load(pipeline)`` is a model like any other. Needs scikit-learn.

Each estimator has rules, which compute in float64 what scikit-learn computes (``mlaot/sklearn/rules.py``); linear
models and perceptrons that were fitted on float32 are computed in float32, as there. Where there is none,
skl2onnx turns the whole into an ONNX graph, in which rules are nodes of mlaot's own.
"""

from mlaot.errors import MlaotError

try:
    import onnx  # noqa: F401
    import sklearn  # noqa: F401
except ModuleNotFoundError as error:
    raise MlaotError(f"mlaot.sklearn needs the package {error.name}: pip install skl2onnx") from None

from mlaot.sklearn.declare import declare_from_settings as declare_from_settings
from mlaot.sklearn.declare import load as load

__all__ = ["declare_from_settings", "load"]
