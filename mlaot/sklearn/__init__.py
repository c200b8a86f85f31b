"""Models of scikit-learn: ``mlaot.sklearn.load(pipeline)`` is a model like any other. Needs the package ``skl2onnx``.

skl2onnx turns a fitted estimator into an ONNX graph, which is computed in float64, as scikit-learn computes; linear
models and perceptrons that were fitted on float32 are computed in float32, as there. Trees, also those of LightGBM and
XGBoost, are nodes of mlaot's own in it: what skl2onnx makes of them loses thresholds and the sides that nan goes to.
"""

from mlaot.errors import MlaotError

try:
    import onnx  # noqa: F401
    import skl2onnx  # noqa: F401
except ModuleNotFoundError as error:
    raise MlaotError(f"mlaot.sklearn needs the package {error.name}: pip install skl2onnx") from None

from mlaot.sklearn.declare import declare_from_settings as declare_from_settings
from mlaot.sklearn.declare import load as load

__all__ = ["declare_from_settings", "load"]
