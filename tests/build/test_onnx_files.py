"""Which files ``[tool.mlaot.onnxruntime]`` means, and the models that they become."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mlaot.errors import MlaotError
from mlaot.settings import Settings
from mlaot.settings.onnx_files import find_onnx_files
from mlaot.settings.reading import load_settings, settings_of

PYPROJECT = """\
[project]
name = "shop"
[tool.mlaot]
deterministic = true
[tool.mlaot.budget]
error = 1e-5
[tool.mlaot.onnxruntime]
files = ["nets/b.onnx", "./nets/*.onnx"]
[tool.mlaot.models.own]
onnx = "./nets/own.onnx"
weights = "file"
dims = { batch = 1 }
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "nets").mkdir()
    for name in ("a v1.2.onnx", "b.onnx", "own.onnx", "notes.txt"):
        (tmp_path / "nets" / name).touch()
    (tmp_path / "pyproject.toml").write_text(PYPROJECT)
    return tmp_path


def made(settings: Settings) -> dict[str, str]:
    """The module of each file."""
    return {file: model.module for file, model in settings.onnx_models.items()}


def test_files_become_models(project: Path) -> None:
    """In the order of the patterns; one that has a table is what that says, others have the keys of [tool.mlaot]."""
    settings = load_settings(project)
    assert made(settings) == {
        "nets/b.onnx": "shop.ort_b",
        "nets/a v1.2.onnx": "shop.ort_a_v1_2",
        "nets/own.onnx": "shop.own",
    }
    assert [model.name for model in settings.models] == ["own", "b", "a v1.2"]
    assert [model.weights for model in settings.models] == ["file", "auto", "auto"]
    assert all(model.deterministic and model.budget.error == 1e-5 for model in settings.models)
    assert settings.modules == ("shop.ort", "shop.own", "shop.ort_b", "shop.ort_a_v1_2")
    assert settings.missing_packages(project) == ("shop",)
    assert "onnx>=1.19" in settings.tracing_packages


def test_module_of_another_name(project: Path) -> None:
    """Its package is made, too."""
    text = PYPROJECT.replace("[tool.mlaot.models.own]", 'module = "a.b"\n[tool.mlaot.models.own]')
    (project / "pyproject.toml").write_text(text)
    settings = load_settings(project)
    assert made(settings)["nets/b.onnx"] == "a.b_b"
    assert settings.missing_packages(project) == ("a", "shop")


def test_files_of_one_name(project: Path) -> None:
    """Their folders are part of the modules' names."""
    (project / "nets" / "large").mkdir()
    (project / "nets" / "large" / "b.onnx").touch()
    (project / "pyproject.toml").write_text(PYPROJECT.replace("nets/*.onnx", "nets/**/*.onnx"))
    found = made(load_settings(project))
    assert found["nets/b.onnx"] == "shop.ort_nets_b" and found["nets/large/b.onnx"] == "shop.ort_nets_large_b"
    assert found["nets/a v1.2.onnx"] == "shop.ort_a_v1_2"


def test_no_files_are_looked_for_without_need(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    (project / "nets" / "b.onnx").unlink()
    settings = settings_of("nets/own.onnx")
    assert settings.onnxruntime is None
    assert [model.onnx for model in settings.models] == ["nets/own.onnx"]


def test_sdist_knows_its_files(project: Path) -> None:
    """One with the generated C need not have them."""
    expected = made(load_settings(project))
    for path in (project / "nets").iterdir():
        path.unlink()
    (project / "_mlaot").mkdir()
    listed = project / "_mlaot" / "onnx_files.json"
    listed.write_text(json.dumps([*expected]))
    assert made(load_settings(project)) == expected
    listed.write_text("{}")
    with pytest.raises(MlaotError, match=r"_mlaot/onnx_files\.json"):
        load_settings(project)


def test_links_within_the_project(project: Path) -> None:
    (project / "nets" / "link.onnx").symlink_to("b.onnx")
    (project / "nets" / "loop.onnx").symlink_to("loop.onnx")
    assert find_onnx_files(project, ["nets/l*.onnx"]) == ("nets/link.onnx",)


@pytest.mark.parametrize("pattern", ["a\0b", "/etc/*.onnx", "***/x", "nets/[", "..", "~/x.onnx", "x" * 5000])
def test_hostile_patterns(project: Path, pattern: str) -> None:
    with pytest.raises(MlaotError) as raised:
        find_onnx_files(project, [pattern])
    assert str(raised.value).startswith("key 'files' in [tool.mlaot.onnxruntime] of pyproject.toml: ")
    assert "\n" not in str(raised.value)
