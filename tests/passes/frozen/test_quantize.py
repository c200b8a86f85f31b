"""Products with bytes: which ones, of what ranges, their kernels, and what builds say of them."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlaot
import mlaot.nn as nn
from mlaot.errors import MlaotError
from mlaot.evaluate import evaluate
from mlaot.generate import compile_model
from mlaot.ir.module import Module
from mlaot.loading import trace
from mlaot.passes import run
from mlaot.report.rounding import quantization_report
from mlaot.settings.options import Options

from ...compiled import AVAILABLE, Library
from ...projects import build_module, load

BATCH = mlaot.dim("batch")
draw = np.random.default_rng(0)


def weights(*shape: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return draw.standard_normal(shape, np.float32)


def passed(declared: Any, sample: Any = None) -> Module:
    return run("nn", trace(declared), Options(quantize="int8-all"), sample=sample)


W, V, BIAS = weights(40, 33), weights(33, 18), weights(18)


@mlaot.model
def dense(x: mlaot.f32[BATCH, 40]):
    return np.maximum(x @ W, 0) @ V + BIAS


def lines(module: Module) -> list[str]:
    """The ops of forward with their types, in order, without what spreads and moves."""
    text = re.findall(r"= (\w+)\(.*\) : (\S+)", str(module.graphs["forward"]))
    return [f"{op} {type_}" for op, type_ in text if op not in ("const", "broadcast", "input", "reshape")]


def test_ranges_of_a_sample_are_constants() -> None:
    sample = np.linspace(-1, 3, 80, dtype=np.float32).reshape(2, 40)
    module = passed(dense, sample)
    assert lines(module) == [
        *("mul f32[batch,40]", "add f32[batch,40]", "quantize u8[batch,40]", "contract_bytes f32[batch,33]"),
        *("add f32[batch,33]", "mul f32[batch,33]", "relu f32[batch,33]"),
        *("mul f32[batch,33]", "quantize u8[batch,33]", "pad u8[batch,36]", "contract_bytes f32[batch,18]"),
        *("mul f32[batch,18]", "add f32[batch,18]"),
    ]
    first, second = module.quantized
    assert first.range == (-1, 3) and first.shape == (40, 33) and second.range is not None and second.range[0] == 0
    hidden = np.maximum(sample @ W, 0)
    assert second.range[1] == pytest.approx(hidden.max(), rel=1e-6)
    words = {value.shape: value.dtype for value in module.slots.values() if value.dtype == np.int32}
    assert words == {(10, 33): np.int32, (9, 18): np.int32}


def test_without_a_sample_each_row_has_a_range() -> None:
    module = passed(dense)
    assert lines(module) == [
        *("abs f32[batch,40]", "max f32[batch]", "div f32[batch]", "mul f32[batch,40]", "add f32[batch,40]"),
        *("quantize u8[batch,40]", "contract_bytes f32[batch,33]", "add f32[batch,33]", "mul f32[batch,33]"),
        *("mul f32[batch,33]", "relu f32[batch,33]"),
        *("max f32[batch]", "div f32[batch]", "mul f32[batch,33]", "quantize u8[batch,33]", "pad u8[batch,36]"),
        *("contract_bytes f32[batch,18]", "mul f32[batch,18]", "mul f32[batch,18]", "add f32[batch,18]"),
    ]
    assert [product.range for product in module.quantized] == [None, None]


def test_rows_do_not_depend_on_each_other() -> None:
    module = passed(dense)
    x = weights(4, 40) * np.array([[1e-3], [1], [1e3], [0]], np.float32)
    whole = evaluate(module.graphs["forward"], {**module.slots, "x": x})["out"]
    for i in range(4):
        np.testing.assert_array_equal(
            evaluate(module.graphs["forward"], {**module.slots, "x": x[i : i + 1]})["out"][0], whole[i]
        )
    np.testing.assert_array_equal(whole[3], BIAS)
    exact = evaluate(module.declared["forward"], {**module.declared_slots, "x": x})["out"]
    assert (np.abs(whole - exact).max(1) <= 0.03 * np.abs(exact).max(1)).all()


def of(net: Any, *shape: int) -> Any:
    @mlaot.model(parameters=net)
    def model(x: mlaot.f32[(BATCH, *shape)]):
        return net(x)

    return model


def product_of(spec: str, w: Any, *shape: int) -> Any:
    @mlaot.model
    def model(x: mlaot.f32[(BATCH, *shape)]):
        return np.einsum(spec, x, w)

    return model


def residual() -> Any:
    first, second = nn.Conv2d(32, 32, 3, padding=1), nn.Conv2d(32, 32, 3, padding=1)

    @mlaot.model(parameters={"first": first, "second": second})
    def model(x: mlaot.f32[BATCH, 32, 6, 5]):
        y = np.maximum(first(x), 0)
        return np.maximum(second(y) + y, 0)

    return model


# By name: the model, its argument's shape but for the rows, and how many of its products are of bytes.
KINDS: dict[str, tuple[Callable[[], Any], tuple[int, ...], int]] = {
    "dense": (lambda: dense, (40,), 2),
    "panels": (lambda: of(nn.Linear(64, 130), 64), (64,), 1),
    "sequence": (lambda: of(nn.Linear(48, 24), 3, 48), (3, 48), 1),
    "columns_first": (lambda: product_of("bk,nk->nb", weights(19, 36), 36), (36,), 1),
    "two_sums": (lambda: product_of("bij,ijo->bo", weights(3, 20, 17), 3, 20), (3, 20), 1),
    "turned": (lambda: product_of("bki,kn->bin", weights(24, 16), 24, 5), (24, 5), 1),
    "convolution": (lambda: of(nn.Conv2d(32, 48, 3, padding=1), 32, 7, 6), (32, 7, 6), 1),
    "strided": (lambda: of(nn.Conv2d(16, 32, 3, stride=2, padding=1), 16, 9, 9), (16, 9, 9), 1),
    "grouped": (lambda: of(nn.Conv2d(64, 64, 3, groups=2), 64, 5, 5), (64, 5, 5), 1),
    "along_time": (lambda: of(nn.Conv1d(32, 16, 3), 32, 12), (32, 12), 1),
    "residual": (residual, (32, 6, 5), 2),
}


@pytest.fixture(scope="module")
def made() -> dict[str, tuple[Any, Any]]:
    """By name: the model and a sample."""
    return {name: (declared(), weights(3, *shape)) for name, (declared, shape, _) in KINDS.items()}


@pytest.fixture(scope="module")
def cases(made: dict[str, tuple[Any, Any]]) -> dict[str, tuple[Any, Any, Any]]:
    """Calibrated and not: the model, its sample, and inputs."""
    return {
        f"{name}_{kind}": (model, x if kind == "sampled" else None, x)
        for name, (model, x) in made.items()
        for kind in ("sampled", "rows")
    }


@pytest.fixture(scope="module")
def answers(cases: dict[str, tuple[Any, Any, Any]]) -> dict[str, tuple[Any, Any]]:
    """What the graph gives, and what it would without quantizing."""
    found = {}
    for name, (model, sample, x) in cases.items():
        module = passed(model, sample)
        assert len(module.quantized) == KINDS[name.rpartition("_")[0]][2], name
        (given,) = evaluate(module.graphs["forward"], {**module.slots, "x": x}).values()
        (exact,) = evaluate(module.declared["forward"], {**module.declared_slots, "x": x}).values()
        found[name] = given, exact
    return found


@pytest.mark.parametrize("isa", AVAILABLE)
def test_kernels_give_what_the_graph_does(
    isa: str, cases: dict[str, tuple[Any, Any, Any]], answers: dict[str, tuple[Any, Any]], tmp_path: Path
) -> None:
    """A number between two bytes may go to either, which few do."""
    programs = {
        name: compile_model(m, f"{name}.nn", Options(isas=(isa,), quantize="int8-all"), sample=s)
        for name, (m, s, _) in cases.items()
    }
    library = Library(programs, isa, tmp_path)
    for name, (_, _, x) in cases.items():
        (found,) = library.call(name, "forward", {"x": x}, {"batch": len(x)}).values()
        given, exact = answers[name]
        largest, moved = np.abs(exact).max(), np.abs(given - exact).max()
        assert 1e-5 * largest < moved < 0.03 * largest, name
        assert np.median(np.abs(found - given)) <= 1e-6 * largest, name
        assert np.abs(found - given).max() <= 2 * moved, name


def pairs_of(*pairs: tuple[int, int]) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Whole numbers, of which neighbours in a sum are one of these pairs."""
    chosen = np.array([(-127, 0), (127, 0), *pairs])[draw.integers(2 + len(pairs), size=(256, 16))]
    chosen[0] = 127, 0
    return np.transpose(chosen, (0, 2, 1)).reshape(512, 16).astype(np.float32)


# Whole weights, and whether the products of neighbours have sums of 16 bits: as large as may be, larger by 1, larger.
WHOLE = {
    "fit": (pairs_of((127, 1), (64, 64), (-1, -127), (-64, -64), (127, -127), (-127, 127)), True),
    "exceed": (pairs_of((64, 65)), False),
    "exceed below": (pairs_of((-64, -65)), False),
    "far": (pairs_of((127, 126), (-127, -126)), False),
}


@pytest.mark.parametrize("name", WHOLE)
def test_sums_are_exact_on_every_instruction_set(name: str, tmp_path: Path) -> None:
    """Of the largest bytes there are: where pairs are added in 16 bits, others would overflow."""
    w, pairs = WHOLE[name]
    model = product_of("bk,kn->bn", w, 512)
    sample = np.stack([np.zeros(512), np.full(512, 255)]).astype(np.float32)
    program = compile_model(model, "exact.nn", Options(isas=AVAILABLE, quantize="int8-all"), sample=sample)
    assert f"pairs={pairs}" in str(passed(model, sample).graphs["forward"])
    x = draw.integers(0, 256, (5, 512)).astype(np.float32)
    x[0] = 255
    for isa in AVAILABLE:
        (found,) = Library({"exact": program}, isa, tmp_path).call("exact", "forward", {"x": x}, {"batch": 5}).values()
        np.testing.assert_array_equal(found, x.astype(np.float64) @ w)


STEPS = 30


class Projected(nn.LSTM):
    """A layer whose state has no bounds."""

    def __init__(self, size: int, hidden: int, rng: int) -> None:
        super().__init__(size, hidden, proj_size=24, rng=rng)


class Rectified(nn.RNN):
    """The same, of one product."""

    def __init__(self, size: int, hidden: int, rng: int) -> None:
        super().__init__(size, hidden, nonlinearity="relu", rng=rng)


RECURRENT: dict[str, tuple[Any, tuple[tuple[float, float] | None, ...]]] = {  # and ranges without a sample
    "LSTM": (nn.LSTM, ((-1, 1), None)),
    "GRU": (nn.GRU, ((-1, 1), None)),
    "RNN": (nn.RNN, ((-1, 1), None)),
    "Projected": (Projected, (None, (-1, 1), None)),
    "Rectified": (Rectified, (None, None)),
}


def recurrent(name: str) -> tuple[Any, Any]:
    """A layer with weights of usual sizes, and the model of it."""
    layer = RECURRENT[name][0](40, 48, rng=1)

    @mlaot.model(parameters=layer)
    def model(x: mlaot.f32[STEPS, BATCH, 40]):
        return layer(x)[0]

    return layer, model


def steps_of(layer: Any, x: Any) -> Any:
    """What a layer computes, in float64 and step by step."""

    def sigmoid(z: Any) -> Any:
        return 1 / (1 + np.exp(-z))

    kinds = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
    held = [getattr(layer, f"{kind}_l0", None) for kind in kinds]
    wx, wh, bx, bh, wr = (None if a is None else a.array.astype(np.float64) for a in held)
    h, c, out = np.zeros((x.shape[1], wh.shape[1])), np.zeros((x.shape[1], 48)), []
    for each in x.astype(np.float64):
        a, b = (np.split(z, len(wh) // 48, axis=1) for z in (each @ wx.T + bx, h @ wh.T + bh))
        if len(a) == 4:
            c = sigmoid(a[1] + b[1]) * c + sigmoid(a[0] + b[0]) * np.tanh(a[2] + b[2])
            h = sigmoid(a[3] + b[3]) * np.tanh(c)
        elif len(a) == 3:
            z = sigmoid(a[1] + b[1])
            h = (1 - z) * np.tanh(a[2] + sigmoid(a[0] + b[0]) * b[2]) + z * h
        else:
            h = np.maximum(a[0] + b[0], 0) if isinstance(layer, Rectified) else np.tanh(a[0] + b[0])
        h = h if wr is None else h @ wr.T
        out.append(h)
    return np.stack(out)


@pytest.mark.parametrize("isa", AVAILABLE)
def test_recurrent_layers(isa: str, tmp_path: Path) -> None:
    """Answers are off by 3 % of the largest at most, on one row as on many."""
    x = draw.standard_normal((STEPS, 19, 40), np.float32)
    cases = {f"{name}_{kind}": recurrent(name) for name in RECURRENT for kind in ("rows", "sampled")}
    programs = {
        key: compile_model(
            model, f"{key}.nn", Options(isas=(isa,), quantize="int8"), sample=(x,) if "_s" in key else None
        )
        for key, (_, model) in cases.items()
    }
    library = Library(programs, isa, tmp_path)
    for key, (layer, _) in cases.items():
        for rows in (1, 19):
            (found,) = library.call(key, "forward", {"x": x[:, :rows]}, {"batch": rows}).values()
            exact = steps_of(layer, x[:, :rows])
            off = np.abs(found - exact).max() / np.abs(exact).max()
            assert 1e-4 < off < 0.03, (key, rows, off)


@pytest.mark.parametrize("name", RECURRENT)
def test_ranges_of_recurrent_layers(name: str) -> None:
    """Where the activations bound the state nothing is measured; a sample shows a smaller range in all rounds."""
    layer, model = recurrent(name)
    module = passed(model)
    assert tuple(product.range for product in module.quantized) == RECURRENT[name][1]
    assert module.quantized[0].weight == "weight_hh_l0"
    assert "contract(" not in str(module.graphs["forward"]) and "weight_hh" not in str(module.graphs["forward"])
    x = draw.standard_normal((STEPS, 40, 40), np.float32)
    shown = passed(model, (x,)).quantized
    state = steps_of(layer, x)[:-1]  # the last one is not multiplied
    assert shown[0].range == pytest.approx((state.min(), state.max()), rel=0.02)


def test_states_that_a_caller_gives() -> None:
    """They may be larger than any that the layer computes, so each call finds their range."""
    layer = nn.GRU(40, 48, rng=1)

    @mlaot.model(parameters=layer)
    def model(x: mlaot.f32[STEPS, BATCH, 40], h: mlaot.f32[1, BATCH, 48]):
        return layer(x, h)[0]

    module = passed(model)
    assert [product.range for product in module.quantized] == [None, None]
    x, h = draw.standard_normal((STEPS, 3, 40), np.float32), 3 * draw.standard_normal((1, 3, 48), np.float32)
    given = {"x": x, "h": h}
    found = evaluate(module.graphs["forward"], {**module.slots, **given})["out"]
    exact = evaluate(module.declared["forward"], {**module.declared_slots, **given}, wide=True)["out"]
    assert np.abs(found - exact).max() < 0.03 * np.abs(exact).max()


def test_recurrent_layers_that_would_be_slower() -> None:
    """Few units: the rule is that of other products."""
    layer = nn.Sequential(nn.Linear(64, 64))
    few = nn.RNN(64, 16, rng=1)

    @mlaot.model(parameters={"layer": layer, "few": few})
    def model(x: mlaot.f32[STEPS, BATCH, 64]):
        return few(layer(x))[0]

    module = run("nn", trace(model), Options(quantize="int8"))
    assert [product.weight for product in module.unquantized] == ["few.weight_hh_l0", "few.weight_ih_l0"]


def test_build_reports_and_holds_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    x = weights(20, 40)
    library = build_module(dense, "bytes", tmp_path, AVAILABLE, golden=True, quantize="int8", sample=x)
    said = capfd.readouterr().out
    assert "bytes.nn: 1 product with bytes; its weights take 1,320 of 5,280 bytes" in said
    assert "bytes.nn: 1 product stays float32, which is faster (int8-all takes it too)\n" in said
    assert re.search(r"  2: \S+ 33x18\n", said)
    assert re.search(r"  1: \S+ 40x33: weights off by 0\.\d+ %, times numbers in -[\d.]+\.\.[\d.]+\n", said)
    moved = re.search(r"int8 moves out by ([\d.]+) % of the largest element \(.*\) on 20 rows of the sample; the", said)
    module = load(library)
    exact, found = np.maximum(x @ W, 0) @ V + BIAS, np.asarray(module.forward(x))
    assert moved and float(moved[1]) == pytest.approx(100 * np.abs(exact - found).max() / np.abs(exact).max(), rel=0.05)
    assert set(module.selftest()) == set(AVAILABLE)


def test_a_worse_range_is_reported() -> None:
    """The report is not only about weights: a sample that says too little costs what it says."""
    good, bad = (list(quantization_report(passed(dense, weights(20, 40) * scale), ())) for scale in (1, 100))
    shares = [float(re.findall(r"moves out by ([\d.]+) %", "".join(lines))[0]) for lines in (good, bad)]
    assert max(shares) < 3
    x = weights(20, 40)
    narrow = passed(dense, x / 50)
    exact = evaluate(narrow.declared["forward"], {**narrow.declared_slots, "x": x})["out"]
    cut = evaluate(narrow.graphs["forward"], {**narrow.slots, "x": x})["out"]
    assert np.abs(cut - exact).max() > 0.2 * np.abs(exact).max()  # numbers beyond the sample's are cut off


def test_rounded_neighbours_share_the_range_of_a_byte() -> None:
    """So their products have sums of 16 bits; weights that are whole numbers stay as they are."""
    w = np.full((40, 16), 0.5, np.float32)
    w[::2, :4], w[:, 4:8], w[1::2, 8:12] = 0, -0.5, -0.5  # alone, of one sign, of two signs
    w[:, 12:] = weights(40, 4)
    module = passed(product_of("bk,kn->bn", w, 40))
    (words,) = (value for value in module.slots.values() if value.dtype == np.int32)
    rounded = np.ascontiguousarray(words[:10]).view(np.int8).reshape(10, 16, 4)
    assert [int(np.abs(rounded[:, n]).max()) for n in (0, 8)] == [127, 127]
    assert int(rounded[:, 4].min()) in (-63, -64)
    sums = [np.maximum(sign * rounded.reshape(10, 16, 2, 2).astype(int), 0).sum(-1).max() for sign in (1, -1)]
    assert max(sums) <= 128 and "pairs=True" in str(module.graphs["forward"])


def test_products_that_would_be_slower_stay_float32() -> None:
    """Numbers that are rounded or scaled back cost as much as 16 products each; windows read one many times."""

    def counts(declared: Any) -> tuple[int, int]:
        module = run("nn", trace(declared), Options(quantize="int8"))
        return len(module.quantized), len(module.unquantized)

    assert counts(of(nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 10)), 64)) == (1, 1)
    assert counts(of(nn.Sequential(nn.Conv2d(32, 32, 1), nn.Conv2d(32, 16, 1)), 32, 5, 5)) == (1, 1)
    assert counts(of(nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.Conv2d(32, 16, 3)), 32, 5, 5)) == (2, 0)


@mlaot.model
def small(x: mlaot.f32[BATCH, 5]):
    return x @ weights(5, 3)


@pytest.mark.parametrize(
    ("model", "sample", "said"),
    [
        (small, None, "but no product with frozen float32 weights sums 16 or more terms; leave the key out"),
        (dense, np.ones((3, 39)), "the sample's x is of shape (3, 39), expected f32[batch,40]"),
        (dense, np.ones(40), "the sample's x is float64 of shape (40,), expected f32[batch,40]"),
        (dense, np.array([["a"] * 40]), "the sample's x is <U1 of shape (1, 40), expected f32[batch,40]"),
        (dense, (np.ones((1, 40)),) * 2, "the sample has 2 arrays, and the model takes 1: x"),
        (dense, {"y": np.ones((1, 40))}, "the sample has arrays for y, and the model takes x"),
        (dense, np.full((1, 40), np.nan), "with the sample, a value of the model is nan"),
    ],
)
def test_mistakes(model: Any, sample: Any, said: str) -> None:
    with pytest.raises(MlaotError, match=re.escape(said)):
        passed(model, sample)


def test_nothing_that_is_faster() -> None:
    said = "but no product with frozen float32 weights is faster with bytes; leave the key out, or choose 'int8-all'"
    with pytest.raises(MlaotError, match=re.escape(said)):
        run("nn", trace(of(nn.Linear(64, 10), 64)), Options(quantize="int8"))


def test_training_is_refused() -> None:
    net = nn.Linear(32, 32)

    @mlaot.model(loss=np.sum, parameters=net)
    def model(x: mlaot.f32[BATCH, 32]):
        return net(x)

    with pytest.raises(MlaotError, match="is for weights that are frozen, and this model trains; leave the key out"):
        passed(model)


def test_a_sample_may_be_made_by_a_function() -> None:
    def sample() -> dict[str, Any]:
        return {"x": np.ones((2, 40))}

    assert passed(dense, sample).quantized[0].range == (0, 1)
