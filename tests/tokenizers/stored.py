"""Small tokenizers of other libraries, and their answers: tests/reference/make_tokenizers.py writes them."""

from __future__ import annotations

import base64
import json
from functools import cache
from pathlib import Path

import numpy as np

from mlaot.tokenizers import Tokenizer, load
from mlaot.tokenizers.ranks import Known, of_ranks

DATA = dict(np.load(Path(__file__).parents[1] / "reference" / "tokenizers.npz"))
TEXTS: list[str] = json.loads(bytes(DATA["texts"]))
CASES = sorted(name.removesuffix("/file") for name in DATA if name.endswith("/file"))


def file_of(case: str) -> bytes:
    """The file of a case, whose name is a suffix in front: json, model or ranks."""
    return bytes(DATA[f"{case}/file"])


def of_file(name: str, content: bytes, folder: Path) -> Tokenizer:
    """The tokenizer of a file."""
    kind, _, rest = name.partition(" ")
    if kind == "ranks":
        rows = [line.split() for line in content.splitlines()]
        known = Known(rest, {"<|endoftext|>": len(rows)})
        return of_ranks(Path(name), {base64.b64decode(token): int(rank) for token, rank in rows}, known)
    path = folder / name / f"tokenizer.{kind}"
    path.parent.mkdir()
    path.write_bytes(content)
    return load(path)


@cache
def tokenizer_of(case: str, folder: Path) -> Tokenizer:
    """The tokenizer of a case."""
    return of_file(case, file_of(case), folder)


def answers(case: str, special: bool) -> list[list[int]]:
    """The tokens of each text; SentencePiece knows no special tokens in texts."""
    name = f"{case}/{'special' if special else 'plain'}"
    if name not in DATA:
        return []
    ends = np.cumsum(DATA[f"{name} counts"])[:-1]
    return [part.tolist() for part in np.split(DATA[name].astype(int), ends)]
