"""A model's code runs in the interpreter that compiles it: what it does to that is undone."""

from __future__ import annotations

import builtins
import gc
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType


@contextmanager
def undisturbed() -> Iterator[None]:
    """Run a user's code; afterwards what the compiler stands on is as before.

    That is: the built-in functions, loaded modules, where modules are found, the recursion limit, the current folder,
    and where output goes. What was added to them stays.
    """
    names, modules, loaded = dict(builtins.__dict__), sys.modules, dict(sys.modules)
    path, paths, finders, found_by = sys.path, list(sys.path), sys.meta_path, list(sys.meta_path)
    limit, folder = sys.getrecursionlimit(), current_folder()
    streams = [(name, getattr(sys, name), duplicate(number), number) for name, number in (("stdout", 1), ("stderr", 2))]
    try:
        yield
    finally:
        builtins.__dict__.update(names)
        sys.modules = modules
        modules.update({name: module for name, module in loaded.items() if name not in modules})
        sys.path, sys.meta_path = path, finders
        path[:] = [*(place for place in paths if place not in path), *path]
        finders[:] = [*(finder for finder in found_by if finder not in finders), *finders]
        sys.setrecursionlimit(max(limit, sys.getrecursionlimit()))
        if folder and current_folder() != folder:
            with suppress(OSError):
                os.chdir(folder)
        for name, stream, copy, number in streams:
            restore(name, stream, copy, number)


def current_folder() -> str:
    """Nothing where it was deleted."""
    with suppress(OSError):
        return os.getcwd()
    return ""


def duplicate(number: int) -> int | None:
    """Another descriptor of an open file."""
    with suppress(OSError):
        return os.dup(number)
    return None


def restore(name: str, stream: object, copy: int | None, number: int) -> None:
    """Open a standard stream again that was closed, and give it its name back."""
    if copy is not None:
        try:
            os.fstat(number)
        except OSError:
            os.dup2(copy, number)
        os.close(copy)
    is_closed = getattr(stream, "closed", False)
    new = open(number, "w", encoding="utf-8", errors="backslashreplace", closefd=False) if is_closed else stream  # noqa: SIM115
    setattr(sys, name, new)


@contextmanager
def interrupts() -> Iterator[list[int]]:
    """A list that has an element once Ctrl-C was pressed: a model can raise ``KeyboardInterrupt``, too."""
    pressed: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        pressed.append(number)
        signal.default_int_handler(number, frame)

    handler = signal.getsignal(signal.SIGINT)
    is_usual = handler is signal.default_int_handler and threading.current_thread() is threading.main_thread()
    if is_usual:
        signal.signal(signal.SIGINT, note)
    try:
        yield pressed
    finally:
        if is_usual:
            signal.signal(signal.SIGINT, handler)


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
