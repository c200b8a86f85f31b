"""Terms are counted as scikit-learn counts them, in Python and in C."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlaot.tokenizers.pattern_syntax import PatternError
from mlaot.tokenizers.python_patterns import words
from mlaot.tokenizers.vectorizer import PAD, Vectorizer, rows
from mlaot.tokenizers.vectorizer_packing import pack_vectorizers

from .. import instrumented
from ..compiled import guarded
from .compiled import WARNINGS
from .vectorizers import EXPECTED, NAMES, TEXTS, VECTORIZERS

SOURCE = """
#include "runtime/vectorizer.c"

ptrdiff_t row(const char *block, const char *text, ptrdiff_t bytes, int64_t **numbers)
{
    Terms terms = {.text = {0}};
    if (!read_text(block, text, bytes, &terms)) {
        return -1;
    }
    *numbers = (int64_t *)(void *)terms.rows.at;
    terms.rows.at = NULL;
    free_terms(&terms);
    return terms.rows.bytes / 8;
}

void drop(int64_t *numbers)
{
    free(numbers);
}
"""


class Compiled:
    """Packed vectorizers in C; the block and texts lie before pages that cannot be read."""

    def __init__(self, code: ctypes.CDLL, *vectorizers: Vectorizer) -> None:
        packed = pack_vectorizers(vectorizers)
        self.code, self.memory = code, guarded(len(packed))
        self.memory[:] = np.frombuffer(packed, np.uint8)
        self.block = ctypes.c_void_p(self.memory.ctypes.data)

    def row(self, text: str | bytes) -> list[int]:
        data = text if isinstance(text, bytes) else text.encode(errors="surrogatepass")
        found = ctypes.POINTER(ctypes.c_int64)()
        memory = guarded(len(data))
        memory[:] = np.frombuffer(data, np.uint8)
        at, size = ctypes.c_void_p(memory.ctypes.data), ctypes.c_ssize_t(len(data))
        count = self.code.row(self.block, at, size, ctypes.byref(found))
        assert count >= 0
        numbers = found[:count] if count else []
        self.code.drop(found)
        return numbers


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("vectorizers")
    source, made = folder / "vectorizers.c", folder / "vectorizers.so"
    source.write_text(SOURCE)
    options = ["-std=c11", "-O1", *WARNINGS, "-fPIC", "-shared", f"-I{instrumented.TEMPLATES}"]
    subprocess.run([*os.environ.get("CC", "cc").split(), *options, str(source), "-o", str(made)], check=True)
    loaded = ctypes.CDLL(str(made))
    loaded.row.restype = ctypes.c_ssize_t
    return loaded


@pytest.mark.parametrize("number", range(len(VECTORIZERS)), ids=NAMES)
def test_stored_counts(library: ctypes.CDLL, number: int) -> None:
    vectorizer, compiled = VECTORIZERS[number], Compiled(library, VECTORIZERS[number])
    for text, expected in zip(TEXTS, EXPECTED[number], strict=True):
        assert vectorizer.row(text, 0) == expected, text
        assert compiled.row(text) == expected, text


def test_several_vectorizers_of_a_text(library: ctypes.CDLL) -> None:
    compiled = Compiled(library, *VECTORIZERS)
    for row, text in zip(rows(VECTORIZERS, TEXTS), TEXTS, strict=True):
        assert compiled.row(text) == [number for number in row if number != PAD]


@settings(max_examples=60, deadline=None)
@given(text=st.text(st.characters() | st.sampled_from("Σς ab\u0345\u0301\ud800'.\n"), max_size=60))
def test_any_text(library: ctypes.CDLL, text: str) -> None:
    for vectorizer in VECTORIZERS[:16]:
        assert Compiled(library, vectorizer).row(text) == vectorizer.row(text, 0)


def test_many_terms(library: ctypes.CDLL) -> None:
    """They are put in order by all digits of their places."""
    text = " ".join(f"word{number % 700}" for number in range(2000))
    for vectorizer in (VECTORIZERS[17], VECTORIZERS[16]):
        assert Compiled(library, vectorizer).row(text) == vectorizer.row(text, 0)


def test_any_bytes(library: ctypes.CDLL) -> None:
    """What is no UTF-8 is read within the text, too."""
    rng = np.random.default_rng(0)
    for vectorizer in VECTORIZERS:
        compiled = Compiled(library, vectorizer)
        for size in (1, 2, 3, 5, 40):
            compiled.row(rng.integers(0x80, 0x100, size).astype(np.uint8).tobytes())


LONG = {
    "words": lambda n: "the quick brown fox " * (n // 20),
    "one word": lambda n: "a" * n,
    "sigmas": lambda n: "Σ" * (n // 4) + "Ω" + "\u0301" * (n // 8) + "Σ\u0301" * (n // 8),
    "spaces": lambda n: " \n" * (n // 2),
    "in vain": lambda n: "a-" * (n // 2),
}


@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
def test_long_texts(library: ctypes.CDLL, text: Callable[[int], str]) -> None:
    """A time that is not in proportion to their length would be hours."""
    hard = Vectorizer("word", 1, 2, 2, {"a": 0, "the quick": 1}, r"(?:\w-)+x|\w+")
    for vectorizer in (*VECTORIZERS[:9:4], hard):
        compiled = Compiled(library, vectorizer)
        compiled.row(text(1_000_000))
        assert compiled.row(text(3_000)) == vectorizer.row(text(3_000), 0)


@pytest.mark.parametrize(
    "pattern",
    ["a*", "(a)b", r"(a)|(b)", r"(?i)a", r"(?<=a)b", r"(a)\1", r"\S\b.", r"\b.", r"^a", "(", r"\Ba", "a{2000}"],
)
def test_patterns_that_are_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        words(pattern)
