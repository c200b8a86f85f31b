"""What a build adds to a program, and says of it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mlaot import passes
from mlaot.frontend.trace.declaration import Declaration
from mlaot.ir.module import Module
from mlaot.lower.program import Program
from mlaot.lower.text import program_text
from mlaot.printing.file import LONG_KERNELS
from mlaot.report.facts import graph_facts
from mlaot.report.golden import compared, golden_vectors
from mlaot.report.rounded import narrowed, quantized
from mlaot.stages import stage


def dump(program: Program) -> None:
    """Print a program on stderr where ``MLAOT_DUMP`` asks for it."""
    if passes.LOWERING in passes.stages_to_print():
        print(program_text(program), file=sys.stderr)


def with_facts(program: Program, graphs: Module) -> Program:
    """The program with what its module tells of the graphs."""
    return replace(program, module=replace(program.module, facts=graph_facts(graphs)))


def with_golden_vectors(program: Program, graphs: Module, model: Any) -> Program:
    """The program with golden vectors, for which NumPy evaluates the model.

    Print how far the answers of the model's references are from them, and what weights in fewer bits save and cost.
    """
    references = model.references if isinstance(model, Declaration) else {}
    with stage("computing golden vectors"):
        vectors = golden_vectors(graphs, program.module)
    for line in compared(references, graphs, program.module, vectors):
        print(f"mlaot: {graphs.name}: {line}", flush=True)
    if graphs.options.weights_dtype:
        print(f"mlaot: {narrowed(graphs, vectors)}", flush=True)
    for line in quantized(graphs, vectors) if graphs.options.quantize else ():
        print(f"mlaot: {line}", flush=True)
    return replace(program, module=replace(program.module, golden=vectors))


def say_long_files(module: str, files: Mapping[str, str | bytes]) -> None:
    """Print a line where ``long_files`` has one."""
    for line in long_files(module, files):
        print(f"mlaot: {line}", flush=True)


def long_files(module: str, files: Mapping[str, str | bytes]) -> list[str]:
    """A line where the compiler is spared: the kernels are too long for all that it could do with them."""
    lines = [text.count("\n") for name, text in files.items() if isinstance(text, str) and LONG_KERNELS in text]
    how = "with -O1 and without inlining, as gcc would take more than a minute for each file otherwise"
    return [f"{module}: {max(lines):,} lines of C an instruction set, compiled {how}"] if lines else []
