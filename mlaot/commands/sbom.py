"""The bill of materials in a wheel, read: what ``mlaot.build.sbom`` wrote."""

from __future__ import annotations

import json
import zipfile

from mlaot.commands.output import Data

SBOM = ".cdx.json"


def read_sbom(wheel: zipfile.ZipFile) -> Data:
    """The bill of materials that mlaot wrote; nothing where there is none."""
    names = [name for name in wheel.namelist() if "/sboms/" in name and name.endswith(SBOM)]
    boms: list[Data] = [json.loads(wheel.read(name)) for name in names]
    return next((bom for bom in boms if tools(bom).get("mlaot")), {})


def tools(bom: Data) -> dict[str, Data]:
    """The programs that took part, by name."""
    return {tool["name"]: tool for tool in bom.get("metadata", {}).get("tools", {}).get("components", [])}


def compiler_of(bom: Data) -> Data:
    """The C compiler."""
    return next((tool for name, tool in tools(bom).items() if name != "mlaot"), {})


def made_with(bom: Data) -> dict[str, str]:
    """What may make a wheel another one: programs, flags, sources, by what they are called in the table."""
    compiler = compiler_of(bom)
    if not bom:
        return {}
    found = {"mlaot": tools(bom)["mlaot"]["version"]}
    if compiler:
        found["compiler"] = f"{compiler['name']} {compiler['version']} {compiler['description']}"
    found |= described(compiler)
    for part in bom.get("components", []):
        found |= {f"{part['name']} {name}": value for name, value in described(part).items()}
        found |= {f"{part['name']} sha256": row["content"] for row in part.get("hashes", [])}
    return found


def described(component: Data) -> dict[str, str]:
    """mlaot's own properties of a component."""
    rows = component.get("properties", [])
    return {row["name"].removeprefix("mlaot:"): row["value"] for row in rows}
