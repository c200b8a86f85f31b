"""The JSON Schema refuses what the reader refuses, as far as a schema can know it."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from validate_pyproject.api import Validator
from validate_pyproject.errors import ValidationError
from validate_pyproject.plugins import PluginWrapper
from validate_pyproject.types import Schema

from mlaot.settings.schema import json_schema

from .conftest import ROOT
from .test_settings import ERRORS

# What only the project's files, several keys together or Python's grammar tell.
BEYOND_A_SCHEMA = (
    "no [tool.mlaot]",
    "[project]",
    "both make the module",
    "makes the module",
    "is a module to be made",
    "a folder of the project such as 'src'; got '",
    "got 2.0",
    "[build-system] of",
    "for which nothing is compiled",
    "is for models of llm, onnx, sklearn, torch",
    "cannot be combined with lora",
    "is for models of llm; leave it out",
    "is for models of llm and onnx; leave it out",
    "key 'files' in [tool.mlaot.onnxruntime] of pyproject.toml: ",
    "got 'Apache 2.0'",
    "does not cover",
    "no file of the project matches",
    "which license-files of [project] does not list",
)
TABLES = [text for text, line in ERRORS.items() if "valid TOML" not in line and "[tool] of" not in line]


@pytest.fixture(scope="module")
def validator() -> Validator:
    """validate-pyproject with this plugin only."""
    return Validator(plugins=[PluginWrapper("mlaot", lambda name: Schema(json_schema(name)))])


def tool(text: str) -> dict[str, object]:
    """The table [tool] of a pyproject.toml."""
    return {"tool": tomllib.loads(text).get("tool", {})}


@pytest.mark.parametrize("text", TABLES, ids=range(len(TABLES)))
def test_what_is_wrong_is_refused(validator: Validator, text: str) -> None:
    if any(words in ERRORS[text] for words in BEYOND_A_SCHEMA):
        validator(tool(text))
    else:
        with pytest.raises(ValidationError, match=r"tool\.mlaot"):
            validator(tool(text))


@pytest.mark.parametrize("path", sorted(ROOT.glob("examples/**/pyproject.toml")), ids=lambda path: path.parent.name)
def test_examples_are_valid(validator: Validator, path: Path) -> None:
    validator(tool(path.read_text()))


def test_files_of_sessions_are_models(validator: Validator) -> None:
    validator(tool("[tool.mlaot.onnxruntime]\nfiles = ['a.onnx']\n"))
    with pytest.raises(ValidationError):
        validator(tool("[tool.mlaot]\nthreads = 2\n"))


def test_command_finds_the_plugin(tmp_path: Path) -> None:
    path = tmp_path / "pyproject.toml"
    good = '[project]\nname = "digits"\nversion = "1"\n[tool.mlaot.models.nn]\nmodel = "model:digits"\n'
    for text, said in (
        (good, "Valid file"),
        (good.replace("model =", "modle ="), "`tool.mlaot.models.nn` must be valid exactly by one definition"),
        (good + "winograd = 'F3'", "`tool.mlaot.models.nn.winograd` must be one of ['F2', 'F4', 'off']"),
    ):
        path.write_text(text)
        command = [sys.executable, "-m", "validate_pyproject", str(path)]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert said in done.stdout + done.stderr
        assert (done.returncode == 0) == (text == good)


def test_wheel_carries_the_schema(own_wheel: Path) -> None:
    with zipfile.ZipFile(own_wheel) as file:
        assert file.read("mlaot/settings.schema.json") == (ROOT / "mlaot" / "settings.schema.json").read_bytes()
