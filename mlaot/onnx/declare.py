"""An ONNX file as a declared model: ``mlaot.onnx.load("model.onnx")``."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError

from mlaot.errors import MlaotError
from mlaot.frontend.trace.context import Trace, tracing
from mlaot.frontend.trace.declaration import Arrays, Declaration, Reference, Traced
from mlaot.frontend.trace.promotion import as_node
from mlaot.frontend.trace.tensor import Held, Tensor
from mlaot.ir import Dim, Graph, Type
from mlaot.ir.dims import dim, names, substitute
from mlaot.onnx.codes import carrier, coded_as, from_ml_dtype, plain, to_ml_dtype
from mlaot.onnx.importer import Importer, Settled, identifier
from mlaot.onnx.values import Unsupported, lifted, numpy_dtype, served
from mlaot.settings import Model, Settings

TAKEN = ("loss", "lr", "out", "self")
REFUSED = "refused_"
BYTES = re.compile(r"[0-9]{1,18}")  # a number of them that fits in 64 bits
LONGEST = 1024  # characters of a path
ROUNDS = 32  # imports, each of which finds out more of what open dims are


def load(path: str | Path | onnx.ModelProto, dims: Mapping[str, int] | None = None) -> Declaration:
    """The model of an ONNX file, or one in memory; a relative path is looked for beside the calling module first.

    ``dims`` gives sizes to dimensions that the file leaves open. Tensors stored outside of the file must lie in its
    folder or below it.
    """
    if isinstance(path, onnx.ModelProto):
        return declare(path, dims or {}, place=f"{path.graph.name or 'model'}: ")
    beside = Path(inspect.stack()[1].filename).parent / path
    return declare(read(beside if beside.exists() else Path(path)), dims or {}, place=f"{Path(path).name}: ")


def declared(settings: Settings, model: Model, sample: Any = None) -> Declaration:
    """The model of an ONNX file of a project, as its settings name it."""
    path, project = settings.project / model.onnx, settings.project.resolve()
    try:
        is_inside, is_file = path.resolve().is_relative_to(project), path.is_file()
    except (OSError, ValueError, RuntimeError):  # a name that no file can have, links that lead to each other
        is_inside, is_file = True, False
    if not is_inside:
        raise MlaotError(f"{model.onnx} lies outside of {project}; the key 'onnx' names a file of the project: copy it")
    if not is_file:
        raise MlaotError(f"no file {model.onnx!r} in {project}; the key 'onnx' names a file of the project")
    return replace(declare(read(path), dict(model.dims), place=f"{model.onnx}: "), sample=sample)


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
    for tensor in (*_tensors(model.graph), *(t for f in model.functions for t in _held(f.node))):
        if not onnx.external_data_helper.uses_external_data(tensor):
            continue
        try:
            _load_external(tensor, folder)
        except MlaotError as error:
            raise MlaotError(f"{path.name}: the tensor {tensor.name!r} {error.message}") from None
        except (OSError, RuntimeError, ValueError, onnx.checker.ValidationError) as error:
            raise MlaotError(f"{path.name}: the tensor {tensor.name!r}: {' '.join(str(error).split())}") from None
        tensor.data_location = onnx.TensorProto.DEFAULT
        del tensor.external_data[:]


def _load_external(tensor: onnx.TensorProto, folder: Path) -> None:
    """The bytes of a tensor that lies in a file of ``folder`` or below it."""
    entries: dict[str, Any] = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    if not isinstance(location, str) or not location or "\0" in location:
        raise MlaotError(f"lies in {reprlib.repr(location)}, which is no file's name")
    for key in ("offset", "length"):
        size = entries.get(key, "0")
        if not isinstance(size, str) or not BYTES.fullmatch(size):
            raise MlaotError(f"has the {key} {reprlib.repr(size)}; expected a number of bytes")
    if len(location) > LONGEST:
        raise MlaotError(f"lies in {reprlib.repr(location)}; no file has a name that long")
    if not (folder / location).resolve().is_relative_to(folder):
        raise MlaotError(f"lies in {location!r}, outside of its folder")
    del tensor.external_data[:]
    for key in ("location", "offset", "length"):
        if key in entries:
            tensor.external_data.add(key=key, value=entries[key])
    onnx.external_data_helper.load_external_data_for_tensor(tensor, str(folder))


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """All tensors of a graph and of those inside of it."""
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    yield from _held(graph.node)


def _held(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.TensorProto]:
    """The tensors among the attributes of nodes."""
    for held in (attribute for node in nodes for attribute in node.attribute):
        yield from (*([held.t] if held.HasField("t") else ()), *held.tensors)
        for sparse in (*([held.sparse_tensor] if held.HasField("sparse_tensor") else ()), *held.sparse_tensors):
            yield from (sparse.values, sparse.indices)
        for graph in (*([held.g] if held.HasField("g") else ()), *held.graphs):
            yield from _tensors(graph)


def declare(
    model: onnx.ModelProto,
    dims: Mapping[str, int],
    place: str = "",
    given: Mapping[str, Any] | None = None,
    made: dict[str, Any] | None = None,
) -> Declaration:
    """A model in memory, declared.

    ``given``: the shapes of inputs of which the file says too little, a list of them for a sequence, None for an
    optional without a value. ``made`` is told what each output is: its port, a list of them, or None.
    """

    def trace() -> Traced:
        return traced(model, dims, given, made)

    return Declaration(trace, place, references(model))


def references(model: onnx.ModelProto) -> dict[str, Reference]:
    """Others that compute the model: the evaluator of the package onnx, and onnxruntime where that is installed.

    Nobody for models of sequences, which a module takes apart.
    """
    if any(info.type.WhichOneof("value") != "tensor_type" for info in (*model.graph.input, *model.graph.output)):
        return {}

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


def traced(
    model: onnx.ModelProto,
    dims: Mapping[str, int],
    given: Mapping[str, Any] | None = None,
    made: dict[str, Any] | None = None,
) -> Traced:
    """The graph of a model, of which open dims are settled as far as its operators need it."""
    meant: dict[str, Dim] = {}
    for left in reversed(range(ROUNDS)):
        try:
            return imported(model, dims, meant, given, made)
        except Settled as found:
            if not left:
                raise MlaotError(found.message) from None
            kept = {name: dim(name) for value in meant.values() for name in names(value)}
            meant = {name: substitute(value, kept | found.meant) for name, value in meant.items()} | {
                name: value for name, value in found.meant.items() if name not in meant
            }
    raise AssertionError("bug in mlaot: a model is neither imported nor refused")


def imported(
    model: onnx.ModelProto,
    dims: Mapping[str, int],
    meant: Mapping[str, Dim],
    given: Mapping[str, Any] | None,
    made: dict[str, Any] | None,
) -> Traced:
    """The graph of a model, its open dims being ``meant``."""
    importer, pinned = begun(model, dims, meant=meant), pinned_by(dims)
    graph = model.graph
    held: dict[str, Held] = {}
    found = Trace(Graph("model"), held=held)
    with tracing(found):
        importer.weights |= importer.ports
        env = importer.initializers(graph)
        arguments: list[tuple[str, str]] = []  # the names of ports, and those of the file
        for info in graph.input:
            if info.name not in env:
                shape = _shape_of(info, given or {}, pinned)
                env[info.name] = _argument(importer, found.graph, arguments, info.name, info.type, shape)
        names = [port for port, _ in arguments]
        if len(set(names)) < len(names):
            raise MlaotError(f"two inputs are called {max(names, key=names.count)!r}; rename one of them")
        outputs = importer.run(graph, env)
        check_refused(importer)
        results: list[tuple[str, str]] = []
        pairs = zip(graph.output, outputs, strict=True)
        ports = {info.name: _result(found.graph, results, info.name, value) for info, value in pairs}
        if not found.graph.outputs:
            raise Unsupported("no output has an array: sequences and optionals are empty")
        if made is not None:
            made.update(ports)
        if importer.conditions:
            found.graph.outputs[REFUSED] = as_node(_refused([condition for condition, _ in importer.conditions]))
    return Traced(
        found.graph,
        {name: value.array for name, value in held.items()},
        per_example=False,
        arguments=tuple(names),
        refusals=tuple(message for _, message in importer.conditions),
        file_names=dict([*arguments, *results]),
    )


def begun(
    model: onnx.ModelProto,
    dims: Mapping[str, int],
    calls: Mapping[str, Callable[..., Any]] | None = None,
    meant: Mapping[str, Dim] | None = None,
) -> Importer:
    """An importer of a model that keeps ONNX's rules, ready for its nodes; ``calls`` and ``meant`` as there."""
    importlib.import_module("mlaot.onnx.ops")  # fills the registry

    check(model)
    importer = Importer(model, pinned_by(dims), meant or {}, calls)
    graph = model.graph
    importer.ports |= {port_name(info.name) for info in graph.input}
    importer.declare((*graph.output, *graph.value_info))
    importer.declare_backwards(graph)
    return importer


def pinned_by(dims: Mapping[str, int]) -> dict[str, int]:
    """Sizes of open dims by the names that these have in the module."""
    return {identifier(name): size for name, size in dims.items()}


def _argument(
    importer: Importer, graph: Graph, arguments: list[tuple[str, str]], name: str, proto: onnx.TypeProto, shape: Any
) -> Any:
    """The value of an input of a shape as ``_shape_of`` says."""
    if shape is None:
        return None
    if isinstance(shape, list):
        return [_argument(importer, graph, arguments, f"{name}_{i}", proto, s) for i, s in enumerate(shape)]
    arguments.append((port_name(name), name))
    taken = Tensor(graph.input(port_name(name), input_type(importer, name, proto, shape)))
    return coded_as(taken, element_type(proto).tensor_type.elem_type)


def _result(graph: Graph, results: list[tuple[str, str]], name: str, value: Any) -> Any:
    """Make a value an output; its port, or those of a sequence."""
    if value is None:
        return None
    if isinstance(value, list):
        return [_result(graph, results, f"{name}_{i}", element) for i, element in enumerate(value)]
    port = port_name(name)
    if port in graph.outputs:
        raise MlaotError(f"two outputs are called {port!r}; rename one of them")
    graph.outputs[port] = as_node(lifted(plain(served(name, value))))
    results.append((port, name))
    return port


def _shape_of(info: onnx.ValueInfoProto, given: Mapping[str, Any], pinned: Mapping[str, int]) -> Any:
    """The shape of an input as it is given; ``...`` is what the file says."""
    if info.name in given:
        return given[info.name]
    kind = info.type.WhichOneof("value")
    if kind not in ("sequence_type", "optional_type"):
        return ...
    count = pinned.get(identifier(info.name))
    if count is None:
        what = str(kind).removesuffix("_type")
        raise Unsupported(f"input {info.name!r} is a {what}; pin in [..dims] how many arrays {info.name} has")
    if kind == "sequence_type" or info.type.optional_type.elem_type.HasField("sequence_type"):
        return [...] * count
    return ... if count else None


def element_type(proto: onnx.TypeProto) -> onnx.TypeProto:
    """What is in a sequence or an optional, in the end."""
    while (kind := proto.WhichOneof("value")) in ("sequence_type", "optional_type"):
        proto = getattr(proto, kind).elem_type
    return proto


def input_type(importer: Importer, name: str, proto: onnx.TypeProto, shape: Any) -> Type:
    """The type of an input; ``shape``: ``...`` if the file says it."""
    proto = element_type(proto)
    kind = proto.WhichOneof("value")
    if kind != "tensor_type":
        raise Unsupported(f"input {name!r} is a {str(kind).removesuffix('_type')}; a module takes arrays only")
    tensor = proto.tensor_type
    if not tensor.HasField("shape") and shape is ...:
        raise Unsupported(f"input {name!r} has no shape, not even a number of axes; export the model with one")
    try:
        dtype = carrier(tensor.elem_type)
    except Unsupported as error:
        raise Unsupported(f"input {name!r}: {error.message}") from None
    said = tuple(importer.extent(name, i, d) for i, d in enumerate(tensor.shape.dim))
    if shape is ...:
        return Type(dtype, said)
    fits = len(said) == len(shape) and all(a == b for a, b in zip(said, shape, strict=True) if isinstance(a, int))
    if tensor.HasField("shape") and not fits:
        raise MlaotError(f"input {name!r} has the shape [{', '.join(map(str, said))}], not {list(shape)}")
    return Type(dtype, shape)


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


def check_refused(importer: Importer) -> None:
    """Raise if there are nodes that cannot be compiled, and name them all."""
    reasons = list(importer.refused)
    if len(reasons) > 1:
        raise Unsupported(f"{len(reasons)} nodes cannot be compiled: {'; '.join(reasons)}")
    if reasons:
        raise Unsupported(reasons[0])
