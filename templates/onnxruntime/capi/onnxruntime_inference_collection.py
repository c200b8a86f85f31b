"""Sessions over the compiled models, and the values that go in and come out."""

from __future__ import annotations

import ctypes
import hashlib
import math
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from types import ModuleType
from typing import Any

from .files import FILES, File, Shapes
from .onnxruntime_pybind11_state import (
    PROVIDER,
    Fail,
    InvalidArgument,
    ModelMetadata,
    NodeArg,
    NoSuchFile,
    RunOptions,
    SessionOptions,
    get_available_providers,
)

numpy: ModuleType | None
try:
    import numpy
except ImportError:
    numpy = None

__all__ = ["IOBinding", "InferenceSession", "OrtDevice", "OrtValue", "get_available_providers"]

PACKAGE = __name__.partition(".capi.")[0]
# NumPy's name of a type: ONNX's name and number.
TYPES = {
    "float32": ("float", 1),
    "uint8": ("uint8", 2),
    "int8": ("int8", 3),
    "uint16": ("uint16", 4),
    "int16": ("int16", 5),
    "int32": ("int32", 6),
    "int64": ("int64", 7),
    "object": ("string", 8),
    "bool": ("bool", 9),
    "float16": ("float16", 10),
    "float64": ("double", 11),
    "uint32": ("uint32", 12),
    "uint64": ("uint64", 13),
}
DTYPES = {f"tensor({name})": dtype for dtype, (name, _) in TYPES.items()}
NUMBERS = {number: dtype for dtype, (_, number) in TYPES.items()}
KINDS = {**dict.fromkeys("efd", "float"), **dict.fromkeys("bhilqn", "int"), **dict.fromkeys("BHILQN", "uint")}


def find_file(path_or_bytes: str | os.PathLike[str] | bytes) -> File:
    """Return the file of which these are the bytes, or the path, where no file need be, or an empty one."""
    if isinstance(path_or_bytes, bytes | bytearray | memoryview):
        return _of_digest(hashlib.sha256(path_or_bytes).hexdigest(), "Failed to load model: the bytes")
    if not isinstance(path_or_bytes, str | os.PathLike):
        raise TypeError(f"Unable to load from type '{type(path_or_bytes)}'")
    path = os.fsdecode(path_or_bytes)
    try:
        with open(path, "rb") as opened:
            digest = hashlib.file_digest(opened, "sha256").hexdigest()
            empty, problem = not opened.tell(), "File is empty, "
    except (OSError, ValueError):
        empty, problem = True, "File doesn't exist, "
    if not empty:
        return _of_digest(digest, f"Load model from {path} failed:its bytes")
    found = _of_name(PurePath(path).parts)
    if len(found) == 1:
        return FILES[found[0]]
    problem = f"Load model from {path} failed:Load model {path} failed. {problem}"
    if found:
        raise NoSuchFile.of(f"{problem}and {PACKAGE} was compiled from {' and '.join(found)}")
    raise NoSuchFile.of(f"{problem}nor is it among those that {PACKAGE} was compiled from: {', '.join(FILES)}")


def _of_name(parts: Sequence[str]) -> list[str]:
    """Return the files of the same name; of several, those whose folders have the same names farthest up."""
    found = {name: PurePath(name).parts[::-1] for name in FILES if parts}
    for i, part in enumerate(reversed(parts)):
        same = {name: own for name, own in found.items() if own[i : i + 1] == (part,)}
        if not same:
            return [*found] if i else []
        found = same
    whole = [name for name, own in found.items() if len(own) == len(parts)]
    return whole or [*found]


def _of_digest(digest: str, what: str) -> File:
    for file in FILES.values():
        if file.sha256 == digest:
            return file
    raise Fail.of(f"{what} are those of no file that {PACKAGE} was compiled from: {', '.join(FILES)}")


class InferenceSession:
    """The compiled model of an ONNX file: of the one with these bytes, or of this name where there is no such file."""

    def __init__(
        self,
        path_or_bytes: str | os.PathLike[str] | bytes,
        sess_options: SessionOptions | None = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        **kwargs: object,
    ) -> None:
        self._file = find_file(path_or_bytes)
        self._options = SessionOptions() if sess_options is None else sess_options
        self._model = self._file.load().Model()
        self._inputs = _ports(self._model.get_inputs(), self._file.inputs)
        self._outputs = _ports(self._model.get_outputs(), self._file.outputs)
        self._output_names = frozenset(port.name for port in self._outputs)
        if self._options.intra_op_num_threads > 0:
            self._model.set_threads(self._options.intra_op_num_threads)
        self.set_providers(providers, provider_options)

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: RunOptions | None = None,
    ) -> list[Any]:
        """Return the outputs of these names, or all; arrays of NumPy where it is installed."""
        given = list(input_feed.keys())
        if missing := [port.name for port in self._inputs if port.name not in input_feed]:
            raise ValueError(f"Required inputs ({missing}) are missing from input feed ({given}).")
        feed = {port.name: _fed(port, input_feed[port.name]) for port in self._inputs}
        if unknown := [name for name in given if name not in feed]:
            raise InvalidArgument.of(f"Invalid input name: {unknown[0]}")
        if isinstance(output_names, str):
            raise TypeError(f"run(): expected a list of names of outputs, got {output_names!r}")
        if unknown := [name for name in output_names or () if name not in self._output_names]:
            raise InvalidArgument.of(f"Invalid output name:{unknown[0]}")
        try:
            results: list[Any] = self._model.run(output_names or None, feed)
        except (TypeError, ValueError) as error:
            raise InvalidArgument.of(str(error)) from error
        if numpy is None:
            return results
        ports = {port.name: port for port in self._outputs}
        names = output_names or [port.name for port in self._outputs]
        return [_array_of(ports[name], result) for name, result in zip(names, results, strict=True)]

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """Return the outputs as values, for inputs that are values."""
        return [OrtValue(result) for result in self.run(output_names, input_dict_ort_values, run_options)]

    def io_binding(self) -> IOBinding:
        """Return what inputs and outputs are bound to, for ``run_with_iobinding``."""
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: RunOptions | None = None) -> None:
        """Compute the bound outputs of the bound inputs."""
        if not iobinding._outputs:
            raise RuntimeError("Error in execution: At least one output should be requested.")
        results = self.run(list(iobinding._outputs), iobinding._inputs, run_options)
        for (name, target), result in zip(list(iobinding._outputs.items()), results, strict=True):
            if target is not None:
                target.update_inplace(result)
            iobinding._results[name] = OrtValue(result) if target is None else target

    def get_inputs(self) -> list[NodeArg]:
        """Return names, types and shapes of the inputs."""
        return [NodeArg(port.name, port.type, port.shape) for port in self._inputs]

    def get_outputs(self) -> list[NodeArg]:
        """Return names, types and shapes of the outputs."""
        return [NodeArg(port.name, port.type, port.shape) for port in self._outputs]

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Return nothing: values that the file has are compiled in."""
        return []

    def get_modelmeta(self) -> ModelMetadata:
        """Return what the file says of itself."""
        return self._file.metadata

    def get_session_options(self) -> SessionOptions:
        """Return the options that were given, or those that hold without any."""
        return self._options

    def get_providers(self) -> list[str]:
        """Return the one that there is."""
        return [PROVIDER]

    def set_providers(
        self, providers: Sequence[Any] | None = None, provider_options: Sequence[Mapping[str, Any]] | None = None
    ) -> None:
        """Warn of providers that there are not."""
        for provider in [providers] if isinstance(providers, str) else providers or ():
            name = provider[0] if isinstance(provider, tuple | list) and provider else provider
            if name != PROVIDER:
                known = f"Available providers: {PROVIDER!r}"
                warnings.warn(f"Specified provider {name!r} is not in available provider names. {known}", stacklevel=3)

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """Return the one provider, which has no options."""
        return {PROVIDER: {}}

    def disable_fallback(self) -> None:
        """Do nothing: there is no other provider."""

    def enable_fallback(self) -> None:
        """Do nothing, as before."""

    def end_profiling(self) -> str:
        """Return the name of a file that nobody writes."""
        return ""

    def get_profiling_start_time_ns(self) -> int:
        """Return 0: there is no profile."""
        return 0


class IOBinding:
    """Inputs and outputs of a session that are bound to memory."""

    def __init__(self, session: InferenceSession) -> None:
        self._session = session
        self._inputs: dict[str, Any] = {}
        self._outputs: dict[str, OrtValue | None] = {}
        self._results: dict[str, OrtValue] = {}

    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        """Bind an input to an array."""
        if all(port.name != name for port in self._session._inputs):
            raise RuntimeError(f"Failed to find NodeArg with name: {name} in the def list")
        self._inputs[name] = arr_on_cpu

    def bind_input(
        self, name: str, device_type: str, device_id: int, element_type: Any, shape: Sequence[int], buffer_ptr: int
    ) -> None:
        """Bind an input to memory."""
        _check_device(device_type)
        self.bind_cpu_input(name, _array_at(buffer_ptr, element_type, shape))

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Bind an input to a value."""
        self.bind_cpu_input(name, ortvalue)

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Bind an output to memory, or let the session make an array."""
        _check_device(device_type)
        target = None if buffer_ptr is None else OrtValue(_array_at(buffer_ptr, element_type, shape or ()))
        self._outputs[name] = target

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Bind an output to a value, which is written to."""
        self._outputs[name] = ortvalue

    def synchronize_inputs(self) -> None:
        """Do nothing: nothing is computed elsewhere."""

    def synchronize_outputs(self) -> None:
        """Do nothing, as for inputs."""

    def get_outputs(self) -> list[OrtValue]:
        """Return the outputs of the last run, in the order of their binding."""
        return [self._results[name] for name in self._outputs if name in self._results]

    def copy_outputs_to_cpu(self) -> list[Any]:
        """Return the arrays of the outputs."""
        return [value.numpy() for value in self.get_outputs()]

    def clear_binding_inputs(self) -> None:
        """Forget the inputs."""
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Forget the outputs."""
        self._outputs.clear()
        self._results.clear()


class OrtValue:
    """An array that a session takes or gives."""

    def __init__(self, array: Any) -> None:
        self._array = array

    @staticmethod
    def ortvalue_from_numpy(numpy_obj: Any, device_type: str = "cpu", device_id: int = 0) -> OrtValue:
        """Return a value that is this array."""
        _check_device(device_type)
        if (_described(numpy_obj) or ("tensor(string)",))[0] == "tensor(string)":
            raise RuntimeError("Creation of OrtValues is currently only supported from non-string numpy arrays")
        return OrtValue(numpy_obj)

    @staticmethod
    def ortvalue_from_shape_and_type(
        shape: Sequence[int], element_type: Any, device_type: str = "cpu", device_id: int = 0
    ) -> OrtValue:
        """Return a value of this shape, whose elements are not set."""
        _check_device(device_type)
        return OrtValue(_numpy().zeros(shape, NUMBERS.get(element_type, element_type)))

    def numpy(self) -> Any:
        """Return the array."""
        return self._array

    def update_inplace(self, np_arr: Any) -> None:
        """Overwrite the array."""
        self._array[...] = np_arr

    def shape(self) -> list[int]:
        """Return how long each axis is."""
        return self._type_and_shape()[1]

    def data_type(self) -> str:
        """Return ONNX's name of the type."""
        return self._type_and_shape()[0]

    def element_type(self) -> int:
        """Return ONNX's number of the type."""
        return TYPES[DTYPES[self.data_type()]][1]

    def tensor_size_in_bytes(self) -> int:
        """Return how many bytes the elements take."""
        return memoryview(self._array).nbytes

    def data_ptr(self) -> int:
        """Return the address of the first element."""
        return int(self._array.ctypes.data)

    def device_name(self) -> str:
        """Return where the array is."""
        return "cpu"

    def has_value(self) -> bool:
        """Tell whether there is an array."""
        return True

    def is_tensor(self) -> bool:
        """Tell whether it is an array."""
        return True

    def is_sparse_tensor(self) -> bool:
        """Tell whether it is a sparse array."""
        return False

    def is_tensor_sequence(self) -> bool:
        """Tell whether it is several arrays."""
        return False

    def _type_and_shape(self) -> tuple[str, list[int]]:
        described = _described(self._array)
        assert described is not None
        return described


class OrtDevice:
    """A device: the CPU."""

    def __init__(self, device_type: str = "cpu", device_id: int = 0) -> None:
        _check_device(device_type)
        self._id = device_id

    @staticmethod
    def make(ort_device_name: str, device_id: int, vendor_id: int = -1) -> OrtDevice:
        """Return the device of this name."""
        return OrtDevice(ort_device_name, device_id)

    def device_id(self) -> int:
        """Return its number."""
        return self._id

    def device_type(self) -> int:
        """Return the number of its kind, which is 0 for a CPU."""
        return 0


def _ports(compiled: Iterable[Any], shapes: Shapes) -> list[NodeArg]:
    """Return inputs or outputs of a compiled model, with the file's names of open dimensions.

    A file may be wrong about an output, even about how many axes it has: its word stands.
    """
    ports = []
    for port in compiled:
        shape = shapes.get(port.name, port.shape)
        if len(shape) == len(port.shape):
            shape = [a if isinstance(a, int) else b for a, b in zip(port.shape, shape, strict=True)]
        ports.append(NodeArg(port.name, port.type, shape))
    return ports


def _array_of(port: NodeArg, result: Any) -> Any:
    """Return a result as an array of NumPy's."""
    array = _numpy().asarray(result, object if port.type == "tensor(string)" else None)
    return array.reshape(_empty(port)) if array.dtype == object and array.size == 0 else array


def _empty(port: NodeArg) -> list[int]:
    """Return the shape of an array without elements, of which empty lists do not tell how many axes it has."""
    return [extent if isinstance(extent, int) else 0 for extent in port.shape]


def _fed(port: NodeArg, value: Any) -> Any:
    """Return what an input is fed with, as the model takes it; refuse other types and shapes."""
    if isinstance(value, OrtValue):
        value = value.numpy()
    if numpy is not None and isinstance(value, numpy.ndarray) and not value.dtype.isnative:
        value = value.astype(value.dtype.newbyteorder("="))
    elif numpy is not None and isinstance(value, list):
        try:
            value = numpy.array(value, DTYPES[port.type])
        except (TypeError, ValueError):
            raise RuntimeError("Could not create tensor from given input list") from None
    if numpy is not None and isinstance(value, numpy.ndarray) and value.dtype == object:
        strings = [item if isinstance(item, str) else str(item) for item in value.ravel().tolist()]
        value = numpy.fromiter(strings, object, len(strings)).reshape(value.shape)
    described = _described(value)
    if described is None:  # the model says what it can take
        return value
    actual, shape = described
    if actual != port.type:
        raise InvalidArgument.of(f"Unexpected input data type. Actual: ({actual}) , expected: ({port.type})")
    mend = "Please fix either the inputs/outputs or the model."
    if len(shape) != len(port.shape):
        raise InvalidArgument.of(
            f"Invalid rank for input: {port.name} Got: {len(shape)} Expected: {len(port.shape)} {mend}"
        )
    pairs = enumerate(zip(shape, port.shape, strict=True))
    wrong = [f" index: {i} Got: {a} Expected: {b}\n" for i, (a, b) in pairs if isinstance(b, int) and a != b]
    if wrong:
        what = f"Got invalid dimensions for input: {port.name} for the following indices"
        raise InvalidArgument.of(f"{what}\n{''.join(wrong)} {mend}")
    if actual == "tensor(string)" and 0 in shape:  # as lists it would lose its axes; places of strings keep them
        return _numpy().zeros(shape, "int64")
    return value


def _described(value: Any) -> tuple[str, list[int]] | None:
    """Return ONNX's type and the shape of an object with a buffer of numbers, or of strings; None for another."""
    try:
        view = memoryview(value)
    except (TypeError, ValueError, BufferError):
        return None
    code = view.format.lstrip("@=<>")
    dtype = "bool" if code == "?" else f"{KINDS.get(code, '')}{8 * view.itemsize}"
    dtype = "object" if code == "O" or code.endswith("w") else dtype
    return (f"tensor({TYPES[dtype][0]})", list(view.shape or ())) if dtype in TYPES else None


def _array_at(address: int, element_type: Any, shape: Sequence[int]) -> Any:
    """Return an array over memory that its owner keeps."""
    dtype = _numpy().dtype(NUMBERS.get(element_type, element_type))
    memory = (ctypes.c_byte * (math.prod(shape) * dtype.itemsize)).from_address(address)
    return _numpy().frombuffer(memory, dtype).reshape(shape)


def _numpy() -> ModuleType:
    """Return NumPy, or say that it is missing."""
    if numpy is None:
        raise ImportError("this needs NumPy; run() takes lists, and objects with a buffer")
    return numpy


def _check_device(name: str) -> None:
    """Refuse devices that there are not."""
    if name.lower() != "cpu":
        raise RuntimeError(f"no device {name!r}: compiled models run on the CPU")
