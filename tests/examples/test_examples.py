"""The examples: each is built, agrees with its graph when interpreted, and does what its script says."""

from __future__ import annotations

import gzip
import importlib.util
import os
import random
import re
import shutil
import struct
import xml.etree.ElementTree
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from .. import projects

Built = Callable[[str], Path]
MNIST = os.environ.get("MLAOT_MNIST")


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """``built("xor")`` is the folder with the compiled package of ``examples/xor``, built once."""
    folder = tmp_path_factory.mktemp("examples")

    def site(name: str) -> Path:
        path = folder / name.replace("/", "-")
        if not path.exists():
            projects.build(projects.EXAMPLES / name, path)
        return path

    return site


def load(path: Path, name: str) -> ModuleType:
    """A module from a file, without a trace in ``sys.modules``."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def load_model(name: str) -> ModuleType:
    """An example's model.py; Python's random state is left as it was."""
    state = random.getstate()
    try:
        return load(projects.EXAMPLES / name / "model.py", "model")
    finally:
        random.setstate(state)


# Module, numbers of an input, largest pixel (0 where the inputs are no pixels), and how close the results must be.
CASES = {
    "xor": ("xor", 2, 0, 1e-12),
    "moons": ("moons", 2, 0, 1e-12),
    "digits/train": ("digits_train", 64, 16, 2e-5),
    "mnist": ("mnist", 784, 255, 1e-11),
}


def draw(size: int, largest: int, rng: np.random.Generator) -> tuple[Any, Any, list[float], list[float]]:
    """A random input and target for the module, and the same for the graph of values."""
    if not largest:
        x, y = rng.uniform(-1, 1, size), float(rng.choice([-1.0, 1.0]))
        return x, y, list(x), [y]
    pixels, label = rng.integers(0, largest + 1, size, dtype=np.uint8), int(rng.integers(10))
    return pixels, label, list(pixels / largest), [float(i == label) for i in range(10)]


def interpret(model: ModuleType, values: list[float], targets: list[float]) -> float:
    """The loss of one example by micrograd's engine; gradients are added to those of the parameters."""
    inputs = [*model.x, *(model.label if hasattr(model, "label") else [model.y])]
    for leaf, value in zip(inputs, [*values, *targets], strict=True):
        leaf.data = value
    model.loss.forward()
    for node in model.loss.topo():
        if node._prev:
            node.grad = 0
    model.loss.backward()
    return float(model.loss.data)


@pytest.mark.parametrize("name", CASES)
def test_compiled_agrees_with_interpreted(name: str, built: Built) -> None:
    """Loss, gradients and one step for a batch of three, against micrograd's engine on the same graph."""
    package, size, largest, tolerance = CASES[name]
    nn = load(built(name) / package / "nn.abi3.so", f"{package}.nn")
    model = load_model(name)
    rng = np.random.default_rng(1)
    examples = [draw(size, largest, rng) for _ in range(3)]
    loss = np.mean([interpret(model, values, targets) for _, _, values, targets in examples])
    parameters = np.array([p.data for p in model.net.parameters()])
    gradients = np.array([p.grad for p in model.net.parameters()]) / 3
    close = {"rtol": tolerance, "atol": tolerance * np.abs(gradients).max()}

    x = np.stack([example[0] for example in examples])
    y = np.array([example[1] for example in examples])
    assert nn.loss(x, y) == pytest.approx(loss, rel=tolerance)
    nn.set_input(x, y)
    nn.forward()
    nn.backward()
    np.testing.assert_allclose([nn.grad(i) for i in range(gradients.size)], gradients, **close)
    assert nn.train_step(x, y, lr=0.5) == pytest.approx(loss, rel=tolerance)
    np.testing.assert_allclose([nn.data(i) for i in range(gradients.size)], parameters - 0.5 * gradients, **close)


def test_xor_learns(built: Built, tmp_path: Path) -> None:
    """All four answers, within a thousand steps, with nothing but the standard library."""
    script = projects.EXAMPLES / "xor" / "train.py"
    printed = projects.run(script, cwd=tmp_path, site=built("xor"), alone=True)
    assert (tmp_path / "xor.svg").read_text().startswith("<svg")
    assert printed.splitlines()[-4:] == ["0 xor 0 = 0", "0 xor 1 = 1", "1 xor 0 = 1", "1 xor 1 = 0"]


def test_row_14_moons(built: Built, tmp_path: Path) -> None:
    """The demo's first and last loss, 100 % of the points, and a picture."""
    script = projects.EXAMPLES / "moons" / "train.py"
    printed = projects.run(script, cwd=tmp_path, site=built("moons"), alone=True)
    found = re.search(r"first loss (\S+), last (\S+), accuracy 100%", printed)
    assert found, printed
    assert float(found[1]) == pytest.approx(0.8958441028683222, abs=1e-9)
    assert float(found[2]) == pytest.approx(0.010978370135492717, abs=1e-9)
    picture = xml.etree.ElementTree.parse(tmp_path / "moons.svg").getroot()
    assert len(picture.findall("{*}circle[@class='mark c0 point']")) == 50
    assert len(picture.findall("{*}rect[@class='mark c1 point']")) == 50
    assert min(len(picture.findall(f"{{*}}rect[@class='r{side}']")) for side in (0, 1)) > 50  # rows of the plane


def test_row_14_moons_are_the_demos() -> None:
    """moons.csv is what scikit-learn gives for the demo's random state."""
    datasets = pytest.importorskip("sklearn.datasets")
    state = np.random.get_state()
    np.random.seed(1337)
    points, sides = datasets.make_moons(100, noise=0.1)
    np.random.set_state(state)
    stored = np.loadtxt(projects.EXAMPLES / "moons" / "moons.csv", delimiter=",")
    np.testing.assert_allclose(stored, np.column_stack([points, sides * 2 - 1]), rtol=1e-14)


def test_digits_train_and_serve(built: Built, tmp_path: Path) -> None:
    """Trained weights go into the serving module; both recognize 95 % of the test images, and the same ones."""
    folder = projects.EXAMPLES / "digits"
    weights = tmp_path / "weights.safetensors"
    printed = projects.run(folder / "train.py", "--out", weights, cwd=tmp_path, site=built("digits/train"), alone=True)
    trained = float(re.findall(r"accuracy +([\d.]+)%", printed)[-1])
    project = tmp_path / "serve"
    project.mkdir()
    for source in (folder / "serve" / "pyproject.toml", folder / "serve" / "model.py", weights):
        (project / source.name).write_bytes(source.read_bytes())
    projects.build(project, tmp_path / "site")
    printed = projects.run(folder / "serve.py", cwd=tmp_path, site=tmp_path / "site", alone=True)
    (served,) = re.findall(r"^test accuracy: (\d+\.\d) %$", printed, re.MULTILINE)
    assert float(served) == trained >= 95
    assert "of 360" in (tmp_path / "digits-answers.svg").read_text()


def test_digits_serve_agrees_with_numpy(built: Built) -> None:
    """The module built from the weights in the repository, against its own function called with NumPy arrays."""
    nn = load(built("digits/serve") / "digits" / "nn.abi3.so", "digits.nn")
    model = load_model("digits/serve")
    images = np.random.default_rng(2).integers(0, 17, (50, 64)).astype(np.float32)
    wanted = np.stack([model.digits(image) for image in images])
    np.testing.assert_allclose(np.asarray(nn.forward(images)), wanted, rtol=2e-5, atol=1e-7)
    np.testing.assert_allclose(np.asarray(nn.forward(images)).sum(1), 1, rtol=1e-6)


def test_torch_wheel_reads_digits(built: Built) -> None:
    """The module built from PyTorch's weights, on the images that they were not trained on."""
    pytest.importorskip("onnxscript")
    pytest.importorskip("torch")
    nn = load(built("torch-wheel") / "reader" / "nn.abi3.so", "reader.nn")
    digits = pytest.importorskip("sklearn.datasets").load_digits()
    images = digits.images[-360:, None].astype(np.float32)
    probabilities, digit = map(np.asarray, nn.forward(image=images).values())
    assert (digit == digits.target[-360:]).mean() > 0.9
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-5)


@pytest.mark.parametrize(("name", "needs", "shape"), [("keras", "keras", (8, 8, 1)), ("jax", "jax2onnx", (64,))])
def test_wheels_of_exporters(
    built: Built, name: str, needs: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Probabilities for a batch."""
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    for package in {needs, "torch" if name == "keras" else needs}:
        pytest.importorskip(package)
    nn = load(built(f"{name}-wheel") / f"{name}_reader" / "nn.abi3.so", f"{name}_reader.nn")
    found = np.asarray(nn.forward(np.random.default_rng(0).random((3, *shape), np.float32)))
    np.testing.assert_allclose(found.sum(1), np.ones(3), rtol=1e-5)


def test_digits_data_is_scikit_learns() -> None:
    """digits.csv.gz holds the images of ``load_digits``."""
    datasets = pytest.importorskip("sklearn.datasets")
    data = load(projects.EXAMPLES / "digits" / "data.py", "data")
    train, test = data.load()
    assert (len(train), len(test)) == (1437, 360)
    bunch = datasets.load_digits()
    assert test[1] == (bytes(bunch.data[5].astype(np.uint8)), bunch.target[5])
    assert train[-1] == (bytes(bunch.data[-1].astype(np.uint8)), bunch.target[-1])


def write_idx(folder: Path, *, zipped: bool) -> None:
    """Four idx files of random images: 90 to train with, 40 to test with."""
    rng = np.random.default_rng(3)
    for part, count in (("train", 90), ("t10k", 40)):
        pixels = rng.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        labels = rng.integers(0, 10, count, dtype=np.uint8)
        for name, head, content in (
            ("images-idx3", struct.pack(">4L", 0x803, count, 28, 28), pixels.tobytes()),
            ("labels-idx1", struct.pack(">2L", 0x801, count), labels.tobytes()),
        ):
            data = head + content
            path = folder / f"{part}-{name}-ubyte{'.gz' * zipped}"
            path.write_bytes(gzip.compress(data) if zipped else data)


@pytest.mark.parametrize("zipped", [False, True])
def test_mnist_reads_idx_files(built: Built, tmp_path: Path, zipped: bool) -> None:
    """Two epochs over a few images, the last batch smaller than the others."""
    write_idx(tmp_path, zipped=zipped)
    script = projects.EXAMPLES / "mnist" / "train.py"
    printed = projects.run(script, "--data", tmp_path, "--epochs", "2", cwd=tmp_path, site=built("mnist"), alone=True)
    assert len(re.findall(r"90 images in .* s: .* images per second", printed)) == 2
    assert re.search(r"^epoch 2: mean loss \d\.\d{6}, test accuracy 0\.\d{4}$", printed, re.MULTILINE), printed


def test_mnist_says_what_is_missing(built: Built, tmp_path: Path) -> None:
    """No files, files of something else, and neither files nor scikit-learn."""
    script = projects.EXAMPLES / "mnist" / "train.py"
    site = built("mnist")
    with pytest.raises(AssertionError, match=r"no file train-images-idx3-ubyte or train-images-idx3-ubyte\.gz in"):
        projects.run(script, "--data", tmp_path, site=site, alone=True)
    write_idx(tmp_path, zipped=False)
    (tmp_path / "train-images-idx3-ubyte").write_bytes(struct.pack(">4L", 0x803, 1, 7, 112) + bytes(784))
    with pytest.raises(AssertionError, match="holds no bytes for images of 28x28 pixels"):
        projects.run(script, "--data", tmp_path, site=site, alone=True)
    with pytest.raises(AssertionError, match="no --data FOLDER with the idx files, and no scikit-learn"):
        projects.run(script, site=site, alone=True)


def test_lenet_agrees_with_numpy(built: Built) -> None:
    """Scores and the entry ``evaluate`` of the compiled module against the model's own functions."""
    nn = load(built("lenet") / "lenet" / "nn.abi3.so", "lenet.nn")
    model = load_model("lenet")
    rng = np.random.default_rng(4)
    x, label = rng.integers(0, 256, (50, 1, 28, 28), dtype=np.uint8), rng.integers(0, 10, 50)
    scores, (right, loss) = np.asarray(nn.forward(x)), nn.evaluate(x, label).values()
    for i in range(len(x)):
        wanted = model.evaluate(x[i], label[i])
        np.testing.assert_allclose(scores[i], model.lenet(x[i]), rtol=1e-4, atol=1e-5)
        assert right[i] == wanted["right"]
        assert loss[i] == pytest.approx(float(wanted["loss"]), rel=1e-4)


def test_lenet_trains_on_idx_files(built: Built, tmp_path: Path) -> None:
    """Five epochs over a few images: what is printed, the weights, the picture."""
    write_idx(tmp_path, zipped=True)
    script = projects.EXAMPLES / "lenet" / "train.py"
    printed = projects.run(script, "--data", tmp_path, cwd=tmp_path, site=built("lenet"), alone=True)
    assert len(re.findall(r"90 images in .* s: .* images per second", printed)) == 5
    assert re.search(r"^epoch 5: test loss \d\.\d{4}, test accuracy 0\.\d{4}$", printed, re.MULTILINE), printed
    nn = load(built("lenet") / "lenet" / "nn.abi3.so", "lenet.nn")
    before = np.array(nn.parameters["conv1.weight"])
    nn.load(tmp_path / "lenet.safetensors")
    assert (before != np.asarray(nn.parameters["conv1.weight"])).all()
    xml.etree.ElementTree.parse(tmp_path / "lenet.svg")


@pytest.mark.skipif(MNIST is None, reason="MLAOT_MNIST names no folder with the MNIST files")
def test_lenet_on_mnist(built: Built, tmp_path: Path) -> None:
    """Five epochs over all images, about a minute: 99 % of the test images, and never below 98.8 %."""
    script = projects.EXAMPLES / "lenet" / "train.py"
    printed = projects.run(script, "--data", Path(str(MNIST)).resolve(), cwd=tmp_path, site=built("lenet"), alone=True)
    assert float(re.findall(r"test accuracy (\S+)", printed)[-1]) >= 0.988


@pytest.mark.skipif(MNIST is None, reason="MLAOT_MNIST names no folder with the MNIST files")
def test_row_28_35_mnist(built: Built, tmp_path: Path) -> None:
    """The post's program with its start weights, order and batches: its losses and its accuracy."""
    script = projects.EXAMPLES / "mnist" / "train.py"
    printed = projects.run(script, "--data", Path(str(MNIST)).resolve(), cwd=tmp_path, site=built("mnist"), alone=True)
    assert "loss of the first images 9.2103403698, 9.2103403656, 8.2573576937; test accuracy 0.1365" in printed
    assert "epoch 1: mean loss 0.737916, test accuracy 0.8968" in printed


def test_filekind(tmp_path: Path) -> None:
    """The package works with a session compiled from a file of magika's form, and reads files as magika does."""
    from onnx import TensorProto, helper, numpy_helper

    project = tmp_path / "project"
    shutil.copytree(projects.EXAMPLES / "magika-wheel", project)
    # The label is told by the first byte, the last byte and whether there are fewer than 2,048.
    pick = numpy_helper.from_array(np.array([0, 2047, 1023], np.int64), "pick")
    graph = helper.make_graph(
        [
            helper.make_node("Gather", ["bytes", "pick"], ["picked"], axis=1),
            helper.make_node("Cast", ["picked"], ["target_label"], to=TensorProto.FLOAT),
        ],
        "g",
        [helper.make_tensor_value_info("bytes", TensorProto.INT32, ["n", 2048])],
        [helper.make_tensor_value_info("target_label", TensorProto.FLOAT, ["n", 3])],
        [pick],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (project / "model.onnx").write_bytes(model.SerializeToString())
    (project / "filekind" / "labels.json").write_text('["first", "last", "short"]\n')
    projects.build(project, tmp_path / "site")
    shutil.copytree(project / "filekind", tmp_path / "site" / "filekind", dirs_exist_ok=True)
    files = {"first": b"z" + b"a" * 3000, "last": b" a" + b"b" * 6000 + b"y \n", "short": b"\tzy\n"}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    code = "import filekind, sys; print(*[filekind.label(path) for path in sys.argv[1:]], 'numpy' in sys.modules)"
    printed = projects.run("-S", "-c", f"import sys; sys.path[:0] = ['site']; {code}", *files, cwd=tmp_path)
    assert printed.split() == [*files, "False"]


def test_wines(tmp_path: Path) -> None:
    """The program answers as the pipeline does, with nothing but the standard library."""
    for package in ("skl2onnx", "sklearn"):
        pytest.importorskip(package)
    project = projects.EXAMPLES / "wines"
    projects.build(project, tmp_path / "site")
    command = (project / "classify.py", project / "wines.csv")
    printed = projects.run(*command, cwd=tmp_path, site=tmp_path / "site", alone=True).splitlines()
    assert printed[:3] == ["class_0  0.995", "class_2  0.985", "class_1  0.956"]
    assert printed[-1] == "53 of 54 right; table: wines.svg"
    assert "right: 53 of 54" in (tmp_path / "wines.svg").read_text()


@pytest.mark.parametrize(
    ("argument", "message"), [("wines", "invalid choice: 'wines'"), ("--epochs", "digits takes no more arguments, got")]
)
def test_run_refuses_before_it_builds(argument: str, message: str) -> None:
    """A name that is no example to train, and an option that nothing would read."""
    printed = projects.run(projects.EXAMPLES / "run.py", argument, status=2)
    assert message in printed and "building" not in printed
