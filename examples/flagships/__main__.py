"""Ship packages of the package index without onnxruntime, and compare each with what it was."""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from pathlib import Path

from examples import run as steps
from examples.flagships.compare import MAKERS, compare
from examples.flagships.report import report
from examples.flagships.table import FLAGSHIPS

EXAMPLES = """\
for example:
  python -m examples.flagships magika                       # some minutes: downloads, builds, runs, compares
  python -m examples.flagships silero-vad --keep /tmp/vad   # projects, wheels and environments stay there
  python -m examples.flagships all --rounds 5

It needs Python, a C compiler, and pip with its package index. Each package is the released one; what is changed in it
says examples/flagships/table.py, and the text of a pull request the file beside that. The samples' inputs are made up.
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m examples.flagships",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", choices=(*FLAGSHIPS, "all"), metavar="NAME", help=f"{', '.join(FLAGSHIPS)}, or all")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="a new folder for all that is made")
    parser.add_argument("--rounds", type=int, default=3, help="how often each side runs its sample (default: 3)")
    options = parser.parse_args()
    names = list(FLAGSHIPS) if options.name == "all" else [options.name]
    if options.keep:
        if options.keep.exists():
            parser.error(f"--keep: {options.keep} is there already")
        options.keep.mkdir(parents=True)
    folder = options.keep.absolute() if options.keep else Path(tempfile.mkdtemp(prefix="mlaot-flagships-"))
    begun = time.perf_counter()
    try:
        steps.WORK.mkdir(parents=True, exist_ok=True)
        with steps.step("making an environment with pip and what makes inputs"):
            tools = steps.make_environment(folder / "tools", with_pip=True)
            steps.run(tools, "-m", "pip", "install", "--quiet", *MAKERS)
        own_wheel = steps.build_own_wheel(tools)
        reports = []
        for name in names:
            print(f"\n{name}", flush=True)
            reports.append(report(compare(FLAGSHIPS[name], tools, own_wheel, folder / name, options.rounds)))
            print("\n" + "\n".join(reports[-1]), flush=True)
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
    if len(names) > 1:
        print("\n\n" + "\n\n\n".join("\n".join(lines) for lines in reports))
    print(f"\nall of it: {time.perf_counter() - begun:.0f} s, on {os.cpu_count()} CPUs, of which a sample has one")


if __name__ == "__main__":
    main()
