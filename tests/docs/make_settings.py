"""Write what follows from the fields of ``mlaot/settings.py``: ``python -m tests.docs.make_settings``.

The JSON Schema that the package carries, for editors, and the tables of ``docs/settings.md``, between their marks.
"""

from __future__ import annotations

import json
from dataclasses import Field
from typing import Any

from mlaot.settings import TABLES
from mlaot.settings.keys import is_required, keys_of, schema_of, spelled
from mlaot.settings.schema import json_schema

from ..projects import ROOT

SCHEMA = ROOT / "mlaot" / "settings.schema.json"
PAGE = ROOT / "docs" / "settings.md"
Key = Field[Any]


def schema() -> str:
    """The text of the JSON Schema."""
    return json.dumps(json_schema(), indent=2) + "\n"


def page(text: str) -> str:
    """The page with its tables as they must be."""
    for kind, where in TABLES.items():
        begin, end = f"<!-- keys of {where} -->\n", "<!-- end -->"
        before, _, rest = text.partition(begin)
        text = f"{before}{begin}{table(kind)}{end}{rest.partition(end)[2]}"
    return text


def table(kind: Any) -> str:
    """A line for each key."""
    lines = ["| key | type | default | meaning | example |", "|---|---|---|---|---|"]
    for key in keys_of(kind).values():
        default = "must be given" if is_required(key) else key.metadata["otherwise"] or f"`{json.dumps(key.default)}`"
        type_name = schema_of(key)["type"].replace("array", "array of strings")
        lines.append(f"| `{spelled(key)}` | {type_name} | {default} | {key.metadata['doc']} | {example(key)} |")
    return "\n".join(lines) + "\n"


def example(key: Key) -> str:
    """A line of TOML, which writes such values as JSON does."""
    return f"`{spelled(key)} = {json.dumps(key.metadata['example'])}`"


if __name__ == "__main__":
    SCHEMA.write_text(schema(), encoding="utf-8")
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
