"""The contents of a file as Python values: names, tensors, attributes and functions."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from mlaot.errors import MlaotError
from mlaot.frontend.trace.tensor import Parameter
from mlaot.onnx.values import Array, kind_of

FEWEST = 2  # elements of a weight; a single number is a constant
ALIASES = {"ai.onnx": ""}
TORCH_SCOPES = "pkg.torch.onnx.name_scopes"  # of a node's metadata
TORCH_TRACE = "pkg.torch.onnx.stack_trace"
FRAME = re.compile(r'File "([^"\n]+)", line (\d+)')


def domain_of(proto: Any) -> str:
    """Return the domain of a node, a function or an opset; that of ONNX's own operators is empty."""
    domain: str = proto.domain
    return ALIASES.get(domain, domain)


def title(node: onnx.NodeProto) -> str:
    """Return the name of a node in messages."""
    name = node.name or next((name for name in node.output if name), "")
    domain = f"{node.domain}." if node.domain else ""
    return f"node {name!r} ({domain}{node.op_type})"


def part_of(node: onnx.NodeProto) -> str:
    """Return the part of a model that a node belongs to: ``encoder.fc1`` for ``/encoder/fc1/Gemm``.

    PyTorch's exporter notes the names of the modules around a node, and that of the function in the last one.
    """
    scopes = next((each.value for each in node.metadata_props if each.key == TORCH_SCOPES), "")
    names: list[str] = re.findall(r"'([^']*)'", scopes)
    if names:
        return names[-2] if len(names) > 1 and names[-2] else names[-1]
    *path, last = node.name.strip("/").split("/")
    return ".".join(path) if path and last.startswith(node.op_type) else ".".join([*path, last or node.op_type])


def line_of(node: onnx.NodeProto) -> str:
    """Return the line of the user's code that PyTorch's exporter noted for a node, as ``model.py:12``."""
    trace = next((each.value for each in node.metadata_props if each.key == TORCH_TRACE), "")
    frames = [(Path(file.replace("\\", "/")), line) for file, line in FRAME.findall(trace)]
    users = [f"{file.name}:{line}" for file, line in frames if "torch" not in file.parts]
    return users[-1] if users else ""


def identifier(name: str) -> str:
    """Convert a name of ONNX, which can be any text, to an identifier of Python and C."""
    word = re.sub(r"\W", "_", name, flags=re.ASCII).strip("_") or "x"
    word = f"x{word}" if word[0].isdigit() else word
    return f"{word}_" if keyword.iskeyword(word) else word


def is_closed(info: onnx.ValueInfoProto) -> bool:
    """Tell whether all extents are numbers. Names of dimensions inside of a node have no meaning outside."""
    return all(extent.HasField("dim_value") for extent in info.type.tensor_type.shape.dim)


def decode(text: bytes) -> str:
    """Decode text of a file, with damaged parts replaced."""
    return text.decode("utf-8", "replace")


def constant(tensor: onnx.TensorProto, weight_name: str = "") -> Any:
    """Read a tensor of the file. With a name, a tensor of floats becomes a parameter."""
    try:
        if tensor.data_type == onnx.TensorProto.STRING:
            return np.array(list(map(decode, tensor.string_data)), np.str_).reshape(tuple(tensor.dims))
        array = np.asarray(onnx.numpy_helper.to_array(tensor))
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise MlaotError(f"the tensor {tensor.name!r} is damaged: {' '.join(str(error).split())}") from None
    return as_weight(array, weight_name) if weight_name else array


def as_weight(array: Array, name: str) -> Any:
    """Convert an array of several floats to a parameter; return anything else unchanged."""
    is_weight = kind_of(array) == "f" and array.size >= FEWEST and array.dtype.itemsize <= 8
    return Parameter(name, array) if is_weight else array


def dense(sparse: onnx.SparseTensorProto) -> Array:
    """Return a sparse constant with its zeros."""
    values, places = constant(sparse.values), constant(sparse.indices)
    result = np.zeros(tuple(sparse.dims), values.dtype)
    if places.ndim == 1:
        result.reshape(-1)[places] = values
    else:
        result[tuple(places.T)] = values
    return result


def attribute_value(attribute: onnx.AttributeProto) -> Any:
    """Return an attribute as a Python value, with tensors as arrays."""
    value = onnx.helper.get_attribute_value(attribute)
    match attribute.type:
        case attribute.STRING:
            return decode(value)
        case attribute.STRINGS:
            return list(map(decode, value))
        case attribute.INTS | attribute.FLOATS:
            return list(value)
        case attribute.TENSOR:
            return constant(value)
        case attribute.SPARSE_TENSOR:
            return dense(value)
    return value


def inner_graphs(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """Return the graphs among the attributes of a node."""
    return [g for a in node.attribute for g in ([a.g] if a.type == a.GRAPH else a.graphs)]


def all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Yield the nodes of a graph, and those of graphs inside of them."""
    for node in graph.node:
        yield node
        for inner in inner_graphs(node):
            yield from all_nodes(inner)


def bind_attributes(node: onnx.NodeProto, values: Mapping[str, onnx.AttributeProto]) -> onnx.NodeProto:
    """Replace references of a function's node to attributes by the call's attributes."""
    if not any(a.ref_attr_name or a.type in (a.GRAPH, a.GRAPHS) for a in node.attribute):
        return node
    result = onnx.NodeProto()
    result.CopyFrom(node)
    del result.attribute[:]
    for attribute in node.attribute:
        value = values.get(attribute.ref_attr_name) if attribute.ref_attr_name else attribute
        if value is not None:
            result.attribute.add().CopyFrom(value)
            result.attribute[-1].name = attribute.name
    for graph in inner_graphs(result):
        nodes = [bind_attributes(inner, values) for inner in graph.node]
        del graph.node[:]
        graph.node.extend(nodes)
    return result


def function_body(node: onnx.NodeProto, opset: int, types: Sequence[onnx.TypeProto]) -> onnx.FunctionProto | None:
    """Return the function of which ONNX composes an operator, or None."""
    schema = schema_of(node, opset)
    if schema is None:
        return None
    data: Any = None
    if schema.has_function:
        versions = [v for v in schema.function_opset_versions if v <= opset]
        data = schema.get_function_with_opset_version(versions[-1]) if versions else schema.function_body
    elif schema.has_context_dependent_function:
        versions = [v for v in schema.context_dependent_function_opset_versions if v <= opset]
        if versions:
            data = schema.get_context_dependent_function_with_opset_version(
                versions[-1], node.SerializeToString(), [t.SerializeToString() for t in types]
            )
    if not data:
        return None
    body = onnx.FunctionProto()
    body.CopyFrom(data if isinstance(data, onnx.FunctionProto) else onnx.FunctionProto.FromString(data))
    for name, attribute in schema.attributes.items():  # what a call leaves out
        if attribute.default_value.type:
            body.attribute_proto.add().CopyFrom(attribute.default_value)
            body.attribute_proto[-1].name = name
    return body


def schema_of(node: onnx.NodeProto, opset: int) -> Any:
    """Return ONNX's schema of an operator, or None."""
    try:
        return onnx.defs.get_schema(node.op_type, opset, domain_of(node))
    except onnx.defs.SchemaError:
        return None
