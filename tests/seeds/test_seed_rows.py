"""Rows 16 to 62 of docs/seeds.md, as far as they are about compiled models and the compiler, under their numbers.

What the eager values do is in ``tests/micrograd``. Here the seeds' own lines and figures run on what mlaot makes of
them, and next to the values interpreted. The faults of the seeds that must not come back are at the end.
"""

from __future__ import annotations

import _imp
import importlib.machinery
import os
import random
import re
import struct
import subprocess
import sysconfig
import tracemalloc
import zipfile
from array import array
from collections import Counter
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlaot import passes
from mlaot.build.toolchain import find_compiler
from mlaot.evaluate import evaluate
from mlaot.files import program_files, write
from mlaot.frontend.trace.declaration import Declaration
from mlaot.generate import compile_model
from mlaot.ir import Graph, Node
from mlaot.ir.types import f64
from mlaot.micrograd import MLP, Array, Dot, Layer, Neuron, Value, compile, count, declare, images, optimize
from mlaot.micrograd.graph import ssa
from mlaot.ops import elementwise as ew
from mlaot.ops import reduction as red
from mlaot.ops import structure as st
from mlaot.passes.algebra.fold_constants import fold_constants
from mlaot.passes.algebra.simplify import simplify
from mlaot.passes.raising.flatten_sums import flatten_sums
from mlaot.printing import cmake
from mlaot.report.passes import report
from mlaot.schedule.machine import MACHINES as FLAGS
from mlaot.settings.options import Options
from mlaot.transforms.differentiate import differentiate

from .. import projects
from .conftest import Modules, build, load
from .declarations import FIGURES, KINDS, START, TENSORS, Digits, moons_net, tensor_ops

ROOT = projects.ROOT
XOR = [[0, 0], [0, 1], [1, 0], [1, 1]], [0, 1, 1, 0]


def close(actual: Any, expected: Any, tolerance: float = 1e-12) -> None:
    """Equal up to ``tolerance``, relative to the largest number."""
    scale = max(1.0, float(np.abs(np.asarray(expected, float)).max()))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * scale)


def kernels(declared: Any, isa: str = "base") -> str:
    """The C of a model's arithmetic from its first kernel on, without the helpers in front."""
    text = program_files(compile_model(declared, "t.nn", Options(isas=(isa,))))[f"nn_{isa}.c"]
    assert isinstance(text, str)
    return text[text.index("\n// v0 = ") + 1 :]


def graph_of(root: Value, inputs: dict[str, Value] | None = None, parameters: Any = ()) -> Graph:
    """The graph that the compiler starts from."""
    return declare(root, inputs=inputs or {}, parameters=parameters).trace().graph


def ops(graph: Graph) -> Counter[str]:
    """How many nodes there are of each op."""
    return Counter(node.op.name for node in graph.nodes())


# micrograd


def test_row_16_wheel(tmp_path: Path) -> None:
    """mlaot is one pure wheel with its metadata; what is in it runs from there."""
    code = (
        "from scikit_build_core.build import build_wheel as b; import sys; b(sys.argv[1], {'build-dir': sys.argv[2]})"
    )
    projects.run("-c", code, tmp_path / "dist", tmp_path / "build")
    (wheel,) = (tmp_path / "dist").iterdir()
    assert re.fullmatch(r"mlaot-[\d.]+-py3-none-any\.whl", wheel.name)
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    program = (
        "import sys; sys.path[:0] = sys.argv[1:]; import mlaot.micrograd, mlaot.render, importlib.metadata as m;"
        "print(mlaot.__file__, m.version('mlaot') == mlaot.__version__, (mlaot.micrograd.Value(2.0) * 3).data);"
        "template = mlaot.render.environment().get_template('nn_table.c.j2');"
        "print(template.root_render_func.__code__.co_filename)"
    )
    packages = sysconfig.get_path("purelib")  # -S: no editable install of mlaot comes first
    printed = projects.run("-S", "-c", program, tmp_path / "site", packages, cwd=tmp_path)
    *others, template = printed.split()
    assert others == [str(tmp_path / "site" / "mlaot" / "__init__.py"), "True", "6.0"]
    # The wheel has every template compiled, too.
    folder = tmp_path / "site" / "mlaot" / "templates"
    assert Path(template).parent == folder / f"jinja-{version('jinja2')}"
    texts = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    texts = [path for path in texts if path.parent != Path(template).parent]
    assert len(texts) == len(list(Path(template).parent.glob("tmpl_*.py")))


# The fork's B1 compiler: every kind of node


def test_row_17_numbers_of_nodes() -> None:
    """Nodes are numbered by their place in topological order, in values and in graphs; no counter outlives a graph."""
    x, y = Value(0, (), "input"), Value(0, (), "input")
    for _ in range(2):
        out = (x * y + x).relu()
        assert ssa(out) == "v2 = * v0 v1\nv3 = + v2 v0\nv4 = ReLU v3\n"
        graph = graph_of(out, {"x": x, "y": y})
        assert re.findall(r"^  (v\d) = (\w+)\((v\d.*)\) :", str(graph), re.MULTILINE) == [
            ("v2", "mul", "v0, v1"),
            ("v3", "add", "v2, v0"),
            ("v4", "relu", "v3"),
        ]


@pytest.mark.parametrize("kind", KINDS)
def test_row_18_19_20_21_24_kinds_compiled(compiled: Modules, kind: str) -> None:
    """Value and gradients of every kind of node, several inputs in one batch: compiled as interpreted."""
    model, i = compiled("kinds").Model(), list(KINDS).index(kind)
    xs = [0.25, 1.1, 1.9, 3.0]
    values, gradients = [], np.zeros(2)
    for x in xs:
        leaves = [Value(start) for start in START] + [Value(x)]
        out = KINDS[kind](*leaves)
        out.backward()
        values.append(out.data)
        gradients += [leaves[0].grad / len(xs), leaves[1].grad / len(xs)]
    model.set_input(xs, [i] * len(xs))
    close(np.asarray(model.forward())[:, i], values)
    close(model.loss(), np.mean(values))
    model.backward()
    close([model.grad(0), model.grad(1)], gradients)


def test_row_12_13_44_figures_compiled(compiled: Modules) -> None:
    """README example, ``test_sanity_check`` and ``test_duplicate_backprop`` with the seeds' numbers."""
    model = compiled("kinds").Model()
    for i, (name, value, gradients) in enumerate(
        [
            ("readme", 24.70408163265306, [138.83381924198252, 645.5772594752186]),
            ("sanity", -20.0, [46.0, 0.0]),
            ("duplicate", 48.0, [0.0, 8.0]),
        ]
    ):
        assert list(FIGURES)[i] == name
        model.set_input(1.0, len(KINDS) + i)
        assert model.forward()[len(KINDS) + i] == pytest.approx(value, rel=1e-14)
        model.zero_grad()
        model.backward()
        assert model.loss() == pytest.approx(value, rel=1e-14)
        close([model.grad(i) for i in range(4)], [0.0, 0.0, *gradients], 1e-14)


def test_row_22_topo_of_the_compiler() -> None:
    """``test_topo_bigger``: arguments before users, left before right, in the graph too."""
    v = dict(zip("abcd", map(Value, (2, 3, 4, 5)), strict=True))
    graph = graph_of(v["a"] * v["b"] + v["c"] * v["d"], v)
    assert str(graph).splitlines()[1:] == [
        "  v0 = input(name=a) : f64[]",
        "  v1 = input(name=b) : f64[]",
        "  v2 = mul(v0, v1) : f64[]",
        "  v3 = input(name=c) : f64[]",
        "  v4 = input(name=d) : f64[]",
        "  v5 = mul(v3, v4) : f64[]",
        "  v6 = add(v2, v5) : f64[]",
        "  return out=v6",
    ]
    assert graph.nodes() == graph.nodes() != []


def test_row_23_c_of_every_op_with_constants_inside() -> None:
    """Each op has a line of C; numbers stand in the text, and nothing can set them."""
    a, x = Value(0.7), Value(1.0)

    def text(y: Value) -> str:
        return kernels(declare(y, inputs={"x": x}, parameters={"a": a}, loss=y))

    for op, y in {
        "+": a * x + a,
        "*": a * x,
        "relu_f64v(": (a * x).relu(),
        "exp_f64v(": (a * x).exp(),
        "log_f64v(": (a * x).log(),
        "tanh_f64v(": (a * x).tanh(),
        "max_f64v(": (a * x).max(a),
    }.items():
        assert re.search(rf"const f64v v\d+ = .*{re.escape(op)}", text(y)), op
    assert "splat_f64v(2.5)" in text(x * 2.5 + a) and "splat_f64v(0.75)" in text((x + 0.75) * a)
    program = compile_model(
        declare(a * x + 2.5, inputs={"x": x}, parameters={"a": a}, loss=a * x + 2.5), "t.nn", Options(isas=("base",))
    )
    assert [slot.name for slot in program.module.slots] == ["a"]


INF = "__builtin_inf()"


@pytest.mark.parametrize(
    ("exponent", "line"),
    [
        (0, "v0 = 1.0;"),
        (1, "v0 = x0 + splat_f64v(1.0);"),
        (-1, "v1 = splat_f64v(1.0) / v0;"),
        (2, "v1 = v0 * v0;"),
        (3, "v1 = v0 * v0 * v0;"),
        (0.5, f"v1 = select_f64v(v0 == splat_f64v(-{INF}), splat_f64v({INF}), sqrt_f64v(v0 + splat_f64v(0.0)));"),
        (2.5, "v1 = pow_f64v(v0, splat_f64v(2.5));"),
    ],
)
def test_row_24_c_of_powers(exponent: float, line: str) -> None:
    """``**0`` is 1, ``**1`` the value, ``**-1`` a division; ``**0.5`` compiles (fault 4), others are a power."""
    x = Value(1.0)
    lines = re.findall(r"const (?:f64v|double) (v\d = .*)", kernels(declare((x + 1) ** exponent, inputs={"x": x})))
    assert lines[len(lines) // 2 - 1] == line


def test_row_25_gradients_of_parameters_only() -> None:
    """The backward pass writes the gradients of the parameters; it computes none of constants or inputs."""
    a, x = Value(0.7), Value(1.0)
    y = (a * x * 3.5).exp()
    module = passes.run("t.nn", declare(y, inputs={"x": x}, parameters={"a": a}, loss=y).trace())
    assert list(module.graphs["accumulate"].writes) == ["gradient(a)"]
    assert list(module.graphs["train_step"].writes) == ["a"]
    forward, backward = ops(module.graphs["loss"]), ops(module.graphs["phases"])
    assert forward["exp"] == backward["exp"] == 1
    assert backward["mul"] - forward["mul"] <= 3  # by exp, by 3.5, by x: none for dx


def test_row_26_square_adds_twice() -> None:
    """``a * a`` passes its gradient on twice: a sum of two equal products."""
    a, x = Value(3.0), Value(1.0)
    y = a * a + x
    module = passes.run("t.nn", declare(y, inputs={"x": x}, parameters={"a": a}, loss=y).trace())
    text = str(module.graphs["accumulate"])
    (product,) = re.findall(r"(v\d+) = mul\(v\d+, v\d+\) : f64\[\]\n  v\d+ = add\(\1, \1\)", text)
    assert f"add({product}, {product}) : f64[]" in text


def test_row_27_clipped_gradients(compiled: Modules) -> None:
    """Between ``backward`` and ``update`` the gradients are open to everyone: here they are clipped."""
    model = compiled("xor").Model()
    model.set_input(*XOR)
    model.forward()
    model.backward()
    before = [model.data(i) for i in range(17)]
    gradients = [model.grad(i) for i in range(17)]
    assert max(map(abs, gradients)) > 0.05
    for gradient in model.gradients.values():
        whole = np.asarray(gradient)
        np.clip(whole, -0.05, 0.05, out=whole)
    model.update(lr=1.0)
    close([model.data(i) for i in range(17)], np.array(before) - np.clip(gradients, -0.05, 0.05), 1e-15)


class Interpreted:
    """The first post's program on values: one graph kept in place, gradients of parameters add up."""

    def __init__(self) -> None:
        self.digits = Digits()
        self.order = self.digits.loss.topo()
        self.reverse = self.order[::-1]
        self.inner = [node for node in self.order if node._prev]
        self.parameters = self.digits.net.parameters()

    def set_input(self, pixels: bytes, label: int) -> None:
        for value, pixel in zip(self.digits.x, pixels, strict=True):
            value.data = pixel / 255
        for i, value in enumerate(self.digits.onehot):
            value.data = float(i == label)

    def step(self) -> float:
        for node in self.inner:
            node.grad = 0
            node._forward()
        self.digits.loss.backward(self.reverse)
        return self.digits.loss.data

    def update(self, lr: float) -> None:
        for p in self.parameters:
            p.data -= lr * p.grad


def pictures(n: int) -> list[tuple[bytes, int]]:
    """Something like digits: a fifth of the pixels is not 0."""
    rng = np.random.default_rng(28)
    pixels = rng.integers(0, 256, (n, 784), dtype=np.uint8) * (rng.random((n, 784)) < 0.2).astype(np.uint8)
    return [(row.tobytes(), int(label)) for row, label in zip(pixels, rng.integers(0, 10, n), strict=True)]


def test_row_28_29_30_42_training_side_by_side(compiled: Modules) -> None:
    """The verbs of the first post's module next to the interpreted values: two batches, every parameter.

    Initial weights, pixels as bytes, forward, backward, gradients that add up until ``zero_grad``, update.
    """
    nn, values = compiled("mnist").Model(), Interpreted()
    everything = range(len(values.parameters))
    assert len(everything) == nn_count(nn) == 39_760
    assert [nn.data(i) for i in everything] == [p.data for p in values.parameters]
    for batch in (pictures(3), pictures(5)[3:]):
        nn.zero_grad()
        values.digits.net.zero_grad()
        for pixels, label in batch:
            nn.set_input(pixels, label)
            values.set_input(pixels, label)
            expected = values.step()
            assert nn.forward().shape == (10,)
            close(nn.forward().tolist(), [out.data for out in values.digits.outputs])
            close(nn.loss(), expected)
            nn.backward()
        close([nn.grad(i) for i in everything], [p.grad for p in values.parameters])
        nn.update(lr=0.1 / len(batch))
        values.update(0.1 / len(batch))
        close([nn.data(i) for i in everything], [p.data for p in values.parameters])


def nn_count(model: Any) -> int:
    """Scalar parameters of a model."""
    return sum(len(bytes(memoryview(a))) for a in model.parameters.values()) // 8


def test_row_28_one_call_does_the_same(compiled: Modules) -> None:
    """A batch of 20 by ``train_step`` gives the parameters that 20 images one by one give."""
    nn = compiled("mnist")
    one, many, batch = nn.Model(), nn.Model(), pictures(20)
    losses = []
    for pixels, label in batch:
        one.set_input(pixels, label)
        one.forward()
        losses.append(one.loss())
        one.backward()
    one.update(0.1 / 20)
    whole = memoryview(b"".join(p for p, _ in batch)).cast("B", (20, 784))
    close(many.train_step(whole, [label for _, label in batch], lr=0.1), np.mean(losses))
    close(np.asarray(many.flat_parameters), np.asarray(one.flat_parameters))


def test_row_28_nan_is_not_hidden(compiled: Modules) -> None:
    """Where the fork asserts that nothing is nan, mlaot lets it through to the loss."""
    model = compiled("xor").Model()
    model.parameters["layers.1.neurons.0.b"][()] = float("nan")
    assert np.isnan(model.train_step(*XOR, lr=0.1))
    model.parameters["layers.1.neurons.0.b"][()] = float("inf")
    assert not np.isfinite(model.loss(*XOR))


def test_row_30_module(compiled: Modules, site: Path) -> None:
    """The functions of the first post's module; quick calls (METH_FASTCALL); no state of the process."""
    nn = compiled("mnist")
    for name in ("forward", "zero_grad", "backward", "update", "data", "grad", "set_input", "loss", "train_step"):
        assert callable(getattr(nn, name)), name
        assert callable(getattr(nn.Model(), name)), name
    source = (site.with_name("site-c") / "mnist.nn" / "nn.c").read_text()
    assert "PyInit_nn" in source and "METH_FASTCALL" in source and "METH_NOARGS" in source
    assert load(site / "mnist" / "nn.abi3.so") is not nn


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda m: m.train_step(bytes(784)), TypeError),
        (lambda m: m.train_step(bytes(784), 3, 0.1, 5), TypeError),
        (lambda m: m.train_step(bytes(784), "3"), TypeError),
        (lambda m: m.train_step(bytes(784), 3.0), TypeError),
        (lambda m: m.train_step(bytes(784), None), TypeError),
        (lambda m: m.train_step("0" * 784, 3), TypeError),
        (lambda m: m.train_step(None, 3), TypeError),
        (lambda m: m.train_step(bytes(783), 3), ValueError),
        (lambda m: m.train_step(bytes(785), 3), ValueError),
        (lambda m: m.train_step(b"", 3), ValueError),
        (lambda m: m.set_input(bytes(784)), TypeError),
        (lambda m: m.set_input(bytes(783), 3), ValueError),
        (lambda m: m.update(0, 0), TypeError),
        (lambda m: m.update(-1, 20), TypeError),
        (lambda m: m.zero_grad(1), TypeError),
        (lambda m: m.backward(1), TypeError),
        (lambda m: m.data(), TypeError),
        (lambda m: m.data("0"), TypeError),
        (lambda m: m.data(-1), IndexError),
        (lambda m: m.data(39_760), IndexError),
        (lambda m: m.grad(-1), IndexError),
        (lambda m: m.grad(10_000_000), IndexError),
        *[
            (lambda m, label=label, name=name: getattr(m, name)(bytes(784), label), ValueError)
            for label in (-1, 10, 10_000_000, -(2**63), 2**63 - 1)
            for name in ("train_step", "loss", "set_input")
        ],
        (lambda m: m.train_step(memoryview(bytes(1568)).cast("B", (2, 784)), [3, 10]), ValueError),
    ],
)
def test_row_31_arguments_are_checked(compiled: Modules, call: Callable[[Any], Any], error: type[Exception]) -> None:
    """Wrong calls, labels out of range among them (fault 1), are errors and change nothing."""
    model = compiled("mnist").Model()
    model.set_input(bytes(range(256)) * 3 + bytes(16), 7)
    model.forward()
    before = bytes(model.flat_parameters), bytes(model.flat_gradients), model.loss()
    with pytest.raises(error):
        call(model)
    assert (bytes(model.flat_parameters), bytes(model.flat_gradients), model.loss()) == before


def test_row_32_softmax_and_loss_compiled(compiled: Modules) -> None:
    """The stable softmax and its loss: outputs of 1000 do not overflow, a lost image costs 9.2103403720."""
    model = compiled("mnist").Model()
    np.asarray(model.parameters["layers.1.neurons.b"])[...] = [1000.0 * (i == 4) for i in range(10)]
    assert [f"{model.loss(bytes(784), label):.10f}" for label in (0, 9)] == ["9.2103403720"] * 2
    assert model.loss(bytes(784), 4) == pytest.approx(-np.log(1.0001), rel=1e-12)


def write_idx(folder: Path, part: str, some: list[tuple[bytes, int]]) -> tuple[Path, Path]:
    """A pair of idx files."""
    paths = folder / f"{part}-images-idx3-ubyte", folder / f"{part}-labels-idx1-ubyte"
    paths[0].write_bytes(struct.pack(">4L", 0x803, len(some), 28, 28) + b"".join(pixels for pixels, _ in some))
    paths[1].write_bytes(struct.pack(">2L", 0x801, len(some)) + bytes(label for _, label in some))
    return paths


def test_row_33_images_feed_the_module(compiled: Modules, tmp_path: Path) -> None:
    """What ``images`` yields goes into the compiled module as it is."""
    some, nn = pictures(3), compiled("mnist")
    reader = images(*write_idx(tmp_path, "train", some))
    losses = [nn.loss(image.pixels, image.label) for image in reader]
    assert reader.num_left() == 0
    close(nn.loss(memoryview(b"".join(p for p, _ in some)).cast("B", (3, 784)), [y for _, y in some]), np.mean(losses))


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="needs x86-64")
def test_row_34_multiply_and_add_are_one_instruction(site: Path, compiled: Modules) -> None:
    """The fork counts the chances of a fused multiply-add; in the machine code they are taken."""
    compiled("xor")
    folder = site.with_name("site-c") / "xor.nn"
    flags = ["-std=gnu11", "-O2", "-ffp-contract=fast", *FLAGS["v4"].flags, "-w", "-S", "-o", "-"]
    assembly = subprocess.run([*find_compiler(), *flags, folder / "nn_v4.c"], stdout=subprocess.PIPE, check=True).stdout
    assert assembly.count(b"vfmadd") > 10


def test_row_35_48_training_script(compiled: Modules, site: Path, tmp_path: Path) -> None:
    """The post's loop by examples/mnist/train.py: start, losses every 500 batches and per epoch, images per second.

    10,007 images: the last batch has 7, where the fork's program fills up with None (fault 8). Epochs are an argument.
    """
    nn, some = compiled("mnist"), pictures(10_007)
    write_idx(tmp_path, "train", some)
    write_idx(tmp_path, "t10k", some[:1000])
    script = projects.EXAMPLES / "mnist" / "train.py"
    options = ("--epochs", "2", "--picture", tmp_path / "learning.svg")
    printed = projects.run(script, "--data", tmp_path, *options, site=site, alone=True)
    assert (tmp_path / "learning.svg").read_text().count("<polyline") == 2
    random.seed(1337)
    for _ in range(39_700):
        random.uniform(-1, 1)
    order = list(range(len(some)))
    random.shuffle(order)
    first = ", ".join(f"{nn.loss(*some[i]):.10f}" for i in order[:3])
    assert f"untrained: loss of the first images {first}; test accuracy 0." in printed
    total = 0.0
    for i in range(0, len(order), 20):
        batch = [some[j] for j in order[i : i + 20]]
        pixels = memoryview(b"".join(p for p, _ in batch)).cast("B", (len(batch), 784))
        total += nn.train_step(pixels, array("q", [label for _, label in batch]), lr=0.1) * len(batch)
        if i == 9980:
            assert f"10,000 images   mean loss {total / 10_000:.6f}\n" in printed
    guesses = np.asarray(nn.forward(np.frombuffer(b"".join(p for p, _ in some[:1000]), np.uint8).reshape(-1, 784)))
    accuracy = np.mean(guesses.argmax(1) == [label for _, label in some[:1000]])
    assert f"epoch 1: mean loss {total / len(some):.6f}, test accuracy {accuracy:.4f}\n" in printed
    assert len(re.findall(r"^  10,007 images in [\d.]+ s: [\d,]+ images per second$", printed, re.MULTILINE)) == 2
    assert "epoch 2: mean loss" in printed


def test_row_36_an_existing_module_is_just_imported(compiled: Modules, site: Path) -> None:
    """No mlaot, no NumPy, no compiler, no distutils: what was compiled once is used as it is."""
    compiled("xor")
    program = """if True:
        import sys
        from xor import nn
        inputs, targets = [[0, 0], [0, 1], [1, 0], [1, 1]], [0, 1, 1, 0]
        print(*[f"{nn.train_step(inputs, targets, lr=0.1):.4f}" for _ in range(5)])
        assert not {"mlaot", "numpy", "distutils", "setuptools", "subprocess"} & set(sys.modules)
    """
    printed = projects.run("-c", program, cwd=site, site=site, alone=True, environ={"PATH": ""})
    assert printed.split() == ["0.2883", "0.1812", "0.1592", "0.1453", "0.1390"]


def test_row_37_one_compiler_command(tmp_path: Path) -> None:
    """The emitted C goes through the fork's own command, and its loader takes the result."""
    a, x = Value(2.5), Value(1.0)
    write(
        program_files(compile_model(declare(a * x, inputs={"x": x}, parameters=[a]), "t.nn", Options(isas=("base",)))),
        tmp_path,
    )
    sources = [path.name for path in tmp_path.glob("*.c")]
    command = [*find_compiler(), "-O1", "-DNDEBUG", "-g", "-shared", "-fPIC", *sources, "-o", "nn.so"]
    subprocess.run(command, cwd=tmp_path, check=True)
    spec = importlib.machinery.ModuleSpec("nn", None, origin=str(tmp_path / "nn.so"))
    nn: Any = _imp.create_dynamic(spec)
    _imp.exec_dynamic(nn)
    assert nn.forward([1.0, -2.0]).tolist() == [2.5, -5.0]


def test_row_12_37_compile_loads_the_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """``compile``: a module of a graph, in this process; by the fork's labels of leaves, or named as for ``declare``.

    Of equal values the representative is compiled.
    """
    monkeypatch.setattr(cmake, "INTERFACE_FLAGS", ("-O0",))
    a, b = Value(-4.0), Value(2.0)
    g = FIGURES["readme"](a, b)
    nn = compile(g, parameters={"a": a, "b": b}, loss=g)
    loss = nn.forward()
    nn.backward()
    figures = [loss.item(), nn.gradients["a"].item(), nn.gradients["b"].item()]
    assert [round(x, 4) for x in figures] == [24.7041, 138.8338, 645.5773]
    x, w = ([Value(0.5 + i, (), label) for i in range(3)] for label in ("input", "weight"))
    out = sum((wi * xi for wi, xi in zip(w, x, strict=True)), Value(1.0, (), "bias"))
    assert optimize(out) is not out
    nn = compile(out, loss=out)
    close(nn.forward([v.data for v in x]), out.data)
    assert nn.parameters["p"].tolist() == [0.5, 1.5, 2.5, 1.0]


def test_row_38_report_at_an_interrupt(compiled: Modules) -> None:
    """Ctrl-C between two steps leaves a whole model: losses so far, and the share of weights below 0.1."""
    model, losses = compiled("xor").Model(), []
    try:
        while True:
            losses.append(model.train_step(*XOR, lr=0.1))
            if len(losses) == 100:
                raise KeyboardInterrupt
    except KeyboardInterrupt:
        weights = np.concatenate([np.ravel(array) for array in model.parameters.values()])
    dead = sum(abs(model.data(i)) < 0.1 for i in range(17))
    assert (np.abs(weights) < 0.1).sum() == dead < weights.size == 17
    assert len(losses) == 100 and losses[-1] < losses[0]


def test_row_38_picture_at_an_interrupt(compiled: Modules, site: Path, tmp_path: Path) -> None:
    """examples/mnist/train.py ends at Ctrl-C with the share of dead weights and the curve of the loss."""
    compiled("mnist")
    some = pictures(4000)
    write_idx(tmp_path, "train", some)
    write_idx(tmp_path, "t10k", some[:100])
    program = """if True:
        import runpy, sys
        from mnist import nn
        fit, calls = nn.fit, []
        def interrupted(*args, **options):
            calls.append(1)
            if len(calls) == 3:
                raise KeyboardInterrupt
            return fit(*args, **options)
        nn.fit = interrupted
        sys.argv = sys.argv[1:]
        runpy.run_path(sys.argv[0], run_name="__main__")
    """
    script = projects.EXAMPLES / "mnist" / "train.py"
    arguments = (script, "--data", tmp_path, "--picture", tmp_path / "learning.svg")
    printed = projects.run("-c", program, *arguments, site=site, alone=True)
    assert re.search(r"^ended in epoch 1: test accuracy 0\.\d{4}\ndead weights: \d+\.\d% are", printed, re.MULTILINE)
    picture = (tmp_path / "learning.svg").read_text()
    assert picture.startswith("<svg") and len(re.findall(r'points="([^"]*)"', picture)[0].split()) == 2


def test_row_39_xor_compiled(compiled: Modules) -> None:
    """xor.py, five epochs of its own loop: 0.2883 to 0.1390; and on, until all four answers are right."""
    nn, net = compiled("xor"), xor_values()
    losses = []
    for _ in range(5):
        nn.zero_grad()
        losses.append(0.0)
        for x, y in zip(*XOR, strict=True):
            nn.set_input(x, y)
            nn.forward()
            losses[-1] += nn.loss() / 4
            nn.backward()
        nn.update(lr=0.1 / 4)
    close(losses, [xor_epoch(net) for _ in range(5)], 1e-14)
    assert [f"{losses[0]:.4f}", f"{losses[-1]:.4f}"] == ["0.2883", "0.1390"]
    for _ in range(1000):
        nn.train_step(*XOR, lr=0.1)
    assert np.abs(np.asarray(nn.forward(XOR[0])) - XOR[1]).max() < 0.1


def xor_values() -> MLP:
    """The network of xor.py as values."""
    random.seed(1337)
    return MLP(2, [4, 1])


def xor_epoch(net: MLP) -> float:
    """One epoch of xor.py, interpreted."""
    net.zero_grad()
    outs: list[Any] = [net(x) for x in XOR[0]]
    losses: list[Value] = [(out - y) ** 2 for out, y in zip(outs, XOR[1], strict=True)]
    for loss in losses:
        loss.backward()
    for p in net.parameters():
        p.data -= 0.1 * p.grad / 4
    return sum(loss.data for loss in losses) / 4


def test_row_40_generated_text() -> None:
    """``test_compile_value``, ``_add``, ``_mul``, ``_addmul_topo``, ``test_backward_compile_add``, ``_mul``."""

    def lines(y: Value, **inputs: Value) -> list[str]:
        text = kernels(declare(y, inputs=inputs))
        return re.findall(
            r"^        (.*(?:load_f64v|v\d+ = |\bstore_f64v).*)$",
            text[: text.index("const ptrdiff_t rest")],
            re.MULTILINE,
        )

    a, b, c, d = (Value(0.0) for _ in range(4))
    add = ["const f64v x0 = load_f64v(a + j);", "const f64v x1 = load_f64v(b + j);", "const f64v v0 = x0 + x1;"]
    assert lines(a + b, a=a, b=b) == [*add, "store_f64v(out + j, v0);"]
    assert lines(a * b, a=a, b=b) == [*add[:2], "const f64v v0 = x0 * x1;", "store_f64v(out + j, v0);"]
    addmul = lines(a * b + c * d, a=a, b=b, c=c, d=d)
    assert sorted(re.findall(r"load_f64v\((\w) \+ j\)", "\n".join(addmul))) == ["a", "b", "c", "d"]
    assert [re.sub(r"(?<=[vx])\d", "", line[11:]) for line in addmul if "= x" in line] == ["v = x * x;"] * 2
    rounded = [re.sub(r"\d", "", line) for line in addmul if "rounded" in line]
    assert rounded == ["const fv v = rounded_fv(v);"] * 2, "no fused multiply-add"
    assert addmul[-2:] == ["const f64v v4 = v1 + v3;", "store_f64v(out + j, v4);"]
    assert "123.0" in kernels(declare(a + Value(123), inputs={"a": a}))

    graph = Graph("f")
    p, q = graph.input("p", f64[()]), graph.input("q", f64[()])
    for op, expected in ((ew.add, [1.0, 1.0]), (ew.mul, [5.0, 3.0])):
        graph.outputs = dict(zip(("dp", "dq"), differentiate(op(p, q), [p, q]), strict=True))
        found = evaluate(graph, {"p": 3.0, "q": 5.0})
        assert [float(found[name]) for name in ("dp", "dq")] == expected


def test_row_41_compiling_is_quick_and_small() -> None:
    """The benchmark of the table runs; memory and size are far below the fork's 1 GB and 4.8 MB.

    The fork's 17 seconds and more went into a line of C for each of its scalars. Seconds differ between machines, so
    the benchmark prints them, and this test counts the lines: there are far fewer than scalars.
    """
    printed = projects.run(ROOT / "benchmarks" / "compiling.py", "float32", environ={"MLAOT_ISA": "v3"})
    found = re.search(
        r"peak memory (\d+) MB; module (\d+) KB.*?([\d,]+) parameters, ([\d,]+) lines", printed, re.DOTALL
    )
    assert found, printed
    megabytes, kilobytes, parameters, lines = (int(number.replace(",", "")) for number in found.groups())
    assert megabytes < 300 and kilobytes < 1000 and parameters == 39_760 and lines < 6_000


class DotNeuron(Neuron):
    """A neuron that is one ``Dot`` and one ``+``, as in the first post's second table."""

    def __call__(self, x: Any) -> Value:
        act = Dot(self.w, x) + self.b
        return act.relu() if self.nonlin else act


def test_row_41_dot_makes_no_difference() -> None:
    """With and without ``Dot`` the C is the same: the products are found either way."""

    def declared(neuron: type[Neuron]) -> Declaration:
        net, x = xor_values(), [Value(0.0), Value(0.0)]
        for layer in net.layers:
            for n in layer.neurons:
                n.__class__ = neuron
        return declare(net(x), inputs={"x": x}, parameters=net)

    assert kernels(declared(DotNeuron)) == kernels(declared(Neuron))


def test_row_42_zero_copy_input(compiled: Modules) -> None:
    """A contiguous buffer is read where it is: a strided view costs its size in memory, a buffer does not."""
    nn = compiled("served")
    numbers = array("d", [0.5, -0.25]) * 500_000
    x = memoryview(numbers).cast("B").cast("d", (500_000, 2))
    out = array("d", bytes(4_000_000))

    def peak(given: Any) -> int:
        model = nn.Model()
        tracemalloc.start()
        model.forward(given, out=out)
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return size

    assert peak(x[::-1]) - peak(x) > 0.99 * 8_000_000
    expected = nn.forward([0.5, -0.25]).item()
    assert out[0] == expected and out[-1] == expected
    numbers[0] = 3.0
    assert nn.forward(x, out=out) is out and out[0] == nn.forward([3.0, -0.25]).item() != expected


def test_row_42_training_and_inference_builds(compiled: Modules, site: Path) -> None:
    """Two modules of one network: one trains, the other has the weights inside and nothing that could change them."""
    moons, served = compiled("moons"), compiled("served")
    points = np.random.default_rng(42).normal(size=(9, 2))
    close(np.asarray(served.forward(points)), np.asarray(moons.forward(points)), 1e-14)
    for name in ("train_step", "update", "backward", "parameters", "load", "data"):
        assert hasattr(moons, name) and not hasattr(served, name)
    sizes = [(site / name / "nn.abi3.so").stat().st_size for name in ("moons", "served")]
    assert sizes[1] < sizes[0]
    inside = (site / "served" / "nn.abi3.so").read_bytes()
    assert all(struct.pack("d", p.data) in inside for p in moons_net().parameters())


def test_row_42_several_outputs_and_vectors(compiled: Modules, site: Path) -> None:
    """Outputs as a vector or by name; the dot products are vector code in all but names."""
    assert compiled("served_pair").forward([1.0, 2.0]).shape == (2,)
    outputs = compiled("tensors").forward(1.0)
    assert isinstance(outputs, dict) and list(outputs) == list(tensor_ops(TENSORS, 1.0))
    text = (site.with_name("site-c") / "tensors.nn" / "nn_v4.c").read_text()
    assert re.search(r"typedef double f64v __attribute__\(\(vector_size\(64\)\)\);", text)


def test_row_42_dots_in_parallel(compiled: Modules) -> None:
    """``set_threads``: the dots of a batch are shared among threads, and their sums are the same bits."""
    nn = compiled("mnist").Model()
    pixels = np.random.default_rng(0).integers(0, 256, (256, 784), np.uint8)
    alone, threads = np.asarray(nn.forward(pixels)), len(os.listdir("/proc/self/task"))
    assert nn.set_threads(2) == 2
    assert np.asarray(nn.forward(pixels)).tobytes() == alone.tobytes()
    assert len(os.listdir("/proc/self/task")) == threads + 1


# Other branches of the fork


def test_row_43_inplace_forward_compiled(compiled: Modules) -> None:
    """``test_inplace_forward``: 7, and 14 after an input and a parameter were set anew."""
    model, i = compiled("kinds").Model(), list(KINDS).index("in place")
    model.parameters["a"][()], model.parameters["b"][()] = 1.0, 2.0
    model.set_input(3.0, i)
    assert (model.forward()[i], model.loss()) == (7.0, 7.0)
    model.parameters["a"][()] = 8.0
    model.set_input(3.0, i)
    assert (model.forward()[i], model.loss()) == (14.0, 14.0)


def test_row_43_50_inplace_forward_mlp_compiled(compiled: Modules) -> None:
    """``test_inplace_forward_mlp`` and the comparison of the inference branch: inputs (3, 4) and (0, 1)."""
    net, nn = moons_net(), compiled("served")
    for point in ([3, 4], [0, 1]):
        expected = net([Value(v) for v in point])
        assert isinstance(expected, Value)
        close(nn.forward(point).item(), expected.data)


def test_row_46_continuous_integration_runs_the_tests(tmp_path: Path) -> None:
    """.ci/run runs the README's command for the tests, which ends in pytest; a stand-in takes the place of Python."""
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\n[ "$1" = -c ] || echo "python $*"\n')
    python.chmod(0o755)
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    done = subprocess.run(
        [ROOT / ".ci" / "run"], env=os.environ | {"PATH": path}, stdout=subprocess.PIPE, text=True, check=True
    )
    command = done.stdout.splitlines()[-1].split()
    assert command[0] == "python" and (ROOT / command[1]).is_file()
    assert '"pytest"' in (ROOT / command[1]).read_text()


def test_row_47_float_xor_compiled(compiled: Modules) -> None:
    """1000 epochs over an order that never runs out: every answer to 0.1, as the branch promises."""
    nn = compiled("xor")
    losses = [nn.train_step(*XOR, lr=0.1) for _ in range(1000)]
    assert all(np.diff(losses[50::50]) < 0)
    assert np.abs(np.asarray(nn.forward(XOR[0])) - XOR[1]).max() < 0.1


@pytest.mark.parametrize("batch", [1, 7, 20, 64])
def test_row_48_any_batch_size(compiled: Modules, batch: int) -> None:
    """Batch and number of images are whatever is passed; the loss is the mean over them."""
    nn, some = compiled("mnist").Model(), pictures(batch)
    x = memoryview(b"".join(p for p, _ in some)).cast("B", (batch, 784))
    close(nn.train_step(x, [y for _, y in some]), np.mean([compiled("mnist").loss(p, y) for p, y in some]))


TENSOR_OPS = list(tensor_ops(TENSORS, 1.0))


@pytest.mark.parametrize("name", TENSOR_OPS)
def test_row_49_tensor_ops(compiled: Modules, name: str) -> None:
    """Every op of the tensor engine on the numbers of its tests: values are NumPy's, gradients those of differences."""
    model, i = compiled("tensors").Model(), TENSOR_OPS.index(name)
    parameters = {key: value.copy() for key, value in TENSORS.items()}

    def total() -> float:
        return float(np.sum(tensor_ops(parameters, 1.0)[name]))

    close(np.asarray(model.forward(1.0)[name]), tensor_ops(TENSORS, 1.0)[name])
    model.set_input(1.0, i)
    model.forward()
    close(model.loss(), total())
    model.backward()
    for key, value in parameters.items():
        gradient = np.zeros_like(value)
        for at in np.ndindex(value.shape):
            kept = float(value[at])
            h = 1e-5 * max(1.0, abs(kept))
            value[at] = kept + h
            up = total()
            value[at] = kept - h
            gradient[at] = (up - total()) / (2 * h)
            value[at] = kept
        close(np.asarray(model.gradients[key]), gradient, 1e-7)


def test_row_49_figures_of_its_tests(compiled: Modules) -> None:
    """The numbers that ``test_vnn.py`` writes out."""
    model = compiled("tensors").Model()
    outputs = model.forward(1.0)
    assert outputs["add"].tolist() == [[8, 10, 12], [14, 16, 18]]
    assert outputs["sub"].tolist() == [[-6, -6, -6], [-6, -6, -6]]
    assert outputs["truediv"].tolist() == [[1 / 4, 1 / 3, 1 / 3], [1 / 2, 1 / 3, 1 / 2]]
    assert outputs["power"].tolist() == [[1, 8, 27], [64, 125, 216]]
    assert outputs["matmul"].tolist() == [[50], [122]]
    assert outputs["total"].item() == 21

    def gradients(name: str) -> Any:
        model.zero_grad()
        model.set_input(1.0, TENSOR_OPS.index(name))
        model.forward()
        model.backward()
        return {key: value.tolist() for key, value in model.gradients.items()}

    ones = [[1, 1, 1], [1, 1, 1]]
    assert (gradients("add")["x"], gradients("add")["y"]) == (ones, ones)
    assert gradients("sub")["x"] == ones and gradients("total")["x"] == ones
    close(gradients("truediv")["u"], [[1 / 8, 1 / 9, 1 / 12], [1 / 10, 1 / 18, 1 / 14]])
    close(gradients("power")["x"], [[3, 12, 27], [48, 75, 108]])
    assert gradients("matmul")["x"] == [[7, 8, 9], [7, 8, 9]] and gradients("matmul")["column"] == [[5], [7], [9]]
    close(gradients("log")["x"], [[1, 1 / 2, 1 / 3], [1 / 4, 1 / 5, 1 / 6]])
    assert gradients("largest")["mixed"] == [[0, 0, 1], [0, 0, 0]]
    assert gradients("relu")["mixed"] == [[0, 1, 1], [1, 0, 0]]


def test_row_50_inference_per_model(compiled: Modules, tmp_path: Path) -> None:
    """A list in; a float out of one output, a tuple out of several; compiled anew with new weights each round."""
    net = moons_net()
    answer = compiled("served").forward([0.5, 1.5])
    assert type(answer.tolist()) is float and float(answer) == answer.item()
    pair = tuple(compiled("served_pair").forward([0.5, 1.5]))
    random.seed(1337)
    expected = MLP(2, [4, 2])([0.5, 1.5])
    assert isinstance(expected, list)
    close(pair, [value.data for value in expected])
    assert all(type(number) is float for number in pair)
    for wrong, error in (([0.5], ValueError), ([0.5, 1.5, 2.5], ValueError), (0.5, TypeError), (["a", "b"], TypeError)):
        with pytest.raises(error):
            compiled("served").forward(wrong)
    net.layers[2].neurons[0].b.data += 10
    again = load(build(net, "round2", tmp_path / "site", ("base",)))
    close(again.forward([0.5, 1.5]).item(), answer.item() + 10)


# The fork's B2 vectorizer, on mlaot's graphs


def variables(n: int, graph: Graph | None = None) -> tuple[Graph, list[Node]]:
    """A graph with scalar inputs."""
    graph = graph or Graph("f")
    return graph, [graph.input(f"x{i}", f64[()]) for i in range(n)]


def test_row_51_arguments_are_ordered() -> None:
    """A node's arguments are a tuple in order, with duplicates; nodes are numbered in print."""
    graph, (x, y) = variables(2)
    assert ew.sub(y, x).args == (y, x) and ew.mul(x, x).args == (x, x)
    assert x.forwarded is None
    graph.outputs["r"] = ew.mul(x, x)
    assert "  v1 = mul(v0, v0) : f64[]" in str(graph)


def test_row_52_union_find() -> None:
    """``test_const``, ``test_op``, ``test_chain`` ; ``arg(i)`` gives the representative."""
    graph = graph_of(Value(0.0))
    assert graph.constant(123.0, f64) is graph.constant(123.0, f64)
    one, two = graph.constant(1.0, f64), graph.constant(2.0, f64)
    with pytest.raises(AssertionError, match="constant"):
        graph.forward(one, two)
    assert one.find() is not two.find()
    graph, (a, b, c) = variables(3)
    x, y, z = ew.exp(a), ew.exp(b), ew.exp(c)
    user = ew.neg(x)
    assert len({x.find(), y.find(), z.find()}) == 3
    graph.forward(x, y)
    assert x.find() is y.find() and user.arg(0) is y and user.args == (x,)
    graph.forward(y, z)
    assert x.find() is y.find() is z.find() is user.arg(0)


def test_row_53_order_over_representatives() -> None:
    """A forwarded node and what only it needs are gone from the order."""
    graph, (a, b, c) = variables(3)
    old, new = ew.mul(ew.exp(a), b), ew.tanh(c)
    graph.outputs["r"] = top = ew.neg(old)
    assert len(graph.nodes()) == 5
    graph.forward(old, new)
    assert graph.nodes() == [c, new, top]


def test_row_54_sums_of_many_arguments() -> None:
    """``test_sum``: nested sums become one; a sum of one argument is the argument; to a fixed point."""
    v = {f"x{i}": Value(0, (), "var") for i in range(5)}
    total: Any = sum(v.values())
    graph = graph_of(total, v)
    assert ops(graph)["add"] == 5
    flatten_sums(graph)
    assert ops(graph)["add"] == 1
    assert set(graph.outputs["out"].find().args) == set(graph.inputs.values())
    graph, (one,) = variables(1)
    graph.outputs["r"] = ew.add(ew.add(one))
    simplify(graph)
    assert graph.outputs["r"].find() is one
    a, b, c, d = v["x0"], v["x1"], v["x2"], v["x3"]
    graph = graph_of(((a + b) + (c + d)).exp(), v)
    flatten_sums(graph)
    assert ops(graph)["add"] == 1


def test_row_55_one_array_for_the_same_nodes() -> None:
    """``hashcons_array``: the same tuple of nodes is the same array."""
    _, (a, b) = variables(2)
    assert st.stack(a, b) is st.stack(a, b) and st.stack(a, b) is not st.stack(b, a)


def dots() -> tuple[Value, dict[str, Value]]:
    """A sum of three products and a term."""
    v = {f"x{i}": Value(float(i + 1)) for i in range(7)}
    x = list(v.values())
    return x[0] * x[1] + x[2] * x[3] + x[4] * x[5] + x[6], v


def test_row_56_dot_of_two_arrays() -> None:
    """Made from ``+`` of ``*``, other terms stay; value, gradient and text are right (fault 5)."""
    root, v = dots()
    root.backward()
    numbers, gradients = ({name: getattr(x, field) for name, x in v.items()} for field in ("data", "grad"))
    for x in v.values():
        x.grad = 0
    total = optimize(root)
    assert count(total) == {"": 7, "array": 2, "dot": 1, "+": 1}
    assert total.data == root.data == 1 * 2 + 3 * 4 + 5 * 6 + 7 and repr(total.arg(0)) == "Value(data=44.0, grad=0)"
    root.backward()
    assert {name: x.grad for name, x in v.items()} == gradients
    graph = graph_of(total, v)  # what is compiled of it
    assert evaluate(graph, numbers)["out"] == total.data
    inputs = [graph.inputs[name] for name in v]
    graph.outputs = dict(zip(v, differentiate(graph.outputs["out"].find(), inputs), strict=True))
    assert evaluate(graph, numbers) == gradients


def test_row_57_optimize_and_its_counts(tmp_path: Path) -> None:
    """``mlaot passes``: the whole optimizer, and what each pass left."""
    printed = projects.run("-m", "mlaot", "passes", projects.EXAMPLES / "xor", cwd=tmp_path)
    assert re.search(r"^  declared +values +\d+ nodes: leaf 21, \* 13, \+ 13, ReLU 4, \*\*2 1$", printed, re.MULTILINE)
    assert re.search(r"^  raise_tensors +model .*contract|^  contract +model .*contract 2", printed, re.MULTILINE)
    values, model = xor_values(), [Value(0.0), Value(0.0)]
    lines = report(declare(values(model), inputs={"x": model}, parameters=values), "t.nn")
    sizes = [int(line.split()[2]) for line in lines]
    assert sizes[-1] < sizes[0] / 3


def test_row_23_58_dump(tmp_path: Path) -> None:
    """``MLAOT_DUMP`` prints the graph after a pass, a line for each node."""
    arguments = ("-m", "mlaot", "passes", projects.EXAMPLES / "xor")
    printed = projects.run(*arguments, cwd=tmp_path, environ={"MLAOT_DUMP": "flatten_sums"})
    dump = printed[printed.index("# after flatten_sums") :]
    assert dump.splitlines()[1] == "graph model:"
    assert re.search(r"^  v\d+ = add\(v\d+, v\d+, v\d+\) : f64\[\]$", dump, re.MULTILINE)
    assert re.search(r"^  v\d+ = mul\(v\d+, v\d+\) : f64\[\]$", dump, re.MULTILINE)


def folded(root: Value, inputs: dict[str, Value] | None = None) -> Node:
    """The output of a graph after folding and simplification."""
    graph = graph_of(root, inputs)
    simplify(graph)
    fold_constants(graph)
    flatten_sums(graph)
    return graph.outputs["out"].find()


@pytest.mark.parametrize(
    ("root", "number"),
    [
        (lambda: Value(1) + 2, 3),
        (lambda: (Value(1) + 2) + (Value(3) + 4), 10),
        (lambda: Value(2) * 3, 6),
        (lambda: (Value(1) * 2) * (Value(3) * 4), 24),
        (lambda: Value(1) + 0, 1),
        (lambda: Value(1) * 0, 0),
        (lambda: Value(2) * 1, 2),
    ],
)
def test_row_59_constants_are_folded(root: Callable[[], Value], number: float) -> None:
    """``test_const_fold_plus`` to ``test_fold_mul_one`` of the vectorizer's tests."""
    value = root()
    assert value._op in ("+", "*")
    found = folded(value)
    assert found.op is st.const and found.attrs["value"].array == number


def test_row_59_identities_that_hold_for_every_number() -> None:
    """``x*1`` is x. ``x+0`` falls away where sums are reordered anyway. ``x*0`` stays: it is not 0 for inf and nan."""
    x, y = Value(1.0), Value(1.0)
    v = {"x": x, "y": y}
    assert folded(x * 1, v).op is st.input_
    assert [a.attrs["name"] for a in graph_inputs(folded(x + 0 + y, v))] == ["x", "y"]
    assert folded(x * 0, v).op is ew.mul
    graph = Graph("f")
    z = graph.input("z", f64[3])
    graph.outputs["r"] = ew.add(z, st.broadcast(graph.constant(0.0, f64), shape=(3,), axes=()))
    simplify(graph)
    assert graph.outputs["r"].find().op is ew.add  # -0 + 0 is 0


def graph_inputs(node: Node) -> list[Node]:
    """Arguments of a node."""
    return [a.find() for a in node.args]


def test_row_59_dot_from_products() -> None:
    """``test_dot``: ``sum`` of six products is one dot of the variables; the pipeline finds it too."""
    left, right = ([Value(0, (), "var") for _ in range(6)] for _ in range(2))
    total: Any = sum(li * ri for li, ri in zip(left, right, strict=True))
    traced = declare(total, inputs={"r": right}, parameters=left, loss=total).trace()
    assert ops(passes.run("t.nn", traced).graphs["forward"]) == {"input": 2, "contract": 1}
    (dot,) = (arg for arg in optimize(total).args() if arg._op == "dot")
    assert isinstance(dot, Dot) and (dot.left_arr, dot.right_arr) == (tuple(left), tuple(right))


def second_post() -> tuple[MLP, list[Value], list[Value]]:
    """The network, inputs and outputs of the second post."""
    random.seed(1337)
    net, x = MLP(784, [50, 10]), [Value(0, (), "input") for _ in range(784)]
    outputs = net(x)
    assert isinstance(outputs, list)
    return net, x, outputs


def test_row_60_numbers_of_the_second_post() -> None:
    """120,005 nodes with 39,710 sums; then 51 sums, 51 dots, 53 arrays. Ten outputs: 119,995, then 60, 60, 63.

    In the compiler, the 39,760 weights and 784 inputs are items of two arrays, which are nodes as well.
    """
    net, x, outputs = second_post()
    summed: Any = sum(outputs)
    assert count(summed) == {"": 39_761, "+": 39_710, "*": 39_700, "input": 784, "ReLU": 50}
    graph = declare(summed, inputs={"x": x}, parameters=net).trace().graph
    assert ops(graph) == {"item": 39_760 + 784, "add": 39_710, "mul": 39_700, "relu": 50, "const": 1, "input": 2}
    assert ops(graph).total() == count(summed).total() + 2 == 120_005 + 2
    number = summed.data
    optimize(summed)
    assert count(summed) == {"": 39_761, "input": 784, "array": 53, "dot": 51, "+": 51, "ReLU": 50}
    assert count(summed).total() == 40_750
    close(summed.find().data, number)

    loss = Array(second_post()[2])
    assert count(loss).total() == 119_995
    after = count(optimize(loss))
    assert after == {"": 39_760, "input": 784, "array": 63, "dot": 60, "+": 60, "ReLU": 50}
    assert after.total() == 40_777


def test_row_61_moons_in_place(compiled: Modules) -> None:
    """One graph kept in place over the points, and the compiled module, full batches: the same losses and weights."""
    nn, net = compiled("moons").Model(), moons_net()
    rng = np.random.default_rng(61)
    points, sides = rng.normal(size=(12, 2)), rng.choice([-1.0, 1.0], 12)
    x, y = [Value(0.0), Value(0.0)], Value(0.0)
    score: Any = net(x)
    loss: Value = (1 + -y * score).relu()
    order = loss.topo()
    inner, reverse = [node for node in order if node._prev], order[::-1]
    for k in range(3):
        net.zero_grad()
        total = 0.0
        for point, side in zip(points, sides, strict=True):
            x[0].data, x[1].data, y.data = float(point[0]), float(point[1]), float(side)
            for node in inner:
                node._forward()
                node.grad = 0
            loss.backward(reverse)
            total += loss.data
        lr = 1.0 - 0.9 * k / 100
        for p in net.parameters():
            p.data -= lr * p.grad / len(points)
        close(nn.train_step(points, sides, lr=lr), total / len(points))
        close([nn.data(i) for i in range(337)], [p.data for p in net.parameters()])


def test_row_62_products_become_matrix_products() -> None:
    """Dots of one input are one matrix product, over the batch too; the values stay as they are."""
    net, x = MLP(30, [12, 10]), [Value(0.0) for _ in range(30)]
    outputs = net(x)
    before = [(v.data, v.grad, v._prev, v._op) for v in net.parameters()]
    declared = declare(outputs, inputs={"x": x}, parameters=net)
    module = passes.run("t.nn", declared.trace())
    found = {str(node.type) for node in module.graphs["forward"].nodes() if node.op is red.contract}
    assert found == {"f64[batch,12]", "f64[batch,10]"}
    assert len(module.graphs["forward"].nodes()) < 15
    assert [(v.data, v.grad, v._prev, v._op) for v in net.parameters()] == before
    assert not hasattr(net.layers[0].neurons[0].w[0], "forwarded")


def test_row_62_backward_is_derived() -> None:
    """The gradient of a dot comes from the rules of its parts: two more products, no code of its own."""
    graph = Graph("f")
    a, b = graph.input("a", f64[4, 3]), graph.input("b", f64[3])
    root = red.sum_(red.contract(a, b, spec="yz,z->y"), axes=(0,))
    graph.outputs = dict(zip("ab", differentiate(root, [a, b]), strict=True))
    assert {node.op.name for node in graph.nodes()} <= {"input", "const", "broadcast", "contract", "mul", "sum"}
    left, right = np.arange(12.0).reshape(4, 3), np.array([1.0, -2.0, 0.5])
    found = evaluate(graph, {"a": left, "b": right})
    close(found["a"], np.tile(right, (4, 1)))
    close(found["b"], left.sum(0))


# Faults of the seeds


def test_fault_1_a_wild_label_kills_nobody(compiled: Modules, site: Path) -> None:
    """Label 10,000,000 ends the fork's process, -1 and 10 write outside of the label; here each is a ValueError."""
    compiled("mnist")
    program = """if True:
        from mnist import nn
        for label in (-1, 10, 10_000_000):
            for call in (nn.train_step, nn.loss, nn.set_input):
                try:
                    call(bytes(784), label)
                except ValueError as error:
                    print(error)
    """
    printed = projects.run("-c", program, site=site, alone=True).splitlines()
    assert len(printed) == 9 and all("label" in line for line in printed)


def test_fault_2_dot_and_max_train_as_products_do(compiled: Modules) -> None:
    """With ``Dot`` neurons the interpreted network gets the compiled one's gradients."""
    random.seed(1337)
    net = MLP(2, [16, 16, 1])
    for layer in net.layers:
        for neuron in layer.neurons:
            neuron.__class__ = DotNeuron
    out: Any = net([0.3, -0.7])
    (1 + -1.0 * out).relu().backward()
    model = compiled("moons").Model()
    model.set_input([0.3, -0.7], 1.0)
    model.forward()
    model.backward()
    gradients = [p.grad for p in net.parameters()]
    assert sum(map(abs, gradients)) > 1
    close([model.grad(i) for i in range(337)], gradients)


def test_fault_4_half_a_power_compiles(compiled: Modules) -> None:
    """``x**0.5`` is a square root, compiled too."""
    model, i = compiled("kinds").Model(), list(KINDS).index("**0.5")
    assert model.forward(4.0)[i] == pytest.approx((START[0] * 4.0) ** 0.5, rel=1e-15)


def test_fault_5_the_optimized_graph_is_what_is_compiled(tmp_path: Path) -> None:
    """There is code for the vectorized graph, with the right numbers: compiled and run."""
    root, v = dots()
    x = list(v.values())
    nn = load(build(declare(root, inputs={"x": x}), "dots", tmp_path / "site", ("base",)))
    assert nn.forward([value.data for value in x]).item() == root.data == 51.0


def test_fault_7_order_is_arguments_first_every_time() -> None:
    """``topo()`` twice gives the same list, users last."""
    out: Any = Layer(3, 1)([1.0, 2.0, 3.0])
    order = out.topo()
    assert order == out.topo() and order[-1] is out
    places = {node: i for i, node in enumerate(order)}
    assert all(places[arg] < places[node] for node in order for arg in node._prev)


def test_fault_8_driver(compiled: Modules, tmp_path: Path) -> None:
    """No distutils, any number of models in a process, weights saved and loaded, ``lr`` an argument."""
    nn = compiled("xor")
    one, two = nn.Model(), nn.Model()
    one.train_step(*XOR, lr=0.1)
    two.train_step(*XOR, lr=0.2)
    start = np.array([nn.data(i) for i in range(17)])
    steps = [np.array([m.data(i) for i in range(17)]) - start for m in (one, two)]
    close(2 * steps[0], steps[1])
    assert np.abs(steps[0]).max() > 0
    one.save(tmp_path / "weights.safetensors")
    two.load(tmp_path / "weights.safetensors")
    assert two.forward(XOR[0]).tolist() == one.forward(XOR[0]).tolist() != nn.forward(XOR[0]).tolist()
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "mlaot").rglob("*.py"))
    assert not re.search(r"^\s*(import|from) distutils", sources, re.MULTILINE)


# The page itself


def test_every_row_names_a_test() -> None:
    """Rows 1 to 82 of docs/seeds.md are there, each with a state and with tests that exist and carry its number."""
    defined = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    rows: dict[int, tuple[str, str]] = {}
    for line in (ROOT / "docs" / "seeds.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.replace(r"\|", "/").strip("|").split(" | ")]
        if line.startswith("| ") and cells[0].isdigit():
            assert len(cells) == 4 or int(cells[0]) > 82, line
            rows[int(cells[0])] = cells[2], cells[-1]
    assert list(rows) == list(range(1, 91))
    for row, (state, tests) in rows.items():
        if row > 82:
            assert state == "not yet"
            continue
        assert state.startswith(("works", "part: ")), f"row {row}: {state}"
        names = re.findall(r"`(test_\w+)`", tests)
        assert names, f"row {row} names no test"
        assert set(names) <= defined, f"row {row}: no test {sorted(set(names) - defined)}"
        assert any(str(row) in name.split("_") for name in names), f"row {row}: {names}"
