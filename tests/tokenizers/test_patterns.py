"""Patterns cut all of a text, at the same places as Python's, in Python and in C."""

from __future__ import annotations

import ctypes
import itertools
import re
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlaot.tokenizers import Tokenizer, patterns
from mlaot.tokenizers.automaton import Automaton
from mlaot.tokenizers.pattern_syntax import PatternError
from mlaot.tokenizers.steps import BEHAVIORS, Cut

from .compiled import Compiled

CUTS = {
    "gpt2": ("I", "'ll", " go", "  ", " now", "'", "S", " 1234", " \n", "\n", "end", "\n\n"),
    "llama3": ("I", "'ll", " go", "  ", " now", "'S", " ", "123", "4", " \n\n", "end", "\n\n"),
    "qwen2": ("I", "'ll", " go", "  ", " now", "'S", " ", "1", "2", "3", "4", " \n\n", "end", "\n\n"),
    "cl100k": ("I", "'ll", " go", "  ", " now", "'S", " ", "123", "4", " \n\n", "end", "\n\n"),
    "o200k": ("I'll", " go", "  ", " now'S", " ", "123", "4", " \n\n", "end", "\n\n"),
}


def parts(cuts: tuple[Cut, ...], text: str) -> list[str]:
    return [part.decode() for cut in cuts for part in cut.apply(text.encode(), True)]


@pytest.mark.parametrize("name", patterns.PATTERNS)
def test_cut(name: str) -> None:
    text = "I'll go   now'S 1234 \n\nend\n\n"
    found = parts(patterns.cut(name), text)
    assert "".join(found) == text
    assert found == [*CUTS[name]]


@pytest.mark.parametrize("name", patterns.PATTERNS)
@settings(deadline=None)  # patterns are compiled at first
@given(text=st.text())
def test_all_is_cut(name: str, text: str) -> None:
    assert "".join(parts(patterns.cut(name), text)) == text


KINDS = " \n\tA1's\u4e2d\u0301./"
SHORT = [*("".join(parts).encode() for size in (2, 3, 4) for parts in itertools.product(KINDS[:9], repeat=size))]


@pytest.fixture(scope="module", params=patterns.PATTERNS)
def short(request: pytest.FixtureRequest, code: ctypes.CDLL) -> tuple[Tokenizer, Compiled]:
    """A tokenizer in which each short part is a token of its own, so that tokens tell where a text is cut."""
    tokens = (*(bytes([byte]) for byte in range(256)), *SHORT)
    own = Tokenizer(
        *("bpe", tokens, {token: i for i, token in enumerate(tokens)}),
        **{"pairs": {(0, 1): (0, 256)}, "byte_level": True, "byte_tokens": (*range(256),), "whole": True},
        cuts=patterns.cut(request.param),
    )
    return own, Compiled(code, own)


def test_cut_in_c(short: tuple[Tokenizer, Compiled]) -> None:
    own, compiled = short
    for parts in itertools.product(KINDS, repeat=4):
        assert compiled.encode("".join(parts)) == own.encode("".join(parts)), parts


@settings(deadline=None)
@given(text=st.text(st.sampled_from(KINDS + "\r\u3000rReEvVlL\u017f\u01c5\xaa"), max_size=12))
def test_long_cut_in_c(short: tuple[Tokenizer, Compiled], text: str) -> None:
    own, compiled = short
    assert compiled.encode(text) == own.encode(text)


ATOMS = st.sampled_from(["a", "b", " ", "[ab]", "[^a]", ".", r"\s", r"\S", "[a-c]", "\u00e9"])
LOOKS = st.sampled_from(["(?!a)", r"(?=\s)", r"(?!\S)", "(?=[ab])"])
TIMES = st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{2,}", "*?", "+?", "??", "{1,2}?"])


def _larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    group = inner.map("(?:{})".format)
    return st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(group, st.sampled_from(["", "?", "{1,2}", "*", "+?"])).map("".join),
        st.tuples(inner, inner).map("|".join).map("(?:{})".format),
        st.tuples(inner, LOOKS).map("".join),
    )


EXPRESSIONS = st.recursive(st.tuples(ATOMS, st.just("") | TIMES).map("".join), _larger, max_leaves=6)


@settings(deadline=None, max_examples=60)
@given(expression=EXPRESSIONS, texts=st.lists(st.text("abc \n\u00e9", max_size=12), min_size=8, max_size=8))
def test_expressions(expression: str, texts: list[str]) -> None:
    """What is matched is what Python finds, which goes back where these tables never do."""
    try:
        find = patterns.of_text(expression)
    except PatternError as error:
        assert "nothing" in str(error)
        return
    for text in texts:
        found = [(begin, end) for begin, end, matched in find.spans(text) if matched]
        assert found == [match.span() for match in re.finditer(expression, text)], text


def test_possessive_and_alike() -> None:
    for expression, text, expected in (
        (r"a++b?|.", "aaab", ["aaab"]),
        (r"\s++$|\s", "a  \n b  ", ["a", " ", " ", "\n", " ", "b", "  "]),
        (r"[ab]?+a|c", "aab bac", ["aa", "b ", "ba", "c"]),
        (r"\d{1,2}+", "12345x", ["12345", "x"]),
        (r"(?i:k's)|(?i)ST", "K'S k'\u017f st", ["K'S", " ", "k'\u017f", " ", "st"]),
        (r"[^(\s|[.,])]+", "a(b |c)", ["a", "(", "b", " |", "c", ")"]),
        (r"[\p{L}&&[^a-c]]+", "abdxc", ["ab", "dx", "c"]),
        (r"[]x]+\x41\u0042", "]xABx", ["]xAB", "x"]),
        (r"\p{^L}|\P{N}+", "a1", ["a", "1"]),
    ):
        assert parts((Cut(patterns.of_text(expression)),), text) == expected, expression


UNKNOWN = (
    *(
        "(",
        "a)",
        "[a",
        "*a",
        "a{2,1}",
        "a{5000}",
        r"\b",
        r"(?<=a)b",
        "(?=ab)c",
        "(?:ab)++",
        "(?:a*)*b",
        "a*",
        "",
        r"\p{Xx}",
        "^a",
    ),
    *(
        r"\h",
        r"\1",
        "(?x:a)",
        "[[:alpha:]]",
        "[b-a]",
        "(?i:\u00e9)",
        "(" * 60 + "a" + ")" * 60,
        "(?:a?){900}b{900}{900}",
    ),
    *(r"\x{110000}", "\\", "(?:[ab]*a[ab]{14}c)"),
)


@pytest.mark.parametrize("expression", UNKNOWN)
def test_unknown(expression: str) -> None:
    with pytest.raises(PatternError):
        patterns.of_text(expression)


HARD = (r"\s+$", "a*b", "a*b|a", "(?:a|aa)+b|a", r"(?:\s*a)*c| ")


@pytest.mark.parametrize("expression", HARD)
def test_no_text_is_slow(code: ctypes.CDLL, expression: str) -> None:
    """What was looked at in vain is not looked at again: twice the text takes twice as many looks."""
    looks = 0

    def counted(self: Automaton, code: int) -> int:
        nonlocal looks
        looks += 1
        return class_of(self, code)

    class_of, automaton = Automaton.class_of, patterns.of_text(expression)
    tokens = tuple(bytes([byte]) for byte in range(256))
    own = Tokenizer(
        *("bpe", tokens, {token: i for i, token in enumerate(tokens)}),
        **{"byte_level": True, "byte_tokens": (*range(256),), "cuts": (Cut(automaton),)},
    )
    for unit in ("a", " ", "a ", "  a"):
        text, counts = unit * 30_000 + "x", list[int]()
        assert own.encode(text[-3000:]) == Compiled(code, own).encode(text[-3000:])
        assert Compiled(code, own).encode(text) == [*text.encode()]
        for size in (2000, 4000):
            looks = 0
            with patch.object(Automaton, "class_of", counted):
                list(automaton.spans(text[-size:]))
            counts.append(looks)
        assert size // 2 <= counts[1] < 2.2 * counts[0] < 20 * size


@pytest.mark.parametrize("behavior", BEHAVIORS)
@pytest.mark.parametrize("inverted", [False, True])
def test_behaviors(code: ctypes.CDLL, behavior: str, inverted: bool) -> None:
    """Pieces of one kind tell where a text is cut."""
    tokens = (*(bytes([byte]) for byte in range(256)), *SHORT)
    own = Tokenizer(
        *("bpe", tokens, {token: i for i, token in enumerate(tokens)}),
        **{"pairs": {(0, 1): (0, 256)}, "byte_level": True, "byte_tokens": (*range(256),), "whole": True},
        cuts=(Cut(patterns.of_text("[A1]|\n"), behavior, inverted), Cut(patterns.of_literal(" "))),
    )
    compiled = Compiled(code, own)
    for chosen in itertools.product(KINDS[:6], repeat=5):
        assert compiled.encode("".join(chosen)) == own.encode("".join(chosen)), chosen
    assert parts(own.cuts[:1], "-AA-A") == EXPECTED[behavior, inverted]


EXPECTED = {
    ("isolated", False): ["-", "A", "A", "-", "A"],
    ("isolated", True): ["-", "A", "A", "-", "A"],
    ("removed", False): ["-", "-"],
    ("removed", True): ["A", "A", "A"],
    ("contiguous", False): ["-", "AA", "-", "A"],
    ("contiguous", True): ["-", "AA", "-", "A"],
    ("merged with previous", False): ["-A", "A", "-A"],
    ("merged with previous", True): ["-", "A", "A-", "A"],
    ("merged with next", False): ["-", "A", "A-", "A"],
    ("merged with next", True): ["-A", "A", "-A"],
}
