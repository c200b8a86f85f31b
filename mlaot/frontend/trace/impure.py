"""Warnings of impure inputs: values that a model reads from outside while it is traced, which become constants.

In builds, random numbers, clocks, files and environment variables are noticed if the user's own code reads them. A
profile function sees the calls of C functions, and an audit hook the opened files. Neither sees the methods of NumPy's
generators, so their states are compared after each line of the user's code.
"""

from __future__ import annotations

import datetime
import gc
import os
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np

from mlaot.errors import is_building, line_of, warn
from mlaot.frontend.trace.context import HERE, is_users

ASKED = "while the model is traced, and its answer becomes a constant; ask outside of the model, and make it an input"
DRAWN = (
    "random numbers are drawn while the model is traced, and become constants; draw them by mlaot.random, or make them"
    " an input"
)
READ = "is read while the model is traced, and what it holds becomes a constant; if that is meant, read it outside"
CLOCKS = {"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time", "ctime"}
DRAWS = {"urandom", "getrandom", "random", "getrandbits"}
TODAY = {"now", "utcnow", "today"}
ASKING = CLOCKS | TODAY | DRAWS
ENVIRONMENT = type(os.environ).__getitem__.__code__
# Modules of Python through which a user's call may reach a clock or the like. Calls of other modules, such as logging's
# of a clock, are not the user's.
QUESTIONERS = {"random", "secrets", "uuid", "os", "collections.abc"}
# Modules that read files for themselves.
IMPORTERS = ("importlib", "zipimport", "linecache", "tokenize", "inspect", "traceback", "warnings", "logging")
_watching: ContextVar[bool] = ContextVar("watching", default=False)


@contextmanager
def watched() -> Iterator[None]:
    """In the context, warn of impure inputs of the user's code, unless a profiler or debugger is active."""
    if not is_building() or _watching.get() or sys.getprofile() or sys.gettrace():
        yield
        return
    generators = Generators()
    listen()
    token = _watching.set(True)
    sys.setprofile(see_call)
    sys.settrace(generators.see_function)
    try:
        yield
    finally:
        sys.settrace(None)
        sys.setprofile(None)
        _watching.reset(token)


def see_call(frame: FrameType, event: str, function: Any) -> None:
    """Notice clocks, and random numbers of Python and of the system. This is a profile function."""
    if event != "c_call" or function.__name__ not in ASKING:
        return
    name, owner = function.__name__, getattr(function, "__self__", None)
    if name in CLOCKS and getattr(owner, "__name__", "") == "time":
        note(frame, f"time.{name} is called {ASKED}")
    elif name in TODAY and isinstance(owner, type) and issubclass(owner, datetime.date):
        note(frame, f"{owner.__name__}.{name} is called {ASKED}")
    elif name in DRAWS and (isinstance(owner, random.Random) or getattr(owner, "__name__", "") in ("posix", "nt")):
        note(frame, DRAWN, QUESTIONERS)


def note(frame: FrameType | None, message: str, through: set[str] | None = None) -> None:
    """Warn at the user's line that read an impure input, directly or only ``through`` these modules of Python."""
    while frame is not None and through and frame.f_globals.get("__name__", "") in through:
        frame = frame.f_back
    if frame is not None and is_users_code(frame):
        warn(message, line_of(frame.f_code.co_filename, frame.f_lineno))


def is_users_code(frame: FrameType) -> bool:
    """Tell whether the code of a frame is the user's."""
    code = frame.f_code
    if (answer := _users.get(id(code))) is None:
        answer = _users[id(code)] = code, is_users(frame.f_globals.get("__name__", ""), code.co_filename)
    return answer[1]


_users: dict[int, tuple[CodeType, bool]] = {}  # by identity: the hash of a code object walks all of it


def as_values(state: object) -> object:
    """Convert a generator's state to values that can be compared, without modules that a model may have removed."""
    if isinstance(state, dict):
        return [(key, as_values(part)) for key, part in state.items()]
    return state.tobytes() if isinstance(state, np.ndarray) else state


class Generators:
    """NumPy's generators that existed before the trace, and their states when last compared."""

    def __init__(self) -> None:
        kinds = (np.random.Generator, np.random.RandomState)
        shared = getattr(np.random.rand, "__self__")  # noqa: B009  of NumPy's own functions
        generators = [shared, *(thing for thing in gc.get_objects() if type(thing) in kinds)]
        self.bits = list({id(g._bit_generator): g._bit_generator for g in generators}.values())
        self.seen = self.states()

    def states(self) -> list[object]:
        return [as_values(bits.state) for bits in self.bits]

    def see_function(self, frame: FrameType, event: str, argument: object) -> Callable[..., Any] | None:
        """Follow only the user's functions line by line, and notice environment variables. This is a trace function."""
        if frame.f_code is ENVIRONMENT:
            note(frame.f_back, f"the environment variable {frame.f_locals['key']} is read {ASKED}", QUESTIONERS)
        if not is_users_code(frame):
            return None
        line = frame.f_lineno

        def see_line(frame: FrameType, event: str, argument: object) -> Callable[..., Any]:
            nonlocal line
            now = self.states()
            if now != self.seen:
                self.seen = now
                warn(DRAWN, line_of(frame.f_code.co_filename, line))
            line = frame.f_lineno
            return see_line

        return see_line


def listen() -> None:
    """Install the audit hook for opened files, once, as an audit hook cannot be removed."""
    if not _listening:
        _listening.append(True)
        sys.addaudithook(see_event)


_listening: list[bool] = []


def see_event(event: str, arguments: tuple[Any, ...]) -> None:
    """Notice the files that are read. This is an audit hook."""
    if event not in ("open", "mlaot.load") or not _watching.get() or not isinstance(arguments[0], str | os.PathLike):
        return
    if event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR):
        return
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_users_code(frame):
        module = frame.f_globals.get("__name__", "")
        own = event == "open" and Path(frame.f_code.co_filename).is_relative_to(HERE)
        if own or frame.f_code.co_filename.startswith("<frozen") or module.startswith(IMPORTERS):
            return
        frame = frame.f_back
    note(frame, f"the file {Path(arguments[0]).name} {READ}")
