"""An ONNX file as a declared model: ``mlaot.onnx.load("model.onnx")``."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError

from mlaot.errors import MlaotError
from mlaot.frontend.declaration import Arrays, Declaration, Reference, Traced
from mlaot.frontend.promotion import as_node
from mlaot.frontend.tensor import Held, Tensor
from mlaot.frontend.trace import Trace, tracing
from mlaot.ir import Graph, Type
from mlaot.onnx.codes import carrier, coded_as, from_ml_dtype, plain, to_ml_dtype
from mlaot.onnx.importer import MISSING, Importer, identifier
from mlaot.onnx.values import Unsupported, lifted, numpy_dtype, served

LARGEST = 2**31 - 1  # bytes of a file of protobuf
TAKEN = ("loss", "lr", "out", "self")
REFUSED = "refused_"


def load(path: str | Path, dims: Mapping[str, int] | None = None) -> Declaration:
    """The model of an ONNX file; a relative path is looked for beside the calling module first.

    ``dims`` gives sizes to dimensions that the file leaves open. Tensors stored outside of the file must lie in its
    folder or below it.
    """
    beside = Path(inspect.stack()[1].filename).parent / path
    return declare(read(beside if beside.exists() else Path(path)), dims or {}, place=f"{Path(path).name}: ")


def declared(project: Path, path: str, dims: Mapping[str, int]) -> Declaration:
    """The model of an ONNX file of a project, as its settings name it."""
    if not (project / path).is_file():
        raise MlaotError(f"no file {path} in {project.resolve()}; the key 'onnx' names a file of the project")
    return declare(read(project / path), dims, place=f"{path}: ")


def read(path: Path) -> onnx.ModelProto:
    """A file with its external tensors, checked."""
    try:
        model: onnx.ModelProto = onnx.ModelProto.FromString(path.read_bytes())
    except OSError as error:
        raise MlaotError(f"cannot read {path}: {error.strerror}") from None
    except (DecodeError, ValueError):
        raise MlaotError(f"{path} is no ONNX file, or it is damaged") from None
    _read_external(model, path)
    return model


def _read_external(model: onnx.ModelProto, path: Path) -> None:
    folder = path.resolve().parent
    for tensor in onnx.external_data_helper._get_all_tensors(model):
        if not onnx.external_data_helper.uses_external_data(tensor):
            continue
        location = onnx.external_data_helper.ExternalDataInfo(tensor).location
        file = (folder / location).resolve()
        if not location or not file.is_relative_to(folder):
            raise MlaotError(f"{path.name}: the tensor {tensor.name!r} lies in {location!r}, outside of its folder")
        try:
            onnx.external_data_helper.load_external_data_for_tensor(tensor, str(folder))
        except (OSError, ValueError, onnx.checker.ValidationError) as error:
            raise MlaotError(f"{path.name}: the tensor {tensor.name!r}: {' '.join(str(error).split())}") from None
        tensor.data_location = onnx.TensorProto.DEFAULT
        del tensor.external_data[:]


def declare(model: onnx.ModelProto, dims: Mapping[str, int], place: str = "") -> Declaration:
    """A model in memory, declared."""

    def trace() -> Traced:
        return traced(model, dims)

    return Declaration(trace, place, references(model))


def references(model: onnx.ModelProto) -> dict[str, Reference]:
    """Others that compute the model: the evaluator of the package onnx, and onnxruntime where that is installed."""

    def named(run: Callable[[dict[str, Any]], Any], given: Arrays) -> Arrays:
        known = {tensor.name for tensor in model.graph.initializer}
        inputs = {
            info.name: numpy_dtype(info.type.tensor_type.elem_type)
            for info in model.graph.input
            if info.name not in known and info.type.tensor_type.elem_type
        }
        outputs = [port_name(info.name) for info in model.graph.output]
        found = run({name: to_ml_dtype(given[port_name(name)], dtype) for name, dtype in inputs.items()})
        return dict(zip(outputs, map(from_ml_dtype, found), strict=True))

    def evaluator(given: Arrays) -> Arrays:
        from onnx.reference import ReferenceEvaluator

        return named(lambda feeds: ReferenceEvaluator(model).run(None, feeds), given)

    def runtime(given: Arrays) -> Arrays:
        import onnxruntime

        onnxruntime.set_default_logger_severity(4)
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        return named(lambda feeds: session.run(None, feeds), given)

    found: dict[str, Reference] = {"onnx.reference": evaluator}
    if importlib.util.find_spec("onnxruntime") is not None:
        found["onnxruntime"] = runtime
    return found


def check(model: onnx.ModelProto) -> None:
    """Whether the file keeps ONNX's own rules."""
    ports = (*model.graph.input, *model.graph.output, *model.graph.value_info, *model.graph.initializer)
    texts = [text for node in model.graph.node for text in (node.name, node.op_type, *node.input, *node.output)]
    if not all(isinstance(text, str) for text in (*texts, *(port.name for port in ports))):  # what is no UTF-8 is bytes
        raise MlaotError("not a valid ONNX model: a name is no UTF-8")
    try:
        onnx.checker.check_model(model)
    except UnicodeDecodeError:  # in what the checker says of a name
        raise MlaotError("not a valid ONNX model: a name is no UTF-8") from None
    except onnx.checker.ValidationError as error:
        line = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
        raise MlaotError(f"not a valid ONNX model: {line}") from None


def traced(model: onnx.ModelProto, dims: Mapping[str, int]) -> Traced:
    """The graph of a model."""
    importlib.import_module("mlaot.onnx.ops")  # fills the registry

    check(model)
    pinned = {identifier(name): size for name, size in dims.items()}
    importer = Importer(model, pinned)
    graph = model.graph
    importer.declare((*graph.output, *graph.value_info))
    importer.declare_backwards(graph.node)
    held: dict[str, Held] = {}
    found = Trace(Graph("model"), held=held)
    with tracing(found):
        importer.weights |= {port_name(info.name) for info in graph.input}
        env = importer.initializers(graph)
        arguments = []
        for info in graph.input:
            if info.name not in env:
                arguments.append(port_name(info.name))
                taken = Tensor(found.graph.input(arguments[-1], input_type(importer, info)))
                env[info.name] = coded_as(taken, info.type.tensor_type.elem_type)
        if len(set(arguments)) < len(arguments):
            raise MlaotError(f"two inputs are called {max(arguments, key=arguments.count)!r}; rename one of them")
        outputs = importer.run(graph, env)
        if importer.refused:
            raise Unsupported(_report(list(importer.refused)))
        for info, value in zip(graph.output, outputs, strict=True):
            if value is MISSING or value is None or isinstance(value, list):
                raise Unsupported(f"output {info.name!r} is a sequence or optional; a module gives arrays only")
            name = port_name(info.name)
            if name in found.graph.outputs:
                raise MlaotError(f"two outputs are called {name!r}; rename one of them")
            found.graph.outputs[name] = as_node(lifted(plain(served(info.name, value))))
        if importer.conditions:
            found.graph.outputs[REFUSED] = as_node(_refused([condition for condition, _ in importer.conditions]))
    return Traced(
        found.graph,
        {name: value.array for name, value in held.items()},
        per_example=False,
        arguments=tuple(arguments),
        refusals=tuple(message for _, message in importer.conditions),
        file_names={port_name(info.name): info.name for info in (*graph.input, *graph.output)},
    )


def input_type(importer: Importer, info: onnx.ValueInfoProto) -> Type:
    """The type of an input."""
    kind = info.type.WhichOneof("value")
    if kind != "tensor_type":
        raise Unsupported(f"input {info.name!r} is a {str(kind).removesuffix('_type')}; a module takes arrays only")
    tensor = info.type.tensor_type
    if not tensor.HasField("shape"):
        raise Unsupported(f"input {info.name!r} has no shape, not even a number of axes; export the model with one")
    try:
        dtype = carrier(tensor.elem_type)
    except Unsupported as error:
        raise Unsupported(f"input {info.name!r}: {error.message}") from None
    return Type(dtype, tuple(importer.extent(info.name, i, d) for i, d in enumerate(tensor.shape.dim)))


def port_name(name: str) -> str:
    """The name of an input or output in the module."""
    found = identifier(name)
    return f"{found}_" if found in TAKEN else found


def _refused(conditions: list[Any]) -> Any:
    """The number of the first condition that does not hold, from 1 on; 0 where all do."""
    found: Any = np.int64(0)
    for number in range(len(conditions), 0, -1):
        found = np.where(conditions[number - 1], found, np.int64(number))
    return found


def _report(reasons: list[str]) -> str:
    if len(reasons) == 1:
        return reasons[0]
    return f"{len(reasons)} nodes cannot be compiled: {'; '.join(reasons)}"
