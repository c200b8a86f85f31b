"""Score with Spark: its own rows by ``mapInArrow``, or files that Python's workers read."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from pyspark import SparkFiles
from pyspark.sql import SparkSession

from examples.scale import measure
from examples.scale.job import Job, score_file, scorer

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
    session = (
        SparkSession.builder.master(f"local[{workers},4]")
        .config("spark.archives", f"{archive}#site")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", job.task.batch_rows)
        .config("spark.sql.files.maxPartitionBytes", job.parts[0].stat().st_size)  # a task for each file
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


@contextmanager
def map_in_arrow(job: Job, workers: int) -> Iterator[Callable[[Sequence[Path], Path], None]]:
    """Spark reads the rows and writes the scores."""

    def scored(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        add_site()
        score = scorer(job)
        for batch in batches:
            yield score(batch).cast(ARROW)

    with started(job, workers) as session:

        def run(parts: Sequence[Path], out: Path) -> None:
            rows = session.read.parquet(*map(str, parts))
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

            session.sparkContext.parallelize(parts, len(parts)).foreach(score)

        yield run


def main(arguments: list[str]) -> None:
    """Measure both ways."""
    measure.main({"Spark, mapInArrow": map_in_arrow, "Spark, files": files}, ("pyspark", "pyarrow"), arguments)
