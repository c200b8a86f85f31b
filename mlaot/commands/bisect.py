"""``mlaot bisect``: find the step after which a model's answer is wrong.

``mlaot/bisect.py`` searches the passes, ``mlaot/bisect_nests.py`` lowering and the schedules.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from mlaot.commands.project import TARGET, is_bare, project_of
from mlaot.settings import Settings

HELP = "find the pass or schedule after which an answer is wrong"
DESCRIPTION = """\
Evaluate the graphs of each model in float64 after each pass that changed them, and
say after which one they first give another answer. If none does, run its loop nests
in NumPy, as they were lowered and as each instruction set has them, and name the
kernel whose schedule is wrong. If none is, and this machine has a C compiler, build
the wheel of a project and hold its kernels against the golden vectors: what is wrong
then, a template or the compiler has made wrong. The exit status is 1 if something is.
"""
EXAMPLES = """\
  mlaot bisect                       each model of the project in this folder, then its kernels
  mlaot bisect model:digits          the passes and loop nests of one function
  mlaot bisect digits other.onnx     several, one after the other
"""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("targets", metavar="MODEL", nargs="*", default=["."], help=TARGET)


def run(options: argparse.Namespace) -> int:
    """Check each target."""
    return max([check(target) for target in options.targets])


def check(target: str) -> int:
    """Check the passes and loop nests of one target, then its compiled kernels; return 1 if something is wrong."""
    from mlaot.build.toolchain import compiler_name

    with project_of(target) as (project, settings):
        if steps_are_wrong(settings):
            return 1
    if is_bare(target) or compiler_name() is None:
        return 0
    return int(kernels_are_wrong(project))


def steps_are_wrong(settings: Settings) -> bool:
    """Print the outcome for each model of a project; tell whether one is wrong."""
    from mlaot import passes
    from mlaot.bisect import Fault, bisect
    from mlaot.bisect_nests import bisect_nests
    from mlaot.loading import open_model, trace
    from mlaot.lower.lower import lower

    is_wrong = False
    for model in settings.models:
        with open_model(settings, model) as (declared, options, sample):
            outcome: Fault | int | None = bisect(model.module, lambda: trace(declared), options, sample)
            is_right = not isinstance(outcome, Fault)
            print(f"{model.module}: {f'right after all passes ({outcome} graphs compared)' if is_right else outcome}")
            if is_right:
                graphs = passes.run(model.module, trace(declared), options, sample=sample)
                outcome = bisect_nests(graphs, lower(graphs), settings.isas)
                right = f"right as loop nests for {', '.join(settings.isas)} ({outcome} functions compared)"
                problem = outcome if outcome is not None else "too large to run its loop nests in NumPy"
                print(f"{model.module}: {right if isinstance(outcome, int) else problem}", flush=True)
        is_wrong |= isinstance(outcome, Fault)
    return is_wrong


def kernels_are_wrong(project: Path) -> bool:
    """Build the wheel and print whether it meets its golden vectors; tell whether it does not."""
    from mlaot.commands.hooks import call_hook
    from mlaot.commands.modules import modules_of
    from mlaot.probe import ask

    is_wrong = False
    with tempfile.TemporaryDirectory(prefix="mlaot-") as folder:
        wheel = call_hook(project, "build_wheel", Path(folder), lambda line: print(line, flush=True), cache=True)
        with modules_of(str(wheel)) as modules:
            for module in modules:
                missed = ask(module, "selftest").get("missed")
                right = "right in its kernels, too"
                print(f"{module.name}: {f'wrong as compiled: {missed}' if missed else right}", flush=True)
                is_wrong |= bool(missed)
    return is_wrong
