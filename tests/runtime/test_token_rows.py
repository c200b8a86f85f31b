"""Texts whose tokens a model reads: every form in which callers have them, compiled and in plain Python."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import mlaot
from mlaot.errors import MlaotError
from mlaot.loading import load_declared, trace
from mlaot.onnx import load as load_onnx
from mlaot.settings.reading import load_settings

from ..projects import Build, build_module, load, plain_module
from ..tokenizers.test_rows import CONTENT, STORED_ROWS, framed

LONGEST = 64
TOKENS = mlaot.Tokens(framed(STORED_ROWS["cases"][1]["said"] | {"padding": {"pad_id": 4}}))
SHORT = mlaot.Tokens(framed(STORED_ROWS["cases"][1]["said"]), longest=7)
LATE = mlaot.Tokens(framed(STORED_ROWS["cases"][1]["said"] | {"truncation": {"max_length": 7, "direction": "Left"}}))
WORDS = np.random.default_rng(0).normal(0, 1, (len(TOKENS), 8)).astype(np.float32)
held = mlaot.parameters({"places": np.random.default_rng(1).normal(0, 1, (LONGEST, 8)).astype(np.float32)})
batch, n = mlaot.dim("batch"), mlaot.dim("n")


def mean(rows: Any, weight: Any = 1.0) -> Any:
    mask = TOKENS.mask(rows)[:, :, None].astype(np.float32) * weight
    x = mlaot.take(WORDS, TOKENS.ids(rows), axis=0) + held["places"][: rows.shape[1]]
    return (x * mask).sum(axis=1) / mask.sum(axis=1)


def declared() -> Any:
    """A model whose entries give what they read, and the mean of vectors."""

    @mlaot.model
    def read(texts: TOKENS[batch, n]) -> Any:
        return TOKENS.ids(texts), TOKENS.mask(texts), TOKENS.types(texts)

    @read.entry
    def embed(texts: TOKENS[batch, n]) -> Any:
        return mean(texts)

    @read.entry
    def short(texts: SHORT[batch, n]) -> Any:
        return SHORT.ids(texts)

    @read.entry
    def late(texts: LATE[batch, n]) -> Any:
        return LATE.ids(texts)

    @read.entry
    def weighed(texts: TOKENS[batch, n], weights: mlaot.f32[batch]) -> Any:
        return mean(texts) * weights[:, None]

    return read


@pytest.fixture(scope="module")
def nn(build: Build) -> ModuleType:
    return build("tokens", declared())


GIVEN: list[Any] = [texts[0] if len(texts) == 1 else tuple(texts) for texts in STORED_ROWS["given"]]
GIVEN = [each for each in GIVEN if len(TOKENS.rows([each])[0]) <= LONGEST]


def test_modules_read(nn: ModuleType) -> None:
    ids, mask, types = map(np.asarray, nn.forward(GIVEN))
    rows = TOKENS.rows(GIVEN)
    assert (ids == TOKENS.ids(rows)).all() and (mask == TOKENS.mask(rows)).all() and (types == TOKENS.types(rows)).all()
    assert nn.info()["entries"]["embed"]["inputs"] == {"texts": "str[batch]"}
    np.testing.assert_array_equal(nn.short(GIVEN), SHORT.ids(SHORT.rows(GIVEN)))
    assert np.asarray(nn.short(GIVEN)).shape[1] == 7
    np.testing.assert_array_equal(nn.late(GIVEN), LATE.ids(LATE.rows(GIVEN)))


def test_rows_apart(nn: ModuleType) -> None:
    """Texts that are computed some at a time, in any order, have the answers of each on its own."""
    given = (GIVEN * 9)[:200]
    alone = {each: np.asarray(nn.embed([each]))[0] for each in dict.fromkeys(given)}
    expected = np.array([alone[each] for each in given])
    np.testing.assert_allclose(nn.embed(given), expected, rtol=1e-5, atol=1e-6)
    weights = np.arange(len(given), dtype=np.float32)
    np.testing.assert_allclose(nn.weighed(given, weights), expected * weights[:, None], rtol=1e-5, atol=1e-5)
    out = np.empty((len(given), 8), np.float32)
    nn.embed(given, out=out)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-6)
    rows = TOKENS.rows(given)
    np.testing.assert_allclose(mean(rows), expected, rtol=1e-5, atol=1e-6)


class Column:
    """As Arrow has it: a list on demand."""

    def __init__(self, values: Any) -> None:
        self.values = values

    def to_pylist(self) -> Any:
        return self.values


def test_every_form_of_texts(nn: ModuleType) -> None:
    texts = ["the quick fox", "", "two spaces, two"]
    expected = np.asarray(nn.embed(texts))
    forms: list[Any] = [
        tuple(texts),
        np.array(texts),
        np.array(texts, object),
        Column(texts),
        [t.encode() for t in texts],
    ]
    for form in forms:
        np.testing.assert_array_equal(nn.embed(form), expected)
    for text in ("the quick fox", b"the quick fox", np.str_("the quick fox"), np.array("the quick fox")):
        np.testing.assert_allclose(nn.embed(text), expected[0], rtol=1e-6)
    pairs = [["a", "b"], ["the", "fox"]]
    for form in (pairs, [(*pair,) for pair in pairs], np.array(pairs), [[a.encode(), b] for a, b in pairs]):
        np.testing.assert_array_equal(nn.forward(form)[2], TOKENS.types(TOKENS.rows([(*pair,) for pair in pairs])))
    assert nn.embed([]).shape == (0, 8)


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        (None, TypeError, "embed: texts: expected str, got NoneType"),
        (1, TypeError, "embed: texts: expected str, got int"),
        ([None], TypeError, "embed: texts: expected str, got NoneType"),
        (["the", 1.5], TypeError, "embed: texts: expected str, got float"),
        ([("a", "b", "c")], TypeError, "embed: texts: expected str, got tuple"),
        ([("a", 1)], TypeError, "embed: texts: expected str, got int"),
        (["a", "x " * 63], ValueError, r"embed: texts\[1\]: expected a text of at most 64 tokens, got one of 65"),
        ("x " * 63, ValueError, "embed: texts: expected a text of at most 64 tokens, got one of 65"),
        (["\ud800"], UnicodeEncodeError, "surrogates not allowed"),
        ([b"\xff"], UnicodeDecodeError, "invalid start byte"),
    ],
    ids=str,
)
def test_what_is_no_text(nn: ModuleType, given: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        nn.embed(given)


def test_golden_vectors(tmp_path: Path) -> None:
    module = load(build_module(declared(), "golden", tmp_path, ("base",), golden=True))
    assert module.selftest().keys() == {"base"}
    assert 0 <= plain_module(declared(), "plain", tmp_path, golden=True).selftest()["python"] <= 1


def exported(rows: int = len(TOKENS), ids: Any = ("batch", "sequence"), name: str = "input_ids") -> Any:
    """What exporters make of an encoder, in small."""
    kinds = {"input_ids": name, "attention_mask": "attention_mask", "token_type_ids": "token_type_ids"}
    shape = list(ids)
    inputs = [helper.make_tensor_value_info(n, TensorProto.INT64, shape) for n in kinds.values()]
    table = np.random.default_rng(2).normal(0, 1, (rows, 4)).astype(np.float32)
    nodes = [
        helper.make_node("Gather", ["table", name], ["x"]),
        helper.make_node("Add", ["attention_mask", "token_type_ids"], ["s"]),
        helper.make_node("Cast", ["s"], ["w"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["w", "last"], ["u"]),
        helper.make_node("Mul", ["x", "u"], ["y"]),
        helper.make_node("ReduceSum", ["y", "axis"], ["sum"], keepdims=0),
    ]
    held = {"table": table, "last": np.array([2]), "axis": np.array([1])}
    constants = [numpy_helper.from_array(value, key) for key, value in held.items()]
    output = [helper.make_tensor_value_info("sum", TensorProto.FLOAT, ["batch", 4])]
    return helper.make_model(
        helper.make_graph(nodes, "g", inputs, output, constants),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )


def test_onnx_files(tmp_path: Path) -> None:
    model = exported()
    declared = load_onnx(model, tokens=TOKENS)
    module = load(build_module(declared, "encoder", tmp_path, ("base",), golden=True))
    rows = TOKENS.rows(GIVEN)
    table = numpy_helper.to_array(model.graph.initializer[0])
    weights = TOKENS.mask(rows).astype(np.float32) + TOKENS.types(rows)
    expected = (table[TOKENS.ids(rows)] * weights[:, :, None]).sum(axis=1)
    np.testing.assert_allclose(module.forward(GIVEN), expected, rtol=1e-5, atol=1e-5)
    assert module.selftest().keys() == {"base"} and not hasattr(module, "run")
    given = {"texts": rows}
    np.testing.assert_allclose(declared.references["onnx.reference"](given)["sum"], expected, rtol=1e-5, atol=1e-5)


def test_settings_name_a_tokenizer(tmp_path: Path) -> None:
    """A key beside that of the file; a session of the same file has the inputs of the file."""
    (tmp_path / "tokenizer.json").write_text(json.dumps(CONTENT), "utf-8")
    onnx.save(exported(), str(tmp_path / "model.onnx"))
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "p"\n[tool.mlaot.models.nn]\nonnx = "model.onnx"\ntokenizer = "tokenizer.json"\n'
        '[tool.mlaot.onnxruntime]\nfiles = ["model.onnx"]\n'
    )
    settings = load_settings(tmp_path)
    inputs = [[*trace(load_declared(settings, model)).arguments] for model in settings.models]
    assert inputs == [["texts"], ["input_ids", "attention_mask", "token_type_ids"]]
    assert settings.onnx_models["model.onnx"] is settings.models[1]


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (exported(len(TOKENS) - 1), "table has rows for 709 tokens, but the tokenizer has 710"),
        (exported(ids=("batch", 8)), r"input_ids have open dims \[batch, sequence\], got \[batch, 8\]"),
        (exported(name="ids"), "files with an input 'input_ids', and none 'texts', got ids, attention_mask"),
    ],
)
def test_files_that_take_no_texts(model: Any, why: str) -> None:
    with pytest.raises(MlaotError, match=why):
        trace(load_onnx(model, tokens=TOKENS))
