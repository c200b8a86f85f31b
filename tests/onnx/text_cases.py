"""Random files that make strings, and the strings that they are called with; onnxruntime's answers are stored."""

from __future__ import annotations

import random
import sys
import unicodedata
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

BOOL, FLOAT, INT64, STRING = TensorProto.BOOL, TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING
CALLS = 3
SPECIAL = (
    0x130,
    0x131,
    0x17F,
    0x4B,
    0xDF,
    0x1E9E,
    0x3A3,
    0x3C3,
    0x3C2,
    0x1C5,
    0x1C6,
    0x1FB3,
    0x1FBC,
    0x149,
    0xFB00,
)  # whose case is
WORDS = (
    "",
    " ",
    "a",
    "The",
    "the",
    "ÉTÉ",
    "straße",
    "İx",
    "ᾳ-Σς",
    "x.y",
    "a  b",
    "-",
    "#",
    "日本",
    "a,b;c",
    "_1 2_",
    "K\u212a",
)
PATTERNS = (
    *(r"\w+", r"[a-z]+", r"\b\w\w+\b", r"(?i)[k-t]+|\d", r"\pL+", r"\p{Lu}\p{Ll}*|[^\s\w]+", r"a|ab|abc", r"\S+"),
    *(r"(\W|^)[\w.\-]{0,5}(\W|$)", r"", r".*", r"[^\x00-\x7f]+", r"(?s).+\z", r"\Qx.y\E|[[:punct:]]+", r"x*\B"),
)
SEPARATORS = ([" "], [".", " "], ["[,;]", r"\s+"], ["--", "-"], [r"\b_|\W"], [""])


class Case(NamedTuple):
    """A file of one input of strings and one of numbers, and calls of it."""

    model: onnx.ModelProto
    calls: list[dict[str, Any]]


def characters() -> list[str]:
    """Characters of every category, and those whose case is special."""
    found = dict[str, list[str]]()
    for code in range(1, 0x30000):
        if not 0xD800 <= code < 0xE000:
            found.setdefault(unicodedata.category(chr(code)), []).append(chr(code))
    rng = random.Random(1)
    chosen = [c for kind in sorted(found) if kind != "Cn" for c in rng.sample(found[kind], min(6, len(found[kind])))]
    return [*chosen, *map(chr, SPECIAL)]


def strings(rng: random.Random, count: int) -> list[str]:
    """Random strings, of words that files know and of any characters."""
    letters = [*characters(), *"aAbB. -_,;#1 "]
    return [
        rng.choice(WORDS) if rng.random() < 0.4 else "".join(rng.choices(letters, k=rng.randrange(9)))
        for _ in range(count)
    ]


def cases() -> list[Case]:
    return [_case(random.Random(seed)) for seed in range(12)]


def _case(rng: random.Random) -> Case:
    rank, nodes, outputs = rng.choice([1, 1, 2]), list[Any](), list[Any]()
    made, moved = [("x", rank)], set[str]()

    def add(op: str, inputs: list[str], rank: int, /, kind: Any = STRING, **attributes: Any) -> str:
        name = f"v{len(nodes)}"
        if moved & {*inputs}:
            moved.add(name)
        nodes.append(helper.make_node(op, inputs, [name], **attributes))
        outputs.append(helper.make_tensor_value_info(name, kind, [f"{name}_{i}" for i in range(rank)]))
        return name

    constant = numpy_helper.from_array(np.array([rng.choice(WORDS)], object), "k")
    for _ in range(6):
        x, rank = rng.choice(made)
        flat = rank == 1
        kind = rng.choice(
            ["case", "case", "stop", "concat", "constant", "split", "match", "token", "separate", "move", "move"]
        )
        if kind == "stop" and x in moved:  # how many are left is not known
            continue
        if kind in ("case", "stop") and not flat:
            x, rank, flat = add("Reshape", [x, "minus"], 1), 1, True
        if kind == "case":
            action = rng.choice(["LOWER", "UPPER"])
            made.append((add("StringNormalizer", [x], rank, case_change_action=action, **LOCALE), rank))
        elif kind == "stop":
            stop = rng.sample(["a", "THE", "the", "été", "#", "x.y"], 3)
            stop = [stop[0]] if len({word.lower() for word in stop}) < 3 else stop
            options: dict[str, Any] = {"is_case_sensitive": rng.randrange(2), "stopwords": stop}
            action = rng.choice(["LOWER", "UPPER", "NONE"])
            made.append((add("StringNormalizer", [x], 1, case_change_action=action, **options, **LOCALE), 1))
        elif kind == "concat":
            made.append((add("StringConcat", [x, x], rank), rank))
        elif kind == "constant":
            made.append((add("StringConcat", rng.choice([[x, "k"], ["k", x]]), max(rank, 1)), max(rank, 1)))
        elif kind == "split" and rank < 3:
            delimiter, most = rng.choice(["", " ", ".", "--", "a"]), rng.choice([0, 1, 2, None])
            name = add(
                "StringSplit", [x], rank + 1, delimiter=delimiter, **({} if most is None else {"maxsplit": most})
            )
            nodes[-1].output.append(f"{name}_count")
            outputs.append(helper.make_tensor_value_info(f"{name}_count", INT64, [f"{name}_{i}" for i in range(rank)]))
            made.append((name, rank + 1))
        elif kind == "match":
            add("RegexFullMatch", [x], rank, BOOL, pattern=rng.choice(PATTERNS))
        elif kind in ("token", "separate") and rank < 3:
            how: dict[str, Any] = {"tokenexp": rng.choice([p for p in PATTERNS if p])}
            if kind == "separate":
                how = {"separators": rng.choice(SEPARATORS)}
            least = 1 if how.get("separators") == [""] else rng.choice([1, 1, 2, 3])
            options = {"mark": rng.randrange(2), "pad_value": rng.choice(["#", "", "pad"]), "mincharnum": least}
            made.append((add("Tokenizer", [x], rank + 1, **options, **how, domain="com.microsoft"), rank + 1))
        elif kind == "move":
            moving = [("Transpose", [x], {}), ("Concat", [x, "k" if rank == 1 else x], {"axis": 0})]
            op, inputs, options = rng.choice(moving)
            moved.add(f"v{len(nodes)}")
            made.append((add(op, inputs, rank, **options), rank))
    held = [constant, helper.make_tensor("minus", INT64, [1], [-1])]
    shape = [f"n{i}" for i in range(made[0][1])]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", STRING, shape)], outputs, held)
    opsets = [helper.make_opsetid("", 22), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    calls = []
    for _ in range(CALLS):
        count = rng.randrange(1, 7)
        texts = np.array(strings(rng, count * (2 if made[0][1] == 2 else 1)), object)
        calls.append({"x": texts.reshape(count, 2) if made[0][1] == 2 else texts})
    return Case(model, calls)


LOCALE: dict[str, str] = {"locale": "C.UTF-8"} if "onnxruntime" in sys.modules else {}
