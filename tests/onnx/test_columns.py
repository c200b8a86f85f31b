"""Strings that are made of those that callers pass: against onnxruntime's answers, and each door against the others."""

from __future__ import annotations

import json
import random
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from mlaot.errors import MlaotError
from mlaot.onnx import Backend, load

from ..projects import build_module, plain_module
from ..projects import load as load_module
from .make_texts import STORED
from .test_texts import ML, model_of, node, run, texts
from .text_cases import cases, strings

BOOL, FLOAT, INT32, INT64, STRING = (getattr(TensorProto, k) for k in ("BOOL", "FLOAT", "INT32", "INT64", "STRING"))
MICROSOFT = "com.microsoft"
SIGMA = "\N{GREEK CAPITAL LETTER SIGMA}"
LONG = f"A bé {SIGMA}" * 170_000  # more than a megabyte


def test_answers_of_onnxruntime() -> None:
    """What it refuses, such as rows without strings, is made here or refused."""
    answers = iter(json.loads(STORED.read_text(encoding="utf-8")))
    for case in cases():
        model = Backend.prepare(case.model)
        for call in case.calls:
            wanted = next(answers)
            if wanted is None:
                continue
            found = [[[*y.shape], y.ravel().tolist()] for y in model.run([call["x"]])]
            assert found == wanted
    assert next(answers, "end") == "end"


def everything() -> Any:
    """A file with every kind of step: of strings ``a`` and ``b``, of numbers ``f`` and ``i``, before and behind."""
    made = [
        node("StringConcat", ["a", "b"], ["both"]),
        node("StringConcat", ["a", "end"], ["ended"]),
        node("StringNormalizer", ["a"], ["low"], case_change_action="LOWER"),
        node("StringNormalizer", ["both"], ["up"], case_change_action="UPPER"),
        node("StringNormalizer", ["a"], ["left"], case_change_action="LOWER", stopwords=["the", "É"]),
        node("StringSplit", ["a"], ["pieces", "count"], delimiter="--"),
        node("StringSplit", ["low"], ["words", "word_count"], maxsplit=2),
        node("RegexFullMatch", ["up"], ["is"], pattern=r"\pL*(\W|$).{0,9}"),
        node(
            "Tokenizer", ["low"], ["tokens"], domain=MICROSOFT, mark=1, pad_value="#", mincharnum=2, tokenexp=r"\b\w+"
        ),
        node("Tokenizer", ["a"], ["apart"], domain=MICROSOFT, pad_value="", mincharnum=1, separators=[r"\s+", "[.,]"]),
        node("Tokenizer", ["b"], ["letters"], domain=MICROSOFT, pad_value="", mincharnum=1, separators=[""]),
        node("Cast", ["f"], ["f_text"], to=STRING),
        node("Cast", ["f_text"], ["f_again"], to=FLOAT),
        node("Mul", ["i", "i"], ["square"]),
        node("Cast", ["square"], ["square_text"], to=STRING),
        node("Where", ["i_odd", "a", "b"], ["chosen"]),
        node("StringConcat", ["chosen", "square_text"], ["noted"]),
        node("StringConcat", ["noted", "f_text"], ["all"]),
        node("StringNormalizer", ["chosen"], ["chosen_up"], case_change_action="UPPER"),
        node("Transpose", ["words"], ["turned"]),
        node("RegexFullMatch", ["turned"], ["turned_is"], pattern="[a-z]+"),
    ]
    outputs = {name: (STRING, [f"{name}_{i}" for i in range(rank)]) for name, rank in RANKS.items()}
    outputs |= {name: (kind, ["n"]) for name, kind in {"count": INT64, "is": BOOL, "f_again": FLOAT}.items()}
    outputs["turned_is"] = (BOOL, ["words_1", "n"])
    inputs = {
        "a": (STRING, ["n"]),
        "b": (STRING, ["n"]),
        "f": (FLOAT, ["n"]),
        "i": (INT64, ["n"]),
        "i_odd": (BOOL, ["n"]),
    }
    model = model_of(made, inputs, outputs, {"end": np.array(["-end"])}, 22)
    model.opset_import.append(helper.make_opsetid(MICROSOFT, 1))
    return model


RANKS = {
    **{"both": 1, "ended": 1, "low": 1, "up": 1, "left": 1, "pieces": 2, "words": 2, "tokens": 2, "apart": 2},
    **{"letters": 2, "f_text": 1, "square_text": 1, "all": 1, "chosen_up": 1},
}


@pytest.fixture(scope="module", params=["C", "Python"])
def nn(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    folder = tmp_path_factory.mktemp("columns")
    if request.param == "C":
        return load_module(build_module(load(everything()), "columns", folder, ("base",), golden=True))
    return plain_module(load(everything()), "columns", folder, golden=True)


def numbers(rng: random.Random, n: int) -> list[Any]:
    special = [0.1, -0.0, 1e-5, 123456789.0, float("inf"), float("-inf"), 1e20, 3.0]
    floats, integers = np.array(rng.choices(special, k=n), np.float32), np.array(rng.choices(range(-9, 99), k=n))
    return [floats, integers, integers % 2 == 1]


def plain(value: Any) -> Any:
    return value if isinstance(value, list) else np.asarray(value).tolist()


def test_doors_agree(nn: ModuleType) -> None:
    model, rng = Backend.prepare(everything()), random.Random(7)
    names = [output.name for output in everything().graph.output]
    for n in (1, 2, 9, 60):
        a, b = strings(rng, n), strings(rng, n)
        others = numbers(rng, n)
        found = nn.forward(np.array(a, object), [text.encode() for text in b], *others)
        wanted = model.run([texts(*a), texts(*b), *others])
        for name, one, other in zip(names, found, wanted, strict=True):
            assert plain(one) == other.tolist(), name


def test_long_strings(nn: ModuleType) -> None:
    """Memory for them grows in C; in Python a tenth shows as much."""
    others = [np.ones(1, np.float32), np.ones(1, np.int64), np.ones(1, bool)]
    text = LONG[: len(LONG) // 10] if str(nn.__file__).endswith(".py") else LONG
    both, ended, low, *_ = nn.forward([text], ["b"], *others)
    assert (both, ended, low) == (
        [text + "b"],
        [text + "-end"],
        [text.replace("A", "a").replace(SIGMA, "\N{GREEK SMALL LETTER SIGMA}")],
    )


def test_what_is_no_text(nn: ModuleType) -> None:
    """Bytes that are no UTF-8, halves of surrogates and missing strings are refused, by the name of their input."""
    others = [np.ones(2, np.float32), np.ones(2, np.int64), np.ones(2, bool)]
    for odd in (
        b"a\xff",
        b"\xc3",
        b"\xe2\x82",
        b"\xf0\x9f\x98",
        b"\xc0\x80",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        "\ud800",
    ):
        with pytest.raises(ValueError, match=r"^forward: a: expected strings in UTF-8, got other bytes"):
            nn.forward(["x", odd], ["", ""], *others)
    for missing in (None, float("nan")):
        with pytest.raises(ValueError, match=r"^forward: a: expected strings, got one that is missing"):
            nn.forward(["x", missing], ["", ""], *others)
    with pytest.raises(TypeError, match="takes 5 positional arguments, got 6"):
        nn.forward(["x"], ["y"], *others, others[0])
    with pytest.raises(TypeError, match="unexpected keyword argument 'both_made'"):
        nn.forward(["x"], ["y"], *others, both_made=["z"])
    with pytest.raises(TypeError, match=r"^forward: out: "):
        nn.forward(["x", "y"], ["", ""], *others, out=nn.forward(["x", "y"], ["", ""], *others))


def test_strings_of_a_call_are_its_own(nn: ModuleType) -> None:
    others = [np.ones(1, np.float32), np.ones(1, np.int64), np.ones(1, bool)]
    for text in ("new", "newer", "new"):
        assert nn.forward([text], [""], *others)[0] == [text]
    assert nn.selftest()
    assert nn.forward.__doc__.count("_made") == 0
    session = nn.InferenceSession("model.onnx")
    assert [port.name for port in session.get_inputs()] == ["a", "b", "f", "i", "i_odd"]
    feeds = {"a": texts("A"), "b": texts("b"), "f": others[0], "i": others[1], "i_odd": others[2]}
    both, every = session.run(["both", "all"], feeds)
    assert (both.tolist(), every.tolist()) == (["Ab"], ["A11"])


# Numbers


CASTS: dict[str, tuple[int, list[str], list[Any]]] = {
    "f": (FLOAT, ["1", " 2.5\n", "-3e2", "INF", "-inf", "1e-60", "1e60"], [1, 2.5, -300, np.inf, -np.inf, 0, np.inf]),
    "l": (INT64, ["9223372036854775807", "-9223372036854775808", "007", "+5.99"], [2**63 - 1, -(2**63), 7, 5]),
    "i": (INT32, ["2147483647", "-1", " 0 "], [2**31 - 1, -1, 0]),
    "u": (TensorProto.UINT8, ["255", "-0"], [255, 0]),
    "d": (TensorProto.DOUBLE, ["0.1", "1e300", "nan"], [0.1, 1e300, np.nan]),
    "b": (BOOL, ["0", "1", "-2"], [False, True, True]),
}
WRONG = ("", "x", "1x", "1_0", "0x10", "\N{ARABIC-INDIC DIGIT THREE}", "1\0", "--1", ".", "1e")


def test_numbers_of_strings(tmp_path: Path) -> None:
    made = [node("Cast", [name], [f"{name}_y"], to=kind) for name, (kind, *_) in CASTS.items()]
    inputs = {name: (STRING, [f"n{name}"]) for name in CASTS}
    model = model_of(made, inputs, {f"{name}_y": (kind, [f"n{name}"]) for name, (kind, *_) in CASTS.items()})
    modules = [load_module(build_module(load(model), "numbers", tmp_path, ("base",)))]
    modules.append(plain_module(load(model), "plain_numbers", tmp_path))
    given = {name: strings for name, (_, strings, _) in CASTS.items()}
    known = [
        run(node("Cast", ["k"], ["y"], to=k), k, held={"k": np.array(strings)}) for k, strings, _ in CASTS.values()
    ]
    for found in (known, *[module.forward(**given) for module in modules]):
        for one, (_, _, wanted) in zip(map(np.asarray, found), CASTS.values(), strict=True):
            assert np.array_equal(one, np.array(wanted, one.dtype), equal_nan=one.dtype.kind == "f")
    for module in modules:
        for name in CASTS:
            for wrong in (*WRONG, *(("256", "-1", "9" * 60) if name == "u" else ())):
                with pytest.raises(ValueError, match=rf"^forward: {name}: expected (numbers|integers)"):
                    module.forward(**given | {name: ["1", wrong]})


# What files say


def test_open_width() -> None:
    """It is the longest row's; a number in the file or the settings is a bound, up to which rows are filled."""
    model = model_of(
        [node("StringSplit", ["a"], ["y", "c"])], {"a": (STRING, ["n"])}, {"y": (STRING, ["n", "w"])}, opset=20
    )
    for pinned, shape in (({}, (2, 3)), ({"w": 5}, (2, 5))):
        (y,) = Backend.prepare(model_with(model, pinned)).run([texts("a b c", "d")])
        assert y.shape == shape
        assert y.tolist()[0][:4] == ["a", "b", "c", *[""] * (shape[1] - 3)][:4]
    with pytest.raises(ValueError, match="expected strings of at most 2 pieces, got one of 3"):
        Backend.prepare(model_with(model, {"w": 2})).run([texts("a b c", "d")])


def model_with(model: Any, pinned: dict[str, int]) -> Any:
    """A copy whose output has sizes in the place of names."""
    copy = type(model)()
    copy.CopyFrom(model)
    for extent in copy.graph.output[0].type.tensor_type.shape.dim:
        if extent.dim_param in pinned:
            extent.dim_value = pinned[extent.dim_param]
    return copy


def test_terms_of_tokens() -> None:
    """As converted vectorizers of scikit-learn have it: of rows that are as long as they are."""
    made = [
        node("Reshape", ["a", "flat"], ["b"]),
        node("StringNormalizer", ["b"], ["c"], case_change_action="LOWER", is_case_sensitive=0),
        node("Tokenizer", ["c"], ["t"], domain=MICROSOFT, mark=0, pad_value="#", mincharnum=1, tokenexp="[a-z]+"),
        node(
            "TfIdfVectorizer",
            ["t"],
            ["y"],
            mode="TF",
            ngram_counts=[0, 2],
            ngram_indexes=[0, 1, 2],
            min_gram_length=1,
            max_gram_length=2,
            max_skip_count=0,
            pool_strings=["the", "cat", "the", "cat"],
        ),
    ]
    model = model_of(made, {"a": (STRING, ["n", 1])}, {"y": (FLOAT, ["n", 3])}, {"flat": np.array([-1])}, opset=20)
    model.opset_import.append(helper.make_opsetid(MICROSOFT, 1))
    compiled = Backend.prepare(model)
    rows = {"The cat": [1, 1, 1], "the": [1, 0, 0], "CAT the, the cat!": [2, 2, 1], "dog": [0, 0, 0]}
    (y,) = compiled.run([texts(*rows)[:, None]])
    assert y.tolist() == [*rows.values()]
    assert compiled.run([texts("the")[:, None]])[0].tolist() == [[1, 0, 0]]


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (
            node("RegexFullMatch", ["a"], ["y"], pattern=r"\Ca"),
            r"the pattern '\\\\Ca' has \\C, which cannot be",
        ),
        (node("RegexFullMatch", ["a"], ["y"], pattern="(?m)^a"), r"has \(\?m\)\^, which cannot be compiled"),
        (node("Tokenizer", ["a"], ["y"], domain=MICROSOFT, mincharnum=1, separators=["x*"]), "may match nothing"),
    ],
    ids=["byte", "lines", "nothing"],
)
def test_what_cannot_be_compiled(made: Any, message: str) -> None:
    model = model_of([made], {"a": (STRING, ["n"])}, {"y": (STRING, [f"n{made.op_type}"])}, opset=20)
    model.opset_import.append(helper.make_opsetid(MICROSOFT, 1))
    with pytest.raises(MlaotError, match=message):
        load(model).trace()


@pytest.mark.parametrize(("op", "taken", "count"), [("StringConcat", 2, 60), ("StringNormalizer", 1, 600)])
def test_many_steps(op: str, taken: int, count: int) -> None:
    """What would take a step for each of 2^60 strings, or one inside of 600 others, ends the build at once."""
    names = ["a", *(f"v{i}" for i in range(count - 1)), "y"]
    more: dict[str, Any] = {"case_change_action": "UPPER"} if taken == 1 else {}
    made = [node(op, [one] * taken, [other], **more) for one, other in pairwise(names)]
    with pytest.raises(MlaotError, match="strings are made in too many steps"):
        load(model_of(made, {"a": (STRING, ["n"])}, {"y": (STRING, ["m"])}, opset=20)).trace()
    joined = [node("Concat", [one] * 2, [other], axis=0) for one, other in pairwise(names[-30:])]
    load(model_of(joined, {names[-30]: (STRING, ["n"])}, {"y": (STRING, ["m"])}, opset=20)).trace()


def test_made_strings_are_not_looked_at() -> None:
    """What is made of numbers that the model computes, callers get; only integers are still looked up."""
    made = [
        node("Add", ["a", "a"], ["b"]),
        node("Cast", ["b"], ["c"], to=STRING),
        node("LabelEncoder", ["c"], ["y"], domain=ML, keys_strings=["2", "02", "-4", "x"], values_int64s=[1, 2, 3, 4]),
    ]
    assert run(made, INT64, np.array([1, -2, 5])).tolist() == [1, 3, -1]
    with pytest.raises(NotImplementedError, match="strings that are made of what the model computes; only callers"):
        run(made, INT64, np.array([1], np.float32))


def test_strings_of_several_inputs() -> None:
    """Joined, chosen, and in sequences: each is made once, before, wherever it goes."""
    one, two = ["b a", "C"], ["x", "y"]
    joined = [
        node("Concat", ["a", "k", "b"], ["c"], axis=0),
        node("StringNormalizer", ["c"], ["d"], case_change_action="UPPER"),
    ]
    upper = [*joined, node("LabelEncoder", ["d"], ["y"], domain=ML, keys_strings=["X", "KK"], values_int64s=[5, 6])]
    assert run(upper, INT64, one, two, held={"k": np.array(["kK"])}, opset=20).tolist() == [-1, -1, 6, 5, -1]
    chosen = [node("Where", ["m", "a", "b"], ["c"]), node("RegexFullMatch", ["c"], ["y"], pattern="[a-z ]+")]
    for held, wanted in (([True, True], [True, False]), ([False, True], [True, False])):
        assert run(chosen, BOOL, one, two, held={"m": np.array(held)}, opset=20).tolist() == wanted
    sequence = [
        node("SequenceConstruct", ["a", "b"], ["s"]),
        node("SequenceInsert", ["s", "a"], ["t"]),
        node("ConcatFromSequence", ["t"], ["c"], axis=0),
        node("StringSplit", ["c"], ["y", "n"]),
    ]
    pieces = [["b", "a"], ["C", ""], ["x", ""], ["y", ""]]
    assert run(sequence, STRING, one, two, opset=20).tolist() == [*pieces, *pieces[:2]]
    columns = [
        node("Gather", ["a", "i"], ["c"], axis=1),
        node("SplitToSequence", ["a"], ["s"], axis=1, keepdims=0),
        node("SequenceAt", ["s", "i"], ["d"]),
        node("StringConcat", ["c", "d"], ["y"]),
    ]
    rows = np.array([["x", "u"], ["y", "v"]], object)
    assert run(columns, STRING, rows, held={"i": np.array(1)}, opset=20).tolist() == ["uu", "vv"]


# Maps


def map_of(name: str, key: int, value: int) -> Any:
    return helper.make_value_info(name, helper.make_map_type_proto(key, helper.make_tensor_type_proto(value, [])))


def maps() -> Any:
    """Maps of strings and of integers, whose values at some keys are features; answers are onnxruntime's."""
    made = [
        node("DictVectorizer", ["s"], ["words"], domain=ML, string_vocabulary=["c", "b", "a"]),
        node("DictVectorizer", ["i"], ["numbers"], domain=ML, int64_vocabulary=[3, 2, 1]),
        node("CastMap", ["i"], ["dense"], domain=ML, cast_to="TO_INT64", map_form="DENSE"),
        node("CastMap", ["i"], ["sparse"], domain=ML, cast_to="TO_FLOAT", map_form="SPARSE", max_map=5),
    ]
    shapes = {
        "words": (FLOAT, [1, 3]),
        "numbers": (FLOAT, [1, 3]),
        "dense": (INT64, [1, "m"]),
        "sparse": (FLOAT, [1, 5]),
    }
    model = model_of(made, {}, shapes)
    model.graph.input.extend([map_of("s", STRING, FLOAT), map_of("i", INT64, FLOAT)])
    return model


def called(model: Any, *given: Any) -> Any:
    return model.run(given)


@pytest.mark.parametrize("door", ["C", "Python", "backend"])
def test_maps(door: str, tmp_path: Path) -> None:
    if door == "backend":
        forward: Any = partial(called, Backend.prepare(maps()))
    else:
        make = build_module if door == "C" else plain_module
        more = {"isas": ("base",)} if door == "C" else {}
        nn: Any = make(load(maps()), f"maps_{door}", tmp_path, golden=True, **more)
        nn = load_module(nn) if door == "C" else nn
        assert [port.type for port in nn.InferenceSession("m").get_inputs()] == [
            "map(string,tensor(float))",
            "map(int64,tensor(float))",
        ]
        assert nn.selftest()
        forward = nn.forward
        for wrong, message in (
            ([("a", 1)], "expected dict, got list"),
            ({"a": "x"}, "s_values_made"),
            ({3.5: 1}, "expected str, got float"),
        ):
            with pytest.raises(TypeError, match=message):
                forward(wrong, {})
    found = [np.asarray(y) for y in forward({"a": 1.5, "c": 2.0, "else": 9}, {3: 1.75, 1: 2.0, 7: -1.0})]
    assert [y.tolist() for y in found] == [[[2, 0, 1.5]], [[1.75, 0, 2]], [[2, 1, -1]], [[0, 2, 0, 1.75, 0]]]
    assert [np.asarray(y).tolist() for y in forward({}, {})] == [[[0, 0, 0]], [[0, 0, 0]], [[]], [[0, 0, 0, 0, 0]]]
