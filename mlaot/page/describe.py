"""What a page shows of a model: graphs after each pass, kernels with their C and times, memory, sizes, golden vectors.

``mlaot/commands/report.py`` calls ``describe`` and renders what it returns with ``report.html.j2``.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from mlaot import passes
from mlaot.files import program_files
from mlaot.generate import compile_model
from mlaot.interpret import named_values
from mlaot.ir import DTYPES, Dim
from mlaot.ir.dims import substitute
from mlaot.ir.module import Module
from mlaot.ir.text import text
from mlaot.isolation import pause_collection
from mlaot.loading import open_model
from mlaot.lower.builder import most_frequent
from mlaot.lower.costs import cost_of
from mlaot.lower.program import Buffer, Kernel, Procedure, Program
from mlaot.nest.text import nest_text
from mlaot.page.loops import hot_loops
from mlaot.page.timing import Timing, time_program
from mlaot.printing.file import LONG_KERNELS
from mlaot.schedule.machine import Machine
from mlaot.settings import ModelSettings, Settings
from mlaot.stages import PRINTING, TIMING, stage
from mlaot.transforms.differentiate import GRADIENT

Data = dict[str, Any]

SHOWN_NODES = 600  # of a graph in text; of a longer one, how many there are
SCALAR_LOOPS = ("plain", "loops")  # kinds of kernels whose numbers are computed one by one, unless compilers help


def describe(
    settings: Settings, model: ModelSettings, machines: Callable[[bool], Sequence[Machine]], command: list[str]
) -> Data:
    """Compile a model, time it on the machines that this CPU is, and return all that its page shows.

    ``machines``: a function that returns them, the best last, for modules that multiply bytes or for others.
    """
    watcher = _Watcher()
    with open_model(settings, model) as (declared, options, sample), pause_collection():
        program = compile_model(declared, model.module, options, sample=sample, golden=True, watch=watcher)
    timings, here = [], machines(program.module.words)
    with stage(TIMING, len(here)) as advance:
        for machine in here:
            advance(machine.name)
            timings.append(time_program(program, machine, command))
    loops = hot_loops(timings[-1].library) if timings else {}
    with stage(PRINTING):
        files = program_files(program)
    return {
        "module": program.module.name,
        "model": model.declared,
        "inputs": "inputs of the golden vectors",
        "machines": [_limits(timing) for timing in timings],
        "entries": [_entry(program, procedure, timings, loops, watcher.line_of) for procedure in program.procedures],
        "passes": watcher.steps,
        "sizes": {
            "weights and other constants": len(program.module.constants),
            "state of an instance": program.module.state_bytes,
            **{f"C: {name}": len(content) for name, content in files.items() if name.endswith(".c")},
        },
        "golden": [
            {
                "entry": vector.entry,
                "dims": dict(zip(program.module.dims, vector.dims, strict=True)),
                "outputs": _errors(vector),
            }
            for vector in program.module.golden
        ],
        "remarks": [*_remarks(program, watcher.module, files)],
    }


class _Watcher:
    """Note the graphs that each pass has changed, and the module that the passes change."""

    def __init__(self) -> None:
        self.steps: list[Data] = []
        self.module: Module | None = None
        self.lines: dict[str, list[str]] = {}  # of the user's code, for each part of the model
        self._last: dict[str, str] = {}

    def __call__(self, step: str, module: Module) -> None:
        self.module = module
        changed: Data = {}
        for name, graph in module.graphs.items():
            nodes = graph.nodes()
            count = len(nodes)
            for node in nodes if not self.steps else ():
                self.lines.setdefault(node.origin, []).append(node.line)
            lines = text(graph, sources=True) if count <= SHOWN_NODES else f"{count:,} nodes"
            if self._last.get(name) != lines:
                changed[name] = {"nodes": count, "lines": lines.splitlines()}
            self._last[name] = lines
        gone = [name for name in self._last if name not in module.graphs]
        for name in gone:
            del self._last[name]
        if changed or gone or not self.steps:
            self.steps.append({"name": step, "says": _says(step), "graphs": changed, "gone": gone})

    def line_of(self, kernel: Kernel) -> str:
        """Return the line of the user's code that a kernel computes: its own, or that of its part of the model."""
        part = kernel.origin.removesuffix(f".{GRADIENT}")
        return kernel.line or most_frequent(self.lines.get(part, ()))


def _says(step: str) -> str:
    """Return how a pass describes itself: the docstring of its file."""
    for each in passes.PIPELINE:
        if each.name == step:
            return inspect.cleandoc(inspect.getdoc(inspect.getmodule(each.function)) or "")
    return "What tracing the model gave."


def _limits(timing: Timing) -> Data:
    limits = timing.limits
    return {"isa": timing.machine.name, "operations": limits.operations, "near": limits.near, "far": limits.far}


def _entry(
    program: Program,
    procedure: Procedure,
    timings: list[Timing],
    loops: Mapping[str, list[str]],
    line_of: Callable[[Kernel], str],
) -> Data:
    """Describe an entry for the dims of its golden vector."""
    entry, module = procedure.entry, program.module
    golden = next((vector for vector in module.golden if vector.entry == entry.name), None)
    sizes = dict(zip(module.dims, golden.dims, strict=True)) if golden else dict.fromkeys(module.dims, 1)
    values = named_values(sizes)
    timed = {timing.machine.name: timing.entries[entry.name] for timing in timings if entry.name in timing.entries}
    kernels = [
        {
            **_kernel(kernel, values, module.dims),
            "line": line_of(kernel),
            "seconds": {isa: each.kernels[i].seconds for isa, each in timed.items()},
            "rounds": next((each.kernels[i].rounds for each in timed.values()), 1),
            "function": (function := timings[-1].functions[entry.name][i]) if timings else "",
            "c": _function_text(timings[-1].text, function) if timings else "",
            "loop": loops.get(function, []) if timings else [],
        }
        for i, kernel in enumerate(procedure.kernels)
    ]
    return {
        "name": entry.name,
        "doc": entry.doc,
        "dims": sizes,
        "seconds": {isa: each.seconds for isa, each in timed.items()},
        "marked": {isa: each.marked for isa, each in timed.items()},
        "kernels": kernels,
        "memory": [*_memory(procedure, values)],
    }


def _kernel(kernel: Kernel, values: Mapping[str, int], dims: Sequence[str]) -> Data:
    """Describe a kernel: what it computes, its operations and bytes, and the buffers that it reads and writes.

    ``width``: the bytes of the floats that it multiplies, 0 if these are integers.
    """
    contraction, cost = kernel.contraction, cost_of(kernel, dims)
    is_float = contraction is not None and not contraction.has_integer_sums
    return {
        "kind": kernel.template,
        "title": cost.title,
        "origin": kernel.origin,
        "computes": list(cost.doc),
        "operations": substitute(cost.operations, values),
        "width": DTYPES[contraction.dtype].itemsize if contraction is not None and is_float else 0,
        "bytes": substitute(cost.bytes, values),
        "reads": [_place(p.buffer) for p in kernel.params if not p.written],
        "writes": [_place(p.buffer) for p in kernel.params if p.written],
        "nest": nest_text(kernel.nest).rstrip(),
    }


def _size(extent: Dim, values: Mapping[str, int]) -> int:
    """Return an extent, 1 for one that depends on a loop around the kernel."""
    try:
        return substitute(extent, values)
    except KeyError:
        return 1


def _place(buffer: Buffer) -> str:
    """Name the memory that a buffer is part of."""
    root = buffer.root
    return f"{root.where}: {root.name}" if root.where != "work" else f"work: {id(root)}"


def _memory(procedure: Procedure, values: Mapping[str, int]) -> Iterable[Data]:
    """Yield the buffers of the workspace: where each lies, and the first and the last kernel that uses it."""
    used: dict[int, list[int]] = {}
    for number, kernel in enumerate(procedure.kernels):
        for param in kernel.params:
            used.setdefault(id(param.buffer.root), []).append(number)
    for buffer, offset in procedure.offsets:
        if id(buffer) in used:
            numbers = used[id(buffer)]
            yield {
                "name": buffer.name,
                "what": f"{buffer.dtype}[{', '.join(map(str, buffer.shape))}]",
                "start": _size(offset, values),
                "bytes": _size(buffer.bytes, values),
                "first": numbers[0],
                "last": numbers[-1],
            }


def _function_text(source: str, name: str) -> str:
    """Return the C of a function."""
    found = re.search(rf"^(?:static )?(?:LOOPS )?void {re.escape(name)}\(.*?^}}$", source, re.MULTILINE | re.DOTALL)
    return found[0] if found else ""


def _errors(vector: Any) -> list[Data]:
    """Return, of each output of a golden vector, how far sums may be off, and the largest element."""
    pairs = zip(vector.outputs, vector.largest, strict=True)
    return [{"bound": output[0], "largest": largest} for output, largest in pairs]


def _remarks(program: Program, module: Module | None, files: Mapping[str, str | bytes]) -> Iterable[str]:
    """Yield what takes a slower path, and why."""
    unchecked = program.module.info.get("unchecked")
    if unchecked:
        yield f"There are no golden vectors, so nothing was timed: {unchecked}."
    for product_ in module.unquantized if module is not None else ():
        yield f"The product with {product_.weight} stays in float32, which is faster than bytes for its shape."
    for name, graph in module.graphs.items() if module is not None else ():
        scalars = sum(1 for node in graph.nodes() if node.args and getattr(node.type, "shape", None) == ())
        if scalars > SHOWN_NODES:
            yield f"{name} has {scalars:,} nodes of single numbers that were not raised to tensors."
    for procedure in program.procedures:
        slow = [kernel for kernel in procedure.kernels if kernel.template in SCALAR_LOOPS and kernel.doc]
        if slow:
            yield (
                f"{procedure.entry.name}: {len(slow)} of {len(procedure.kernels)} kernels are loops over single"
                f" numbers, since their dtypes or layouts fit no vectors, such as {slow[0].doc[-1]}"
            )
    if any(LONG_KERNELS in content for content in files.values() if isinstance(content, str)):
        yield "The C is so long that it is compiled with -O1 and without inlining."
