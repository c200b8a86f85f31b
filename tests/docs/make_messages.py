"""Write the tables of ``docs/messages.md``, between their marks: ``python -m tests.docs.make_messages``.

They hold the messages that tests compare with what a build says, word for word: those of ``tests/build`` for settings,
those of ``tests/wheel`` for models, and those of ``tests/frontend`` for lines that cannot be traced.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from html import escape
from pathlib import Path

from ..frontend import test_errors as tracing
from ..projects import ROOT
from ..wheel.test_errors import MODELS

PAGE = ROOT / "docs" / "messages.md"
SETTINGS = ROOT / "tests" / "build" / "settings_errors.txt"
COMMAND = "python -m tests.docs.make_messages"
ADVICE = re.compile(r"; (?!got )")
LONG = re.compile(r"((?:the keys are|known are) \S+ \S+) .*")  # lists that grow
PLACE = re.compile(r"model\.py:\d+: ")


def split(message: str) -> tuple[str, str]:
    """What a message says, and what it advises."""
    said, *advice = ADVICE.split(PLACE.sub("", LONG.sub(r"\1 ...", message)), maxsplit=1)
    return said, "".join(advice)


def code(text: str) -> str:
    """Text as code in a cell of a table; what shows an escaped | in one does not agree about the backslash."""
    if "|" in text:
        return f"<code>{escape(text).replace('|', '&#124;').replace('`', '&#96;')}</code>"
    ticks = "``" if "`" in text else "`"
    space = " " if "`" in text else ""
    return f"{ticks}{space}{text}{space}{ticks}" if text else ""


def table(head: Iterable[str], lines: Iterable[Iterable[str]]) -> str:
    """A table in Markdown."""
    rows = [list(head), *map(list, lines)]
    rows.insert(1, ["---"] * len(rows[0]))
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def kind(message: str) -> str:
    """What the messages about several keys and tables have in common."""
    before, _, after = re.sub(r"[;,] got .*|(?<=valid TOML: ).*", "", message).partition(" must be ")
    return re.sub(r"'[^']*'|\[[^]]*\]|pkg/\S+", "", before) + after


def settings() -> str:
    """The messages of settings, one of each kind."""
    said: dict[str, str] = {}
    for message in re.findall(r"^mlaot: (.*)$", SETTINGS.read_text(encoding="utf-8"), re.MULTILINE):
        said.setdefault(kind(message), message)
    return table(("it says", "it advises"), (map(code, split(message)) for message in said.values()))


def models() -> str:
    """The messages of a model that is no model."""
    return table(
        ("mistake", "it says", "it advises"),
        ([name, *map(code, split(message))] for name, (_, message) in MODELS.items()),
    )


def sources(path: Path) -> dict[str, str]:
    """The code of each case: of a lambda what it gives, of a function its body or its name."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = {
        node.name: "; ".join(map(ast.unparse, node.body)) for node in tree.body if isinstance(node, ast.FunctionDef)
    }
    (cases,) = (
        node.value
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "CASES" and isinstance(node.value, ast.Dict)
    )
    found = {}
    for key, value in zip(cases.keys, cases.values, strict=True):
        assert isinstance(key, ast.Constant) and isinstance(value, ast.Tuple)
        case = value.elts[0]
        text = ast.unparse(case.body if isinstance(case, ast.Lambda) else case)
        found[str(key.value)] = functions.get(text, text if isinstance(case, ast.Lambda) else f"{text}(x)")
    return found


def traced() -> str:
    """The messages of lines that cannot be traced."""
    texts = sources(Path(tracing.__file__))
    return table(
        ("code", "it says", "it advises"),
        ([code(texts[name]), *map(code, split(message))] for name, (_, message) in tracing.CASES.items()),
    )


def page(text: str) -> str:
    """The page with its tables as they must be."""
    for name, made in (("settings", settings), ("models", models), ("traced", traced)):
        begin, end = f"<!-- {name} -->\n", "<!-- end -->"
        before, _, rest = text.partition(begin)
        text = f"{before}{begin}{made()}{end}{rest.partition(end)[2]}"
    return text


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
