"""Ways to run a function of arrays by mlaot: traced and evaluated by the references, or compiled to machine code."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from mlaot import passes
from mlaot.evaluate import evaluate
from mlaot.frontend.trace.declaration import Traced
from mlaot.ir import Graph, Type, dim
from mlaot.ir.module import Module
from mlaot.ir.types import BY_NUMPY
from mlaot.lower.lower import lower
from mlaot.lower.program import Program
from mlaot.printing.file import kernels_file
from mlaot.schedule.machine import MACHINES
from mlaot.settings.options import DEFAULTS, Options

from ..compiled import Library
from ..frontend.tracing import graph_of

Array = np.ndarray[Any, Any]
Function = Callable[..., Any]
Engine = Callable[[str, Function, Sequence[Array]], Array]

BATCH = 21  # elements that a number is repeated to: whole vectors of every instruction set, and a rest


def oracle(name: str, function: Function, arrays: Sequence[Array]) -> Array:
    """``function`` of ``arrays`` by the references of the ops."""
    types = [Type(BY_NUMPY[str(a.dtype)], a.shape) for a in arrays]
    graph, _ = graph_of(function, *types)
    return evaluate(graph, {f"x{i}": a for i, a in enumerate(arrays)})["0"]


def through_passes(graph: Graph) -> Graph:
    """What the passes make of a traced graph."""
    return passed(graph).graphs["forward"]


def passed(graph: Graph, options: Options = DEFAULTS) -> Module:
    """A traced graph as a module that has been through the passes, with all of its inputs."""
    return passes.run("m", Traced(graph, {}, per_example=False, arguments=tuple(graph.inputs)), options)


def compiled_program(function: Function, types: Sequence[Type], isa: str) -> Program:
    """A function of arrays of ``types`` as a program, by way of all passes."""
    graph, _ = graph_of(function, *types)
    return lower(passed(graph))


class Compiled:
    """Runs functions as C compiled for ``isa``: one library for each function and types of its arguments.

    The libraries stay in ``folder``, by their text, for the next run. Numbers are called in a batch: all elements must
    give the same bits. Axes have named dims, so that one library serves every size.
    """

    def __init__(self, isa: str, folder: Path) -> None:
        self.isa = isa
        self.folder = folder
        self.libraries: dict[tuple[Any, ...], Library] = {}

    def __call__(self, name: str, function: Function, arrays: Sequence[Array]) -> Array:
        if any(a.ndim for a in arrays):
            return self._call(name, function, arrays)
        found = self._call(name, function, [np.full(BATCH, a) for a in arrays])
        if not found.ndim:  # not elementwise
            return self._call(name, function, arrays)
        words = found.view(np.uint8).reshape(BATCH, -1)
        if not (words == words[0]).all() and not np.isnan(found).all():
            raise AssertionError(f"{name}: {[a.item() for a in arrays]} gives {found} in a batch")
        return np.asarray(found[0])

    def _call(self, name: str, function: Function, arrays: Sequence[Array]) -> Array:
        types = tuple(Type(BY_NUMPY[str(a.dtype)], tuple(map(axis_dim, a.shape, _from_end(a)))) for a in arrays)
        key = (name, *map(str, types))
        if key not in self.libraries:
            self.libraries[key] = self._library(name, function, types)
        dims = {f"n{k}": size for a in arrays for k, size in zip(_from_end(a), a.shape, strict=True) if size != 1}
        return self.libraries[key].call("f", "forward", {f"x{i}": a for i, a in enumerate(arrays)}, dims)["0"]

    def _library(self, name: str, function: Function, types: Sequence[Type]) -> Library:
        program = compiled_program(function, types, self.isa)
        text = kernels_file(program, "f", MACHINES[self.isa])
        mark = hashlib.sha256(text.encode()).hexdigest()[:16]
        return Library({"f": program}, self.isa, self.folder / f"{name.partition(' ')[0]}_{mark}")


def _from_end(array: Array) -> range:
    """Axes counted from the end, by which arrays broadcast."""
    return range(array.ndim, 0, -1)


def axis_dim(size: int, from_end: int) -> Any:
    """The dim of an axis: named, but for one of size 1, which broadcasts."""
    return 1 if size == 1 else dim(f"n{from_end}")


def called(function: Function, position: int, constant: Any) -> Function:
    """A function of two arrays, one of which is the number ``constant``."""
    return partial(_with_constant, function, position, constant)


def _with_constant(function: Function, position: int, constant: Any, x: Any) -> Any:
    return function(constant, x) if position == 0 else function(x, constant)
