"""Add metadata and golden vectors to a program, and report on it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any

from mlaot import passes
from mlaot.frontend.trace.declaration import Declaration
from mlaot.ir.module import Generation, Module
from mlaot.ir.types import DTYPES
from mlaot.lower.program import ExtensionModule, Program
from mlaot.lower.text import program_text
from mlaot.printing.file import LONG_KERNELS
from mlaot.report.golden import golden_vectors
from mlaot.report.metadata import graph_metadata
from mlaot.report.references import compare_references
from mlaot.report.rounding import narrow_weights_report, quantization_report
from mlaot.settings import ModelSettings, Settings


def dump(program: Program) -> None:
    """Print a program on stderr if ``MLAOT_DUMP`` asks for it."""
    if passes.LOWERING in passes.stages_to_print():
        print(program_text(program), file=sys.stderr)


def add_metadata(program: Program, graphs: Module) -> Program:
    """Add to the program's module the metadata of its graphs."""
    return replace(program, module=replace(program.module, metadata=graph_metadata(graphs)))


def add_golden_vectors(program: Program, graphs: Module, model: Any) -> Program:
    """Add golden vectors, for which NumPy evaluates the model, or print why there are none.

    Print the difference of the model's references from them, the size saved and the error caused by weights in fewer
    bits, and the memory of a text.
    """
    references = model.references if isinstance(model, Declaration) else {}
    vectors, reason = golden_vectors(graphs, program.module)
    if reason:
        print(f"mlaot: {graphs.name} has no golden vectors: {reason}", flush=True)
    for line in compare_references(references, graphs, program.module, vectors):
        print(f"mlaot: {graphs.name}: {line}", flush=True)
    if graphs.options.weights_dtype:
        print(f"mlaot: {narrow_weights_report(graphs, vectors)}", flush=True)
    for line in quantization_report(graphs, vectors) if graphs.options.quantize else ():
        print(f"mlaot: {line}", flush=True)
    if graphs.generation is not None:
        print(f"mlaot: {text_report(program.module, graphs.generation)}", flush=True)
    info = program.module.info | ({"unchecked": reason} if reason else {})
    return replace(program, module=replace(program.module, golden=vectors, info=info))


def text_report(module: ExtensionModule, generation: Generation) -> str:
    """Return a line with the memory of a text."""
    size = sum(prod(slot.shape) * DTYPES[slot.dtype].itemsize for slot in module.slots if slot.kind == "buffer")
    line = f"{module.name}: each text, of at most {generation.context:,} tokens, takes {size:,} bytes"
    more = module.memory_bytes - module.state_bytes
    return line + f"; generate_all writes {generation.texts} at once in {more:,} more" * (generation.texts > 1)


def report_files(settings: Settings, model: ModelSettings, files: Mapping[str, str | bytes]) -> None:
    """Print the result of ``long_files``, and whether a model cannot share the runtime of the others."""
    lines = long_files(model.module, files)
    if settings.runtime and f'RUNTIME_NAME "{settings.runtime}"' not in str(files[f"{model.stem}.c"]):
        lines.append(f"{model.module} has a runtime of its own, as it needs more than {settings.runtime} has")
    for line in lines:
        print(f"mlaot: {line}", flush=True)


def long_files(module: str, files: Mapping[str, str | bytes]) -> list[str]:
    """Return a line if the kernels are too long to compile with all optimizations."""
    lines = [text.count("\n") for name, text in files.items() if isinstance(text, str) and LONG_KERNELS in text]
    how = "with -O1 and without inlining, as gcc would take more than a minute for each file otherwise"
    return [f"{module}: {max(lines):,} lines of C an instruction set, compiled {how}"] if lines else []
