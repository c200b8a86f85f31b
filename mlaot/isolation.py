"""Protect the compiler from a model's code, which runs in the same interpreter."""

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
def isolate() -> Iterator[None]:
    """Run a user's code, then restore what the compiler depends on.

    These are the built-in functions, loaded modules, the search path of modules, the recursion limit, the current
    folder, and the standard streams. Additions of the user's code are kept.
    """
    builtins_before, modules, modules_before = dict(builtins.__dict__), sys.modules, dict(sys.modules)
    path, paths_before, finders, finder_list = sys.path, list(sys.path), sys.meta_path, list(sys.meta_path)
    limit, folder = sys.getrecursionlimit(), current_folder()
    streams = [(name, getattr(sys, name), duplicate(number), number) for name, number in (("stdout", 1), ("stderr", 2))]
    try:
        yield
    finally:
        builtins.__dict__.update(builtins_before)
        sys.modules = modules
        modules.update({name: module for name, module in modules_before.items() if name not in modules})
        sys.path, sys.meta_path = path, finders
        path[:] = [*(entry for entry in paths_before if entry not in path), *path]
        finders[:] = [*(finder for finder in finder_list if finder not in finders), *finders]
        sys.setrecursionlimit(max(limit, sys.getrecursionlimit()))
        if folder and current_folder() != folder:
            with suppress(OSError):
                os.chdir(folder)
        for name, stream, copy, number in streams:
            restore(name, stream, copy, number)


def current_folder() -> str:
    """Return the current folder, or None if it was deleted."""
    with suppress(OSError):
        return os.getcwd()
    return ""


def duplicate(number: int) -> int | None:
    """Duplicate the descriptor of an open file."""
    with suppress(OSError):
        return os.dup(number)
    return None


def restore(name: str, stream: object, copy: int | None, number: int) -> None:
    """Reopen a standard stream that was closed, and bind it to its name again."""
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
def watch_interrupts() -> Iterator[list[int]]:
    """Yield a list that gets an element at Ctrl-C, which tells it from a ``KeyboardInterrupt`` of the model's code."""
    pressed: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        pressed.append(number)
        signal.default_int_handler(number, frame)

    handler = signal.getsignal(signal.SIGINT)
    is_default = handler is signal.default_int_handler and threading.current_thread() is threading.main_thread()
    if is_default:
        signal.signal(signal.SIGINT, note)
    try:
        yield pressed
    finally:
        if is_default:
            signal.signal(signal.SIGINT, handler)


@contextmanager
def pause_collection() -> Iterator[None]:
    """In the context, keep the garbage collector from traversing a hundred thousand live nodes repeatedly."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
