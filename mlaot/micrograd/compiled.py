"""``compile``: compile a graph of values for this machine, and import the resulting module."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from mlaot.build.toolchain import compile_module, find_toolchain
from mlaot.files import program_files, write
from mlaot.frontend.scalar.declare import declare, topological, values_of
from mlaot.generate import compile_model
from mlaot.probe.beside import load_file
from mlaot.schedule.machine import MACHINES
from mlaot.settings.options import Options
from mlaot.tune import machines_here

NAME = "nn"


def compile(
    outputs: Any, *, inputs: Mapping[str, Any] | None = None, parameters: Any = None, **declaration: Any
) -> ModuleType:
    """Compile a graph of ``Value``s for this machine, and import it here; the arguments are those of ``declare``.

    Without ``inputs``, the leaves labelled ``'input'`` are the vector ``x``. Without ``parameters``, the leaves
    labelled ``'weight'`` and ``'bias'`` are the parameters ``p``. Both are in the order of their use. A C compiler is
    needed. Nothing is kept on disk; to keep a module, or to run it elsewhere, declare the model in a project.
    """
    loss = declaration.get("loss")
    roots = [*values_of(outputs), *([] if loss is None else [loss])]
    leaves = [v for v in topological(roots) if not v._prev]
    if inputs is None:
        labelled = [v for v in leaves if v._op == "input"]
        inputs = {"x": labelled} if labelled else {}
    if parameters is None:
        parameters = [v for v in leaves if v._op in ("weight", "bias")]
    declared = declare(outputs, inputs=inputs, parameters=parameters, **declaration)
    toolchain = find_toolchain()
    machines = machines_here(MACHINES, toolchain.command)
    isas = tuple(dict.fromkeys((machines[0].name, machines[-1].name)))  # what every CPU runs, and the best of this one
    program = compile_model(declared, NAME, Options(isas=isas))
    with tempfile.TemporaryDirectory(prefix="mlaot-") as folder:
        write(program_files(program), Path(folder))
        library = Path(folder, f"{NAME}.abi3.so")
        compile_module(Path(folder), NAME, isas, library, toolchain)
        return load_file(NAME, library)
