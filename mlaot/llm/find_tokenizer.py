"""Find the tokenizer of a language model: that of its folder or its GGUF file, or the user's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from mlaot.errors import MlaotError, warn
from mlaot.llm.gguf import GgufTokenizer, read_gguf_tokenizer
from mlaot.llm.gguf_file import is_gguf
from mlaot.tokenizers import Tokenizer, files, hugging_face, load, patterns, sentencepiece
from mlaot.tokenizers.normalizer import Normalizer

# What GGUF files call the patterns by which texts are cut, and whether a part that is a token is never merged.
PATTERNS = {
    "gpt-2": ("gpt2", False),
    "llama-bpe": ("llama3", True),
    "qwen2": ("qwen2", False),
    "gpt-4o": ("o200k", False),
}


def find_tokenizer(model: Path, wanted: Tokenizer | Path | None, count: int) -> Tokenizer | None:
    """Return the tokenizer of a model of ``count`` tokens, or ``None``.

    An unsupported tokenizer that the user did not ask for gives a warning and ``None``.
    """
    if isinstance(wanted, Tokenizer):
        return _checked(wanted, "the tokenizer", count)
    if wanted is not None:
        if not wanted.exists():
            raise MlaotError(f"no file or folder {wanted}; expected a tokenizer, such as tokenizer.json")
        return _checked(load(wanted), str(wanted), count)
    try:
        if model.is_dir() and any((model / name).is_file() for name in files.NAMES):
            return _checked(load(model), str(model), count)
        if model.is_file() and is_gguf(model):
            return _checked(of_gguf(model, read_gguf_tokenizer(model)), str(model), count)
    except MlaotError as error:
        warn(f"the module takes tokens and no strings, since its tokenizer cannot be read: {error}")
    return None


def _checked(tokenizer: Tokenizer, name: str, count: int) -> Tokenizer:
    if len(tokenizer.tokens) > count:
        raise MlaotError(
            f"{name}: expected the tokenizer of a model of {count:,} tokens, got {len(tokenizer.tokens):,}"
        )
    return tokenizer


def of_gguf(path: Path, said: GgufTokenizer) -> Tokenizer:
    """Return the tokenizer that a GGUF file describes."""
    if said.model not in ("llama", "gpt2"):
        raise MlaotError(f"{path}: tokenizer.ggml.model: expected 'llama' or 'gpt2', got {said.model!r}")
    types = said.types or [sentencepiece.NORMAL] * len(said.tokens)
    found = _of_pieces(path, said, types) if said.model == "llama" else _of_merges(path, said, types)
    adds = said.model == "llama" if said.adds_begin is None else said.adds_begin
    begin = (said.begin,) if adds and said.begin is not None else ()
    end = () if said.end is None else (said.end,)
    return replace(found, begin=begin, closing=end if said.adds_end else (), end=end)


def _of_pieces(path: Path, said: GgufTokenizer, types: list[int]) -> Tokenizer:
    scores = said.scores or [0.0] * len(said.tokens)
    rows = zip(said.tokens, scores, types, strict=True)
    pieces = [sentencepiece.Piece(text.encode(), score, kind) for text, score, kind in rows]
    normalizer = Normalizer(prefixes=said.adds_space is not False, marks=True)
    falls_back = sentencepiece.BYTE in types
    return sentencepiece.of_pieces(path, pieces, normalizer, merges=True, falls_back=falls_back)


def _of_merges(path: Path, said: GgufTokenizer, types: list[int]) -> Tokenizer:
    if said.pre not in PATTERNS:
        raise MlaotError(f"{path}: tokenizer.ggml.pre: expected one of {', '.join(PATTERNS)}, got {said.pre!r}")
    pattern, whole = PATTERNS[said.pre]
    split = {"type": "Split", "behavior": "Isolated", "pattern": {"Regex": patterns.PATTERNS[pattern]}}
    added = [
        {"id": i, "content": token, "special": kind == sentencepiece.CONTROL}
        for i, (token, kind) in enumerate(zip(said.tokens, types, strict=True))
        if kind in (sentencepiece.CONTROL, sentencepiece.USER_DEFINED)
    ]
    content = {
        "model": {"type": "BPE", "merges": said.merges, "ignore_merges": whole, "vocab": _numbered(path, said.tokens)},
        "normalizer": {"type": "NFC"} if said.pre == "qwen2" else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, {"type": "ByteLevel", "use_regex": False}]},
        "added_tokens": added,
    }
    return hugging_face.of_content(path, content)


def _numbered(path: Path, tokens: list[str]) -> dict[str, int]:
    found = {token: i for i, token in enumerate(tokens)}
    if len(found) < len(tokens):
        raise MlaotError(f"{path}: tokenizer.ggml.tokens: expected a text for each token, got one twice")
    return found
