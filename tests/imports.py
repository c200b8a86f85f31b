"""Which module of mlaot imports which: all imports, inside functions and for type checkers too."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
# The boxes of the compiler, each with its modules, in rows: a box imports from rows below it only. The map is that of
# the flow: what a user declares is traced, optimized, lowered, printed and built.
ROWS: tuple[Mapping[str, tuple[str, ...]], ...] = (
    {
        "command line": ("mlaot.__main__", "mlaot.cli", "mlaot.commands"),
        "onnx.backend": ("mlaot.onnx.backend", "mlaot.onnx.__init__"),
        "mlaot": ("mlaot.__init__",),
    },
    {"micrograd": ("mlaot.micrograd",)},
    {"tune": ("mlaot.tune",), "page": ("mlaot.page",)},
    {"build": ("mlaot.build", "mlaot.cmake")},
    {"generate": ("mlaot.generate",), "bisect": ("mlaot.bisect", "mlaot.bisect_nests")},
    {"files": ("mlaot.files",), "interpret": ("mlaot.interpret",)},
    {"report": ("mlaot.report",)},
    {"binding": ("mlaot.binding",)},
    {"printing": ("mlaot.printing",)},
    {"lower": ("mlaot.lower",)},
    {"passes": ("mlaot.passes",), "loading": ("mlaot.loading",)},
    {"llm, sklearn, torch": ("mlaot.llm", "mlaot.sklearn", "mlaot.torch"), "api": ("mlaot.api", "mlaot.eager")},
    {"adapters": ("mlaot.adapters",)},
    {"onnx": ("mlaot.onnx",), "optim": ("mlaot.optim",)},
    {"nn": ("mlaot.nn",)},
    {"frontend.numpy": ("mlaot.frontend.numpy",), "frontend.scalar": ("mlaot.frontend.scalar",)},
    {"frontend.trace": ("mlaot.frontend.trace", "mlaot.frontend")},
    {"evaluate": ("mlaot.evaluate",), "transforms": ("mlaot.transforms",)},
    {"ops": ("mlaot.ops",)},
    {"schedule": ("mlaot.schedule",)},
    {"nest": ("mlaot.nest",), "probe": ("mlaot.probe",)},
    {"ir": ("mlaot.ir",)},
    {"settings": ("mlaot.settings", "mlaot.attributes")},
    {"machine": ("mlaot.schedule.machine", "mlaot.schedule.tuning"), "render": ("mlaot.render",)},
    {"tokenizers": ("mlaot.tokenizers",)},
    {"errors": ("mlaot.errors", "mlaot.isolation", "mlaot.stages", "mlaot.checked_json")},
)

# What is imported by a name that is computed: `mlaot.nn` is loaded when a model asks for it.
COMPUTED = {"mlaot": ("mlaot.eager", "mlaot.micrograd", "mlaot.nn", "mlaot.optim")}


class Import(NamedTuple):
    """One module imports another, or a name of it; ``inside``: when a function is called, not when it is loaded."""

    module: str
    target: str
    name: str
    inside: bool


def modules() -> dict[str, Path]:
    """The files of mlaot by the names of their modules."""
    files = sorted((ROOT / "mlaot").rglob("*.py"))
    return {".".join(f.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): f for f in files}


def box_of(module: str) -> str:
    """The box of a module: its own, else that of the package around it."""
    boxes = {name: box for row in ROWS for box, names in row.items() for name in names}
    if f"{module}.__init__" in boxes:
        return boxes[f"{module}.__init__"]
    while module not in boxes:
        module, dot, _ = module.rpartition(".")
        assert dot, f"{module} is in no box"
    return boxes[module]


@cache
def imports() -> list[Import]:
    """Every import of a module of mlaot by another."""
    files = modules()
    return [one for module, path in files.items() for one in _of_file(module, path, files) if one.target != module]


def _of_file(module: str, path: Path, files: Mapping[str, Path]) -> Iterator[Import]:
    """The imports of one file, those by ``import_module`` too."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    stack: list[tuple[ast.AST, bool]] = [(tree, False)]
    while stack:
        node, inside = stack.pop()
        if isinstance(node, ast.Import):
            yield from (Import(module, alias.name, "", inside) for alias in node.names if alias.name in files)
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*parts, *([node.module] if node.module else [])])
            for alias in node.names:
                target = f"{base}.{alias.name}" if f"{base}.{alias.name}" in files else base
                if target in files:
                    yield Import(module, target, alias.name, inside)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            targets = [node.args[0].value] if isinstance(node.args[0], ast.Constant) else COMPUTED.get(module, ())
            yield from (Import(module, str(target), "", inside) for target in targets if target in files)
        inside = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        stack += [(child, inside) for child in ast.iter_child_nodes(node)]


def arrows() -> dict[str, set[str]]:
    """For each box, the other boxes that its modules import from."""
    found: dict[str, set[str]] = defaultdict(set)
    for one in imports():
        if box_of(one.module) != box_of(one.target):
            found[box_of(one.module)].add(box_of(one.target))
    return dict(found)


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """The nodes that can be gone back to, together with those on the way: strongly connected components."""
    reach: dict[str, set[str]] = {}
    for start in graph:
        stack, seen = [*graph[start]], set[str]()
        while stack:
            if (node := stack.pop()) not in seen:
                seen.add(node)
                stack += graph.get(node, ())
        reach[start] = seen
    rings = {frozenset(b for b in reach[a] if a in reach.get(b, ())) for a in graph if a in reach[a]}
    return sorted(sorted(ring) for ring in rings)
