"""The program, the result of lowering: entries over buffers and kernels, printable, without nodes or ops."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from mlaot.ir.dims import Dim, largest, substitute
from mlaot.ir.dims import names as dim_names
from mlaot.ir.module import PHASES, PREPARE, Generation
from mlaot.ir.ports import Draw
from mlaot.ir.ports import Port as Port
from mlaot.ir.types import DTYPES
from mlaot.lower.identifiers import dim_name
from mlaot.nest.canonical import canonical
from mlaot.nest.expressions import Panels, round_up
from mlaot.nest.statements import Nest
from mlaot.schedule.collapse import generalize_size
from mlaot.schedule.contraction import Contraction, contraction_of
from mlaot.schedule.machine import LINE, whole_lines
from mlaot.settings.options import Options


@dataclass(frozen=True)
class Slot:
    """An array in the state block: strides in elements, offsets in bytes; storage may be padded or transposed.

    ``kind`` is ``parameter`` (with a gradient if the module trains), ``buffer`` (running statistics, caches) or
    ``optimizer`` (moments, step counts). The state is the parameters, the other slots, then the gradients in the order
    of their parameters. ``save`` leaves out a slot that is not ``in_file``.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    gradient_offset: int = -1
    kind: str = "parameter"
    in_file: bool = True


@dataclass(frozen=True)
class Counted:
    """A dim that an entry counts, with texts of expressions: its bound, and the needs that must not be negative."""

    dim: str
    most: str
    needs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Entry:
    """A compiled function; ``workspace`` (bytes) and ``work`` (operations) are texts of expressions in the dims.

    ``tile`` is the number of rows that are computed at a time, or 0 for all at once, and ``rows`` is their dim.
    ``extents`` are further expressions that a call's dims must not make negative, such as extents of intermediate
    values. With ``named`` the results are a dict, and so is ``out``. ``refusals`` are messages for invalid inputs. If
    there are any, the last output is not a result, but the number of a message, from 1 on, or 0. ``counts`` are the
    dims that the entry counts, whose numbers are outputs after the results.
    """

    name: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    workspace: str
    work: str
    split: bool = False
    doc: str = ""
    tile: int = 0
    rows: str = ""
    extents: tuple[str, ...] = ()
    named: bool = False
    refusals: tuple[str, ...] = ()
    counts: tuple[Counted, ...] = ()

    @property
    def results(self) -> tuple[Port, ...]:
        """The outputs that a caller gets."""
        return self.outputs[: len(self.outputs) - len(self.counts) - bool(self.refusals)]

    @property
    def counted(self) -> frozenset[str]:
        """The names of the dims that it counts."""
        return frozenset(count.dim for count in self.counts)

    @property
    def asked(self) -> tuple[Port, ...]:
        """The inputs that a caller passes, which are the first."""
        return tuple(port for port in self.inputs if port.made is None)


@dataclass(frozen=True)
class Golden:
    """The recorded results of an entry for inputs made by ``draws`` (golden.py), with ``dims`` in the module's order.

    ``outputs`` has for each output its tolerance, then its elements or their ``signed_sums``. ``largest`` has the
    largest element of each output. ``drift`` is the difference of the results with half-precision weights from those
    with the declared weights, relative to the largest element.
    """

    entry: str
    dims: tuple[int, ...]
    draws: tuple[Draw, ...]
    outputs: tuple[tuple[float, ...], ...]
    largest: tuple[float, ...]
    drift: float = 0.0


@dataclass(frozen=True)
class Cost:
    """What a kernel is, and what one run of it costs.

    ``operations``: multiplications and additions of a contraction, 0 of other kernels. ``bytes``: of the buffers that
    it reads or writes.
    """

    entry: str
    title: str
    origin: str
    line: str
    doc: tuple[str, ...]
    operations: Dim
    bytes: Dim


@dataclass(frozen=True)
class ExtensionModule:
    """Everything that the template of an extension module needs.

    ``initial`` are the first bytes of the initial state, which zeros follow; a module that ``is_prepared`` does not
    store them. ``options`` are the settings that it was compiled with. ``tuned`` has, by instruction set and
    contraction, the schedule that was measured to be the fastest. ``metadata`` is the result of ``graph_metadata``, and
    ``version`` is the project's. With ``words`` kernels multiply integers, for which not all CPUs with AVX-512 have
    instructions. ``generation`` says how it generates texts, if it does. ``texts`` are the slots of each of several
    texts, after the state. ``costs`` are those of the kernels that a profile times.
    """

    name: str
    dims: tuple[str, ...]
    entries: tuple[Entry, ...]
    slots: tuple[Slot, ...]
    state_bytes: int
    constants: bytes | bytearray
    initial: bytes
    options: Options
    info: dict[str, object] = field(default_factory=dict)
    tuned: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    golden: tuple[Golden, ...] = ()
    metadata: Mapping[str, object] = field(default_factory=dict)
    words: bool = False
    version: str = ""
    generation: Generation | None = None
    texts: tuple[Slot, ...] = ()
    costs: tuple[Cost, ...] = ()

    @property
    def is_prepared(self) -> bool:
        """Whether ``prepare_weights`` makes the state from constants, once, for all instances."""
        return any(entry.name == PREPARE for entry in self.entries)

    @property
    def memory_bytes(self) -> int:
        """The bytes of the state, and of the texts' slots after it."""
        ends = [slot.offset + slot.shape[0] * slot.strides[0] * DTYPES[slot.dtype].itemsize for slot in self.texts]
        return max([self.state_bytes, *ends])

    @property
    def isas(self) -> tuple[str, ...]:
        """The instruction sets that it has C for."""
        return self.options.isas

    @property
    def phases(self) -> Entry | None:
        """The entry that ``forward()`` and ``backward()`` run after ``set_input()``, in a module that trains."""
        return next((entry for entry in self.entries if entry.name == PHASES), None)

    @property
    def c_dims(self) -> tuple[str, ...]:
        """The C names of the dims."""
        return tuple(map(dim_name, self.dims))

    @property
    def stem(self) -> str:
        """``nn`` of ``digits.nn``: the beginning of the names of its C files."""
        return self.name.rpartition(".")[2]

    @property
    def prefix(self) -> str:
        """``digits_nn`` of ``digits.nn``: the prefix of its names in C, which differs from model to model."""
        return self.name.replace(".", "_")


HELD = ("constant", "state")  # where weights are


@dataclass(frozen=True, eq=False)
class Buffer:
    """Memory that kernels read or write: strides in elements, rows padded to 64 bytes unless ``dense``.

    ``where`` is ``input`` or ``output`` (the caller's), ``state`` (slots), ``constant`` or ``work``. A ``slice`` begins
    ``start`` elements after the start of the buffer ``within``; ``start`` may depend on a loop's variable.

    With ``panels`` the axis ``panel_axis`` of weights is cut into panels, and the other axes are the panels' rows in
    row-major order; strides count rows of a panel. The last columns, if they would fill a small part of one more
    vector, may be left out of the panels. Each of these remainder columns is then a dense row after the panels.
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
    panel_axis: int = 0

    @property
    def root(self) -> Buffer:
        """The buffer that has a place of its own in memory."""
        return self if self.within is None else self.within.root

    @property
    def remainder_columns(self) -> int:
        """The number of remainder columns after the panels."""
        columns = self.shape[self.panel_axis] if self.panels is not None else 0
        assert isinstance(columns, int), f"bug in mlaot: panels of {self.name} along a named dim"
        return columns - self.panels.columns if self.panels is not None else 0

    @cached_property
    def bytes(self) -> Dim:
        """The bytes that the buffer takes."""
        if self.panels is not None:
            remainder = round_up(self.panels.rows, self.panels.width) * self.remainder_columns
            return whole_lines((self.panels.padded_size + remainder) * DTYPES[self.dtype].itemsize)
        size: Dim = 1
        for extent, stride in zip(self.shape, self.strides, strict=True):
            if _is_larger(extent * stride, size):
                size = extent * stride
        return (size * DTYPES[self.dtype].itemsize + LINE - 1) // LINE * LINE

    def __str__(self) -> str:
        shape = ",".join(map(str, self.shape))
        layout = f"strides {list(self.strides)}"
        if self.panels is not None:
            layout = f"panels of {self.panels.width} along {self.panel_axis}"
        return f"{self.name}: {self.dtype}[{shape}] {layout} in {self.where}"


def _is_larger(a: Dim, b: Dim) -> bool:
    """Tell whether a product of an extent and a stride exceeds another.

    The one with more named dims counts as larger.
    """
    order = [(len(dim_names(x)), substitute(x, dict.fromkeys(dim_names(x), 1000))) for x in (a, b)]
    return order[0] > order[1]


@dataclass(frozen=True)
class Param:
    """A buffer under the name by which a kernel knows it."""

    name: str
    buffer: Buffer
    written: bool


@dataclass(frozen=True)
class Kernel:
    """A loop nest and the buffers of its arrays, in the order of the nest's parameters.

    ``origin`` is the part of the model that it computes, and ``line`` the line of the user's code that
    most of it is for.
    """

    nest: Nest
    params: tuple[Param, ...]
    origin: str = ""
    line: str = ""

    @cached_property
    def sized(self) -> tuple[Nest, Mapping[str, int]]:
        """The nest for arrays of any size, and the sizes that this kernel passes to it."""
        return generalize_size(self.nest)

    @cached_property
    def content(self) -> tuple[Nest, tuple[str, ...]]:
        """The nest without the names of its arrays and dims, and the dims."""
        return canonical(self.sized[0])

    @cached_property
    def contraction(self) -> Contraction | None:
        """The contraction of the kernel, if the schedule makes register tiles of it."""
        return contraction_of(self.nest) if self.nest.is_tiled else None

    @property
    def template(self) -> str:
        """The kind of kernel for people."""
        return self.nest.name

    @property
    def doc(self) -> tuple[str, ...]:
        return self.nest.doc


@dataclass(frozen=True)
class Loop:
    """Run ``steps`` at most ``extent`` times, and if there is a ``condition``, while its truth value holds.

    ``tested`` are the steps that compute the condition. ``carried`` are the buffers whose contents one round leaves for
    the next. ``private`` is a buffer that each thread needs for itself to share the rounds. ``rows`` is the dim along
    which every round computes separate rows, which threads may share for all rounds at once. The buffers then live as
    long as the loop.
    """

    variable: str
    extent: Dim
    tested: tuple[Step, ...]
    condition: Param | None
    steps: tuple[Step, ...]
    carried: tuple[Buffer, ...]
    doc: tuple[str, ...] = ()
    private: Buffer | None = None
    rows: str = ""

    @property
    def inner(self) -> tuple[Step, ...]:
        """The steps of a round."""
        return (*self.tested, *self.steps)

    @property
    def params(self) -> tuple[Param, ...]:
        own = () if self.condition is None else (self.condition,)
        return (*own, *[p for step in self.inner for p in step.params])


@dataclass(frozen=True)
class Branch:
    """Run ``then`` if the truth value in ``condition`` holds, and else ``otherwise``."""

    condition: Param
    then: tuple[Step, ...]
    otherwise: tuple[Step, ...]
    doc: tuple[str, ...] = ()

    @property
    def inner(self) -> tuple[Step, ...]:
        """The steps of both branches."""
        return (*self.then, *self.otherwise)

    @property
    def params(self) -> tuple[Param, ...]:
        return (self.condition, *[p for step in self.inner for p in step.params])


@dataclass(frozen=True)
class Bind:
    """Set a dim to the number in ``count``, and run the steps if it is from 0 to ``most`` and no need is negative."""

    dim: str
    count: Param
    most: Dim
    needs: tuple[Dim, ...]
    inner: tuple[Step, ...]
    doc: tuple[str, ...] = ()

    @property
    def params(self) -> tuple[Param, ...]:
        return (self.count, *[p for step in self.inner for p in step.params])


@dataclass(frozen=True)
class Steps:
    """Several steps that stand for one node."""

    inner: tuple[Step, ...]

    @property
    def params(self) -> tuple[Param, ...]:
        return tuple(p for step in self.inner for p in step.params)


Step = Kernel | Loop | Branch | Bind | Steps


def most_of_steps(steps: Iterable[Step]) -> dict[str, Dim]:
    """Return the bound of each dim that some steps count, in the dims of the call."""
    most: dict[str, Dim] = {}
    waiting = [*steps]
    while waiting:
        step = waiting.pop()
        if isinstance(step, Bind):  # it is inside of those whose dims it knows
            most[step.dim] = largest(step.most, most)
        waiting += () if isinstance(step, Kernel) else step.inner
    return most


def kernels_of(steps: Iterable[Step]) -> Iterator[Kernel]:
    """Yield every kernel of some steps, in order."""
    for step in steps:
        if isinstance(step, Kernel):
            yield step
        else:
            yield from kernels_of(step.inner)


@dataclass(frozen=True)
class Procedure:
    """The steps of an entry in order, the place of each work buffer, and the number of steps of the forward pass."""

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
    """A module with its procedures, ready to be rendered."""

    module: ExtensionModule
    procedures: tuple[Procedure, ...]

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The kernels of all entries, in order."""
        return tuple(kernel for procedure in self.procedures for kernel in procedure.kernels)

    @property
    def distinct(self) -> dict[int, tuple[Kernel, Entry]]:
        """Each kernel once, by its id, with the first entry that runs it; the order is that of the entries."""
        found: dict[int, tuple[Kernel, Entry]] = {}
        for procedure in self.procedures:
            for kernel in procedure.kernels:
                found.setdefault(id(kernel), (kernel, procedure.entry))
        return found

    @property
    def numbers(self) -> dict[int, int]:
        """The place of each kernel among the distinct ones, by its id."""
        return {key: number for number, key in enumerate(self.distinct)}

    def __str__(self) -> str:
        slots = [
            f"  {s.name}: {s.dtype}{list(s.shape)} strides {list(s.strides)} at {s.offset}" for s in self.module.slots
        ]
        return "\n".join([f"program {self.module.name}", *slots, *map(str, self.procedures)]) + "\n"
