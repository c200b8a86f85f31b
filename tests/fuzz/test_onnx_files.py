"""Damaged ONNX files, some of those that ``python -m tests.fuzz.onnx_files`` tries."""

from __future__ import annotations

import random
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from mlaot.errors import MlaotError
from mlaot.onnx import load

from .onnx_files import LOCATIONS, SIZES, beside, external, lying_outside


def refusal(data: bytes, folder: Path) -> str:
    """Why a file is refused, nothing if it is not."""
    (folder / "model.onnx").write_bytes(data)
    try:
        load(folder / "model.onnx").trace()
    except MlaotError as error:
        assert str(error).isprintable() and len(str(error)) < 600, str(error)
        return str(error)
    return ""


@pytest.mark.filterwarnings("error")
def test_what_is_said_of_a_tensor_outside_of_the_file_is_read_or_refused_in_one_line(tmp_path: Path) -> None:
    beside(tmp_path)
    cases = [[("location", location)] for location in LOCATIONS]
    cases += [[("location", "w"), (key, size)] for key in ("offset", "length") for size in SIZES]
    found = [refusal(lying_outside(entries).SerializeToString(), tmp_path) for entries in cases]
    rng = random.Random(0)
    found += [refusal(external(rng, b""), tmp_path) for _ in range(80)]
    assert 8 < found.count("") < 0.5 * len(found)
    assert not any("no name" in text or "Traceback" in text for text in found)


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ([("offset", "-1")], "has the offset '-1'; expected a number of bytes"),
        ([("length", "-4")], "has the length '-4'; expected a number of bytes"),
        ([("offset", "0"), ("offset", "x")], "has the offset 'x'; expected"),
        ([("location", "w\0")], "which is no file's name"),
        ([("location", "../w")], "outside of its folder"),
        ([("location", "x" * 5000)], "no file has a name that long"),
    ],
)
def test_the_error_says_what_is_wrong(entries: list[tuple[str, str]], said: str, tmp_path: Path) -> None:
    beside(tmp_path)
    with pytest.raises(MlaotError, match=said):
        onnx.save(lying_outside([("location", "w"), *entries]), tmp_path / "model.onnx")
        load(tmp_path / "model.onnx").trace()


def test_texts_that_are_not_there(tmp_path: Path) -> None:
    tensor = onnx.TensorProto(name="t", data_type=TensorProto.STRING, dims=[3])
    ports = [helper.make_tensor_value_info(name, TensorProto.STRING, [3]) for name in ("x", "y")]
    node = helper.make_node("Constant", [], ["y"], value=tensor)
    graph = helper.make_graph([node], "g", ports[:1], ports[1:])
    file = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    assert "the tensor 't' is damaged: cannot reshape" in refusal(file.SerializeToString(), tmp_path)
