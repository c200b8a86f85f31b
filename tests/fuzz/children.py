"""Do what may go wrong in any way in a process of its own, with a limit of time and memory."""

from __future__ import annotations

import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any

from mlaot.errors import MlaotError

SECONDS = 2.0  # of the CPU, which others may use as well
MEMORY = 4 << 30


def outcome(work: Callable[[], str]) -> str:
    """What work on a file ends in: its own text, ``refused: ..``, or what is wrong."""
    outside: list[str] = []

    def listen(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str) and ("secret" in arguments[0] or "passwd" in arguments[0]):
            outside.append(arguments[0])

    sys.addaudithook(listen)
    try:
        said = work()
    except MlaotError as error:
        said = f"refused: {error}"
    except MemoryError:
        said = "out of memory"
    except BaseException:
        said = f"raised: {traceback.format_exc()}"
    return f"read {outside[0]}" if outside else said


def in_child(work: Callable[[], str]) -> tuple[str, float]:
    """The outcome of work, and its seconds."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        signal.setitimer(signal.ITIMER_PROF, 10 * SECONDS)  # its default action ends the process
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        os.write(write, outcome(work).encode(errors="replace")[-60000:])
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        said = pipe.read().decode(errors="replace")
    _, status, usage = os.wait4(child, 0)
    taken = usage.ru_utime + usage.ru_stime
    if status:
        said = f"died of signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit status {status}"
    elif taken > SECONDS and said.startswith("refused"):  # a whole one takes its time
        said = f"took {taken:.1f} s: {said}"
    return said, taken
