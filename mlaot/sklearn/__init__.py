"""Models of scikit-learn: ``mlaot.sklearn.load(pipeline)`` returns a model like any other. It needs scikit-learn.

Each estimator has rules, which compute the same as scikit-learn in float64 (``mlaot/sklearn/rules.py``). As in
scikit-learn, linear models and perceptrons that were fitted on float32 are computed in float32. For an estimator
without rules, skl2onnx converts the whole model to an ONNX graph, in which rules are nodes of mlaot's own.
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
