"""Report the progress of a build or a command: its stage, the number of stages, and the progress of the stage.

A build runs in ``report_progress``, and its parts in ``stage``s. A short build reports nothing. A longer build prints a
line on stderr for each stage, and one every few seconds within a stage, or on a terminal with rich, a bar. A process
whose output another one passes on writes its state to a file, which the other process reports (``follow``).
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from mlaot.errors import VariableError, place_in_project

SETTINGS, IMPORTING, TRACING, PASSES, LOWERING = "reading settings", "importing", "tracing", "passes", "lowering"
GOLDEN, PRINTING, COMPILING, CHECKING, PACKING = "golden vectors", "writing C", "compiling", "checking", "packing"
NESTS, TIMING, COMPARING = "loop nests", "timing", "comparing"
GENERATE = (SETTINGS, IMPORTING, TRACING, PASSES, LOWERING, GOLDEN, PRINTING)
BUILD = (*GENERATE, COMPILING, CHECKING, PACKING)

PATIENCE_VARIABLE = "MLAOT_PATIENCE"
PATIENCE = 5.0  # seconds from one line to the next within a stage
SILENT = 0.4  # times as long before the first one
REPEAT_AFTER = 6  # times as long before a line is repeated
STATE_VARIABLE = "_MLAOT_STATE"  # names the file for the state of a process that does not report itself
TICK = 0.1  # seconds; shorter stages get no line
BEGUN = time.monotonic()


class State(NamedTuple):
    """The state: the ``number``-th of ``total`` items of a stage, and the line of the user's code."""

    model: str = ""
    name: str = ""
    number: int = 0
    total: int = 0
    detail: str = ""
    place: str = ""

    def text(self, plan: Sequence[str]) -> str:
        """Return ``digits.nn: compiling 3 of 5 (nn_v3.c), stage 8 of 10``."""
        counts = f" {self.number} of {self.total}" if self.number and self.total else ""
        detail = f" ({self.detail})" if self.detail else ""
        order = f", stage {plan.index(self.name) + 1} of {len(plan)}" if self.name in plan else ""
        return f"{self.model}{': ' if self.model else ''}{self.name}{counts}{detail}{order}"


Show = Callable[[State], None]


@dataclass
class Progress:
    """The state of a thread, the file with the state of a process whose output it passes on, and how to show them."""

    show: Show = lambda state: None
    thread: int = field(default_factory=threading.get_ident)
    state: State = field(default_factory=State)
    place: Callable[[FrameType], str] = lambda frame: ""
    file: Path | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def report(self) -> None:
        """Show the state, in one thread at a time."""
        with self.lock:
            self.show(self.now())

    def now(self) -> State:
        """Return the state of the other process if it has one, else that of the thread."""
        with suppress(OSError, ValueError, TypeError):
            other = State(*json.loads(self.file.read_bytes())) if self.file else State()
            if other.name:
                return other
        frame = sys._current_frames().get(self.thread)
        return self.state._replace(place=self.place(frame) if frame is not None else "")


_progress: ContextVar[Progress | None] = ContextVar("progress", default=None)


@contextmanager
def report_progress(plan: Sequence[str] = BUILD, *, verbose: bool = False) -> Iterator[None]:
    """Report the progress of this thread, with each stage's number in ``plan``, unless an outer call reports it.

    If ``verbose``, lines are printed from the start, even on a terminal.
    """
    seconds = read_patience()
    if _progress.get() is not None or seconds == float("inf"):
        yield
        return
    silent = 0.0 if verbose else SILENT * seconds
    if file := os.environ.get(STATE_VARIABLE):
        show = write_states(Path(file))
    else:
        show = draw_bar(plan, silent) if has_bar() and not verbose else print_lines(plan, seconds, silent)
    progress, done = Progress(show), threading.Event()
    arguments = (progress, done, min(TICK, seconds))
    reporter = threading.Thread(target=show_states, args=arguments, daemon=True)
    token = _progress.set(progress)
    reporter.start()
    try:
        yield
    finally:
        _progress.reset(token)
        done.set()
        reporter.join()


@contextmanager
def stage(name: str, total: int = 0, detail: str = "") -> Iterator[Callable[[str], None]]:
    """Name a part of a build, such as ``LOWERING``; yield a function that begins the next of its ``total`` items."""
    progress = _progress.get() or Progress()
    outer, numbers = progress.state, count(1)
    progress.place = place_in_project()

    def advance(detail: str) -> None:
        progress.state = State(outer.model, name, next(numbers), total, detail)

    progress.state = State(outer.model, name, 0, total, detail)
    try:
        yield advance
    finally:
        progress.state = outer
        if not outer.name:
            progress.report()  # before anything else is printed


@contextmanager
def stages_of(model: str, models: Sequence[str]) -> Iterator[None]:
    """In the context, attribute stages to one of several models."""
    progress = _progress.get() or Progress()
    outer = progress.state
    several = len(models) > 1 and model in models
    progress.state = State(f"{model} ({models.index(model) + 1} of {len(models)})" if several else model)
    try:
        yield
    finally:
        progress.state = outer


@contextmanager
def follow(file: Path) -> Iterator[dict[str, str]]:
    """Yield an environment for a process that writes its state to ``file``, to be reported by this one."""
    progress = _progress.get()
    if progress is None:
        yield {}
        return
    progress.file = file
    try:
        yield {STATE_VARIABLE: str(file)}
    finally:
        progress.file = None


def show_states(progress: Progress, done: threading.Event, seconds: float) -> None:
    """Show the state every few ``seconds``, and clear it at the end."""
    while not done.wait(seconds):
        progress.report()
    progress.show(State())


def write_states(file: Path) -> Show:
    """Return a function that writes each new state to a file."""
    last = State()

    def show(state: State) -> None:
        nonlocal last
        if state != last:
            last = state
            with suppress(OSError):  # whoever reads it may have ended
                file.write_text(json.dumps(state), encoding="utf-8")

    return show


def print_lines(plan: Sequence[str], seconds: float, silent: float) -> Show:
    """Return a function that prints a line for each stage, and every few ``seconds`` within a stage."""
    said: dict[tuple[str, ...], tuple[float, State]] = {}

    def show(state: State) -> None:
        elapsed = time.monotonic() - BEGUN
        if not state.name or elapsed < silent:
            return
        key, known = (state.model, state.name), state._replace(place="")
        if key in said:
            when, last = said[key]
            if elapsed - when < seconds * (REPEAT_AFTER if known == last else 1):
                return
        said[key] = elapsed, known
        where = f", at {state.place}" if state.place else ""
        print(f"mlaot: {state.text(plan)}, {elapsed:.0f} s since the start{where}", file=sys.stderr, flush=True)

    return show


def has_bar() -> bool:
    """Tell whether stderr is a terminal and rich is installed."""
    return sys.stderr.isatty() and importlib.util.find_spec("rich") is not None


def draw_bar(plan: Sequence[str], silent: float) -> Show:
    """Return a function that draws a bar, and removes it if there is nothing to show."""
    bar: Any = None

    def show(state: State) -> None:
        nonlocal bar
        elapsed = time.monotonic() - BEGUN
        if bar is not None and not state.name:
            bar.stop()
            bar = None
        if not state.name or elapsed < silent:
            return
        is_new = bar is None
        bar = bar or make_bar()
        where = f", at {state.place}" if state.place else ""
        text = f"{state.text(plan)}, {elapsed:.0f} s{where}"
        bar.update(bar.task_ids[0], description=text, total=state.total or None, completed=max(state.number - 1, 0))
        if is_new:
            bar.start()

    return show


def make_bar() -> Any:
    """Return a bar of rich for stderr, with one task. Lines that are printed meanwhile go above it."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn
    from rich.table import Column

    text = TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis"))
    bar = Progress(
        SpinnerColumn(),
        BarColumn(bar_width=20),
        text,
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=sys.stdout.isatty(),  # what goes to a file must not come to the terminal
    )
    bar.add_task("", total=None)
    return bar


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
