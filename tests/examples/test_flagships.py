"""The packages that are shipped without a runtime: the table, how a package is patched, what is printed."""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from examples.flagships import __main__ as command
from examples.flagships.compare import HERE, Comparison, Side, work
from examples.flagships.patch import Stale, change_imports, dependencies, write_project
from examples.flagships.report import differences, report
from examples.flagships.table import FLAGSHIPS, Edit, Flagship
from mlaot.settings.reading import load_settings

from .. import projects

METADATA = """\
Metadata-Version: 2.1
Name: fake-shop
Version: 2.0
Requires-Dist: onnxruntime>=1.16 ; python_version > "3"
Requires-Dist: Torch>=2
Requires-Dist: click>=8
Requires-Dist: onnxruntime-extensions; extra == "more"
"""
CODE = """\
import os
import onnxruntime as rt
import onnxruntime_extensions

def load(path):
    import onnxruntime
    import onnxruntime as ort  # late
    from onnxruntime import SessionOptions
    from onnxruntime.capi.onnxruntime_pybind11_state import Fail
    from onnxruntime.quantization import quantize_dynamic
    if not os.path.exists(path):
        raise FileNotFoundError
    return rt.InferenceSession(path)
"""
CHANGED = """\
import os
from fake.shop import ort as rt
import onnxruntime_extensions

def load(path):
    from fake.shop import ort as onnxruntime
    from fake.shop import ort  # late
    from fake.shop.ort import SessionOptions
    from fake.shop.ort.capi.onnxruntime_pybind11_state import Fail
    from onnxruntime.quantization import quantize_dynamic
    if not os.path.exists(path):
        raise LookupError
    return rt.InferenceSession(path)
"""
EDIT = Edit("fake/shop/__init__.py", "raise FileNotFoundError", "raise LookupError")
SHOP = Flagship("fake-shop", "2.0", "fake.shop", ("nets/*.onnx",), (EDIT,), without=("torch",), needs=("numpy",))
SAMPLE = """\
def make(folder):
    (folder / "path.txt").write_text("nets/plus.onnx")
def steps(folder):
    from fake import shop
    session = shop.load(shop.__path__[0] + "/" + (folder / "path.txt").read_text())
    yield "first", session.run(None, {"x": [[1, 2]]})[0].tolist()
    yield "second", session.run(None, {"x": [[0, 0]]})[0].tolist()
"""


def plus() -> bytes:
    """A model that adds numbers."""
    weight = numpy_helper.from_array(np.array([3, 4], np.float32), "weight")
    ports = [helper.make_tensor_value_info(port, TensorProto.FLOAT, ["n", 2]) for port in "xy"]
    graph = helper.make_graph([helper.make_node("Add", ["x", "weight"], ["y"])], "plus", ports[:1], ports[1:], [weight])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(made.SerializeToString())


@pytest.fixture
def released(tmp_path: Path) -> Path:
    """A wheel as it comes from an index."""
    wheel = tmp_path / "fake_shop-2.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("fake/shop/__init__.py", CODE)
        archive.writestr("fake/shop/words.txt", "import onnxruntime\n")
        archive.writestr("fake/shop/nets/plus.onnx", plus())
        archive.writestr("fake/shop/other.onnx", b"not loaded by its code")
        archive.writestr("fake_shop-2.0.dist-info/METADATA", METADATA)
        archive.writestr("fake_shop-2.0.data/scripts/shop", "")
    return wheel


@pytest.mark.parametrize("name", FLAGSHIPS)
def test_table(name: str) -> None:
    """What a flagship needs is there, and its edits change something."""
    flagship = FLAGSHIPS[name]
    assert (HERE / "samples" / f"{flagship.sample}.py").is_file()
    text = (HERE / f"{flagship.sample}.md").read_text()
    assert f"{name} {flagship.version}" in text
    assert flagship.models
    root = flagship.package.partition(".")[0]
    for edit in flagship.edits:
        assert edit.file.startswith(f"{root}/")
        assert edit.old != edit.new
        assert "onnxruntime" not in edit.old or edit.both is False
    assert len({(edit.file, edit.old) for edit in flagship.edits}) == len(flagship.edits)
    if "numpy" in flagship.needs:
        assert "numpy" not in flagship.without


def test_patch(released: Path, tmp_path: Path) -> None:
    """The imports and the edits are all that changes; models are moved, and empty files stay."""
    said: list[str] = []
    project = tmp_path / "project"
    write_project(SHOP, released, project, said.append)
    assert (project / EDIT.file).read_text() == CHANGED
    files = {path.relative_to(project).as_posix(): path.stat().st_size for path in project.rglob("*") if path.is_file()}
    assert {name for name, size in files.items() if not size} == {"fake/shop/nets/plus.onnx"}
    assert sorted(files) == [
        "fake/shop/__init__.py",
        *("fake/shop/nets/plus.onnx", "fake/shop/other.onnx", "fake/shop/words.txt"),
        "onnx/nets/plus.onnx",
        "pyproject.toml",
    ]
    assert (project / "onnx/nets/plus.onnx").read_bytes() == plus()
    assert said[0] == "fake/shop/__init__.py: from fake.shop import ort as rt  # was: import onnxruntime as rt"
    assert said[-1] == "compiles nets/plus.onnx"
    assert len(said) == 6
    assert dependencies(released, SHOP) == ["click>=8", "numpy"]
    settings = load_settings(project)
    assert settings.onnxruntime is not None
    assert settings.onnxruntime.module == "fake.shop.ort"
    assert [model.module for model in settings.models] == ["fake.shop.ort_plus"]
    assert 'dependencies = ["click>=8", "numpy"]' in (project / "pyproject.toml").read_text()


@pytest.mark.parametrize(
    ("flagship", "message"),
    [
        (Flagship("s", "1", "fake.shop", ("*.onnx",), (Edit(EDIT.file, "nowhere", ""),)), "'nowhere' once, found it 0"),
        (Flagship("s", "1", "fake.shop", ("*.onnx",), (Edit(EDIT.file, "import", ""),)), "'import' once, found it 8"),
        (Flagship("s", "1", "fake.shop", ("none/*.onnx",)), "s 1 has no none/\\*.onnx"),
    ],
)
def test_patch_that_does_not_fit(released: Path, tmp_path: Path, flagship: Flagship, message: str) -> None:
    with pytest.raises(Stale, match=message):
        write_project(flagship, released, tmp_path / "project", print)


def test_nothing_is_changed_that_imports_no_runtime(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_bytes(b"import onnx\r\nimport onnxruntime_genai as og\nx = 'import onnxruntime'\n")
    before = file.read_bytes()
    assert change_imports(tmp_path, "a") == []
    assert file.read_bytes() == before


def test_worker(released: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sample runs in the patched package: its answers, the calls of each model, times and memory."""
    project = tmp_path / "project"
    write_project(SHOP, released, project, print)
    with (project / "pyproject.toml").open("a") as file:
        file.write('[tool.mlaot]\nisa = ["base"]\n')
    code = (project / EDIT.file).read_text()
    kept = [line for line in code.splitlines() if "extensions" not in line and "quantization" not in line]
    (project / EDIT.file).write_text("\n".join(kept))
    site = tmp_path / "site"
    projects.build(project, site)
    for path in (project / "fake").rglob("*.*"):
        target = site / path.relative_to(project)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    samples = tmp_path / "samples"
    samples.mkdir()
    (samples / "fake_shop.py").write_text(SAMPLE)
    monkeypatch.setattr("examples.flagships.compare.HERE", tmp_path)
    (tmp_path / "worker.py").write_bytes((HERE / "worker.py").read_bytes())
    inputs = tmp_path / "inputs"
    inputs.mkdir()
    python, environ = Path(sys.executable), {"PYTHONPATH": str(site)}
    assert work(python, "make", SHOP, inputs) == {}
    assert 0 < work(python, "first", SHOP, inputs, "fake.shop.ort", 1, environ)["first"] < 600
    found = work(python, "whole", SHOP, inputs, "fake.shop.ort", 2, environ)
    assert found["answers"] == {"first": [[4.0, 6.0]], "second": [[3.0, 4.0]]}
    ((name, (calls, seconds)),) = found["models"].items()
    assert (name, calls) == ("nets/plus.onnx", 2)
    assert 0 < seconds <= found["whole"]
    assert found["memory"] > 1
    with pytest.raises(SystemExit, match=r"fake-shop failed with fake.shop.other"):
        work(python, "whole", SHOP, inputs, "fake.shop.other", 1, environ)


def answers(label: str, score: float, wait: float) -> dict[str, object]:
    """What a worker says of a sample."""
    given = {"texts": [label, {"score": score}], "wait, ms": {"fact": wait}}
    return {"answers": given, "whole": 2.0 + wait, "models": {"a/b.onnx": [4, 0.002 * wait]}, "memory": 50.0}


def test_differences() -> None:
    expected = {"a": [1.0, "x"], "b": {"n": 3}, "t": {"fact": 1.0}, "nan": float("nan"), "inf": float("inf")}
    assert differences(expected, json.loads(json.dumps(expected))) == (4, [], 0.0)
    assert differences(expected, expected | {"a": [1.25, "x"], "t": {"fact": 9.0}}) == (4, [], 0.25)
    assert differences({"a": [0.5, 8.0]}, {"a": [1.5, 8.0]}) == (1, [], 0.125)
    assert differences(expected, expected | {"a": [1.0, "y"], "b": {"n": 4}}) == (4, ["a: 'x', 'y'", "b: 3, 4"], 0.0)
    assert differences(expected, expected | {"a": [1.0]}) == (4, ["a"], 0.0)
    assert differences(expected, {**expected, "b": None})[1] == ["b"]
    for wrong in (float("nan"), float("inf"), -float("inf")):
        assert differences({"a": 1.0}, {"a": wrong})[2] == float("inf")


def test_report() -> None:
    """Times are beside those of onnxruntime with the same instructions."""
    slow, answer = "onnxruntime, AVX2", answers("x", 0.5, 0.25)
    sides = [
        Side("onnxruntime", Path(), "", first=[0.3, 0.2], runs=[answers("x", 0.5, 1.0), answers("x", 0.5, 0.5)]),
        Side("mlaot", Path(), "", first=[0.02], runs=[answer], beside="onnxruntime"),
        Side(slow, Path(), "", first=[0.4], runs=[answers("x", 0.5, 1.0)]),
        Side("mlaot, AVX2", Path(), "", first=[0.1], runs=[answers("y", 0.25, 3.0)], beside=slow),
    ]
    sizes = {"onnxruntime": {"onnxruntime": 70.0, "numpy.libs": 30.0, "fake": 5.0}, "mlaot": {"fake": 3.0}}
    lines = report(Comparison(SHOP, sides, {"onnxruntime": 4.0, "mlaot": 2.5}, sizes, 12.3))
    assert lines == [
        "fake-shop 2.0",
        "",
        "                           onnxruntime       mlaot  onnxruntime, AVX2   mlaot, AVX2",
        "wheel, MB                          4.0         2.5",
        "installed, MB                    105.0         3.0",
        "  NumPy                           30.0         0.0",
        "  onnxruntime                     70.0         0.0",
        "  the package itself               5.0         3.0",
        "first answer, CPU ms             200.0        20.0              400.0         100.0",
        "whole sample, CPU s               2.50        2.25               3.00          5.00",
        "peak memory, MB                     50          50                 50            50",
        "wait, ms                           0.5         0.2                1.0           3.0",
        "a/b.onnx, 4 calls, CPU us          250  125 (0.50)                500  1,500 (3.00)",
        "",
        "building its wheel took 12 s of CPU",
        "mlaot: 1 answers; texts and counts are equal; numbers are off by 0.0e+00 of the largest at most",
        "mlaot, AVX2: 1 answers; texts and counts differ in 1 places; "
        "numbers are off by 5.0e-01 of the largest at most",
        "  texts: 'x', 'y'",
    ]


def test_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its help says how to use it; a folder that is there is not written to."""
    for arguments, said in (
        (["--help"], "python -m examples.flagships all --rounds 5"),
        (["nothing"], "argument NAME: invalid choice: 'nothing'"),
        (["magika", "--keep", str(tmp_path)], "is there already"),
    ):
        monkeypatch.setattr(sys, "argv", ["flagships", *arguments])
        with pytest.raises(SystemExit):
            command.main()
        printed = capsys.readouterr()
        assert said in printed.out + printed.err
