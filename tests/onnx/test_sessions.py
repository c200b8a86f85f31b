"""A package of several compiled files answers as onnxruntime does."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from mlaot.onnx.sessions import read_file, shapes
from mlaot.settings import ModelSettings

from .. import projects

info = helper.make_tensor_value_info
DTYPES = {
    "float32": "float",
    "float64": "double",
    "float16": "float16",
    "bool": "bool",
    **{name: name for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")},
}
X = np.array([[1, 5, 2], [7, 0, 3]], np.float32)
C = np.array([1, 2, 3], np.float32)
FEED = {"in:0": X, "class": C}
PREFIX = "[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : "
REFUSED = f"{PREFIX}forward: class_: expected float32[3],"
MEND = "Please fix either the inputs/outputs or the model."


def net() -> onnx.ModelProto:
    """Two outputs of two inputs; what the file says of itself is of all kinds."""
    nodes = [
        helper.make_node("Add", ["in:0", "class"], ["sum"]),
        helper.make_node("ReduceMax", ["sum"], ["größte"], axes=[0, 1], keepdims=0),
    ]
    inputs = [info("in:0", TensorProto.FLOAT, ["N", 3]), info("class", TensorProto.FLOAT, [3])]
    outputs = [info("sum", TensorProto.FLOAT, [None, 3]), info("größte", TensorProto.FLOAT, [])]
    graph = helper.make_graph(nodes, "a graph", inputs, outputs, doc_string="of the graph")
    opset = helper.make_opsetid("", 13)
    about = {"producer_name": "a tool", "domain": "example", "model_version": 7, "doc_string": "of the model"}
    model = helper.make_model(graph, opset_imports=[opset], ir_version=8, **about)
    helper.set_model_props(model, {"character": "a'\n\"\\ü", "empty": ""})
    return model


def kinds() -> onnx.ModelProto:
    """An input of each type, which is an output."""
    types = {name: getattr(TensorProto, onnx_name.upper()) for name, onnx_name in DTYPES.items()}
    nodes = [helper.make_node("Identity", [name], [f"{name}_out"]) for name in types]
    inputs = [info(name, number, ["n"]) for name, number in types.items()]
    outputs = [info(f"{name}_out", number, ["n"]) for name, number in types.items()]
    graph = helper.make_graph(nodes, "kinds", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def words() -> onnx.ModelProto:
    """Two inputs of strings, which are compared, and one of which is an output."""
    nodes = [helper.make_node("Equal", ["x", "y"], ["same"]), helper.make_node("Identity", ["x"], ["out"])]
    inputs = [info("x", TensorProto.STRING, ["N", 2]), info("y", TensorProto.STRING, [2])]
    outputs = [info("same", TensorProto.BOOL, ["N", 2]), info("out", TensorProto.STRING, ["N", 2])]
    graph = helper.make_graph(nodes, "words", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


PYPROJECT = """\
[project]
name = "shop"
[tool.mlaot]
isa = ["base"]
[tool.mlaot.onnxruntime]
files = ["**/*.onnx"]
[tool.mlaot.models.typed]
onnx = "kinds.onnx"
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with two files, one of which has a table of its own."""
    folder = tmp_path_factory.mktemp("shop")
    (folder / "models").mkdir()
    onnx.save(net(), folder / "models" / "a-net.onnx")
    onnx.save(kinds(), folder / "kinds.onnx")
    onnx.save(words(), folder / "words.onnx")
    (folder / "pyproject.toml").write_text(PYPROJECT)
    return folder


@pytest.fixture(scope="module")
def site(project: Path) -> Path:
    """The folder with the package, for ``sys.path``."""
    folder = project.with_name("site")
    projects.build(project, folder)
    (folder / "shop" / "__init__.py").touch()
    return folder


@pytest.fixture(scope="module")
def ort(site: Path) -> Iterator[ModuleType]:
    sys.path.insert(0, str(site))
    from shop import ort as module

    yield module
    sys.path.remove(str(site))
    for name in [name for name in sys.modules if name.partition(".")[0] == "shop"]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def session(ort: ModuleType) -> Any:
    return ort.InferenceSession("a-net.onnx", providers=["CPUExecutionProvider"])


# ------------------------------------------------------------------------------------------------- what a session is of


def test_files_become_models(site: Path) -> None:
    """A file with a table has the module of that, others have one beside the package."""
    assert sorted(path.name for path in (site / "shop").iterdir()) == [
        "__init__.py",
        "ort",
        "ort_a_net.abi3.so",
        "ort_words.abi3.so",
        "py.typed",
        "typed.abi3.so",
    ]
    cmake = site.with_name("site-c") / "CMakeLists.txt"
    assert "\ninstall(DIRECTORY shop.ort/ DESTINATION shop/ort)\n" in cmake.read_text()


def test_names(ort: ModuleType) -> None:
    """As programs import them: of the package, and of where onnxruntime keeps them."""
    from shop.ort.capi import _pybind_state
    from shop.ort.capi import onnxruntime_pybind11_state as state
    from shop.ort.capi.onnxruntime_inference_collection import InferenceSession

    assert all(hasattr(ort, name) for name in ort.__all__)
    assert ort.capi._pybind_state is _pybind_state
    assert InferenceSession is ort.InferenceSession
    assert _pybind_state.SessionOptions is state.SessionOptions is ort.SessionOptions
    errors = ("Fail", "InvalidArgument", "NoSuchFile", "NotImplemented", "InvalidGraph", "InvalidProtobuf", "EPFail")
    for error in errors:
        assert issubclass(getattr(_pybind_state, error), Exception)
    assert ort.__version__ == ort.get_version_string()
    assert ort.get_available_providers() == ort.get_all_providers() == ["CPUExecutionProvider"]
    assert ort.get_device() == "CPU"
    assert "mlaot" in ort.get_build_info()
    assert not ort.has_collective_ops()
    for severity in range(5):
        ort.set_default_logger_severity(severity)
    with pytest.raises(RuntimeError, match="Invalid logging severity"):
        ort.set_default_logger_severity(5)
    ort.set_default_logger_verbosity(1)
    ort.set_seed(1)
    ort.preload_dlls()
    ort.disable_telemetry_events()


def test_file_is_found_by_its_bytes_else_by_its_name(ort: ModuleType, project: Path, tmp_path: Path) -> None:
    content = (project / "models" / "a-net.onnx").read_bytes()
    other = tmp_path / "kinds.onnx"  # the bytes of one, the name of the other
    other.write_bytes(content)
    for what in (content, bytearray(content), str(other), other, "no/where/a-net.onnx", Path("a-net.onnx")):
        session = ort.InferenceSession(what)
        assert isinstance(session, ort.InferenceSession)
        assert [port.name for port in session.get_inputs()] == ["in:0", "class"]
    assert ort.InferenceSession(str(project / "kinds.onnx")).get_inputs()[0].name == "float32"
    other.write_bytes(b"")  # stands for the file that has its name, for programs that look whether there is one
    assert ort.InferenceSession(other).get_inputs()[0].name == "float32"


@pytest.mark.parametrize(
    ("path", "found"),
    [
        *(("c.onnx", "y/c.onnx"), ("z/c.onnx", "y/c.onnx"), ("/site/y/c.onnx", "y/c.onnx")),
        *(
            ("a.onnx", "a.onnx"),
            ("x/a.onnx", "x/a.onnx"),
            ("y/x/a.onnx", "y/x/a.onnx"),
            ("/site/y/x/a.onnx", "y/x/a.onnx"),
        ),
        *(("w/y/b.onnx", "y/b.onnx"), ("w/x/b.onnx", "x/b.onnx"), ("b.onnx", None), ("w/b.onnx", None)),
        *(("w/x/a.onnx", None), ("d.onnx", None), ("onnx", None), ("", None)),
    ],
)
def test_files_of_one_name_are_told_apart_by_their_folders(ort: ModuleType, path: str, found: str | None) -> None:
    from shop.ort.capi import onnxruntime_inference_collection as collection

    names = ("a.onnx", "x/a.onnx", "y/x/a.onnx", "y/b.onnx", "x/b.onnx", "y/c.onnx")
    one = collection.FILES["kinds.onnx"]
    with patch.dict(collection.FILES, {name: one._replace(sha256=name) for name in names}, clear=True):
        if found is not None:
            assert collection.find_file(path).sha256 == found
            return
        is_open = path in ("b.onnx", "w/b.onnx", "w/x/a.onnx")
        problem = (
            "and shop.ort was compiled from .*/[ab].onnx and .*/[ab].onnx$" if is_open else "nor is it among those"
        )
        with pytest.raises(ort.capi.onnxruntime_pybind11_state.NoSuchFile, match=f"File doesn't exist, {problem}"):
            collection.find_file(path)


def test_file_that_was_not_compiled(ort: ModuleType, tmp_path: Path) -> None:
    errors = ort.capi.onnxruntime_pybind11_state
    known = "that shop.ort was compiled from: kinds.onnx, models/a-net.onnx, words.onnx"
    with pytest.raises(errors.NoSuchFile) as raised:
        ort.InferenceSession("x/b.onnx")
    assert str(raised.value) == (
        "[ONNXRuntimeError] : 3 : NO_SUCHFILE : Load model from x/b.onnx failed:Load model x/b.onnx failed."
        f" File doesn't exist, nor is it among those {known}"
    )
    empty = tmp_path / "b.onnx"
    empty.touch()
    with pytest.raises(errors.NoSuchFile, match=f"failed. File is empty, nor is it among those {known}"):
        ort.InferenceSession(empty)
    changed = tmp_path / "a-net.onnx"
    changed.write_bytes(b"another model")
    with pytest.raises(errors.Fail) as raised:
        ort.InferenceSession(changed)
    assert str(raised.value) == (
        f"[ONNXRuntimeError] : 1 : FAIL : Load model from {changed} failed:its bytes are those of no file {known}"
    )
    with pytest.raises(errors.Fail, match=f"Failed to load model: the bytes are those of no file {known}"):
        ort.InferenceSession(b"another model")
    with pytest.raises(TypeError, match="Unable to load from type '<class 'int'>'"):
        ort.InferenceSession(1)


def test_ports(session: Any) -> None:
    inputs = [(port.name, port.type, port.shape) for port in session.get_inputs()]
    assert inputs == [("in:0", "tensor(float)", ["N", 3]), ("class", "tensor(float)", [3])]
    outputs = [(port.name, port.type, port.shape) for port in session.get_outputs()]
    assert outputs == [("sum", "tensor(float)", [None, 3]), ("größte", "tensor(float)", [])]
    assert str(session.get_inputs()[0]) == "NodeArg(name='in:0', type='tensor(float)', shape=['N', 3])"
    session.get_inputs()[1].shape[0] = 4  # the caller's own
    assert session.get_inputs()[1].shape == [3]
    assert session.get_overridable_initializers() == []


def test_shapes_that_the_file_does_not_know(ort: ModuleType) -> None:
    """Sizes that are compiled in stand in place of names; where the file has other axes, those are shown."""
    compiled = [SimpleNamespace(name=name, type="tensor(float)", shape=["(n + 7) / 8", 1, 2]) for name in "abc"]
    said = {"a": ["n", "one", "m"], "b": [1, "n"]}
    ports = ort.capi.onnxruntime_inference_collection._ports(compiled, said)
    assert [port.shape for port in ports] == [["n", 1, 2], [1, "n"], ["(n + 7) / 8", 1, 2]]


def test_metadata(session: Any) -> None:
    assert vars(session.get_modelmeta()) == {
        "producer_name": "a tool",
        "graph_name": "a graph",
        "domain": "example",
        "description": "of the model",
        "graph_description": "of the graph",
        "version": 7,
        "custom_metadata_map": {"character": "a'\n\"\\ü", "empty": ""},
    }


def test_what_a_file_says(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(content := net().SerializeToString())
    file = read_file(tmp_path, "net.onnx", ModelSettings("net", module="a.b.net", onnx="net.onnx"))
    assert (file.name, file.package, file.stem) == ("net.onnx", "a.b", "net")
    assert file.sha256 == hashlib.sha256(content).hexdigest()
    assert file.inputs == {"in:0": ["N", 3], "class": [3]}
    assert file.outputs == {"sum": [None, 3], "größte": []}


def test_open_dimensions_without_a_name() -> None:
    infos = [info("a", TensorProto.FLOAT, [-1, 0, None, ""]), info("b", TensorProto.FLOAT, None)]
    assert shapes(infos) == {"a": [None, 0, None, None]}


def test_metadata_that_is_missing(tmp_path: Path) -> None:
    """As onnxruntime says it."""
    (tmp_path / "kinds.onnx").write_bytes(kinds().SerializeToString())
    metadata = read_file(tmp_path, "kinds.onnx", ModelSettings("k", module="a.k", onnx="kinds.onnx")).metadata
    assert metadata["version"] == 2**63 - 1
    assert metadata["custom_metadata_map"] == {}


def test_metadata_that_is_no_text(tmp_path: Path) -> None:
    model = net()
    model.producer_name = "abc"
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString().replace(b"abc", b"\xff\xfe\xfd"))
    file = read_file(tmp_path, "net.onnx", ModelSettings("net", module="a.net", onnx="net.onnx"))
    assert file.metadata["producer_name"] == "\ufffd" * 3


# ------------------------------------------------------------------------------------------------------------- calls


def test_run(session: Any) -> None:
    both = session.run(None, FEED)
    assert all(type(value) is np.ndarray for value in both)
    np.testing.assert_array_equal(both[0], X + C)
    assert both[1].shape == ()
    assert both[1] == 8
    turned = session.run(["größte", "sum", "sum"], FEED, None)
    for found, expected in zip(turned, (both[1], both[0], both[0]), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert len(session.run([], input_feed=FEED)) == 2


@pytest.mark.parametrize(
    "x",
    [
        X.tolist(),
        [*X],
        X.astype(">f4"),
        np.asfortranarray(X),
        np.repeat(X, 2, axis=1)[:, ::2],
        X.astype(int).tolist(),
        memoryview(X),
        tuple(map(tuple, X.tolist())),
    ],
    ids=["list", "list of arrays", "big-endian", "columns", "strides", "list of ints", "buffer", "tuple"],
)
def test_what_goes_in(session: Any, x: Any) -> None:
    (result,) = session.run(["sum"], {"in:0": x, "class": C})
    np.testing.assert_array_equal(result, X + C)


def test_arrays_of_numpy_come_out(session: Any) -> None:
    """Whatever went in."""
    results = session.run(None, {"in:0": memoryview(X), "class": memoryview(C)})
    assert [type(result) for result in results] == [np.ndarray, np.ndarray]


def test_no_rows(session: Any) -> None:
    total, largest = session.run(None, {"in:0": X[:0], "class": C})
    assert total.shape == (0, 3)
    assert largest == -np.inf


@pytest.mark.parametrize(
    ("names", "feed", "error", "message"),
    [
        (None, {"in:0": X}, "ValueError", "Required inputs (['class']) are missing from input feed (['in:0'])."),
        (None, FEED | {"x": X}, "InvalidArgument", f"{PREFIX}Invalid input name: x"),
        (["out"], FEED, "InvalidArgument", f"{PREFIX}Invalid output name:out"),
        ("sum", FEED, "TypeError", "run(): expected a list of names of outputs, got 'sum'"),
        (
            None,
            FEED | {"in:0": X.astype(float)},
            "InvalidArgument",
            f"{PREFIX}Unexpected input data type. Actual: (tensor(double)) , expected: (tensor(float))",
        ),
        (
            None,
            FEED | {"in:0": X[0]},
            "InvalidArgument",
            f"{PREFIX}Invalid rank for input: in:0 Got: 1 Expected: 2 {MEND}",
        ),
        (
            None,
            FEED | {"in:0": np.ones((2, 4), np.float32)},
            "InvalidArgument",
            f"{PREFIX}Got invalid dimensions for input: in:0 for the following indices\n"
            f" index: 1 Got: 4 Expected: 3\n {MEND}",
        ),
        (None, FEED | {"in:0": [[1, "a", 2]]}, "RuntimeError", "Could not create tensor from given input list"),
        (None, FEED | {"in:0": [[1, 2], [3]]}, "RuntimeError", "Could not create tensor from given input list"),
        (
            None,
            FEED | {"class": None},
            "InvalidArgument",
            f"{PREFIX}forward: class_: expected float32[3], got NoneType",
        ),
        (
            None,
            FEED | {"class": C.astype(complex)},
            "InvalidArgument",
            f"{REFUSED} got buffer format 'Zd'[3]",
        ),
    ],
)
def test_mistakes(ort: ModuleType, session: Any, names: Any, feed: Any, error: str, message: str) -> None:
    kinds = vars(ort.capi.onnxruntime_pybind11_state) | {e.__name__: e for e in (ValueError, TypeError, RuntimeError)}
    with pytest.raises(kinds[error]) as raised:
        session.run(names, feed)
    assert str(raised.value) == message


def test_types(ort: ModuleType) -> None:
    session = ort.InferenceSession("kinds.onnx")
    assert [port.type for port in session.get_inputs()] == [f"tensor({name})" for name in DTYPES.values()]
    feed = {name: np.array([0, 1, 1]).astype(name) for name in DTYPES}
    for name, result in zip(DTYPES, session.run(None, feed), strict=True):
        assert result.dtype == name
        np.testing.assert_array_equal(result, feed[name])
    for wrong, name in zip(DTYPES, [*DTYPES][1:], strict=False):
        said = f"Actual: \\(tensor\\({DTYPES[wrong]}\\)\\) , expected: \\(tensor\\({DTYPES[name]}\\)\\)"
        with pytest.raises(ort.capi.onnxruntime_pybind11_state.InvalidArgument, match=said):
            session.run(None, feed | {name: feed[wrong]})


def test_without_numpy(site: Path) -> None:
    """Arrays of the modules come out, of lists and of what has a buffer."""
    code = (
        "import array, sys\nfrom shop import ort\n"
        "session = ort.InferenceSession('a-net.onnx')\n"
        "feed = {'in:0': [[1, 5, 2], [7, 0, 3]], 'class': array.array('f', [1, 2, 3])}\n"
        "total, largest = session.run(None, feed)\n"
        "assert total.tolist() == [[2, 7, 5], [8, 2, 6]] and largest.tolist() == 8\n"
        "try:\n    session.run(None, feed | {'class': array.array('d', [1, 2, 3])})\n"
        "except ort.capi.onnxruntime_pybind11_state.InvalidArgument as error:\n    print(error)\n"
        "value = ort.OrtValue(total)\n"
        "print(value.shape(), value.data_type(), 'numpy' in sys.modules)\n"
        "try:\n    ort.OrtValue.ortvalue_from_shape_and_type([2], 'float32')\n"
        "except ImportError as error:\n    print(error)\n"
    )
    assert projects.run("-c", code, site=site, alone=True) == (
        f"{PREFIX}Unexpected input data type. Actual: (tensor(double)) , expected: (tensor(float))\n"
        "[2, 3] tensor(float) False\n"
        "this needs NumPy; run() takes lists, and objects with a buffer\n"
    )


# ------------------------------------------------------------------------------------------- as onnxruntime itself

USED = """
import importlib.util
import onnxruntime, onnxruntime.capi.onnxruntime_inference_collection as collection
from onnxruntime.capi._pybind_state import InvalidArgument
from onnxruntime.capi.onnxruntime_pybind11_state import SessionOptions
session = onnxruntime.InferenceSession("a-net.onnx", SessionOptions())
assert isinstance(session, collection.InferenceSession)
try:
    session.run(["nothing"], {"in:0": [[1, 5, 2]], "class": [1, 2, 3]})
except InvalidArgument as error:
    print(error)
print(importlib.util.find_spec("onnxruntime").name)
"""
INSTALLED = f"{PREFIX}Invalid output name:nothing\nshop.ort\n"


def test_install(site: Path) -> None:
    """All of its modules are found under the other name, and are the same; a second time does nothing."""
    code = f"import sys\nfrom shop import ort\nort.install()\nort.install()\n{USED}\nassert onnxruntime is ort"
    assert projects.run("-W", "error", "-c", code, site=site) == INSTALLED


def test_install_beside_another(site: Path, tmp_path: Path) -> None:
    """One that is there is hidden, with a warning; one that is in use is not."""
    there = tmp_path / "onnxruntime.py"
    there.touch()
    begin = f"import sys, warnings\nsys.path.append({str(tmp_path)!r})\nfrom shop import ort\n"
    caught = "with warnings.catch_warnings(record=True) as said:\n    ort.install()\nprint(said[0].message)"
    said = f"shop.ort hides the onnxruntime that is installed in {there}\n"
    assert projects.run("-c", f"{begin}{caught}\n{USED}", site=site) == said + INSTALLED
    refused = "try:\n    ort.install()\nexcept ImportError as error:\n    print(error, onnxruntime.__file__)"
    assert projects.run("-c", f"{begin}import onnxruntime\n{refused}", site=site) == (
        f"shop.ort cannot stand in for onnxruntime: it is imported already, from {there};"
        f" call install() before, and of one package only {there}\n"
    )


# ---------------------------------------------------------------------------------------------------------- options


def test_options(ort: ModuleType) -> None:
    options = ort.SessionOptions()
    options.inter_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    with pytest.raises(RuntimeError, match="does not have configuration with key: x"):
        options.get_session_config_entry("x")
    with pytest.raises(ort.capi.onnxruntime_pybind11_state.NotImplemented, match="the value of 'w' is compiled in"):
        options.add_initializer("w", None)
    assert str(ort.GraphOptimizationLevel(99)) == "GraphOptimizationLevel.ORT_ENABLE_ALL"
    session = ort.InferenceSession("a-net.onnx", options)
    assert session.get_session_options() is options
    assert session.get_providers() == ["CPUExecutionProvider"]
    assert session.get_provider_options() == {"CPUExecutionProvider": {}}
    assert session.end_profiling() == ""
    run_options = ort.RunOptions()
    run_options.add_run_config_entry("a", "b")
    assert len(session.run(None, FEED, run_options)) == 2


def test_threads(ort: ModuleType) -> None:
    """Those that the options ask for; 0 leaves the module its own."""
    asked: list[int] = []

    class Model:
        def get_inputs(self) -> list[Any]:
            return []

        get_outputs = get_inputs

        def set_threads(self, n: int) -> None:
            asked.append(n)

    collection = ort.capi.onnxruntime_inference_collection
    file = collection.FILES["models/a-net.onnx"]._replace(load=lambda: SimpleNamespace(Model=Model))
    with patch.dict(collection.FILES, {"models/a-net.onnx": file}):
        for threads in (0, 3):
            options = ort.SessionOptions()
            options.intra_op_num_threads = threads
            ort.InferenceSession("a-net.onnx", options)
    assert asked == [3]


def test_other_providers_are_warned_of(ort: ModuleType) -> None:
    with pytest.warns(UserWarning, match="Specified provider 'CUDAExecutionProvider' is not in available") as warned:
        session = ort.InferenceSession(
            "a-net.onnx", providers=[("CUDAExecutionProvider", {"device_id": 0}), "CPUExecutionProvider"]
        )
    assert len(warned) == 1
    assert session.get_providers() == ["CPUExecutionProvider"]


# ----------------------------------------------------------------------------------------------------------- values


def test_values(ort: ModuleType, session: Any) -> None:
    value = ort.OrtValue.ortvalue_from_numpy(X)
    assert (value.shape(), value.data_type(), value.element_type()) == ([2, 3], "tensor(float)", TensorProto.FLOAT)
    assert (value.device_name(), value.is_tensor(), value.has_value()) == ("cpu", True, True)
    assert (value.data_ptr(), value.tensor_size_in_bytes()) == (X.ctypes.data, X.nbytes)
    np.testing.assert_array_equal(value.numpy(), X)
    results = session.run_with_ort_values(["sum"], {"in:0": value, "class": ort.OrtValue.ortvalue_from_numpy(C)})
    assert isinstance(results[0], ort.OrtValue)
    np.testing.assert_array_equal(results[0].numpy(), X + C)
    empty = ort.OrtValue.ortvalue_from_shape_and_type([2, 3], np.int64)
    assert (empty.shape(), empty.data_type()) == ([2, 3], "tensor(int64)")
    empty.update_inplace(np.ones((2, 3)))
    assert empty.numpy().sum() == 6
    with pytest.raises(RuntimeError, match="from non-string numpy arrays"):
        ort.OrtValue.ortvalue_from_numpy(["a"])
    with pytest.raises(RuntimeError, match="no device 'cuda'"):
        ort.OrtValue.ortvalue_from_numpy(X, "cuda", 0)
    assert ort.OrtDevice.make("cpu", 0).device_id() == 0


def test_binding(ort: ModuleType, session: Any) -> None:
    binding = session.io_binding()
    with pytest.raises(RuntimeError, match="Failed to find NodeArg with name: x in the def list"):
        binding.bind_cpu_input("x", X)
    binding.bind_cpu_input("in:0", X)
    binding.bind_input("class", "cpu", 0, np.float32, C.shape, C.ctypes.data)
    with pytest.raises(RuntimeError, match="At least one output should be requested"):
        session.run_with_iobinding(binding)
    binding.bind_output("größte")
    memory = np.zeros((2, 3), np.float32)
    binding.bind_output("sum", "cpu", 0, TensorProto.FLOAT, memory.shape, memory.ctypes.data)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(memory, X + C)
    largest, total = binding.copy_outputs_to_cpu()
    assert largest == 8
    np.testing.assert_array_equal(total, X + C)
    assert [value.shape() for value in binding.get_outputs()] == [[], [2, 3]]
    binding.clear_binding_outputs()
    target = ort.OrtValue.ortvalue_from_shape_and_type([2, 3], np.float32)
    binding.bind_ortvalue_output("sum", target)
    binding.bind_ortvalue_input("in:0", ort.OrtValue.ortvalue_from_numpy(2 * X))
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(target.numpy(), 2 * X + C)
    binding.clear_binding_inputs()
    with pytest.raises(ValueError, match="Required inputs"):
        session.run_with_iobinding(binding)


# ------------------------------------------------------------------------------------------------------------- strings

WORDS = np.array([["a", "c"], ["é", "b"], ["a", "b"]])


@pytest.mark.parametrize(
    "given",
    [WORDS, WORDS.astype(object), WORDS.tolist(), np.asfortranarray(WORDS), WORDS[::-1][::-1]],
    ids=["str", "object", "list", "columns", "strided"],
)
def test_strings(ort: ModuleType, given: Any) -> None:
    """Arrays of str or of objects go in, arrays of objects come out."""
    session = ort.InferenceSession("words.onnx")
    ports = [(port.name, port.type, port.shape) for port in (*session.get_inputs(), *session.get_outputs())]
    assert ports[:2] == [("x", "tensor(string)", ["N", 2]), ("y", "tensor(string)", [2])]
    assert ports[2:] == [("same", "tensor(bool)", ["N", 2]), ("out", "tensor(string)", ["N", 2])]
    same, out = session.run(None, {"x": given, "y": np.array(["a", "b"])})
    np.testing.assert_array_equal(same, np.array(["a", "b"]) == WORDS)
    assert (out.dtype, out.tolist()) == (object, WORDS.tolist())
    assert session.run(["out"], {"x": given, "y": ["", ""]})[0].tolist() == WORDS.tolist()


def test_objects_become_strings(ort: ModuleType) -> None:
    """By their own str, as in onnxruntime."""
    session = ort.InferenceSession("words.onnx")
    given = np.array([["a", None], [5, float("nan")], [b"x", ""]], object)
    same, out = session.run(None, {"x": given, "y": np.array(["a", "nan"])})
    assert out.tolist() == [["a", "None"], ["5", "nan"], ["b'x'", ""]]
    assert same.tolist() == [[True, False], [False, True], [False, False]]
    same, out = session.run(None, {"x": np.zeros((0, 2), object), "y": np.array(["a", "b"])})
    assert (out.shape, out.dtype, same.shape) == ((0, 2), object, (0, 2))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.ones((1, 2)), "Unexpected input data type. Actual: (tensor(double)) , expected: (tensor(string))"),
        (np.array(["a", "b"]), f"Invalid rank for input: x Got: 1 Expected: 2 {MEND}"),
        (
            np.array([["a"]], object),
            f"Got invalid dimensions for input: x for the following indices\n index: 1 Got: 1 Expected: 2\n {MEND}",
        ),
    ],
    ids=["numbers", "rank", "shape"],
)
def test_what_are_no_strings(ort: ModuleType, given: Any, message: str) -> None:
    with pytest.raises(ort.capi.onnxruntime_pybind11_state.InvalidArgument) as raised:
        ort.InferenceSession("words.onnx").run(None, {"x": given, "y": np.array(["a", "b"])})
    assert str(raised.value) == PREFIX + message


def test_values_of_strings(ort: ModuleType) -> None:
    session = ort.InferenceSession("words.onnx")
    for strings in (WORDS, WORDS.astype(object)):
        with pytest.raises(RuntimeError, match="only supported from non-string numpy arrays"):
            ort.OrtValue.ortvalue_from_numpy(strings)
    (out,) = session.run_with_ort_values(["out"], {"x": WORDS, "y": WORDS[0]})
    assert (out.data_type(), out.element_type(), out.shape()) == ("tensor(string)", TensorProto.STRING, [3, 2])
    assert out.numpy().tolist() == WORDS.tolist()
