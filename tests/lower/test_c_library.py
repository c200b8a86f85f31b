"""The C library of a model, called as a C program calls it: the bits of the Python module, and what it refuses."""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlaot
from mlaot import optim
from mlaot.binding.c_library import words_of
from mlaot.binding.interface import render_interface
from mlaot.build.toolchain import compile_module, find_toolchain
from mlaot.errors import MlaotError
from mlaot.files import program_files, write
from mlaot.generate import compile_model
from mlaot.settings.options import Options

from ..compiled import AVAILABLE, CC, Array, guarded, guarded_array
from ..projects import load
from ..runtime import kinds, models

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads ELF files")

OK, BAD_SIZE, BAD_INDEX, BAD_MEMORY = range(4)
SIZE_MAX = 2 ** (8 * ctypes.sizeof(ctypes.c_size_t)) - 1
BATCH, ROWS = mlaot.dim("batch"), mlaot.dim("rows")
ISAS = tuple(dict.fromkeys(("base", *AVAILABLE)))
LIBC = {"memcpy", "memmove", "memset", "strcmp"}
rng = np.random.default_rng(3)
W, V = np.float32(rng.normal(size=(70, 33)) / 8), np.float32(rng.normal(size=(33, 4)))
NET = mlaot.parameters({"w": rng.normal(size=(6, 3)), "b": np.zeros(3)})


@mlaot.model
def perceptron(x: mlaot.f32[70]) -> Any:
    """A name that ends in a backslash: \\"""
    return np.tanh(x @ W) @ V


@mlaot.model
def uneven(x: mlaot.f64[ROWS, 3], union: mlaot.f64[2 * ROWS - 5], shift: mlaot.f64) -> Any:
    return x.sum(1) + shift, union * 2


@mlaot.model
def tall(x: mlaot.f64[mlaot.dim("register"), ROWS, 3], y: mlaot.f64[mlaot.dim("register")]) -> Any:
    """Rows that do not depend on each other, of a dim whose name C refuses, with a workspace for a few of them."""
    return np.tanh(x @ np.linspace(-1, 1, 6000).reshape(3, 2000)).max(axis=(1, 2)) * y, x[:, 0]


def distance(scores: Any, label: mlaot.i64[BATCH]) -> Any:
    return ((scores - mlaot.one_hot(label, 3)) ** 2).sum(1).mean()


@mlaot.model(loss=distance, parameters=NET, optimizer=optim.SGD(lr=0.1, momentum=0.5))
def classifier(x: mlaot.f64[BATCH, 6]) -> Any:
    return np.tanh(x @ NET["w"] + NET["b"])


@dataclass(frozen=True)
class Library:
    """The C library of the module at ``path``."""

    path: Path
    archive: Path
    functions: ctypes.CDLL
    prefix: str

    def function(self, name: str, result: Any) -> Any:
        found = getattr(self.functions, f"{self.prefix}_{name}")
        found.restype = result
        return found

    def select(self, isa: str | None = None) -> ctypes.c_void_p:
        return ctypes.c_void_p(self.function("select", ctypes.c_void_p)(isa and isa.encode()))

    def workspace(self, entry: str, *sizes: int) -> int:
        return int(self.function(f"{entry}_workspace", ctypes.c_size_t)(*map(ctypes.c_int64, sizes)))

    def call(
        self, entry: str, *arguments: Any, sizes: Sequence[int] = (), state: Array | None = None, **how: Any
    ) -> int:
        """An entry; its workspace is as large as it says, full of nan and in front of a page without access."""
        size = self.workspace(entry, *sizes)
        workspace = how.get("workspace", guarded(size if size < 1 << 30 else 0))
        values = [*([] if state is None else [state]), *map(ctypes.c_int64, sizes), *arguments, workspace]
        pointers = [ctypes.c_void_p(v.ctypes.data) if isinstance(v, np.ndarray) else v for v in values]
        return int(self.function(entry, ctypes.c_int)(how.get("model") or self.select(), *pointers))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Library]:
    """``made("perceptron", perceptron)``: the library of a declared model, made once."""
    base, found = tmp_path_factory.mktemp("c_library"), dict[str, Library]()

    def make(name: str, declared: Any, isas: tuple[str, ...] = ("base",), weights: str = "auto") -> Library:
        if name not in found:
            folder, library, archive = base / f"{name}-c", base / name / "nn.abi3.so", base / name / f"lib{name}_nn.a"
            program = compile_model(declared, f"{name}.nn", Options(isas=isas, weights=weights, c_library=True))
            write(program_files(program), folder)
            compile_module(folder, "nn", isas, library, find_toolchain(), archive=archive)
            shared = base / name / "c.so"
            whole = ["-Wl,--whole-archive", str(archive), "-Wl,--no-whole-archive", "-Wl,-z,defs"]
            subprocess.run([CC, "-shared", "-o", str(shared), *whole], check=True)
            found[name] = Library(library, archive, ctypes.CDLL(str(shared)), f"{name}_nn")
        return found[name]

    return make


@pytest.mark.parametrize("isa", AVAILABLE)
def test_same_bits_as_in_python(made: Callable[..., Library], monkeypatch: pytest.MonkeyPatch, isa: str) -> None:
    library = made("perceptron", perceptron, ISAS)
    monkeypatch.setenv("MLAOT_ISA", isa)
    module, model = load(library.path), library.select(isa)
    assert library.function("isa", ctypes.c_char_p)(model).decode() == module.info()["isa"] == isa
    for batch in (0, 1, 7, 3000):  # also one that is computed in several tiles
        x = guarded_array(rng.normal(size=(batch, 70)), "float32")
        out = guarded(batch * 16)
        assert library.call("forward", x, out, sizes=(batch,), model=model) == OK
        assert out.tobytes() == memoryview(module.forward(x)).tobytes()


def test_best_instruction_set(made: Callable[..., Library]) -> None:
    library = made("perceptron", perceptron, ISAS)
    assert library.function("isa", ctypes.c_char_p)(library.select()).decode() == AVAILABLE[-1]
    assert not library.select("sse")


def test_sizes_and_numbers(made: Callable[..., Library]) -> None:
    """A dim that only Python must find out, a name of C's, a number by value, two outputs."""
    library = made("uneven", uneven)
    module = load(library.path)
    x, union = rng.normal(size=(4, 3)), rng.normal(size=3)
    sums, doubled = guarded(32), guarded(24)
    assert library.call("forward", x, union, ctypes.c_double(0.5), sums, doubled, sizes=(4,)) == OK
    assert [sums.tobytes(), doubled.tobytes()] == [memoryview(a).tobytes() for a in module.forward(x, union, 0.5)]
    for bad in (-1, 2, 1 << 41, 1 << 62):
        assert library.workspace("forward", bad) == SIZE_MAX
        assert library.call("forward", x, union, ctypes.c_double(0.5), sums, doubled, sizes=(bad,)) == BAD_SIZE


def test_tiles_of_rows(made: Callable[..., Library]) -> None:
    library = made("tall", tall)
    module = load(library.path)
    (entry,) = (p.entry for p in compile_model(tall, "tall.nn", Options(isas=("base",))).procedures)
    for count in (0, 5, 2 * entry.tile + 3):
        x, y = rng.normal(size=(count, 2, 3)), rng.normal(size=count)
        largest, first = guarded(8 * count), guarded(24 * count)
        assert library.call("forward", x, y, largest, first, sizes=(count, 2)) == OK
        assert [largest.tobytes(), first.tobytes()] == [memoryview(a).tobytes() for a in module.forward(x, y)]
        np.testing.assert_array_equal(first.view(np.float64).reshape(count, 3), x[:, 0])
    assert entry.rows == "register" and library.workspace("forward", 10**6, 2) < 10**8


def test_training(made: Callable[..., Library]) -> None:
    """A state takes the same way as Python's, also where it was copied to. The library has weights inside anyway."""
    library = made("classifier", classifier, weights="file")
    model = load(library.path).Model()
    header = (library.archive.parent.with_name("classifier-c") / "classifier_nn.h").read_text()
    bytes_ = int(re.search(r"CLASSIFIER_NN_STATE_BYTES (\d+)", header)[1])  # type: ignore[index]
    state, loss, x = guarded(bytes_), np.empty(()), rng.normal(size=(5, 6))
    label = np.array([2, 0, 1, 1, 2])
    assert library.function("state_init", ctypes.c_int)(ctypes.c_void_p(state.ctypes.data)) == OK
    for step in range(6):
        assert library.call("train_step", x, label, ctypes.c_double(0.1), loss, sizes=(5,), state=state) == OK
        assert float(loss) == model.train_step(x, label, lr=0.1)
        if step == 2:
            copy = guarded(bytes_)
            copy[:] = state
            state[:] = 0xFF
            state = copy
    scores = np.empty((5, 3))
    assert library.call("forward", x, scores, sizes=(5,), state=state) == OK
    assert scores.tobytes() == memoryview(model.forward(x)).tobytes()


def test_refused(made: Callable[..., Library]) -> None:
    """Nothing is read or written by a call that is refused."""
    library = made("classifier", classifier, weights="file")
    state, loss, x, label = guarded(4096), np.empty(()), rng.normal(size=(2, 6)), np.array([0, 2])
    init = library.function("state_init", ctypes.c_int)
    assert init(ctypes.c_void_p(state.ctypes.data)) == OK
    before = state.tobytes()

    def step(**how: Any) -> int:
        given: dict[str, Any] = {"label": label, "sizes": (2,), "state": state} | how
        return library.call("train_step", x, given.pop("label"), ctypes.c_double(0.1), loss, **given)

    for bad in (-1, 3, 1 << 62, -(1 << 63)):
        assert step(label=np.array([0, bad])) == BAD_INDEX
    assert step(sizes=(0,)) == BAD_SIZE  # the mean over nothing
    assert step(workspace=ctypes.c_void_p()) == BAD_MEMORY
    assert step(state=state[8:]) == BAD_MEMORY
    assert init(ctypes.c_void_p(state.ctypes.data + 8)) == init(None) == BAD_MEMORY
    assert state.tobytes() == before
    assert step() == OK and state.tobytes() != before
    words = library.function("message", ctypes.c_char_p)
    assert len({words(status) for status in range(-1, 4)}) == 5


TOKENS = mlaot.dim("tokens")
TEXT, ROWS_READ = mlaot.Text(9), mlaot.Buffer(np.zeros((9, 3), np.float32), "rows")


@mlaot.model(text=TEXT)
def reader(tokens: mlaot.i64[TOKENS]) -> Any:
    """What follows a text, of which the state has all rows that were read."""
    places = TEXT.place + mlaot.arange(tokens.shape[0])
    ROWS_READ.assign(ROWS_READ.at[places].set(mlaot.take(WEIGHTS, tokens, axis=0)))
    return mlaot.softmax(ROWS_READ[: TEXT.seen(tokens)].sum(axis=0))


WEIGHTS = rng.normal(size=(4, 3)).astype(np.float32)


def test_texts(made: Callable[..., Library]) -> None:
    """A call sees as much as the text has with it, and no more than fits is read."""
    library = made("reader", reader)
    header = (library.archive.parent.with_name("reader-c") / "reader_nn.h").read_text()
    state = guarded(int(re.search(r"READER_NN_STATE_BYTES (\d+)", header)[1]))  # type: ignore[index]
    assert library.function("state_init", ctypes.c_int)(ctypes.c_void_p(state.ctypes.data)) == OK
    text, scores = load(library.path).Model(), np.empty(3, np.float32)
    for part in ([1], [2, 0, 3], [1, 1, 1]):
        tokens = np.array(part)
        assert library.call("forward", tokens, scores, sizes=(len(part),), state=state) == OK
        assert scores.tobytes() == memoryview(text.forward(part)).tobytes()
    before = state.tobytes()
    assert library.call("forward", np.array([1, 2, 3]), scores, sizes=(3,), state=state) == BAD_SIZE
    assert state.tobytes() == before
    assert library.call("forward", np.array([1, 2]), scores, sizes=(2,), state=state) == OK


@mlaot.model
def indexed(
    x: mlaot.f64[ROWS, 3], i: mlaot.i64[4, 2], u: mlaot.u64[5], b: mlaot.i8, f: mlaot.f32[2], label: mlaot.i32[ROWS]
) -> Any:
    """Indices of every kind: a column, into an open axis, unsigned, a number by value, whole parts, one ignored."""
    losses = mlaot.nn.functional.cross_entropy(x, label, ignore_index=-7, reduction="none")
    return x[i[:, 1]], x[u], x[b], mlaot.one_hot(f.astype(np.int64), 3), losses


def test_indices(made: Callable[..., Library]) -> None:
    library = made("indexed", indexed)
    module = load(library.path)
    header = (library.archive.parent.with_name("indexed-c") / "indexed_nn.h").read_text()
    for line in (
        "i[:, 1]: values from -rows to rows - 1.",
        "label: values from 0 to 2 or -7.",
        "f: values from 0 to 2.",
    ):
        assert line in header
    out = [np.empty((4, 3)), np.empty((5, 3)), np.empty(3), np.empty((2, 3)), np.empty(6)]

    def call(*changes: tuple[str, Any, Any]) -> int:
        given = {
            "x": rng.normal(size=(6, 3)),
            "i": np.full((4, 2), 5),
            "u": np.arange(5, dtype=np.uint64),
            "b": np.array(-6, np.int8),
            "f": np.array([2.75, -0.5], np.float32),
            "label": np.array([0, 1, 2, -7, 0, 1], np.int32),
        }
        for name, place, value in changes:
            given[name][place] = value
        arguments = [*given.values()]
        arguments[3] = ctypes.c_int8(int(given["b"]))
        status = library.call("forward", *arguments, *out, sizes=(6,))
        if status == OK:
            module.forward(*given.values())
        else:
            with pytest.raises(ValueError, match="expected values from"):
                module.forward(*given.values())
        return status

    assert call() == call(("i", (2, 0), 2**62)) == OK  # that column is none of indices
    for name, place, values in (
        *[("i", (k, 1), (6, -7, 2**62, -(2**63))) for k in (0, 3)],
        *[("u", k, (6, 2**63, 2**64 - 1)) for k in (0, 4)],
        ("b", (), (6, -7, 127, -128)),
        *[("f", k, (3.0, -1.0, np.nan, np.inf)) for k in (0, 1)],
        *[("label", k, (3, -1, -8, 2**31 - 1)) for k in (0, 5)],
    ):
        for value in values:
            assert call((name, place, value)) == BAD_INDEX, (name, place, value)


def test_symbols(made: Callable[..., Library]) -> None:
    """Names of the model's own, nothing of Python's, no malloc, nothing that is written; no time of day."""
    for library in (made("perceptron", perceptron, ISAS), made("classifier", classifier, weights="file")):
        said = subprocess.run(["nm", library.archive], check=True, capture_output=True, text=True).stdout
        symbols = [line.split()[-2:] for line in said.splitlines() if line and not line.endswith(":")]
        undefined = {name for kind, name in symbols if kind == "U"}
        assert {name for kind, name in symbols if kind in "TR"} >= undefined - LIBC
        assert all(name.startswith(library.prefix) for kind, name in symbols if kind in "TR")
        sections = subprocess.run(["objdump", "-h", library.archive], check=True, capture_output=True, text=True).stdout
        written = re.findall(r" \.t?(?:data|bss)\S* +([0-9a-f]+)", re.sub(r"\.data\.rel\.ro\S*", "", sections))
        assert written and not any(int(size, 16) for size in written), sections
        shared = library.path.with_name("c.so")
        public = subprocess.run(
            ["nm", "-D", "--defined-only", shared], check=True, capture_output=True, text=True
        ).stdout
        assert not re.search(r"_(base|v3|v4|share|share_apart)$", public, re.MULTILINE)
        assert library.archive.read_bytes()[24:48] == b"0           0     0     "


def test_c11_and_cpp17(tmp_path: Path) -> None:
    """Headers of models of every form, and the C behind them, without a warning."""
    for module, _ in (models.MODELS | kinds.MODELS).values():
        if any(entry.counts for entry in module.entries):  # which functions for C cannot have
            continue
        options = replace(module.options, c_library=True)
        write(render_interface(replace(module, name=f"m.{module.name}", options=options)), tmp_path)
    (tmp_path / "all.h").write_text("".join(f'#include "{header.name}"\n' for header in tmp_path.glob("m_*.h")))
    for language in (["gcc", "-std=c11", "-xc"], ["g++", "-std=c++17", "-xc++"]):
        command = [*language, "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only", "all.h"]
        subprocess.run(command, cwd=tmp_path, check=True)
    sources = [path.name for path in tmp_path.glob("*_c.c")]
    warnings = [*models.WARNINGS.split(), "-Wstrict-prototypes", "-Wcast-align"]
    subprocess.run([CC, "-std=gnu11", *warnings, "-fsyntax-only", *sources], cwd=tmp_path, check=True)


def test_two_functions_of_one_name() -> None:
    @mlaot.model
    def one(x: mlaot.f32[2]) -> Any:
        return x

    @one.entry
    def forward_workspace(x: mlaot.f32[2]) -> Any:
        return x * 2

    program = compile_model(one, "m.nn", Options(isas=("base",), c_library=True))
    with pytest.raises(MlaotError, match=r"m\.nn: .* several functions called m_nn_forward_workspace; rename an entry"):
        program_files(program)


def test_usual_names_stay_in_the_header() -> None:
    """Only those that the C around a call uses are changed."""
    taken = words_of("nn_c.c.j2")
    assert {"aligned", "Kernel", "needed", "kernel", "left", "memcpy"} <= taken
    assert not taken & {"x", "y", "out", "out0", "label", "target", "weights", "tokens", "lr"}
