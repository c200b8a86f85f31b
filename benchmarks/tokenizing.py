"""Tokens of the same texts by mlaot's C and by tokenizers, tiktoken and sentencepiece: are they equal, and how fast.

    python -m benchmarks.tokenizing TEXT [FILE ...] [--lines 100000] [--seed 0]

``TEXT`` is a plain text. Each ``FILE`` is compared with the library that it is for: ``tokenizer.json``, a SentencePiece
``*.model``, ``*.tiktoken``; without one, two models of SentencePiece are learned from the text. First come lines of all
kinds of characters, each a text: any difference is printed, and the script fails. Then the speeds on one core, of the
text as a whole, of its lines, and of the mixed lines as a whole; MB/s, the best of five. Needs the three packages.
"""

from __future__ import annotations

import argparse
import base64
import ctypes
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path

import sentencepiece
import tiktoken
import tokenizers

from mlaot.build.toolchain import find_compiler
from mlaot.tokenizers import Tokenizer, load, pack
from mlaot.tokenizers.patterns import O200K
from tests.instrumented import TEMPLATES
from tests.tokenizers.compiled import SOURCE
from tests.tokenizers.mixed import lines

from .common import one_core, out, table

Encode = Callable[[str], list[int]]
TIKTOKEN = {
    "gpt2": r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s",
    "cl100k": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
    "llama3": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+",
    "o200k": O200K,
}
SHOWN, ROUNDS = 3, 5


# All texts of a block, each between two ends.
ALL = """
ptrdiff_t encode_all(const char *packed, const char *texts, const int64_t *ends, ptrdiff_t count, int special)
{
    const Tokenizer tokenizer = tokenizer_view(packed);
    ptrdiff_t total = 0;
    for (ptrdiff_t i = 0; i < count; i++) {
        int32_t *tokens;
        total += tokenizer_encode(&tokenizer, texts + ends[i], ends[i + 1] - ends[i], special, false, &tokens);
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
        count = self.code.encode(self.memory, data, size, int(self.special), 0, ctypes.byref(found))
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
    command = [*find_compiler(), "-std=c11", "-O3", "-fPIC", "-shared", f"-I{TEMPLATES}", source, "-o", library]
    subprocess.run(command, check=True)
    code = ctypes.CDLL(str(library))
    code.encode.restype = ctypes.c_ssize_t
    return code


def peer(path: Path, own: Tokenizer) -> tuple[str, Encode, bool]:
    """The library that a file is for, its function, and whether texts of special tokens are these tokens for it."""
    if path.suffix == ".json":
        one = tokenizers.Tokenizer.from_file(str(path))
        return "tokenizers", lambda text: list(one.encode(text, add_special_tokens=False).ids), True
    if path.suffix == ".model" and not own.whole:
        model = sentencepiece.SentencePieceProcessor(model_file=str(path))
        return "sentencepiece", lambda text: list(model.encode(text)), False
    rows = (line.split() for line in path.read_bytes().splitlines())
    ranks = {base64.b64decode(token): int(rank) for token, rank in rows}
    special = {text.decode(): token for text, token in own.added.items()}
    made = tiktoken.Encoding(path.stem, pat_str=TIKTOKEN[own.pattern], mergeable_ranks=ranks, special_tokens=special)
    return "tiktoken", lambda text: made.encode(text, allowed_special="all"), True


def learned(text: Path, folder: Path) -> Iterator[Path]:
    """Learn two models from a text."""
    for kind in ("bpe", "unigram"):
        sentencepiece.SentencePieceTrainer.train(
            input=str(text), model_prefix=str(folder / kind), model_type=kind, vocab_size=4000, minloglevel=2
        )
        yield folder / f"{kind}.model"


def seconds(call: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - begun)
    return best


def main() -> None:
    """Compare, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, help="a plain text")
    parser.add_argument("files", type=Path, nargs="*", help="files of tokenizers")
    parser.add_argument("--lines", type=int, default=100_000, help="how many mixed lines are compared")
    parser.add_argument("--seed", type=int, default=0, help="of the mixed lines")
    options = parser.parse_args()
    one_core()
    folder, plain = Path(tempfile.mkdtemp()), options.text.read_text()
    code, mixed, rows, wrong = compiled(folder), lines(options.lines, options.seed, plain.split("\n")), [], 0
    texts = {"text": [plain], "lines": plain.split("\n"), "mixed": ["".join(mixed[:20_000])]}
    for path in options.files or learned(options.text, folder):
        tokenizer = load(path)
        library, encode, special = peer(path, tokenizer)
        own = Own(code, tokenizer, special)
        differ = [text for text in mixed if own.tokens(text) != encode(text)]
        for text in differ[:SHOWN]:
            out(f"{path}: {text!r}\n  {own.tokens(text)}\n  {encode(text)}")
        wrong += len(differ)
        cells = [f"{path.parent.name}/{path.name}", library, f"{own.size / 1e6:.2f}", f"{len(differ):,}"]
        for given in texts.values():
            mine = seconds(own.all_tokens(given))
            theirs = seconds(lambda encode=encode, given=given: [encode(text) for text in given])
            size = sum(len(text.encode()) for text in given)
            cells += [f"{size / mine / 1e6:.1f}", f"{theirs / mine:.1f}x"]
        rows.append(cells)
    heads = ("", "compared with", "packed, MB", f"differ of {options.lines:,}")
    table((*heads, *(head for name in texts for head in (f"{name}, MB/s", "faster"))), rows)
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
