"""The job that all engines do: models as ONNX files, one wheel of both, rows in Parquet files, and what scores them."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np

from examples.scale import wheels
from examples.scale.arrow import score

if TYPE_CHECKING:
    import pyarrow as pa

ROOT = Path(__file__).resolve().parents[2]
SCORES = 10
TASK_BYTES = 1 << 24  # of files
PYPROJECT = """\
[build-system]
requires = ["mlaot[onnx]"]
build-backend = "mlaot.build"

[project]
name = "scored"
version = "1.0"

[tool.mlaot.models.mlp]
onnx = "mlp.onnx"
weights = "file"

[tool.mlaot.models.conv]
onnx = "conv.onnx"
weights = "file"
"""


@dataclass(frozen=True)
class Task:
    """A model: the shape of a row, and how many rows a job, a file and a batch have."""

    shape: tuple[int, ...]
    rows: int
    file_rows: int
    batch_rows: int


TASKS = {"mlp": Task((784,), 262144, 8192, 1024), "conv": Task((3, 32, 32), 4096, 128, 16)}


@dataclass(frozen=True)
class Job:
    """A model, the number of its rows, and what runs it, mlaot or onnxruntime. It can be pickled."""

    folder: Path
    model: str
    runtime: str
    rows: int

    @property
    def task(self) -> Task:
        """The task of the model."""
        return TASKS[self.model]

    @property
    def wheel(self) -> Path:
        """The wheel of both models."""
        return next((self.folder / "wheels").glob("*.whl"))

    @property
    def site(self) -> Path:
        """The same, installed: a folder for ``sys.path``."""
        return self.folder / "site"

    @property
    def parts(self) -> list[Path]:
        """The files with the rows."""
        return [
            self.folder / self.model / f"part-{k:04}.parquet" for k in range(math.ceil(self.rows / self.task.file_rows))
        ]


@cache
def forward(job: Job) -> Callable[[memoryview], Any]:
    """The call that scores a batch on one thread: an engine has a worker for each CPU."""
    if job.runtime == "mlaot":
        module = importlib.import_module(f"scored.{job.model}")
        module.set_threads(1)
        return module.forward  # type: ignore[no-any-return]
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(job.folder / f"{job.model}.onnx", options)
    return lambda x: session.run(None, {"x": np.asarray(x)})[0]


def scorer(job: Job) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """What scores a batch of the job."""
    return partial(score, forward=forward(job), shape=job.task.shape, width=SCORES)


def score_file(job: Job, part: Path, out: Path) -> None:
    """Score a Parquet file, batch by batch, into one of the same name. Done twice, it is the same file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    run, begun = scorer(job), out / f".{part.name}.{uuid4()}"  # of other machines, too
    with pq.ParquetFile(part, memory_map=True) as file:
        answers = [run(batch) for batch in file.iter_batches(job.task.batch_rows, use_threads=False)]
    pq.write_table(pa.Table.from_batches(answers), begun)
    begun.rename(out / part.name)


def task_count(parts: Sequence[Path], workers: int) -> int:
    """How many tasks an engine makes of files: few, since each costs it up to 0.1 s, but several for each worker."""
    size = sum(part.stat().st_size for part in parts)
    return min(len(parts), max(4 * workers, math.ceil(size / TASK_BYTES)))


def answers(out: Path) -> pa.Table:
    """The answers in a folder, in the order of their ids."""
    import pyarrow.dataset as ds

    files = [path for path in sorted(out.rglob("*.parquet")) if path.name[0] not in "._"]
    return ds.dataset(files).to_table(use_threads=False).sort_by("id")


def prepare(folder: Path, rows: dict[str, int]) -> None:
    """Make models, wheel and rows in ``folder``; what is there already is left."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "site").exists():
        make_wheel(folder)
    for name, task in TASKS.items():
        if rows.get(name):
            make_rows(folder / name, task, math.ceil(rows[name] / task.file_rows))


def make_wheel(folder: Path) -> None:
    """Build the wheel and unpack it into ``site``."""
    (folder / "pyproject.toml").write_text(PYPROJECT)
    (folder / "mlp.onnx").write_bytes(mlp())
    (folder / "conv.onnx").write_bytes(conv())
    wheels.build(folder, folder / "wheels", folder / "site")


def make_rows(folder: Path, task: Task, files: int) -> None:
    """Write Parquet files of an id and a list of numbers a row."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(exist_ok=True)
    width = math.prod(task.shape)
    for k in range(files):
        path = folder / f"part-{k:04}.parquet"
        if not path.exists():
            numbers = np.random.default_rng(k).standard_normal(task.file_rows * width, np.float32)
            ids = pa.array(range(k * task.file_rows, (k + 1) * task.file_rows), pa.int64())
            table = pa.table({"id": ids, "x": pa.FixedSizeListArray.from_arrays(pa.array(numbers), width)})
            pq.write_table(table, path, compression="none", use_dictionary=["id"], row_group_size=task.file_rows)


def mlp() -> bytes:
    """784-512-512-10 with ReLU, with seeded weights: an ONNX file."""
    sizes, rng, at = (784, 512, 512, SCORES), np.random.default_rng(1), "x"
    nodes, weights = list[Any](), dict[str, Any]()
    for k, (before, after) in enumerate(pairwise(sizes)):
        weights[f"w{k}"] = rng.standard_normal((before, after), np.float32) / np.float32(math.sqrt(before))
        weights[f"b{k}"] = rng.standard_normal(after, np.float32)
        nodes.append(("Gemm", (at, f"w{k}", f"b{k}"), "scores" if k == 2 else f"y{k}", {}))
        if k < 2:
            nodes.append(("Relu", (f"y{k}",), f"x{k}", {}))
        at = f"x{k}"
    return onnx_file((784,), nodes, weights)


def conv() -> bytes:
    """A residual network of 3x3 convolutions for images of 32 x 32, with seeded weights: an ONNX file."""
    rng, nodes, weights = np.random.default_rng(2), list[Any](), dict[str, Any]()

    def layer(x: str, inputs: int, outputs: int, stride: int) -> str:
        y, size = f"y{len(nodes)}", (outputs, inputs, 3, 3)
        weights[f"w{y}"] = rng.standard_normal(size, np.float32) / np.float32(math.sqrt(9 * inputs))
        nodes.append(("Conv", (x, f"w{y}"), y, {"pads": [1] * 4, "strides": [stride] * 2}))
        nodes.append(("Relu", (y,), f"r{y}", {}))
        return f"r{y}"

    at, inputs = layer("x", 3, 64, 1), 64
    for outputs in (64, 128, 256, 512):
        at = layer(at, inputs, outputs, 1 if outputs == 64 else 2)
        nodes.append(("Add", (at, layer(at, outputs, outputs, 1)), f"sum{outputs}", {}))
        at, inputs = f"sum{outputs}", outputs
    weights["w"], weights["b"] = rng.standard_normal((512, SCORES), np.float32), np.zeros(SCORES, np.float32)
    nodes += [("GlobalAveragePool", (at,), "pooled", {}), ("Flatten", ("pooled",), "flat", {})]
    return onnx_file((3, 32, 32), [*nodes, ("Gemm", ("flat", "w", "b"), "scores", {})], weights)


def onnx_file(shape: tuple[int, ...], nodes: list[Any], weights: dict[str, Any]) -> bytes:
    """An ONNX file from a batch ``x`` of that shape to ``scores``."""
    from onnx import TensorProto, helper, numpy_helper

    x, scores = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", *size])
        for name, size in (("x", shape), ("scores", (SCORES,)))
    )
    made = [helper.make_node(op, inputs, [output], **attrs) for op, inputs, output, attrs in nodes]
    values = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(made, "net", [x], [scores], values)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())
