"""No test depends on how fast the machine is: none reads a clock for what it asserts."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
NAMES = {f"{name}{unit}" for name in ("time", "monotonic", "perf_counter", "process_time") for unit in ("", "_ns")}
CLOCK = re.compile(rf"\b({'|'.join(NAMES)})\(")
IN_TEXT = re.compile(r"\b(time\.time|monotonic|perf_counter|process_time)(_ns)?\(")
ALLOWED = {
    "runtime/test_threads.py::test_idle_threads_take_no_time": "of a process that does nothing, on any machine",
    "build/test_sources.py::test_digest_of_a_file_edited_meanwhile_fits_nothing": "a file's time, an hour apart",
    **{f"frontend/test_impure.py::{name}": "lines that must be warned of" for name in ("ASKED", "HEAD")},
    "wheel/test_hosts.py::INTERRUPT": "the end of a loop that a signal ends before",
}


def clocked(tree: ast.AST) -> bool:
    """Whether an expression reads a clock."""
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute | ast.Name)
        and (node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id) in NAMES
        for node in ast.walk(tree)
    )


def names_in(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def assigned(tree: ast.AST) -> Iterator[tuple[set[str], ast.AST]]:
    """Names, and what becomes part of their values: by assignment, by a method such as ``append``, by ``return``."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets, value):
                yield set().union(*map(names_in, targets)), value
            case ast.AugAssign(target, _, value) | ast.NamedExpr(target, value):
                yield names_in(target), value
            case ast.Call(ast.Attribute(ast.Name(name), _), [*_, value]):
                yield {name}, value
            case ast.FunctionDef(name):
                yield from (
                    ({name}, part.value) for part in ast.walk(node) if isinstance(part, ast.Return) and part.value
                )


def found_in(source: str) -> list[str]:
    """The functions of a test module that assert on a clock, and the texts that read one."""
    if not CLOCK.search(source):
        return []
    tree = ast.parse(source)
    found = []
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    parts = {node.name: [(to, names_in(value), clocked(value)) for to, value in assigned(node)] for node in functions}
    known = {name for name, found in parts.items() if any(reads and name in to for to, _, reads in found)}
    for function in functions:
        tainted, size = set(known), -1
        while len(tainted) != size:
            size = len(tainted)
            for to, names, reads in parts[function.name]:
                if reads or names & tainted:
                    tainted |= to
        tests = [node.test for node in ast.walk(function) if isinstance(node, ast.Assert)]
        if any(clocked(test) or names_in(test) & tainted for test in tests):
            found.append(function.name)
    for statement in tree.body:
        texts = [node.value for node in ast.walk(statement) if isinstance(node, ast.Constant)]
        if any(isinstance(text, str) and IN_TEXT.search(text) for text in texts):
            target = statement.targets[0] if isinstance(statement, ast.Assign) else statement
            found.append(getattr(target, "id", None) or getattr(target, "name", "?"))
    return found


@pytest.mark.parametrize("path", sorted(TESTS.rglob("test_*.py")), ids=lambda path: path.relative_to(TESTS).as_posix())
def test_no_test_asserts_on_a_clock(path: Path) -> None:
    if path == Path(__file__):
        return
    places = [f"{path.relative_to(TESTS).as_posix()}::{name}" for name in found_in(path.read_text())]
    assert [place for place in places if place not in ALLOWED] == []


@pytest.mark.parametrize(
    "source",
    [
        "def test_a():\n    begin = time.monotonic()\n    assert time.monotonic() - begin < 1",
        "def test_a():\n    begin = perf_counter()\n    took = perf_counter() - begin\n    assert took < 1",
        "def test_a():\n    seen = []\n    seen.append(time.time())\n    assert seen[0] < 1",
        "def took():\n    return time.time()\ndef test_a():\n    seconds = took()\n    assert seconds < 1",
        "CODE = 'import time; assert time.monotonic() < 1'",
    ],
)
def test_a_clock_is_found(source: str) -> None:
    assert found_in(source)


def test_what_is_allowed_is_there() -> None:
    for place in ALLOWED:
        path, name = place.split("::")
        assert name in found_in((TESTS / path).read_text())
