"""What programs use of onnxruntime, for the ONNX files that were compiled into this package by mlaot.

A session has the compiled model of its file: nothing of onnxruntime is needed, and NumPy is used where it is installed.
"""

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
    "preload_dlls",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_seed",
]
