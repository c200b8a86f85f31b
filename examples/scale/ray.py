"""Score with Ray Data: actors hold the model, and Ray sends them Arrow tables."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import ray
import ray.data

from examples.scale import measure
from examples.scale.job import Job, scorer, task_count


class Scorer:
    """An actor; Ray starts it once and calls it with one table after another, which are blocks of Ray's."""

    def __init__(self, job: Job) -> None:
        self.score, self.rows = scorer(job), job.task.batch_rows

    def __call__(self, table: pa.Table) -> pa.Table:
        return pa.Table.from_batches([self.score(batch) for batch in table.to_batches(self.rows)])


@contextmanager
def engine(job: Job, workers: int) -> Iterator[Callable[[Sequence[Path], Path], None]]:
    """A Ray of this machine. One CPU more than actors is for the tasks that read and write, without which all wait."""
    ray.init(
        num_cpus=workers + 1,
        runtime_env={"py_modules": [str(job.wheel)]},  # Ray unpacks the wheel on each machine
        object_store_memory=10**9,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.use_datasource_v2 = False  # it starts 32 processes that read footers, for each data set

    def run(parts: Sequence[Path], out: Path) -> None:
        rows = ray.data.read_parquet([str(part) for part in parts], override_num_blocks=task_count(parts, workers))
        scored = rows.map_batches(
            Scorer,
            fn_constructor_args=(job,),
            batch_size=None,
            batch_format="pyarrow",
            zero_copy_batch=True,
            compute=ray.data.ActorPoolStrategy(size=workers),
            num_cpus=1,
        )
        scored.write_parquet(str(out))

    try:
        yield run
    finally:
        ray.shutdown()


def main(arguments: list[str]) -> None:
    """Measure Ray Data."""
    measure.main({"Ray Data": engine}, ("ray", "pyarrow"), arguments)
