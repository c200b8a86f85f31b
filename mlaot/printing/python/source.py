"""Functions of mlaot as part of a file of plain Python: their source with new names, and that of all they use.

``name`` of a module ``merging`` becomes ``_merging_name``. Annotations and comments are left out.
"""

from __future__ import annotations

import ast
import copy
import inspect
import sys
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from importlib import import_module

PACKAGE = "mlaot"
Place = tuple[str, str]  # a module and a name in it


def definitions(roots: Iterable[Place], given: Collection[str]) -> list[str]:
    """Return the source of functions, classes and constants, each after those that it uses, except ``given`` names."""
    texts, seen = list[str](), set[int]()

    def define(place: Place) -> None:
        if renamed(place) in given:
            return
        names, statements = _module(place[0])
        assert place[1] in statements, f"bug in mlaot: nothing defines {'.'.join(place)}"
        statement = statements[place[1]]
        if id(statement) in seen:
            return
        seen.add(id(statement))
        renamer, own = _Renamer(names, _bound(statement)), copy.deepcopy(statement)
        if isinstance(own, ast.FunctionDef | ast.ClassDef):
            own.name = renamed(place)
        text = ast.unparse(ast.fix_missing_locations(renamer.visit(own)))
        for needed in renamer.needed:
            define(needed)
        texts.append(text)

    for root in roots:
        define(root)
    return texts


def renamed(place: Place) -> str:
    """Return the new name of a name of a module; for the standard library ``_functools.cache``."""
    module, name = place
    if not _is_own(module):
        return ".".join(filter(None, (f"_{module.rpartition('.')[2]}", name)))
    return f"_{module.rpartition('.')[2]}_{name.lstrip('_')}"


def _is_own(module: str) -> bool:
    return module.partition(".")[0] == PACKAGE


@cache
def _module(module: str) -> tuple[dict[str, Place], dict[str, ast.stmt]]:
    """Return the origin of each name in a module, and the statements by the names that they define."""
    import_module(module)
    names, statements = dict[str, Place](), dict[str, ast.stmt]()
    for statement in ast.parse(inspect.getsource(sys.modules[module])).body:
        if isinstance(statement, ast.Import):
            names |= {alias.asname or alias.name: (alias.name, "") for alias in statement.names}
        elif isinstance(statement, ast.ImportFrom):
            names |= {alias.asname or alias.name: _imported(statement, alias.name) for alias in statement.names}
        else:
            own = dict.fromkeys(_defined(statement), statement)
            statements |= own
            names |= {name: (module, name) for name in own}
    return names, statements


def _imported(statement: ast.ImportFrom, name: str) -> Place:
    place = str(statement.module), name
    return (".".join(place), "") if _is_own(place[0]) and ".".join(place) in sys.modules else place


def _defined(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        yield statement.name
    elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        yield statement.target.id
    elif isinstance(statement, ast.Assign):
        yield from (node.id for target in statement.targets for node in ast.walk(target) if isinstance(node, ast.Name))


def _bound(statement: ast.stmt) -> set[str]:
    """Return the local names of a function or of the methods of a class."""
    if not isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return set()
    nodes = [*ast.walk(statement)]
    stored = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return stored | {node.arg for node in nodes if isinstance(node, ast.arg)}


class _Renamer(ast.NodeTransformer):
    """A transformer that renames names of modules to those of the file; ``needed`` collects mlaot's, in order."""

    def __init__(self, names: dict[str, Place], bound: set[str]) -> None:
        self.names = {name: place for name, place in names.items() if name not in bound}
        self.needed = list[Place]()

    def named(self, place: Place) -> ast.expr:
        if _is_own(place[0]):
            self.needed.append(place)
        return ast.parse(renamed(place), mode="eval").body

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.named(self.names[node.id]) if node.id in self.names else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        place = self.names.get(node.value.id) if isinstance(node.value, ast.Name) else None
        if place is not None and _is_own(place[0]) and not place[1]:
            return self.named((place[0], node.attr))
        return self.generic_visit(node)

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.AST:
        inner = [part.value for part in ast.walk(node.value) if isinstance(part, ast.Constant)]
        assert not any(isinstance(value, str) for value in inner), (
            f"bug in mlaot: what Python 3.12 unparses {inner} in an f-string to is none of 3.11"
        )
        return self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        """Keep the annotations of fields, as ``object``."""
        for statement in node.body:
            if isinstance(statement, ast.AnnAssign):
                statement.annotation = ast.Constant(None)
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        if isinstance(node.annotation, ast.Constant):
            node.annotation = ast.Name("object", ast.Load())
            return self.generic_visit(node)
        return None if node.value is None else self.generic_visit(ast.Assign([node.target], node.value))
