"""What a long build is at: a line on stderr every few seconds, where there would be silence.

A build is ``reported``, its parts are ``stage``s. A build that is faster than the first line says nothing of this.
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

VARIABLE = "MLAOT_PATIENCE"
PATIENCE = 5.0  # seconds from one line to the next
AGAIN = 6  # times as long before a line is said again


@dataclass
class Progress:
    """The stage that a thread is in, and since when the build runs."""

    thread: int = field(default_factory=threading.get_ident)
    begun: float = field(default_factory=time.monotonic)
    stage: str = ""


_progress: ContextVar[Progress | None] = ContextVar("progress", default=None)


@contextmanager
def reported() -> Iterator[None]:
    """Say meanwhile, now and then, which stage this thread is in; inside of another such build that one does."""
    seconds = patience()
    if _progress.get() is not None or seconds == float("inf"):
        yield
        return
    progress, done = Progress(), threading.Event()
    teller = threading.Thread(target=tell, args=(progress, done, seconds, place_in_project()), daemon=True)
    token = _progress.set(progress)
    teller.start()
    try:
        yield
    finally:
        _progress.reset(token)
        done.set()
        teller.join()


@contextmanager
def stage(name: str) -> Iterator[Callable[[str], None]]:
    """A part of a build, such as ``lowering``. What is yielded gives the rest of it another name."""
    progress = _progress.get() or Progress()
    outer = progress.stage

    def rename(name: str) -> None:
        progress.stage = name

    rename(name)
    try:
        yield rename
    finally:
        rename(outer)


def tell(progress: Progress, done: threading.Event, seconds: float, place: Callable[[FrameType], str]) -> None:
    """Until it is ``done``, say every few ``seconds`` what is new, and what is not so often."""
    said, silent = "", 0
    while not done.wait(seconds):
        now, silent = progress.stage, silent + 1
        if now and (now != said or silent == AGAIN):
            said, silent = now, 0
            frame = sys._current_frames().get(progress.thread)
            where = place(frame) if frame is not None else ""
            line = f"{now}, {time.monotonic() - progress.begun:.0f} s since the start"
            print(f"mlaot: {line}{f', at {where}' if where else ''}", file=sys.stderr, flush=True)


def patience() -> float:
    """The seconds that the environment variable MLAOT_PATIENCE says."""
    text = os.environ.get(VARIABLE) or str(PATIENCE)
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise VariableError(f"the environment variable {VARIABLE} is {text!r}; expected seconds such as 5, or inf")
    return min(seconds, threading.TIMEOUT_MAX) if seconds != float("inf") else seconds
