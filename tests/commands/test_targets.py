"""``inspect``, ``passes`` and ``emit`` take the same targets, find modules where the project has them, refuse alike."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from .conftest import Cli, complaint

COMMANDS = {"inspect": (), "passes": (), "emit": ("--out", "c")}
MODEL = "import mlaot\n\n@mlaot.model\ndef double(x: mlaot.f32[2]):\n    return 2 * x\n"
PYPROJECT = "[project]\nname = 'a'\n[tool.mlaot]\nsource = 'lib'\n[tool.mlaot.models.nn]\nmodel = 'net:double'\n"

pytestmark = pytest.mark.parametrize("command", COMMANDS)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with models in it, in ``src`` and in a project."""
    for name in ("here.py", "src/there.py", "project/lib/net.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(MODEL)
    (tmp_path / "project" / "pyproject.toml").write_text(PYPROJECT)
    monkeypatch.chdir(tmp_path)
    for name in ("here", "there", "net"):  # not what an earlier test imported in this process
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


@pytest.mark.parametrize("target", ["here:double", "there:double", "project"])
def test_a_function_and_a_project(command: str, target: str, cli: Cli, folder: Path) -> None:
    result = cli(command, target, *COMMANDS[command])
    assert (result.status, result.err) == (0, "")
    made = "a.nn" if target == "project" else "model.nn"
    assert (folder / "c" / made / "nn.c").is_file() if command == "emit" else result.out.startswith(made)


def test_in_a_project_of_another_source_folder(
    command: str, cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder / "project")
    assert cli(command, "net:double", *COMMANDS[command]).status == 0


def test_an_onnx_file(command: str, cli: Cli, folder: Path) -> None:
    onnx = pytest.importorskip("onnx")
    ports = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2]) for name in "xy"]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Abs", ["x"], ["y"])], "g", ports[:1], ports[1:])
    opset = [onnx.helper.make_opsetid("", 20)]
    (folder / "abs.onnx").write_bytes(onnx.helper.make_model(graph, opset_imports=opset).SerializeToString())
    assert cli(command, "abs.onnx", *COMMANDS[command]).status == 0


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("tehre:net", "no module 'tehre' in folder 'src'; the model asked for is 'tehre:net'; did you mean 'there'?"),
        ("here:dubbl", "'here' has no attribute 'dubbl'; the model asked for is 'here:dubbl'; did you mean 'double'?"),
        ("src", "no pyproject.toml in src"),
        ("no such:thing", "expected module:attribute or an ONNX file, got 'no such:thing'"),
    ],
)
def test_what_is_wrong(command: str, target: str, message: str, cli: Cli) -> None:
    assert complaint(cli(command, target, *COMMANDS[command])) == f"mlaot: {message}"


def test_what_is_no_target(command: str, cli: Cli) -> None:
    line = complaint(cli(command, "nothing/here", *COMMANDS[command]))
    assert "nothing/here" in line and "expected" in line
