"""The errors, options and descriptions of onnxruntime, and its functions: no model is needed for them."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Any, Self

__version__ = "1.23.0"  # that of onnxruntime which has these names
PROVIDER = "CPUExecutionProvider"


class _Error(Exception):
    """An error with the number and the name that onnxruntime's texts begin with."""

    status = ""

    @classmethod
    def of(cls, message: str) -> Self:
        """Return an error with a text as onnxruntime writes them."""
        return cls(f"[ONNXRuntimeError] : {cls.status} : {message}")


class Fail(_Error):
    """A model that was not compiled in."""

    status = "1 : FAIL"


class InvalidArgument(_Error):
    """An input or an output that the model does not have, or not so."""

    status = "2 : INVALID_ARGUMENT"


class NoSuchFile(_Error):
    """A file that is neither there nor compiled in."""

    status = "3 : NO_SUCHFILE"


class NoModel(_Error):
    """Never raised."""

    status = "4 : NO_MODEL"


class EngineError(_Error):
    """Never raised."""

    status = "5 : ENGINE_ERROR"


class RuntimeException(_Error):
    """Never raised."""

    status = "6 : RUNTIME_EXCEPTION"


class InvalidProtobuf(_Error):
    """Never raised."""

    status = "7 : INVALID_PROTOBUF"


class ModelLoaded(_Error):
    """Never raised."""

    status = "8 : MODEL_LOADED"


class NotImplemented(_Error):
    """What compiled models do not do."""

    status = "9 : NOT_IMPLEMENTED"


class InvalidGraph(_Error):
    """Never raised."""

    status = "10 : INVALID_GRAPH"


class EPFail(_Error):
    """Never raised."""

    status = "11 : EP_FAIL"


class NotFound(_Error):
    """Never raised."""

    status = "14 : NOT_FOUND"


class _Choice(enum.IntEnum):
    """Numbers with names, by which they are shown."""

    __str__ = enum.Enum.__str__


class GraphOptimizationLevel(_Choice):
    """How far a graph is optimized; a compiled one has been."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(_Choice):
    """Whether operators run one after the other, as they do in a compiled model."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(_Choice):
    """The order of operators, which is compiled in."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


class OrtAllocatorType(_Choice):
    """Who allocates memory."""

    INVALID = -1
    ORT_DEVICE_ALLOCATOR = 0
    ORT_ARENA_ALLOCATOR = 1


class OrtMemType(_Choice):
    """Whose memory it is."""

    CPU_INPUT = -2
    CPU_OUTPUT = -1
    CPU = -1
    DEFAULT = 0


class _Options:
    """What options of sessions and of calls have both."""

    def __init__(self) -> None:
        self.log_severity_level = -1
        self.log_verbosity_level = 0
        self.logid = ""
        self._entries: dict[str, str] = {}

    def _entry(self, key: str) -> str:
        if key not in self._entries:
            raise RuntimeError(f"{type(self).__name__} does not have configuration with key: {key}")
        return self._entries[key]


class SessionOptions(_Options):
    """Options of a session, of which ``intra_op_num_threads`` is used: the number of threads, unless it is 0."""

    def __init__(self) -> None:
        super().__init__()
        self.enable_cpu_mem_arena = True
        self.enable_mem_pattern = True
        self.enable_mem_reuse = True
        self.enable_profiling = False
        self.execution_mode = ExecutionMode.ORT_SEQUENTIAL
        self.execution_order = ExecutionOrder.DEFAULT
        self.graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_ALL
        self.inter_op_num_threads = 0
        self.intra_op_num_threads = 0
        self.optimized_model_filepath = ""
        self.profile_file_prefix = "onnxruntime_profile_"
        self.use_deterministic_compute = False
        self.use_per_session_threads = True

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Keep an entry."""
        self._entries[key] = value

    def get_session_config_entry(self, key: str) -> str:
        """Return an entry that was added."""
        return self._entry(key)

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Do nothing: sizes of open dimensions are compiled in, or are those of the inputs."""

    def add_free_dimension_override_by_denotation(self, denotation: str, size: int) -> None:
        """Do nothing, as for names."""

    def add_provider(self, provider: str, options: Mapping[str, str]) -> None:
        """Do nothing: there is one provider."""

    def has_providers(self) -> bool:
        """Tell whether there are providers besides the default."""
        return False

    def add_initializer(self, name: str, value: object) -> None:
        """Refuse a weight: those of the file are compiled in."""
        raise NotImplemented.of(f"the value of {name!r} is compiled in")

    def add_external_initializers(self, names: Sequence[str], values: Sequence[object]) -> None:
        """Refuse weights, as ``add_initializer``."""
        raise NotImplemented.of(f"the values of {names!r} are compiled in")

    def register_custom_ops_library(self, path: str) -> None:
        """Do nothing: the operators of the files are compiled in."""


class RunOptions(_Options):
    """Options of a call, of which none is used."""

    def __init__(self) -> None:
        super().__init__()
        self.only_execute_path_to_fetches = False
        self.terminate = False
        self.training_mode = False

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Keep an entry."""
        self._entries[key] = value

    def get_run_config_entry(self, key: str) -> str:
        """Return an entry that was added."""
        return self._entry(key)


class NodeArg:
    """An input or an output: its name, type and shape, where open dimensions have a name or are None."""

    def __init__(self, name: str, type: str, shape: Sequence[int | str | None]) -> None:
        self.name = name
        self.type = type
        self.shape = list(shape)

    def __repr__(self) -> str:
        return f"NodeArg(name={self.name!r}, type={self.type!r}, shape={self.shape!r})"


class ModelMetadata:
    """What a file says of itself."""

    def __init__(
        self,
        producer_name: str = "",
        graph_name: str = "",
        domain: str = "",
        description: str = "",
        graph_description: str = "",
        version: int = 0,
        custom_metadata_map: Mapping[str, str] | None = None,
    ) -> None:
        self.producer_name = producer_name
        self.graph_name = graph_name
        self.domain = domain
        self.description = description
        self.graph_description = graph_description
        self.version = version
        self.custom_metadata_map = dict(custom_metadata_map or {})


def get_available_providers() -> list[str]:
    """Return the one that there is."""
    return [PROVIDER]


def get_all_providers() -> list[str]:
    """Return the one that there is."""
    return [PROVIDER]


def get_device() -> str:
    """Return the device that computes."""
    return "CPU"


def get_version_string() -> str:
    """Return the version of onnxruntime that has these names."""
    return __version__


def get_build_info() -> str:
    """Say who made this."""
    return "ORT Build Info: compiled by mlaot"


def has_collective_ops() -> bool:
    """Tell whether models can run on several machines."""
    return False


def set_default_logger_severity(severity: int) -> None:
    """Do nothing but check the number, from 0 to 4: nothing is logged."""
    if not 0 <= severity <= 4:
        raise RuntimeError("Invalid logging severity. 0:Verbose, 1:Info, 2:Warning, 3:Error, 4:Fatal")


def set_default_logger_verbosity(verbosity: int) -> None:
    """Do nothing: nothing is logged."""


def set_seed(seed: int) -> None:
    """Do nothing: compiled models have no random numbers of their own."""


def enable_telemetry_events() -> None:
    """Do nothing: nobody is told anything."""


def disable_telemetry_events() -> None:
    """Do nothing, as before."""


def preload_dlls(cuda: bool = True, cudnn: bool = True, msvc: bool = True, directory: Any = None) -> None:
    """Do nothing: no library is needed."""
