"""The generated files of a module, rendered and written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mlaot.binding.interface import render_interface
from mlaot.binding.weights import DIGEST_BYTES
from mlaot.errors import writing
from mlaot.lower.program import Program
from mlaot.printing.file import kernels_file
from mlaot.report.facts import facts_text
from mlaot.schedule.machine import MACHINES
from mlaot.settings import FACTS, WEIGHTS

Files = dict[str, str | bytes]


def program_files(program: Program, *, c_library: bool = False) -> Files:
    """The files of one module; ``c_library``: with those of a library for C."""
    module = program.module
    kernels = {f"{module.stem}_{isa}.c": kernels_file(program, module.prefix, MACHINES[isa]) for isa in module.isas}
    interface = render_interface(module, c_library=c_library)
    return {**interface, **kernels, FACTS: facts_text(program, weights_of(interface, module.stem))}


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
