"""Licences and model cards: find their files, and check them against the licence of the whole wheel in [project].

A wheel's METADATA and its folder of licences follow only from ``license`` and ``license-files`` of [project], to which
no tool may add (PEP 621, PEP 639). So these must cover the licences of the models.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Union

from mlaot.errors import MlaotError
from mlaot.settings import FILE, ModelSettings
from mlaot.settings.keys import keys_of
from mlaot.settings.patterns import find_files
from mlaot.settings.tables import table_of, value_error

# A licence, or AND or OR with what it joins.
Expression = Union[str, "tuple[str, list[Expression]]"]
OPERATORS = ("AND", "OR", "WITH")
NAME = re.compile(r"(DocumentRef-[A-Za-z0-9.-]+:)?[A-Za-z0-9.-]+\+?")


def find_licence(model: ModelSettings, project: Mapping[str, Any], folder: Path) -> ModelSettings:
    """Return a model with the files of its patterns. Raise ``MlaotError`` if [project] does not cover its licence."""
    where = table_of(model.name)
    check_expression(model, project.get("license"), where)
    key = f"key 'license-files' in {where} of {FILE}"
    files = [file for name in model.license_files for file in find_files(folder, name, key, "model/LICENSE*")]
    check_listed(files, project, folder, key)
    key = f"key 'model-card' in {where} of {FILE}"
    cards = find_files(folder, model.model_card, key, "model/README.md") if model.model_card else []
    if len(cards) > 1:
        raise MlaotError(f"{key}: {model.model_card!r} means {len(cards)} files; a model has one card")
    for file in (*files, *cards):
        try:
            (folder / file).read_bytes().decode()
        except UnicodeDecodeError as error:
            raise MlaotError(f"{file} is not UTF-8 at byte {error.start}; save it as UTF-8") from None
    return replace(model, license_files=tuple(dict.fromkeys(files)), model_card="".join(cards))


def check_expression(model: ModelSettings, project: Any, where: str) -> None:
    """Raise ``MlaotError`` for an invalid SPDX expression, or one that the project's expression does not cover."""
    if not model.license:
        return
    try:
        expression = parse_expression(model.license)
    except ValueError:
        raise value_error(keys_of(ModelSettings)["license"], where, model.license) from None
    try:
        granted = set(names_of(parse_expression(project))) if isinstance(project, str) else None
    except ValueError:
        return  # the build backend refuses it
    if granted is not None and not is_covered(expression, granted):
        both = " AND ".join(f"({text})" if " OR " in text else text for text in (project, model.license))
        raise MlaotError(
            f"key 'license' in {where} of {FILE} is {model.license!r}, but license = {project!r} in [project], which"
            f" stands for the whole wheel, does not cover it; write license = {both!r} in [project]"
        )


def check_listed(files: Sequence[str], project: Mapping[str, Any], folder: Path, key: str) -> None:
    """Raise ``MlaotError`` for licence files that ``license-files`` of [project] does not match.

    The backend reports an invalid ``license-files``.
    """
    patterns, dynamic = project.get("license-files", []), project.get("dynamic", [])
    if not isinstance(patterns, list) or not isinstance(dynamic, list) or "license-files" in dynamic:
        return
    listed: set[str] = set()
    for pattern in map(str, patterns):
        with suppress(MlaotError):
            listed.update(find_files(folder, pattern, "", ""))
    if missing := [file for file in files if file not in listed]:
        raise MlaotError(
            f"{key} matches {missing[0]!r}, which license-files of [project] does not list; write license-files ="
            f" {[*patterns, *dict.fromkeys(missing)]} in [project]"
        )


def parse_expression(text: str) -> Expression:
    """Parse an SPDX licence expression; raise ``ValueError`` if it is invalid."""
    tokens = ["", *reversed(re.findall(r"[()]|[^\s()]+", text))]
    try:
        expression = _parse_joined("OR", tokens)
    except RecursionError:
        raise ValueError("too many parentheses") from None
    if tokens != [""]:
        raise ValueError(f"unexpected {tokens[-1]!r}")
    return expression


def _parse_joined(operator: str, tokens: list[str]) -> Expression:
    """Parse operands of one operator from the end of ``tokens``; AND binds tighter than OR."""
    parts = [_parse_joined("AND", tokens) if operator == "OR" else _parse_licence(tokens)]
    while tokens[-1] == operator:
        tokens.pop()
        parts.append(_parse_joined("AND", tokens) if operator == "OR" else _parse_licence(tokens))
    return (operator, parts) if len(parts) > 1 else parts[0]


def _parse_licence(tokens: list[str]) -> Expression:
    """Parse a licence, which may have an exception, or an expression in parentheses."""
    if tokens[-1] == "(":
        tokens.pop()
        expression = _parse_joined("OR", tokens)
        if tokens[-1] != ")":
            raise ValueError("a parenthesis is left open")
        tokens.pop()
        return expression
    name = _parse_name(tokens)
    if tokens[-1] != "WITH":
        return name
    tokens.pop()
    return f"{name} WITH {_parse_name(tokens)}"


def _parse_name(tokens: list[str]) -> str:
    """Parse the identifier of a licence or of an exception."""
    if not NAME.fullmatch(tokens[-1]) or tokens[-1] in OPERATORS:
        raise ValueError(f"expected a licence, got {tokens[-1]!r}")
    return tokens.pop()


def names_of(expression: Expression) -> Iterator[str]:
    """Yield the licences in an expression in lower case, as case does not matter."""
    if isinstance(expression, str):
        yield expression.lower()
    else:
        for part in expression[1]:
            yield from names_of(part)


def is_covered(expression: Expression, granted: set[str]) -> bool:
    """Tell whether an expression is fulfilled by the granted licences; one operand of OR suffices."""
    if isinstance(expression, str):
        return expression.lower() in granted
    operator, parts = expression
    return (any if operator == "OR" else all)(is_covered(part, granted) for part in parts)
