"""The wheel's bill of materials: CycloneDX 1.6 in ``.dist-info/sboms`` (PEP 770), what each model was made from and by.

The same build gives the same bytes: no time, no path, and a serial number that follows from the content.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from mlaot.build.toolchain import Compiler
from mlaot.settings import FACTS, SOURCES, Model
from mlaot.stored import read_json

Data = dict[str, Any]
# What is read of ``model.json``.
CALL = {
    "entry": str,
    "dims": {str: int},
    "inputs": [list],
    "outputs": [{"name": str, "bound": object, "elements": list}],
}
INFO = {"entries": {str: {"inputs": {str: str}, "outputs": {str: str}}}, "parameter_count": int}
FACTS_SHAPE = {
    **{"info": INFO, "weights": {"sha256": str, "bytes": int}, "graph": str, "mlaot": str, "golden": [CALL]},
    **{"elements": {str: int}, "ops": {str: {str: int}}, "workspace": {str: int}},
}
SCHEMA = "http://cyclonedx.org/schema/bom-1.6.schema.json"


def sbom_path(name: str) -> str:
    """Below the wheel's ``.dist-info``."""
    return f"sboms/{name}.cdx.json"


def read_facts(generated: Path, model: Model) -> Data:
    """``model.json`` of one model below the folder of the generated C."""
    facts: Data = read_json(generated / model.module / FACTS, FACTS_SHAPE, f"{model.module}/{FACTS}")
    return facts


def sbom(project: Mapping[str, Any], models: Iterable[Model], generated: Path, compiler: Compiler, abi: str) -> str:
    """The text of a wheel's bill: of the table [project], its models, their compiler, and the wheel's ABI."""
    sources = read_json(generated / SOURCES, {str: str}, SOURCES)
    about = about_project(project)
    parts = [
        *(model_component(model, read_facts(generated, model), compiler, abi, about) for model in models),
        *(file_component(name, digest) for name, digest in sorted(sources.items())),
    ]
    bom: Data = {
        "$schema": SCHEMA,
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "lifecycles": [{"phase": "build"}],
            "tools": {"components": [tool("mlaot", version("mlaot")), compiler_tool(compiler)]},
            "component": {"type": "library", "bom-ref": about["purl"], **about},
        },
        "components": parts,
        "dependencies": [{"ref": about["purl"], "dependsOn": [part["bom-ref"] for part in parts]}],
    }
    content = json.dumps(bom, sort_keys=True)
    bom["serialNumber"] = uuid.uuid5(uuid.NAMESPACE_URL, content).urn
    return json.dumps(bom, indent=1, sort_keys=True) + "\n"


def about_project(project: Mapping[str, Any]) -> Data:
    """Name, version, address and licence of the project; a version that its backend finds is the wheel's own."""
    found: Data = {"name": project["name"], "purl": f"pkg:pypi/{project['name'].lower().replace('_', '-')}"}
    if isinstance(said := project.get("version"), str):
        found |= {"version": said, "purl": f"{found['purl']}@{said}"}
    match project.get("license"):
        case str(expression):
            found["licenses"] = [{"expression": expression}]
        case {"text": str(text)} | {"file": str(text)}:
            found["licenses"] = [{"license": {"name": text}}]
    return found


def model_component(model: Model, facts: Data, compiler: Compiler, abi: str, about: Data) -> Data:
    """A model: its functions, its weights, how far off its answers may be, how it was compiled."""
    entries, weights = facts["info"]["entries"].values(), facts["weights"]
    said = {
        "graph:sha256": facts["graph"],
        "parameters": facts["info"]["parameter_count"],
        "weights:bytes": weights["bytes"],
        **{f"weights:elements:{dtype}": count for dtype, count in facts["elements"].items()},
        **{f"ops:{entry}": counted(ops) for entry, ops in facts["ops"].items()},
        **{f"flags:{unit}": " ".join(flags) for unit, flags in compiler.flags[model.module].items()},
        "model": model.declared,
        "generator": f"mlaot {facts['mlaot']}",
        "isa": " ".join(compiler.isas),
        "python-tag": abi,
        "deterministic": json.dumps(model.deterministic),
    }
    bounds = [
        {"type": f"largest error of {output['name']}", "slice": call["entry"], "value": repr(output["bound"])}
        for call in facts["golden"]
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
        "modelCard": {
            "modelParameters": {key: distinct(some) for key, some in ports.items() if some},
            **({"quantitativeAnalysis": {"performanceMetrics": bounds}} if bounds else {}),
        },
        "components": [
            {
                "type": "data",
                "bom-ref": f"{model.module}:weights",
                "name": "weights",
                "hashes": [{"alg": "SHA-256", "content": weights["sha256"]}],
            }
        ],
        "properties": properties(said),
    }


def counted(ops: Mapping[str, int]) -> str:
    """``add 2, contract 5``"""
    return ", ".join(f"{op} {count}" for op, count in ops.items())


def distinct(items: list[Data]) -> list[Data]:
    """Each item once."""
    return [item for number, item in enumerate(items) if item not in items[:number]]


def file_component(name: str, digest: str) -> Data:
    """A file that was read when the models were traced."""
    hashes = [{"alg": "SHA-256", "content": digest}]
    return {"type": "file", "bom-ref": f"file:{name}", "name": name, "hashes": hashes}


def tool(name: str, said: str) -> Data:
    """A program that took part."""
    return {"type": "application", "name": name, "version": said}


def compiler_tool(compiler: Compiler) -> Data:
    """The C compiler, what it compiled for, and what the user's environment told it."""
    said = {"target": compiler.target, **compiler.environ}
    return {**tool(compiler.name, compiler.version), "description": compiler.line, "properties": properties(said)}


def properties(said: Mapping[str, Any]) -> list[Data]:
    """Names and values in CycloneDX's way, in the order of the names."""
    return [{"name": f"mlaot:{name}", "value": str(value)} for name, value in sorted(said.items())]
