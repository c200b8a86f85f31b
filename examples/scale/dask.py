"""Score with Dask: a task for each file, on processes that Dask starts anew if they are killed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import dask
import distributed
from distributed.diagnostics.plugin import UploadDirectory

from examples.scale import measure
from examples.scale.job import Job, score_file


@contextmanager
def engine(job: Job, workers: int) -> Iterator[Callable[[Sequence[Path], Path], None]]:
    """A Dask of this machine, with one thread a worker. Each worker gets the unpacked wheel."""
    dask.config.set({"distributed.scheduler.allowed-failures": 10})
    cluster = distributed.LocalCluster(
        n_workers=workers, threads_per_worker=1, dashboard_address=None, silence_logs=logging.CRITICAL
    )
    with cluster, distributed.Client(cluster) as client:
        client.register_plugin(UploadDirectory(str(job.site), update_path=True, restart_workers=True))

        def run(parts: Sequence[Path], out: Path) -> None:
            client.gather(client.map(partial(score_file, job, out=out), parts, pure=False))

        yield run


def main(arguments: list[str]) -> None:
    """Measure Dask."""
    measure.main({"Dask": engine}, ("distributed", "pyarrow"), arguments)
