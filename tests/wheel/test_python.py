"""The wheel in plain Python: made without a compiler, for every platform; the examples run with it."""

from __future__ import annotations

import re
import shutil
import zipfile
from pathlib import Path

import pytest

from mlaot.build.platforms import ABIS, parse_platform, targets_of

from .. import projects

DIGITS = projects.EXAMPLES / "digits"


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a machine without a compiler."""
    return {"PATH": str(tmp_path_factory.mktemp("empty")), "CC": ""}


def wheel(project: Path, folder: Path, bare: dict[str, str]) -> tuple[Path, str]:
    """The wheel of a copy of a project, and what making it said."""
    copy = shutil.copytree(project, folder / project.name, ignore=shutil.ignore_patterns("build"))
    said = projects.run("-m", "mlaot", "wheel", copy, "--platform", "any", "--out", folder / "dist", environ=bare)
    (made,) = (folder / "dist").glob("*.whl")
    return made, said


def unpack(made: Path, site: Path) -> Path:
    """A folder for ``sys.path``."""
    with zipfile.ZipFile(made) as file:
        file.extractall(site)
    return site


def test_row_42_plain_python_learns_xor(tmp_path: Path, bare: dict[str, str]) -> None:
    """It is for any Python 3, says that it is slow, replays the golden vectors; the example learns all four answers."""
    made, said = wheel(projects.EXAMPLES / "xor", tmp_path, bare)
    assert made.name == "xor-1.0-py3-none-any.whl"
    assert "xor.nn is plain Python, for platforms without a wheel of their own: slow" in said
    assert "xor.nn gives the model's answers; largest error, as a share of its bound: python" in said
    with zipfile.ZipFile(made) as file:
        names = [name for name in file.namelist() if ".dist-info/" not in name]
        facts = file.read("xor-1.0.dist-info/WHEEL").decode()
        bill = file.read("xor-1.0.dist-info/sboms/xor.cdx.json").decode()
    assert sorted(names) == ["xor/__init__.py", "xor/nn.py", "xor/nn.pyi", "xor/py.typed"]
    assert "Root-Is-Purelib: true" in facts and "Tag: py3-none-any" in facts
    assert '"value": "py3-none"' in bill and "gcc" not in bill
    site = unpack(made, tmp_path / "site")
    printed = projects.run(projects.EXAMPLES / "xor" / "train.py", cwd=tmp_path, site=site, alone=True)
    assert printed.splitlines()[-4:] == ["0 xor 0 = 0", "0 xor 1 = 1", "1 xor 0 = 1", "1 xor 1 = 0"]
    checked = projects.run("-m", "mlaot", "check", made)
    assert "xor.nn" in checked and "python" in checked


def test_digits_train_and_serve(tmp_path: Path, bare: dict[str, str]) -> None:
    """Weights that Python trained go into the module that serves; both recognize the same test images."""
    train, _ = wheel(DIGITS / "train", tmp_path, bare)
    weights = tmp_path / "weights.safetensors"
    site = unpack(train, tmp_path / "site")
    printed = projects.run(DIGITS / "train.py", "--epochs", "2", "--out", weights, cwd=tmp_path, site=site, alone=True)
    trained = float(re.findall(r"accuracy +([\d.]+)%", printed)[-1])
    project = shutil.copytree(DIGITS / "serve", tmp_path / "project", ignore=shutil.ignore_patterns("build"))
    shutil.copy(weights, project)
    (tmp_path / "serve").mkdir()
    serve, _ = wheel(project, tmp_path / "serve", bare)
    printed = projects.run(DIGITS / "serve.py", cwd=tmp_path, site=unpack(serve, tmp_path / "served"), alone=True)
    (served,) = re.findall(r"^test accuracy: (\d+\.\d) %$", printed, re.MULTILINE)
    assert float(served) == trained >= 75


def test_microgpt_learns(tmp_path: Path, bare: dict[str, str]) -> None:
    """Integers in, an optimizer with a schedule: the loss falls, and names come out."""
    folder = projects.EXAMPLES / "microgpt"
    site = unpack(wheel(folder, tmp_path, bare)[0], tmp_path / "site")
    printed = projects.run(folder / "train.py", "--steps", "50", cwd=tmp_path, site=site, alone=True)
    (loss,) = re.findall(r"^steps    0 to   49   loss (\S+)$", printed, re.MULTILINE)
    assert 2.5 < float(loss) < 3.2
    assert re.search(r"^names:( [a-z]*){20}$", printed, re.MULTILINE), printed


def test_emit_writes_one_file(tmp_path: Path, bare: dict[str, str]) -> None:
    projects.run("-m", "mlaot", "emit", DIGITS / "serve", "--python", "--out", tmp_path, environ=bare)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["nn.py"]
    shown = projects.run("-c", "from digits import nn; print(nn.forward([0] * 64).shape)", site=tmp_path, alone=True)
    assert shown == "(10,)\n"


LETTERS = """
import numpy as np

import mlaot

n = mlaot.dim("n")
scores = np.roll(np.eye(5, dtype=np.float32), 1, axis=1)


@mlaot.model(text=mlaot.Text(40, mlaot.tokenizers.characters("Olemn"), slides=True))
def next_letter(tokens: mlaot.i64[n]):
    return mlaot.take(scores, tokens[-1], axis=0)
"""
SETTINGS = """
[build-system]
requires = ["mlaot"]
build-backend = "mlaot.build"

[project]
name = "letters"
version = "1.0"

[tool.mlaot.models.nn]
model = "model:next_letter"
"""


def test_texts_go_on(tmp_path: Path, bare: dict[str, str]) -> None:
    """A model that generates, with its tokenizer, needs the standard library alone."""
    project = tmp_path / "declared" / "letters"
    project.mkdir(parents=True)
    (project / "model.py").write_text(LETTERS)
    (project / "pyproject.toml").write_text(SETTINGS)
    made, said = wheel(project, tmp_path, bare)
    assert "letters.nn gives the model's answers" in said
    command = "from letters import nn; print(*nn.generate('On', max_tokens=7, temperature=0), nn.encode('melOn'))"
    printed = projects.run("-c", command, site=unpack(made, tmp_path / "site"), alone=True)
    assert printed == "O e l m n O e [3, 1, 2, 0, 4]\n"


def test_platforms_of_a_command() -> None:
    """One wheel in plain Python serves all ABIs."""
    windows, every = parse_platform("win_amd64"), parse_platform("any")
    assert targets_of([windows, every], ABIS) == [(windows, ABIS[0]), (windows, ABIS[1]), (every, ABIS[0])]
