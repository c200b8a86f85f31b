"""JSON Schema of ``[tool.mlaot]``, generated from its keys."""

from __future__ import annotations

import json
from dataclasses import MISSING
from typing import Any

from mlaot.settings import DIM, FILE, KINDS, Budget, Lora, ModelSettings, OnnxRuntime, ProjectBudget, Settings
from mlaot.settings.keys import is_required, keys_of, schema_of

AT_MOST = {"type": "object", "properties": {"most": DIM}, "required": ["most"], "additionalProperties": False}


def json_schema(tool: str = "mlaot") -> dict[str, Any]:
    """Return the JSON Schema of ``[tool.mlaot]``; entry point ``validate_pyproject.tool_schema``."""
    top, model = table_schema(Settings), table_schema(ModelSettings)
    model["properties"]["budget"] = table_schema(Budget)
    model["properties"]["lora"] = table_schema(Lora)
    model["oneOf"] = [{"required": [kind]} for kind in KINDS]
    model["properties"]["dims"] = {
        "type": "object",
        "description": "sizes of dimensions that the ONNX file leaves open, and bounds of lengths that the data decide",
        "additionalProperties": {"anyOf": [DIM, AT_MOST]},
    }
    top["properties"]["budget"] = table_schema(ProjectBudget)
    top["properties"]["onnxruntime"] = table_schema(OnnxRuntime)
    top["properties"]["models"] = {
        "type": "object",
        "description": "one table for each model",
        "minProperties": 1,
        "additionalProperties": model,
    }
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": f"urn:{tool}:settings",
        "description": f"[tool.{tool}] of {FILE}",
        **top,
        "required": [],
        "anyOf": [{"required": ["models"]}, {"required": ["onnxruntime"]}],
    }
    plain: dict[str, Any] = json.loads(json.dumps(schema))  # tuples become lists
    return plain


def table_schema(kind: Any) -> dict[str, Any]:
    """Return the JSON Schema of the table that becomes a ``kind``."""
    properties = {}
    for name, key in keys_of(kind).items():
        texts = {"description": key.metadata["doc"], "examples": [key.metadata["example"]]}
        default = {} if key.metadata["otherwise"] or key.default is MISSING else {"default": key.default}
        properties[name] = schema_of(key) | default | texts
    required = [name for name, key in keys_of(kind).items() if is_required(key)]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
