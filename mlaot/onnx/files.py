"""ONNX files and their external tensors."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError

from mlaot.errors import MlaotError

BYTES = re.compile(r"[0-9]{1,18}")  # a number of them that fits in 64 bits
LONGEST = 1024  # characters of a path


def read(path: Path) -> onnx.ModelProto:
    """Read a file with its external tensors, and check them."""
    model = parse(read_bytes(path), path)
    _read_external(model, path)
    return model


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a file."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise MlaotError(f"cannot read {path}: {error.strerror}") from None


def parse(content: bytes, path: Path) -> onnx.ModelProto:
    """Return the model of a file's bytes, without its external tensors."""
    try:
        model: onnx.ModelProto = onnx.ModelProto.FromString(content)
    except (DecodeError, ValueError):
        if content.startswith(b"version https://git-lfs"):
            raise MlaotError(f"{path} is a pointer of Git LFS, not the file itself; fetch it: git lfs pull") from None
        raise MlaotError(f"{path} is no ONNX file, or it is damaged") from None
    return model


def _read_external(model: onnx.ModelProto, path: Path) -> None:
    folder = path.resolve().parent
    for tensor in (*_tensors(model.graph), *(t for f in model.functions for t in _attribute_tensors(f.node))):
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
    """Load the bytes of an external tensor from a file in ``folder`` or below it."""
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
    """Return all tensors of a graph and of those inside of it."""
    yield from graph.initializer
    yield from _parts(graph.sparse_initializer)
    yield from _attribute_tensors(graph.node)


def _attribute_tensors(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.TensorProto]:
    """Return the tensors among the attributes of nodes."""
    for attribute in (attribute for node in nodes for attribute in node.attribute):
        yield from (*([attribute.t] if attribute.HasField("t") else ()), *attribute.tensors)
        is_sparse = attribute.HasField("sparse_tensor")
        yield from _parts([*([attribute.sparse_tensor] if is_sparse else ()), *attribute.sparse_tensors])
        for graph in (*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs):
            yield from _tensors(graph)


def _parts(tensors: Iterable[onnx.SparseTensorProto]) -> Iterator[onnx.TensorProto]:
    for sparse in tensors:
        yield from (sparse.values, sparse.indices)
