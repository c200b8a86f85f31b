"""Score with Spark: its own rows by ``mapInArrow``, or files that Python's workers read."""

from __future__ import annotations

import math
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import SparkFiles
from pyspark.sql import SparkSession

from examples.scale import measure
from examples.scale.job import Job, score_file, scorer, task_count

SCHEMA = "id long, scores array<float>"
ARROW = pa.schema([("id", pa.int64()), ("scores", pa.list_(pa.float32()))])  # Spark has no lists of a fixed size


def add_site() -> None:
    """Let a worker, which does one task after another, import the wheel that Spark has unpacked."""
    site = SparkFiles.get("site")
    if site not in sys.path:
        sys.path.insert(0, site)


@contextmanager
def started(job: Job, workers: int) -> Iterator[SparkSession]:
    """A Spark of this machine: ``local[workers, tries of a task]``. It unpacks the wheel, which is an archive."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    archive = job.folder / "wheel.zip"
    shutil.copy(job.wheel, archive)  # Spark unpacks by the name
    size = sum(part.stat().st_size for part in job.parts)
    session = (
        SparkSession.builder.master(f"local[{workers},4]")
        .config("spark.archives", f"{archive}#site")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", job.task.batch_rows)
        .config("spark.sql.files.maxPartitionBytes", math.ceil(size / task_count(job.parts, workers)))
        .config("spark.sql.files.openCostInBytes", 0)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "2g")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    try:
        yield session
    finally:
        session.stop()


def of_bytes(part: Path) -> Path:
    """The same rows with the bytes of the numbers instead of lists, which Spark copies number by number."""
    other = part.parent.with_name(f"{part.parent.name}-bytes") / part.name
    if not other.exists():
        other.parent.mkdir(exist_ok=True)
        table = pq.read_table(part)
        numbers = np.asarray(table["x"].combine_chunks().flatten()).reshape(len(table), -1)
        table = table.set_column(1, "x", pa.array([row.tobytes() for row in numbers]))
        pq.write_table(table, other, compression="none", use_dictionary=["id"])
    return other


@contextmanager
def map_in_arrow(
    job: Job, workers: int, form: Callable[[Path], Path] = lambda part: part
) -> Iterator[Callable[[Sequence[Path], Path], None]]:
    """Spark reads the rows, which ``form`` makes of a file, and writes the scores."""

    def scored(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        add_site()
        score = scorer(job)
        for batch in batches:
            yield score(batch).cast(ARROW)

    formed = dict(zip(job.parts, map(form, job.parts), strict=True))
    with started(job, workers) as session:

        def run(parts: Sequence[Path], out: Path) -> None:
            rows = session.read.parquet(*(str(formed[part]) for part in parts))
            rows.mapInArrow(scored, SCHEMA).write.mode("overwrite").parquet(str(out))

        yield run


@contextmanager
def files(job: Job, workers: int) -> Iterator[Callable[[Sequence[Path], Path], None]]:
    """Spark distributes the names of files; Arrow reads and writes them on the workers."""
    with started(job, workers) as session:

        def run(parts: Sequence[Path], out: Path) -> None:
            def score(part: Path) -> None:
                add_site()
                score_file(job, part, out)

            session.sparkContext.parallelize(parts, task_count(parts, workers)).foreach(score)

        yield run


def main(arguments: list[str]) -> None:
    """Measure all ways."""
    engines: dict[str, measure.Engine] = {
        "Spark, mapInArrow of lists": map_in_arrow,
        "Spark, mapInArrow of bytes": partial(map_in_arrow, form=of_bytes),
        "Spark, files": files,
    }
    measure.main(engines, ("pyspark", "pyarrow"), arguments)
