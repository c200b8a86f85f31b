"""Program to C: the kernels of every entry for one instruction set, each distinct kernel once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from mlaot.ir import DTYPES, Dim
from mlaot.ir.dims import NOMINAL, Expr, names
from mlaot.lower.emit import C_TYPES
from mlaot.lower.integers import integer_functions, integer_helpers
from mlaot.lower.layout import atom
from mlaot.lower.parallel import work_of_round
from mlaot.lower.parts import (
    DEFINITION,
    ENTRIES,
    Piece,
    bit_of,
    count_of,
    helper_pieces,
    kernel_name,
    prototype,
    renamed,
)
from mlaot.lower.program import (
    Branch,
    Buffer,
    Contraction,
    Kernel,
    Loop,
    Module,
    NestKernel,
    Param,
    Procedure,
    Program,
    Sequence,
    Step,
    Trees,
)
from mlaot.lower.trees import tree_text
from mlaot.lower.vectors import helper_functions, helpers, seconds_of, vector_types
from mlaot.nest.canonical import canonical
from mlaot.nest.statements import Nest
from mlaot.ops.random import LN2, LOG_SERIES, SQRT_HALF, WICHURA
from mlaot.printer import nest_text
from mlaot.render import render
from mlaot.schedule.contraction import description
from mlaot.schedule.machine import Machine as Isa
from mlaot.schedule.machine import condition
from mlaot.schedule.nests import scheduled
from mlaot.schedule.parallel import RANGE, Shared, part_of_range, shared_loop
from mlaot.schedule.tiles import contraction_nest
from mlaot.schedule.tuning import KERNELS_SECONDS
from mlaot.spelling import Speller, dim_text

# Each distinct kernel: by its template and its text without names of buffers, its name and its text.
Bodies = dict[tuple[str, object], tuple[str, str]]


LONG_KERNELS = '#pragma GCC optimize("O1")'  # what stands in a file that is too long
WORD = re.compile(r"\b[A-Za-z_]\w*\b")


def kernels_file(program: Program, prefix: str, isa: Isa) -> str:
    """The C file of ``program`` for ``isa``; the names of its functions begin with ``prefix``."""
    tuned = tuple(program.module.tuned.get(isa.name, {}).items())
    isa = replace(isa, deterministic=program.module.deterministic, tuned=tuned)
    bodies: Bodies = {}
    known: dict[object, tuple[str, list[str], Shared | None]] = {}
    entries: list[dict[str, Any]] = []
    for procedure in program.procedures:
        parts = [("", procedure.steps)]
        if procedure.entry.split:
            at = procedure.forward
            parts = [("_forward", procedure.steps[:at]), ("_backward", procedure.steps[at:])]
        offsets = {id(buffer): offset for buffer, offset in procedure.offsets}
        place = _Place(program.module, procedure, isa, (), offsets, known)
        for suffix, steps in parts:
            calls = _calls(steps, place, bodies)
            name = f"{prefix}_{procedure.entry.name}{suffix}_{isa.name}"
            lines = [*_dims(program.module.c_dims, calls), *calls]
            doc = procedure.entry.doc.rstrip("\\ ")  # a backslash would continue the comment
            entries.append({"name": name, "lines": lines, "doc": doc})
    texts = [text for _, text in bodies.values()] + [line for entry in entries for line in entry["lines"]]
    seconds = seconds_of("\n".join(texts))
    is_long = seconds > KERNELS_SECONDS
    count = count_of(seconds)
    kernels = _pieces(bodies, entries, prefix, isa, count)
    text = "\n".join(piece.text for piece in kernels)
    functions = helper_functions(text, isa) | integer_functions(text) | others(text, prefix, isa)
    return render(
        "kernels.c.j2",
        module=program.module,
        isa=isa,
        condition=condition(isa.name, program.module.isas),
        stem=program.module.stem,
        types=vector_types(isa, is_long=is_long),
        helpers=helper_pieces(functions, kernels),
        kernels=kernels[:-1],
        entries=entries,
        parts=count if count > 1 else 0,
        long_kernels=LONG_KERNELS if is_long else "",
    )


def _pieces(bodies: Bodies, entries: list[dict[str, Any]], prefix: str, isa: Isa, count: int) -> list[Piece]:
    """The kernels and the tasks, each for its part of ``count``, then the lines of the entries, which are rewritten.

    In a file of several parts kernels are called by their content, and what calls them begins with prototypes.
    """
    if count == 1:
        kernels = [Piece(text.replace("NAME(", f"{name}(", 1), ENTRIES) for name, text in bodies.values()]
        return [*kernels, Piece("\n".join(line for entry in entries for line in entry["lines"]), ENTRIES)]
    names = {name: kernel_name(prefix, key[0], key, isa.name) for key, (name, _) in bodies.items() if key[0] != "task"}
    prototypes, kernels, tasks = [], [], []
    for key, (name, text) in bodies.items():
        if key[0] == "task":
            tasks.append(Piece(renamed(text.replace("NAME(", f"{name}(", 1), names), ENTRIES))
        else:
            prototypes.append(f"KERNEL void {names[name]}{prototype(text)};\n")
            kernels.append(Piece(text.replace(DEFINITION, f"KERNEL void {names[name]}(", 1), bit_of(key, count)))
    for entry in entries:
        entry["lines"] = [renamed(line, names) for line in entry["lines"]]
    lines = Piece("\n".join(line for entry in entries for line in entry["lines"]), ENTRIES)
    return [*kernels, Piece("".join(prototypes), ENTRIES), *tasks, lines]


@dataclass(frozen=True)
class _Place:
    """Where steps stand: the entry, the instruction set, and the variables of the loops around them.

    ``apart``: the work buffer of which each thread has one of its own, behind the pointer number ``own``.
    ``functions``: of kernels by their content, for all entries.
    """

    module: Module
    procedure: Procedure
    isa: Isa
    variables: tuple[str, ...]
    offsets: dict[int, Dim]  # id of a work buffer: its byte offset
    functions: dict[object, tuple[str, list[str], Shared | None]]
    apart: Buffer | None = None

    @property
    def threads(self) -> str:
        """C text of the threads of a call."""
        return f"p[{self.own - 1}]"

    @property
    def own(self) -> int:
        entry = self.procedure.entry
        return len(entry.inputs) + len(entry.outputs) + 4


def _calls(steps: Iterable[Step], place: _Place, bodies: Bodies) -> list[str]:
    """The statements of some steps: calls of kernels, whose texts go into ``bodies``, and the control flow around."""
    lines: list[str] = []
    for step in steps:
        if isinstance(step, Sequence):
            lines += _calls(step.steps, place, bodies)
        elif isinstance(step, Loop):
            work = work_of_round(step)
            lines += _loop(step, place, bodies) if work is None else [_share_rounds(step, work, place, bodies)]
        elif isinstance(step, Branch):
            lines.append(f"if ({_truth(step.condition, place)}) {{")
            lines += [f"    {line}" for line in _calls(step.then, place, bodies)]
            lines.append("} else {")
            lines += [*[f"    {line}" for line in _calls(step.otherwise, place, bodies)], "}"]
        else:
            call, some = _call(step, place, bodies), not_empty(step)
            lines += [f"if ({some}) {{", f"    {call}", "}"] if some else [call]
    return lines


def not_empty(kernel: Kernel) -> str:
    """C text of whether a kernel writes anything; nothing where its loops are too short to be worth the question.

    An array without elements may have any number of rows, and a loop over these takes its time.
    """
    written = [[d for d in p.buffer.shape if isinstance(d, Expr)] for p in kernel.params if p.written]
    open_ = {name for p in kernel.params for extent in p.buffer.shape for name in names(extent)}
    if len(open_) < 2 or not all(written):
        return ""
    sizes = [" && ".join(f"{atom(d)} > 0" for d in dict.fromkeys(extents)) for extents in written]
    return " || ".join(dict.fromkeys(f"({size})" if len(written) > 1 else size for size in sizes))


def _loop(loop: Loop, place: _Place, bodies: Bodies) -> list[str]:
    """A loop around kernels."""
    inside = replace(place, variables=(*place.variables, loop.variable))
    body = _calls(loop.tested, inside, bodies)
    if loop.condition is not None:
        body += [f"if (!{_truth(loop.condition, place)}) {{", "    break;", "}"]
    body += _calls(loop.steps, inside, bodies)
    v = loop.variable
    return [f"for (ptrdiff_t {v} = 0; {v} < {loop.extent}; {v}++) {{", *[f"    {line}" for line in body], "}"]


def _share_rounds(loop: Loop, work: int, place: _Place, bodies: Bodies) -> str:
    """The statement that runs a loop whose rounds threads may share, each thread with memory of its own."""
    assert loop.apart is not None
    v = loop.variable
    body = _calls(loop.steps, replace(place, variables=(*place.variables, v), apart=loop.apart), bodies)
    lines = [f"for (ptrdiff_t {v} = begin; {v} < end; {v}++) {{", *[f"    {line}" for line in body], "}"]
    task, given = _task(lines, place, bodies)
    apart = f"{place.own}, {place.offsets[id(loop.apart)]}, {loop.apart.bytes}"
    return f"share_apart({place.threads}, {task}, p, {given}, {loop.extent}, {work}, {apart});"


def _call(kernel: Kernel, place: _Place, bodies: Bodies) -> str:
    """The statement that runs a kernel."""
    if isinstance(kernel, NestKernel | Contraction):
        return _call_nest(kernel, place, bodies)
    text = _kernel_text(kernel, "NAME", "SIGNATURE", place.isa)
    arguments, signature = _parameters(kernel, place, text.split("\n{\n", 1)[1])
    text = _used(text.replace("SIGNATURE", signature, 1), signature)
    key = kernel.template, _anonymous(text, kernel.params)
    name, _ = bodies.setdefault(key, (f"{kernel.template}{len(bodies)}_{place.isa.name}", text))
    return f"{name}({arguments});"


def _call_nest(kernel: NestKernel | Contraction, place: _Place, bodies: Bodies) -> str:
    """The statement that runs a nest; equal nests are one function, whatever their buffers and dims are called."""
    content = _content(kernel), place.apart is None
    if content not in place.functions:
        place.functions[content] = _function(kernel, place, bodies)
    name, sizes, shared = place.functions[content]
    arguments = ", ".join([*[_pointer(p, place) for p in kernel.params], *sizes])
    if shared is None:
        return f"{name}({arguments});"
    task, given = _task([f"{name}({arguments}, {', '.join(RANGE)});"], place, bodies)
    extent, work = dim_text(shared.extent), dim_text(shared.work)
    return f"share({place.threads}, {task}, p, {given}, {extent}, {shared.step}, {work});"


def _content(kernel: NestKernel | Contraction) -> object:
    """What a kernel does, with arrays by their position: equal ones are scheduled once."""
    if isinstance(kernel, NestKernel):
        return canonical(kernel.nest)
    places = {array.name: i for i, array in enumerate(kernel.arrays)}
    operands = [replace(o, array=replace(o.array, name=str(places[o.array.name]), size=0)) for o in kernel.operands]
    ends = canonical(Nest("", kernel.arrays, (*kernel.once, *kernel.epilogue)))
    return replace(kernel, params=(), operands=tuple(operands)), ends


def _function(kernel: NestKernel | Contraction, place: _Place, bodies: Bodies) -> tuple[str, list[str], Shared | None]:
    """The function of a kernel, written unless an equal one is, its dims, and the loop that threads share."""
    nest = _nest_of(kernel, place.isa)
    shared = shared_loop(nest) if place.apart is None else None
    if shared is not None:
        nest = part_of_range(nest, shared)
    key, dims = canonical(nest)
    sizes = [d for d in dims if d not in RANGE]
    written = nest.written
    types = [f"{'' if a.name in written else 'const '}{C_TYPES[a.dtype]} *restrict {a.name}" for a in nest.params]
    signature = ", ".join([*types, *[f"ptrdiff_t {d}" for d in (*sizes, *(RANGE if shared else ()))]])
    if ("nest", key) not in bodies:
        text = nest_text(nest, "NAME", signature, Speller(place.isa.bytes))
        bodies["nest", key] = (f"{kernel.template}{len(bodies)}_{place.isa.name}", text)
    return bodies["nest", key][0], sizes, shared


def _nest_of(kernel: NestKernel | Contraction, isa: Isa) -> Nest:
    """A kernel as a machine runs it."""
    return contraction_nest(kernel, isa) if isinstance(kernel, Contraction) else scheduled(kernel.nest, isa)


def _task(calls: list[str], place: _Place, bodies: Bodies) -> tuple[str, str]:
    """The name of a function of statements on a range ``begin, end``, and C text of the dims that it is given."""
    variables = [v for v in place.variables if any(re.search(rf"\b{v}\b", call) for call in calls)]
    dims = (*place.module.c_dims, *variables)
    lines = "".join(f"    {line}\n" for line in [*_dims(dims, calls), *calls])
    text = f"static void NAME(char *const *p, const ptrdiff_t *dim, ptrdiff_t begin, ptrdiff_t end)\n{{\n{lines}}}\n"
    name, _ = bodies.setdefault(("task", text), (f"task{len(bodies)}_{place.isa.name}", text))
    return name, f"(const ptrdiff_t[]){{{', '.join(dims)}}}" if variables else "dim"


def candidates_file(kernel: Contraction, schedules: list[str], isa: Isa) -> str:
    """A C file whose ``run(i, times, p)`` computes a contraction by the i-th of some schedules, named dims being usual
    ones; ``p`` holds its parameters.
    """
    params = kernel.params
    sizes: list[Dim] = [axis.size for axis in (*kernel.out, *kernel.summed)]
    sizes += [size for o in kernel.operands for size in (o.offset, *dict(o.strides).values())]
    sizes += [size for p in params for size in (*p.buffer.shape, *p.buffer.strides)]
    dims = sorted({name for size in sizes for name in names(size)})
    types = [f"{'' if p.written else 'const '}{C_TYPES[p.buffer.dtype]} *restrict {p.name}" for p in params]
    signature = ", ".join([*types, *[f"ptrdiff_t {name}" for name in dims]])
    given = [f"({C_TYPES[p.buffer.dtype]} *)p[{i}]" for i, p in enumerate(params)]
    arguments = ", ".join([*given, *[str(NOMINAL)] * len(dims)])
    tuned = [replace(isa, tuned=((description(kernel), schedule),)) for schedule in schedules]
    spell = Speller(isa.bytes)
    nests = [nest_text(_nest_of(kernel, t), f"candidate{i}", signature, spell) for i, t in enumerate(tuned)]
    body = "\n".join(nests)
    preamble = "\n".join(
        part for part in (helpers(body, isa), integer_helpers(body), *others(body, "", isa).values()) if part
    )
    return render("candidates.c.j2", preamble=preamble, kernels=body, count=len(schedules), arguments=arguments)


def _anonymous(text: str, params: Iterable[Param]) -> str:
    """A kernel's text whatever its buffers are called: layers of one shape share their code."""
    numbers = {param.name: f"@{i}" for i, param in enumerate(params)}
    return WORD.sub(lambda match: numbers.get(match[0], match[0]), text)


def _used(text: str, signature: str) -> str:
    """A kernel over no elements needs no constants, and leaves parameters unused."""
    names = [part.rsplit(" ", 1)[-1] for part in signature.split(", ")]
    head, body = text.split("\n{\n", 1)
    words = Counter(WORD.findall(body))
    for line, name in reversed(re.findall(r"^( *const \w+ (\w+) = .*\n)", body, re.MULTILINE)):
        if words[name] == 1:
            body = body.replace(line, "", 1)
            words.subtract(WORD.findall(line))
    unused = [name for name in names if words[name] == 0]
    return f"{head}\n{{\n" + "".join(f"    (void){name};\n" for name in unused) + body


def _truth(param: Param, place: _Place) -> str:
    return f"*{_pointer(param, place)}"


def _dims(dims: tuple[str, ...], calls: list[str]) -> list[str]:
    """Locals for those of the dims that the calls use."""
    text = "\n".join(calls)
    used = [(i, d) for i, d in enumerate(dims) if re.search(rf"\b{d}\b", text)]
    lines = [f"const ptrdiff_t {d} = dim[{i}];" for i, d in used]
    return lines + ([] if used else ["(void)dim;"]) + ([] if calls else ["(void)p;"])


def _parameters(kernel: Kernel, place: _Place, body: str) -> tuple[str, str]:
    """The arguments of a call of ``kernel``, and its signature."""
    arguments = [_pointer(p, place) for p in kernel.params]
    types = [f"{'' if p.written else 'const '}{C_TYPES[p.buffer.dtype]} *restrict {p.name}" for p in kernel.params]
    dims = [d for d in (*place.module.c_dims, *place.variables) if re.search(rf"\b{d}\b", body)]
    return ", ".join([*arguments, *dims]), ", ".join([*types, *[f"ptrdiff_t {d}" for d in dims]])


def _pointer(param: Param, place: _Place) -> str:
    buffer, offset = param.buffer, [] if param.buffer.within is None else [_slice(param.buffer)]
    base, start = _base(buffer.whole, place)
    offset = [str(start), *offset] if start != 0 else offset
    const = "" if param.written else "const "
    pointer = f"p[{base}]" if not offset else f"(p[{base}] + {' + '.join(offset)})"
    return f"({const}{C_TYPES[buffer.dtype]} *){pointer}"


def _slice(buffer: Buffer) -> str:
    """The bytes between the start of a buffer that has a place and that of a slice inside it."""
    start: Dim = 0
    at: Buffer | None = buffer
    while at is not None:
        start = at.start + start
        at = at.within
    return f"({start}) * {DTYPES[buffer.dtype].itemsize}"


def _base(buffer: Buffer, place: _Place) -> tuple[int, Dim]:
    """Which pointer of an entry a buffer is reached from, and the byte offset there."""
    entry = place.procedure.entry
    inputs, outputs = len(entry.inputs), len(entry.outputs)
    if buffer.where == "input":
        return next(i for i, port in enumerate(entry.inputs) if port.name == buffer.name), 0
    if buffer.where == "output":
        return inputs + next(i for i, port in enumerate(entry.outputs) if port.name == buffer.name), 0
    if buffer is place.apart:
        return place.own, 0
    if buffer.where == "work":
        return inputs + outputs + 2, place.offsets[id(buffer)]
    return inputs + outputs + (buffer.where == "constant"), place.procedure.places[id(buffer)]


def _kernel_text(kernel: Trees, name: str, signature: str, isa: Isa) -> str:

    def pad(depth: int) -> str:
        return "    " * depth

    context = {"kernel": kernel, "name": name, "signature": signature, "pad": pad}
    context["inner"] = pad(len(kernel.loops) + 1)
    return render("kernels/trees.c.j2", **tree_text(kernel, isa), **context)


def others(text: str, prefix: str, isa: Isa) -> dict[str, str]:
    """Further functions that kernels and entries call, by the name by which they are called."""
    data: dict[str, object] = {
        "ratios": WICHURA,
        "series": LOG_SERIES,
        "sqrt_half": SQRT_HALF,
        "ln2": LN2,
        "prefix": prefix,
        "isa": isa,
    }
    files = ("threefry", "normal_quantile", "share", "share_apart", "first_from")
    found = {name: render(f"kernels/{name}.h.j2", **data) for name in files if f"{name}(" in text}
    for dtype in dict.fromkeys(re.findall(r"\bnonzeros_(\w+)\(", text)):
        place = dtype, C_TYPES[dtype]
        found[f"nonzeros_{dtype}"] = render("kernels/nonzeros.h.j2", **data, dtypes=[place])
    return found
