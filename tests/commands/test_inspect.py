"""``mlaot inspect``: projects, wheels and modules, as lines and as data."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest

from .conftest import Cli, complaint

ENTRIES = {
    "forward": {"inputs": {"point": "float32[batch, 2]"}, "outputs": {"out": "float32[batch, 2]"}},
    "loss": {"inputs": {"point": "float32[batch, 2]", "label": "int64[batch]"}, "outputs": {"loss": "float32"}},
}


def data(cli: Cli, *arguments: str | Path) -> Any:
    result = cli("inspect", *arguments, "--json")
    assert (result.status, result.err) == (0, "")
    return json.loads(result.out)


def test_a_project_and_its_wheel_say_the_same(cli: Cli, wheel: Path) -> None:
    project = data(cli, wheel.parents[1])["models"][0]
    built = data(cli, wheel)["modules"][0]
    assert built["info"].pop("isa") in ("base", "v3")
    assert project["info"].pop("isas") == ["base", "neon", "v3"]
    assert built["info"].pop("isas") == ["base", "v3"]  # those of its platform
    assert project["info"] == built["info"]
    assert ENTRIES.items() <= project["info"]["entries"].items()


def test_kernels_and_memory_of_a_project(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = "import mlaot\n\n@mlaot.model\ndef model(x: mlaot.f32[4, 8]):\n    return mlaot.relu(x @ x.T)\n"
    (tmp_path / "inspected.py").write_text(text)
    found = data(cli, "inspected:model")["models"][0]
    (kernel,) = found["kernels"]
    assert (kernel["entry"], kernel["kind"]) == ("forward", "contraction")
    assert kernel["flops"] == "256 * batch"  # 2 * 4 * 4 * 8
    assert kernel["bytes"] == "192 * batch"  # the input and the output
    assert [line.partition(" = ")[2].partition("(")[0] for line in kernel["computes"]] == ["contract", "relu"]
    assert {"entry": "forward", "flops": "272 * batch", "workspace": "0"}.items() <= found["work"][0].items()
    assert found["generated"].keys() >= {"nn.c", "nn_base.c", "nn_v3.c", "nn_v4.c", "weights.bin"}
    assert "graphs" not in found
    lines = cli("inspect", "inspected:model", "--graph").out
    assert "contract, relu : f32[batch,4,4]" in lines and "\ngraph forward:\n  v0 = " in lines


def test_a_wheel(cli: Cli, wheel: Path) -> None:
    found = data(cli, wheel)
    assert found["wheel"] == wheel.name and found["bytes"] == wheel.stat().st_size
    assert found["tags"] == [wheel.stem.partition("-0.1.0-")[2]]
    assert found["metadata"]["Version"] == "0.1.0"
    with zipfile.ZipFile(wheel) as file:
        assert {entry["path"]: entry["bytes"] for entry in found["files"]} == {
            entry.filename: entry.file_size for entry in file.infolist()
        }
    assert found["sbom"]["components"][0]["name"] == "small.nn"
    lines = cli("inspect", wheel).out
    assert re.search(r"^  made by mlaot \S+ and (gcc|clang|zig) .* from src/model.py$", lines, re.MULTILINE)
    assert "\nsmall.nn\n  instruction sets base, v3, this machine uses " in lines
    assert "  forward     point: float32[batch, 2]  " in lines


def test_a_module_by_file_and_by_name(cli: Cli, wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(wheel) as file:
        file.extractall(tmp_path)
    monkeypatch.chdir(tmp_path)
    by_file, by_name = data(cli, "small/nn.abi3.so"), data(cli, "small.nn")
    assert by_file["modules"][0]["info"] == by_name["modules"][0]["info"] == data(cli, wheel)["modules"][0]["info"]


def test_a_module_for_another_platform(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "small-1-cp311-abi3-plan9.whl"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("small/nn.abi3.so", b"no library")
        file.writestr("small-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: small\nVersion: 1\n\ntext\n")
        file.writestr("small-1.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: cp311-abi3-plan9\n")
    (module,) = data(cli, path)["modules"]
    assert (module["module"], module["info"], module["abi"]) == ("small.nn", None, "abi3")
    assert "small.nn (abi3): small.nn cannot be imported here: ImportError: " in cli("inspect", path).out


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("nothing.whl", "no file nothing.whl; expected a wheel"),
        ("nothing.so", "no file nothing.so; expected a wheel, an extension module's file, or a module's name"),
        ("no/thing", "expected a wheel, an extension module's file, or a module's name, got 'no/thing'"),
        ("nothing.nn", "nothing.nn cannot be imported here: ModuleNotFoundError: No module named 'nothing'"),
        ("json", "json cannot be imported here: ImportError: json was not made by mlaot"),
        ("text.whl", "text.whl is no wheel, or a damaged one: File is not a zip file"),
        ("zip.whl", "zip.whl is no wheel: expected METADATA and WHEEL in its .dist-info"),
        ("nothing:model", "no module 'nothing' in folder '.'; the model asked for is 'nothing:model'"),
        (".", "no pyproject.toml in ."),
    ],
)
def test_what_cannot_be_inspected(
    target: str, message: str, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.whl").write_text("text")
    zipfile.ZipFile(tmp_path / "zip.whl", "w").close()
    assert complaint(cli("inspect", target)).startswith(f"mlaot: {message.removesuffix('...')}")


def test_no_graph_is_left_in_a_wheel(cli: Cli, wheel: Path) -> None:
    assert complaint(cli("inspect", wheel, "--graph")).startswith("mlaot: --graph needs a project")
