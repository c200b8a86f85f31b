"""What lowering produces: entries over buffers and kernels, printable, without nodes or ops."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from mlaot.ir.dims import Dim, substitute
from mlaot.ir.dims import names as dim_names
from mlaot.ir.ports import Port as Port
from mlaot.ir.types import DTYPES
from mlaot.lower.identifiers import dim_name
from mlaot.nest.canonical import canonical
from mlaot.nest.statements import Nest
from mlaot.schedule.collapse import of_any_size
from mlaot.schedule.contraction import Contraction, contraction_of
from mlaot.schedule.machine import LINE


@dataclass(frozen=True)
class Slot:
    """An array in the state block: strides in elements, offsets in bytes; storage may be padded or transposed.

    ``kind``: ``parameter`` (with a gradient where the module trains), ``buffer`` (running statistics, caches) or
    ``optimizer`` (moments, step counts). The state is the parameters, the other slots, then the gradients in the order
    of their parameters.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    gradient_offset: int = -1
    kind: str = "parameter"


@dataclass(frozen=True)
class Entry:
    """One compiled function; ``workspace`` (bytes) and ``work`` (operations) are texts of expressions in the dims.

    ``tile``: so many rows of the batch are computed at a time, since none depends on another; 0: all at once.
    ``extents``: further expressions that a call's dims must not make negative, such as those of values in between.
    ``named``: the results are a dict, as is ``out``. ``refusals``: what is wrong with the inputs where the last output,
    which is no result, gives a number from 1 on.
    """

    name: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    workspace: str
    work: str
    split: bool = False
    doc: str = ""
    tile: int = 0
    extents: tuple[str, ...] = ()
    named: bool = False
    refusals: tuple[str, ...] = ()

    @property
    def results(self) -> tuple[Port, ...]:
        """The outputs that a caller gets."""
        return self.outputs[: len(self.outputs) - bool(self.refusals)]


@dataclass(frozen=True)
class Golden:
    """What an entry gives for inputs made from a seed (golden.py), with ``dims`` in the module's order.

    ``outputs``: of each one how far off it may be, then elements at even distances. ``moved``: how far narrow weights
    take them from what was declared, as a share of the largest.
    """

    entry: str
    dims: tuple[int, ...]
    outputs: tuple[tuple[float, ...], ...]
    moved: float = 0.0


@dataclass(frozen=True)
class Module:
    """Everything the extension module's template needs.

    ``initial`` is the start of the state; what lies behind it starts as zeros. ``deterministic``: all ``isas`` give the
    same bits. ``threads``: how many a call may use unless told otherwise; 0: as many as there are CPUs. ``tuned``: by
    instruction set and contraction, the schedule that was measured to be the fastest. ``facts`` are ``graph_facts``.
    ``weights``: where they lie, as the setting of that name says. ``version``: the project's, if known. ``words``:
    kernels multiply bytes, for which AVX-512 has instructions on most CPUs only.
    """

    name: str
    dims: tuple[str, ...]
    entries: tuple[Entry, ...]
    slots: tuple[Slot, ...]
    state_bytes: int
    constants: bytes | bytearray
    initial: bytes
    isas: tuple[str, ...]
    info: dict[str, object] = field(default_factory=dict)
    deterministic: bool = False
    threads: int = 1
    tuned: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    golden: tuple[Golden, ...] = ()
    facts: Mapping[str, object] = field(default_factory=dict)
    weights: str = "auto"
    words: bool = False
    version: str = ""

    @property
    def c_dims(self) -> tuple[str, ...]:
        """The dims as C calls them."""
        return tuple(map(dim_name, self.dims))

    @property
    def stem(self) -> str:
        """``nn`` of ``digits.nn``: how the names of its C files begin."""
        return self.name.rpartition(".")[2]

    @property
    def prefix(self) -> str:
        """``digits_nn`` of ``digits.nn``: how its names in C begin, so that a program can have several models."""
        return self.name.replace(".", "_")


@dataclass(frozen=True)
class Panels:
    """Weights as the kernels of a matrix product read them: in one ascending stream.

    ``axis`` is cut into panels of ``width`` elements; in each, the other axes come first in row-major order (``rows``
    of them in all), then the panel's elements. The last panel is as wide as whole vectors of ``unit`` elements need,
    with zeros; so that these are few, the last ``apart`` elements may come transposed, in rows of their own.
    """

    axis: int
    width: int
    rows: int
    unit: int
    apart: int = 0


@dataclass(frozen=True, eq=False)
class Buffer:
    """Memory that kernels read or write: strides in elements, rows padded to 64 bytes unless ``dense``.

    With ``panels``, strides are those of the rows of one panel, in rows.

    ``where``: ``input`` and ``output`` (the caller's), ``state`` (slots), ``constant``, ``work``; ``slice``: so many
    elements behind the start of the buffer ``within``, where a loop's variable says which slice.
    """

    name: str
    dtype: str
    shape: tuple[Dim, ...]
    strides: tuple[Dim, ...]
    where: str
    dense: bool = False
    within: Buffer | None = None
    start: Dim = 0
    panels: Panels | None = None

    @property
    def whole(self) -> Buffer:
        """The buffer that has a place of its own."""
        return self if self.within is None else self.within.whole

    @cached_property
    def bytes(self) -> Dim:
        """What it takes in the workspace."""
        if self.panels is not None:
            panels, unit = self.panels, self.panels.unit
            columns = (self.shape[panels.axis] - panels.apart + unit - 1) // unit * unit
            apart = -(-panels.rows // unit) * unit * panels.apart
            return ((columns * panels.rows + apart) * DTYPES[self.dtype].itemsize + LINE - 1) // LINE * LINE
        size: Dim = 1
        for extent, stride in zip(self.shape, self.strides, strict=True):
            if _is_larger(extent * stride, size):
                size = extent * stride
        return (size * DTYPES[self.dtype].itemsize + LINE - 1) // LINE * LINE

    def __str__(self) -> str:
        shape = ",".join(map(str, self.shape))
        layout = f"strides {list(self.strides)}"
        if self.panels is not None:
            layout = f"panels of {self.panels.width} along {self.panels.axis}"
        return f"{self.name}: {self.dtype}[{shape}] {layout} in {self.where}"


def _is_larger(a: Dim, b: Dim) -> bool:
    """Whether a product of an extent and a stride exceeds another; the one with more named dims does."""
    order = [(len(dim_names(x)), substitute(x, dict.fromkeys(dim_names(x), 1000))) for x in (a, b)]
    return order[0] > order[1]


@dataclass(frozen=True)
class Param:
    """A buffer as a kernel knows it."""

    name: str
    buffer: Buffer
    written: bool


@dataclass(frozen=True)
class Kernel:
    """A loop nest with the buffers that its arrays are, in the order of the nest's parameters.

    ``origin``: the part of the model that it computes.
    """

    nest: Nest
    params: tuple[Param, ...]
    origin: str = ""

    @cached_property
    def sized(self) -> tuple[Nest, Mapping[str, int]]:
        """The nest as one that arrays of other sizes have, too, and the numbers that it is given for these."""
        return of_any_size(self.nest)

    @cached_property
    def content(self) -> tuple[Nest, tuple[str, ...]]:
        """What it does, whatever its arrays and dims are called, and its dims."""
        return canonical(self.sized[0])

    @cached_property
    def contraction(self) -> Contraction | None:
        """What it sums, where the schedule makes register tiles of it."""
        return contraction_of(self.nest) if self.nest.is_tiled else None

    @property
    def template(self) -> str:
        """What kind of kernel it is, for people."""
        return self.nest.name

    @property
    def doc(self) -> tuple[str, ...]:
        return self.nest.doc


@dataclass(frozen=True)
class Loop:
    """``steps`` again and again, ``extent`` times at most: while the truth value behind ``condition`` holds, if given.

    ``carried``: buffers whose contents one round leaves for the next. ``apart``: rounds may run at the same time, each
    thread with this buffer for itself.
    """

    variable: str
    extent: Dim
    tested: tuple[Step, ...]
    condition: Param | None
    steps: tuple[Step, ...]
    carried: tuple[Buffer, ...]
    doc: tuple[str, ...] = ()
    apart: Buffer | None = None

    @property
    def params(self) -> tuple[Param, ...]:
        own = () if self.condition is None else (self.condition,)
        return (*own, *[p for step in (*self.tested, *self.steps) for p in step.params])


@dataclass(frozen=True)
class Branch:
    """``then`` where the truth value behind ``condition`` holds, else ``otherwise``."""

    condition: Param
    then: tuple[Step, ...]
    otherwise: tuple[Step, ...]
    doc: tuple[str, ...] = ()

    @property
    def params(self) -> tuple[Param, ...]:
        return (self.condition, *[p for step in (*self.then, *self.otherwise) for p in step.params])


@dataclass(frozen=True)
class Sequence:
    """Several steps that stand for one node."""

    steps: tuple[Step, ...]

    @property
    def params(self) -> tuple[Param, ...]:
        return tuple(p for step in self.steps for p in step.params)


Step = Kernel | Loop | Branch | Sequence


def kernels_of(steps: Iterable[Step]) -> Iterator[Kernel]:
    """Every kernel of some steps, in order."""
    for step in steps:
        if isinstance(step, Loop):
            yield from kernels_of((*step.tested, *step.steps))
        elif isinstance(step, Branch):
            yield from kernels_of((*step.then, *step.otherwise))
        elif isinstance(step, Sequence):
            yield from kernels_of(step.steps)
        else:
            yield step


@dataclass(frozen=True)
class Procedure:
    """The kernels of an entry in order, where each work buffer lies, and how many kernels the forward phase has."""

    entry: Entry
    steps: tuple[Step, ...]
    offsets: tuple[tuple[Buffer, Dim], ...]
    forward: int
    places: dict[int, int]  # id of a state or constant buffer: its byte offset there

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        return tuple(kernels_of(self.steps))

    def __str__(self) -> str:
        lines = [f"entry {self.entry.name}: workspace {self.entry.workspace}"]
        kernels = self.kernels
        buffers = dict.fromkeys(p.buffer for k in kernels for p in k.params)
        at = {id(buffer): offset for buffer, offset in self.offsets}
        lines += [f"  {b}" + (f" at {at[id(b)]}" if id(b) in at else "") for b in buffers]
        for kernel in kernels:
            names = ", ".join(f"{p.name}={p.buffer.name}{'!' if p.written else ''}" for p in kernel.params)
            lines.append(f"  {kernel.template} {names}")
            lines += [f"    {line}" for line in kernel.doc]
        return "\n".join(lines)


@dataclass(frozen=True)
class Program:
    """A whole module, ready to be rendered."""

    module: Module
    procedures: tuple[Procedure, ...]

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """Those of all entries, in order."""
        return tuple(kernel for procedure in self.procedures for kernel in procedure.kernels)

    def __str__(self) -> str:
        slots = [
            f"  {s.name}: {s.dtype}{list(s.shape)} strides {list(s.strides)} at {s.offset}" for s in self.module.slots
        ]
        return "\n".join([f"program {self.module.name}", *slots, *map(str, self.procedures)]) + "\n"
