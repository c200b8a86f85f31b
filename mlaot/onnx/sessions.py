"""The package that stands in for onnxruntime, for several ONNX files, each of which is a compiled module.

Its code is the same for all projects (``templates/onnxruntime``), except for a table of the files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import onnx

from mlaot.onnx.files import parse, read_bytes
from mlaot.render import render, template_text
from mlaot.settings import ONNX_FILES, ModelSettings

TEMPLATES = (
    "__init__.py",
    *("capi/__init__.py", "capi/_pybind_state.py"),
    *("capi/onnxruntime_inference_collection.py", "capi/onnxruntime_pybind11_state.py"),
)
NO_VERSION = 2**63 - 1  # as onnxruntime says it
Shapes = dict[str, list[int | str | None]]


@dataclass(frozen=True)
class File:
    """A file for the template: its inputs and outputs, its metadata, and its module.

    ``name`` is its path within the project.
    """

    name: str
    sha256: str
    package: str
    stem: str
    inputs: Shapes
    outputs: Shapes
    metadata: Mapping[str, object]


def package_files(package: str, models: Mapping[str, ModelSettings], project: Path) -> dict[str, str]:
    """Return the files of the package, in the folder that has its name, and the list of the ONNX files beside it.

    ``models`` has the model of each file.
    """
    files = [read_file(project, file, model) for file, model in models.items()]
    return {
        ONNX_FILES: json.dumps(list(models), indent=1) + "\n",
        **{f"{package}/{name}": template_text(f"onnxruntime/{name}") for name in TEMPLATES},
        f"{package}/capi/files.py": render("onnxruntime/capi/files.py.j2", files=files, repr=repr),
    }


def read_file(project: Path, file: str, settings: ModelSettings) -> File:
    """Read the metadata of a file."""
    content = read_bytes(project / file)
    model = parse(content, project / file)
    return File(
        file,
        hashlib.sha256(content).hexdigest(),
        settings.package,
        settings.stem,
        shapes(model.graph.input),
        shapes(model.graph.output),
        {
            "producer_name": text(model.producer_name),
            "graph_name": text(model.graph.name),
            "domain": text(model.domain),
            "description": text(model.doc_string),
            "graph_description": text(model.graph.doc_string),
            "version": model.model_version if model.HasField("model_version") else NO_VERSION,
            "custom_metadata_map": {text(entry.key): text(entry.value) for entry in model.metadata_props},
        },
    )


def text(value: str | bytes) -> str:
    """Return a text of a file, which protobuf returns as bytes if it is not UTF-8."""
    return value if isinstance(value, str) else value.decode(errors="replace")


def shapes(infos: Iterable[onnx.ValueInfoProto]) -> Shapes:
    """Return the shapes in the file, with the names of open dimensions, or None for unnamed ones."""
    return {
        info.name: [
            dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else text(dim.dim_param) or None
            for dim in info.type.tensor_type.shape.dim
        ]
        for info in infos
        if info.type.tensor_type.HasField("shape")
    }
