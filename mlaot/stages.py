"""Report the progress of a long build: a line on stderr every few seconds that names the current stage.

A build runs in ``report_progress``, its parts in ``stage``s. A build that ends before the first line prints none.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import FrameType

from mlaot.errors import VariableError, place_in_project

PATIENCE_VARIABLE = "MLAOT_PATIENCE"
PATIENCE = 5.0  # seconds from one line to the next
REPEAT_AFTER = 6  # times as long before a line is repeated


@dataclass
class Progress:
    """The stage that a thread is in, and when the build began."""

    thread: int = field(default_factory=threading.get_ident)
    begun: float = field(default_factory=time.monotonic)
    stage: str = ""


_progress: ContextVar[Progress | None] = ContextVar("progress", default=None)


@contextmanager
def report_progress() -> Iterator[None]:
    """Print now and then which stage this thread is in, unless an outer call does so already."""
    seconds = read_patience()
    if _progress.get() is not None or seconds == float("inf"):
        yield
        return
    progress, done = Progress(), threading.Event()
    printer = threading.Thread(target=print_progress, args=(progress, done, seconds, place_in_project()), daemon=True)
    token = _progress.set(progress)
    printer.start()
    try:
        yield
    finally:
        _progress.reset(token)
        done.set()
        printer.join()


@contextmanager
def stage(name: str) -> Iterator[Callable[[str], None]]:
    """Name a part of a build, such as ``lowering``; yield a function that renames the rest of it."""
    progress = _progress.get() or Progress()
    outer = progress.stage

    def rename(name: str) -> None:
        progress.stage = name

    rename(name)
    try:
        yield rename
    finally:
        rename(outer)


def print_progress(
    progress: Progress, done: threading.Event, seconds: float, place: Callable[[FrameType], str]
) -> None:
    """Print new stages every few ``seconds``, and an old one less often, until ``done`` is set."""
    last, silent = "", 0
    while not done.wait(seconds):
        now, silent = progress.stage, silent + 1
        if now and (now != last or silent == REPEAT_AFTER):
            last, silent = now, 0
            frame = sys._current_frames().get(progress.thread)
            where = place(frame) if frame is not None else ""
            line = f"{now}, {time.monotonic() - progress.begun:.0f} s since the start"
            print(f"mlaot: {line}{f', at {where}' if where else ''}", file=sys.stderr, flush=True)


def read_patience() -> float:
    """Return the seconds of the environment variable MLAOT_PATIENCE."""
    text = os.environ.get(PATIENCE_VARIABLE) or str(PATIENCE)
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise VariableError(
            f"the environment variable {PATIENCE_VARIABLE} is {text!r}; expected seconds such as 5, or inf"
        )
    return min(seconds, threading.TIMEOUT_MAX) if seconds != float("inf") else seconds
