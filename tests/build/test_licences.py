"""Licences and cards of models: expressions, what [project] must cover, what doors put into sdists and wheels."""

from __future__ import annotations

import json
import tarfile
import zipfile
from pathlib import Path

import pytest

from mlaot.settings.licences import is_covered, names_of, parse_expression
from mlaot.settings.reading import load_settings

from .conftest import PYPROJECT, Project, Python

EXPRESSIONS = ("MIT", "GPL-2.0+", "(MIT)", "MIT AND (Apache-2.0 OR ISC)", "GPL-2.0-only WITH Classpath-exception-2.0")
WRONG = (*("", "AND", "MIT AND", "MIT and ISC", "MIT ISC", "(MIT", "MIT)", "()", "MIT WITH", "(MIT) WITH a", "M_T"),)


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_expression(text: str) -> None:
    parse_expression(text)
    parse_expression(f"LicenseRef-a OR {text} AND DocumentRef-b:LicenseRef-c")


@pytest.mark.parametrize("text", [*WRONG, "MIT WITH a WITH b", "(" * 5000 + "MIT" + ")" * 5000])
def test_no_expression(text: str) -> None:
    with pytest.raises(ValueError):
        parse_expression(text)


@pytest.mark.parametrize(
    ("model", "project", "covered"),
    [
        ("MIT", "mit AND ISC", True),
        ("MIT AND ISC", "MIT", False),
        ("MIT OR ISC", "ISC", True),
        ("MIT OR Zlib AND ISC", "ISC", False),
        ("GPL-2.0-only", "GPL-2.0-only WITH Classpath-exception-2.0", False),
    ],
)
def test_project_covers_a_model(model: str, project: str, covered: bool) -> None:
    assert is_covered(parse_expression(model), set(names_of(parse_expression(project)))) == covered


MODEL = '[tool.mlaot.models.nn]\nmodel = "model:digits"\nlicense = "CC0-1.0"\nlicense-files = ["model/LICENSE"]\n'


LISTED = 'license-files = ["*/LICENSE"]\n'
UNKNOWN = ("", 'license = {text = "mine"}', 'license = "CC0-1.0 AND"', 'dynamic = ["license"]')


@pytest.mark.parametrize("said", [*(LISTED + line for line in UNKNOWN), 'dynamic = ["license-files"]'])
def test_project_whose_licence_is_not_known_is_let_through(tmp_path: Path, said: str) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "LICENSE").touch()
    (tmp_path / "pyproject.toml").write_text(f'[project]\nname = "d"\n{said}\n{MODEL}')
    assert load_settings(tmp_path).models[0].license_files == ("model/LICENSE",)


@pytest.mark.parametrize("backend", ["mlaot.build", "setuptools.build_meta"])
def test_doors(project: Project, python: Python, backend: str) -> None:
    """From a project to its sdist to a wheel, which holds both files, and says so."""
    text = PYPROJECT.format(requires="", backend=backend, model="model:digits")
    text = text.replace('"1.0"\n', '"1.0"\nlicense = "CC0-1.0"\nlicense-files = ["*/LICENSE"]\n')
    text += 'license = "CC0-1.0"\nlicense-files = ["model/LICENSE"]\nmodel-card = "model/README.md"\n'
    project.write("pyproject.toml", text)
    project.write("model/LICENSE", "Do what you want.\n")
    project.write("model/README.md", "# 42\n")
    out = project.path.parent / "sdist"
    out.mkdir()
    result = python.hook(project, "build_sdist", str(out))
    assert result.returncode == 0, result.stdout + result.stderr
    with tarfile.open(out / "digits-1.0.tar.gz") as file:
        file.extractall(out, filter="data")
    with zipfile.ZipFile(python.wheel(Project(out / "digits-1.0"))) as wheel:
        read = {name: wheel.read(f"digits-1.0.dist-info/{name}").decode() for name in ("METADATA", "WHEEL")}
        assert wheel.read("digits-1.0.dist-info/licenses/model/LICENSE") == b"Do what you want.\n"
        assert wheel.read("digits-1.0.dist-info/model-cards/digits.nn.md") == b"# 42\n"
        assert "License-Expression: CC0-1.0\nLicense-File: model/LICENSE\n" in read["METADATA"]
        bill = json.loads(wheel.read("digits-1.0.dist-info/sboms/digits.cdx.json"))
    urls = [row["url"] for row in bill["components"][0]["externalReferences"]]
    assert urls == ["../licenses/model/LICENSE", "../model-cards/digits.nn.md"]
