"""What programs use of onnxruntime, for the ONNX files that were compiled into this package by mlaot.

A session has the compiled model of its file: nothing of onnxruntime is needed, and NumPy is used where it is installed.
"""

import importlib.util
import sys
import warnings

from . import capi
from .capi.onnxruntime_inference_collection import InferenceSession, IOBinding, OrtDevice, OrtValue
from .capi.onnxruntime_pybind11_state import (
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    ModelMetadata,
    NodeArg,
    OrtAllocatorType,
    OrtMemType,
    RunOptions,
    SessionOptions,
    __version__,
    disable_telemetry_events,
    enable_telemetry_events,
    get_all_providers,
    get_available_providers,
    get_build_info,
    get_device,
    get_version_string,
    has_collective_ops,
    preload_dlls,
    set_default_logger_severity,
    set_default_logger_verbosity,
    set_seed,
)

__all__ = [
    "ExecutionMode",
    "ExecutionOrder",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "ModelMetadata",
    "NodeArg",
    "OrtAllocatorType",
    "OrtDevice",
    "OrtMemType",
    "OrtValue",
    "RunOptions",
    "SessionOptions",
    "__version__",
    "capi",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_device",
    "get_version_string",
    "has_collective_ops",
    "install",
    "preload_dlls",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_seed",
]


def install() -> None:
    """Let ``import onnxruntime`` give this package from now on, in the whole process.

    Another one that is imported already is an ImportError, and one that is installed is warned of.
    """
    name = "onnxruntime"
    there = sys.modules.get(name)
    if there is sys.modules[__name__]:
        return
    if there is not None:
        place = getattr(there, "__file__", None) or there
        mend = "call install() before, and of one package only"
        raise ImportError(f"{__name__} cannot stand in for {name}: it is imported already, from {place}; {mend}")
    if spec := importlib.util.find_spec(name):
        warnings.warn(f"{__name__} hides the {name} that is installed in {spec.origin}", stacklevel=2)
    for own, module in list(sys.modules.items()):
        if own == __name__ or own.startswith(f"{__name__}."):
            sys.modules[name + own.removeprefix(__name__)] = module
