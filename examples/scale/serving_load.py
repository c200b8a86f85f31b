"""Ask a server by many clients while its weights change, and while it ends: no answer is lost, wrong or mixed."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from examples.scale import wheels
from examples.scale.serving import PIXELS, Serving

WITHIN = 30  # seconds
Answers = dict[str, list[list[float]]]  # by the name of the weights, an answer for each row


@dataclass
class Seen:
    """What the clients saw: ``outcomes`` counts right, wrong and lost requests, and those that were refused."""

    outcomes: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    names: Counter[str] = field(default_factory=Counter)


def digits() -> list[bytes]:
    """Return the pixels of the digits to test with."""
    sys.path.append(str(wheels.EXAMPLES / "digits"))
    _, images = importlib.import_module("data").load()
    return [pixels for pixels, _ in images]


def write_weights(folder: Path) -> tuple[Path, Path]:
    """Write two files of weights: untrained ones, and trained ones."""
    model = importlib.import_module("scale_net.digits").Model()
    images, _ = importlib.import_module("data").load()
    x = memoryview(b"".join(pixels for pixels, _ in images)).cast("B", (len(images), PIXELS))
    model.save(folder / "untrained.safetensors")
    model.fit(x, [digit for _, digit in images], epochs=20)
    model.save(folder / "trained.safetensors")
    return folder / "untrained.safetensors", folder / "trained.safetensors"


def direct(module: Any, files: tuple[Path, ...], rows: list[bytes]) -> Answers:
    """Return what a direct call answers to each row, alone in its batch."""
    answers: Answers = {}
    for file in files:
        serving = Serving(module, file)
        answers[serving.loaded.name] = [serving.answer([row])[0][0] for row in rows]
    return answers


def ask(port: int, rows: list[bytes], answers: Answers, first: int, more: Callable[[], bool], seen: Seen) -> None:
    """Be one client: ask one row after the other, over one connection, and compare each answer."""
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    bodies = [json.dumps({"x": list(row)}).encode() for row in rows]
    k = first
    while more():
        k = (k + 1) % len(rows)
        begun, response = time.perf_counter(), None
        try:
            connection.request("POST", "/predict", bodies[k], {"Content-Type": "application/json"})
            response = connection.getresponse()
            answer = json.loads(response.read())
        except (HTTPException, OSError):
            # Without a byte of an answer, the server had closed its port or this connection: it took no request.
            seen.outcomes["refused" if response is None else "lost"] += 1
            return
        seen.seconds.append(time.perf_counter() - begun)
        name = answer.get("weights")
        right = response.status == 200 and answers.get(name, {k: None})[k] == answer["probabilities"]
        seen.outcomes["right" if right else "wrong"] += 1
        seen.names[name] += 1
    connection.close()


def clients(count: int, port: int, rows: list[bytes], answers: Answers, more: Callable[[], bool]) -> tuple[Any, Any]:
    """Start clients; return what they see, and a function that waits for all."""
    seen = [Seen() for _ in range(count)]
    threads = [threading.Thread(target=ask, args=(port, rows, answers, 7 * i, more, seen[i])) for i in range(count)]
    for thread in threads:
        thread.start()

    def wait() -> Seen:
        for thread in threads:
            thread.join()
        return Seen(
            sum((one.outcomes for one in seen), Counter()),
            [second for one in seen for second in one.seconds],
            sum((one.names for one in seen), Counter()),
        )

    return seen, wait


def get(port: int, path: str) -> str:
    """Return the body of a page."""
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path)
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    if response.status != 200:
        raise SystemExit(f"{path}: status {response.status}: {text}")
    return text


def start_server(weights: Path) -> tuple[subprocess.Popen[str], int]:
    """Start a server on a free port, and wait until it is ready."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "uvicorn", "--factory", "examples.scale.serve:app"]
    server = subprocess.Popen(
        [*command, "--port", str(port), "--no-access-log", "--backlog", "1024"],
        env=wheels.environ(wheels.NET) | {"SERVE_WEIGHTS": str(weights)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )

    def is_there() -> bool:
        if server.poll() is not None:
            raise SystemExit(f"the server ended:\n{server.communicate()[0]}")
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    wait_for(is_there, "a server")
    return server, port


def change(server: subprocess.Popen[str], port: int, weights: Path, other: Path) -> None:
    """Put another file in the place of the weights, tell the server, and wait until it serves with them."""
    before = get(port, "/readyz")
    copy = weights.with_name("next.safetensors")
    shutil.copyfile(other, copy)
    os.replace(copy, weights)
    server.send_signal(signal.SIGHUP)
    wait_for(lambda: get(port, "/readyz") != before, "new weights")


def wait_for(happened: Callable[[], bool], what: str) -> None:
    """Wait until something happened."""
    end = time.monotonic() + WITHIN
    while not happened():
        if time.monotonic() > end:
            raise SystemExit(f"there was no sign of {what} within {WITHIN} s")
        time.sleep(0.002)


def expect(seen: Seen, **allowed: int) -> None:
    """Stop where the clients saw what must not be: ``allowed`` are the outcomes other than right, and how many."""
    for outcome, number in seen.outcomes.items():
        if outcome != "right" and number > allowed.get(outcome, 0):
            raise SystemExit(f"{number} requests {outcome}: {dict(seen.outcomes)}")


def measure(requests: int, count: int, changes: int) -> None:
    """Start a server, and print what its clients saw."""
    folder = wheels.WORK / "serve"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    rows = digits()
    files = write_weights(folder)
    answers = direct(importlib.import_module("scale_net.served"), files, rows)
    weights = folder / "weights.safetensors"
    shutil.copyfile(files[0], weights)

    server, port = start_server(weights)
    try:
        changed = threading.Event()
        seen, wait = clients(
            count, port, rows, answers, lambda: not changed.is_set() or sum(len(one.seconds) for one in seen) < requests
        )
        begun = time.perf_counter()
        for k in range(changes):
            change(server, port, weights, files[(k + 1) % 2])
        changed.set()
        under_load = wait()
        took = time.perf_counter() - begun
        expect(under_load)
        print(
            f"{len(under_load.seconds):,} requests by {count} clients in {took:.1f} s: none lost, and each answer is"
            f" that of a direct call\n  median {1000 * statistics.median(under_load.seconds):.1f} ms,"
            f" 99th percentile {1000 * statistics.quantiles(under_load.seconds, n=100)[98]:.1f} ms"
        )
        weights.write_bytes(b"no weights")
        server.send_signal(signal.SIGHUP)
        wait_for(
            lambda: 'weights_loads_total{result="refused"} 1.0' in get(port, "/metrics"), "a refusal of bad weights"
        )
        used = " and ".join(f"{number:,}" for number in under_load.names.values())
        print(f"  weights changed {changes} times meanwhile: {used} answers by either, none by a mixture")
        metrics = get(port, "/metrics")
        batches, total = (
            float(re.findall(rf"^batch_rows_{part} (.*)$", metrics, re.M)[0]) for part in ("count", "sum")
        )
        print(f"  {total / batches:.1f} rows a call on average; selftest: {get(port, '/healthz')}")

        _, wait = clients(count, port, rows, answers, lambda: True)
        time.sleep(1)
        begun = time.perf_counter()
        server.send_signal(signal.SIGTERM)
        at_end = wait()
        said = server.communicate(timeout=60)[0]
        took = time.perf_counter() - begun
        expect(at_end, refused=count)
        found = re.search(r"answered (\d+) of (\d+) requests", said)
        got = under_load.outcomes["right"] + at_end.outcomes["right"]
        if not found or {int(found[1]), int(found[2])} != {got} or server.returncode not in (0, -signal.SIGTERM):
            raise SystemExit(f"clients have {got} answers; status {server.returncode}:\n{said}")
        print(
            f"SIGTERM under load: the server ended {took:.2f} s later. It accepted {got:,} requests in all, and clients"
            f" have as many right\n  answers; then each of the {at_end.outcomes['refused']} clients was refused"
        )
    finally:
        server.kill()
