"""Check that loop nests compute the same as the graphs, after lowering and after the schedule of each machine.

The interpreter (``mlaot/interpret.py``) runs all entries in NumPy on the inputs of ``mlaot/bisect.py``. The answers are
compared with the graphs evaluated in float64, with the same tolerance. No compiler is called. If the scheduled nests of
a machine are wrong but the lowered ones are right, the kernels are scheduled one at a time until the answer is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from mlaot.bisect import HALF, ROWS, SIZES, WRONG, Answers, Fault, difference, dims_of, random_input
from mlaot.evaluate import evaluate
from mlaot.interpret import Instance, Interpreter, instance
from mlaot.ir.dims import names, substitute
from mlaot.ir.module import Module, gradient_of
from mlaot.lower.program import Kernel, Procedure, Program
from mlaot.nest.interpreter import downcast, upcast
from mlaot.nest.statements import Nest
from mlaot.ops.base import Array
from mlaot.printing.functions import label_of
from mlaot.schedule.machine import MACHINES, Machine
from mlaot.schedule.nests import schedule_nest
from mlaot.schedule.parallel import work
from mlaot.stages import NESTS, stage

MAX_OPERATIONS = 1 << 28  # operations that NumPy does statement by statement within a minute or so
BYTES_HALF = 4  # bits of an answer that must be right if products are computed with bytes
ScheduleNest = Callable[[Nest, Machine], Nest]


def bisect_nests(module: Module, program: Program, isas: Sequence[str]) -> Fault | int | None:
    """Return the first fault of a program's nests, else the number of entries compared; None if that takes too long."""
    if operations(program) > MAX_OPERATIONS:
        return None
    for size in SIZES:
        trial = _Trial(module, program, size)
        try:
            expected = {p.entry.name: trial.expected(p.entry.name) for p in program.procedures}
        except WRONG:  # the sizes of these dims do not fit
            continue
        for isa in isas:
            with stage(NESTS, detail=isa):
                fault = trial.compare(expected, MACHINES[isa], schedule_nest)
            if fault is not None:
                return trial.locate(expected, MACHINES[isa], fault)
        return len(expected)
    return None


def operations(program: Program) -> int:
    """Estimate the operations of all kernels for small dims."""
    sizes = [work(kernel.nest.body) for kernel in program.kernels]
    return sum(substitute(size, dict.fromkeys(names(size), ROWS)) for size in sizes)


class _Trial:
    """One call of each entry, for dims of one size."""

    def __init__(self, module: Module, program: Program, size: int) -> None:
        self.module, self.program, self.size = module, program, size
        self.dims = {name: ROWS if name == "batch" else size for name in program.module.dims}

    def expected(self, entry: str) -> Answers:
        """Evaluate a graph in float64."""
        graph = self.module.graphs[entry]
        # The module's slots include those that became constants.
        slots = {**self.slots(instance(self.program.module)), **self.module.slots}
        state = {key: value for key, value in slots.items() if key in graph.inputs}
        inputs = {
            key: random_input(key, node.type, self.size, False)
            for key, node in graph.inputs.items()
            if key not in state
        }
        dims = dict.fromkeys({n for node in graph.nodes() for n in dims_of(node.type)}, self.size)
        return evaluate(graph, inputs | state, wide=True, dims=dims | {"batch": ROWS})

    def interpret(self, procedure: Procedure, interpreter: Interpreter) -> Answers:
        """Interpret an entry, and return its results and the state that it writes."""
        entry, memory = procedure.entry, instance(self.program.module)
        graph = self.module.graphs[entry.name]
        values = {p.name: random_input(p.name, graph.inputs[p.name].type, self.size, False) for p in entry.inputs}
        inputs = {p.name: as_bits(values[p.name], p.dtype) for p in entry.inputs}
        outputs = interpreter.call(entry.name, inputs, self.dims, memory)
        answers = {port.name: as_numbers(outputs[port.name], port.dtype) for port in entry.outputs}
        return answers | {f"write {slot}": value for slot, value in self.slots(memory).items() if slot in graph.writes}

    def slots(self, memory: Instance) -> dict[str, Array]:
        """Return the state by the names of the graphs' slots."""
        slots = self.program.module.slots
        values = {slot.name: as_numbers(memory.slot(slot), slot.dtype) for slot in slots}
        trained = [slot for slot in slots if slot.gradient_offset >= 0]
        return values | {
            gradient_of(slot.name): as_numbers(memory.slot(slot, gradient=True), slot.dtype) for slot in trained
        }

    def compare(self, expected: Mapping[str, Answers], machine: Machine, schedule: ScheduleNest) -> Fault | None:
        """Return a fault for the first answer whose error is larger than its dtype allows."""
        interpreter = Interpreter(self.program, machine, schedule)
        for procedure in self.program.procedures:
            entry = procedure.entry.name
            try:
                answers = self.interpret(procedure, interpreter)
            except AssertionError as error:
                return Fault("", entry, "answer", f"none at all ({error})")
            for key, reference in expected[entry].items():
                answer = answers.get(key)
                off = 0.0 if answer is None else difference(reference, answer.reshape(reference.shape))
                if off > 2.0 ** -self.bits(entry, key):
                    return Fault("", entry, key, f"off by {off:.3g} of the largest element")
        return None

    def bits(self, entry: str, key: str) -> int:
        """Return the number of bits of an answer that must be right."""
        graph = self.module.graphs[entry]
        if self.module.options.quantize or self.module.quantized:
            return BYTES_HALF
        node = graph.outputs.get(key) or graph.writes[key.removeprefix("write ")]
        types = [t.dtype.name for n in graph.nodes() for t in getattr(n.type, "items", (n.type,))]
        bits = min((HALF[name] for name in types if name in HALF), default=60)
        return bits if node.find().type.dtype.name in HALF else 60

    def locate(self, expected: Mapping[str, Answers], machine: Machine, fault: Fault) -> Fault:
        """Return the fault with the step that causes it: lowering, or the schedule of one kernel."""
        lowered = self.compare(expected, machine, lambda nest, _: nest)
        if lowered is not None:
            return Fault("lowering", lowered.entry, lowered.output, lowered.what)
        for kernel in {kernel.nest: kernel for kernel in self.program.kernels}.values():
            single = self.compare(expected, machine, schedule_only(kernel))
            if single is not None:
                step = f"the schedule of {label_of(kernel)} for {machine.name}"
                return Fault(step, single.entry, single.output, f"{single.what}; {'; '.join(kernel.doc)}")
        return Fault(f"the schedules of several kernels for {machine.name}", fault.entry, fault.output, fault.what)


def schedule_only(kernel: Kernel) -> ScheduleNest:
    """Return a schedule of one kernel that leaves the others as lowered."""
    return lambda nest, machine: schedule_nest(nest, machine) if nest == kernel.sized[0] else nest


def as_numbers(array: Array, dtype: str) -> Array:
    """Convert elements to NumPy's numbers."""
    return upcast(array, dtype) if dtype == "bf16" else array


def as_bits(array: Array, dtype: str) -> Array:
    """Convert numbers to the bits that a caller has in memory."""
    return downcast(array, dtype) if dtype == "bf16" else array
