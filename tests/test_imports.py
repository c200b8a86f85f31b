"""Imports point along the arrows of the compiler and never back; inside functions and for type checkers, too."""

from __future__ import annotations

from collections import defaultdict

import pytest

from .imports import ROWS, Import, box_of, circles, imports, modules

# Where a function may import others when it is called, and why; a name that ends with a dot is that of a package.
LATE = {
    "mlaot": "what models use is loaded when it is used: hooks and most commands do without it, and without NumPy",
    "mlaot.micrograd": "a graph of values needs no compiler unless a user asks for one",
    "mlaot.onnx": "a front end loads nothing of what comes after it unless a user asks for that",
    "mlaot.commands.": "a command loads what it needs; the command line itself answers at once",
    "mlaot.build.": "a hook reads the settings, and tells their errors, before it loads the compiler",
    "mlaot.loading": "the library that a model comes from is loaded where a model does",
    "mlaot.sklearn.declare": "most estimators need no skl2onnx",
    "mlaot.probe.": "the process that asks a module loads nothing else unless a question needs it",
}
# What a box does not import, though it lies below: the build knows generate and what is said without a model.
COMPILER = ("report", "lower", "passes", "ops", "ir", "nest", "schedule", "frontend.trace", "frontend.numpy", "nn")
FORBIDDEN = {
    "build": COMPILER,
    "printing": ("passes",),
    "tune": ("passes", "ops"),
}
HEIGHT = {box: -number for number, row in enumerate(ROWS) for box in row}


def test_no_module_is_in_a_circle() -> None:
    graph = defaultdict[str, set[str]](set)
    for one in imports():
        graph[one.module].add(one.target)
    assert circles(graph) == []


@pytest.mark.parametrize("module", modules())
def test_imports_point_down(module: str) -> None:
    box = box_of(module)
    for one in imports():
        if one.module == module and (other := box_of(one.target)) != box:
            assert HEIGHT[other] < HEIGHT[box], f"{module} ({box}) imports {one.target} ({other}), which is above it"
            assert other not in FORBIDDEN.get(box, ()), f"{module} ({box}) imports {one.target} ({other})"


def test_printing_sees_no_node() -> None:
    assert not [
        one for one in imports() if box_of(one.module) == "printing" and one.name in ("Node", "Graph", "topological")
    ]


def is_late(one: Import) -> bool:
    """Whether a function imports, in a module of which that is not said."""
    packages = tuple(name for name in LATE if name.endswith("."))
    return one.inside and one.module not in LATE and not f"{one.module}.".startswith(packages)


def test_functions_import_nothing() -> None:
    assert [f"{one.module} imports {one.target}" for one in imports() if is_late(one)] == []


def test_only_render_imports_jinja() -> None:
    users = {path.name for path in modules().values() if "import jinja2" in path.read_text(encoding="utf-8")}
    assert users == {"render.py"}
