"""Damaged and hostile ONNX files: each ends in a model or in one clear error.

    python -m tests.fuzz.onnx_files --count 2000 --seed 0

Files of ONNX's own tests and small ones made here are damaged: bytes flipped, the end cut off, lengths changed,
extents and attributes made huge or negative, tensors sent to files outside, with offsets and lengths of any kind. Each
is read and taken through the compiler up to C in a process of its own, with a limit of time and memory. A crash, a
traceback of ours, a file read outside of the folder, or a refusal that takes more than two seconds count as failures.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from mlaot.settings.options import Options

from .children import in_child

NUMBERS = (-1, -(2**31), -(2**63), 0, 1, 2**31 - 1, 2**31, 10**9, 2**62, 2**63 - 1)
PATHS = (
    "../secret",
    "/etc/passwd",
    "a/../../secret",
    "secret\0",
    "",
    ".",
    "x" * 5000,
    "~/secret",
    "file:///etc/passwd",
)
LOCATIONS = (
    *PATHS,
    "w",
    "w\n",
    "./w",
    "sub/../w",
    "sub",
    "sub/w",
    "no",
    "w/",
    "é",
    "*",
    "/",
    "//etc/passwd",
    "x" * 255,
    b"\xff",
)
SIZES = ("-1", "0", "4", "8", "16", "17", "32", "33", "2147483648", "-9223372036854775808", "9223372036854775807")
SIZES += (
    "9" * 40,
    "9" * 5000,
    "1.5",
    "",
    "abc",
    "0x10",
    " 4 ",
    "+4",
    "1_6",
    "\u0663",
    "1e3",
    "nan",
    "\0",
    "4\n",
    b"\xff",
)
KEYS = ("location", "offset", "length", "checksum", "basepath", "Location", "", "__class__", "\0")


@cache
def sources() -> list[bytes]:
    """Whole files to begin with."""
    from ..onnx.conformance import cases

    names = sorted(name for name in cases() if name.startswith(("node/", "simple/", "pytorch-operator/")))
    models = [cases()[name] for name in names[::23]]
    found = [case.model or onnx.load(Path(case.model_dir, "model.onnx")) for case in models]
    return [model.SerializeToString() for model in (convolution(), *found)]


def convolution() -> onnx.ModelProto:
    """A small network with weights, a shape subgraph and a branch."""
    rng = np.random.default_rng(0)
    info = helper.make_tensor_value_info
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Shape", ["p"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"], axis=0),
        helper.make_node("Concat", ["n", "rest"], ["flat"], axis=0),
        helper.make_node("Reshape", ["p", "flat"], ["f"]),
        helper.make_node("Gemm", ["f", "v"], ["y"], transB=1, alpha=0.5),
    ]
    weights = [
        numpy_helper.from_array(rng.standard_normal((4, 3, 3, 3)).astype(np.float32), "w"),
        numpy_helper.from_array(rng.standard_normal((5, 16)).astype(np.float32), "v"),
        numpy_helper.from_array(np.array([0]), "zero"),
        numpy_helper.from_array(np.array([-1]), "rest"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [info("x", TensorProto.FLOAT, ["batch", 3, 8, 8])],
        [info("y", TensorProto.FLOAT, ["batch", 5])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def flipped(rng: random.Random, data: bytes) -> bytes:
    """Some bits are others."""
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5, 50))):
        found[rng.randrange(len(found))] ^= 1 << rng.randrange(8)
    return bytes(found)


def cut(rng: random.Random, data: bytes) -> bytes:
    """The end is missing, or a part within, or something is there twice."""
    a, b = sorted((rng.randrange(len(data)), rng.randrange(len(data))))
    return rng.choice((data[:a], data[:a] + data[b:], data[:b] + data[a:]))


def lengths(rng: random.Random, data: bytes) -> bytes:
    """Bytes that may be a length or a kind of field are others."""
    found = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        found[rng.randrange(len(found))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, 10, 18, 26, 34, 42))
    return bytes(found)


def hostile(rng: random.Random, data: bytes) -> bytes:
    """Numbers and names of a file that still parses are others."""
    model = onnx.ModelProto.FromString(data)
    graph = model.graph
    for _ in range(rng.randrange(1, 4)):
        kind = rng.randrange(9)
        number = rng.choice(NUMBERS)
        values = [*graph.input, *graph.output, *graph.value_info]
        tensors = [*graph.initializer, *[a.t for n in graph.node for a in n.attribute if a.type == a.TENSOR]]
        attributes = [a for n in graph.node for a in n.attribute]
        names = [name for n in graph.node for name in (*n.input, *n.output)] or [""]
        if kind == 0 and values:
            tensor = rng.choice(values).type.tensor_type
            if tensor.shape.dim:
                rng.choice(tensor.shape.dim).dim_value = number
        elif kind == 1 and tensors and (tensor := rng.choice(tensors)).dims:
            tensor.dims[rng.randrange(len(tensor.dims))] = number
        elif kind == 2 and attributes:
            attribute = rng.choice(attributes)
            if attribute.ints:
                attribute.ints[rng.randrange(len(attribute.ints))] = number
            else:
                attribute.i = number
        elif kind == 3 and graph.node:
            node = rng.choice(graph.node)
            if node.input:
                node.input[rng.randrange(len(node.input))] = rng.choice(names)
        elif kind == 4 and tensors:
            tensor = rng.choice(tensors)
            if tensor.data_type == TensorProto.INT64 and tensor.raw_data:
                size = len(tensor.raw_data) // 8
                tensor.raw_data = b"".join(rng.choice(NUMBERS).to_bytes(8, "little", signed=True) for _ in range(size))
        elif kind == 5 and tensors:
            rng.choice(tensors).data_type = rng.randrange(30)
        elif kind == 6 and graph.node:
            rng.choice(graph.node).op_type = rng.choice(("Reshape", "Expand", "Tile", "Conv", "Range", "Loop", "Nope"))
        elif kind == 7 and model.opset_import:
            rng.choice(model.opset_import).version = rng.choice((0, 1, 6, 13, 99, 2**40))
        elif kind == 8 and tensors:
            tensor = rng.choice(tensors)
            onnx.external_data_helper.set_external_data(
                tensor if tensor.HasField("raw_data") else convolution().graph.initializer[0],
                rng.choice(PATHS),
                offset=number,
                length=number,
            )
    return model.SerializeToString()


def external(rng: random.Random, data: bytes) -> bytes:
    """A tensor that lies in a file, of which anything may be said; ``data`` is not used."""
    entries = [("location", "w")] * (rng.random() < 0.7)
    for _ in range(rng.randrange(4)):
        key = rng.choice(KEYS[:3] if rng.random() < 0.8 else KEYS)
        entries.append((key, rng.choice(LOCATIONS if key == "location" else SIZES)))
    return lying_outside(entries).SerializeToString()


def lying_outside(entries: Sequence[tuple[str, str | bytes]]) -> onnx.ModelProto:
    """``y = x + w``, w being four numbers of a file as ``entries`` say."""
    tensor = onnx.TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4])
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in entries:
        entry = onnx.StringStringEntryProto(key=key)
        if isinstance(value, bytes):  # what is no UTF-8 gets in by the bytes of the file only
            entry.MergeFromString(b"\x12" + bytes([len(value)]) + value)
        else:
            entry.value = value
        tensor.external_data.append(entry)
    info = helper.make_tensor_value_info
    ports = [info("x", TensorProto.FLOAT, [4])], [info("y", TensorProto.FLOAT, [4])]
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", *ports, [tensor])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def beside(folder: Path) -> None:
    """The files that tensors may lie in."""
    (folder / "sub").mkdir()
    for path in (folder / "w", folder / "sub" / "w"):
        path.write_bytes(np.arange(4, dtype=np.float32).tobytes())


DAMAGES: tuple[Callable[[random.Random, bytes], bytes], ...] = (flipped, cut, lengths, hostile, hostile, external)


def damaged(number: int) -> bytes:
    """File ``number``."""
    rng = random.Random(number)
    return rng.choice(DAMAGES)(rng, rng.choice(sources()))


def compiled(path: Path) -> str:
    """Read a file and compile it up to C."""
    from mlaot.files import program_files
    from mlaot.generate import compile_model
    from mlaot.onnx import load

    program_files(compile_model(load(path), "fuzz.nn", Options(isas=("base",))))
    return "model"


def run(number: int, folder: Path) -> tuple[str, float]:
    """The outcome of file ``number``, and its seconds."""
    path = folder / "model.onnx"
    path.write_bytes(damaged(number))
    return in_child(lambda: compiled(path))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0, help="number of the first file")
    options = parser.parse_args(arguments)
    import mlaot.generate
    import mlaot.onnx.ops  # noqa: F401  not in each child

    sources()
    tally: Counter[str] = Counter()
    longest = 0.0
    with tempfile.TemporaryDirectory(prefix="mlaot-") as name:
        beside(Path(name))
        for number in range(options.seed, options.seed + options.count):
            said, taken = run(number, Path(name))
            longest = max(longest, taken)
            kind = said if said == "model" else said.partition(":")[0]
            tally["model" if kind == "model" else "refused" if kind == "refused" else "failed"] += 1
            if kind not in ("model", "refused") or "\n" in said:
                print(f"{number}: {said}", flush=True)
            if (number - options.seed + 1) % 200 == 0:
                print(dict(tally), file=sys.stderr, flush=True)
    print(f"{dict(tally)}, {longest:.1f} s at most")
    return int(tally["failed"] > 0)


if __name__ == "__main__":
    sys.exit(main())
