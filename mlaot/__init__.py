"""mlaot compiles a model that is declared in Python, and ships it as a precompiled wheel.

The build hook imports the model module, traces the model to a graph, optimizes the graph, and compiles it to an
extension module. Where that is installed it needs neither a compiler nor a runtime.

Every function that can be traced is an attribute of this package, such as ``mlaot.softmax``, ``mlaot.where`` and
``mlaot.einsum``. A function that NumPy also has calls NumPy's for plain arrays.
"""

import importlib
from typing import TYPE_CHECKING, Any

from mlaot.errors import MlaotError as MlaotError
from mlaot.errors import did_you_mean

if TYPE_CHECKING:
    from mlaot.api import *  # noqa: F403

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import ``mlaot.api`` when a model first uses a name.

    Build hooks and most commands need neither it nor NumPy.
    """
    if name.startswith("__") and name != "__all__":  # Python itself asks, not a user
        raise AttributeError(f"module 'mlaot' has no attribute {name!r}")
    if name in ("eager", "micrograd", "nn", "optim"):
        return importlib.import_module(f"mlaot.{name}")
    api = importlib.import_module("mlaot.api")
    if name == "__all__":
        return ["MlaotError", *api.__all__]
    if name in api.__all__:
        globals()[name] = getattr(api, name)
        return globals()[name]
    if name not in api.NAMESPACE:
        raise AttributeError(f"module 'mlaot' has no attribute {name!r}{_hint(name)}")
    return api.NAMESPACE[name]


def _hint(name: str) -> str:
    """Return a hint at the module that has a name, or at the name that was meant."""
    for module in ("nn", "nn.functional", "nn.init", "optim", "optim.lr_scheduler"):
        if name in importlib.import_module(f"mlaot.{module}").__all__:
            return f"; it is mlaot.{module}.{name}"
    return did_you_mean(name, __dir__())


def __dir__() -> list[str]:
    api = importlib.import_module("mlaot.api")
    return sorted({*globals(), *api.__all__, *api.NAMESPACE})
