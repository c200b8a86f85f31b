"""Wrong models as a user writes them, built as a build does: each ends in one line that names the file and the line.

Every case is the text of a model module, given to what the build starts for tracing; what it prints last is held here.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mlaot.build import child

PYPROJECT = """\
[build-system]
requires = ["mlaot"]
build-backend = "mlaot.build"

[project]
name = "wrong"
version = "1.0"

[tool.mlaot]
isa = ["base"]

[tool.mlaot.models.nn]
model = "model:net"
"""
HEAD = """\
import numpy as np
import mlaot
batch, n, m = mlaot.dim("batch"), mlaot.dim("n"), mlaot.dim("m")
w = mlaot.parameters({"w": np.ones((8, 5), np.float32), "b": np.zeros(5, np.float32)})
"""
UNKNOWN = "the value of a traced array is not known while tracing"
BOOL = (
    f"{UNKNOWN}; instead of `if x: ...` use mlaot.cond or mlaot.where, instead of `while x: ...` mlaot.while_loop, "
    "instead of `and`, `or`, `not` the operators & | ~"
)
SIZE = (
    "the size of the named dim batch is not known while tracing; loop by mlaot.scan or mlaot.fori_loop; mlaot.zeros, "
    "ones, full, arange, eye and random take named dims in shapes"
)
DATA = "the shape of its result depends on the data"
IN_PLACE = "an array of a model cannot be written in place; use x = x.at[...].set(value), mlaot.where or np.concatenate"
FLOAT = (
    f"{UNKNOWN}; compute with the array itself: instead of math.exp(x) use np.exp(x), instead of `a[i] = x` np.stack"
)
NUMBERS = (
    "needs the numbers of Tensor(f32[]), which are not known while tracing; x.astype(dtype) casts, a list of traced "
    "arrays becomes one by np.stack, a constant array is indexed by mlaot.take(array, x, axis=0)"
)
OUTSIDE = "a traced array is used outside of the function that it was traced in: f32[8]; return it from there"
ANNOTATION = "expected an annotation such as mlaot.f32[64], got"
DIM = "a shape is made of integers and of dims such as mlaot.dim('batch'), got"
NAMELESS = "has no name; give the object that holds it to @mlaot.model(parameters=...), or name it"
ROWS = "x: mlaot.f32[batch, 8]"
OTHER = """\
kept = []
@mlaot.model
def other(x: mlaot.f32[8]):
    kept.append(x)
    return x
other.trace()
"""


def model(body: str, arguments: str = "x: mlaot.f32[8]", *, mark: str = "", before: str = "") -> str:
    """A module with the function ``net``: its decorator is on line 5, its body starts on line 7."""
    return f"{HEAD}{before}@mlaot.model{mark}\ndef net({arguments}):\n    {body}\n"


def trained(
    loss: str,
    further: str = "out, y: mlaot.f32",
    *,
    body: str = "return x @ w['w']",
    mark: str = "",
    arguments: str = "x: mlaot.f32[8]",
) -> str:
    """A module whose model has a loss: the loss is on line 6, the decorator on line 7, the body starts on line 9."""
    before = f"def loss({further}):\n    return {loss}\n"
    return model(body, arguments, mark=f"(loss=loss{mark})", before=before)


def entry(text: str) -> str:
    """A module with a further function of the model, decorated on line 8."""
    return model("return x") + f"@net.entry\n{text}"


MISTAKES = {
    # Shapes
    "matrix product": (model("return w['w'] @ x"), "model.py:7: matmul needs (m,k) and (k,n), got f32[8,5] and f32[8]"),
    "product of a named dim": (
        model("return x @ w['w']", "x: mlaot.f32[n, m]"),
        "model.py:7: matmul needs (m,k) and (k,n), got f32[n,m] and f32[8,5]",
    ),
    "two named dims": (
        model("return x + y", "x: mlaot.f32[n], y: mlaot.f32[m]"),
        "model.py:7: np.add: shapes [n] and [m] do not broadcast",
    ),
    "in a helper": (
        model("return helper(x)", before="def helper(x):\n    return x + np.zeros(5)\n"),
        "model.py:6: np.add: shapes [8] and [5] do not broadcast",
    ),
    "reshape": (model("return x.reshape(3, 3)"), "model.py:7: cannot reshape f32[8] to [3, 3]"),
    "reshape by the rest": (
        model("return x.reshape(-1, 7)", ROWS),
        "model.py:7: cannot reshape f32[batch,8] to [-1, 7]",
    ),
    "concatenate": (
        model("return np.concatenate([x, y], axis=1)", "x: mlaot.f32[2, 3], y: mlaot.f32[3, 3]"),
        "model.py:7: cannot concatenate f32[2,3] and f32[3,3] along axis 1",
    ),
    "stack": (
        model("return np.stack([x, x[:3]])"),
        "model.py:7: cannot stack f32[8] and f32[3]: their shapes differ",
    ),
    "index": (model("return x[9]"), "model.py:7: x[...]: index 9 is out of bounds for axis 0 with 8 elements"),
    "indices": (model("return x[0, 0]"), "model.py:7: x[...]: too many indices for f32[8]: 2"),
    "axis": (model("return x.sum(axis=1)"), "model.py:7: np.sum: there is no axis 1 in an array of 1 dimensions"),
    "einsum": (
        model("return np.einsum('ij,j->i', x, x)"),
        "model.py:7: einsum 'ij,j->i' does not fit an operand f32[8]",
    ),
    "einsum's result": (
        model("return np.einsum('i,i->k', x, x)"),
        "model.py:7: einsum 'i,i->k': the result's labels must be labels of the operands, each once",
    ),
    "vmap": (
        model("return mlaot.vmap(lambda a, b: a * b)(x, y)", "x: mlaot.f32[8], y: mlaot.f32[7]"),
        "model.py:7: vmap: expected one size along the mapped axes, got 7 and 8",
    ),
    "layer": (
        model("return layer(x)", before="layer = mlaot.nn.Linear(7, 3)\n", mark="(parameters=layer)"),
        "model.py:8: linear: a weight [3, 7] does not fit an input [8]",
    ),
    # Dtypes
    "bits of floats": (
        model("return x & 1"),
        "model.py:7: bitwise_and is not defined for float32 and int; cast with x.astype(...) first",
    ),
    "no such dtype": (
        model("return x.astype('complex64')"),
        "model.py:7: there is no dtype complex64; known are bfloat16, bool, float16, float32, float64, int16, int32, "
        "int64, int8, uint16, uint32, uint64, uint8",
    ),
    "too large a number": (
        model("return x + 300", "x: mlaot.i8[8]"),
        "model.py:7: np.add: 300 does not fit into i8; cast the array to a wider dtype first",
    ),
    "integer parameter": (
        model("return x * k", before="k = mlaot.Parameter('k', np.arange(8))\n"),
        "model.py:5: parameter 'k': expected floating-point numbers, got int64; an array that is not trained is a "
        "mlaot.Buffer or a plain array",
    ),
    "gradient by integers": (
        model("return mlaot.grad(lambda v: (v * 2).sum())(x)", "x: mlaot.i32[8]"),
        "model.py:7: grad by an argument i32[8]: only floating-point arguments have a gradient",
    ),
    "gradient of a vector": (
        model("return mlaot.grad(lambda v: v * 2)(x)"),
        "model.py:7: grad needs a function that returns a floating-point scalar, got f32[8]",
    ),
    # Values that are not known while tracing
    "if": (model("if x.sum() > 0:\n        return x\n    return -x"), f"model.py:7: bool(x) of bool[]: {BOOL}"),
    "while": (model("while x.sum() > 0:\n        x = x - 1\n    return x"), f"model.py:7: bool(x) of bool[]: {BOOL}"),
    "and": (model("return np.where(x > 0 and x < 1, x, 0)"), f"model.py:7: bool(x) of bool[8]: {BOOL}"),
    "or": (model("return np.where(x < 0 or x > 1, x, 0)"), f"model.py:7: bool(x) of bool[8]: {BOOL}"),
    "chained comparison": (model("return np.where(0 < x < 1, x, 0)"), f"model.py:7: bool(x) of bool[8]: {BOOL}"),
    "float": (model("return x * float(x.max())"), f"model.py:7: float(x) of f32[]: {FLOAT}"),
    "math": (model("import math\n    return math.exp(x[0])"), f"model.py:8: float(x) of f32[]: {FLOAT}"),
    "int": (
        model("return x[int(x.argmax())]"),
        f"model.py:7: int(x) of i64[]: {UNKNOWN}; use x.astype(int)",
    ),
    "item": (
        model("return x / x.sum().item()"),
        f"model.py:7: x.item() of f32[]: {UNKNOWN}; compute with the array itself",
    ),
    "array of results": (
        model("return np.array([x.sum(), x.max()])"),
        f"model.py:7: np.array or np.asarray {NUMBERS}",
    ),
    "nonzero": (
        model("return np.nonzero(x)"),
        f"model.py:7: np.nonzero cannot be traced: {DATA}; use mlaot.where(condition, a, b)",
    ),
    "mask": (
        model("return x[x > 0]"),
        "model.py:7: x[...]: a mask bool[8]: the shape of the result depends on the data; use mlaot.where(mask, x, "
        "other)",
    ),
    # Named dims
    "len": (
        model("return x.sum(axis=0) / len(x)", ROWS),
        "model.py:7: len(x) of f32[batch,8]: the dim is named; use x.shape[0]",
    ),
    "iteration": (
        model("return sum(row for row in x)", ROWS),
        "model.py:7: iteration over the named dim batch of f32[batch,8]: use mlaot.scan",
    ),
    "range": (model("return sum(x[i] for i in range(x.shape[0]))", ROWS), f"model.py:7: {SIZE}"),
    "comparison of a named dim": (
        model("return x if x.shape[0] > 3 else -x", ROWS),
        f"model.py:7: {SIZE}",
    ),
    "scalar taken apart": (
        model("return [v for v in x.sum()]"),
        "model.py:7: TypeError: iteration over a 0-d array",
    ),
    "zeros": (model("return x + np.zeros(x.shape)", ROWS), f"model.py:7: {SIZE}"),
    # Functions of NumPy
    "unknown function": (
        model("return np.linalg.inv(x)", "x: mlaot.f32[3, 3]"),
        "model.py:7: np.linalg.inv cannot be traced: models have no decompositions and no solvers; compute it with "
        "NumPy where the matrix is constant, or pass it in",
    ),
    "misspelt": (
        model("return mlaot.sofmax(x)"),
        "model.py:7: AttributeError: module 'mlaot' has no attribute 'sofmax'; did you mean 'softmax'?",
    ),
    "out": (
        model("y = np.zeros(8, np.float32)\n    np.exp(x, out=y)\n    return y"),
        f"model.py:8: np.exp with out=: {IN_PLACE}",
    ),
    "where=": (
        model("return np.log(x, where=x > 0)"),
        "model.py:7: np.log with where=: it cannot be traced; use mlaot.where",
    ),
    "written in place": (model("x[0] = 0\n    return x"), f"model.py:7: x[...] = value: {IN_PLACE}"),
    "parameter written in place": (
        model("w['b'][0] = 0\n    return x"),
        f"model.py:7: x[...] = value: {IN_PLACE}",
    ),
    "array filled": (
        model("y = np.zeros(8, np.float32)\n    y[0] = x[0]\n    return y"),
        f"model.py:8: float(x) of f32[]: {FLOAT}",
    ),
    # Arguments and outputs
    "no annotation": (model("return x", "x"), f"model.py:5: argument 'x' of net: {ANNOTATION} none"),
    "NumPy's annotation": (
        model("return x", "x: np.ndarray"),
        f"model.py:5: argument 'x' of net: {ANNOTATION} <class 'numpy.ndarray'>",
    ),
    "annotation that fails": (
        "from __future__ import annotations\n" + model("return x", "x: mlaot.f33[8]"),
        "model.py:6: the annotations of net: module 'mlaot' has no attribute 'f33'; did you mean 'f32'?",
    ),
    "text as a dim": (model("return x", "x: mlaot.f32['batch', 8]"), f"model.py:6: {DIM} 'batch'"),
    "negative dim": (model("return x", "x: mlaot.f32[-1, 8]"), f"model.py:6: {DIM} -1"),
    "name of a dim": (
        model("return x", "x: mlaot.f32[mlaot.dim('a b'), 8]"),
        "model.py:6: a dimension's name must be an identifier, got 'a b'",
    ),
    "any arguments": (
        model("return x", "*x: mlaot.f32[8]"),
        "model.py:5: argument *x of net: a model's arguments must each have a name",
    ),
    "no result": (model("x * 2"), "model.py:5: output 'out' is None; is its `return` missing?"),
    "text as a result": (
        model("return 'x'"),
        "model.py:5: output 'out' is a str; expected an array, a tuple or a dict of arrays",
    ),
    "list of lists": (
        model("return [x, [x, x]]"),
        "model.py:5: output 'out1' is a list; expected an array, a tuple or a dict of arrays",
    ),
    "name of an output": (
        model("return {'a b': x}"),
        "model.py:5: an output's name must be an identifier, got 'a b'",
    ),
    "unknown option": (
        model("return x", mark="(lr=0.1)"),
        "model.py:5: TypeError: model() got an unexpected keyword argument 'lr'",
    ),
    "entry called forward": (
        entry("def forward(x: mlaot.f32[8]):\n    return x\n"),
        "model.py:8: the module has an entry called 'forward' already; choose another name",
    ),
    "entry called save": (
        entry("def save(x: mlaot.f32[8]):\n    return x\n"),
        "model.py:5: wrong.nn: an entry cannot be called 'save': every module has that attribute",
    ),
    "entry that does nothing": (
        entry("def reset():\n    pass\n"),
        "model.py:8: the entry reset has no output and assigns no buffer",
    ),
    # Training
    "loss of integers": (
        trained("out.argmax()"),
        "model.py:7: the loss must be a floating-point number, got i64[]",
    ),
    "loss of several numbers": (
        trained("(out - y) ** 2"),
        "model.py:7: the loss must be one number, got f32[5]; end it with .mean() or .sum()",
    ),
    "loss of several numbers an example": (
        trained("(out - y) ** 2", "out, y: mlaot.f32[batch, 5]", arguments=ROWS),
        "model.py:7: the loss must be one number, or one an example, got f32[batch,5]; end it with .mean() or .sum()",
    ),
    "text for a loss": (trained("'x'"), "model.py:7: the loss is a str; expected a number"),
    "input called lr": (
        trained("out.sum() * y", arguments="x: mlaot.f32[8], lr: mlaot.f32"),
        "model.py:7: an input of a model that trains cannot be called 'lr', train_step's learning rate",
    ),
    "loss that is no function": (
        model("return x @ w['w']", mark="(loss=3)"),
        "model.py:5: loss: expected a function, got 3",
    ),
    "class for a model": (
        HEAD + "@mlaot.model\nclass net:\n    pass\n",
        "model.py:5: mlaot.model: expected a function, got <class 'model.net'>",
    ),
    "learning rate": (
        trained("out.sum()", "out", mark=", learning_rate='0.1'"),
        "model.py:7: learning_rate: expected a number, got '0.1'",
    ),
    "no loss": (trained("None"), "model.py:7: the loss is None; is its `return` missing?"),
    "loss without the outputs": (
        trained("0.0", "out", body="return x @ w['w'], x"),
        "model.py:5: loss must take the model's 2 outputs first, then further inputs; it takes 1",
    ),
    "argument of the loss": (
        trained("((out - y) ** 2).sum()", "out, y"),
        f"model.py:5: argument 'y' of loss: {ANNOTATION} none",
    ),
    "one name for two inputs": (
        trained("((out - x) ** 2).sum()", "out, x: mlaot.f32[5]"),
        "model.py:5: argument 'x' of loss is f32[5], but the model's input of that name is f32[8]",
    ),
    "nothing to train": (
        trained("out.sum()", "out", body="return x * 2"),
        "model.py:7: a model with a loss trains, but this one has no parameters",
    ),
    "no optimizer": (
        trained("out.sum()", "out", mark=", optimizer='adam'"),
        "model.py:7: optimizer: expected one such as mlaot.optim.Adam(lr=1e-3), got 'adam'",
    ),
    "optimizer without a loss": (
        model("return x @ w['w']", mark="(optimizer=mlaot.optim.Adam(lr=1e-3))"),
        "model.py:5: the model has an optimizer but no loss to train by; give the decorator a function loss=",
    ),
    # Parameters and buffers
    "two parameters of one name": (
        model(
            "return x @ a + b",
            before="a, b = mlaot.Parameter('w', np.ones((8, 5))), mlaot.Parameter('w', np.ones(5))\n",
        ),
        "model.py:8: np.add: two parameters or buffers are called 'w'; give one of them another name",
    ),
    "parameter without a name": (
        model("return x + k", before="k = mlaot.Parameter(None, np.zeros(8))\n"),
        f"model.py:8: np.add: a parameter of shape [8] {NAMELESS}",
    ),
    "parameter and argument of one name": (
        model("return p @ w", "w: mlaot.f32[5]", before="p = w['w']\n"),
        "model.py:8: np.matmul: a parameter is called 'w', and so is an argument; rename one of them",
    ),
    "buffer of another shape": (
        model("s.assign(x[:, 0])\n    return x", ROWS, before="s = mlaot.Buffer(np.zeros(5, np.float32), 's')\n"),
        "model.py:8: buffer 's': expected a value of shape [5], got [batch]",
    ),
    "buffer of another dtype": (
        model("s.assign(x.sum(axis=0))\n    return x", ROWS, before="s = mlaot.Buffer(np.zeros(8, int), 's')\n"),
        "model.py:8: buffer 's': expected i64[8], got f32[8]; cast it with x.astype(...)",
    ),
    "buffer of one example": (
        model("s.assign(x)\n    return x", before="s = mlaot.Buffer(np.zeros(8, np.float32), 's')\n"),
        "model.py:6: net is for one example and cannot assign the buffer 's'; name the batch in its annotations: batch "
        "= mlaot.dim('batch'), x: mlaot.f32[batch, ...]",
    ),
    "missing file": (
        "import mlaot\nw = mlaot.load('weights.safetensors')\n",
        "model.py:2: no file weights.safetensors; looked in PROJECT and CWD",
    ),
    # Control flow
    "carry of another dtype": (
        model("return mlaot.scan(lambda c, v: (c + v.astype(np.float64), c), np.float32(0), x)[0]"),
        "model.py:7: scan: the carry 0 is f32[] but the body gives f64[]; cast one of them with x.astype(...)",
    ),
    "scan without a pair": (
        model("return mlaot.scan(lambda c, v: c + v, np.float32(0), x)[0]"),
        "model.py:7: scan: expected the function to return (carry, y), got a Tensor",
    ),
    "while without a bound": (
        model("return mlaot.while_loop(lambda v: v.sum() < 10, lambda v: v * 2, x)"),
        "model.py:7: while_loop: expected bound=, an integer that limits its rounds, got none",
    ),
    "condition of while": (
        model("return mlaot.while_loop(lambda v: v < 10, lambda v: v * 2, x, bound=4)"),
        "model.py:7: while: expected a condition that gives bool[], got bool[8]; end it with .any() or .all(), or "
        "choose element by element with mlaot.where",
    ),
    "condition of several": (
        model("return mlaot.cond(x > 0, lambda: x, lambda: -x)"),
        "model.py:7: cond: expected a condition of type bool[], got bool[8]; end it with .any() or .all(), or "
        "choose element by element with mlaot.where",
    ),
    "branches of two shapes": (
        model("return mlaot.cond(x.sum() > 0, lambda: x, lambda: x.sum())"),
        "model.py:7: cond: the result 0 is f32[8] but 'otherwise' gives f32[]",
    ),
    "branches of two structures": (
        model("return mlaot.cond(x.sum() > 0, lambda: x, lambda: (x, x))"),
        "model.py:7: cond: expected one structure of results, got * from 'then' and (*, *) from 'otherwise'",
    ),
    "array that left its function": (
        model("kept = []\n    mlaot.grad(lambda v: kept.append(v) or v.sum())(x)\n    return kept[0]"),
        f"model.py:5: {OUTSIDE}",
    ),
    "array of another model": (
        model("return x + kept[0]", before=OTHER),
        f"model.py:13: np.add: {OUTSIDE}",
    ),
}


def last_words(text: str, project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """What the process that traces prints of a model module: warnings at most, where it is right."""
    project.mkdir()
    (project / "pyproject.toml").write_text(PYPROJECT)
    (project / "model.py").write_text(text)
    monkeypatch.delitem(sys.modules, "model", raising=False)
    status = child.main([str(project), str(project / "out")])
    printed = capsys.readouterr().err
    warnings = [line for line in printed.splitlines() if ": warning: " in line]
    assert bool(status) == (len(warnings) < len(printed.splitlines()))
    return printed


@pytest.mark.parametrize("case", MISTAKES)
def test_mistake(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text, message = MISTAKES[case]
    printed = last_words(text, tmp_path / "project", monkeypatch, capsys)
    printed = printed.replace(str(tmp_path / "project"), "PROJECT").replace(str(Path.cwd()), "CWD")
    assert printed == f"mlaot: {message}\n"


RIGHT = {
    "nan": model("return x + np.nan"),
    "no path from the loss": trained("out.sum()", "out", body="return x * 2", mark=", parameters=w"),
    "a dim unrolled": model("return sum(x)"),
    "lazy libraries": model("return mlaot.nn.functional.relu(x)"),
}

WARNED = {
    "no path from the loss": (
        "mlaot: model.py:7: warning: the loss does not depend on the parameters 'w', 'b', which are never trained\n"
    ),
}


@pytest.mark.parametrize("case", RIGHT)
def test_what_is_no_mistake(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A constant nan, a parameter that the loss does not need, a loop over a dim of known size, mlaot.nn unimported."""
    assert last_words(RIGHT[case], tmp_path / "project", monkeypatch, capsys) == WARNED.get(case, "")
    assert list((tmp_path / "project" / "out").rglob("*.c"))
