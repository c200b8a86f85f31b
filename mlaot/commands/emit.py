"""``mlaot emit``: write the C of a project or of one module without compiling it, or write it as plain Python."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from mlaot.commands.project import TARGET, find_target, is_bare
from mlaot.errors import MlaotError
from mlaot.settings import FILE, ModelSettings, Settings
from mlaot.settings.reading import load_module, runtime_of
from mlaot.stages import GENERATE

STAGES = GENERATE
HELP = "write the generated C files, or the model as Python"
DESCRIPTION = """\
Write the generated C files: of a project, or of one function or ONNX file, a
folder for each module and a CMakeLists.txt; with --module those of one module, which [tool.mlaot] need not
name, or those of the runtime that [tool.mlaot] names. `mlaot --cmake-dir` prints what CMake wants as mlaot_ROOT.
With --python each module is one file instead, which needs no compiler and no
package, has the functions of the compiled module, and is slow.
"""
EXAMPLES = """\
  mlaot emit . --out c        the files of this project, in the folder c
  cmake -S c -B c/build       what to do with them without pip
  mlaot emit model:digits --out c
                              those of one function, without a pyproject.toml
  mlaot emit --model digits.model:build --module digits.nn --source-dir src --out c
                              the C of one module, for a build of your own
  mlaot emit . --python --out python
                              digits.nn as plain Python: python/digits/nn.py
"""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("project", nargs="?", default=".", help=TARGET)
    parser.add_argument("--module", help="the one extension module to make, such as digits.nn")
    parser.add_argument("--model", help=f"what it is made from, such as digits.model:build (default: as {FILE} says)")
    parser.add_argument("--source-dir", help="the folder with the model's module (default: src if there is one, or .)")
    parser.add_argument("--deterministic", action="store_true", help="the same bits on every instruction set")
    parser.add_argument("--c-library", action="store_true", help="the files of a library for C and C++, too")
    parser.add_argument("--others", nargs="*", default=[], metavar="MODULE", help="extension modules built beside it")
    parser.add_argument("--depfile", help="write what was read as a rule of Make for FILE to FILE.d", metavar="FILE.d")
    parser.add_argument("--python", action="store_true", help="write each module as one file of plain Python, no C")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--out", help="folder for the files")
    what.add_argument("--list", action="store_true", help="print the names of the module's files; trace nothing")


def run(options: argparse.Namespace) -> int:
    """Write the same files as a build, but trace in this process."""
    from mlaot.build import child
    from mlaot.build.sources import depfile
    from mlaot.files import runtime_files, write
    from mlaot.printing.cmake import module_files

    bare = is_bare(options.project)
    project = Path() if bare else Path(options.project)

    def find() -> tuple[Settings, ModelSettings | None]:
        if options.module and bare:
            raise MlaotError(f"--module needs --model, which names the module's source: --model {options.project}")
        if options.module:
            return load_module(
                project,
                options.module,
                model=options.model,
                source=options.source_dir,
                deterministic=options.deterministic,
                c_library=options.c_library,
                others=options.others,
            )
        module_options = (options.model, options.source_dir, options.deterministic, options.c_library, options.others)
        if any(module_options) or options.list:
            raise MlaotError("--list and the options that describe a module need --module, such as --module digits.nn")
        return find_target(options.project)[1], None

    def write_depfile(read: Sequence[Path]) -> None:
        path = Path(options.depfile)
        path.write_text(depfile(str(path.with_suffix("")), read), encoding="utf-8")

    if options.python and (options.list or options.depfile):
        raise MlaotError("--python writes one file for each module; --list and --depfile are for the C")
    if options.module and not bare and options.module == runtime_of(project) and not options.python:
        files = runtime_files(options.module)
        if options.list:
            print(*files, sep="\n")
            return 0
        write(files, Path(options.out))
        if options.depfile:
            write_depfile([])
        return 0
    if options.list:
        settings, model = find()
        assert model is not None
        print(*module_files(model, settings.isas), sep="\n")
        return 0
    kinds = ("python",) if options.python else ("c",)
    return child.emit(project, Path(options.out), find, write_depfile if options.depfile else None, kinds)
