"""Names and settings by chance: what a user may call anything, and write anywhere, works or is refused in one line.

    python -m tests.fuzz.names --count 2000 --seed 0

A case is a model whose inputs, dims, outputs, parameters, buffers, entries and taps have names out of a nasty alphabet
or words of C, Python and mlaot, or a pyproject.toml with random keys and values. A name is refused by a ``MlaotError``
of one line, or the module is written: its C is compiled, its stub is parsed, and its metadata is read.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import random
import subprocess
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import mlaot
from mlaot import micrograd
from mlaot.errors import MlaotError
from mlaot.files import program_files, write
from mlaot.generate import compile_model
from mlaot.settings import KINDS, ModelSettings, Settings
from mlaot.settings.keys import keys_of
from mlaot.settings.options import Options
from mlaot.settings.reading import load_settings

from ..compiled import CC

# Words of C and its headers, of Python, and of the C that mlaot writes; and some that only look harmless.
WORDS = (
    *("int", "double", "register", "restrict", "inline", "typeof", "bool", "true", "false", "nullptr", "constexpr"),
    *("NULL", "EOF", "I", "INT_MAX", "SIZE_MAX", "M_PI", "CHAR_BIT", "INFINITY", "NAN", "BUFSIZ", "unix", "linux"),
    *("errno", "stdin", "assert", "offsetof", "complex", "size_t", "ptrdiff_t", "int8_t", "uint64_t", "wchar_t"),
    *("memcpy", "printf", "malloc", "free", "exp", "log", "sin", "main", "exit", "abs", "signal", "read", "index"),
    *("lambda_", "None_", "self_", "print", "len", "list", "type", "id", "object", "match", "case", "parameters"),
    *("batch", "dim", "out", "out0", "p", "ctx", "v0", "v1", "t0", "i", "j", "k", "n", "m", "c", "e", "x", "s0"),
    *("rest", "acc", "work", "end", "begin", "share", "task1", "NAME", "INLINE", "Kernel", "Task", "Model", "State"),
    *("PyObject", "Py_None", "ENTRIES", "PORTS", "DIMS", "BATCH", "WEIGHTS", "f32", "f32v", "f64v", "load_f32v"),
    *("threefry", "threshold", "feature", "tree_value", "n_n", "n_x", "n_batch", "u_9ca", "x_x", "x_batch", "x_int"),
    *("model", "state", "workspace", "needed", "kernel", "left", "aligned", "is_state", "_values", "_extent", "row"),
    *("__class__", "__file__", "_", "__", "é", "ª", "名前", "ß", "ﬁ", "x\u0302", "\U0001d431", "X", "W", "W1", "aé"),
    *("class", "lambda", "None", "True", "import", "def", "async", "for", "if", "while", "return", "static", "struct"),
)
ALPHABET = "aZ_0é名ª \t\n\r\0\"'\\/%{}@#?.,;:*+-[]()<>$&|!~`\u200b\u202e\ud800\U0001f600"
KEPT = (
    *("forward", "loss", "train_step", "accumulate", "update", "backward", "phases"),
    *("save", "load", "info", "Model", "lr", "x"),
)
FLAGS = (
    "-std=gnu11",
    "-fsyntax-only",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-w" if "clang" in CC else "-Wno-unused-function",
)


@dataclass
class Case:
    """What was made from a seed, and what became of it: the folder with its C, or why it was refused."""

    seed: int
    said: str
    folder: Path | None = None
    refusal: str = ""
    failure: str = ""


def name(rng: random.Random) -> str:
    """A word, or letters of a nasty alphabet; now and then a long one, or one that something else has."""
    kind = rng.random()
    if kind < 0.1:  # the same ones again and again
        return rng.choice(("x", "é", "NULL", "parameters", "out"))
    if kind < 0.8:
        return rng.choice(WORDS)
    if kind < 0.84:
        return rng.choice(KEPT)
    if kind < 0.92:
        return rng.choice(WORDS) + rng.choice(("", "_", "0", "é", ".0", ".weight", "'", " "))
    if kind < 0.95:
        return rng.choice("aé_") * rng.choice((64, 300, 5000))
    return "".join(rng.choices(ALPHABET, k=rng.randint(0, 6)))


def anything(rng: random.Random) -> Any:
    """Where a name belongs, something that may be none."""
    return name(rng) if rng.random() < 0.97 else rng.choice((None, 3, 1.5, b"x", ("a", "b"), object(), True, float))


def identifier(rng: random.Random) -> str:
    """A name that Python allows for an argument."""
    while True:
        found = name(rng)
        try:
            return inspect.Parameter(found, inspect.Parameter.POSITIONAL_OR_KEYWORD).name
        except (ValueError, IndexError):
            continue


def function(names: list[str], types: list[Any], body: Callable[..., Any], called: str = "net") -> Callable[..., Any]:
    """A function whose arguments have these names and types."""

    def made(*arguments: Any) -> Any:
        return body(*arguments)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    vars(made)["__signature__"] = inspect.Signature([inspect.Parameter(each, kind) for each in dict.fromkeys(names)])
    made.__annotations__ = dict(zip(names, types, strict=True))
    made.__name__ = called
    return made


def arrays(rng: random.Random) -> Any:
    """A function of arrays as a model: with named dims, an entry, taps, and a loss now and then."""
    n, m = mlaot.dim(anything(rng)), mlaot.dim(anything(rng))
    is_listed = rng.random() < 0.5
    weight = mlaot.Parameter(None if is_listed else anything(rng) or "w", np.ones((3, 2), np.float32))
    keys = [anything(rng) for _ in range(rng.randint(1, 3))]
    counted = mlaot.Buffer(np.zeros(2, np.float32), anything(rng)) if rng.random() < 0.4 else None
    tapped = anything(rng) if rng.random() < 0.2 else None

    by_name = rng.random() < 0.7

    def body(x: Any, y: Any) -> Any:
        h = x @ weight
        if tapped is not None:
            h = mlaot.tap(tapped, h)
        if counted is not None:
            counted.assign(counted + h.sum(axis=0))
        results = [np.tanh(h), y * 2.0, h.sum(axis=0)][: len(keys)]
        return dict(zip(keys, results, strict=False)) if by_name else tuple(results)

    parts: list[str] = []
    while len(set(parts)) < 3:
        parts = [identifier(rng) for _ in range(3)]
    types = [mlaot.f32[n, 3], mlaot.f32[n, m]]
    options: dict[str, Any] = {}
    if rng.random() < 0.4:
        count = 1 if by_name else len(keys)
        results = [name for name in ("h", "hh", "hhh") if name != parts[2]][:count]
        options["loss"] = function([*results, parts[2]], [mlaot.f32[n, 2]] * (len(results) + 1), squared)
    if is_listed:
        options["parameters"] = {anything(rng): weight}
    model = mlaot.model(function(parts[:2], types, body), **options)
    if rng.random() < 0.4:
        model.entry(function([parts[2]], [mlaot.f32[m]], lambda y: {anything(rng): y * 3.0}, identifier(rng)))
    return model


def squared(*arrays: Any) -> Any:
    """The loss of a model whose first output is as its target."""
    first = arrays[0] if not isinstance(arrays[0], dict) else next(iter(arrays[0].values()))
    return ((first - arrays[-1]) ** 2).mean()


def scalars(rng: random.Random) -> Any:
    """A graph of values as a model."""
    x, t = [micrograd.Value(0.0) for _ in range(3)], micrograd.Value(0.0)
    w = [micrograd.Value(0.5) for _ in range(3)]
    out = sum((a * b for a, b in zip(x, w, strict=True)), micrograd.Value(0.0)).tanh()
    inputs = {anything(rng): x}
    options: dict[str, Any] = {"parameters": {anything(rng): w} if rng.random() < 0.7 else w}
    if rng.random() < 0.5:
        inputs[anything(rng)] = t
        options["loss"] = (out - t) ** 2
    return micrograd.declare(out, inputs=inputs, **options)


def files(rng: random.Random, folder: Path) -> None:
    """The files of a random model; ``MlaotError`` where a name cannot be."""
    declared = (arrays if rng.random() < 0.7 else scalars)(rng)
    module = f"fuzz.{rng.choice(('nn', 'int', 'Model', 'memcpy', 'x'))}"
    intermediates = bool(declared.trace().taps)
    options = Options(isas=("base",), intermediates=intermediates, c_library=rng.random() < 0.5)
    write(program_files(compile_model(declared, module, options, golden=rng.random() < 0.2)), folder)


SCALARS: tuple[Any, ...] = (
    *(
        True,
        False,
        0,
        1,
        -1,
        10**30,
        1.5,
        float("inf"),
        "",
        "x",
        "model:net",
        "m.onnx",
        "..",
        "/",
        "a\0b",
        "é",
        "名前:前",
    ),
    *("x" * 5000, "model:", ":net", "model.py:net", "base", "v3", "F2", "float16", "nn.nn", "con.nn", [], {}, [[]]),
    *(["base"], ["v3"], ["base", "base", 3], [1], [True], ["é"], [{}], {"a": {"b": {}}}, [""], {"x": 1}, {"": ""}),
)


def pyproject(rng: random.Random) -> dict[str, Any]:
    """``[tool.mlaot]`` with random keys, most of them known ones."""

    def value(depth: int = 0) -> Any:
        if depth < 3 and rng.random() < 0.1:
            return {name(rng): value(depth + 1) for _ in range(2)}
        return rng.choice(SCALARS)

    def table(kind: Any, chance: float) -> dict[str, Any]:
        keys = {key: field for key, field in keys_of(kind).items() if key not in KINDS and rng.random() < chance}
        found = {key: field.metadata["example"] if rng.random() < 0.9 else value() for key, field in keys.items()}
        return found | ({name(rng): value()} if rng.random() < 0.02 else {})

    models: Any = {name(rng) if rng.random() < 0.5 else "nn": model(rng, table) for _ in range(rng.randint(1, 3))}
    tool = table(Settings, 0.15) | ({"models": models if rng.random() < 0.98 else value()})
    project = {"name": rng.choice(("digits", "a-b.c", "My-Digits", name(rng)))} if rng.random() < 0.97 else value()
    if isinstance(project, dict) and rng.random() < 0.9:
        project["license-files"] = ["model/LICENSE"] if rng.random() < 0.9 else value()
    return {"project": project, "tool": {"mlaot": tool if rng.random() < 0.98 else value()}}


def model(rng: random.Random, table: Callable[[Any, float], dict[str, Any]]) -> Any:
    """A table of ``[tool.mlaot.models]``."""
    found = table(ModelSettings, 0.08)
    if rng.random() < 0.97:
        kind = rng.choice(KINDS)
        found[kind] = keys_of(ModelSettings)[kind].metadata["example"] if rng.random() < 0.8 else rng.choice(SCALARS)
    for key in ("budget", "dims"):
        if rng.random() < 0.1:
            found[key] = rng.choice(SCALARS)
    return found if rng.random() < 0.98 else rng.choice(SCALARS)


def toml(value: Any) -> str:
    """A value as TOML, tables inline."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{quoted(str(k))} = {toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return quoted(value) if isinstance(value, str) else str(value)


def quoted(text: str) -> str:
    """A basic string of TOML, which has no surrogates."""
    clean = text.encode("utf-8", "replace").decode()
    return '"' + "".join(c if c.isalnum() or c in " .:/_-" else f"\\U{ord(c):08x}" for c in clean) + '"'


def settings(rng: random.Random, folder: Path) -> None:
    """Read random settings; ``MlaotError`` where they are wrong."""
    (folder / "model").mkdir(parents=True)
    for name in ("LICENSE", "README.md"):  # of the keys' examples
        (folder / "model" / name).touch()
    found = pyproject(rng)
    text = "".join(f"{key} = {toml(part)}\n" for key, part in found.items())
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")
    load_settings(folder)


KINDS_OF_CASES: Mapping[str, Callable[[random.Random, Path], None]] = {"model": files, "settings": settings}


def run(seed: int, kind: str, folder: Path) -> Case:
    """Make one case; what it wrote is in a folder of its own."""
    case = Case(seed, kind)
    try:
        KINDS_OF_CASES[kind](random.Random(seed), folder / f"{kind}{seed}")
        case.folder = folder / f"{kind}{seed}"
    except MlaotError as error:
        case.refusal = str(error)
        if not case.refusal or not case.refusal.isprintable() or len(case.refusal) > 12_000:
            case.failure = f"no line to read: {case.refusal[:200]!r}"
    except Exception:
        case.failure = traceback.format_exc()
    return case


def check(case: Case) -> None:
    """Compile what a model's case wrote, and read the rest."""
    assert case.folder is not None
    try:
        for stub in case.folder.glob("*.pyi"):
            ast.parse(stub.read_text(encoding="utf-8"))
        json.loads((case.folder / "model.json").read_text(encoding="utf-8"))
    except Exception:
        case.failure = traceback.format_exc()
    sources = sorted(map(str, case.folder.glob("*.c")))
    command = [*CC.split(), *FLAGS, f"-I{case.folder}", *sources]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        case.failure = f"{' '.join(command)}\n{done.stderr[:3000]}"


def report(cases: list[Case]) -> str:
    """The failures, and how many cases of which kind were refused."""
    failed = [f"seed {case.seed}, {case.said}:\n{case.failure}" for case in cases if case.failure]
    counts = Counter(
        f"{case.said} {'refused' if case.refusal else 'failed' if case.failure else 'taken'}" for case in cases
    )
    return "\n".join([*failed[:10], ", ".join(f"{n} {what}" for what, n in sorted(counts.items()))])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200, help="cases of each kind")
    parser.add_argument("--seed", type=int, default=0, help="the first")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        cases = [
            run(seed, kind, Path(folder))
            for seed in range(options.seed, options.seed + options.count)
            for kind in KINDS_OF_CASES
        ]
        for case in cases:
            if case.folder is not None and case.said == "model":
                check(case)
        print(report(cases))
    raise SystemExit(any(case.failure for case in cases))


if __name__ == "__main__":
    main()
