"""Store which strings random patterns match, as onnxruntime has it: ``python -m tests.tokenizers.make_re2``."""

from __future__ import annotations

import json
import random
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper

STORED = Path(__file__).with_name("re2.json")
ATOMS = (
    *(
        "a",
        "b",
        "k",
        "s",
        r"\x{e9}",
        r"\x{df}",
        "1",
        "_",
        " ",
        ".",
        r"\.",
        r"\w",
        r"\W",
        r"\d",
        r"\s",
        r"\pL",
        r"\p{Greek}",
    ),
    *(r"\PN", r"\p{Lu}", "[a-c]", "[^a]", r"[\w.-]", "[[:alpha:]_]", "[^[:^digit:]k]", r"\b", r"\B", "^", "$", r"\x41"),
    *(r"\Qa.\E", "[]a]", "[a-]", "[k-s]", r"\n", r"\x{3a3}", r"[\x{3c2}-\x{3c9}]", r"\x{17f}", r"[^\W]", r"\A", r"\z"),
    *(r"\C", r"\07", "-", "[+--]"),
)
TIMES = ("*", "+", "?", "{2}", "{1,3}", "{0,}", "*?", "+?", "{2}?", "{,3}", "**")
GROUPS = ("(?i:", "(?s:", "(?P<n>", "(?-i:", "(?:", "(")
LETTERS = "abkKsS1_ .\n\tzZ9-\x07" + "".join(
    map(chr, (0x17F, 0x212A, 0xE9, 0xC9, 0xDF, 0x1E9E, 0x3A3, 0x3C3, 0x3C2, 0x660))
)


def pattern(rng: random.Random, depth: int) -> str:
    kind = rng.random()
    if depth == 0 or kind < 0.45:
        return rng.choice(ATOMS)
    if kind < 0.7:
        return pattern(rng, depth - 1) + pattern(rng, depth - 1)
    if kind < 0.8:
        return f"({pattern(rng, depth - 1)}|{pattern(rng, depth - 1)})"
    if kind < 0.86:
        return f"{rng.choice(GROUPS)}{pattern(rng, depth - 1)})"
    if kind < 0.88:
        return rng.choice(["(?i)", "(?s)", "(?U)"]) + pattern(rng, depth - 1)
    return f"(?:{pattern(rng, depth - 1)}){rng.choice(TIMES)}"


def main() -> None:
    """Keep of each pattern some strings and which of them it matches; None: it is no pattern."""
    onnxruntime, rng, kept = import_module("onnxruntime"), random.Random(5), list[Any]()
    for _ in range(80):
        text = pattern(rng, 4)
        strings = ["", *("".join(rng.choices(LETTERS, k=rng.randrange(1, 6))) for _ in range(9))]
        node = helper.make_node("RegexFullMatch", ["x"], ["y"], pattern=text)
        ports = [
            helper.make_tensor_value_info(*port, [None])
            for port in (("x", TensorProto.STRING), ("y", TensorProto.BOOL))
        ]
        graph = helper.make_graph([node], "g", ports[:1], ports[1:])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
        try:
            session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
            found = session.run(None, {"x": np.array(strings, object)})[0].tolist()
        except onnxruntime.capi.onnxruntime_pybind11_state.Fail:
            found = None
        kept.append([text, strings, found])
    STORED.write_text(json.dumps(kept, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
