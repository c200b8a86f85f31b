"""The whole way of an example, from bare Python to a wheel that runs alone.

    python examples/run.py            # digits: build, train in compiled code, freeze the weights, serve
    python examples/run.py gpt        # a GPT learns a text and goes on with it; --data FILE: one of your own
    python examples/run.py NAME       # lenet, microgpt, mnist, moons or xor; more arguments go to its train.py

Needs only Python, pip's package index and a C compiler. Everything lands in dist and build/examples.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
NAMES = ("digits", "gpt", "lenet", "microgpt", "mnist", "moons", "xor")
DIST = ROOT / "dist"
WORK = ROOT / "build" / "examples"


@contextmanager
def step(title: str) -> Iterator[None]:
    """Print ``title`` now, and the seconds it took at its end."""
    print(f"{title} ...", flush=True)
    start = time.perf_counter()
    yield
    print(f"  {time.perf_counter() - start:.1f} s", flush=True)


def run(*command: str | Path, environ: dict[str, str] | None = None) -> None:
    """Run a command in the work folder; where it fails, its own last lines are the explanation."""
    words = [str(word) for word in command]
    status = subprocess.run(words, cwd=WORK, env=os.environ | (environ or {}), check=False).returncode
    if status:
        raise SystemExit(status)


def make_environment(folder: Path, *, with_pip: bool) -> Path:
    """A fresh virtual environment; the path of its interpreter."""
    venv.create(folder, clear=True, with_pip=with_pip, symlinks=os.name != "nt")
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def builder() -> Path:
    """An interpreter with pip: only pip's own isolated environments do the building."""
    with step("making an environment with pip"):
        return make_environment(WORK / "builder", with_pip=True)


def build_own_wheel(python: Path) -> Path:
    """mlaot's own wheel, into dist/."""
    for old in DIST.glob("mlaot-*.whl"):
        old.unlink()
    with step("building mlaot's own wheel"):
        run(python, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", DIST, ROOT)
        (wheel,) = DIST.glob("mlaot-*.whl")
        print(f"  {size(wheel)}")
    return wheel


def copy_project(project: Path, *more: Path) -> Path:
    """A copy of the project in the work folder, with ``more`` files in it."""
    copy = WORK / "projects" / project.relative_to(EXAMPLES)
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(project, copy, ignore=shutil.ignore_patterns("build", "__pycache__"))
    for file in more:
        shutil.copy(file, copy)
    return copy


def build_wheel(python: Path, project: Path, own_wheel: Path) -> Path:
    """Build a project's wheel as a user would, and return its path. The constraint pins mlaot to the wheel built
    before.
    """
    constraint = WORK / "constraint.txt"
    constraint.write_text(f"mlaot @ {own_wheel.as_uri()}\n")
    # Older pip reads only the first of the two.
    pins = {"PIP_CONSTRAINT": str(constraint), "PIP_BUILD_CONSTRAINT": str(constraint)}
    out = project / "wheel"
    places = ("--find-links", DIST, "--wheel-dir", out)
    run(python, "-m", "pip", "wheel", "--quiet", "--no-deps", *places, project, environ=pins)
    (wheel,) = out.glob("*.whl")
    print(f"  {size(wheel)}")
    return wheel


def build_example_wheel(python: Path, project: Path, own_wheel: Path) -> Path:
    """The example's wheel."""
    name = project.relative_to(WORK / "projects").as_posix()
    with step(f"building the wheel of examples/{name}: trace, generate C, compile"):
        return build_wheel(python, project, own_wheel)


def install_alone(builder_python: Path, wheel: Path) -> Path:
    """An environment that holds the wheel and nothing else, not even pip; the path of its interpreter."""
    with step(f"installing {wheel.name} into an empty environment"):
        python = make_environment(WORK / "empty" / wheel.name.partition("-")[0], with_pip=False)
        run(builder_python, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel)
    return python


def size(wheel: Path) -> str:
    """``digits-1.0-cp311-abi3-linux_x86_64.whl (31 KB)``."""
    return f"{wheel.name} ({wheel.stat().st_size / 1000:,.0f} KB)"


def run_digits(python: Path, own_wheel: Path) -> None:
    """A wheel that trains, then one that serves the weights so found."""
    folder, weights = EXAMPLES / "digits", WORK / "weights.safetensors"
    wheel = build_example_wheel(python, copy_project(folder / "train"), own_wheel)
    alone = install_alone(python, wheel)
    with step("training"):
        run(alone, folder / "train.py", "--out", weights)
    wheel = build_example_wheel(python, copy_project(folder / "serve", weights), own_wheel)
    alone = install_alone(python, wheel)
    with step("serving"):
        run(alone, folder / "serve.py")


def gpt_options(arguments: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """What ``run_gpt`` is told, and what train.py is."""
    parser = argparse.ArgumentParser(
        prog="run.py gpt",
        description="A GPT learns a text letter by letter, and goes on with it.",
        epilog="more arguments go to examples/gpt/train.py, such as --threads 2 or --resume",
    )
    parser.add_argument("--data", type=Path, default=EXAMPLES / "microgpt" / "names.txt", help="default: names")
    parser.add_argument("--recipe", default="nanogpt", choices=("nanogpt", "femtogpt", "tiny"))
    parser.add_argument("--steps", help="how many steps, if not those of the recipe")
    parser.add_argument("--dropout", help="what share of the values a training step drops, likewise")
    parser.add_argument("--prompt", default="", help="what it goes on with")
    options, more = parser.parse_known_args(arguments)
    if not options.data.is_file():
        parser.error(f"--data: there is no file {options.data}")
    return options, more


def run_gpt(python: Path, own_wheel: Path, options: argparse.Namespace, more: list[str]) -> None:
    """A wheel that learns a text, then one that goes on with it."""
    data, folder = options.data.absolute(), EXAMPLES / "gpt"
    settings, weights = WORK / "settings.json", WORK / "gpt.safetensors"
    asked = [f"--{key}={vars(options)[key]}" for key in ("recipe", "steps", "dropout") if vars(options)[key]]
    run(python, folder / "settings.py", "--data", data, *asked, "--out", settings)
    shared = (folder / "network.py", settings)
    alone = install_alone(python, build_example_wheel(python, copy_project(folder / "train", *shared), own_wheel))
    with step("training"):
        run(alone, folder / "train.py", "train", "--data", data, "--settings", settings, "--out", weights, *more)
    project = copy_project(folder / "serve", *shared)
    shutil.copy(weights, project / "weights.safetensors")
    wheel = build_example_wheel(python, project, own_wheel)
    alone = install_alone(python, wheel)
    with step(f"speaking: python -m gpt --prompt {options.prompt!r}"):
        run(alone, "-m", "gpt", "--prompt", options.prompt)
    print(f"it speaks from {wheel.relative_to(ROOT)}")


def run_project(python: Path, own_wheel: Path, project: Path, arguments: list[str]) -> None:
    """A wheel that trains."""
    alone = install_alone(python, build_example_wheel(python, copy_project(project), own_wheel))
    # -P: `import xor` finds the wheel, whatever lies beside the script.
    with step("training"):
        run(alone, "-P", project / "train.py", *arguments)


def main() -> None:
    """Build, install and run one example."""
    parser = argparse.ArgumentParser(
        description="Build an example's wheel, install it alone, run it.",
        epilog="for example: python examples/run.py gpt --data FILE --prompt ROMEO:, or mnist --data FOLDER",
    )
    parser.add_argument("example", nargs="?", default="digits", choices=NAMES, help="default: digits")
    options, arguments = parser.parse_known_args()
    if options.example == "digits" and arguments:
        parser.error(f"digits takes no more arguments, got {' '.join(arguments)}")
    of_gpt = gpt_options(arguments) if options.example == "gpt" else None  # wrong ones end it now
    project = EXAMPLES / options.example
    start = time.perf_counter()
    WORK.mkdir(parents=True, exist_ok=True)
    python = builder()
    own_wheel = build_own_wheel(python)
    if options.example == "digits":
        run_digits(python, own_wheel)
    elif of_gpt:
        run_gpt(python, own_wheel, *of_gpt)
    else:
        # The script runs in the work folder.
        words = [str(Path(word).absolute()) if Path(word).exists() else word for word in arguments]
        run_project(python, own_wheel, project, words)
    print(f"all of it: {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
