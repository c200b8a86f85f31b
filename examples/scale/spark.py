"""Score with Spark: ``mapInArrow`` gives Python's workers Arrow batches."""

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
from examples.scale.job import Job, scorer

SCHEMA = "id long, scores array<float>"
ARROW = pa.schema([("id", pa.int64()), ("scores", pa.list_(pa.float32()))])  # Spark has no lists of a fixed size


@contextmanager
def engine(job: Job, workers: int) -> Iterator[Callable[[Sequence[Path], Path], None]]:
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

    def scored(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        site = SparkFiles.get("site")
        if site not in sys.path:  # a worker does one task after another
            sys.path.insert(0, site)
        score = scorer(job)
        for batch in batches:
            yield score(batch).cast(ARROW)

    def run(parts: Sequence[Path], out: Path) -> None:
        rows = session.read.parquet(*map(str, parts))
        rows.mapInArrow(scored, SCHEMA).write.mode("overwrite").parquet(str(out))

    try:
        yield run
    finally:
        session.stop()


def main(arguments: list[str]) -> None:
    """Measure Spark."""
    measure.main({"Spark": engine}, ("pyspark", "pyarrow"), arguments)
