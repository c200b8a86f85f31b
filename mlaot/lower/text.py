"""Program to C: the kernels of every entry for one instruction set, each distinct kernel once."""

from __future__ import annotations

import re
from dataclasses import replace

from mlaot.lower.emit import C_TYPES
from mlaot.lower.isa import Isa
from mlaot.lower.program import Buffer, Contraction, Kernel, Module, Param, Procedure, Program, Rows
from mlaot.lower.tiles import lanes_of, tiles
from mlaot.lower.vectors import helpers
from mlaot.render import render

LONG = 150  # lines of a loop body from which on it is written once, for whole and partial vectors


def kernels_file(program: Program, stem: str, isa: Isa) -> str:
    """The C file of ``program`` for ``isa``."""
    bodies: dict[tuple[str, str], str] = {}
    entries = []
    for procedure in program.procedures:
        parts = [("", procedure.kernels)]
        if procedure.entry.split:
            at = procedure.forward
            parts = [("_forward", procedure.kernels[:at]), ("_backward", procedure.kernels[at:])]
        for suffix, kernels in parts:
            calls = []
            for kernel in kernels:
                arguments, signature = _parameters(kernel, program.module, procedure)
                text = _kernel_text(kernel, "NAME", signature, isa)
                name = bodies.setdefault((kernel.template, text), f"{kernel.template}{len(bodies)}_{isa.name}")
                calls.append(f"{name}({arguments});")
            lines = [*_dims(program.module, calls), *calls]
            name = f"{stem}_{procedure.entry.name}{suffix}_{isa.name}"
            entries.append({"name": name, "lines": lines, "doc": procedure.entry.doc})
    kernels_text = [text.replace("NAME(", f"{name}(", 1) for (_, text), name in bodies.items()]
    preamble = helpers("\n".join(kernels_text), isa)
    return render(
        "kernels.c.j2",
        module=program.module,
        isa=isa,
        stem=stem,
        helpers=preamble,
        kernels=kernels_text,
        entries=entries,
    )


def _dims(module: Module, calls: list[str]) -> list[str]:
    """Locals for the dims that the calls use."""
    text = "\n".join(calls)
    used = [(i, d) for i, d in enumerate(module.dims) if re.search(rf"\b{d}\b", text)]
    lines = [f"const ptrdiff_t {d} = dim[{i}];" for i, d in used]
    return lines + ([] if used else ["(void)dim;"]) + ([] if calls else ["(void)p;"])


def _parameters(kernel: Kernel, module: Module, procedure: Procedure) -> tuple[str, str]:
    """The arguments of a call of ``kernel``, and its signature."""
    offsets = {id(buffer): str(offset) for buffer, offset in procedure.offsets}
    arguments = [_pointer(p, procedure, offsets, module) for p in kernel.params]
    types = [f"{'' if p.written else 'const '}{C_TYPES[p.buffer.dtype]} *restrict {p.name}" for p in kernel.params]
    text = repr(replace(kernel, doc=(), params=()))
    dims = [d for d in module.dims if re.search(rf"\b{d}\b", text)]
    return ", ".join([*arguments, *dims]), ", ".join([*types, *[f"ptrdiff_t {d}" for d in dims]])


def _pointer(param: Param, procedure: Procedure, offsets: dict[int, str], module: Module) -> str:
    buffer, entry = param.buffer, procedure.entry
    inputs, outputs = len(entry.inputs), len(entry.outputs)
    base, offset = _place(buffer, procedure, inputs, outputs, offsets)
    const = "" if param.written else "const "
    pointer = f"p[{base}]" if offset == "0" else f"(p[{base}] + {offset})"
    return f"({const}{C_TYPES[buffer.dtype]} *){pointer}"


def _place(buffer: Buffer, procedure: Procedure, inputs: int, outputs: int, offsets: dict[int, str]) -> tuple[int, str]:
    """Which pointer of an entry a buffer is reached from, and the byte offset there."""
    if buffer.where == "input":
        return next(i for i, port in enumerate(procedure.entry.inputs) if port.name == buffer.name), "0"
    if buffer.where == "output":
        return inputs + next(i for i, port in enumerate(procedure.entry.outputs) if port.name == buffer.name), "0"
    if buffer.where == "work":
        return inputs + outputs + 2, offsets[id(buffer)]
    return inputs + outputs + (buffer.where == "constant"), str(procedure.places[id(buffer)])


def _kernel_text(kernel: Kernel, name: str, signature: str, isa: Isa) -> str:
    def pad(depth: int) -> str:
        return "    " * depth

    context = {"kernel": kernel, "name": name, "signature": signature, "pad": pad, "inner": pad(len(kernel.loops) + 1)}
    if isinstance(kernel, Rows):
        return render("kernels/rows.c.j2", stages=_stages(kernel, isa), **context)
    if isinstance(kernel, Contraction):
        return render("kernels/contraction.c.j2", tiles=tiles(kernel, isa), **_summed(kernel, isa), **context)
    return render("kernels/copy.c.j2", **context)


def _stages(kernel: Rows, isa: Isa) -> list[dict[str, object]]:
    """The vector loops of each stage: whole vectors, then the rest; long bodies only once."""
    lanes = lanes_of(kernel.dtype, isa) if kernel.stages else 1
    result: list[dict[str, object]] = []
    for stage in kernel.stages:
        size = str(kernel.columns)
        loops: list[tuple[str, tuple[str, ...]]] = []
        if len(stage.full) > LONG or _fits_padding(size, lanes, stage.rest):
            body = _with_rest(f"const ptrdiff_t rest = {size} - j < {lanes} ? {size} - j : {lanes};", stage.rest)
            loops.append((f"for (ptrdiff_t j = 0; j < {size}; j += {lanes}) {{", body))
        elif size.isdigit():
            whole = int(size) // lanes * lanes
            if whole:
                loops.append((f"for (ptrdiff_t j = 0; j < {whole}; j += {lanes}) {{", stage.full))
            if int(size) > whole:
                rest = _with_rest(f"enum {{ rest = {int(size) - whole} }};", stage.rest)
                loops.append((f"for (ptrdiff_t j = {whole}; j < {size}; j += {lanes}) {{", rest))
        else:
            loops.append((f"for (ptrdiff_t j = 0; j < {size} - {lanes - 1}; j += {lanes}) {{", stage.full))
            rest = _with_rest(f"const ptrdiff_t rest = {size} - j;", stage.rest)
            loops.append((f"for (ptrdiff_t j = {size} / {lanes} * {lanes}; j < {size}; j += {lanes}) {{", rest))
        result.append({"before": stage.before, "loops": loops, "after": stage.after})
    return result


def _fits_padding(size: str, lanes: int, rest: tuple[str, ...]) -> bool:
    """Whether the rest may be a whole vector in padded memory, so that one body serves a short row."""
    return size.isdigit() and int(size) % lanes > 0 and int(size) < 4 * lanes and not any("_part_" in x for x in rest)


def _with_rest(declaration: str, lines: tuple[str, ...]) -> tuple[str, ...]:
    return (declaration, *lines) if any(re.search(r"\brest\b", line) for line in lines) else lines


def _summed(kernel: Contraction, isa: Isa) -> dict[str, object]:
    """Headers of the summed loops; along "k" the innermost walks whole vectors."""
    lanes = lanes_of(kernel.dtype, isa)
    headers = [f"for (ptrdiff_t {v} = 0; {v} < {extent}; {v}++) {{" for v, extent in kernel.k] or ["{"]
    whole = 0
    if kernel.along == "k":
        v, extent = kernel.k[-1]
        whole = int(extent) // lanes * lanes
        headers[-1] = f"for (ptrdiff_t {v} = 0; {v} < {whole}; {v} += {lanes}) {{"
    return {"summed": headers, "rest_start": whole}
