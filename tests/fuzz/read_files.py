"""Damaged files of tokenizers and of scikit-learn: each is read, or ends in one clear error.

    python -m tests.fuzz.read_files tokenizers --count 5000 --seed 0
    python -m tests.fuzz.read_files skops --count 5000 --seed 0

``tokenizer.json`` files are those that ``tests/tokenizers`` has stored; files of skops are made here, which needs the
packages scikit-learn and skops. Texts, numbers and keys of their JSON are exchanged, left out or nested, arrays
exchanged, bytes flipped or cut off. Each file is read, packed or traced, in a process of its own; what counts as a
failure is as in ``onnx_files``.
"""

from __future__ import annotations

import argparse
import io
import random
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np

from ..tokenizers.stored import CASES, file_of
from .children import in_child
from .onnx_files import cut, flipped
from .stored import damaged

NAMES = ("tokenizer.json", "model.skops")


@cache
def tokenizer_files() -> list[bytes]:
    """Whole files of tokenizers."""
    return [file_of(case) for case in CASES if case.startswith("json ")]


def tokenizer_file(number: int) -> bytes:
    """File ``number``."""
    rng = random.Random(number)
    content = rng.choice(tokenizer_files())
    return damaged(content, rng) if rng.random() < 0.8 else rng.choice((flipped, cut))(rng, content)


@cache
def skops_files() -> list[bytes]:
    """Whole files of skops."""
    from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestClassifier
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from skops.io import dumps

    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 3))
    y = np.digitize(x @ [1.0, -2.0, 0.5], [-1, 1])
    texts = ["the moon", "a rocket to the moon", "an engine", "brakes of an engine", "tyres", "the orbit of a moon"]
    return [
        dumps(make_pipeline(StandardScaler(), LogisticRegression()).fit(x, y)),
        dumps(RandomForestClassifier(2, max_depth=3, random_state=0).fit(x, y)),
        dumps(HistGradientBoostingRegressor(max_iter=2).fit(x, y)),
        dumps(KNeighborsClassifier(3).fit(x, y)),
        dumps(make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(texts, [0, 0, 1, 1, 1, 0])),
    ]


def skops_file(number: int) -> bytes:
    """File ``number``: a ZIP archive with a schema in JSON, and arrays; mostly one of its parts is another one."""
    rng = random.Random(number)
    content = rng.choice(skops_files())
    if rng.random() < 0.2:
        return rng.choice((flipped, cut))(rng, content)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    names = [name for name in parts if name != "schema.json"]
    kind = rng.random()
    if kind < 0.6:
        parts["schema.json"] = damaged(parts["schema.json"], rng)
    elif kind < 0.7:
        parts[rng.choice(names)] = parts[rng.choice(names)]
    elif kind < 0.8:
        parts[rng.choice(("../secret", "/etc/passwd", "a/../../secret"))] = parts.pop(rng.choice(names))
    elif kind < 0.9:
        name = rng.choice(names)
        parts[name] = rng.choice((flipped, cut))(rng, parts[name])
    else:
        name, shape = rng.choice(names), rng.choice(((0,), (1,), (3, 3), (2**40,), (2**62, 2), (-1,)))
        header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
        parts[name] = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + b"\0" * 72
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for name, part in parts.items():
            archive.writestr(name, part)
    return written.getvalue()


def read_tokenizer(path: Path) -> str:
    """Read and pack a tokenizer."""
    from mlaot.tokenizers import load, pack

    tokenizer = load(path)
    pack(tokenizer)
    tokenizer.encode("First Citizen:\n  We'll <|endoftext|> 12")
    return "model"


def read_estimator(path: Path) -> str:
    """Read and trace an estimator."""
    import mlaot.sklearn

    mlaot.sklearn.load(path).trace()
    return "model"


def run(kind: str, number: int, folder: Path) -> tuple[str, float]:
    """The outcome of file ``number``, and its seconds."""
    is_tokenizer = kind == "tokenizers"
    path = folder / NAMES[not is_tokenizer]
    path.write_bytes((tokenizer_file if is_tokenizer else skops_file)(number))
    return in_child(lambda: (read_tokenizer if is_tokenizer else read_estimator)(path))


def warm(kind: str) -> None:
    """Read the whole files, so that what is imported and computed once is not so in each child."""
    with tempfile.TemporaryDirectory(prefix="mlaot-") as name:
        for content in tokenizer_files() if kind == "tokenizers" else skops_files():
            path = Path(name, NAMES[kind == "skops"])
            path.write_bytes(content)
            (read_tokenizer if kind == "tokenizers" else read_estimator)(path)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("tokenizers", "skops"))
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0, help="number of the first file")
    options = parser.parse_args(arguments)
    warm(options.kind)
    tally: Counter[str] = Counter()
    longest = 0.0
    with tempfile.TemporaryDirectory(prefix="mlaot-") as name:
        for number in range(options.seed, options.seed + options.count):
            said, taken = run(options.kind, number, Path(name))
            longest = max(longest, taken)
            kind = said.partition(":")[0]
            is_right = kind in ("model", "refused") and "\n" not in said
            tally[kind if is_right else "failed"] += 1
            if not is_right:
                print(f"{number}: {said}", flush=True)
    print(f"{dict(tally)}, {longest:.1f} s at most")
    return int(tally["failed"] > 0)


if __name__ == "__main__":
    sys.exit(main())
