"""Find the projects that commands name by a folder with a pyproject.toml, a ``module:attribute``, or an ONNX file."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mlaot.errors import MlaotError
from mlaot.isolation import isolate, watch_interrupts
from mlaot.settings import FILE, Settings
from mlaot.settings.reading import load_settings, settings_of

FOLDER = f"folder with a {FILE} (default: this one)"
TARGET = f"{FOLDER}, module:attribute, or an ONNX file"
Project = tuple[Path, Settings]


def add_build(parser: argparse.ArgumentParser) -> None:
    """Add the options of commands that make wheels."""
    parser.add_argument("--out", default="dist", help="folder for what is made (default: dist)")
    parser.add_argument("--no-cache", dest="cache", action="store_false", help="take no object of an earlier build")


@contextmanager
def output_folder(out: Path) -> Iterator[Path]:
    """Make the folder for results; if nothing is written, delete the folders that were made for it."""
    new = [folder for folder in (out, *out.parents) if not folder.exists()]
    out.mkdir(parents=True, exist_ok=True)
    try:
        yield out
    except BaseException:
        with suppress(OSError):  # not empty: an earlier wheel is there
            for folder in new:
                folder.rmdir()
        raise


def find_folder(target: str) -> Project:
    """Return a project folder and its settings."""
    return Path(target), load_settings(Path(target))


def find_target(target: str) -> Project:
    """Find a project folder, or else module:attribute or an ONNX file in the current folder."""
    if is_bare(target):
        return Path(), settings_of(target)
    if Path(target).is_file():
        raise MlaotError(f"{target} is a file; expected a folder with a {FILE}, module:attribute, or an ONNX file")
    return find_folder(target)


def is_bare(target: str) -> bool:
    """Tell whether the target is module:attribute or an ONNX file, and not a folder."""
    return not Path(target).is_dir() and (":" in target or target.endswith(".onnx"))


def is_built(target: str) -> bool:
    """Tell whether the target is a wheel, an extension module's file or a module's name, and no project."""
    return not (":" in target or target.endswith(".onnx") or Path(target).is_dir())


@contextmanager
def project_of(target: str, find: Callable[[str], Project] = find_target) -> Iterator[Project]:
    """Prepare imports of a project's models; turn errors of any kind into one line and exit status 1."""
    from mlaot.build import child

    project, settings = Path(), None
    with watch_interrupts() as interrupted:
        try:
            project, settings = find(target)
            with isolate(), child.tracing(settings, project):
                yield project, settings
        except BrokenPipeError:
            raise
        except BaseException as error:
            if interrupted:
                raise
            child.complain(error, project, settings)
            raise SystemExit(1) from None
