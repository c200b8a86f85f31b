"""Strings as inputs and outputs of ONNX files: their operators, and what callers pass and get."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from mlaot.loading import trace
from mlaot.onnx import Backend, load
from mlaot.onnx.texts import known_texts

from ..projects import build_module, plain_module
from ..projects import load as load_module

ML = "ai.onnx.ml"
BOOL, FLOAT, INT64, STRING = TensorProto.BOOL, TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING
info, node = helper.make_tensor_value_info, helper.make_node
ONE = ["Cork", "Hull", "Oslo", "", "Hull", "Åbo", "no", "no"]
PLACES = np.array([[1, 0], [2, 2]])
TWO = ["Cork", "Oslo", "Oslo", "Cork", "Hul", "Åbo", "yes", "no"]


def texts(*values: str) -> Any:
    return np.array(values, object)


def model_of(
    nodes: list[Any],
    inputs: dict[str, Any],
    outputs: dict[str, Any],
    held: dict[str, Any] | None = None,
    opset: int = 19,
) -> onnx.ModelProto:
    """Nodes with inputs and outputs, each a type and a shape; ``held`` are constants."""
    constants = [numpy_helper.from_array(np.asarray(value), name) for name, value in (held or {}).items()]
    ports = [[info(name, *port) for name, port in ports.items()] for ports in (inputs, outputs)]
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(ML, 4)]
    return helper.make_model(helper.make_graph(nodes, "g", *ports, constants), opset_imports=opsets, ir_version=10)


def run(nodes: Any, kind: int, *inputs: Any, held: dict[str, Any] | None = None, opset: int = 19) -> Any:
    """The output ``y``, of that type, of inputs ``a``, ``b`` and so on, whose first axis is open."""
    ports, feeds = {}, [np.asarray(x, object) if isinstance(x, list) else x for x in inputs]
    for name, x in zip("abcd", feeds, strict=False):
        number = STRING if x.dtype == object else helper.np_dtype_to_tensor_dtype(x.dtype)
        ports[name] = (number, [f"n{len(x)}", *x.shape[1:]] if x.ndim else [])
    nodes = nodes if isinstance(nodes, list) else [nodes]
    made = model_of(nodes, ports, {"y": (kind, None)}, held, opset)
    made.graph.output[0].type.tensor_type.shape.SetInParent()
    (y,) = Backend.prepare(made).run(feeds)
    return y


# Operators


def test_strings_of_two_inputs_are_compared() -> None:
    """Also those that stand nowhere in the file: equal ones are equal, and different ones are not."""
    wanted = [a == b for a, b in zip(ONE, TWO, strict=True)]
    assert run(node("Equal", ["a", "b"], ["y"]), BOOL, ONE, TWO).tolist() == wanted
    rows = np.array(ONE, object)[:, None]
    y = run(node("Equal", ["a", "w"], ["y"]), BOOL, rows, held={"w": np.array(["no", "Cork", "x"])})
    assert y.tolist() == [[a == b for b in ("no", "Cork", "x")] for a in ONE]


@pytest.mark.parametrize("known", [["Cork"], ["no", "Hull", "Åbo"], ["", "x" * 300]], ids=len)
def test_strings_go_through(known: list[str]) -> None:
    """Where a file moves strings, its own and those of callers, callers get them all back."""
    nodes = [
        node("Concat", ["a", "k", "b"], ["all"], axis=0),
        node("Equal", ["all", "none"], ["is"]),
        node("Where", ["is", "other", "all"], ["y"]),
    ]
    y = run(nodes, STRING, ONE, TWO, held={"k": known, "none": ["no"], "other": ["NO"]}, opset=19)
    assert y.dtype == object
    assert y.tolist() == ["NO" if text == "no" else text for text in [*ONE, *known, *TWO]]


@pytest.mark.parametrize(
    ("op", "operands", "attributes", "compute"),
    [
        ("Identity", {}, {}, lambda x: x),
        ("Transpose", {}, {"perm": [1, 0]}, lambda x: x.T),
        ("Gather", {"i": np.array([2, 0])}, {"axis": 1}, lambda x: x[:, [2, 0]]),
        ("Slice", {"i": np.array([1]), "j": np.array([3]), "k": np.array([1])}, {}, lambda x: x[:, 1:3]),
        ("Reshape", {"i": np.array([-1])}, {}, lambda x: x.ravel()),
        ("Unsqueeze", {"i": np.array([0])}, {}, lambda x: x[None]),
        ("Expand", {"i": np.array([2, 1, 1])}, {}, lambda x: np.stack([x, x])),
        ("Tile", {"i": np.array([1, 2])}, {}, lambda x: np.tile(x, (1, 2))),
        (
            "GatherElements",
            {"i": np.array([[1, 0], [2, 2]])},
            {"axis": 1},
            lambda x: np.array([[x[0, 1], x[0, 0]], [x[1, 2]] * 2]),
        ),
        ("Flatten", {}, {"axis": 0}, lambda x: x.reshape(1, -1)),
        ("Shape", {}, {}, lambda x: np.array(x.shape)),
        ("Size", {}, {}, lambda x: np.array(x.size)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_operators_that_move(op: str, operands: dict[str, Any], attributes: Any, compute: Any) -> None:
    x = np.array([["a", "b", "c"], ["d", "", "a"]], object)
    kind = INT64 if op in ("Shape", "Size") else STRING
    y = run(node(op, ["a", *operands], ["y"], **attributes), kind, x, held=operands)
    assert y.tolist() == compute(x).tolist()
    assert y.shape == compute(x).shape


def test_split() -> None:
    x = np.array([["a", "b", "c"]], object)
    nodes = [node("Split", ["a", "s"], ["u", "v"], axis=1), node("Concat", ["v", "u"], ["y"], axis=1)]
    assert run(nodes, STRING, x, held={"s": np.array([1, 2])}).tolist() == [["b", "c", "a"]]


def test_scattered_strings() -> None:
    held = {"i": np.array([1, 3]), "u": np.array(["new", "Cork"])}
    y = run(node("ScatterElements", ["a", "i", "u"], ["y"]), STRING, ONE, held=held)
    assert y.tolist() == ["Cork", "new", "Oslo", "Cork", *ONE[4:]]


def ml(op: str, **attributes: Any) -> Any:
    return node(op, ["a"], ["y"], domain=ML, **attributes)


def tensor(values: Any) -> Any:
    return numpy_helper.from_array(np.asarray(values))


@pytest.mark.parametrize(
    ("made", "kind", "values", "default"),
    [
        (ml("LabelEncoder", keys_strings=["no", "Hull"], values_int64s=[7, -3], default_int64=5), INT64, [7, -3], 5),
        (ml("LabelEncoder", keys_strings=["no", "Hull"], values_floats=[0.5, 2.0]), FLOAT, [0.5, 2.0], -0.0),
        (
            ml("LabelEncoder", keys_strings=["no", "Hull"], values_strings=["yes", "no"]),
            STRING,
            ["yes", "no"],
            "_Unused",
        ),
        (
            ml(
                "LabelEncoder",
                **{"keys_tensor": tensor(["no", "Hull"]), "values_tensor": tensor(np.array([3, 4], np.int16))},
                default_tensor=tensor(np.array([-1], np.int16)),
            ),
            TensorProto.INT16,
            [3, 4],
            -1,
        ),
        (
            ml("CategoryMapper", cats_strings=["no", "Hull"], cats_int64s=[2, 9], default_int64=-4, default_string="x"),
            INT64,
            [2, 9],
            -4,
        ),
        (ml("OneHotEncoder", cats_strings=["no", "Hull"]), FLOAT, [[1, 0], [0, 1]], [0, 0]),
    ],
    ids=["ints", "floats", "strings", "tensors", "categories", "one-hot"],
)
def test_strings_are_looked_up(made: Any, kind: int, values: list[Any], default: Any) -> None:
    table = dict(zip(["no", "Hull"], values, strict=True))
    assert run(made, kind, ONE).tolist() == [table.get(text, default) for text in ONE]


def test_numbers_are_mapped_to_strings() -> None:
    made = ml("LabelEncoder", keys_int64s=[4, 2], values_strings=["four", "two"], default_string="many")
    assert run(made, STRING, np.array([2, 4, 3])).tolist() == ["two", "four", "many"]
    made = ml("CategoryMapper", cats_strings=["four", "two"], cats_int64s=[4, 2], default_string="many")
    assert run(made, STRING, np.array([[2], [3]])).tolist() == [["two"], ["many"]]


def test_what_strings_are_mapped_to_is_compared() -> None:
    """Of equal strings of a table, too; behind them comes what no table has."""
    first = node("LabelEncoder", ["a"], ["l"], domain=ML, keys_strings=ONE[:4], values_strings=["u", "v", "u", "Cork"])
    y = run([first, node("Equal", ["l", "b"], ["y"])], BOOL, ONE, ["u", "v", "u", "Cork", "_Unused", "x", "y", "u"])
    assert y.tolist() == [True, True, True, True, False, False, False, False]
    y = run([first, node("Concat", ["l", "b"], ["y"], axis=0)], STRING, ONE[:4], TWO)
    assert y.tolist() == ["u", "v", "u", "Cork", *TWO]


def test_strings_of_branches() -> None:
    """Of one the file's, of the other the caller's."""
    kind = [info("z", STRING, ["n"])]
    then = helper.make_graph([node("Identity", ["a"], ["z"])], "then", [], kind)
    other = helper.make_graph([node("Expand", ["k", "s"], ["z"])], "else", [], kind)
    nodes = [
        node("Shape", ["a"], ["s"]),
        node("ReduceMax", ["b"], ["m"], keepdims=0),
        node("Cast", ["m"], ["c"], to=BOOL),
        node("If", ["c"], ["y"], then_branch=then, else_branch=other),
    ]
    for taken in (0, 1):
        y = run(nodes, STRING, ONE, np.array([taken]), held={"k": np.array(["known"])}, opset=17)
        assert y.tolist() == (ONE if taken else ["known"] * len(ONE))


def test_words_are_counted() -> None:
    made = node(
        "TfIdfVectorizer",
        ["a"],
        ["y"],
        **{"mode": "TF", "min_gram_length": 1, "max_gram_length": 2, "max_skip_count": 0, "ngram_counts": [0, 2]},
        **{"ngram_indexes": [0, 1, 2], "pool_strings": ["no", "Hull", "no", "no"]},
    )
    assert run(made, FLOAT, np.array([ONE, TWO], object)).tolist() == [[2, 2, 1], [1, 0, 0]]


def test_known_strings_at_computed_places() -> None:
    table = np.array(["zero", "one", "two", "one"])
    y = run(node("Gather", ["k", "a"], ["y"]), STRING, np.array([3, 0, -2]), held={"k": table})
    assert y.tolist() == ["one", "zero", "two"]


def test_constant_strings_are_outputs() -> None:
    held = {"k": np.array([["a", "b"], ["", "a"]])}
    nodes = [node("Identity", ["k"], ["z"]), node("Size", ["a"], ["y"])]
    made = model_of(nodes, {"a": (STRING, ["n"])}, {"z": (STRING, [2, 2]), "y": (INT64, [])}, held)
    z, y = Backend.prepare(made).run([texts(*ONE)])
    assert (z.tolist(), y.item()) == ([["a", "b"], ["", "a"]], len(ONE))


def test_strings_that_a_file_computes_are_known() -> None:
    """They stand nowhere in it, and callers may pass them."""
    nodes = [node("StringNormalizer", ["k"], ["l"], case_change_action="UPPER"), node("Equal", ["a", "l"], ["y"])]
    assert run(nodes, BOOL, ["OSLO", "oslo", "x"], held={"k": np.array(["oslo"])}).tolist() == [True, False, False]


CHOSEN = node("LabelEncoder", ["a"], ["l"], domain=ML, keys_int64s=[1, 2], values_strings=["Groß", "é"])


def test_strings_are_put_together() -> None:
    made = [CHOSEN, node("StringConcat", ["l", "k"], ["y"])]
    y = run(made, STRING, np.array([[2], [1], [5]]), held={"k": np.array(["", "-x", "-x"])}, opset=20)
    assert y.tolist() == [[text + end for end in ("", "-x", "-x")] for text in ("é", "Groß", "_Unused")]
    with pytest.raises(NotImplementedError, match="9000000 different strings, which are too many"):
        many = np.array([f"{i}" for i in range(3000)])
        run(node("StringConcat", ["k", "l"], ["y"]), STRING, held={"k": many, "l": many[:, None]}, opset=20)


@pytest.mark.parametrize(
    ("attributes", "wanted"),
    [
        ({}, ["Groß", "é", "the", "THE"]),
        ({"case_change_action": "UPPER"}, ["GROß", "É", "THE", "THE"]),
        ({"case_change_action": "LOWER", "stopwords": ["The", "É"]}, ["groß"]),
        ({"stopwords": ["The", "the"], "is_case_sensitive": 1}, ["Groß", "é", "THE"]),
        ({"stopwords": ["THE", "GROß", "É"], "case_change_action": "NONE"}, [""]),
    ],
    ids=["none", "upper", "lower", "sensitive", "all"],
)
def test_normalized_strings(attributes: Any, wanted: list[str]) -> None:
    made = node("StringNormalizer", ["k"], ["y"], **attributes)
    words = np.array(["Groß", "é", "the", "THE"])
    assert run(made, STRING, held={"k": words}).tolist() == wanted
    assert run(made, STRING, held={"k": words[None]}).tolist() == [wanted]


def test_normalized_strings_that_are_chosen() -> None:
    made = [CHOSEN, node("StringNormalizer", ["l"], ["y"], case_change_action="UPPER")]
    assert run(made, STRING, np.array([2, 1, 0])).tolist() == ["É", "GROß", "_UNUSED"]
    made[1] = node("StringNormalizer", ["l"], ["y"], stopwords=["x"])
    with pytest.raises(NotImplementedError, match="how many strings are left is computed"):
        run(made, STRING, np.array([2, 1, 0]))


def test_known_texts() -> None:
    """Of initializers, of attributes, of graphs inside; settings are none."""
    inner = helper.make_graph([node("Constant", [], ["z"], value_strings=["inner"])], "i", [], [info("z", STRING, [1])])
    nodes = [
        ml("LabelEncoder", keys_strings=["a", "b"], values_strings=["c", "a"], default_string="d"),
        node("Constant", [], ["w"], value_string="e"),
        node("Constant", [], ["v"], value=tensor(["f"])),
        node("If", ["t"], ["u"], then_branch=inner, else_branch=inner),
        node("DepthToSpace", ["x"], ["o"], blocksize=2, mode="DCR"),
    ]
    made = model_of(nodes, {}, {}, {"k": np.array(["g", "a"])})
    assert sorted(known_texts(made)) == [*"abcdefg", "inner"]
    assert known_texts(model_of([], {}, {})) == ("",)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (node("Trilu", ["a"], ["y"]), r"node 'y' \(Trilu\): it takes strings or maps"),
    ],
    ids=["fill"],
)
def test_what_cannot_be_compiled(made: Any, message: str) -> None:
    with pytest.raises(NotImplementedError, match=message):
        run(made, STRING, np.array([ONE], object), opset=20)


# What callers pass and get


def ports() -> onnx.ModelProto:
    """Two inputs of strings, which an output has together, and what a dictionary and a comparison say of them."""
    nodes = [
        node("Concat", ["a:0", "b"], ["all/of"], axis=0),
        node("LabelEncoder", ["b"], ["number"], domain=ML, keys_strings=["no", "yes"], values_int64s=[4, 5]),
        node("LabelEncoder", ["number"], ["name"], domain=ML, keys_int64s=[4, 5], values_strings=["NO", "YES"]),
        node("Equal", ["a:0", "b"], ["same"]),
    ]
    inputs = {"a:0": (STRING, ["n"]), "b": (STRING, ["n"])}
    outputs = {"all/of": (STRING, ["m"]), "number": (INT64, ["n"]), "name": (STRING, ["n"]), "same": (BOOL, ["n"])}
    return model_of(nodes, inputs, outputs)


@pytest.fixture(scope="module", params=["C", "Python"])
def nn(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    folder = tmp_path_factory.mktemp("texts")
    if request.param == "C":
        return load_module(build_module(load(ports()), "texts", folder, ("base",), golden=True))
    return plain_module(load(ports()), "texts", folder, golden=True)


def test_forward(nn: ModuleType) -> None:
    for one, two in ((ONE, TWO), (texts(*ONE), np.array(TWO)), (tuple(ONE), [text.encode() for text in TWO])):
        every, number, name, same = nn.forward(one, two)
        assert every == [*ONE, *TWO]
        assert np.asarray(number).tolist() == [{"no": 4, "yes": 5}.get(text, -1) for text in TWO]
        assert name == [{"no": "NO", "yes": "YES"}.get(text, "_Unused") for text in TWO]
        assert np.asarray(same).tolist() == [a == b for a, b in zip(ONE, TWO, strict=True)]
    assert nn.info()["entries"]["forward"]["outputs"]["all_of"].startswith("str[")


def test_what_is_no_string(nn: ModuleType) -> None:
    """Of further strings, None among them, each call has its own."""
    odd = ["x\0y", "x", "\ud800", b"\xff", None, float("nan")]
    every, *_, same = nn.forward(odd, [None, "x", "\ud801", b"\xff", float("nan"), "x"])
    assert every[:2] == ["x\0y", "x"]
    assert every[4:7] == [None, None, None]
    assert np.asarray(same).tolist() == [False, True, False, True, True, False]
    every, *_, same = nn.forward(["new"], ["x"])
    assert (every, np.asarray(same).tolist()) == (["new", "x"], [False])
    every, *_, same = nn.forward([2**40, -1], [0, 1])
    assert every[:2] == [None, None]
    with pytest.raises(TypeError, match="b: expected str, got float"):
        nn.forward(["x"], [1.5])


def test_many_different_strings(nn: ModuleType) -> None:
    one, two = ([f"{i * k % 5003}" for i in range(5003)] for k in (3, 7))
    every, *_, same = nn.forward(one, two)
    assert every == [*one, *two]
    assert np.asarray(same).tolist() == [a == b for a, b in zip(one, two, strict=True)]


def test_arrays_without_elements(nn: ModuleType) -> None:
    """They have all their axes, which lists of them would not tell."""
    nothing = np.zeros((0,), object)
    assert nn.forward(nothing, np.array([], str))[0] == []
    for wrong in (np.zeros((0, 2), object), np.zeros((2, 0), str), np.zeros((0, 2), np.int64)):
        with pytest.raises(ValueError, match=r"a_0: expected str\[n\], got .*\[\d, \d\]"):
            nn.forward(wrong, nothing)
    assert nn.forward(np.zeros(2, "U0"), ["", "x"])[0] == ["", "", "", "x"]


def test_session(nn: ModuleType) -> None:
    session = nn.InferenceSession("ports.onnx")
    assert [(i.name, i.type) for i in session.get_inputs()] == [("a:0", "tensor(string)"), ("b", "tensor(string)")]
    types = ["tensor(string)", "tensor(int64)", "tensor(string)", "tensor(bool)"]
    assert [o.type for o in session.get_outputs()] == types
    every, number = session.run(["all/of", "number"], {"a:0": np.array(ONE), "b": texts(*TWO)})
    assert (type(every), every.dtype, every.tolist()) == (np.ndarray, object, [*ONE, *TWO])
    assert number.dtype == np.int64
    assert session.run(["name"], {"a:0": ["x"], "b": ["yes"]}) == [["YES"]]


def test_references(nn: ModuleType) -> None:
    """Nothing is kept of what goes in and comes out."""
    one, two = [f"of {i}" for i in range(3)], [b"of 1", "no", None]
    gc.collect()
    before = [sys.getrefcount(value) for value in (*one, *two[:2], None)]
    for _ in range(200):
        nn.forward(one, two)
        with pytest.raises(TypeError):
            nn.forward([*one, "x"], ["x", "y", "z", 1.5])
    after = [sys.getrefcount(value) for value in (*one, *two[:2], None)]
    assert after[:-1] == before[:-1]
    assert abs(after[-1] - before[-1]) < 100


def test_selftest(nn: ModuleType) -> None:
    assert nn.selftest()


def test_labels() -> None:
    traced = trace(load(ports()))
    assert traced.labels == {
        ("forward", "all_of"): ("no", "yes", "NO", "YES"),
        ("forward", "name"): ("NO", "YES", "_Unused"),
    }
    assert traced.graph.inputs["b"].attrs["further"]


def test_backend_refuses_what_a_module_refuses(tmp_path: Path) -> None:
    backend = Backend.prepare(ports())
    with pytest.raises(TypeError, match="b: expected strings, got int64"):
        backend.run([texts("x"), np.array([1])])
    with pytest.raises(TypeError, match="b: expected strings, got 5"):
        backend.run([texts("x"), np.array([5], object)])
    made = model_of(
        [node("Slice", ["x", "i", "j"], ["y"])], {"x": (FLOAT, ["n"])}, {"y": (FLOAT, None)}, {"i": [2], "j": [5]}
    )
    made.graph.output[0].type.tensor_type.shape.SetInParent()
    module = load_module(build_module(load(made), "bounds", tmp_path, ("base",)))
    backend = Backend.prepare(made)
    for size in range(8):
        x = np.arange(size, dtype=np.float32)
        assert said(lambda x: backend.run([x])[0], x) == said(module.forward, x)


def said(call: Any, x: Any) -> Any:
    """What a call gives, or says."""
    try:
        return np.asarray(call(x)).tolist()
    except ValueError as error:
        return str(error).removeprefix("forward: ")


def test_a_table_of_strings_and_numbers_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="it looks up strings, but its input holds numbers"):
        run(ml("LabelEncoder", keys_strings=["a"], values_int64s=[1]), INT64, np.array([1]))
