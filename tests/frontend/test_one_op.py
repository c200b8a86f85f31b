"""Every function of NumPy and SciPy that can be traced, alone, against NumPy itself: traced, and as compiled C.

The tests compile each function for some dtypes; this compiles all, on the oldest and the newest instruction set:

    python -m tests.frontend.test_one_op
"""

from __future__ import annotations

import inspect
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlaot.errors import MlaotError
from mlaot.frontend.numpy.scipy_functions import STANDING_IN, traceable
from mlaot.frontend.numpy.ufuncs import METHODS, UFUNCS
from mlaot.frontend.trace import protocols, tree
from mlaot.ir.types import BY_NUMPY, Type
from mlaot.lower.lower import lower
from mlaot.lower.program import Program

from ..arrayapi.engines import passed
from ..compiled import AVAILABLE, Library
from .one_op import FORMS, Form, array, arrays, cases, expected, letters, scalar_forms, ufunc, wrong
from .tracing import graph_of, run
from .values import DTYPES, Array

ISAS = sorted({AVAILABLE[0], AVAILABLE[-1]})
KINDS = ("float64", "float32", "float16", "int64", "int8", "uint8", "bool")
WITH_NUMBERS = ("add", "subtract", "multiply", "divide", "floor_divide", "remainder", "power", "maximum", "fmin")
REFUSED = {  # what NumPy has and mlaot says it has not
    "nextafter takes f32 or f64",
    "does not fit into",  # numbers that the dtype of an array has no place for
    "have no common dtype",  # comparisons of int64 with uint64
}


def traced(form: Form, dtype: str) -> list[Array] | None:
    """The results of the traced graph by the references, None where it is refused with a reason."""
    with traceable():
        try:
            return list(tree.flatten(run(form, *arrays(form, dtype)))[0])
        except MlaotError as error:
            assert any(reason in str(error) for reason in REFUSED), error
            return None


@pytest.mark.parametrize("name", cases())
def test_traced(name: str) -> None:
    """In dtype, shape and value."""
    compared = 0
    for number, form in enumerate(cases()[name]):
        for dtype in KINDS if name in FORMS else DTYPES:
            wanted = expected(name, form, dtype)
            found = None if wanted is None else traced(form, dtype)
            if wanted is not None and found is not None:
                assert not (lines := wrong(name, form, dtype, found, wanted)), f"form {number}, {dtype}: {lines}"
                compared += 1
    assert compared, f"NumPy refuses every form of {name}"


# Compiled.


def usable(name: str, forms: Sequence[Form], dtype: str) -> list[tuple[Form, list[Array]]]:
    """The forms that NumPy and mlaot take, with what NumPy gives."""
    found = [(form, expected(name, form, dtype)) for form in forms]
    return [(form, w) for form, w in found if w is not None and traced(form, dtype) is not None]


def inputs(forms: Sequence[Form], dtype: str) -> dict[str, Array]:
    return {name: array(name, dtype) for name in sorted({x for form in forms for x in letters(form)})}


def program(forms: Sequence[Form], dtype: str, isa: str) -> Program:
    """One entry that gives the results of all forms."""
    given = inputs(forms, dtype)

    def together(*values: Any) -> list[Any]:
        known = dict(zip(given, values, strict=True))
        return [form(*[known[x] for x in letters(form)]) for form in forms]

    with traceable():
        graph, _ = graph_of(together, *[Type(BY_NUMPY[str(a.dtype)], a.shape) for a in given.values()])
    return lower(passed(graph))


def work(isa: str, every: bool = False) -> Iterator[tuple[str, str, Sequence[Form]]]:
    """What is compiled: a function, a dtype, its forms. In turn, unless all are wanted."""
    for i, (name, forms) in enumerate(cases().items()):
        takers = [d for d in KINDS if any(expected(name, form, d) is not None for form in forms[:3])]
        if every or i % len(ISAS) == ISAS.index(isa):
            for dtype in takers if every else [takers[i // len(ISAS) % len(takers)]]:
                yield name, dtype, forms
    for name in WITH_NUMBERS:
        for dtype in KINDS[:5] if every else ("float32",):
            yield name, dtype, scalar_forms(name)


def compiled(isa: str, folder: Path, every: bool = False) -> tuple[list[str], int]:
    """What differs from NumPy, and how many numbers were compared."""
    plans, programs = {}, {}
    for name, dtype, forms in work(isa, every):
        pairs = usable(name, forms, dtype)
        if pairs:
            stem = f"f{len(plans)}"
            plans[stem] = name, dtype, pairs
            programs[stem] = program([form for form, _ in pairs], dtype, isa)
    flags = ("-Wno-error", "-O1" if every or isa == ISAS[-1] else "-O0")  # x == x may be asked for
    library = Library(programs, isa, folder, flags)
    lines, count = [], 0
    for stem, (name, dtype, pairs) in plans.items():
        given = inputs([form for form, _ in pairs], dtype)
        found = library.call(stem, "forward", {f"x{i}": a for i, a in enumerate(given.values())})
        results = iter(found[str(i)] for i in range(len(found)))
        for number, (form, wanted) in enumerate(pairs):
            count += sum(w.size for w in wanted)
            lines += [
                f"{isa} {name}[{number}] {dtype}: {line}"
                for line in wrong(name, form, dtype, [next(results) for _ in wanted], wanted)
            ]
    return lines, count


@pytest.mark.parametrize("isa", ISAS)
def test_compiled(isa: str, shared_folder: Path) -> None:
    lines, count = compiled(isa, shared_folder / f"one_op_{isa}")
    assert not lines, "\n".join(lines)
    assert count > 100_000


# That nothing is left out.


def test_every_function_has_forms() -> None:
    """A function that enters the tables of the front end needs a case."""
    known = {id(ufunc(name)) for name in cases() if name in UFUNCS}
    for name in UFUNCS:
        assert id(ufunc(name)) in known, name
    same = {id(function): name for name, function in protocols.FUNCTIONS.items() if name in FORMS}
    for name, function in protocols.FUNCTIONS.items():
        assert id(function) in same, name
    for name, method in METHODS:
        assert method == "outer" or f"{name}.{method}" in FORMS, (name, method)
    assert set(STANDING_IN) <= set(FORMS)
    assert protocols.NAMESPACE


def test_every_option_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """So is an optional argument that a function gets."""
    given: dict[Any, set[str]] = {function: set() for function in protocols.FUNCTIONS.values()}
    right = protocols.run

    def noting(name: str, implementation: Any, args: Any, options: Any) -> Any:
        if implementation in given:
            kept = {k: v for k, v in options.items() if v is not np._NoValue}
            given[implementation] |= set(inspect.signature(implementation).bind_partial(*args, **kept).arguments)
        return right(name, implementation, args, options)

    monkeypatch.setattr(protocols, "run", noting)
    for name, forms in FORMS.items():
        for form in forms:
            if expected(name, form, "float64") is not None:
                traced(form, "float64")
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    for function, names in given.items():
        wanted = {k for k, p in inspect.signature(function).parameters.items() if p.kind not in variable}
        missing = {f"{function.__name__}({name}=)" for name in wanted - names - WITHOUT_MEANING}
        assert missing <= NOT_TRACED, missing


WITHOUT_MEANING = {"order", "casting", "copy", "subok", "device", "newshape"}
NOT_TRACED = {"interp(period=)", "average(returned=)", "searchsorted(sorter=)"}  # errors of their own
NOT_TRACED |= {f"refuse_put_along_axis({name}=)" for name in ("arr", "indices", "values", "axis")}


def main() -> None:
    failures, total = [], 0
    for isa in ISAS:
        with tempfile.TemporaryDirectory() as folder:
            lines, count = compiled(isa, Path(folder), every=True)
        failures, total = failures + lines, total + count
    print("\n".join(failures), f"{len(cases())} functions, {total:,} numbers, {len(failures)} differences", sep="\n")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
