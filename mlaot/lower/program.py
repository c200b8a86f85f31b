"""What lowering produces: entries over buffers and kernels, printable, without nodes or ops."""

from __future__ import annotations

from dataclasses import dataclass, field

from mlaot.ir.dims import Dim, substitute
from mlaot.ir.dims import names as dim_names
from mlaot.ir.types import DTYPES

Shape = tuple[int | str, ...]


@dataclass(frozen=True)
class Port:
    """One input or output of an entry. ``limit``: integers must be in ``0..limit-1``; ``default``: a keyword scalar."""

    name: str
    dtype: str
    shape: Shape
    limit: int | None = None
    default: float | None = None


@dataclass(frozen=True)
class Slot:
    """A parameter in the state block: strides in elements, offsets in bytes; storage may be padded or transposed."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    gradient_offset: int


@dataclass(frozen=True)
class Entry:
    """One compiled function; ``workspace`` (bytes) and ``work`` (operations) are C expressions in the dims.

    ``tile``: so many rows of the batch are computed at a time, since none depends on another; 0: all at once.
    """

    name: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    workspace: str
    work: str
    split: bool = False
    doc: str = ""
    tile: int = 0


@dataclass(frozen=True)
class Module:
    """Everything the extension module's template needs."""

    name: str
    dims: tuple[str, ...]
    entries: tuple[Entry, ...]
    slots: tuple[Slot, ...]
    state_bytes: int
    constants: bytes
    initial: bytes
    isas: tuple[str, ...]
    info: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Buffer:
    """Memory that kernels read or write: strides in elements, rows padded to 64 bytes unless ``dense``.

    ``where``: ``input`` and ``output`` (the caller's), ``state`` (slots), ``constant``, ``work``.
    """

    name: str
    dtype: str
    shape: tuple[Dim, ...]
    strides: tuple[Dim, ...]
    where: str
    dense: bool = False

    @property
    def bytes(self) -> Dim:
        """What it takes in the workspace."""
        size: Dim = 1
        for extent, stride in zip(self.shape, self.strides, strict=True):
            if _is_larger(extent * stride, size):
                size = extent * stride
        return (size * DTYPES[self.dtype].itemsize + 63) // 64 * 64

    def __str__(self) -> str:
        shape = ",".join(map(str, self.shape))
        return f"{self.name}: {self.dtype}[{shape}] strides {list(self.strides)} in {self.where}"


def _is_larger(a: Dim, b: Dim) -> bool:
    """Whether a product of an extent and a stride exceeds another; the one with more named dims does."""
    order = [(len(dim_names(x)), substitute(x, dict.fromkeys(dim_names(x), 1))) for x in (a, b)]
    return order[0] > order[1]


@dataclass(frozen=True)
class Param:
    """A buffer as a kernel knows it."""

    name: str
    buffer: Buffer
    written: bool


@dataclass(frozen=True)
class Stage:
    """One vector loop over the columns of a row: ``before`` it, ``full`` vectors, the ``rest``, and ``after`` it."""

    before: tuple[str, ...]
    full: tuple[str, ...]
    rest: tuple[str, ...]
    after: tuple[str, ...]


@dataclass(frozen=True)
class Rows:
    """Elementwise work and reductions along rows: ``loops`` over rows (variable, extent), then stages over columns."""

    dtype: str
    params: tuple[Param, ...]
    loops: tuple[tuple[str, str], ...]
    columns: str | None
    once: tuple[str, ...]
    row: tuple[str, ...]
    stages: tuple[Stage, ...]
    done: tuple[str, ...]
    doc: tuple[str, ...]
    template: str = "rows"


@dataclass(frozen=True)
class Contraction:
    """A sum over ``k`` into tiles of ``m`` rows by ``n`` columns, with an epilogue on each accumulator.

    ``along``: "n" reads whole vectors of b and broadcasts a; "k" reads whole vectors of both and adds lanes at the end.
    ``epilogue`` and ``rest`` (the last, partial vector) hold ``{acc}``, ``{i}`` and ``{j}``; along "k" they are scalar.
    """

    dtype: str
    params: tuple[Param, ...]
    along: str
    loops: tuple[tuple[str, str], ...]
    m: tuple[str, str]
    n: tuple[str, str]
    k: tuple[tuple[str, str], ...]
    a: tuple[str, str] | None
    b: tuple[str, str]
    combine: str
    start: str
    full_b: bool
    once: tuple[str, ...]
    epilogue: tuple[str, ...]
    rest: tuple[str, ...]
    doc: tuple[str, ...]
    template: str = "contraction"


@dataclass(frozen=True)
class Copy:
    """Scalar loops that move elements: ``loops`` and one ``body``, with index ``tables``."""

    dtype: str
    params: tuple[Param, ...]
    tables: tuple[tuple[str, tuple[int, ...]], ...]
    before: tuple[str, ...]
    loops: tuple[tuple[str, str], ...]
    body: tuple[str, ...]
    doc: tuple[str, ...]
    template: str = "copy"


Kernel = Rows | Contraction | Copy


@dataclass(frozen=True)
class Procedure:
    """The kernels of an entry in order, where each work buffer lies, and how many kernels the forward phase has."""

    entry: Entry
    kernels: tuple[Kernel, ...]
    offsets: tuple[tuple[Buffer, Dim], ...]
    forward: int
    places: dict[int, int]  # id of a state or constant buffer: its byte offset there

    def __str__(self) -> str:
        lines = [f"entry {self.entry.name}: workspace {self.entry.workspace}"]
        buffers = dict.fromkeys(p.buffer for k in self.kernels for p in k.params)
        at = {id(buffer): offset for buffer, offset in self.offsets}
        lines += [f"  {b}" + (f" at {at[id(b)]}" if id(b) in at else "") for b in buffers]
        for kernel in self.kernels:
            names = ", ".join(f"{p.name}={p.buffer.name}{'!' if p.written else ''}" for p in kernel.params)
            lines.append(f"  {kernel.template} {names}")
            lines += [f"    {line}" for line in kernel.doc]
        return "\n".join(lines)


@dataclass(frozen=True)
class Program:
    """A whole module, ready to be rendered."""

    module: Module
    procedures: tuple[Procedure, ...]

    def __str__(self) -> str:
        slots = [
            f"  {s.name}: {s.dtype}{list(s.shape)} strides {list(s.strides)} at {s.offset}" for s in self.module.slots
        ]
        return "\n".join([f"program {self.module.name}", *slots, *map(str, self.procedures)]) + "\n"
