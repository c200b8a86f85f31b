"""Read the bill of materials in a wheel, as ``mlaot.build.sbom`` wrote it."""

from __future__ import annotations

import zipfile
from urllib.parse import unquote

from mlaot.checked_json import MAX_BYTES, parse_json
from mlaot.commands.output import Data
from mlaot.errors import MlaotError

SBOM = ".cdx.json"


PROPERTIES = [{"name": str, "value": str}]
TOOL = {"name": str, "version": str, "description?": str, "properties?": PROPERTIES}
PART = {
    **{"name": str, "type": str, "properties?": PROPERTIES, "hashes?": [{"content": str}]},
    **{"licenses?": [{"expression?": str}], "externalReferences?": [{"type": str, "url": str}]},
}
BOM = {"metadata": {"tools": {"components": [TOOL]}}, "components": [PART]}


def read_sbom(wheel: zipfile.ZipFile) -> Data:
    """Read the bill of materials that mlaot wrote; return nothing if there is none.

    If a file that may be the bill cannot be read, ``damaged`` says why.
    """
    damaged: Data = {}
    for entry in wheel.infolist():
        if "/sboms/" in entry.filename and entry.filename.endswith(SBOM):
            try:
                if entry.file_size > MAX_BYTES:
                    raise MlaotError(f"{entry.filename} is larger than {MAX_BYTES >> 20} MiB")
                bom: Data = parse_json(wheel.read(entry), BOM, entry.filename)
            except MlaotError as error:
                damaged = {"damaged": str(error)}
                continue
            if "mlaot" in tools(bom):
                return bom
    return damaged


def tools(bom: Data) -> dict[str, Data]:
    """Return the programs that took part, by name."""
    return {tool["name"]: tool for tool in bom["metadata"]["tools"]["components"]} if "metadata" in bom else {}


def compiler_of(bom: Data) -> Data:
    """Return the C compiler."""
    return next((tool for name, tool in tools(bom).items() if name != "mlaot"), {})


def provenance_of(bom: Data) -> dict[str, str]:
    """Return what determines the wheel's bytes, by the names of the table: programs, flags, sources."""
    compiler = compiler_of(bom)
    if "mlaot" not in tools(bom):
        return {}
    provenance = {"mlaot": tools(bom)["mlaot"]["version"]}
    if compiler:
        provenance["compiler"] = f"{compiler['name']} {compiler['version']} {compiler.get('description', '')}".rstrip()
    provenance |= own_properties(compiler)
    for part in bom["components"]:
        provenance |= {f"{part['name']} {name}": value for name, value in own_properties(part).items()}
        provenance |= {f"{part['name']} sha256": row["content"] for row in part.get("hashes", [])}
    return provenance


def licence_of(part: Data) -> str:
    """Return the licence of a model, the files with its text, and its card, without those that are missing."""
    licences = [row["expression"] for row in part.get("licenses", []) if "expression" in row]
    files = [unquote(row["url"]).removeprefix("../") for row in part.get("externalReferences", [])]
    return ", ".join([*licences, *files])


def own_properties(component: Data) -> dict[str, str]:
    """Return mlaot's own properties of a component."""
    rows = component.get("properties", [])
    return {row["name"].removeprefix("mlaot:"): row["value"] for row in rows}
