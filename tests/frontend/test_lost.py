"""What the tracing of scalars loses is said with the user's line; what is meant, or nothing to do with it, is not."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path

import pytest

from mlaot.errors import building
from mlaot.frontend.trace.declaration import Declaration

HEAD = """\
import math
from types import SimpleNamespace
from mlaot.micrograd import MLP, Dot, Max, Value, declare
x, y = [Value(0.0), Value(0.0)], Value(0.0)
w, b = [Value(0.5), Value(0.25)], Value(0.1)
"""
LINE = HEAD.count("\n") + 1
TRAIN = 'd = declare(out, inputs={"x": x, "y": y}, parameters={"w": w, "b": b}, loss=(out - y) ** 2)'
SERVE = 'd = declare(out, inputs={"x": x}, parameters={"w": w, "b": b})'
NET = "out = (w[0] * x[0] + w[1] * x[1] + b).tanh()"

Told = Callable[..., list[str]]


@pytest.fixture
def told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Told:
    """``told(lines)``: what a build says of the declarations of a file, without ``mlaot: model.py:`` in front."""

    def run(*lines: str) -> list[str]:
        file = tmp_path / "model.py"
        file.write_text(HEAD + "\n".join(lines) + "\n")
        with building(tmp_path):
            for value in runpy.run_path(str(file)).values():
                if isinstance(value, Declaration):
                    value.trace()
        return [line.removeprefix("mlaot: model.py:") for line in capsys.readouterr().err.splitlines()]

    return run


@pytest.mark.parametrize(
    ("lines", "place", "what"),
    [
        ([NET, SERVE.replace("x}", "x[:1]}")], 4, "a Value made here is neither input nor parameter, and constant: 0"),
        ([NET, TRAIN.replace('"b": b', '"c": Value(1.0) if 0 else w.pop()')], 5, "a Value made here is neither"),
        (["scale = Value(3.0)", "out = scale * w[0] * x[0]", TRAIN], LINE, "and constant: 3;"),
        (
            ["z = [Value(0.0) for _ in range(5)]", "out = sum(a * w[0] for a in z)", SERVE],
            LINE,
            "5 Values made here are",
        ),
        (["net = MLP(2, [2, 1])", "out = net(x) * w[0]", TRAIN], LINE, "6 Values made here are neither"),
        (["def leaf(): return Value(7.0)", "c = leaf()", "out = c * x[0] * w[1]", TRAIN], LINE, "constant: 7;"),
        (["c = []", "c.append(Value(7.0))", "out = c[0] * x[0] * w[1]", TRAIN], LINE + 1, "constant: 7;"),
        (["n = SimpleNamespace(c=Value(7.0))", "out = n.c * x[0] * w[1]", TRAIN], LINE, "constant: 7;"),
    ],
)
def test_leaves_that_were_never_declared(lines: list[str], place: int, what: str, told: Told) -> None:
    found = [line for line in told(*lines) if "neither" in line]
    assert found and found[0].startswith(f"{place}: warning: ") and what in found[0]
    assert "name it in the inputs" in found[0] or "name them in the inputs" in found[0]


@pytest.mark.parametrize(
    "lines",
    [
        [NET],
        ["out = Value(2.0) * w[0] * x[0] + 3 - 1 / (x[1] + 2.5)"],
        ["out = (Value(2.0) * w[0]).exp() * x[0]"],
        ["out = Max(w[0] * x[0], 0.5) + Dot([w[1], 2.0], [x[1], 1.0])"],
        ["total = Value(0.0)", "for a, c in zip(w, x): total = total + a * c", "out = total"],
        ["out = sum((a * c for a, c in zip(w, x)), Value(0))"],
        ["total = Value(0)", "for a, c in zip(w, x): total += a * c", "out = total.relu()"],
        ["spare = [Value(1.0), Value(2.0)]", NET],
        ["two = lambda: Value(2.0)", "out = w[0] * two() * x[0]"],
    ],
)
def test_numbers_that_are_meant(lines: list[str], told: Told) -> None:
    assert [line for line in told(*lines, SERVE, TRAIN) if "neither" in line] == []


def test_weights_of_a_network_that_only_serves(told: Told) -> None:
    """Without parameters everything is constant."""
    assert told("net = MLP(2, [3, 1])", 'd = declare(net(x), inputs={"x": x})') == []
    assert told("scale = Value(3.0)", 'd = declare(scale * x[0], inputs={"x": x})') == []


UNTRAINED = "the loss does not depend on "


@pytest.mark.parametrize(
    ("out", "loss", "what"),
    [
        (NET, "(out - y) ** 2", ""),
        ("out = w[0] * x[0] + w[1] * x[1]", "(out - y) ** 2", "the parameter 'b', which is never trained"),
        (
            "out = w[1] * x[0] + b",
            "(out - y) ** 2",
            "1 of the 2 numbers of the parameter 'w' 0, which are never trained",
        ),
        (NET, "(x[0] - y) ** 2", "any parameter: training changes nothing"),
        (NET, "b * 2", "the parameter 'w', which is never trained"),
    ],
)
def test_parameters_that_are_not_trained(out: str, loss: str, what: str, told: Told) -> None:
    found = told(out, TRAIN.replace("loss=(out - y) ** 2", f"loss={loss}"))
    assert found == ([f"{LINE + 1}: warning: {UNTRAINED}{what}"] if what else [])


def test_one_of_a_list_and_of_a_matrix(told: Told) -> None:
    both = 'd = declare(out, inputs={"x": x, "y": y}, parameters=%s, loss=(out - y) ** 2)'
    (line,) = told("out = w[0] * x[0]", both % "[*w, b]")
    assert line.endswith(f"{UNTRAINED}2 of the 3 numbers of the parameter 'p', first 1, which are never trained")
    (line,) = told("m = [w, [b, Value(1.0)]]", "out = (w[0] + w[1] + b) * x[0]", both % '{"m": m}')
    assert line.endswith(f"{UNTRAINED}1 of the 4 numbers of the parameter 'm' [1, 1], which are never trained")


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("k = x[0].data * 2", "the input 'x'"),
        ("k = x[0].data", "the input 'x'"),
        ("k = Value(y.data)", "the input 'y'"),
        ("k = math.exp(x[1].data)", "the input 'x'"),
        ("k = [v.data for v in x]", "the input 'x'"),
        ("if x[0].data > 0: pass", "the input 'x'"),
        ("k = (w[0] * x[0]).data + 1", "a Value that depends on the input 'x'"),
        ("k = sum(v.data ** 2 for v in w)", "the parameter 'w'"),
        ("k = max(b.data - 1, 0)", "the parameter 'b'"),
    ],
)
def test_numbers_that_are_read(line: str, what: str, told: Told) -> None:
    (found,) = told(line, NET, TRAIN)
    assert found.startswith(f"{LINE}: warning: .data of {what} is read while the graph is built: ")
    assert found.endswith("becomes a constant; compute with the Value itself")


@pytest.mark.parametrize(
    "lines",
    [
        ["print(x[0].data, w[0].data * 2)", NET],
        [NET, "print(f'{out.data:.3f}', (out.data - 1) ** 2)"],
        [NET, "good = out.data > 0.5"],
        ["w[0].data = w[0].data * 0.5", NET],
        ["for v in w: v.data -= 0.1 * v.grad", NET],
        ["start = [v.data for v in w]", NET],
        ["losses = []", "losses.append(x[0].data)", NET],
        ["assert b.data + 1 > 0", NET],
        ["x[0].data = 2.0", "k = (w[0] * 3).data + 1", NET],  # of parameters alone, as an eager training looks at it
        ["k = Value(1.0).data * 2", NET],
        [
            "z = [w[0] * x[0], w[1] * x[1]]",
            "most = max(v.data for v in z)",
            "out = sum((v - most).exp() for v in z) * b",
        ],
        ["out = (x[0] - x[0].data) * w[0] / b.data + w[1] * x[1]"],
    ],
)
def test_numbers_that_may_be_read(lines: list[str], told: Told) -> None:
    assert told(*lines, TRAIN) == []


def test_outside_of_a_build(capsys: pytest.CaptureFixture[str]) -> None:
    """Eager programs are not watched."""
    from mlaot.micrograd import Value, declare

    x, forgotten = Value(0.0), Value(0.0)
    declare(x * forgotten, inputs={"x": x}).trace()
    assert x.data * 2 == 0 and x._made is None and capsys.readouterr().err == ""
