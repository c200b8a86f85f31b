"""A wheel with weights in a file tells PyInstaller of it, by its entry point; no other wheel does."""

from __future__ import annotations

import ast
import base64
import csv
import hashlib
import re
import subprocess
import venv
import zipfile
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import pytest

from mlaot.build.pyinstaller import hook_files
from mlaot.build.requirements import IMPORTS
from mlaot.build.wheel_entries import add_entries
from mlaot.settings import ModelSettings, Settings

from .. import projects

MODELS = (
    ModelSettings("nn", "m:f", "company.a.nn"),
    ModelSettings("other", "m:g", "company.b.other"),
    ModelSettings("none", "m:h", "c.none"),
)
SETTINGS = Settings("a", ".", (), ("base",), MODELS)
FILES = {"company/a/nn.weights": "", "company/a/__init__.py": "", "company/b/other.weights": "", "c/__init__.py": ""}
USERS = "[console_scripts]\na = a:main\n\n"


def packed(folder: Path, **more: str) -> Path:
    """A wheel as it was packed, with the hooks that it should have."""
    wheel = folder / "a-1-cp311-abi3-any.whl"
    files = FILES | {f"a-1.dist-info/{name.replace('_txt', '.txt')}": text for name, text in more.items()}
    lines = [f"{name},sha256=x,{len(text)}\n" for name, text in files.items()]
    with zipfile.ZipFile(wheel, "w") as file:
        for name, text in {**files, "a-1.dist-info/RECORD": f"{''.join(lines)}a-1.dist-info/RECORD,,\n"}.items():
            file.writestr(name, text)
    add_entries(wheel, {}, hook_files(SETTINGS, wheel, set()))
    return wheel


def test_the_entry_point_leads_to_a_hook_for_each_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(packed(tmp_path, METADATA="Name: a\nVersion: 1\n", entry_points_txt=USERS)) as wheel:
        wheel.extractall(tmp_path / "site")
        record = {
            name: (said, size) for name, said, size in csv.reader(wheel.read("a-1.dist-info/RECORD").decode().split())
        }
        assert record.keys() == set(wheel.namelist()) and len(record) == len(wheel.namelist())
        for name in set(record) - set(FILES) - {"a-1.dist-info/RECORD", "a-1.dist-info/METADATA"}:
            digest = base64.urlsafe_b64encode(hashlib.sha256(wheel.read(name)).digest()).decode().rstrip("=")
            assert record[name] == (f"sha256={digest}", str(len(wheel.read(name))))
    (found,) = metadata.distributions(path=[str(tmp_path / "site")])
    assert [point.value for point in found.entry_points.select(group="console_scripts")] == ["a:main"]
    (point,) = found.entry_points.select(group="pyinstaller40", name="hook-dirs")
    monkeypatch.syspath_prepend(tmp_path / "site")
    (folder,) = point.load()()
    names = {path.name for path in Path(folder).iterdir() if path.suffix == ".py"}
    assert names == {"__init__.py", "hook-company.a.nn.py", "hook-company.b.other.py"}
    assert 'collect_data_files("company.b", includes=["other.weights"])' in (
        Path(folder, "hook-company.b.other.py").read_text()
    )


def test_hooks_of_the_user_s_own_stay(tmp_path: Path) -> None:
    own = "[pyinstaller40]\nhook-dirs = a:hooks\n"
    with zipfile.ZipFile(packed(tmp_path, entry_points_txt=own)) as wheel:
        assert wheel.read("a-1.dist-info/entry_points.txt").decode() == own
        assert not [name for name in wheel.namelist() if "__pyinstaller" in name]


def test_a_wheel_without_such_files_has_none(tmp_path: Path) -> None:
    wheel = tmp_path / "a-1-cp311-abi3-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("c/none.abi3.so", "")
        file.writestr("a-1.dist-info/RECORD", "")
    assert hook_files(SETTINGS, wheel, {"c/none.pyi"}) == {}
    assert len(hook_files(SETTINGS, wheel, {"c/none.weights"})) == 3  # one that is still to come


def test_the_hook_names_all_that_a_module_imports() -> None:
    """PyInstaller looks for imports in bytecode."""
    templates = projects.ROOT / "templates"
    hook = (templates / "pyinstaller" / "hook.py.j2").read_text()
    named = ast.literal_eval(hook.partition("hiddenimports = ")[2].partition("\n")[0])
    texts = [path.read_text() for path in templates.rglob("*") if path.is_file()]
    found = {name for text in texts for name in re.findall(r'PyImport_ImportModule\("([\w.]+)"\)', text)}
    assert "json" in found <= {*named, *IMPORTS.values()}


def test_a_module_that_imports_a_package(tmp_path: Path) -> None:
    """It has a hook that names what no bytecode does; the others of the wheel have none."""
    wheel = tmp_path / "a-1-cp311-abi3-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("a-1.dist-info/RECORD", "")
    files = hook_files(SETTINGS, wheel, set(), {"c.none": ["PIL.Image"]})
    assert {name.rpartition("/")[2] for name in files} == {"__init__.py", "hook-c.none.py", "entry_points.txt"}
    assert 'hiddenimports.append("PIL.Image")' in files["c/__pyinstaller/hook-c.none.py"]


@pytest.mark.skipif(find_spec("PyInstaller") is None, reason="no PyInstaller here")
def test_a_program_that_pyinstaller_made(tmp_path: Path) -> None:
    """It finds the weights, and what the module asks Python for."""
    run = projects.run
    run("-m", "mlaot", "init", tmp_path / "small")
    with open(tmp_path / "small" / "pyproject.toml", "a") as file:
        file.write('weights = "file"\n')
    run("-m", "mlaot", "build", tmp_path / "small", "--out", tmp_path / "dist")
    venv.create(tmp_path / "venv", system_site_packages=True, symlinks=True)
    (wheel,) = (tmp_path / "dist").iterdir()
    (site,) = (tmp_path / "venv").glob("lib/*/site-packages")
    with zipfile.ZipFile(wheel) as made:
        made.extractall(site)
    (tmp_path / "app.py").write_text("import small.nn as nn\nprint(len(nn.forward([0, 1])), len(nn.selftest()) > 0)\n")
    pyinstaller = find_spec("PyInstaller")
    assert pyinstaller is not None and pyinstaller.origin is not None
    (site / "borrowed.pth").write_text(f"{Path(pyinstaller.origin).parents[1]}\n")
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run(
        [python, "-m", "PyInstaller", "--noconfirm", "app.py"], cwd=tmp_path, check=True, capture_output=True
    )
    done = subprocess.run([tmp_path / "dist" / "app" / "app"], capture_output=True, text=True, check=True)
    assert done.stdout == "2 True\n"
