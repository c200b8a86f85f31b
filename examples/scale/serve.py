"""Serve a model over HTTP, with batches of the requests that wait, and new weights while it serves.

    SERVE_WEIGHTS=FILE uvicorn --factory examples.scale.serve:app     # SIGHUP reads FILE again, SIGTERM ends
    python -m examples.scale serve --load                             # 10,000 requests, 100 changes of weights, the end

A request is ``{"x": [64 pixels from 0 to 16]}``. Its answer has the ten probabilities, and the name of the weights.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import logging
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import uvicorn
from batched.aio import dynamically
from fastapi import Body, FastAPI, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from pydantic import Field

from examples.scale.serving import PIXELS, Serving

BATCH = 64  # rows of a call at most
WAIT = 2.0  # milliseconds for more rows, where there are fewer
Pixel = Annotated[int, Field(ge=0, le=16)]
Row = Annotated[list[Pixel], Body(embed=True, min_length=PIXELS, max_length=PIXELS)]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Asgi = Callable[[Message, Receive, Send], Awaitable[None]]
log = logging.getLogger("uvicorn.error")  # which uvicorn prints


def app() -> Asgi:
    """Make the app from the environment: SERVE_MODULE, the module of a wheel, and SERVE_WEIGHTS, a file."""
    module = importlib.import_module(os.environ.get("SERVE_MODULE", "scale_net.served"))
    weights = os.environ.get("SERVE_WEIGHTS")
    return make_app(Serving(module, Path(weights) if weights else None))


def make_app(serving: Serving) -> Asgi:
    """Make the app around a model: routes, metrics, signals."""
    registry = CollectorRegistry()
    accepted = Counter("requests_accepted", "Requests that were begun", registry=registry)
    answered = Counter("requests_answered", "Whole answers", ["status"], registry=registry)
    seconds = Histogram("request_seconds", "From a whole request to its answer", registry=registry)
    rows_of_call = Histogram("batch_rows", "Rows of a call", buckets=[1, 2, 4, 8, 16, 32, BATCH], registry=registry)
    loads = Counter("weights_loads", "Changes of weights", ["result"], registry=registry)
    current = Gauge("weights", "The weights in use", ["name"], registry=registry)
    current.labels(serving.loaded.name).set(1)

    async def reload() -> None:
        try:
            await asyncio.to_thread(serving.reload)
        except (OSError, ValueError) as error:
            loads.labels("refused").inc()
            log.error("the weights stay: %s", error)
        else:
            loads.labels("done").inc()
            current.clear()
            current.labels(serving.loaded.name).set(1)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        serving.module.selftest()  # it raises where this machine gives other answers: do not start
        loop, tasks = asyncio.get_running_loop(), set[asyncio.Task[None]]()
        loop.add_signal_handler(signal.SIGHUP, lambda: tasks.add(loop.create_task(reload())))
        yield
        log.info("answered %d of %d requests", total(answered), total(accepted))

    web = FastAPI(title="Digits", lifespan=lifespan)

    @dynamically(batch_size=BATCH, timeout_ms=WAIT)
    def answer(rows: list[bytes]) -> list[tuple[list[float], str]]:
        rows_of_call.observe(len(rows))
        return serving.answer(rows)

    @web.post("/predict")
    async def predict(x: Row) -> dict[str, Any]:
        with seconds.time():
            probabilities, name = await answer(bytes(x))
        return {"probabilities": probabilities, "weights": name}

    @web.get("/healthz")
    async def healthz() -> dict[str, Any]:
        """Replay the golden vectors on this machine; status 500 if an answer is wrong."""
        return {"share_of_error_bound": await asyncio.to_thread(serving.module.selftest)}

    @web.get("/readyz")
    async def readyz() -> dict[str, str]:
        """Tell which weights serve. There are some as soon as the server accepts connections."""
        return {"weights": serving.loaded.name}

    @web.get("/metrics")
    async def metrics() -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return counting(web, accepted, answered)


def counting(inner: Asgi, accepted: Counter, answered: Counter) -> Asgi:
    """Count each request to the model when it begins, and when the server has its whole answer."""

    async def outer(scope: Message, receive: Receive, send: Send) -> None:
        status = 0

        async def count(message: Message) -> None:
            nonlocal status
            await send(message)
            status = message.get("status", status)
            if message["type"] == "http.response.body" and not message.get("more_body"):
                answered.labels(status).inc()

        if scope.get("path") != "/predict":
            await inner(scope, receive, send)
            return
        accepted.inc()
        await inner(scope, receive, count)

    return outer


def total(counter: Counter) -> float:
    """Return what a counter counted, under all labels."""
    return float(
        sum(sample.value for metric in counter.collect() for sample in metric.samples if "_total" in sample.name)
    )


def main(arguments: list[str]) -> None:
    """Serve on this machine, or ask a server by many clients."""
    from examples.scale import serving_load, wheels  # a server needs neither

    parser = argparse.ArgumentParser(prog="python -m examples.scale serve", description="Serve a model over HTTP.")
    parser.add_argument("--port", type=int, default=8000, help="(default: %(default)s)")
    parser.add_argument("--load", action="store_true", help="start a server, ask it by many clients, and end it")
    parser.add_argument("--requests", type=int, default=10_000, help="at least, with --load (default: %(default)s)")
    parser.add_argument("--clients", type=int, default=64, help="with --load (default: %(default)s)")
    parser.add_argument("--changes", type=int, default=100, help="of weights, with --load (default: %(default)s)")
    options = parser.parse_args(arguments)
    wheels.use(wheels.NET)
    if options.load:
        serving_load.measure(options.requests, options.clients, options.changes)
    else:
        uvicorn.run(app(), port=options.port)
