"""The bill of materials in a wheel, read: what ``mlaot.build.sbom`` wrote."""

from __future__ import annotations

import zipfile

from mlaot.commands.output import Data
from mlaot.errors import MlaotError
from mlaot.stored import MAX_BYTES, parse_json

SBOM = ".cdx.json"


PROPERTIES = [{"name": str, "value": str}]
TOOL = {"name": str, "version": str, "description?": str, "properties?": PROPERTIES}
PART = {"name": str, "type": str, "properties?": PROPERTIES, "hashes?": [{"content": str}]}
BOM = {"metadata": {"tools": {"components": [TOOL]}}, "components": [PART]}


def read_sbom(wheel: zipfile.ZipFile) -> Data:
    """The bill of materials that mlaot wrote; nothing where there is none.

    Where none can be read that could be it, ``damaged`` says why.
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
    """The programs that took part, by name."""
    return {tool["name"]: tool for tool in bom["metadata"]["tools"]["components"]} if "metadata" in bom else {}


def compiler_of(bom: Data) -> Data:
    """The C compiler."""
    return next((tool for name, tool in tools(bom).items() if name != "mlaot"), {})


def made_with(bom: Data) -> dict[str, str]:
    """What may make a wheel another one: programs, flags, sources, by what they are called in the table."""
    compiler = compiler_of(bom)
    if "mlaot" not in tools(bom):
        return {}
    found = {"mlaot": tools(bom)["mlaot"]["version"]}
    if compiler:
        found["compiler"] = f"{compiler['name']} {compiler['version']} {compiler.get('description', '')}".rstrip()
    found |= described(compiler)
    for part in bom["components"]:
        found |= {f"{part['name']} {name}": value for name, value in described(part).items()}
        found |= {f"{part['name']} sha256": row["content"] for row in part.get("hashes", [])}
    return found


def described(component: Data) -> dict[str, str]:
    """mlaot's own properties of a component."""
    rows = component.get("properties", [])
    return {row["name"].removeprefix("mlaot:"): row["value"] for row in rows}
