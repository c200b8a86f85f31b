"""Print a comparison as a table."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from examples.flagships.compare import Comparison, Side

RUNTIME = ("onnxruntime", "flatbuffers", "google", "coloredlogs", "humanfriendly", "sympy", "mpmath", "isympy")


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield all numbers and texts of an answer, with where they are in it."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, f"{path}.{key}")
    elif isinstance(value, list):
        yield f"{path}.length", str(len(value))
        for i, inner in enumerate(value):
            yield from leaves(inner, f"{path}[{i}]")
    else:
        yield path, value


def facts(answers: dict[str, Any]) -> dict[str, float]:
    """Return what is measured by the sample itself."""
    return {name: value["fact"] for name, value in answers.items() if isinstance(value, dict) and "fact" in value}


def differences(expected: dict[str, Any], found: dict[str, Any]) -> tuple[int, list[str], float]:
    """Return how many answers there are, those with other texts or counts, and how far numbers differ.

    The difference of a number is relative to the largest of its answer.
    """
    names = [name for name in expected if name not in facts(expected)]
    differing, off = [], 0.0
    for name in names:
        mine, other = (dict(leaves(answers.get(name))) for answers in (expected, found))
        if mine.keys() != other.keys():
            differing.append(name)
            continue
        pairs = [(value, other[place]) for place, value in mine.items()]
        numbers = [pair for pair in pairs if isinstance(pair[0], float) and isinstance(pair[1], float)]
        differing += [f"{name}: {a!r}, {b!r}" for a, b in pairs if a != b and (a, b) not in numbers]
        largest = max((abs(a) for a, _ in numbers if math.isfinite(a)), default=0.0) or 1.0
        off = max([off, *(distance(a, b) / largest for a, b in numbers)])
    return len(names), differing, off


def distance(expected: float, found: float) -> float:
    """Return how far a number is off; infinity where one of both is no number."""
    if expected == found or (math.isnan(expected) and math.isnan(found)):
        return 0.0
    off = abs(expected - found)
    return math.inf if math.isnan(off) else off


def best(side: Side) -> dict[str, float]:
    """Return the least time of all of a sample, the most memory, the least time to the first answer."""
    return {
        "first answer, CPU ms": min(side.first) * 1e3,
        "whole sample, CPU s": min(run["whole"] for run in side.runs),
        "peak memory, MB": max(run["memory"] for run in side.runs),
    }


def models(side: Side) -> dict[str, tuple[int, float]]:
    """Return how often each model is called, and the least microseconds of a call."""
    found: dict[str, tuple[int, float]] = {}
    for run in side.runs:
        for name, (calls, seconds) in run["models"].items():
            each = seconds / calls * 1e6
            found[name] = (calls, min(each, found.get(name, (0, math.inf))[1]))
    return found


def rows(comparison: Comparison) -> Iterator[tuple[str, list[str]]]:
    """Yield the rows of the table: what, and a text for each side."""
    sides, sizes = comparison.sides, comparison.sizes
    whole = {title: sum(parts.values()) for title, parts in sizes.items()}
    runtime = sum(size for name, size in sizes["onnxruntime"].items() if name.partition("-")[0] in RUNTIME)
    numpy = {
        title: sum(size for name, size in parts.items() if name.startswith("numpy")) for title, parts in sizes.items()
    }
    yield "wheel, MB", pair(comparison.wheels)
    yield "installed, MB", pair(whole)
    yield "  NumPy", pair(numpy)
    yield "  onnxruntime", pair({"onnxruntime": runtime, "mlaot": 0.0})
    root = comparison.flagship.package.partition(".")[0]
    yield "  the package itself", pair({title: parts.get(root, 0.0) for title, parts in sizes.items()})
    digits = {"first answer, CPU ms": 1, "whole sample, CPU s": 2, "peak memory, MB": 0}
    measured = [best(side) for side in sides]
    for name, places in digits.items():
        yield name, [f"{found[name]:.{places}f}" for found in measured]
    for name in facts(sides[0].runs[0]["answers"]):
        yield name, [f"{min(facts(run['answers'])[name] for run in side.runs):.1f}" for side in sides]
    called = {side.title: models(side) for side in sides}
    for name, (calls, _) in called[sides[0].title].items():
        times = {title: found[name][1] for title, found in called.items()}
        ratios = [f" ({times[side.title] / times[side.beside]:.2f})" if side.beside else "" for side in sides]
        yield (
            f"{name}, {calls} calls, CPU us",
            [f"{time:,.0f}{ratio}" for time, ratio in zip(times.values(), ratios, strict=True)],
        )


def pair(values: dict[str, float]) -> list[str]:
    """Return texts of what does not depend on the instruction set."""
    return [f"{values['onnxruntime']:.1f}", f"{values['mlaot']:.1f}"]


def report(comparison: Comparison) -> list[str]:
    """Return the lines to print."""
    flagship, sides = comparison.flagship, comparison.sides
    cells_of = [("", [side.title for side in sides]), *rows(comparison)]
    table = [(name, [*texts, *[""] * (len(sides) - len(texts))]) for name, texts in cells_of]
    widths = [
        max(len(name) for name, _ in table),
        *(max(len(texts[i]) for _, texts in table) for i in range(len(sides))),
    ]
    lines = [f"{flagship.name} {flagship.version}", ""]
    for name, texts in table:
        cells = [text.rjust(width) for text, width in zip(texts, widths[1:], strict=True)]
        lines.append("  ".join([name.ljust(widths[0]), *cells]).rstrip())
    lines += ["", f"building its wheel took {comparison.build_seconds:.0f} s of CPU"]
    for side in (side for side in sides if side.beside):
        count, differing, off = differences(sides[0].runs[0]["answers"], side.runs[0]["answers"])
        same = f"texts and counts differ in {len(differing)} places" if differing else "texts and counts are equal"
        lines.append(f"{side.title}: {count} answers; {same}; numbers are off by {off:.1e} of the largest at most")
        lines += [f"  {line}" for line in differing[:10]]
    return lines
