"""Scoring on many workers: Arrow's memory as matrices, the command, and files that killed workers leave."""

from __future__ import annotations

import multiprocessing
import os
import sys
from array import array
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlaot
from examples.scale import __main__ as command
from examples.scale import processes
from examples.scale.arrow import matrix, score, vectors
from examples.scale.job import Job
from examples.scale.measure import check
from examples.scale.processes import score_all
from examples.scale.workers import below, cpu_seconds

from .. import projects

batch = mlaot.dim("batch")


@dataclass
class Kind:
    """A type of pyarrow, as far as ``matrix`` looks at it."""

    text: str
    value_type: str = "float"
    list_size: int = 0
    byte_width: int = 0

    def __str__(self) -> str:
        return self.text


@dataclass
class Fake:
    """An array of pyarrow: a window on numbers, on lists that are ``ends`` of ``values``, or on bytes."""

    type: Kind
    rows: int
    data: array[Any] | None = None
    values: Any = None
    offset: int = 0
    nulls: frozenset[int] = frozenset()  # places in the whole

    def __len__(self) -> int:
        return self.rows

    @property
    def null_count(self) -> int:
        return self.is_valid().to_pylist().count(False)

    def is_valid(self) -> Any:
        valid = [self.offset + k not in self.nulls for k in range(self.rows)]
        return type("Valid", (), {"to_pylist": lambda _: valid})()

    def buffers(self) -> list[Any]:
        return [None, self.data, self.values]

    def slice(self, begin: int, rows: int) -> Fake:
        return replace(self, offset=self.offset + begin, rows=rows)


def fixed(rows: int, width: int) -> Fake:
    """A column of fixed-size lists of 0, 1, 2 and so on, behind two numbers that are not its own."""
    numbers = Fake(Kind("float"), rows * width, data=array("f", range(-2, rows * width)), offset=2)
    return Fake(Kind(f"fixed_size_list<element: float>[{width}]", list_size=width), rows, values=numbers)


def lists(*sizes: int, kind: str = "list", letter: str = "i") -> Fake:
    """A column of lists of these sizes."""
    ends = array(letter, [sum(sizes[:k]) for k in range(len(sizes) + 1)])
    numbers = Fake(Kind("float"), ends[-1], data=array("f", range(ends[-1])))
    return Fake(Kind(f"{kind}<element: float>"), len(sizes), data=ends, values=numbers)


def fixed_bytes(rows: int, width: int) -> Fake:
    """The bytes of 0, 1, 2 and so on."""
    numbers = array("f", range(rows * width))
    return Fake(Kind(f"fixed_size_binary[{4 * width}]", byte_width=4 * width), rows, data=None, values=numbers)


def bytes_of(*sizes: int, kind: str = "binary", letter: str = "i") -> Fake:
    """The same in rows of so many bytes."""
    ends = array(letter, [sum(sizes[:k]) for k in range(len(sizes) + 1)])
    return Fake(Kind(kind), len(sizes), data=ends, values=array("f", range(ends[-1] // 4)))


@pytest.mark.parametrize(
    "column",
    [
        *(fixed(4, 6), lists(6, 6, 6, 6), lists(6, 6, 6, 6, kind="large_list", letter="q")),
        *(fixed_bytes(4, 6), bytes_of(24, 24, 24, 24), bytes_of(24, 24, 24, 24, kind="large_binary", letter="q")),
    ],
    ids=lambda column: column.type.text,
)
def test_matrix(column: Fake) -> None:
    """The rows of a whole column and of a slice, in the memory of the column."""
    whole = matrix(column, "x", "float", (2, 3))
    assert np.array_equal(np.asarray(whole), np.arange(24).reshape(4, 2, 3))
    part = matrix(column.slice(1, 2), "x", "float", (6,))
    assert np.array_equal(np.asarray(part), np.arange(24).reshape(4, 6)[1:3])
    if isinstance(column.values, array):
        column.values[6] = 99
    else:
        column.values.data[column.values.offset + 6] = 99
    assert part[0, 0] == whole[1, 0, 0] == 99


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (fixed(2, 5), "column 'x', row 0: expected 6 numbers, got 5"),
        (lists(6, 6, 5, 7), "column 'x', row 2: expected 6 numbers, got 5"),
        (lists(6, 6, 5, 7).slice(1, 3), "column 'x', row 1: expected 6 numbers, got 5"),
        (fixed_bytes(2, 5), "column 'x', row 0: expected 24 bytes, got 20"),
        (bytes_of(24, 20, 28), "column 'x', row 1: expected 24 bytes, got 20"),
        (replace(fixed(3, 6), nulls=frozenset([1])), "column 'x', row 1: the row is null"),
        (replace(bytes_of(24, 24), nulls=frozenset([1])), "column 'x', row 1: the row is null"),
        (
            replace(fixed(1, 6), type=Kind("fixed_size_list<element: double>[6]", "double", 6)),
            "of type float, or their bytes, got fixed",
        ),
        (replace(fixed(1, 6), type=Kind("dictionary<values=float>")), "of type float, or their bytes, got dictionary"),
        (replace(fixed(1, 6), type=Kind("float")), "expected lists of 6 numbers of type float, or their bytes, got f"),
    ],
)
def test_matrix_refuses(column: Fake, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("'", ".")):
        matrix(column, "x", "float", (6,))


def test_null_numbers() -> None:
    """A null within a list is found, one outside of the slice is not."""
    column = fixed(3, 6)
    column.values.nulls = frozenset([2 + 6 + 4])
    with pytest.raises(ValueError, match=r"column 'x', row 1: number 4 is null"):
        matrix(column, "x", "float", (6,))
    assert matrix(column.slice(2, 1), "x", "float", (6,)).tolist() == [[12, 13, 14, 15, 16, 17]]


def test_arrow() -> None:
    """With pyarrow itself: the same of slices and chunks, and answers in the memory of the model."""
    pa = pytest.importorskip("pyarrow")
    numbers = np.arange(24, dtype=np.float32).reshape(4, 6)
    for kind in (pa.list_(pa.float32(), 6), pa.list_(pa.float32()), pa.large_list(pa.float32())):
        batch = pa.record_batch({"id": [1, 2, 3, 4], "x": pa.array(list(numbers), kind)})
        double = partial(score, forward=lambda x: np.asarray(x) * 2, shape=(6,), width=6)
        assert np.array_equal(np.stack(double(batch.slice(1, 2))["scores"].to_numpy(False)), numbers[1:3] * 2)
        assert double(batch.slice(4)).schema == double(batch).schema
        with pytest.raises(ValueError, match="column 'x', row 1: number 0 is null"):
            matrix(pa.array([[1, 2], [None, 3]], pa.list_(pa.float32(), 2)), "x", "float", (2,))
        with pytest.raises(ValueError, match="column 'x', row 1: the row is null"):
            matrix(pa.array([[1, 2], None], pa.list_(pa.float32(), 2)), "x", "float", (2,))
    for kind in (pa.binary(24), pa.binary(), pa.large_binary()):
        column = pa.array([row.tobytes() for row in numbers], kind)
        assert np.array_equal(matrix(column.slice(1, 2), "x", "float", (3, 2)), numbers[1:3].reshape(2, 3, 2))
        with pytest.raises(ValueError, match="column 'x', row 0: expected 20 bytes, got 24"):
            matrix(column, "x", "float", (5,))
        with pytest.raises(ValueError, match="column 'x', row 0: the row is null"):
            matrix(pa.array([None, bytes(24)], kind), "x", "float", (6,))
    uneven = pa.array([b"odd", *[row.tobytes() for row in numbers]])
    assert np.array_equal(matrix(uneven.slice(1), "x", "float", (6,)), numbers)
    with pytest.raises(ValueError, match="column 'x', row 0: expected 24 bytes, got 3"):
        matrix(uneven, "x", "float", (6,))
    answers = np.ones((3, 2), np.float32)
    column = vectors(answers)
    answers[1, 1] = 5
    assert column.to_pylist() == [[1, 1], [1, 5], [1, 1]]


@pytest.mark.parametrize("fault", ["", "lost", "twice", "other"])
def test_check(fault: str, tmp_path: Path) -> None:
    """Rows that are lost or there twice are found, and so are other scores."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = [(k, [k / 2, k / 3]) for k in range(6)]
    got = {"": rows[::-1], "lost": rows[1:], "twice": [*rows, rows[3]], "other": [*rows[1:], (0, [0, 1e-7])]}[fault]
    for name, part in (("good/a", rows[:3]), ("good/b", rows[3:]), ("out/a", got[:2]), ("out/b", got[2:])):
        ids, scores = zip(*part, strict=True)
        table = pa.table({"id": ids, "scores": pa.array(scores, pa.list_(pa.float32(), 2))})
        (tmp_path / name).parent.mkdir(exist_ok=True)
        pq.write_table(table, tmp_path / f"{name}.parquet")
    (tmp_path / "out" / ".a.parquet.17").touch()  # of a worker that was killed
    job = Job(tmp_path, "mlp", "mlaot", 6)
    if not fault:
        check(job, tmp_path / "out", tmp_path / "good")
        return
    with pytest.raises(SystemExit, match=r"mlp: 1 scores" if fault == "other" else r"mlp: [57] rows with [56] ids"):
        check(job, tmp_path / "out", tmp_path / "good")


def test_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Examples are found without their engines; a missing engine is one line that says what to run."""
    assert command.names() == ["dask", "processes", "ray", "serve", "spark", "train"]
    with pytest.raises(SystemExit, match=r"there is no 'storm'; there are .*dask"):
        command.main(["storm"])
    with pytest.raises(SystemExit, match=r"usage: .*dask"):
        command.main([])
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(SystemExit, match=r'examples.scale spark: needs \w+; run: pip install -e "\.\[scale\]"'):
        command.main(["spark"])


WORK = """\
import os, pathlib, signal
from scored_tiny import nn

def work(part, out, deaths):
    at = out / (part.name + ".tries")
    with at.open("a") as tries:
        tries.write("x")
    if part.name == "b" and at.stat().st_size <= deaths:
        os.kill(os.getpid(), signal.SIGKILL)
    if part.name == "bad":
        raise LookupError(part.name)
    answers = nn.forward(memoryview(part.read_bytes()).cast("f", (2, 3)))
    (out / part.name).write_bytes(memoryview(answers))
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny model and what scores a file with it."""
    site = tmp_path_factory.mktemp("scoring") / "site"

    @mlaot.model
    def double(x: mlaot.f32[batch, 3]) -> Any:
        return x * 2

    projects.build_module(double, "scored_tiny", site, isas=("base",))
    (site / "scoring_work.py").write_text(WORK)
    return site


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGKILL")
def test_killed_worker(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that a killed worker leaves are scored by others; one that always kills ends the job; errors pass."""
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setattr(processes, "TRIES", 2)
    from scoring_work import work  # type: ignore[import-not-found]

    def start() -> ProcessPoolExecutor:
        return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))  # which has this sys.path

    def run(names: Sequence[str], deaths: int) -> Path:
        out = tmp_path / f"out{len(names)}{deaths}"
        out.mkdir()
        for k, name in enumerate(names):
            (tmp_path / name).write_bytes(np.full(6, k, np.float32).tobytes())
        score: Callable[[Path], None] = partial(work, out=out, deaths=deaths)
        score_all(start(), start, score, [tmp_path / name for name in names]).shutdown()
        return out

    out = run(["a", "b", "c"], 1)
    assert [np.frombuffer((out / name).read_bytes(), np.float32).tolist() for name in "abc"] == [
        [0] * 6,
        [2] * 6,
        [4] * 6,
    ]
    assert (out / "a.tries").stat().st_size == 1  # what is done is not done again
    assert (out / "b.tries").stat().st_size == 2
    with pytest.raises(RuntimeError, match=r"killed 2 times; 1 files are left, such as .*b"):
        run(["b"], 99)
    with pytest.raises(LookupError, match="bad"):
        run(["a", "bad"], 0)


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="it reads /proc")
def test_workers() -> None:
    """A process that was started is found, and its CPU seconds count."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        process = pool.submit(os.getpid).result()
        assert process in below(os.getpid())
        assert os.getpid() not in below(os.getpid())
        with cpu_seconds() as spent:
            pool.submit(sum, range(2 * 10**7)).result()
    assert process not in below(os.getpid())
    assert spent[0] > 0.05
