"""Mistakes of users, with the real compiler: each ends in one line, the last, with their file and line where it can."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .conftest import PROJECTS, Project, Python, copy_project, last_words

PYPROJECT = """\
[build-system]
requires = ["mlaot"]
build-backend = "mlaot.build"

[project]
name = "wrong"
version = "1.0"

[tool.mlaot.models.nn]
model = "model:net"
"""
MODEL_KEY = "key 'model' in [tool.mlaot.models.nn] of pyproject.toml"

SETTINGS = {
    "unknown key": (
        PYPROJECT + 'zzz = "w.safetensors"\n',
        "unknown key 'zzz' in [tool.mlaot.models.nn] of pyproject.toml;"
        " the keys are model, module, llm, tokenizer, slides, onnx, sklearn, torch, sample, license, license-files,"
        " model-card, c_library, deterministic, winograd, fast_division, frozen, intermediates, profile, weights,"
        " weights_dtype, quantize, unchecked, budget, dims, lora",
    ),
    "slip": (
        PYPROJECT.replace("\nmodel =", "\nmodell ="),
        "unknown key 'modell' in [tool.mlaot.models.nn] of pyproject.toml; did you mean 'model'?",
    ),
    "wrong type": (
        PYPROJECT.replace('"model:net"', "3"),
        f"{MODEL_KEY} must be 'module:attribute', such as 'model:digits'; got 3",
    ),
    "no attribute named": (
        PYPROJECT.replace("model:net", "model"),
        f"{MODEL_KEY} must be 'module:attribute', such as 'model:digits'; got 'model'",
    ),
    "missing module": (
        PYPROJECT.replace("model:net", "modle:net"),
        f"no module 'modle' in folder '.'; {MODEL_KEY} is 'modle:net'; did you mean 'model'?",
    ),
    "missing attribute": (
        PYPROJECT.replace("model:net", "model:nets"),
        f"'model' has no attribute 'nets'; {MODEL_KEY} is 'model:nets'; did you mean 'net'?",
    ),
    "unknown instruction set": (
        PYPROJECT + '[tool.mlaot]\nisa = ["base", "v5"]\n',
        "key 'isa' in [tool.mlaot] of pyproject.toml must be a list out of 'base', 'v3', 'v4' with 'base' in it; "
        "got ['base', 'v5']",
    ),
    "two in one place": (
        PYPROJECT + '[tool.mlaot.models.other]\nmodel = "model:net"\nmodule = "wrong.nn"\n',
        "[tool.mlaot.models.nn] and [tool.mlaot.models.other] of pyproject.toml both make the module 'wrong.nn'",
    ),
    "no table": (
        PYPROJECT.partition("[tool")[0],
        "no [tool.mlaot] in pyproject.toml; expected a table [tool.mlaot.models.<name>] with a key 'model'",
    ),
}

TENSORS = """\
import numpy as np
import mlaot
w = mlaot.parameters({"w": np.zeros((8, 5), np.float32), "b": np.zeros(5, np.float32)})
"""
SCALARS = """\
from mlaot.micrograd import MLP, Bytes, Label, Value, cross_entropy, declare
mlp, x, y = MLP(2, [3]), [Value(0.0), Value(0.0)], [Value(0.0), Value(0.0), Value(0.0)]
out = mlp(x)
"""


def function(body: str, arguments: str = "x: mlaot.f32[8]", mark: str = "") -> str:
    """A model whose body is on line 6."""
    return f"{TENSORS}@mlaot.model{mark}\ndef net({arguments}):\n    {body}\n"


MODELS = {
    "raises": (TENSORS + "net = 1 / 0\n", "model.py:4: ZeroDivisionError: division by zero"),
    "raises inside": (function("return w['v'] @ x"), "model.py:6: KeyError: 'v'"),
    "raises inside NumPy": (
        TENSORS + "net = np.zeros(3).reshape(2)\n",
        "model.py:4: ValueError: cannot reshape array of size 3 into shape (2,)",
    ),
    "missing package": (
        "import a_framework\n",
        "model.py:1: No module named 'a_framework'; add it to `requires` in [tool.mlaot] of pyproject.toml",
    ),
    "missing weights": (
        "import mlaot\nw = mlaot.load('weights.safetensors')\n",
        "model.py:2: no file weights.safetensors; looked in ...",
    ),
    "not a model": (
        "net = 3\n",
        "model:net: expected a model, got int; a model is a function marked by mlaot.model, a declaration by "
        "mlaot.micrograd.declare, or a micrograd MLP",
    ),
    "None": (
        "net = None\n",
        "model:net: expected a model, got NoneType; a model is a function marked by mlaot.model, ...",
    ),
    "file name": (
        "net = 'm.onnx'\n",
        "model:net: expected a model, got str; a model is a function marked by mlaot.model, ...",
    ),
    "array": (
        TENSORS + "net = w['w']\n",
        "model:net: expected a model, got ...; a model is a function marked by mlaot.model, ...",
    ),
    "unmarked function": (
        "def net(x): return x\n",
        "model:net: expected a model, got function; a model is a function marked by mlaot.model, ...",
    ),
    "class, not a network": (
        "from mlaot.micrograd import MLP\nnet = MLP\n",
        "model:net: expected a model, got type; a model is a function marked by mlaot.model, ...",
    ),
    "no outputs": (
        "net = []\n",
        "model:net: a bare graph of Values has no inputs; expected leaves made by Value(0.0, (), 'input'), or a "
        "declaration by mlaot.micrograd.declare",
    ),
    "numbers": ("net = [1.0, 2.0]\n", "model:net: expected a Value, got float 1.0"),
    "misspelt decorator": (
        "import mlaot\n@mlaot.moodel\ndef net(x): return x\n",
        "model.py:2: AttributeError: module 'mlaot' has no attribute 'moodel'; did you mean 'model'?",
    ),
    "matrix product": (
        function("return w['w'] @ x"),
        "model.py:6: matmul needs (m,k) and (k,n), got f32[8,5] and f32[8]",
    ),
    "broadcasting": (function("return x + w['b']"), "model.py:6: np.add: shapes [8] and [5] do not broadcast"),
    "reshape": (function("return x.reshape(3, 3)"), "model.py:6: cannot reshape f32[8] to [3, 3]"),
    "axis": (function("return x.sum(axis=1)"), "model.py:6: np.sum: there is no axis 1 in an array of 1 dimensions"),
    "transpose": (
        function("return x.transpose(1)"),
        "model.py:6: np.transpose: there is no axis 1 in an array of 1 dimensions",
    ),
    "ufunc": (
        function("return np.gcd(x, x)"),
        "model.py:6: np.gcd cannot be traced: mlaot has no rule for it",
    ),
    "NumPy function": (
        function("return np.nonzero(x)"),
        "model.py:6: np.nonzero cannot be traced: the shape of its result depends on the data; use "
        "mlaot.where(condition, a, b)",
    ),
    "branch": (
        function("return x if x.sum() else -x"),
        "model.py:6: bool(x) of f32[]: the value of a traced array is not known while tracing; instead of `if x: ...` "
        "use mlaot.cond or mlaot.where, ...",
    ),
    "no array method": (
        function("return x.view()"),
        "model.py:6: AttributeError: 'Tensor' object has no attribute 'view'",
    ),
    "text": (function("return x * 'a'"), "model.py:6: np.multiply: a str cannot be part of a model"),
    "no result": (function("x * 2"), "model.py:4: output 'out' is None; is its `return` missing?"),
    "float label": (
        function("return mlaot.one_hot(x, 5)", "x: mlaot.f32"),
        "model.py:6: one_hot needs integer labels, got f32[]",
    ),
    "annotation": (
        function("return x", "x: int"),
        "model.py:4: argument 'x' of net: expected an annotation such as mlaot.f32[64], got <class 'int'>",
    ),
    "no annotation": (
        function("return x", "x"),
        "model.py:4: argument 'x' of net: expected an annotation such as mlaot.f32[64], got none",
    ),
    "an input called out": (
        function("return out * 2", "out: mlaot.f32[8]"),
        "model.py:4: wrong.nn: an input of forward cannot be called 'out': methods have such an argument",
    ),
    "an output called loss": (
        function("return {'loss': x}"),
        "model.py:4: an output cannot be called 'loss'; to train, pass a function to the decorator as loss=",
    ),
    "nothing to train": (
        function("return x * 2", mark="(loss=lambda out: out.sum())"),
        "model.py:4: a model with a loss trains, but this one has no parameters",
    ),
    "loss that is no number": (
        function("return w['w'].T @ x", mark="(loss=lambda out: out * out)"),
        "model.py:4: the loss must be one number, got f32[5]; end it with .mean() or .sum()",
    ),
    "op of a Value": (
        SCALARS + "net = declare(Value(0.0, (out[0],), 'bessel'), inputs={'x': x}, parameters=mlp)\n",
        "model.py:4: op 'bessel' of a Value with 1 arguments has no rule; known are + * ** dot where max min < <= > >= "
        "ReLU abs acos asin atan cos cosh erf exp expm1 log log1p sigmoid sin sinh sqrt tan tanh",
    ),
    "dtype": (
        SCALARS + "net = declare(out, inputs={'x': x}, parameters=mlp, dtype='float16')\n",
        "model.py:4: dtype must be 'float32' or 'float64', got 'float16'",
    ),
    "computed input": (
        SCALARS + "net = declare(out, inputs={'x': out}, parameters=mlp)\n",
        "model.py:4: input 'x': expected leaf Values, got the result of '...",
    ),
    "computed label": (
        SCALARS + "net = declare(out, inputs={'x': x, 'y': Label([v * 2 for v in y])}, parameters=mlp)\n",
        "model.py:4: input 'y': expected leaf Values, got the result of '...",
    ),
    "numbers for Values": (
        SCALARS + "net = declare(out, inputs={'x': [0.0, 1.0]}, parameters=mlp)\n",
        "model.py:4: input 'x': expected Values, got float",
    ),
    "one leaf twice": (
        SCALARS + "net = declare(out, inputs={'x': x, 'z': x}, parameters=mlp)\n",
        "model.py:4: input 'z': element 0 is also in another input or a parameter",
    ),
    "a list of inputs": (
        SCALARS + "net = declare(out, inputs=[x], parameters=mlp)\n",
        "model.py:4: inputs: expected a dict of names to Values, got list [[...",
    ),
    "max of Values": (
        SCALARS + "net = max(x)\n",
        "model.py:4: a comparison of Values decides a branch, but its result is not known when a graph is built; use "
        "where(condition, a, b), for the larger of two Max(a, b), for max(x, 0) x.relu()",
    ),
    "exp of math": (
        SCALARS + "import math\nnet = math.exp(x[0])\n",
        "model.py:5: float(v) of a Value: Python's math takes numbers; `from mlaot.micrograd import math` has "
        "functions of Values, or use v.exp(), v.sqrt() and the like, or v.data for the number",
    ),
    "power of two Values": (
        SCALARS + "net = x[0] ** x[1]\n",
        "model.py:4: AssertionError: **: expected an int or float as the exponent, got Value",
    ),
    "labels and outputs": (
        SCALARS + "loss = cross_entropy(out, y[:2])\n",
        "model.py:4: ValueError: zip() argument 2 is longer than argument 1",
    ),
}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project whose model is right."""
    made = Project(tmp_path / "project")
    made.write("pyproject.toml", PYPROJECT)
    made.write("model.py", function("return x @ w['w']"))
    return made


def assert_says(builder: Python, project: Project, expected: str, **environ: str) -> None:
    """Building fails with the line ``expected`` and leaves no wheel."""
    assert_like(last_words(builder.hook(project, "build_wheel", str(project.path), **environ)), expected)
    assert not list(project.path.glob("*.whl"))


def assert_like(words: str, expected: str) -> None:
    """``words`` are ``expected``, in which ... stands for anything."""
    assert re.fullmatch(".*".join(map(re.escape, expected.split("..."))), words), words


@pytest.mark.parametrize("case", SETTINGS)
def test_settings(builder: Python, project: Project, case: str) -> None:
    """Mistakes in pyproject.toml."""
    text, expected = SETTINGS[case]
    project.write("pyproject.toml", text)
    assert_says(builder, project, expected)


@pytest.mark.parametrize("case", MODELS)
def test_models(builder: Python, project: Project, tmp_path: Path, case: str) -> None:
    """Mistakes in model.py."""
    text, expected = MODELS[case]
    project.write("model.py", text)
    # The process that every door starts for tracing.
    command = ("-P", "-m", "mlaot.build.child", project.path, project.path / "out")
    assert_like(last_words(builder.run(*command, cwd=tmp_path)), expected)
    assert not (project.path / "out").exists() or not list((project.path / "out").iterdir())


def test_wheel_of_a_wrong_model(builder: Python, project: Project) -> None:
    """Through the hook as a whole."""
    project.write("model.py", function("return x @ w['b']"))
    assert_says(builder, project, "model.py:6: matmul needs (m,k) and (k,n), got f32[8] and f32[5]")


def test_no_compiler(builder: Python, project: Project, tmp_path: Path) -> None:
    """Nothing on PATH, and a compiler that is not there."""
    empty = Project(tmp_path / "empty")
    empty.write("sitecustomize.py", "import sys\nsys.modules['ziglang'] = None\n")  # not installed, wherever it is
    expected = "no C compiler: looked for $CC, cc, gcc and clang on PATH; install one ..."
    assert_says(builder, project, expected, PATH=str(empty.path), PYTHONPATH=str(empty.path))
    assert_says(builder, project, "no C compiler: CC is 'no-such-cc', which is not on PATH", CC="no-such-cc")


def test_example_without_its_weights(builder: Python, tmp_path: Path) -> None:
    """A forgotten file, shown by pip as its last line of output."""
    project = copy_project(PROJECTS["serve"], tmp_path / "serve")
    (project.path / "weights.safetensors").unlink()
    result = builder.run("-m", "pip", "wheel", "--no-deps", "--no-build-isolation", ".", cwd=project.path)
    assert result.returncode
    shown = [line.strip() for line in result.stderr.splitlines() if line.strip()]
    assert shown[shown.index("[end of output]") - 1].startswith("mlaot: model.py:7: no file weights.safetensors; ")
