"""Render and write the generated files of a module."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mlaot.binding.interface import render_interface
from mlaot.binding.python import render_python
from mlaot.binding.shared import render_runtime
from mlaot.binding.weights import DIGEST_BYTES
from mlaot.errors import writing
from mlaot.lower.program import Program
from mlaot.printing.cmake import runtime_flags
from mlaot.printing.file import kernels_file
from mlaot.report.metadata import metadata_text
from mlaot.schedule.machine import MACHINES
from mlaot.settings import METADATA, WEIGHTS

Files = dict[str, str | bytes]


def program_files(program: Program) -> Files:
    """Render the files of one module."""
    module = program.module
    kernels = {f"{module.stem}_{isa}.c": kernels_file(program, module.prefix, MACHINES[isa]) for isa in module.isas}
    interface = render_interface(module)
    return {**interface, **kernels, METADATA: metadata_text(program, weights_of(interface, module.stem))}


def python_files(program: Program) -> Files:
    """Render one module as plain Python."""
    return {f"{program.module.stem}.py": render_python(program)}


def runtime_files(name: str) -> Files:
    """Render the files of a runtime that the models of a project share."""
    return {**render_runtime(name), **runtime_flags(name)}


def weights_of(files: Files, stem: str) -> memoryview:
    """Return the weights among the files of a module."""
    beside = f"{stem}.weights"
    content = files[beside if beside in files else WEIGHTS]
    assert isinstance(content, bytes), "bug in mlaot: weights are text"
    return memoryview(content)[DIGEST_BYTES if beside in files else 0 :]


def write(files: Mapping[str, str | bytes], out: Path) -> None:
    """Write the files that changed. The others keep their time stamps, so that they cause no rebuild."""
    for name, content in files.items():
        path = out / name
        data = content.encode() if isinstance(content, str) else content
        if not path.exists() or path.read_bytes() != data:
            with writing(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
