"""The patterns that cut a text before its parts are merged: those of well-known tokenizers, known by their text."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from mlaot.tokenizers import unicode

CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_WORDS = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = rf"{_WORDS}\p{{N}}{{1,3}}{_REST}"
QWEN2 = rf"{_WORDS}\p{{N}}{_REST}"
# As tiktoken has it: whitespace at the end of a text is one part.
CL100K = LLAMA3.replace(r"|\s*[", r"|\s+\Z|\s*[")
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_LETTER = r"[^\r\n\p{L}\p{N}]?"
O200K = (
    rf"{_LETTER}{_UPPER}*{_LOWER}+{CONTRACTIONS}?|{_LETTER}{_UPPER}+{_LOWER}*{CONTRACTIONS}?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
PATTERNS = {"gpt2": GPT2, "llama3": LLAMA3, "qwen2": QWEN2, "cl100k": CL100K, "o200k": O200K}
# The same, as others write them.
_SHORT, _ENDS = "'(?i:[sdmt]|ll|ve|re)", r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
ALIASES = {
    GPT2.replace(r" ?\p{L}+| ?\p{N}+", r" ?[\p{L}]+| ?[\p{N}]+"): "gpt2",
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s": "gpt2",
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+": "gpt2",
    rf"{_SHORT}|[^\r\n\p{{L}}\p{{N}}]?+\p{{L}}++|\p{{N}}{{1,3}}+| ?[^\s\p{{L}}\p{{N}}]++[\r\n]*+{_ENDS}": "cl100k",
    LLAMA3.replace(CONTRACTIONS, _SHORT): "llama3",
}
_CLASSES = {
    r"\p{L}": unicode.LETTER,
    r"\p{N}": unicode.NUMBER,
    r"\p{M}": unicode.MARK,
    r"\p{Lu}\p{Lt}": unicode.UPPER,
    r"\p{Ll}": unicode.LOWER,
    r"\s": unicode.SPACE,
}


def named(text: str) -> str:
    """Return the name of a pattern that is known by its text, or an empty string."""
    return {**{text: name for name, text in PATTERNS.items()}, **ALIASES}.get(text, "")


def _members(keeps: Callable[[int], object]) -> str:
    """Return the inside of a class of characters: those whose classes' bits are kept."""
    kept = unicode.classes().translate(bytes(bool(keeps(bits)) for bits in range(256)))
    return "".join(f"\\U{m.start():08x}-\\U{m.end() - 1:08x}" for m in re.finditer(b"\1+", kept))


@cache
def compiled(name: str) -> re.Pattern[str]:
    """Return a pattern as one of Python's, whose own classes are of another version of Unicode."""
    text = PATTERNS[name].replace(r"\S", r"[^\s]")
    others = unicode.LETTER & ~(unicode.UPPER | unicode.LOWER)
    text = text.replace(r"\p{Lm}\p{Lo}", _members(lambda b: b & others and not b & (unicode.UPPER | unicode.LOWER)))
    for spelled, bit in _CLASSES.items():
        members = _members(lambda b, bit=bit: b & bit)  # type: ignore[misc]
        parts = re.split(r"(\[[^]]*\])", text)  # every other one is a class of characters
        text = "".join(part.replace(spelled, members if i % 2 else f"[{members}]") for i, part in enumerate(parts))
    return re.compile(text)


def cut(name: str, text: str) -> list[str]:
    """Return the parts of a text, which are all of it."""
    return compiled(name).findall(text) if name else [text] if text else []
