"""An ONNX file as a declared model: ``mlaot.onnx.load("model.onnx")``."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import mlaot.frontend.numpy as F
import mlaot.onnx.ops  # noqa: F401  fills the registry
from mlaot.errors import MlaotError
from mlaot.frontend.trace.context import Trace, tracing
from mlaot.frontend.trace.declaration import Arrays, Declaration, Reference, Traced
from mlaot.frontend.trace.model import LabelsOf
from mlaot.frontend.trace.promotion import as_node
from mlaot.frontend.trace.tensor import Held, Tensor
from mlaot.frontend.trace.tokens import Tokens
from mlaot.ir import Dim, Graph, Type
from mlaot.ir.dims import assign, dim, names, substitute
from mlaot.ir.types import i64
from mlaot.onnx import columns, deciding
from mlaot.onnx.codes import as_coded, carrier, codes_of, from_ml_dtype, to_ml_dtype
from mlaot.onnx.files import read
from mlaot.onnx.importer import Importer
from mlaot.onnx.protos import all_nodes, domain_of, identifier
from mlaot.onnx.registry import BEYOND, MICROSOFT
from mlaot.onnx.texts import is_text, known_texts, places_in, table_of
from mlaot.onnx.tokens import TEXTS, check_tokens, read_by, text_type
from mlaot.onnx.values import (
    Computed,
    Entries,
    MadeStrings,
    Maps,
    Refined,
    Source,
    Strings,
    Unsupported,
    as_traced,
    dtype_of,
    lift,
    numpy_dtype,
)
from mlaot.settings import AtMost, ModelSettings, Settings, Size
from mlaot.tokenizers.text_steps import TextStep

STRING = onnx.TensorProto.STRING
StepsOf = dict[tuple[str, str], TextStep]  # what makes strings of outputs, by entry and name
TAKEN = ("loss", "lr", "out", "self")
REFUSED = "refused_"
ROUNDS = 32  # imports, each of which finds out more of what open dims are


def load(
    path: str | Path | onnx.ModelProto, dims: Mapping[str, Size] | None = None, tokens: Tokens | None = None
) -> Declaration:
    """Declare an ONNX file, or a model in memory. A relative path is searched beside the calling module first.

    ``dims`` gives sizes of dimensions that the file leaves open, and bounds, ``AtMost``, of lengths that the data
    decide. External tensors must be in the file's folder or below it. With ``tokens`` the model takes texts in place of
    ``input_ids`` and the inputs that belong to it. A file that cannot be compiled raises ``MlaotError``.
    """
    if isinstance(path, onnx.ModelProto):
        return declare(path, dims or {}, place=f"{path.graph.name or 'model'}: ", tokens=tokens)
    beside = Path(sys._getframe(1).f_code.co_filename).parent / path
    found = read(beside if beside.exists() else Path(path))
    return declare(found, dims or {}, place=f"{Path(path).name}: ", tokens=tokens)


def declare_from_settings(settings: Settings, model: ModelSettings, sample: Any = None) -> Declaration:
    """Declare the ONNX file that a project's settings name."""
    path, project = settings.project / model.onnx, settings.project.resolve()
    try:
        is_inside, is_file = path.resolve().is_relative_to(project), path.is_file()
    except (OSError, ValueError, RuntimeError):  # a name that no file can have, links that lead to each other
        is_inside, is_file = True, False
    if not is_inside:
        raise MlaotError(f"{model.onnx} lies outside of {project}; the key 'onnx' names a file of the project: copy it")
    if not is_file:
        raise MlaotError(f"no file {model.onnx!r} in {project}; the key 'onnx' names a file of the project")
    tokens = Tokens(settings.project / model.tokenizer) if model.tokenizer else None
    return replace(declare(read(path), dict(model.dims), place=f"{model.onnx}: ", tokens=tokens), sample=sample)


def declare(
    model: onnx.ModelProto,
    dims: Mapping[str, Size],
    place: str = "",
    shapes: Mapping[str, Any] | None = None,
    ports: dict[str, Any] | None = None,
    tokens: Tokens | None = None,
) -> Declaration:
    """Declare a model in memory.

    ``shapes`` has the shapes of inputs that the file does not fully describe: a list for a sequence, None for an
    optional without a value. ``ports`` receives the port of each output, a list of ports, or None. With ``tokens``
    callers pass texts.
    """
    return Declaration(lambda: trace_model(model, dims, shapes, ports, tokens), place, references(model, tokens))


def graph_inputs(graph: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    """Return the inputs that have no value in the file."""
    names = {tensor.name for tensor in graph.initializer}
    return [info for info in graph.input if info.name not in names]


def references(model: onnx.ModelProto, tokens: Tokens | None = None) -> dict[str, Reference]:
    """Return other implementations of the model: the evaluator of the package onnx, and onnxruntime if it is installed.

    There are none for models of sequences, strings or images, as the graph has their elements, indices or pixels.
    """
    types = [info.type for info in (*model.graph.input, *model.graph.output)]
    nodes = [*all_nodes(model.graph), *(node for function in model.functions for node in function.node)]
    if any(node.op_type == "ImageDecoder" for node in nodes):
        return {}
    if any(t.WhichOneof("value") != "tensor_type" or t.tensor_type.elem_type == STRING for t in types):
        return {}

    def run(compute: Callable[[dict[str, Any]], Any], arrays: Arrays) -> Arrays:
        kinds = {info.name: info.type.tensor_type.elem_type for info in graph_inputs(model.graph)}
        dtypes = {name: numpy_dtype(kind) for name, kind in kinds.items() if kind}
        if tokens:
            given = read_by(tokens, arrays[TEXTS]).items()
            arrays = {**arrays, **{port_name(k): v.astype(dtypes[k]) for k, v in given if k in dtypes}}
        outputs = compute({name: to_ml_dtype(arrays[port_name(name)], dtype) for name, dtype in dtypes.items()})
        names = [port_name(info.name) for info in model.graph.output]
        return dict(zip(names, map(from_ml_dtype, outputs), strict=True))

    def evaluator(feeds: dict[str, Any]) -> Any:
        return importlib.import_module("onnx.reference").ReferenceEvaluator(model).run(None, feeds)

    def runtime(feeds: dict[str, Any]) -> Any:
        onnxruntime = importlib.import_module("onnxruntime")
        onnxruntime.set_default_logger_severity(4)
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        return session.run(None, feeds)

    runs: dict[str, Reference] = {"onnx.reference": partial(run, evaluator)}
    if importlib.util.find_spec("onnxruntime") is not None:
        runs["onnxruntime"] = partial(run, runtime)
    return runs


def check(model: onnx.ModelProto) -> None:
    """Raise ``MlaotError`` for a file that violates ONNX's own rules."""
    infos = (*model.graph.input, *model.graph.output, *model.graph.value_info, *model.graph.initializer)
    texts = [text for node in model.graph.node for text in (node.name, node.op_type, *node.input, *node.output)]
    if not all(isinstance(text, str) for text in (*texts, *(info.name for info in infos))):  # what is no UTF-8 is bytes
        raise MlaotError("not a valid ONNX model: a name is no UTF-8")
    try:
        with _onnxruntimes_apart(model):
            onnx.checker.check_model(model)
    except UnicodeDecodeError:  # in what the checker says of a name
        raise MlaotError("not a valid ONNX model: a name is no UTF-8") from None
    except onnx.checker.ValidationError as error:
        line = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
        raise MlaotError(f"not a valid ONNX model: {line}") from None


@contextmanager
def _onnxruntimes_apart(model: onnx.ModelProto) -> Iterator[None]:
    """In the context, move onnxruntime's operators out of ONNX's domain into onnxruntime's own."""
    moved = [node for node in all_nodes(model.graph) if not domain_of(node) and node.op_type in BEYOND]
    count = len(model.opset_import)
    domains = [node.domain for node in moved]
    if moved and not any(o.domain == MICROSOFT for o in model.opset_import):
        model.opset_import.add(domain=MICROSOFT, version=1)
    try:
        for node in moved:
            node.domain = MICROSOFT
        yield
    finally:
        del model.opset_import[count:]
        for node, domain in zip(moved, domains, strict=True):
            node.domain = domain


def trace_model(
    model: onnx.ModelProto,
    dims: Mapping[str, Size],
    shapes: Mapping[str, Any] | None = None,
    ports: dict[str, Any] | None = None,
    tokens: Tokens | None = None,
) -> Traced:
    """Trace a model, and determine open dims as far as its operators need it.

    If inputs decide shapes, the model is compiled for the values of these in settings, or those that declared shapes
    determine. Otherwise lengths are counted when the model runs.
    """
    shapes = shapes or {}
    try:
        return _settle(model, dims, {}, shapes, ports, [], tokens)
    except Computed as error:
        known = deciding.pinned(model.graph, pinned_by(dims)) or deciding.solve(
            model, lambda numbers, meant: str(_settle(model, dims, meant, shapes, None, [numbers], tokens).graph)
        )
        if known:
            return _settle(model, dims, {}, shapes, ports, known, tokens)
        try:
            return _settle(model, dims, {}, shapes, ports, [], tokens, is_counting=True)
        except MlaotError as other:
            raise (other if isinstance(other, Computed) or most_by(dims) else error) from None


def _settle(
    model: onnx.ModelProto,
    dims: Mapping[str, Size],
    meant: dict[str, Dim],
    shapes: Mapping[str, Any],
    ports: dict[str, Any] | None,
    known: Sequence[deciding.Numbers],
    tokens: Tokens | None,
    *,
    is_counting: bool = False,
) -> Traced:
    """Trace a model repeatedly while its operators determine more of the dims ``meant``."""
    texts = known_texts(model)
    for left in reversed(range(ROUNDS)):
        try:
            return _import_model(model, dims, meant, texts, shapes, ports, known, tokens, is_counting=is_counting)
        except Refined as refined:
            if not left:
                raise MlaotError(refined.message) from None
            kept = {name: dim(name) for value in meant.values() for name in names(value)}
            texts += refined.texts
            told = {name: substitute(value, kept | refined.meant) for name, value in meant.items()}
            meant |= refined.meant | told
    raise AssertionError("bug in mlaot: a model is neither imported nor refused")


def _import_model(
    model: onnx.ModelProto,
    dims: Mapping[str, Size],
    meant: dict[str, Dim],
    texts: tuple[str, ...],
    shapes: Mapping[str, Any],
    ports: dict[str, Any] | None,
    known: Sequence[deciding.Numbers],
    tokens: Tokens | None,
    *,
    is_counting: bool,
) -> Traced:
    """Trace a model with the open dims ``meant`` and the possible values ``known`` of inputs."""
    importer, graph = prepare_importer(model, dims, meant=meant, known=texts), Graph("model")
    importer.is_counting = is_counting
    labels: LabelsOf = {}
    steps: StepsOf = {}
    held: dict[str, Held] = {}
    with tracing(Trace(graph, held=held)):
        importer.weights |= importer.ports
        env = importer.initializers(model.graph)
        arguments: list[tuple[str, str]] = []  # the names of ports, and those of the file
        if tokens:
            env.update(_texts_argument(importer, graph, model, tokens))
            arguments.append((TEXTS, TEXTS))
        for info in model.graph.input:
            if info.name not in env:
                shape = _shape_of(info, shapes, importer.pinned)
                env[info.name] = _argument(importer, graph, arguments, info.name, info.type, shape)
        inputs = [port for port, _ in arguments]
        if len(set(inputs)) < len(inputs):
            raise MlaotError(f"two inputs are called {max(inputs, key=inputs.count)!r}; rename one of them")
        outputs = deciding.run(importer, model.graph, env, known, meant)
        check_refused(importer)
        results: list[tuple[str, str]] = []
        for info, value in zip(model.graph.output, outputs, strict=True):
            port = _result(importer, graph, results, labels, steps, info.name, value)
            if ports is not None:
                ports[info.name] = port
        if not graph.outputs:
            raise Unsupported("no output has an array: sequences and optionals are empty")
        add_counts(graph, importer)
        if importer.conditions:
            graph.outputs[REFUSED] = as_node(_first_refused([condition for condition, _ in importer.conditions]))
    return Traced(
        graph,
        {name: value.array for name, value in held.items()},
        per_example=False,
        arguments=tuple(inputs),
        refusals=tuple(message for _, message in importer.conditions),
        file_names={} if tokens else dict([*arguments, *results]),
        labels=labels,
        steps=steps,
    )


def add_counts(graph: Graph, importer: Importer) -> None:
    """Add the counted lengths as outputs."""
    for name, node in importer.counts.items():
        key = f"{name}_counted"
        while key in graph.outputs:
            key += "_"
        graph.outputs[key] = node
    unknown = sorted(importer.most.keys() - importer.counts.keys() - importer.meant.keys())
    if unknown:
        known = ", ".join(importer.counts) or "none"
        raise MlaotError(
            f"[..dims] says how long {unknown[0]} is at most, but the lengths that are counted are {known}"
        )


def prepare_importer(
    model: onnx.ModelProto,
    dims: Mapping[str, Size],
    calls: Mapping[str, Callable[..., Any]] | None = None,
    meant: Mapping[str, Dim] | None = None,
    known: tuple[str, ...] = (),
) -> Importer:
    """Return an importer of a valid model, ready for its nodes; the arguments are those of ``_import_model``."""
    check(model)
    importer = Importer(model, pinned_by(dims), meant or {}, calls, known, most_by(dims))
    importer.ports |= {port_name(info.name) for info in model.graph.input}
    importer.declare((*model.graph.output, *model.graph.value_info))
    importer.declare_backwards(model.graph)
    return importer


def pinned_by(dims: Mapping[str, Size]) -> dict[str, int]:
    """Return sizes of open dims by the dims' names in the module."""
    return {identifier(name): size for name, size in dims.items() if isinstance(size, int)}


def most_by(dims: Mapping[str, Size]) -> dict[str, int]:
    """Return bounds of counted lengths by the dims' names in the module."""
    return {identifier(name): size.most for name, size in dims.items() if isinstance(size, AtMost)}


def _argument(
    importer: Importer, graph: Graph, arguments: list[tuple[str, str]], name: str, proto: onnx.TypeProto, shape: Any
) -> Any:
    """Return the value of an input with a shape from ``_shape_of``."""
    if shape is None:
        return None
    if isinstance(shape, list):
        return [_argument(importer, graph, arguments, f"{name}_{i}", proto, s) for i, s in enumerate(shape)]
    arguments.append((port_name(name), name))
    if element_type(proto).HasField("map_type"):
        return _entries(importer, graph, name, element_type(proto).map_type)
    type_ = input_type(importer, name, proto, shape)
    if element_type(proto).tensor_type.elem_type == STRING:
        index = Tensor(graph.input(port_name(name), type_, strings=importer.known, further=True))
        source = Source(port_name(name), type_.shape)
        return Strings(index, np.array(importer.known, object), is_open=True, source=source)
    return as_coded(Tensor(graph.input(port_name(name), type_)), element_type(proto).tensor_type.elem_type)


def _texts_argument(importer: Importer, graph: Graph, model: onnx.ModelProto, tokens: Tokens) -> dict[str, Any]:
    """Return the values of the inputs that texts replace."""
    infos = {info.name: info.type.tensor_type for info in graph_inputs(model.graph)}
    check_tokens(model.graph, infos, tokens)
    types = {name: input_type(importer, name, onnx.TypeProto(tensor_type=infos[name]), ...) for name in infos}
    rows = Tensor(graph.input(TEXTS, text_type(types), rows=tokens.made))
    found = {name: value for name, value in read_by(tokens, rows).items() if name in infos}
    return {name: F.astype(value, types[name].dtype.numpy) for name, value in found.items()}


def _entries(importer: Importer, graph: Graph, name: str, proto: onnx.TypeProto.Map) -> Entries:
    """Return a map among the inputs."""
    kind = element_type(proto.value_type).tensor_type.elem_type
    if kind == STRING or proto.key_type not in (STRING, onnx.TensorProto.INT64):
        raise Unsupported(f"input {name!r} is a map, but not of strings or int64 to numbers")
    dtype, count = dtype_of(kind), (dim(identifier(f"{name}_0")),)
    notes: dict[str, Any] = {"strings": importer.known, "further": True} if proto.key_type == STRING else {}
    keys: Any = Tensor(graph.input(port_name(name), Type(i64, count), map=dtype.name, **notes))
    if notes:
        keys = Strings(keys, np.array(importer.known, object), is_open=True)
    step = TextStep("values", (port_name(name),), dtype=dtype.name)
    return Entries(keys, importer.made_input(f"{name}_values", step, Type(dtype, count), strings=False))


def _result(
    importer: Importer,
    graph: Graph,
    results: list[tuple[str, str]],
    labels: LabelsOf,
    steps: StepsOf,
    name: str,
    value: Any,
) -> Any:
    """Make a value an output; return its port, or those of a sequence."""
    if value is None:
        return None
    if isinstance(value, list):
        every = enumerate(value)
        return [_result(importer, graph, results, labels, steps, f"{name}_{i}", one) for i, one in every]
    port = port_name(name)
    if port in graph.outputs:
        raise MlaotError(f"two outputs are called {port!r}; rename one of them")
    if isinstance(value, MadeStrings):
        labels["forward", port] = importer.known
        steps["forward", port] = value.step
        value = columns.stacked(importer.known, value)
    elif is_text(value):
        table = value.table if isinstance(value, Strings) else dict.fromkeys(table_of(value))
        labels["forward", port] = tuple(map(str, table)) or ("",)
        value = F.astype(as_traced(places_in(labels["forward", port], value)), np.int64)
    graph.outputs[port] = as_node(lift(codes_of(value.values if isinstance(value, Maps) else value)))
    results.append((port, name))
    return port


def _shape_of(info: onnx.ValueInfoProto, shapes: Mapping[str, Any], pinned: Mapping[str, int]) -> Any:
    """Return the shape of an input that the caller gives; ``...`` stands for the shape in the file."""
    if info.name in shapes:
        return shapes[info.name]
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
    """Return the innermost element type of a sequence or an optional."""
    while (kind := proto.WhichOneof("value")) in ("sequence_type", "optional_type"):
        proto = getattr(proto, kind).elem_type
    return proto


def input_type(importer: Importer, name: str, proto: onnx.TypeProto, shape: Any) -> Type:
    """Return the type of an input; ``shape`` is ``...`` for the shape in the file."""
    proto = element_type(proto)
    kind = proto.WhichOneof("value")
    if kind != "tensor_type":
        raise Unsupported(f"input {name!r} is a {str(kind).removesuffix('_type')}; a module takes arrays only")
    tensor = proto.tensor_type
    if not tensor.HasField("shape") and shape is ...:
        raise Unsupported(f"input {name!r} has no shape, not even a number of axes; export the model with one")
    try:
        dtype = i64 if tensor.elem_type == STRING else carrier(tensor.elem_type)
    except Unsupported as error:
        raise Unsupported(f"input {name!r}: {error.message}") from None
    declared = tuple(importer.extent(name, i, d) for i, d in enumerate(tensor.shape.dim))
    if shape is ...:
        return Type(dtype, declared)
    fits = len(declared) == len(shape) and all(
        a == b for a, b in zip(declared, shape, strict=True) if isinstance(a, int)
    )
    if tensor.HasField("shape") and not fits:
        raise MlaotError(f"input {name!r} has the shape [{', '.join(map(str, declared))}], not {list(shape)}")
    return Type(dtype, tuple(assign(extent, importer.meant) for extent in shape))


def port_name(name: str) -> str:
    """Return the name of an input or output in the module."""
    word = identifier(name)
    return f"{word}_" if word in TAKEN else word


def _first_refused(conditions: list[Any]) -> Any:
    """Return the number of the first condition that does not hold, from 1 on; 0 where all do."""
    first: Any = np.int64(0)
    for number in range(len(conditions), 0, -1):
        first = np.where(conditions[number - 1], first, np.int64(number))
    return first


def check_refused(importer: Importer) -> None:
    """Raise if there are nodes that cannot be compiled, and name them all."""
    reasons = list(importer.refused)
    kind = Computed if all(issubclass(kind, Computed) for kind in importer.refused.values()) else Unsupported
    if len(reasons) > 1:
        raise kind(f"{len(reasons)} nodes cannot be compiled: {'; '.join(reasons)}")
    if reasons:
        raise kind(reasons[0])
