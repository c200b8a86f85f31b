"""The compiler, top to bottom: settings in, files out. Read this file first.

settings --load--> declaration --trace--> graph --passes--> graphs --lower--> program --render--> files
"""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from mlaot import passes
from mlaot.binding.interface import render_interface
from mlaot.binding.weights import DIGEST_BYTES
from mlaot.build.cmake import cmake_files, flag_files
from mlaot.errors import MlaotError, warn, writing
from mlaot.facts import facts_text, graph_facts
from mlaot.frontend.declaration import Declaration, Traced
from mlaot.frontend.scalar import declare_graph, declare_module, is_value
from mlaot.golden import compared, golden_vectors
from mlaot.interpreter import undisturbed
from mlaot.ir import Graph
from mlaot.ir.graph import topological
from mlaot.lower.lower import lower
from mlaot.lower.program import Program
from mlaot.lower.text import program_text
from mlaot.printing.file import LONG_KERNELS, kernels_file
from mlaot.rounded import narrowed, quantized
from mlaot.schedule.machine import MACHINES
from mlaot.settings import FACTS, WEIGHTS, Model, Settings, Tuned, attribute, load_model, read_tuned
from mlaot.stages import stage

Files = dict[str, str | bytes]
Result = TypeVar("Result")


def generate(settings: Settings, project: Path, out: Path) -> None:
    """Write the C, the stubs and the CMake of every model of ``settings`` below ``out``."""
    models = [generate_module(settings, model, project, out / model.module) for model in settings.models]
    write(cmake_files(replace(settings, models=tuple(models))), out)


def generate_module(settings: Settings, model: Model, project: Path, out: Path) -> Model:
    """Write the C and the stub of one model, and the compiler's flags for each C file, into ``out``.

    Gives the model back with ``weights`` as they were placed.
    """
    render = partial(program_files, c_library=model.c_library)
    files = compile_for(settings, model, render, read_tuned(project), golden=True)
    write(files | flag_files(model, settings.isas), out)
    for line in long_files(model.module, files):
        print(f"mlaot: {line}", flush=True)
    for name in {WEIGHTS, model.weights_file} - files.keys():  # of another time, when they lay elsewhere
        (out / name).unlink(missing_ok=True)
    return replace(model, weights="file" if model.weights_file in files else "inside")


def compile_for(
    settings: Settings,
    model: Model,
    use: Callable[[Program], Result],
    tuned: Tuned | None = None,
    *,
    golden: bool = False,
) -> Result:
    """What ``use`` makes of a model's program; its errors, too, name the model's place.

    ``tuned`` and ``golden`` as in ``compile_model``.
    """
    declared = imported(settings, model)
    options = pass_options(settings, model, declared)
    with located(declared, model):
        program = compile_model(
            declared,
            model.module,
            settings.isas,
            deterministic=model.deterministic,
            threads=settings.threads,
            tuned=tuned,
            golden=golden,
            weights=model.weights,
            **options,
        )
        with stage("writing the C"):
            return use(replace(program, module=replace(program.module, version=settings.version)))


def imported(settings: Settings, model: Model) -> Any:
    """The declared model."""
    with stage(f"importing {model.declared}"):
        return load_model(settings, model)


def pass_options(settings: Settings, model: Model, declared: Any) -> dict[str, Any]:
    """The settings that passes obey, and a sample where the model has one."""
    names = ("winograd", "frozen", "intermediates", "weights_dtype", "quantize")
    is_own = model.kind == "model" and model.sample
    sample = attribute(settings, model, "sample") if is_own else None
    if not is_own and isinstance(declared, Declaration):
        sample = declared.sample
    fast_division = model.fast_division and not model.deterministic
    return {**{name: getattr(model, name) for name in names}, "fast_division": fast_division, "sample": sample}


def compile_model(
    model: Any,
    module: str,
    isas: tuple[str, ...],
    *,
    deterministic: bool = False,
    winograd: str = "F2",
    fast_division: bool = False,
    frozen: bool = True,
    intermediates: bool = False,
    weights_dtype: str = "",
    quantize: str = "",
    sample: Any = None,
    weights: str = "auto",
    threads: int = 1,
    tuned: Tuned | None = None,
    golden: bool = False,
) -> Program:
    """A declared model to its program.

    ``deterministic``: one that gives the same bits on all of ``isas``; ``winograd``, ``fast_division``, ``frozen``,
    ``intermediates``, ``weights_dtype``, ``quantize``, ``weights`` and ``threads`` are the settings of these names, and
    ``sample`` is what that of this name names; ``tuned`` are schedules that ``mlaot tune`` found; ``golden``: with
    golden vectors, for which NumPy evaluates the model.
    """
    with no_collection():
        traced = trace(model)
        warn_of_nan(traced, getattr(model, "place", "") or f"{module}: ")
        graphs = passes.run(
            module,
            traced,
            winograd=winograd,
            fast_division=fast_division,
            frozen=frozen,
            intermediates=intermediates,
            weights_dtype=weights_dtype,
            quantize=quantize,
            sample=sample,
        )
        with stage("lowering"):
            program = lower(graphs, isas, deterministic=deterministic, threads=threads)
            if passes.LOWERING in passes.dumped():
                print(program_text(program), file=sys.stderr)
        with stage("computing golden vectors"):
            vectors = golden_vectors(graphs, program.module) if golden else ()
        references = model.references if golden and isinstance(model, Declaration) else {}
        for line in compared(references, graphs, program.module, vectors):
            print(f"mlaot: {module}: {line}", flush=True)
        if golden and weights_dtype:
            print(f"mlaot: {narrowed(graphs, vectors)}", flush=True)
        for line in quantized(graphs, vectors) if golden and quantize else ():
            print(f"mlaot: {line}", flush=True)
        found = replace(program.module, tuned=tuned or {}, golden=vectors, facts=graph_facts(graphs), weights=weights)
        return replace(program, module=found)


@contextmanager
def located(declared: Any, model: Model) -> Iterator[None]:
    """Errors that come from no line of the user's code name the one where the model is declared, or at least it."""
    passes.dumped()  # what an environment variable says is no matter of the model's
    try:
        yield
    except MlaotError as error:
        place = declared.place if isinstance(declared, Declaration) else ""
        error.place = error.place or place or f"{model.declared}: "
        raise


@contextmanager
def no_collection() -> Iterator[None]:
    """Keep the garbage collector from walking a hundred thousand live nodes again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def trace(model: Any) -> Traced:
    """The graph of whatever a user may name as a model: a declaration, a network, a graph of values."""
    if not isinstance(model, Declaration):
        model = declare_graph(model) if is_value(model) or isinstance(model, list | tuple) else declare_module(model)
    with stage("tracing"), undisturbed():
        traced: Traced = model.trace()
    return traced


def warn_of_nan(traced: Traced, place: str) -> None:
    """Weights that are no numbers make answers that are none. What is not trained may hold infinities, as masks do."""
    constants = (n.attrs["value"].array for n in topological(traced.graph.outputs.values()) if n.op.name == "const")
    arrays = ((f"a constant {value.dtype}{list(value.shape)}", value) for value in constants if np.ndim(value))
    untrained = (*((repr(name), value) for name, value in traced.buffers.items()), *arrays)
    for name, value in traced.declared.items():
        if count := count_of(value, not_finite):
            warn(f"nan or inf in {count:,} of {value.size:,} numbers of {name!r}", place)
    for name, value in untrained:
        if count := count_of(value, np.isnan):
            warn(f"nan in {count:,} of {value.size:,} numbers of {name}", place)


def count_of(value: np.ndarray[Any, Any], is_wrong: Callable[..., Any]) -> int:
    """How many numbers of an array are wrong; integers are not."""
    return int(np.count_nonzero(is_wrong(value))) if value.dtype.kind not in "biu" else 0


def not_finite(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Where an array has nan or infinities."""
    wrong: np.ndarray[Any, Any] = np.logical_not(np.isfinite(array))
    return wrong


def program_files(program: Program, *, c_library: bool = False) -> Files:
    """The files of one module; ``c_library``: with those of a library for C."""
    module = program.module
    kernels = {f"{module.stem}_{isa}.c": kernels_file(program, module.prefix, MACHINES[isa]) for isa in module.isas}
    interface = render_interface(module, c_library=c_library)
    return {**interface, **kernels, FACTS: facts_text(program, weights_of(interface, module.stem))}


def long_files(module: str, files: Files) -> list[str]:
    """A line where the compiler is spared: the kernels are too long for all that it could do with them."""
    lines = [text.count("\n") for name, text in files.items() if isinstance(text, str) and LONG_KERNELS in text]
    how = "with -O1 and without inlining, as gcc would take more than a minute for each file otherwise"
    return [f"{module}: {max(lines):,} lines of C an instruction set, compiled {how}"] if lines else []


def weights_of(files: Files, stem: str) -> memoryview:
    """The weights among the files of a module."""
    beside = f"{stem}.weights"
    content = files[beside if beside in files else WEIGHTS]
    assert isinstance(content, bytes), "bug in mlaot: weights are text"
    return memoryview(content)[DIGEST_BYTES if beside in files else 0 :]


def write(files: Mapping[str, str | bytes], out: Path) -> None:
    """Write what changed: a file that is as it should be keeps its time stamp, and nothing is rebuilt for it."""
    for name, content in files.items():
        path = out / name
        data = content.encode() if isinstance(content, str) else content
        if not path.exists() or path.read_bytes() != data:
            with writing(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)


def final_graphs(settings: Settings, model: Model) -> dict[str, Graph]:
    """The graphs of a model after all passes, by entry: what lowering starts from."""
    declared = imported(settings, model)
    with located(declared, model), no_collection():
        return passes.run(model.module, trace(declared), **pass_options(settings, model, declared)).graphs


def pass_report(settings: Settings, project: Path) -> str:
    """Node counts of every model after every pass."""
    lines = []
    for model in settings.models:
        declared = imported(settings, model)
        with located(declared, model):
            lines += [
                f"{model.module} ({model.declared})",
                *report(declared, model.module, **pass_options(settings, model, declared)),
            ]
    return "\n".join(lines)


def report(declared: Any, module: str, **options: Any) -> list[str]:
    """A line for each graph after each pass that changed its counts: how many nodes of which ops."""
    traced = trace(declared)
    observed: passes.Report = []
    if traced.counts:
        observed.append(("declared", {"values": Counter(traced.counts)}))
    passes.run(module, traced, observed, **options)
    lines = []
    last: dict[str, Counter[str]] = {}
    for step, graphs in observed:
        for name, counts in graphs.items():
            if last.get(name) == counts:
                continue
            last[name] = counts
            total = sum(counts.values())
            text = ", ".join(
                f"{op or 'leaf'} {n:,}" for op, n in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
            )
            lines.append(f"  {step:<18}{name:<12}{total:>8,} nodes: {text}")
    return lines
