"""Weights in 8 and 4 bits with scales for groups: which ones, how they are rounded, and kernels that multiply them."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlaot
import mlaot.nn as nn
import mlaot.onnx
from mlaot.errors import MlaotError
from mlaot.evaluate import evaluate
from mlaot.frontend.trace.tensor import parameters
from mlaot.generate import compile_model
from mlaot.ir.module import Module
from mlaot.ir.types import round_bf16
from mlaot.loading import trace
from mlaot.lower.program import Program
from mlaot.ops.quantized import pack_fields, unpack_fields
from mlaot.passes import run
from mlaot.passes.frozen.group_weights import BITS, GROUP_WEIGHTS, round_groups
from mlaot.settings.options import Options

from ...compiled import AVAILABLE, Array, Library
from ...projects import build_module, load

batch, n = mlaot.dim("batch"), mlaot.dim("n")
draw = np.random.default_rng(7)
# An odd last group, and columns that fill no vector; a row of outputs and a sum of whole groups.
W, V = (draw.standard_normal(shape, np.float32) for shape in ((300, 275), (275, 256)))
BIAS = draw.standard_normal(275, np.float32)
TABLE = draw.standard_normal((256, 320), np.float32)
TIED = parameters({"table": TABLE})


def passed(declared: Any, dtype: str = "int8") -> Module:
    return run("nn", trace(declared), Options(weights_dtype=dtype))


def ops(module: Module, entry: str = "forward") -> list[str]:
    return [node.op.name for node in module.graphs[entry].nodes()]


@mlaot.model
def dense(x: mlaot.f32[batch, 300]) -> Any:
    return np.maximum(x @ W + BIAS, 0)


@mlaot.model
def one(x: mlaot.f32[300]) -> Any:
    return W.T @ x


@mlaot.model
def rows(x: mlaot.f32[batch, 5, 275]) -> Any:
    return np.tanh(x @ V)


@pytest.mark.parametrize("bits", [4, 8])
def test_fields_are_packed_and_unpacked(bits: int) -> None:
    numbers = draw.integers(-(2 ** (bits - 1)), 2 ** (bits - 1), (64, 5)).astype(np.int8)
    words = pack_fields(numbers, bits)
    assert words.shape == (2 * bits, 5) and words.dtype == np.int32
    np.testing.assert_array_equal(unpack_fields(words, bits), numbers)


def dequantized(w: Array, bits: int) -> Array:
    rounded, scales = round_groups(w, bits)
    return (rounded.reshape(len(scales), -1, w.shape[1]) * scales[:, None].astype(np.float64)).reshape(-1, w.shape[1])[
        : len(w)
    ]


@pytest.mark.parametrize("bits", [4, 8])
def test_weights_are_rounded_to_the_nearest_in_each_group(bits: int) -> None:
    w = W * np.exp2(draw.integers(-90, 90, W.shape[1])).astype(np.float32)
    rounded, scales = round_groups(w, bits)
    assert rounded.shape == (320, 275) and scales.shape == (10, 275)
    assert rounded.min() == -(2 ** (bits - 1)) and rounded.max() == 2 ** (bits - 1) - 1 and not rounded[300:].any()
    np.testing.assert_array_equal(round_bf16(scales), scales)
    steps = np.repeat(np.abs(scales), GROUP_WEIGHTS, axis=0)[:300]
    errors = np.abs(dequantized(w, bits) - w) / steps
    # Off by half a step, but for numbers beyond the end of the range that is opposite to the farthest one's.
    assert errors.max() <= 1.05 and np.mean(errors > 0.5) < 0.02
    assert np.sqrt(np.mean(errors**2)) < 0.31


@pytest.mark.parametrize("bits", [4, 8])
def test_groups_of_zeros_and_of_tiny_numbers(bits: int) -> None:
    w = np.zeros((64, 3), np.float32)
    w[:, 1], w[:32, 2] = 1e-44, -1e38
    found = dequantized(w, bits)
    assert np.isfinite(found).all() and not found[:, 0].any() and np.abs(found[:, 1]).max() < 1e-38
    np.testing.assert_allclose(found[:, 2], w[:, 2], rtol=0.01)


def test_layers_have_scaled_rows_and_words() -> None:
    module = passed(dense)
    found = ops(module)
    assert found.count("contract_groups") == found.count("quantize") == 1 and "contract" not in found
    (words,) = module.grouped
    assert module.parameters[words].shape == (10, 8, 275)
    assert module.grouped[words] == 4 * 300 * 275 - 4 * 80 * 275 - 4 * 10 * 275
    assert [(module.parameters[name].shape, str(dtype)) for name, dtype in module.narrow.items()] == [
        ((10, 275), "bf16")
    ]
    assert [v.shape for v in passed(dense, "int4").parameters.values() if v.dtype == np.int32] == [(10, 4, 275)]


def test_layers_of_equal_inputs_share_their_rounded_rows() -> None:
    @mlaot.model
    def both(x: mlaot.f32[batch, 300]) -> Any:
        return x @ W, np.tanh(x @ W[:, ::-1])

    found = ops(passed(both))
    assert found.count("contract_groups") == 2 and found.count("quantize") == 1


def test_other_weights_stay() -> None:
    """Small ones, of few inputs, a table that a layer reads too, convolutions, numbers that are not finite."""
    narrow, infinite = W[:, :255].copy(), W.copy()
    infinite[0, 0] = np.inf
    kernel, few = (draw.standard_normal(shape, np.float32) for shape in ((256, 300, 1, 1), (40, 2048)))

    @mlaot.model
    def several(x: mlaot.f32[batch, 300], image: mlaot.f32[batch, 300, 4, 4], i: mlaot.i32[batch]) -> Any:
        kept = x @ narrow, x[:, :40] @ W[:40], x @ infinite, x[:, :40] @ few, nn.functional.conv2d(image, kernel)
        return *kept, np.take(TIED["table"], i, axis=0), x[:, :256] @ TIED["table"]

    module = passed(several)
    found = ops(module)
    assert found.count("contract_groups") == 1 and found.count("contract") == 5
    np.testing.assert_array_equal(module.parameters["table"], TABLE)


@pytest.mark.parametrize("dtype", BITS)
@pytest.mark.parametrize("tied", [True, False])
def test_tables_are_read_in_groups(dtype: str, tied: bool, tmp_path: Path) -> None:
    """Once for a product and for rows; also rows alone, beside a product of another weight."""

    @mlaot.model
    def both(x: mlaot.f32[batch, 320], i: mlaot.i64[n], j: mlaot.i32[2, n]) -> Any:
        table = TIED["table"]
        return x @ (table.T if tied else TABLE[:, ::-1].T), table[i], table[j] * 2

    module = passed(both, dtype)
    found = ops(module)
    assert found.count("contract_groups") == 1 and len(module.grouped) == (1 if tied else 2)
    assert not {name for name in module.graphs["forward"].inputs if module.parameters.get(name, W).shape == TABLE.shape}
    library = load(build_module(both, f"tables{tied:d}_{dtype}", tmp_path / "site", weights_dtype=dtype))
    indices = np.array([[3, -1, 255, 0], [0, 17, 17, 200]])
    x = draw.standard_normal((2, 320), np.float32)
    _, rows, doubled = map(np.asarray, library.forward(x, indices[0], indices.astype(np.int32)))
    expected = dequantized(np.ascontiguousarray(TABLE.T), BITS[dtype]).T.astype(np.float32)
    np.testing.assert_array_equal(rows, expected[indices[0]])
    np.testing.assert_array_equal(doubled, 2 * expected[indices])


def test_entries_share_weights() -> None:
    net = nn.Linear(300, 275, bias=False)

    @mlaot.model(parameters=net)
    def model(x: mlaot.f32[batch, 300]) -> Any:
        return net(x)

    @model.entry
    def squares(x: mlaot.f32[n, 4, 300]) -> Any:
        return net(x) ** 2

    module = passed(model)
    assert ops(module).count("contract_groups") == ops(module, "squares").count("contract_groups") == 1
    assert len(module.grouped) == 1


def test_layers_of_onnx_files() -> None:
    onnx = pytest.importorskip("onnx")
    nodes = [
        onnx.helper.make_node("Gemm", ["x", "w", "b"], ["h"], transB=1),
        onnx.helper.make_node("MatMul", ["h", "v"], ["y"]),
    ]
    infos = [onnx.helper.make_tensor_value_info(name, 1, ["rows", n]) for name, n in (("x", 300), ("y", 256))]
    held = [onnx.numpy_helper.from_array(a, name) for a, name in ((W.T.copy(), "w"), (BIAS, "b"), (V, "v"))]
    graph = onnx.helper.make_graph(nodes, "g", infos[:1], infos[1:], held)
    file = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=8)
    assert ops(passed(mlaot.onnx.load(file))).count("contract_groups") == 2


def test_models_without_such_layers_are_refused() -> None:
    @mlaot.model
    def small(x: mlaot.f32[batch, 64]) -> Any:
        return x @ W[:64, :64]

    with pytest.raises(
        MlaotError, match=r"weights_dtype = 'int4', but no dense layer has 256 outputs and 65,536 frozen"
    ):
        passed(small, "int4")
    net = nn.Linear(300, 256)

    @mlaot.model(loss=np.sum, parameters=net)
    def trains(x: mlaot.f32[batch, 300]) -> Any:
        return net(x)

    with pytest.raises(
        MlaotError, match="weights_dtype = 'int8' is for weights that are frozen, and this model trains"
    ):
        passed(trains)


class Deep(nn.Module):
    """Layers whose weights lie either way, one that is read twice, and one that is small."""

    def __init__(self) -> None:
        self.first, self.second = mlaot.Parameter("first", W), nn.Linear(275, 275, rng=1)
        self.last = nn.Linear(275, 10, rng=2)

    def forward(self, x: Any) -> Any:
        x = np.tanh(self.second(np.tanh(x @ self.first / 17)))
        return self.last(np.tanh(self.second(x)))


def adapted() -> tuple[Any, Deep]:
    net = Deep()

    def model(x: mlaot.f32[batch, 300]) -> Any:
        return net(x)

    return mlaot.lora(mlaot.model(model, loss=lambda y: (y**2).mean(), parameters=net), rank=2), net


@pytest.mark.parametrize("dtype", BITS)
def test_steps_that_train_adapters_read_the_same_integers(dtype: str) -> None:
    """They are there once; a step's gradients are those of the dequantized weights, in float32."""
    declared, net = adapted()
    module = passed(declared, dtype)
    bits = BITS[dtype]
    steps = {name: ops(module, name) for name in ("train_step", "accumulate", "loss", "forward")}
    assert [ops.count("contract_groups") for ops in steps.values()] == [0, 0, 3, 3]
    read = {name for graph in module.graphs.values() for name in graph.inputs}
    assert len(module.grouped) == 2 and not read & {"first", "second.weight"}
    net.first.array = dequantized(W, bits).astype(np.float32)
    net.second.weight = dequantized(np.asarray(net.second.weight).T, bits).T.astype(np.float32)
    exact = passed(declared, "")
    starts = {name: draw.standard_normal(array.shape, np.float32) / 9 for name, array in module.trained.items()}
    zeros = {f"gradient({name})": np.zeros_like(array) for name, array in starts.items()}
    found, wanted = (
        evaluate(m.graphs["accumulate"], {**m.slots, **starts, **zeros, "x": inputs("dense", 3)})
        for m in (module, exact)
    )
    assert len(zeros) == 6 and all(np.any(wanted[f"write {name}"]) for name in zeros)
    for name, answer in wanted.items():
        np.testing.assert_allclose(found[name], answer, rtol=1e-3, atol=1e-4 * np.abs(answer).max(), err_msg=name)
    served, answer = (
        evaluate(m.graphs["forward"], {**m.slots, **starts, "x": inputs("dense", 3)})["out"] for m in (module, exact)
    )
    close = {8: 2e-3, 4: 2e-2}[bits]  # rows are rounded to 16 bits, or 8
    np.testing.assert_allclose(served, answer, rtol=0, atol=close * np.abs(answer).max())


def test_adapters_of_grouped_weights_learn(tmp_path: Path) -> None:
    """Compiled, with golden vectors; int8 moves the outputs of the base by little."""
    declared, net = adapted()
    model = load(build_module(declared, "deep", tmp_path / "site", golden=True, weights_dtype="int8"))
    x = inputs("dense", 8)
    answer = net(x)
    np.testing.assert_allclose(np.asarray(model.forward(x)), answer, rtol=0, atol=0.02 * np.abs(answer).max())
    before = model.loss(x)
    for _ in range(20):
        model.train_step(x, 1.0)
    assert model.loss(x) < 0.7 * before
    assert max(model.selftest().values()) < 1


MODELS = {"dense": dense, "one": one, "rows": rows}


@cache
def programs(*, deterministic: bool = False) -> dict[str, Program]:
    return {
        f"{name}_{dtype}": compile_model(
            model, f"{name}_{dtype}.nn", Options(isas=AVAILABLE, weights_dtype=dtype, deterministic=deterministic)
        )
        for name, model in MODELS.items()
        for dtype in BITS
    }


@pytest.fixture(scope="session")
def libraries(shared_folder: Path) -> dict[str, Library]:
    return {isa: Library(programs(), isa, shared_folder / f"groups_{isa}") for isa in AVAILABLE}


def inputs(name: str, rows: int) -> Array:
    """Rows with outliers, and one of zeros where there are several."""
    shape = {"dense": (rows, 300), "one": (rows, 300), "rows": (rows, 5, 275)}[name]
    x = np.random.default_rng(rows).standard_normal(shape, np.float32)
    x[..., 7] *= 100
    x[1:2] = 0
    return x


def exact(name: str, x: Array, bits: int) -> tuple[Array, Array]:
    """What a layer gives for the dequantized weights, and how far rounding rows may move its sums."""
    weights = V if name == "rows" else W
    w = dequantized(weights, bits)
    wide = x.astype(np.float64)
    groups = np.pad(np.abs(wide), [(0, 0)] * (x.ndim - 1) + [(0, -x.shape[-1] % GROUP_WEIGHTS)])
    largest = groups.reshape(*x.shape[:-1], -1, GROUP_WEIGHTS).max(axis=-1)
    steps = np.repeat(largest / {8: 32767, 4: 127}[bits], GROUP_WEIGHTS, axis=-1)[..., : x.shape[-1]]
    sums = wide @ w
    bound = steps @ np.abs(w) * 0.51 + 1e-6 * (np.abs(wide) @ np.abs(w))
    return {"dense": lambda: np.maximum(sums + BIAS, 0), "one": lambda: sums, "rows": lambda: np.tanh(sums)}[
        name
    ](), bound


@pytest.mark.parametrize("isa", AVAILABLE)
@pytest.mark.parametrize("dtype", BITS)
@pytest.mark.parametrize("name", MODELS)
def test_kernels_multiply_them(name: str, dtype: str, isa: str, libraries: dict[str, Library]) -> None:
    """As exactly as rounded rows are; a row's answer does not depend on others, nor on threads."""
    for count in (1, 2, 3, 5, 8, 19):
        x = inputs(name, count)
        call = libraries[isa].call
        (found,) = call(f"{name}_{dtype}", "forward", {"x": x}, {"batch": count}).values()
        answers, bound = exact(name, x, BITS[dtype])
        assert (np.abs(found - answers) <= bound + 1e-6).all()
        (whole,) = call(f"{name}_{dtype}", "forward", {"x": x}, {"batch": count}, parts=False).values()
        (last,) = call(f"{name}_{dtype}", "forward", {"x": x[-1:]}, {"batch": 1}).values()
        assert found.tobytes() == whole.tobytes() and found[-1:].tobytes() == last.tobytes()


@pytest.mark.parametrize("dtype", BITS)
def test_numbers_that_are_not_finite_stay_so(dtype: str, libraries: dict[str, Library]) -> None:
    x = inputs("dense", 4)
    x[0, 3], x[2, 299] = np.nan, np.inf
    (found,) = libraries[AVAILABLE[-1]].call(f"one_{dtype}", "forward", {"x": x}, {"batch": 4}).values()
    assert not np.isfinite(found[[0, 2]]).any() and np.isfinite(found[[1, 3]]).all()


def test_deterministic_kernels_give_one_set_of_bits(shared_folder: Path) -> None:
    made = programs(deterministic=True)
    found: dict[str, set[bytes]] = {}
    for isa in AVAILABLE:
        library = Library(made, isa, shared_folder / f"groups_deterministic_{isa}", ("-ffp-contract=off",))
        for stem in made:
            x = inputs(stem.partition("_")[0], 7)
            (answer,) = library.call(stem, "forward", {"x": x}, {"batch": 7}).values()
            found.setdefault(stem, set()).add(answer.tobytes())
    assert all(len(answers) == 1 for answers in found.values())


def test_passes_keep_the_meaning() -> None:
    """The graph's own references give the product with dequantized weights."""
    module = passed(dense, "int4")
    x = inputs("dense", 3)
    given = {name: module.parameters[name] for name in module.graphs["forward"].inputs if name != "x"}
    (found,) = evaluate(module.graphs["forward"], {"x": x, **given}, dims={"batch": 3}).values()
    answers, bound = exact("dense", x, 4)
    assert (np.abs(found - answers) <= bound + 1e-6).all()


@pytest.mark.parametrize("dtype", BITS)
def test_build_says_what_it_did(dtype: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Golden vectors are those of the rounded model, on every instruction set."""
    library = build_module(dense, "narrow", tmp_path / "site", AVAILABLE, golden=True, weights_dtype=dtype)
    saved = 4 * 300 * 275 - (320 * 275 * BITS[dtype] // 8 + 2 * 10 * 275)
    said = rf"mlaot: narrow\.nn: weights as {dtype} save {saved:,} bytes; they move forward by [\d.]+ % of the largest"
    assert re.search(said, capfd.readouterr().out)
    shares = load(library).selftest()
    assert set(shares) == set(AVAILABLE) and max(shares.values()) < 0.5
