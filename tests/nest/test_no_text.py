"""Nests and schedules are values: their modules read no text and write no C."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent / "mlaot"
FILES = [path for folder in ("nest", "schedule", "lower") for path in (ROOT / folder).glob("*.py")]
FILES.remove(ROOT / "lower" / "identifiers.py")  # which tells the names that users choose from C's
STATEMENT = re.compile(r";$|; |\{$|for \(|if \(|\*restrict")  # of C


def texts(tree: ast.Module) -> list[str]:
    """The string literals of a module, parts of f-strings among them, without docstrings."""
    docs = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in docs]
    return [node.value for node in found if isinstance(node.value, str)]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_module_reads_or_writes_c(path: Path) -> None:
    tree = ast.parse(path.read_text())
    names = [a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names]
    assert "re" not in names
    assert [text for text in texts(tree) if STATEMENT.search(text) and "bug in mlaot" not in text] == []
