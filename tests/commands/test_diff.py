"""``mlaot diff``: what differs is found, what does not is not, and the exit status tells which."""

from __future__ import annotations

import json
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlaot.commands.diff import compare_values

from .. import projects
from .conftest import Cli, complaint

Wheels = tuple[Path, Path]


def differences(cli: Cli, old: Path, new: Path) -> Any:
    result = cli("diff", old, new, "--json")
    found = json.loads(result.out)
    assert (result.status, result.err) == (0 if found["same"] else 1, "")
    return found


def rewritten(wheel: Path, target: Path, change: Callable[[str, bytes], bytes | None]) -> Path:
    """A copy with other contents; None leaves a file out."""
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            if (content := change(name, old.read(name))) is not None:
                new.writestr(name, content)
    return target


def test_the_same(cli: Cli, wheel: Path, tmp_path: Path) -> None:
    copy = rewritten(wheel, tmp_path / wheel.name, lambda name, content: content)  # packed otherwise
    found = differences(cli, wheel, copy)
    assert found["same"] and not (found["metadata"] or found["files"] or found["modules"])
    assert cli("diff", wheel, copy).out == f"{wheel.name} and {copy.name} hold the same\n"


def test_other_weights_and_one_more_function(cli: Cli, wheels: Wheels) -> None:
    found = differences(cli, *wheels)
    assert found["metadata"] == [{"what": "Version", "old": "0.1.0", "new": "0.2.0"}]
    files = ["small/nn.abi3.so", "small/nn.pyi", "small.dist-info/METADATA", "small.dist-info/sboms/small.cdx.json"]
    assert {row["what"] for row in found["files"]} == set(files)
    (module,) = found["modules"]
    assert module["error"] is None
    assert module["info"] == [
        {"what": "entries.best", "old": None, "new": "point: float32[batch, 2] -> out: int64[batch]"}
    ]
    values = {row.pop("what"): row for row in module["values"]}
    assert {"hidden.weight", "out.bias", "forward: out", "loss: loss", "train_step: loss"} <= set(values)
    assert values["hidden.weight"]["elements"] == values["hidden.weight"]["different"] == 32
    assert 0 < values["hidden.weight"]["difference"] < 2 and 0 < values["hidden.weight"]["value"] < 1
    assert "train_step: hidden.weight afterwards" in values  # what training leaves counts, too
    lines = cli("diff", *wheels).out
    assert "\n  Version   0.1.0  0.2.0\n" in lines and "\n  hidden.weight " in lines
    assert "\n  entries.best  -    point: float32[batch, 2] -> out: int64[batch]\n" in lines


def test_one_weight(cli: Cli, wheel: Path, tmp_path: Path) -> None:
    """Found where it is, by its exact difference, and by what it does to the outputs."""
    with zipfile.ZipFile(wheel) as file:
        file.extractall(tmp_path)
    bias = projects.load(tmp_path / "small" / "nn.abi3.so").parameters["hidden.bias"]
    changed = struct.pack("<f", bias[3] + 2) + bytes(bias)[16:]

    def change(name: str, content: bytes) -> bytes:
        return content.replace(bytes(bias)[12:], changed) if name.endswith(".so") else content

    found = differences(cli, wheel, rewritten(wheel, tmp_path / "new.whl", change))
    assert [row["what"] for row in found["files"]] == ["small/nn.abi3.so"]
    (module,) = found["modules"]
    values = {row.pop("what"): row for row in module["values"]}
    assert module["info"] == [] and not {"hidden.weight", "out.weight", "out.bias"} & set(values)
    found_bias = values["hidden.bias"]
    assert (found_bias["elements"], found_bias["different"]) == (16, 1)
    assert found_bias["difference"] == pytest.approx(2)
    assert values["forward: out"]["different"] > 0


def test_values_that_are_no_numbers(tmp_path: Path) -> None:
    inf, nan = float("inf"), float("nan")
    old = {
        "same": [inf, -inf, nan, 0.0],
        "nan": [nan, 1.0],
        "inf": [inf, 1.0],
        "shape": [1, 2],
        "dtype": [1],
        "gone": 1,
    }
    new = {
        "same": [inf, -inf, nan, 0.0],
        "nan": [nan, nan],
        "inf": [-inf, 1.0],
        "shape": [1],
        "dtype": [2.0],
        "come": 1,
    }
    for name, arrays in (("old", old), ("new", new)):
        filled: dict[str, Any] = {key: np.asarray(value) for key, value in arrays.items()}
        np.savez(tmp_path / name, **filled)
    found = {row.pop("what"): row for row in compare_values(tmp_path / "old.npz", tmp_path / "new.npz")}
    assert set(found) == {"nan", "inf"}
    assert np.isnan(found["nan"]["difference"]) and found["nan"]["different"] == 1
    assert found["inf"] == {"elements": 2, "different": 1, "difference": inf, "value": inf}


def test_large_integers_differ_by_one(tmp_path: Path) -> None:
    for name, number in (("old", 2**63 - 2), ("new", 2**63 - 1)):
        np.savez(tmp_path / name, a=np.asarray(number))
    (row,) = compare_values(tmp_path / "old.npz", tmp_path / "new.npz")
    assert (row["different"], row["difference"]) == (1, 1)


def test_tags_and_files(cli: Cli, wheel: Path, tmp_path: Path) -> None:
    def change(name: str, content: bytes) -> bytes | None:
        if name == "small/nn.pyi":
            return None
        return content.replace(b"Tag: cp311-", b"Tag: cp312-") if name.endswith("/WHEEL") else content

    found = differences(cli, wheel, rewritten(wheel, tmp_path / "new.whl", change))
    (tags,) = found["metadata"]
    assert tags["what"] == "tags" and tags["new"] == tags["old"].replace("cp311", "cp312")
    assert [(row["what"], row["new"]) for row in found["files"]] == [
        ("small/nn.pyi", None),
        ("small.dist-info/WHEEL", 107),
    ]
    assert found["modules"] == []


def test_a_module_that_cannot_be_imported(cli: Cli, wheel: Path, tmp_path: Path) -> None:
    broken = rewritten(wheel, tmp_path / "new.whl", lambda n, content: b"" if n.endswith(".so") else content)
    (module,) = differences(cli, wheel, broken)["modules"]
    assert module["error"].startswith("small.nn cannot be imported here: ImportError: ")
    assert "\nsmall.nn: small.nn cannot be imported here: " in cli("diff", wheel, broken).out


@pytest.mark.parametrize("order", [1, -1])
def test_what_is_no_wheel_is_2(order: int, cli: Cli, wheel: Path, tmp_path: Path) -> None:
    text, folder, damaged = (tmp_path / f"{name}.whl" for name in ("text", "folder", "damaged"))
    text.write_text("text")
    folder.mkdir()
    content = wheel.read_bytes()
    damaged.write_bytes(content[:200] + bytes(200) + content[400:])
    for path, message in (
        (text, "is no wheel, or a damaged one: File is not a zip file"),
        (folder, "cannot be read: Is a directory"),
        (damaged, "is no wheel, or a damaged one: "),
    ):
        line = complaint(cli("diff", *[wheel, path][::order]), status=2)
        assert line.startswith(f"mlaot: {path} {message}")
