"""Imports point along the arrows of the compiler and never back."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# A module may import, when it is imported itself, what stands before it or beside it.
LAYERS = (
    ("mlaot.errors", "mlaot.interpreter", "mlaot.schedule.machine", "mlaot.schedule.tuning", "mlaot.stages"),
    ("mlaot.attributes", "mlaot.probe", "mlaot.settings", "mlaot.stored"),
    ("mlaot.ir",),
    ("mlaot.nest", "mlaot.render"),
    ("mlaot.schedule",),
    ("mlaot.ops",),
    ("mlaot.transforms",),
    ("mlaot.api", "mlaot.eager", "mlaot.evaluate", "mlaot.frontend", "mlaot.micrograd", "mlaot.nn", "mlaot.optim"),
    ("mlaot.onnx", "mlaot.sklearn", "mlaot.torch"),
    ("mlaot.loading",),
    ("mlaot.passes",),
    ("mlaot.printing.identifiers", "mlaot.lower.program"),
    ("mlaot.lower",),
    ("mlaot.printing",),
    ("mlaot.binding",),
    ("mlaot.interpret", "mlaot.report"),
    ("mlaot.files",),
    ("mlaot.bisect", "mlaot.bisect_nests", "mlaot.generate", "mlaot.build", "mlaot.cmake", "mlaot.tune"),
    ("mlaot.commands", "mlaot.cli", "mlaot.__main__", "mlaot.onnx.backend"),
)
FILES = sorted((ROOT / "mlaot").rglob("*.py"))


def layer(module: str) -> int | None:
    """The number of the layer of a module of mlaot; None for the package itself."""
    matching = [
        (len(name), number)
        for number, names in enumerate(LAYERS)
        for name in names
        if module == name or module.startswith(f"{name}.")
    ]
    return max(matching)[1] if matching else None


def imports(path: Path, module: str) -> set[str]:
    """Modules of mlaot that a file imports when it is imported: not inside functions, not for type checkers."""
    found: set[str] = set()
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parts, *([node.module] if node.module else [])])
            full = [f"{base}.{alias.name}" for alias in node.names]
            found |= {name if layer(name) is not None else base for name in full}
    return {name for name in found if name.startswith("mlaot")}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_one_way(path: Path) -> None:
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    own = layer(module)
    if own is None:
        assert module == "mlaot"
        return
    for name in imports(path, module):
        other = layer(name)
        assert other is None or other <= own, f"{module} imports {name}, which comes after it"


def test_only_render_imports_jinja() -> None:
    users = {p.name for p in FILES if "import jinja2" in p.read_text()}
    assert users == {"render.py"}
