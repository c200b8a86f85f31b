"""``deterministic = true``: one set of bits on every instruction set, with every compiler.

Whatever this machine has of instruction sets and compilers (gcc, clang, zig) is compared with the baseline by gcc. Of
nan only that it is one is compared: processors and compilers are free to choose its sign and payload.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import nn, optim, random
from mlaot.build.platforms import parse_platform
from mlaot.build.toolchain import compile_module, find_toolchain
from mlaot.generate import compile_model
from mlaot.ir.module import Module
from mlaot.lower.lower import lower
from mlaot.lower.program import Entry, Port, Program
from mlaot.micrograd import MLP, Value, declare
from mlaot.nn import functional as F
from mlaot.passes.algebra.legalize import legalize
from mlaot.passes.algebra.upcast import upcast
from mlaot.settings.options import Options

from .. import projects
from ..compiled import AVAILABLE, CALLER_DTYPES, CC, Library, State, evaluate_dim
from ..ops.samples import Sample
from ..ops.test_c import ELEMENTWISE, graph_of, special_cases

Array = np.ndarray[Any, Any]
FLOATS = {"f32": mlaot.f32, "f64": mlaot.f64}
LENGTHS = {"f32": (1, 17, 65, 300), "f64": (3, 31)}  # of rows
SIZES = {"f32": ((1, 1), (20, 10), (33, 50), (300, 17)), "f64": ((37, 11),)}  # of matrices
WIDTHS = (0, 1, 5, 23, 64, 300, 1030)  # what a named dim may be
STEPS = 4  # of a training
n, batch = mlaot.dim("n"), mlaot.dim("batch")


def compilers() -> dict[str, str]:
    """The compilers of this machine, as commands; zig compiles for the CPU it runs on unless told."""
    found = {"gcc": CC}
    if shutil.which("clang"):
        found["clang"] = "clang"
    if importlib.util.find_spec("ziglang") is not None and sys.platform == "linux":
        found["zig"] = f"{sys.executable} -m ziglang cc -target {os.uname().machine}-linux-gnu -fno-sanitize=undefined"
    return found


COMPILERS = compilers()
PATHS = [(cc, isa) for cc in COMPILERS for isa in AVAILABLE if cc == "gcc" or isa in (AVAILABLE[0], AVAILABLE[-1])]


# ---------------------------------------------------------------------------------------------------------- the models


def declared(function: Callable[..., Any], parameters: Any = None, **types: Any) -> Any:
    """A function as a model that is not trained."""
    function.__annotations__ = types
    return mlaot.model(function, parameters=parameters)


def rows_of(x: Any) -> dict[str, Any]:
    """Everything that goes along rows, or across them."""
    return {
        "sum": x.sum(axis=-1),
        "max": x.max(axis=-1),
        "min": x.min(axis=-1),
        "mean": x.mean(axis=-1),
        "spread": np.var(x, axis=-1),
        "softmax": mlaot.softmax(x),
        "logsumexp": mlaot.logsumexp(x, axis=-1),
        "norm": F.layer_norm(x, x.shape[-1:]) if isinstance(x.shape[-1], int) else x / x.sum(axis=-1, keepdims=True),
        "gelu": mlaot.gelu(x),
        "columns": x.sum(axis=0),
        "highest": x.max(axis=0),
        "all": x.sum(),
        "running": np.cumsum(x, axis=-1),
        "where": np.argmax(x, axis=-1),
    }


@cache
def models() -> dict[str, Any]:
    """Declarations by name."""
    found: dict[str, Any] = {}
    rng = np.random.default_rng(3)
    for name, dtype in FLOATS.items():
        for length in (*LENGTHS[name], n):
            found[f"rows_{length}_{name}"] = declared(lambda x: rows_of(x), x=dtype[3, length])
        for k, m in SIZES[name]:
            found |= {f"{kind}_{k}_{m}_{name}": made for kind, made in products(rng, dtype, k, m).items()}
    found |= layers(rng, mlaot.f32) | {"draws_f32": draws(mlaot.f32), "draws_f64": draws(mlaot.f64)}
    return found | trainings(rng)


def products(rng: np.random.Generator, dtype: Any, k: int, m: int) -> dict[str, Any]:
    """Products with a matrix of ``k`` by ``m`` numbers."""
    w, v, b = (rng.normal(size=shape).astype(dtype.numpy) for shape in ((k, m), (m, k), (m,)))
    return {
        "dense": declared(lambda x: np.maximum(x @ w + b, 0), x=dtype[batch, k]),
        "transposed": declared(lambda x: x @ v.T, x=dtype[batch, k]),
        "vector": declared(lambda x: x @ w, x=dtype[k]),
        "matrices": declared(lambda x, y: x @ y, x=dtype[5, k], y=dtype[k, m]),
        "along": declared(lambda x, y: x @ y.T, x=dtype[9, k], y=dtype[m, k]),
        "gram": declared(lambda x, y: x.T @ y, x=dtype[batch, k], y=dtype[batch, m]),
        "dots": declared(lambda x, y: (x * y).sum(axis=-1), x=dtype[m, k], y=dtype[m, k]),
    }


def layers(rng: np.random.Generator, dtype: Any) -> dict[str, Any]:
    """Products that are more than a matrix's, and what networks are made of."""
    found = {
        "dot": declared(lambda x, y: np.dot(x, y), x=dtype[1000], y=dtype[1000]),
        "dot_n": declared(lambda x, y: np.dot(x, y), x=dtype[n], y=dtype[n]),
        "batched": declared(lambda x, y: x @ y, x=dtype[4, 7, 33], y=dtype[4, 33, 21]),
        "pairs": declared(lambda x, y: np.einsum("bij,bkj->bik", x, y), x=dtype[2, 9, 70], y=dtype[2, 11, 70]),
        "pool": declared(lambda x: (F.max_pool2d(x, 2), F.avg_pool2d(x, 3)), x=dtype[2, 3, 12, 12]),
        "attention": declared(
            lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
            **dict.fromkeys("qkv", dtype[2, 3, 19, 24]),
        ),
    }
    options = {"rng": rng, "dtype": dtype}
    for name, layer, shape in (
        ("convolution", nn.Conv2d(3, 5, 3, padding=1, **options), (batch, 3, 11, 13)),
        ("strided", nn.Conv2d(4, 20, 3, stride=2, **options), (2, 4, 15, 9)),
        ("lstm", nn.LSTM(7, 20, **options), (6, 2, 7)),
        ("gru", nn.GRU(5, 9, **options), (4, 3, 5)),
        ("norm", nn.LayerNorm(37, dtype=dtype), (batch, 37)),
    ):
        found[name] = declared(_first(layer), layer, x=dtype[shape])
    return found


def _first(layer: Any) -> Callable[..., Any]:
    def first(x: Any) -> Any:
        found = layer(x)
        return found[0] if isinstance(found, tuple) else found

    return first


def draws(dtype: Any) -> Any:
    """Random numbers, and what hides some of ``x``."""

    def model(x: Any) -> Any:
        noise = random.uniform((37,), dtype=dtype) + random.normal((37,), dtype=dtype)
        return random.dropout(x, 0.4, training=True) + noise

    return declared(model, x=dtype[batch, 37])


class Net(nn.Module):
    """A LeNet of few channels, with dropout and layer norm."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.conv = nn.Conv2d(1, 3, 3, rng=rng)
        self.norm = nn.LayerNorm(3 * 4 * 4)
        self.hidden = nn.Linear(3 * 4 * 4, 19, rng=rng)
        self.last = nn.Linear(19, 5, rng=rng)

    def forward(self, x: Any) -> Any:
        x = F.max_pool2d(F.relu(self.conv(x)), 2)
        x = np.tanh(self.hidden(self.norm(F.flatten(x, 1))))
        return self.last(random.dropout(x, 0.3, training=mlaot.is_training()))


def trainings(rng: np.random.Generator) -> dict[str, Any]:
    """Models that train."""
    net = Net(rng)

    def loss(scores: Any, label: mlaot.i64[batch]) -> Any:  # type: ignore[valid-type]
        return F.cross_entropy(scores, label)

    def lenet(x: mlaot.f32[batch, 1, 10, 10]) -> Any:  # type: ignore[valid-type]
        return net(x)

    mlp, values = MLP(11, [20, 10]), [Value(0.0) for _ in range(11)]
    scores, wanted = mlp(values), [Value(0.0) for _ in range(10)]
    error = sum(((s - y) ** 2 for s, y in zip(scores, wanted, strict=True)), Value(0.0))
    return {
        "train_lenet": mlaot.model(lenet, loss=loss, optimizer=optim.AdamW(lr=0.01), parameters=net),
        "train_micrograd": declare(scores, loss=error, inputs={"x": values, "y": wanted}, parameters=mlp),
    }


# ----------------------------------------------------------------------------------------------------------- libraries


def elementwise(name: str, dtype: str) -> tuple[Program, dict[str, Array]] | None:
    """An elementwise op as a program, and its arguments: special values (each with each), then random ones."""
    (sample,) = special_cases(name, FLOATS[dtype])[:1]
    rng = np.random.default_rng(len(name))
    extra = [
        a[:203] if a.dtype.kind == "b" else (rng.normal(size=203) * 10.0 ** rng.integers(-3, 4, 203)).astype(a.dtype)
        for a in (np.resize(a, 203) if a.size < 203 else a for a in sample.args)
    ]
    args = tuple(np.concatenate([a, x]) for a, x in zip(sample.args, extra, strict=True))
    made = graph_of(name, Sample(args, sample.attrs), FLOATS[dtype])
    if made is None:
        return None
    graph, inputs = made
    upcast(graph)
    legalize(graph)
    return lower(Module("ops", {"forward": graph}, {}, False, options=Options(deterministic=True))), inputs


@cache
def ops() -> dict[str, tuple[Program, dict[str, Array]]]:
    found = {f"{name}_{dtype}": elementwise(name, dtype) for name, dtype in product(ELEMENTWISE, FLOATS)}
    return {name: made for name, made in found.items() if made is not None}


@cache
def programs() -> dict[str, Program]:
    compiled = {
        name: compile_model(model, f"m.{name}", Options(isas=("base",), deterministic=True))
        for name, model in models().items()
    }
    return {name: program for name, (program, _) in ops().items()} | compiled


@pytest.fixture(scope="session")
def libraries(shared_folder: Path) -> dict[tuple[str, str], Library]:
    """All programs on every path."""
    flags = ("-ffp-contract=off",)
    return {
        (cc, isa): Library(programs(), isa, shared_folder / "deterministic", flags, COMPILERS[cc], f"_{cc}")
        for cc, isa in PATHS
    }


def plain(value: Array) -> bytes:
    """The bits, of any nan the same ones."""
    value = np.array(value)  # a copy
    if value.dtype.kind == "f":
        value[np.isnan(value)] = np.nan
    return value.tobytes()


def numbers(port: Port, dims: dict[str, int], rng: np.random.Generator, *, few: bool) -> Array:
    """An argument: random numbers, or few different ones, with zeros of both signs."""
    shape = tuple(evaluate_dim(d, dims) for d in port.shape)
    dtype = CALLER_DTYPES[port.dtype]
    if port.default is not None:
        return np.full(shape, port.default, dtype)
    if dtype.kind != "f":
        return rng.integers(0, min([5, *[evaluate_dim(str(r.size), dims) for r in port.ranges]]), shape).astype(dtype)
    values = rng.choice([-0.0, 0.0, 1.0, -1.0, -3.0], shape) if few else rng.normal(size=shape)
    return np.asarray(values).astype(dtype)


def entries(program: Program) -> list[Entry]:
    return [p.entry for p in program.procedures if p.entry.name not in ("accumulate", "phases", "update")]


def run(library: Library, stem: str, entry: Entry, dims: dict[str, int], *, few: bool) -> dict[str, bytes]:
    """The results of an entry and the state behind it, after a few calls."""
    rng = np.random.default_rng(7)
    state = State(library.programs[stem])
    found: dict[str, bytes] = {}
    for step in range(STEPS if entry.name == "train_step" else 1):
        inputs = {port.name: numbers(port, dims, rng, few=few) for port in entry.inputs}
        outputs = library.call(stem, entry.name, inputs, dims, state)
        found |= {f"{name} of call {step}": plain(value) for name, value in outputs.items()}
    for slot in library.programs[stem].module.slots:
        found[f"slot {slot.name}"] = plain(state.slot(slot.name))
    return found


# --------------------------------------------------------------------------------------------------------------- tests


@pytest.mark.parametrize("name", ops())
def test_every_elementwise_op(name: str, libraries: dict[tuple[str, str], Library]) -> None:
    inputs = ops()[name][1]
    first, *others = [library.call(name, "forward", inputs)["y"] for library in libraries.values()]
    for path, other in zip(PATHS[1:], others, strict=True):
        bits = [np.frombuffer(plain(y), np.uint8).reshape(y.size, -1) for y in (first, other)]
        wrong = np.flatnonzero((bits[0] != bits[1]).any(axis=1))
        assert not wrong.size, (path, [a[wrong[0]] for a in inputs.values()], first[wrong[0]], other[wrong[0]])


@pytest.mark.parametrize("name", models())
def test_every_model(name: str, libraries: dict[tuple[str, str], Library]) -> None:
    program = programs()[name]
    widths = WIDTHS if "n" in program.module.dims else (0,)
    sizes = (1, 2, 21) if "batch" in program.module.dims else (0,)
    for entry, width, size, few in product(entries(program), widths, sizes, (False, True)):
        dims = {"n": width, "batch": size}
        first, *others = [run(library, name, entry, dims, few=few) for library in libraries.values()]
        for path, other in zip(PATHS[1:], others, strict=True):
            differing = [key for key in first if first[key] != other[key]]
            assert not differing, (path, entry.name, dims, few, differing)


@pytest.mark.parametrize("name", [name for name in models() if name.startswith("vector")])
def test_an_example_alone_gives_what_it_gives_among_others(
    name: str, libraries: dict[tuple[str, str], Library]
) -> None:
    """Whatever tiles the rows of a batch are cut into."""
    (entry,) = entries(programs()[name])
    x = numbers(entry.inputs[0], {"batch": 21}, np.random.default_rng(7), few=False)
    for library in libraries.values():
        together = library.call(name, "forward", {"x": x}, {"batch": 21})["out"]
        alone = [library.call(name, "forward", {"x": x[i : i + 1]}, {"batch": 1})["out"] for i in range(21)]
        assert plain(together) == plain(np.concatenate(alone))


SESSION = """
import hashlib, random, sys
sys.path.insert(0, sys.argv[1])
from net import nn
rng = random.Random(0)
def normal(rows, columns):
    return [[rng.gauss(0, 1) for _ in range(columns)] for _ in range(rows)]
for _ in range(5):
    nn.train_step(normal(33, 11), normal(33, 10), lr=0.01)
numbers = repr((nn.forward(normal(9, 11)).tolist(), nn.flat_parameters.tolist()))
print(nn.info()["deterministic"], nn.info()["isa"], hashlib.sha256(numbers.encode()).hexdigest())
"""


def test_a_module(tmp_path: Path) -> None:
    """A real one, compiled as a wheel's is: it says what it is, and every path gives the same weights."""
    library = projects.build_module(
        models()["train_micrograd"], "net", tmp_path / "site", AVAILABLE, deterministic=True
    )
    code = tmp_path / "session.py"
    code.write_text(SESSION)
    told = {isa: projects.run(code, library.parents[1], environ={"MLAOT_ISA": isa}).split() for isa in AVAILABLE}
    assert {isa: words[:2] for isa, words in told.items()} == {isa: ["True", isa] for isa in AVAILABLE}
    assert len({words[2] for words in told.values()}) == 1


def test_a_module_on_arm(tmp_path: Path) -> None:
    """The same C, compiled for ARM: the weights after some steps are those of this machine."""
    if "MLAOT_ARM64" not in os.environ:
        pytest.skip("MLAOT_ARM64 names no Python for ARM")
    isas = ("base", "neon")
    own = projects.build_module(models()["train_micrograd"], "net", tmp_path / "own", isas, deterministic=True)
    arm = tmp_path / "arm" / "net" / "nn.abi3.so"
    toolchain = find_toolchain(parse_platform("manylinux_2_17_aarch64"))
    compile_module(tmp_path / "own-c" / "net.nn", "nn", isas, arm, toolchain, deterministic=True)
    code = tmp_path / "session.py"
    code.write_text(SESSION)
    command = [*shlex.split(os.environ["MLAOT_ARM64"]), str(code), str(arm.parents[1])]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    wanted = projects.run(code, own.parents[1]).split()
    assert (wanted[1], told) == (AVAILABLE[0], ["True", "neon", wanted[2]])
