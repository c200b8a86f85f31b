"""Tokens of the same texts by mlaot's C and by tokenizers, tiktoken and sentencepiece: are they equal, and how fast.

    python -m benchmarks.tokenizing TEXT [FILE ...] [--lines 100000] [--seed 0]

``TEXT`` is a plain text. Each ``FILE`` is compared with the library that it is for: ``tokenizer.json``, a SentencePiece
``*.model``; without one, models of all three libraries are learned from the text, those of ``tests/reference`` and
larger ones. First come lines of all kinds of characters, of the text and of Python's own library, each a text: any
difference is printed, and the script fails. Then the speeds on one core, of the text as a whole, of its lines, of lines
of code, and of mixed ones; MB/s, the best of five. Needs the three packages.
"""

from __future__ import annotations

import argparse
import ctypes
import random
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import sentencepiece
import tokenizers

from mlaot.build.toolchain import find_compiler
from mlaot.tokenizers import Tokenizer, load, pack
from tests.instrumented import TEMPLATES
from tests.reference.make_tokenizers import cases
from tests.tokenizers.compiled import SOURCE
from tests.tokenizers.mixed import lines
from tests.tokenizers.stored import of_file

from .common import one_core, out, table

Encode = Callable[[str], list[int]]
LIBRARIES = {"json": "tokenizers", "model": "sentencepiece", "ranks": "tiktoken"}
SIZES = (("unigram", 1000), ("unigram", 8000), ("unigram", 32000), ("bpe", 8000))
SHOWN, ROUNDS, CHUNK = 3, 5, 20_000


@dataclass(frozen=True)
class Compared:
    """A tokenizer, and the function of the library that it is for; ``special``: which looks for special tokens."""

    name: str
    own: Tokenizer
    library: str
    encode: Encode
    special: bool


# All texts of a block, each between two ends.
ALL = """
ptrdiff_t encode_all(const char *packed, const char *texts, const int64_t *ends, ptrdiff_t count, int special)
{
    const Tokenizer tokenizer = tokenizer_view(packed);
    ptrdiff_t total = 0;
    for (ptrdiff_t i = 0; i < count; i++) {
        int32_t *tokens;
        total += tokenizer_encode(&tokenizer, texts + ends[i], ends[i + 1] - ends[i], special, false, false, &tokens);
        free(tokens);
    }
    return total;
}
"""


class Own:
    """The C, compiled as in wheels, over a packed tokenizer."""

    def __init__(self, code: ctypes.CDLL, tokenizer: Tokenizer, special: bool) -> None:
        self.code, self.special, packed = code, special, pack(tokenizer)
        self.memory = ctypes.create_string_buffer(packed, len(packed))
        self.size = len(packed)

    def tokens(self, text: str) -> list[int]:
        """Encode a text."""
        data, found = text.encode(), ctypes.POINTER(ctypes.c_int32)()
        size = ctypes.c_ssize_t(len(data))
        count = self.code.encode(self.memory, data, size, int(self.special), 0, 0, ctypes.byref(found))
        tokens = found[:count]
        self.code.drop(found)
        return tokens

    def all_tokens(self, texts: list[str]) -> Callable[[], object]:
        """Return a function that encodes all texts, and drops their tokens."""
        data = [text.encode() for text in texts]
        ends = (ctypes.c_int64 * (len(data) + 1))(0, *accumulate(map(len, data)))
        whole, count = b"".join(data), ctypes.c_ssize_t(len(data))
        return lambda: self.code.encode_all(self.memory, whole, ends, count, int(self.special))


def compiled(folder: Path) -> ctypes.CDLL:
    source, library = folder / "own.c", folder / "own.so"
    source.write_text(SOURCE + ALL)
    command = [
        *find_compiler(),
        "-std=c11",
        "-O2",
        "-fno-tree-vectorize",
        "-fPIC",
        "-shared",
        f"-I{TEMPLATES}",
        source,
        "-o",
        library,
    ]
    subprocess.run(command, check=True)
    code = ctypes.CDLL(str(library))
    code.encode.restype = ctypes.c_ssize_t
    return code


def of_path(path: Path) -> Compared:
    """A file, and its library."""
    name = f"{path.parent.name}/{path.name}"
    if path.suffix == ".json":
        one = tokenizers.Tokenizer.from_file(str(path))
        return Compared(
            name, load(path), "tokenizers", lambda text: one.encode(text, add_special_tokens=False).ids, True
        )
    model = sentencepiece.SentencePieceProcessor(model_file=str(path))
    return Compared(name, load(path), "sentencepiece", model.encode, False)


def learned(path: Path, plain: Sequence[str], folder: Path) -> Iterator[Compared]:
    """Learn models from a text."""
    for name, content, encode, _ in cases([*lines(3000, 7, plain), *plain[:3000]], folder):
        kind = name.partition(" ")[0]
        yield Compared(name, of_file(name, content, folder), LIBRARIES[kind], encode, kind != "model")
    for kind, size in SIZES:
        made = folder / f"{kind}{size}"
        sentencepiece.SentencePieceTrainer.train(
            **{"input": str(path), "model_prefix": str(made), "model_type": kind, "vocab_size": size},
            **{"hard_vocab_limit": size < SIZES[2][1], "minloglevel": 2},
        )
        yield of_path(made.with_suffix(".model"))


def code_lines() -> list[str]:
    """Lines of Python's own library."""
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    return "".join(file.read_text(errors="replace") for file in files).split("\n")


def broken(text: str, rng: random.Random) -> str:
    """A text of which a byte was changed, so that others may be no characters any more."""
    data = bytearray(text.encode())
    data[rng.randrange(len(data))] = rng.randrange(256)
    return data.decode(errors="replace")


def seconds(call: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - begun)
    return best


def differences(
    every: Sequence[Compared], found: dict[str, Own], count: int, seed: int, plain: Sequence[str]
) -> dict[str, int]:
    """How many lines have other tokens, by the name of the tokenizer; the first ones are printed."""
    wrong, rng = dict.fromkeys(found, 0), random.Random(seed)
    for begin in range(0, count, CHUNK):
        mixed = lines(min(CHUNK, count - begin), seed + begin, plain)
        mixed = [broken(text, rng) if text and rng.random() < 0.1 else text for text in mixed]
        for one in every:
            own = found[one.name]
            differ = [text for text in mixed if own.tokens(text) != one.encode(text)]
            for text in differ[: max(0, SHOWN - wrong[one.name])]:
                out(f"{one.name}: {text!r}\n  {own.tokens(text)}\n  {one.encode(text)}")
            wrong[one.name] += len(differ)
    return wrong


def main() -> None:
    """Compare, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, help="a plain text")
    parser.add_argument("files", type=Path, nargs="*", help="files of tokenizers")
    parser.add_argument("--lines", type=int, default=100_000, help="how many mixed lines are compared")
    parser.add_argument("--seed", type=int, default=0, help="of the mixed lines")
    options = parser.parse_args()
    one_core()
    folder, plain, source = Path(tempfile.mkdtemp()), options.text.read_text(), code_lines()
    code, rows, verses = compiled(folder), [], plain.split("\n")
    texts = {"text": [plain], "lines": verses, "code": source[:50_000], "mixed": lines(20_000, options.seed, verses)}
    every = [*map(of_path, options.files)] or [*learned(options.text, verses, folder)]
    found = {one.name: Own(code, one.own, one.special) for one in every}
    wrong = differences(every, found, options.lines, options.seed, [*verses, *source])
    for one in every:
        own = found[one.name]
        cells = [one.name, one.library, f"{own.size / 1e6:.2f}", f"{wrong[one.name]:,}"]
        for given in texts.values():
            mine = seconds(own.all_tokens(given))
            theirs = seconds(lambda encode=one.encode, given=given: [encode(text) for text in given])
            size = sum(len(text.encode()) for text in given)
            cells += [f"{size / mine / 1e6:.1f}", f"{theirs / mine:.1f}x"]
        rows.append(cells)
    heads = ("", "compared with", "packed, MB", f"differ of {options.lines:,}")
    table((*heads, *(head for name in texts for head in (f"{name}, MB/s", "faster"))), rows)
    sys.exit(any(wrong.values()))


if __name__ == "__main__":
    main()
