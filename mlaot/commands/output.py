"""Print the output of commands as JSON, or as lines and tables. On a terminal, tables use rich if it is installed."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

Data = dict[str, Any]


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--json``."""
    parser.add_argument("--json", action="store_true", help="print the same as JSON")


def report(data: Data, show: Callable[[Data], None], options: argparse.Namespace) -> None:
    """Print the data of a command."""
    if options.json:
        print(json.dumps(json_safe(data), indent=2))
    else:
        show(data)


def json_safe(value: Any) -> Any:
    """Turn infinities and nan, which JSON lacks, into strings."""
    if isinstance(value, dict):
        return {key: json_safe(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_safe(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table of texts and numbers; a column whose name starts with ``>`` is aligned to the right."""
    right = [column.startswith(">") for column in columns]
    heads = [column.lstrip(">") for column in columns]
    cells = [[cell if isinstance(cell, str) else f"{cell:,}" for cell in row] for row in rows]
    if not (sys.stdout.isatty() and rich_table(heads, right, cells)):
        plain_table(heads, right, cells)


def plain_table(heads: list[str], right: list[bool], cells: list[list[str]]) -> None:
    """Print columns separated by two spaces."""
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    for row in (heads, *cells):
        texts = [c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True)]
        print("  " + "  ".join(texts).rstrip())


def rich_table(heads: list[str], right: list[bool], cells: list[list[str]]) -> bool:
    """Print a table that fits the terminal; return False if rich is not installed."""
    try:
        from rich.console import Console
        from rich.padding import Padding
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        return False
    table_ = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for head, is_right in zip(heads, right, strict=True):
        table_.add_column(head, justify="right" if is_right else "left", overflow="fold")
    for row in cells:
        table_.add_row(*map(Text, row))  # Text: brackets of shapes are no markup
    Console(highlight=False).print(Padding.indent(table_, 2))
    return True


def size(count: int) -> str:
    """Format a number of bytes: ``93.1 KB``."""
    if count < 1000:
        return f"{count} B"
    power = min(int(math.log10(count)) // 3, 3)
    return f"{count / 1000**power:.1f} {' KMG'[power]}B"
