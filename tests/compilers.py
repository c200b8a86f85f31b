"""Every compiler that there is: it compiles all kinds of kernels without a warning, and the answers are right.

    python -m tests.compilers
    python -m tests.compilers --compiler gcc-11 --compiler "FOLDER/ziglang/zig cc" --isa v3

For each instruction set of this machine it compiles, with the flags of wheels and those that warn,

* an op of each family on each dtype: all kinds of kernels, whose answers are held against the references;
* models that are ``deterministic``, whose answers have the same bits whatever compiled them;
* whole modules, whose golden vectors are replayed.

Without ``--compiler`` these are all gcc, gcc-11, clang, clang-14 and so on of the PATH, and the package ziglang.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from mlaot.build.platforms import this_platform
from mlaot.build.replay import replay
from mlaot.build.toolchain import MACROS, Toolchain, has_zig
from mlaot.commands.output import table
from mlaot.errors import MlaotError
from mlaot.files import program_files, write
from mlaot.generate import compile_model
from mlaot.ir.types import DTYPES
from mlaot.lower.program import Program
from mlaot.printing.cmake import COMMON_FLAGS, contraction, unit_flags
from mlaot.printing.file import kernels_file
from mlaot.schedule.machine import MACHINES
from mlaot.settings.options import Options

from .compiled import AVAILABLE, HEADER, Library, joined
from .lower import test_deterministic as deterministic
from .ops import test_c as ops
from .passes.frozen import test_quantize
from .report import test_golden

# clang has none of gcc's options that say what to inline in the interface, and says so.
WARN = ("-Wall", "-Wextra", "-Wno-ignored-optimization-argument", "-DNDEBUG", "-fPIC")
NAME = re.compile(r"(gcc|clang)(-\d+)?")
STEM = "graphs"


@dataclass(frozen=True)
class Unit:
    """A C file to compile and link, alone or with others of its ``library``."""

    source: Path
    flags: tuple[str, ...]
    library: str

    @property
    def name(self) -> str:
        """Of the object, among those of one compiler."""
        return f"{self.library}_{self.source.stem}"


@dataclass(frozen=True)
class Work:
    """What every compiler is given."""

    units: tuple[Unit, ...]
    isas: tuple[str, ...]
    ops: Mapping[str, Program]
    models: Mapping[str, Program]
    modules: tuple[str, ...]


@dataclass
class Result:
    """What became of it: ``digests`` are those of the answers that are the same whatever compiles, by model."""

    command: str
    version: str = ""
    files: int = 0
    warnings: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    answers: int = 0
    golden: int = 0
    digests: dict[tuple[str, str], str] = field(default_factory=dict)
    seconds: float = 0.0

    def row(self) -> list[str]:
        """The line of the table."""
        counts = (self.files, len(self.warnings), self.answers, len(self.digests), self.golden)
        verdict = "failed" if self.failures or self.warnings else "ok"
        return [self.command, self.version, *map(str, counts), f"{self.seconds:.0f}", verdict]


COLUMNS = ("compiler", "version", ">files", ">warnings", ">answers", ">same bits", ">golden", ">seconds", "verdict")


def number_of(name: str) -> tuple[str, int]:
    """``("gcc", 11)`` of ``gcc-11``; 0 where there is no number."""
    compiler, _, number = name.partition("-")
    return compiler, int(number or 0)


def found_compilers() -> list[str]:
    """The compilers of the PATH, those that are the same file once, and zig if it is installed."""
    folders = [Path(folder) for folder in os.get_exec_path()]
    names = {f.name for folder in folders if folder.is_dir() for f in folder.iterdir() if NAME.fullmatch(f.name)}
    files = {os.path.realpath(shutil.which(name) or name): name for name in sorted(names, key=number_of)}
    return [*sorted(files.values(), key=number_of), *([f"{sys.executable} -m ziglang cc"] if has_zig() else [])]


def toolchain_of(text: str) -> Toolchain:
    """A compiler; zig compiles for the CPU it runs on, and traps, unless told."""
    words = shlex.split(text)
    if words[-1] != "cc" or len(words) == 1:
        return Toolchain(words)
    return Toolchain([*words, "-target", this_platform().target, "-fno-sanitize=undefined"], this_platform())


def version_of(command: Sequence[str]) -> str:
    """What a compiler calls itself and its version, by its macros."""
    said = subprocess.run([*command, *MACROS], capture_output=True, text=True, check=True).stdout
    defined: dict[str, str] = dict(re.findall(r'^#define (__\w+__) "(.*?) *"$', said, re.MULTILINE))
    clang = defined.get("__clang_version__", "").partition(" ")[0]
    return f"clang {clang}" if clang else f"gcc {defined['__VERSION__'].partition(' ')[0]}"


# ------------------------------------------------------------------------------------------------- what is compiled


@cache
def every_op() -> dict[str, Program]:
    """A program for every sample of every op."""
    return {stem: program for name in ops.NAMES for stem, program in ops.programs(name).items()}


def samples(*, few: bool) -> dict[str, Program]:
    """Programs of ops: of each op on each dtype one with each kind of kernel; ``few``: of each kind of kernel one."""
    found: dict[object, str] = {}
    programs = every_op()
    for name, program in programs.items():
        kinds = frozenset(k.template for p in program.procedures for k in p.kernels)
        found.setdefault(kinds if few else (name.rpartition("_")[0], kinds), name)
    return {name: programs[name] for name in found.values()}


def golden_modules(folder: Path, isas: Sequence[str], *, few: bool) -> Iterator[tuple[str, tuple[Unit, ...]]]:
    """Modules with golden vectors: one that trains, one with products of bytes, one with a loop over time."""
    declared: dict[str, tuple[Any, dict[str, Any]]] = {
        "classifier": (test_golden.classifier(), {}),
        "bytes": (test_quantize.dense, {"quantize": "int8", "sample": test_quantize.weights(20, 40)}),
        "lstm": (deterministic.models()["lstm"], {}),
    }
    for name, (model, options) in list(declared.items())[: 1 if few else None]:
        sample = options.pop("sample", None)
        chosen = Options(isas=tuple(isas), **options)
        program = compile_model(model, f"{name}.nn", chosen, sample=sample, golden=True)
        write(program_files(program), folder / name)
        flags = unit_flags("nn", isas, deterministic=False)
        yield name, tuple(Unit(folder / name / f"{unit}.c", some, name) for unit, some in flags.items())


def work(folder: Path, isas: Sequence[str], *, few: bool = False) -> Work:
    """Everything as C in ``folder``; ``few``: as little as has every kind of kernel."""
    programs = {"ops": samples(few=few), "models": {} if few else deterministic.programs()}
    units: list[Unit] = []
    for name, some in programs.items():
        dims = sorted({d for p in some.values() for d in p.module.dims})
        (folder / name).mkdir(parents=True)
        (folder / name / f"{STEM}.h").write_text(HEADER)
        for isa in isas if some else ():
            source = folder / name / f"{STEM}_{isa}.c"
            source.write_text(kernels_file(joined(some, dims), STEM, MACHINES[isa]))
            flags = (*COMMON_FLAGS, "-fvisibility=default", contraction(name == "models"), *MACHINES[isa].flags)
            units.append(Unit(source, flags, f"{name}_{isa}"))
    every = list(dict.fromkeys((AVAILABLE[0], *isas)))  # a module runs on every CPU
    modules = dict(golden_modules(folder, every, few=few))
    units += [unit for some in modules.values() for unit in some]
    return Work(tuple(units), tuple(isas), programs["ops"], programs["models"], tuple(modules))


# --------------------------------------------------------------------------------------------------- one compiler


def judge(text: str, given: Work, folder: Path) -> Result:
    """Compile everything by one compiler and check the answers."""
    started, result = time.monotonic(), Result(text)
    command, platform = toolchain_of(text)
    folder.mkdir()
    try:
        result.version = version_of(command)
    except (OSError, subprocess.CalledProcessError) as error:
        result.failures.append(f"it does not run: {error}")
        return result
    built = build(command, given.units, folder, result)
    check_ops(given, folder, built, result)
    check_models(given, folder, built, result)
    for name in (name for name in given.modules if name in built):
        try:
            result.golden += len(replay(f"{name}.nn", folder / name / "nn.so", command, platform) or {})
        except MlaotError as error:
            result.failures.append(str(error))
    result.seconds = time.monotonic() - started
    return result


def build(command: Sequence[str], units: Sequence[Unit], folder: Path, result: Result) -> set[str]:
    """Compile and link; the libraries that were made."""

    def compiled(unit: Unit) -> str:
        target = str(folder / f"{unit.name}.o")
        return called([*command, *unit.flags, *WARN, "-c", str(unit.source), "-o", target], result)

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for unit, said in zip(units, pool.map(compiled, units), strict=True):
            result.files += 1
            result.warnings += [line.replace(f"{unit.source.parent}{os.sep}", "") for line in warnings_of(said)]
    for name in dict.fromkeys(unit.library for unit in units):
        objects = [folder / f"{unit.name}.o" for unit in units if unit.library == name]
        if all(path.exists() for path in objects):
            called([*command, "-shared", *map(str, objects), "-o", str(made(folder, name))], result)
    return {unit.library for unit in units if made(folder, unit.library).exists()}


def made(folder: Path, library: str) -> Path:
    """Where a library is put: those of ``Library`` where it looks for them."""
    what, _, isa = library.partition("_")
    path = folder / what / (f"{STEM}_{isa}.so" if isa else "nn.so")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def called(command: Sequence[str], result: Result) -> str:
    """What a compiler says; that it failed is noted."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if "error: " in line or "Error: " in line]
        result.failures.append(f"{shlex.join(command)}\n    {(errors or [done.stderr[-500:]])[0]}")
    return done.stderr


def warnings_of(said: str) -> list[str]:
    """The lines that warn."""
    return [line for line in said.splitlines() if "warning: " in line]


def check_ops(given: Work, folder: Path, built: Iterable[str], result: Result) -> None:
    """Hold ops against their references."""
    for isa in given.isas:
        if f"ops_{isa}" not in built:
            continue
        library = Library(given.ops, isa, folder / "ops")
        for stem in given.ops:
            name, kind, number = stem.rsplit("_", 2)
            dtype, i = DTYPES[kind], int(number)
            graph, inputs, expected = ops.expected_of(name, dtype, i)
            actual = library.call(stem, "forward", inputs)["y"]
            sample = ops.cases(name, dtype)[i]
            try:
                ops.check(name, dtype, sample, graph, inputs, actual, expected, f"{stem} on {isa}")
                result.answers += 1
            except AssertionError as error:
                result.failures.append(str(error))


def check_models(given: Work, folder: Path, built: Iterable[str], result: Result) -> None:
    """Note the bits of the models' answers."""
    for isa in given.isas:
        if f"models_{isa}" not in built:
            continue
        library = Library(given.models, isa, folder / "models")
        for name, program in given.models.items():
            digest = hashlib.sha256()
            widths, sizes = ((5, 300) if "n" in program.module.dims else (0,)), (2, 21)
            cases = product(deterministic.entries(program), widths, sizes, (False, True))
            for entry, width, size, few in cases:
                answers = deterministic.run(library, name, entry, {"n": width, "batch": size}, few=few)
                digest.update(repr(sorted(answers.items())).encode())
            result.digests[name, isa] = digest.hexdigest()


# -------------------------------------------------------------------------------------------------- all compilers


def alone(text: str, given: Work, folder: Path) -> Result:
    """The same in a process of its own, which what was compiled wrongly may kill."""
    started = time.monotonic()
    with ProcessPoolExecutor(1, get_context("fork")) as pool:
        try:
            return pool.submit(judge, text, given, folder).result()
        except BrokenProcessPool:
            failures = ["what it compiled crashed the process that called it"]
            return Result(text, failures=failures, seconds=time.monotonic() - started)


def compare(results: Sequence[Result]) -> None:
    """Note who differs from the first one in bits that all should have."""
    wanted: dict[str, str] = {}
    for result in results:
        for (name, isa), digest in result.digests.items():
            if wanted.setdefault(name, digest) != digest:
                result.failures.append(f"{name} on {isa}: other bits than {results[0].command} has")


def run(compilers: Sequence[str], isas: Sequence[str], folder: Path, *, few: bool = False) -> list[Result]:
    """What became of it with every compiler; ``few``: of little that has every kind of kernel."""
    given = work(folder / "c", isas, few=few)
    results = []
    for i, text in enumerate(compilers):
        print(f"{text} ..", file=sys.stderr, flush=True)
        results.append(alone(text, given, folder / str(i)))
    compare(results)
    return results


def report(results: Sequence[Result], most: int = 6) -> None:
    """Print the table, and what was wrong."""
    table(COLUMNS, [result.row() for result in results])
    for result in results:
        for what, lines in (("warnings", result.warnings), ("failures", result.failures)):
            if lines:
                print(f"\n{result.command}: {len(lines)} {what}", *dict.fromkeys(lines[:most]), sep="\n  ")


def main() -> None:
    head, _, details = __doc__.partition("\n")
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m tests.compilers", None, head, details, formatter_class=formatter)
    parser.add_argument("--compiler", action="append", metavar="COMMAND", help="default: all that are found")
    parser.add_argument("--isa", choices=AVAILABLE, action="append", help="default: all of this machine")
    parser.add_argument("--few", action="store_true", help="one op of each kind of kernel and one module, in seconds")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        compilers = options.compiler or found_compilers()
        results = run(compilers, options.isa or AVAILABLE, Path(folder), few=options.few)
    report(results)
    sys.exit(any(result.warnings or result.failures for result in results))


if __name__ == "__main__":
    main()
