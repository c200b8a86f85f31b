"""The bill of materials in the wheels."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from mlaot.commands.inspect import show_wheel
from mlaot.commands.modules import open_wheel, read_wheel
from mlaot.commands.sbom import read_sbom

from .conftest import PROJECTS, Wheel

PACKAGES = {"xor": "xor", "train": "digits_train", "serve": "digits", "zoo": "zoo"}


def read(wheel: Path, name: str) -> str:
    with zipfile.ZipFile(wheel) as file:
        return file.read(f"{name}-1.0.dist-info/sboms/{name}.cdx.json").decode()


def said(component: dict[str, Any]) -> dict[str, str]:
    """The properties of a component."""
    return {row["name"].removeprefix("mlaot:"): row["value"] for row in component["properties"]}


@pytest.mark.parametrize("name", PACKAGES)
def test_valid(wheel: Wheel, name: str) -> None:
    # Imported where it is used: that takes 7 s, and every worker collects all tests.
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    validator = JsonStrictValidator(SchemaVersion.V1_6)
    text = read(wheel(name), PACKAGES[name])
    assert validator.validate_str(text) is None
    assert validator.validate_str(text.replace('"machine-learning-model"', '"model"')) is not None


def test_says_what_the_model_is(wheel: Wheel) -> None:
    """The frozen digits: what was read, what came out, by what."""
    bom = json.loads(read(wheel("serve"), "digits"))
    model, *files = bom["components"]
    assert (model["type"], model["name"], model["version"]) == ("machine-learning-model", "digits.nn", "1.0")
    assert {file["name"] for file in files} >= {"model.py"}
    for file in files:
        content = (PROJECTS["serve"] / file["name"]).read_bytes()
        assert file["hashes"] == [{"alg": "SHA-256", "content": hashlib.sha256(content).hexdigest()}]
    about = said(model)
    assert {"ops:forward", "graph:sha256", "weights:bytes", "flags:nn_v3", "python-tag"} <= set(about)
    assert "contract" in about["ops:forward"] and "-mavx2" in about["flags:nn_v3"]
    metrics = model["modelCard"]["quantitativeAnalysis"]["performanceMetrics"]
    assert {metric["slice"] for metric in metrics} == {"forward"} and float(metrics[0]["value"]) > 0
    mlaot, compiler = bom["metadata"]["tools"]["components"]
    assert mlaot["name"] == "mlaot" and compiler["name"] in ("gcc", "clang", "zig") and said(compiler)["target"]
    assert bom["metadata"]["component"]["purl"] == "pkg:pypi/digits@1.0"


def test_says_under_which_licence_a_model_is(wheel: Wheel, capsys: pytest.CaptureFixture[str]) -> None:
    """Its own, with its text and its card beside the bill; that of the project where the model has none."""
    bom = json.loads(read(wheel("zoo"), "zoo"))
    models = {part["name"]: part for part in bom["components"] if part["type"] == "machine-learning-model"}
    assert models["zoo.pair"]["licenses"] == [{"expression": "CC0-1.0"}]
    assert models["zoo.bare"]["licenses"] == [{"expression": "MIT AND CC0-1.0"}]
    assert "externalReferences" not in models["zoo.bare"]
    references = {row["type"]: row for row in models["zoo.pair"]["externalReferences"]}
    with zipfile.ZipFile(wheel("zoo")) as file:
        for kind, name in ("license", "licenses/LICENSE-pair"), ("model-card", "model-cards/zoo.pair.md"):
            digest = hashlib.sha256(file.read(f"zoo-1.0.dist-info/{name}")).hexdigest()
            assert references[kind]["url"] == f"../{name}"
            assert references[kind]["hashes"] == [{"alg": "SHA-256", "content": digest}]
        metadata = file.read("zoo-1.0.dist-info/METADATA").decode()
    assert "License-Expression: MIT AND CC0-1.0\nLicense-File: LICENSE-pair\n" in metadata
    with open_wheel(wheel("zoo")) as file:
        show_wheel({**read_wheel(wheel("zoo")), "sbom": read_sbom(file)})
    lines = capsys.readouterr().out.splitlines()[2:5]
    assert lines[:2] == [
        "  licence MIT AND CC0-1.0",
        "  zoo.pair: CC0-1.0, licenses/LICENSE-pair, model-cards/zoo.pair.md",
    ]
    assert lines[2].startswith("  made by mlaot")


def test_weights_are_those_of_the_module(wheel: Wheel) -> None:
    """The digest is the one that the module's C was made with."""
    bom = json.loads(read(wheel("serve"), "digits"))
    generated = wheel("serve").parents[1] / "project-serve" / "build" / "mlaot" / "c" / "digits.nn"
    weights = (generated / "weights.bin").read_bytes()
    (component,) = bom["components"][0]["components"]
    assert component["hashes"][0]["content"] == hashlib.sha256(weights).hexdigest()
    assert said(bom["components"][0])["weights:bytes"] == str(len(weights))
