"""Modules of PyTorch as models: what is followed, what things are called, and how what cannot be is said."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import passes
from mlaot.errors import MlaotError
from mlaot.evaluate import evaluate
from mlaot.loading import load_sample
from mlaot.settings import ModelSettings, Settings


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "mlaot.torch", raising=False)
    with pytest.raises(MlaotError, match=r"needs the packages torch and onnxscript: pip install (torch|onnxscript)"):
        importlib.import_module("mlaot.torch")


@pytest.fixture(scope="module")
def torch() -> Any:
    pytest.importorskip("onnxscript")
    found = pytest.importorskip("torch")
    importlib.import_module("mlaot.torch")
    return found


def module(torch: Any, forward: Any, **parts: Any) -> Any:
    """A module whose ``forward`` is that function."""
    made = type("Net", (torch.nn.Module,), {"forward": forward})()
    for name, part in parts.items():
        setattr(made, name, part)
    return made


def load(*arguments: Any, **options: Any) -> Any:
    return sys.modules["mlaot.torch"].load(*arguments, **options)


def types(declared: Any) -> tuple[dict[str, str], dict[str, str]]:
    """Those of inputs and outputs."""
    traced = declared.trace()
    inputs = {name: str(traced.graph.inputs[name].type) for name in traced.arguments}
    return inputs, {name: str(node.type) for name, node in traced.graph.outputs.items()}


def test_names_of_inputs_outputs_and_weights(torch: Any) -> None:
    def forward(self: Any, image: Any, mask: Any = None, output: Any = None) -> Any:
        found = self.norm(self.dense(image)) * mask[:, None]
        return {"scores": found, "parts": [found + output, None]}

    net = module(torch, forward, dense=torch.nn.Linear(3, 4), norm=torch.nn.BatchNorm1d(4))
    sample = {"output": torch.zeros(1, 4), "mask": np.zeros(1, np.float32), "image": torch.zeros(1, 3)}
    declared = load(net, sample)
    assert not net.training
    assert types(declared) == (
        {"image": "f32[batch,3]", "mask": "f32[batch]", "output": "f32[batch,4]"},
        {"scores": "f32[batch,4]", "parts_0": "f32[batch,4]"},
    )
    traced = declared.trace()
    state = {name: value.numpy() for name, value in net.state_dict().items() if value.ndim}
    assert traced.parameters.keys() == state.keys()
    rng = np.random.default_rng(0)
    given = {
        "image": rng.random((5, 3), np.float32),
        "mask": rng.random(5, np.float32),
        "output": np.ones((5, 4), "f4"),
    }
    found, wanted = evaluate(traced.graph, given | traced.parameters), declared.references["torch"](given)
    for name in ("scores", "parts_0"):
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-5, atol=1e-6)


def test_sizes_of_dims(torch: Any) -> None:
    net = torch.nn.Conv2d(3, 4, 3, 2, 1)
    batch, height = mlaot.dim("batch"), mlaot.dim("height")
    sample = mlaot.f32[batch, 3, 8 * height, 16]
    assert types(load(net, sample))[1] == {"output": "f32[batch,4,height * 4,8]"}
    assert types(load(net, sample, dims={"height": 2, "batch": 1}))[1] == {"output": "f32[1,4,8,8]"}
    with pytest.raises(MlaotError, match=r"^Conv2d: no dimension is called 'hight'; did you mean 'height'\?"):
        load(net, sample, dims={"hight": 2})


def doubled(self: Any, x: Any) -> Any:
    """What is halved four times, rounding up, and doubled once fits multiples of 16."""
    fine = self.down(self.down(self.down(x)))
    return self.library.cat([self.grow(self.down(fine)), fine], 1)


def boxes(self: Any, x: Any) -> Any:
    """Sizes that PyTorch writes with one division where it reshapes."""
    x = self.down(self.down(x)).permute(0, 2, 3, 1).flatten(1, 2)
    return x.reshape(x.shape[0], -1, 1).softmax(1)


def padded(self: Any, x: Any) -> Any:
    """What a halved image lacks when it is doubled again is added."""
    y = self.grow(self.shrink(x))
    lacks = [long - short for long, short in zip(x.shape[2:], y.shape[2:], strict=True)]
    return self.library.nn.functional.pad(y, (lacks[1] // 2, lacks[1] - lacks[1] // 2, 0, lacks[0])) - x


def cropped(self: Any, x: Any) -> Any:
    return x[:, :, -8:]


def pooled(self: Any, x: Any) -> Any:
    pool = self.library.nn.functional
    return pool.adaptive_avg_pool2d(x, (2, 3)) + pool.adaptive_avg_pool1d(x.flatten(1, 2), 3)[:, None, :2]


OPEN = {  # what the open axes of the input come to be, sizes that fit
    "doubled": (doubled, "f32[1,3,h * 16,w * 16]", [(16, 32), (48, 16)]),
    "boxes": (boxes, "f32[1,3,h,w]", [(1, 1), (6, 9), (8, 7)]),
    "padded": (padded, "f32[1,3,h,w]", [(2, 2), (5, 6), (8, 7)]),
    "cropped": (cropped, "f32[1,3,h,w]", [(8, 1), (11, 3)]),
    "pooled": (pooled, "f32[1,3,h,w]", [(1, 1), (2, 3), (5, 7), (8, 4)]),
}


@pytest.mark.parametrize("name", OPEN)
def test_images_of_any_size(torch: Any, name: str) -> None:
    forward, wanted, sizes = OPEN[name]
    parts = {
        "down": torch.nn.Conv2d(3, 3, 3, 2, 1),
        "shrink": torch.nn.MaxPool2d(2),
        "grow": torch.nn.Upsample(None, 2),
    }
    height, width = map(mlaot.dim, "hw")
    declared = load(module(torch, forward, library=torch, **parts), mlaot.f32[1, 3, height, width])
    assert types(declared)[0] == {"x": wanted}
    traced = declared.trace()
    for size in sizes:
        given = {"x": np.random.default_rng(0).random((1, 3, *size), np.float32)}
        found, expected = evaluate(traced.graph, given | traced.parameters), declared.references["torch"](given)
        np.testing.assert_allclose(found["output"], expected["output"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.0, float("inf")])
@pytest.mark.parametrize("mode", ["use_mm_for_euclid_dist_if_necessary", "donot_use_mm_for_euclid_dist"])
def test_distances_of_all_pairs(torch: Any, p: float, mode: str) -> None:
    points = torch.nn.Parameter(torch.randn(30, 5, generator=torch.Generator().manual_seed(0)))
    net = module(torch, lambda self, x: torch.cdist(x, self.points, p=p, compute_mode=mode), points=points)
    declared = load(net, mlaot.f32[mlaot.dim("batch"), 5])
    traced = declared.trace()
    given = {"x": np.concatenate([np.random.default_rng(0).random((40, 5), np.float32), points.detach().numpy()[:3]])}
    found, expected = evaluate(traced.graph, given | traced.parameters), declared.references["torch"](given)
    # PyTorch takes squares apart where there are many rows, and finds no exact 0.
    np.testing.assert_allclose(found["output"], expected["output"], rtol=1e-5, atol=2e-3 if p == 2 else 1e-6)


def test_positions_are_fewer_than_the_export_tries(torch: Any) -> None:
    net = module(torch, lambda self, x: x + self.table[: x.shape[1]], table=torch.nn.Parameter(torch.ones(40, 6)))
    declared = load(net, mlaot.f32[2, mlaot.dim("time"), 6])
    assert types(declared)[1] == {"output": "f32[2,time,6]"}


def test_what_is_made_for_one_size_is_refused(torch: Any) -> None:
    net = module(torch, lambda self, x: torch.nn.functional.adaptive_max_pool2d(x, 4))
    height, width = map(mlaot.dim, "hw")
    with pytest.raises(MlaotError, match=r"axis 2 of x cannot be open: forward, or a layer of torch, takes 192 for"):
        load(net, mlaot.f32[1, 3, height, width])


def test_a_batch_that_forward_asks_for(torch: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert types(load(module(torch, lambda self, x: x + torch.ones(len(x), 1)), torch.zeros(1, 3)))[0] == {
        "x": "f32[batch,3]"
    }
    assert types(load(module(torch, lambda self, x: x + torch.ones(4, 1)), torch.zeros(4, 3)))[0] == {"x": "f32[4,3]"}
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("mlaot: Net: for batches of 4 only, as the sample has: ")


def test_a_name_that_a_buffer_shares_with_an_operator(torch: Any) -> None:
    net = module(torch, lambda self, x: x[:, self.index])
    net.register_buffer("index", torch.tensor([2, 0]))
    assert types(load(net, torch.zeros(2, 3)))[1] == {"output": "f32[batch,2]"}


def branching(self: Any, x: Any) -> Any:
    return x if x.sum() > 0 else -x


def counting(self: Any, x: Any) -> Any:
    self.count += 1
    return x + self.count


def sorting() -> Any:
    def forward(self: Any, x: Any) -> Any:  # PyTorch notes the lines of functions of this name only
        return x.median(0)[0]

    return forward


WRONG = {
    "if": (branching, r"^test_torch.py:\d+: an `if`, a loop or a shape depends on computed numbers; choose by"),
    "shapes": (lambda self, x: x @ x, r"^test_torch.py:\d+: torch cannot export it: a and b must have same reduction"),
    "operator": (sorting(), r"^test_torch.py:\d+: torch.onnx has no aten.median; compute it by other operations$"),
    "buffer": (counting, r"^Net: forward writes the buffer 'count'; make it an argument and a result$"),
    "constant": (lambda self, x: (x, 3), r"^Net: forward gives the constant 3 besides arrays; leave it out$"),
    "shape of data": (lambda self, x: x[x > 0], r"NonZero.*depends on the data"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_line_for_what_cannot_be(torch: Any, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    forward, said = WRONG[name]
    net = module(torch, forward)
    net.register_buffer("count", torch.zeros(1))
    with pytest.raises(MlaotError, match=said) as raised:
        load(net, torch.zeros(2, 3)).trace()
    assert len(str(raised.value).splitlines()) == 1
    assert not "".join(capfd.readouterr())


def test_what_is_no_module(torch: Any) -> None:
    with pytest.raises(MlaotError, match=r"expected a torch.nn.Module, got type; call it to make a module"):
        load(torch.nn.Linear, torch.zeros(1, 3))
    with pytest.raises(MlaotError, match=r"got OrderedDict; make the module, and give it these by its load_state_dict"):
        load(torch.nn.Linear(3, 2).state_dict(), torch.zeros(1, 3))


def test_a_sample_is_needed(torch: Any) -> None:
    model = ModelSettings("nn", torch="model:net", module="reader.nn")
    with pytest.raises(MlaotError, match=r"no key 'sample' in \[tool.mlaot.models.nn\].*sample = 'model:sample'"):
        sys.modules["mlaot.torch"].declare_from_settings(
            Settings("reader", ".", models=(model,), project=Path()), model
        )


def test_bytes_of_the_ranges_that_a_sample_shows(torch: Any) -> None:
    net = module(torch, lambda self, x: self.dense(x), dense=torch.nn.Linear(32, 16))
    settings, model = (
        Settings("net", ".", (), ("base",)),
        ModelSettings("nn", torch="model:net", module="net.nn", quantize="int8-all"),
    )
    x = torch.linspace(-2, 3, 64).reshape(2, 32)
    declared = load(net, x)
    sample = load_sample(settings, model, declared)
    (product,) = passes.run("nn", declared.trace(), settings.options(model), sample=sample).quantized
    assert product.range == (-2, 3) and product.shape == (32, 16)
    assert load_sample(settings, model, load(net, mlaot.f32[mlaot.dim("batch"), 32])) is None
