"""Write the wheel's bill of materials: CycloneDX 1.6 in ``.dist-info/sboms`` (PEP 770), with the origin of each model.

The same build gives the same bytes: the file has no time and no path, and its serial number follows from the content.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import quote

from mlaot.build import checksums
from mlaot.build.toolchain import CompilerInfo
from mlaot.checked_json import read_json
from mlaot.schedule.machine import PYTHON
from mlaot.settings import METADATA, SOURCES, ModelSettings

Data = dict[str, Any]
# The keys of ``model.json`` that are read here.
CALL = {
    "entry": str,
    "dims": {str: int},
    "inputs": [list],
    "draws": [list],
    "outputs": [{"name": str, "bound": object, "sums": list, "largest": object}],
}
INFO = {"entries": {str: {"inputs": {str: str}, "outputs": {str: str}}}, "parameter_count": int}
METADATA_SHAPE = {
    **{"info": INFO, "weights": {"sha256": str, "bytes": int}, "graph": str, "mlaot": str, "golden": [CALL]},
    **{"elements": {str: int}, "ops": {str: {str: int}}, "workspace": {str: int}},
    "requires?": [str],
}
SCHEMA = "http://cyclonedx.org/schema/bom-1.6.schema.json"


def sbom_path(name: str) -> str:
    """Return the path below the wheel's ``.dist-info``."""
    return f"sboms/{name}.cdx.json"


def card_path(module: str) -> str:
    """Return the path of a model's card below the wheel's ``.dist-info``."""
    return f"model-cards/{module}.md"


def read_metadata(generated: Path, model: ModelSettings) -> Data:
    """Read ``model.json`` of one model below the folder of the generated C."""
    metadata: Data = read_json(generated / model.module / METADATA, METADATA_SHAPE, f"{model.module}/{METADATA}")
    return metadata


def sbom(
    project: Mapping[str, Any],
    models: Iterable[ModelSettings],
    generated: Path,
    compiler: CompilerInfo | None,
    abi: str,
) -> str:
    """Return the text of the bill for the table [project], its models, their compiler if any, and the wheel's ABI."""
    sources = read_json(generated / SOURCES, {str: str}, SOURCES)
    about = about_project(project)
    parts = [
        *(model_component(model, read_metadata(generated, model), compiler, abi, about) for model in models),
        *(file_component(name, digest) for name, digest in sorted(sources.items())),
    ]
    bom: Data = {
        "$schema": SCHEMA,
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "lifecycles": [{"phase": "build"}],
            "tools": {
                "components": [tool("mlaot", version("mlaot")), *([compiler_tool(compiler)] if compiler else [])]
            },
            "component": {"type": "library", "bom-ref": about["purl"], **about},
        },
        "components": parts,
        "dependencies": [{"ref": about["purl"], "dependsOn": [part["bom-ref"] for part in parts]}],
    }
    content = json.dumps(bom, sort_keys=True)
    bom["serialNumber"] = uuid.uuid5(uuid.NAMESPACE_URL, content).urn
    return json.dumps(bom, indent=1, sort_keys=True) + "\n"


def about_project(project: Mapping[str, Any]) -> Data:
    """Describe the project: name, version, address, licence. A version that the backend computes is left out."""
    about: Data = {"name": project["name"], "purl": f"pkg:pypi/{project['name'].lower().replace('_', '-')}"}
    if isinstance(number := project.get("version"), str):
        about |= {"version": number, "purl": f"{about['purl']}@{number}"}
    match project.get("license"):
        case str(expression):
            about["licenses"] = [{"expression": expression}]
        case {"text": str(text)} | {"file": str(text)}:
            about["licenses"] = [{"license": {"name": text}}]
    return about


def model_component(model: ModelSettings, metadata: Data, compiler: CompilerInfo | None, abi: str, about: Data) -> Data:
    """Describe a model: its functions, its weights, the bounds of its errors, how it was compiled."""
    entries, weights = metadata["info"]["entries"].values(), metadata["weights"]
    values = {
        "graph:sha256": metadata["graph"],
        "parameters": metadata["info"]["parameter_count"],
        "weights:bytes": weights["bytes"],
        **{f"weights:elements:{dtype}": count for dtype, count in metadata["elements"].items()},
        **{f"ops:{entry}": count_text(ops) for entry, ops in metadata["ops"].items()},
        **{
            f"flags:{unit}": " ".join(flags)
            for unit, flags in (compiler.flags[model.module] if compiler else {}).items()
        },
        "model": model.declared,
        "generator": f"mlaot {metadata['mlaot']}",
        "isa": " ".join(compiler.isas) if compiler else PYTHON.name,
        "python-tag": abi,
        "deterministic": json.dumps(model.deterministic),
    }
    bounds = [
        {"type": f"largest error of {output['name']}", "slice": call["entry"], "value": repr(output["bound"])}
        for call in metadata["golden"]
        for output in call["outputs"]
    ]
    ports = {
        key: [{"format": f"{name}: {text}"} for entry in entries for name, text in entry[key].items()]
        for key in ("inputs", "outputs")
    }
    return {
        "type": "machine-learning-model",
        "bom-ref": model.module,
        "name": model.module,
        **{key: about[key] for key in ("version", "licenses") if key in about},
        **({"licenses": [{"expression": model.license}]} if model.license else {}),
        **({"externalReferences": files} if (files := metadata_files(model)) else {}),
        "modelCard": {
            "modelParameters": {key: deduplicate(formats) for key, formats in ports.items() if formats},
            **({"quantitativeAnalysis": {"performanceMetrics": bounds}} if bounds else {}),
        },
        "components": [
            {
                "type": "data",
                "bom-ref": f"{model.module}:weights",
                "name": "weights",
                "hashes": sha256(weights["sha256"]),
            }
        ],
        "properties": properties(values),
    }


def metadata_files(model: ModelSettings) -> list[Data]:
    """Return references to a model's licences and card, by their paths in the wheel relative to the bill."""
    cards = {card_path(model.module): model.model_card} if model.model_card else {}
    licences = {f"licenses/{file}": file for file in model.license_files}
    return [
        {"type": kind, "url": f"../{quote(name)}", "hashes": sha256(checksums.digest(Path(file)))}
        for kind, files in (("license", licences), ("model-card", cards))
        for name, file in files.items()
    ]


def count_text(ops: Mapping[str, int]) -> str:
    """Format counts: ``add 2, contract 5``."""
    return ", ".join(f"{op} {count}" for op, count in ops.items())


def deduplicate(items: list[Data]) -> list[Data]:
    """Return each item once."""
    return [item for number, item in enumerate(items) if item not in items[:number]]


def file_component(name: str, digest: str) -> Data:
    """Describe a file that tracing read."""
    return {"type": "file", "bom-ref": f"file:{name}", "name": name, "hashes": sha256(digest)}


def sha256(digest: str) -> list[Data]:
    """Format a digest."""
    return [{"alg": "SHA-256", "content": digest}]


def tool(name: str, number: str) -> Data:
    """Describe a program that took part in the build."""
    return {"type": "application", "name": name, "version": number}


def compiler_tool(compiler: CompilerInfo) -> Data:
    """Describe the C compiler, its target, and the user's environment variables for it."""
    values = {"target": compiler.target, **compiler.environ}
    return {**tool(compiler.name, compiler.version), "description": compiler.line, "properties": properties(values)}


def properties(values: Mapping[str, Any]) -> list[Data]:
    """Return names and values as CycloneDX properties, sorted by name."""
    return [{"name": f"mlaot:{name}", "value": str(value)} for name, value in sorted(values.items())]
